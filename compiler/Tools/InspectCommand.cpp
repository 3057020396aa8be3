// `xfc inspect`: prints a model's parameters, its floating-point operations and bytes per token, the memory that it
// will need, and its graph; and shows what each pass does to it.
#include "InspectCommand.h"
#include "Diagnostics.h"
#include "Drawing.h"
#include "IRPage.h"
#include "ModelArguments.h"
#include "Pipeline/Pipeline.h"
#include "Plan/PlanText.h"
#include "mlir/IR/MLIRContext.h"
#include "plan/Launch.h"
#include "plan/Memory.h"
#include "plan/Programs.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include <cinttypes>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

namespace xfc {
namespace {

struct InspectOptions : CompilationArguments {
  ModelArguments model;
  std::string svg, html, cudaStep = "graph";
  int64_t batchTokens = 4096, length = 32, sentences = 64, beam = 5;
  int threads = 2;
  bool json = false, plan = false;
};

struct Work {
  double flops = 0, bytes = 0;
  size_t steps = 0;
};

Work workOf(const Program &program, const Counts &counts) {
  Work work;
  for (const Step &step : program.steps) {
    work.flops += evaluate(step.flops, counts);
    work.bytes += evaluate(step.traffic, counts);
  }
  work.steps = program.steps.size();
  return work;
}

// The launches of some programs, grouped by kernel in the order of their first launch: their number, their total work,
// and how a launch is partitioned. A reduction of the partial sums of another kernel is counted separately.
nlohmann::ordered_json launchesOf(const Module &module, const std::vector<std::string> &programs,
                                  const Counts &counts) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::map<int32_t, size_t> places;
  auto add = [&](int32_t number, const Step &step, double flops, double bytes) {
    const Kernel &kernel = module.kernels[number];
    if (places.try_emplace(number, list.size()).second)
      list.push_back({{"kernel", kernel.name},
                      {"launches", 0},
                      {"flops", 0.0},
                      {"bytes", 0.0},
                      {"chunks", chunksOf(kernel.partition, counts, step)},
                      {"threads", kernel.threads},
                      {"scratch_bytes", kernel.scratch}});
    nlohmann::ordered_json &entry = list[places[number]];
    entry["launches"] = entry["launches"].get<int64_t>() + 1;
    entry["flops"] = entry["flops"].get<double>() + flops;
    entry["bytes"] = entry["bytes"].get<double>() + bytes;
  };
  for (const std::string &name : programs) {
    const Program &program = *module.find(name);
    for (const Step &step : program.steps) {
      const int32_t reduction = reductionOf(module, counts, step);
      // The last buffer then holds the partial sums of the chunks, which are written once and read once.
      const double chunks = reduction < 0 ? 0 : evaluate(program.buffers[step.buffers.back().index].size, counts);
      add(kernelOf(module, counts, step), step, evaluate(step.flops, counts), evaluate(step.traffic, counts) + chunks);
      if (reduction >= 0)
        add(reduction, step, 0, chunks);
    }
  }
  return list;
}

// The plan of an executable for the target that the options choose, or that of a model.
Module planToInspect(const InspectOptions &options, PipelineOptions &pipeline, mlir::MLIRContext &context) {
  const std::string planned =
      "--html: " + options.model.given + " is planned already; give a model, whose passes can be shown";
  if (isExecutable(options.model.given)) {
    if (pipeline.history)
      throw Error(planned);
    return planIn(options.model.given, pipeline.targets.front().platform);
  }
  mlir::OwningOpRef<mlir::ModuleOp> model = options.model.load({.f64 = options.dtype == "f64"}, context);
  if (isPlan(*model)) {
    if (pipeline.history)
      throw Error(planned);
    takeFromPlan(pipeline, *model);
  }
  return planOf(*model, pipeline);
}

std::string megabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", bytes / 1e6);
  return text;
}

void inspect(const InspectOptions &options) {
  for (const std::string &output : {options.svg, options.html})
    if (!output.empty())
      checkWritable(output);
  PipelineOptions pipeline;
  options.applyTo(pipeline);
  PassHistory history;
  if (!options.html.empty())
    pipeline.history = &history;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  const Diagnostics diagnostics(context);
  const Module module = planToInspect(options, pipeline, context);
  const bool cuda = pipeline.targets.front().platform == Platform::CUDA;
  if (options.cudaStep == "persistent" && !cuda)
    throw Error("inspect: --cuda-step persistent is for GPUs: it needs --target cuda");
  if (!options.html.empty())
    writeFile(options.html, irPage("The passes of " + module.model, history));
  if (options.plan) {
    const std::string text = planText(module);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  const Description description = parseDescription(module.description, options.model.given);
  if (!options.svg.empty())
    writeFile(options.svg, drawSvg(description));

  int64_t parameters = 0;
  for (const Parameter &parameter : module.parameters) {
    int64_t elements = 1;
    for (int64_t extent : parameter.shape)
      elements *= extent;
    parameters += elements;
  }
  nlohmann::ordered_json report = {
      {"model", module.model}, {"hash", module.hash}, {"type", module.compute}, {"parameters", parameters}};

  // The programs a user runs, and the batch each is measured with.
  struct Case {
    std::string title;
    std::vector<std::string> programs;
    Counts counts;
    bool training;
  };
  std::vector<Case> cases;
  if (module.has(programs::lossAndGradients))
    cases.push_back({"training step",
                     {programs::lossAndGradients, programs::update},
                     batchCounts(options.batchTokens, options.length),
                     true});
  if (module.has(programs::forward))
    cases.push_back({"forward", {programs::forward}, batchCounts(options.batchTokens, options.length), false});
  for (const std::string &type : module.computeTypes(programs::decodeStep))
    cases.push_back({type == module.compute ? "decoding step" : "decoding step in " + type,
                     {module.variant(programs::encode, type), module.stepProgram(options.beam, type)->name},
                     decodeCounts(module, options.sentences, options.length, product({options.sentences, options.beam}),
                                  options.length),
                     false});
  for (const Case &each : cases) {
    Work work;
    for (const std::string &name : each.programs) {
      Work part = workOf(*module.find(name), each.counts);
      work.flops += part.flops;
      work.bytes += part.bytes;
      work.steps += part.steps;
    }
    const Memory memory =
        predictMemory(module, each.programs, each.counts, cuda ? 0 : options.threads, options.cudaStep == "persistent");
    double tokens = each.counts.rows[module.hasDecoder ? XFC_TARGET : XFC_SOURCE];
    report[each.title] = {{"tokens", tokens},
                          {"kernels", work.steps},
                          {"flops_per_token", work.flops / tokens},
                          {"bytes_per_token", work.bytes / tokens},
                          {"arena_bytes", memory.arena},
                          {"state_bytes", memory.state()},
                          {"scratch_bytes", memory.scratch},
                          {"held_bytes", memory.held},
                          {"batches_bytes", memory.batches},
                          {"peak_bytes", memory.total()},
                          {"launches", launchesOf(module, each.programs, each.counts)}};
  }
  if (options.json) {
    std::printf("%s\n", report.dump(2).c_str());
    return;
  }

  std::printf("%s\n\n%s\nparameters        %" PRId64 " (%s)\nmultiplies in     %s\nkernels           %zu distinct\n",
              module.model.c_str(), drawText(description).c_str(), parameters,
              megabytes(parameters * bytesOf(module.type)).c_str(), module.compute.c_str(), module.kernels.size());
  // The last summand: scratch memory of the threads on a CPU, or memory to receive batches on a GPU.
  const std::string rest = cuda ? "to receive batches" : "scratch of " + std::to_string(options.threads) + " threads";
  for (const Case &each : cases) {
    const auto &row = report[each.title];
    std::printf("\n%s, %.0f tokens\n  launches        %zu\n  operations      %.4g MFLOP a token\n  memory traffic  "
                "%.4g MB a token\n"
                "  peak memory     %s = %s parameters and state + %s arena + %s %s\n",
                each.title.c_str(), row["tokens"].get<double>(), row["kernels"].get<size_t>(),
                row["flops_per_token"].get<double>() / 1e6, row["bytes_per_token"].get<double>() / 1e6,
                megabytes(row["peak_bytes"]).c_str(), megabytes(row["state_bytes"]).c_str(),
                megabytes(row["arena_bytes"]).c_str(), megabytes(row[cuda ? "batches_bytes" : "scratch_bytes"]).c_str(),
                rest.c_str());
    if (row["held_bytes"].get<int64_t>() > 0)
      std::printf("                  + %s kept from step to step: caches and encoder rows\n",
                  megabytes(row["held_bytes"]).c_str());
  }
}

} // namespace

void addInspect(Command app) {
  auto options = std::make_shared<InspectOptions>();
  Command command =
      app.addVerb("inspect", "show the parameters, operations, memory and graph of a model or an executable",
                  "xfc inspect tiny --svg graph.svg --html passes.html");
  options->model.addTo(command);
  command.setSubject("What is planned");
  options->noFuse.addTo(command);
  options->recompute.addTo(command);
  command.addOption("--svg", options->svg, "also draw the graph to this file").subject("Options");
  command
      .addOption("--html", options->html,
                 "also show what each pass does to the program, in a page that can be searched")
      .subject("Options");
  command.addOption("--target", options->targets.platform, "what to plan for: cpu or cuda").showDefault();
  command.addOption("--cpu", options->targets.names[Platform::CPU], "the instruction set to plan for").showDefault();
  command.addOption("--cuda-arch", options->targets.names[Platform::CUDA], "the GPU architecture to plan for")
      .showDefault();
  command.addOption("--dtype", options->dtype, "type of matrix products, as for `xfc compile`").showDefault();
  command.addOption("--residual", options->residual, "type of the residual stream, as for `xfc compile`")
      .valueName("TYPE");
  options->computeTypes.addTo(command);
  command.addOption("--moment-type", options->momentType, "type of the optimizer's moments, as for `xfc compile`")
      .showDefault();
  command.addOption("--cache-type", options->cacheType, "type of the keys and values, as for `xfc compile`")
      .valueName("TYPE");
  command.setSubject("Batches");
  command.addOption("--batch-tokens", options->batchTokens, "tokens in a training batch, on each side")
      .showDefault()
      .positive();
  command.addOption("--length", options->length, "tokens per sentence").showDefault().positive();
  command.addOption("--sentences", options->sentences, "sentences decoded at a time").showDefault().positive();
  command.addOption("--beam", options->beam, "hypotheses per sentence").showDefault().positive();
  command
      .addOption("--cuda-step", options->cudaStep,
                 "how a GPU runs decoding steps: graph, or persistent, which keeps tables of their launches")
      .oneOf({"graph", "persistent"})
      .showDefault();
  command.addOption("--threads", options->threads, "threads, which need scratch memory and encode as many rows each")
      .showDefault()
      .within(1, 4096);
  command.addFlag("--json", options->json, "print one JSON object").subject("Options");
  command.addFlag("--plan", options->plan, "print the plan instead: its kernels, and the launches of each program")
      .subject("Options");
  command.setWork([options] { inspect(*options); });
}

} // namespace xfc
