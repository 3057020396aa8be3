// The arguments every verb that reads a model.json shares: the file, --set, and vocabularies.
#pragma once

#include "Import/Description.h"
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace xfc {

struct ModelArguments {
  std::string file, vocabulary, sourceVocabulary, targetVocabulary;
  std::vector<std::string> settings; // KEY=VALUE

  void addTo(CLI::App &command);
  // Reads and validates the model. --vocab sets source_vocab, target_vocab and the token ids; --set comes after.
  Description parse() const;
};

} // namespace xfc
