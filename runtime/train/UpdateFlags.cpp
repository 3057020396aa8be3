// The flags of a training step.
#include "train/UpdateFlags.h"
#include "decode/Defaults.h"
#include "support/CommandLine.h"
#include <algorithm>
#include <cmath>

namespace xfc {

CommandOption addOptimizer(Command command, std::string &name, const std::string &description) {
  std::vector<std::string> names;
  for (const Optimizer &optimizer : optimizers())
    if (!optimizer.averages)
      names.emplace_back(optimizer.name);
  return command.addOption("--optimizer", name, description).oneOf(names).showDefault();
}

void UpdateFlags::addTo(Command command) {
  const Subject update(command, "Optimizer");
  addOptimizer(command, optimizer, "optimization method");
  command
      .addOption("--betas", betas,
                 "adam: decay of the averages of gradients and their squares; lion: of the average of gradients in "
                 "the step, and of the one kept")
      .separator(',')
      .values(1, 2)
      .showDefault("0.9,0.98");
  command.addOption("--adam-eps", options.settings.epsilon, "Adam's epsilon")
      .notNegative()
      .finite()
      .showDefault("1e-9");
  command.addOption("--momentum", options.settings.momentum, "sgd: how much of a step carries over into the next")
      .within(0.0, 1.0)
      .finite()
      .showDefault();
  command
      .addOption("--adafactor-eps", adafactorEps,
                 "adafactor: what is added to squared gradients, and the least that --scale-parameter multiplies by")
      .separator(',')
      .values(1, 2)
      .showDefault("1e-30,1e-3");
  command
      .addOption("--clip-threshold", options.settings.clipThreshold,
                 "adafactor: largest root mean square of a parameter's update, before the rate")
      .positive()
      .finite()
      .showDefault();
  command
      .addOption("--decay-rate", options.settings.decayRate,
                 "adafactor: step t has the weight t^RATE in the means of squared gradients")
      .within(-1.0, 0.0)
      .finite()
      .showDefault();
  command.addFlag("--scale-parameter", options.settings.scaleParameter,
                  "adafactor: multiply the rate by the root mean square of each parameter");
  command
      .addOption("--weight-decay", options.settings.weightDecay,
                 "adam, sgd: L2 penalty; adamw, lion, adafactor: decoupled")
      .notNegative()
      .finite()
      .showDefault();
  command.addOption("--clip-norm", options.clipNorm, "maximum norm of all gradients together; 0: no limit")
      .notNegative()
      .finite()
      .showDefault();
  command
      .addOption("--clip-value", options.settings.clipValue,
                 "maximum magnitude of each gradient element, after --clip-norm; 0: no limit")
      .notNegative()
      .finite()
      .showDefault();
  options.smoothing = settingsOfExecutable().training.labelSmoothing;
  command.addOption("--label-smoothing", options.smoothing, "probability spread over the whole vocabulary")
      .within(0.0, 1.0)
      .finite()
      .showDefault();
}

// The flags that only some optimizers use, and a hyperparameter that depends on each: an optimizer that has it uses the
// flag.
static constexpr std::pair<const char *, std::string_view> ofSomeOptimizers[] = {{"--betas", "beta1"},
                                                                                 {"--adam-eps", "epsilon"},
                                                                                 {"--momentum", "momentum"},
                                                                                 {"--adafactor-eps", "eps1"},
                                                                                 {"--clip-threshold", "clip_threshold"},
                                                                                 {"--decay-rate", "share"},
                                                                                 {"--scale-parameter", "scales"}};

static bool uses(const Optimizer &optimizer, std::string_view hyperparameter) {
  return std::ranges::find(optimizer.hyper, hyperparameter, &Optimizer::Hyperparameter::name) != optimizer.hyper.end();
}

void UpdateFlags::resolve(const std::function<bool(const std::string &flag)> &given) {
  options.optimizer = findOptimizer(optimizer);
  for (const auto &[flag, hyperparameter] : ofSomeOptimizers) {
    if (uses(*options.optimizer, hyperparameter) || !given(flag))
      continue;
    std::string users;
    for (const Optimizer &other : optimizers())
      if (!other.averages && uses(other, hyperparameter))
        users += (users.empty() ? "" : " or ") + std::string(other.name);
    throw UsageError(flag, "--optimizer " + optimizer + " does not use it; leave it out, or give --optimizer " + users);
  }
  if (betas.size() != 2)
    throw UsageError("--betas", "expected two numbers, such as 0.9,0.98");
  for (double beta : betas)
    if (!(beta >= 0 && beta < 1))
      throw UsageError("--betas", "expected numbers of at least 0 and below 1");
  if (adafactorEps.size() != 2)
    throw UsageError("--adafactor-eps", "expected two numbers, such as 1e-30,1e-3");
  // Mean squares are divided by, so eps1 must keep them above 0, also in f32.
  if (!(adafactorEps[0] >= 1e-37 && std::isfinite(adafactorEps[0])) ||
      !(adafactorEps[1] >= 0 && std::isfinite(adafactorEps[1])))
    throw UsageError("--adafactor-eps", "expected a first number of at least 1e-37, a second of at least 0");
  options.settings.eps1 = adafactorEps[0];
  options.settings.eps2 = adafactorEps[1];
  options.settings.beta1 = betas[0];
  options.settings.beta2 = betas[1];
}

} // namespace xfc
