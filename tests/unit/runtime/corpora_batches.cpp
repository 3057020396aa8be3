// Tests planning the next pool of batches while one is used.
#include "corpora/Batches.h"
#include "folder.h"
#include "unigram.h"
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <thread>

using namespace xfc;
namespace fs = std::filesystem;

namespace {

class PlanAheadTest : public FolderTest {
protected:
  PlanAheadTest() {
    module.sourceVocab = module.targetVocab = 20;
    module.eos = 1;
  }

  // A text whose epochs have other segmentations.
  Corpus sampled(const Parallel &parallel) {
    std::string text;
    for (int i = 0; i < 6000; ++i)
      text += std::string(1 + i % 7, 'a') + (i % 2 ? "bab\n" : "ab ab\n");
    const PairFiles files{{written("text", text)}, {written("text", text)}, {}};
    return Corpus(std::span(&files, 1), {vocabulary, vocabulary}, module, Format::Text, {}, parallel, {{0.2, 0.2}, 9});
  }
  // A file of pairs.
  Corpus prepared(int64_t pairs) {
    ShardWriter writer(in("pairs"), {ids, ids}, module, Format::Ids);
    CorpusTotals totals;
    for (int64_t i = 0; i < pairs; ++i) {
      const std::vector<int32_t> source(1 + i % 3, 4 + static_cast<int32_t>(i % 16)),
          target = {module.start, 4 + static_cast<int32_t>(i % 13), module.eos};
      totals.add(source, target);
      writer.add(source, target);
    }
    writer.commit(totals);
    return Corpus({in("pairs")}, {ids, ids}, module);
  }

  Module module;
  Vocabulary ids = Vocabulary(20);
  Vocabulary vocabulary = unigramVocabulary();
};

std::vector<std::vector<int32_t>> sequencesOf(const PairsOfCorpus &batch) {
  std::vector<std::vector<int32_t>> sequences;
  for (const int64_t pair : batch.pairs)
    for (const std::span<const int32_t> side : {batch.corpus->source(pair), batch.corpus->labels(pair)})
      sequences.emplace_back(side.begin(), side.end());
  return sequences;
}

} // namespace

// However far the other thread gets, the batches are those of a run that plans every pool when it needs it.
TEST_F(PlanAheadTest, BatchesAreTheSame) {
  const Corpus corpus = sampled(oneByOne);
  Batches ahead(corpus, 4000, 9), plain(corpus, 4000, 9);
  while (plain.position().epoch < 12 || plain.left() > 0) {
    ahead.planAhead();
    if (plain.left() == 0) // its thread has no time to begin, or some, or enough
      std::this_thread::sleep_for(std::chrono::milliseconds(plain.position().epoch * 2));
    ASSERT_EQ(sequencesOf(ahead.next()), sequencesOf(plain.next())) << plain.position().epoch;
  }
  ahead.planAhead();
  // Going elsewhere, to what was planned before, to another epoch, and back
  for (const Batches::Position to : {Batches::Position{12, 0, 0}, Batches::Position{3, 1, 0}, {12, 1, 0}}) {
    ASSERT_TRUE(ahead.seek(to) && plain.seek(to));
    ASSERT_EQ(sequencesOf(ahead.next()), sequencesOf(plain.next())) << to.epoch;
    while (ahead.left() > 0)
      ahead.next();
    ahead.planAhead(); // at the end, the last thread is stopped
  }
}

TEST_F(PlanAheadTest, NothingIsLeftToDoForACallerThatTakesItsTime) {
  int draws = 0; // in this thread
  const Corpus corpus = sampled([&](int64_t count, const std::function<void(int64_t)> &work) {
    ++draws;
    oneByOne(count, work);
  });
  Batches batches(corpus, 4000, 9);
  int least = std::numeric_limits<int>::max();
  for (int wait = 1; wait <= 1 << 14 && least > 0; wait *= 2) { // milliseconds; less than the first few suffices
    while (batches.left() > 0) {
      batches.next();
      batches.planAhead();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    draws = 0;
    batches.next();
    least = std::min(least, draws);
  }
  EXPECT_EQ(least, 0);
}

TEST_F(PlanAheadTest, FirstHalfOfAPoolIsUsedAlone) {
  const Corpus corpus = sampled(oneByOne);
  Batches batches(corpus, 4000, 9);
  const int64_t all = batches.left();
  const auto threads = [] {
    return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  };
  const auto before = threads();
  ASSERT_GT(all, 4);
  while (2 * (batches.left() - 1) > all) {
    batches.next();
    batches.planAhead();
    EXPECT_EQ(threads(), before);
  }
}

// Whatever the other thread meets is reported when the pool is needed, and not before.
TEST_F(PlanAheadTest, FaultsAreReportedWhenThePoolIsNeeded) {
  const Corpus corpus = prepared(3 * blockPairs);
  Batches batches(corpus, 4000, 9);
  while (2 * batches.left() > batches.position().batch + batches.left())
    batches.next();
  fs::last_write_time(in("pairs"), fs::file_time_type::clock::now() + std::chrono::hours(1));
  batches.planAhead();
  while (batches.left() > 0) {
    batches.next();
    batches.planAhead();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (int again = 0; again < 2; ++again) {
    const std::string fault = errorOf([&] { batches.next(); });
    EXPECT_NE(fault.find("pairs: was written to while in use"), std::string::npos) << fault;
  }
}
