// The kinds of files that models come in. Each kind has its own reader, and all readers return the same structure.
#pragma once

#include "Families.h"
#include "Foreign.h"
#include "vocabularies/FolderVocabularies.h"

namespace xfc {

struct ForeignFiles {
  std::string describedBy; // the file that describes the model, for messages
  Weights weights;
  ForeignModel model;
  nlohmann::ordered_json generation; // of model.json
  FolderVocabularies vocabularies;
  // The keys that were looked for in its files of settings, "config.json: d_model": each of them has an effect.
  std::vector<std::string> asked = {};
};

struct Kind {
  std::string what; // for messages
  bool (*is)(const std::string &path);
  ForeignFiles (*read)(const ForeignOptions &options);
};

// The kind of the files at `path`. Throws an Error that lists the known kinds.
const Kind &kindOf(const std::string &path);

bool isMarian(const std::string &path);
bool isCtranslate2(const std::string &path);
bool isHuggingFace(const std::string &path);
ForeignFiles readMarianFiles(const ForeignOptions &options);
ForeignFiles readCtranslate2(const ForeignOptions &options);
ForeignFiles readHuggingFace(const ForeignOptions &options);

} // namespace xfc
