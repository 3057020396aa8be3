// How a model is trained unless a command line says otherwise: `training` of model.json.
#pragma once

namespace xfc {

struct TrainingSettings {
  double labelSmoothing = 0.1; // the probability that is spread evenly over the vocabulary

  bool operator==(const TrainingSettings &) const = default;
};

} // namespace xfc
