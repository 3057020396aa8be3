// Parallel text into ids, and ids into batches.
#include "support/Files.h"
#include "text/Batches.h"
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sentencepiece_trainer.h>
#include <set>

using namespace xfc;
namespace fs = std::filesystem;

namespace {

// A folder of its own for each test.
class CorpusTest : public testing::Test {
protected:
  CorpusTest()
      : folder(fs::temp_directory_path() /
               ("xfc_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()))) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    module.sourceVocab = module.targetVocab = 20;
  }
  ~CorpusTest() override { fs::remove_all(folder); }

  std::string write(const std::string &name, const std::string &contents) {
    std::ofstream(folder / name, std::ios::binary) << contents;
    return (folder / name).string();
  }
  Corpus read(const std::string &source, const std::string &target) {
    return Corpus({write("a", source)}, {write("b", target)}, {ids, ids}, module, Format::Ids);
  }
  // `pairs` lines of 1 to `longest` ids.
  Corpus random(int pairs, int longest) {
    std::mt19937 generator(3);
    std::string sides[2];
    for (int i = 0; i < pairs; ++i)
      for (std::string &side : sides) {
        for (int length = 1 + generator() % longest; length > 0; --length)
          side += std::to_string(4 + generator() % 16) + " ";
        side += "\n";
      }
    return read(sides[0], sides[1]);
  }
  template <typename Action> std::string errorOf(Action action) {
    try {
      action();
    } catch (const Error &error) {
      return error.what();
    }
    return "no error";
  }

  fs::path folder;
  Module module;
  Vocabulary ids{20};
};

std::vector<int32_t> list(std::span<const int32_t> span) { return {span.begin(), span.end()}; }

TEST_F(CorpusTest, TargetsAreShifted) {
  Corpus corpus = read("5 6 7\n8\n", "9\n10 11\n");
  ASSERT_EQ(corpus.size(), 2u);
  EXPECT_EQ(list(corpus.source(0)), (std::vector<int32_t>{5, 6, 7})); // ids are taken verbatim: no eos
  EXPECT_EQ(list(corpus.target(1)), (std::vector<int32_t>{2, 10, 11}));
  EXPECT_EQ(list(corpus.labels(1)), (std::vector<int32_t>{10, 11, 3}));
  EXPECT_EQ(corpus.sourceTokens, 4);
  EXPECT_EQ(corpus.targetTokens, 5);
}

TEST_F(CorpusTest, SeveralFilesFollowEachOther) {
  std::string a1 = write("a1", "5\n6\n"), a2 = write("a2", "7\n"), b = write("b", "8\n9\n10\n");
  Corpus corpus({a1, a2}, {b}, {ids, ids}, module, Format::Ids);
  EXPECT_EQ(list(corpus.source(2)), (std::vector<int32_t>{7}));
  EXPECT_EQ(list(corpus.labels(2)), (std::vector<int32_t>{10, 3}));
}

TEST_F(CorpusTest, LongAndEmptyPairsAreSkippedAndCounted) {
  module.maxLength = module.maxTargetLength = 3;
  Corpus corpus = read("5 6 7\n5 6 7 8\n5\n\n5\n", "5 6\n5\n5 6 7\n5\n\n");
  EXPECT_EQ(corpus.size(), 1u); // start + 2 ids fit, start + 3 do not
  EXPECT_EQ(corpus.skippedLong, 2);
  EXPECT_EQ(corpus.skippedEmpty, 2);
}

TEST_F(CorpusTest, ErrorsSayWhatAndWhere) {
  EXPECT_NE(errorOf([&] { read("5\n6\n", "5\n"); }).find("2 lines"), std::string::npos);
  EXPECT_NE(errorOf([&] { read("5\n6 20\n", "5\n6\n"); }).find("a:2: '20' is not a token id"), std::string::npos);
  EXPECT_NE(errorOf([&] { read("5\n6\n", "5\nx\n"); }).find("b:2: 'x'"), std::string::npos);
  EXPECT_NE(errorOf([&] { read("5 \xff\n", "5\n"); }).find("a:1"), std::string::npos);
  EXPECT_NE(errorOf([&] { read("", ""); }).find("empty"), std::string::npos);
  EXPECT_NE(errorOf([&] { read("\n", "5\n"); }).find("no pair is left"), std::string::npos);
  EXPECT_NE(errorOf([&] {
              Corpus({(folder / "none").string()}, {write("b", "5\n")}, {ids, ids}, module, Format::Ids);
            }).find("none"),
            std::string::npos);
}

TEST_F(CorpusTest, HashTellsDataApart) {
  uint64_t hash = read("5 6\n7\n", "5\n6\n").hash;
  EXPECT_EQ(read("5 6\n7\n", "5\n6\n").hash, hash);
  EXPECT_NE(read("5\n6 7\n", "5\n6\n").hash, hash);
  EXPECT_NE(read("5 6\n7\n", "5\n8\n").hash, hash);
}

TEST_F(CorpusTest, EveryPairOnceAnEpochWithinLimits) {
  Corpus corpus = random(500, 30);
  Counts most = largestBatch(corpus, 64);
  for (int64_t epoch : {0, 1, 7}) {
    std::set<int64_t> seen;
    for (const std::vector<int64_t> &batch : epochBatches(corpus, 64, 5, epoch)) {
      int64_t sources = 0, targets = 0, sourceTarget = 0;
      for (int64_t pair : batch) {
        EXPECT_TRUE(seen.insert(pair).second);
        sources += corpus.sourceLength(pair);
        targets += corpus.targetLength(pair);
        sourceTarget += corpus.sourceLength(pair) * corpus.targetLength(pair);
      }
      EXPECT_FALSE(batch.empty());
      EXPECT_LE(sources, 64);
      EXPECT_LE(targets, 64);
      EXPECT_LE(targets, most.rows[XFC_TARGET]);
      EXPECT_LE(static_cast<int64_t>(batch.size()), most.sequences[XFC_SOURCE]);
      EXPECT_LE(sourceTarget, most.pairs[XFC_KEYS(XFC_TARGET_SOURCE, 1, 0)]);
    }
    EXPECT_EQ(seen.size(), corpus.size());
  }
}

TEST_F(CorpusTest, ABatchHoldsAtLeastOnePair) {
  Corpus corpus = random(50, 30);
  std::vector<std::vector<int64_t>> batches = epochBatches(corpus, 1, 1, 0);
  EXPECT_EQ(batches.size(), corpus.size());
  EXPECT_GE(largestBatch(corpus, 1).rows[XFC_SOURCE], 2);
}

TEST_F(CorpusTest, BatchesHoldLikeLengths) {
  Corpus corpus = random(2000, 60);
  int64_t mixed = 0;
  std::vector<std::vector<int64_t>> batches = epochBatches(corpus, 128, 1, 0);
  for (const std::vector<int64_t> &batch : batches) {
    int64_t shortest = 1 << 20, longest = 0;
    for (int64_t pair : batch) {
      int64_t length = std::max(corpus.sourceLength(pair), corpus.targetLength(pair));
      shortest = std::min(shortest, length);
      longest = std::max(longest, length);
    }
    mixed += longest >= 2 * shortest;
  }
  EXPECT_LE(mixed, 6); // where one class of lengths ends and the next begins
}

TEST_F(CorpusTest, OrderDependsOnSeedAndEpochOnly) {
  Corpus corpus = random(300, 20);
  EXPECT_EQ(epochBatches(corpus, 64, 5, 2), epochBatches(corpus, 64, 5, 2));
  EXPECT_NE(epochBatches(corpus, 64, 5, 2), epochBatches(corpus, 64, 5, 3));
  EXPECT_NE(epochBatches(corpus, 64, 5, 2), epochBatches(corpus, 64, 6, 2));
}

TEST_F(CorpusTest, GoesOnInTheMiddleOfAnEpoch) {
  Corpus corpus = random(300, 20);
  Batches whole(corpus, 64, 5), resumed(corpus, 64, 5);
  std::vector<std::vector<int64_t>> expected;
  Batches::Position middle;
  int64_t count = whole.batchesOfEpoch() + whole.batchesOfEpoch() / 2;
  for (int64_t i = 0; i < 2 * count; ++i) {
    if (i == count)
      middle = whole.position();
    expected.push_back(whole.next());
  }
  EXPECT_EQ(middle.epoch, 1);
  resumed.seek(middle);
  for (int64_t i = count; i < 2 * count; ++i)
    ASSERT_EQ(resumed.next(), expected[i]) << i;
}

TEST_F(CorpusTest, VocabularyRoundTrip) {
  std::vector<std::string> lines;
  for (int i = 0; i < 200; ++i)
    lines.push_back("the little house number " + std::to_string(i) + " of the été stands near the wood");
  std::string model;
  ASSERT_TRUE(sentencepiece::SentencePieceTrainer::Train({{"model_type", "bpe"},
                                                          {"vocab_size", "80"},
                                                          {"pad_id", "0"},
                                                          {"unk_id", "1"},
                                                          {"bos_id", "2"},
                                                          {"eos_id", "3"},
                                                          {"character_coverage", "1.0"},
                                                          {"minloglevel", "2"}},
                                                         lines, &model)
                  .ok());
  std::string file = write("spm.model", model);
  Vocabulary vocabulary(file, 80);
  std::string text = "the wood stands near house 42 été";
  std::vector<int32_t> encoded = vocabulary.encode(text, Format::Text, "here");
  EXPECT_EQ(vocabulary.decode(encoded, Format::Text), text);
  std::string pieces = vocabulary.decode(encoded, Format::Pieces);
  EXPECT_EQ(vocabulary.encode(pieces, Format::Pieces, "here"), encoded);
  EXPECT_EQ(vocabulary.encode(vocabulary.decode(encoded, Format::Ids), Format::Ids, "here"), encoded);
  EXPECT_EQ(vocabulary.piece(encoded[0]).rfind("▁", 0), 0u);
  EXPECT_EQ(vocabulary.encode("nowhere", Format::Pieces, "here"), (std::vector<int32_t>{1}));
  EXPECT_EQ(vocabulary.bytes(), model);
  EXPECT_EQ(vocabulary.hash(), Vocabulary::fromBytes(model, "m", 80).hash());

  Module module;
  module.pad = 0;
  module.eos = 3;
  vocabulary.checkTokens(module);
  Vocabulary(80).checkTokens(module);
  module.eos = 2;
  EXPECT_NE(errorOf([&] {
              vocabulary.checkTokens(module);
            }).find("spm.model: its eos token is 3, this model was compiled for 2"),
            std::string::npos);
  module.pad = 4;
  EXPECT_NE(errorOf([&] {
              vocabulary.checkTokens(module);
            }).find("spm.model: its pad token is 0, this model was compiled for 4"),
            std::string::npos);

  EXPECT_NE(errorOf([&] { Vocabulary(file, 100); }).find("has 80 pieces, this model was compiled for 100"),
            std::string::npos);
  EXPECT_NE(errorOf([&] { Vocabulary(write("broken", "text"), 80); }).find("broken: not a SentencePiece model"),
            std::string::npos);
  EXPECT_NE(errorOf([&] { Vocabulary(20).encode("text", Format::Text, "f:1"); }).find("f:1"), std::string::npos);
  EXPECT_EQ(Vocabulary(20).decode({5, 6}, Format::Ids), "5 6");
}

} // namespace
