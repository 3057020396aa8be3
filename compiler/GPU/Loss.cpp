// Log-softmax, label-smoothed negative log-likelihood, and cross entropy without stored log-probabilities.
#include "Codegen/Softmax.h"
#include "Emitters.h"
#include "Rows.h"

using namespace mlir;

namespace xfc::gpu {
namespace {

Value rowSum(KernelBuilder &k, RowInMemory &row, const View &from) {
  return row.sum(row.loop(from, {k.scalar(0)}, [&](Value, const Values &x, Values s) -> Values {
    for (Value v : x)
      s[0] = k.addf(s[0], v);
    return s;
  })[0]);
}

} // namespace

// In one pass: a thread rescales its sum of exp(x - m) when its largest element m grows.
RowSums emitRowSums(KernelBuilder &k, RowInMemory &row, const View &from, ArrayRef<int64_t> leftOut, Value first) {
  Values state =
      row.loop(from, {k.scalar(lowest), k.scalar(0), k.scalar(0)}, [&](Value f, Values x, Values s) -> Values {
        for (int64_t token : leftOut)
          for (auto [j, v] : llvm::enumerate(x)) {
            Value feature = k.add(f, static_cast<int64_t>(j)), own = first ? k.add(first, feature) : feature;
            v = k.select(k.equal(own, token), -INFINITY, v);
          }
        Value most = s[0];
        for (Value v : x)
          most = k.maxf(v, most);
        Value exponentials = k.mulf(s[1], k.exp(k.subf(s[0], most))), sum = s[2];
        for (Value v : x) {
          exponentials = k.addf(exponentials, k.exp(k.subf(v, most)));
          sum = k.addf(sum, v);
        }
        return {most, exponentials, sum};
      });
  Value most = row.max(state[0]);
  Value exponentials = row.sum(k.mulf(state[1], k.exp(k.subf(state[0], most))));
  return {k.addf(most, k.log(exponentials)), state[2]};
}

// What the threads that visited a row's elements at its other labels subtract from them (RowTarget::subtractOthers).
static void subtractOthers(KernelBuilder &k, RowInMemory &row, const RowTarget &target, Value scale,
                           const View &numbers) {
  target.others(k, {}, [&](Value token, Value share, const Values &) -> Values {
    row.whereVisited(k.truncated(token), [&] {
      View number = numbers + token;
      Value part = k.mulf(scale, share);
      k.store(k.subf(k.load(number), part), number);
    });
    return {};
  });
}

RowLoss emitCrossEntropyRow(KernelBuilder &k, RowInMemory &row, const View &logits, const RowTarget &target) {
  const RowSums sums = emitRowSums(k, row, logits);
  Value mean = k.mulf(row.sum(sums.threadSum), 1.0 / row.width);
  Values losses = k.choose(
      k.less(target.label, 0), [&]() -> Values { return {k.scalar(0), k.scalar(0)}; },
      [&]() -> Values {
        Value nll = k.subf(sums.lse, k.load(logits + target.label));
        Value weighted = target.weighted(k, [&](Value token) { return k.load(logits + token); });
        return {target.loss(k, nll, k.subf(sums.lse, mean), sums.lse, weighted), nll};
      });
  return {losses[0], losses[1], sums.lse};
}

void emitCrossEntropyGradRow(KernelBuilder &k, RowInMemory &row, const View &logits, const View &result,
                             const RowTarget &target, Value lse, Value dloss) {
  Value known = k.less(-1, target.label), scale = k.select(known, dloss, 0),
        spread = k.mulf(target.even, 1.0 / row.width);
  Value labelColumn = k.truncated(target.label);
  row.each([&](Value f) {
    Values x = k.load(logits + f, row.vector()), y;
    for (auto [j, v] : llvm::enumerate(x)) {
      Value p = k.subf(target.timesSum(k, k.exp(k.subf(v, lse))), spread);
      Value ofLabel = k.subf(p, target.ofLabel),
            q = k.select(k.equal(k.add(f, static_cast<int64_t>(j)), labelColumn), ofLabel, p);
      y.push_back(k.select(known, k.mulf(scale, q), 0));
    }
    k.store(y, result + f);
  });
  subtractOthers(k, row, target, scale, result);
}

static KernelInfo emitCrossEntropy(KernelBuilder &k, CrossEntropyOp op) {
  RowInMemory row(k, widthOf(op.getLogits()));
  const View logits = k.rowsOf(op.getLogitsMutable()), loss = k.rowsOf(op.getLoss()), nll = k.rowsOf(op.getNll()),
             lse = k.rowsOf(op.getLse());
  const LossTargets targets(k, op);
  return {row.eachRow({op.getLogitsMutable()}, [&](Value number) {
    const RowTarget target = targets.of(number);
    const RowLoss values = emitCrossEntropyRow(k, row, logits.row(number), target);
    row.once([&] {
      if (!op.getLoss().use_empty())
        k.store(values.loss, loss.row(number));
      if (!op.getNll().use_empty())
        k.store(values.nll, nll.row(number));
      if (!op.getLse().use_empty())
        k.store(values.lse, lse.row(number));
    });
  })};
}

static KernelInfo emitCrossEntropyGrad(KernelBuilder &k, CrossEntropyGradOp op) {
  RowInMemory row(k, widthOf(op.getLogits()));
  const View logits = k.rowsOf(op.getLogitsMutable()), dloss = k.rowsOf(op.getDlossMutable()),
             lse = k.rowsOf(op.getLseMutable()), result = k.rowsOf(op.getResult());
  const LossTargets targets(k, op);
  return {row.eachRow({op.getLogitsMutable(), op.getResult()}, [&](Value number) {
    Value dlossOfRow = k.load(dloss.row(number)), lseOfRow = k.load(lse.row(number));
    const RowTarget target = targets.of(number);
    const View to = result.row(number);
    emitCrossEntropyGradRow(k, row, logits.row(number), to, target, lseOfRow, dlossOfRow);
  })};
}

static KernelInfo emitLogSoftmax(KernelBuilder &k, LogSoftmaxOp op) {
  RowInMemory row(k, widthOf(op.getX()));
  const View x = k.rowsOf(op.getXMutable()), y = k.rowsOf(op.getResult());
  return {row.eachRow({op.getXMutable(), op.getResult()}, [&](Value number) {
    View from = x.row(number), to = y.row(number);
    Value lse = emitRowSums(k, row, from).lse;
    row.each([&](Value f) {
      Values values = k.load(from + f, row.vector());
      for (Value &v : values)
        v = k.subf(v, lse);
      k.store(values, to + f);
    });
  })};
}

static KernelInfo emitLogSoftmaxGrad(KernelBuilder &k, LogSoftmaxGradOp op) {
  RowInMemory row(k, widthOf(op.getY()));
  const View dy = k.rowsOf(op.getDyMutable()), y = k.rowsOf(op.getYMutable()), dx = k.rowsOf(op.getResult());
  return {row.eachRow({op.getDyMutable(), op.getYMutable(), op.getResult()}, [&](Value number) {
    View dyRow = dy.row(number), yRow = y.row(number), to = dx.row(number);
    Value sum = rowSum(k, row, dyRow);
    row.each([&](Value f) {
      Values d = k.load(dyRow + f, row.vector()), logs = k.load(yRow + f, row.vector());
      for (auto [j, v] : llvm::enumerate(d))
        v = logSoftmaxGrad(k, v, logs[j], sum);
      k.store(d, to + f);
    });
  })};
}

static KernelInfo emitNll(KernelBuilder &k, NllOp op) {
  RowInMemory row(k, widthOf(op.getLogProbs()));
  const View logProbs = k.rowsOf(op.getLogProbsMutable()), loss = k.rowsOf(op.getLoss()), nll = k.rowsOf(op.getNll());
  const LossTargets targets(k, op);
  Value zero = k.scalar(0);
  return {row.eachRow({op.getLogProbsMutable()}, [&](Value number) {
    const RowTarget target = targets.of(number);
    View from = logProbs.row(number);
    Value mean = k.mulf(rowSum(k, row, from), -1.0 / row.width);
    row.once([&] {
      Values values = k.choose(
          k.less(target.label, 0), [&]() -> Values { return {zero, zero}; },
          [&]() -> Values {
            Value plain = k.subf(zero, k.load(from + target.label));
            Value weighted = target.weighted(k, [&](Value token) { return k.load(from + token); });
            return {target.loss(k, plain, mean, zero, weighted), plain};
          });
      if (!op.getLoss().use_empty())
        k.store(values[0], loss.row(number));
      if (!op.getNll().use_empty())
        k.store(values[1], nll.row(number));
    });
  })};
}

static KernelInfo emitNllGrad(KernelBuilder &k, NllGradOp op) {
  RowInMemory row(k, widthOf(op.getResult()));
  const View dloss = k.rowsOf(op.getDlossMutable()), result = k.rowsOf(op.getResult());
  const LossTargets targets(k, op);
  return {row.eachRow({op.getResult()}, [&](Value number) {
    const RowTarget target = targets.of(number);
    View to = result.row(number);
    Value column = k.truncated(target.label);
    Value ofRow = k.load(dloss.row(number)), d = k.select(k.less(-1, target.label), ofRow, 0);
    Value spread = k.mulf(k.mulf(d, target.even), -1.0 / row.width), ofLabel = k.mulf(d, target.ofLabel);
    row.each([&](Value f) {
      Values y;
      for (int64_t j = 0; j < row.vector(); ++j) {
        Value atLabel = k.subf(spread, ofLabel);
        y.push_back(k.select(k.equal(k.add(f, j), column), atLabel, spread));
      }
      k.store(y, to + f);
    });
    subtractOthers(k, row, target, d, to);
  })};
}

void attachLossKernels(MLIRContext &context) {
  attachKernels<emitCrossEntropy, emitCrossEntropyGrad, emitLogSoftmax, emitLogSoftmaxGrad, emitNll, emitNllGrad>(
      context);
}

} // namespace xfc::gpu
