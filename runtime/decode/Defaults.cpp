// The search settings that apply unless an option overrides them.
#include "decode/Defaults.h"
#include "plan/Description.h"
#include "support/Error.h"
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
Generation generationIn(const Json &description) {
  Generation generation;
  if (!description.is_object() || !description.contains("generation"))
    return generation;
  for (const auto &[key, value] : description.at("generation").items())
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
    else
      throw Error("an unknown key " + key);
  return generation;
}

Generation generationIn(const std::string &description) {
  if (description.find("\"generation\"") == std::string::npos)
    return {}; // this runs whenever an executable starts, and most models have no settings
  try {
    return generationIn(Json::parse(description, nullptr, /*allow_exceptions=*/false));
  } catch (const std::exception &error) { // nlohmann's or ours
    throw Error(std::string("the description inside this executable is damaged: ") + error.what() +
                "; compile the model again");
  }
}

} // namespace

Generation generationOf(const Module &module) { return generationIn(module.description); }

Generation generationOfExecutable() {
  if (const xfc_image *image = xfc_images[0])
    return generationIn(deserializeDescription(image->plan, image->plan_size));
  if (const xfc_device_image *image = xfc_device_images[0])
    return generationIn(deserializeDescription(image->plan, image->plan_size));
  return {};
}

} // namespace xfc
