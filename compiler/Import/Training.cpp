// Reads `training` of model.json into the default settings of an executable's training.
#include "Training.h"

namespace xfc {

TrainingSettings readTraining(const JsonValue &json) {
  TrainingSettings training;
  json.onlyKeys({"label_smoothing"}, "training");
  if (auto smoothing = json.find("label_smoothing"))
    training.labelSmoothing = smoothing->number(0, 1);
  return training;
}

} // namespace xfc
