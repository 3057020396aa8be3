// What xfc and every generated executable do with a command line: parse, suggest, run, turn errors into exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace xfc {

// The name among `known` that is nearest to `name` by edit distance, or "" where none is near.
std::string nearest(const std::string &name, const std::vector<std::string> &known);

// A check of numbers beside CLI11's ranges, which let nan and infinity pass.
extern const CLI::Validator FiniteNumber;

// Parses and runs the callbacks. Returns the exit status: 0; 1 for an Error or any other exception, one line
// "error: ..." (also when standard output cannot be written); 2 for a wrong command line, with the nearest flag or
// verb.
int runCommandLine(CLI::App &app, int argc, char **argv);

} // namespace xfc
