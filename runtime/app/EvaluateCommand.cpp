// `evaluate`: BLEU and chrF of a model's translations, or of a file of them.
#include "app/Commands.h"
#include "decode/ModelOptions.h"
#include "support/CommandLine.h"
#include "support/Files.h"
#include "support/Progress.h"
#include "text/Metrics.h"
#include "train/Validation.h"
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace xfc {
namespace {

struct EvaluateOptions {
  ModelOptions model;
  SearchOptions search;
  std::string source, target, hypothesis;
  bool json = false;
};

void run(const EvaluateOptions &options) {
  std::vector<std::string> references = readLines(options.target), hypotheses;
  if (references.empty())
    throw Error(options.target + ": the file is empty; expected one sentence a line");
  if (!options.hypothesis.empty()) {
    hypotheses = readLines(options.hypothesis);
  } else {
    if (options.source.empty())
      throw CLI::RequiredError("--source (with --model) or --hypothesis");
    std::vector<std::string> sources = readLines(options.source);
    if (sources.size() != references.size())
      throw Error(options.source + " has " + std::to_string(sources.size()) + " lines, " + options.target + " " +
                  std::to_string(references.size()) + "; line i of one must be the translation of line i of the other");
    TranslationModel model = loadModel(options.model);
    ProgressBar bar(options.model.quiet);
    size_t done = 0;
    EncodedLines lines(model, sources, options.model.format, options.source);
    hypotheses = translateLines(model, lines, options.model.format, options.search, [&](size_t) {
      ++done;
      bar.update(static_cast<double>(done) / sources.size(),
                 std::to_string(done) + " of " + std::to_string(sources.size()) + " sentences");
    });
  }
  if (hypotheses.size() != references.size())
    throw Error(options.hypothesis + " has " + std::to_string(hypotheses.size()) + " lines, " + options.target + " " +
                std::to_string(references.size()) + "; expected one hypothesis for each reference");
  Score b = bleu(hypotheses, references), c = chrf(hypotheses, references);
  if (options.json) {
    nlohmann::ordered_json object = {{"sentences", references.size()},
                                     {"bleu", b.value},
                                     {"bleu_signature", b.signature},
                                     {"chrf", c.value},
                                     {"chrf_signature", c.signature}};
    std::printf("%s\n", object.dump().c_str());
  } else {
    std::printf("BLEU  %6.2f  %s\nchrF2 %6.2f  %s\n", b.value, b.signature.c_str(), c.value, c.signature.c_str());
  }
}

} // namespace

void addEvaluate(CLI::App &app) {
  CLI::App *command = app.add_subcommand(
      "evaluate", "BLEU and chrF, as sacreBLEU computes them, of a model or of a file of translations");
  auto options = std::make_shared<EvaluateOptions>();
  options->model.addTo(*command);
  options->model.addVocabularyTo(*command);
  CLI::Option *source = command->add_option("--source", options->source, "text to translate, one sentence a line");
  command->add_option("--target", options->target, "its reference translations")->required();
  command->add_option("--hypothesis", options->hypothesis, "translations to score, in place of a model and --source")
      ->excludes(source);
  command->add_option("--beam", options->search.beam, "live hypotheses of a sentence; 1: greedy")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--length-penalty", options->search.lengthPenalty, "A of score = log-probability / ((5+n)/6)^A")
      ->check(FiniteNumber)
      ->capture_default_str();
  command
      ->add_option("--batch-tokens", options->search.batchTokens,
                   "most source tokens, and most live hypotheses, of a batch")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object");
  command->callback([options] { run(*options); });
}

} // namespace xfc
