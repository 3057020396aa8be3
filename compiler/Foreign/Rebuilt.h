// What readers of other files have in common: tensors under the names and in the shapes that Stacks asks for, and what
// they change of the model that it builds.
#pragma once

#include "Stacks.h"

namespace xfc {

// Some rows of a tensor of at least one dimension, a view.
TensorView rowsOf(const TensorView &tensor, int64_t first, int64_t count);
// Its numbers as F32, which all types of weights but F64 fit into.
std::vector<float> floatsOf(const TensorView &tensor);
// As many bytes, for Weights::addMade.
std::string bytesOf(const std::vector<float> &numbers);

// Adds the tensor under another name.
void addAs(Weights &weights, const std::string &name, TensorView tensor);
void addFloats(Weights &weights, const std::string &name, std::vector<int64_t> shape,
               const std::vector<float> &numbers);
// Adds a table with rows of zeros after its own, so that there are `rows`: Marian's decoder begins with a row of zeros,
// which is an embedding of no token.
void addTable(Weights &weights, const std::string &name, const TensorView &table, int64_t rows);
// The bias of `rows` logits, [1, rows]: of those after its own it is so low that they are never written, nor count.
void addLogitsBias(Weights &weights, const TensorView *bias, int64_t rows);

// Sets the eps of every norm.
void setNormEps(nlohmann::ordered_json &steps, double eps);
// Leaves out the norms that end pre-norm stacks.
void leaveOutFinalNorms(ForeignModel &model);

// Sines, then cosines, of frequencies down to 1/10000 itself: the i-th of d/2 is 10000^(-i/(d/2 - 1)). `offset` is the
// position of the first token.
nlohmann::ordered_json sinusoidalPositions(int64_t d, int64_t offset);
nlohmann::ordered_json learnedPositions();

} // namespace xfc
