// A model of another program into a folder of ours: model.json of ordinary steps, and its weights under our names.
#pragma once

#include <string>
#include <vector>

namespace xfc {

struct ForeignOptions {
  // A Hugging Face folder (config.json, and model.safetensors or its shards), an .npz file of Marian or its folder, or
  // a folder of CTranslate2.
  std::string from;
  std::string to; // the folder to make, which must not exist or be empty
  // As the model names them (eng_Latn, en_XX), where a tokenizer marks its lines with a language; empty: those that the
  // folder's tokenizer_config.json names. A target language is what every translation begins with.
  std::string sourceLanguage = {}, targetLanguage = {};
};

struct ForeignImport {
  std::string model; // its name: that of the folder
  size_t parameters = 0;
  uint64_t bytes = 0;             // of weights
  bool readsText = false;         // whether the folder had a tokenizer
  std::vector<std::string> notes; // what a user should know, one line each
};

// Writes model.json, model.safetensors and the vocabularies, all of it or nothing, in the memory of a few pages and of
// the tokenizer: weights go from file to file, but for those that are rounded or lie otherwise there.
// generation_config.json becomes the `generation` of model.json. Throws
// Error naming file and key: missing, truncated or foreign files, a family that is not known, an option that has no
// step, a config that contradicts its weights.
ForeignImport importForeign(const ForeignOptions &options);

// The families that are known, as config.json calls them: "marian, bart".
std::string listedFamilies();

} // namespace xfc
