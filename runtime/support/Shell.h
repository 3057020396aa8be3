// What a shell shows of a program: completions, and a manual page. Both say what the declarations of verbs and options
// say, as --help does.
#pragma once

#include "support/Options.h"
#include <string>
#include <vector>

namespace xfc {

// Adds the verbs `completion`, which prints a shell's script, and `man`, which prints a manual page.
void addShellVerbs(Command program);

// The first word of the command lines by which those scripts ask: PROGRAM complete WORD..., with the words that follow
// the program's name as far as the cursor.
constexpr const char *completeWord = "complete";
// What the last of these words may become: verbs, options or values, with a tab and a description. Nothing: a file.
std::vector<std::string> completions(Command program, std::vector<std::string> words);

// The script that gives "bash", "zsh" or "fish" the completions of a program with this name.
std::string completionScript(const std::string &shell, const std::string &program);
// A page for section 1 of the manual, in troff's language.
std::string manualPage(Command program);

} // namespace xfc
