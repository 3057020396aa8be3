// `train`: collects the flags of training from the command line, a JSON file, or the run that is resumed.
#include "app/Commands.h"
#include "app/Configuration.h"
#include "decode/Flags.h"
#include "decode/ModelOptions.h"
#include "support/CommandLine.h"
#include "support/Files.h"
#include "train/UpdateFlags.h"
#include "train/run/Trainer.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

namespace xfc {
namespace {

const std::map<std::string, Schedule::Kind> schedules = {{"noam", Schedule::Kind::Noam},
                                                         {"inverse-sqrt", Schedule::Kind::InverseSqrt},
                                                         {"cosine", Schedule::Kind::Cosine},
                                                         {"linear", Schedule::Kind::Linear},
                                                         {"constant", Schedule::Kind::Constant}};

struct TrainFlags {
  TrainOptions train;
  UpdateFlags update;
  std::string configuration, schedule = "noam", onNan = "stop";
  std::vector<std::string> rates, decays; // PATTERN=X
  std::string memory, textMemory;         // with a unit
  std::string traceSteps;                 // A:B
  double averageDecay = 0;                // --ema
};

int64_t bytesNamed(const char *flag, const std::string &text) {
  const std::pair<const char *, double> units[] = {{"kB", 1e3},      {"KB", 1e3},      {"MB", 1e6},
                                                   {"GB", 1e9},      {"TB", 1e12},     {"KiB", 1 << 10},
                                                   {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1024.0 * (1 << 30)}};
  char *end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  for (const auto &[unit, bytes] : units)
    if (end != text.c_str() && unit == std::string(end) && number > 0 && number * bytes < 1e18)
      return static_cast<int64_t>(number * bytes);
  throw UsageError(flag, "expected a number and one of kB, MB, GB, TB, KiB, MiB, GiB, TiB, such as 24GiB, but '" +
                             text + "' was given");
}

// Parses PATTERN=X; the pattern itself may contain `=`.
std::vector<GroupRules::Number> numbersOf(const char *flag, const std::vector<std::string> &texts, double least) {
  std::vector<GroupRules::Number> rules;
  for (const std::string &text : texts) {
    const size_t sign = text.rfind('=');
    const std::string number = sign == std::string::npos ? "" : text.substr(sign + 1);
    char *end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    if (sign == 0 || number.empty() || *end != '\0' || !std::isfinite(value) || value < least)
      throw UsageError(flag, "expected PATTERN=X, with X a number " + std::string(least > 0 ? "above" : "of at least") +
                                 " 0, such as '*.bias=0.5', but '" + text + "' was given");
    rules.push_back({text.substr(0, sign), value});
  }
  return rules;
}

// Parses A:B, the first and the last step.
void takeTraceSteps(const std::string &text, TrainOptions &options) {
  int64_t first = 0, last = 0;
  const char *const end = text.data() + text.size();
  const auto [colon, noFirst] = std::from_chars(text.data(), end, first);
  const bool both = noFirst == std::errc() && colon != end && *colon == ':';
  const auto [rest, noLast] = std::from_chars(both ? colon + 1 : end, end, last);
  if (!both || noLast != std::errc() || rest != end || first < 1 || last < first)
    throw UsageError("--trace-steps",
                     "expected A:B, the first and the last step, with 1 <= A <= B, such as 100:102, but '" + text +
                         "' was given");
  if (options.length.steps >= 0 && first > options.length.steps)
    throw UsageError("--trace-steps", "the run ends at step " + std::to_string(options.length.steps) +
                                          ", before step " + std::to_string(first));
  options.trace.first = first;
  options.trace.last = last;
}

// --corpus-weight and --corpus-temperature need several files, each of which is a corpus.
void checkCorpora(const TrainOptions &options) {
  const bool weighted = !options.data.corpusWeights.empty();
  if (!weighted && options.data.corpusTemperature == 0)
    return;
  if (weighted && options.data.corpusTemperature > 0)
    throw ExcludesError("--corpus-temperature", "--corpus-weight");
  const char *flag = weighted ? "--corpus-weight" : "--corpus-temperature";
  const PairFiles &text = options.data.text;
  if (text.sources.size() != text.targets.size())
    throw UsageError(flag, "each file is a corpus: expected a --target for each --source, but " +
                               std::to_string(text.sources.size()) + " and " + std::to_string(text.targets.size()) +
                               " were given");
  const size_t corpora = options.data.pairs.size() + text.tables.size() + text.sources.size();
  if (corpora < 2)
    throw UsageError(flag, "there is only one corpus; give several files to --source and --target, --tsv or --data");
  if (!text.weights.empty() && text.weights.size() != corpora)
    throw UsageError(flag,
                     "each file is a corpus: expected a file of --data-weighting for each: " + std::to_string(corpora) +
                         ", but " + std::to_string(text.weights.size()) + " were given");
  if (!text.alignments.empty() && text.alignments.size() != corpora)
    throw UsageError(
        flag, "each file is a corpus: expected a file of --guided-alignment for each: " + std::to_string(corpora) +
                  ", but " + std::to_string(text.alignments.size()) + " were given");
  if (weighted && options.data.corpusWeights.size() != corpora)
    throw UsageError(flag, "expected a number for each file: " + std::to_string(corpora) + ", but " +
                               std::to_string(options.data.corpusWeights.size()) + " were given");
}

// --sentencepiece-alphas segments text, and only text, in another way each time.
void checkSampling(const TrainOptions &options) {
  const std::vector<double> &alphas = options.data.segmentationAlphas;
  if (std::ranges::all_of(alphas, [](double alpha) { return alpha == 0; }))
    return;
  if (options.data.teacher.distribution > 0)
    throw ExcludesError("--teacher-distribution", "--sentencepiece-alphas");
  if (options.data.format != Format::Text)
    throw UsageError("--sentencepiece-alphas", "lines of pieces or ids are segmented already; it needs --format text");
  if (!options.data.text.alignments.empty())
    throw UsageError("--sentencepiece-alphas",
                     "the links of --guided-alignment belong to the tokens of one segmentation; give no "
                     "alignments");
  if (alphas.back() > 0 && options.data.text.weighting() == Weighting::Word)
    throw UsageError("--sentencepiece-alphas",
                     "the weights of --data-weighting-type word belong to the tokens of one segmentation; "
                     "give 0 as the second number, or a weight for each sentence");
}

// A teacher makes the data from text, which it translates, or for which it computes distributions.
void checkTeacher(Command command, const TrainOptions &options) {
  const TeacherOptions &teacher = options.data.teacher;
  const auto given = [&](const char *flag) { return command.given(flag); };
  for (const char *flag : {"--teacher-model", "--teacher-n-best", "--teacher-distribution"})
    if (given(flag) && !teacher.any())
      throw RequiredError("--teacher (with " + std::string(flag) + ")");
  if (!teacher.any())
    return;
  if (teacher.model.empty())
    throw RequiredError("--teacher-model (with --teacher)");
  if (teacher.nBest == 0 && teacher.distribution == 0)
    throw RequiredError("--teacher-n-best or --teacher-distribution (with --teacher)");
  for (const char *other : {"--data", "--corpus-weight", "--corpus-temperature", "--guided-alignment"})
    if (given(other))
      throw ExcludesError("--teacher", other);
  if (teacher.distribution > 0 && options.update.distillation == 0)
    throw RequiredError("--distillation (with --teacher-distribution)");
  if (teacher.nBest == 0)
    return;
  // The translations take the place of the other side, and their probabilities that of weights.
  for (const char *other : {"--target", "--tsv", "--source-prefix", "--target-prefix", "--data-weighting",
                            "--data-weighting-type", "--tsv-weighting"})
    if (given(other))
      throw ExcludesError("--teacher-n-best", other);
  if (options.data.text.context.sentences > 0)
    throw ExcludesError("--teacher-n-best", "--document-context");
  if (options.data.text.sources.empty())
    throw RequiredError("--source (with --teacher-n-best)");
}

void run(Command command, TrainFlags &flags) {
  TrainOptions &options = flags.train;
  const GivenFlags given(command);
  if (!flags.configuration.empty())
    applyConfiguration(command, readFile(flags.configuration), flags.configuration);
  if (options.resume && !options.out.empty() && exists(options.out + "/config.json"))
    applyConfiguration(command, readFile(options.out + "/config.json"), options.out + "/config.json");
  options.rate.schedule = schedules.at(flags.schedule);
  const bool prepared = !options.data.pairs.empty();
  for (const char *other : {"--source", "--target", "--tsv", "--data-weighting", "--data-weighting-type",
                            "--tsv-weighting", "--guided-alignment", "--guided-alignment-type", "--source-prefix",
                            "--target-prefix", "--filter-length", "--filter-ratio"})
    if (prepared && command.given(other))
      throw ExcludesError("--data", other);
  if (prepared && options.data.text.context.sentences > 0)
    throw ExcludesError("--data", "--document-context");
  if (!flags.textMemory.empty())
    options.data.textMemory = bytesNamed("--text-memory", flags.textMemory);
  checkTeacher(command, options);
  if (!prepared && options.data.teacher.nBest == 0)
    requirePairs(options.data.text, ", or --data");
  if (options.update.distillation > 0 && !prepared && options.data.teacher.distribution == 0)
    throw UsageError("--distillation", "the distributions of a teacher are in files that its `prepare "
                                       "--distribution` has written; give them to --data, or have "
                                       "--teacher write them, with --teacher-distribution");
  checkAlignmentType(command, options.data.text, options.data.format);
  checkPairContext(command, options.data.text);
  // Files of --data may have links, which is seen when they are opened.
  options.data.guided = given.onCommandLine("--guided-alignment-weight");
  if (options.data.guided && options.data.text.alignments.empty() && !prepared)
    throw RequiredError("--guided-alignment, or --data (with --guided-alignment-weight)");
  checkCorpora(options);
  checkSampling(options);
  if (options.out.empty())
    throw RequiredError("--out");
  const PairFiles &held = options.validation.text;
  if (held.sources.empty() && held.targets.empty() && held.tables.empty())
    for (const char *ofValidations : {"--valid-every", "--early-stop", "--keep-best"})
      if (given(ofValidations))
        throw UsageError(ofValidations, "there are no validations without held-out text; give --valid-source "
                                        "and --valid-target, or --valid-tsv");
  if (held.sources.empty() != held.targets.empty())
    throw RequiredError(held.sources.empty() ? "--valid-source (with --valid-target)"
                                             : "--valid-target (with --valid-source)");
  if (!held.sources.empty() && !held.tables.empty())
    throw ExcludesError("--valid-tsv", "--valid-source");
  if (options.data.format != Format::Ids && options.data.vocabulary.empty())
    throw RequiredError("--vocab (or --format ids)");
  // The settings of a file belong to its optimizer, of which the command line may take precedence.
  flags.update.resolve([&](const std::string &flag) {
    return given.onCommandLine(flag) || (!given.onCommandLine("--optimizer") && given(flag));
  });
  options.update.settings = flags.update.options.settings;
  options.update.settings.averageDecay = flags.averageDecay;
  options.update.optimizer = findOptimizer(flags.update.options.optimizer->name, flags.averageDecay > 0);
  options.update.clipNorm = flags.update.options.clipNorm;
  options.update.smoothing = flags.update.options.smoothing;
  options.halveRate = flags.onNan == "halve";
  if (!flags.memory.empty()) {
    if (options.resume && exists(options.out + "/config.json"))
      throw UsageError("--memory", "a resumed run keeps its --batch-tokens");
    if (command.given("--batch-tokens"))
      throw ExcludesError("--memory", "--batch-tokens");
    options.batches.memory = bytesNamed("--memory", flags.memory);
  }
  if (options.trace.file.empty() != flags.traceSteps.empty())
    throw RequiredError(options.trace.file.empty() ? "--trace (with --trace-steps)" : "--trace-steps (with --trace)");
  if (!options.trace.file.empty())
    takeTraceSteps(flags.traceSteps, options);
  options.groups.rates = numbersOf("--rate", flags.rates, std::numeric_limits<double>::min());
  options.groups.decays = numbersOf("--decay", flags.decays, 0);
  if (options.length.steps < 0 && options.length.epochs < 0 && options.length.minutes < 0)
    options.length.epochs = 10;
  const bool endsWithRun = Schedule{.kind = options.rate.schedule}.endsWithRun();
  if (options.rate.restarts > 0 && !endsWithRun)
    throw UsageError("--restarts", "only cosine and linear restart; give one of them to --schedule");
  if (endsWithRun && options.length.steps < 0 && options.length.epochs < 0)
    throw UsageError("--schedule",
                     "cosine and linear end with the run; give its length with --steps or --epochs, not --minutes");
  train(options, usedConfiguration(command));
}

// Adds the flags of what is trained on.
void addDataFlags(Command command, TrainFlags &flags) {
  TrainOptions &options = flags.train;
  command.setSubject("Data");
  addPairs(command, options.data.text, options.data.filter);
  command.addOption("--data", options.data.pairs,
                    "files written by prepare, in place of text; several are read one after the other");
  command
      .addOption("--teacher", options.data.teacher.executable,
                 "executable of a teacher, which makes the data from the text before the training")
      .valueName("EXE");
  command.addOption("--teacher-model", options.data.teacher.model, "folder of its model, as its --model takes it")
      .valueName("DIR");
  command
      .addOption("--teacher-n-best", options.data.teacher.nBest,
                 "train on the K best translations of --source by the teacher, weighted by their probabilities")
      .within(int64_t(1), int64_t(mostHypotheses))
      .valueName("K");
  command
      .addOption("--teacher-distribution", options.data.teacher.distribution,
                 "train with the teacher's K most probable tokens for each label, for --distillation")
      .within(int64_t(1), mostProbableTokens)
      .valueName("K");
  command
      .addOption("--text-memory", flags.textMemory,
                 "text that is larger than this is prepared in --out, and read from there")
      .showDefault("256MiB")
      .valueName("SIZE");
  command
      .addOption("--corpus-weight", options.data.corpusWeights,
                 "treat each file as a corpus of its own: one number per file, in proportion to its share of an epoch")
      .finitePositive();
  command
      .addOption("--corpus-temperature", options.data.corpusTemperature,
                 "the same, with shares in proportion to the files' numbers of pairs to the power of 1/T: 1 keeps "
                 "their sizes, larger values take more of the small ones")
      .finitePositive()
      .valueName("T");
  command.setSubject("Loss");
  command
      .addOption("--guided-alignment-weight", options.update.alignment,
                 "what the cross-entropy between links and attention is multiplied by, before it is added to the loss")
      .notNegative()
      .finite()
      .showDefault()
      .valueName("W");
  command.setSubject("Vocabularies");
  addVocabularies(command, options.data.vocabulary, options.data.targetVocabulary);
  command
      .addOption("--sentencepiece-alphas", options.data.segmentationAlphas,
                 "segment the training text at random, differently in each epoch: a unigram vocabulary draws from all "
                 "segmentations, by their probability to the power of A; byte pair encoding leaves out each merge "
                 "with probability A; one number for both sides, or two, for source and target; 0: the best "
                 "segmentation")
      .within(0.0, 1.0)
      .finite()
      .values(1, 2)
      .valueName("A");
}

// Adds the flags of where the run writes, and what it starts from.
void addParameterFlags(Command command, TrainFlags &flags) {
  TrainOptions &options = flags.train;
  command.setSubject("Run");
  command.addOption("--out", options.out, "folder to train into: weights, state, log, configuration, vocabulary");
  command.setSubject("Parameters");
  command.addOption("--init", options.init,
                    "start with the weights of a file (safetensors) or of a folder of train, where name and shape "
                    "match, in place of random ones");
  command
      .addOption("--freeze", options.groups.freeze,
                 "do not train these parameters; PATTERN is a glob over names, such as 'encoder.*'")
      .valueName("PATTERN");
  command.addOption("--rate", flags.rates, "multiply the learning rate of these parameters by X")
      .valueName("PATTERN=X");
  command.addOption("--decay", flags.decays, "weight decay of these parameters, in place of --weight-decay")
      .valueName("PATTERN=X");
  command.setSubject("Run");
  command.addOption("--config", flags.configuration,
                    "JSON file of flags (without --) and values; the command line takes precedence");
}

// Adds the flags of held-out text, the length of the run, its batches and its rate.
void addLengthFlags(Command command, TrainFlags &flags) {
  TrainOptions &options = flags.train;
  command.setSubject("Validation");
  command.addOption("--valid-source", options.validation.text.sources, "held-out source text");
  command.addOption("--valid-target", options.validation.text.targets, "its translations");
  command.addOption("--valid-tsv", options.validation.text.tables, "both in one file, as for --tsv");
  command.addOption("--valid-every", options.validation.every, "steps between validations").positive().showDefault();
  command.setSubject("Run");
  CommandOption steps = command.addOption("--steps", options.length.steps, "number of steps to train").notNegative();
  CommandOption epochs = command
                             .addOption("--epochs", options.length.epochs,
                                        "or number of passes over the data (default, if no limit is given: 10)")
                             .notNegative();
  command.addOption("--minutes", options.length.minutes, "or number of minutes")
      .notNegative()
      .finite()
      .excludes(steps)
      .excludes(epochs);
  steps.excludes(epochs);
  command.setSubject("Batches");
  addBatchTokens(command, options.batches.tokens, "target tokens, per batch; eos counts");
  command
      .addOption("--memory", flags.memory,
                 "in place of --batch-tokens: use the largest batches with which training takes at most this much "
                 "memory, such as 24GiB")
      .valueName("SIZE");
  command.addOption("--accumulate", options.batches.accumulate, "batches per step").within(1, 1 << 20).showDefault();
  command.setSubject("Learning rate");
  command.addOption("--lr", options.rate.rate, "peak learning rate (default: 5e-4); noam: a factor (default: 1)")
      .finitePositive();
  command.addOption("--schedule", flags.schedule, "noam, inverse-sqrt, cosine, linear or constant")
      .oneOf({"noam", "inverse-sqrt", "cosine", "linear", "constant"})
      .showDefault();
  command.addOption("--restarts", options.rate.restarts, "cosine, linear: number of restarts, in parts of equal length")
      .within(0, 1 << 20)
      .showDefault();
  command.addOption("--warmup", options.rate.warmup, "steps over which the learning rate grows")
      .notNegative()
      .showDefault();
}

// Adds the flags of the optimizer and the loss, what is kept, and which validation is the best.
void addUpdateFlags(Command command, TrainFlags &flags) {
  TrainOptions &options = flags.train;
  flags.update.addTo(command);
  command.setSubject("Loss");
  command
      .addOption("--distillation", options.update.distillation,
                 "share of the loss that follows the distributions of a teacher in the files of --data (prepare "
                 "--distribution), for labels that have one; the rest is the label's; 0: none")
      .within(0.0, 1.0)
      .finite()
      .showDefault()
      .valueName("W");
  command.setSubject("Run");
  command
      .addOption("--on-nan", flags.onNan,
                 "if the loss or the gradient is NaN or infinite: stop, or halve the learning rate and continue from "
                 "the last save")
      .oneOf({"stop", "halve"})
      .showDefault();
  command.setSubject("Weights that are kept");
  command.addOption("--save-every", options.saves.every, "steps between saves").positive().showDefault();
  command.addOption("--keep", options.saves.keep, "keep the weights of the last K saves as step-N.safetensors")
      .notNegative()
      .showDefault();
  command
      .addOption("--keep-best", options.saves.keepBest,
                 "keep the weights of the K best validations as best-N.safetensors, where N is the step")
      .notNegative()
      .showDefault();
  command
      .addOption("--average", options.saves.average,
                 "at the end, average the weights of the last K saves (average.safetensors)")
      .notNegative()
      .showDefault();
  command
      .addOption("--ema", flags.averageDecay,
                 "also keep a moving average of the weights, of which each step keeps this share, such as 0.999: it "
                 "is what is validated and saved as best.safetensors, and as ema.safetensors at each save; 0: none")
      .within(0.0, 1.0)
      .finite()
      .showDefault();
  command.setSubject("Validation");
  command
      .addOption("--best", options.validation.best,
                 "what makes a validation better: a smaller loss or TER, or a larger BLEU or chrF")
      .oneOf({"loss", "bleu", "chrf", "ter"})
      .showDefault();
  command
      .addOption("--early-stop", options.validation.earlyStop,
                 "stop after N validations without a better one; 0: never")
      .notNegative()
      .showDefault();
}

// Adds the flags of the seed, what computes, and what is written down.
void addMachineFlags(Command command, TrainFlags &flags) {
  TrainOptions &options = flags.train;
  command.setSubject("Run");
  command.addOption("--seed", options.seed, "seed of the initial weights, the order of the data and dropout")
      .showDefault();
  command.addFlag("--resume", options.resume, "continue the run in --out, with its flags where none are given");
  addThreads(command, options.threads);
  addDevice(command, options.device);
  command.setSubject("Machine");
  command.addOption("--mpi", options.mpi,
                    "MPI library for several processes (default: that of the mpirun that started this one), or none");
  command.setSubject("Run");
  command.addOption("--log", options.log, "log file (default: train.jsonl in --out)");
  command.addFlag("--log-tensorboard", options.saves.tensorBoard,
                  "also write the numbers of the log for TensorBoard (events.out.tfevents.xfc in --out)");
  addTrace(command, options.trace.file);
  command.setSubject("Machine");
  command.addOption("--trace-steps", flags.traceSteps, "the first and the last step of the timeline").valueName("A:B");
  addFormat(command, options.data.format);
  addQuiet(command, options.quiet);
}

} // namespace

// config.json has the flags in the order in which they are added.
void addTrain(Command app) {
  Command command =
      app.addVerb("train", "train the model on parallel text",
                  "translator train --source my.en --target my.fr --vocab spm.model --out run --minutes 60");
  auto flags = std::make_shared<TrainFlags>();
  for (const auto add : {addDataFlags, addParameterFlags, addLengthFlags, addUpdateFlags, addMachineFlags})
    add(command, *flags);
  command.setWork([command, flags] { run(command, *flags); });
}

} // namespace xfc
