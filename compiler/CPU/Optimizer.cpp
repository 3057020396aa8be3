// A step of the optimizer that also packs weights.
#include "CPU/Products/MicroKernel.h"
#include "CPU/Products/Packing.h"
#include "Emitters.h"
#include "Kernels/Optimizers.h"
#include "plan/Sharding.h"

using namespace mlir;

namespace xfc {

constexpr int64_t part = SquareSumOp::elementsOfPart; // elements per chunk, too
static_assert(part == squarePart);                    // as the ranks cut the block

// With packed copies of weights, which are made of the new values while these are in the L2 cache.
static std::optional<KernelInfo> emitOptimize(KernelBuilder &k, OptimizeOp op) {
  if (!op.getPacks())
    return std::nullopt;
  const OptimizerBlocks step = optimizerBlocks(k, op);
  const View p = step.blocks.front();
  Value from = k.mul(k.chunk, part), count = k.elementCount(), to = k.min(k.add(from, part), count);
  auto updateRange = [&](Value begin, Value end) { k.update(step.blocks, begin, end, step.compute); };
  // A chunk owns the panels of rows that begin in its part, and the elements of its part that belong to no packed
  // weight.
  const int64_t panel = Tiling(k, 1, productsFor(k, op.getCompute())).panel,
                firstCopy = op->getNumOperands() + op->getNumResults();
  // Elements per row that are updated and then packed, together with the other rows of the panel: their new values stay
  // in the L2 cache (64 KB of f32).
  const int64_t columnsOfBlock = part / panel;
  View buffers = k.at(k.field(k.call, offsetof(xfc_call, buffers), k.ptr), k.ptr);
  Value weights = k.field(k.call, offsetof(xfc_call, repacked_count), k.i64);
  Value rest = k.loop(0, weights, 1, ValueRange{from}, [&](Value w, Values state) -> Values {
    auto number = [&](size_t offset) {
      return k.inTable(offsetof(xfc_call, repacked), sizeof(xfc_repacked_weight), w, offset);
    };
    Value weight = number(offsetof(xfc_repacked_weight, first)), rows = number(offsetof(xfc_repacked_weight, rows)),
          columns = number(offsetof(xfc_repacked_weight, columns)), weightEnd = k.add(weight, k.mul(rows, columns));
    updateRange(state[0], k.min(weight, to));
    Value tall = k.mul(columns, panel);
    auto panelsBefore = [&](Value element) {
      Value inside = k.max(k.sub(element, weight), 0);
      Value count = k.div(k.add(inside, k.sub(tall, 1)), tall);
      return k.min(count, k.div(k.add(rows, panel - 1), panel));
    };
    auto updatePanel = [&](Value tile) {
      Value first = k.mul(tile, panel), last = k.min(k.add(first, panel), rows);
      k.loop(0, columns, columnsOfBlock, [&](Value column) {
        Value end = k.min(k.add(column, columnsOfBlock), columns);
        k.loop(first, last, 1, [&](Value row) {
          Value begin = k.add(weight, k.mul(row, columns)), stop = k.add(begin, end);
          updateRange(k.add(begin, column), stop);
        });
        for (bool transposed : {false, true}) {
          View place = buffers + k.add(k.mul(w, 2), firstCopy + transposed);
          Value copy = LLVM::LoadOp::create(k.b, k.ptr, place.data);
          Value wanted = LLVM::ICmpOp::create(k.b, LLVM::ICmpPredicate::ne, copy, LLVM::ZeroOp::create(k.b, k.ptr));
          k.when(wanted, [&] {
            emitPackRows(k, {transposed, op.getCompute()}, p + weight, rows, columns, first, column, end, k.at(copy));
          });
        }
      });
    };
    Value endsAfter = k.less(from, weightEnd);
    k.when(k.both(k.less(weight, to), endsAfter), [&] {
      Value end = panelsBefore(to);
      k.loop(panelsBefore(from), end, 1, updatePanel);
    });
    return {k.max(state[0], weightEnd)};
  })[0];
  updateRange(rest, to);
  k.completeStores();
  return KernelInfo{{Partition::Unit::Elements, part, 1}, 0};
}

void attachOptimizerKernels(MLIRContext &context) { attachKernels<emitOptimize>(context); }

} // namespace xfc
