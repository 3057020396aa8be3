// Tests turning parallel text into ids, and ids into batches.
#include "corpora/Batches.h"
#include "folder.h"
#include "plan/Programs.h"
#include "support/Checksum.h"
#include "support/Files.h"
#include "unigram.h"
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <random>
#include <sentencepiece_trainer.h>
#include <set>

using namespace xfc;
namespace fs = std::filesystem;

namespace {

// Pair i is pairs[i] of the corpus, as this epoch has it.
Corpus epochOf(const Corpus &corpus, const std::vector<int64_t> &pairs, int64_t epoch) {
  Corpus drawn;
  while (corpus.draw(drawn, pairs, epoch, corpus.onThreads())) {
  }
  return drawn;
}

class CorpusTest : public FolderTest {
protected:
  CorpusTest() { module.sourceVocab = module.targetVocab = 20; }

  Corpus read(const std::string &source, const std::string &target) {
    return Corpus({{written("a", source)}, {written("b", target)}, {}}, {ids, ids}, module, Format::Ids);
  }
  // A corpus of `pairs` lines of 1 to `longest` ids.
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

  Module module;
  Vocabulary ids{20};
};

std::vector<int32_t> list(std::span<const int32_t> span) { return {span.begin(), span.end()}; }

// Runs a window's work in reverse order, as threads may.
void backwards(int64_t count, const std::function<void(int64_t)> &body) {
  while (count > 0)
    body(--count);
}

TEST_F(CorpusTest, TargetsAreShifted) {
  Corpus corpus = read("5 6 7\n8\n", "9\n10 11\n");
  ASSERT_EQ(corpus.size(), 2u);
  EXPECT_EQ(list(corpus.source(0)), (std::vector<int32_t>{5, 6, 7})); // ids are taken verbatim: no eos
  EXPECT_EQ(list(corpus.target(1)), (std::vector<int32_t>{2, 10, 11}));
  EXPECT_EQ(list(corpus.labels(1)), (std::vector<int32_t>{10, 11, 3}));
  EXPECT_EQ(corpus.totals().tokens[XFC_SOURCE], 4);
  EXPECT_EQ(corpus.totals().tokens[XFC_TARGET], 5);
}

TEST_F(CorpusTest, SeveralFilesFollowEachOther) {
  std::string a1 = written("a1", "5\n6\n"), a2 = written("a2", "7\n"), b = written("b", "8\n9\n10\n");
  Corpus corpus({{a1, a2}, {b}, {}}, {ids, ids}, module, Format::Ids);
  EXPECT_EQ(list(corpus.source(2)), (std::vector<int32_t>{7}));
  EXPECT_EQ(list(corpus.labels(2)), (std::vector<int32_t>{10, 3}));
}

TEST_F(CorpusTest, LongAndEmptyPairsAreSkippedAndCounted) {
  module.maxLength = module.maxTargetLength = 3;
  Corpus corpus = read("5 6 7\n5 6 7 8\n5\n\n5\n", "5 6\n5\n5 6 7\n5\n\n");
  EXPECT_EQ(corpus.size(), 1u); // start + 2 ids fit, start + 3 do not
  EXPECT_EQ(corpus.totals().skippedLong, 2);
  EXPECT_EQ(corpus.totals().skippedEmpty, 2);
}

TEST_F(CorpusTest, ErrorsSayWhatAndWhere) {
  EXPECT_NE(errorOf([&] { read("5\n6\n", "5\n"); }).find("2 lines"), std::string::npos);
  EXPECT_NE(errorOf([&] { read("5\n", "5\n6\n7\n"); }).find("b 3; line i of one"), std::string::npos);
  EXPECT_NE(errorOf([&] { read("5\n", "5\n6\n7\n"); }).find("b:2 has none"), std::string::npos);
  EXPECT_NE(errorOf([&] { read("5\n6 20\n", "5\n6\n"); }).find("a:2: '20' is not a token id"), std::string::npos);
  EXPECT_NE(errorOf([&] { read("5\n6\n", "5\nx\n"); }).find("b:2: 'x'"), std::string::npos);
  EXPECT_NE(errorOf([&] { read("5 \xff\n", "5\n"); }).find("a:1"), std::string::npos);
  EXPECT_NE(errorOf([&] { read("", ""); }).find("empty"), std::string::npos);
  EXPECT_NE(errorOf([&] { read("\n", "5\n"); }).find("no pair is left"), std::string::npos);
  EXPECT_NE(
      errorOf([&] { Corpus({{in("none")}, {written("b", "5\n")}, {}}, {ids, ids}, module, Format::Ids); }).find("none"),
      std::string::npos);
}

TEST_F(CorpusTest, TablesAreBothSidesInOne) {
  const Corpus corpus({{}, {}, {written("t", "5 6\t7\r\n8\t9 10\n")}}, {ids, ids}, module, Format::Ids),
      same = read("5 6\n8\n", "7\n9 10\n");
  EXPECT_EQ(corpus.totals().hash, same.totals().hash);
  const std::pair<const char *, const char *> wrong[] = {
      {"5\t6\n5 6\n", "t:2: has 0 tabs; expected a source, a tab and its target"},
      {"5\t6\t7\n", "t:1: has 2 tabs; expected a source, a tab and its target (cut -f1,2 takes two columns; with "
                    "--tsv-weighting, the third one is a weight)"},
      {"5\t6\n5\tx\n", "t:2: 'x'"}};
  for (const auto &[text, message] : wrong)
    EXPECT_NE(errorOf([&] { Corpus({{}, {}, {written("t", text)}}, {ids, ids}, module, Format::Ids); }).find(message),
              std::string::npos)
        << text;
}

std::vector<float> list(Weights weights) { return {weights.begin(), weights.end()}; }

TEST_F(CorpusTest, WeightsBelongToTheirPairs) {
  const std::string a = written("a", "5\n5 6\n\n5 6 7\n"), b = written("b", "7\n8 9\n5\n9 10 11\n");
  auto weighted = [&](const std::string &text, bool words = false, const PairFilter &filter = {}) {
    PairFiles files{{a}, {b}, {}};
    files.weights = {written("w", text)};
    files.weighWords = words;
    return Corpus(files, {ids, ids}, module, Format::Ids, filter);
  };
  // The weights of pairs that are left out go with them.
  const Corpus sentences = weighted("0.5\n 1e-3 \n2\n-0\n");
  ASSERT_EQ(sentences.size(), 3u);
  EXPECT_TRUE(sentences.hasWeights());
  EXPECT_EQ(list(sentences.weights(0)), std::vector<float>{0.5F});
  EXPECT_EQ(list(sentences.weights(1)), std::vector<float>{1e-3F});
  EXPECT_EQ(list(sentences.weights(2)), std::vector<float>{0});
  EXPECT_FALSE(std::signbit(sentences.weights(2)[0]));
  EXPECT_EQ(list(weighted("1\n2\n3\n4\n", false, {2, 0, 0}).weights(1)), std::vector<float>{4});

  // A weight for each word, and for eos if there is one.
  const Corpus words = weighted("2\n0.5 0\n9\n1 2 3 4\n", true);
  EXPECT_EQ(list(words.weights(0)), (std::vector<float>{2, 1}));
  EXPECT_EQ(list(words.weights(1)), (std::vector<float>{0.5F, 0, 1}));
  EXPECT_EQ(list(words.weights(2)), (std::vector<float>{1, 2, 3, 4}));

  const Corpus none({{a}, {b}, {}}, {ids, ids}, module, Format::Ids);
  EXPECT_FALSE(none.hasWeights());
  EXPECT_TRUE(none.weights(0).empty());
  const uint64_t hash = none.totals().hash;
  EXPECT_EQ(weighted("1\n1\n7\n1.0\n").totals().hash, hash);
  EXPECT_EQ(weighted("1\n1 1\n7\n1 1 1\n", true).totals().hash, hash);
  std::set<uint64_t> hashes = {hash};
  for (const char *text : {"1\n1\n1\n2\n", "1\n2\n1\n1\n", "1\n1\n1\n1.0000001\n"})
    EXPECT_TRUE(hashes.insert(weighted(text).totals().hash).second) << text;
  for (const char *text : {"1\n1 1\n1\n1 2 1\n", "1\n1 1\n1\n1 1 2\n", "1\n1 1\n1\n1 1 1 2\n"})
    EXPECT_TRUE(hashes.insert(weighted(text, true).totals().hash).second) << text;

  // In several files, one for each corpus, and as a column of a table.
  PairFiles several{{a, a}, {b, b}, {}};
  several.weights = {written("w1", "1\n2\n3\n4\n"), written("w2", "5\n6\n7\n8\n")};
  for (const Corpus &corpus :
       {Corpus(several, {ids, ids}, module, Format::Ids), Corpus(several.each(), {ids, ids}, module, Format::Ids)}) {
    EXPECT_EQ(list(corpus.weights(2)), std::vector<float>{4});
    EXPECT_EQ(list(corpus.weights(3)), std::vector<float>{5});
  }
  PairFiles table{{}, {}, {written("t", "5 6\t7\t0.25\r\n8\t9 10\t3\n")}};
  table.weightColumn = true;
  const Corpus column(table, {ids, ids}, module, Format::Ids);
  EXPECT_EQ(list(column.labels(0)), (std::vector<int32_t>{7, 3}));
  EXPECT_EQ(list(column.weights(0)), std::vector<float>{0.25F});
  EXPECT_EQ(list(column.weights(1)), std::vector<float>{3});
  EXPECT_EQ(list(Corpus(table.each(), {ids, ids}, module, Format::Ids).weights(1)), std::vector<float>{3});
}

TEST_F(CorpusTest, InvalidWeightsAreRefusedWithTheirPlace) {
  const std::string a = written("a", "5\n5 6\n"), b = written("b", "7\n8 9\n");
  auto fault = [&](const std::string &text, bool words = false, const Parallel &parallel = oneByOne) {
    PairFiles files{{a}, {b}, {}};
    files.weights = {written("w", text)};
    files.weighWords = words;
    return errorOf([&] { Corpus(files, {ids, ids}, module, Format::Ids, {}, parallel); });
  };
  EXPECT_EQ(fault("1\n2\n"), "no error");
  for (const char *wrong : {"x", "-1", "nan", "inf", "1e39", "1e999", "0x1", "1,5", "1.5.", "+1"})
    EXPECT_NE(fault(std::string("1\n") + wrong + "\n").find("w:2: '" + std::string(wrong) + "' is not a weight"),
              std::string::npos)
        << wrong;
  EXPECT_NE(fault("1\n\n").find("w:2: has 0 weights; expected one for the pair"), std::string::npos);
  EXPECT_NE(fault("1 1\n1\n").find("w:1: has 2 weights; expected one for the pair (with --data-weighting-type word"),
            std::string::npos);
  EXPECT_NE(fault("1\n1\n", true).find("w:2: has 1 weight, but the target (" + b + ":2) has 2 tokens"),
            std::string::npos);
  EXPECT_NE(fault("1\n1 1 1 1\n", true).find("w:2: has 4 weights"), std::string::npos);
  EXPECT_EQ(fault("x\n1 1 1 1\n", true, backwards), fault("x\n1 1 1 1\n", true));
  EXPECT_NE(fault("1\n").find("a has 2 lines, " + in("w") + " 1; line i of the weights belongs to pair i, and " + a +
                              ":2 has none"),
            std::string::npos);
  EXPECT_NE(fault("1\n2\n3\n4\n").find("w 4; line i of the weights belongs to pair i, and " + in("w") + ":3 has none"),
            std::string::npos);
  EXPECT_NE(fault("").find("w: the file is empty; expected the weight of a pair per line"), std::string::npos);
  // A target that the model cannot take is left out before its weights are counted.
  module.maxTargetLength = 2;
  EXPECT_EQ(fault("1\n1\n", true), "no error");

  PairFiles table{{}, {}, {written("t", "5\t7\t1\n5\t7\n")}};
  table.weightColumn = true;
  EXPECT_NE(errorOf([&] {
              Corpus(table, {ids, ids}, module, Format::Ids);
            }).find("t:2: has 1 tab; expected a source, a tab, its target, a tab and their weight"),
            std::string::npos);
}

// A training program that takes so many links for each label.
Program guidedProgram(int64_t links) {
  Program training;
  training.name = programs::lossAndGradients;
  training.arguments = {{names::alignmentLinks, Argument::Role::Input, DType::I32, XFC_TARGET, {links}}};
  return training;
}

TEST_F(CorpusTest, LinksBelongToTheirPairs) {
  module.programs.push_back(guidedProgram(2));
  const std::string a = written("a", "5\n5 6\n\n5 6 7\n"), b = written("b", "7\n8 9\n5\n9 10 11\n");
  auto aligned = [&](const std::string &text, const PairFilter &filter = {}, const Parallel &parallel = oneByOne) {
    PairFiles files{{a}, {b}, {}};
    files.alignments = {written("l", text)};
    return Corpus(files, {ids, ids}, module, Format::Ids, filter, parallel);
  };
  auto linksOf = [](const Corpus &corpus, size_t pair) {
    const Links links = corpus.links(pair);
    return std::vector<Link>(links.begin(), links.end());
  };
  // The links of pairs that are left out go with them, even if they are wrong.
  const Corpus corpus = aligned("\n1-1 0-1 1-1\n9-9\n2-0 0-2\n");
  ASSERT_EQ(corpus.size(), 3u);
  EXPECT_TRUE(corpus.links(0).empty());
  EXPECT_EQ(linksOf(corpus, 1), (std::vector<Link>{{0, 1}, {1, 1}}));
  EXPECT_EQ(linksOf(corpus, 2), (std::vector<Link>{{2, 0}, {0, 2}}));
  EXPECT_EQ(linksOf(aligned("0-0\n1-1\n\n2-0\n", {2, 0, 0}), 1), (std::vector<Link>{{2, 0}}));

  // Links are a part of the data, but none are the same as no alignments.
  const Corpus none({{a}, {b}, {}}, {ids, ids}, module, Format::Ids);
  EXPECT_TRUE(none.links(1).empty());
  EXPECT_EQ(aligned("\n\n\n \n").totals().hash, none.totals().hash);
  std::set<uint64_t> hashes = {none.totals().hash};
  for (const char *text : {"\n0-0\n\n\n", "\n0-1\n\n\n", "\n1-0\n\n\n", "\n\n\n0-0\n", "\n0-0 1-0\n\n\n"})
    EXPECT_TRUE(hashes.insert(aligned(text).totals().hash).second) << text;

  // In several files, one for each corpus.
  PairFiles several{{a, a}, {b, b}, {}};
  several.alignments = {written("l1", "\n\n\n0-0\n"), written("l2", "0-0\n0-1\n\n\n")};
  for (const Corpus &both :
       {Corpus(several, {ids, ids}, module, Format::Ids), Corpus(several.each(), {ids, ids}, module, Format::Ids)}) {
    EXPECT_EQ(linksOf(both, 2), (std::vector<Link>{{0, 0}}));
    EXPECT_EQ(linksOf(both, 4), (std::vector<Link>{{0, 1}}));
  }

  auto fault = [&](const std::string &text, const Parallel &parallel = oneByOne) {
    return errorOf([&] { aligned(text, {}, parallel); });
  };
  EXPECT_NE(fault("\n0-2\n\n\n").find("l:2: has the link 0-2, but the pair has 2 source and 2 target tokens"),
            std::string::npos);
  EXPECT_NE(fault("\n\n\n0-1 1-1 2-1\n").find("l:4: target token 1 has 3 links, but this executable takes 2"),
            std::string::npos);
  EXPECT_EQ(fault("x\n0-2\n\n\n", backwards), fault("x\n0-2\n\n\n"));
  EXPECT_NE(fault("\n\n").find("a has 4 lines, " + in("l") +
                               " 2; line i of the alignments holds the links of pair i, and " + a + ":3 has none"),
            std::string::npos);
  module.maxLength = 2; // a source that the model cannot take is left out before its links are placed
  EXPECT_EQ(fault("\n\n\n9-9\n"), "no error");
}

TEST_F(CorpusTest, FiltersCountWhatGoes) {
  const std::string a = written("a", "5\n5 6\n5 6 7\n5 6 7 8\n5 6\n5 6 7 8 9\n"),
                    b = written("b", "5\n5 6\n5 6\n5\n5 6 7 8 9\n5 6 7 8 9 10\n");
  auto filtered = [&](const PairFilter &filter) {
    const Corpus corpus({{a}, {b}, {}}, {ids, ids}, module, Format::Ids, filter);
    return std::vector<int64_t>{corpus.totals().pairs, corpus.totals().filteredLength, corpus.totals().filteredRatio};
  };
  EXPECT_EQ(filtered({}), (std::vector<int64_t>{6, 0, 0}));
  EXPECT_EQ(filtered({2, 0, 0}), (std::vector<int64_t>{4, 2, 0}));
  EXPECT_EQ(filtered({0, 5, 0}), (std::vector<int64_t>{5, 1, 0}));
  EXPECT_EQ(filtered({0, 0, 1.5}), (std::vector<int64_t>{4, 0, 2}));
  EXPECT_EQ(filtered({2, 5, 1.4}), (std::vector<int64_t>{1, 3, 2}));
  EXPECT_NE(errorOf([&] { filtered({9, 0, 0}); })
                .find("no pair is left to use: 0 longer than the model's max_length, 0 with an empty side, 6 by "
                      "--filter-length, 0 by --filter-ratio"),
            std::string::npos);
}

TEST_F(CorpusTest, HashTellsDataApart) {
  uint64_t hash = read("5 6\n7\n", "5\n6\n").totals().hash;
  EXPECT_EQ(read("5 6\n7\n", "5\n6\n").totals().hash, hash);
  EXPECT_NE(read("5\n6 7\n", "5\n6\n").totals().hash, hash);
  EXPECT_NE(read("5 6\n7\n", "5\n8\n").totals().hash, hash);
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
  EXPECT_LE(mixed, 6); // at the boundaries between length classes
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
  std::vector<PairsOfCorpus> expected;
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

TEST_F(CorpusTest, ManyThreadsReadAsOneDoes) {
  random(20000, 6); // more than two windows of lines
  const std::string a = in("a"), b = in("b");
  Corpus one({{a}, {b}, {}}, {ids, ids}, module, Format::Ids),
      many({{a}, {b}, {}}, {ids, ids}, module, Format::Ids, {}, backwards);
  EXPECT_EQ(one.size(), 20000u);
  EXPECT_EQ(one.totals().hash, many.totals().hash);
  std::string lines = readFile(b);
  for (size_t at : {lines.size() / 4, lines.size() / 4 + 2000})
    lines.insert(lines.find('\n', at), "x");
  written("b", lines);
  const std::string error = errorOf([&] { Corpus({{a}, {b}, {}}, {ids, ids}, module, Format::Ids); });
  EXPECT_NE(error.find("x' is not a token id"), std::string::npos);
  EXPECT_EQ(errorOf([&] { Corpus({{a}, {b}, {}}, {ids, ids}, module, Format::Ids, {}, backwards); }), error);
}

// A corpus that may exceed a pool, with pairs of one to three ids.
Corpus large(int64_t pairs, const Module &module) {
  std::vector<std::vector<int32_t>> sources, targets;
  for (int64_t i = 0; i < pairs; ++i) {
    sources.emplace_back(1 + i % 3, 4 + static_cast<int32_t>(i % 16));
    targets.emplace_back(1 + i % 2, 4 + static_cast<int32_t>(i % 13));
  }
  return Corpus(sources, targets, module);
}

TEST_F(CorpusTest, LargeDataIsPutInOrderPoolByPool) {
  const int64_t pairs = 2 * poolBlocks * blockPairs + 12345; // three pools, and a partial block
  const Corpus corpus = large(pairs, module);
  ASSERT_EQ(poolsOf(corpus), 3);
  std::vector<bool> seen(pairs);
  int64_t most = 0, count = 0;
  std::set<int64_t> firstPool;
  for (int64_t pool = 0; pool < 3; ++pool) {
    int64_t inPool = 0;
    for (const std::vector<int64_t> &batch : poolBatches(corpus, 4096, 5, 1, pool))
      for (int64_t pair : batch) {
        ASSERT_FALSE(seen[pair]);
        seen[pair] = true;
        ++inPool;
        if (pool == 0)
          firstPool.insert(pair / blockPairs);
      }
    most = std::max(most, inPool);
    count += inPool;
  }
  EXPECT_EQ(count, pairs);
  EXPECT_LE(most, poolBlocks * blockPairs);
  EXPECT_GT(*firstPool.rbegin(), poolBlocks); // blocks from all of the data, not the first ones
  EXPECT_NE(poolBatches(corpus, 4096, 5, 1, 0), poolBatches(corpus, 4096, 5, 2, 0));
  EXPECT_NE(poolBatches(corpus, 4096, 5, 1, 0), poolBatches(corpus, 4096, 6, 1, 0));

  // Starting from any position: within a pool, at its end, and at the end of the epoch.
  Batches whole(corpus, 4096, 5);
  const int64_t perEpoch = whole.batchesOfEpoch();
  EXPECT_EQ(perEpoch, static_cast<int64_t>(epochBatches(corpus, 4096, 5, 0).size()));
  std::vector<Batches::Position> positions;
  std::vector<PairsOfCorpus> expected;
  int64_t ends = 0;
  double fraction = 0;
  for (int64_t i = 0; i < perEpoch + 3; ++i) {
    positions.push_back(whole.position());
    expected.push_back(whole.next());
    const bool done = whole.endsEpoch(whole.position());
    EXPECT_EQ(done, i + 1 == perEpoch);
    EXPECT_TRUE(i >= perEpoch || whole.fractionOfEpoch(whole.position()) > fraction) << i;
    fraction = whole.fractionOfEpoch(whole.position());
    EXPECT_EQ(done, fraction == 1);
    ends += whole.left() == 0;
  }
  EXPECT_EQ(ends, 3);
  for (int64_t from : {perEpoch / 2, perEpoch / 3, perEpoch / 3 + 1, perEpoch - 1, perEpoch, perEpoch + 1}) {
    Batches resumed(corpus, 4096, 5);
    ASSERT_TRUE(resumed.seek(positions[from]));
    for (size_t i = from; i < std::min<size_t>(expected.size(), from + 200); ++i)
      ASSERT_EQ(resumed.next(), expected[i]) << from << " " << i;
  }
  EXPECT_FALSE(whole.seek({0, 0, 3}));
  EXPECT_FALSE(whole.seek({0, perEpoch, 0}));
}

TEST_F(CorpusTest, SeveralCorporaHaveTheirPartsOfAnEpoch) {
  EXPECT_EQ(mixtureByWeight({100, 300}, {2, 2}).quotas, (std::vector<int64_t>{200, 200}));
  EXPECT_EQ(mixtureByWeight({100, 300}, {1e300, 1e-300}).quotas, (std::vector<int64_t>{400, 1}));
  EXPECT_EQ(mixtureByTemperature({100, 900}, 1).quotas, (std::vector<int64_t>{100, 900}));
  EXPECT_EQ(mixtureByTemperature({100, 900}, 2).quotas, (std::vector<int64_t>{250, 750}));
  EXPECT_EQ(mixtureByTemperature({100, 900}, 1e9).quotas, (std::vector<int64_t>{500, 500}));

  // A corpus of several blocks that takes four epochs for one pass, a small one with seven passes per epoch, one of two
  // blocks with exactly one pass, one of two blocks with more than two, and one whose passes do not align with epochs.
  const std::vector<int64_t> sizes = {20000, 100, 9000, 10000, 30}, quotas = {5000, 700, 9000, 25000, 7};
  const Corpus corpus = large(20000 + 100 + 9000 + 10000 + 30, module);
  const Mixture mixture{sizes, quotas};
  ASSERT_EQ(poolsOf(corpus, mixture), 1);
  std::vector<int64_t> times(corpus.size());
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    const auto before = times;
    for (const std::vector<int64_t> &batch : epochBatches(corpus, 4096, 5, epoch, mixture))
      for (int64_t pair : batch)
        ++times[pair];
    for (int64_t i = 0, first = 0; i < std::ssize(sizes); first += sizes[i++]) {
      int64_t given = 0, least = std::numeric_limits<int64_t>::max(), most = 0;
      for (int64_t pair = first; pair < first + sizes[i]; ++pair) {
        given += times[pair] - before[pair];
        least = std::min(least, times[pair]);
        most = std::max(most, times[pair]);
      }
      EXPECT_EQ(given, quotas[i]) << epoch << " " << i;
      EXPECT_EQ(least, (epoch + 1) * quotas[i] / sizes[i]) << epoch << " " << i;
      EXPECT_EQ(most, ((epoch + 1) * quotas[i] + sizes[i] - 1) / sizes[i]) << epoch << " " << i;
    }
  }
  // A part of a block is not always its beginning.
  std::set<int64_t> small;
  for (const std::vector<int64_t> &batch : epochBatches(corpus, 4096, 5, 0, mixture))
    for (int64_t pair : batch)
      if (pair >= 39100)
        small.insert(pair);
  EXPECT_NE(small, (std::set<int64_t>{39100, 39101, 39102, 39103, 39104, 39105, 39106}));
  EXPECT_EQ(epochBatches(corpus, 4096, 5, 3, mixture), epochBatches(corpus, 4096, 5, 3, mixture));
  EXPECT_NE(epochBatches(corpus, 4096, 5, 3, mixture), epochBatches(corpus, 4096, 6, 3, mixture));

  // More than a pool, starting from any position, within the reserved sizes.
  const Mixture much{{20000, 19130}, {poolBlocks * blockPairs, 1000}};
  ASSERT_EQ(poolsOf(corpus, much), 2);
  const Counts most = largestBatch(corpus, 4096, much);
  Batches whole(corpus, 4096, 5, much);
  std::vector<Batches::Position> positions;
  std::vector<PairsOfCorpus> expected;
  int64_t given = 0;
  const int64_t perEpoch = whole.batchesOfEpoch();
  for (int64_t i = 0; i < perEpoch + 3; ++i) {
    positions.push_back(whole.position());
    expected.push_back(whole.next());
    given += i < perEpoch ? std::ssize(expected.back().pairs) : 0;
    EXPECT_LE(std::ssize(expected.back().pairs), most.sequences[XFC_SOURCE]);
  }
  EXPECT_EQ(given, much.pairsOfEpoch());
  for (int64_t from : {perEpoch / 3, perEpoch}) {
    Batches resumed(corpus, 4096, 5, much);
    ASSERT_TRUE(resumed.seek(positions[from]));
    for (size_t i = from; i < std::min<size_t>(expected.size(), from + 100); ++i)
      ASSERT_EQ(resumed.next(), expected[i]) << from << " " << i;
  }
}

TEST_F(CorpusTest, MemoryIsForBatchesThatHavePairsTwice) {
  const Corpus corpus = read("5\n5 6 7\n", "5 6\n5\n");
  const Mixture mixture{{1, 1}, {9, 1}};
  for (const std::vector<int64_t> &batch : epochBatches(corpus, 16, 1, 0, mixture)) {
    int64_t sources = 0;
    for (int64_t pair : batch)
      sources += corpus.sourceLength(pair);
    const Counts most = largestBatch(corpus, 16, mixture);
    EXPECT_LE(std::ssize(batch), most.sequences[XFC_SOURCE]);
    EXPECT_LE(sources, most.rows[XFC_SOURCE]);
  }
  EXPECT_LT(largestBatch(corpus, 16).sequences[XFC_SOURCE], 3);
}

TEST_F(CorpusTest, CorporaOfTextAreThoseOfTheirFiles) {
  const std::string a1 = written("a1", "5\n6\n"), a2 = written("a2", "7\n"), b1 = written("b1", "8\n9\n"),
                    b2 = written("b2", "10 11\n");
  const std::vector<PairFiles> files = PairFiles{{a1, a2}, {b1, b2}, {}}.each();
  const Corpus corpus(files, {ids, ids}, module, Format::Ids);
  EXPECT_EQ(corpus.sizes(), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(list(corpus.source(1)), (std::vector<int32_t>{6}));
  EXPECT_EQ(list(corpus.labels(2)), (std::vector<int32_t>{10, 11, 3}));
  EXPECT_EQ(corpus.totals().longest[XFC_TARGET], 3);
  EXPECT_EQ(Corpus({{a1, a2}, {b1, b2}, {}}, {ids, ids}, module, Format::Ids).sizes(), (std::vector<int64_t>{3}));
}

// Tests shards: they hold the same pairs as their text, and everything else gives a message.
class ShardTest : public CorpusTest {
protected:
  // The corpus that read() left as text, written as a shard.
  std::string prepared(const std::string &name) { return prepared(name, {{file("a")}, {file("b")}, {}}); }
  std::string prepared(const std::string &name, const PairFiles &files) {
    PairReader reader(files, {ids, ids}, module, Format::Ids);
    ShardWriter writer(file(name), {ids, ids}, module, Format::Ids, files.weighting(), 0, reader.linksPerLabel());
    while (reader.next([&](auto... pair) { writer.add(pair..., {}, reader.links()); })) {
    }
    writer.commit(reader.totals());
    return file(name);
  }
  std::string file(const std::string &name) { return in(name); }
  // The error message for a shard with these contents when it is opened and all its pairs are read.
  std::string faultOf(const std::string &contents) {
    written("changed", contents);
    return errorOf([&] {
      const Corpus corpus({file("changed")}, {ids, ids}, module);
      epochBatches(corpus, 100, 1, 0);
    });
  }
  // The same if 4 bytes of a file of one block, with links or lines, are changed, and its checksums match.
  static constexpr size_t header = 16, table = 20, footer = 128;
  std::string faultOf(std::string contents, size_t at, uint32_t value) {
    auto put = [&](size_t where, uint32_t number) { std::memcpy(contents.data() + where, &number, sizeof number); };
    auto sum = [&](size_t begin, size_t end) { return crc32c(std::string_view(contents).substr(begin, end - begin)); };
    put(at, value);
    const size_t end = contents.size() - footer, entry = end - table;
    put(entry + 8, sum(header, entry));
    put(end + 112, sum(entry, end));
    put(end + 116, crc32c(std::string_view(contents).substr(end, 116), sum(0, header)));
    return faultOf(contents);
  }
};

void expectSame(const Corpus &a, const Corpus &b, int64_t offset = 0) {
  for (size_t i = 0; i < b.size(); ++i) {
    ASSERT_EQ(list(a.source(i + offset)), list(b.source(i))) << i;
    ASSERT_EQ(list(a.target(i + offset)), list(b.target(i))) << i;
    ASSERT_EQ(list(a.labels(i + offset)), list(b.labels(i))) << i;
    ASSERT_EQ(list(a.weights(i + offset)), list(b.weights(i))) << i;
    ASSERT_TRUE(std::ranges::equal(a.links(i + offset), b.links(i))) << i;
  }
}

TEST_F(ShardTest, HoldsWhatTheTextHolds) {
  module.maxLength = module.maxTargetLength = 15;
  const Corpus text = random(3 * blockPairs + 5, 16); // some are too long
  const Corpus shard({prepared("shard")}, {ids, ids}, module);
  const CorpusTotals &a = text.totals(), &b = shard.totals();
  EXPECT_GT(a.skippedLong, 0);
  EXPECT_EQ(a.pairs, b.pairs);
  EXPECT_EQ(a.skippedLong, b.skippedLong);
  EXPECT_EQ(a.skippedEmpty, b.skippedEmpty);
  EXPECT_EQ(a.hash, b.hash);
  for (int set : {XFC_SOURCE, XFC_TARGET}) {
    EXPECT_EQ(a.tokens[set], b.tokens[set]);
    EXPECT_EQ(a.shortest[set], b.shortest[set]);
    EXPECT_EQ(a.longest[set], b.longest[set]);
  }
  EXPECT_EQ(epochBatches(text, 256, 3, 4), epochBatches(shard, 256, 3, 4));
  expectSame(shard, text);
  shard.release();
  expectSame(shard, text);
}

TEST_F(ShardTest, SeveralFollowEachOther) {
  const Corpus first = random(blockPairs + 100, 5);
  prepared("first");
  const Corpus second = read("5 6\n7\n", "8\n9 10\n");
  prepared("second");
  const Corpus both({file("first"), file("second"), file("first")}, {ids, ids}, module);
  ASSERT_EQ(both.size(), 2 * first.size() + 2);
  expectSame(both, first);
  expectSame(both, second, first.size());
  expectSame(both, first, first.size() + 2);
  EXPECT_EQ(both.totals().tokens[XFC_TARGET], 2 * first.totals().tokens[XFC_TARGET] + 5);
  EXPECT_EQ(both.totals().longest[XFC_SOURCE], 5);
  const Corpus other({file("second"), file("first"), file("first")}, {ids, ids}, module);
  EXPECT_NE(both.totals().hash, other.totals().hash);
  std::set<int64_t> seen;
  for (const std::vector<int64_t> &batch : epochBatches(both, 64, 1, 0))
    seen.insert(batch.begin(), batch.end());
  EXPECT_EQ(seen.size(), both.size());
}

TEST_F(ShardTest, IsRefusedWhereAnythingIsWrong) {
  random(300, 9);
  const std::string whole = readFile(prepared("shard"));
  EXPECT_EQ(faultOf(whole), "no error");
  EXPECT_NE(faultOf("").find("not a file of pairs"), std::string::npos);
  EXPECT_NE(faultOf("5 6 7\n8 9\n").find("--source"), std::string::npos);
  for (size_t size : {size_t(8), size_t(15), size_t(16), size_t(40), size_t(160), whole.size() / 2, whole.size() - 128,
                      whole.size() - 1})
    EXPECT_NE(faultOf(whole.substr(0, size)).find("changed: the file is damaged"), std::string::npos) << size;
  for (size_t at = 0; at < whole.size(); at += at < 64 || at + 200 > whole.size() ? 1 : 97) {
    std::string changed = whole;
    changed[at] ^= 4;
    EXPECT_NE(faultOf(changed), "no error") << at;
  }
  std::string next = whole;
  next[8] = 6;
  EXPECT_NE(faultOf(next).find("version 6, but this executable reads versions up to 5"), std::string::npos);
}

TEST_F(ShardTest, HoldsWeights) {
  module.maxLength = module.maxTargetLength = 15;
  for (bool words : {false, true}) {
    const Corpus plain = random(blockPairs + 300, 16); // some are too long
    std::mt19937 generator(5);
    std::string text;
    std::istringstream targets(readFile(file("b")));
    for (std::string line; std::getline(targets, line);) {
      for (auto count = words ? std::ranges::count(line, ' ') : 1; count > 0; --count)
        text += std::to_string(generator() % 8 / 4.0) + " ";
      text += "\n";
    }
    PairFiles files{{file("a")}, {file("b")}, {}};
    files.weights = {written("w", text)};
    files.weighWords = words;
    const Corpus weighted(files, {ids, ids}, module, Format::Ids);
    const Corpus shard({prepared("weighted", files)}, {ids, ids}, module);
    expectSame(shard, weighted);
    EXPECT_EQ(shard.totals().hash, weighted.totals().hash);
    EXPECT_NE(shard.totals().hash, plain.totals().hash);
    EXPECT_EQ(shard.totals().tokens[XFC_TARGET], plain.totals().tokens[XFC_TARGET]);
    EXPECT_EQ(epochBatches(plain, 256, 3, 4), epochBatches(shard, 256, 3, 4));

    // Together with one that has none, which is as it was before there were weights.
    const Corpus both({prepared("plain"), file("weighted")}, {ids, ids}, module);
    EXPECT_EQ(readFile(file("plain"))[8], 1);
    EXPECT_TRUE(both.hasWeights());
    expectSame(both, plain);
    expectSame(both, weighted, plain.size());
    EXPECT_EQ(both.weights(0).size(), 0u);

    const std::string whole = readFile(file("weighted"));
    EXPECT_EQ(faultOf(whole), "no error");
    for (size_t at : {size_t(8), size_t(12), size_t(500), whole.size() / 2, whole.size() - 300, whole.size() - 40}) {
      std::string changed = whole;
      changed[at] ^= 4;
      EXPECT_NE(faultOf(changed), "no error") << at;
    }
  }
}

// With weights of any kind, each pair has the distributions that were written with it.
TEST_F(ShardTest, HoldsDistributions) {
  constexpr int64_t tokens = 3;
  for (Weighting weighting : {Weighting::None, Weighting::Sentence, Weighting::Word}) {
    const Corpus plain = random(blockPairs + 300, 16);
    std::mt19937 generator(5);
    std::vector<std::vector<TokenProbability>> written;
    auto prepare = [&](auto change) {
      written.clear();
      ShardWriter writer(file("taught"), {ids, ids}, module, Format::Ids, weighting, tokens);
      PairReader reader({{file("a")}, {file("b")}, {}}, {ids, ids}, module, Format::Ids);
      while (reader.next([&](auto source, auto target, Weights) {
        std::vector<TokenProbability> &own = written.emplace_back();
        for (size_t i = 0; i < tokens * (target.size() - 1); ++i)
          own.push_back({static_cast<int32_t>(generator() % 20), static_cast<float>(generator() % 1000) / 3000});
        if (written.size() == blockPairs + 7)
          change(own);
        const std::vector<float> weights(weighting == Weighting::None       ? 0
                                         : weighting == Weighting::Sentence ? 1
                                                                            : target.size() - 1,
                                         0.5);
        writer.add(source, target, weights, own);
      })) {
      }
      writer.commit(reader.totals());
    };
    prepare([](auto &) {});
    const Corpus taught({file("taught")}, {ids, ids}, module);
    EXPECT_EQ(readFile(file("taught"))[8], 3);
    EXPECT_EQ(taught.totals().tokens[XFC_TARGET], plain.totals().tokens[XFC_TARGET]);
    EXPECT_NE(taught.totals().hash, plain.totals().hash);
    EXPECT_EQ(epochBatches(plain, 256, 3, 4), epochBatches(taught, 256, 3, 4));
    EXPECT_EQ(taught.hasWeights(), weighting != Weighting::None);

    // Together with one that has none, which is as it was before there were distributions.
    const Corpus both({prepared("plain"), file("taught")}, {ids, ids}, module);
    EXPECT_EQ(readFile(file("plain"))[8], 1);
    EXPECT_EQ(both.tokensPerLabel(), (std::vector<int64_t>{0, tokens}));
    ASSERT_EQ(written.size(), taught.size());
    for (size_t i = 0; i < taught.size(); ++i) {
      ASSERT_EQ(list(taught.source(i)), list(plain.source(i))) << i;
      ASSERT_EQ(list(taught.labels(i)), list(plain.labels(i))) << i;
      ASSERT_EQ(both.distributions(i).size(), 0u) << i;
      for (const Distribution found : {taught.distributions(i), both.distributions(plain.size() + i)}) {
        ASSERT_EQ(found.size(), written[i].size()) << i;
        for (size_t k = 0; k < found.size(); ++k) {
          ASSERT_EQ(found[k].token, written[i][k].token) << i;
          ASSERT_EQ(found[k].probability, written[i][k].probability) << i;
        }
      }
    }

    const std::string whole = readFile(file("taught"));
    EXPECT_EQ(faultOf(whole), "no error");
    for (size_t at :
         {size_t(8), size_t(12), size_t(14), size_t(500), whole.size() / 2, whole.size() - 300, whole.size() - 40}) {
      std::string changed = whole;
      changed[at] ^= 4;
      EXPECT_NE(faultOf(changed), "no error") << at;
    }

    // Each message names the file, the block, the pair and the label.
    auto faultWith = [&](auto change) {
      prepare(change);
      return errorOf([&] {
        const Corpus corpus({file("taught")}, {ids, ids}, module);
        epochBatches(corpus, 100, 1, 0);
      });
    };
    const std::string place = "block 2 of 2, pair " + std::to_string(blockPairs + 7) + ", label " +
                              std::to_string(written[blockPairs + 6].size() / tokens) + ": ";
    auto expectFault = [&](const std::string &message, auto change) {
      const std::string fault = faultWith([&](auto &own) { change(own[own.size() - 2]); });
      EXPECT_TRUE(fault.starts_with(file("taught") + ": ")) << fault;
      EXPECT_NE(fault.find(place + message), std::string::npos) << fault;
    };
    expectFault("the distribution has the id 20, but this model's vocabulary has 20 tokens",
                [](TokenProbability &one) { one.token = 20; });
    expectFault("the distribution has the id -1", [](TokenProbability &one) { one.token = -1; });
    expectFault("a probability is negative or no number", [](TokenProbability &one) { one.probability = -0.1F; });
    expectFault("a probability is negative or no number", [](TokenProbability &one) { one.probability = NAN; });
    expectFault("the probabilities add up to ", [](TokenProbability &one) { one.probability = 1.5F; });
    expectFault("the probabilities add up to inf", [](TokenProbability &one) { one.probability = HUGE_VALF; });
  }
}

// With weights and distributions or without, each pair has the links that were written with it.
TEST_F(ShardTest, HoldsLinks) {
  module.programs.push_back(guidedProgram(2));
  const Corpus plain = random(blockPairs + 300, 16);
  std::mt19937 generator(5);
  std::string text;
  for (size_t i = 0; i < plain.size(); ++i) {
    for (int64_t label = 0; label + 1 < plain.targetLength(i); ++label)
      for (uint32_t links = generator() % 3; links > 0; --links)
        text += std::to_string(generator() % plain.sourceLength(i)) + "-" + std::to_string(label) + " ";
    text += "\n";
  }
  for (bool weighted : {false, true}) {
    PairFiles files{{file("a")}, {file("b")}, {}};
    files.alignments = {written("l", text)};
    if (weighted) {
      std::string weights;
      for (size_t i = 0; i < plain.size(); ++i)
        weights += "0.5\n";
      files.weights = {written("w", weights)};
    }
    const Corpus aligned(files, {ids, ids}, module, Format::Ids);
    const Corpus shard({prepared("aligned", files)}, {ids, ids}, module);
    EXPECT_EQ(readFile(file("aligned"))[8], 4);
    EXPECT_EQ(shard.totals().hash, aligned.totals().hash);
    EXPECT_NE(shard.totals().hash, plain.totals().hash);
    EXPECT_EQ(epochBatches(plain, 256, 3, 4), epochBatches(shard, 256, 3, 4)); // checks the blocks
    expectSame(shard, aligned);
    size_t links = 0;
    for (size_t i = 0; i < shard.size(); ++i)
      links += shard.links(i).size();
    EXPECT_GT(links, 4 * shard.size());

    // Together with one that has none, which is as it was before there were links.
    const Corpus both({prepared("plain"), file("aligned")}, {ids, ids}, module);
    EXPECT_EQ(readFile(file("plain"))[8], 1);
    EXPECT_EQ(both.linksPerLabel(), (std::vector<int64_t>{0, 2}));
    expectSame(both, plain);
    expectSame(both, aligned, plain.size());

    const std::string whole = readFile(file("aligned"));
    EXPECT_EQ(faultOf(whole), "no error");
    for (size_t at : {size_t(8), size_t(12), size_t(13), size_t(14), size_t(500), whole.size() / 2, whole.size() - 1000,
                      whole.size() - 129, whole.size() - 40}) {
      std::string changed = whole;
      changed[at] ^= 4;
      EXPECT_NE(faultOf(changed), "no error") << at;
    }
  }
}

// A file may hold wrong links and still match its checksums. Each message names the file, the block and the pair.
TEST_F(ShardTest, LinksAreChecked) {
  // The message for a file whose second pair has these links.
  auto fault = [&](const std::vector<Link> &links, const Module &reader, bool distributions = false) {
    const std::vector<TokenProbability> taught(2, {5, 0.5F});
    const std::vector<int32_t> source = {5, 6, 7}, target = {module.start, 8, module.eos};
    ShardWriter writer(file("linked"), {ids, ids}, module, Format::Ids, Weighting::None, distributions ? 1 : 0, 2);
    CorpusTotals totals;
    for (const Links own : {Links(), Links(links), Links()}) {
      writer.add(source, target, {}, distributions ? taught : Distribution(), own);
      totals.add(source, target, {}, own);
    }
    writer.commit(totals);
    return errorOf([&] {
      const Corpus corpus({file("linked")}, {ids, ids}, reader);
      epochBatches(corpus, 100, 1, 0);
      EXPECT_TRUE(std::ranges::equal(corpus.links(1), links));
      EXPECT_TRUE(corpus.links(0).empty() && corpus.links(2).empty());
      EXPECT_EQ(corpus.distributions(1).size(), distributions ? 2u : 0u);
    });
  };
  for (const bool distributions : {false, true}) {
    EXPECT_EQ(fault({{0, 0}, {2, 0}, {1, 1}}, module, distributions), "no error");
    EXPECT_EQ(fault({}, module, distributions), "no error");
  }
  const std::string place = file("linked") + ": the file is damaged: block 1 of 1, pair 2, the link ";
  for (const Link &link : {Link{3, 0}, Link{-1, 0}, Link{0, 2}, Link{0, -1}}) {
    const std::string message = fault({link}, module);
    EXPECT_TRUE(message.starts_with(place + std::to_string(link.source) + "-" + std::to_string(link.label) +
                                    " is to a token that is not there: the pair has 3 source tokens and 2 labels"))
        << message;
  }
  for (const std::vector<Link> &links : {std::vector<Link>{{1, 0}, {0, 0}}, {{0, 0}, {0, 0}}, {{0, 1}, {0, 0}}})
    EXPECT_TRUE(fault(links, module).starts_with(place + "0-0 does not come after the one before it"));
  EXPECT_TRUE(fault({{0, 0}, {1, 0}, {2, 0}}, module).starts_with(place + "2-0 is one more than the 2 that a label"));
  Module other = module;
  other.pad = 8;
  EXPECT_EQ(fault({}, other), "no error");
  EXPECT_NE(fault({{0, 0}}, other).find("block 1 of 1, pair 2, has links and a pad of this model (id 8)"),
            std::string::npos);

  // A block's links must be as many as its table says, and end where its pairs say.
  const std::string whole = (fault({{0, 0}}, module), readFile(file("linked")));
  auto changed = [&](size_t at, uint32_t value) { return faultOf(whole, at, value); };
  const size_t entry = whole.size() - footer - table, linkEnds = entry - sizeof(Link) - 3 * sizeof(uint32_t);
  EXPECT_EQ(changed(linkEnds + 4, 1), "no error");
  EXPECT_NE(changed(linkEnds + 4, 2).find("pair 2, the links end at number 2, which is not between 0 and 1"),
            std::string::npos);
  EXPECT_NE(changed(linkEnds + 8, 0).find("pair 3, the links end at number 0, which is not between 1 and 1"),
            std::string::npos);
  EXPECT_NE(changed(entry + 16, 0).find("is damaged"), std::string::npos);
  EXPECT_NE(changed(entry + 16, 0xffffffff).find("does not hold its weights, distributions, links or lines"),
            std::string::npos);
}

TEST_F(ShardTest, LinesAreChecked) {
  const std::vector<int32_t> source = {5, 6, 7}, target = {module.start, 8, module.eos};
  {
    ShardWriter writer(file("lines"), {ids, ids}, module, Format::Ids, Weighting::None, 0, 0, true);
    CorpusTotals totals;
    for (int i = 0; i < 3; ++i) {
      const PairLines lines{{"ab", "\u00e9"}, {0, 1}};
      writer.add(source, target, {}, {}, {}, &lines);
      totals.add(source, target);
    }
    writer.commit(totals);
  }
  const std::string whole = readFile(file("lines"));
  EXPECT_EQ(whole[8], 5);
  const size_t entry = whole.size() - footer - table, text = entry - 6 * 2, lineEnds = text - 6 * 4,
               prefixes = lineEnds - 6 * 4;
  auto changed = [&](size_t at, uint32_t value) {
    const std::string fault = faultOf(whole, at, value), place = "block 1 of 1, pair ";
    return fault.find(place) == std::string::npos ? fault : fault.substr(fault.find(place) + place.size());
  };
  EXPECT_EQ(changed(lineEnds, 2), "no error");
  EXPECT_TRUE(
      changed(lineEnds + 8, 3).starts_with("2, the source's line ends at byte 3, which is not between 4 and 12"));
  EXPECT_TRUE(changed(lineEnds + 20, 13).starts_with("3, the target's line ends at byte 13, which is not between 10"));
  EXPECT_NE(changed(lineEnds + 20, 10).find("block 1 holds 10 bytes of text, but its table says 12"),
            std::string::npos);
  EXPECT_TRUE(changed(prefixes, 4).starts_with("1, the source's line begins after 4 of 3 ids"));
  EXPECT_TRUE(changed(prefixes + 12, 0).starts_with("2, the target's line begins after 0 of 3 ids"));
  EXPECT_TRUE(changed(text + 4, 0x28c36261).starts_with("2, the target's line is not valid UTF-8"));
  EXPECT_NE(changed(entry + 16, 16).find("is damaged"), std::string::npos);
  EXPECT_NE(changed(entry + 16, 0xffffffff).find("does not hold its weights, distributions, links or lines"),
            std::string::npos);
}

TEST_F(ShardTest, IsRefusedByAnotherModel) {
  random(50, 9);
  prepared("shard");
  auto fault = [&](const Module &other, VocabularyPair vocabularies) {
    return errorOf([&] {
      const Corpus corpus({file("shard")}, vocabularies, other);
      epochBatches(corpus, 100, 1, 0);
    });
  };
  EXPECT_EQ(fault(module, {ids, ids}), "no error");
  Module other = module;
  other.eos = 5;
  EXPECT_NE(fault(other, {ids, ids}).find("eos 3"), std::string::npos);
  other = module;
  other.maxTargetLength = 9;
  EXPECT_NE(fault(other, {ids, ids}).find("a target of 10 tokens, longer than this model's max_length of 9"),
            std::string::npos);
  other = module;
  other.targetVocab = 12;
  EXPECT_NE(fault(other, {ids, ids}).find("vocabulary has 12 tokens"), std::string::npos);
}

// A tokenizer.json defines the frame of a line; ids have none.
TEST_F(CorpusTest, FramesOfVocabularies) {
  const Vocabulary vocabulary = Vocabulary::fromBytes(
      R"({"model": {"type": "BPE", "vocab": {"a": 4, "b": 5, "fr": 6}, "merges": []},
          "added_tokens": [{"id": 3, "content": "</s>", "special": true}],
          "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "fr"}}, {"Sequence": {"id": "A"}},
            {"SpecialToken": {"id": "</s>"}}], "special_tokens": {"fr": {"ids": [6]}, "</s>": {"ids": [3]}}}})",
      "tokenizer.json", 20);
  const std::string a = written("a", "ab\n"), b = written("b", "ba\n"), numbers = written("numbers", "4 5\n");
  const Corpus corpus({{a}, {b}, {}}, {vocabulary, vocabulary}, module, Format::Text);
  EXPECT_EQ(list(corpus.source(0)), (std::vector<int32_t>{6, 4, 5, 3}));
  EXPECT_EQ(list(corpus.target(0)), (std::vector<int32_t>{2, 6, 5, 4}));
  EXPECT_EQ(list(corpus.labels(0)), (std::vector<int32_t>{6, 5, 4, 3}));
  const Corpus verbatim({{numbers}, {numbers}, {}}, {vocabulary, vocabulary}, module, Format::Ids);
  EXPECT_EQ(list(verbatim.source(0)), (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(list(verbatim.target(0)), (std::vector<int32_t>{2, 4, 5}));
  // Language tokens count as tokens of the target, as `encode --target` prints them.
  for (const auto &[given, expected] : std::map<std::string, std::vector<float>>{
           {"2 3 4\n", {2, 3, 4, 1}}, {"2 3 4 5\n", {2, 3, 4, 5}}, {"2 3\n", {}}}) {
    PairFiles files{{a}, {b}, {}};
    files.weights = {written("w", given)};
    files.weighWords = true;
    std::vector<float> weights;
    const std::string error = errorOf([&] {
      const Corpus weighted(files, {vocabulary, vocabulary}, module, Format::Text);
      weights.assign(weighted.weights(0).begin(), weighted.weights(0).end());
    });
    EXPECT_EQ(weights, expected) << given;
    EXPECT_EQ(error.find("w:1: has 2 weights, but the target") != std::string::npos, expected.empty()) << error;
  }
  vocabulary.checkTokens(module); // its pad is unknown, and its eos is the model's
  EXPECT_NE(errorOf([&] { Vocabulary::fromBytes(vocabulary.bytes(), "tokenizer.json", 6); }).find("has 7 pieces"),
            std::string::npos);
}

// Tests corpora whose text is segmented at random in each epoch.
class SampledCorpusTest : public CorpusTest {
protected:
  SampledCorpusTest() {
    module.eos = 1;
    std::mt19937 generator(4);
    std::string text;
    for (int i = 0; i < 400; ++i) {
      for (unsigned length = 1 + generator() % 40; length > 0; --length)
        text += "ab "[generator() % 2 + (length % 7 == 3)];
      text += "b\n";
    }
    lines = written("text", text); // sources and targets are the same, so that sides can be compared
  }
  Corpus sampled(double source, double target, const Parallel &parallel = oneByOne, uint64_t seed = 9) {
    const PairFiles files{{lines}, {lines}, {}};
    return Corpus(std::span(&files, 1), {vocabulary, vocabulary}, module, Format::Text, {}, parallel,
                  {{source, target}, seed});
  }
  std::string textOf(std::span<const int32_t> ids) { return vocabulary.decode(list(ids), Format::Text); }

  std::string lines;
  Vocabulary vocabulary = unigramVocabulary();
};

TEST_F(SampledCorpusTest, EpochsDifferInIdsAndNotInText) {
  const Corpus corpus = sampled(0.2, 0.2), best = sampled(0, 0);
  EXPECT_FALSE(best.isSampled());
  EXPECT_EQ(corpus.totals().hash, best.totals().hash);
  expectSame(corpus, best); // the corpus itself keeps the best segmentations
  std::vector<int64_t> all(corpus.size());
  std::iota(all.begin(), all.end(), 0);
  const Corpus first = epochOf(corpus, all, 0), second = epochOf(corpus, all, 1);
  int sameEpoch = 0, sameSide = 0, sameAsBest = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    for (const Corpus *one : {&first, &second}) {
      ASSERT_EQ(textOf(one->source(i)), textOf(best.source(i)));
      ASSERT_EQ(textOf(one->labels(i)), textOf(best.labels(i)));
      EXPECT_EQ(one->source(i).back(), module.eos);
      EXPECT_EQ(one->target(i).front(), module.start);
      EXPECT_EQ(one->labels(i).back(), module.eos);
    }
    sameEpoch += std::ranges::equal(first.source(i), second.source(i));
    sameSide += std::ranges::equal(first.source(i), first.labels(i));
    sameAsBest += std::ranges::equal(first.source(i), best.source(i));
  }
  for (const int same : {sameEpoch, sameSide, sameAsBest})
    EXPECT_LT(same, 100);
}

// Files that hold their lines are segmented as the text is, after the prefixes of each line.
TEST_F(SampledCorpusTest, FilesAreSegmentedAsTheirText) {
  const std::string more = written("more", "abab\nbabab aba\n");
  PairFiles files{{lines, more}, {lines, more}, {}};
  files.sourcePrefixes = {"a", "ab b"};
  files.targetPrefixes = {"bb", "a"};
  const VocabularyPair both{vocabulary, vocabulary};
  const auto prepared = [&](const std::string &name, bool withLines, int64_t links = 0) {
    PairReader reader(files, both, module, Format::Text);
    const std::string file = in(name);
    ShardWriter writer(file, both, module, Format::Text, Weighting::None, 0, links, withLines);
    while (reader.next([&](auto... pair) {
      const PairLines lines = reader.lines();
      writer.add(pair..., {}, {}, &lines);
    })) {
    }
    writer.commit(reader.totals());
    return file;
  };
  const EpochSampling sampling{{0.2, 0.2}, 9};
  const Corpus text(std::span(&files, 1), both, module, Format::Text, {}, oneByOne, sampling),
      file({prepared("kept", true)}, both, module, sampling, backwards);
  ASSERT_EQ(text.size(), 402u);
  EXPECT_EQ(file.totals().hash, text.totals().hash);
  EXPECT_EQ(readFile(prepared("plain", false))[8], 1);
  expectSame(file, Corpus({prepared("plain", false)}, both, module));
  std::vector<int64_t> all(text.size());
  std::iota(all.begin(), all.end(), 0);
  const Corpus drawn = epochOf(file, all, 2);
  expectSame(drawn, epochOf(text, all, 2));
  EXPECT_FALSE(std::ranges::equal(drawn.source(7), file.source(7)));
  EXPECT_TRUE(textOf(drawn.source(0)).starts_with("a "));
  EXPECT_TRUE(textOf(drawn.source(401)).starts_with("ab b babab"));
  EXPECT_TRUE(textOf(drawn.labels(401)).starts_with("a babab"));
  EXPECT_EQ(file.bounds().longest[XFC_SOURCE], text.bounds().longest[XFC_SOURCE]);
  EXPECT_EQ(largestBatch(file, 100).rows[XFC_SOURCE], largestBatch(text, 100).rows[XFC_SOURCE]);
  EXPECT_NE(
      errorOf([&] { Corpus({prepared("plain", false)}, both, module, sampling); }).find("plain: has no text to be"),
      std::string::npos);
  EXPECT_NE(errorOf([&] {
              Corpus({prepared("linked", true, 1)}, both, module, sampling);
            }).find("linked: has weights of words, links or distributions"),
            std::string::npos);
}

// A pair's segmentation depends on the seed, the epoch and its number.
TEST_F(SampledCorpusTest, DoesNotDependOnTheOtherPairsOrThreads) {
  const Corpus corpus = sampled(0.2, 0.2), other = sampled(0.2, 0.2, oneByOne, 10);
  std::vector<int64_t> all(corpus.size());
  std::iota(all.begin(), all.end(), 0);
  expectSame(epochOf(corpus, all, 3), epochOf(sampled(0.2, 0.2, backwards), all, 3));
  const Corpus whole = epochOf(corpus, all, 3), few = epochOf(corpus, {77, 3, 77}, 3);
  ASSERT_EQ(few.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(few.number(i), i == 1 ? 3 : 77);
    EXPECT_EQ(list(few.source(i)), list(whole.source(static_cast<size_t>(few.number(i)))));
    EXPECT_EQ(list(few.labels(i)), list(whole.labels(static_cast<size_t>(few.number(i)))));
  }
  int same = 0;
  const Corpus ofOther = epochOf(other, all, 3);
  for (size_t i = 0; i < all.size(); ++i)
    same += std::ranges::equal(whole.source(i), ofOther.source(i));
  EXPECT_LT(same, 100);
  // Equal lines have segmentations of their own.
  std::string copies;
  for (int i = 0; i < 50; ++i)
    copies += "abaabbab abab\n";
  lines = written("copies", copies);
  const Corpus ofCopies = epochOf(sampled(0.2, 0.2), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 0);
  std::set<std::vector<int32_t>> different;
  for (size_t i = 0; i < 10; ++i)
    different.insert(list(ofCopies.source(i)));
  EXPECT_GT(different.size(), 5u);
}

TEST_F(SampledCorpusTest, OneSideMayKeepItsBestSegmentation) {
  const Corpus corpus = sampled(0, 0.2);
  const Corpus drawn = epochOf(corpus, {0, 1, 2, 3, 4, 5, 6, 7}, 0);
  int same = 0;
  for (size_t i = 0; i < drawn.size(); ++i) {
    EXPECT_EQ(list(drawn.source(i)), list(corpus.source(i)));
    same += std::ranges::equal(drawn.labels(i), corpus.labels(i));
  }
  EXPECT_LT(same, 8);
  EXPECT_EQ(corpus.bounds().longest[XFC_SOURCE], corpus.totals().longest[XFC_SOURCE]);
  EXPECT_EQ(corpus.bounds().longest[XFC_TARGET], 4 * corpus.totals().longest[XFC_TARGET]);
}

TEST_F(SampledCorpusTest, TooLongSegmentationsAreTheBestOnes) {
  const Corpus free = sampled(0.2, 0.2);
  module.maxLength = free.totals().longest[XFC_SOURCE];
  module.maxTargetLength = free.totals().longest[XFC_TARGET];
  const Corpus corpus = sampled(0.2, 0.2);
  ASSERT_EQ(corpus.size(), free.size());
  std::vector<int64_t> all(corpus.size());
  std::iota(all.begin(), all.end(), 0);
  const Corpus drawn = epochOf(corpus, all, 0), longer = epochOf(free, all, 0);
  int replaced = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_LE(drawn.sourceLength(i), module.maxLength);
    ASSERT_LE(drawn.targetLength(i), module.maxTargetLength);
    const bool fits = longer.sourceLength(i) <= module.maxLength;
    EXPECT_EQ(list(drawn.source(i)), list(fits ? longer.source(i) : corpus.source(i)));
    replaced += !fits;
  }
  EXPECT_GT(replaced, 0);
}

// Batches are made of what was drawn, and a run that is resumed anywhere has the same ones.
TEST_F(SampledCorpusTest, BatchesHoldWhatWasDrawn) {
  const Corpus corpus = sampled(0.2, 0.2), again = sampled(0.2, 0.2, backwards);
  const Counts most = largestBatch(corpus, 100);
  Batches whole(corpus, 100, 9);
  std::vector<PairsOfCorpus> expected;
  std::vector<Batches::Position> positions;
  std::vector<int> seen(corpus.size());
  while (whole.position().epoch < 2 || whole.left() > 0) {
    positions.push_back(whole.position());
    const PairsOfCorpus &batch = expected.emplace_back(whole.next());
    int64_t sources = 0, targets = 0;
    for (const int64_t pair : batch.pairs) {
      const auto i = static_cast<size_t>(pair);
      sources += batch.corpus->sourceLength(i);
      targets += batch.corpus->targetLength(i);
      ++seen[static_cast<size_t>(batch.corpus->number(i))];
      const Corpus drawn = epochOf(corpus, {batch.corpus->number(i)}, whole.position().epoch);
      ASSERT_EQ(list(batch.corpus->source(i)), list(drawn.source(0)));
      ASSERT_EQ(list(batch.corpus->labels(i)), list(drawn.labels(0)));
      EXPECT_LE(std::max(batch.corpus->sourceLength(i), batch.corpus->targetLength(i)), most.longest);
    }
    EXPECT_TRUE(batch.pairs.size() == 1 || std::max(sources, targets) <= 100);
    EXPECT_LE(sources, most.rows[XFC_SOURCE]);
    EXPECT_LE(std::ssize(batch.pairs), most.sequences[XFC_SOURCE]);
  }
  EXPECT_EQ(std::ranges::count(seen, 3), std::ssize(seen)); // three epochs
  for (size_t from : {size_t(0), expected.size() / 2, expected.size() - 3}) {
    Batches resumed(again, 100, 9);
    ASSERT_TRUE(resumed.seek(positions[from]));
    for (size_t i = from; i < expected.size(); ++i) {
      const PairsOfCorpus &batch = resumed.next();
      ASSERT_EQ(batch.pairs, expected[i].pairs) << from << " " << i;
      for (const int64_t pair : batch.pairs) {
        const auto at = static_cast<size_t>(pair);
        ASSERT_EQ(batch.corpus->number(at), expected[i].corpus->number(at));
        ASSERT_EQ(list(batch.corpus->source(at)), list(expected[i].corpus->source(at)));
        ASSERT_EQ(list(batch.corpus->labels(at)), list(expected[i].corpus->labels(at)));
      }
    }
  }
}

// Two corpora whose epoch has several pools: each pool is drawn when its first batch is taken, and not before.
TEST_F(SampledCorpusTest, PoolsOfAMixtureAreDrawnInTurn) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += std::string(1 + i % 3, 'a') + (i % 2 ? "bab\n" : "b\n");
  lines = written("short", text);
  int draws = 0; // calls that encode pairs
  const Parallel counted = [&](int64_t count, const std::function<void(int64_t)> &work) {
    ++draws;
    oneByOne(count, work);
  };
  const Corpus corpus = sampled(0.2, 0, counted);
  const Mixture mixture{{100, 300}, {poolBlocks * blockPairs, 1000}};
  ASSERT_EQ(poolsOf(corpus, mixture), 2);
  draws = 0;
  Batches whole(corpus, 1000, 9, mixture);
  EXPECT_EQ(draws, 0);
  std::vector<PairsOfCorpus> expected;
  std::vector<Batches::Position> positions;
  std::vector<int64_t> taken(2);
  std::map<int64_t, std::vector<int32_t>> drawn; // by the number of the pair, in this epoch
  std::vector<int> drawsOfPool;
  int64_t wrong = 0;
  do {
    positions.push_back(whole.position());
    const int before = draws;
    const PairsOfCorpus &batch = expected.emplace_back(whole.next());
    if (draws > before)
      drawsOfPool.push_back(draws - before);
    for (const int64_t pair : batch.pairs) {
      const int64_t number = batch.corpus->number(pair);
      ++taken[number >= 100];
      // A pair that is repeated within the epoch, also in another pool, is segmented in the same way.
      wrong +=
          drawn.emplace(number, list(batch.corpus->source(pair))).first->second != list(batch.corpus->source(pair));
    }
  } while (!whole.endsEpoch(whole.position()));
  ASSERT_EQ(drawsOfPool.size(), 2u);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(taken, mixture.quotas);
  std::vector<int64_t> all(corpus.size());
  std::iota(all.begin(), all.end(), 0);
  const Corpus once = epochOf(corpus, all, 0);
  for (const auto &[number, ids] : drawn)
    EXPECT_EQ(ids, list(once.source(number)));
  const Corpus next = epochOf(corpus, all, 1);
  EXPECT_TRUE(std::ranges::any_of(all, [&](int64_t pair) { return list(next.source(pair)) != drawn[pair]; }));

  // A run that is resumed in the second pool draws that one alone.
  const auto second = std::ranges::find(positions, 1, &Batches::Position::pool);
  ASSERT_NE(second, positions.end());
  draws = 0;
  Batches resumed(corpus, 1000, 9, mixture);
  ASSERT_TRUE(resumed.seek(*(second + 3)));
  for (size_t i = second + 3 - positions.begin();
       i < std::min(expected.size(), size_t(second - positions.begin()) + 100); ++i) {
    const PairsOfCorpus &batch = resumed.next();
    ASSERT_EQ(batch.pairs, expected[i].pairs);
    for (const int64_t pair : batch.pairs)
      ASSERT_EQ(list(batch.corpus->source(pair)), list(expected[i].corpus->source(pair)));
  }
  EXPECT_EQ(draws, drawsOfPool[1]);
}

TEST_F(SampledCorpusTest, NeedsAVocabularyThatCanSample) {
  const Vocabulary words = Vocabulary::fromBytes("<unk>\na\nb\n", "words.txt", 20);
  const PairFiles files{{lines}, {lines}, {}};
  EXPECT_EQ(errorOf([&] {
              Corpus(std::span(&files, 1), {vocabulary, words}, module, Format::Text, {}, oneByOne, {{0.1, 0.1}, 1});
            }),
            "words.txt: --sentencepiece-alphas needs a unigram model or byte pair encoding; this vocabulary has only "
            "one segmentation of a text");
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
  std::string file = written("spm.model", model);
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

  // A shard records the vocabularies it was made with.
  Module words;
  words.sourceVocab = words.targetVocab = 80;
  const std::string text1 = written("text", "the wood\n"), shard = in("shard");
  {
    ShardWriter writer(shard, {vocabulary, vocabulary}, words, Format::Text);
    PairReader reader({{text1}, {text1}, {}}, {vocabulary, vocabulary}, words, Format::Text);
    while (reader.next([&](auto... pair) { writer.add(pair...); })) {
    }
    writer.commit(reader.totals());
  }
  EXPECT_EQ(list(Corpus({shard}, {vocabulary, vocabulary}, words).source(0)),
            list(Corpus({{text1}, {text1}, {}}, {vocabulary, vocabulary}, words, Format::Text).source(0)));
  EXPECT_EQ(Corpus({shard}, {Vocabulary(80), Vocabulary(80)}, words).size(), 1u);
  std::string other = model;
  other[other.find("house")] = 'm';
  const Vocabulary another = Vocabulary::fromBytes(other, "another.model", 80);
  EXPECT_NE(errorOf([&] {
              Corpus({shard}, {vocabulary, another}, words);
            }).find("its target was made with another vocabulary"),
            std::string::npos);

  Module module;
  module.pad = 0;
  module.eos = 3;
  vocabulary.checkTokens(module);
  Vocabulary(80).checkTokens(module);
  module.eos = 2;
  EXPECT_NE(errorOf([&] {
              vocabulary.checkTokens(module);
            }).find("spm.model: its eos token is 3, but this model was compiled for 2"),
            std::string::npos);
  module.pad = 4;
  EXPECT_NE(errorOf([&] {
              vocabulary.checkTokens(module);
            }).find("spm.model: its pad token is 0, but this model was compiled for 4"),
            std::string::npos);

  EXPECT_NE(errorOf([&] { Vocabulary(file, 100); }).find("has 80 pieces, but this model was compiled for 100"),
            std::string::npos);
  EXPECT_NE(errorOf([&] { Vocabulary(written("broken", "text"), 80); }).find("broken: not a vocabulary"),
            std::string::npos);
  EXPECT_NE(errorOf([&] { Vocabulary(20).encode("text", Format::Text, "f:1"); }).find("f:1"), std::string::npos);
  EXPECT_EQ(Vocabulary(20).decode({5, 6}, Format::Ids), "5 6");
}

} // namespace
