// Computes the offsets, positions and key lists of a batch.
#include "Shape.h"
#include <algorithm>
#include <numeric>

namespace xfc {

Shape::Shape(const std::vector<RaggedSequence> &source, const std::vector<RaggedSequence> &target, int32_t pad) {
  setRows(XFC_SOURCE, source);
  setRows(XFC_TARGET, target);
  setRows(XFC_CACHE, {});
  setKeys(XFC_SOURCE_SOURCE, XFC_SOURCE, XFC_SOURCE, pad);
  setKeys(XFC_TARGET_TARGET, XFC_TARGET, XFC_TARGET, pad);
  if (source.size() == target.size())
    setKeys(XFC_TARGET_SOURCE, XFC_TARGET, XFC_SOURCE, pad);
}

void Shape::setTraining(uint32_t key0, uint32_t key1) {
  view.training = 1;
  view.dropout_key[0] = key0;
  view.dropout_key[1] = key1;
}

void Shape::setRows(int set, const std::vector<RaggedSequence> &sequences) {
  Rows &r = rows[set];
  r = {};
  r.offsets = {0};
  for (size_t b = 0; b < sequences.size(); ++b) {
    const std::vector<int32_t> &ids = sequences[b].ids;
    r.ids.insert(r.ids.end(), ids.begin(), ids.end());
    for (size_t i = 0; i < ids.size(); ++i) {
      r.positions.push_back(static_cast<int32_t>(i));
      r.sequenceOf.push_back(static_cast<int32_t>(b));
    }
    r.offsets.push_back(static_cast<int32_t>(r.ids.size()));
    r.sentences.push_back(sequences[b].sentence);
  }
  r.byId.resize(r.ids.size());
  std::iota(r.byId.begin(), r.byId.end(), 0);
  std::stable_sort(r.byId.begin(), r.byId.end(), [&](int32_t a, int32_t b) { return r.ids[a] < r.ids[b]; });
  view.sets[set] = {static_cast<int64_t>(r.ids.size()),
                    static_cast<int64_t>(sequences.size()),
                    r.offsets.data(),
                    r.positions.data(),
                    r.sequenceOf.data(),
                    r.sentences.data(),
                    r.byId.data()};
}

void Shape::setKeys(int relation, int queries, int keys, int32_t pad) {
  const Rows &q = rows[queries], &k = rows[keys];
  for (int padding = 0; padding < 2; ++padding)
    for (int causal = 0; causal < 2; ++causal) {
      Keys list;
      for (size_t b = 0; b + 1 < q.offsets.size(); ++b) {
        list.begin.push_back(static_cast<int32_t>(list.keys.size()));
        for (int32_t j = k.offsets[b]; j < k.offsets[b + 1]; ++j)
          if (!padding || k.ids[j] != pad)
            list.keys.push_back(j);
        list.count.push_back(static_cast<int32_t>(list.keys.size()) - list.begin[b]);
      }
      for (size_t i = 0; i < q.ids.size(); ++i) {
        int32_t b = q.sequenceOf[i], limit = 0;
        while (limit < list.count[b] && (!causal || k.positions[list.keys[list.begin[b] + limit]] <= q.positions[i]))
          ++limit;
        list.limit.push_back(limit);
      }
      finish(XFC_KEYS(relation, padding, causal), std::move(list), queries);
    }
}

void Shape::finish(int structure, Keys keys, int queries) {
  const Rows &q = rows[queries];
  keys.pairOffsets = {0};
  for (size_t b = 0; b + 1 < q.offsets.size(); ++b)
    keys.pairOffsets.push_back(keys.pairOffsets.back() + int64_t(q.offsets[b + 1] - q.offsets[b]) * keys.count[b]);
  Keys &kept = structures[structure] = std::move(keys);
  view.keys[structure] = {kept.keys.data(),  kept.begin.data(),       kept.count.data(),
                          kept.limit.data(), kept.pairOffsets.data(), kept.pairOffsets.back()};
}

void Shape::setCache(int64_t cacheRows, const std::vector<std::vector<int32_t>> &history) {
  setRows(XFC_CACHE, {RaggedSequence{std::vector<int32_t>(cacheRows), 0}});
  Rows &target = rows[XFC_TARGET];
  slots.clear();
  before.clear();
  Keys list;
  for (size_t h = 0; h < history.size(); ++h) {
    list.begin.push_back(static_cast<int32_t>(list.keys.size()));
    list.count.push_back(static_cast<int32_t>(history[h].size()));
    list.limit.push_back(list.count.back());
    list.keys.insert(list.keys.end(), history[h].begin(), history[h].end());
    slots.push_back(history[h].back());
    before.push_back(history[h].size() > 1 ? history[h][history[h].size() - 2] : -1);
    target.positions[h] = list.count.back() - 1;
    // A cache row has the position of the token it holds.
    for (size_t p = 0; p < history[h].size(); ++p)
      rows[XFC_CACHE].positions[history[h][p]] = static_cast<int32_t>(p);
  }
  view.slots = slots.data();
  view.before = before.data();
  for (int mask = 0; mask < 4; ++mask)
    finish(XFC_KEYS(XFC_TARGET_CACHE, mask / 2, mask % 2), list, XFC_TARGET);
}

} // namespace xfc
