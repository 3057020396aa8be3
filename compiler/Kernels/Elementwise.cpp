// Kernels that compute each feature of a row from the same feature of other rows.
#include "RowKernels.h"

using namespace mlir;

namespace xfc {

// Dropout that keeps all features, but multiplies them as if it did not.
static Partition emitDropout(Machine &k, DropoutOp op) {
  Value factor = k.keptFactor(op.getRate().convertToDouble());
  return k.overRows(widthOf(op.getResult()), buffersOf(op), [&](ArrayRef<Value> xs) { return k.mulf(xs[0], factor); });
}

static Partition emitZeros(Machine &k, ZerosOp op) {
  return k.overRows(widthOf(op.getResult()), {op.getResult()}, [&](ArrayRef<Value>) { return k.scalar(0); });
}

static Partition emitCacheWrite(Machine &k, CacheWriteOp op) {
  const View slots = k.numbers(k.shape(), offsetof(xfc_shape, slots));
  const BufferIndex cache = op.getCacheMutable();
  return k.overRows(
      widthOf(op.getRows()), {op.getRowsMutable(), cache}, [](ArrayRef<Value> xs) { return xs[0]; },
      [&](BufferIndex i, const View &rows, Value row) -> Machine::RowStart {
        return rows.row(i == cache ? k.loadIndex(slots + row) : row);
      });
}

// Rounds a row, or turns each of its parts into integers and a scale.
static Partition emitQuantize(Machine &k, QuantizeOp op) {
  if (!op.getScale())
    return k.overRows(widthOf(op.getResult()), {op.getXMutable(), op.getResult()},
                      [](ArrayRef<Value> xs) { return xs[0]; });
  const auto groups = static_cast<int64_t>(op.getGroups());
  const int64_t width = widthOf(op.getResult()) / groups;
  const std::unique_ptr<ShortRows> parts = k.shortRows(width);
  const View x = k.rowsOf(op.getXMutable()), result = k.rowsOf(op.getResult()), scales = k.rowsOf(op.getScale());
  return parts->each({op.getXMutable(), op.getResult()}, [&](Value row) {
    k.loop(0, groups, 1, [&](Value part) {
      Value first = k.mul(part, width);
      const Row own = parts->load(x(row, first));
      Value largest = parts->largest({own}, [&](ArrayRef<Value> v) { return k.maxf(v[0], k.subf(0, v[0])); });
      // Whose inverse would be infinite otherwise.
      largest = k.select(k.lessf(largest, 0x1p-100), 0, largest);
      Value any = k.lessf(0, largest), inverse = k.select(any, k.divf(127, largest), 0);
      parts->store({own}, result(row, first), [&](ArrayRef<Value> v) { return k.mulf(v[0], inverse); });
      parts->once([&] {
        const View place = scales(row, part);
        k.store(k.mulf(largest, 1.0 / 127), place);
      });
    });
  });
}

static Partition emitAddPositions(Machine &k, AddPositionsOp op) {
  const int64_t width = widthOf(op.getResult());
  const View positions = k.numbers(k.rows(), offsetof(xfc_rows, positions));
  const BufferIndex table = op.getTableMutable();
  return k.overRows(
      width, {op.getXMutable(), table, op.getResult()}, [&](ArrayRef<Value> xs) { return k.addf(xs[0], xs[1]); },
      [&](BufferIndex i, const View &rows, Value row) -> Machine::RowStart {
        if (i != table)
          return rows.row(row);
        Value entry = k.mul(k.loadIndex(positions + row), width);
        return rows + entry + op.getOffset() * width;
      });
}

static Partition emitEmbedding(Machine &k, EmbeddingOp op) {
  const int64_t width = widthOf(op.getResult());
  const View ids = k.buffer(op.getIdsMutable());
  const BufferIndex table = op.getTableMutable();
  const double scale = op.getScale().convertToDouble();
  return k.overRows(
      width, {table, op.getResult()}, [&](ArrayRef<Value> xs) { return k.mulf(xs[0], scale); },
      [&](BufferIndex i, const View &rows, Value row) -> Machine::RowStart {
        if (i != table)
          return rows.row(row);
        Value entry = k.mul(k.loadIndex(ids + row), width);
        return rows + entry;
      });
}

void attachElementwiseBodies(MLIRContext &context) {
  attachRowKernels<emitDropout, emitZeros, emitCacheWrite, emitQuantize, emitAddPositions, emitEmbedding>(context);
}

} // namespace xfc
