// Finds the first kernel of a program that computes a number that is not finite.
#include "train/FiniteCheck.h"
#include <cmath>

namespace xfc {
namespace {

// The first of these numbers that is not finite; nullopt if all are.
std::optional<double> firstNotFinite(DType type, const void *numbers, int64_t rows, int64_t width, int64_t stride) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < width; ++i)
      if (const double number = numberAt(type, numbers, row * stride + i); !std::isfinite(number))
        return number;
  return std::nullopt;
}

} // namespace

void FiniteCheck::before(const ProgramRun &run, int64_t step) {
  observed = &run;
  if (step > 0)
    check(run, run.program->steps[static_cast<size_t>(step - 1)]);
}

void FiniteCheck::end() {
  if (observed)
    check(*observed, observed->program->steps.back());
}

void FiniteCheck::check(const ProgramRun &run, const Step &step) {
  for (const LaunchResult &result : step.results) {
    if (first)
      return;
    const auto buffer = static_cast<size_t>(result.buffer);
    const int64_t rows = result.set >= 0    ? run.counts.rows[result.set]
                         : result.keys >= 0 ? run.counts.pairs[result.keys]
                                            : 1;
    const bool spaced = result.set >= 0 && step.strides[buffer] > 0; // with a stride of 0, rows are dense
    const int64_t stride = spaced ? step.strides[buffer] : result.width;
    const void *const numbers = run.address(step.buffers[buffer]);
    const std::optional<double> value = firstNotFinite(result.type, numbers, rows, result.width, stride);
    if (value)
      first = {module.kernels[kernelOf(module, run.counts, step)].name, step.location, *value};
  }
}

} // namespace xfc
