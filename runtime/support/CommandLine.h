// Handles the command lines of xfc and of every generated executable: parses, suggests, runs, and turns errors into
// exit codes.
#pragma once

#include "support/Options.h"
#include <functional>
#include <string>
#include <vector>

namespace xfc {

// The name in `known` that is nearest to `name` by edit distance, or "" if none is close.
std::string nearest(const std::string &name, const std::vector<std::string> &known);

// What a program of ours does before anything else: from here on signals mean what Signals.h says, and an exception
// that nobody catches becomes a message. Again is harmless.
void beginProgram();
// Begins the program, calls `work` and returns its result. An exception on any thread becomes one line "error: ..." and
// status 1, which quotes 200 characters of a word of the command line that is longer, unless it may name a file. If a
// signal interrupted the work, the process dies of that signal as if it had not been caught.
int reportErrors(const std::function<int()> &work, const std::vector<std::string> &words = {});

// Flushes standard output. Throws Error if that fails, so that a closed stream ends the work.
void flushOutput();

// Parses options that do not come from a command line, given as a sequence of words. Throws an Error that names the
// wrong option and suggests the nearest one.
void parseOptions(Command program, const std::vector<std::string> &words);

// Parses the command line and runs the callbacks. Integers are decimal and checked against their type's range. Returns
// the exit status: 0; 1 for an Error or any other exception, reported as one line "error: ..." (also if standard output
// cannot be written); 2 for a wrong command line, with the nearest flag or verb.
int runCommandLine(Command program, int argc, char **argv);

} // namespace xfc
