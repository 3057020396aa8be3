// Completions and manual pages, from the declarations of verbs and options.
#include "support/Shell.h"
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>

namespace xfc {
namespace {

std::string withDescription(const std::string &word, const std::string &description) {
  return word + "\t" + description.substr(0, description.find('\n'));
}

std::string replaced(std::string text, const std::string &from, const std::string &to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// The option with this spelling, if it takes a value.
const CommandOption *optionWithValue(const std::vector<CommandOption> &options, const std::string &spelling) {
  const auto found = std::ranges::find_if(options, [&](const CommandOption &option) {
    const std::vector<std::string> spellings = option.spellings();
    return !option.isPositional() && option.takesValue() && std::ranges::find(spellings, spelling) != spellings.end();
  });
  return found == options.end() ? nullptr : &*found;
}

//===--------------------------------------------------------------------------------------------------------===//
// Scripts
//===--------------------------------------------------------------------------------------------------------===//

// In all of them, PROGRAM stands for the program's name and FUNCTION for that of a function. The program that is asked
// is the one that was typed, which may be another build of the same name.

// Bash splits words at "=", which is therefore a word by itself.
constexpr const char *bash = R"sh(FUNCTION() {
  local IFS=$'\n' words=("${COMP_WORDS[@]:1:COMP_CWORD}")
  COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]/#\~/$HOME}" complete "${words[@]}" 2>/dev/null | cut -f1)" -- "${words[-1]#=}"))
}
complete -o default -F FUNCTION PROGRAM
)sh";

constexpr const char *zsh = R"sh(#compdef PROGRAM
FUNCTION() {
  local -a candidates
  local line
  while IFS= read -r line; do
    candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done < <("${~words[1]}" complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  if (( $#candidates )); then _describe PROGRAM candidates; else _files; fi
}
if [ "$funcstack[1]" = _PROGRAM ]; then FUNCTION "$@"; else compdef FUNCTION PROGRAM; fi
)sh";

constexpr const char *fish = R"sh(function FUNCTION
    set -l words (commandline -opc) (commandline -ct)
    set -l candidates ($words[1] complete $words[2..-1] 2>/dev/null)
    if test (count $candidates) -gt 0
        printf '%s\n' $candidates
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c PROGRAM -f -a '(FUNCTION)'
)sh";

//===--------------------------------------------------------------------------------------------------------===//
// Manual pages
//===--------------------------------------------------------------------------------------------------------===//

// Text as troff shows it, and not as requests.
std::string troff(const std::string &text) {
  std::string result = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
  if (result.starts_with('.') || result.starts_with('\''))
    result = "\\&" + result;
  return replaced(replaced(result, "\n.", "\n\\&."), "\n'", "\n\\&'");
}

std::string troffOptions(Command command) {
  std::string text;
  const std::vector<CommandOption> options = command.options();
  const auto entry = [](const CommandOption &option) {
    std::string names;
    for (const std::string &spelling : option.spellings())
      names += (names.empty() ? "\\fB" : ", \\fB") + troff(spelling) + "\\fR";
    const std::string value = option.valueText();
    return ".TP\n" + names + (value.empty() ? "" : " " + troff(value)) + "\n" + troff(option.description()) + "\n";
  };
  for (const CommandOption &option : options)
    if (option.isPositional())
      text += entry(option);
  for (const std::string &subject : command.subjects()) {
    std::string entries;
    for (const CommandOption &option : options)
      if (!option.isPositional() && option.subject() == subject)
        entries += entry(option);
    if (!subject.empty() && !entries.empty())
      text += ".PP\n" + troff(subject) + ":\n" + entries;
  }
  return text;
}

// The verbs of a command, those of verbs included.
std::string troffVerbs(Command command) {
  std::string text;
  for (const Command &verb : command.verbs()) {
    text += ".SS " + troff(verb.path()) + "\n" + troff(verb.description()) + "\n" + troffOptions(verb);
    if (const std::string example = verb.example(); !example.empty())
      text += ".PP\nExample:\n.PP\n.nf\n.RS\n" + troff(example) + "\n.RE\n.fi\n";
    text += troffVerbs(verb);
  }
  return text;
}

} // namespace

std::vector<std::string> completions(Command program, std::vector<std::string> words) {
  if (!words.empty() && words.back() == "=")
    words.back().clear();
  std::erase(words, "=");
  std::string last = words.empty() ? "" : words.back(), before;
  Command command = program;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::vector<Command> verbs = command.verbs();
    if (const auto verb = std::ranges::find(verbs, words[i], &Command::name); verb != verbs.end())
      command = *verb;
    before = words[i];
  }
  const std::vector<CommandOption> options = command.options();
  std::string prefix; // of a value in the same word
  if (const size_t equals = last.find('='); last.starts_with("--") && equals != std::string::npos) {
    before = last.substr(0, equals);
    prefix = before + "=";
    last = last.substr(equals + 1);
  }
  std::vector<std::string> found;
  const auto offer = [&](const std::string &word, const std::string &description) {
    if (word.starts_with(last))
      found.push_back(withDescription(prefix + word, description));
  };
  if (const CommandOption *option = optionWithValue(options, before)) {
    for (const std::string &choice : option->choices())
      offer(choice, option->description());
  } else if (last.starts_with('-')) {
    for (const CommandOption &each : options)
      if (!each.isPositional())
        offer(each.spellings().back(), each.description());
  } else {
    for (const Command &verb : command.verbs())
      offer(verb.name(), verb.description());
    for (const CommandOption &each : options)
      for (const std::string &choice : each.isPositional() ? each.choices() : std::vector<std::string>())
        offer(choice, each.description());
  }
  return found;
}

std::string completionScript(const std::string &shell, const std::string &program) {
  std::string function = "_" + program + "_complete";
  std::ranges::replace_if(function, [](unsigned char c) { return !std::isalnum(c) && c != '_'; }, '_');
  const char *script = shell == "bash" ? bash : shell == "zsh" ? zsh : fish;
  return replaced(replaced(script, "FUNCTION", function), "PROGRAM", program);
}

std::string manualPage(Command program) {
  const std::string name = program.name();
  return ".TH " + troff(name) + " 1\n.SH NAME\n" + troff(name) + " \\- " + troff(program.description()) +
         "\n.SH SYNOPSIS\n\\fB" + troff(name) + "\\fR VERB [OPTIONS]\n.SH OPTIONS\n" + troffOptions(program) +
         ".SH VERBS\n" + troffVerbs(program) +
         ".SH EXIT STATUS\n0 is success, 1 a failure that the message explains, and 2 a wrong command line.\n";
}

void addShellVerbs(Command program) {
  Command completion = program.addVerb("completion", "print a script that completes command lines in a shell",
                                       "source <(" + program.name() + " completion bash)");
  auto shell = std::make_shared<std::string>();
  completion.addOption("shell", *shell, "the shell").required().oneOf({"bash", "zsh", "fish"});
  completion.setWork([program, shell] { std::fputs(completionScript(*shell, program.name()).c_str(), stdout); });
  Command manual = program.addVerb("man", "print the manual page", program.name() + " man | man -l -");
  manual.setWork([program] { std::fputs(manualPage(program).c_str(), stdout); });
}

} // namespace xfc
