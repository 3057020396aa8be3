// Reads the targets of losses, in either of their forms (XFCOps.td, "Losses"), for the kernels of CPUs and GPUs.
#include "LossTargets.h"

using namespace mlir;

namespace xfc {

Value RowTarget::loss(CodeBuilder &k, Value nll, Value ofMean, Value lse, Value weighted) const {
  Value spread = k.mulf(even, ofMean), sum = k.addf(k.mulf(ofLabel, nll), spread);
  return ofOthers ? k.addf(sum, k.subf(k.mulf(ofOthers, lse), weighted)) : sum;
}

RowLoss RowTarget::losses(CodeBuilder &k, Value lse, Value mean, Value labelled, Value weighted) const {
  Value known = k.less(-1, label), zero = k.scalar(0), nll = k.subf(lse, labelled), ofMean = k.subf(lse, mean),
        sum = loss(k, nll, ofMean, lse, weighted);
  return {k.select(known, sum, zero), k.select(known, nll, zero), lse};
}

Value RowTarget::timesSum(CodeBuilder &k, Value x) const {
  return ofOthers ? k.mulf(x, k.addf(k.addf(even, ofLabel), ofOthers)) : x;
}

Values RowTarget::others(CodeBuilder &k, ValueRange state, const Body &body) const {
  if (!labels)
    return Values(state);
  return k.loop(0, count, 1, state, [&](Value i, Values s) {
    Value token = k.loadIndex(labels + i), none = k.less(token, 0);
    Value share = k.select(none, 0, k.load(shares + i));
    return body(k.select(none, 0, token), share, std::move(s));
  });
}

Value RowTarget::weighted(CodeBuilder &k, const std::function<Value(Value)> &number) const {
  if (!labels)
    return {};
  return others(k, {k.scalar(0)}, [&](Value token, Value share, Values s) -> Values {
    return {k.addf(s[0], k.mulf(share, number(token)))};
  })[0];
}

void RowTarget::subtractOthers(CodeBuilder &k, Value scale, const Subtract &subtract) const {
  others(k, {}, [&](Value token, Value share, const Values &) -> Values {
    subtract(token, k.mulf(scale, share));
    return {};
  });
}

LossTargets::LossTargets(CodeBuilder &k, BufferIndex labels, BufferIndex smoothing, RowsType type)
    : k(k), count(type.getFeatures()), listed(!type.getShape().empty()), labels(k.rowsOf(labels)) {
  if (listed)
    shares = k.rowsOf(smoothing);
  else
    this->smoothing = k.load(k.buffer(smoothing));
}

RowTarget LossTargets::of(Value row) const {
  RowTarget target;
  if (!listed) {
    target.label = k.loadIndex(labels + row);
    target.even = smoothing;
    target.ofLabel = k.subf(1, smoothing);
    return target;
  }
  View list = labels.row(row), parts = shares.row(row);
  target.label = k.loadIndex(list);
  target.even = k.load(parts);
  target.ofLabel = k.load(parts + 1);
  target.labels = list + 1;
  target.shares = parts + 2;
  target.count = count - 1;
  target.ofOthers = target.weighted(k, [&](Value) { return k.scalar(1); });
  return target;
}

} // namespace xfc
