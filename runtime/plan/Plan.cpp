// Plans: sizes, serialization, and the planner.
#include "plan/Plan.h"
#include "plan/Description.h"
#include "plan/Memory.h"
#include "plan/Programs.h"
#include "support/CommandLine.h"
#include "support/Error.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// Sizes
//===--------------------------------------------------------------------------------------------------------===//

Counts countsOf(const xfc_shape &shape) {
  Counts counts;
  for (int set = 0; set < XFC_ROW_SETS; ++set) {
    const xfc_rows &rows = shape.sets[set];
    counts.rows[set] = rows.rows;
    counts.sequences[set] = rows.sequences;
    for (int64_t i = 0; rows.positions && i < rows.rows; ++i)
      counts.longest = std::max<int64_t>(counts.longest, rows.positions[i] + 1);
  }
  for (int i = 0; i < XFC_KEY_STRUCTURES; ++i)
    counts.pairs[i] = shape.keys[i].pairs;
  return counts;
}

int64_t elementsOf(const std::vector<int64_t> &shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
}
int64_t featuresOf(const Argument &argument) { return elementsOf(argument.shape); }
int64_t featuresOf(const Output &output) { return elementsOf(output.shape); }

Counts larger(const Counts &a, const Counts &b) {
  Counts counts = a;
  for (int set = 0; set < XFC_ROW_SETS; ++set) {
    counts.rows[set] = std::max(a.rows[set], b.rows[set]);
    counts.sequences[set] = std::max(a.sequences[set], b.sequences[set]);
  }
  for (int keys = 0; keys < XFC_KEY_STRUCTURES; ++keys)
    counts.pairs[keys] = std::max(a.pairs[keys], b.pairs[keys]);
  counts.longest = std::max(a.longest, b.longest);
  return counts;
}

bool within(const Counts &counts, const Counts &limit) {
  for (int set = 0; set < XFC_ROW_SETS; ++set)
    if (counts.rows[set] > limit.rows[set] || counts.sequences[set] > limit.sequences[set])
      return false;
  for (int keys = 0; keys < XFC_KEY_STRUCTURES; ++keys)
    if (counts.pairs[keys] > limit.pairs[keys])
      return false;
  return true;
}

int64_t evaluate(const Size &size, const Counts &counts) {
  int64_t total = size.constant;
  auto add = [&](int64_t coefficient, int64_t count) {
    if (int64_t term; __builtin_mul_overflow(coefficient, count, &term) || __builtin_add_overflow(total, term, &total))
      tooLarge();
  };
  for (int i = 0; i < XFC_ROW_SETS; ++i) {
    add(size.rows[i], counts.rows[i]);
    add(size.sequences[i], counts.sequences[i]);
    if (counts.rows[i] > chunkRows)
      add(size.chunks[i], (counts.rows[i] - 1) / chunkRows + 1);
  }
  for (int i = 0; i < XFC_KEY_STRUCTURES; ++i)
    add(size.pairs[i], counts.pairs[i]);
  return total;
}

void Module::requireTranslator() const {
  if (!hasDecoder)
    throw Error("model '" + model + "' has no decoder: it writes no target sentences");
  if (sourceVocab == 0 || targetVocab == 0)
    throw Error("model '" + model + "' reads rows of numbers instead of tokens: use forward");
}

bool Program::is(std::string_view program) const {
  return name == program || (name.starts_with(program) && name[program.size()] == '.');
}

const OptimizerState *Module::findState(std::string_view state) const {
  const auto found = std::ranges::find(states, state, &OptimizerState::name);
  return found == states.end() ? nullptr : &*found;
}

int64_t Module::elementsOf(const OptimizerState &state) const {
  return state.likeParameters ? parameterElements : state.elements;
}

std::vector<OptimizerState::Part> Module::partsOf(const OptimizerState &state) const {
  if (!state.likeParameters)
    return state.parts;
  std::vector<OptimizerState::Part> parts;
  parts.reserve(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i)
    parts.push_back({static_cast<int64_t>(i), parameters[i].shape, parameters[i].offset});
  return parts;
}

std::vector<std::string> Module::computeTypes(const std::string &program) const {
  std::vector<std::string> types;
  for (const std::string &candidate : programs.names())
    if (candidate == program)
      types.insert(types.begin(), compute);
    else if (candidate.starts_with(program + "."))
      types.push_back(candidate.substr(program.size() + 1));
  return types;
}

std::string Module::variant(const std::string &program, const std::string &type) const {
  if (type.empty() || type == compute)
    return program;
  const std::vector<std::string> types = computeTypes(program);
  if (std::find(types.begin(), types.end(), type) != types.end())
    return program + "." + type;
  std::string known;
  for (const std::string &other : types)
    known += (known.empty() ? "" : " or ") + other;
  const std::string near = nearest(type, types);
  throw Error("--compute-type " + type + ": this executable decodes in " + known + " only; " +
              (near.empty() ? "" : "did you mean " + near + "? ") +
              (compute == "f32" ? "`xfc compile --compute-type` adds others"
                                : "a model that is compiled with --dtype f32 has a choice"));
}

const Program *Module::stepProgram(int64_t best, const std::string &type, bool renormalized) const {
  if (!has(programs::decodeStep))
    return nullptr;
  const char *const choosing = renormalized ? programs::decodeRenormalized : programs::decodeCandidates;
  if (best > 0 && has(choosing))
    if (const Program *program = find(variant(choosing, type)))
      for (const Output &output : program->outputs)
        if (output.name == names::tokens && best <= output.shape.at(0))
          return program;
  return find(variant(programs::decodeStep, type));
}

bool Module::readsHistory() const {
  const Program *step = find(programs::decodeStep);
  return step && std::any_of(step->steps.begin(), step->steps.end(), [](const Step &launch) {
           return launch.keys >= 0 && launch.keys / 4 == XFC_TARGET_CACHE;
         });
}

//===--------------------------------------------------------------------------------------------------------===//
// Serialization: one field after the other in the order of the structs
//===--------------------------------------------------------------------------------------------------------===//

namespace {

[[noreturn]] void damaged() { throw Error("the plan inside this executable is damaged; compile the model again"); }

// An integer is stored as the LEB128 of its zigzag encoding (as in protocol buffers), so that most take one byte. A
// list is its length followed by its items.
class Writer {
public:
  std::vector<uint8_t> bytes;
  template <typename T> void number(T value) {
    const int64_t whole = static_cast<int64_t>(value);
    uint64_t bits = static_cast<uint64_t>(whole) << 1 ^ static_cast<uint64_t>(whole >> 63);
    for (; bits >= 0x80; bits >>= 7)
      bytes.push_back(static_cast<uint8_t>(bits | 0x80));
    bytes.push_back(static_cast<uint8_t>(bits));
  }
  void raw(const void *from, size_t size) {
    const auto *begin = static_cast<const uint8_t *>(from);
    bytes.insert(bytes.end(), begin, begin + size);
  }
  template <typename List> void length(List &list) { number(list.size()); }
};

// Nothing is narrowed: a number that its field cannot hold means that the plan is damaged.
class Reader {
public:
  Reader(const uint8_t *bytes, size_t size) : next(bytes), end(bytes + size) {}
  template <typename T> void number(T &value) {
    uint64_t bits = 0;
    for (int shift = 0;; shift += 7) {
      if (next == end || shift > 63 || (shift == 63 && *next > 1) || (shift > 0 && *next == 0))
        damaged(); // truncated, too large, or not the shortest form
      bits |= static_cast<uint64_t>(*next & 0x7F) << shift;
      if (*next++ < 0x80)
        break;
    }
    const int64_t whole = static_cast<int64_t>(bits >> 1) ^ -static_cast<int64_t>(bits & 1);
    if constexpr (std::is_same_v<T, bool>) {
      if (whole != 0 && whole != 1)
        damaged();
    } else if constexpr (std::is_enum_v<T>) {
      if (!std::in_range<std::underlying_type_t<T>>(whole))
        damaged();
    } else if (!std::in_range<T>(whole)) {
      damaged();
    }
    value = static_cast<T>(whole);
  }
  void raw(void *to, size_t size) {
    if (size > static_cast<size_t>(end - next))
      damaged();
    std::copy_n(next, size, static_cast<uint8_t *>(to));
    next += size;
  }
  // An item takes at least one byte, so a length beyond the remaining bytes is damage, and is not allocated.
  template <typename List> void length(List &list) {
    size_t size;
    number(size);
    if (size > static_cast<size_t>(end - next))
      damaged();
    list.resize(size);
  }
  // Skips these bytes and returns them, to be read later.
  std::span<const uint8_t> skip(uint64_t size) {
    if (size > static_cast<uint64_t>(end - next))
      damaged();
    next += size;
    return {next - size, size};
  }
  void finish() const {
    if (next != end)
      damaged();
  }

private:
  const uint8_t *next, *end;
};

// One description of a struct's fields serves both directions.
template <typename Direction> struct Archive : Direction {
  using Direction::Direction;
  template <typename... T> void operator()(T &...values) { (value(values), ...); }

private:
  template <typename T> void value(T &value) {
    if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      this->number(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      this->raw(&value, sizeof value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      this->length(value);
      this->raw(value.data(), value.size());
    } else if constexpr (requires { value.resize(1); }) {
      this->length(value);
      for (auto &item : value)
        this->value(item);
    } else {
      fields(*this, value);
    }
  }
};

// Most terms of a size are zero: a mask marks the others, which follow it.
template <typename Direction> void fields(Archive<Direction> &archive, Size &size) {
  uint32_t mask = 0;
  auto eachTerm = [&](auto use) {
    uint32_t bit = 1;
    auto next = [&](int64_t &term) {
      use(term, bit);
      bit <<= 1;
    };
    next(size.constant);
    std::for_each(std::begin(size.rows), std::end(size.rows), next);
    std::for_each(std::begin(size.pairs), std::end(size.pairs), next);
    std::for_each(std::begin(size.sequences), std::end(size.sequences), next);
    std::for_each(std::begin(size.chunks), std::end(size.chunks), next);
  };
  eachTerm([&](int64_t &term, uint32_t bit) { mask |= term != 0 ? bit : 0; });
  archive(mask);
  eachTerm([&](int64_t &term, uint32_t bit) {
    if (mask & bit) {
      archive(term);
      if (term == 0) // the mask has no bit for a zero
        damaged();
    }
    mask &= ~bit;
  });
  if (mask != 0)
    damaged();
}

template <typename Direction> void fields(Archive<Direction> &archive, Place &place) {
  archive(place.kind, place.index, place.offset);
}

template <typename Direction> void fields(Archive<Direction> &archive, Argument &argument) {
  archive(argument.name, argument.role, argument.type, argument.set, argument.shape);
}

template <typename Direction> void fields(Archive<Direction> &archive, Output &output) {
  archive(output.name, output.place, output.type, output.set, output.keys, output.shape, output.stride);
}

template <typename Direction> void fields(Archive<Direction> &archive, Buffer &buffer) {
  archive(buffer.size, buffer.first, buffer.last);
}

template <typename Direction> void fields(Archive<Direction> &archive, LaunchResult &result) {
  archive(result.buffer, result.type, result.set, result.keys, result.width);
}

template <typename Direction> void fields(Archive<Direction> &archive, Step &step) {
  archive(step.kernel, step.set, step.keySet, step.keys, step.buffers, step.strides, step.results, step.immediates,
          step.elements, step.tensors, step.flops, step.traffic, step.location);
}

// All but the name.
template <typename Direction> void fields(Archive<Direction> &archive, Program &program) {
  archive(program.rowByRow, program.arguments, program.outputs, program.buffers, program.steps);
}

template <typename Direction> void fields(Archive<Direction> &archive, Parameter &parameter) {
  archive(parameter.name, parameter.aliases, parameter.shape, parameter.offset, parameter.init, parameter.fanIn,
          parameter.fanOut);
}

template <typename Direction> void fields(Archive<Direction> &archive, OptimizerState::Part &part) {
  archive(part.parameter, part.shape, part.offset);
}

template <typename Direction> void fields(Archive<Direction> &archive, OptimizerState &state) {
  archive(state.name, state.likeParameters, state.elements, state.parts);
}

template <typename Direction> void fields(Archive<Direction> &archive, Packed &packed) {
  archive(packed.kernel, packed.source, packed.bytes, packed.chunks);
}

template <typename Direction> void fields(Archive<Direction> &archive, Table &table) {
  archive(table.rows, table.dim, table.base, table.exponentMultiplier, table.cosineOffset, table.halves);
}

template <typename Direction> void fields(Archive<Direction> &archive, Kernel &kernel) {
  archive(kernel.name, kernel.partition.unit, kernel.partition.per, kernel.partition.times, kernel.scratch,
          kernel.threads, kernel.few, kernel.fewRows, kernel.merge, kernel.resident);
}

// All but the programs.
template <typename Direction> void fields(Archive<Direction> &archive, Module &module) {
  archive(module.model, module.hash, module.description, module.type, module.compute, module.parameterElements,
          module.sourceVocab, module.targetVocab, module.sourceDim, module.targetDim, module.maxLength,
          module.maxTargetLength, module.hasDecoder, module.pad, module.unk, module.bos, module.eos, module.start,
          module.sourceEos, module.parameters, module.states, module.packed, module.tables, module.kernels);
}

// IndexLimits for the indices and offsets in a program: how many kernels, packed weights and tables its module has, and
// how many bytes the blocks of parameters and states hold.
struct IndexLimits {
  size_t kernels, packed, tables;
  int64_t parameterBytes;
  std::vector<int64_t> stateBytes; // of each state's block
};

// Checks that every index refers to something, and that every size and offset is within bounds.
class Checker {
public:
  explicit Checker(const IndexLimits &limits) : limits(limits) {}

  // Computes the limits for the programs of this module. The numbers they are computed from are checked first, so that
  // nothing overflows.
  static IndexLimits limitsOf(const Module &module) {
    type(module.type);
    number(module.parameterElements);
    IndexLimits limits{module.kernels.size(),
                       module.packed.size(),
                       module.tables.size(),
                       module.parameterElements * bytesOf(module.type),
                       {}};
    for (const OptimizerState &state : module.states) {
      number(state.elements);
      limits.stateBytes.push_back(module.elementsOf(state) * bytesOf(module.type));
    }
    return limits;
  }

  // Checks everything but the programs.
  void run(const Module &module) const {
    for (int64_t value : {module.sourceVocab, module.targetVocab, module.sourceDim, module.targetDim, module.maxLength,
                          module.maxTargetLength})
      within(value, 0, std::numeric_limits<int32_t>::max());
    for (int64_t id : {module.pad, module.unk, module.bos, module.eos, module.start})
      within(id, -1, std::numeric_limits<int32_t>::max());
    for (const Parameter &parameter : module.parameters) {
      within(parameter.offset, 0, module.parameterElements);
      within(elements(parameter.shape), 0, module.parameterElements - parameter.offset);
      number(parameter.fanIn);
      number(parameter.fanOut);
    }
    for (const OptimizerState &state : module.states)
      for (const OptimizerState::Part &part : state.parts) {
        index(part.parameter, module.parameters.size());
        within(part.offset, 0, state.elements);
        within(elements(part.shape), 0, state.elements - part.offset);
      }
    for (const Kernel &kernel : module.kernels) {
      within(kernel.partition.unit, Partition::Unit::Elements);
      within(kernel.partition.per, 1, largestSize);
      within(kernel.partition.times, 1, largestSize);
      number(kernel.scratch);
      within(kernel.threads, 0, 1024);
      other(kernel.few, module);
      number(kernel.fewRows);
      other(kernel.merge, module);
    }
    for (const Packed &packed : module.packed) {
      index(packed.kernel, limits.kernels);
      place(packed.source, Program());
      number(packed.bytes);
      number(packed.chunks);
    }
    for (const Table &table : module.tables) {
      within(table.rows, 0, std::numeric_limits<int32_t>::max());
      within(table.dim, 0, std::numeric_limits<int32_t>::max());
      require(std::isfinite(table.base) && table.base > 0 && std::isfinite(table.exponentMultiplier) &&
              std::isfinite(table.cosineOffset));
    }
  }

  void program(const Program &program) const {
    const int64_t steps = static_cast<int64_t>(program.steps.size());
    for (const Argument &argument : program.arguments) {
      within(argument.role, Argument::Role::State);
      type(argument.type);
      within(argument.set, -1, XFC_ROW_SETS - 1);
      elements(argument.shape);
    }
    for (const Buffer &buffer : program.buffers) {
      size(buffer.size);
      require(!program.rowByRow || ofTargetRows(buffer.size));
      within(buffer.last, 0, steps);
      within(buffer.first, 0, buffer.last);
    }
    for (const Output &output : program.outputs) {
      place(output.place, program);
      type(output.type);
      within(output.set, -1, XFC_ROW_SETS - 1);
      within(output.keys, -1, XFC_KEY_STRUCTURES - 1);
      elements(output.shape);
      number(output.stride);
    }
    for (const Step &step : program.steps) {
      index(step.kernel, limits.kernels);
      within(step.set, 0, XFC_ROW_SETS - 1);
      within(step.keySet, 0, XFC_ROW_SETS - 1);
      within(step.keys, -1, XFC_KEY_STRUCTURES - 1);
      require(step.buffers.size() == step.strides.size());
      for (const Place &each : step.buffers)
        place(each, program);
      for (int64_t stride : step.strides)
        number(stride);
      for (const LaunchResult &result : step.results) {
        index(result.buffer, step.buffers.size());
        within(result.type, DType::BF16);
        within(result.set, -1, XFC_ROW_SETS - 1);
        within(result.keys, -1, XFC_KEY_STRUCTURES - 1);
        number(result.width);
      }
      number(step.elements);
      within(step.tensors, 0, static_cast<int64_t>(step.immediates.size()) / numbersOfTensor);
      size(step.flops);
      size(step.traffic);
    }
  }

private:
  static void require(bool holds) {
    if (!holds)
      damaged();
  }
  static void within(int64_t value, int64_t low, int64_t high) { require(low <= value && value <= high); }
  template <typename Enum> static std::enable_if_t<std::is_enum_v<Enum>> within(Enum value, Enum last) {
    require(value <= last);
  }
  static void number(int64_t value) { within(value, 0, largestSize); }
  static void type(DType type) { within(type, DType::I32); } // only what stays inside a program is bf16
  static void index(int64_t i, size_t size) { require(0 <= i && static_cast<size_t>(i) < size); }
  // Checks a kernel that belongs to another and must have none of its own; -1: there is none.
  static void other(int32_t kernel, const Module &module) {
    if (kernel == -1)
      return;
    index(kernel, module.kernels.size());
    require(module.kernels[kernel].few == -1 && module.kernels[kernel].merge == -1);
  }
  static void size(const Size &size) {
    number(size.constant);
    for (int i = 0; i < XFC_ROW_SETS; ++i) {
      number(size.rows[i]);
      number(size.sequences[i]);
      number(size.chunks[i]);
    }
    for (int64_t pairs : size.pairs)
      number(pairs);
  }
  // Whether it counts nothing but the target's rows.
  static bool ofTargetRows(Size size) {
    size.rows[XFC_TARGET] = 0;
    auto none = [](const auto &counts) {
      return std::ranges::all_of(counts, [](int64_t count) { return count == 0; });
    };
    return size.constant == 0 && none(size.rows) && none(size.sequences) && none(size.chunks) && none(size.pairs);
  }
  static int64_t elements(const std::vector<int64_t> &shape) {
    int64_t product = 1;
    for (int64_t extent : shape) {
      within(extent, 0, largestSize / std::max<int64_t>(product, 1));
      product *= extent;
    }
    return product;
  }

  // Checks a place: an offset must lie within its block, or within a row.
  void place(const Place &place, const Program &program) const {
    using Kind = Place::Kind;
    within(place.kind, Kind::None);
    int64_t bytes = 0;
    switch (place.kind) {
    case Kind::Arena: {
      index(place.index, program.buffers.size());
      Counts one; // of everything: gives the bytes of one row if the buffer has rows
      for (int64_t *counts : {one.rows, one.sequences})
        std::fill_n(counts, XFC_ROW_SETS, 1);
      std::fill_n(one.pairs, XFC_KEY_STRUCTURES, 1);
      bytes = evaluate(program.buffers[place.index].size, one);
      break;
    }
    case Kind::Parameters:
    case Kind::Gradients:
      require(place.index == 0);
      bytes = limits.parameterBytes;
      break;
    case Kind::State:
      index(place.index, limits.stateBytes.size());
      bytes = limits.stateBytes[place.index];
      break;
    case Kind::Packed:
      index(place.index, limits.packed);
      break;
    case Kind::Table:
      index(place.index, limits.tables);
      break;
    case Kind::Argument: {
      index(place.index, program.arguments.size());
      const Argument &argument = program.arguments[place.index];
      bytes = elements(argument.shape) * bytesOf(argument.type);
      break;
    }
    case Kind::None:
      require(place.index == 0);
      break;
    }
    within(place.offset, 0, std::max<int64_t>(bytes - 1, 0));
  }

  const IndexLimits &limits;
};

} // namespace

//===--------------------------------------------------------------------------------------------------------===//
// Programs
//===--------------------------------------------------------------------------------------------------------===//

struct ProgramList::Entry {
  explicit Entry(Program program) : name(program.name), program(std::move(program)) {}
  Entry(std::string name, std::span<const uint8_t> bytes, std::shared_ptr<const IndexLimits> limits)
      : name(std::move(name)), bytes(bytes), limits(std::move(limits)) {}

  Program &read() {
    const std::lock_guard guard(reading);
    if (limits) {
      Program found{.name = name};
      Archive<Reader> archive(bytes.data(), bytes.size());
      archive(found);
      archive.finish();
      Checker(*limits).program(found);
      program = std::move(found);
      limits.reset();
    }
    return program;
  }

  const std::string name; // known before the program is read

private:
  std::mutex reading;
  Program program;
  std::span<const uint8_t> bytes;
  std::shared_ptr<const IndexLimits> limits; // what the program is checked against; null once it is read
};

ProgramList::ProgramList() = default;
ProgramList::ProgramList(std::initializer_list<Program> programs) {
  for (const Program &program : programs)
    push_back(program);
}
ProgramList::ProgramList(const ProgramList &other) {
  for (const std::unique_ptr<Entry> &entry : other.entries)
    push_back(entry->read());
}
ProgramList::ProgramList(ProgramList &&) noexcept = default;
ProgramList &ProgramList::operator=(ProgramList other) noexcept { // copies or moves into `other`
  entries = std::move(other.entries);
  return *this;
}
ProgramList::~ProgramList() = default;

void ProgramList::push_back(Program program) { entries.push_back(std::make_unique<Entry>(std::move(program))); }
size_t ProgramList::size() const { return entries.size(); }

std::vector<std::string> ProgramList::names() const {
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (const std::unique_ptr<Entry> &entry : entries)
    names.push_back(entry->name);
  return names;
}

void ProgramList::readAll() const {
  for (const std::unique_ptr<Entry> &entry : entries)
    entry->read();
}

bool ProgramList::has(std::string_view name) const {
  return std::ranges::any_of(entries, [&](const std::unique_ptr<Entry> &entry) { return entry->name == name; });
}

Program *ProgramList::find(std::string_view name) {
  for (const std::unique_ptr<Entry> &entry : entries)
    if (entry->name == name)
      return &entry->read();
  return nullptr;
}
const Program *ProgramList::find(std::string_view name) const { return const_cast<ProgramList *>(this)->find(name); }

Program &ProgramList::operator[](size_t index) { return entries[index]->read(); }
const Program &ProgramList::operator[](size_t index) const { return entries[index]->read(); }

// Programs come last in a plan: their names, the bytes that each takes, and these bytes.
class ProgramReader {
public:
  static void read(Archive<Reader> &archive, Module &module) {
    std::vector<std::string> names;
    std::vector<uint64_t> sizes;
    archive(names, sizes);
    if (sizes.size() != names.size())
      damaged();
    const auto limits = std::make_shared<const IndexLimits>(Checker::limitsOf(module));
    Checker(*limits).run(module);
    for (size_t i = 0; i < names.size(); ++i)
      module.programs.entries.push_back(
          std::make_unique<ProgramList::Entry>(std::move(names[i]), archive.skip(sizes[i]), limits));
    archive.finish();
  }
};

std::vector<uint8_t> serialize(const Module &module) {
  Archive<Writer> archive, programs;
  archive.number(planVersion);
  Module copy = module;
  std::vector<std::string> names = copy.programs.names();
  std::vector<uint64_t> sizes;
  for (size_t i = 0; i < names.size(); ++i) {
    const size_t before = programs.bytes.size();
    programs(copy.programs[i]);
    sizes.push_back(programs.bytes.size() - before);
  }
  archive(copy, names, sizes);
  archive.raw(programs.bytes.data(), programs.bytes.size());
  return std::move(archive.bytes);
}

// Opens a plan and reads its version.
static Archive<Reader> openPlan(const uint8_t *bytes, uint64_t size) {
  Archive<Reader> archive(bytes, size);
  int64_t version;
  archive(version);
  if (version != planVersion)
    throw Error("this executable was compiled for version " + std::to_string(version) +
                " of the runtime, which is version " + std::to_string(planVersion) + "; compile the model again");
  return archive;
}

std::string deserializeDescription(const uint8_t *bytes, uint64_t size) {
  Archive<Reader> archive = openPlan(bytes, size);
  Module module; // these are its first fields
  archive(module.model, module.hash, module.description);
  return std::move(module.description);
}

Module deserialize(const uint8_t *bytes, uint64_t size) {
  Archive<Reader> archive = openPlan(bytes, size);
  Module module;
  archive(module);
  ProgramReader::read(archive, module);
  return module;
}

//===--------------------------------------------------------------------------------------------------------===//
// The planner
//===--------------------------------------------------------------------------------------------------------===//

// Rounded up to whole cache lines.
static int64_t sizeOf(const Buffer &buffer, const Counts &counts) {
  const int64_t bytes = evaluate(buffer.size, counts);
  if (bytes > largestSize)
    tooLarge();
  return (bytes + 63) / 64 * 64;
}

// Places buffers largest first, each at the lowest offset where it overlaps no buffer that is live at the same time.
static Layout place(const Program &program, const std::vector<int64_t> &sizes) {
  const size_t n = program.buffers.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  Layout layout;
  layout.offsets.assign(n, 0);
  std::vector<size_t> placed; // in order of their offsets
  for (size_t i : order) {
    if (sizes[i] == 0)
      continue;
    int64_t offset = 0;
    for (size_t other : placed) {
      const Buffer &a = program.buffers[i], &b = program.buffers[other];
      if (a.last < b.first || b.last < a.first)
        continue;
      if (layout.offsets[other] >= offset + sizes[i])
        break; // fits before this one, and the rest start later still
      offset = std::max(offset, layout.offsets[other] + sizes[other]);
    }
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + sizes[i]);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) { return layout.offsets[a] < layout.offsets[b]; }),
                  i);
  }
  return layout;
}

Layout plan(const Program &program, const Counts &counts) {
  const size_t n = program.buffers.size();
  std::vector<int64_t> sizes(n);
  if (!program.rowByRow) {
    for (size_t i = 0; i < n; ++i)
      sizes[i] = sizeOf(program.buffers[i], counts);
    return place(program, sizes);
  }
  Counts one;
  one.rows[XFC_TARGET] = 1;
  std::vector<bool> result(n);
  for (const Output &output : program.outputs)
    if (output.place.kind == Place::Kind::Arena)
      result[output.place.index] = true;
  for (size_t i = 0; i < n; ++i)
    sizes[i] = result[i] ? 0 : sizeOf(program.buffers[i], one);
  Layout layout = place(program, sizes);
  layout.rows = counts.rows[XFC_TARGET];
  layout.rowBytes = layout.bytes;
  layout.bytes = product({layout.rows, layout.rowBytes});
  for (size_t i = 0; i < n; ++i) {
    layout.offsets[i] = result[i] ? layout.bytes : layout.offsets[i] * layout.rows;
    if (result[i])
      layout.bytes += sizeOf(program.buffers[i], counts);
  }
  return layout;
}

int64_t Layout::offsetOf(int64_t buffer, int64_t width, int64_t first, int64_t count) const {
  const int64_t offset = offsets[buffer], all = rows * rowBytes;
  return offset < all ? first * rowBytes + offset / rows * count : offset + first * width;
}

} // namespace xfc
