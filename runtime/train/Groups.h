// Parameters that a run trains in a way of their own: frozen, or with another learning rate or weight decay.
#pragma once

#include "plan/Optimizers.h"
#include "plan/ParameterGroups.h"
#include <optional>
#include <string>
#include <vector>

namespace xfc {

// What --freeze, --rate and --decay say, each in the order in which it was given. A pattern is a glob over the names of
// parameters (`*`, `?`, `[...]`), tied names included; a dot is a character as any other. Of several patterns of one
// flag that match a parameter the last one counts.
struct GroupRules {
  struct Number {
    std::string pattern;
    double value;
  };
  std::vector<std::string> freeze;
  std::vector<Number> rates;  // factors of the learning rate
  std::vector<Number> decays; // weight decays in place of the run's
  bool empty() const { return freeze.empty() && rates.empty() && decays.empty(); }
  // As a command line has them; "" for none.
  std::string text() const;
};

struct TrainedGroups {
  struct Settings {
    double rate = 1;             // a factor of the run's
    std::optional<double> decay; // the run's where it has none
    bool operator==(const Settings &) const = default;
  };
  std::vector<int> groupOf; // of each parameter: an index into `groups`, or frozenGroup
  std::vector<Settings> groups;
  int64_t frozen = 0; // elements

  // Everything in one group.
  explicit TrainedGroups(const Module &module);
  // Throws Error: a pattern that matches nothing, naming the nearest that does, or nothing that is left to train.
  TrainedGroups(const Module &module, const GroupRules &rules);
  // What an optimizer computes with in a group.
  OptimizerSettings settingsOf(size_t group, const OptimizerSettings &ofTheRun) const;
};

} // namespace xfc
