#include "ObjectCache.h"
#include "support/Checksum.h"
#include "support/Error.h"
#include "support/Files.h"
#include "support/Inputs.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/SHA256.h"

namespace xfc {

namespace {

// Identifies this build by the executable's size and modification time, as compiler caches do. Throws Error if they
// cannot be read, since nothing else distinguishes one build from the next.
std::string thisCompiler() {
  llvm::sys::fs::file_status status;
  if (llvm::sys::fs::status("/proc/self/exe", status))
    throw Error("--cache: this program's file cannot be found under /proc/self/exe; compile without --cache");
  return LLVM_VERSION_STRING " " + std::to_string(status.getSize()) + " " +
         std::to_string(status.getLastModificationTime().time_since_epoch().count());
}

constexpr size_t sumDigits = 8; // hex digits of the checksum at the end of a file

} // namespace

ObjectCache::ObjectCache(std::string name) : folder(std::move(name)) {
  if (folder.empty())
    return;
  makeFolder(folder);
  isUpdated(folder);
  compiler = thisCompiler();
}

std::string ObjectCache::keyOf(llvm::ArrayRef<llvm::StringRef> parts) const {
  llvm::SHA256 hash;
  auto add = [&](llvm::StringRef part) {
    hash.update(std::to_string(part.size()) + " ");
    hash.update(part);
  };
  add(compiler);
  for (llvm::StringRef part : parts)
    add(part);
  return llvm::toHex(hash.final(), true);
}

std::string ObjectCache::fileOf(const std::string &key) const { return folder + "/" + key + ".o"; }

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

} // namespace xfc
