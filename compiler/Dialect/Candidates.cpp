// Candidates of a decoding step: definitions and f64 semantics.
#include "PlainBuilder.h"
#include "Support.h"
#include <cmath>

using namespace mlir;
using namespace xfc;

void xfc::largestTokens(ArrayRef<double> values, int64_t first, ArrayRef<int64_t> excluded, int64_t count,
                        double *tokens, double *largest) {
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

LogicalResult xfc::verifyCandidates(Operation *op, RowsType rows, RowsType wanted, RowsType tokens, RowsType numbers,
                                    RowsType wantedNumber, ArrayRef<int64_t> excluded, int64_t vocabulary) {
  auto like = [&](ArrayRef<int64_t> shape, Type element) {
    return RowsType::get(op->getContext(), rows.getSet(), shape, element);
  };
  if (wanted.getSet() != rows.getSet())
    return op->emitOpError("wanted tokens are of rows of ") << stringifyRowSet(rows.getSet()) << ", found " << wanted;
  if (tokens.getSet() != rows.getSet() || tokens.getFeatures() < 1)
    return op->emitOpError("tokens must be a list for each of the rows of ")
           << stringifyRowSet(rows.getSet()) << ", found " << tokens;
  if (numbers != like(tokens.getShape(), rows.getElementType()))
    return op->emitOpError("each token needs a number, found ") << numbers << " for " << tokens;
  if (wantedNumber != like({}, rows.getElementType()))
    return op->emitOpError("the wanted token needs one number a row, found ") << wantedNumber;
  for (size_t i = 0; i < excluded.size(); ++i)
    if (excluded[i] < 0 || excluded[i] >= vocabulary || (i > 0 && excluded[i] <= excluded[i - 1]))
      return op->emitOpError("excluded must be ascending tokens below ") << vocabulary << ", found " << excluded[i];
  return verifyOneElementType(op);
}

//===--------------------------------------------------------------------------------------------------------===//
// candidates
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult CandidatesOp::verify() {
  RowsType logProbs = getLogProbs().getType();
  return verifyCandidates(*this, logProbs, getWanted().getType(), getTokens().getType(), getBest().getType(),
                          getWantedLogProb().getType(), getExcluded(), logProbs.getFeatures());
}

LogicalResult CandidatesOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                     SmallVectorImpl<Tensor> &results) {
  const Tensor &logProbs = operands[0], &wanted = operands[1];
  Tensor tokens = zeros(shape, getTokens().getType()), best = zeros(shape, getBest().getType()),
         wantedLogProb = zeros(shape, getWantedLogProb().getType());
  for (int64_t i = 0; i < logProbs.shape[0]; ++i) {
    ArrayRef<double> row(logProbs.row(i), logProbs.features());
    largestTokens(row, 0, getExcluded(), tokens.features(), tokens.row(i), best.row(i));
    wantedLogProb.data[i] = row[static_cast<int64_t>(wanted.data[i])];
  }
  results.append({std::move(tokens), std::move(best), std::move(wantedLogProb)});
  return success();
}

// The next candidate is the largest of those that come behind the last one, and of these the lowest token.
void CandidatesOp::lowerPlain(PlainBuilder &b) {
  Value logProbs = b.operand(0), wanted = b.operand(1), tokens = b.result(0), best = b.result(1),
        wantedLogProb = b.result(2);
  const int64_t vocabulary = getLogProbs().getType().getFeatures();
  b.forEach(b.rowCount(), [&](const Number &i) {
    Value row = b.slice(logProbs, {i});
    std::optional<Number> last, lastToken;
    for (int64_t c = 0; c < getTokens().getType().getFeatures(); ++c) {
      // Minus infinity where the token is no candidate any more.
      auto left = [&](const Number &x) {
        Number token = b.loop('j'),
               value =
                   last ? select(x < *last, x, select(x == *last, select(token > *lastToken, x, -INFINITY), -INFINITY))
                        : select(x > -INFINITY, x, -INFINITY);
        for (int64_t excluded : getExcluded())
          value = select(token == excluded, -INFINITY, value);
        return value;
      };
      Number largest = b.reduce("j->", row, -INFINITY, [&](auto v) { return max(v[1], left(v[0])); });
      Number none(b, Number(vocabulary).as(b, b.b.getIndexType()));
      Number token = b.reduce("j->", row, none,
                              [&](auto v) { return select(left(v[0]) == largest, min(v[1], b.loop('j')), v[1]); });
      b.store(select(largest > -INFINITY, token, -1), tokens, {i, c});
      b.store(largest, best, {i, c});
      last = largest;
      lastToken = token;
    }
    b.store(b.load(logProbs, {i, b.load(wanted, {i})}), wantedLogProb, {i});
  });
}

//===--------------------------------------------------------------------------------------------------------===//
// merge_candidates
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult MergeCandidatesOp::verify() {
  RowsType lse = getLse().getType(), slabTokens = getSlabTokens().getType(), tokens = getTokens().getType();
  if (slabTokens.getFeatures() != lse.getFeatures() * tokens.getFeatures())
    return emitOpError("slabs' tokens must be ")
           << lse.getFeatures() << " slabs of " << tokens.getFeatures() << ", found " << slabTokens;
  auto like = [&](ArrayRef<int64_t> shape) {
    return RowsType::get(getContext(), lse.getSet(), shape, lse.getElementType());
  };
  if (slabTokens.getSet() != lse.getSet() || getLargest().getType() != like(slabTokens.getShape()))
    return emitOpError("each token of a slab needs a number, found ")
           << getLargest().getType() << " for " << slabTokens;
  if (getWantedLogit().getType() != like({}))
    return emitOpError("the wanted token needs one number a row, found ") << getWantedLogit().getType();
  return verifyCandidates(*this, lse, RowsType::get(getContext(), lse.getSet(), {}, IntegerType::get(getContext(), 32)),
                          tokens, getBest().getType(), getWantedLogProb().getType(), {}, 0);
}

LogicalResult MergeCandidatesOp::evaluate(const xfc_shape &shape, ArrayRef<Tensor> operands,
                                          SmallVectorImpl<Tensor> &results) {
  const Tensor &slabTokens = operands[0], &largest = operands[1], &lse = operands[2], &wantedLogit = operands[3];
  Tensor tokens = zeros(shape, getTokens().getType()), best = zeros(shape, getBest().getType()),
         wantedLogProb = zeros(shape, getWantedLogProb().getType());
  for (int64_t i = 0; i < lse.shape[0]; ++i) {
    const double total = logSumExp(lse.row(i), lse.features());
    std::vector<double> logProbs(largest.row(i), largest.row(i) + largest.features());
    for (double &value : logProbs)
      value -= total;
    // Places in the list are in the order of the tokens wherever values are equal.
    largestTokens(logProbs, 0, {}, tokens.features(), tokens.row(i), best.row(i));
    for (int64_t c = 0; c < tokens.features(); ++c)
      if (double &place = tokens.row(i)[c]; place >= 0)
        place = slabTokens.row(i)[static_cast<int64_t>(place)];
    wantedLogProb.data[i] = wantedLogit.data[i] - total;
  }
  results.append({std::move(tokens), std::move(best), std::move(wantedLogProb)});
  return success();
}
