// A batch as one block of bytes: what a run of a program reads from the host, in the form in which one copy transfers
// it to a device. Nothing here needs a device.
#pragma once

#include "device/Device.h"
#include "plan/StagingLayout.h"

namespace xfc::cuda {

// The layout for the run's program at its capacity, with the arguments that are in host memory.
StagingLayout stagingLayout(const ProgramRun &run);

// Writes the batch of `run` to `block`, which will lie at `address` on the device. Returns how many bytes of it are
// used.
int64_t stage(const ProgramRun &run, const StagingLayout &layout, char *block, uint64_t address);

// The counts that a batch's launches are made for, rounded up so that there are few distinct ones, each of which is
// captured once. Rows (bucketOfRows) and sequences are rounded to a power of two, beyond 1024 rows to a quarter of the
// way to the next, and never beyond the capacity: if there are many blocks, at most a fifth of them have nothing to do.
// Batches of training, which are full on one side, make some tens of buckets; decoding steps, whose hypotheses end one
// by one, make one for each halving.
Counts bucketOf(const Counts &counts, const Counts &capacity);

// Groups the rows to[0], to[1] ... into runs of consecutive ones: one copy each.
struct RowRun {
  int64_t from, to, count;
};
std::vector<RowRun> runsOf(std::span<const int32_t> to);

} // namespace xfc::cuda
