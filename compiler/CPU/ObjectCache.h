// Objects of kernels that were generated before, in a folder.
#pragma once

#include "Codegen/ObjectFile.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace xfc {

// A kernel's object is known by all that decides its bytes: its code as the backend wrote it, what machine it is made
// for, and the compiler that makes it. Models that share a kernel's shape therefore share its object, and a change of a
// model costs only the kernels that it changes. Several processes may use a folder at once; files in it may be removed
// at any time.
class ObjectCache {
public:
  // Makes the folder if need be; throws Error with the system's reason. Without a name nothing is kept.
  explicit ObjectCache(std::string folder);
  explicit operator bool() const { return !folder.empty(); }

  // The name that the cache has for what these parts say.
  std::string keyOf(llvm::ArrayRef<llvm::StringRef> parts) const;
  // Nothing where it is not there, or damaged.
  std::optional<ObjectFile> find(const std::string &key) const;
  // Throws Error with the system's reason.
  void keep(const std::string &key, const ObjectFile &object) const;

private:
  std::string fileOf(const std::string &key) const;
  std::string folder, compiler; // the latter stands for this build of the compiler
};

} // namespace xfc
