// Declares what the evaluators share: zero results, iteration over pairs, dropout, losses.
#pragma once

#include "Interpreter.h"

namespace xfc {

inline const xfc_rows &rowsOf(const xfc_shape &shape, RowsType type) {
  return shape.sets[static_cast<int>(type.getSet())];
}

// A tensor of zeros for a value of `type` in a batch.
Tensor zeros(const xfc_shape &shape, mlir::Type type);

// The operand of a product, rounded to the compute type if there is one: rows, or a weight, which int4 rounds
// otherwise.
Tensor rounded(Tensor operand, std::optional<ComputeType> type);
Tensor roundedWeight(Tensor weight, std::optional<ComputeType> type);
// The same for a single number, which is defined for bf16 only.
double rounded(double x, std::optional<ComputeType> type);

// log(sum(exp(x))) of n numbers.
double logSumExp(const double *x, int64_t n);
// The same for those of tokens first, first + 1, .. that are not excluded.
double logSumExpOfOthers(llvm::ArrayRef<double> values, int64_t first, llvm::ArrayRef<int64_t> excluded);

// Writes the `count` largest values, and their tokens, in the order of xfc.candidates. `values` are those of tokens
// first, first + 1, ..
void largestTokens(llvm::ArrayRef<double> values, int64_t first, llvm::ArrayRef<int64_t> excluded, int64_t count,
                   double *tokens, double *largest);

// Returns the factor by which dropout multiplies an element: 0, 1/(1-rate), or 1 outside training. `headPlus1` is 0 for
// rows.
double dropoutFactor(const xfc_shape &shape, double rate, int64_t id, uint32_t sentence, int64_t position,
                     int64_t feature, uint32_t headPlus1 = 0);

// Returns the factor of an element that is not dropped.
double keptFactor(const xfc_shape &shape, double rate);

// One (query row, key row) pair of a structure, and where its elements are stored.
struct Pair {
  int64_t sequence, query, key; // query and key are row numbers
  int64_t index;                // index of the key in the sequence's list
  bool visible;                 // index < limit[query]
  int64_t rows, count, base;    // of the block: query rows, keys, first pair
  // The index of the pair's element in a pairs tensor with `heads` heads.
  int64_t element(int64_t head, int64_t heads) const;
  int64_t queryOffset; // query - first query row of the sequence
};
// Calls `visit` for every pair of the structure, queries and keys ascending.
void forEachPair(const xfc_shape &shape, RowSet queries, int64_t structure,
                 llvm::function_ref<void(const Pair &)> visit);

// Appends loss, negative log-likelihood and log-sum-exp [N] of logits [N, V].
void crossEntropy(const Tensor &logits, const Tensor &labels, const Tensor &smoothing,
                  llvm::SmallVectorImpl<Tensor> &results);
// cross_entropy_grad of given logits.
Tensor crossEntropyGrad(Tensor logits, const Tensor &dloss, const Tensor &labels, const Tensor &lse,
                        const Tensor &smoothing);

// Evaluates the ops of a one-block region; the results are the operands of its terminator.
llvm::LogicalResult evaluateRegion(const xfc_shape &shape, mlir::Region &region, llvm::ArrayRef<Tensor> arguments,
                                   llvm::SmallVectorImpl<Tensor> &results);

} // namespace xfc
