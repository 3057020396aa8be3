// The gradient of a table of embeddings.
#include "Emitters.h"

using namespace mlir;

namespace xfc {

// The first index, in the rows ordered by id, of a row whose id is at least `id`.
static Value lowerBound(KernelBuilder &k, Value byId, const View &ids, Value count, Value id) {
  // Halving 2^31 rows takes 32 steps; once from = to, a step changes nothing.
  return k.loop(0, 32, 1, ValueRange{k.index(0), count}, [&](Value, Values s) {
    return k.choose(
        k.less(s[0], s[1]),
        [&]() -> Values {
          Value middle = k.div(k.add(s[0], s[1]), 2);
          Value below = k.less(k.loadIndex(ids + k.loadI32(byId, middle)), id);
          return {k.select(below, k.add(middle, 1), s[0]), k.select(below, s[1], middle)};
        },
        [&]() -> Values { return {s[0], s[1]}; });
  })[0];
}

// Each chunk owns a range of the vocabulary and traverses it once: one thread clears each entry and then accumulates it
// in the order of rows, while it is in the L1 cache.
static KernelInfo emitEmbeddingGrad(KernelBuilder &k, EmbeddingGradOp op) {
  auto table = cast<RankedTensorType>(op.getType());
  const int64_t vocabulary = table.getDimSize(0), width = table.getDimSize(1);
  const int64_t range = std::clamp<int64_t>(vocabulary / 64, 1, 256);
  View dy = k.rowsOf(op.getDyMutable());
  View ids = k.buffer(op.getIdsMutable()), data = k.buffer(op.getResult());
  Value byId = k.field(k.rows(), offsetof(xfc_rows, by_id), k.ptr), scale = k.splat(op.getScale().convertToDouble());
  Value first = k.mul(k.chunk, range), end = k.min(k.add(first, range), vocabulary);
  auto clear = [&](Value from, Value to) {
    k.loop(from, to, 1, [&](Value id) {
      View entry = data + k.mul(id, width);
      k.features(width, [&](Value f, int64_t used) { k.storePart(0, entry + f, used); });
    });
  };
  Value count = k.rowCount(), begin = lowerBound(k, byId, ids, count, first);
  Value cleared =
      k.loop(begin, lowerBound(k, byId, ids, count, end), 1, ValueRange{first}, [&](Value i, Values state) -> Values {
        Value row = k.loadI32(byId, i), id = k.loadIndex(ids + row), next = k.add(id, 1);
        View entry = data + k.mul(id, width), from = dy.row(row);
        clear(state[0], next);
        k.features(width, [&](Value f, int64_t used) {
          View place = entry + f;
          Value sum = k.load(place, k.lanes());
          k.storePart(k.fma(scale, k.load(from + f, k.lanes()), sum), place, used);
        });
        return {next};
      })[0];
  clear(cleared, end);
  return {{Partition::Unit::One, 1, (vocabulary + range - 1) / range}, 0};
}

void attachEmbeddingKernels(MLIRContext &context) { attachKernels<emitEmbeddingGrad>(context); }

} // namespace xfc
