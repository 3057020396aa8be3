// The tokenizer files of a Hugging Face folder into vocabularies of ours, one file for each language.
#pragma once

#include <string>

namespace xfc {

// Contents of files. `target` is empty where one vocabulary is for both languages; both are empty where the folder has
// no tokenizer.
struct FolderVocabularies {
  std::string source, target;
};

// `modelType` is config.json's model_type. The languages are named as the model names them (en, eng_Latn, en_XX); empty
// ones are those of tokenizer_config.json, as far as it names them. Throws Error with the file's name, and the
// member's.
FolderVocabularies vocabulariesOfFolder(const std::string &folder, const std::string &modelType,
                                        const std::string &sourceLanguage, const std::string &targetLanguage);

} // namespace xfc
