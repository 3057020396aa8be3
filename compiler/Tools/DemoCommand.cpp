// `xfc demo`: from two languages' sentences to a translator, stage by stage, as a person would do it with the other
// verbs. A stage whose result is there is left out, so that the demo goes on where it was interrupted.
#include "DemoCommand.h"
#include "DemoSentences.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/Inputs.h"
#include "support/LineReader.h"
#include "support/Progress.h"
#include "support/Signals.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Program.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

namespace xfc {
namespace {

struct DemoOptions {
  std::string out = "xfc-demo", data;
  double minutes = 5;
};

constexpr double firstMinutes = 1;               // of training, after which it translates for the first time
constexpr size_t heldOut = 300, trained = 20000; // sentences of the grammar

class Demo {
public:
  explicit Demo(const DemoOptions &options)
      : options(options), data(options.data.empty() ? options.out : options.data) {}

  void run() {
    const InterruptGuard guard; // the programs that it starts get the signal, too, and end or save
    try {
      runStages();
    } catch (const Interrupted &) {
      std::fputs(("\nStopped. " + howToGoOn()).c_str(), stderr);
      throw;
    }
  }

private:
  using Clock = std::chrono::steady_clock;
  using Words = std::vector<std::string>;

  void runStages() {
    makeFolder(options.out);
    isUpdated(options.out); // what is shown is written anew after each training
    stage(options.data.empty() ? "Make English sentences and their French translations" : "Find the sentences", 1);
    findSentences();
    stage("Train a joint vocabulary", 1 + static_cast<double>(sizeOf(in("train.en")) + sizeOf(in("train.fr"))) / 1e6);
    if (isNew(at("spm.model")))
      call({xfc, "vocab", "--input", in("train.en"), in("train.fr"), "--size", options.data.empty() ? "500" : "4000",
            "-o", at("spm.model")});
    stage("Compile the model tiny into one executable", 15);
    if (isNew(at("translator")))
      call({xfc, "compile", "tiny", "--vocab", at("spm.model"), "-o", at("translator")});
    const double first = std::min(firstMinutes, options.minutes);
    stage("Train, until it can translate a little", 60 * first);
    train(first);
    stage("Translate sentences that it has not seen", 2);
    showTranslations(4);
    if (isLong()) {
      stage("Train on", 60 * (options.minutes - first));
      train(options.minutes);
    }
    stage("Translate all held-out sentences", 5 + static_cast<double>(sizeOf(in("test.en"))) / 1e4);
    showTranslations(12);
    evaluate();
    stage("Write the report", 1);
    call({at("translator"), "report", at("run"), "-o", at("report.html")});
    std::printf("\nDone in %s. Open %s in a browser. Next, with your own data:\n\n"
                "  xfc vocab --input my.en my.fr --size 8000 -o spm.model\n"
                "  xfc compile small --vocab spm.model -o translator\n"
                "  ./translator train --source my.en --target my.fr --vocab spm.model --out run --minutes 60\n"
                "  echo \"How are you?\" | ./translator translate --model run\n",
                duration(elapsed()).c_str(), at("report.html").c_str());
  }

  bool isLong() const { return options.minutes > firstMinutes; }

  void findSentences() {
    if (!options.data.empty()) {
      for (const char *part : {"train", "valid", "test"})
        for (const char *side : {".en", ".fr"})
          if (const std::string file = in(part + std::string(side)); !exists(file))
            throw Error(file + ": is missing; --data takes a folder with train, valid and test, each as .en and .fr");
      return;
    }
    if (!isNew(in("train.fr")))
      return;
    const auto sentences = demoSentences(2 * heldOut + trained);
    size_t begin = 0;
    for (const auto &[part, count] : {std::pair("test", heldOut), {"valid", heldOut}, {"train", trained}}) {
      std::string english, french;
      for (size_t i = begin; i < begin + count; ++i) {
        english += sentences[i].first + "\n";
        french += sentences[i].second + "\n";
      }
      begin += count;
      writeFile(in(part + std::string(".en")), english);
      writeFile(in(part + std::string(".fr")), french);
    }
  }

  // Trains until the run has taken this many minutes altogether.
  void train(double minutes) {
    Words words = {at("translator"), "train",        "--source",       in("train.en"),
                   "--target",       in("train.fr"), "--vocab",        at("spm.model"),
                   "--out",          at("run"),      "--valid-source", in("valid.en"),
                   "--valid-target", in("valid.fr"), "--minutes",      std::to_string(minutes),
                   "--batch-tokens", "1024",         "--lr",           "1.5",
                   "--warmup",       "400",          "--seed",         "1"};
    if (exists(at("run"))) // even if it was interrupted before its first step
      words.emplace_back("--resume");
    call(words);
  }

  void showTranslations(size_t most) {
    std::string english;
    const std::vector<std::string> sources = readLines(in("test.en")), references = readLines(in("test.fr"));
    std::vector<size_t> shown;
    for (size_t i = 0; i < std::min(sources.size(), references.size()) && shown.size() < most; ++i)
      if (sources[i].size() > 20 && sources[i].size() < 90) {
        shown.push_back(i);
        english += sources[i] + "\n";
      }
    writeFile(at("shown.en"), english);
    call({at("translator"), "translate", "--model", at("run"), "--input", at("shown.en"), "--output", at("shown.hyp"),
          "--quiet"});
    const std::vector<std::string> translations = readLines(at("shown.hyp"));
    for (size_t i = 0; i < shown.size() && i < translations.size(); ++i)
      std::printf("  English    %s\n  xfc        %s\n  reference  %s\n\n", sources[shown[i]].c_str(),
                  translations[i].c_str(), references[shown[i]].c_str());
  }

  void evaluate() {
    call({at("translator"), "translate", "--model", at("run"), "--input", in("test.en"), "--output", at("test.hyp"),
          "--beam", "5"});
    std::puts("copy the source:");
    call({at("translator"), "evaluate", "--hypothesis", in("test.en"), "--target", in("test.fr")});
    std::puts("xfc:");
    call({at("translator"), "evaluate", "--hypothesis", at("test.hyp"), "--target", in("test.fr")});
    const std::vector<std::string> found = readLines(at("test.hyp")), wanted = readLines(in("test.fr"));
    size_t same = 0;
    for (size_t i = 0; i < std::min(found.size(), wanted.size()); ++i)
      same += found[i] == wanted[i];
    std::printf("exact match: %.1f %% of %zu\n",
                wanted.empty() ? 0.0 : 100.0 * static_cast<double>(same) / static_cast<double>(wanted.size()),
                wanted.size());
  }

  // Announces a stage, and how long it will take, which is known for the training and guessed for what else there is.
  void stage(const char *what, double seconds) {
    checkInterrupted();
    std::printf("\n[%d/%d] %s: about %s  (%s so far)\n", ++number, isLong() ? 8 : 7, what, duration(seconds).c_str(),
                duration(elapsed()).c_str());
  }

  // Whether the stage has to make this file.
  static bool isNew(const std::string &file) {
    if (exists(file))
      std::printf("%s is there already\n", file.c_str());
    return !exists(file);
  }

  // Runs a program to its end. Throws Interrupted if a signal came meanwhile, and Error if it failed.
  void call(const Words &words) {
    std::fflush(stdout);
    const std::vector<llvm::StringRef> references(words.begin(), words.end());
    std::string reason;
    const int status = llvm::sys::ExecuteAndWait(words[0], references, std::nullopt, {}, 0, 0, &reason);
    checkInterrupted();
    if (status != 0)
      throw Error("demo: `" + words[0] + " " + words[1] + "` failed" +
                  (reason.empty() ? "; see the message above" : ": " + reason));
  }

  std::string howToGoOn() const {
    std::string text = "This goes on from here:\n\n  xfc demo --out " + options.out +
                       (options.data.empty() ? "" : " --data " + options.data) + "\n";
    if (exists(at("run/last.safetensors")))
      text += "\nWhat has been trained so far can translate:\n\n  echo \"" + readLines(in("test.en")).front() +
              "\" | " + at("translator") + " translate --model " + at("run") + "\n";
    return text;
  }

  static size_t sizeOf(const std::string &file) { return std::filesystem::file_size(file); }
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin).count(); }
  std::string at(const std::string &name) const { return options.out + "/" + name; }
  std::string in(const std::string &name) const { return data + "/" + name; }

  const DemoOptions &options;
  const std::string data, xfc = llvm::sys::fs::getMainExecutable(nullptr, nullptr);
  const Clock::time_point begin = Clock::now();
  int number = 0;
};

} // namespace

void addDemo(Command app) {
  Command command = app.addVerb("demo", "train a small translator from English to French, from nothing to its report",
                                "xfc demo --minutes 5");
  auto options = std::make_shared<DemoOptions>();
  command
      .addOption("--minutes", options->minutes, "how long to train; it translates for the first time after one minute")
      .finitePositive()
      .showDefault();
  command.addOption("--out", options->out, "the folder to work in; what is there already is used").showDefault();
  command.addOption(
      "--data", options->data,
      "a folder with train.en, train.fr, valid.en, valid.fr, test.en and test.fr, in place of sentences that "
      "a small grammar makes");
  command.setWork([options] { Demo(*options).run(); });
}

} // namespace xfc
