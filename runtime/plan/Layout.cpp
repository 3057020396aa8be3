// The layout of the arena in which a program's buffers lie.
#include "plan/Layout.h"
#include "plan/Memory.h"
#include <algorithm>
#include <numeric>

namespace xfc {

// Rounded up to whole cache lines.
static int64_t sizeOf(const Buffer &buffer, const Counts &counts) {
  const int64_t bytes = evaluate(buffer.size, counts);
  if (bytes > largestSize)
    tooLarge();
  return (bytes + 63) / 64 * 64;
}

// Places buffers largest first, each at the lowest offset where it overlaps no buffer that is live at the same time.
static Layout place(const Program &program, const std::vector<int64_t> &sizes) {
  const size_t n = program.buffers.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  Layout layout;
  layout.offsets.assign(n, 0);
  std::vector<size_t> placed; // in order of their offsets
  for (size_t i : order) {
    if (sizes[i] == 0)
      continue;
    int64_t offset = 0;
    for (size_t other : placed) {
      const Buffer &a = program.buffers[i], &b = program.buffers[other];
      if (a.last < b.first || b.last < a.first)
        continue;
      if (layout.offsets[other] >= offset + sizes[i])
        break; // fits before this one, and the rest start later still
      offset = std::max(offset, layout.offsets[other] + sizes[other]);
    }
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + sizes[i]);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) { return layout.offsets[a] < layout.offsets[b]; }),
                  i);
  }
  return layout;
}

Layout plan(const Program &program, const Counts &counts) {
  const size_t n = program.buffers.size();
  std::vector<int64_t> sizes(n);
  if (!program.rowByRow) {
    for (size_t i = 0; i < n; ++i)
      sizes[i] = sizeOf(program.buffers[i], counts);
    return place(program, sizes);
  }
  Counts one;
  one.rows[XFC_TARGET] = 1;
  std::vector<bool> result(n);
  for (const Output &output : program.outputs)
    if (output.place.kind == Place::Kind::Arena)
      result[output.place.index] = true;
  for (size_t i = 0; i < n; ++i)
    sizes[i] = result[i] ? 0 : sizeOf(program.buffers[i], one);
  Layout layout = place(program, sizes);
  layout.rows = counts.rows[XFC_TARGET];
  layout.rowBytes = layout.bytes;
  layout.bytes = product({layout.rows, layout.rowBytes});
  for (size_t i = 0; i < n; ++i) {
    layout.offsets[i] = result[i] ? layout.bytes : layout.offsets[i] * layout.rows;
    if (result[i])
      layout.bytes += sizeOf(program.buffers[i], counts);
  }
  return layout;
}

int64_t Layout::offsetOf(int64_t buffer, int64_t width, int64_t first, int64_t count) const {
  const int64_t offset = offsets[buffer], all = rows * rowBytes;
  return offset < all ? first * rowBytes + offset / rows * count : offset + first * width;
}

} // namespace xfc
