// Groups of parameters that a run trains differently: frozen, or with another learning rate or weight decay.
#pragma once

#include "plan/Optimizers.h"
#include "plan/SplitUpdate.h"
#include <optional>
#include <string>
#include <vector>

namespace xfc {

// The rules given by --freeze, --rate and --decay, each in the order in which it was given. A pattern is a glob over
// the names of parameters (`*`, `?`, `[...]`), including tied names; a dot is an ordinary character. If several
// patterns of one flag match a parameter, the last one wins.
struct GroupRules {
  struct Number {
    std::string pattern;
    double value;
  };
  std::vector<std::string> freeze;
  std::vector<Number> rates;  // factors of the learning rate
  std::vector<Number> decays; // weight decays that replace the run's
  bool empty() const { return freeze.empty() && rates.empty() && decays.empty(); }
  // The rules as on a command line; "" if there are none.
  std::string text() const;
};

struct TrainedGroups {
  struct Settings {
    double rate = 1;             // a factor of the run's rate
    std::optional<double> decay; // the run's decay if not set
    bool operator==(const Settings &) const = default;
  };
  std::vector<int> groupOf; // for each parameter: an index into `groups`, or frozenGroup
  std::vector<Settings> groups;
  int64_t frozen = 0; // the number of frozen elements

  // Puts all parameters into one group.
  explicit TrainedGroups(const Module &module);
  // Throws Error if a pattern matches nothing, suggesting the nearest one that does, or if nothing is left to train.
  TrainedGroups(const Module &module, const GroupRules &rules);
  // The settings that the optimizer uses for a group.
  OptimizerSettings settingsOf(size_t group, const OptimizerSettings &ofTheRun) const;
};

} // namespace xfc
