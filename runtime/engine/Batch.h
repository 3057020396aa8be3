// Turns sequences into the xfc_shape that kernels read: offsets, positions and key lists, without padding.
#pragma once

#include "plan/Plan.h"
#include <cstdint>
#include <span>
#include <vector>

namespace xfc {

// One sequence of a row set: its ids (none for float rows, which have a length only) and its place in the epoch.
struct Sequence {
  std::span<const int32_t> ids;
  int64_t length = 0;    // = ids.size() unless float rows
  uint32_t sentence = 0; // keys dropout
};

// A source sentence whose encoded rows are kept while it is decoded: its ids, and the row of each.
struct EncodedSentence {
  std::span<const int32_t> ids, rows;
};

// Owns the arrays that an xfc_shape points to. Reused from batch to batch without reallocation once warm.
class Batch {
public:
  // Teacher forcing: sequence b of target attends to sequence b of source. `target` may be empty (encoder only). `pad`
  // ids have rows, but are not keys in structures that drop padding. Fills every key structure among SOURCE_SOURCE,
  // TARGET_TARGET, TARGET_SOURCE. `withOrder` fills xfc_rows.by_id (training).
  void assign(std::span<const Sequence> source, std::span<const Sequence> target, int32_t pad, bool withOrder);

  // A decoding step over live hypotheses. Hypothesis h belongs to sentences[sentenceOf[h]], is at position positions[h]
  // (from 0), writes to cache row slots[h], and sees the cache rows history[h], the last of which is slots[h]. These
  // are the rows of all its tokens or, if the program reads no others, of the last two. Hypotheses of a sentence must
  // be adjacent. `sourceRows` and `cacheRows` are the numbers of all rows that are kept.
  void assignStep(std::span<const EncodedSentence> sentences, int32_t pad, int64_t sourceRows,
                  std::span<const int32_t> sentenceOf, std::span<const int32_t> positions,
                  std::span<const int32_t> slots, std::span<const std::span<const int32_t>> history, int64_t cacheRows);

  const xfc_shape &shape() const { return view; }
  xfc_shape &shape() { return view; }
  // The concatenated ids of a set, to which the inputs "source" and "target" are bound.
  std::vector<int32_t> &ids(int set) { return storage[set].ids; }

private:
  struct Rows {
    std::vector<int32_t> ids, offsets, positions, sequenceOf, byId;
    std::vector<uint32_t> sentences;
  };
  struct Keys {
    std::vector<int32_t> keys, begin, count, limit;
    std::vector<int64_t> pairOffsets;
  };
  Rows storage[XFC_ROW_SETS];
  Keys structures[XFC_KEY_STRUCTURES];
  std::vector<int32_t> slotStorage, beforeStorage;
  xfc_shape view{};
};

} // namespace xfc
