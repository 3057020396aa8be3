// Converts xfc vocabularies to the tokenizer files of folders for other programs.
#pragma once

#include "vocabularies/FolderVocabularies.h"
#include <map>

namespace xfc {

// The files by name, tokenizer_config.json among them, for the model family that config.json calls `modelType`; the
// tokenizer they describe yields the same ids. Empty if the family has no tokenizer of this kind. Throws Error if a
// vocabulary cannot be read.
std::map<std::string, std::string> tokenizerFiles(const FolderVocabularies &vocabularies, const std::string &modelType);

// The files that split text into pieces without giving them ids, by names that CTranslate2's folders use: SentencePiece
// models, or a tokenizer.json. Empty for lists of words, and for two different files tokenizer.json.
std::map<std::string, std::string> splitterFiles(const FolderVocabularies &vocabularies);

} // namespace xfc
