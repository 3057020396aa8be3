// The kinds of files that models come in. Each has a reader of its own, and what all of them yield is the same.
#pragma once

#include "Families.h"
#include "Foreign.h"
#include "text/FolderVocabularies.h"

namespace xfc {

struct ForeignFiles {
  std::string describedBy; // the file that says what the model is, for messages
  Weights weights;
  ForeignModel model;
  nlohmann::ordered_json generation; // of model.json
  FolderVocabularies vocabularies;
};

struct Kind {
  std::string what; // for messages
  bool (*is)(const std::string &path);
  ForeignFiles (*read)(const ForeignOptions &options);
};

// Of what lies there. Throws Error naming the kinds that are known.
const Kind &kindOf(const std::string &path);

bool isMarian(const std::string &path);
bool isCtranslate2(const std::string &path);
bool isHuggingFace(const std::string &path);
ForeignFiles readMarianFiles(const ForeignOptions &options);
ForeignFiles readCtranslate2(const ForeignOptions &options);
ForeignFiles readHuggingFace(const ForeignOptions &options);

} // namespace xfc
