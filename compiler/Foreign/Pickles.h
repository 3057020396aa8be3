// Finds pickles. Reading one runs whatever code it contains, so they are refused, with advice how to convert them.
#pragma once

#include <string>

namespace xfc {

// The file at `path`, or the first in the folder at `path`, that holds a pickle: PyTorch's archives and its older
// files, whatever they are called. "" if there is none.
std::string findPickle(const std::string &path);

// For users: what is wrong with a pickle, and how to get a model out of it.
std::string adviceAboutPickles();

} // namespace xfc
