// Text that a run is not trained on, and what validations measure on it.
#include "train/run/HeldOut.h"
#include "metrics/Metrics.h"
#include "plan/Programs.h"
#include "support/Checksum.h"
#include "support/Format.h"
#include "support/Inputs.h"
#include "support/LineReader.h"
#include "train/Prepare.h"
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace xfc {

using Json = nlohmann::ordered_json;

static constexpr size_t sampleCount = 5; // translations shown per validation

static std::vector<std::string> linesOf(const std::vector<std::string> &files) {
  std::vector<std::string> lines;
  for (const std::string &file : files)
    for (std::string &line : readLines(file))
      lines.push_back(std::move(line));
  return lines;
}

static uint32_t sumOf(const std::vector<std::string> &lines) {
  uint32_t sum = 0;
  for (const std::string &line : lines)
    sum = crc32c("\n", crc32c(line, sum));
  return sum;
}

double Validated::valueBy(const std::string &metric) const {
  if (!scores || metric == "loss")
    return loss.nll;
  return metric == "bleu" ? -scores->bleu : metric == "chrf" ? -scores->chrf : scores->ter;
}

std::string Validated::lineAt(int64_t step) const {
  std::string line =
      format("step %lld  validation: loss %.4f  ppl %.3f", static_cast<long long>(step), loss.loss, std::exp(loss.nll));
  if (scores)
    line += format("  BLEU %.2f  chrF %.2f  TER %.2f", scores->bleu, scores->chrf, scores->ter);
  return line;
}

HeldOut::HeldOut(const TrainOptions &options, const TrainedModel &model, const Ranks &ranks)
    : format(options.data.format) {
  const PairFiles &text = options.validation.text;
  if (!(text.sources.empty() && text.tables.empty())) {
    pairs.emplace(text, model.vocabularies(), model.module(), format, PairFilter(), onThreadsOf(model.engine()));
    lines = linesOf(text.sources);
    references = linesOf(text.targets);
    for (const std::string &line : linesOf(text.tables)) { // each has a tab: reading the corpus has checked that
      lines.push_back(line.substr(0, line.find('\t')));
      references.push_back(line.substr(line.find('\t') + 1));
    }
    if (model.engine().has(programs::encode) && model.engine().has(programs::decodeStep)) {
      dealt.emplace(dealtOut(
          EncodedLines(model.translation, lines, format, text.tables.empty() ? text.sources[0] : text.tables[0]),
          ranks));
      greedy.generation = model.module().settings.generation;
      greedy.generation.beam = greedy.generation.beamGroups = 1;
    }
  }
}

void HeldOut::checkFor(const std::string &metric) const {
  if (metric != "loss" && !dealt)
    throw Error("--best " + metric +
                " compares translations; it needs --valid-source and --valid-target, and a model that can decode");
}

uint64_t HeldOut::hash() const {
  if (!pairs)
    return 0;
  CorpusTotals hash = pairs->totals();
  hash.mix(sumOfSources());
  hash.mix(sumOfReferences());
  return hash.hash;
}

uint32_t HeldOut::sumOfSources() const { return sumOf(lines); }

uint32_t HeldOut::sumOfReferences() const { return sumOf(references); }

Validated HeldOut::measure(const TrainedModel &model, int64_t batchTokens, double smoothing, Ranks &ranks) const {
  Validated found{.loss = corpusLoss(model.engine(), *pairs, batchTokens, smoothing, ranks), .scores = {}};
  if (!dealt)
    return found;
  std::vector<std::string> translations = translateTogether(model.translation, *dealt, format, greedy, ranks);
  const MetricSums sums = metricsOf(translations, references);
  found.scores = {.bleu = sums.bleu().value,
                  .chrf = sums.chrf().value,
                  .ter = sums.ter().value,
                  .translations = std::move(translations)};
  return found;
}

Json HeldOut::recordOf(const Validated &found, const Progress &progress, bool better) const {
  const CorpusLoss &loss = found.loss;
  Json record = {{"step", progress.step}, {"epoch", progress.position.epoch + 1}, {"valid_loss", loss.loss},
                 {"valid_nll", loss.nll}, {"valid_ppl", std::exp(loss.nll)},      {"best", better}};
  if (!found.scores)
    return record;
  record["bleu"] = found.scores->bleu;
  record["chrf"] = found.scores->chrf;
  record["ter"] = found.scores->ter;
  Json samples = Json::array();
  const size_t shown = std::min(sampleCount, lines.size());
  for (size_t i = 0; i < shown; ++i) {
    const size_t at = i * lines.size() / shown;
    samples.push_back(
        {{"source", lines[at]}, {"hypothesis", found.scores->translations[at]}, {"reference", references[at]}});
  }
  record["samples"] = samples;
  return record;
}

} // namespace xfc
