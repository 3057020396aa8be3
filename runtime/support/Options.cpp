// Options and verbs, by means of CLI11.
#include "support/Options.h"
#include "support/CommandLine.h"
#include "support/Quoted.h"
#include "support/Terminal.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>
#include <sstream>

namespace xfc {
namespace {

// CLI11 lets nan and infinity pass, and prints numbers of 300 digits.
std::string wrongIfNotFinite(const std::string &text) {
  return std::isfinite(std::strtod(text.c_str(), nullptr)) ? "" : text + " is not a finite number";
}

std::string wrongIfNotPositive(const std::string &text) {
  const double number = std::strtod(text.c_str(), nullptr);
  return std::isnormal(number) && number > 0 ? ""
                                             : text + " is not a positive number that floating point can represent";
}

// "is not BOUNDS", for numbers that are outside. `above`: the least number is outside itself.
template <typename Number> std::string outside(Number least, Number most, bool above) {
  constexpr bool whole = !std::is_floating_point_v<Number>;
  const bool bounded = most < std::numeric_limits<Number>::max();
  std::ostringstream text;
  text << "is not a " << (whole ? "whole " : "") << "number ";
  if (bounded && !above)
    text << "from " << least << " to " << most;
  else
    text << (above ? "above " : "of at least ") << least;
  if (bounded && above)
    text << ", at most " << most;
  if (!bounded && !whole)
    text << " and below infinity";
  return text.str();
}

// CLI11's own check lets nan pass, and its message prints bounds of 300 digits.
template <typename Number>
CLI::Validator between(Number least, Number most, const std::string &shown, bool above = false) {
  return CLI::Validator(
      [least, most, above, wrong = outside(least, most, above)](const std::string &text) -> std::string {
        Number number{};
        const bool within = CLI::detail::lexical_cast(text, number) && number >= least && number <= most;
        return within && !(above && number == least) ? "" : text + " " + wrong;
      },
      shown);
}

bool isWhole(const CLI::Option &option) { return option.get_type_name().find("INT") != std::string::npos; }

// CLI11 reads 010 as 8, wraps values that do not fit an unsigned type, and reads 1e3 as 1.
template <typename Integer> std::string readExactly(std::string &text) {
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

void readIntegersExactly(CLI::App &app) {
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

// Calls `work`, and throws the errors of CLI11 as UsageError. Those that ask for --help or --version leave as they are.
template <typename Work> void withUsageErrors(Work work) {
  try {
    work();
  } catch (const CLI::Success &) {
    throw;
  } catch (const CLI::ExtrasError &wrong) {
    throw UnexpectedError(wrong.what());
  } catch (const CLI::RequiredError &wrong) {
    if (std::string_view(wrong.what()).starts_with("A subcommand"))
      throw UnexpectedError("a verb is required");
    throw UsageError(wrong.what());
  } catch (const CLI::Error &wrong) {
    throw UsageError(wrong.what());
  }
}

} // namespace

//===--------------------------------------------------------------------------------------------------------===//
// CommandOption
//===--------------------------------------------------------------------------------------------------------===//

CommandOption CommandOption::required() const { return CommandOption(option->required()); }
CommandOption CommandOption::subject(const std::string &heading) const { return CommandOption(option->group(heading)); }
CommandOption CommandOption::oneOf(const std::vector<std::string> &names) const {
  const auto wrong = [names](const std::string &text) -> std::string {
    if (std::ranges::find(names, text) != names.end())
      return "";
    const std::string near = nearest(text, names);
    return "unknown '" + text + "'; " + (near.empty() ? "" : "did you mean '" + near + "'? ") +
           "known: " + listed(names);
  };
  return CommandOption(option->check(CLI::Validator(wrong, "{" + CLI::detail::join(names, ",") + "}")));
}
template <typename Number> CommandOption CommandOption::within(Number least, Number most) const {
  return CommandOption(option->check(between(least, most, CLI::Range(least, most).get_description())));
}
CommandOption CommandOption::above(double least, double most) const {
  std::ostringstream shown;
  shown << "FLOAT in (" << least << " - " << most << "]";
  return CommandOption(option->check(between(least, most, shown.str(), /*above=*/true)));
}
template CommandOption CommandOption::within(int, int) const;
template CommandOption CommandOption::within(int64_t, int64_t) const;
template CommandOption CommandOption::within(double, double) const;
CommandOption CommandOption::notNegative() const {
  constexpr const char *shown = "NONNEGATIVE";
  return CommandOption(option->check(isWhole(*option) ? between(int64_t(0), std::numeric_limits<int64_t>::max(), shown)
                                                      : between(0.0, std::numeric_limits<double>::max(), shown)));
}
CommandOption CommandOption::positive() const {
  constexpr const char *shown = "POSITIVE";
  return CommandOption(option->check(isWhole(*option)
                                         ? between(int64_t(1), std::numeric_limits<int64_t>::max(), shown)
                                         : between(0.0, std::numeric_limits<double>::max(), shown, /*above=*/true)));
}
CommandOption CommandOption::finite() const {
  return CommandOption(option->check(CLI::Validator(wrongIfNotFinite, "")));
}
CommandOption CommandOption::finitePositive() const {
  return CommandOption(option->check(CLI::Validator(wrongIfNotPositive, "")));
}
CommandOption CommandOption::needs(CommandOption other) const { return CommandOption(option->needs(other.option)); }
CommandOption CommandOption::excludes(CommandOption other) const {
  return CommandOption(option->excludes(other.option));
}
CommandOption CommandOption::excludes(const std::string &other) const { return CommandOption(option->excludes(other)); }
CommandOption CommandOption::values(int least, int most) const { return CommandOption(option->expected(least, most)); }
CommandOption CommandOption::separator(char separator) const { return CommandOption(option->delimiter(separator)); }
CommandOption CommandOption::fromEnvironment(const std::string &variable) const {
  return CommandOption(option->envname(variable));
}
CommandOption CommandOption::valueName(const std::string &name) const { return CommandOption(option->type_name(name)); }
CommandOption CommandOption::showDefault() const { return CommandOption(option->capture_default_str()); }
CommandOption CommandOption::showDefault(const std::string &text) const {
  return CommandOption(option->default_str(text));
}

std::vector<std::string> CommandOption::spellings() const {
  if (isPositional())
    return {option->get_name(true)};
  std::vector<std::string> spellings;
  for (const std::string &name : option->get_snames())
    spellings.push_back("-" + name);
  for (const std::string &name : option->get_lnames())
    spellings.push_back("--" + name);
  return spellings;
}
bool CommandOption::isPositional() const { return option->get_positional(); }
bool CommandOption::takesValue() const { return option->get_items_expected_max() > 0 && option->get_type_size() > 0; }
std::string CommandOption::description() const { return option->get_description(); }
std::string CommandOption::subject() const { return option->get_group(); }
std::string CommandOption::valueText() const {
  const std::string text = CLI::Formatter().make_option_opts(option);
  return text.starts_with(' ') ? text.substr(1) : text;
}

std::vector<std::string> CommandOption::choices() const {
  const std::string type = option->get_type_name();
  const size_t begin = type.find(":{"), end = type.rfind('}');
  std::vector<std::string> choices;
  if (begin == std::string::npos || end == std::string::npos)
    return choices;
  std::istringstream stream(type.substr(begin + 2, end - begin - 2));
  for (std::string choice; std::getline(stream, choice, ',');)
    choices.push_back(choice);
  return choices;
}

std::string CommandOption::name() const { return option->get_single_name(); }
size_t CommandOption::count() const { return option->count(); }
std::string CommandOption::defaultText() const { return option->get_default_str(); }
const std::vector<std::string> &CommandOption::texts() const { return option->results(); }
char CommandOption::separator() const { return option->get_delimiter(); }
int CommandOption::mostValues() const { return option->get_items_expected_max(); }

void CommandOption::take(const std::vector<std::string> &texts) const {
  for (const std::string &text : texts)
    option->add_result(text);
  withUsageErrors([&] { option->run_callback(); });
}

//===--------------------------------------------------------------------------------------------------------===//
// Command
//===--------------------------------------------------------------------------------------------------------===//

static constexpr std::string_view exampleHeading = "Example:\n  ";

Command Command::addVerb(const std::string &name, const std::string &description, const std::string &example) const {
  CLI::App *verb = app->add_subcommand(name, description);
  verb->footer(example.empty() ? "" : std::string(exampleHeading) + example);
  return Command(verb);
}

void Command::requireVerb() const { app->require_subcommand(1); }
void Command::setVersion(const std::function<std::string()> &version) const {
  app->set_version_flag("--version", version);
}
void Command::setFooter(const std::string &text) const { app->footer(text); }

std::string Command::example() const {
  const std::string footer = app->get_footer();
  return footer.starts_with(exampleHeading) ? footer.substr(exampleHeading.size()) : "";
}
void Command::setSubject(const std::string &heading) const { app->option_defaults()->group(heading); }
std::string Command::subject() const { return app->option_defaults()->get_group(); }
void Command::setWork(const std::function<void()> &work) const { app->callback(work); }

void Command::leaveOutWork() const {
  if (verbs().empty())
    app->parse_complete_callback([] { throw CLI::Success(); });
  for (const Command &verb : verbs())
    verb.leaveOutWork();
}

template <typename T>
CommandOption Command::addOption(const std::string &names, T &value, const std::string &description) const {
  return CommandOption(app->add_option(names, value, description));
}
template CommandOption Command::addOption(const std::string &, int &, const std::string &) const;
template CommandOption Command::addOption(const std::string &, int64_t &, const std::string &) const;
template CommandOption Command::addOption(const std::string &, uint64_t &, const std::string &) const;
template CommandOption Command::addOption(const std::string &, double &, const std::string &) const;
template CommandOption Command::addOption(const std::string &, std::optional<double> &, const std::string &) const;
template CommandOption Command::addOption(const std::string &, std::string &, const std::string &) const;
template CommandOption Command::addOption(const std::string &, std::vector<double> &, const std::string &) const;
template CommandOption Command::addOption(const std::string &, std::vector<std::string> &, const std::string &) const;

CommandOption Command::addOption(const std::string &names, const std::function<void(const std::string &)> &take,
                                 const std::string &description) const {
  return CommandOption(app->add_option_function<std::string>(names, take, description));
}
CommandOption Command::addOption(const std::string &names,
                                 const std::function<void(const std::vector<std::string> &)> &take,
                                 const std::string &description) const {
  return CommandOption(app->add_option_function<std::vector<std::string>>(names, take, description));
}

template <typename T>
CommandOption Command::addFlag(const std::string &names, T &value, const std::string &description) const {
  return CommandOption(app->add_flag(names, value, description));
}
template CommandOption Command::addFlag(const std::string &, bool &, const std::string &) const;
template CommandOption Command::addFlag(const std::string &, std::string &, const std::string &) const;

std::string Command::name() const { return app->get_name(); }
std::string Command::path() const {
  return (app->get_parent() ? Command(app->get_parent()).path() + " " : "") + app->get_name();
}
std::string Command::description() const { return app->get_description(); }
std::vector<std::string> Command::subjects() const { return app->get_groups(); }

std::vector<CommandOption> Command::options() const {
  std::vector<CommandOption> options;
  for (CLI::Option *option : app->get_options())
    options.emplace_back(option);
  return options;
}

CommandOption Command::option(const std::string &flag) const { return CommandOption(app->get_option(flag)); }
bool Command::has(const std::string &flag) const { return app->get_option_no_throw(flag) != nullptr; }

std::vector<std::string> Command::flags() const {
  std::vector<std::string> flags;
  for (const CLI::Option *option : app->get_options())
    for (const std::string &name : option->get_lnames())
      flags.push_back("--" + name);
  return flags;
}

std::vector<Command> Command::verbs() const {
  std::vector<Command> verbs;
  for (CLI::App *verb : app->get_subcommands([](CLI::App *) { return true; }))
    verbs.emplace_back(verb);
  return verbs;
}

Command Command::verb(const std::string &name) const { return Command(app->get_subcommand(name)); }

std::vector<Command> Command::parsed() const {
  std::vector<Command> commands = {*this};
  for (std::vector<CLI::App *> verbs = app->get_subcommands(); !verbs.empty();
       verbs = commands.back().app->get_subcommands())
    commands.emplace_back(verbs.back());
  return commands;
}

bool Command::parse(int argc, char **argv) const {
  readIntegersExactly(*app);
  try {
    withUsageErrors([&] { app->parse(argc, argv); });
    return true;
  } catch (const CLI::CallForHelp &) {
    std::cout << withBoldHeadings(CLI::detail::find_and_replace(app->help(), "\n\n\n", "\n\n"), stdout);
    return false;
  } catch (const CLI::Success &success) {
    app->exit(success);
    return false;
  }
}

void Command::parse(const std::vector<std::string> &words) const {
  readIntegersExactly(*app);
  app->set_help_flag(); // none: it would print
  withUsageErrors(
      [&] { app->parse(std::vector<std::string>(words.rbegin(), words.rend())); }); // it takes them from the back
}

//===--------------------------------------------------------------------------------------------------------===//
// CommandLine
//===--------------------------------------------------------------------------------------------------------===//

CommandLine::CommandLine(const std::string &description, const std::string &name)
    : CommandLine(std::make_unique<CLI::App>(description, name)) {}
CommandLine::CommandLine(std::unique_ptr<CLI::App> app) : Command(app.get()), owned(std::move(app)) {}
CommandLine::~CommandLine() = default;

} // namespace xfc
