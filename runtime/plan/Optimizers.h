// The optimizers, declared once for the compiler, which makes a program of each, and the runtime, which runs one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// What a run sets. Each optimizer uses some of it.
struct OptimizerSettings {
  double rate = 0; // of learning, in this step
  double beta1 = 0.9, beta2 = 0.98, epsilon = 1e-9;
  double momentum = 0.9;
  double weightDecay = 0;
  double clipValue = 0;    // largest element of a gradient, after clipping by norm; 0: any
  double averageDecay = 0; // how much of the parameters' moving average a step leaves, where there is one
};

struct Optimizer {
  std::string_view name; // after --optimizer
  std::string rule;      // its formula: in xfc.optimize, and the name of its kernels
  std::string program;   // that takes its step: gradients in, parameters and states in place. One for each rule
  // What it keeps of each parameter, zero at first: a block laid out as the parameters. The name is the role of the
  // program's arguments that lie in it, and checkpoints have a tensor STATE.PARAMETER.
  std::vector<std::string_view> states;
  // The elements of the program's argument `hyper`. Every optimizer has "limit": each element of a
  // gradient, after clipping by norm, is put into [-limit, limit].
  struct Hyperparameter {
    std::string_view name;
    double (*value)(const OptimizerSettings &settings, double step); // of step number `step`, from 1
  };
  std::vector<Hyperparameter> hyper; // at most mostHyperparameters
  // Whether its last state is the moving average of the parameters, which begins as they do: after each step
  // average += weight (parameter - average), where "weight" is its last hyperparameter. The rule is another's and
  // ends with "_ema".
  bool averages = false;
};
inline constexpr size_t mostHyperparameters = 10;
inline constexpr std::string_view averageState = "average";

// All of them, first those that keep no moving average of the parameters; the first is the one that is taken unless a
// run says otherwise.
std::span<const Optimizer> optimizers();
// Null where there is none of this name.
const Optimizer *findOptimizer(std::string_view name, bool averages = false);
// The first optimizer of a rule; those of one rule differ in the values of their hyperparameters alone. Null for none.
const Optimizer *findRule(std::string_view rule);
// The states of all, each once.
std::span<const std::string_view> optimizerStates();

} // namespace xfc
