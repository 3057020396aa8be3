// The layout of the arena in which a program's buffers lie.
#include "plan/Layout.h"
#include "plan/Memory.h"
#include "plan/Programs.h"
#include <algorithm>
#include <numeric>

namespace xfc {
namespace {

// Rounded up to whole cache lines.
int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int64_t sizeOf(const Buffer &buffer, const Counts &counts) {
  const int64_t bytes = evaluate(buffer.size, counts);
  if (bytes > largestSize)
    tooLarge();
  return rounded(bytes);
}

// Memory that is taken from one step to another.
struct Taken {
  int64_t begin, end;
  int32_t first, last;
};

// Places buffers largest first, each at the lowest offset where it overlaps nothing that is live at the same time.
// `taken` has what is placed already, by ascending beginnings.
Layout place(const Program &program, const std::vector<int64_t> &sizes, std::vector<Taken> taken) {
  const size_t n = program.buffers.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  Layout layout;
  layout.offsets.assign(n, 0);
  for (const Taken &other : taken)
    layout.bytes = std::max(layout.bytes, rounded(other.end));
  for (size_t i : order) {
    if (sizes[i] == 0)
      continue;
    const Buffer &buffer = program.buffers[i];
    int64_t offset = 0;
    for (const Taken &other : taken) {
      if (buffer.last < other.first || other.last < buffer.first)
        continue;
      if (other.begin >= offset + sizes[i])
        break; // fits before this one, and the rest start later still
      offset = std::max(offset, rounded(other.end));
    }
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + sizes[i]);
    const Taken own = {offset, offset + sizes[i], buffer.first, buffer.last};
    taken.insert(std::ranges::upper_bound(taken, offset, {}, &Taken::begin), own);
  }
  return layout;
}

} // namespace

std::vector<GradientPart> gradientsOf(const Module &module, const Program &program) {
  const auto isGradient = [](const Place &place) { return place.kind == Place::Kind::Gradients; };
  const auto uses = [&](const Step &step) { return std::ranges::any_of(step.buffers, isGradient); };
  if (std::ranges::none_of(program.steps, uses) && std::ranges::none_of(program.outputs, isGradient, &Output::place))
    return {};
  const int64_t block = module.parameterElements * bytesOf(module.type);
  if (!program.is(programs::lossAndGradients))
    return {{0, block, 0}};
  // Each step takes what it computes from what no step before it does.
  std::vector<GradientPart> parts, missing = {{0, block, GradientPart::never}};
  for (size_t step = 0; step < program.steps.size(); ++step)
    for (const LaunchResult &result : program.steps[step].results) {
      const Place &place = program.steps[step].buffers[static_cast<size_t>(result.buffer)];
      if (place.kind != Place::Kind::Gradients)
        continue;
      const int64_t begin = place.offset, end = std::min(begin + result.width * bytesOf(result.type), block);
      std::vector<GradientPart> rest;
      for (const GradientPart &part : missing) {
        const int64_t from = std::max(begin, part.begin), to = std::min(end, part.end);
        if (from >= to) {
          rest.push_back(part);
          continue;
        }
        parts.push_back({from, to, static_cast<int32_t>(step)});
        if (part.begin < from)
          rest.push_back({part.begin, from, part.first});
        if (to < part.end)
          rest.push_back({to, part.end, part.first});
      }
      missing = std::move(rest);
    }
  parts.insert(parts.end(), missing.begin(), missing.end());
  std::ranges::sort(parts, {}, &GradientPart::begin);
  return parts;
}

Layout plan(const Module &module, const Program &program, const Counts &counts) {
  const size_t n = program.buffers.size();
  std::vector<int64_t> sizes(n);
  if (!program.rowByRow) {
    for (size_t i = 0; i < n; ++i)
      sizes[i] = sizeOf(program.buffers[i], counts);
    std::vector<Taken> gradients;
    for (const GradientPart &part : gradientsOf(module, program)) // until the end, and after it
      gradients.push_back({part.begin, part.end, std::max(part.first, 0), static_cast<int32_t>(program.steps.size())});
    return place(program, sizes, std::move(gradients));
  }
  Counts one;
  one.rows[XFC_TARGET] = 1;
  std::vector<bool> result(n);
  for (const Output &output : program.outputs)
    if (output.place.kind == Place::Kind::Arena)
      result[output.place.index] = true;
  for (size_t i = 0; i < n; ++i)
    sizes[i] = result[i] ? 0 : sizeOf(program.buffers[i], one);
  Layout layout = place(program, sizes, {});
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
