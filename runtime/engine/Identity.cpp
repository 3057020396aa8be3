// Checks which model weights belong to.
#include "engine/Identity.h"
#include "support/Json.h"
#include "support/Quoted.h"
#include <nlohmann/json.hpp>
#include <set>

namespace xfc {
namespace {

using Json = nlohmann::json;

// A description, or null if it cannot be read.
Json readDescription(const std::string &text) { return jsonIn(text).value_or(Json()); }

// Whether a key of the description does not change the meaning of weights. A change of their shapes shows in the
// weights.
bool isMeaningless(const std::string &key, const Json &owner) {
  static const std::set<std::string> keys = {"$schema",    "name",       "init",    "dropout",
                                             "max_length", "generation", "training"};
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

Metadata identityOf(const Module &module) { return identityOf(module.model, module.hash, module.description); }

bool namesModel(const Metadata &metadata) { return metadata.contains(modelHashKey); }

void checkModel(const Metadata &metadata, const Module &module, const std::string &file) {
  auto text = [&](const char *key) {
    auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  if (!namesModel(metadata) || text(modelHashKey) == module.hash)
    return;
  const Json theirs = readDescription(text("description")), ours = readDescription(module.description);
  std::string what = "their descriptions cannot be compared";
  if (theirs.is_object() && ours.is_object()) {
    what = difference(theirs, ours, "");
    if (what.empty())
      return;
  }
  throw Error(file + ": these are weights of the model " + inQuotes(text("model")) + " (hash " +
              escaped(text(modelHashKey), 12) + "), but this executable is of '" + module.model + "' (hash " +
              module.hash.substr(0, 12) + "): " + what +
              "; use the executable they were trained with, or --force-model to load them anyway");
}

} // namespace xfc
