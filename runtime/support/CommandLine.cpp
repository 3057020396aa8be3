// Parses command lines, and turns errors into messages and exit codes.
#include "support/CommandLine.h"
#include "support/Error.h"
#include "support/Inputs.h"
#include "support/Quoted.h"
#include "support/Shell.h"
#include "support/Signals.h"
#include "support/Terminal.h"
#include "support/Uncaught.h"
#include "support/Unfinished.h"
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <filesystem>
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

static std::string didYouMean(const std::string &word, const std::vector<std::string> &known) {
  const std::string near = nearest(word, known);
  return near.empty() ? "" : "; did you mean '" + near + "'?";
}

// Says which of the words the verb does not know, and what may have been meant.
static std::string unexpected(const UnexpectedError &wrong, Command verb, const std::vector<std::string> &words) {
  std::vector<std::string> options, verbs;
  for (const CommandOption &option : verb.options())
    for (const std::string &spelling : option.spellings())
      options.push_back(spelling);
  for (const Command &candidate : verb.verbs())
    verbs.push_back(candidate.name());
  for (const std::string &given : words) {
    const std::string word = given.substr(0, given.find('='));
    if (word.size() > 1 && word.starts_with('-') && !std::isdigit(static_cast<unsigned char>(word[1])) &&
        std::ranges::find(options, word) == options.end()) {
      std::vector<std::string> similar = options;
      if (word.size() == 2) // any two letters are near each other
        std::erase_if(similar, [&](const std::string &option) {
          return option.size() != 2 || std::tolower(option[1]) != std::tolower(word[1]);
        });
      return word + ": unknown option" + didYouMean(word, similar);
    }
  }
  for (const CommandOption &option : verb.options()) // a value that may be missing is not taken from the next word
    for (size_t i = 0; !option.takesValue() && i + 1 < words.size(); ++i)
      if (const std::vector<std::string> choices = option.choices();
          words[i] == "--" + option.name() && std::ranges::find(choices, words[i + 1]) != choices.end())
        return words[i] + " " + words[i + 1] + ": the value stands after '='; give " + words[i] + "=" + words[i + 1];
  if (verbs.empty())
    return wrong.what();
  const std::string known = "verbs: " + listed(verbs);
  for (const std::string &word : words)
    if (word != verb.name() && !word.starts_with('-'))
      return "unknown verb '" + word + "'" + didYouMean(word, verbs) + (nearest(word, verbs).empty() ? "; " : " ") +
             known;
  return wrong.what() + ("; " + known);
}

// The message with 200 characters of each long word of the command line that it quotes.
static std::string withShortWords(std::string what, const std::vector<std::string> &words) {
  for (const std::string &word : words) {
    const std::string_view value = std::string_view(word).substr(word.starts_with('-') ? word.find('=') + 1 : 0);
    if (value.size() <= mostShown)
      continue;
    const std::string shown = escaped(value);
    for (size_t at = 0; (at = what.find(value, at)) != std::string::npos; at += shown.size())
      what.replace(at, value.size(), shown);
  }
  return what;
}

// What is wrong, as one line, and what may have been meant.
static std::string explained(const UsageError &wrong, Command program, const std::vector<std::string> &words) {
  std::string what = wrong.what();
  if (const auto *unknown = dynamic_cast<const UnexpectedError *>(&wrong))
    what = unexpected(*unknown, program.parsed().back(), words);
  what = withShortWords(what, words);
  std::replace(what.begin(), what.end(), '\n', ' ');
  return oneLine(what);
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

// Whether the word may be the name of a file, which is shown whole.
static bool mayNameFile(const std::string &word) {
  size_t begin = 0;
  for (size_t end; (end = word.find('/', begin)) != std::string::npos && end - begin <= NAME_MAX;)
    begin = end + 1;
  return word.size() < PATH_MAX && std::min(word.find('/', begin), word.size()) - begin <= NAME_MAX;
}

// The one place that turns the exception being handled into a line of text. The words are those of the command line.
static void printException(const std::exception_ptr &exception, const std::vector<std::string> &words = {}) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::bad_alloc &) {
    printMessage(MessageKind::Error, "out of memory");
  } catch (const std::filesystem::filesystem_error &error) {
    printMessage(MessageKind::Error, oneLine(error.path1().string() + ": " + error.code().message()).c_str());
  } catch (const std::exception &error) {
    printMessage(MessageKind::Error, oneLine(withShortWords(error.what(), words)).c_str());
  } catch (...) {
    printMessage(MessageKind::Error, "an unknown exception");
  }
}

void reportUncaught() {
  std::set_terminate([] {
    if (std::exception_ptr exception = std::current_exception())
      printException(exception);
    else // not even an exception could be allocated
      printMessage(MessageKind::Error, "out of memory");
    Unfinished::removeAll();
    std::_Exit(1);
  });
}

void beginProgram() {
  installSignals();
  reportUncaught();
}

int reportErrors(const std::function<int()> &work, const std::vector<std::string> &words) {
  beginProgram();
  try {
    return work();
  } catch (const Interrupted &stopped) {
    printException(std::current_exception());
    std::signal(stopped.signal, SIG_DFL);
    std::raise(stopped.signal);
  } catch (...) {
    std::vector<std::string> values = words;
    std::erase_if(values, [](const std::string &word) {
      return mayNameFile(word) || word.find(' ') == std::string::npos; // of which oneLine() shows both ends
    });
    printException(std::current_exception(), values);
  }
  return 1;
}

static int parseAndRun(Command program, int argc, char **argv) {
  const InputsAreKept kept;
  if (argc > 1 && std::string_view(argv[1]) == completeWord) {
    for (const std::string &candidate : completions(program, {argv + 2, argv + argc}))
      std::puts(candidate.c_str());
    flushOutput();
    return 0;
  }
  try {
    if (program.parse(argc, argv))
      flushOutput();
    return 0;
  } catch (const UsageError &wrong) {
    std::string command;
    for (const Command &part : program.parsed())
      command += part.name() + " ";
    printMessage(MessageKind::Error, explained(wrong, program, {argv + 1, argv + argc}).c_str());
    std::fprintf(stderr, "Run `%s--help` for usage.\n", command.c_str());
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
  return reportErrors([&] { return parseAndRun(program, argc, argv); }, {argv + 1, argv + argc});
}

} // namespace xfc
