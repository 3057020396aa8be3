// Plans as bytes: one field after the other, in the order of the structs.
#include "plan/Serialization.h"
#include "plan/Checker.h"
#include "support/Error.h"
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace xfc {

namespace {

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
        damagedPlan(); // truncated, too large, or not the shortest form
      bits |= static_cast<uint64_t>(*next & 0x7F) << shift;
      if (*next++ < 0x80)
        break;
    }
    const int64_t whole = static_cast<int64_t>(bits >> 1) ^ -static_cast<int64_t>(bits & 1);
    if constexpr (std::is_same_v<T, bool>) {
      if (whole != 0 && whole != 1)
        damagedPlan();
    } else if constexpr (std::is_enum_v<T>) {
      if (!std::in_range<std::underlying_type_t<T>>(whole))
        damagedPlan();
    } else if (!std::in_range<T>(whole)) {
      damagedPlan();
    }
    value = static_cast<T>(whole);
  }
  void raw(void *to, size_t size) {
    if (size > static_cast<size_t>(end - next))
      damagedPlan();
    std::copy_n(next, size, static_cast<uint8_t *>(to));
    next += size;
  }
  // An item takes at least one byte, so a length beyond the remaining bytes is damage, and is not allocated.
  template <typename List> void length(List &list) {
    size_t size;
    number(size);
    if (size > static_cast<size_t>(end - next))
      damagedPlan();
    list.resize(size);
  }
  // Skips these bytes and returns them, to be read later.
  std::span<const uint8_t> skip(uint64_t size) {
    if (size > static_cast<uint64_t>(end - next))
      damagedPlan();
    next += size;
    return {next - size, size};
  }
  void finish() const {
    if (next != end)
      damagedPlan();
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
        damagedPlan();
    }
    mask &= ~bit;
  });
  if (mask != 0)
    damagedPlan();
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

template <typename Direction> void fields(Archive<Direction> &archive, xfc_parted_tensor &tensor) {
  archive(tensor.first, tensor.rows, tensor.columns, tensor.per, tensor.parts, tensor.matrix, tensor.group);
}

template <typename Direction> void fields(Archive<Direction> &archive, xfc_repacked_weight &weight) {
  archive(weight.first, weight.rows, weight.columns);
}

template <typename Direction> void fields(Archive<Direction> &archive, Step &step) {
  archive(step.kernel, step.set, step.keySet, step.keys, step.buffers, step.strides, step.results, step.dropout,
          step.elements, step.tensors, step.repacked, step.flops, step.traffic, step.location, step.weight,
          step.weightBytes, step.after);
}

// All but the name.
template <typename Direction> void fields(Archive<Direction> &archive, Program &program) {
  archive(program.rowByRow, program.persistent, program.arguments, program.outputs, program.buffers, program.steps);
}

template <typename Direction> void fields(Archive<Direction> &archive, Parameter &parameter) {
  archive(parameter.name, parameter.aliases, parameter.shape, parameter.offset, parameter.init, parameter.fanIn,
          parameter.fanOut);
}

template <typename Direction> void fields(Archive<Direction> &archive, OptimizerState::Part &part) {
  archive(part.parameter, part.shape, part.offset);
}

template <typename Direction> void fields(Archive<Direction> &archive, OptimizerState &state) {
  archive(state.name, state.type, state.likeParameters, state.elements, state.parts);
}

template <typename Direction> void fields(Archive<Direction> &archive, Packed &packed) {
  archive(packed.kernel, packed.source, packed.bytes, packed.chunks);
}

template <typename Direction> void fields(Archive<Direction> &archive, Table &table) {
  archive(table.rows, table.dim, table.base, table.exponentMultiplier, table.cosineOffset, table.halves);
}

template <typename Direction> void fields(Archive<Direction> &archive, Kernel &kernel) {
  archive(kernel.name, kernel.partition.unit, kernel.partition.per, kernel.partition.times, kernel.scratch,
          kernel.threads, kernel.small, kernel.smallRows, kernel.reduction, kernel.resident, kernel.bodies);
}

template <typename Direction> void fields(Archive<Direction> &archive, Generation &generation) {
  Generation &g = generation;
  archive(g.beam, g.lengthPenalty, g.penaltyForm, g.earlyStopping, g.patience, g.beamGroups, g.diversity,
          g.coveragePenalty, g.atMaxLength, g.maxLength, g.maxLengthRatio, g.minLength, g.minLengthRatio, g.forcedFirst,
          g.suppress, g.badSequences, g.requiredPhrases, g.noRepeatNgram, g.repetitionPenalty, g.renormalize,
          g.temperature, g.topK, g.topP, g.minP, g.typicalP, g.epsilonCutoff);
}

template <typename Direction> void fields(Archive<Direction> &archive, ModelSettings &settings) {
  archive(settings.width, settings.generation, settings.training.labelSmoothing);
}

// All but the programs.
template <typename Direction> void fields(Archive<Direction> &archive, Module &module) {
  archive(module.model, module.hash, module.description, module.settings, module.type, module.compute,
          module.parameterElements, module.sourceVocab, module.targetVocab, module.dims[0], module.dims[1],
          module.maxLength, module.maxTargetLength, module.hasDecoder, module.pad, module.unk, module.bos, module.eos,
          module.start, module.sourceEos, module.parameters, module.states, module.packed, module.tables,
          module.kernels);
}

} // namespace

// Programs come last in a plan: their names, the bytes that each takes, and these bytes.
static void readPrograms(Archive<Reader> &archive, Module &module) {
  std::vector<std::string> names;
  std::vector<uint64_t> sizes;
  archive(names, sizes);
  if (sizes.size() != names.size())
    damagedPlan();
  const auto limits = std::make_shared<const IndexLimits>(limitsOf(module));
  checkModule(module, *limits);
  for (size_t i = 0; i < names.size(); ++i)
    module.programs.push_back(names[i], [name = names[i], bytes = archive.skip(sizes[i]), limits] {
      Program program{.name = name};
      Archive<Reader> part(bytes.data(), bytes.size());
      part(program);
      part.finish();
      checkProgram(program, *limits);
      return program;
    });
  archive.finish();
}

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

ModelSettings deserializeSettings(const uint8_t *bytes, uint64_t size) {
  Archive<Reader> archive = openPlan(bytes, size);
  Module module; // these are its first fields
  archive(module.model, module.hash, module.description, module.settings);
  checkSettings(module.settings);
  return std::move(module.settings);
}

Module deserialize(const uint8_t *bytes, uint64_t size) {
  Archive<Reader> archive = openPlan(bytes, size);
  Module module;
  archive(module);
  readPrograms(archive, module);
  return module;
}

} // namespace xfc
