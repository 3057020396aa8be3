// Groups of parameters that a run trains differently: frozen, or with another learning rate or weight decay.
#include "train/Groups.h"
#include "support/CommandLine.h"
#include "support/Error.h"
#include "support/Format.h"
#include <algorithm>
#include <fnmatch.h>
#include <set>

namespace xfc {
namespace {

bool matches(const std::string &pattern, const Parameter &parameter) {
  auto fits = [&](const std::string &name) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; };
  return fits(parameter.name) || std::ranges::any_of(parameter.aliases, fits);
}

// Patterns that a user probably means: whole names, and their parts before or after a dot.
std::vector<std::string> patternsOf(const Module &module) {
  std::set<std::string> patterns;
  for (const Parameter &parameter : module.parameters) {
    patterns.insert(parameter.name);
    for (size_t dot = parameter.name.find('.'); dot != std::string::npos; dot = parameter.name.find('.', dot + 1)) {
      patterns.insert(parameter.name.substr(0, dot) + ".*");
      patterns.insert(std::string("*").append(parameter.name, dot));
    }
  }
  return {patterns.begin(), patterns.end()};
}

void requireMatch(const Module &module, const char *flag, const std::string &pattern) {
  if (std::ranges::any_of(module.parameters, [&](const Parameter &p) { return matches(pattern, p); }))
    return;
  const std::string near = nearest(pattern, patternsOf(module));
  throw Error(
      std::string(flag) + ": no parameter of the model matches '" + pattern + "'; " +
      (near.empty() ? "names look like '" + module.parameters.front().name + "'" : "did you mean '" + near + "'?"));
}

const GroupRules::Number *lastOf(const std::vector<GroupRules::Number> &rules, const Parameter &parameter) {
  const GroupRules::Number *last = nullptr;
  for (const GroupRules::Number &rule : rules)
    if (matches(rule.pattern, parameter))
      last = &rule;
  return last;
}

} // namespace

std::string GroupRules::text() const {
  std::string all;
  auto add = [&](const char *flag, const std::string &value) {
    all += (all.empty() ? "" : " ") + std::string(flag) + " '" + value + "'";
  };
  for (const std::string &pattern : freeze)
    add("--freeze", pattern);
  for (const auto &[flag, rules] : {std::pair{"--rate", &rates}, {"--decay", &decays}})
    for (const Number &rule : *rules)
      add(flag, rule.pattern + format("=%.17g", rule.value));
  return all;
}

TrainedGroups::TrainedGroups(const Module &module) : groupOf(module.parameters.size(), 0), groups(1) {}

TrainedGroups::TrainedGroups(const Module &module, const GroupRules &rules) {
  for (const std::string &pattern : rules.freeze)
    requireMatch(module, "--freeze", pattern);
  for (const GroupRules::Number &rule : rules.rates)
    requireMatch(module, "--rate", rule.pattern);
  for (const GroupRules::Number &rule : rules.decays)
    requireMatch(module, "--decay", rule.pattern);
  for (const Parameter &parameter : module.parameters) {
    if (std::ranges::any_of(rules.freeze, [&](const std::string &pattern) { return matches(pattern, parameter); })) {
      groupOf.push_back(frozenGroup);
      frozen += elementsOf(parameter.shape);
      continue;
    }
    Settings settings;
    if (const GroupRules::Number *rate = lastOf(rules.rates, parameter))
      settings.rate = rate->value;
    if (const GroupRules::Number *decay = lastOf(rules.decays, parameter))
      settings.decay = decay->value;
    const auto known = std::ranges::find(groups, settings);
    groupOf.push_back(static_cast<int>(known - groups.begin()));
    if (known == groups.end())
      groups.push_back(settings);
  }
  if (groups.empty())
    throw Error("--freeze: nothing is left to train; give patterns that leave some parameters out");
}

OptimizerSettings TrainedGroups::settingsOf(size_t group, const OptimizerSettings &ofTheRun) const {
  OptimizerSettings settings = ofTheRun;
  settings.rate *= groups[group].rate;
  settings.weightDecay = groups[group].decay.value_or(settings.weightDecay);
  return settings;
}

} // namespace xfc
