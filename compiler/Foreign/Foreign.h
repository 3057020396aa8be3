// Imports a model of another program into a folder of ours: a model.json of ordinary steps, and the weights under our
// names.
#pragma once

#include <string>
#include <vector>

namespace xfc {

struct ForeignOptions {
  // A Hugging Face folder (config.json, and model.safetensors or its shards), an .npz file of Marian or its folder, or
  // a CTranslate2 folder.
  std::string from;
  std::string to; // the folder to make; if it exists, it must be empty
  // For tokenizers that mark each line with a language: the languages, as the model names them (eng_Latn, en_XX).
  // Empty: those of the folder's tokenizer_config.json. Every translation begins with the target language.
  std::string sourceLanguage = {}, targetLanguage = {};
  // Normalizes the punctuation of source lines by Moses' rules for this language; `auto`: for the one that
  // tokenizer_config.json names. Empty: not at all. Target lines are normalized too if that file names their language.
  std::string punctuation = {};
};

struct ForeignImport {
  std::string model; // its name, after that of the folder or file
  size_t parameters = 0;
  uint64_t bytes = 0;             // of weights
  bool readsText = false;         // whether the folder had a tokenizer
  std::vector<std::string> notes; // what a user should know, one line each
  // The keys that were looked for in its files of settings, "config.json: d_model": each of them has an effect.
  std::vector<std::string> asked;
};

// Writes model.json, model.safetensors and the vocabularies. The folder appears only when all of it is written. Memory
// use is a few pages and the tokenizer: weights are copied from file to file, except those that are quantized or laid
// out differently. generation_config.json becomes the `generation` of model.json. Throws an Error that names the file
// and the key for missing, truncated or unrecognized files, an unknown family, an option that no step supports, or a
// config that contradicts its weights.
ForeignImport importForeign(const ForeignOptions &options);

// The known families, as config.json calls them: "marian, bart".
std::string listedFamilies();

} // namespace xfc
