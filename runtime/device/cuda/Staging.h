// A batch as one block of bytes: what a run of a program reads of the host, in the form in which it is copied to a
// device at once. Nothing here needs a device.
#pragma once

#include "device/Device.h"
#include "plan/StagingLayout.h"

namespace xfc::cuda {

// The layout for the run's program at its capacity, with the arguments that the host gives it.
StagingLayout stagingLayout(const ProgramRun &run);

// Writes the batch of `run` to `block`, which will lie at `address` on the device. Returns how many bytes of it are
// used.
int64_t stage(const ProgramRun &run, const StagingLayout &layout, char *block, uint64_t address);

// The counts that a batch's launches are made for, so that few different ones arise and each is captured once. Rows and
// sequences are rounded up to a power of two, beyond 1024 rows to a quarter of the way to the next, and never beyond
// the capacity: of many blocks a fifth at most finds nothing to do. Batches of training, which are full on one side,
// make some tens of buckets; decoding steps, whose hypotheses end one by one, one for each halving.
Counts bucketOf(const Counts &counts, const Counts &capacity);

// Rows to[0], to[1] ... as runs of neighbours: one copy each.
struct RowRun {
  int64_t from, to, count;
};
std::vector<RowRun> runsOf(std::span<const int32_t> to);

} // namespace xfc::cuda
