// The arrays of an .npz file: a zip archive of .npy files, as numpy.savez and Marian write it.
#pragma once

#include "tensors/Safetensors.h"
#include <list>
#include <map>
#include <string>

namespace xfc {

// A view of an .npy file's contents: a header, which is a literal of Python, and the numbers. Its name is `name`, its
// types are those of safetensors. Throws Error, beginning with `where`: truncated, arrays of Python objects (pickles,
// which are never read), other types, big-endian numbers, columns first.
TensorView parseNpy(std::string_view contents, const std::string &name, const std::string &where);

class Npz {
public:
  // Throws Error naming the file, and the array.
  explicit Npz(const std::string &file);
  const std::string &file() const { return name; }
  const std::map<std::string, TensorView> &arrays() const { return byName; }
  const TensorView *find(const std::string &array) const;

private:
  std::string name;
  MappedFile map;
  std::list<std::string> decompressed;
  std::map<std::string, TensorView> byName;
};

} // namespace xfc
