// The plain kernels of embeddings and positions.
#include "Lowerings.h"
#include <cmath>

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// embedding
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(EmbeddingOp op, PlainBuilder &b) {
  Value table = b.operand(1);
  b.generic("i->ij", b.operand(0), b.result(0),
            [&](auto v) { return op.getScale().convertToDouble() * b.load(table, {v[0], b.loop('j')}); });
}

// Adds rows, in order, to the entries of a table that `entries`, plus `offset`, names.
static void lowerTableGrad(PlainBuilder &b, Value dy, Value entries, int64_t offset, Value dtable, double scale) {
  b.fill(dtable, 0);
  b.forEach(b.rowCount(), [&](const Number &i) {
    b.elementwise(b.slice(dy, {i}), b.slice(dtable, {b.load(entries, {i}) + offset}),
                  [&](auto v) { return v[1] + scale * v[0]; });
  });
}

static void lowerPlainOp(EmbeddingGradOp op, PlainBuilder &b) {
  lowerTableGrad(b, b.operand(0), b.operand(1), 0, b.result(0), op.getScale().convertToDouble());
}

//===--------------------------------------------------------------------------------------------------------===//
// positions
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(AddPositionsOp op, PlainBuilder &b) {
  Value table = b.operand(1);
  b.generic("ij,i->ij", {b.operand(0), b.positions()}, b.result(0),
            [&](auto v) { return v[0] + b.load(table, {v[1] + op.getOffset(), b.loop('j')}); });
}

static void lowerPlainOp(PositionsGradOp op, PlainBuilder &b) {
  lowerTableGrad(b, b.operand(0), b.positions(), op.getOffset(), b.result(0), 1);
}

void attachEmbeddingLowerings(MLIRContext &context) {
  attachLowerings<EmbeddingOp, EmbeddingGradOp, AddPositionsOp, PositionsGradOp>(context);
}

} // namespace xfc
