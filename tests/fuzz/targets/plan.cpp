// Fuzzes the plan that the compiler stores in an executable. The seed input is the model of the commands' tests.
#include "plan/Plan.h"
#include "../Fuzz.h"
#include "plan/Memory.h"
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
    for (const Program &program : module.programs) {
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
      const Layout layout = plan(program, counts);
      for (size_t a = 0; a < program.buffers.size(); ++a)
        for (size_t b = 0; b < a; ++b) {
          const Buffer &one = program.buffers[a], &other = program.buffers[b];
          const int64_t ends[] = {layout.offsets[a] + evaluate(one.size, counts),
                                  layout.offsets[b] + evaluate(other.size, counts)};
          const bool meet = program.rowByRow || (one.first <= other.last && other.first <= one.last);
          const bool empty = ends[0] == layout.offsets[a] || ends[1] == layout.offsets[b];
          const bool overlap = layout.offsets[a] < ends[1] && layout.offsets[b] < ends[0];
          fuzz::expect(!meet || !overlap || empty || one.first > one.last || other.first > other.last,
                       "buffers that live together lie apart");
        }
    }
  });
  return 0;
}
