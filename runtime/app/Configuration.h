// The flags of a training run as JSON: what --config reads, and what train leaves in its folder.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace xfc {

// Gives the flags that were not on the command line their values of a JSON object; `file` is for messages. How long to
// train is one choice: a limit on the command line replaces the object's. Throws Error: not an object, an unknown flag,
// a value that the flag does not take.
void applyConfiguration(CLI::App &command, const std::string &text, const std::string &file);

// Every flag as used, under its name. Throws Error where one is not UTF-8.
std::string usedConfiguration(const CLI::App &command);

} // namespace xfc
