// Predicts memory before a run: what programs will hold for batches of a given size. The engine allocates exactly this.
#pragma once

#include "plan/Plan.h"
#include <initializer_list>
#include <string>
#include <vector>

namespace xfc {

// In bytes. Programs share one arena, in which gradients lie as well, so it is that of the one that needs most. `held`
// is what passes from run to run: caches and the encoder's projected rows of a search, or the gradients of earlier
// batches in a training step that has several, and the lists of their pairs. `batches` is what a GPU needs to receive a
// batch, including its calls and the tables of persistent kernels.
struct Memory {
  int64_t parameters = 0, states = 0, packed = 0, tables = 0, arena = 0, scratch = 0, held = 0, batches = 0;
  int64_t state() const { return parameters + states + packed + tables; }
  int64_t total() const { return state() + arena + scratch + held + batches; }
};

// The parts in the order in which they are shown, with what they are called in text and in JSON.
struct MemoryPart {
  const char *name, *key;
  int64_t Memory::*bytes;
};
inline constexpr MemoryPart memoryParts[] = {
    {"parameters", "parameters_bytes", &Memory::parameters},
    {"optimizer", "optimizer_bytes", &Memory::states},
    {"packed weights", "packed_bytes", &Memory::packed},
    {"tables", "tables_bytes", &Memory::tables},
    {"arena", "arena_bytes", &Memory::arena},
    {"scratch", "scratch_bytes", &Memory::scratch},
    {"kept by steps", "held_bytes", &Memory::held},
    {"batches", "batches_bytes", &Memory::batches},
};

// A bound on sizes and counts that no machine reaches, so that sums of a few of them do not overflow.
constexpr int64_t largestSize = int64_t(1) << 50;
[[noreturn]] void tooLarge();                          // throws Error
int64_t product(std::initializer_list<int64_t> sizes); // calls tooLarge() if it exceeds largestSize

// Counts of a teacher-forced batch: `tokens` rows of source and of target in sentences of `length`.
Counts batchCounts(int64_t tokens, int64_t length);
// Counts of decoding: `sentences` sources of `length` tokens and `hypotheses` live hypotheses of up to `longest`
// tokens.
Counts decodeCounts(const Module &module, int64_t sentences, int64_t length, int64_t hypotheses, int64_t longest);
// The counts that the encoder runs with when decoding has these. On a GPU (`threads` is 0) they are the same. On the
// host, the encoder takes a few hundred source tokens per thread at a time: with more, their rows would leave a
// thread's cache between one kernel and the next, and a row takes more memory while it is encoded than afterwards.
Counts encoderCounts(const Counts &decoding, int threads);
// The cache rows that a hypothesis of up to `longest` tokens sees in a step, which may read those of all its tokens
// (Module::readsHistory).
int64_t rowsOfHypothesis(bool readsHistory, int64_t longest);

// The type in which decoding keeps keys and values, "f32", "f64", "bf16" or "int8" (`xfc compile --cache-type`), if
// products multiply in `type`, one of Module::computeTypes(); empty for a model that does not decode. Throws Error for
// another type.
std::string cacheType(const Module &module, const std::string &type = {});

// The rows of a position table once sequences of `longest` rows have been seen: the next power of two, at least 64, so
// that it rarely grows, but at most the table's own rows.
int64_t tableRows(const Table &table, int64_t longest);

// The larger of each part: for one engine that runs both.
Memory larger(const Memory &a, const Memory &b);

// Returns what the host needs with this many threads, which each have scratch memory and their rows of the encoder;
// with a GPU's plan and 0 threads, what the GPU holds, if it runs `persistent` kernels (--cuda-step) or not.
Memory predictMemory(const Module &module, const std::vector<std::string> &programs, const Counts &counts, int threads,
                     bool persistent = false);

} // namespace xfc
