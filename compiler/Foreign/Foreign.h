// A model of another program into a folder of ours: model.json of ordinary steps, and its weights under our names.
#pragma once

#include <string>
#include <vector>

namespace xfc {

struct ForeignOptions {
  std::string from; // a Hugging Face folder: config.json and model.safetensors, or its shards
  std::string to;   // the folder to make, which must not exist or be empty
};

struct ForeignImport {
  std::string model; // its name: that of the folder
  size_t parameters = 0;
  uint64_t bytes = 0;             // of weights
  std::vector<std::string> notes; // what a user should know, one line each
};

// Writes model.json and model.safetensors, all of it or nothing, in the memory of a few pages: weights go from file to
// file. Throws Error naming file and key: missing, truncated or foreign files, a family that is not known, an option
// that has no step, a config that contradicts its weights.
ForeignImport importForeign(const ForeignOptions &options);

// The families that are known, as config.json calls them: "marian, bart".
std::string listedFamilies();

} // namespace xfc
