// `report`: turns the logs of training runs into one HTML page with curves, translations, and figures of attention,
// memory and time.
#include "app/Commands.h"
#include "corpora/LinePairs.h"
#include "decode/Alignment.h"
#include "decode/Choice.h"
#include "decode/Defaults.h"
#include "decode/HeatMap.h"
#include "decode/ModelOptions.h"
#include "decode/Search.h"
#include "engine/Identity.h"
#include "plan/Memory.h"
#include "plan/Optimizers.h"
#include "plan/Programs.h"
#include "plan/Serialization.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/Format.h"
#include "support/Inputs.h"
#include "support/Json.h"
#include "support/LineReader.h"
#include "support/MappedFile.h"
#include "support/Markup.h"
#include "support/Quoted.h"
#include "train/FlameGraph.h"
#include "train/Log.h"
#include "train/MemoryMap.h"
#include "train/Report.h"
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

namespace xfc {
namespace {

struct ReportOptions {
  std::vector<std::string> folders, traces;
  std::string output, input;
  int64_t line = 0; // 0: a sample of the log
};

void leaveOut(const char *what, const std::string &why) {
  std::fprintf(stderr, "report: leaving out the %s: %s\n", what, oneLine(why).c_str());
}

ReportedRun runIn(const std::string &folder) {
  const std::string log = folder + "/train.jsonl", settings = folder + "/config.json";
  if (!exists(log))
    throw Error(folder + ": holds no train.jsonl; expected the --out folder of train");
  // A page may be among the files of a run, but must not replace one of them, whether it is read or not.
  for (const auto &entry : std::filesystem::recursive_directory_iterator(
           folder, std::filesystem::directory_options::skip_permission_denied))
    if (const std::filesystem::path kind = entry.path().extension(); kind == ".safetensors" || kind == ".json")
      announceInput(entry.path().string());
  ReportedRun run{folder, readLog(log), nlohmann::json::object()};
  if (run.records.empty())
    throw Error(log + ": holds no record yet; let train run a few steps first");
  if (!exists(settings))
    return run;
  if (const std::optional<nlohmann::json> found = jsonIn(readFile(settings)); found && found->is_object())
    run.configuration = *found;
  return run;
}

// A line to translate and draw, and where it stands.
struct DrawnLine {
  std::string text, place;
};

// The texts under a key of config.json that names files.
std::vector<std::string> filesUnder(const nlohmann::json &configuration, const char *key) {
  std::vector<std::string> files;
  if (const auto found = configuration.find(key); found != configuration.end() && found->is_array())
    for (const nlohmann::json &file : *found)
      if (file.is_string())
        files.push_back(file.get<std::string>());
  return files;
}

// Line `number` of the files, which are read one after the other, as they are for a validation.
DrawnLine lineOf(const std::vector<std::string> &files, bool tables, int64_t number) {
  int64_t before = 0;
  for (const std::string &file : files) {
    LineReader reader(file, longestLine);
    std::string line;
    while (reader.next(line))
      if (before + reader.number() == number)
        return {tables ? line.substr(0, line.find('\t')) : line, reader.where()};
    before += reader.number();
  }
  throw Error(listed(files) + ": --line " + std::to_string(number) + " is not there; expected 1 to " +
              std::to_string(before) + ", the number of lines");
}

DrawnLine lineToDraw(const ReportOptions &options, const ReportedRun &run) {
  if (options.line == 0)
    return {sampleToDraw(run.records), "the sample"};
  if (!options.input.empty())
    return lineOf({options.input}, false, options.line);
  for (const auto &[key, tables] : {std::pair{"valid-source", false}, {"valid-tsv", true}})
    if (const std::vector<std::string> files = filesUnder(run.configuration, key); !files.empty())
      return lineOf(files, tables, options.line);
  throw Error(run.name +
              ": its config.json names no held-out text that --line could count; give the text with --input");
}

// The cross-attention of the run's model while it translates a line; nothing if a log has no sample. Throws Error if
// the model cannot draw one.
std::optional<ReportedFigure> attentionFigure(const ReportOptions &options, const ReportedRun &run) {
  constexpr size_t mostCells = 40000; // about 8 MB of a page
  const DrawnLine line = lineToDraw(options, run);
  if (line.text.empty() && options.line == 0)
    return std::nullopt;
  ModelOptions choice;
  choice.model = run.name;
  choice.format = formatOf(run.configuration);
  TranslationModel model = loadModel(choice);
  const Module &module = model.engine->module();
  const std::vector<int32_t> ids = encodeSource(model, line.text, choice.format, line.place);
  if (ids.empty())
    throw Error(line.place + ": is empty; there is nothing to attend to");
  SearchOptions search;
  search.generation = generationOf(module, run.name);
  const std::vector<Hypothesis> found =
      chosen(model, ids, xfc::search(*model.engine, {ids}, search).front(), search, choice.format);
  if (found.empty())
    throw Error(line.place + ": the search found no translation");
  const std::vector<int32_t> &target = found[0].ids;
  if ((target.size() + 1) * ids.size() > mostCells)
    throw Error(line.place + ": " + std::to_string(ids.size()) + " tokens and " + std::to_string(target.size() + 1) +
                " of their translation; at most " + std::to_string(mostCells) +
                " pairs of them can be drawn, so give a shorter line");
  const CrossAttention attention = crossAttention(*model.engine, ids, target, found[0].byEos);
  std::vector<std::string> rows, columns;
  for (int32_t id : target)
    rows.push_back(model.target->piece(id));
  if (found[0].byEos)
    rows.push_back(model.target->piece(module.eos));
  for (int32_t id : ids)
    columns.push_back(model.source->piece(id));
  return ReportedFigure{"Where the decoder looks" + (options.folders.size() > 1 ? ": " + run.name : ""),
                        "Cross-attention of the last layer, mean of its heads, for " + line.place +
                            ": each row is a token being written, each column a token of the source, and each row "
                            "adds up to 1.",
                        heatMapSvg(attention.weights, rows, columns)};
}

// The settings of a run that determine how the buffers of its steps are laid out.
struct StepMemory {
  int64_t batchTokens = 4096;
  std::string optimizer = std::string(optimizers().front().name);
  bool averages = false, accumulates = false, onGPU = false;
  int threads = 0;
  auto operator<=>(const StepMemory &) const = default;
};

// Throws Error for settings that train cannot have written.
StepMemory stepMemoryOf(const ReportedRun &run) {
  StepMemory memory;
  auto number = [&](const char *key, double otherwise) {
    const auto found = run.configuration.find(key);
    if (found == run.configuration.end())
      return otherwise;
    if (!found->is_number() || !(found->get<double>() >= 0 && found->get<double>() <= 1e15))
      throw Error("config.json: " + std::string(key) + ": expected a number that is not negative");
    return found->get<double>();
  };
  auto text = [&](const char *key, const std::string &otherwise) {
    const auto found = run.configuration.find(key);
    return found != run.configuration.end() && found->is_string() ? found->get<std::string>() : otherwise;
  };
  memory.batchTokens = std::max<int64_t>(static_cast<int64_t>(number("batch-tokens", 4096)), 1);
  memory.optimizer = text("optimizer", memory.optimizer);
  memory.averages = number("ema", 0) > 0;
  memory.accumulates = number("accumulate", 1) > 1;
  memory.onGPU = text("device", "cpu") == "cuda";
  memory.threads = static_cast<int>(std::min(number("threads", 0), 4096.0));
  return memory;
}

std::string shownMegabytes(int64_t bytes) {
  return format("%.1f MB (%lld bytes)", static_cast<double>(bytes) / 1e6, static_cast<long long>(bytes));
}

ReportedFigure memoryFigure(const Module &module, const StepMemory &step, const std::string &heading) {
  constexpr int64_t length = 32; // as `info` takes it
  const Optimizer *optimizer = findOptimizer(step.optimizer, step.averages);
  if (!optimizer)
    throw Error("config.json: optimizer: unknown " + inQuotes(step.optimizer));
  std::vector<std::string> programs = {programs::lossAndGradients};
  if (step.accumulates)
    programs.push_back(programs::accumulate);
  programs.push_back(optimizer->program);
  const Counts counts = batchCounts(step.batchTokens, length);
  const int threads = step.onGPU ? 0 : threadsGiven(step.threads);
  const MemoryMap map = memoryMap(module, programs, counts);
  const Memory memory = predictMemory(module, programs, counts, threads);
  std::string table = "<table>\n";
  const auto addRow = [&](const char *name, int64_t bytes) {
    if (bytes > 0)
      table += "<tr><th>" + escapeMarkup(name) + "</th><td>" + shownMegabytes(bytes) + "</td></tr>\n";
  };
  for (const MemoryPart &part : memoryParts)
    addRow(part.name, memory.*part.bytes);
  addRow("all of a step", memory.total());
  return {heading,
          "The arena of a step with batches of " + std::to_string(step.batchTokens) + " tokens in sentences of " +
              std::to_string(length) +
              ": each box is a buffer or a gradient, from the launch that first uses it to the one that last does; the "
              "line is the sum of those that are live. Programs run one after the other, and share the arena.",
          memoryMapSvg(map) + table + "</table>\n"};
}

// Throws Error if the run's weights belong to another model than this executable's.
void requireModelOf(const ReportedRun &run, const Module &module) {
  for (const char *name : {"/best.safetensors", "/last.safetensors"})
    if (const std::string file = run.name + name; exists(file)) {
      const MappedFile weights(file);
      Metadata metadata;
      parseSafetensors(weights.contents(), file, &metadata);
      checkModel(metadata, module, file);
    }
}

// A figure for all runs whose steps have the same memory.
std::vector<ReportedFigure> memoryFigures(const std::vector<ReportedRun> &runs) {
  std::map<StepMemory, std::vector<std::string>> steps;
  std::vector<ReportedFigure> figures;
  std::optional<Engine> host;
  std::optional<Module> gpu;
  auto moduleOf = [&](const StepMemory &step) -> const Module & {
    if (xfc_device_images[0] && (step.onGPU || !xfc_images[0])) {
      if (!gpu)
        gpu = deserialize(xfc_device_images[0]->plan, xfc_device_images[0]->plan_size);
      return *gpu;
    }
    if (!host)
      host.emplace(1);
    return host->module();
  };
  for (const ReportedRun &run : runs)
    try {
      const StepMemory step = stepMemoryOf(run);
      requireModelOf(run, moduleOf(step));
      steps[step].push_back(run.name);
    } catch (const Error &error) {
      leaveOut("drawing of memory", run.name + ": " + error.what());
    }
  for (const auto &[step, names] : steps)
    try {
      figures.push_back(
          memoryFigure(moduleOf(step), step, "Memory of a step" + (runs.size() > 1 ? ": " + listed(names) : "")));
    } catch (const Error &error) {
      leaveOut("drawing of memory", listed(names) + ": " + error.what());
    }
  return figures;
}

ReportedFigure timeFigure(const std::string &trace) {
  const StepProfile profile = profileOf(parseJson(readFile(trace, mostLargeBytes), trace, mostLargeBytes), trace);
  return {"Time of a step",
          "From " + trace + (profile.steps > 0 ? ", a mean of " + std::to_string(profile.steps) + " steps" : "") +
              ": the width of a box is the time that all threads spent in it, parts included: programs, places in "
              "model.json, kernels. What is not in a part of a program is waiting for other threads.",
          flameGraphSvg(profile)};
}

void writeReport(const ReportOptions &options) {
  if (options.folders.size() > 1 && options.output.empty())
    throw RequiredError("--output, for a page of several runs,");
  std::vector<ReportedRun> runs;
  runs.reserve(options.folders.size());
  for (const std::string &folder : options.folders)
    runs.push_back(runIn(folder));
  const std::string output = options.output.empty() ? runs.front().name + "/report.html" : options.output;
  checkWritable(output);
  std::vector<ReportedFigure> figures;
  for (const ReportedRun &run : runs)
    try {
      if (std::optional<ReportedFigure> figure = attentionFigure(options, run))
        figures.push_back(std::move(*figure));
    } catch (const Error &error) {
      if (options.line > 0) // which was asked for
        throw;
      leaveOut("drawing of attention", error.what());
    }
  std::ranges::move(memoryFigures(runs), std::back_inserter(figures));
  for (const std::string &trace : options.traces)
    figures.push_back(timeFigure(trace));
  writeFile(output, reportPage(runs, figures));
  std::fprintf(stderr, "report: wrote %s\n", output.c_str());
}

} // namespace

void addReport(Command app) {
  Command command = app.addVerb("report", "write curves, translations and figures of training runs as one HTML page",
                                "translator report run other --line 3 --trace trace.json -o report.html");
  auto options = std::make_shared<ReportOptions>();
  command.addOption("folder", options->folders, "the --out folder of train; several are compared in one page")
      .required()
      .values(1, seriesColors);
  command.addOption("-o,--output", options->output,
                    "the page to write (default: report.html in the folder, if there is one folder)");
  const CommandOption line = command.addOption(
      "--line", options->line,
      "draw the attention of this line of the validation text, from 1 (default: of a sample in the log)");
  line.positive();
  command.addOption("--input", options->input, "the text in which --line is counted, in place of the validation text")
      .needs(line);
  command
      .addOption("--trace", options->traces, "draw the time of a step from files that --trace of train or bench wrote")
      .values(1, seriesColors);
  command.setWork([options] { writeReport(*options); });
}

} // namespace xfc
