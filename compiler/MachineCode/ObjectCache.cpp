// A cache of kernels' machine code, in a folder.
#include "ObjectCache.h"
#include "Version.h"
#include "support/Checksum.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/Inputs.h"
#include "support/MappedFile.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CachePruning.h"
#include "llvm/Support/SHA256.h"

namespace xfc {

static constexpr size_t sumDigits = 8; // hex digits of the checksum at the end of a file

ObjectCache::ObjectCache(std::string name) : folder(std::move(name)) {
  if (folder.empty())
    return;
  makeFolder(folder);
  isUpdated(folder);
}

std::string ObjectCache::keyOf(llvm::ArrayRef<llvm::StringRef> parts) const {
  llvm::SHA256 hash;
  auto add = [&](llvm::StringRef part) {
    hash.update(std::to_string(part.size()) + " ");
    hash.update(part);
  };
  add(codeGeneratorVersion());
  for (llvm::StringRef part : parts)
    add(part);
  return llvm::toHex(hash.final(), true);
}

// LLVM removes no files but those with this prefix.
std::string ObjectCache::fileOf(const std::string &key) const { return folder + "/llvmcache-" + key + ".o"; }

std::optional<ObjectFile> ObjectCache::find(const std::string &key) const {
  const std::string file = fileOf(key);
  if (!exists(file))
    return std::nullopt;
  std::optional<MappedFile> mapped;
  try {
    mapped.emplace(MappedFile::readOnly(file));
  } catch (const Error &) { // removed meanwhile
    return std::nullopt;
  }
  const std::string_view contents = mapped->contents();
  if (contents.size() < sumDigits)
    return std::nullopt;
  const std::string_view object = contents.substr(0, contents.size() - sumDigits);
  if (checksumOf(object) != contents.substr(object.size()))
    return std::nullopt;
  return ObjectFile(object.begin(), object.end());
}

void ObjectCache::keep(const std::string &key, const ObjectFile &object) const {
  const std::string_view bytes(object.data(), object.size());
  writeFile(fileOf(key), std::string(bytes) + checksumOf(bytes));
}

ObjectFile ObjectCache::findOr(llvm::ArrayRef<llvm::StringRef> parts, llvm::function_ref<ObjectFile()> make) const {
  if (!*this)
    return make();
  const std::string key = keyOf(parts);
  if (std::optional<ObjectFile> found = find(key))
    return std::move(*found);
  ObjectFile made = make();
  keep(key, made);
  return made;
}

void ObjectCache::prune() const {
  llvm::CachePruningPolicy policy; // a week since the last access
  policy.MaxSizeBytes = maxBytes;
  if (!folder.empty())
    llvm::pruneCache(folder, policy);
}

} // namespace xfc
