// Shared by the fuzz targets of command lines: one argument per line of input. They are parsed and checked; no verb
// runs.
#pragma once

#include "Fuzz.h"
#include "support/CommandLine.h"
#include "support/Verb.h"
#include <cstdio>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace xfc::fuzz {

// Parses the input as the command line of a program with these verbs.
inline void parseCommandLine(const char *program, std::span<const Verb> verbs, std::string_view input) {
  std::vector<std::string> words = {program};
  std::istringstream lines{std::string(input)};
  for (std::string line; std::getline(lines, line);)
    words.push_back(line.substr(0, line.find('\0')));
  std::vector<char *> arguments;
  for (std::string &word : words)
    arguments.push_back(word.data());

  CommandLine app("", program);
  app.requireVerb();
  addVerbs(app, verbs, words.size() > 1 ? words[1] : "");
  const std::vector<Command> added = app.verbs();
  if (added.size() > verbs.size()) { // those for shells follow
    for (size_t i = 0; i < verbs.size(); ++i)
      expect(added[i].name() == verbs[i].name, "a verb has the name under which it is listed");
  } else {
    expect(added.size() == 1 && added[0].name() == words[1], "the verb that is used is added alone");
  }
  app.leaveOutWork();
  // Discard help and messages.
  static std::FILE *const nothing = std::fopen("/dev/null", "w");
  std::ostringstream sink;
  std::streambuf *const out = std::cout.rdbuf(sink.rdbuf()), *const err = std::cerr.rdbuf(sink.rdbuf());
  std::FILE *const messages = std::exchange(stderr, nothing);
  const int status = runCommandLine(app, static_cast<int>(arguments.size()), arguments.data());
  stderr = messages;
  std::cout.rdbuf(out);
  std::cerr.rdbuf(err);
  accepted |= status == 0;
  expect(status >= 0 && status <= 2, "a command line ends with status 0, 1 or 2");
}

} // namespace xfc::fuzz
