// Minimum Bayes risk decoding.
#include "decode/MinimumRisk.h"
#include <algorithm>

namespace xfc {

std::vector<Hypothesis> ofLeastRisk(const TranslationModel &model, std::vector<Hypothesis> samples,
                                    const SearchOptions &options, Format format) {
  std::vector<std::string> lines;
  lines.reserve(samples.size());
  for (const Hypothesis &sample : samples)
    lines.push_back(decodeTarget(model, sample.ids, options, format));
  const std::vector<double> utilities = expectedUtilities(*options.utility, lines);
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i].score = utilities[i];
  std::ranges::stable_sort(samples, std::ranges::greater(), &Hypothesis::score);
  if (samples.size() > static_cast<size_t>(options.nBest))
    samples.resize(static_cast<size_t>(options.nBest));
  return samples;
}

} // namespace xfc
