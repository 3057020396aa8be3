// The optimizers, declared once for the compiler, which generates a program for each rule, and the runtime, which runs
// one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// The settings of a run. Each optimizer uses some of them.
struct OptimizerSettings {
  double rate = 0; // the learning rate of this step
  double beta1 = 0.9, beta2 = 0.98, epsilon = 1e-9;
  double momentum = 0.9;
  double weightDecay = 0;
  // Adafactor's: the mean squares weigh step t by t^decayRate; eps1 is added to squared gradients; the update of a
  // tensor is clipped to this root mean square; and whether the rate is relative to that of the parameter, but at least
  // to eps2.
  double decayRate = -0.8, eps1 = 1e-30, eps2 = 1e-3, clipThreshold = 1;
  bool scaleParameter = false;
  double clipValue = 0;    // largest magnitude of an element of a gradient, after clipping by norm; 0: unlimited
  double averageDecay = 0; // decay of the moving average of the parameters, if there is one
};

struct Optimizer {
  std::string_view name; // as --optimizer takes it
  std::string rule;      // its formula, named in xfc.optimize and in its kernels
  std::string program;   // its step: reads gradients, updates parameters and states in place. One for each rule
  // The states it keeps for each parameter, initially zero, each in a block of its own. The name is the role of the
  // program's arguments that lie in the block; checkpoints have a tensor STATE.PARAMETER of the shape shapeOfState().
  std::vector<std::string_view> states;
  // The elements of the program's argument `hyper`. Every optimizer has "limit": each element of a gradient, after
  // clipping by norm, is clamped to [-limit, limit]. Elementwise ones have "step", its number, from which the random
  // bits for moments in bf16 are made, too (xfc.optimize).
  struct Hyperparameter {
    std::string_view name;
    double (*value)(const OptimizerSettings &settings, double step); // of step number `step`, from 1
  };
  std::vector<Hyperparameter> hyper; // at most mostHyperparameters
  // Whether each updated element depends only on the same element of the parameter, the gradient and the states. If
  // not, as for Adafactor, a step needs whole tensors, and takes several ops (xfc.row_moments and those that follow
  // it).
  bool elementwise = true;
  // Whether its last state is a moving average of the parameters, which starts equal to them. Each step then computes
  // average += weight (parameter - average), where "weight" is a hyperparameter. The rule is that of another
  // optimizer with "_ema" appended.
  bool averages = false;
};
inline constexpr size_t mostHyperparameters = 11;
inline constexpr std::string_view averageState = "average";

// All of them, those without a moving average of the parameters first; the very first is the default.
std::span<const Optimizer> optimizers();
// Null if there is none of this name.
const Optimizer *findOptimizer(std::string_view name, bool averages = false);
// The first optimizer of a rule; those of one rule differ only in the values of their hyperparameters. Null if none.
const Optimizer *findRule(std::string_view rule);
// The states of all optimizers, without duplicates.
std::span<const std::string_view> optimizerStates();

using Extents = std::vector<int64_t>; // of a shape
// Whether the state holds a tensor of the parameter's shape for every parameter. Its block is then laid out like the
// parameters; otherwise, it has a layout of its own.
bool likeParameters(std::string_view state);
// Whether this is a state that may be kept in a narrower type than it is computed in (`xfc compile --moment-type`):
// those with an element for each of the parameters' but for the moving average, which serves as weights.
bool mayBeNarrow(std::string_view state);
// The shape of the tensor that the state holds for a parameter of a shape; nullopt if it holds none.
std::optional<Extents> shapeOfState(std::string_view state, const Extents &parameter);

} // namespace xfc
