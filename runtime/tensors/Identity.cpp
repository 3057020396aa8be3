// Compares the models that weights belong to.
#include "tensors/Identity.h"
#include "support/Json.h"
#include "support/Quoted.h"
#include <set>

namespace xfc {
namespace {

using Json = nlohmann::json;

// Whether a key of the description does not change the meaning of weights. A change of their shapes shows in the
// weights.
bool isMeaningless(const std::string &key, const Json &owner) {
  static const std::set<std::string> keys = {"$schema",    "name",       "init",     "dropout",
                                             "max_length", "generation", "training", "source_eos"};
  return (key == "name" ? owner.contains("format") || owner.contains("params") : keys.contains(key)) ||
         (key == "rate" && owner.value("op", Json()) == "dropout");
}

// The first place where two descriptions differ, and how; "" if they agree.
std::string difference(const Json &theirs, const Json &ours, const std::string &path) {
  auto at = [&](const std::string &key) { return path.empty() ? key : path + "." + key; };
  if (theirs.is_object() && ours.is_object()) {
    Json keys = theirs;
    keys.update(ours);
    for (const auto &[key, value] : keys.items()) {
      if (isMeaningless(key, keys))
        continue;
      if (std::string found = difference(theirs.value(key, Json()), ours.value(key, Json()), at(key)); !found.empty())
        return found;
    }
    return "";
  }
  if (theirs.is_array() && ours.is_array() && theirs.size() == ours.size()) {
    for (size_t i = 0; i < theirs.size(); ++i)
      if (std::string found = difference(theirs[i], ours[i], path + "[" + std::to_string(i) + "]"); !found.empty())
        return found;
    return "";
  }
  if (theirs == ours)
    return "";
  auto text = [](const Json &value) {
    return value.is_null() ? "nothing" : value.is_structured() ? "something else" : shownJson(value);
  };
  return escaped(path) + " is " + text(theirs) + " there and " + text(ours) + " here";
}

} // namespace

std::string differenceOfModels(const std::string &theirs, const std::string &ours) {
  const Json there = jsonIn(theirs).value_or(Json()), here = jsonIn(ours).value_or(Json());
  if (!there.is_object() || !here.is_object())
    return "their descriptions cannot be compared";
  return difference(there, here, "");
}

} // namespace xfc
