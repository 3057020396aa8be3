// The optimizers: their rules, states and hyperparameters.
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

// Weight decay is a part of the gradient (`l2`), or separate from it (`decay`).
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

// The average warms up: its decay in step 1, 2, ... is 2/11, 3/12, ... until that reaches averageDecay, so that at
// first it covers the few steps taken.
static double weightOfStep(const Settings &s, double step) {
  return 1 - std::min(s.averageDecay, (1 + step) / (10 + step));
}

// A step's square is averaged into the mean of all squares with this weight, which is 1 in the first step: 1 - beta2 of
// step t, where beta2 = 1 - t^decayRate.
static double share(const Settings &s, double step) { return std::pow(step, s.decayRate); }

// States that hold less than the parameters. A parameter with fewer than two dimensions is a single column: its rows
// have one element.
static constexpr std::string_view rowMean = "row_mean", columnMean = "column_mean";

static bool isMatrix(const Extents &parameter) { return parameter.size() >= 2; }
static std::optional<Extents> rowsOf(const Extents &parameter) {
  return isMatrix(parameter) ? Extents(parameter.begin(), parameter.end() - 1) : parameter;
}
static std::optional<Extents> columnsOf(const Extents &parameter) {
  return isMatrix(parameter) ? std::optional(Extents{parameter.back()}) : std::nullopt;
}
static constexpr std::pair<std::string_view, std::optional<Extents> (*)(const Extents &)> smallStates[] = {
    {rowMean, rowsOf}, {columnMean, columnsOf}};

// Every rule clips its gradient, element by element, and has a variant that also keeps a moving average of the
// parameters.
static std::vector<Optimizer> completed(std::vector<Optimizer> rules) {
  for (Optimizer &optimizer : rules)
    optimizer.hyper.push_back({"limit", limit});
  std::vector<Optimizer> all = rules;
  for (Optimizer &optimizer : rules) {
    optimizer.rule += "_ema";
    optimizer.program = "update." + optimizer.rule;
    optimizer.states.push_back(averageState);
    optimizer.hyper.push_back({"weight", weightOfStep});
    optimizer.averages = true;
    all.push_back(std::move(optimizer));
  }
  // The step's number varies the random bits by which narrow moments are rounded; an f32 holds it.
  for (Optimizer &optimizer : all)
    if (optimizer.elementwise)
      optimizer.hyper.push_back({"step", [](const Settings &, double step) { return std::fmod(step, 0x1p24); }});
  return all;
}

// Their formulas: compiler/Interpreter/Optimizer.cpp says what they compute, Plain/ and Codegen/ how.
std::span<const Optimizer> optimizers() {
  static const std::vector<Optimizer> all = completed({
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
      // Shazeer and Stern, 2018, without the first moment
      {"adafactor",
       "adafactor",
       "update.adafactor",
       {rowMean, columnMean},
       {{"rate", rate},
        {"share", share},
        {"eps1", [](const Settings &s, double) { return s.eps1; }},
        {"eps2", [](const Settings &s, double) { return s.eps2; }},
        {"clip_threshold", [](const Settings &s, double) { return s.clipThreshold; }},
        {"scales", [](const Settings &s, double) { return s.scaleParameter ? 1.0 : 0.0; }},
        {"decay", weightDecay}},
       /*elementwise=*/false},
  });
  return all;
}

template <typename Fits> static const Optimizer *firstThat(Fits fits) {
  const auto found = std::ranges::find_if(optimizers(), fits);
  return found == optimizers().end() ? nullptr : &*found;
}

const Optimizer *findOptimizer(std::string_view name, bool averages) {
  return firstThat([&](const Optimizer &known) { return known.name == name && known.averages == averages; });
}
const Optimizer *findRule(std::string_view rule) {
  return firstThat([&](const Optimizer &known) { return known.rule == rule; });
}

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

bool mayBeNarrow(std::string_view state) {
  return std::ranges::count(optimizerStates(), state) > 0 && likeParameters(state) && state != averageState;
}

bool likeParameters(std::string_view state) {
  return std::ranges::none_of(smallStates, [&](const auto &small) { return small.first == state; });
}

std::optional<Extents> shapeOfState(std::string_view state, const Extents &parameter) {
  for (const auto &[name, shapeOf] : smallStates)
    if (name == state)
      return shapeOf(parameter);
  return parameter;
}

} // namespace xfc
