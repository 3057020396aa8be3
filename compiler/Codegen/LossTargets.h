// Reads the targets of losses, in either of their forms (XFCOps.td, "Losses"), for the kernels of CPUs and GPUs.
#pragma once

#include "CodeBuilder.h"
#include "Dialect/XFC.h"

namespace xfc {

// Loss, negative log-likelihood and log-sum-exp of a row of logits.
struct RowLoss {
  mlir::Value loss, nll, lse;
};

// How the loss of one row is divided over the vocabulary.
struct RowTarget {
  mlir::Value label;         // i64; if it is negative, the row has no loss
  mlir::Value even, ofLabel; // the share that is spread evenly over the vocabulary, and the label's
  // Null if rows have one label: the row's other labels and their shares, and the sum of these.
  View labels, shares;
  mlir::Value ofOthers;
  int64_t count = 0; // of other labels

  // ofLabel nll + even ofMean + sum over the other labels of share (lse - logit), given -log p of the label, the mean
  // of -log p over the vocabulary, the log-sum-exp, and what weighted() returns for the logits.
  mlir::Value loss(CodeBuilder &k, mlir::Value nll, mlir::Value ofMean, mlir::Value lse, mlir::Value weighted) const;
  // The same for a row of logits, given their mean, that of the label, and what weighted() returns for them; zeros
  // without a label.
  RowLoss losses(CodeBuilder &k, mlir::Value lse, mlir::Value mean, mlir::Value labelled, mlir::Value weighted) const;
  // x times the sum of all shares, which is 1 if rows have one label.
  mlir::Value timesSum(CodeBuilder &k, mlir::Value x) const;
  // Visits the other labels in order: body(token, share, state). Where a label is negative, both are 0.
  using Body = std::function<Values(mlir::Value token, mlir::Value share, Values state)>;
  Values others(CodeBuilder &k, mlir::ValueRange state, const Body &body) const;
  // The sum over the other labels of share times number(token); null if rows have one label.
  mlir::Value weighted(CodeBuilder &k, const std::function<mlir::Value(mlir::Value token)> &number) const;
  // Subtracts scale times their shares from the elements that a row of numbers has at the other labels, one after the
  // other, so that labels may be equal: subtract(token, amount).
  using Subtract = std::function<void(mlir::Value token, mlir::Value amount)>;
  void subtractOthers(CodeBuilder &k, mlir::Value scale, const Subtract &subtract) const;
};

// The targets of the rows of a loss, or of the gradient of one.
class LossTargets {
public:
  template <typename Op>
  LossTargets(CodeBuilder &k, Op op)
      : LossTargets(k, op.getLabelsMutable(), op.getSmoothingMutable(), op.getLabels().getType()) {}
  RowTarget of(mlir::Value row) const;

private:
  LossTargets(CodeBuilder &k, BufferIndex labels, BufferIndex smoothing, RowsType type);
  CodeBuilder &k;
  const int64_t count; // of labels per row
  const bool listed;   // whether rows have lists of labels and shares
  const View labels;
  mlir::Value smoothing; // of all rows
  View shares;           // of each
};

} // namespace xfc
