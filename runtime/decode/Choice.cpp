// Chooses translations once a search has ended.
#include "decode/Choice.h"
#include "decode/BeamSearch.h"
#include "decode/MinimumRisk.h"
#include <algorithm>
#include <cmath>

namespace xfc {

double coverage(const CrossAttention &attention, size_t targets) {
  const auto rows = std::min<int64_t>(std::max<int64_t>(static_cast<int64_t>(targets), 1), attention.targets);
  double sum = 0;
  for (int64_t source = 0; source < attention.sources; ++source) {
    double received = 0;
    for (int64_t target = 0; target < rows; ++target)
      received += attention.at(target, source);
    if (received > 0)
      sum += std::log(std::min(received, 1.0));
  }
  return sum;
}

std::vector<Hypothesis> chosen(const TranslationModel &model, std::span<const int32_t> source,
                               std::vector<Hypothesis> found, const SearchOptions &options, Format format) {
  if (options.utility)
    return ofLeastRisk(model, std::move(found), options, format);
  const double factor = options.generation.coveragePenalty;
  if (factor == 0)
    return found;
  for (Hypothesis &hypothesis : found) {
    model.beforePass();
    hypothesis.score += factor * coverage(crossAttention(model.models(), source, hypothesis.ids, hypothesis.byEos),
                                          hypothesis.ids.size());
  }
  keepBest(found, options);
  return found;
}

} // namespace xfc
