// Flags that several verbs share: what each is called, takes and says about itself is declared here once.
#pragma once

#include "decode/Search.h"
#include "text/PairReader.h"
#include "text/Vocabulary.h"
#include <CLI/CLI.hpp>
#include <string>

namespace xfc {

// --threads; 0: one for each processor
void addThreads(CLI::App &command, int &threads);
// --quiet
void addQuiet(CLI::App &command, bool &quiet);
// --trace
void addTrace(CLI::App &command, std::string &file);
// --vocab and --target-vocab
void addVocabularies(CLI::App &command, std::string &source, std::string &target);
// --source, --target and --tsv; --filter-length and --filter-ratio
void addPairs(CLI::App &command, PairFiles &files, PairFilter &filter);
// Throws CLI::Error where it is neither both of the former nor the latter alone. `inPlace`: what else may be given.
void requirePairs(const PairFiles &files, const std::string &inPlace = "");
// --format
void addFormat(CLI::App &command, Format &format);
// The format of this name; Format::Text where there is none.
Format formatNamed(std::string_view name);
// --batch-tokens; `ofWhat` ends the sentence "most source tokens, and most ..."
CLI::Option *addBatchTokens(CLI::App &command, int64_t &tokens, const std::string &ofWhat);
// --beam
void addBeam(CLI::App &command, int32_t &beam);

// How sentences are searched for, as a command line says it. What it does not say is as the model says it.
struct SearchFlags {
  SearchFlags();
  SearchOptions options;
  // --beam, --length-penalty and what else `generation` of model.json holds, and --batch-tokens
  void addTo(CLI::App &command);
  // --n-best; --sample, --temperature and what else sampling takes
  void addSamplingTo(CLI::App &command);
  // Reads tokens that are given by their pieces. Throws Error where one is none of the vocabulary's.
  void resolve(const Vocabulary &target);

private:
  std::string forcedFirst, suppress; // tokens, separated by blanks
};

} // namespace xfc
