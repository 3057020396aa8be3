// Lengths of sequences into the xfc_shape that ops are evaluated on.
#pragma once

#include "xfc/abi.h"
#include <cstdint>
#include <vector>

namespace xfc {

// One sequence: its token ids (any, where rows are floats), and its index in the epoch, which keys dropout.
struct RaggedSequence {
  std::vector<int32_t> ids;
  uint32_t sentence = 0;
};

// A batch written for reading, not for speed; the runtime has its own. Owns what `shape()` points to.
class Shape {
public:
  // Sequence b of `target` attends to sequence b of `source`. Ids equal to `pad` are dropped from the keys of
  // structures that drop padding.
  Shape(const std::vector<RaggedSequence> &source, const std::vector<RaggedSequence> &target, int32_t pad);

  // Target rows are hypotheses of a decoding step: row h sees the cache rows history[h], the last of which it writes.
  void setCache(int64_t cacheRows, const std::vector<std::vector<int32_t>> &history);
  void setTraining(uint32_t key0, uint32_t key1);

  Shape(const Shape &) = delete;
  Shape &operator=(const Shape &) = delete;

  const xfc_shape &shape() const { return view; }

private:
  struct Rows {
    std::vector<int32_t> ids, offsets, positions, sequenceOf, byId;
    std::vector<uint32_t> sentences;
  };
  struct Keys {
    std::vector<int32_t> keys, begin, count, limit;
    std::vector<int64_t> pairOffsets;
  };
  void setRows(int set, const std::vector<RaggedSequence> &sequences);
  // Where both sets have as many sequences: keys of each query sequence are those of the same sequence.
  void setKeys(int relation, int queries, int keys, int32_t pad);
  void finish(int structure, Keys keys, int queries);

  Rows rows[XFC_ROW_SETS];
  Keys structures[XFC_KEY_STRUCTURES];
  std::vector<int32_t> slots;
  xfc_shape view{};
};

} // namespace xfc
