// Parsing and exit codes.
#include "CommandLine.h"
#include "Error.h"
#include <algorithm>
#include <cstdio>
#include <new>
#include <numeric>

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

// The verb the command line is about: the last one that was parsed.
static CLI::App *verbOf(CLI::App &app) {
  std::vector<CLI::App *> parsed = app.get_subcommands();
  return parsed.empty() ? &app : verbOf(*parsed.back());
}

static std::string suggestion(CLI::App &app, int argc, char **argv) {
  CLI::App *verb = verbOf(app);
  std::vector<std::string> flags, verbs;
  for (const CLI::Option *option : verb->get_options())
    for (const std::string &name : option->get_lnames())
      flags.push_back("--" + name);
  for (const CLI::App *candidate : verb->get_subcommands([](CLI::App *) { return true; }))
    verbs.push_back(candidate->get_name());
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    word = word.substr(0, word.find('='));
    const std::vector<std::string> &known = word.rfind("--", 0) == 0 ? flags : verbs;
    if (word == verb->get_name() || std::find(known.begin(), known.end(), word) != known.end())
      continue;
    if (word.rfind("--", 0) != 0 && verbs.empty())
      continue;
    if (std::string near = nearest(word, known); !near.empty())
      return "; did you mean '" + near + "'?";
  }
  return "";
}

int runCommandLine(CLI::App &app, int argc, char **argv) {
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::Success &success) { // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError &wrong) {
    std::string what = wrong.what();
    std::replace(what.begin(), what.end(), '\n', ' ');
    std::string command;
    for (CLI::App *part = verbOf(app); part; part = part->get_parent())
      command = part->get_name() + " " + command;
    std::fprintf(stderr, "error: %s%s\nRun `%s--help` for what there is.\n", what.c_str(), suggestion(app, argc, argv).c_str(), command.c_str());
    return 2;
  } catch (const std::bad_alloc &) {
    std::fprintf(stderr, "error: out of memory\n");
  } catch (const std::exception &error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}

} // namespace xfc
