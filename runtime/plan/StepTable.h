// The table by which a persistent kernel runs a program (xfc_step in abi.h), and the memory that it takes. Nothing here
// needs a device.
#pragma once

#include "plan/Plan.h"
#include <cstdint>
#include <span>
#include <vector>

namespace xfc {

// The instructions of a program's steps for batches of some size. Addresses are those of a device.
class StepTable {
public:
  // Adds the instruction of the next step, which waits for those of these steps.
  void add(xfc_instruction instruction, std::span<const int32_t> after);
  std::vector<xfc_instruction> instructions; // `waits` is set when the table is written
  // The table in the form that it has at this address of the device. All counters are 0.
  std::vector<char> bytesAt(uint64_t address) const;

private:
  std::vector<xfc_wait> waits; // of all instructions, in their order
};

// Bytes of a program's table.
int64_t stepTableBytes(const Program &program);
// Bytes of all tables that the program needs for batches within this capacity: one for each number of rows that batches
// are rounded up to, as far as its persistent kernel runs them. 0 if it has none.
int64_t stepTablesBytes(const Module &module, const Program &program, const Counts &capacity);

// The number of rows for which a batch of this many is launched, so that there are few: the next power of two, beyond
// 1024 a quarter of the way to it, and never more than `limit`, which is at least `rows`.
int64_t bucketOfRows(int64_t rows, int64_t limit);

} // namespace xfc
