// Weights and vocabulary inside the executable itself: executable | weights | vocabularies | trailer. The weights begin
// at a multiple of 64 bytes, so that they can be used where they are mapped.
#include "decode/Packed.h"
#include "support/FileWriter.h"
#include "support/MappedFile.h"
#include <algorithm>
#include <cstring>
#include <fstream>

namespace xfc {

namespace {

constexpr char magic[8] = {'x', 'f', 'c', 'p', 'a', 'c', 'k', '1'};

struct Trailer {
  uint64_t weights, vocabulary, targetVocabulary; // bytes
  char magic[8];
};

// An executable and the sizes of its parts.
struct Executable {
  const std::string file;
  std::ifstream stream;
  PackedParts parts;

  explicit Executable(const std::string &name) : file(name), stream(name, std::ios::binary | std::ios::ate) {
    if (!stream)
      throw Error(file + " cannot be read" + (file == runningExecutable ? ": is /proc mounted?" : ""));
    const auto size = static_cast<uint64_t>(stream.tellg());
    const uint64_t end = std::min<uint64_t>(size, sizeof(Trailer));
    parts = packedParts(read(size - end, end), size);
  }

  std::string read(uint64_t offset, uint64_t size) {
    std::string bytes(size, '\0');
    stream.seekg(static_cast<std::streamoff>(offset));
    if (!stream.read(bytes.data(), static_cast<std::streamsize>(size)))
      throw Error(file + ": reading " + std::to_string(size) + " bytes failed");
    return bytes;
  }
};

} // namespace

bool beginsAsExecutable(const std::string &file) {
  constexpr std::string_view elf = "\x7f"
                                   "ELF";
  char begin[elf.size()] = {};
  return std::ifstream(file, std::ios::binary).read(begin, sizeof begin) &&
         std::string_view(begin, sizeof begin) == elf;
}

PackedParts packedParts(std::string_view end, uint64_t size) {
  PackedParts parts;
  parts.executable = size;
  Trailer found;
  if (end.size() < sizeof found)
    return parts;
  std::memcpy(&found, end.data() + end.size() - sizeof found, sizeof found);
  if (std::memcmp(found.magic, magic, sizeof magic) != 0)
    return parts;
  uint64_t rest = size - sizeof found;
  for (uint64_t part : {found.weights, found.vocabulary, found.targetVocabulary}) {
    if (part > rest)
      throw Error("the model inside this executable is truncated; pack it again");
    rest -= part;
  }
  return {rest, found.weights, found.vocabulary, found.targetVocabulary};
}

std::optional<PackedModel> packedModel(const std::string &file) {
  Executable self(file);
  const PackedParts &parts = self.parts;
  if (parts.weights == 0)
    return std::nullopt;
  uint64_t vocabulary = parts.executable + parts.weights;
  return PackedModel{MappedFile(file, parts.executable, parts.weights), self.read(vocabulary, parts.vocabulary),
                     self.read(vocabulary + parts.vocabulary, parts.targetVocabulary)};
}

void writePacked(std::string_view weights, std::string_view vocabulary, std::string_view targetVocabulary,
                 const std::string &file) {
  Executable self(runningExecutable);
  Trailer trailer{weights.size(), vocabulary.size(), targetVocabulary.size(), {}};
  std::memcpy(trailer.magic, magic, sizeof magic);
  FileWriter writer(file, /*executable=*/true);
  constexpr uint64_t most = 1 << 20;
  for (uint64_t at = 0; at < self.parts.executable; at += most)
    writer.write(self.read(at, std::min(most, self.parts.executable - at)));
  writer.write(std::string((64 - self.parts.executable % 64) % 64, '\0'));
  for (std::string_view part : {weights, vocabulary, targetVocabulary})
    writer.write(part);
  writer.write({reinterpret_cast<const char *>(&trailer), sizeof trailer});
  writer.commit();
}

} // namespace xfc
