// `evaluate`: BLEU, chrF and TER of a model's translations, or of a file of them.
#include "app/Commands.h"
#include "corpora/LinePairs.h"
#include "decode/Defaults.h"
#include "decode/Flags.h"
#include "decode/ModelOptions.h"
#include "metrics/Metrics.h"
#include "support/Confinement.h"
#include "support/Progress.h"
#include "train/Validation.h"
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace xfc {
namespace {

struct EvaluateOptions {
  ModelOptions model;
  SearchFlags search;
  std::string source, target, hypothesis;
  bool json = false;
};

MetricSums ofFile(const EvaluateOptions &options) {
  LinePairs lines(options.hypothesis, options.target, "expected one hypothesis for each reference");
  MetricSums sums;
  for (std::string hypothesis, reference; lines.next(hypothesis, reference);)
    sums.add(hypothesis, reference);
  return sums;
}

MetricSums ofModel(EvaluateOptions &options) {
  LinePairs lines(options.source, options.target, "line i of one must be the translation of line i of the other");
  TranslationModel model = loadModel(options.model);
  options.search.resolve(generationOf(model.engine->module(), options.model.model), *model.target);
  ProgressBar bar(options.model.quiet);
  MetricSums sums;
  size_t done = 0;
  for (bool more = true; more;) {
    EncodedLines sources;
    std::vector<std::string> references;
    std::string source, reference;
    for (size_t bytes = 0;
         references.size() < windowLines && bytes < windowBytes && (more = lines.next(source, reference));
         bytes += source.size() + reference.size()) {
      sources.add(model, source, options.model.format, lines.first.where());
      references.push_back(reference);
    }
    const std::vector<std::string> translations =
        translateLines(model, sources, options.model.format, options.search.options, [&](size_t) {
          ++done;
          bar.update(more ? lines.first.fraction()
                          : static_cast<double>(done) / static_cast<double>(lines.first.number()),
                     std::to_string(done) + " sentences");
        });
    for (size_t i = 0; i < translations.size(); ++i)
      sums.add(translations[i], references[i]);
  }
  return sums;
}

void run(EvaluateOptions &options) {
  if (options.hypothesis.empty() && options.source.empty())
    throw RequiredError("--source (with --model) or --hypothesis");
  confineOn(options.model.device.device, {});
  const MetricSums sums = options.hypothesis.empty() ? ofModel(options) : ofFile(options);
  if (sums.lines() == 0)
    throw Error(options.target + ": the file is empty; expected one sentence per line");
  const Score bleu = sums.bleu(), chrf = sums.chrf(), ter = sums.ter();
  if (options.json) {
    nlohmann::ordered_json object = {{"sentences", sums.lines()},        {"bleu", bleu.value},
                                     {"bleu_signature", bleu.signature}, {"chrf", chrf.value},
                                     {"chrf_signature", chrf.signature}, {"ter", ter.value},
                                     {"ter_signature", ter.signature}};
    std::printf("%s\n", object.dump().c_str());
  } else {
    for (const auto &[name, score] : {std::pair{"BLEU ", bleu}, {"chrF2", chrf}, {"TER  ", ter}})
      std::printf("%s %6.2f  %s\n", name, score.value, score.signature.c_str());
  }
}

} // namespace

void addEvaluate(Command app) {
  Command command =
      app.addVerb("evaluate", "BLEU, chrF and TER, as sacreBLEU computes them, of a model or of a file of translations",
                  "translator evaluate --model run --source test.en --target test.fr");
  auto options = std::make_shared<EvaluateOptions>();
  options->model.addEnsembleTo(command);
  addWorkers(command, options->model.workers);
  options->model.addVocabularyTo(command);
  command.setSubject("Input and output");
  CommandOption source = command.addOption("--source", options->source, "text to translate, one sentence per line");
  command.addOption("--target", options->target, "its reference translations").required();
  command.addOption("--hypothesis", options->hypothesis, "translations to score, in place of a model and --source")
      .excludes(source);
  options->search.addTo(command);
  command.addFlag("--json", options->json, "one JSON object");
  command.setWork([options] { run(*options); });
}

} // namespace xfc
