// Finds the first kernel of a program that computes a number that is not finite.
#pragma once

#include "device/Device.h"
#include <optional>

namespace xfc {

// Observes one run of a program on a device that uses host memory, and reads what every step has computed before a
// later one overwrites it.
class FiniteCheck : public StepObserver {
public:
  explicit FiniteCheck(const Module &module) : module(module) {}
  void before(const ProgramRun &run, int64_t step) override;
  // To be called after the run: checks its last step as well.
  void end();

  struct Found {
    std::string kernel;   // its name
    std::string location; // the place in model.json that it comes from; "" if it comes from none
    double value;         // the first of its results that is NaN or infinite
  };
  const std::optional<Found> &found() const { return first; }

private:
  void check(const ProgramRun &run, const Step &step);

  const Module &module;
  const ProgramRun *observed = nullptr;
  std::optional<Found> first;
};

} // namespace xfc
