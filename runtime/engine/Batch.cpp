// Builds batches: offsets, positions, and which keys each query sees.
#include "engine/Batch.h"
#include <algorithm>
#include <numeric>

namespace xfc {

void Batch::assign(std::span<const Sequence> source, std::span<const Sequence> target, int32_t pad, bool withOrder) {
  view = {};
  std::span<const Sequence> sequences[] = {source, target};
  for (int set : {XFC_SOURCE, XFC_TARGET}) {
    Rows &rows = storage[set];
    rows.ids.clear();
    rows.positions.clear();
    rows.sequenceOf.clear();
    rows.byId.clear();
    rows.sentences.clear();
    rows.offsets.assign(1, 0);
    for (const Sequence &sequence : sequences[set]) {
      const int64_t length = sequence.ids.empty() ? sequence.length : static_cast<int64_t>(sequence.ids.size());
      rows.ids.insert(rows.ids.end(), sequence.ids.begin(), sequence.ids.end());
      for (int64_t p = 0; p < length; ++p) {
        rows.positions.push_back(static_cast<int32_t>(p));
        rows.sequenceOf.push_back(static_cast<int32_t>(rows.sentences.size()));
      }
      rows.sentences.push_back(sequence.sentence);
      rows.offsets.push_back(rows.offsets.back() + static_cast<int32_t>(length));
    }
    if (withOrder) {
      rows.byId.resize(rows.ids.size());
      std::iota(rows.byId.begin(), rows.byId.end(), 0);
      // std::stable_sort would allocate.
      std::sort(rows.byId.begin(), rows.byId.end(),
                [&](int32_t a, int32_t b) { return rows.ids[a] != rows.ids[b] ? rows.ids[a] < rows.ids[b] : a < b; });
    }
    view.sets[set] = {static_cast<int64_t>(rows.positions.size()),
                      static_cast<int64_t>(rows.sentences.size()),
                      rows.offsets.data(),
                      rows.positions.data(),
                      rows.sequenceOf.data(),
                      rows.sentences.data(),
                      withOrder ? rows.byId.data() : nullptr};
  }

  constexpr int relations[][3] = {{XFC_SOURCE_SOURCE, XFC_SOURCE, XFC_SOURCE},
                                  {XFC_TARGET_TARGET, XFC_TARGET, XFC_TARGET},
                                  {XFC_TARGET_SOURCE, XFC_TARGET, XFC_SOURCE}};
  for (auto [relation, querySet, keySet] : relations) {
    const Rows &queries = storage[querySet], &rows = storage[keySet];
    for (int kind = 0; kind < 4; ++kind) {
      const bool padding = kind & 2, causal = kind & 1;
      Keys &keys = structures[relation * 4 + kind];
      keys.keys.clear();
      keys.begin.clear();
      keys.count.clear();
      keys.limit.clear();
      keys.pairOffsets.assign(1, 0);
      for (size_t b = 0; b < queries.sentences.size(); ++b) {
        const size_t begin = keys.keys.size();
        if (b < rows.sentences.size())
          for (int32_t row = rows.offsets[b]; row < rows.offsets[b + 1]; ++row)
            if (!padding || rows.ids.empty() || rows.ids[row] != pad)
              keys.keys.push_back(row);
        const size_t count = keys.keys.size() - begin;
        keys.begin.push_back(static_cast<int32_t>(begin));
        keys.count.push_back(static_cast<int32_t>(count));
        size_t visible = causal ? 0 : count;
        for (int32_t query = queries.offsets[b]; query < queries.offsets[b + 1]; ++query) {
          while (causal && visible < count && rows.positions[keys.keys[begin + visible]] <= queries.positions[query])
            ++visible;
          keys.limit.push_back(static_cast<int32_t>(visible));
        }
        keys.pairOffsets.push_back(keys.pairOffsets.back() +
                                   static_cast<int64_t>(queries.offsets[b + 1] - queries.offsets[b]) *
                                       static_cast<int64_t>(count));
      }
      view.keys[relation * 4 + kind] = {keys.keys.data(),  keys.begin.data(),       keys.count.data(),
                                        keys.limit.data(), keys.pairOffsets.data(), keys.pairOffsets.back()};
    }
  }
}

void Batch::assignStep(std::span<const EncodedSentence> sentences, int32_t pad, int64_t sourceRows,
                       std::span<const int32_t> sentenceOf, std::span<const int32_t> positions,
                       std::span<const int32_t> slots, std::span<const std::span<const int32_t>> history,
                       int64_t cacheRows) {
  const size_t live = sentenceOf.size();
  view = {};
  // No kernel reads offsets or positions of kept rows: key lists are in order already.
  view.sets[XFC_SOURCE] = {sourceRows, 0, nullptr, nullptr, nullptr, nullptr, nullptr};
  view.sets[XFC_CACHE] = {cacheRows, 0, nullptr, nullptr, nullptr, nullptr, nullptr};
  Rows &target = storage[XFC_TARGET];
  target.positions.assign(positions.begin(), positions.end());
  target.offsets.resize(live + 1);
  std::iota(target.offsets.begin(), target.offsets.end(), 0);
  target.sequenceOf.resize(live);
  std::iota(target.sequenceOf.begin(), target.sequenceOf.end(), 0);
  target.sentences.assign(live, 0);
  view.sets[XFC_TARGET] = {static_cast<int64_t>(live),
                           static_cast<int64_t>(live),
                           target.offsets.data(),
                           target.positions.data(),
                           target.sequenceOf.data(),
                           target.sentences.data(),
                           nullptr};
  slotStorage.assign(slots.begin(), slots.end());
  view.slots = slotStorage.data();
  beforeStorage.clear();
  for (std::span<const int32_t> rows : history)
    beforeStorage.push_back(rows.size() > 1 ? rows[rows.size() - 2] : -1);
  view.before = beforeStorage.data();

  auto clear = [&](Keys &lists) {
    lists.keys.clear();
    lists.begin.clear();
    lists.count.clear();
    lists.limit.clear();
    lists.pairOffsets.assign(1, 0);
  };
  auto addQuery = [](Keys &lists, int32_t begin, int32_t count, int32_t limit) {
    lists.begin.push_back(begin);
    lists.count.push_back(count);
    lists.limit.push_back(limit);
    lists.pairOffsets.push_back(lists.pairOffsets.back() + count);
  };
  auto show = [&](int structure, const Keys &lists, const Keys &queries) {
    view.keys[structure] = {lists.keys.data(),    queries.begin.data(),       queries.count.data(),
                            queries.limit.data(), queries.pairOffsets.data(), queries.pairOffsets.back()};
  };

  // A hypothesis has no pads, and sees everything before it: one list serves all four kinds.
  Keys &cache = structures[XFC_KEYS(XFC_TARGET_CACHE, 0, 0)];
  clear(cache);
  for (size_t h = 0; h < live; ++h) {
    const auto count = static_cast<int32_t>(history[h].size());
    addQuery(cache, static_cast<int32_t>(cache.keys.size()), count, count);
    cache.keys.insert(cache.keys.end(), history[h].begin(), history[h].end());
  }
  for (int kind = 0; kind < 4; ++kind)
    show(XFC_TARGET_CACHE * 4 + kind, cache, cache);

  // Hypotheses of a sentence share its list of source rows; the causal kinds see a prefix of it.
  for (int padding = 0; padding < 2; ++padding) {
    Keys &lists = structures[XFC_KEYS(XFC_TARGET_SOURCE, padding, 0)],
         &causal = structures[XFC_KEYS(XFC_TARGET_SOURCE, padding, 1)];
    clear(lists);
    clear(causal);
    for (size_t h = 0; h < live; ++h) {
      const EncodedSentence &sentence = sentences[sentenceOf[h]];
      const bool sameSentence = h > 0 && sentenceOf[h] == sentenceOf[h - 1];
      const int32_t begin = sameSentence ? lists.begin.back() : static_cast<int32_t>(lists.keys.size());
      for (size_t i = 0; !sameSentence && i < sentence.ids.size(); ++i)
        if (!padding || sentence.ids[i] != pad)
          lists.keys.push_back(sentence.rows[i]);
      const int32_t count = static_cast<int32_t>(lists.keys.size()) - begin;
      const auto reached = std::min<size_t>(sentence.ids.size(), positions[h] + 1);
      const auto pads = padding ? std::count(sentence.ids.begin(), sentence.ids.begin() + reached, pad) : 0;
      addQuery(lists, begin, count, count);
      addQuery(causal, begin, count, static_cast<int32_t>(reached - pads));
    }
    show(XFC_KEYS(XFC_TARGET_SOURCE, padding, 0), lists, lists);
    show(XFC_KEYS(XFC_TARGET_SOURCE, padding, 1), lists, causal);
  }
}

} // namespace xfc
