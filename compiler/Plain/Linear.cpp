// The plain kernels of matrix products over rows and of their gradients.
#include "Lowerings.h"
#include <cmath>

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// linear
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(LinearOp op, PlainBuilder &b) {
  Value y = b.result(0);
  if (op.getBias())
    b.generic("j->ij", b.operand(2), y, [](auto v) { return v[0]; });
  else
    b.fill(y, 0);
  b.generic("ik,jk->ij", {b.operand(0), b.operand(1)}, y, [](auto v) { return v[2] + v[0] * v[1]; });
}

static void lowerPlainOp(LinearInputGradOp, PlainBuilder &b) {
  Value dx = b.result(0);
  b.fill(dx, 0);
  b.generic("ij,jk->ik", {b.operand(0), b.operand(1)}, dx, [](auto v) { return v[2] + v[0] * v[1]; });
}

//===--------------------------------------------------------------------------------------------------------===//
// Gradients of parameters
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(LinearWeightGradOp op, PlainBuilder &b) {
  Value dweight = b.result(0);
  b.fill(dweight, 0);
  b.generic("ij,ik->jk", {b.operand(0), b.operand(1)}, dweight, [](auto v) { return v[2] + v[0] * v[1]; });
  if (!op.getDbias())
    return;
  Value dbias = b.result(1);
  b.fill(dbias, 0);
  b.generic("ij->j", b.operand(0), dbias, [](auto v) { return v[1] + v[0]; });
}

void attachLinearLowerings(MLIRContext &context) {
  attachLowerings<LinearOp, LinearInputGradOp, LinearWeightGradOp>(context);
}

} // namespace xfc
