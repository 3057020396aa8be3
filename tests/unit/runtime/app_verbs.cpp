// Tests what the declarations of all verbs of an executable have in common.
#include "app/Verbs.h"
#include "support/CommandLine.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

using namespace xfc;

namespace {

// The words of an example from the program's name on, without what comes before a pipe.
std::vector<std::string> wordsOf(const std::string &example) {
  const size_t pipe = example.find("| ");
  std::istringstream stream(pipe == std::string::npos ? example : example.substr(pipe + 2));
  std::vector<std::string> words;
  for (std::string word; stream >> word;)
    words.push_back(word);
  return words;
}

// Whether these words are a command line without mistakes.
void expectValid(std::vector<std::string> words) {
  CommandLine app("", words[0]);
  app.requireVerb();
  addVerbs(app, verbs, "");
  app.leaveOutWork();
  std::vector<char *> arguments;
  for (std::string &word : words)
    arguments.push_back(word.data());
  EXPECT_NO_THROW(app.parse(static_cast<int>(arguments.size()), arguments.data())) << words[1];
  const std::vector<std::string> known = app.parsed().back().flags();
  for (const std::string &word : words)
    EXPECT_TRUE(!word.starts_with("--") || std::ranges::find(known, word) != known.end())
        << words[1] << " has no " << word;
}

void check(Command verb) {
  ASSERT_NE(verb.example(), "") << verb.path() << " has no example";
  EXPECT_NE(verb.description(), "") << verb.path();
  if (verb.name() != "completion" && verb.name() != "man")
    expectValid(wordsOf(verb.example()));
  std::map<std::string, int> subjects;
  for (const CommandOption &option : verb.options()) {
    EXPECT_TRUE(option.isPositional() || ++subjects[option.subject()] <= 16)
        << verb.path() << ": more options than a reader takes in stand under " << option.subject();
    EXPECT_NE(option.description(), "") << verb.path() << " " << option.name();
  }
  for (const Command &inner : verb.verbs())
    check(inner);
}

TEST(Verbs, HaveExamplesAndSubjects) {
  CommandLine app("", "translator");
  addVerbs(app, verbs, "");
  for (const Command &verb : app.verbs())
    check(verb);
}

} // namespace
