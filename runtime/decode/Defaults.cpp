// The settings of searches and of training that apply unless an option overrides them.
#include "decode/Defaults.h"
#include "plan/GenerationSettings.h"
#include "plan/Serialization.h"
#include "support/Error.h"
#include "support/Files.h"
#include "support/Json.h"
#include <nlohmann/json.hpp>

namespace xfc {

using Json = nlohmann::json;

Generation generationOf(const Module &module, const std::string &folder) {
  const std::string file = folder + "/model.json";
  if (folder.empty() || !exists(file))
    return module.settings.generation;
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
        findProblem(generation, module.targetVocab, module.pad, module.start, module.eos);
    if (!problem)
      return generation;
    what = problem->where + ": " + problem->what;
  } catch (const std::exception &error) { // nlohmann's or ours
    what = error.what();
  }
  throw Error(file + ": generation." + what);
}

ModelSettings settingsOfExecutable() {
  if (const xfc_image *image = xfc_images[0])
    return deserializeSettings(image->plan, image->plan_size);
  if (const xfc_device_image *image = xfc_device_images[0])
    return deserializeSettings(image->plan, image->plan_size);
  return {};
}

} // namespace xfc
