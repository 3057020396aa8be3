// Reads the arrays of an .npz file: a zip archive of .npy files, as numpy.savez and Marian write it.
#pragma once

#include "tensors/Safetensors.h"
#include <list>
#include <map>
#include <optional>
#include <string>

namespace xfc {

// Returns a view of an .npy file's contents, which are a header (a Python literal) and the numbers. It is called `name`
// and has a type of safetensors. Throws an Error that begins with `where` if the file is truncated, holds Python
// objects (pickles, which are never read), other types or big-endian numbers, or is in column-major order.
TensorView parseNpy(std::string_view contents, const std::string &name, const std::string &where);

class Npz {
public:
  // Throws an Error that names the file and the array.
  explicit Npz(const std::string &file);
  // Reads contents that outlive this; `file` is for messages. Throws an Error that names it and the array.
  Npz(std::string_view contents, std::string file);
  const std::string &file() const { return name; }
  const std::map<std::string, TensorView> &arrays() const { return byName; }
  const TensorView *find(const std::string &array) const;

private:
  void read(std::string_view contents);

  std::string name;
  std::optional<MappedFile> map;
  std::list<std::string> decompressed;
  std::map<std::string, TensorView> byName;
};

} // namespace xfc
