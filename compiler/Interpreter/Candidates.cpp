// Defines the candidates of a decoding step.
#include "Evaluators.h"
#include "Support.h"
#include <cmath>

using namespace mlir;

namespace xfc {

void largestTokens(ArrayRef<double> values, int64_t first, ArrayRef<int64_t> excluded, int64_t count, double *tokens,
                   double *largest) {
  SmallVector<int64_t> order;
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i)
    if (values[i] > -HUGE_VAL && !llvm::is_contained(excluded, first + i))
      order.push_back(i);
  llvm::stable_sort(order, [&](int64_t a, int64_t b) { return values[a] > values[b]; });
  for (int64_t c = 0; c < count; ++c) {
    const bool some = c < static_cast<int64_t>(order.size());
    tokens[c] = some ? static_cast<double>(first + order[c]) : -1;
    largest[c] = some ? values[order[c]] : -HUGE_VAL;
  }
}

double logSumExpOfOthers(ArrayRef<double> values, int64_t first, ArrayRef<int64_t> excluded) {
  std::vector<double> others;
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i)
    if (!llvm::is_contained(excluded, first + i))
      others.push_back(values[i]);
  if (others.empty()) // of a slab
    return -HUGE_VAL;
  return logSumExp(others.data(), static_cast<int64_t>(others.size()));
}

//===--------------------------------------------------------------------------------------------------------===//
// candidates
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(CandidatesOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  const Tensor &logProbs = operands[0], &wanted = operands[1];
  Tensor tokens = zeros(shape, op.getTokens().getType()), best = zeros(shape, op.getBest().getType()),
         wantedLogProb = zeros(shape, op.getWantedLogProb().getType());
  for (int64_t i = 0; i < logProbs.shape[0]; ++i) {
    std::vector<double> row(logProbs.row(i), logProbs.row(i) + logProbs.features());
    const double total = op.getRenormalize() ? logSumExpOfOthers(row, 0, op.getExcluded()) : 0;
    for (double &value : row)
      value -= total;
    largestTokens(row, 0, op.getExcluded(), tokens.features(), tokens.row(i), best.row(i));
    wantedLogProb.data[i] = row[static_cast<int64_t>(wanted.data[i])];
  }
  results.append({std::move(tokens), std::move(best), std::move(wantedLogProb)});
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// merge_candidates
//===--------------------------------------------------------------------------------------------------------===//

static LogicalResult evaluateOp(MergeCandidatesOp op, const xfc_shape &shape, ArrayRef<Tensor> operands,
                                SmallVectorImpl<Tensor> &results) {
  const Tensor &slabTokens = operands[0], &largest = operands[1], &lse = operands[2], &wantedLogit = operands[3];
  Tensor tokens = zeros(shape, op.getTokens().getType()), best = zeros(shape, op.getBest().getType()),
         wantedLogProb = zeros(shape, op.getWantedLogProb().getType());
  for (int64_t i = 0; i < lse.shape[0]; ++i) {
    const double total = logSumExp(lse.row(i), lse.features());
    std::vector<double> logProbs(largest.row(i), largest.row(i) + largest.features());
    for (double &value : logProbs)
      value -= total;
    // Equal values appear in the list in the order of their tokens, so ties still go to the lower token.
    largestTokens(logProbs, 0, {}, tokens.features(), tokens.row(i), best.row(i));
    for (int64_t c = 0; c < tokens.features(); ++c)
      if (double &place = tokens.row(i)[c]; place >= 0)
        place = slabTokens.row(i)[static_cast<int64_t>(place)];
    wantedLogProb.data[i] = wantedLogit.data[i] - total;
  }
  results.append({std::move(tokens), std::move(best), std::move(wantedLogProb)});
  return success();
}

void attachCandidatesEvaluators(MLIRContext &context) { attachEvaluators<CandidatesOp, MergeCandidatesOp>(context); }

} // namespace xfc
