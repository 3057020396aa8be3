// Vocabularies of ours into the tokenizer files of a Hugging Face folder.
#pragma once

#include "text/FolderVocabularies.h"
#include <map>

namespace xfc {

// Files by name, for the family that config.json calls `modelType`, tokenizer_config.json among them, so that its
// tokenizer gives the ids that ours does; none where the family has no tokenizer of this kind. Throws Error where a
// vocabulary cannot be read.
std::map<std::string, std::string> tokenizerFiles(const FolderVocabularies &vocabularies, const std::string &modelType);

} // namespace xfc
