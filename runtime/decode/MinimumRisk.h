// Minimum Bayes risk decoding (Kumar and Byrne 2004; with samples, Eikema and Aziz 2020): of samples y_1 .. y_N of the
// model's distribution, the translation is the one of the highest expected utility,
//
//   1/N sum_j u(y_i, y_j)
//
// where u tells how good a translation y_i is if y_j is right: chrF or BLEU of sentences (metrics/Metrics.h).
#pragma once

#include "decode/ModelOptions.h"
#include "decode/Search.h"
#include <vector>

namespace xfc {

// Of the samples of a line, in the order of their numbers: the options.nBest of the highest expected utility, which
// becomes their score, the highest first; of equal ones, the first sample comes first. Lines are compared as they are
// written in this format. The options have a utility.
std::vector<Hypothesis> ofLeastRisk(const TranslationModel &model, std::vector<Hypothesis> samples,
                                    const SearchOptions &options, Format format);

} // namespace xfc
