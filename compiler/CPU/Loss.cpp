// The loss of a row of logits, and what other kernels need of such rows.
#include "Codegen/Softmax.h"
#include "Emitters.h"
#include "Rows.h"

using namespace mlir;

namespace xfc {
namespace {

// The largest number of a row and, if it is wanted, the sum, in one pass. Lanes after the end of the row affect
// neither.
std::pair<Value, Value> largestAndSum(KernelBuilder &k, const View &row, int64_t width, bool withSum) {
  SmallVector<Value> start = {k.splat(lowest)};
  if (withSum)
    start.push_back(k.splat(0));
  const Values both = reduceRow(
      k, width, start,
      [&](Value f, int64_t used, MutableArrayRef<Value> s) {
        Value x = k.load(row + f, k.lanes());
        s[0] = k.maxf(k.upTo(used, x, lowest), s[0]);
        if (withSum)
          s[1] = k.addf(s[1], k.upTo(used, x, 0));
      },
      [&](int64_t i, Value x, Value y) { return i ? k.addf(x, y) : k.maxf(x, y); });
  Value largest = k.largest(both[0]);
  return {largest, withSum ? k.sum(both[1]) : Value()};
}

// The sum of exp(x - maximum) over a row; the exponentials are kept in another row, which may be the same, if one is
// given.
Value sumOfExponentials(KernelBuilder &k, const View &row, int64_t width, Value maximum, const View &kept) {
  Value reference = k.broadcast(maximum);
  auto add = [&](Value f, int64_t used, MutableArrayRef<Value> s) {
    Value x = k.upTo(used, k.load(row + f, k.lanes()), lowest), e = k.exp(k.subf(x, reference));
    if (kept)
      k.storePart(e, kept + f, used);
    s[0] = k.addf(s[0], e);
  };
  return k.sum(reduceRow(k, width, {k.splat(0)}, add, [&](int64_t, Value x, Value y) { return k.addf(x, y); })[0]);
}

} // namespace

std::pair<Value, Value> emitLogSumExp(KernelBuilder &k, const View &row, int64_t width, bool withSum) {
  KernelBuilder::SumLanes wide(k);
  auto [maximum, sum] = largestAndSum(k, row, width, withSum);
  return {k.addf(maximum, k.log(sumOfExponentials(k, row, width, maximum, {}))), sum};
}

RowLoss emitCrossEntropyRow(KernelBuilder &k, const View &logits, int64_t vocabulary, const RowTarget &target,
                            Value dloss, const View &wide) {
  KernelBuilder::SumLanes lanesOfSums(k);
  const View gradient = !dloss ? View() : wide ? wide : logits;
  const int64_t lanes = k.lanes();
  auto [maximum, total] = largestAndSum(k, logits, vocabulary, /*withSum=*/true);
  Value mean = k.mulf(total, 1.0 / vocabulary);
  Value known = k.less(-1, target.label), labelled = k.load(logits + k.max(target.label, 0)),
        weighted = target.weighted(k, [&](Value token) { return k.load(logits + token); });
  Value sum = sumOfExponentials(k, logits, vocabulary, maximum, gradient), lse = k.addf(maximum, k.log(sum));
  const RowLoss losses = target.losses(k, lse, mean, labelled, weighted);
  if (dloss)
    k.when(
        known,
        [&] {
          Value scale = k.broadcast(k.divf(target.timesSum(k, dloss), sum)),
                spread = k.broadcast(k.mulf(dloss, k.mulf(target.even, -1.0 / vocabulary)));
          k.features(vocabulary, [&](Value f, int64_t used) {
            View p = gradient + f;
            k.storePart(k.fma(k.load(p, lanes), scale, spread), p, used);
          });
          View address = gradient + target.label;
          Value ofLabel = k.mulf(dloss, target.ofLabel);
          k.store(k.subf(k.load(address), ofLabel), address);
          target.subtractOthers(k, dloss, [&](Value token, Value amount) {
            View number = gradient + token;
            k.store(k.subf(k.load(number), amount), number);
          });
          if (wide)
            k.features(vocabulary, [&](Value f, int64_t used) {
              View place = logits + f;
              k.storePart(k.load(wide + f, lanes), place, used);
            });
        },
        [&] { k.features(vocabulary, [&](Value f, int64_t used) { k.storePart(0, logits + f, used); }); });
  return losses;
}

} // namespace xfc
