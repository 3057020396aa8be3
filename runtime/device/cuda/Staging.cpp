// Writes a batch as one block of bytes.
#include "device/cuda/Staging.h"
#include "plan/StepTable.h"
#include "support/Error.h"
#include "support/RoundUp.h"
#include <algorithm>
#include <bit>
#include <cstring>

namespace xfc::cuda {

StagingLayout stagingLayout(const ProgramRun &run) {
  std::vector<bool> onDevice;
  onDevice.reserve(run.arguments.size());
  for (const BoundArgument &argument : run.arguments)
    onDevice.push_back(argument.onDevice);
  return {*run.program, run.capacity, onDevice};
}

int64_t stage(const ProgramRun &run, const StagingLayout &layout, char *block, uint64_t address) {
  const Program &program = *run.program;
  for (size_t i = 0; i < program.arguments.size(); ++i) {
    if (layout.arguments[i] < 0)
      continue;
    const Argument &argument = program.arguments[i];
    const int64_t rows = argument.set < 0 ? 1 : run.counts.rows[argument.set], row = bytesOfRow(argument);
    const int64_t stride = argument.set < 0 ? row : run.arguments[i].stride * bytesOf(argument.type);
    char *to = block + layout.arguments[i];
    const char *from = static_cast<const char *>(run.arguments[i].data);
    if (stride == row)
      std::memcpy(to, from, rows * row);
    else
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(to + r * row, from + r * stride, row);
  }

  xfc_shape shape = *run.shape;
  int64_t next = layout.structures;
  auto move = [&]<typename T>(const T *&array, int64_t elements) {
    if (!array)
      return;
    const int64_t bytes = elements * static_cast<int64_t>(sizeof(T));
    if (next + bytes > layout.bytes)
      throw Error("a batch is larger than its counts say"); // an internal error
    std::memcpy(block + next, array, bytes);
    array = reinterpret_cast<const T *>(address + next);
    next = roundUp(next + bytes, StagingLayout::structureAlignment);
  };
  for (xfc_rows &set : shape.sets) {
    move(set.offsets, set.sequences + 1);
    move(set.positions, set.rows);
    move(set.sequence_of, set.rows);
    move(set.sentences, set.sequences);
    move(set.by_id, set.rows);
  }
  for (int structure = 0; structure < XFC_KEY_STRUCTURES; ++structure) {
    xfc_keys &keys = shape.keys[structure];
    if (!layout.keys[structure]) {
      keys = {};
      continue;
    }
    const xfc_rows &queries = run.shape->sets[querySetOf(structure)];
    int64_t listed = 0;
    for (int64_t b = 0; keys.begin && b < queries.sequences; ++b)
      listed = std::max<int64_t>(listed, int64_t(keys.begin[b]) + keys.count[b]);
    move(keys.keys, listed);
    move(keys.begin, queries.sequences);
    move(keys.count, queries.sequences);
    move(keys.limit, queries.rows);
    move(keys.pair_offsets, queries.sequences + 1);
  }
  move(shape.slots, shape.sets[XFC_TARGET].rows);
  move(shape.before, shape.sets[XFC_TARGET].rows);
  std::memcpy(block, &shape, sizeof shape);
  return next;
}

Counts bucketOf(const Counts &counts, const Counts &capacity) {
  Counts bucket = counts;
  for (int set = 0; set < XFC_ROW_SETS; ++set) {
    const int64_t sequences = counts.sequences[set];
    const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(sequences, 1))));
    bucket.rows[set] = bucketOfRows(counts.rows[set], capacity.rows[set]);
    bucket.sequences[set] = std::max(sequences, std::min(power, capacity.sequences[set]));
  }
  return bucket;
}

std::vector<RowRun> runsOf(std::span<const int32_t> to) {
  std::vector<RowRun> runs;
  for (size_t i = 0; i < to.size(); ++i)
    if (!runs.empty() && to[i] == runs.back().to + runs.back().count)
      ++runs.back().count;
    else
      runs.push_back({static_cast<int64_t>(i), to[i], 1});
  return runs;
}

} // namespace xfc::cuda
