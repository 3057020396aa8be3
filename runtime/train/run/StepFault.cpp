// Finds what made a step fail: where its first number that is not finite comes from.
#include "train/run/StepFault.h"
#include "plan/Programs.h"
#include "support/Format.h"
#include "support/Json.h"
#include <algorithm>
#include <cmath>
#include <optional>

namespace xfc {

using Json = nlohmann::ordered_json;

// The location in model.json of the step that computes the parameter's gradient; "" if no step does.
static std::string placeOf(const Parameter &parameter, const Module &module) {
  for (const Step &step : module.find(programs::lossAndGradients)->steps)
    for (const Place &place : step.buffers)
      if (place.kind == Place::Kind::Gradients && place.offset == parameter.offset * bytesOf(module.type))
        return step.location;
  return "";
}

// Describes the first parameter whose gradient is not finite; "" if all are.
static std::string badGradient(TrainedModel &model) {
  model.update.gatherGradients();
  const Module &module = model.module();
  const void *const gradients = model.engine().gradients();
  auto at = [&](int64_t i) { return numberAt(module.type, gradients, i); };
  for (const Parameter &parameter : module.parameters) {
    const int64_t count = elementsOf(parameter.shape);
    int64_t i = 0;
    while (i < count && std::isfinite(at(parameter.offset + i)))
      ++i;
    if (i < count) {
      const std::string place = placeOf(parameter, module);
      return format(", and the gradient of %s%s is %g at element %lld", parameter.name.c_str(),
                    place.empty() ? "" : (" (" + place + " of model.json)").c_str(), at(parameter.offset + i),
                    static_cast<long long>(i));
    }
  }
  return "";
}

StepFault faultOf(int64_t step, const UpdateResult &result, TrainedModel &model, Ranks &ranks) {
  StepFault fault{format("step %lld: the loss is %g", static_cast<long long>(step),
                         result.loss / static_cast<double>(std::max<int64_t>(result.labels, 1))),
                  {{"not_finite_step", step}}};
  const std::string gradient = badGradient(model);
  Json mine;
  if (const std::optional<Update::NotFinite> first = model.update.firstNotFinite())
    mine = {{"batch", first->batch},
            {"value", format("%g", first->value)},
            {"kernel", first->kernel},
            {"location", first->location}};
  Json found; // that of the earliest batch, as in a single process
  for (const std::string &text : ranks.gather(mine.dump()))
    if (const Json theirs = parseOrderedJson(text, "a rank");
        !theirs.is_null() && (found.is_null() || theirs["batch"] < found["batch"]))
      found = theirs;
  if (found.is_null()) {
    fault.what += gradient;
    return fault;
  }
  fault.record["kernel"] = found["kernel"];
  fault.record["location"] = found["location"];
  const std::string location = found["location"];
  fault.what += "; the first result that is not finite is " + found["value"].get<std::string>() + ", of the kernel " +
                found["kernel"].get<std::string>() + (location.empty() ? "" : " (" + location + " of model.json)");
  return fault;
}

} // namespace xfc
