// Makes the data of a student with its teacher, which is another executable with a model of its own.
#include "train/Distill.h"
#include "corpora/LinePairs.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/Format.h"
#include "support/Json.h"
#include "support/LineReader.h"
#include "support/Quoted.h"
#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace xfc {
namespace {

// Runs a command of the teacher, which writes `output`, to its end. What it prints, its progress and its errors, goes
// where ours goes.
void runTeacher(const TeacherOptions &teacher, const std::vector<std::string> &words, const std::string &output) {
  if (access(teacher.executable.c_str(), X_OK) != 0 || isFolder(teacher.executable))
    throw Error(teacher.executable + ": not an executable; --teacher takes one that `xfc compile` has made");
  const std::string what = teacher.executable + " " + words.front();
  std::vector<char *> arguments = {const_cast<char *>(teacher.executable.c_str())};
  for (const std::string &word : words)
    arguments.push_back(const_cast<char *>(word.c_str()));
  arguments.push_back(nullptr);
  std::error_code none;
  std::filesystem::remove(output, none); // of an earlier run
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM); // it does not outlive this process,
    if (getppid() != parent)          // nor one that has ended since
      _exit(127);
    std::signal(SIGUSR1, SIG_IGN); // a request to save is for this process, even if the whole group gets it
    execv(teacher.executable.c_str(), arguments.data());
    _exit(127);
  }
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (child < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 127))
    throw Error(what + ": cannot be run");
  if (WIFSIGNALED(status))
    throw Error(what + ": the teacher was ended by signal " + std::to_string(WTERMSIG(status)));
  if (status != 0)
    throw Error(what + ": the teacher failed with status " + std::to_string(WEXITSTATUS(status)) +
                "; what it said stands above");
  if (!exists(output))
    throw Error(what + ": the teacher has ended without writing " + output +
                "; --teacher takes an executable that `xfc compile` has made");
}

// Flags that each of its commands takes.
std::vector<std::string> commandOf(const char *verb, const TeacherOptions &teacher, const TeacherRun &run) {
  std::vector<std::string> words = {verb, "--model", teacher.model, "--threads", std::to_string(run.threads)};
  if (run.format != Format::Text)
    words.insert(words.end(), {"--format", run.format == Format::Ids ? "ids" : "pieces"});
  if (run.quiet)
    words.emplace_back("--quiet");
  return words;
}

// A file that is removed in the end.
struct ScratchFile {
  std::string name;
  Unfinished unfinished{name};
  explicit ScratchFile(std::string name) : name(std::move(name)) {}
  ScratchFile(const ScratchFile &) = delete;
  ~ScratchFile() {
    std::error_code none;
    std::filesystem::remove(name, none);
  }
};

// A translation in a line of `translate --json`.
struct Translation {
  std::string text;
  double logProbability = 0;
};

// The translations in such a line; of an empty source, one that is empty.
std::vector<Translation> translationsIn(const std::string &line, const std::string &where) {
  std::vector<Translation> all;
  const std::optional<nlohmann::json> answer = jsonIn(line);
  try {
    for (const nlohmann::json &one : answer.value().at("hypotheses"))
      all.push_back({one.at("text").get<std::string>(), one.at("log_probability").get<double>()});
  } catch (const std::exception &) { // nlohmann's, or there is no JSON
    throw Error(where + ": not a line of `translate --json`: " + inQuotes(line, 80) + "; compile the teacher again");
  }
  if (all.empty())
    all.emplace_back();
  return all;
}

} // namespace

// The share of translation i in the probability of all N translations of a source is p_i / (p_1 + ... + p_N), where p_i
// is its probability, whatever its score counts beside it. docs/examples/nbest.awk computes the same table from scores
// without a length penalty.
PairFiles translateByTeacher(const TeacherOptions &teacher, const std::vector<std::string> &sources,
                             const std::string &table, const TeacherRun &run) {
  const ScratchFile joined(table + ".sources"), translations(table + ".translations");
  {
    FileWriter writer(joined.name);
    JoinedFiles reader(sources);
    for (std::string line; reader.next(line);) {
      if (line.find('\t') != std::string::npos)
        throw Error(reader.where() + ": holds a tab, which separates a source from its translation in the table that "
                                     "--teacher-n-best writes; replace it by a blank");
      writer.write(line + "\n");
    }
    writer.commit();
  }
  std::vector<std::string> words = commandOf("translate", teacher, run);
  words.insert(words.end(), {"--input", joined.name, "--n-best", std::to_string(teacher.nBest), "--length-penalty", "0",
                             "--json", "--output", translations.name});
  runTeacher(teacher, words, translations.name);

  const bool several = teacher.nBest > 1;
  FileWriter writer(table);
  LineReader lines(joined.name), answers(translations.name);
  for (std::string source, line; answers.next(line);) {
    if (!lines.next(source))
      throw Error(answers.where() + ": has translations of a line that the sources lack");
    const std::vector<Translation> ofSource = translationsIn(line, answers.where());
    const double largest = std::ranges::max(ofSource, {}, &Translation::logProbability).logProbability;
    double sum = 0;
    for (const Translation &one : ofSource)
      sum += std::exp(one.logProbability - largest);
    for (const Translation &one : ofSource)
      writer.write(source + "\t" + one.text +
                   (several ? format("\t%.6g", std::exp(one.logProbability - largest) / sum) : "") + "\n");
  }
  writer.commit();
  return {.sources = {}, .targets = {}, .tables = {table}, .weightColumn = several};
}

void prepareByTeacher(const TeacherOptions &teacher, const PairFiles &text, const PairFilter &filter,
                      const std::string &pairs, const TeacherRun &run) {
  std::vector<std::string> words = commandOf("prepare", teacher, run);
  words.insert(words.end(), {"--distribution", std::to_string(teacher.distribution), "--out", pairs});
  const auto add = [&](const char *flag, const std::vector<std::string> &values) {
    if (values.empty())
      return;
    words.emplace_back(flag);
    words.insert(words.end(), values.begin(), values.end());
  };
  add("--source", text.sources);
  add("--target", text.targets);
  add("--tsv", text.tables);
  add("--source-prefix", text.sourcePrefixes);
  add("--target-prefix", text.targetPrefixes);
  if (text.context.sentences > 0) {
    add("--document-context", {std::to_string(text.context.sentences)});
    add("--document-separator", {text.context.separator});
  }
  add("--data-weighting", text.weights);
  if (text.weightColumn)
    words.emplace_back("--tsv-weighting");
  if (text.weighWords)
    add("--data-weighting-type", {"word"});
  const auto bound = [](int64_t number) { return number > 0 ? std::to_string(number) : std::string(); };
  if (filter.shortest > 0 || filter.longest > 0)
    add("--filter-length", {bound(filter.shortest) + ":" + bound(filter.longest)});
  if (filter.ratio > 0)
    add("--filter-ratio", {format("%.17g", filter.ratio)});
  runTeacher(teacher, words, pairs);
}

} // namespace xfc
