// Reads `generation` of model.json into the default settings of an executable's searches.
#include "Generation.h"
#include "plan/GenerationSettings.h"

namespace xfc {

Generation readGeneration(const JsonValue &json, int64_t vocabulary, int32_t pad, int32_t start, int32_t eos) {
  Generation generation;
  std::vector<std::string> names;
  for (const GenerationSetting &setting : generationSettings())
    names.emplace_back(setting.name);
  json.onlyKeys(names, "generation");
  const auto fail = [&](const std::optional<GenerationProblem> &problem) {
    if (problem)
      json.failInside(problem->where, problem->what);
  };
  for (const GenerationSetting &setting : generationSettings())
    if (const std::optional<JsonValue> value = json.find(setting.name))
      fail(readSetting(setting, value->value(), generation));
  fail(findProblem(generation, vocabulary, pad, start, eos));
  return generation;
}

} // namespace xfc
