// Exports a model of ours into a folder that another program reads: the inverse of import.
#pragma once

#include <string>
#include <vector>

namespace xfc {

struct ExportOptions {
  // The folder that import made, or the --out folder of train, whose best weights are taken, or else its last.
  std::string from;
  std::string to;            // the folder to make; if it exists, it must be empty
  std::string format = "hf"; // a name of exportFormats()
  // The type of the weights of a CTranslate2 folder, by its names: float32, float16, bfloat16 or int8.
  std::string quantization = "float32";
};

struct ForeignExport {
  std::string modelType, weights; // the family, as config.json calls it, and the file that the weights are from
  size_t tensors = 0;
  uint64_t bytes = 0;
  std::vector<std::string> files; // that were written
  std::vector<std::string> notes; // what a user should know, one line each
};

struct ExportFormat {
  std::string name, what; // for --to, and for people
  ForeignExport (*write)(const ExportOptions &options);
};
const std::vector<ExportFormat> &exportFormats();

// Writes a folder of the given format, which appears only when all of it is written. Throws an Error that says what
// does not fit, with the path in model.json, or that there is no such format.
ForeignExport exportForeign(const ExportOptions &options);

// Writes config.json, generation_config.json, model.safetensors and the tokenizer's files. The family is the first that
// can express this model: its config, when read back, must describe the same steps. Weights are copied unchanged from
// file to file, unless positions interleave sines and cosines: families have all sines first, so the features of every
// tensor are then permuted, which does not change what the model computes.
ForeignExport exportHuggingFace(const ExportOptions &options);

// Writes model.bin, config.json, the lists of tokens and the tokenizer's files. The steps that CTranslate2 would
// compute must be those of the model. Throws an Error if they are not, with the path in model.json; if the two
// languages call eos by different names; if the settings of the search need a token that the tables lack; or if a
// weight is too large for the type. The message names the file.
ForeignExport exportCtranslate2(const ExportOptions &options);

} // namespace xfc
