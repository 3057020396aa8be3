// Compares a GPU's kernels with the CPU's, step by step.
#include "measure/KernelCheck.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <ranges>
#include <set>

namespace xfc {
namespace {

// Returns "linear_input_grad" for "linear_input_grad_512x2048_relu": the rest of the name may depend on the device.
std::string operationOf(const std::string &kernel) {
  size_t end = 0;
  while (end < kernel.size() &&
         !(kernel[end] == '_' && end + 1 < kernel.size() && std::isdigit(static_cast<unsigned char>(kernel[end + 1]))))
    ++end;
  return kernel.substr(0, end);
}

// Products and sums are taken in another order. With bf16, an operand close to a tie may round to the other neighbor,
// and only GPUs round the operands of attention; the gradient of a score is a difference, of which little is left where
// the keys' values are alike, as they are before training, and then the rounding counts several times as much.
double allowedDifference(const std::string &operation, bool rounds) {
  return !rounds ? 1e-4 : operation == "attention_grad" ? 0.1 : 3e-2;
}

class Side {
public:
  Side(Engine &engine, std::string_view program, const xfc_shape &shape, std::span<const Binding> bindings)
      : engine(engine), run(engine.prepare(program, shape, bindings)) {
    for (const Step &step : steps()) {
      for (const Place &place : step.buffers)
        if (place.kind == Place::Kind::Gradients)
          gradients.insert(place.offset);
      for (const LaunchResult &result : step.results)
        if (const Place &place = step.buffers[static_cast<size_t>(result.buffer)]; place.kind == Place::Kind::Arena)
          types[place.index] = result.type;
    }
    gradients.insert(engine.module().parameterElements * bytesOf(engine.module().type));
  }
  const std::vector<Step> &steps() const { return run.program->steps; }
  std::string operation(const Step &step) const { return operationOf(engine.module().kernels[step.kernel].name); }
  // The number of bytes that kernels write here: an arena value to its end, or gradients up to the next offset that the
  // program names (projections may share one).
  int64_t bytes(const Place &place) const {
    if (place.kind == Place::Kind::Arena)
      return evaluate(run.program->buffers[place.index].size, run.counts) - place.offset;
    return place.kind == Place::Kind::Gradients ? *gradients.upper_bound(place.offset) - place.offset : 0;
  }
  // Whether its size is the same for every batch.
  bool isConstant(const Place &place) const {
    return place.kind == Place::Kind::Arena && evaluate(run.program->buffers[place.index].size, Counts()) ==
                                                   evaluate(run.program->buffers[place.index].size, run.counts);
  }
  void *address(const Place &place) const { return run.address(place); }
  // The type of the numbers there: a buffer of the arena has one, and f32 is everything else that is compared.
  DType type(const Place &place) const {
    const auto found = types.find(place.index);
    return place.kind == Place::Kind::Arena && found != types.end() ? found->second : DType::F32;
  }
  // The number of a step's buffers that follow its operands and results: partial sums for the merging kernel.
  size_t partialSums(const Step &step) const { return engine.module().kernels[step.kernel].reduction >= 0 ? 1 : 0; }
  // The kernels that a step launches for this batch.
  std::vector<std::string> kernels(const Step &step) const {
    const Module &module = engine.module();
    std::vector<std::string> names{module.kernels[kernelOf(module, run.counts, step)].name};
    if (const int32_t reduction = reductionOf(module, run.counts, step); reduction >= 0)
      names.push_back(module.kernels[reduction].name);
    return names;
  }
  void runStep(const Step &step) {
    Program &single = programs.emplace_back(*run.program);
    single.steps = {step};
    single.outputs.clear();
    ProgramRun only = run;
    only.program = &single;
    engine.device().prepare(single);
    engine.device().run(only);
  }

  Engine &engine;
  const ProgramRun run;

private:
  std::set<int64_t> gradients;    // offsets of the gradients, and the end of the block
  std::map<int64_t, DType> types; // of the arena's buffers that hold results
  std::list<Program> programs;    // a list: a device identifies programs by address
};

std::vector<float> numbersIn(DType type, const void *stored, int64_t count) {
  std::vector<float> numbers(static_cast<size_t>(count));
  if (type == DType::F32)
    std::memcpy(numbers.data(), stored, numbers.size() * sizeof(float)); // as they are, whatever their bits
  else
    for (int64_t i = 0; i < count; ++i)
      numbers[static_cast<size_t>(i)] = static_cast<float>(numberAt(type, stored, i));
  return numbers;
}

std::vector<char> bytesAs(DType type, const std::vector<float> &numbers) {
  std::vector<char> stored(numbers.size() * static_cast<size_t>(bytesOf(type)));
  if (type == DType::F32)
    std::memcpy(stored.data(), numbers.data(), stored.size());
  else
    for (size_t i = 0; i < numbers.size(); ++i)
      storeNumber(numbers[i], type, stored.data(), static_cast<int64_t>(i));
  return stored;
}

// An operand: its numbers before the step, and after it on the CPU (expected) and on the GPU (found).
struct Operand {
  size_t index; // among the buffers of the step
  Place cpu, gpu;
  std::vector<float> before, expected, found;
  // The largest difference between the two sides, NaN if any difference is not finite; and the largest finite magnitude
  // of the expected values.
  double error = 0, largest = 0;

  double apart(size_t element) const {
    const float a = expected[element], b = found[element];
    return a == b ? 0 : std::abs(double(a) - double(b)); // equal infinities do not differ
  }
  bool written(size_t element) const {
    const auto old = std::bit_cast<uint32_t>(before[element]);
    return old != std::bit_cast<uint32_t>(expected[element]) || old != std::bit_cast<uint32_t>(found[element]);
  }
  void compare() {
    for (size_t i = 0; i < before.size(); ++i) {
      if (!written(i))
        continue;
      if (const double value = std::abs(double(expected[i])); std::isfinite(value))
        largest = std::max(largest, value);
      const double difference = apart(i);
      error = std::isfinite(difference) && !std::isnan(error) ? std::max(error, difference) : NAN;
    }
  }
  // The index of the first element that differs by more than `most`, or -1.
  int64_t firstDifference(double most) const {
    for (size_t i = 0; i < before.size(); ++i)
      if (written(i) && !(apart(i) <= most))
        return static_cast<int64_t>(i);
    return -1;
  }
};

// "gradient of decoder.embed.weight", or the position in the arena.
std::string placeText(const Engine &engine, const Place &place) {
  if (place.kind != Place::Kind::Gradients)
    return "buffer " + std::to_string(place.index) + (place.offset ? " from byte " + std::to_string(place.offset) : "");
  const Module &module = engine.module();
  for (const Parameter &parameter : module.parameters)
    if (parameter.offset * bytesOf(module.type) == place.offset)
      return "gradient of " + parameter.name;
  return "gradients from byte " + std::to_string(place.offset);
}

} // namespace

std::string KernelDifference::text() const {
  std::array<char, 128> numbers{};
  std::snprintf(numbers.data(), numbers.size(), "element %lld is %.9g, the CPU's %.9g", static_cast<long long>(element),
                found, expected);
  return kernel + " of " + location + ", operand " + std::to_string(operand) + " (" + place + "): " + numbers.data();
}

KernelComparison compareKernels(Engine &cpuEngine, Engine &gpuEngine, std::string_view program, const xfc_shape &shape,
                                std::span<const Binding> bindings, bool rounds, std::string_view kernel) {
  KernelComparison comparison;
  Side cpu(cpuEngine, program, shape, bindings), gpu(gpuEngine, program, shape, bindings);
  Device &device = gpu.engine.device();
  // A step's writes are detected by the change they make, so the results of an earlier run must not be there already.
  if (cpu.run.arena)
    std::memset(cpu.run.arena, 0xff, cpu.run.layout.bytes);
  auto next = gpu.steps().begin();
  for (const Step &step : cpu.steps()) {
    auto match = std::find_if(next, gpu.steps().end(), [&](const Step &other) {
      return other.location == step.location && gpu.operation(other) == cpu.operation(step) &&
             other.buffers.size() == step.buffers.size() + gpu.partialSums(other) &&
             std::equal(step.strides.begin(), step.strides.end(), other.strides.begin());
    });
    if (match == gpu.steps().end()) {
      cpu.runStep(step);
      continue;
    }
    comparison.alone += match - next;
    next = match + 1;
    // Sums over rows may be split into partial sums, whose number depends on the device. A merging kernel reads the
    // partial sums of its own device; only the final sums are compared.
    auto areParts = [&](size_t b) {
      const Place &at = step.buffers[b], &there = match->buffers[b];
      return cpu.isConstant(at) && gpu.isConstant(there) && cpu.bytes(at) != gpu.bytes(there);
    };
    const std::vector<std::string> names = gpu.kernels(*match);
    if (!kernel.empty() && std::find(names.begin(), names.end(), kernel) == names.end()) {
      cpu.runStep(step);
      if (std::ranges::any_of(std::views::iota(size_t(0), step.buffers.size()), areParts))
        // The requested kernel may read these partial sums.
        gpu.runStep(*match);
      continue;
    }
    KernelDifference difference;
    difference.kernel = names.front();
    difference.location = match->location;
    difference.allowed = allowedDifference(gpu.operation(*match), rounds);
    try {
      std::vector<Operand> operands;
      for (size_t b = 0; b < step.buffers.size(); ++b) {
        const Place &at = step.buffers[b], &there = match->buffers[b];
        const int64_t count =
            std::min(cpu.bytes(at) / bytesOf(cpu.type(at)), gpu.bytes(there) / bytesOf(gpu.type(there)));
        if (count <= 0 || areParts(b))
          continue;
        // Both sides read numbers that both of them can store.
        const std::vector<char> stored = bytesAs(gpu.type(there), numbersIn(cpu.type(at), cpu.address(at), count));
        std::vector<float> before = numbersIn(gpu.type(there), stored.data(), count);
        device.copyToDevice(gpu.address(there), stored.data(), static_cast<int64_t>(stored.size()));
        std::ranges::copy(bytesAs(cpu.type(at), before), static_cast<char *>(cpu.address(at)));
        operands.push_back({b, at, there, std::move(before), {}, {}});
      }
      cpu.runStep(step);
      gpu.runStep(*match);
      double largest = 0;
      for (Operand &operand : operands) {
        const auto count = static_cast<int64_t>(operand.before.size());
        operand.expected = numbersIn(cpu.type(operand.cpu), cpu.address(operand.cpu), count);
        const DType type = gpu.type(operand.gpu);
        std::vector<char> stored(static_cast<size_t>(count * bytesOf(type)));
        device.copyToHost(stored.data(), gpu.address(operand.gpu), static_cast<int64_t>(stored.size()));
        operand.found = numbersIn(type, stored.data(), count);
        operand.compare();
        largest = std::max(largest, operand.largest);
      }
      for (const Operand &operand : operands) { // the floor exempts operands that are 0 up to rounding
        const double size = std::max(operand.largest, 1e-3 * largest), error = operand.error / size;
        if (operand.error == 0 || error <= difference.error || std::isnan(difference.error))
          continue;
        difference.error = error;
        difference.operand = operand.index;
        difference.place = placeText(gpuEngine, operand.gpu);
        difference.element = operand.firstDifference(difference.allowed * size);
        if (difference.element >= 0) {
          difference.found = operand.found[static_cast<size_t>(difference.element)];
          difference.expected = operand.expected[static_cast<size_t>(difference.element)];
        }
      }
    } catch (const Error &error) {
      throw Error("kernel " + names.front() + " of " + match->location + ": " + error.what());
    }
    comparison.steps.push_back(std::move(difference));
  }
  comparison.alone += gpu.steps().end() - next;
  return comparison;
}

} // namespace xfc
