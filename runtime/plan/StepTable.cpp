// The table by which a persistent kernel runs a program, and the memory that it takes.
#include "plan/StepTable.h"
#include "plan/Launch.h"
#include "plan/Memory.h"
#include "support/RoundUp.h"
#include <algorithm>
#include <bit>
#include <cstring>

namespace xfc {
namespace {

// Where the parts of a table begin, and its size.
struct Parts {
  static constexpr int64_t alignment = 128; // of what the kernel writes: it shares no line of a cache
  Parts(int64_t count, int64_t waitCount)
      : waits(instructions + count * static_cast<int64_t>(sizeof(xfc_instruction))),
        finished(roundUp(waits + waitCount * static_cast<int64_t>(sizeof(xfc_wait)), alignment)),
        bytes(finished + (count + 1) * static_cast<int64_t>(sizeof(uint32_t))) {}
  const int64_t instructions = sizeof(xfc_step), waits, finished, bytes;
};

template <typename T> void copyTo(std::vector<char> &bytes, int64_t at, std::span<const T> values) {
  if (!values.empty())
    std::memcpy(bytes.data() + at, values.data(), values.size_bytes());
}

// The most rows of a batch that the program's persistent kernel runs.
int64_t mostRows(const Module &module, const Program &program) {
  int64_t most = largestSize;
  const std::vector<int32_t> &bodies = module.kernels[program.persistent].bodies;
  for (const Step &step : program.steps) {
    const Kernel &kernel = module.kernels[step.kernel];
    if (std::ranges::find(bodies, step.kernel) == bodies.end())
      most = std::min(most, kernel.small >= 0 ? kernel.smallRows : 0);
  }
  return most;
}

} // namespace

void StepTable::add(xfc_instruction instruction, std::span<const int32_t> after) {
  instruction.waits = nullptr;
  instruction.wait_count = static_cast<int64_t>(after.size());
  for (int32_t earlier : after)
    waits.push_back({earlier, instructions[earlier].chunks});
  instructions.push_back(instruction);
}

std::vector<char> StepTable::bytesAt(uint64_t address) const {
  const auto count = static_cast<int64_t>(instructions.size());
  const Parts parts(count, static_cast<int64_t>(waits.size()));
  std::vector<char> bytes(parts.bytes);
  std::vector<xfc_instruction> placed = instructions;
  uint64_t next = address + parts.waits;
  for (xfc_instruction &instruction : placed) {
    instruction.waits = reinterpret_cast<const xfc_wait *>(next);
    next += instruction.wait_count * sizeof(xfc_wait);
  }
  const xfc_step step{.count = count,
                      .instructions = reinterpret_cast<const xfc_instruction *>(address + parts.instructions),
                      .finished = reinterpret_cast<uint32_t *>(address + parts.finished)};
  copyTo(bytes, 0, std::span(&step, 1));
  copyTo(bytes, parts.instructions, std::span<const xfc_instruction>(placed));
  copyTo(bytes, parts.waits, std::span<const xfc_wait>(waits));
  return bytes;
}

int64_t stepTableBytes(const Program &program) {
  size_t waits = 0;
  for (const Step &step : program.steps)
    waits += step.after.size();
  return Parts(static_cast<int64_t>(program.steps.size()), static_cast<int64_t>(waits)).bytes;
}

int64_t stepTablesBytes(const Module &module, const Program &program, const Counts &capacity) {
  if (program.persistent < 0 || program.steps.empty())
    return 0;
  const int64_t limit = capacity.rows[program.steps.front().set], most = mostRows(module, program);
  int64_t tables = 0;
  for (int64_t rows = 1; rows <= limit; ++tables) {
    const int64_t bucket = bucketOfRows(rows, limit);
    if (bucket > most)
      break;
    rows = bucket + 1;
  }
  return product({tables, stepTableBytes(program)});
}

int64_t bucketOfRows(int64_t rows, int64_t limit) {
  constexpr int64_t many = 1024;
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(rows, 1))));
  return std::max(rows, std::min(rows > many ? roundUp(rows, power / 8) : power, limit)); // power / 2 < rows <= power
}

} // namespace xfc
