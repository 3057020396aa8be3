// `score`: log-probabilities of given target lines, and their perplexity.
#include "app/Commands.h"
#include "corpora/LinePairs.h"
#include "decode/Flags.h"
#include "decode/ModelOptions.h"
#include "decode/Score.h"
#include "decode/Translations.h"
#include "support/CommandLine.h"
#include "support/Confinement.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

namespace xfc {

namespace {

struct ScoreOptions {
  ModelOptions model;
  std::string source, target;
  int64_t batchTokens = scoreBatchTokens;
  bool json = false, tokenScores = false;
};

void run(const ScoreOptions &options) {
  confineOn(options.model.device.device, {});
  TranslationModel model = loadModel(options.model);
  LinePairs lines(options.source, options.target, "line i of one belongs to line i of the other");
  double sum = 0;
  int64_t tokens = 0;
  std::vector<double> all; // for --json
  std::vector<std::vector<std::string>> allTokens;
  std::vector<std::vector<double>> allTokenScores;
  for (bool more = true; more;) {
    std::vector<std::vector<int32_t>> sources, targets; // of the lines that are not empty
    std::vector<double> certain;                        // the log-probabilities of those that are, and NAN
    std::string sourceLine, targetLine;
    const int64_t before = lines.first.number();
    for (size_t bytes = 0;
         certain.size() < windowLines && bytes < windowBytes && (more = lines.next(sourceLine, targetLine));
         bytes += sourceLine.size() + targetLine.size()) {
      std::vector<int32_t> source = encodeSource(model, sourceLine, options.model.format, lines.first.where()),
                           target = encodeTarget(model, targetLine, options.model.format, lines.second.where());
      // The model is not asked for an empty line, whose translation is empty in any case.
      certain.push_back(source.empty() ? target.empty() ? 0 : -HUGE_VAL : NAN);
      if (source.empty() && !target.empty())
        printWarning(lines.first.where() + ": the line is empty, and so is its translation; any other has the "
                                           "log-probability -inf, which is left out of the sum");
      if (source.empty())
        continue;
      sources.push_back(std::move(source));
      targets.push_back(std::move(target));
    }
    const std::vector<std::vector<double>> found = tokenScores(model.models(), sources, targets, options.batchTokens);
    for (size_t i = 0, next = 0; i < certain.size(); ++i) {
      const bool asked = std::isnan(certain[i]);
      const std::vector<double> ofTokens = asked ? found[next] : std::vector<double>();
      const double logProbability = asked ? std::accumulate(ofTokens.begin(), ofTokens.end(), 0.0) : certain[i];
      if (asked && !std::isfinite(logProbability))
        throw Error(lines.first.name() + ":" + std::to_string(before + 1 + static_cast<int64_t>(i)) +
                    ": the model gives no finite log-probability; its weights are broken or too large");
      if (options.json && options.tokenScores) {
        allTokens.push_back(asked ? piecesOf(*model.target, targets[next]) : std::vector<std::string>());
        allTokenScores.push_back(ofTokens);
      }
      if (asked) {
        sum += logProbability;
        tokens += static_cast<int64_t>(targets[next++].size()) + 1;
      }
      if (options.json)
        all.push_back(logProbability);
      else
        std::printf("%.9g%s\n", logProbability, options.tokenScores ? ("\t" + numberList(ofTokens, ' ')).c_str() : "");
    }
    flushOutput();
  }
  const int64_t sentences = lines.first.number();
  if (sentences == 0)
    throw Error(options.source + ": the file is empty");
  const double perplexity = std::exp(-sum / static_cast<double>(std::max<int64_t>(tokens, 1)));
  if (options.json) {
    nlohmann::ordered_json object = {{"sentences", sentences},
                                     {"tokens", tokens},
                                     {"log_probability", sum},
                                     {"perplexity", perplexity},
                                     {"log_probabilities", all}};
    if (options.tokenScores) {
      object["pieces"] = allTokens;
      object["token_log_probabilities"] = allTokenScores;
    }
    std::printf("%s\n", object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  } else {
    std::fprintf(stderr, "%lld sentences, %lld tokens, log-probability %.9g, perplexity %.9g\n",
                 static_cast<long long>(sentences), static_cast<long long>(tokens), sum, perplexity);
  }
}

} // namespace

void addScore(Command app) {
  Command command = app.addVerb("score", "log-probability of each target line (including eos), and perplexity",
                                "translator score --model run --source my.en --target my.fr");
  auto options = std::make_shared<ScoreOptions>();
  options->model.addEnsembleTo(command);
  options->model.addVocabularyTo(command);
  command.setSubject("Input and output");
  command.addOption("--source", options->source, "source lines").required();
  command.addOption("--target", options->target, "target lines").required();
  addBatchTokens(command, options->batchTokens, "target tokens, at a time");
  command.addFlag("--token-scores", options->tokenScores,
                  "tell the log-probability of each token, and of eos; in text after a tab");
  command.addFlag("--json", options->json, "one JSON object with everything");
  command.setWork([options] { run(*options); });
}

} // namespace xfc
