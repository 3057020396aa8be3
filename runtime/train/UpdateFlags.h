// The flags of a training step: the optimizer, its settings, and the loss.
#pragma once

#include "support/Options.h"
#include "train/Update.h"
#include <functional>
#include <string>
#include <vector>

namespace xfc {

// Adds --optimizer, whose value is the name of one that findOptimizer() knows.
CommandOption addOptimizer(Command command, std::string &name, const std::string &description);

struct UpdateFlags {
  UpdateOptions options; // without the learning rate and the seed, which other flags set
  // Adds --optimizer, --betas and the other settings of optimizers; --clip-norm, --clip-value, --label-smoothing, whose
  // default is that of this executable's model.
  void addTo(Command command);
  // To be called after parsing. Throws UsageError if --betas or --adafactor-eps is invalid, or if a setting
  // of other optimizers was given: `given` tells that of a flag, such as "--momentum".
  void resolve(const std::function<bool(const std::string &flag)> &given);

private:
  std::string optimizer = std::string(optimizers().front().name);
  std::vector<double> betas = {options.settings.beta1, options.settings.beta2};
  std::vector<double> adafactorEps = {options.settings.eps1, options.settings.eps2};
};

} // namespace xfc
