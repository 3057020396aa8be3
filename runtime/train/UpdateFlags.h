// The flags of a training step: the optimizer, its settings, and the loss.
#pragma once

#include "train/Update.h"
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace xfc {

struct UpdateFlags {
  UpdateOptions options; // without the learning rate and the seed, which other flags set
  // Adds --optimizer, --betas and the other settings of optimizers; --clip-norm, --clip-value, --label-smoothing.
  void addTo(CLI::App &command);
  // To be called after parsing. Throws CLI::ValidationError if --betas is invalid.
  void resolve();

private:
  std::string optimizer = std::string(optimizers().front().name);
  std::vector<double> betas = {options.settings.beta1, options.settings.beta2};
};

} // namespace xfc
