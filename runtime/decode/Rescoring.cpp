// Rescoring what one model has found by another one.
#include "decode/Rescoring.h"
#include "decode/BeamSearch.h"
#include "decode/Score.h"
#include <algorithm>
#include <numeric>

namespace xfc {

SearchOptions searchedFor(const TranslationModel &model, SearchOptions options) {
  if (model.rescorer && !options.draws())
    options.nBest = std::max(options.nBest, static_cast<int>(options.generation.beam));
  return options;
}

void rescore(const TranslationModel &model, std::span<const std::vector<int32_t>> sources, const SearchOptions &options,
             Format format, std::span<std::vector<Hypothesis>> found) {
  if (!model.rescorer)
    return;
  const double weight = options.rescoreWeight.value_or(1);
  const Generation &generation = options.generation;
  const Frame frame = model.source->sourceFrame(model.engine->module(), format);
  // Without what stands before and after them, these are in the opposite order.
  const auto reverse = [](std::vector<int32_t> &ids, size_t before, size_t after) {
    if (ids.size() > before + after)
      std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end() - static_cast<std::ptrdiff_t>(after));
  };
  std::vector<std::vector<int32_t>> itsSources, targets; // of all hypotheses
  for (size_t sentence = 0; sentence < found.size(); ++sentence)
    for (const Hypothesis &hypothesis : found[sentence]) {
      std::vector<int32_t> &source = itsSources.emplace_back(sources[sentence]);
      std::vector<int32_t> &target = targets.emplace_back(hypothesis.ids);
      if (model.sourceFromEnd)
        reverse(source, frame.prefix.size(), frame.suffix.size());
      if (model.targetFromEnd)
        reverse(target, generation.forcedFirst.size(), 0);
    }
  const std::vector<std::vector<double>> scores =
      tokenScores(*model.rescorer, itsSources, targets, options.batchTokens, model.beforePass);
  size_t next = 0;
  for (std::vector<Hypothesis> &ofSentence : found) {
    for (Hypothesis &hypothesis : ofSentence) {
      const std::vector<double> &tokens = scores[next++];
      const size_t length = hypothesis.ids.size() + hypothesis.byEos; // a translation that was cut off has no eos
      const double sum = std::accumulate(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length), 0.0);
      hypothesis.rescored = sum;
      hypothesis.score += weight * sum / lengthPenalty(generation, static_cast<int64_t>(length));
    }
    std::ranges::stable_sort(ofSentence, std::ranges::greater(), &Hypothesis::score);
    if (ofSentence.size() > static_cast<size_t>(options.nBest))
      ofSentence.resize(static_cast<size_t>(options.nBest));
  }
}

} // namespace xfc
