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
#include <charconv>
#include <cmath>
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

const CLI::Validator FiniteNumber(
    [](const std::string &text) {
      return std::isfinite(std::strtod(text.c_str(), nullptr)) ? "" : text + " is not a finite number";
    },
    "");

const CLI::Validator FinitePositive(
    [](const std::string &text) {
      const double number = std::strtod(text.c_str(), nullptr);
      return std::isnormal(number) && number > 0 ? ""
                                                 : text + " is not a positive number that floating point can represent";
    },
    "");

// CLI11 reads 010 as 8, wraps values that do not fit an unsigned type, and reads 1e3 as 1.
template <typename Integer> static std::string readExactly(std::string &text) {
  Integer number = 0;
  const char *begin = text.data() + text.starts_with('+'), *end = text.data() + text.size();
  const auto [read, error] = std::from_chars(begin, end, number);
  if (error == std::errc::result_out_of_range || (std::is_unsigned_v<Integer> && text.starts_with('-')))
    return text + " is not a number from " + std::to_string(std::numeric_limits<Integer>::min()) + " to " +
           std::to_string(std::numeric_limits<Integer>::max());
  if (error != std::errc() || read != end)
    return text + " is not a whole number";
  text = std::to_string(number);
  return "";
}

static void readIntegersExactly(CLI::App &app) {
  for (CLI::Option *option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("INT"))
      option->transform(CLI::Validator(readExactly<int64_t>, ""));
    else if (type.starts_with("UINT"))
      option->transform(CLI::Validator(readExactly<uint64_t>, ""));
  }
  for (CLI::App *verb : app.get_subcommands([](CLI::App *) { return true; }))
    readIntegersExactly(*verb);
}

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

// The verb that the command line is about: the last one parsed.
static CLI::App *verbOf(CLI::App &app) {
  std::vector<CLI::App *> parsed = app.get_subcommands();
  return parsed.empty() ? &app : verbOf(*parsed.back());
}

static std::string suggestion(CLI::App &app, const std::vector<std::string> &words) {
  CLI::App *verb = verbOf(app);
  std::vector<std::string> flags, verbs;
  for (const CLI::Option *option : verb->get_options())
    for (const std::string &name : option->get_lnames())
      flags.push_back("--" + name);
  for (const CLI::App *candidate : verb->get_subcommands([](CLI::App *) { return true; }))
    verbs.push_back(candidate->get_name());
  for (std::string word : words) {
    word = word.substr(0, word.find('='));
    const std::vector<std::string> &known = word.starts_with("--") ? flags : verbs;
    if (word == verb->get_name() || std::find(known.begin(), known.end(), word) != known.end())
      continue;
    if (!word.starts_with("--") && verbs.empty())
      continue;
    if (std::string near = nearest(word, known); !near.empty())
      return "; did you mean '" + near + "'?";
  }
  return "";
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

// CLI11's message, which may have several lines and quotes values of any length.
static std::string messageOf(const CLI::ParseError &wrong) {
  std::string what = wrong.what();
  std::replace(what.begin(), what.end(), '\n', ' ');
  return oneLine(what);
}

static int parseAndRun(CLI::App &app, int argc, char **argv) {
  const InputsAreKept kept;
  readIntegersExactly(app);
  try {
    app.parse(argc, argv);
    flushOutput();
    return 0;
  } catch (const CLI::Success &success) { // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError &wrong) {
    const std::string what = messageOf(wrong);
    std::string command;
    for (CLI::App *part = verbOf(app); part; part = part->get_parent())
      command.insert(0, part->get_name() + " ");
    std::fprintf(stderr, "error: %s%s\nRun `%s--help` for usage.\n", what.c_str(),
                 suggestion(app, {argv + 1, argv + argc}).c_str(), command.c_str());
    return 2;
  }
}

void parseOptions(CLI::App &app, const std::vector<std::string> &words) {
  readIntegersExactly(app);
  app.set_help_flag(); // none: it would print
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend())); // CLI11 takes words from the back
  } catch (const CLI::ParseError &wrong) {
    throw Error(messageOf(wrong) + suggestion(app, words));
  }
}

int runCommandLine(CLI::App &app, int argc, char **argv) {
  holdStandardStreams();
  return reportErrors([&] { return parseAndRun(app, argc, argv); });
}

} // namespace xfc
