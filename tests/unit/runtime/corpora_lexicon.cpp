// Compares lexicons with the formulas, written down once more.
#include "corpora/Lexicon.h"
#include <gtest/gtest.h>
#include <map>

using namespace xfc;

namespace {

const std::vector<LexiconPair> pairs = {{{4, 5}, {7, 8, 7}, {{0, 0}, {1, 1}, {0, 2}}},
                                        {{5}, {8}, {{0, 0}}},
                                        {{4, 4, 6}, {7, 9}, {{0, 0}, {2, 1}, {1, 1}}},
                                        {{6}, {}, {}}};

// p(target | source), where -1 is no token.
std::map<std::pair<int32_t, int32_t>, double> modelOne(int iterations) {
  std::map<std::pair<int32_t, int32_t>, double> shares;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    std::map<std::pair<int32_t, int32_t>, double> counts;
    std::map<int32_t, double> sums;
    for (const LexiconPair &pair : pairs) {
      std::vector<int32_t> sources = pair.source;
      sources.push_back(-1);
      for (const int32_t target : pair.target) {
        double sum = 0;
        const auto share = [&](int32_t source) { return iteration == 0 ? 0.01 : shares[{source, target}]; };
        for (const int32_t source : sources)
          sum += share(source);
        for (const int32_t source : sources) {
          counts[{source, target}] += share(source) / sum;
          sums[source] += share(source) / sum;
        }
      }
    }
    for (auto &[both, count] : counts)
      shares[both] = count / sums[both.first];
  }
  return shares;
}

} // namespace

TEST(Lexicon, IsThatOfModelOne) {
  for (const int iterations : {1, 2, 5}) {
    const Lexicon lexicon = lexiconOfPairs(pairs, 10, iterations);
    ASSERT_EQ(lexicon.size(), 10u);
    size_t found = 0;
    for (const auto &[both, share] : modelOne(iterations))
      if (both.first >= 0) {
        const auto &targets = lexicon[static_cast<size_t>(both.first)];
        const auto at = std::ranges::find(targets, both.second, &std::pair<int32_t, float>::first);
        ASSERT_NE(at, targets.end()) << both.first << " " << both.second;
        EXPECT_NEAR(at->second, share, 1e-6) << iterations << ": " << both.first << " " << both.second;
        ++found;
      }
    size_t all = 0;
    for (const auto &targets : lexicon)
      all += targets.size();
    EXPECT_EQ(found, all);
  }
  const Lexicon learned = lexiconOfPairs(pairs, 10, 20); // token 5 is 8, and so 4 is 7
  EXPECT_GT(learned[5].back().second, 0.9F);
  EXPECT_EQ(learned[5].back().first, 8);
}

TEST(Lexicon, CountsLinks) {
  const Lexicon lexicon = lexiconOfLinks(pairs, 10);
  const std::vector<std::pair<int32_t, float>> of4 = {{7, 0.75F}, {9, 0.25F}}, of5 = {{8, 1.0F}}, of6 = {{9, 1.0F}};
  EXPECT_EQ(lexicon[4], of4);
  EXPECT_EQ(lexicon[5], of5);
  EXPECT_EQ(lexicon[6], of6);
  EXPECT_TRUE(lexicon[3].empty());
}

// Many targets of one token, so that those that are equal become one while they are gathered.
TEST(Lexicon, GathersManyTargets) {
  std::vector<LexiconPair> many;
  for (int32_t i = 0; i < 1000; ++i)
    many.push_back({{1}, {i % 300 + 2}, {{0, 0}}});
  const Lexicon lexicon = lexiconOfLinks(many, 2);
  ASSERT_EQ(lexicon[1].size(), 300u);
  EXPECT_FLOAT_EQ(lexicon[1][0].second, 0.004F); // of the numbers below 1,000, four are 0 modulo 300, and three 299
  EXPECT_FLOAT_EQ(lexicon[1][299].second, 0.003F);
}
