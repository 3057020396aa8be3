// Fuzzes the command lines of every verb, one argument per line of input. They are parsed and checked; no verb runs.
#include "../Fuzz.h"
#include "app/Commands.h"
#include "support/CommandLine.h"
#include <sstream>
#include <vector>

using namespace xfc;

namespace {

// Makes every verb end after its arguments have been parsed and checked, before it does its work.
void noWork(CLI::App &app) {
  for (CLI::App *verb : app.get_subcommands({})) {
    if (verb->get_subcommands({}).empty())
      verb->parse_complete_callback([] { throw CLI::Success(); });
    noWork(*verb);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::vector<std::string> words = {"translator"};
  std::istringstream lines{std::string(fuzz::textOf(data, size))};
  for (std::string line; std::getline(lines, line);)
    words.push_back(line.substr(0, line.find('\0')));
  std::vector<char *> arguments;
  for (std::string &word : words)
    arguments.push_back(word.data());

  CLI::App app("", "translator");
  app.require_subcommand(1);
  for (auto add : {addPrepare, addTrain, addTranslate, addScore, addEvaluate, addAverage, addReport, addForward,
                   addSelfcheck, addBench, addPack, addInfo})
    add(app);
  noWork(app);
  // Discard help and messages.
  std::ostringstream sink;
  std::streambuf *const out = std::cout.rdbuf(sink.rdbuf()), *const err = std::cerr.rdbuf(sink.rdbuf());
  const int status = runCommandLine(app, static_cast<int>(arguments.size()), arguments.data());
  std::cout.rdbuf(out);
  std::cerr.rdbuf(err);
  fuzz::expect(status >= 0 && status <= 2, "a command line ends with status 0, 1 or 2");
  return 0;
}
