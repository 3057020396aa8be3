// Products with a vocabulary, fused with the consumers of their logits: losses, gradients of losses, or candidates.
#include "CPU/Products/Product.h"
#include "Emitters.h"
#include <cmath>

using namespace mlir;

namespace xfc {
namespace {

// Computes the logits of a block of rows, then their losses while they are in cache; if `dloss` is given, their
// gradient overwrites them. The loss needs all logits of a row at once: unless they are `kept` as a result, they stay
// in scratch.
template <typename Op>
KernelInfo emitLinearLoss(KernelBuilder &k, Op op, Value result, bool kept,
                          ArrayRef<std::pair<Value, Value RowLoss::*>> numbers, std::optional<BufferIndex> dloss) {
  RankedTensorType weight = op.getWeight().getType();
  const int64_t inner = weight.getDimSize(1), vocabulary = weight.getDimSize(0);
  const Tiling t(k, inner, productsFor(k, op.getCompute()));
  const int64_t all = (vocabulary + Tiling::group - 1) / Tiling::group, block = kept ? t.block : t.blockOfResults();
  Product product(k, t, op.getXMutable(), op.getWeightMutable(), inner, vocabulary, t.whole ? all : 4);
  Value row = k.mul(k.chunk, block), count = k.min(block, k.sub(k.rowCount(), row));
  configureTiles(k, t, count);
  View bias = op.getBias() ? k.buffer(op.getBiasMutable()) : View(), logits;
  const View inScratch = k.scratch + product.scratchBytes() / k.bytes();
  if (kept) {
    Value stride = k.stride(result), first = k.mul(row, stride);
    logits = (k.buffer(result) + first).inRows(stride);
  } else {
    logits = inScratch.inRows(vocabulary);
  }
  const bool narrow = logits.element != k.element;
  const bool copied = !t.byGroup && product.copies && product.copiesAtOnce();
  if (copied)
    product.copyRows(row, 0, count, 0, inner);
  Product::Begin store = [&](Value at) -> Product::Finish {
    View to = logits.row(k.sub(at, row));
    return [=, &k](Value feature, const Product::Vector &products, int64_t used, int64_t) {
      for (int64_t i = 0; i < used; i += k.lanes()) {
        Value y = products(i);
        if (bias)
          y = k.addf(y, k.load(bias + feature + i, k.lanes()));
        k.storePart(y, to + feature + i, std::min(k.lanes(), used - i));
      }
    };
  };
  SmallVector<Product::Touched, 1> touched;
  if (kept)
    touched.push_back({k.rowsOf(result), true});
  k.loop(0, all, product.groups, [&](Value group) {
    Value next = t.whole ? k.add(row, block) : row, end = k.min(all, k.add(group, product.groups));
    product.compute(row, count, group, end, next, store, touched, copied ? k.boolean(true) : Value());
  });
  const LossTargets targets(k, op);
  k.loop(0, count, 1, [&](Value r) {
    Value at = k.add(row, r);
    View from = logits.row(r);
    Value gradient = dloss ? k.load(k.rowOf(*dloss, at)) : Value();
    RowLoss values = emitCrossEntropyRow(k, from, vocabulary, targets.of(at), gradient, narrow ? inScratch : View());
    for (auto [result, value] : numbers)
      if (!result.use_empty())
        k.store(values.*value, k.rowOf(result, at));
  });
  const int64_t rowsInScratch = !kept ? block : narrow ? 1 : 0;
  return {{Partition::Unit::Rows, block, 1},
          product.scratchBytes() + (rowsInScratch * vocabulary + (narrow ? k.lanes() : 0)) * k.bytes()};
}

} // namespace

static KernelInfo emitLinearCrossEntropy(KernelBuilder &k, LinearCrossEntropyOp op) {
  return emitLinearLoss(k, op, op.getLogits(), !op.getLogits().use_empty(),
                        {{op.getLoss(), &RowLoss::loss}, {op.getNll(), &RowLoss::nll}, {op.getLse(), &RowLoss::lse}},
                        std::nullopt);
}

static KernelInfo emitLinearCrossEntropyWithGrad(KernelBuilder &k, LinearCrossEntropyWithGradOp op) {
  return emitLinearLoss(k, op, op.getDlogits(), !op.getDlogits().use_empty(),
                        {{op.getLoss(), &RowLoss::loss}, {op.getNll(), &RowLoss::nll}}, op.getDlossMutable());
}

// Computes the logits of a block of rows and a slab of columns; only the largest ones and the log-sum-exp leave the
// cache. A chunk is always one slab, whatever the number of rows.
static KernelInfo emitLinearCandidates(KernelBuilder &k, LinearCandidatesOp op) {
  RankedTensorType weight = op.getWeight().getType();
  const int64_t inner = weight.getDimSize(1), vocabulary = weight.getDimSize(0), slabs = op.getSlabs(),
                lanes = k.lanes();
  static_assert(Tiling::group == candidateGroup);
  const Tiling t(k, inner, productsFor(k, op.getCompute()));
  const int64_t all = (vocabulary + Tiling::group - 1) / Tiling::group, block = t.blockOfResults();
  Product product(k, t, op.getXMutable(), op.getWeightMutable(), inner, vocabulary, op.getSlab() / Tiling::group);
  const bool counted = !op.getRenormalize(); // whether excluded logits count for the log-sum-exp
  const int64_t stride = op.getSlab() + (counted ? excludedRoom(k, op.getExcluded()) : 0);
  Value slab = k.rem(k.chunk, slabs), blockNumber = k.div(k.chunk, slabs), row = k.mul(blockNumber, block);
  Value count = k.min(block, k.sub(k.rowCount(), row));
  Value group = k.mul(slab, product.groups), end = k.min(all, k.add(group, product.groups)),
        first = k.mul(group, Tiling::group);
  configureTiles(k, t, count);
  View bias = op.getBias() ? k.buffer(op.getBiasMutable()) : View(),
       logits = (k.scratch + product.scratchBytes() / k.bytes()).inRows(stride);
  const Value none = k.splat(-INFINITY);
  Product::Begin store = [&](Value at) -> Product::Finish {
    View to = logits.row(k.sub(at, row));
    return [=, &k](Value feature, const Product::Vector &products, int64_t used, int64_t room) {
      for (int64_t i = 0; i < room; i += lanes) {
        Value y = none;
        if (i < used) {
          y = products(i);
          if (bias)
            y = k.addf(y, k.load(bias + feature + i, lanes));
          if (used - i < lanes)
            y = k.select(k.lanesBelow(i, used), y, none);
        }
        k.store(y, to + k.sub(feature, first) + i);
      }
    };
  };
  // The next slab has the same rows. Logits stay in scratch, so there is nothing to prefetch for them.
  Value nextBlock = k.add(row, block), next = k.select(k.equal(slab, slabs - 1), nextBlock, row);
  Value holds = k.equal(k.div(k.previous, slabs), blockNumber);
  product.compute(row, count, group, end, next, store, {}, holds);
  const int64_t best = op.getCount();
  Value width = k.mul(k.sub(end, group), Tiling::group);
  k.loop(0, count, 1, [&](Value r) {
    Value at = k.add(row, r);
    View logitsRow = logits.row(r);
    if (!op.getWantedLogit().use_empty()) {
      Value column = k.sub(k.loadIndex(k.buffer(op.getWantedMutable()) + at), first);
      k.when(k.within(column, width), [&] {
        View wanted = k.rowOf(op.getWantedLogit(), at);
        k.store(k.load(logitsRow + column), wanted);
      });
    }
    SlabCandidates found = emitSlabCandidates(k, logitsRow, width, first, op.getExcluded(),
                                              counted ? logitsRow + op.getSlab() : View(), best);
    auto listOf = [&](BufferIndex result) {
      Value column = k.mul(slab, best);
      return k.rowOf(result, at) + column;
    };
    if (!op.getTokens().use_empty())
      k.store(found.tokens, listOf(op.getTokens()));
    if (!op.getLargest().use_empty())
      k.store(found.largest, listOf(op.getLargest()));
    if (!op.getLse().use_empty())
      k.store(found.lse, k.rowOf(op.getLse(), at) + slab);
  });
  return {{Partition::Unit::Rows, block, slabs}, product.scratchBytes() + block * stride * k.bytes()};
}

void attachLinearLossKernels(MLIRContext &context) {
  attachKernels<emitLinearCrossEntropy, emitLinearCrossEntropyWithGrad, emitLinearCandidates>(context);
}

} // namespace xfc
