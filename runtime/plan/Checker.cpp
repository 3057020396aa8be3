// Checks what was read of a plan: a damaged one must not make the runtime read or write where it may not.
#include "plan/Checker.h"
#include "plan/GenerationSettings.h"
#include "plan/Memory.h"
#include "plan/Optimizers.h"
#include "plan/StagingLayout.h"
#include "support/Error.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace xfc {

void damagedPlan() { throw Error("the plan inside this executable is damaged; compile the model again"); }

namespace {

// Checks that every index refers to something, and that every size and offset is within bounds.
class Checker {
public:
  explicit Checker(const IndexLimits &limits) : limits(limits) {}

  // Checks the numbers that limits are computed from, so that nothing overflows.
  static void beforeLimits(const Module &module) {
    within(module.type, DType::F64);
    number(module.parameterElements);
    for (const OptimizerState &state : module.states) {
      require(state.type == module.type ||
              (state.type == DType::BF16 && module.type == DType::F32 && mayBeNarrow(state.name)));
      number(state.elements);
    }
  }

  static void settings(const ModelSettings &settings) {
    const Generation &generation = settings.generation;
    within(settings.width, 1, largestSize);
    within(generation.penaltyForm, Generation::PenaltyForm::Power);
    within(generation.earlyStopping, Generation::EarlyStopping::Never);
    within(generation.atMaxLength, Generation::AtMaxLength::Cut);
    for (const GenerationSetting &setting : generationSettings())
      require(!rangeProblem(setting, generation));
    tokens(generation.forcedFirst);
    tokens(generation.suppress);
    for (const std::vector<int32_t> &sequence : generation.badSequences)
      tokens(sequence);
    for (const Constraint &constraint : generation.requiredPhrases)
      for (const std::vector<int32_t> &phrase : constraint)
        tokens(phrase);
    require(settings.training.labelSmoothing >= 0 && settings.training.labelSmoothing <= 1);
  }

  // Checks everything but the programs.
  void run(const Module &module) const {
    settings(module.settings);
    for (int64_t value : {module.sourceVocab, module.targetVocab, module.dims[0], module.dims[1], module.maxLength,
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
      variant(kernel, module);
      number(kernel.smallRows);
      if (kernel.reduction != -1) {
        other(kernel.reduction, module);
        require(module.kernels[kernel.reduction].small == -1);
      }
      for (int32_t body : kernel.bodies) {
        index(body, module.kernels.size());
        require(module.kernels[body].bodies.empty() && !module.kernels[body].resident &&
                module.kernels[body].threads <= kernel.threads && module.kernels[body].scratch <= kernel.scratch);
      }
    }
    for (const Packed &packed : module.packed) {
      kernel(packed.kernel);
      place(packed.source, Program());
      number(packed.bytes);
      // It packs what it is called for: chunks beyond those that it has would be beyond the weight.
      const Partition &partition = module.kernels[packed.kernel].partition;
      require(partition.unit == Partition::Unit::One && packed.chunks == partition.times);
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
    if (program.persistent != -1)
      kernel(program.persistent, /*persistent=*/true);
    for (const Argument &argument : program.arguments) {
      within(argument.role, Argument::Role::State);
      type(argument.type,
           !argument.shape.empty() && (argument.set == XFC_SOURCE || argument.role == Argument::Role::State));
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
      require(!program.rowByRow || output.place.kind != Place::Kind::Gradients); // rows have an arena of their own
      type(output.type, output.set == XFC_SOURCE);
      within(output.set, -1, XFC_ROW_SETS - 1);
      within(output.keys, -1, XFC_KEY_STRUCTURES - 1);
      elements(output.shape);
      number(output.stride);
    }
    for (const Step &step : program.steps) {
      forPersistent(step, &step - program.steps.data());
      kernel(step.kernel);
      within(step.set, 0, XFC_ROW_SETS - 1);
      within(step.keySet, 0, XFC_ROW_SETS - 1);
      within(step.keys, -1, XFC_KEY_STRUCTURES - 1);
      require(step.keys < 0 ? step.keySet == step.set
                            : querySetOf(step.keys) == step.set && keySetOf(step.keys) == step.keySet);
      require(step.buffers.size() == step.strides.size());
      for (const Place &each : step.buffers) {
        place(each, program);
        require(!program.rowByRow || each.kind != Place::Kind::Gradients);
      }
      for (int64_t stride : step.strides)
        number(stride);
      for (const LaunchResult &result : step.results) {
        index(result.buffer, step.buffers.size());
        within(result.type, elementTypes.back().type);
        within(result.set, -1, XFC_ROW_SETS - 1);
        within(result.keys, -1, XFC_KEY_STRUCTURES - 1);
        number(result.width);
      }
      number(step.elements);
      require(step.buffers.size() >= 2 * step.repacked.size());
      for (const xfc_repacked_weight &weight : step.repacked) {
        within(weight.first, 0, step.elements);
        within(weight.rows, 1, step.elements);
        within(weight.columns, 1, (step.elements - weight.first) / weight.rows);
      }
      size(step.flops);
      size(step.traffic);
    }
  }

private:
  static void require(bool holds) {
    if (!holds)
      damagedPlan();
  }
  static void within(int64_t value, int64_t low, int64_t high) { require(low <= value && value <= high); }
  template <typename Enum> static std::enable_if_t<std::is_enum_v<Enum>> within(Enum value, Enum last) {
    require(value <= last);
  }
  static void tokens(const std::vector<int32_t> &ids) {
    require(std::ranges::all_of(ids, [](int32_t id) { return id >= 0; }));
  }
  static void number(int64_t value) { within(value, 0, largestSize); }
  // Only what stays inside programs, or is kept from run to run, is narrower than what is computed in: states, and rows
  // of the source.
  static void type(DType type, bool isKept) { within(type, isKept ? elementTypes.back().type : DType::I32); }
  static void index(int64_t i, size_t size) { require(0 <= i && static_cast<size_t>(i) < size); }
  // Checks a kernel that is launched, with a call, or a persistent one, which takes a table of launches.
  void kernel(int32_t number, bool persistent = false) const {
    index(number, limits.persistent.size());
    require(limits.persistent[static_cast<size_t>(number)] == persistent);
  }
  // Checks a kernel that belongs to another.
  static void other(int32_t kernel, const Module &module) {
    index(kernel, module.kernels.size());
    require(module.kernels[kernel].reduction == -1 && module.kernels[kernel].bodies.empty());
  }
  // Checks a kernel's small-M variant, if it has one. One of that is for fewer rows, so that there is a last one.
  static void variant(const Kernel &kernel, const Module &module) {
    if (kernel.small == -1)
      return;
    other(kernel.small, module);
    const Kernel &small = module.kernels[kernel.small];
    require(small.small == -1 || small.smallRows < kernel.smallRows);
  }
  // Checks what a step says of itself for a persistent kernel.
  void forPersistent(const Step &step, int64_t own) const {
    within(step.weight, -1, static_cast<int64_t>(step.buffers.size()) - 1);
    number(step.weightBytes);
    if (step.weight >= 0) {
      const Place &weight = step.buffers[step.weight];
      if (weight.kind == Place::Kind::Packed) {
        index(weight.index, limits.packedBytes.size());
        within(step.weightBytes, 0, limits.packedBytes[weight.index]);
      } else {
        require(weight.kind == Place::Kind::Parameters);
        within(weight.offset, 0, limits.parameterBytes);
        within(step.weightBytes, 0, limits.parameterBytes - weight.offset);
      }
    }
    for (size_t i = 0; i < step.after.size(); ++i)
      within(step.after[i], i == 0 ? 0 : step.after[i - 1] + int64_t(1), own - 1);
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
      index(place.index, limits.packedBytes.size());
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

IndexLimits limitsOf(const Module &module) {
  Checker::beforeLimits(module);
  IndexLimits limits{module.tables.size(), module.parameterElements * bytesOf(module.type), {}, {}, {}};
  for (const Packed &packed : module.packed)
    limits.packedBytes.push_back(packed.bytes);
  for (const OptimizerState &state : module.states)
    limits.stateBytes.push_back(module.bytesOf(state));
  for (const Kernel &kernel : module.kernels)
    limits.persistent.push_back(!kernel.bodies.empty());
  return limits;
}

void checkSettings(const ModelSettings &settings) { Checker::settings(settings); }

void checkModule(const Module &module, const IndexLimits &limits) { Checker(limits).run(module); }

void checkProgram(const Program &program, const IndexLimits &limits) { Checker(limits).program(program); }

} // namespace xfc
