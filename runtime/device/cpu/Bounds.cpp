// The memory that a running chunk may access, and the check of each access.
#include "device/cpu/Bounds.h"
#include "plan/Memory.h"
#include "xfc/bounds.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace xfc {
namespace {

struct Range {
  const char *begin, *end;
  bool isOperand;   // a vector past the end may be read; other ranges are read-only
  std::string name; // for messages
  bool holds(const char *at, int64_t bytes, bool writes) const {
    static constexpr int64_t vector = 64;
    return at >= begin && (isOperand || !writes) && at + bytes <= end + (isOperand && !writes ? vector : 0);
  }
};

thread_local const CpuLaunch *running = nullptr;
thread_local int64_t runningChunk = 0;
thread_local const void *runningScratch = nullptr;
thread_local bool known = false;        // whether `ranges` belongs to this chunk
thread_local std::vector<Range> ranges; // what it may access
thread_local size_t last = 0;           // index of the range of the previous access

void add(const void *begin, int64_t bytes, std::string name, bool isOperand = false) {
  if (begin)
    ranges.push_back(
        {static_cast<const char *>(begin), static_cast<const char *>(begin) + bytes, isOperand, std::move(name)});
}

void addRows(const xfc_rows &rows, const std::string &set) {
  constexpr int64_t number = sizeof(int32_t);
  add(rows.offsets, (rows.sequences + 1) * number, set + "'s offsets");
  add(rows.positions, rows.rows * number, set + "'s positions");
  add(rows.sequence_of, rows.rows * number, set + "'s sequence_of");
  add(rows.sentences, rows.sequences * number, set + "'s sentences");
  add(rows.by_id, rows.rows * number, set + "'s by_id");
}

void addKeys(const xfc_keys &keys, const xfc_rows &queries, const std::string &name) {
  if (!keys.begin)
    return;
  constexpr int64_t number = sizeof(int32_t);
  int64_t listed = 0;
  for (int64_t b = 0; b < queries.sequences; ++b)
    listed = std::max<int64_t>(listed, int64_t(keys.begin[b]) + keys.count[b]);
  add(keys.keys, listed * number, name + "'s keys");
  add(keys.begin, queries.sequences * number, name + "'s begin");
  add(keys.count, queries.sequences * number, name + "'s count");
  add(keys.limit, queries.rows * number, name + "'s limit");
  add(keys.pair_offsets, (queries.sequences + 1) * static_cast<int64_t>(sizeof(int64_t)), name + "'s pair_offsets");
}

void addShape(const xfc_shape &shape) {
  add(&shape, sizeof(shape), "the batch");
  static const char *const sets[] = {"source", "target", "cache"};
  for (int set = 0; set < XFC_ROW_SETS; ++set)
    addRows(shape.sets[set], sets[set]);
  static const char *const relations[] = {"source to source", "target to target", "target to source",
                                          "target to cache"};
  for (int structure = 0; structure < XFC_KEY_STRUCTURES; ++structure) {
    const int relation = structure / 4;
    addKeys(shape.keys[structure], shape.sets[relation == XFC_SOURCE_SOURCE ? XFC_SOURCE : XFC_TARGET],
            relations[relation]);
  }
  const int64_t numbers = shape.sets[XFC_TARGET].rows * static_cast<int64_t>(sizeof(int32_t));
  add(shape.slots, numbers, "the cache's slots");
  add(shape.before, numbers, "the previous slots");
}

int64_t bytesOfArgument(const ProgramRun &run, int64_t index) {
  const Argument &argument = run.program->arguments[index];
  const int64_t element = bytesOf(argument.type), features = featuresOf(argument);
  if (argument.set < 0)
    return elementsOf(argument.shape) * element;
  const int64_t rows = run.counts.rows[argument.set];
  return rows > 0 ? ((rows - 1) * run.arguments[index].stride + features) * element : 0;
}

// Bytes from an operand's first element to the end of the memory that it lies in.
int64_t bytesFrom(const Place &place) {
  const ProgramRun &run = *running->run;
  const Module &module = *running->module;
  const int64_t element = bytesOf(module.type);
  switch (place.kind) {
  case Place::Kind::Arena: {
    Counts counts = run.counts;
    counts.rows[XFC_TARGET] = running->call.shape->sets[XFC_TARGET].rows; // a thread may have rows of its own
    return evaluate(run.program->buffers[place.index].size, counts) - place.offset;
  }
  case Place::Kind::Parameters:
  case Place::Kind::Gradients:
    return module.parameterElements * element - place.offset;
  case Place::Kind::State: // ranks that share states have less, which is not known here
    return module.bytesOf(module.states[place.index]) - place.offset;
  case Place::Kind::Packed:
    return module.packed[place.index].bytes;
  case Place::Kind::Table:
    return tableRows(module.tables[place.index], run.counts.longest) * module.tables[place.index].dim * element;
  case Place::Kind::Argument:
    return bytesOfArgument(run, place.index) - place.offset;
  case Place::Kind::None:
    return 0;
  }
  return 0;
}

void findRanges() {
  const xfc_call &call = running->call;
  add(&call, sizeof(call), "the call");
  addShape(*call.shape);
  add(runningScratch, running->scratchBytes, "scratch", true);
  if (const PackRun *packing = running->packing) {
    add(static_cast<const void *>(call.buffers), 2 * static_cast<int64_t>(sizeof(void *)), "the operands' addresses");
    add(call.strides, 2 * static_cast<int64_t>(sizeof(int64_t)), "the operands' strides");
    add(packing->from, packing->fromBytes, "the weight", true);
    add(packing->to, packing->toBytes, "its packed form", true);
    return;
  }
  const Step &step = *running->step;
  const auto operands = static_cast<int64_t>(step.buffers.size());
  add(static_cast<const void *>(call.buffers), operands * static_cast<int64_t>(sizeof(void *)),
      "the operands' addresses");
  add(call.strides, operands * static_cast<int64_t>(sizeof(int64_t)), "the operands' strides");
  add(call.tensors, static_cast<int64_t>(step.tensors.size() * sizeof(xfc_parted_tensor)), "the table of tensors");
  add(call.repacked, static_cast<int64_t>(step.repacked.size() * sizeof(xfc_repacked_weight)), "the weights to pack");
  for (size_t i = 0; i < step.buffers.size(); ++i) {
    // If a thread takes rows of its own, its operand begins at the first of them.
    const Place &place = step.buffers[i];
    const char *begin = static_cast<const char *>(call.buffers[i]);
    const int64_t before =
        place.kind == Place::Kind::Argument ? begin - static_cast<const char *>(running->run->address(place)) : 0;
    add(begin, bytesFrom(place) - before, "operand " + std::to_string(i), true);
  }
}

void check(const void *at, int64_t bytes, bool writes) {
  const std::string fault = faultOf(at, bytes, writes);
  if (fault.empty())
    return;
  std::fprintf(stderr, "error: %s\n", fault.c_str());
  std::_Exit(1);
}

} // namespace

void setRunning(const CpuLaunch &launch, int64_t chunk, const void *scratch) {
  running = &launch;
  runningChunk = chunk;
  runningScratch = scratch;
  known = false;
}

std::string faultOf(const void *at, int64_t bytes, bool writes) {
  if (!known) {
    ranges.clear();
    findRanges();
    known = true;
    last = 0;
  }
  const auto *first = static_cast<const char *>(at);
  if (last < ranges.size() && ranges[last].holds(first, bytes, writes))
    return {};
  for (size_t i = 0; i < ranges.size(); ++i)
    if (ranges[i].holds(first, bytes, writes)) {
      last = i;
      return {};
    }
  std::string fault = "kernel " + running->kernel->name;
  if (running->step && !running->step->location.empty())
    fault += " (" + running->step->location + ")";
  fault += ", chunk " + std::to_string(runningChunk) + ": " + (writes ? "writes " : "reads ") + std::to_string(bytes) +
           " bytes out of bounds";
  const Range *nearest = nullptr;
  for (const Range &range : ranges)
    if (range.begin <= first && (!nearest || range.begin > nearest->begin))
      nearest = &range;
  if (nearest)
    fault += ": " + std::to_string(first - nearest->begin) + " bytes after the beginning of " + nearest->name +
             ", which has " + std::to_string(nearest->end - nearest->begin);
  return fault;
}

} // namespace xfc

void xfc_check_rows(const void *at, int64_t rows, int64_t bytes, int64_t stride, int32_t writes) {
  for (int64_t row = 0; row < rows; ++row)
    xfc::check(static_cast<const char *>(at) + row * stride, bytes, writes != 0);
}

void xfc_check_lanes(const void *at, uint64_t lanes, int64_t bytes, int32_t writes) {
  for (int64_t lane = 0; lanes >> lane; ++lane) {
    if (lanes >> lane & 1)
      xfc::check(static_cast<const char *>(at) + lane * bytes, bytes, writes != 0);
    if (lane == 63)
      break;
  }
}
