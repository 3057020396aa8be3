// A model of ours into a folder that another program reads: the way back from import.
#pragma once

#include <string>
#include <vector>

namespace xfc {

struct ExportOptions {
  std::string from; // the folder of import, or the --out folder of train: its best weights, or else its last
  std::string to;   // the Hugging Face folder to make, which must not exist or be empty
};

struct ForeignExport {
  std::string modelType, weights; // the family, as config.json calls it, and the file that the weights are from
  size_t tensors = 0;
  uint64_t bytes = 0;
  std::vector<std::string> tokenizerFiles;
  std::vector<std::string> notes; // what a user should know, one line each
};

// Writes config.json, generation_config.json, model.safetensors and the tokenizer's files, all of it or nothing. The
// family is the first that has this model, which is proved by reading the config that is written: it must describe the
// same steps. Weights go from file to file, as they are; only where positions alternate sines and cosines and the
// family has all sines first, the features of every tensor change places, by which the model remains the same. Throws
// Error saying for each family, with the path in model.json, what does not fit.
ForeignExport exportForeign(const ExportOptions &options);

} // namespace xfc
