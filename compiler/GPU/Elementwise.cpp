// Rotations, and weights rounded to bf16.
#include "Emitters.h"
#include "Rows.h"

using namespace mlir;

namespace xfc::gpu {

// A thread rotates one pair of features.
static KernelInfo emitRotate(KernelBuilder &k, RotateOp op) {
  const int64_t features = op.getType().getFeatures(), heads = static_cast<int64_t>(op.getHeads());
  const int64_t width = features / heads, rotated = op.getTable().getType().getDimSize(1), half = rotated / 2;
  const int64_t rest = width - rotated, per = rowsPerBlock(features);
  View x = k.rowsOf(op.getXMutable()), y = k.rowsOf(op.getResult());
  View table = k.buffer(op.getTableMutable());
  const View positions = k.numbers(k.rows(), offsetof(xfc_rows, positions));
  eachGroup(k, per, heads * half, [&](Value row, Value group) {
    Value head = k.mul(k.div(group, half), width), pair = k.rem(group, half);
    View angles = table + k.mul(k.loadIndex(positions + row), rotated);
    View from = x.row(row) + head, to = y.row(row) + head;
    Value first = op.getHalves() ? pair : k.mul(pair, 2), second = k.add(first, op.getHalves() ? half : 1);
    Value sine = k.load(angles + first), cosine = k.load(angles + second);
    Value a = k.load(from + first), b = k.load(from + second);
    Value negative = k.subf(0, sine);
    const View firstTo = to + first;
    k.store(k.fma(a, cosine, k.mulf(b, op.getInverse() ? sine : negative)), firstTo);
    const View secondTo = to + second;
    k.store(k.fma(b, cosine, k.mulf(a, op.getInverse() ? negative : sine)), secondTo);
  });
  if (rest)
    eachGroup(k, per, heads * rest, [&](Value row, Value group) {
      Value within = k.add(k.rem(group, rest), rotated), f = k.add(k.mul(k.div(group, rest), width), within);
      const View copy = y.row(row) + f;
      k.store(k.load(x.row(row) + f), copy);
    });
  return {{Partition::Unit::Rows, per, 1}};
}

PackInfo emitPackWeight(KernelBuilder &k, RankedTensorType weight) {
  const int64_t rows = weight.getDimSize(0), columns = weight.getDimSize(1), width = packedColumns(columns),
                pairs = width / 2;
  const int64_t per = std::max<int64_t>(1, 4096 / width), chunks = (rows + per - 1) / per;
  Value from = k.mul(k.chunk, per), count = k.truncated(k.min(per, k.sub(rows, from)));
  k.acrossThreads(k.mul(count, pairs), [&](Value i) {
    Value row = k.add(from, k.i64Of(k.div(i, pairs))), f = k.mul(k.rem(i, pairs), 2);
    auto at = [&](int64_t part) {
      Value column = k.add(f, part);
      return k.choose(
          k.less(column, columns),
          [&]() -> Values {
            Value first = k.mul(row, columns);
            return {k.load(k.buffer({PackBuffers::weight, k.element}) + first + column)};
          },
          [&]() -> Values { return {k.scalar(0)}; })[0];
    };
    Value low = at(0), high = at(1);
    Value pair = k.pairOfBF16(low, high);
    Value ofRow = k.i64Of(k.div(f, 2)), place = k.add(k.mul(row, pairs), ofRow);
    k.store(pair, k.buffer({PackBuffers::packed, k.i32}) + place);
  });
  return {rows * width * 2, chunks};
}

void attachElementwiseKernels(MLIRContext &context) { attachKernels<emitRotate>(context); }

} // namespace xfc::gpu
