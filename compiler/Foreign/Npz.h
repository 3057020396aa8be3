// Reads the arrays of an .npz file: a zip archive of .npy files, as numpy.savez and Marian write it.
#pragma once

#include "Zip.h"
#include "support/MappedFile.h"
#include "tensors/Safetensors.h"
#include <map>
#include <optional>
#include <string>

namespace xfc {

// Returns a view of an .npy file's contents, which are a header (a Python literal) and the numbers. It is called `name`
// and has a type of safetensors. Throws an Error that begins with `where` if the file is truncated, holds Python
// objects (pickles, which are never read), other types or big-endian numbers, or is in column-major order.
TensorView parseNpy(std::string_view contents, const std::string &name, const std::string &where);

// An archive of a few megabytes can expand to gigabytes, so an array is decompressed only when it is read.
class Npz {
public:
  // Reads what the headers of the arrays say. Throws an Error that names the file and the array.
  explicit Npz(const std::string &file);
  // Reads contents that outlive this; `file` is for messages. Throws an Error that names it and the array.
  Npz(std::string_view contents, std::string file);
  const std::string &file() const { return name; }
  // The arrays by name, each with its type and shape but without its bytes.
  const std::map<std::string, TensorView> &arrays() const { return byName; }
  // The one of these with this name, or null.
  const TensorView *find(const std::string &array) const;
  // An array of the archive with its numbers, which stay in memory until they are released. Throws an Error if the
  // array does not match its checksum.
  TensorView read(const std::string &array);
  void release(const std::string &array) { decompressed.erase(array); }

private:
  void readHeaders(std::string_view contents);

  std::string name;
  std::optional<MappedFile> map;
  std::optional<Zip> zip;
  std::map<std::string, std::string> decompressed;
  std::map<std::string, TensorView> byName;
};

} // namespace xfc
