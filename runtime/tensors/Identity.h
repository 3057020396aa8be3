// Compares the models that weights belong to.
#pragma once

#include <string>

namespace xfc {

// The first difference between two canonical descriptions by which the same weights compute something else, ""
// if there is none: "encoder.layer[0].op is "relu" there and "gelu" here", where `theirs` is there. Names, initial
// values, dropout, max_length, generation, training and source_eos may differ.
std::string differenceOfModels(const std::string &theirs, const std::string &ours);

} // namespace xfc
