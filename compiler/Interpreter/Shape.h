// Turns sequences into the xfc_shape that ops are evaluated with.
#pragma once

#include "xfc/abi.h"
#include <cstdint>
#include <vector>

namespace xfc {

// One sequence: its token ids (arbitrary if rows are floats), and its index in the epoch, on which dropout depends.
struct RaggedSequence {
  std::vector<int32_t> ids;
  uint32_t sentence = 0;
};

// A batch, written for clarity, not speed; the runtime has its own implementation. Owns what `shape()` points to.
class Shape {
public:
  // Sequence b of `target` attends to sequence b of `source`. Ids equal to `pad` are dropped from the keys of
  // structures that drop padding.
  Shape(const std::vector<RaggedSequence> &source, const std::vector<RaggedSequence> &target, int32_t pad);

  // Makes the target rows hypotheses of a decoding step: row h sees the cache rows history[h] and writes the last one;
  // in the step before, it wrote the last but one.
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
  // Lets each query sequence see the keys of the same sequence. Both sets must have the same number of sequences.
  void setKeys(int relation, int queries, int keys, int32_t pad);
  void finish(int structure, Keys keys, int queries);

  Rows rows[XFC_ROW_SETS];
  Keys structures[XFC_KEY_STRUCTURES];
  std::vector<int32_t> slots, before;
  xfc_shape view{};
};

} // namespace xfc
