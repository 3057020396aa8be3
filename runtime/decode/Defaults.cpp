// The settings of searches and of training that apply unless an option overrides them.
#include "decode/Defaults.h"
#include "plan/Serialization.h"
#include "plan/GenerationSettings.h"
#include "support/Error.h"
#include "support/Files.h"
#include "support/Json.h"
#include <nlohmann/json.hpp>

namespace xfc {

namespace {

using Json = nlohmann::json;

Generation generationIn(const Json &settings) {
  Generation generation;
  for (const auto &[key, value] : settings.items()) {
    const GenerationSetting *setting = findSetting(key);
    if (!setting)
      throw Error(key + ": an unknown key");
    if (const std::optional<GenerationProblem> problem = readSetting(*setting, value, generation))
      throw Error(problem->where + ": " + problem->what);
  }
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

Generation generationOf(const Module &module, const std::string &folder) {
  const std::string file = folder + "/model.json";
  if (folder.empty() || !exists(file))
    return generationOf(module);
  Json json = parseJson(readFile(file), file);
  if (!json.is_object())
    throw Error(file + ": not a model in JSON; expected the file that `xfc import` wrote");
  const Json params = json.value("params", Json::object()), tokens = json.value("tokens", Json::object());
  if (const Json eos = tokens.is_object() ? tokens.value("source_eos", Json(true)) : Json(true);
      eos != module.sourceEos)
    throw Error(file + ": tokens.source_eos is " + shownJson(eos) + ", but this executable was compiled with " +
                (module.sourceEos ? "true" : "false") + "; compile the folder again: xfc compile " + folder);
  Json settings = json.value("generation", Json::object());
  for (auto &[key, value] : settings.items()) // "$name" is a value of params, as everywhere in the file
    if (value.is_string() && value.get_ref<const std::string &>().starts_with("$") && params.is_object())
      value = params.value(value.get_ref<const std::string &>().substr(1), value);
  std::string what;
  try {
    const Generation generation = generationIn(settings);
    const std::optional<GenerationProblem> problem =
        findProblem(generation, module.targetVocab, module.pad, module.eos);
    if (!problem)
      return generation;
    what = problem->where + ": " + problem->what;
  } catch (const std::exception &error) { // nlohmann's or ours
    what = error.what();
  }
  throw Error(file + ": generation." + what);
}

TrainingSettings trainingOf(const Module &module) { return trainingOf(module.description); }

Generation generationOfExecutable() { return generationOf(descriptionOfExecutable()); }

TrainingSettings trainingOfExecutable() { return trainingOf(descriptionOfExecutable()); }

} // namespace xfc
