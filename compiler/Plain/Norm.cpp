// The plain kernels of norms and their gradients.
#include "Dialect/Norm.h"
#include "Lowerings.h"
#include <cmath>

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// norm, add_norm
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(NormOp op, PlainBuilder &b) {
  const NormSpec spec = NormSpec::of(op);
  const int64_t n = op.getX().getType().getFeatures();
  Value x = b.operand(0), weight = b.operand(1), bias = op.getBias() ? b.operand(2) : Value(), y = b.result(0),
        stats = b.result(1);
  b.forEach(b.rowCount(), [&](const Number &i) {
    Value row = b.slice(x, {i});
    Number mean = spec.rms ? Number(0) : b.reduce("j->", row, 0, [](auto v) { return v[1] + v[0]; }) / n;
    Number squares = b.reduce("j->", row, 0, [&](auto v) {
      const Number centered = v[0] - mean;
      return v[1] + centered * centered;
    });
    Number variance = squares * (spec.divisor(n) > 0 ? 1 / spec.divisor(n) : 0);
    Number r = 1 / (spec.epsInStd ? sqrt(variance) + spec.eps : sqrt(variance + spec.eps));
    SmallVector<Value> operands = {row, weight};
    if (bias)
      operands.push_back(bias);
    b.elementwise(operands, b.slice(y, {i}), [&](auto v) {
      Number scaled = v[1] * (v[0] - mean) * r;
      return bias ? scaled + v[2] : scaled;
    });
    b.store(mean, stats, {i, 0});
    b.store(r, stats, {i, 1});
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// Gradients
//===--------------------------------------------------------------------------------------------------------===//

static void lowerPlainOp(NormGradOp op, PlainBuilder &b) {
  const NormSpec spec = NormSpec::of(op);
  const int64_t n = op.getX().getType().getFeatures();
  const double inverse = spec.divisor(n) > 0 ? 1 / spec.divisor(n) : 0;
  Value dy = b.operand(0), x = b.operand(1), weight = b.operand(2), stats = b.operand(3), dx = b.result(0);
  Value addend = op.getAddend() ? b.operand(4) : Value();
  b.forEach(b.rowCount(), [&](const Number &i) {
    Number mean = b.load(stats, {i, 0}), r = b.load(stats, {i, 1});
    SmallVector<Value> rows = {b.slice(dy, {i}), weight, b.slice(x, {i})};
    Number meanG = b.reduce("j,j,j->", rows, 0, [&](auto v) { return v[3] + v[0] * v[1]; }) / n;
    Number sumGC = b.reduce("j,j,j->", rows, 0, [&](auto v) {
      const Number centered = v[2] - mean;
      return v[3] + v[0] * v[1] * centered;
    });
    Number k = r * r * r * inverse;
    if (spec.epsInStd) {
      Number std = 1 / r - spec.eps;
      const Number ofPositive = r * r / std * inverse;
      k = select(std > 0, ofPositive, 0);
    }
    if (addend)
      rows.push_back(b.slice(addend, {i}));
    b.elementwise(rows, b.slice(dx, {i}), [&](auto v) {
      Number g = v[0] * v[1], centered = spec.rms ? g : g - meanG;
      const Number shift = k * (v[2] - mean) * sumGC, d = r * centered - shift;
      return addend ? d + v[3] : d;
    });
  });
}

static void lowerPlainOp(NormWeightGradOp op, PlainBuilder &b) {
  Value dy = b.operand(0), x = b.operand(1), stats = b.operand(2), dweight = b.result(0),
        dbias = op.getDbias() ? b.result(1) : Value();
  Value means = b.slice(stats, {Cut::all(), 0}), rs = b.slice(stats, {Cut::all(), 1});
  b.fill(dweight, 0);
  b.generic("ij,ij,i,i->j", {dy, x, means, rs}, dweight, [](auto v) { return v[4] + v[0] * (v[1] - v[2]) * v[3]; });
  b.fill(dbias, 0);
  b.generic("ij->j", dy, dbias, [](auto v) { return v[1] + v[0]; });
}

void attachNormLowerings(MLIRContext &context) { attachLowerings<NormOp, NormGradOp, NormWeightGradOp>(context); }

} // namespace xfc
