// `xfc compile`: turns a model into an executable, a library or one of the intermediate forms.
#include "CompileCommand.h"
#include "Diagnostics.h"
#include "Dialect/XFC.h"
#include "Link/Link.h"
#include "ModelArguments.h"
#include "Pipeline/Pipeline.h"
#include "mlir/IR/MLIRContext.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "support/Terminal.h"
#include "llvm/ADT/StringExtras.h"
#include <cstdio>
#include <memory>

namespace xfc {
namespace {

struct CompileOptions : CompilationArguments {
  ModelArguments model;
  std::string output, mode = "train,decode", emit = "exe";
  PipelineOptions pipeline;
  int64_t distillation = 0, guidedAlignment = 0;
  std::string guidedLayer = "last", guidedHead = "mean";
  bool timing = false;
};

PipelineOptions pipelineOptions(const CompileOptions &options) {
  PipelineOptions pipeline = options.pipeline;
  options.applyTo(pipeline);
  return pipeline;
}

// A number from 1 as one from 0, or none for `word`.
std::optional<int64_t> numberOr(const char *flag, const std::string &text, const char *word) {
  if (text == word)
    return std::nullopt;
  int64_t number = 0;
  if (!llvm::to_integer(text, number, 10) || number < 1)
    throw UsageError(flag, "expected " + std::string(word) + " or a number from 1, found '" + text + "'");
  return number - 1;
}

ImportOptions importOptions(const CompileOptions &options) {
  ImportOptions import{.train = false, .decode = false, .f64 = options.dtype == "f64"};
  for (const std::string &mode : splitList(options.mode)) {
    check("--mode", mode, {"train", "decode"});
    (mode == "train" ? import.train : import.decode) = true;
  }
  if (options.distillation > 0 && !import.train)
    throw UsageError("--distillation", "is for executables that train: --mode train,decode");
  import.distillation = options.distillation;
  import.guided = {.links = options.guidedAlignment,
                   .layer = numberOr("--guided-alignment-layer", options.guidedLayer, "last"),
                   .head = numberOr("--guided-alignment-head", options.guidedHead, "mean")};
  if (import.guided.links > 0 && !import.train)
    throw UsageError("--guided-alignment", "is for executables that train: --mode train,decode");
  if (import.guided.links == 0 && (import.guided.layer || import.guided.head))
    throw RequiredError("--guided-alignment (with --guided-alignment-layer or --guided-alignment-head)");
  return import;
}

void requirePlatform(const PipelineOptions &pipeline, Platform platform, const char *message) {
  if (llvm::none_of(pipeline.targets, [&](const PlatformTargets &targets) { return targets.platform == platform; }))
    throw Error(message);
}

void writeText(const std::string &file, const std::string &text) {
  if (file.empty() || file == "-")
    std::fwrite(text.data(), 1, text.size(), stdout);
  else
    writeFile(file, text);
}

void reportWritten(const std::string &file) {
  std::fprintf(stderr, "xfc: wrote %s\n", file.c_str());
  if (const std::string why = whyNotHere(file); !why.empty())
    printMessage(MessageKind::Warning, why.c_str());
}

// A plan was made for one target, with everything that these options choose.
void refuseChoices(const Command &command) {
  for (const char *flag :
       {"--target", "--cpu", "--cuda-arch", "--dtype", "--residual", "--compute-type", "--moment-type", "--cache-type",
        "--mode", "--distillation", "--guided-alignment", "--no-fuse", "--recompute"})
    if (command.given(flag))
      throw Error(std::string(flag) +
                  ": what a plan contains is fixed; give this when you make it: `xfc compile "
                  "model.json " +
                  flag + " ... --emit scheduled`");
}

void compile(const CompileOptions &options, const Command &command) {
  // -o of the others is not itself the name of a file.
  if (!options.output.empty() && options.output != "-" && options.emit != "obj" && options.emit != "lib")
    checkWritable(options.output);
  PipelineOptions pipeline = pipelineOptions(options);
  const ImportOptions import = importOptions(options);
  mlir::DefaultTimingManager timing;
  timing.setEnabled(options.timing);
  mlir::TimingScope whole = timing.getRootScope();
  pipeline.timing = &whole;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  const Diagnostics diagnostics(context);
  mlir::TimingScope importing = whole.nest("import");
  mlir::OwningOpRef<mlir::ModuleOp> model = options.model.load(import, context);
  importing.stop();
  if (isPlan(*model)) {
    refuseChoices(command);
    takeFromPlan(pipeline, *model);
  }
  if (options.emit == "exe" || options.emit == "obj" || options.emit == "lib") {
    std::vector<std::vector<ObjectFile>> objects = compileObjects(*model, pipeline);
    const std::string name = modelOf(*model).getName().str();
    std::string output = options.output.empty() ? "./" + name : options.output;
    if (options.emit == "exe") {
      linkExecutable(objects, output);
      return reportWritten(output);
    }
    if (options.emit == "lib") {
      for (const std::string &file : linkLibrary(objects, output))
        reportWritten(file);
      return;
    }
    for (size_t i = 0; i < objects.size(); ++i) {
      std::string file = (options.output.empty() ? name : options.output) + "." + std::to_string(i) + ".o";
      linkObject(objects[i], file);
      std::fprintf(stderr, "xfc: wrote %s\n", file.c_str());
    }
  } else if (options.emit == "llvm") {
    requirePlatform(pipeline, Platform::CPU,
                    "--emit llvm: prints code for the CPU only; use --emit ptx, or --target cpu");
    writeText(options.output, emitCode(*model, pipeline, Platform::CPU));
  } else if (options.emit == "ptx") {
    requirePlatform(pipeline, Platform::CUDA, "--emit ptx: prints code for GPUs only; use --target cuda");
    writeText(options.output, emitCode(*model, pipeline, Platform::CUDA));
  } else {
    for (const PhaseInfo &info : phases())
      if (options.emit == info.name)
        return writeText(options.output, emitPhase(*model, pipeline, info.phase));
    std::string known = "exe, lib, obj, llvm, ptx";
    for (const PhaseInfo &info : phases())
      known += std::string(", ") + info.name;
    throw UsageError("--emit", "unknown '" + options.emit + "'; known: " + known);
  }
}

} // namespace

void addCompile(Command app) {
  auto options = std::make_shared<CompileOptions>();
  Command command = app.addVerb("compile", "compile a model into one executable that trains, translates and scores",
                                "xfc compile tiny --vocab spm.model -o translator");
  options->model.addTo(command);
  command.setSubject("Output");
  command.addOption("-o,--output", options->output, "the file to write (default: ./ and the model's name)");
  command.setSubject("Machines and precision");
  command
      .addOption("--target", options->targets.platform,
                 "what to generate code for: cpu, cuda (NVIDIA GPUs; the executable contains PTX and needs only the "
                 "driver), or cpu,cuda")
      .showDefault();
  command
      .addOption("--cpu", options->targets.names[Platform::CPU],
                 "instruction sets, separated by commas: native, x86-64-v3, x86-64-v4, either with +vnni, "
                 "x86-64-v4+bf16, x86-64-v4+amx; of several, the executable uses the best that the machine has. "
                 "plain, with --no-fuse: the slow path that the others are compared with")
      .showDefault();
  command
      .addOption("--cuda-arch", options->targets.names[Platform::CUDA],
                 "GPU architectures, separated by commas: sm_80 runs on every GPU from compute capability 8.0 on; of "
                 "several, a GPU uses the newest that it can run. If ptxas is found, a cubin for each is stored beside "
                 "its PTX")
      .showDefault();
  command
      .addOption("--dtype", options->dtype,
                 "type of matrix products: f32; bf16, where parameters, sums and everything else stay f32; or f64, "
                 "for checking gradients")
      .showDefault();
  command
      .addOption("--residual", options->residual,
                 "with --dtype bf16, what the residual stream and its gradient are stored in where other rows are bf16 "
                 "(GPUs, and CPUs with AMX): bf16 or f32; bf16 by default")
      .valueName("TYPE");
  options->computeTypes.addTo(command);
  command
      .addOption("--moment-type", options->momentType,
                 "type in which optimizers keep the moments of gradients: f32; or bf16, half as large, rounded at "
                 "random")
      .showDefault();
  command
      .addOption("--cache-type", options->cacheType,
                 "type in which decoding keeps keys and values: f32; bf16, half as large; or int8, a quarter, with a "
                 "scale for each head of a token; by default bf16 where a product of a step rounds its operands, and "
                 "f32 elsewhere")
      .valueName("TYPE");
  command.setSubject("Programs");
  command.addOption("--mode", options->mode, "programs to include: train, decode").showDefault();
  command
      .addOption("--distillation", options->distillation,
                 "let training learn from a teacher's distribution: the most probable tokens that it takes for each "
                 "label (`prepare --distribution`, `train --distillation`); 0: none")
      .within(0, 64)
      .showDefault()
      .valueName("K");
  command
      .addOption("--guided-alignment", options->guidedAlignment,
                 "let training guide a cross-attention by word alignments: the links that it takes for each target "
                 "token at most (`train --guided-alignment`); 0: none")
      .within(0, 64)
      .showDefault()
      .valueName("K");
  command
      .addOption("--guided-alignment-layer", options->guidedLayer,
                 "the decoder's layer whose cross-attention is guided: last, which gives the alignments of "
                 "`translate --alignments`, or a number from 1")
      .showDefault();
  command
      .addOption("--guided-alignment-head", options->guidedHead,
                 "its head that is guided: mean, the average of all, or a number from 1")
      .showDefault();
  command.setSubject("Optimization");
  options->noFuse.addTo(command);
  options->recompute.addTo(command);
  command.setSubject("Output");
  command
      .addOption(
          "--emit", options->emit,
          "exe; lib: a library to call from C (libNAME.so, libNAME.a and xfc.h for -o NAME); or stop early: obj, "
          "llvm, ptx, or a phase listed by `xfc phases`")
      .showDefault();
  command.setSubject("Debugging");
  command.addOption("--dump-ir-dir", options->pipeline.dumpDirectory,
                    "write to this folder what every pass changed, and a reproducer if one fails");
  command
      .addOption(
          "--cache", options->pipeline.cacheDirectory,
          "cache the machine code of kernels in this folder, and reuse it for kernels that have not changed; those not "
          "used for a week, and the oldest beyond 1 GiB, are removed, and you may remove anything at any time")
      .fromEnvironment("XFC_CACHE")
      .subject("Output");
  command.addFlag("--check-bounds", options->pipeline.checkBounds,
                  "generate CPU code that checks every load and store, and stops with a message at one outside its "
                  "operands: about ten times slower, for debugging the compiler");
  command.addFlag("--timing", options->timing, "print the time that each stage and pass took");
  command.setWork([options, command] { compile(*options, command); });
}

void addPhases(Command app) {
  Command command = app.addVerb("phases", "list the phases --emit can stop after", "xfc phases");
  command.setWork([] {
    for (const PhaseInfo &info : phases())
      std::printf("%-15s %s\n", info.name, info.summary);
  });
}

} // namespace xfc
