// Tests which samples minimum Bayes risk keeps, and in which order.
#include "decode/Choice.h"
#include "decode/MinimumRisk.h"
#include <gtest/gtest.h>

using namespace xfc;

namespace {

TranslationModel ofIds() {
  const auto vocabulary = std::make_shared<const Vocabulary>(40);
  return {nullptr, vocabulary, vocabulary};
}

std::vector<Hypothesis> samplesOf(const std::vector<std::vector<int32_t>> &lines) {
  std::vector<Hypothesis> samples;
  for (const std::vector<int32_t> &ids : lines)
    samples.push_back({.ids = ids,
                       .logProbability = -static_cast<double>(samples.size()),
                       .sample = static_cast<int>(samples.size())});
  return samples;
}

} // namespace

TEST(MinimumRisk, OfEqualUtilitiesTheFirstSampleComesFirst) {
  // Lines of ids are compared as words. The utilities of the first two are equal, as are those of the other two.
  const std::vector<Hypothesis> samples =
      samplesOf({{11, 12, 13, 14}, {21, 22, 23, 24}, {21, 22, 23, 24}, {11, 12, 13, 14}, {31}});
  for (const int nBest : {1, 3, 5}) {
    const SearchOptions options{.nBest = nBest, .utility = Utility::Bleu, .samples = 5};
    const std::vector<Hypothesis> found = ofLeastRisk(ofIds(), samples, options, Format::Ids);
    ASSERT_EQ(found.size(), static_cast<size_t>(nBest));
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].sample, static_cast<int>(i));
      EXPECT_EQ(found[i].ids, samples[i].ids);
      EXPECT_EQ(found[i].logProbability, samples[i].logProbability);
      EXPECT_NEAR(found[i].score, i < 4 ? 40 : 20, 1e-9);
    }
  }
  // What resembles the others most comes first, wherever it is among them.
  const SearchOptions options{.utility = Utility::Chrf, .samples = 3};
  EXPECT_EQ(ofLeastRisk(ofIds(), samplesOf({{11, 12, 13}, {11, 12, 33}, {12, 33}}), options, Format::Ids)[0].sample, 1);
}

TEST(MinimumRisk, WithoutAUtilityNothingChanges) {
  const std::vector<Hypothesis> found = chosen(ofIds(), {}, samplesOf({{11}, {12}, {12}}), {.nBest = 1}, Format::Ids);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[2].sample, 2);
}
