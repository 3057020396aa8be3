// Log-softmax, label-smoothed negative log-likelihood, and cross entropy that needs no log-probabilities.
#include "Codegen/Softmax.h"
#include "RowKernels.h"

using namespace mlir;

namespace xfc {

static Value sumOf(Rows &rows, const Row &row) {
  return rows.sum({row}, [](ArrayRef<Value> v) { return v[0]; });
}

static Partition emitCrossEntropy(Machine &k, CrossEntropyOp op) {
  const std::unique_ptr<LongRows> rows = k.longRows(widthOf(op.getLogits()));
  const View logits = k.rowsOf(op.getLogitsMutable());
  const LossTargets targets(k, op);
  return rows->each({op.getLogitsMutable()}, [&](Value row) {
    const RowTarget target = targets.of(row);
    const View from = logits.row(row);
    auto [lse, sum] = rows->logSumExp(rows->load(from), /*withSum=*/true);
    Value mean = k.mulf(sum, 1.0 / static_cast<double>(rows->width)), labelled = k.load(from + k.max(target.label, 0)),
          weighted = target.weighted(k, [&](Value token) { return k.load(from + token); });
    const RowLoss losses = target.losses(k, lse, mean, labelled, weighted);
    rows->once([&] {
      k.storeIfRead(losses.loss, op.getLoss(), row);
      k.storeIfRead(losses.nll, op.getNll(), row);
      k.storeIfRead(losses.lse, op.getLse(), row);
    });
  });
}

void storeLossGradient(CodeBuilder &k, LongRows &rows, const View &logits, const RowTarget &target, Value lse,
                       Value dloss, const View &to) {
  Value known = k.less(-1, target.label), scale = k.select(known, dloss, 0),
        spread = k.mulf(target.even, 1.0 / static_cast<double>(rows.width));
  rows.storeExceptAt(target.label, target.ofLabel, k.scalar(0), {rows.load(logits)}, to, [&](ArrayRef<Value> v) {
    Value p = k.subf(target.timesSum(k, k.exp(k.subf(v[0], lse))), spread);
    return k.select(known, k.mulf(scale, k.subf(p, v[1])), 0);
  });
  target.subtractOthers(k, scale, [&](Value token, Value amount) { rows.subtractAt(token, amount, to); });
}

static Partition emitCrossEntropyGrad(Machine &k, CrossEntropyGradOp op) {
  const std::unique_ptr<LongRows> rows = k.longRows(widthOf(op.getLogits()));
  const View logits = k.rowsOf(op.getLogitsMutable()), dloss = k.rowsOf(op.getDlossMutable()),
             lses = k.rowsOf(op.getLseMutable()), result = k.rowsOf(op.getResult());
  const LossTargets targets(k, op);
  return rows->each({op.getLogitsMutable(), op.getResult()}, [&](Value row) {
    const RowTarget target = targets.of(row);
    Value ofRow = k.load(dloss.row(row)), lse = k.load(lses.row(row));
    const View from = logits.row(row), to = result.row(row);
    storeLossGradient(k, *rows, from, target, lse, ofRow, to);
  });
}

static Partition emitLogSoftmax(Machine &k, LogSoftmaxOp op) {
  const std::unique_ptr<LongRows> rows = k.longRows(widthOf(op.getX()));
  const View x = k.rowsOf(op.getXMutable()), y = k.rowsOf(op.getResult());
  return rows->each({op.getXMutable(), op.getResult()}, [&](Value row) {
    const Row from = rows->load(x.row(row));
    Value lse = rows->logSumExp(from, /*withSum=*/false).first;
    rows->store({from}, y.row(row), [&](ArrayRef<Value> v) { return k.subf(v[0], lse); });
  });
}

static Partition emitLogSoftmaxGrad(Machine &k, LogSoftmaxGradOp op) {
  const std::unique_ptr<LongRows> rows = k.longRows(widthOf(op.getY()));
  const View dy = k.rowsOf(op.getDyMutable()), y = k.rowsOf(op.getYMutable()), dx = k.rowsOf(op.getResult());
  return rows->each({op.getDyMutable(), op.getYMutable(), op.getResult()}, [&](Value row) {
    const Row dyRow = rows->load(dy.row(row)), yRow = rows->load(y.row(row));
    Value sum = sumOf(*rows, dyRow);
    rows->store({dyRow, yRow}, dx.row(row), [&](ArrayRef<Value> v) { return logSoftmaxGrad(k, v[0], v[1], sum); });
  });
}

static Partition emitNll(Machine &k, NllOp op) {
  const std::unique_ptr<LongRows> rows = k.longRows(widthOf(op.getLogProbs()));
  const View logProbs = k.rowsOf(op.getLogProbsMutable());
  const LossTargets targets(k, op);
  return rows->each({op.getLogProbsMutable()}, [&](Value row) {
    const RowTarget target = targets.of(row);
    const View from = logProbs.row(row);
    Value mean = k.mulf(sumOf(*rows, rows->load(from)), -1.0 / static_cast<double>(rows->width));
    rows->once([&] {
      Value zero = k.scalar(0);
      Values values = k.choose(
          k.less(target.label, 0), [&]() -> Values { return {zero, zero}; },
          [&]() -> Values {
            Value plain = k.subf(zero, k.load(from + target.label));
            Value weighted = target.weighted(k, [&](Value token) { return k.load(from + token); });
            return {target.loss(k, plain, mean, zero, weighted), plain};
          });
      k.storeIfRead(values[0], op.getLoss(), row);
      k.storeIfRead(values[1], op.getNll(), row);
    });
  });
}

static Partition emitNllGrad(Machine &k, NllGradOp op) {
  const std::unique_ptr<LongRows> rows = k.longRows(widthOf(op.getResult()));
  const View dloss = k.rowsOf(op.getDlossMutable()), result = k.rowsOf(op.getResult());
  const LossTargets targets(k, op);
  return rows->each({op.getResult()}, [&](Value row) {
    const RowTarget target = targets.of(row);
    const View to = result.row(row);
    Value ofRow = k.load(dloss.row(row)), d = k.select(k.less(-1, target.label), ofRow, 0);
    Value spread = k.mulf(k.mulf(d, target.even), -1.0 / static_cast<double>(rows->width)),
          atLabel = k.subf(spread, k.mulf(d, target.ofLabel));
    rows->storeExceptAt(target.label, atLabel, spread, {}, to, [](ArrayRef<Value> v) { return v[0]; });
    target.subtractOthers(k, d, [&](Value token, Value amount) { rows->subtractAt(token, amount, to); });
  });
}

void attachLossBodies(MLIRContext &context) {
  attachRowKernels<emitCrossEntropy, emitCrossEntropyGrad, emitLogSoftmax, emitLogSoftmaxGrad, emitNll, emitNllGrad>(
      context);
}

} // namespace xfc
