// Defines what products over rows compute, and the values of views.
#include "Evaluators.h"
#include "Support.h"
#include <cmath>

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// Shared by linear and linear_input_grad
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult finish(const xfc_shape &shape, Tensor product, ArrayRef<Tensor> extras, Region &epilogue,
                            SmallVectorImpl<Tensor> &results) {
  if (epilogue.empty()) {
    results.push_back(std::move(product));
    return success();
  }
  SmallVector<Tensor> arguments = {std::move(product)};
  arguments.append(extras.begin(), extras.end());
  return evaluateRegion(shape, epilogue, arguments, results);
}

//===--------------------------------------------------------------------------------------------------------===//
// linear
//===--------------------------------------------------------------------------------------------------------===//

static Tensor linear(const Tensor &x, const Tensor &weight, const Tensor *bias) {
  Tensor y{{x.shape[0], weight.shape[0]}, {}};
  y.data.assign(x.shape[0] * weight.shape[0], 0.0);
  for (int64_t i = 0; i < x.shape[0]; ++i)
    for (int64_t o = 0; o < weight.shape[0]; ++o) {
      double sum = bias ? bias->data[o] : 0;
      for (int64_t k = 0; k < weight.shape[1]; ++k)
        sum += x.row(i)[k] * weight.row(o)[k];
      y.row(i)[o] = sum;
    }
  return y;
}

static LogicalResult evaluateOp(LinearOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor y = linear(rounded(operands[0], op.getCompute()), roundedWeight(operands[1], op.getCompute()),
                    op.getBias() ? &operands[2] : nullptr);
  return finish(shape, std::move(y), operands.drop_front(op.getBias() ? 3 : 2), op.getEpilogue(), results);
}

static LogicalResult evaluateOp(LinearToCacheOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  const Tensor y = linear(rounded(operands[0], op.getCompute()), roundedWeight(operands[1], op.getCompute()),
                          op.getBias() ? &operands[2] : nullptr);
  Tensor rows = zeros(shape, op.getResult().getType());
  for (int64_t i = 0; i < y.shape[0]; ++i)
    std::copy_n(y.row(i), rows.features(), rows.row(i));
  int64_t column = rows.features();
  results.push_back(std::move(rows));
  for (Tensor cache : operands.take_back(op.getCaches().size())) {
    for (int64_t i = 0; i < y.shape[0]; ++i)
      std::copy_n(y.row(i) + column, cache.features(), cache.row(shape.slots[i]));
    column += cache.features();
    results.push_back(std::move(cache));
  }
  return success();
}

static LogicalResult evaluateOp(LinearInputGradOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  const Tensor dy = rounded(operands[0], op.getCompute()), weight = rounded(operands[1], op.getCompute());
  Tensor dx{{dy.shape[0], weight.shape[1]}, {}};
  dx.data.assign(dy.shape[0] * weight.shape[1], 0.0);
  for (int64_t i = 0; i < dy.shape[0]; ++i)
    for (int64_t o = 0; o < weight.shape[0]; ++o)
      for (int64_t k = 0; k < weight.shape[1]; ++k)
        dx.row(i)[k] += dy.row(i)[o] * weight.row(o)[k];
  return finish(shape, std::move(dx), operands.drop_front(2), op.getEpilogue(), results);
}

//===--------------------------------------------------------------------------------------------------------===//
// Gradients of parameters
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(LinearWeightGradOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  const Tensor &unrounded = operands[0], dy = rounded(unrounded, op.getCompute()),
               x = rounded(operands[1], op.getCompute());
  Tensor dw = zeros(shape, op.getDweight().getType());
  for (int64_t i = 0; i < dy.shape[0]; ++i)
    for (int64_t o = 0; o < dw.shape[0]; ++o)
      for (int64_t k = 0; k < dw.shape[1]; ++k)
        dw.row(o)[k] += dy.row(i)[o] * x.row(i)[k];
  results.push_back(std::move(dw));
  if (!op.getDbias())
    return success();
  Tensor db = zeros(shape, op.getDbias().getType());
  for (int64_t i = 0; i < dy.shape[0]; ++i)
    for (size_t f = 0; f < db.data.size(); ++f)
      db.data[f] += unrounded.row(i)[f];
  results.push_back(std::move(db));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// Views of rows: split, join
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(SplitOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  int64_t offset = 0;
  for (Type type : op.getResultTypes()) {
    Tensor part = zeros(shape, type);
    for (int64_t i = 0; i < part.shape[0]; ++i)
      std::copy_n(operands[0].row(i) + offset, part.features(), part.row(i));
    offset += part.features();
    results.push_back(std::move(part));
  }
  return success();
}

static LogicalResult evaluateOp(JoinOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor whole = zeros(shape, op.getType());
  int64_t offset = 0;
  for (const Tensor &part : operands) {
    for (int64_t i = 0; i < whole.shape[0]; ++i)
      std::copy_n(part.row(i), part.features(), whole.row(i) + offset);
    offset += part.features();
  }
  results.push_back(std::move(whole));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// Views of parameters: concat, slice
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(ConcatOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor whole = zeros(shape, op.getType());
  auto end = whole.data.begin();
  for (const Tensor &part : operands)
    end = std::copy(part.data.begin(), part.data.end(), end);
  results.push_back(std::move(whole));
  return success();
}

static LogicalResult evaluateOp(SliceOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor part = zeros(shape, op.getType());
  std::copy_n(operands[0].row(op.getOffset()), part.data.size(), part.data.begin());
  results.push_back(std::move(part));
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// linear_cross_entropy
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(LinearCrossEntropyOp op, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  int64_t rest = op.getBias() ? 3 : 2;
  Tensor logits = linear(rounded(operands[0], op.getCompute()), roundedWeight(operands[1], op.getCompute()),
                         op.getBias() ? &operands[2] : nullptr);
  SmallVector<Tensor> losses;
  crossEntropy(logits, operands[rest], operands[rest + 1], losses);
  results.append({losses[0], losses[1], std::move(logits), losses[2]});
  return success();
}

static LogicalResult evaluateOp(LinearCrossEntropyWithGradOp op, const xfc_shape &, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  int64_t rest = op.getBias() ? 3 : 2;
  const Tensor &labels = operands[rest], &smoothing = operands[rest + 1], &dloss = operands[rest + 2];
  Tensor logits = linear(rounded(operands[0], op.getCompute()), roundedWeight(operands[1], op.getCompute()),
                         op.getBias() ? &operands[2] : nullptr);
  // The logits are stored in the place of their gradient, and all that follows is computed from what is stored.
  if (op.getDlogits().getType().getElementType().isBF16())
    logits = rounded(std::move(logits), ComputeType::bf16);
  SmallVector<Tensor> losses;
  crossEntropy(logits, labels, smoothing, losses);
  Tensor dlogits = crossEntropyGrad(std::move(logits), dloss, labels, losses[2], smoothing);
  results.append({losses[0], losses[1], std::move(dlogits)});
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// linear_candidates
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(LinearCandidatesOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  Tensor logits = linear(rounded(operands[0], op.getCompute()), roundedWeight(operands[1], op.getCompute()),
                         op.getBias() ? &operands[2] : nullptr);
  const Tensor &wanted = operands.back();
  Tensor tokens = zeros(shape, op.getTokens().getType()), largest = zeros(shape, op.getLargest().getType()),
         lse = zeros(shape, op.getLse().getType()), wantedLogit = zeros(shape, op.getWantedLogit().getType());
  for (int64_t i = 0; i < logits.shape[0]; ++i) {
    ArrayRef<double> row(logits.row(i), logits.features());
    for (int64_t slab = 0; slab < op.getSlabs(); ++slab) {
      const int64_t first = slab * op.getSlab();
      ArrayRef<double> part = row.slice(first, std::min<int64_t>(op.getSlab(), row.size() - first));
      largestTokens(part, first, op.getExcluded(), op.getCount(), tokens.row(i) + slab * op.getCount(),
                    largest.row(i) + slab * op.getCount());
      lse.row(i)[slab] = logSumExpOfOthers(part, first, op.getLeftOut());
    }
    wantedLogit.data[i] = row[static_cast<int64_t>(wanted.data[i])];
  }
  results.append({std::move(tokens), std::move(largest), std::move(lse), std::move(wantedLogit)});
  return success();
}

void attachLinearEvaluators(MLIRContext &context) {
  attachEvaluators<LinearOp, LinearToCacheOp, LinearInputGradOp, LinearWeightGradOp, SplitOp, JoinOp, ConcatOp, SliceOp,
                   LinearCrossEntropyOp, LinearCrossEntropyWithGradOp, LinearCandidatesOp>(context);
}

} // namespace xfc
