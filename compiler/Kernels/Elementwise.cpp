// Kernels that compute each feature of a row from the same feature of other rows, dropout, and the gradient of learned
// positions.
#include "RowKernels.h"

using namespace mlir;

namespace xfc {

static Partition emitDropout(Machine &k, DropoutOp op) {
  const double rate = op.getRate().convertToDouble();
  if (auto pairs = dyn_cast<PairsType>(op.getType()))
    return k.eachPairsRow(pairs.getHeads(), /*cached=*/false, [&](PairsRow &row) {
      const View x = row.in(op.getXMutable(), pairs.getHeads()), y = row.in(op.getResult(), pairs.getHeads());
      row.storeDropped(x, rate, y);
    });
  const int64_t width = widthOf(op.getResult());
  if (!op.getKept())
    return k.dropRows(width, op.getXMutable(), rate, op.getResult());
  Value factor = k.keptFactor(rate); // of all features
  return k.overRows(width, buffersOf(op), [&](ArrayRef<Value> xs) { return k.mulf(xs[0], factor); });
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

// The gradient of an entry is the sum of the rows at its position, one from each sequence that is long enough. The
// first `offset` entries belong to no position.
static Partition emitPositionsGrad(Machine &k, PositionsGradOp op) {
  const View dy = k.rowsOf(op.getDyMutable()), offsets = k.numbers(k.rows(), offsetof(xfc_rows, offsets));
  Value sequences = k.field(k.rows(), offsetof(xfc_rows, sequences), k.i64);
  Value position = op.getOffset() ? k.sub(k.chunk, op.getOffset()) : k.chunk;
  auto rowOf = [&](Value sequence) -> Machine::RowStart {
    Value row = k.add(k.loadIndex(offsets + sequence), position);
    Value hasRow = k.less(row, k.loadIndex(offsets + k.add(sequence, 1)));
    if (op.getOffset())
      hasRow = k.both(hasRow, k.less(-1, position));
    return {dy.row(row), hasRow};
  };
  return k.sumRows(op.getDyMutable(), sequences, rowOf, op.getResult());
}

void attachElementwiseBodies(MLIRContext &context) {
  attachRowKernels<emitDropout, emitZeros, emitCacheWrite, emitQuantize, emitAddPositions, emitEmbedding,
                   emitPositionsGrad>(context);
}

} // namespace xfc
