// Checks which vocabularies weights belong to.
#include "vocabularies/VocabularyIdentity.h"
#include "support/Error.h"
#include <cstdint>
#include <cstdio>

namespace xfc {

// FNV-1a, 64 bits: tells vocabularies apart, but is not cryptographic.
std::string vocabularyHash(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char byte : bytes)
    hash = (hash ^ byte) * 0x100000001b3;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

void checkVocabulary(const std::map<std::string, std::string> &metadata, const char *key, std::string_view bytes,
                     const std::string &name, const std::string &advice) {
  const auto theirs = metadata.find(key);
  if (!bytes.empty() && theirs != metadata.end() && theirs->second != vocabularyHash(bytes))
    throw Error(name + ": this vocabulary (hash " + vocabularyHash(bytes) +
                ") is not the one that the weights were trained with (hash " + theirs->second + "); " + advice);
}

} // namespace xfc
