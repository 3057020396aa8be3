// Flags that several verbs share: the name, values and help text of each are defined once.
#pragma once

#include "corpora/PairReader.h"
#include "decode/Search.h"
#include "plan/GenerationSettings.h"
#include "support/Options.h"
#include "vocabularies/Vocabulary.h"
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace xfc {

// --threads; 0: one for each processor
void addThreads(Command command, int &threads);
// --workers (decode/Workers.h)
CommandOption addWorkers(Command command, int &workers);
// --quiet
void addQuiet(Command command, bool &quiet);
// --trace
void addTrace(Command command, std::string &file);
// --vocab and --target-vocab
void addVocabularies(Command command, std::string &source, std::string &target);
// --source, --target and --tsv; their prefixes, weights and alignments; --filter-length and --filter-ratio
void addPairs(Command command, PairFiles &files, PairFilter &filter);
// --document-context and --document-separator; `meaning` says what the N sentences before one are for. Returns the
// latter, which has no effect without the former: checkContext() says so, and throws Error.
CommandOption addContext(Command command, ContextOptions &context, const std::string &meaning);
void checkContext(const ContextOptions &context, const CommandOption &separator);
// Throws UsageError unless --source and --target, or --tsv alone, are given. `inPlace`: other flags to name in the
// message.
void requirePairs(const PairFiles &files, const std::string &inPlace = "");
// Throws UsageError if --guided-alignment-type is given without alignments, or for lines that have no words.
void checkAlignmentType(Command command, const PairFiles &files, Format format);
// Throws UsageError if --document-context is given with what belongs to the tokens of a line, or else
// --document-separator alone.
void checkPairContext(Command command, const PairFiles &files);
// --format
void addFormat(Command command, Format &format);
// The format of this name; Format::Text for any other.
Format formatNamed(std::string_view name);
// --batch-tokens; `ofWhat` ends "maximum number of source tokens, and of ..."
CommandOption addBatchTokens(Command command, int64_t &tokens, const std::string &ofWhat);
// --beam
CommandOption addBeam(Command command, int64_t &beam);
// --compute-type
void addComputeType(Command command, std::string &type);

// The search settings of a command line. Defaults shown in help are those of the executable.
struct SearchFlags {
  SearchFlags();
  SearchOptions options;
  // --beam, --length-penalty and other flags for `generation` of model.json, --batch-tokens and --batch-sentences
  void addTo(Command command);
  // --n-best; --sample, --mbr, --temperature and other flags of sampling
  void addSamplingTo(Command command);
  // --rescore-weight
  void addRescoringTo(Command command);
  // --token-scores, --alignments, --replace-unknowns, --protect
  void addDetailsTo(Command command);
  // --document-context, --document-separator
  void addContextTo(Command command);
  // All of these, and --compute-type.
  void addAllTo(Command command);
  // Takes what the command line does not set from the settings of the model that was loaded, and converts tokens that
  // are given as pieces. Throws Error if one is not in the vocabulary. To be called once, while the command exists.
  void resolve(const Generation &own, const Vocabulary &target);

private:
  CommandOption add(Command command, const GenerationSetting &setting, const std::string &meaning);
  void addSettings(Command command, GenerationSetting::Subject subject);

  std::vector<std::pair<const GenerationSetting *, CommandOption>> given;
  std::optional<CommandOption> samples, leastAlternative, separator;
  std::string alignments;                                // what --alignments says; empty: nothing
  std::map<std::string, std::vector<std::string>> lists; // by option: tokens, separated by blanks
};

} // namespace xfc
