// `bench`: measures the throughput of training and decoding in tokens per second, and the time to the first token, with
// random weights and ids.
#include "corpora/Batches.h"
#include "decode/Flags.h"
#include "decode/ModelOptions.h"
#include "decode/Search.h"
#include "engine/Safetensors.h"
#include "measure/Commands.h"
#include "measure/Peak.h"
#include "plan/Programs.h"
#include "support/FileWriter.h"
#include "support/Signals.h"
#include "support/TemporaryFolder.h"
#include "support/Terminal.h"
#include "trace/Trace.h"
#include "train/Update.h"
#include "train/UpdateFlags.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace xfc {

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct BenchOptions {
  int threads = 0, workers = 1; // workers: decode
  bool json = false, quiet = false, profile = false;
  int64_t batchTokens = 2048, length = 0, steps = 10; // train
  std::vector<std::string> sources, targets;
  std::string format = "ids", optimizer = std::string(optimizers().front().name);
  int64_t sentences = 64, batch = 64; // decode
  int64_t beam = 5;
  std::string computeType, trace;
  DeviceChoice device;
};

// Generous limits that keep the product of any two counts within int64_t.
constexpr int64_t mostSentences = 1 << 24, mostSteps = 1'000'000'000;

std::unique_ptr<Engine> randomEngine(const BenchOptions &options) {
  const int threads = threadsOfWorkers(options.threads, options.workers).front();
  std::unique_ptr<Engine> engine = makeEngine(threads, options.device);
  initializeParameters(*engine, 1);
  return engine;
}

// Records the profile and the timeline of the timed part only.
class Recording {
public:
  Recording(const BenchOptions &options, Engine &engine) : options(options), engine(engine) {
    if (options.trace.empty())
      return;
    checkWritable(options.trace);
    trace.emplace(engine.pool().threads());
  }
  void begin() {
    engine.profile(options.profile ? &timings : nullptr);
    engine.traceTo(trace ? &*trace : nullptr);
  }
  // Writes the timeline; `name` names the process in it.
  void end(const std::string &name) {
    engine.profile(nullptr);
    engine.traceTo(nullptr);
    if (!trace)
      return;
    writeTrace(options.trace, {trace->json(0, name)});
    if (const int64_t count = trace->leftOut())
      std::fprintf(stderr, "%s: %s: %lld events were dropped because the trace buffer is full; use fewer --steps\n",
                   nameOf(MessageKind::Warning), options.trace.c_str(), static_cast<long long>(count));
  }
  std::vector<LaunchTiming> timings;

private:
  const BenchOptions &options;
  Engine &engine;
  std::optional<Trace> trace;
};

double secondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// VmHWM covers this process image only; the peak that getrusage reports is inherited across exec.
double peakMegabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:"))
      return std::strtod(line.c_str() + 6, nullptr) * 1024 / 1e6;
  return 0;
}

// The ids of ordinary tokens: neither pad, unk nor one that marks the ends of a sentence.
std::vector<int32_t> wordIds(const Module &module, int64_t vocabulary) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocabulary; ++id)
    if (id != module.pad && id != module.unk && id != module.bos && id != module.eos && id != module.start)
      ids.push_back(id);
  if (ids.empty())
    throw Error("the vocabulary has " + std::to_string(vocabulary) + " ids, none of them a word");
  return ids;
}

std::vector<std::vector<int32_t>> randomSentences(const std::vector<int32_t> &words, int64_t count, int64_t length,
                                                  uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<int32_t>> sentences(count, std::vector<int32_t>(length));
  for (std::vector<int32_t> &sentence : sentences)
    for (int32_t &id : sentence)
      id = words[random() % words.size()];
  return sentences;
}

void checkLength(const Module &module, int64_t length) {
  for (int64_t most : {module.maxLength, module.maxTargetLength})
    if (most > 0 && length > most)
      throw Error("--length " + std::to_string(length) + ": the model's max_length is " + std::to_string(most));
}

// One kernel at one place of model.json, per step. The time is based on the median launch, which other processes
// disturb least.
struct ProfileRow {
  std::string kernel, location;
  double calls = 0, seconds = 0, flops = 0, bytes = 0;
};

// Slowest first.
std::vector<ProfileRow> profileRows(const std::vector<LaunchTiming> &timings, int64_t steps) {
  std::map<std::pair<std::string, std::string>, std::pair<ProfileRow, std::vector<double>>> byPlace;
  for (const LaunchTiming &timing : timings) {
    const std::string location = timing.step ? timing.step->location : "packing weights";
    auto &[row, seconds] = byPlace[{timing.kernel->name, location}];
    row.kernel = timing.kernel->name;
    row.location = location;
    const double part = 1 / static_cast<double>(steps);
    row.calls += part;
    seconds.push_back(timing.seconds);
    row.flops += timing.flops * part;
    row.bytes += timing.bytes * part;
  }
  std::vector<ProfileRow> rows;
  for (auto &[place, entry] : byPlace) {
    auto &[row, seconds] = entry;
    row.seconds = median(seconds) * row.calls;
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const ProfileRow &a, const ProfileRow &b) { return a.seconds > b.seconds; });
  return rows;
}

// The fraction of the peak rate of the instructions that the kernel multiplies with, or of the memory bandwidth,
// whichever is larger; above 1 where caches serve the traffic.
double shareOfPeak(const ProfileRow &row, const Peak &peak) {
  return std::max(row.flops / row.seconds * 1e-9 / peak.rateOf(row.kernel),
                  row.bytes / row.seconds * 1e-9 / peak.copyBandwidth);
}

// The peak is measured on a CPU only; without it, the share of the peak is left out.
std::string profileTable(const std::vector<ProfileRow> &rows, const std::optional<Peak> &peak) {
  double calls = 0, total = 0;
  for (const ProfileRow &row : rows) {
    calls += row.calls;
    total += row.seconds;
  }
  char line[512];
  std::snprintf(line, sizeof line, "%-44s %-36s %7s %10s %7s %9s %7s%s\n", "kernel", "location", "calls", "ms a step",
                "share", "GFLOP/s", "GB/s", peak ? "  of peak" : "");
  std::string table = line;
  for (const ProfileRow &row : rows) {
    std::snprintf(line, sizeof line, "%-44.120s %-36.120s %7.1f %10.3f %6.1f%% %9.1f %7.1f", row.kernel.c_str(),
                  row.location.c_str(), row.calls, row.seconds * 1e3, 100 * row.seconds / total,
                  row.flops / row.seconds * 1e-9, row.bytes / row.seconds * 1e-9);
    table += line;
    std::snprintf(line, sizeof line, " %7.0f%%\n", peak ? 100 * shareOfPeak(row, *peak) : 0);
    table += peak ? line : "\n";
  }
  std::snprintf(line, sizeof line, "%.0f launches, %.3f ms a step in kernels", calls, total * 1e3);
  table += line;
  if (peak)
    std::snprintf(line, sizeof line, "; the machine: %.1f GFLOP/s, %.1f in bf16, %.1f in int8, copies at %.1f GB/s",
                  peak->gflops, peak->bf16, peak->int8, peak->copyBandwidth);
  return table + (peak ? line : "") + "\n";
}

Json profileJson(const std::vector<ProfileRow> &rows, const std::optional<Peak> &peak) {
  Json list = Json::array();
  for (const ProfileRow &row : rows) {
    list.push_back({{"kernel", row.kernel},
                    {"location", row.location},
                    {"calls", row.calls},
                    {"ms", row.seconds * 1e3},
                    {"flops", row.flops},
                    {"bytes", row.bytes}});
    if (peak)
      list.back()["share_of_peak"] = shareOfPeak(row, *peak);
  }
  return list;
}

void print(const BenchOptions &options, const Json &result) {
  if (options.json) {
    std::printf("%s\n", result.dump().c_str());
    return;
  }
  for (const auto &[key, value] : result.items())
    std::printf("%-22s %s\n", key.c_str(), value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
}

void addPeak(Json &result, const Peak &peak) {
  result["peak_gflops"] = peak.gflops;
  result["peak_bf16_gflops"] = peak.bf16;
  result["peak_int8_gops"] = peak.int8;
  result["peak_read_gb_per_second"] = peak.readBandwidth;
  result["peak_copy_gb_per_second"] = peak.copyBandwidth;
}

// Prints the result and, with --profile, the kernels. The f64 peak is half the measured f32 peak.
void printProfiled(const BenchOptions &options, Json result, Engine &engine, const std::vector<LaunchTiming> &timings,
                   int64_t steps) {
  if (!options.profile)
    return print(options, result);
  std::optional<Peak> peak;
  if (engine.computingThreads() > 0)
    peak = measurePeak(engine.pool(), engine.device().name());
  if (peak && engine.module().type == DType::F64)
    peak->gflops /= 2;
  const std::vector<ProfileRow> rows = profileRows(timings, steps);
  if (options.json) {
    if (peak)
      addPeak(result, *peak);
    result["kernels"] = profileJson(rows, peak);
  }
  print(options, result);
  if (!options.json)
    std::fputs(profileTable(rows, peak).c_str(), stdout);
}

Json common(const char *what, Engine &engine) {
  const Module &module = engine.module();
  return {{"what", what},
          {"model", module.model},
          {"device", engine.device().kind()},
          {engine.device().traits().word, engine.device().name()},
          {"type", module.compute},
          {"threads", engine.pool().threads()}};
}

void addMemory(Json &result, Engine &engine) {
  result["arena_bytes"] = engine.arenaBytes();
  result["state_bytes"] = engine.stateBytes();
  result["peak_rss_mb"] = peakMegabytes();
}

//===--------------------------------------------------------------------------------------------------------===//
// train
//===--------------------------------------------------------------------------------------------------------===//

Corpus benchCorpus(const BenchOptions &options, const Module &module, int64_t length) {
  if (!options.sources.empty()) {
    Vocabulary source(module.sourceVocab), target(module.targetVocab);
    return Corpus({options.sources, options.targets, {}}, {source, target}, module, Format::Ids);
  }
  checkLength(module, length);
  int64_t sentences = std::max<int64_t>(options.batchTokens / length, 1);
  // The corpus adds eos to the target.
  return Corpus(randomSentences(wordIds(module, module.sourceVocab), sentences, length, 1),
                randomSentences(wordIds(module, module.targetVocab), sentences, length - 1, 2), module);
}

void benchTrain(const BenchOptions &options) {
  if (options.sources.empty() != options.targets.empty())
    throw Error("--source and --target go together");
  const int64_t length = options.length > 0 ? options.length : 32;
  std::unique_ptr<Engine> engine = randomEngine(options);
  const Module &module = engine->module();
  module.requireTranslator();
  Update update(*engine);
  const Corpus corpus = benchCorpus(options, module, length);
  const Counts counts = largestBatch(corpus, options.batchTokens);
  engine->reserve(programs::lossAndGradients, counts);
  const UpdateOptions hyper{.optimizer = findOptimizer(options.optimizer), .settings = {.rate = 1e-4}};
  engine->reserve(hyper.optimizer->program, counts);

  Recording recording(options, *engine);
  Batches batches(corpus, options.batchTokens, 1);
  std::vector<double> milliseconds, rates;
  int64_t targetTokens = 0, sourceTokens = 0;
  double loss = 0;
  constexpr int64_t warmup = 2;
  std::vector<PairsOfCorpus> batch, next = {batches.next()};
  for (int64_t step = 1; step <= warmup + options.steps; ++step) {
    if (step == warmup + 1)
      recording.begin();
    const Span span(engine->trace(), "step", "step", step - warmup);
    batch = std::exchange(next, {batches.next()});
    const Clock::time_point begin = Clock::now();
    UpdateResult result = update.run(batch, step, hyper, next);
    const double seconds = secondsSince(begin);
    if (step <= warmup)
      continue;
    milliseconds.push_back(seconds * 1e3);
    rates.push_back(static_cast<double>(result.labels) / seconds);
    targetTokens += result.labels;
    for (int64_t pair : batch[0].pairs)
      sourceTokens += corpus.sourceLength(pair);
    loss = result.loss / static_cast<double>(std::max<int64_t>(result.labels, 1));
  }
  recording.end("bench train");

  Json result = common("train", *engine);
  result["tokens_per_second"] = median(rates);
  result["step_ms_median"] = median(milliseconds);
  result["step_ms_min"] = *std::min_element(milliseconds.begin(), milliseconds.end());
  result["steps"] = options.steps;
  result["optimizer"] = options.optimizer;
  result["batch_tokens"] = options.batchTokens;
  if (options.sources.empty())
    result["length"] = length;
  result["target_tokens"] = targetTokens;
  result["source_tokens"] = sourceTokens;
  result["loss"] = loss;
  addMemory(result, *engine);
  printProfiled(options, std::move(result), *engine, recording.timings, options.steps);
}

//===--------------------------------------------------------------------------------------------------------===//
// decode
//===--------------------------------------------------------------------------------------------------------===//

void benchDecode(const BenchOptions &options) {
  const int64_t length = options.length > 0 ? options.length : 25;
  TranslationModel model{randomEngine(options), nullptr, nullptr};
  model.addWorkers(options.threads, options.workers);
  const Ensemble models = model.models();
  Engine &engine = models.first();
  const Module &module = engine.module();
  module.requireTranslator();
  checkLength(module, length);
  std::vector<std::vector<int32_t>> sources =
      randomSentences(wordIds(module, module.sourceVocab), options.sentences, length, 1);
  if (module.sourceEos)
    for (std::vector<int32_t> &source : sources)
      source.back() = module.eos;
  SearchOptions search;
  search.generation.beam = options.beam;
  search.generation.maxLength = length;
  search.ignoreEos = true;
  search.computeType = options.computeType;
  search.batchTokens =
      (options.batch + options.workers - 1) / options.workers * std::max<int64_t>(length, options.beam); // of each

  Recording recording(options, engine);
  std::vector<double> seconds;
  int64_t tokens = 0;
  for (int64_t repetition = 0; repetition <= options.steps; ++repetition) { // the first one is a warm-up
    if (repetition == 1)
      recording.begin();
    const Span span(engine.trace(), "decoding", "repetition", repetition);
    const Clock::time_point begin = Clock::now();
    auto found = xfc::search(models, sources, search);
    if (repetition > 0)
      seconds.push_back(secondsSince(begin));
    tokens = 0;
    for (const std::vector<Hypothesis> &hypotheses : found)
      tokens += static_cast<int64_t>(hypotheses.at(0).ids.size());
  }
  recording.end("bench decode");

  const int64_t steps = (options.sentences + options.batch - 1) / options.batch * length;
  Json result = common("decode", engine);
  if (!options.computeType.empty())
    result["type"] = options.computeType;
  result["tokens_per_second"] = static_cast<double>(tokens) / median(seconds);
  result["step_ms_median"] = median(seconds) * 1e3 / static_cast<double>(steps);
  result["steps"] = steps;
  result["repetitions"] = options.steps;
  result["sentences"] = options.sentences;
  result["batch"] = options.batch;
  result["length"] = length;
  result["beam"] = options.beam;
  result["workers"] = options.workers;
  result["tokens"] = tokens;
  addMemory(result, engine);
  for (const Ensemble &worker : models.workers()) {
    result["threads"] = result["threads"].get<int>() + worker.first().pool().threads();
    result["arena_bytes"] = result["arena_bytes"].get<int64_t>() + worker.first().arenaBytes();
  }
  printProfiled(options, std::move(result), engine, recording.timings, options.steps * steps);
}

//===--------------------------------------------------------------------------------------------------------===//
// startup
//===--------------------------------------------------------------------------------------------------------===//

// Milliseconds from starting `translate` as a separate process to the first byte of its output.
double firstTokenMilliseconds(const std::string &folder, const std::string &threads, const DeviceChoice &choice) {
  int ends[2];
  if (pipe(ends) != 0)
    throw Error("cannot create a pipe");
  const std::string weights = folder + "/weights.safetensors", input = folder + "/input";
  const Clock::time_point begin = Clock::now();
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execl("/proc/self/exe", "translator", "translate", "--weights", weights.c_str(), "--format", "ids", "--input",
          input.c_str(), "--beam", "1", "--max-length", "1", "--min-length", "1", "--threads", threads.c_str(),
          "--device", choice.device.c_str(), "--cuda-image", choice.cudaImage.c_str(), "--cuda-step",
          choice.cudaStep.c_str(), "--quiet", static_cast<char *>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  char byte;
  ssize_t got = 0;
  while (child > 0 && (got = read(ends[0], &byte, 1)) < 0 && errno == EINTR && !interrupted()) {
  }
  const bool answered = got == 1;
  const double milliseconds = secondsSince(begin) * 1e3;
  close(ends[0]);
  int status = 0;
  if (child > 0 && interrupted())
    kill(child, SIGTERM);
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  checkInterrupted();
  if (!answered || status != 0)
    throw Error("bench startup: the process that was started did not translate");
  return milliseconds;
}

void benchStartup(const BenchOptions &options) {
  const InterruptGuard guard; // an interrupt ends the process that was started too
  const TemporaryFolder folder("bench");
  Json result;
  {
    std::unique_ptr<Engine> engine = randomEngine(options);
    const Module &module = engine->module();
    module.requireTranslator();
    result = common("startup", *engine);
    writeSafetensors(folder.path + "/weights.safetensors", weights(*engine));
    const int64_t length = module.maxLength > 0 ? std::min<int64_t>(8, module.maxLength) : 8;
    const std::vector<std::vector<int32_t>> sentence =
        randomSentences(wordIds(module, module.sourceVocab), 1, length, 1);
    std::string line;
    for (int32_t id : sentence[0])
      line += std::to_string(id) + " ";
    writeFile(folder.path + "/input", line + "\n");
  }
  std::vector<double> milliseconds;
  for (int run = 0; run < 7; ++run, checkInterrupted())
    milliseconds.push_back(
        firstTokenMilliseconds(folder.path, std::to_string(result["threads"].get<int>()), options.device));
  result["first_token_ms"] = *std::min_element(milliseconds.begin(), milliseconds.end());
  result["first_token_ms_median"] = median(milliseconds);
  result["runs"] = milliseconds.size();
  print(options, result);
}

//===--------------------------------------------------------------------------------------------------------===//
// peak
//===--------------------------------------------------------------------------------------------------------===//

void benchPeak(const BenchOptions &options) {
  Engine engine(threadsGiven(options.threads));
  Json result = {{"what", "peak"}, {"threads", engine.pool().threads()}, {"cpu", engine.device().name()}};
  addPeak(result, measurePeak(engine.pool(), engine.device().name()));
  print(options, result);
}

Command addBenchmark(Command bench, const char *name, const char *description,
                     const std::shared_ptr<BenchOptions> &options, void (*run)(const BenchOptions &)) {
  Command command = bench.addVerb(name, description, bench.path() + " " + name);
  addThreads(command, options->threads);
  command.addFlag("--json", options->json, "one JSON object");
  addQuiet(command, options->quiet);
  command.setWork([options, run] { run(*options); });
  return command;
}

} // namespace

void addBench(Command app) {
  Command bench =
      app.addVerb("bench", "measure speed and memory, with random weights", "translator bench decode --beam 1");
  bench.requireVerb();
  auto options = std::make_shared<BenchOptions>();

  Command train = addBenchmark(bench, "train", "training steps; target tokens per second", options, benchTrain);
  addBatchTokens(train, options->batchTokens, "target tokens, per batch").within(int64_t(1), mostTokens);
  train.addOption("--length", options->length, "tokens per sentence (default: 32)").within(int64_t(1), mostTokens);
  train.addOption("--source", options->sources, "files of ids, for real lengths").excludes("--length");
  train.addOption("--target", options->targets, "files of ids, for real lengths").excludes("--length");
  train.addOption("--format", options->format, "format of --source and --target").oneOf({"ids"}).showDefault();
  train.addOption("--steps", options->steps, "steps to time, after two that are not timed")
      .within(int64_t(1), mostSteps)
      .showDefault();
  addOptimizer(train, options->optimizer, "optimization method");
  addDevice(train, options->device);
  addTrace(train, options->trace);
  train.addFlag("--profile", options->profile,
                "also report the kernels: time, share, and how near they come to the machine's peak");

  Command decode = addBenchmark(bench, "decode", "translation of sentences of one length; output tokens per second",
                                options, benchDecode);
  decode.addOption("--sentences", options->sentences, "sentences").within(int64_t(1), mostSentences).showDefault();
  decode.addOption("--batch", options->batch, "sentences decoded together, by all workers")
      .within(int64_t(1), mostSentences)
      .showDefault();
  decode.addOption("--length", options->length, "tokens in a source, and in its translation (default: 25)")
      .within(int64_t(1), mostTokens);
  addBeam(decode, options->beam);
  const CommandOption workers = addWorkers(decode, options->workers);
  decode.addOption("--steps", options->steps, "number of times everything is translated")
      .within(int64_t(1), mostSteps)
      .showDefault();
  addComputeType(decode, options->computeType);
  addDevice(decode, options->device);
  addTrace(decode, options->trace);
  const CommandOption profile =
      decode.addFlag("--profile", options->profile,
                     "also report the kernels: time, share, and how near they come to the machine's peak");
  workers.excludes(profile).excludes("--trace");

  addBenchmark(bench, "peak", "what the machine can do: multiply-adds and memory", options, benchPeak);
  Command startup = addBenchmark(bench, "startup", "time from the start of the process to the first translated token",
                                 options, benchStartup);
  addDevice(startup, options->device);
}

} // namespace xfc
