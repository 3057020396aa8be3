// Checks which vocabularies weights belong to: files of weights record the hashes of those that they came with.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace xfc {

// The hash of a vocabulary's file.
std::string vocabularyHash(std::string_view bytes);

// The keys of the metadata of weights that hold it. Both have the same if one vocabulary is for both languages.
inline constexpr const char *sourceVocabularyKey = "source_vocabulary";
inline constexpr const char *targetVocabularyKey = "target_vocabulary";

// Throws an Error that names the vocabulary and ends with `advice` if the metadata of weights has another hash under
// the key than that of these bytes. Nothing is compared without bytes (ids need no vocabulary) or without the key.
void checkVocabulary(const std::map<std::string, std::string> &metadata, const char *key, std::string_view bytes,
                     const std::string &name, const std::string &advice);

} // namespace xfc
