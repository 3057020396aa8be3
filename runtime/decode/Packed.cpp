// Weights and vocabulary inside the executable itself: executable | weights | vocabularies | trailer. The weights begin
// at a multiple of 64 bytes, so that they can stay where they are.
#include "decode/Packed.h"
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

// The running executable, open at its trailer's sizes; `executable` are the bytes before what it carries.
struct Self {
  static constexpr const char *file = "/proc/self/exe";
  std::ifstream stream{file, std::ios::binary | std::ios::ate};
  uint64_t executable = 0;
  Trailer trailer{};

  Self() {
    if (!stream)
      throw Error("/proc/self/exe cannot be read: is /proc mounted?");
    uint64_t size = static_cast<uint64_t>(stream.tellg());
    executable = size;
    Trailer found;
    if (size < sizeof found)
      return;
    stream.seekg(static_cast<std::streamoff>(size - sizeof found));
    stream.read(reinterpret_cast<char *>(&found), sizeof found);
    if (!stream || std::memcmp(found.magic, magic, sizeof magic) != 0)
      return;
    uint64_t rest = size - sizeof found;
    for (uint64_t part : {found.weights, found.vocabulary, found.targetVocabulary}) {
      if (part > rest)
        throw Error("this executable carries a model that was cut off: pack it again");
      rest -= part;
    }
    executable = rest;
    trailer = found;
  }

  std::string read(uint64_t offset, uint64_t size) {
    std::string bytes(size, '\0');
    stream.seekg(static_cast<std::streamoff>(offset));
    if (!stream.read(bytes.data(), static_cast<std::streamsize>(size)))
      throw Error("/proc/self/exe: reading " + std::to_string(size) + " bytes failed");
    return bytes;
  }
};

} // namespace

std::optional<PackedModel> packedModel() {
  Self self;
  const Trailer &trailer = self.trailer;
  if (trailer.weights == 0)
    return std::nullopt;
  uint64_t vocabulary = self.executable + trailer.weights;
  return PackedModel{MappedFile(Self::file, self.executable, trailer.weights),
                     self.read(vocabulary, trailer.vocabulary),
                     self.read(vocabulary + trailer.vocabulary, trailer.targetVocabulary)};
}

void writePacked(std::string_view weights, std::string_view vocabulary, std::string_view targetVocabulary,
                 const std::string &file) {
  Self self;
  Trailer trailer{weights.size(), vocabulary.size(), targetVocabulary.size(), {}};
  std::memcpy(trailer.magic, magic, sizeof magic);
  FileWriter writer(file, /*executable=*/true);
  constexpr uint64_t most = 1 << 20;
  for (uint64_t at = 0; at < self.executable; at += most)
    writer.write(self.read(at, std::min(most, self.executable - at)));
  writer.write(std::string((64 - self.executable % 64) % 64, '\0'));
  for (std::string_view part : {weights, vocabulary, targetVocabulary})
    writer.write(part);
  writer.write({reinterpret_cast<const char *>(&trailer), sizeof trailer});
  writer.commit();
}

} // namespace xfc
