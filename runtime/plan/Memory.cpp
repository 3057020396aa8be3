// Computes counts, and the memory that programs need for them.
#include "plan/Memory.h"
#include "plan/Layout.h"
#include "plan/Programs.h"
#include "plan/StagingLayout.h"
#include "plan/StepTable.h"
#include "support/Error.h"
#include <algorithm>
#include <set>

namespace xfc {

void tooLarge() { throw Error("batches of these sizes take more memory than any machine has; use smaller ones"); }

int64_t product(std::initializer_list<int64_t> sizes) {
  int64_t total = 1;
  for (int64_t size : sizes)
    if (__builtin_mul_overflow(total, size, &total) || total > largestSize)
      tooLarge();
  return total;
}

Counts batchCounts(int64_t tokens, int64_t length) {
  Counts counts;
  int64_t sequences = tokens / length + (tokens % length != 0);
  for (int set : {XFC_SOURCE, XFC_TARGET}) {
    counts.rows[set] = tokens;
    counts.sequences[set] = sequences;
  }
  for (int relation : {XFC_SOURCE_SOURCE, XFC_TARGET_TARGET, XFC_TARGET_SOURCE})
    for (int kind = 0; kind < 4; ++kind)
      counts.pairs[relation * 4 + kind] = product({tokens, length});
  counts.longest = length;
  return counts;
}

int64_t rowsOfHypothesis(bool readsHistory, int64_t longest) {
  return readsHistory ? longest : std::min<int64_t>(longest, 2);
}

Counts decodeCounts(const Module &module, int64_t sentences, int64_t length, int64_t hypotheses, int64_t longest) {
  Counts counts;
  counts.rows[XFC_SOURCE] = product({sentences, length});
  counts.sequences[XFC_SOURCE] = sentences;
  counts.rows[XFC_TARGET] = counts.sequences[XFC_TARGET] = hypotheses;
  const int64_t cached = product({hypotheses, rowsOfHypothesis(module.readsHistory(), longest)});
  counts.rows[XFC_CACHE] = cached;
  for (int kind = 0; kind < 4; ++kind) {
    counts.pairs[XFC_SOURCE_SOURCE * 4 + kind] = product({sentences, length, length});
    counts.pairs[XFC_TARGET_SOURCE * 4 + kind] = product({hypotheses, length});
    counts.pairs[XFC_TARGET_CACHE * 4 + kind] = cached;
  }
  counts.longest = std::max(length, longest);
  return counts;
}

Counts encoderCounts(const Counts &decoding, int threads) {
  static constexpr int64_t enough = 256; // source rows per thread
  Counts counts = decoding;
  if (threads > 0)
    counts.rows[XFC_SOURCE] = std::min(counts.rows[XFC_SOURCE], std::max(threads * enough, counts.longest));
  return counts;
}

std::string cacheType(const Module &module, const std::string &type) {
  if (!module.has(programs::decodeStep))
    return {};
  for (const Argument &argument : module.find(module.variant(programs::decodeStep, type))->arguments)
    if (isNarrow(argument.type))
      return nameOf(argument.type);
  return nameOf(module.type);
}

int64_t tableRows(const Table &table, int64_t longest) {
  int64_t rows = 64;
  while (rows < longest)
    rows *= 2;
  return std::min(rows, table.rows);
}

Memory larger(const Memory &a, const Memory &b) {
  Memory memory;
  for (const MemoryPart &part : memoryParts)
    memory.*part.bytes = std::max(a.*part.bytes, b.*part.bytes);
  return memory;
}

Memory predictMemory(const Module &module, const std::vector<std::string> &programs, const Counts &counts, int threads,
                     bool persistent) {
  Memory memory;
  memory.parameters = module.parameterElements * bytesOf(module.type);
  std::set<int64_t> packed, tables, states;
  int64_t scratch = 0;
  for (const std::string &name : programs) {
    const Program *program = module.find(name);
    if (!program)
      throw Error("this executable has no program '" + name + "'");
    const bool encodes = program->is(programs::encode);
    memory.arena =
        std::max(memory.arena, plan(module, *program, encodes ? encoderCounts(counts, threads) : counts).bytes);
    auto isState = [](const Argument &argument) { return argument.role == Argument::Role::State; };
    const bool hasState = std::any_of(program->arguments.begin(), program->arguments.end(), isState);
    std::vector<bool> onDevice;
    for (const Argument &argument : program->arguments) {
      const bool kept = hasState && (isState(argument) || argument.set == XFC_SOURCE);
      onDevice.push_back(kept);
      if (kept)
        memory.held +=
            product({argument.set < 0 ? 1 : counts.rows[argument.set], featuresOf(argument), bytesOf(argument.type)});
    }
    if (threads == 0)
      memory.batches += 2 * StagingLayout(*program, counts, onDevice).bytes + // one batch runs, one is staged
                        callBytes(*program) + (persistent ? stepTablesBytes(module, *program, counts) : 0);
    for (const Step &step : program->steps) {
      scratch = std::max(scratch, module.kernels[step.kernel].scratch);
      for (const Place &place : step.buffers) {
        if (place.kind == Place::Kind::Packed)
          packed.insert(place.index);
        else if (place.kind == Place::Kind::Table)
          tables.insert(place.index);
        else if (place.kind == Place::Kind::State)
          states.insert(place.index);
      }
    }
  }
  for (int64_t index : states)
    memory.states += module.bytesOf(module.states[index]);
  for (int64_t index : packed) {
    memory.packed += module.packed[index].bytes;
    scratch = std::max(scratch, module.kernels[module.packed[index].kernel].scratch);
  }
  for (int64_t index : tables)
    memory.tables += tableRows(module.tables[index], counts.longest) * module.tables[index].dim * bytesOf(module.type);
  memory.scratch = scratch * threads;
  return memory;
}

} // namespace xfc
