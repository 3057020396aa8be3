// The loss of a row of logits, and what other kernels need of such rows.
#include "Codegen/Softmax.h"
#include "Emitters.h"

using namespace mlir;

namespace xfc {
namespace {

// Several reductions over a row of `width` elements, by vectors and in independent chains, as many as 32-byte registers
// hold. body(offset, lanes used, x, sums) adds a vector, whose lanes after the end of the row are `filler`;
// combine(i, x, y) merges the chains of reduction i.
using RowBody = std::function<void(Value, int64_t, Value, MutableArrayRef<Value>)>;
using Combine = std::function<Value(int64_t, Value, Value)>;
Values reduceRow(KernelBuilder &k, const View &row, int64_t width, ArrayRef<Value> start, const RowBody &body,
                 Value filler, const Combine &combine) {
  const int64_t lanes = k.lanes(), n = start.size(), chains = n > 1 ? 2 : 4,
                whole = width / (chains * lanes) * chains * lanes;
  Values state;
  for (int64_t c = 0; c < chains; ++c)
    state.append(start.begin(), start.end());
  auto one = [&](Values &s, int64_t chain, Value f, int64_t used) {
    Value x = k.load(row + f, lanes);
    if (used < lanes)
      x = k.select(k.lanesBelow(0, used), x, filler);
    body(f, used, x, MutableArrayRef<Value>(s).slice(chain * n, n));
  };
  if (whole)
    state = k.loop(0, whole, chains * lanes, state, [&](Value f, Values s) {
      for (int64_t c = 0; c < chains; ++c)
        one(s, c, k.add(f, c * lanes), lanes);
      return s;
    });
  for (int64_t f = whole, c = 0; f < width; f += lanes, ++c)
    one(state, c, k.index(f), std::min(lanes, width - f));
  for (int64_t half = chains / 2; half >= 1; half /= 2)
    for (int64_t i = 0; i < half * n; ++i)
      state[i] = combine(i % n, state[i], state[half * n + i]);
  state.resize(n);
  return state;
}

// The sum of what `body` returns for a row's vectors, and the largest number of a row.
Value rowTotal(KernelBuilder &k, const View &row, int64_t width, Value filler,
               const std::function<Value(Value, int64_t, Value)> &body) {
  return k.sum(reduceRow(
      k, row, width, {k.splat(0)},
      [&](Value f, int64_t used, Value x, MutableArrayRef<Value> s) { s[0] = k.addf(s[0], body(f, used, x)); }, filler,
      [&](int64_t, Value x, Value y) { return k.addf(x, y); })[0]);
}
Value rowLargest(KernelBuilder &k, const View &row, int64_t width) {
  Value none = k.splat(lowest);
  return k.largest(reduceRow(
      k, row, width, {none}, [&](Value, int64_t, Value x, MutableArrayRef<Value> s) { s[0] = k.maxf(x, s[0]); }, none,
      [&](int64_t, Value x, Value y) { return k.maxf(x, y); })[0]);
}

// The sum of exp(x - maximum) over a row; the exponentials are kept in another row, which may be the same, if one is
// given.
Value sumOfExponentials(KernelBuilder &k, const View &row, int64_t width, Value maximum, const View &kept) {
  Value reference = k.broadcast(maximum);
  return rowTotal(k, row, width, k.splat(lowest), [&](Value f, int64_t used, Value x) {
    Value e = k.exp(k.subf(x, reference));
    if (kept)
      k.storePart(e, kept + f, used);
    return e;
  });
}

// The largest number and the sum of a row, in one pass; lanes after the end of the row must affect neither.
std::pair<Value, Value> largestAndSum(KernelBuilder &k, const View &row, int64_t width) {
  Value none = k.splat(lowest);
  Values both = reduceRow(
      k, row, width, {none, k.splat(0)},
      [&](Value, int64_t used, Value x, MutableArrayRef<Value> s) {
        s[0] = k.maxf(x, s[0]);
        s[1] = k.addf(s[1], used < k.lanes() ? k.select(k.lanesBelow(0, used), x, 0) : x);
      },
      none, [&](int64_t i, Value x, Value y) { return i ? k.addf(x, y) : k.maxf(x, y); });
  Value largest = k.largest(both[0]);
  return {largest, k.sum(both[1])};
}

} // namespace

std::pair<Value, Value> emitLogSumExp(KernelBuilder &k, const View &row, int64_t width, bool withSum) {
  KernelBuilder::SumLanes wide(k);
  auto [maximum, sum] = withSum ? largestAndSum(k, row, width) : std::pair(rowLargest(k, row, width), Value());
  return {k.addf(maximum, k.log(sumOfExponentials(k, row, width, maximum, {}))), sum};
}

RowLoss emitCrossEntropyRow(KernelBuilder &k, const View &logits, int64_t vocabulary, const RowTarget &target,
                            Value dloss, const View &wide) {
  KernelBuilder::SumLanes lanesOfSums(k);
  const View gradient = !dloss ? View() : wide ? wide : logits;
  const int64_t lanes = k.lanes();
  auto [maximum, total] = largestAndSum(k, logits, vocabulary);
  Value mean = k.mulf(total, 1.0 / vocabulary);
  Value known = k.less(-1, target.label), labelled = k.load(logits + k.max(target.label, 0)),
        weighted = target.weighted(k, [&](Value token) { return k.load(logits + token); });
  Value sum = sumOfExponentials(k, logits, vocabulary, maximum, gradient), lse = k.addf(maximum, k.log(sum)),
        zero = k.scalar(0);
  Value nll = k.select(known, k.subf(lse, labelled), zero);
  Value loss = k.select(known, target.loss(k, nll, k.subf(lse, mean), lse, weighted), zero);
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
  return {loss, nll, lse};
}

} // namespace xfc
