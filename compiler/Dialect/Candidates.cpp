// Candidates of a decoding step: verification.
#include "Support.h"

using namespace mlir;
using namespace xfc;

LogicalResult xfc::verifyCandidates(Operation *op, RowsType rows, RowsType wanted, RowsType tokens, RowsType numbers,
                                    RowsType wantedNumber, ArrayRef<int64_t> excluded, int64_t vocabulary) {
  auto like = [&](ArrayRef<int64_t> shape, Type element) {
    return RowsType::get(op->getContext(), rows.getSet(), shape, element);
  };
  if (wanted.getSet() != rows.getSet())
    return op->emitOpError("wanted tokens must be of rows of ")
           << stringifyRowSet(rows.getSet()) << ", found " << wanted;
  if (tokens.getSet() != rows.getSet() || tokens.getFeatures() < 1)
    return op->emitOpError("tokens must be a list for each of the rows of ")
           << stringifyRowSet(rows.getSet()) << ", found " << tokens;
  if (numbers != like(tokens.getShape(), rows.getElementType()))
    return op->emitOpError("each token needs a number, found ") << numbers << " for " << tokens;
  if (wantedNumber != like({}, rows.getElementType()))
    return op->emitOpError("the wanted token needs one number per row, found ") << wantedNumber;
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
    return emitOpError("the wanted token needs one number per row, found ") << getWantedLogit().getType();
  return verifyCandidates(*this, lse, RowsType::get(getContext(), lse.getSet(), {}, IntegerType::get(getContext(), 32)),
                          tokens, getBest().getType(), getWantedLogProb().getType(), {}, 0);
}
