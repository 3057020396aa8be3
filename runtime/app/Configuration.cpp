// Reads and writes the flags of a training run as JSON.
#include "app/Configuration.h"
#include "support/CommandLine.h"
#include "support/Error.h"
#include "support/Json.h"
#include "support/Quoted.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;

// Flags that concern this invocation only, not the run, which may be resumed in another place.
bool isOfTheCall(const std::string &name) {
  return name == "help" || name == "config" || name == "resume" || name == "quiet" || name == "cuda-image" ||
         name == "cuda-step" || name == "mpi" || name == "trace" || name == "trace-steps";
}

// A value as JSON, so that equal numbers are equal however they are written.
Json valueOf(const std::string &text) {
  const std::optional<nlohmann::json> parsed = jsonIn(text);
  return parsed && parsed->is_number() ? Json(*parsed) : Json(text);
}

// Several values are joined as the default is written.
std::string settingText(const CommandOption &option) {
  std::string joined;
  for (const std::string &text : option.texts())
    joined += (&text == option.texts().data() ? "" : std::string(1, option.separator())) + text;
  return joined;
}

std::string settingText(const Json &value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

} // namespace

void applyConfiguration(Command command, const std::string &text, const std::string &file) {
  const Json values = parseOrderedJson(text, file);
  if (!values.is_object())
    throw Error(file +
                ": not a JSON object; expected flags and their values, as in the config.json of a folder of train");
  const std::vector<std::string> limits = {"steps", "epochs", "minutes"};
  bool limited = false;
  std::vector<std::string> known;
  for (const CommandOption &option : command.options())
    known.push_back(option.name());
  for (const std::string &limit : limits)
    limited |= command.given("--" + limit);
  auto given = [&](const std::string &flag) { return command.has("--" + flag) && command.given("--" + flag); };
  // The sources of pairs are alternatives too: giving one on the command line drops the others from the file.
  std::vector<std::string> left;
  auto choose = [&](bool chosen, std::initializer_list<const char *> others) {
    if (chosen)
      left.insert(left.end(), others.begin(), others.end());
  };
  const bool givenFiles = given("source") || given("target");
  choose(givenFiles, {"tsv", "tsv-weighting", "data"});
  choose(given("tsv"), {"source", "target", "data"});
  choose(given("data"),
         {"source", "target", "tsv", "data-weighting", "data-weighting-type", "tsv-weighting", "source-prefix",
          "target-prefix", "document-context", "document-separator", "guided-alignment", "filter-length",
          "filter-ratio", "teacher", "teacher-model", "teacher-n-best", "teacher-distribution"});
  // Weights, alignments and prefixes belong to their text; that of a resumed run may have been moved, but it is still
  // the same.
  const bool otherText = (givenFiles || given("tsv")) && !given("resume");
  choose(otherText, {"data-weighting", "guided-alignment", "source-prefix", "target-prefix"});
  choose(!given("guided-alignment") && (otherText || given("data") || !values.contains("guided-alignment")),
         {"guided-alignment-type"});
  const bool weighted = given("data-weighting") || given("tsv-weighting") ||
                        (values.contains("data-weighting") && !otherText) ||
                        (values.contains("tsv-weighting") && !givenFiles);
  choose(!weighted, {"data-weighting-type"});
  choose(given("data-weighting"), {"tsv-weighting"});
  choose(given("tsv-weighting"), {"data-weighting"});
  choose(given("valid-source") || given("valid-target"), {"valid-tsv"});
  choose(given("valid-tsv"), {"valid-source", "valid-target"});
  choose(given("corpus-weight"), {"corpus-temperature"});
  choose(given("corpus-temperature"), {"corpus-weight"});
  for (const auto &[name, value] : values.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      std::string near = nearest(name, known);
      throw Error(file + ": unknown flag " + inQuotes(name) +
                  (near.empty() ? "; `train --help` lists them" : "; did you mean '" + near + "'?"));
    }
    const CommandOption option = command.option("--" + name);
    bool isLimit = std::find(limits.begin(), limits.end(), name) != limits.end();
    if (option.count() > 0 || isOfTheCall(name) || (isLimit && limited) || value.is_null() ||
        std::ranges::count(left, name) > 0)
      continue;
    std::vector<std::string> texts;
    if (value.is_array())
      for (const Json &one : value)
        texts.push_back(settingText(one));
    else
      texts.push_back(settingText(value));
    try {
      option.take(texts);
    } catch (const UsageError &error) {
      throw Error(file + ": " + error.what());
    }
  }
}

GivenFlags::GivenFlags(Command command) : command(command) {
  for (const CommandOption &option : command.options())
    if (option.count() > 0)
      own.insert("--" + option.name());
}

bool GivenFlags::operator()(const std::string &flag) const {
  const CommandOption option = command.option(flag);
  return onCommandLine(flag) || (option.count() > 0 && valueOf(settingText(option)) != valueOf(option.defaultText()));
}

std::string usedConfiguration(Command command) {
  Json used = Json::object();
  for (const CommandOption &option : command.options()) {
    const std::string name = option.name();
    if (isOfTheCall(name))
      continue;
    if (option.count() == 0) {
      if (!option.defaultText().empty())
        used[name] = valueOf(option.defaultText());
    } else if (option.separator() != '\0') {
      used[name] = settingText(option);
    } else if (option.mostValues() > 1) {
      used[name] = option.texts();
    } else {
      used[name] = valueOf(option.texts().back());
    }
  }
  try {
    return used.dump(2) + "\n";
  } catch (const Json::type_error &) {
    throw Error(
        "a file name among the flags is not valid UTF-8, as config.json in --out must be; rename the file or folder");
  }
}

} // namespace xfc
