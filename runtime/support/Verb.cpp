// Adds verbs to the command line of a program.
#include "support/Verb.h"
#include <algorithm>

namespace xfc {

void addVerbs(Command app, std::span<const Verb> verbs, std::string_view first) {
  const auto named = std::ranges::find(verbs, first, &Verb::name);
  for (const Verb &verb : named == verbs.end() ? verbs : std::span(&*named, 1))
    verb.add(app);
}

} // namespace xfc
