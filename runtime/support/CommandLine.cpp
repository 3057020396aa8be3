// Parses command lines, and turns errors into messages and exit codes.
#include "support/CommandLine.h"
#include "support/Error.h"
#include "support/Files.h"
#include "support/Inputs.h"
#include "support/Quoted.h"
#include "support/Signals.h"
#include "support/Uncaught.h"
#include "support/Unfinished.h"
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <new>
#include <numeric>
#include <unistd.h>

namespace xfc {

static size_t editDistance(const std::string &a, const std::string &b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      size_t next = std::min({row[j] + 1, row[j + 1] + 1, diagonal + (a[i] != b[j])});
      diagonal = row[j + 1];
      row[j + 1] = next;
    }
  }
  return row.back();
}

std::string nearest(const std::string &name, const std::vector<std::string> &known) {
  std::string best;
  size_t distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string &candidate : known)
    if (size_t d = editDistance(name, candidate); d < distance) {
      distance = d;
      best = candidate;
    }
  return best;
}

static std::string suggestion(Command program, const std::vector<std::string> &words) {
  const Command verb = program.parsed().back(); // which the command line is about
  const std::vector<std::string> flags = verb.flags();
  std::vector<std::string> verbs;
  for (const Command &candidate : verb.verbs())
    verbs.push_back(candidate.name());
  for (std::string word : words) {
    word = word.substr(0, word.find('='));
    const std::vector<std::string> &known = word.starts_with("--") ? flags : verbs;
    if (word == verb.name() || std::find(known.begin(), known.end(), word) != known.end())
      continue;
    if (!word.starts_with("--") && verbs.empty())
      continue;
    if (std::string near = nearest(word, known); !near.empty())
      return "; did you mean '" + near + "'?";
  }
  return "";
}

// What is wrong, as one line, and what may have been meant.
static std::string explained(const UsageError &wrong, Command program, const std::vector<std::string> &words) {
  std::string what = wrong.what();
  std::replace(what.begin(), what.end(), '\n', ' ');
  return oneLine(what) + suggestion(program, words);
}

// If a standard stream is closed, the next file to be opened would take its descriptor: messages would end up in that
// file, or weights would be read as text. Open /dev/null there in the wrong direction instead, so that using the stream
// is an error.
static void holdStandardStreams() {
  for (auto [stream, mode] : {std::pair{STDIN_FILENO, O_WRONLY}, {STDOUT_FILENO, O_RDONLY}, {STDERR_FILENO, O_RDONLY}})
    if (::fcntl(stream, F_GETFD) < 0)
      ::open("/dev/null", mode); // open() takes the lowest free descriptor, which is this one
}

void flushOutput() {
  const bool failed = std::ferror(stdout);
  if (std::fflush(stdout) != 0)
    throw Error(std::string("standard output: cannot write: ") + std::strerror(errno));
  if (failed)
    throw Error("standard output: cannot write all of the results");
}

// The one place that turns the exception being handled into a line of text.
static void printException(const std::exception_ptr &exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::bad_alloc &) {
    std::fputs("error: out of memory\n", stderr);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "error: %s\n", oneLine(error.what()).c_str());
  } catch (...) {
    std::fputs("error: an unknown exception\n", stderr);
  }
}

void reportUncaught() {
  std::set_terminate([] {
    if (std::exception_ptr exception = std::current_exception())
      printException(exception);
    else // not even an exception could be allocated
      std::fputs("error: out of memory\n", stderr);
    Unfinished::removeAll();
    std::_Exit(1);
  });
}

void beginProgram() {
  installSignals();
  reportUncaught();
}

int reportErrors(const std::function<int()> &work) {
  beginProgram();
  try {
    return work();
  } catch (const Interrupted &stopped) {
    printException(std::current_exception());
    std::signal(stopped.signal, SIG_DFL);
    std::raise(stopped.signal);
  } catch (...) {
    printException(std::current_exception());
  }
  return 1;
}

static int parseAndRun(Command program, int argc, char **argv) {
  const InputsAreKept kept;
  try {
    if (program.parse(argc, argv))
      flushOutput();
    return 0;
  } catch (const UsageError &wrong) {
    std::string command;
    for (const Command &part : program.parsed())
      command += part.name() + " ";
    std::fprintf(stderr, "error: %s\nRun `%s--help` for usage.\n",
                 explained(wrong, program, {argv + 1, argv + argc}).c_str(), command.c_str());
    return 2;
  }
}

void parseOptions(Command program, const std::vector<std::string> &words) {
  try {
    program.parse(words);
  } catch (const UsageError &wrong) {
    throw Error(explained(wrong, program, words));
  }
}

int runCommandLine(Command program, int argc, char **argv) {
  holdStandardStreams();
  return reportErrors([&] { return parseAndRun(program, argc, argv); });
}

} // namespace xfc
