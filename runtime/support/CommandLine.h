// What xfc and every generated executable do with a command line: parse, suggest, run, turn errors into exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace xfc {

// The name among `known` that is nearest to `name` by edit distance, or "" where none is near.
std::string nearest(const std::string &name, const std::vector<std::string> &known);

// Checks of numbers beside CLI11's ranges, which let nan and infinity pass and print numbers of 300 digits.
extern const CLI::Validator FiniteNumber, FinitePositive;
// Calls it and returns what it returns; every exception, of whatever thread, becomes one line "error: ..." and
// status 1. A signal that ended the work ends the process as if nobody had caught it.
int reportErrors(const std::function<int()> &work);

// What was printed so far is with whoever reads it, or an Error: a stream that was closed ends the work.
void flushOutput();

// Parses options that no command line gave, as words after each other. Throws Error that names the wrong one, and the
// nearest that there is.
void parseOptions(CLI::App &app, const std::vector<std::string> &words);

// Parses and runs the callbacks. Integers are decimal and in their type's range. Returns the exit status: 0; 1 for an
// Error or any other exception, one line "error: ..." (also when standard output cannot be written); 2 for a wrong
// command line, with the nearest flag or verb.
int runCommandLine(CLI::App &app, int argc, char **argv);

} // namespace xfc
