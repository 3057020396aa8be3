// Memory, known before the run: what programs will hold for batches of a size. The engine allocates exactly this.
#pragma once

#include "plan/Plan.h"
#include <initializer_list>
#include <string>
#include <vector>

namespace xfc {

// Bytes. The programs share one arena, so it is that of the one that needs most. `held` is what a search keeps from one
// step to the next: caches, and the encoder's projected rows; what a training step of several batches keeps of the
// gradients of the earlier ones. `batches` is what a GPU holds to be told of a batch, its calls included.
struct Memory {
  int64_t parameters = 0, gradients = 0, states = 0, packed = 0, tables = 0, arena = 0, scratch = 0, held = 0,
          batches = 0;
  int64_t state() const { return parameters + gradients + states + packed + tables; }
  int64_t total() const { return state() + arena + scratch + held + batches; }
};

// A bound of sizes and counts that no machine reaches, so that sums and products of a few of them are numbers.
constexpr int64_t largestSize = int64_t(1) << 50;
[[noreturn]] void tooLarge();                          // throws Error
int64_t product(std::initializer_list<int64_t> sizes); // checked

// Counts of a teacher-forced batch: `tokens` rows of source and of target in sentences of `length`.
Counts batchCounts(int64_t tokens, int64_t length);
// Counts of decoding: `sentences` sources of `length` tokens and `hypotheses` live hypotheses of up to `longest`
// tokens.
Counts decodeCounts(int64_t sentences, int64_t length, int64_t hypotheses, int64_t longest);

// Rows a table of positions is made for once sequences of `longest` rows have been seen: the next power of two from
// 64, so that it grows seldom, at most the table's own.
int64_t tableRows(const Table &table, int64_t longest);

// What is enough for both: of one engine that runs both.
Memory larger(const Memory &a, const Memory &b);

// What the host needs with so many threads; for a GPU's plan, with none, what the GPU holds.
Memory predictMemory(const Module &module, const std::vector<std::string> &programs, const Counts &counts, int threads);

} // namespace xfc
