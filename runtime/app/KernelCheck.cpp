// A GPU's kernels beside the CPU's, step by step.
#include "app/KernelCheck.h"
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <list>
#include <set>

namespace xfc {
namespace {

// "linear_input_grad" of "linear_input_grad_512x2048_relu": what follows may be another on another device.
std::string operationOf(const std::string &kernel) {
  size_t end = 0;
  while (end < kernel.size() &&
         !(kernel[end] == '_' && end + 1 < kernel.size() && std::isdigit(static_cast<unsigned char>(kernel[end + 1]))))
    ++end;
  return kernel.substr(0, end);
}

class Side {
public:
  Side(Engine &engine, std::string_view program) : engine(engine), run(engine.lastRun(program)) {
    for (const Step &step : steps())
      for (const Place &place : step.buffers)
        if (place.kind == Place::Kind::Gradients)
          gradients.insert(place.offset);
    gradients.insert(engine.module().parameterElements * bytesOf(engine.module().type));
  }
  const std::vector<Step> &steps() const { return run.program->steps; }
  std::string operation(const Step &step) const { return operationOf(engine.module().kernels[step.kernel].name); }
  // Of what kernels write: values of the arena, and gradients, each up to the next one that a step names (projections
  // may share theirs).
  int64_t bytes(const Place &place) const {
    if (place.kind == Place::Kind::Arena)
      return evaluate(run.program->buffers[place.index].size, run.counts) - place.offset;
    return place.kind == Place::Kind::Gradients ? *gradients.upper_bound(place.offset) - place.offset : 0;
  }
  void *address(const Place &place) const { return run.address(place); }
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
  std::set<int64_t> gradients; // where they begin, and where the last one ends
  std::list<Program> programs; // which a device knows by their addresses
};

// Of the numbers that either side wrote.
struct Difference {
  double error = 0, largest = 0;
};
Difference differenceOf(const std::vector<char> &before, const std::vector<char> &expected,
                        const std::vector<char> &found) {
  Difference difference;
  for (size_t i = 0; i + sizeof(float) <= before.size(); i += sizeof(float)) {
    if (std::memcmp(&before[i], &expected[i], sizeof(float)) == 0 &&
        std::memcmp(&before[i], &found[i], sizeof(float)) == 0)
      continue;
    float a, b;
    std::memcpy(&a, &expected[i], sizeof a);
    std::memcpy(&b, &found[i], sizeof b);
    if (std::isfinite(a))
      difference.largest = std::max(difference.largest, std::abs(double(a)));
    if (a == b) // infinities, too
      continue;
    const double apart = std::abs(double(a) - double(b));
    difference.error =
        std::isfinite(apart) && difference.error == difference.error ? std::max(difference.error, apart) : NAN;
  }
  return difference;
}

} // namespace

KernelComparison compareKernels(Engine &cpuEngine, Engine &gpuEngine, std::string_view program) {
  KernelComparison comparison;
  Side cpu(cpuEngine, program), gpu(gpuEngine, program);
  Device &device = gpu.engine.device();
  // What a step writes is seen by its change: what an earlier run left must not be there already.
  if (cpu.run.arena)
    std::memset(cpu.run.arena, 0xff, cpu.run.layout.bytes);
  struct Operand {
    Place cpu, gpu;
    std::vector<char> before;
  };
  auto next = gpu.steps().begin();
  for (const Step &step : cpu.steps()) {
    const auto match = std::find_if(next, gpu.steps().end(), [&](const Step &other) {
      return other.location == step.location && gpu.operation(other) == cpu.operation(step) &&
             other.buffers.size() == step.buffers.size() && other.strides == step.strides;
    });
    std::vector<Operand> operands;
    for (size_t b = 0; match != gpu.steps().end() && b < step.buffers.size(); ++b) {
      const Place &at = step.buffers[b], &there = match->buffers[b];
      const int64_t bytes = std::min(cpu.bytes(at), gpu.bytes(there));
      if (bytes <= 0)
        continue;
      const char *begin = static_cast<const char *>(cpu.address(at));
      operands.push_back({at, there, {begin, begin + bytes}});
      device.copyToDevice(gpu.address(there), begin, bytes);
    }
    cpu.runStep(step);
    if (match == gpu.steps().end())
      continue;
    comparison.alone += match - next;
    next = match + 1;
    gpu.runStep(*match);
    std::vector<Difference> differences;
    double largest = 0;
    for (const Operand &operand : operands) {
      std::vector<char> result(operand.before.size());
      device.copyToHost(result.data(), gpu.address(operand.gpu), static_cast<int64_t>(result.size()));
      const char *begin = static_cast<const char *>(cpu.address(operand.cpu));
      differences.push_back(differenceOf(operand.before, {begin, begin + result.size()}, result));
      largest = std::max(largest, differences.back().largest);
    }
    KernelDifference found{gpu.engine.module().kernels[match->kernel].name, match->location, 0};
    for (const Difference &difference : differences) // of what is 0 but for rounding, nothing is asked
      if (difference.error != 0) {
        const double error = difference.error / std::max(difference.largest, 1e-3 * largest);
        found.error = std::isnan(found.error) || found.error >= error ? found.error : error;
      }
    comparison.steps.push_back(std::move(found));
  }
  comparison.alone += gpu.steps().end() - next;
  return comparison;
}

} // namespace xfc
