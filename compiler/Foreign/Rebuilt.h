// Helpers of the readers for other kinds of files: they provide tensors under the names and in the shapes that Stacks
// expects, and adapt the model that it builds.
#pragma once

#include "Stacks.h"

namespace xfc {

// A view of some rows of a tensor with at least one dimension.
TensorView rowsOf(const TensorView &tensor, int64_t first, int64_t count);
// The numbers of a tensor as F32, which holds all types of weights but F64 exactly.
std::vector<float> floatsOf(const TensorView &tensor);
// The numbers as bytes, for Weights::addMade and files.
template <typename Number> std::string bytesOf(const std::vector<Number> &numbers) {
  return {reinterpret_cast<const char *>(numbers.data()), numbers.size() * sizeof(Number)};
}

// Adds the tensor under another name.
void addAs(Weights &weights, const std::string &name, TensorView tensor);
void addFloats(Weights &weights, const std::string &name, std::vector<int64_t> shape,
               const std::vector<float> &numbers);
// Adds a table, padded with rows of zeros to `rows` rows: Marian's decoder begins with an embedding of zeros, which
// belongs to no token.
void addTable(Weights &weights, const std::string &name, const TensorView &table, int64_t rows);
// Adds the bias of `rows` logits, [1, rows]. Logits beyond those of `bias` get one so low that they are never chosen
// and do not affect the others.
void addLogitsBias(Weights &weights, const TensorView *bias, int64_t rows);

// Sets the eps of every norm.
void setNormEps(nlohmann::ordered_json &steps, double eps);
// Removes the norms that end pre-norm stacks.
void leaveOutFinalNorms(ForeignModel &model);

// Sinusoidal positions with all sines first, whose lowest frequency is exactly 1/10000: the i-th of d/2 is
// 10000^(-i/(d/2 - 1)). `offset` is the position of the first token.
nlohmann::ordered_json sinusoidalPositions(int64_t d, int64_t offset);
nlohmann::ordered_json learnedPositions();

} // namespace xfc
