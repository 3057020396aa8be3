// Checks every structure of a batch against its definition, pair by pair.
#include "allocations.h"
#include "engine/Batch.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <random>

using namespace xfc;

namespace {

using Ids = std::vector<int32_t>;
constexpr int32_t pad = 0;

std::vector<Ids> randomIds(std::mt19937 &random, int count, bool mayBeEmpty) {
  std::vector<Ids> result;
  for (int i = 0; i < count; ++i) {
    Ids ids(random() % 7 + !mayBeEmpty);
    for (int32_t &id : ids)
      id = random() % 4; // pads at the ends and inside
    result.push_back(ids);
  }
  return result;
}

std::vector<Sequence> sequencesOf(const std::vector<Ids> &ids) {
  std::vector<Sequence> result;
  for (const Ids &each : ids)
    result.push_back({each, static_cast<int64_t>(each.size()), static_cast<uint32_t>(100 + result.size())});
  return result;
}

void expectKeys(const xfc_shape &shape, int relation, int querySet, int keySet, const std::vector<Ids> &queries,
                const std::vector<Ids> &keyIds) {
  for (int kind = 0; kind < 4; ++kind) {
    const xfc_keys &keys = shape.keys[relation * 4 + kind];
    int64_t pairs = 0;
    int32_t row = 0, keyRow = 0;
    for (size_t b = 0; b < queries.size(); ++b) {
      Ids list;
      for (size_t j = 0; j < keyIds[b].size(); ++j)
        if (!(kind & 2) || keyIds[b][j] != pad)
          list.push_back(keyRow + static_cast<int32_t>(j));
      ASSERT_EQ(keys.count[b], static_cast<int32_t>(list.size()));
      EXPECT_TRUE(std::equal(list.begin(), list.end(), keys.keys + keys.begin[b]));
      EXPECT_EQ(keys.pair_offsets[b], pairs);
      for (size_t i = 0; i < queries[b].size(); ++i, ++row) {
        int64_t visible = std::count_if(list.begin(), list.end(), [&](int32_t key) {
          return !(kind & 1) || key - keyRow <= static_cast<int32_t>(i);
        });
        EXPECT_EQ(keys.limit[row], visible) << "relation " << relation << " kind " << kind;
      }
      pairs += static_cast<int64_t>(queries[b].size() * list.size());
      keyRow += static_cast<int32_t>(keyIds[b].size());
    }
    EXPECT_EQ(keys.pairs, pairs);
    EXPECT_EQ(keys.pair_offsets[queries.size()], pairs);
  }
}

} // namespace

TEST(Batch, TeacherForcing) {
  std::mt19937 random(5);
  Batch batch; // reused, so that leftovers would be noticed
  for (int round = 0; round < 50; ++round) {
    const int count = 1 + random() % 6;
    const std::vector<Ids> sources = randomIds(random, count, true), targets = randomIds(random, count, false);
    batch.assign(sequencesOf(sources), sequencesOf(targets), pad, true);
    const xfc_shape &shape = batch.shape();
    EXPECT_EQ(shape.training, 0);
    for (int set : {XFC_SOURCE, XFC_TARGET}) {
      const xfc_rows &rows = shape.sets[set];
      const std::vector<Ids> &ids = set == XFC_SOURCE ? sources : targets;
      ASSERT_EQ(rows.sequences, count);
      int32_t row = 0;
      for (int b = 0; b < count; ++b) {
        EXPECT_EQ(rows.offsets[b], row);
        EXPECT_EQ(rows.sentences[b], 100u + b);
        for (size_t p = 0; p < ids[b].size(); ++p, ++row) {
          EXPECT_EQ(rows.positions[row], static_cast<int32_t>(p));
          EXPECT_EQ(rows.sequence_of[row], b);
          EXPECT_EQ(batch.ids(set)[row], ids[b][p]);
        }
      }
      ASSERT_EQ(rows.rows, row);
      EXPECT_EQ(rows.offsets[count], row);
      std::vector<bool> seen(row);
      for (int32_t i = 0; i < row; ++i) {
        seen[rows.by_id[i]] = true;
        if (i > 0) {
          EXPECT_LT(std::pair(batch.ids(set)[rows.by_id[i - 1]], rows.by_id[i - 1]),
                    std::pair(batch.ids(set)[rows.by_id[i]], rows.by_id[i]));
        }
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), true), row);
    }
    expectKeys(shape, XFC_SOURCE_SOURCE, XFC_SOURCE, XFC_SOURCE, sources, sources);
    expectKeys(shape, XFC_TARGET_TARGET, XFC_TARGET, XFC_TARGET, targets, targets);
    expectKeys(shape, XFC_TARGET_SOURCE, XFC_TARGET, XFC_SOURCE, targets, sources);
  }
}

TEST(Batch, DoesNotAllocateOnceWarm) {
  std::mt19937 random(3);
  Batch batch, step;
  const int32_t history[] = {0, 1, 2}, sentenceOf[] = {0, 1}, slots[] = {2, 1}, ids[] = {1, 0, 2}, rows[] = {4, 5, 6};
  const EncodedSentence sentences[] = {{ids, rows}, {ids, rows}};
  auto fill = [&](const std::vector<Sequence> &source, const std::vector<Sequence> &target) {
    batch.assign(source, target, pad, true);
    for (int32_t position : {2, 1}) {
      const int32_t positions[] = {position, position};
      const std::span<const int32_t> seen(history, static_cast<size_t>(position) + 1), histories[] = {seen, seen};
      step.assignStep(sentences, pad, 9, sentenceOf, positions, slots, histories, 9);
    }
  };
  const std::vector<Ids> large(9, Ids(50, 3)), small = randomIds(random, 9, true);
  const std::vector<Sequence> full = sequencesOf(large), ragged = sequencesOf(small);
  fill(full, full);
  const int64_t before = allocations;
  fill(ragged, full);
  fill(full, ragged);
  EXPECT_EQ(allocations, before);
}

TEST(Batch, EncoderOnlyAndRowsOfNumbers) {
  const Sequence sequences[] = {{{}, 3, 0}, {{}, 2, 1}};
  Batch batch;
  batch.assign(sequences, {}, pad, false);
  const xfc_shape &shape = batch.shape();
  EXPECT_EQ(shape.sets[XFC_SOURCE].rows, 5);
  EXPECT_EQ(shape.sets[XFC_SOURCE].by_id, nullptr);
  EXPECT_EQ(shape.sets[XFC_TARGET].rows, 0);
  const xfc_keys &keys = shape.keys[XFC_KEYS(XFC_SOURCE_SOURCE, 1, 0)];
  EXPECT_EQ(keys.pairs, 9 + 4); // without ids there are no pads
  EXPECT_EQ(keys.limit[4], 2);
}

TEST(Batch, DecodingStep) {
  const std::vector<Ids> sources = {{1, 0, 2}, {3}, {2, 2, 0, 1, 1}};
  // The rows of a sentence may lie anywhere; sentence 1 does not run.
  const std::vector<Ids> rows = {{7, 3, 4}, {}, {0, 1, 2, 8, 5}};
  std::vector<EncodedSentence> sentences;
  for (size_t s = 0; s < sources.size(); ++s)
    sentences.push_back({sources[s], rows[s]});
  Batch step;
  // Hypotheses of sentences 2, 2 and 0; the first two histories share their beginning.
  const Ids sentenceOf = {2, 2, 0}, positions = {2, 1, 0}, slots = {9, 8, 4};
  const int32_t first[] = {1, 5, 9}, second[] = {1, 8}, third[] = {4};
  const std::span<const int32_t> histories[] = {first, second, third};
  const Ids before = {5, 1, -1};
  for (int round = 0; round < 2; ++round) {
    step.assignStep(sentences, pad, 9, sentenceOf, positions, slots, histories, 12);
    const xfc_shape &shape = step.shape();
    EXPECT_EQ(shape.sets[XFC_TARGET].rows, 3);
    EXPECT_EQ(shape.sets[XFC_TARGET].sequences, 3);
    EXPECT_EQ(shape.sets[XFC_CACHE].rows, 12);
    EXPECT_EQ(shape.sets[XFC_SOURCE].rows, 9);
    for (int h = 0; h < 3; ++h) {
      EXPECT_EQ(shape.slots[h], slots[h]);
      EXPECT_EQ(shape.before[h], before[h]);
      EXPECT_EQ(shape.sets[XFC_TARGET].positions[h], positions[h]);
      EXPECT_EQ(shape.sets[XFC_TARGET].sequence_of[h], h);
      for (int kind = 0; kind < 4; ++kind) {
        const xfc_keys &cache = shape.keys[XFC_TARGET_CACHE * 4 + kind];
        EXPECT_EQ(Ids(cache.keys + cache.begin[h], cache.keys + cache.begin[h] + cache.limit[h]),
                  Ids(histories[h].begin(), histories[h].end()));
        const xfc_keys &cross = shape.keys[XFC_TARGET_SOURCE * 4 + kind];
        const Ids &source = sources[sentenceOf[h]];
        Ids visible, listed;
        for (int32_t p = 0; p < static_cast<int32_t>(source.size()); ++p)
          if (!(kind & 2) || source[p] != pad) {
            listed.push_back(rows[sentenceOf[h]][p]);
            if (!(kind & 1) || p <= positions[h])
              visible.push_back(listed.back());
          }
        EXPECT_EQ(Ids(cross.keys + cross.begin[h], cross.keys + cross.begin[h] + cross.count[h]), listed)
            << "kind " << kind;
        EXPECT_EQ(Ids(cross.keys + cross.begin[h], cross.keys + cross.begin[h] + cross.limit[h]), visible)
            << "kind " << kind;
      }
    }
    EXPECT_EQ(shape.keys[XFC_KEYS(XFC_TARGET_CACHE, 1, 1)].pairs, 6);
    EXPECT_EQ(shape.keys[XFC_KEYS(XFC_TARGET_SOURCE, 1, 0)].pairs, 4 + 4 + 2);
  }
}
