// Fuzzes the plan that the compiler stores in an executable. The seed input is the model of the commands' tests.
#include "plan/Plan.h"
#include "../Fuzz.h"
#include "plan/Layout.h"
#include "plan/Memory.h"
#include "plan/Serialization.h"
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::expectOnlyErrors([&] {
    const Module module = deserialize(data, size);
    fuzz::expect(serialize(module) == std::vector<uint8_t>(data, data + size), "what is read is written the same way");
    Counts counts;
    for (auto *count : {counts.rows, counts.sequences})
      for (int set = 0; set < XFC_ROW_SETS; ++set)
        count[set] = 7;
    for (int64_t &pairs : counts.pairs)
      pairs = 49;
    for (size_t i = 0; i < module.programs.size(); ++i) {
      const Program &program = module.programs[i];
      // The compiler writes the sizes, but a fuzzed file may hold any number.
      bool small = program.buffers.size() < 1000;
      for (const Buffer &buffer : program.buffers) {
        const Size &bytes = buffer.size;
        auto within = [&](int64_t value) { small &= value >= 0 && value < int64_t(1) << 40; };
        within(bytes.constant);
        for (const auto *values : {bytes.rows, bytes.sequences, bytes.chunks})
          for (int set = 0; set < XFC_ROW_SETS; ++set)
            within(values[set]);
        for (int64_t value : bytes.pairs)
          within(value);
      }
      if (!small)
        continue;
      const Layout layout = plan(module, program, counts);
      for (size_t a = 0; a < program.buffers.size(); ++a)
        for (size_t b = 0; b < a; ++b) {
          const Buffer &one = program.buffers[a], &other = program.buffers[b];
          const int64_t ends[] = {layout.offsets[a] + evaluate(one.size, counts),
                                  layout.offsets[b] + evaluate(other.size, counts)};
          const bool meet = one.first <= other.last && other.first <= one.last;
          const bool empty = ends[0] == layout.offsets[a] || ends[1] == layout.offsets[b];
          const bool overlap = layout.offsets[a] < ends[1] && layout.offsets[b] < ends[0];
          fuzz::expect(!meet || !overlap || empty || one.first > one.last || other.first > other.last,
                       "buffers that live together lie apart");
        }
      for (const GradientPart &part : gradientsOf(module, program))
        for (size_t i = 0; i < program.buffers.size(); ++i) {
          const Buffer &buffer = program.buffers[i];
          const int64_t begin = layout.offsets[i], end = begin + evaluate(buffer.size, counts);
          const bool overlap = begin < std::min(end, part.end) && part.begin < end;
          fuzz::expect(!overlap || buffer.last < part.first || buffer.first > buffer.last,
                       "buffers lie apart from gradients that are there");
        }
    }
  });
  return 0;
}

namespace {

struct Number {
  size_t begin, end;
  int64_t value;
};

// A plan ends with the number of programs, their sizes, and the programs themselves. Returns the sizes, if it does.
std::span<const Number> sizesIn(const std::vector<Number> &numbers) {
  for (size_t at = 0; at < numbers.size(); ++at) {
    const int64_t count = numbers[at].value;
    if (count < 1 || static_cast<size_t>(count) >= numbers.size() - at)
      continue;
    const std::span sizes = std::span(numbers).subspan(at + 1, static_cast<size_t>(count));
    size_t left = numbers.back().end - sizes.back().end;
    for (const Number &size : sizes)
      left -= static_cast<size_t>(size.value); // unsigned: numbers that are not sizes may wrap around
    if (left == 0 && std::ranges::all_of(sizes, [](const Number &size) { return size.value >= 0; }))
      return sizes;
  }
  return {};
}

} // namespace

// A plan is a sequence of numbers in LEB128 of their zigzag encoding; its texts and its few floating-point numbers are
// taken for such, too. Replaces one number, or repeats or removes some of them, with the length that may precede them.
// If that changes the size of a program, the size before the programs is usually corrected too: the program would be
// refused otherwise, whatever it holds.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  fuzz::Random random(seed);
  if (size == 0 || random.oneIn(8))
    return LLVMFuzzerMutate(data, size, most);
  std::vector<Number> numbers;
  for (size_t at = 0; at < size;) {
    const size_t begin = at;
    uint64_t bits = 0;
    for (int shift = 0; at < size && shift < 64; shift += 7) {
      bits |= static_cast<uint64_t>(data[at] & 0x7F) << shift;
      if (data[at++] < 0x80)
        break;
    }
    numbers.push_back({begin, at, static_cast<int64_t>(bits >> 1) ^ -static_cast<int64_t>(bits & 1)});
  }
  auto written = [](int64_t value) {
    std::string text;
    uint64_t bits = static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63);
    for (; bits >= 0x80; bits >>= 7)
      text += static_cast<char>(bits | 0x80);
    return text + static_cast<char>(bits);
  };
  auto near = [](int64_t value, int64_t by) { // wraps around
    return static_cast<int64_t>(static_cast<uint64_t>(value) + static_cast<uint64_t>(by));
  };
  static constexpr int64_t extremes[] = {
      0,         1,        -1, 2, 3, 63, 64, 2048, INT32_MAX, int64_t(1) << 32, int64_t(1) << 40, int64_t(1) << 62,
      INT64_MAX, INT64_MIN};
  std::string text(fuzz::textOf(data, size));
  const size_t i = random.below(numbers.size());
  const Number &number = numbers[i];
  auto replace = [&](int64_t value) { text.replace(number.begin, number.end - number.begin, written(value)); };
  switch (random.below(5)) {
  case 0:
    replace(extremes[random.below(std::size(extremes))]);
    break;
  case 1:
    replace(near(number.value, static_cast<int64_t>(random.below(5)) - 2));
    break;
  case 2:
    replace(numbers[random.below(numbers.size())].value);
    break;
  default: { // an item more, or less, of a list whose length is this number
    const size_t first = i + 1, last = std::min(first + 1 + random.below(24), numbers.size());
    if (first == last)
      break;
    const size_t begin = numbers[first].begin, bytes = numbers[last - 1].end - begin;
    const bool more = random.oneIn(2);
    if (more)
      text.insert(begin, std::string(text, begin, bytes));
    else
      text.erase(begin, bytes);
    if (!random.oneIn(4))
      replace(near(number.value, more ? 1 : -1));
  }
  }
  if (const std::span<const Number> sizes = sizesIn(numbers); !sizes.empty() && !random.oneIn(16)) {
    size_t end = sizes.back().end;
    for (const Number &each : sizes)
      if (const size_t begin = std::exchange(end, end + static_cast<size_t>(each.value));
          begin <= number.begin && number.begin < end) {
        text.replace(each.begin, each.end - each.begin,
                     written(near(each.value, static_cast<int64_t>(text.size()) - static_cast<int64_t>(size))));
        break;
      }
  }
  return fuzz::replaced(data, size, most, text);
}
