// Flags of a training step: the optimizer, what it computes with, and the loss.
#pragma once

#include "train/Update.h"
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace xfc {

struct UpdateFlags {
  UpdateOptions options; // the learning rate and the seed are no flags of these
  // --optimizer, --betas and what else optimizers take; --clip-norm, --clip-value, --label-smoothing
  void addTo(CLI::App &command);
  // To be called after parsing. Throws CLI::ValidationError where --betas are none.
  void resolve();

private:
  std::string optimizer = std::string(optimizers().front().name);
  std::vector<double> betas = {options.settings.beta1, options.settings.beta2};
};

} // namespace xfc
