// The gradient of a table of embeddings.
#include "Emitters.h"
#include "Rows.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;

namespace xfc::gpu {

// Among the rows ordered by id, the first place in from .. to - 1 whose id is at least `id`, or `to`. A warp searches,
// 32 places at a time.
static Value lowerBound(KernelBuilder &k, const View &byId, const View &ids, Value from, Value to, Value id) {
  // With 32 places at a time, 2^31 rows take 7 steps. Once from = to, a step changes nothing.
  return k.loop(k.i32Of(0), 7, 1, ValueRange{from, to}, [&](Value, Values s) {
    return k.choose(
        k.less(s[0], s[1]),
        [&]() -> Values {
          // Each lane looks at the last place of one of 32 parts.
          Value part = k.div(k.add(k.sub(s[1], s[0]), 31), 32),
                place = k.add(s[0], k.sub(k.mul(part, k.add(k.i64Of(k.lane()), 1)), 1));
          Value below = k.choose(
              k.less(place, s[1]),
              [&]() -> Values {
                Value one = k.i32Of(1);
                return {k.select(k.less(k.loadIndex(ids + k.loadIndex(byId + place)), id), one, 0)};
              },
              [&]() -> Values { return {k.i32Of(0)}; })[0];
          Value parts = k.i64Of(k.acrossLanes(below, [&](Value x, Value y) { return k.add(x, y); })),
                next = k.add(s[0], k.mul(parts, part));
          return {next, k.min(s[1], k.add(next, k.sub(part, 1)))};
        },
        [&]() -> Values { return {s[0], s[1]}; });
  })[0];
}

// A block owns 128 columns of 32 entries. If an entry has few rows, one warp sums them in order. If it has many, all
// warps do, the i-th row by warp i modulo the number of warps, and then their sums are added in order. The choice
// depends on the number of the entry's rows alone.
static KernelInfo emitEmbeddingGrad(KernelBuilder &k, EmbeddingGradOp op) {
  constexpr int64_t entries = 32, columns = 128, few = 64;
  auto table = cast<RankedTensorType>(op.getType());
  const int64_t vocabulary = table.getDimSize(0), width = table.getDimSize(1), across = (width + columns - 1) / columns;
  View ids = k.buffer(op.getIdsMutable());
  const View byId = k.numbers(k.rows(), offsetof(xfc_rows, by_id));
  Value scale = k.scalar(op.getScale().convertToDouble());
  Value first = k.mul(k.div(k.chunk, across), entries), column = k.mul(k.rem(k.chunk, across), columns),
        warp = k.i64Of(k.warp());
  // Otherwise ptxas would spill to fit 8 blocks on a multiprocessor.
  k.b.getInsertionBlock()->getParent()->getParentOfType<LLVM::LLVMFuncOp>()->setAttr(
      NVVM::NVVMDialect::getMinctasmAttrName(), k.b.getI32IntegerAttr(5));
  View bounds = k.at(k.shared((entries + 1) * 8), k.i64), parts = k.at(k.shared(k.warps() * columns * k.bytes()));
  const View dy = k.rowsOf(op.getDyMutable());

  // Finds where each entry's rows begin among those ordered by id.
  Value rows = k.rowCount(), begin = lowerBound(k, byId, ids, k.index(0), rows, first);
  Value beyond = k.add(first, entries), end = lowerBound(k, byId, ids, begin, rows, beyond);
  k.loop(warp, entries + 1, k.warps(), [&](Value i) {
    Value bound = lowerBound(k, byId, ids, begin, end, k.add(first, i));
    k.when(k.equal(k.lane(), 0), [&] { k.store(bound, bounds + i); });
  });
  k.barrier();
  auto boundOf = [&](Value i) { return k.loadIndex(bounds + i); };
  auto valid = [&](Value i) { return k.less(k.add(first, i), vocabulary); };

  auto sum = [&](int64_t n) {
    // A lane has groups of n columns, 4 columns in all.
    auto columnOf = [&](int64_t group) { return k.add(column, k.i64Of(k.add(k.mul(k.lane(), n), group * 32 * n))); };
    auto each = [&](const std::function<void(int64_t, Value)> &body) {
      for (int64_t group = 0; group < columns / (32 * n); ++group)
        k.when(k.less(columnOf(group), width), [&] { body(group, columnOf(group)); });
    };
    auto add = [&](Value from, Value to, int64_t step,
                   Value at) { // sums of one group over the rows at places from, from + step, ..
      return k.loop(from, to, step, Values(n, k.scalar(0)), [&](Value place, Values s) {
        Values x = k.load(dy.row(k.loadIndex(byId + place)) + at, n);
        for (int64_t j = 0; j < n; ++j)
          s[j] = k.fma(scale, x[j], s[j]);
        return s;
      });
    };
    auto entry = [&](Value i) {
      Value before = k.mul(k.add(first, i), width);
      return k.buffer(op.getResult()) + before;
    };
    k.loop(warp, entries, k.warps(), [&](Value i) {
      Value from = boundOf(i), to = boundOf(k.add(i, 1));
      Value hasFew = k.less(k.sub(to, from), few + 1);
      k.when(k.both(valid(i), hasFew), [&] {
        each([&](int64_t, Value at) {
          View sum = entry(i) + at;
          k.store(add(from, to, 1, at), sum);
        });
      });
    });
    k.loop(0, entries, 1, [&](Value i) {
      Value from = boundOf(i), to = boundOf(k.add(i, 1));
      Value hasMany = k.less(few, k.sub(to, from));
      k.when(k.both(valid(i), hasMany), [&] {
        auto partOf = [&](Value w, Value at) {
          Value within = k.sub(at, column);
          return parts + k.add(k.mul(w, columns), within);
        };
        each([&](int64_t, Value at) {
          const View part = partOf(warp, at);
          k.store(add(k.add(from, warp), to, k.warps(), at), part);
        });
        k.barrier();
        k.when(k.equal(warp, 0), [&] {
          each([&](int64_t, Value at) {
            Values total = k.load(partOf(k.index(0), at), n);
            for (int64_t w = 1; w < k.warps(); ++w) {
              Values part = k.load(partOf(k.index(w), at), n);
              for (int64_t j = 0; j < n; ++j)
                total[j] = k.addf(total[j], part[j]);
            }
            k.store(total, entry(i) + at);
          });
        });
        k.barrier();
      });
    });
  };
  k.vectorized({op.getDyMutable(), op.getResult()}, width, sum);
  return {{Partition::Unit::One, 1, (vocabulary + entries - 1) / entries * across}};
}

void attachEmbeddingKernels(MLIRContext &context) { attachKernels<emitEmbeddingGrad>(context); }

} // namespace xfc::gpu
