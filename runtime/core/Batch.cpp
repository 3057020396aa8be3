// Batches as structure: offsets, positions, and which keys each query sees.
#include "Batch.h"
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
      // Not std::stable_sort, which allocates.
      std::sort(rows.byId.begin(), rows.byId.end(),
                [&](int32_t a, int32_t b) { return rows.ids[a] != rows.ids[b] ? rows.ids[a] < rows.ids[b] : a < b; });
    }
    view.sets[set] = {static_cast<int64_t>(rows.positions.size()), static_cast<int64_t>(rows.sentences.size()), rows.offsets.data(),
                      rows.positions.data(), rows.sequenceOf.data(), rows.sentences.data(), withOrder ? rows.byId.data() : nullptr};
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
                                   static_cast<int64_t>(queries.offsets[b + 1] - queries.offsets[b]) * static_cast<int64_t>(count));
      }
      view.keys[relation * 4 + kind] = {keys.keys.data(), keys.begin.data(), keys.count.data(), keys.limit.data(),
                                        keys.pairOffsets.data(), keys.pairOffsets.back()};
    }
  }
}

void Batch::assignStep(const Batch &encoded, std::span<const int32_t> sentenceOf, std::span<const int32_t> positions,
                       std::span<const int32_t> slots, std::span<const int32_t *const> history, int64_t cacheRows) {
  const size_t live = sentenceOf.size();
  view = {};
  view.sets[XFC_SOURCE] = encoded.view.sets[XFC_SOURCE];
  Rows &target = storage[XFC_TARGET];
  target.positions.assign(positions.begin(), positions.end());
  target.offsets.resize(live + 1);
  std::iota(target.offsets.begin(), target.offsets.end(), 0);
  target.sequenceOf.resize(live);
  std::iota(target.sequenceOf.begin(), target.sequenceOf.end(), 0);
  target.sentences.assign(live, 0);
  view.sets[XFC_TARGET] = {static_cast<int64_t>(live),    static_cast<int64_t>(live), target.offsets.data(), target.positions.data(),
                           target.sequenceOf.data(), target.sentences.data(),    nullptr};
  // Nothing asks where a cache row is in its sequence: lists are in order already.
  view.sets[XFC_CACHE] = {cacheRows, 0, nullptr, nullptr, nullptr, nullptr, nullptr};
  slotStorage.assign(slots.begin(), slots.end());
  view.slots = slotStorage.data();

  // A hypothesis holds no pads, and everything before it is visible: one list serves all four kinds.
  Keys &cache = structures[XFC_KEYS(XFC_TARGET_CACHE, 0, 0)];
  cache.keys.clear();
  cache.begin.clear();
  cache.count.clear();
  cache.pairOffsets.assign(1, 0);
  for (size_t h = 0; h < live; ++h) {
    cache.begin.push_back(static_cast<int32_t>(cache.keys.size()));
    cache.count.push_back(positions[h] + 1);
    cache.keys.insert(cache.keys.end(), history[h], history[h] + positions[h] + 1);
    cache.pairOffsets.push_back(cache.pairOffsets.back() + positions[h] + 1);
  }
  for (int kind = 0; kind < 4; ++kind)
    view.keys[XFC_TARGET_CACHE * 4 + kind] = {cache.keys.data(), cache.begin.data(), cache.count.data(), cache.count.data(),
                                              cache.pairOffsets.data(), cache.pairOffsets.back()};

  // Hypotheses of a sentence share its list of source rows.
  for (int kind = 0; kind < 4; ++kind) {
    const bool padding = kind & 2, causal = kind & 1;
    const xfc_keys &lists = encoded.view.keys[XFC_KEYS(XFC_SOURCE_SOURCE, padding, 0)];
    Keys &keys = structures[XFC_TARGET_SOURCE * 4 + kind];
    keys.begin.clear();
    keys.count.clear();
    keys.limit.clear();
    keys.pairOffsets.assign(1, 0);
    for (size_t h = 0; h < live; ++h) {
      const int32_t begin = lists.begin[sentenceOf[h]], count = lists.count[sentenceOf[h]];
      int32_t visible = count;
      if (causal) {
        visible = 0;
        while (visible < count && encoded.view.sets[XFC_SOURCE].positions[lists.keys[begin + visible]] <= positions[h])
          ++visible;
      }
      keys.begin.push_back(begin);
      keys.count.push_back(count);
      keys.limit.push_back(visible);
      keys.pairOffsets.push_back(keys.pairOffsets.back() + count);
    }
    view.keys[XFC_TARGET_SOURCE * 4 + kind] = {lists.keys, keys.begin.data(), keys.count.data(), keys.limit.data(),
                                               keys.pairOffsets.data(), keys.pairOffsets.back()};
  }
}

} // namespace xfc
