// What is asked of a plan: its programs, types, states and optional parts.
#include "plan/Plan.h"
#include "plan/Programs.h"
#include "support/CommandLine.h"
#include "support/Error.h"
#include <algorithm>

namespace xfc {

int64_t featuresOf(const Argument &argument) { return elementsOf(argument.shape); }
int64_t featuresOf(const Output &output) { return elementsOf(output.shape); }

void Module::requireTranslator() const {
  if (!hasDecoder)
    throw Error("model '" + model + "' has no decoder: it writes no target sentences");
  if (sourceVocab == 0 || targetVocab == 0)
    throw Error("model '" + model + "' reads rows of numbers instead of tokens: use forward");
}

bool Program::is(std::string_view program) const {
  return name == program || (name.starts_with(program) && name[program.size()] == '.');
}

const OptimizerState *Module::findState(std::string_view state) const {
  const auto found = std::ranges::find(states, state, &OptimizerState::name);
  return found == states.end() ? nullptr : &*found;
}

int64_t Module::elementsOf(const OptimizerState &state) const {
  return state.likeParameters ? parameterElements : state.elements;
}

std::vector<OptimizerState::Part> Module::partsOf(const OptimizerState &state) const {
  if (!state.likeParameters)
    return state.parts;
  std::vector<OptimizerState::Part> parts;
  parts.reserve(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i)
    parts.push_back({static_cast<int64_t>(i), parameters[i].shape, parameters[i].offset});
  return parts;
}

std::vector<std::string> Module::computeTypes(const std::string &program) const {
  std::vector<std::string> types;
  for (const std::string &candidate : programs.names())
    if (candidate == program)
      types.insert(types.begin(), compute);
    else if (candidate.starts_with(program + "."))
      types.push_back(candidate.substr(program.size() + 1));
  return types;
}

std::string Module::variant(const std::string &program, const std::string &type) const {
  if (type.empty() || type == compute)
    return program;
  const std::vector<std::string> types = computeTypes(program);
  if (std::find(types.begin(), types.end(), type) != types.end())
    return program + "." + type;
  std::string known;
  for (const std::string &other : types)
    known += (known.empty() ? "" : " or ") + other;
  const std::string near = nearest(type, types);
  throw Error("--compute-type " + type + ": model '" + model + "' decodes in " + known + " only; " +
              (near.empty() ? "" : "did you mean " + near + "? ") +
              (compute == "f32" ? "`xfc compile --compute-type` adds others"
                                : "a model that is compiled with --dtype f32 has a choice"));
}

const Program *Module::stepProgram(int64_t best, const std::string &type, bool renormalized) const {
  if (!has(programs::decodeStep))
    return nullptr;
  const char *const choosing = renormalized ? programs::decodeRenormalized : programs::decodeCandidates;
  if (best > 0 && has(choosing))
    if (const Program *program = find(variant(choosing, type)))
      for (const Output &output : program->outputs)
        if (output.name == names::tokens && best <= output.shape.at(0))
          return program;
  return find(variant(programs::decodeStep, type));
}

bool Module::readsHistory() const {
  const Program *step = find(programs::decodeStep);
  return step && std::any_of(step->steps.begin(), step->steps.end(), [](const Step &launch) {
           return launch.keys >= 0 && launch.keys / 4 == XFC_TARGET_CACHE;
         });
}

bool Module::readsSeveral() const {
  const Program *step = find(programs::decodeStep);
  return step && std::none_of(step->arguments.begin(), step->arguments.end(), [](const Argument &argument) {
           return argument.role == Argument::Role::State && argument.name.ends_with(".state");
         });
}

} // namespace xfc
