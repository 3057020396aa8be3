// Rotations.
#include "Emitters.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace xfc {

// The vector (x[1], x[0], x[3], x[2], ..), or with `which` 0 or 1 (x[which], x[which], x[2 + which], ..).
static Value inPairs(KernelBuilder &k, Value x, std::optional<int64_t> which = {}) {
  SmallVector<int64_t> from;
  for (int64_t i = 0; i < k.lanes(); ++i)
    from.push_back(which ? i / 2 * 2 + *which : i ^ 1);
  return vector::ShuffleOp::create(k.b, x, x, from);
}

static KernelInfo emitRotate(KernelBuilder &k, RotateOp op) {
  const int64_t features = op.getType().getFeatures(), heads = static_cast<int64_t>(op.getHeads());
  const int64_t width = features / heads, rotated = op.getTable().getType().getDimSize(1), half = rotated / 2;
  const int64_t per = rowsPerChunk(features);
  View x = k.rowsOf(op.getXMutable()), y = k.rowsOf(op.getResult());
  View table = k.buffer(op.getTableMutable());
  Value positions = k.field(k.rows(), offsetof(xfc_rows, positions), k.ptr);
  auto negated = [&](Value v) { return k.subf(0, v); };
  auto halves = [&](const View &from, const View &to, const View &angles) {
    k.features(half, [&](Value f, int64_t used) {
      auto at = [&](const View &p) { return p + f; };
      Value sine = k.loadPart(at(angles), used), cosine = k.loadPart(at(angles + half), used);
      Value plus = op.getInverse() ? negated(sine) : sine, minus = op.getInverse() ? sine : negated(sine);
      View second = from + half;
      Value a = k.loadPart(at(from), used), b = k.loadPart(at(second), used);
      View first = at(to);
      k.storePart(k.fma(a, cosine, k.mulf(b, minus)), first, used);
      View last = at(to + half);
      k.storePart(k.fma(b, cosine, k.mulf(a, plus)), last, used);
    });
  };
  auto interleaved = [&](const View &from, const View &to, const View &angles) {
    SmallVector<bool> negative;
    for (int64_t i = 0; i < k.lanes(); ++i)
      negative.push_back((i % 2 == 0) != op.getInverse());
    Value mask =
        arith::ConstantOp::create(k.b, DenseElementsAttr::get(k.vectorType(k.lanes(), k.i1), ArrayRef<bool>(negative)));
    k.features(rotated, [&](Value f, int64_t used) {
      auto at = [&](const View &p) { return p + f; };
      Value pairs = k.loadPart(at(from), used), turn = k.loadPart(at(angles), used);
      Value sine = inPairs(k, turn, 0), sines = k.select(mask, negated(sine), sine);
      Value other = k.mulf(inPairs(k, pairs), sines);
      View place = at(to);
      k.storePart(k.fma(pairs, inPairs(k, turn, 1), other), place, used);
    });
  };
  k.eachRow(per, [&](Value row) {
    View from = x.row(row), to = y.row(row);
    View angles = table + k.mul(k.loadI32(positions, row), rotated);
    k.loop(0, heads, 1, [&](Value head) {
      Value begin = k.mul(head, width);
      View in = from + begin, out = to + begin;
      op.getHalves() ? halves(in, out, angles) : interleaved(in, out, angles);
      k.features(width - rotated, [&](Value f, int64_t used) {
        auto rest = [&](const View &p) { return p + rotated + f; };
        View place = rest(out);
        k.storePart(k.loadPart(rest(in), used), place, used);
      });
    });
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

void attachElementwiseKernels(MLIRContext &context) { attachKernels<emitRotate>(context); }

} // namespace xfc
