// A batch as one block of bytes: what a run of a program reads of the host, in the form in which it is copied to a
// device at once. Nothing here needs a device.
#pragma once

#include "../core/Device.h"

namespace xfc::cuda {

// Where things lie in the block of a program. The shape and the arguments that the host gives have fixed places, since
// calls point at them; rows lie dense. The structures that the shape points at follow each other as closely as the
// batch allows, so that little is copied.
struct StagingLayout {
  static constexpr int64_t alignment = 128;
  StagingLayout() = default;
  StagingLayout(const Program &program, const Counts &capacity, std::span<const BoundArgument> arguments);

  std::vector<int64_t> arguments;     // the offset of each; -1: it is on the device
  bool keys[XFC_KEY_STRUCTURES] = {}; // those that the program reads
  int64_t structures = 0;             // where they begin
  int64_t bytes = 0;                  // enough for any batch within the capacity
};

// Bytes of a call with so many buffers and immediates as it stands in memory of a device: the xfc_call and its arrays.
constexpr int64_t callBytes(size_t buffers, size_t immediates) {
  return static_cast<int64_t>(sizeof(xfc_call) + (2 * buffers + immediates) * 8);
}
int64_t callBytes(const Program &program); // of all its steps

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
