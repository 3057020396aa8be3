// Elementwise kernels: sums, products, activations, dropout, constants, cache writes, added positions, and rotations.
#include "AttentionTiles.h"
#include "Emitters.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace xfc {

using Compute = std::function<Value(ArrayRef<Value>)>;

int64_t rowsPerChunk(int64_t features) { return std::clamp<int64_t>(8192 / std::max<int64_t>(features, 1), 1, 64); }

// Computes each vector of a row of the last buffer from the vectors of the others.
static KernelInfo overRows(KernelBuilder &k, int64_t width, ArrayRef<BufferIndex> buffers, const Compute &compute) {
  SmallVector<View> data;
  for (BufferIndex buffer : buffers)
    data.push_back(k.rowsOf(buffer));
  const int64_t per = rowsPerChunk(width);
  k.eachRow(per, [&](Value row) {
    SmallVector<View> starts;
    for (const View &rows : data)
      starts.push_back(rows.row(row));
    k.features(width, [&](Value f, int64_t used) {
      SmallVector<Value> xs;
      for (const View &start : ArrayRef(starts).drop_back())
        xs.push_back(k.load(start + f, k.lanes()));
      View place = starts.back() + f;
      k.storePart(compute(xs), place, used);
    });
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

// Computes the elements from .. to - 1 of dense buffers.
static void overElements(KernelBuilder &k, ArrayRef<View> data, Value from, Value to, const Compute &compute) {
  k.loop(from, to, k.lanes(), [&](Value i) {
    SmallVector<Value> xs;
    for (const View &operand : data.drop_back())
      xs.push_back(k.load(operand + i, k.lanes()));
    Value used = k.lanesBelow(i, to);
    View place = data.back() + i;
    k.storeMasked(compute(xs), place, used);
  });
}

static KernelInfo overPairs(KernelBuilder &k, PairsType type, ArrayRef<BufferIndex> buffers, const Compute &compute) {
  Value offsets = k.field(k.keys(), offsetof(xfc_keys, pair_offsets), k.ptr);
  SmallVector<View> data;
  for (BufferIndex buffer : buffers)
    data.push_back(k.buffer(buffer));
  auto pairsBefore = [&](Value sequence) { return k.mul(k.loadI64(offsets, sequence), type.getHeads()); };
  Value to = pairsBefore(k.add(k.chunk, 1)), from = pairsBefore(k.chunk);
  overElements(k, data, from, to, compute);
  return {{Partition::Unit::Sequences, 1, 1}, 0};
}

static KernelInfo overTensors(KernelBuilder &k, ArrayRef<BufferIndex> buffers, const Compute &compute) {
  constexpr int64_t part = SquareSumOp::elementsOfPart;
  SmallVector<View> data;
  for (BufferIndex buffer : buffers)
    data.push_back(k.buffer(buffer));
  Value from = k.mul(k.chunk, part), count = k.immediate(0);
  overElements(k, data, from, k.min(k.add(from, part), count), compute);
  return {{Partition::Unit::Elements, part, 1}, 0};
}

KernelInfo emitElementwise(KernelBuilder &k, ScalarOpInterface op) {
  auto compute = [&](ArrayRef<Value> xs) { return op.emitScalar(k, xs); };
  const SmallVector<BufferIndex> buffers = buffersOf(op);
  Type type = op->getResultTypes().front();
  if (auto rows = dyn_cast<RowsType>(type))
    return overRows(k, rows.getFeatures(), buffers, compute);
  if (auto pairs = dyn_cast<PairsType>(type))
    return overPairs(k, pairs, buffers, compute);
  return overTensors(k, buffers, compute);
}

// Sixteen Philox counters give the numbers of 64 features (abi.h).
static KernelInfo dropRows(KernelBuilder &k, DropoutOp op, int64_t width, double rate) {
  const int64_t lanes = k.lanes(), per = rowsPerChunk(width);
  const BufferIndex operand = op.getXMutable(), result = op.getResult();
  View x = k.buffer(operand), y = k.buffer(result);
  x.stride = k.stride(operand);
  y.stride = k.stride(result);
  Value positions = k.field(k.rows(), offsetof(xfc_rows, positions), k.ptr);
  Value sentences = k.field(k.rows(), offsetof(xfc_rows, sentences), k.ptr);
  Value sequenceOf = k.field(k.rows(), offsetof(xfc_rows, sequence_of), k.ptr);
  auto group = [&](const KernelBuilder::DropoutKey &key, const View &from, const View &to, Value f, int64_t used) {
    for (int64_t i = 0; i < std::min<int64_t>(16, used); i += lanes) {
      for (auto [word, numbers] : llvm::enumerate(k.philox(key, k.counters(f, i)))) {
        const int64_t at = word * 16 + i;
        if (at >= used)
          continue;
        View place = to + f + at;
        Value factor = k.keepFactor(numbers, rate);
        k.storePart(k.mulf(k.load(from + f + at, lanes), factor), place, std::min(lanes, used - at));
      }
    }
  };
  auto drop = [&] {
    k.eachRow(per, [&](Value row) {
      View from = x.row(row), to = y.row(row);
      Value sentence = k.loadI32(sentences, k.loadI32(sequenceOf, row)), position = k.loadI32(positions, row);
      auto key = k.dropoutKey(k.immediate(0), position, sentence, 0);
      const int64_t whole = width / 64 * 64;
      k.loop(0, whole, 64, [&](Value f) { group(key, from, to, f, 64); });
      if (whole < width)
        group(key, from, to, k.index(whole), width - whole);
    });
  };
  k.when(k.training(), drop, [&] { overRows(k, width, {operand, result}, [](ArrayRef<Value> xs) { return xs[0]; }); });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

static KernelInfo emitDropout(KernelBuilder &k, DropoutOp op) {
  const double rate = op.getRate().convertToDouble();
  if (op.getKept()) {
    Value factor = k.broadcast(k.keptFactor(rate));
    return overRows(k, cast<RowsType>(op.getType()).getFeatures(), buffersOf(op),
                    [&](ArrayRef<Value> xs) { return k.mulf(xs[0], factor); });
  }
  if (isa<PairsType>(op.getType()))
    return emitPairsDropout(k, op);
  return dropRows(k, op, cast<RowsType>(op.getType()).getFeatures(), rate);
}

static KernelInfo emitZeros(KernelBuilder &k, ZerosOp op) {
  const int64_t width = cast<RowsType>(op.getType()).getFeatures(), per = rowsPerChunk(width);
  View y = k.rowsOf(op.getResult());
  k.eachRow(per, [&](Value row) {
    View to = y.row(row);
    k.features(width, [&](Value f, int64_t used) { k.storePart(0, to + f, used); });
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

static KernelInfo emitCacheWrite(KernelBuilder &k, CacheWriteOp op) {
  const int64_t width = cast<RowsType>(op.getRows().getType()).getFeatures(), per = rowsPerChunk(width);
  View cache = k.rowsOf(op.getCacheMutable()), rows = k.rowsOf(op.getRowsMutable());
  Value slots = k.field(k.shape(), offsetof(xfc_shape, slots), k.ptr);
  k.eachRow(per, [&](Value row) {
    View from = rows.row(row), to = cache.row(k.loadI32(slots, row));
    k.features(width, [&](Value f, int64_t used) {
      View place = to + f;
      k.storePart(k.load(from + f, k.lanes()), place, used);
    });
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

static KernelInfo emitAddPositions(KernelBuilder &k, AddPositionsOp op) {
  const int64_t width = cast<RowsType>(op.getType()).getFeatures(), per = rowsPerChunk(width);
  View x = k.rowsOf(op.getXMutable()), y = k.rowsOf(op.getResult());
  View table = k.buffer(op.getTableMutable()) + op.getOffset() * width;
  Value positions = k.field(k.rows(), offsetof(xfc_rows, positions), k.ptr);
  k.eachRow(per, [&](Value row) {
    View from = x.row(row), to = y.row(row);
    View entry = table + k.mul(k.loadI32(positions, row), width);
    k.features(width, [&](Value f, int64_t used) {
      Value position = k.load(entry + f, k.lanes()), sum = k.addf(k.load(from + f, k.lanes()), position);
      k.storePart(sum, to + f, used);
    });
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

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

void attachElementwiseKernels(MLIRContext &context) {
  attachKernels<emitDropout, emitZeros, emitCacheWrite, emitAddPositions, emitRotate>(context);
}

} // namespace xfc
