// Log-softmax, label-smoothed negative log-likelihood, and cross entropy that needs no log-probabilities.
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

// maximum + log(sum of exp(x - maximum)) of a row.
Value logSumExp(KernelBuilder &k, const View &row, int64_t width) {
  Value maximum = rowLargest(k, row, width);
  return k.addf(maximum, k.log(sumOfExponentials(k, row, width, maximum, {})));
}

Value rowSum(KernelBuilder &k, const View &row, int64_t width) {
  return rowTotal(k, row, width, k.splat(0), [](Value, int64_t, Value x) { return x; });
}

} // namespace

Value emitLogSumExp(KernelBuilder &k, const View &row, int64_t width) {
  KernelBuilder::SumLanes wide(k);
  return logSumExp(k, row, width);
}

RowLoss emitCrossEntropyRow(KernelBuilder &k, const View &logits, int64_t vocabulary, const RowTarget &target,
                            Value dloss, const View &wide) {
  KernelBuilder::SumLanes lanesOfSums(k);
  const View gradient = !dloss ? View() : wide ? wide : logits;
  // The largest and the sum in one pass; lanes after the end of the row must affect neither.
  Value none = k.splat(lowest);
  const int64_t lanes = k.lanes();
  Values both = reduceRow(
      k, logits, vocabulary, {none, k.splat(0)},
      [&](Value, int64_t used, Value x, MutableArrayRef<Value> s) {
        s[0] = k.maxf(x, s[0]);
        s[1] = k.addf(s[1], used < lanes ? k.select(k.lanesBelow(0, used), x, 0) : x);
      },
      none, [&](int64_t i, Value x, Value y) { return i ? k.addf(x, y) : k.maxf(x, y); });
  Value maximum = k.largest(both[0]), mean = k.mulf(k.sum(both[1]), 1.0 / vocabulary);
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
          target.subtractOthers(k, dloss, gradient);
          if (wide)
            k.features(vocabulary, [&](Value f, int64_t used) {
              View place = logits + f;
              k.storePart(k.load(wide + f, lanes), place, used);
            });
        },
        [&] { k.features(vocabulary, [&](Value f, int64_t used) { k.storePart(0, logits + f, used); }); });
  return {loss, nll, lse};
}

static KernelInfo emitCrossEntropy(KernelBuilder &k, CrossEntropyOp op) {
  const int64_t vocabulary = widthOf(op.getLogits()), per = rowsPerChunk(vocabulary);
  View logits = k.rowsOf(op.getLogitsMutable()), loss = k.rowsOf(op.getLoss()), nll = k.rowsOf(op.getNll()),
       lse = k.rowsOf(op.getLse());
  const LossTargets targets(k, op);
  k.eachRow(per, [&](Value row) {
    const RowTarget target = targets.of(row);
    RowLoss values = emitCrossEntropyRow(k, logits.row(row), vocabulary, target, {});
    if (!op.getLoss().use_empty())
      k.store(values.loss, loss.row(row));
    if (!op.getNll().use_empty())
      k.store(values.nll, nll.row(row));
    if (!op.getLse().use_empty())
      k.store(values.lse, lse.row(row));
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

static KernelInfo emitCrossEntropyGrad(KernelBuilder &k, CrossEntropyGradOp op) {
  const int64_t vocabulary = widthOf(op.getLogits()), per = rowsPerChunk(vocabulary), lanes = k.lanes();
  View logits = k.rowsOf(op.getLogitsMutable()), dLoss = k.rowsOf(op.getDlossMutable()),
       lse = k.rowsOf(op.getLseMutable()), result = k.rowsOf(op.getResult());
  const LossTargets targets(k, op);
  k.eachRow(per, [&](Value row) {
    const RowTarget target = targets.of(row);
    View from = logits.row(row), to = result.row(row);
    k.when(
        k.less(target.label, 0),
        [&] { k.features(vocabulary, [&](Value f, int64_t used) { k.storePart(0, to + f, used); }); },
        [&] {
          Value dloss = k.load(dLoss.row(row)), reference = k.broadcast(k.load(lse.row(row))),
                scale = k.broadcast(dloss);
          Value spread = k.broadcast(k.mulf(target.even, 1.0 / vocabulary));
          Value sum = target.ofOthers ? k.broadcast(target.timesSum(k, k.scalar(1))) : Value();
          k.features(vocabulary, [&](Value f, int64_t used) {
            Value p = k.exp(k.subf(k.load(from + f, lanes), reference));
            View place = to + f;
            k.storePart(k.mulf(scale, k.subf(sum ? k.mulf(sum, p) : p, spread)), place, used);
          });
          View address = to + target.label;
          Value ofLabel = k.mulf(dloss, target.ofLabel);
          k.store(k.subf(k.load(address), ofLabel), address);
          target.subtractOthers(k, dloss, to);
        });
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

static KernelInfo emitLogSoftmax(KernelBuilder &k, LogSoftmaxOp op) {
  KernelBuilder::SumLanes wide(k);
  const int64_t width = widthOf(op.getX()), per = rowsPerChunk(width);
  View x = k.rowsOf(op.getXMutable()), y = k.rowsOf(op.getResult());
  k.eachRow(per, [&](Value row) {
    View from = x.row(row), to = y.row(row);
    Value reference = k.broadcast(logSumExp(k, from, width));
    k.features(width, [&](Value f, int64_t used) {
      View place = to + f;
      k.storePart(k.subf(k.load(from + f, k.lanes()), reference), place, used);
    });
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

static KernelInfo emitLogSoftmaxGrad(KernelBuilder &k, LogSoftmaxGradOp op) {
  KernelBuilder::SumLanes wide(k);
  const int64_t width = widthOf(op.getY()), per = rowsPerChunk(width), lanes = k.lanes();
  View dy = k.rowsOf(op.getDyMutable()), y = k.rowsOf(op.getYMutable()), dx = k.rowsOf(op.getResult());
  k.eachRow(per, [&](Value row) {
    View dyRow = dy.row(row), yRow = y.row(row), to = dx.row(row);
    Value sum = k.broadcast(rowSum(k, dyRow, width));
    k.features(width, [&](Value f, int64_t used) {
      Value log = k.load(yRow + f, lanes), d = k.load(dyRow + f, lanes);
      View place = to + f;
      k.storePart(logSoftmaxGrad(k, d, log, sum), place, used);
    });
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

static KernelInfo emitNll(KernelBuilder &k, NllOp op) {
  KernelBuilder::SumLanes wide(k);
  const int64_t width = widthOf(op.getLogProbs()), per = rowsPerChunk(width);
  View logProbs = k.rowsOf(op.getLogProbsMutable()), loss = k.rowsOf(op.getLoss()), nll = k.rowsOf(op.getNll());
  const LossTargets targets(k, op);
  k.eachRow(per, [&](Value row) {
    const RowTarget target = targets.of(row);
    View from = logProbs.row(row);
    Value zero = k.scalar(0);
    Values values = k.choose(
        k.less(target.label, 0), [&]() -> Values { return {zero, zero}; },
        [&]() -> Values {
          Value plain = k.subf(zero, k.load(from + target.label));
          Value mean = k.mulf(rowSum(k, from, width), -1.0 / width);
          Value weighted = target.weighted(k, [&](Value token) { return k.load(from + token); });
          return {target.loss(k, plain, mean, zero, weighted), plain};
        });
    if (!op.getLoss().use_empty())
      k.store(values[0], loss.row(row));
    if (!op.getNll().use_empty())
      k.store(values[1], nll.row(row));
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

static KernelInfo emitNllGrad(KernelBuilder &k, NllGradOp op) {
  const int64_t width = widthOf(op.getResult()), per = rowsPerChunk(width);
  View dLoss = k.rowsOf(op.getDlossMutable()), result = k.rowsOf(op.getResult());
  const LossTargets targets(k, op);
  k.eachRow(per, [&](Value row) {
    const RowTarget target = targets.of(row);
    View to = result.row(row);
    Value known = k.less(-1, target.label);
    Value d = k.select(known, k.load(dLoss.row(row)), 0);
    Value spread = k.broadcast(k.mulf(k.mulf(d, target.even), -1.0 / width));
    k.features(width, [&](Value f, int64_t used) { k.storePart(spread, to + f, used); });
    k.when(known, [&] {
      View address = to + target.label;
      Value ofLabel = k.mulf(d, target.ofLabel);
      k.store(k.subf(k.load(address), ofLabel), address);
      target.subtractOthers(k, d, to);
    });
  });
  return {{Partition::Unit::Rows, per, 1}, 0};
}

void attachLossKernels(MLIRContext &context) {
  attachKernels<emitCrossEntropy, emitCrossEntropyGrad, emitLogSoftmax, emitLogSoftmaxGrad, emitNll, emitNllGrad>(
      context);
}

} // namespace xfc
