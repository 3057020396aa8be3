#include "plan/Optimizers.h"
#include "plan/Programs.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace xfc {

using Settings = OptimizerSettings;

using Hyperparameter = Optimizer::Hyperparameter;
using Value = double (*)(const Settings &, double);

static double rate(const Settings &s, double) { return s.rate; }
static double beta1(const Settings &s, double) { return s.beta1; }
static double beta2(const Settings &s, double) { return s.beta2; }
static double weightDecay(const Settings &s, double) { return s.weightDecay; }
static double none(const Settings &, double) { return 0; }
static double limit(const Settings &s, double) {
  return s.clipValue > 0 ? s.clipValue : std::numeric_limits<double>::infinity();
}

// Weight decay as a part of the gradient (`l2`), or apart from it (`decay`).
static std::vector<Hyperparameter> adam(Value l2, Value decay) {
  return {{"rate", rate},
          {"beta1", beta1},
          {"beta2", beta2},
          {"epsilon", [](const Settings &s, double) { return s.epsilon; }},
          {"l2", l2},
          {"decay", decay},
          {"correction1", [](const Settings &s, double step) { return 1 - std::pow(s.beta1, step); }},
          {"correction2", [](const Settings &s, double step) { return 1 - std::pow(s.beta2, step); }}};
}

// Every rule takes its gradient clipped, element by element.
static std::vector<Optimizer> withLimits(std::vector<Optimizer> optimizers) {
  for (Optimizer &optimizer : optimizers)
    optimizer.hyper.push_back({"limit", limit});
  return optimizers;
}

// Their formulas: compiler/Interpreter/Optimizer.cpp says what they compute, Plain/ and Codegen/ how.
std::span<const Optimizer> optimizers() {
  static const std::vector<Optimizer> all = withLimits({
      // Kingma and Ba, 2015
      {"adam", "adam", programs::update, {"moment1", "moment2"}, adam(weightDecay, none)},
      // Loshchilov and Hutter, 2019
      {"adamw", "adam", programs::update, {"moment1", "moment2"}, adam(none, weightDecay)},
      // Stochastic gradient descent with momentum
      {"sgd",
       "sgd",
       "update.sgd",
       {"momentum"},
       {{"rate", rate}, {"momentum", [](const Settings &s, double) { return s.momentum; }}, {"l2", weightDecay}}},
      // Chen et al., 2023
      {"lion",
       "lion",
       "update.lion",
       {"mean"},
       {{"rate", rate}, {"beta1", beta1}, {"beta2", beta2}, {"decay", weightDecay}}},
  });
  return all;
}

static const Optimizer *firstWith(std::string_view Optimizer::*member, std::string_view text) {
  const auto found = std::ranges::find(optimizers(), text, member);
  return found == optimizers().end() ? nullptr : &*found;
}

const Optimizer *findOptimizer(std::string_view name) { return firstWith(&Optimizer::name, name); }
const Optimizer *findRule(std::string_view rule) { return firstWith(&Optimizer::rule, rule); }

std::span<const std::string_view> optimizerStates() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> states;
    for (const Optimizer &optimizer : optimizers())
      for (std::string_view state : optimizer.states)
        if (std::find(states.begin(), states.end(), state) == states.end())
          states.push_back(state);
    return states;
  }();
  return all;
}

} // namespace xfc
