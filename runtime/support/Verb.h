// The verbs of a program, and how they are added to its command line.
#pragma once

#include "support/Options.h"
#include <span>
#include <string_view>

namespace xfc {

// A verb: its name, and the function that adds it to the command line.
struct Verb {
  const char *name;
  void (*add)(Command app);
};

// Adds the verb whose name is `first`, the first word of the command line; or all of them, and those for shells, which
// every program has, if there is no such verb.
// Verbs have hundreds of options together, and adding them takes longer than many a run does; messages and --help,
// which name all verbs, are needed only if the command line does not begin with one.
void addVerbs(Command app, std::span<const Verb> verbs, std::string_view first);

} // namespace xfc
