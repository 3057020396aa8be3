// The families of models that can be imported, one file each.
#pragma once

#include "Config.h"
#include "Import/Description.h"
#include "Weights.h"
#include <functional>

namespace xfc {

// The name of a parameter in our models and in those of the family, for import and for export.
struct TensorName {
  std::string ours, theirs;
  bool row = false; // theirs is [1, n] where ours is [n]
};

// A folder as the reader of its family understands it.
struct ForeignModel {
  nlohmann::ordered_json description; // model.json without its format and name
  std::vector<TensorName> tensors;
  // Tensors whose names end in one of these are ignored: the description already says what they hold.
  std::vector<std::string> redundant;
  std::vector<std::string> notes;
};

struct Family {
  std::vector<std::string> modelTypes; // as config.json calls them
  // Keys of the family's config.json that change nothing here, beside those that every family may have.
  std::set<std::string> harmless;
  std::function<ForeignModel(const Config &config, const Weights &weights)> read;
  // The config.json, without model_type, from which `read` would make this model or one like it. Throws Error.
  std::function<nlohmann::ordered_json(const Description &model)> describe;
};

const std::vector<Family> &families();

ForeignModel readBart(const Config &config, const Weights &weights);
ForeignModel readM2M100(const Config &config, const Weights &weights);
ForeignModel readMarian(const Config &config, const Weights &weights);
ForeignModel readT5(const Config &config, const Weights &weights);

} // namespace xfc
