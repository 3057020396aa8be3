// The options and verbs of a command line. Only Options.cpp includes CLI11, which does the work: its headers take
// longer to compile than most files that add options.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
} // namespace CLI

namespace xfc {

// A wrong command line: what() names the flag, and says what was expected.
struct UsageError : std::runtime_error {
  explicit UsageError(const std::string &what) : std::runtime_error(what) {}
  UsageError(const std::string &flag, const std::string &what) : UsageError(flag + ": " + what) {}
};
// Words that the command does not take, or a verb that is missing.
struct UnexpectedError : UsageError {
  using UsageError::UsageError;
};
struct RequiredError : UsageError {
  explicit RequiredError(const std::string &flag) : UsageError(flag + " is required") {}
};
struct ExcludesError : UsageError {
  ExcludesError(const std::string &flag, const std::string &other) : UsageError(flag + " excludes " + other) {}
};

// An option or a flag of a command, which owns it: copies are the same option.
class CommandOption {
public:
  explicit CommandOption(CLI::Option *option) : option(option) {}

  CommandOption required() const;
  CommandOption subject(const std::string &heading) const; // under which --help shows it
  // Checks of each value. The first five are named in --help, and reject NaN.
  CommandOption oneOf(const std::vector<std::string> &names) const;
  template <typename Number> CommandOption within(Number least, Number most) const; // int, int64_t or double
  CommandOption above(double least, double most) const;                             // more than `least`, at most `most`
  CommandOption notNegative() const;
  CommandOption positive() const;
  CommandOption finite() const;
  CommandOption finitePositive() const; // and normal
  CommandOption needs(CommandOption other) const;
  CommandOption excludes(CommandOption other) const;
  CommandOption excludes(const std::string &other) const;
  CommandOption values(int least, int most) const; // their number
  CommandOption separator(char separator) const;   // of several values in one word
  CommandOption fromEnvironment(const std::string &variable) const;
  // What --help shows for the value, and as the default: the variable's value, or a text.
  CommandOption valueName(const std::string &name) const;
  CommandOption showDefault() const;
  CommandOption showDefault(const std::string &text) const;

  // How it was declared: what help, completions and manual pages say.
  std::vector<std::string> spellings() const; // "-o", "--output"; "model" of a positional argument
  bool isPositional() const;
  bool takesValue() const;
  std::string description() const;
  std::string subject() const;
  std::string valueText() const;            // "TEXT:{f32,bf16}=f32", with what else --help shows before the description
  std::vector<std::string> choices() const; // of oneOf()

  std::string name() const; // without dashes
  size_t count() const;     // of the values that were given
  std::string defaultText() const;
  const std::vector<std::string> &texts() const; // of the values
  char separator() const;                        // '\0': none
  int mostValues() const;
  // Takes values as if they had been given. Throws UsageError if one is not accepted.
  void take(const std::vector<std::string> &texts) const;

private:
  CLI::Option *option;
};

// A command line, or one of its verbs, which the command line owns: copies are the same command.
class Command {
public:
  explicit Command(CLI::App *app) : app(app) {}

  // `example` is a command line that uses the verb.
  Command addVerb(const std::string &name, const std::string &description = "", const std::string &example = "") const;
  void requireVerb() const; // exactly one
  void setVersion(const std::function<std::string()> &version) const;
  void setFooter(const std::string &text) const; // of --help
  // The heading under which --help shows the options that are added from now on; it begins with "Options".
  void setSubject(const std::string &heading) const;
  std::string subject() const;
  void setWork(const std::function<void()> &work) const;
  // Ends this command and its verbs when their arguments have been parsed and checked, before their work.
  void leaveOutWork() const;

  // `names` is "--flag", "-f,--flag", or for a positional argument "name". The value must outlive the command. Its type
  // is one of those for which Options.cpp instantiates this.
  template <typename T>
  CommandOption addOption(const std::string &names, T &value, const std::string &description = "") const;
  // Calls `take` with the value, or with all values.
  CommandOption addOption(const std::string &names, const std::function<void(const std::string &)> &take,
                          const std::string &description) const;
  CommandOption addOption(const std::string &names, const std::function<void(const std::vector<std::string> &)> &take,
                          const std::string &description) const;
  // A flag without a value, for a bool; "--flag{text}", for a string, takes one after '=' and is `text` without.
  template <typename T> CommandOption addFlag(const std::string &names, T &value, const std::string &description) const;

  std::string name() const;
  std::string path() const; // with the names of the commands that it is a verb of: "translator bench train"
  std::string description() const;
  std::string example() const;               // "" if there is none
  std::vector<std::string> subjects() const; // in the order of --help
  std::vector<CommandOption> options() const;
  CommandOption option(const std::string &flag) const; // "--flag", which must exist
  bool has(const std::string &flag) const;
  bool given(const std::string &flag) const { return option(flag).count() > 0; }
  std::vector<std::string> flags() const; // all of them, with their dashes
  std::vector<Command> verbs() const;
  Command verb(const std::string &name) const; // which must exist
  std::vector<Command> parsed() const;         // this command, and the verbs of the command line that was parsed

  // Parses a command line, and does the work of its verb. Integers are decimal and checked against their type's range.
  // Throws UsageError. False: --help or --version was printed instead.
  bool parse(int argc, char **argv) const;
  // The same for a sequence of words that is no command line, and has no --help.
  void parse(const std::vector<std::string> &words) const;

private:
  CLI::App *app;
};

// While it exists, options are added to the command under this heading.
class Subject {
public:
  Subject(Command command, const std::string &heading) : command(command), before(command.subject()) {
    command.setSubject(heading);
  }
  ~Subject() { command.setSubject(before); } // NOLINT(bugprone-exception-escape): out of memory, the program ends
  Subject(const Subject &) = delete;
  Subject &operator=(const Subject &) = delete;

private:
  Command command;
  std::string before;
};

// A command line by itself, with its verbs and options.
class CommandLine : public Command {
public:
  explicit CommandLine(const std::string &description = "", const std::string &name = "");
  ~CommandLine();
  CommandLine(const CommandLine &) = delete;
  CommandLine &operator=(const CommandLine &) = delete;

private:
  explicit CommandLine(std::unique_ptr<CLI::App> app);
  std::unique_ptr<CLI::App> owned;
};

} // namespace xfc
