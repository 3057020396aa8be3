// The families of models that can be imported, one file each.
#pragma once

#include "Config.h"
#include "Import/Description.h"
#include "Weights.h"
#include <functional>

namespace xfc {

// A parameter in both worlds. It holds for both directions.
struct TensorName {
  std::string ours, theirs;
  bool row = false; // theirs is [1, n] where ours is [n]
};

// What a family makes of a folder.
struct ForeignModel {
  nlohmann::ordered_json description; // model.json but for its format and name
  std::vector<TensorName> tensors;
  // Tensors that say nothing the description does not say: those whose names end so.
  std::vector<std::string> redundant;
  std::vector<std::string> notes;
};

struct Family {
  std::vector<std::string> modelTypes; // as config.json says
  std::function<ForeignModel(const Config &config, const Weights &weights)> read;
  // config.json, but for its model_type, as `read` would have it for this model or one like it. Throws Error.
  std::function<nlohmann::ordered_json(const Description &model)> describe;
};

const std::vector<Family> &families();

ForeignModel readBart(const Config &config, const Weights &weights);
ForeignModel readM2M100(const Config &config, const Weights &weights);
ForeignModel readMarian(const Config &config, const Weights &weights);
ForeignModel readT5(const Config &config, const Weights &weights);

} // namespace xfc
