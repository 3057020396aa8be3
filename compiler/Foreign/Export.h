// Exports a model of ours into a folder that another program reads: the inverse of import.
#pragma once

#include <string>
#include <vector>

namespace xfc {

struct ExportOptions {
  // The folder that import made, or the --out folder of train, whose best weights are taken, or else its last.
  std::string from;
  std::string to; // the Hugging Face folder to make; if it exists, it must be empty
};

struct ForeignExport {
  std::string modelType, weights; // the family, as config.json calls it, and the file that the weights are from
  size_t tensors = 0;
  uint64_t bytes = 0;
  std::vector<std::string> tokenizerFiles;
  std::vector<std::string> notes; // what a user should know, one line each
};

// Writes config.json, generation_config.json, model.safetensors and the tokenizer's files. The folder appears only when
// all of it is written. The family is the first that can express this model: its config, when read back, must describe
// the same steps. Weights are copied unchanged from file to file, unless positions interleave sines and cosines:
// families have all sines first, so the features of every tensor are then permuted, which does not change what the
// model computes. Throws an Error that says for each family what does not fit, with the path in model.json.
ForeignExport exportForeign(const ExportOptions &options);

} // namespace xfc
