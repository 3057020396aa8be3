// The flags of a training step.
#include "train/UpdateFlags.h"
#include "support/CommandLine.h"

namespace xfc {

void UpdateFlags::addTo(CLI::App &command) {
  std::vector<std::string> optimizerNames;
  for (const Optimizer &optimizer : optimizers())
    if (!optimizer.averages)
      optimizerNames.emplace_back(optimizer.name);
  command.add_option("--optimizer", optimizer, "optimization method")
      ->check(CLI::IsMember(optimizerNames))
      ->capture_default_str();
  command
      .add_option("--betas", betas,
                  "adam: decay of the averages of gradients and their squares; lion: of the average of gradients in "
                  "the step, and of the one kept")
      ->delimiter(',')
      ->expected(1, 2)
      ->default_str("0.9,0.98");
  command.add_option("--adam-eps", options.settings.epsilon, "Adam's epsilon")
      ->check(CLI::NonNegativeNumber)
      ->check(FiniteNumber)
      ->default_str("1e-9");
  command.add_option("--momentum", options.settings.momentum, "sgd: how much of a step carries over into the next")
      ->check(CLI::Range(0.0, 1.0))
      ->check(FiniteNumber)
      ->capture_default_str();
  command.add_option("--weight-decay", options.settings.weightDecay, "adam, sgd: L2 penalty; adamw, lion: decoupled")
      ->check(CLI::NonNegativeNumber)
      ->check(FiniteNumber)
      ->capture_default_str();
  command.add_option("--clip-norm", options.clipNorm, "maximum norm of all gradients together; 0: no limit")
      ->check(CLI::NonNegativeNumber)
      ->check(FiniteNumber)
      ->capture_default_str();
  command
      .add_option("--clip-value", options.settings.clipValue,
                  "maximum magnitude of each gradient element, after --clip-norm; 0: no limit")
      ->check(CLI::NonNegativeNumber)
      ->check(FiniteNumber)
      ->capture_default_str();
  command.add_option("--label-smoothing", options.smoothing, "probability spread over the whole vocabulary")
      ->check(CLI::Range(0.0, 1.0))
      ->check(FiniteNumber)
      ->capture_default_str();
}

void UpdateFlags::resolve() {
  if (betas.size() != 2)
    throw CLI::ValidationError("--betas", "expected two numbers, such as 0.9,0.98");
  for (double beta : betas)
    if (!(beta >= 0 && beta < 1))
      throw CLI::ValidationError("--betas", "expected numbers of at least 0 and below 1");
  options.settings.beta1 = betas[0];
  options.settings.beta2 = betas[1];
  options.optimizer = findOptimizer(optimizer);
}

} // namespace xfc
