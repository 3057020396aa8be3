// Tests that no size of batches, and no number of epochs, overflows what is computed from them.
#include "corpora/Batches.h"
#include <gtest/gtest.h>
#include <limits>

using namespace xfc;

namespace {

constexpr int64_t any = std::numeric_limits<int64_t>::max();

// Four pairs: three of 3 source and 2 target tokens, and one of 1 and 5.
Corpus corpus() {
  Module module;
  module.sourceVocab = module.targetVocab = 20;
  return {{{5, 6, 7}, {5, 6, 7}, {5, 6, 7}, {5}}, {{5}, {5}, {5}, {5, 6, 7, 8}}, module};
}

} // namespace

TEST(Limits, BatchesOfAnySizeHoldWhatThereIs) {
  const Corpus few = corpus();
  EXPECT_EQ(largestBatch(few, any).rows[XFC_SOURCE], 10);
  EXPECT_EQ(epochBatches(few, any, 1, 0).size(), 1u);
  // An epoch of this mixture takes three pairs of the first corpus, and one of the second.
  const Mixture mixture{{3, 1}, {3, 1}};
  const Counts most = largestBatch(few, any, mixture);
  EXPECT_EQ(most.rows[XFC_SOURCE], 4 * 3);
  EXPECT_EQ(most.sequences[XFC_SOURCE], 4);
  EXPECT_EQ(epochBatches(few, any, 1, 0, mixture).size(), 1u);
}

TEST(Limits, LateEpochsOfMixturesAreThoseOfEarlyOnes) {
  const Corpus few = corpus();
  const Mixture mixture{{3, 1}, {3, 1}};
  Batches batches(few, any, 1, mixture);
  EXPECT_TRUE(batches.seek({int64_t(1) << 31, 0, 0}));
  EXPECT_EQ(batches.next().pairs.size(), 4u);
}
