// What a program's list of verbs consists of.
#pragma once

#include <CLI/CLI.hpp>

namespace xfc {

// A verb: its name, and the function that adds it to the command line.
struct Verb {
  const char *name;
  void (*add)(CLI::App &app);
};

} // namespace xfc
