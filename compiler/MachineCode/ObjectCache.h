// A cache of kernels' machine code, in a folder.
#pragma once

#include "ObjectFile.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>
#include <string>

namespace xfc {

// An object's key covers everything that determines its bytes: the kernel's code as the backend emits it, the passes
// that lower it, the target machine, and the code generator. Models that share a kernel's shape therefore share its
// object, whatever else their executables contain, a change of a model costs only the kernels that it changes, and a
// change of the compiler only those that it emits or compiles differently. A GPU's kernels are kept as PTX in the same
// way, and so are cubins, each of which holds all kernels of a model. Several processes may use a folder at the same
// time, and its files may be removed at any time.
class ObjectCache {
public:
  // Creates the folder if necessary; throws Error with the system's reason. With an empty name, nothing is cached.
  explicit ObjectCache(std::string folder);
  explicit operator bool() const { return !folder.empty(); }

  // The key of the object that these parts and the code generator determine.
  std::string keyOf(llvm::ArrayRef<llvm::StringRef> parts) const;
  // The object, or nothing if it is missing or damaged.
  std::optional<ObjectFile> find(const std::string &key) const;
  // Throws Error with the system's reason.
  void keep(const std::string &key, const ObjectFile &object) const;
  // The object of these parts: from the cache, or else made and kept. Throws Error as keep() does.
  ObjectFile findOr(llvm::ArrayRef<llvm::StringRef> parts, llvm::function_ref<ObjectFile()> make) const;
  // Removes objects that were not used for a week, and the least recently used ones beyond 1 GiB; looks for them once
  // in 20 minutes at most.
  void prune() const;

private:
  static constexpr uint64_t maxBytes = uint64_t(1) << 30;
  std::string fileOf(const std::string &key) const;
  std::string folder;
};

} // namespace xfc
