// How ranks share the sum of their gradients and the optimizer's work.
#include "plan/Sharding.h"
#include "plan/Programs.h"
#include <algorithm>
#include <map>
#include <numeric>

namespace xfc {

int64_t sizeOf(const std::vector<Range> &ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), int64_t(0),
                         [](int64_t sum, const Range &range) { return sum + range.size(); });
}

namespace {

// The gradients that a step touches begin where its places say, and end before those that any other step's place
// begins with: a place may cover several parameters that are computed together.
struct Touched {
  Range range;
  int64_t last; // the last step that touches them
};

std::vector<Touched> gradientsTouched(const Module &module, const Program &program) {
  const int64_t element = bytesOf(module.type);
  std::map<int64_t, int64_t> lasts; // by the first element
  for (size_t step = 0; step < program.steps.size(); ++step)
    for (const Place &place : program.steps[step].buffers)
      if (place.kind == Place::Kind::Gradients)
        lasts[place.offset / element] = static_cast<int64_t>(step);
  std::vector<Touched> touched;
  for (const auto &[begin, last] : lasts) {
    if (!touched.empty())
      touched.back().range.end = begin;
    touched.push_back({{begin, module.parameterElements}, last});
  }
  return touched;
}

// Adjacent parts become one range.
void append(std::vector<Range> &ranges, const Range &range) {
  if (!ranges.empty() && ranges.back().end == range.begin)
    ranges.back().end = range.end;
  else if (range.size() > 0)
    ranges.push_back(range);
}

} // namespace

Sharding::Sharding(const Module &module, int ranks, int64_t bucketElements) : owned(ranks) {
  const Program &program = *module.find(programs::lossAndGradients);
  const std::vector<Touched> touched = gradientsTouched(module, program);

  struct Part {
    Range range;
    int64_t step; // before which it is complete
  };
  std::vector<Part> parts;
  for (int64_t begin = 0; begin < module.parameterElements; begin += squarePart) {
    Part part{{begin, std::min(begin + squarePart, module.parameterElements)}, 0};
    for (const Touched &one : touched)
      if (one.range.begin < part.range.end && part.range.begin < one.range.end)
        part.step = std::max(part.step, one.last + 1);
    parts.push_back(part);
  }
  // The backward pass completes the last parameters first.
  std::ranges::stable_sort(parts, [](const Part &a, const Part &b) {
    return a.step != b.step ? a.step < b.step : a.range.begin > b.range.begin;
  });
  const size_t count = parts.size(),
               most = std::clamp<size_t>(count / 8, 1, std::max<int64_t>(bucketElements / squarePart, 1));
  for (size_t begin = 0; begin < count; begin += most) {
    const size_t end = std::min(begin + most, count);
    Bucket bucket{parts[end - 1].step, std::vector<std::vector<Range>>(ranks)};
    std::sort(parts.begin() + static_cast<int64_t>(begin), parts.begin() + static_cast<int64_t>(end),
              [](const Part &a, const Part &b) { return a.range.begin < b.range.begin; });
    // If the parts cannot be dealt equally, another rank gets one more in the next bucket.
    const size_t turn = inOrder.size() % ranks;
    for (size_t i = 0; i < static_cast<size_t>(ranks); ++i) {
      const size_t rank = (i + turn) % ranks, size = end - begin;
      for (size_t part = begin + size * i / ranks; part < begin + size * (i + 1) / ranks; ++part) {
        append(bucket.shares[rank], parts[part].range);
        owned[rank].push_back(parts[part].range);
      }
    }
    inOrder.push_back(std::move(bucket));
  }
  for (std::vector<Range> &ranges : owned) {
    std::ranges::sort(ranges, {}, &Range::begin);
    std::vector<Range> joined;
    for (const Range &range : ranges)
      append(joined, range);
    ranges = std::move(joined);
  }
}

int64_t Sharding::largestShare() const {
  int64_t largest = 0;
  for (const std::vector<Range> &ranges : owned)
    largest = std::max(largest, sizeOf(ranges));
  return largest;
}

} // namespace xfc
