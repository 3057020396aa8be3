// Adds verbs to the command line of a program.
#include "support/Verb.h"
#include "support/Shell.h"
#include <algorithm>

namespace xfc {

void addVerbs(Command app, std::span<const Verb> verbs, std::string_view first) {
  const auto named = std::ranges::find(verbs, first, &Verb::name);
  if (named != verbs.end())
    return named->add(app);
  for (const Verb &verb : verbs)
    verb.add(app);
  addShellVerbs(app);
}

} // namespace xfc
