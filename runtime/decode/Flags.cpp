// Flags that several verbs share.
#include "decode/Flags.h"
#include "support/CommandLine.h"

namespace xfc {

void addThreads(CLI::App &command, int &threads) {
  command.add_option("--threads", threads, "threads; 0: one for each processor")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

void addQuiet(CLI::App &command, bool &quiet) { command.add_flag("--quiet", quiet, "no progress"); }

void addVocabularies(CLI::App &command, std::string &source, std::string &target) {
  command.add_option("--vocab", source, "SentencePiece model; of both languages unless --target-vocab is given");
  command.add_option("--target-vocab", target, "SentencePiece model of the target language");
}

Format formatNamed(std::string_view name) {
  return name == "ids" ? Format::Ids : name == "pieces" ? Format::Pieces : Format::Text;
}

void addFormat(CLI::App &command, Format &format) {
  command
      .add_option_function<std::string>(
          "--format", [&format](const std::string &name) { format = formatNamed(name); },
          "what lines hold: text, pieces, or ids")
      ->check(CLI::IsMember({"text", "pieces", "ids"}))
      ->default_str("text");
}

CLI::Option *addBatchTokens(CLI::App &command, int64_t &tokens, const std::string &ofWhat) {
  return command.add_option("--batch-tokens", tokens, "most source tokens, and most " + ofWhat)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void addBeam(CLI::App &command, int &beam) {
  command.add_option("--beam", beam, "live hypotheses of a sentence; 1: greedy")
      ->check(CLI::Range(1, mostHypotheses))
      ->capture_default_str();
}

void addSearch(CLI::App &command, SearchOptions &search) {
  addBeam(command, search.beam);
  command.add_option("--length-penalty", search.lengthPenalty, "A of score = log-probability / ((5+n)/6)^A")
      ->check(FiniteNumber)
      ->capture_default_str();
  addBatchTokens(command, search.batchTokens, "live hypotheses, at a time");
}

} // namespace xfc
