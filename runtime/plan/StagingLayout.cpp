// Computes the layout of a batch as one block of bytes.
#include "plan/StagingLayout.h"
#include "support/RoundUp.h"

namespace xfc {

int querySetOf(int structure) { return structure / 4 == XFC_SOURCE_SOURCE ? XFC_SOURCE : XFC_TARGET; }
int keySetOf(int structure) {
  constexpr int sets[] = {XFC_SOURCE, XFC_TARGET, XFC_SOURCE, XFC_CACHE};
  return sets[structure / 4];
}

int64_t bytesOfRow(const Argument &argument) { return featuresOf(argument) * bytesOf(argument.type); }

StagingLayout::StagingLayout(const Program &program, const Counts &capacity, const std::vector<bool> &onDevice) {
  int64_t next = roundUp(sizeof(xfc_shape), alignment);
  for (size_t i = 0; i < program.arguments.size(); ++i) {
    const Argument &argument = program.arguments[i];
    if (onDevice[i]) {
      arguments.push_back(-1);
      continue;
    }
    arguments.push_back(next);
    next = roundUp(next + bytesOfRow(argument) * (argument.set < 0 ? 1 : capacity.rows[argument.set]), alignment);
  }
  for (const Step &step : program.steps)
    if (step.keys >= 0)
      keys[step.keys] = true;
  structures = next;
  auto add = [&](int64_t elements, int64_t size) { next = roundUp(next + elements * size, structureAlignment); };
  for (int set = 0; set < XFC_ROW_SETS; ++set) {
    const int64_t rows = capacity.rows[set], sequences = capacity.sequences[set];
    for (int64_t elements :
         {sequences + 1, rows, rows, sequences, rows}) // offsets, positions, sequence_of, sentences, by_id
      add(elements, 4);
  }
  for (int structure = 0; structure < XFC_KEY_STRUCTURES; ++structure) {
    if (!keys[structure])
      continue;
    const int64_t rows = capacity.rows[querySetOf(structure)], sequences = capacity.sequences[querySetOf(structure)];
    // Each hypothesis has its own list of cache rows; other lists are shared, or have no rows in common.
    const bool own = structure / 4 == XFC_TARGET_CACHE;
    add(own ? capacity.pairs[structure] : capacity.rows[keySetOf(structure)], 4);
    for (int64_t elements : {sequences, sequences, rows}) // begin, count, limit
      add(elements, 4);
    add(sequences + 1, 8);
  }
  for (int i = 0; i < 2; ++i)
    add(capacity.rows[XFC_TARGET], 4); // slots, before
  bytes = next;
}

int64_t callBytes(const Program &program) {
  int64_t bytes = 0;
  for (const Step &step : program.steps)
    bytes += callBytes(step.buffers.size(), step.tensors.size(), step.repacked.size());
  return bytes;
}

} // namespace xfc
