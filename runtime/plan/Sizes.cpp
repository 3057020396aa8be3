// Sizes that depend on a batch, and the counts of a batch with which they are evaluated.
#include "plan/Sizes.h"
#include "plan/Memory.h"
#include <algorithm>
#include <functional>
#include <numeric>

namespace xfc {

Counts countsOf(const xfc_shape &shape) {
  Counts counts;
  for (int set = 0; set < XFC_ROW_SETS; ++set) {
    const xfc_rows &rows = shape.sets[set];
    counts.rows[set] = rows.rows;
    counts.sequences[set] = rows.sequences;
    for (int64_t i = 0; rows.positions && i < rows.rows; ++i)
      counts.longest = std::max<int64_t>(counts.longest, rows.positions[i] + 1);
  }
  for (int i = 0; i < XFC_KEY_STRUCTURES; ++i)
    counts.pairs[i] = shape.keys[i].pairs;
  return counts;
}

int64_t elementsOf(const std::vector<int64_t> &shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
}

Counts larger(const Counts &a, const Counts &b) {
  Counts counts = a;
  for (int set = 0; set < XFC_ROW_SETS; ++set) {
    counts.rows[set] = std::max(a.rows[set], b.rows[set]);
    counts.sequences[set] = std::max(a.sequences[set], b.sequences[set]);
  }
  for (int keys = 0; keys < XFC_KEY_STRUCTURES; ++keys)
    counts.pairs[keys] = std::max(a.pairs[keys], b.pairs[keys]);
  counts.longest = std::max(a.longest, b.longest);
  return counts;
}

bool within(const Counts &counts, const Counts &limit) {
  for (int set = 0; set < XFC_ROW_SETS; ++set)
    if (counts.rows[set] > limit.rows[set] || counts.sequences[set] > limit.sequences[set])
      return false;
  for (int keys = 0; keys < XFC_KEY_STRUCTURES; ++keys)
    if (counts.pairs[keys] > limit.pairs[keys])
      return false;
  return true;
}

int64_t evaluate(const Size &size, const Counts &counts) {
  int64_t total = size.constant;
  auto add = [&](int64_t coefficient, int64_t count) {
    if (int64_t term; __builtin_mul_overflow(coefficient, count, &term) || __builtin_add_overflow(total, term, &total))
      tooLarge();
  };
  for (int i = 0; i < XFC_ROW_SETS; ++i) {
    add(size.rows[i], counts.rows[i]);
    add(size.sequences[i], counts.sequences[i]);
    if (counts.rows[i] > chunkRows)
      add(size.chunks[i], (counts.rows[i] - 1) / chunkRows + 1);
  }
  for (int i = 0; i < XFC_KEY_STRUCTURES; ++i)
    add(size.pairs[i], counts.pairs[i]);
  return total;
}

} // namespace xfc
