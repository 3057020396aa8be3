// `score`: log-probabilities of given target lines, and their perplexity.
#include "app/Commands.h"
#include "decode/ModelOptions.h"
#include "decode/Score.h"
#include "support/Files.h"
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace xfc {

namespace {

struct ScoreOptions {
  ModelOptions model;
  std::string source, target;
  int64_t batchTokens = 4096;
  bool json = false;
};

void run(const ScoreOptions &options) {
  TranslationModel model = loadModel(options.model);
  std::vector<std::string> sourceLines = readLines(options.source), targetLines = readLines(options.target);
  if (sourceLines.size() != targetLines.size())
    throw Error(options.source + " has " + std::to_string(sourceLines.size()) + " lines, " + options.target + " " +
                std::to_string(targetLines.size()) + "; line i of one belongs to line i of the other");
  if (sourceLines.empty())
    throw Error(options.source + ": the file is empty");
  std::vector<std::vector<int32_t>> sources, targets;
  for (size_t i = 0; i < sourceLines.size(); ++i) {
    std::string line = ":" + std::to_string(i + 1);
    sources.push_back(encodeSource(model, sourceLines[i], options.model.format, options.source + line));
    if (sources.back().empty())
      throw Error(options.source + line + ": the line is empty; there is nothing to translate from");
    targets.push_back(encodeTarget(model, targetLines[i], options.model.format, options.target + line));
  }

  std::vector<double> logProbabilities = score(*model.engine, sources, targets, options.batchTokens);
  double sum = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    sum += logProbabilities[i];
    tokens += static_cast<int64_t>(targets[i].size()) + 1;
  }
  double perplexity = std::exp(-sum / static_cast<double>(tokens));
  if (options.json) {
    nlohmann::ordered_json object = {{"sentences", targets.size()},
                                     {"tokens", tokens},
                                     {"log_probability", sum},
                                     {"perplexity", perplexity},
                                     {"log_probabilities", logProbabilities}};
    std::printf("%s\n", object.dump().c_str());
  } else {
    for (double logProbability : logProbabilities)
      std::printf("%.9g\n", logProbability);
    std::fprintf(stderr, "%zu sentences, %lld tokens, log-probability %.9g, perplexity %.9g\n", targets.size(),
                 static_cast<long long>(tokens), sum, perplexity);
  }
}

} // namespace

void addScore(CLI::App &app) {
  CLI::App *command = app.add_subcommand("score", "log-probability of each target line (eos counted), and perplexity");
  auto options = std::make_shared<ScoreOptions>();
  options->model.addTo(*command);
  options->model.addVocabularyTo(*command);
  command->add_option("--source", options->source, "source lines")->required();
  command->add_option("--target", options->target, "target lines")->required();
  command->add_option("--batch-tokens", options->batchTokens, "most source tokens, and most target tokens, at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object with everything");
  command->callback([options] { run(*options); });
}

} // namespace xfc
