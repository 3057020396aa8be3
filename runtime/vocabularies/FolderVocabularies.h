// Converts the tokenizer files of a Hugging Face folder to xfc vocabularies, one file per language.
#pragma once

#include <string>
#include <vector>

namespace xfc {

// File contents. `target` is empty if both languages share one vocabulary; both are empty if the folder has no
// tokenizer.
struct FolderVocabularies {
  std::string source, target;
  std::vector<std::string> notes = {}; // what a user should know, one line each
};

// `modelType` is config.json's model_type. Languages are named as the model names them (en, eng_Latn, en_XX); empty
// names default to those of tokenizer_config.json and then to those that transformers takes. Throws an Error that names
// the file and the member, also if the folder has only a kind of tokenizer that is not read.
FolderVocabularies vocabulariesOfFolder(const std::string &folder, const std::string &modelType,
                                        const std::string &sourceLanguage, const std::string &targetLanguage);

} // namespace xfc
