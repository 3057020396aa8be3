// The settings of searches and of training that apply unless an option overrides them.
#include "decode/Defaults.h"
#include "plan/Description.h"
#include "support/Error.h"
#include "support/Json.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace xfc {

namespace {

using Json = nlohmann::json;

template <typename Enum, size_t N> Enum choiceOf(const Json &name, const std::array<const char *, N> &names) {
  const auto at = std::find(names.begin(), names.end(), name.get<std::string>());
  if (at == names.end())
    throw Error("an unknown " + name.dump());
  return static_cast<Enum>(at - names.begin());
}

// The compiler has validated the settings (Import/Generation.cpp).
Generation generationIn(const Json &settings) {
  Generation generation;
  for (const auto &[key, value] : settings.items())
    if (key == "beam")
      generation.beam = value.get<int32_t>();
    else if (key == "length_penalty")
      generation.lengthPenalty = value.get<double>();
    else if (key == "length_penalty_form")
      generation.penaltyForm = choiceOf<Generation::PenaltyForm>(value, penaltyForms);
    else if (key == "early_stopping")
      generation.earlyStopping =
          choiceOf<Generation::EarlyStopping>(value.is_boolean() ? Json(value.dump()) : value, earlyStoppings);
    else if (key == "max_length")
      generation.maxLength = value.get<int64_t>();
    else if (key == "min_length")
      generation.minLength = value.get<int64_t>();
    else if (key == "at_max_length")
      generation.atMaxLength = choiceOf<Generation::AtMaxLength>(value, lengthEnds);
    else if (key == "forced_first")
      generation.forcedFirst = value.get<std::vector<int32_t>>();
    else if (key == "suppress")
      generation.suppress = value.get<std::vector<int32_t>>();
    else if (key == "bad_sequences")
      generation.badSequences = value.get<std::vector<std::vector<int32_t>>>();
    else if (key == "no_repeat_ngram")
      generation.noRepeatNgram = value.get<int64_t>();
    else if (key == "renormalize")
      generation.renormalize = value.get<bool>();
    else
      throw Error("an unknown key " + key);
  return generation;
}

// The compiler has validated these, too (Import/Training.cpp).
TrainingSettings trainingIn(const Json &settings) {
  TrainingSettings training;
  for (const auto &[key, value] : settings.items())
    if (key == "label_smoothing")
      training.labelSmoothing = value.get<double>();
    else
      throw Error("an unknown key " + key);
  return training;
}

// The settings that the description has under `key`, or else the default ones.
template <typename Settings>
Settings settingsIn(const std::string &description, const std::string &key, Settings (*read)(const Json &)) {
  if (description.find('"' + key + '"') == std::string::npos)
    return {}; // this runs whenever an executable starts, and most models have no settings
  try {
    const Json json = parseJson(description, "");
    return json.is_object() && json.contains(key) ? read(json.at(key)) : Settings();
  } catch (const std::exception &error) { // nlohmann's or ours
    throw Error(std::string("the description inside this executable is damaged: ") + error.what() +
                "; compile the model again");
  }
}

std::string descriptionOfExecutable() {
  if (const xfc_image *image = xfc_images[0])
    return deserializeDescription(image->plan, image->plan_size);
  if (const xfc_device_image *image = xfc_device_images[0])
    return deserializeDescription(image->plan, image->plan_size);
  return "";
}

Generation generationOf(const std::string &description) { return settingsIn(description, "generation", generationIn); }

TrainingSettings trainingOf(const std::string &description) { return settingsIn(description, "training", trainingIn); }

} // namespace

Generation generationOf(const Module &module) { return generationOf(module.description); }

TrainingSettings trainingOf(const Module &module) { return trainingOf(module.description); }

Generation generationOfExecutable() { return generationOf(descriptionOfExecutable()); }

TrainingSettings trainingOfExecutable() { return trainingOf(descriptionOfExecutable()); }

} // namespace xfc
