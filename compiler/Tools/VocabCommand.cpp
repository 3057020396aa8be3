// `xfc vocab`: turns text into a SentencePiece model with the token ids that our models use.
#include "VocabCommand.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/LineReader.h"
#include "tokenizers/ReversedTokenizer.h"
#include <cstdio>
#include <memory>
#include <sentencepiece_trainer.h>

namespace xfc {
namespace {

struct VocabOptions {
  std::vector<std::string> inputs;
  std::string output, reversed, type = "bpe", normalization = "nmt_nfkc";
  int size = 8000;
  double coverage = 0.9995;
};

// Hands lines to SentencePiece's trainer.
class Lines : public sentencepiece::SentenceIterator {
public:
  explicit Lines(const std::vector<std::string> &lines) : lines(lines) {}
  bool done() const override { return at == lines.size(); }
  void Next() override { ++at; }
  const std::string &value() const override { return lines[at]; }
  sentencepiece::util::Status status() const override { return {}; }

private:
  const std::vector<std::string> &lines;
  size_t at = 0;
};

// The integer after `marker` in SentencePiece's message, or -1.
int64_t numberAfter(const std::string &message, const std::string &marker) {
  size_t at = message.find(marker);
  return at == std::string::npos ? -1 : std::strtoll(message.c_str() + at + marker.size(), nullptr, 10);
}

constexpr size_t longestSentence = 1000000; // in bytes; SentencePiece leaves out longer ones

void trainVocabulary(const VocabOptions &options) {
  checkWritable(options.output);
  std::vector<std::string> lines;
  for (const std::string &file : options.inputs) {
    LineReader reader(file, longestSentence + 1); // a line that is cut there is left out as well
    for (std::string line; reader.next(line);)
      lines.push_back(line);
  }
  if (std::all_of(lines.begin(), lines.end(), [](const std::string &line) { return line.empty(); }))
    throw Error(options.inputs.front() + (options.inputs.size() > 1 ? " and the other inputs hold" : ": holds") +
                " no text; expected one sentence per line");

  // The trainer splits sums by thread, so a fixed number of threads gives the same result on every machine.
  const std::unordered_map<std::string, std::string> arguments = {
      {"model_type", options.type},
      {"vocab_size", std::to_string(options.size)},
      {"pad_id", "0"},
      {"unk_id", "1"},
      {"bos_id", "2"},
      {"eos_id", "3"},
      {"character_coverage", std::to_string(options.coverage)},
      {"normalization_rule_name", options.normalization},
      {"num_threads", "8"},
      {"max_sentence_length", std::to_string(longestSentence)},
      {"minloglevel", "2"}};
  Lines iterator(lines);
  std::string model;
  auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &iterator, &model);
  if (!status.ok()) {
    std::string message = status.ToString(), size = "--size " + std::to_string(options.size);
    if (int64_t most = numberAfter(message, "set it to a value <= "); most > 0)
      throw Error(size + ": this text gives at most " + std::to_string(most) + " pieces; use --size " +
                  std::to_string(most) + " or more text");
    if (int64_t least = numberAfter(message, std::to_string(options.size) + " vs "); least > 0)
      throw Error(size + ": the characters of this text alone take " + std::to_string(least) + " pieces; use --size " +
                  std::to_string(least) + " or more, or a smaller --character-coverage");
    throw Error("SentencePiece cannot make this vocabulary: " + message);
  }
  writeFile(options.output, model);
  std::fprintf(stderr, "xfc: wrote %s: %d pieces (%s) from %zu lines\n", options.output.c_str(), options.size,
               options.type.c_str(), lines.size());
}

// Writes the vocabulary of a model that writes lines from their end.
void reverseVocabulary(const VocabOptions &options) {
  const std::string contents = readFile(options.reversed, mostLargeBytes);
  makeTokenizer(contents, options.reversed); // throws Error if it is none
  writeFile(options.output, reversedVocabulary(contents));
  std::fprintf(stderr, "xfc: wrote %s: %s in the opposite order\n", options.output.c_str(), options.reversed.c_str());
}

} // namespace

void addVocab(Command app) {
  Command command = app.addVerb("vocab", "make a SentencePiece vocabulary from text: pad 0, unk 1, bos 2, eos 3",
                                "xfc vocab --input my.en my.fr --size 8000 -o spm.model");
  auto options = std::make_shared<VocabOptions>();
  const CommandOption input = command.addOption(
      "--input", options->inputs, "text files, one sentence per line; of both languages for a joint vocabulary");
  command.addOption("--size", options->size, "number of pieces").within(5, 1000000).showDefault();
  command.addOption("-o,--output", options->output, "the file to write").required();
  command.addOption("--type", options->type, "bpe or unigram").oneOf({"bpe", "unigram"}).showDefault();
  command
      .addOption("--character-coverage", options->coverage,
                 "share of the characters that get pieces; the rest are unknown")
      .within(0.98, 1.0)
      .showDefault();
  command
      .addOption("--normalization", options->normalization,
                 "SentencePiece's rule: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf, identity")
      .oneOf({"nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"})
      .showDefault();
  command
      .addOption("--right-left", options->reversed,
                 "write this vocabulary for a model that writes lines from their end, instead of making one from text")
      .valueName("FILE")
      .excludes(input);
  command.setWork([options] {
    if (options->reversed.empty() && options->inputs.empty())
      throw RequiredError("--input (or --right-left)");
    if (options->reversed.empty())
      trainVocabulary(*options);
    else
      reverseVocabulary(*options);
  });
}

} // namespace xfc
