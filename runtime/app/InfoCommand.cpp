// `info`: what this executable is, and the memory a batch will take.
#include "app/Commands.h"
#include "corpora/WordAlignment.h"
#include "decode/Defaults.h"
#include "decode/Flags.h"
#include "decode/LabelLists.h"
#include "decode/ModelOptions.h"
#include "decode/Packed.h"
#include "measure/Peak.h"
#include "plan/GenerationSettings.h"
#include "plan/Memory.h"
#include "plan/Optimizers.h"
#include "plan/Programs.h"
#include "plan/Serialization.h"
#include "train/UpdateFlags.h"
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

namespace xfc {

namespace {

using Json = nlohmann::ordered_json;

struct InfoOptions {
  ModelOptions model;
  int64_t batchTokens = 4096, length = 32, sentences = 64;
  int64_t beam = settingsOfExecutable().generation.beam;
  std::string optimizer = std::string(optimizers().front().name);
  bool json = false, peak = false;
};

int64_t parameterCount(const Module &module) {
  int64_t total = 0;
  for (const Parameter &parameter : module.parameters)
    total += elementsOf(parameter.shape);
  return total;
}

// Workers have one copy of what depends on the weights, and each has what depends on the batch and on its threads.
Json memoryOf(const Module &module, const std::vector<std::string> &programs, const Counts &counts, int threads,
              int workers = 1) {
  Memory memory = predictMemory(module, programs, counts, threads);
  if (workers > 1) {
    memory.arena = memory.held = 0;
    for (const int each : threadsOfWorkers(threads, workers)) {
      const Memory own = predictMemory(module, programs, counts, each);
      memory.arena += own.arena;
      memory.held += own.held;
    }
  }
  Json json;
  for (const MemoryPart &part : memoryParts)
    json[part.key] = memory.*part.bytes;
  json["total_bytes"] = memory.total();
  return json;
}

// The hashes of the vocabularies that the flags name or the executable carries.
Json vocabularyHashes(const ModelOptions &options) {
  ModelFiles files = modelFiles(options);
  Json hashes = Json::array();
  for (const std::string &file : {files.vocabulary, files.targetVocabulary})
    if (!file.empty())
      hashes.push_back(Vocabulary(file, 0).hash());
  if (!hashes.empty())
    return hashes;
  if (std::optional<PackedModel> packed = options.packed.empty() ? packedModel() : packedModel(options.packed))
    for (const std::string &bytes : {packed->vocabulary, packed->targetVocabulary})
      if (!bytes.empty())
        hashes.push_back(Vocabulary::fromBytes(bytes, "the packed vocabulary", 0).hash());
  return hashes;
}

// The memory that batches of the sizes in `options` take, for each use; on a GPU if `threads` is 0.
Json memoryFor(const Module &module, const InfoOptions &options, int threads) {
  Json memory = Json::object();
  const Counts batch = batchCounts(options.batchTokens, options.length);
  if (module.has(programs::lossAndGradients))
    memory["training"] =
        memoryOf(module, {programs::lossAndGradients, findOptimizer(options.optimizer)->program}, batch, threads);
  for (const std::string &type : module.computeTypes(programs::decodeStep))
    memory[type == module.compute ? "decoding" : "decoding in " + type] =
        memoryOf(module, {module.variant(programs::encode, type), module.stepProgram(options.beam, type)->name},
                 decodeCounts(module, options.sentences, options.length, product({options.sentences, options.beam}),
                              options.length),
                 threads, threads > 0 ? options.model.workers : 1);
  if (module.has(programs::forward))
    memory["forward"] = memoryOf(module, {programs::forward}, batch, threads);
  return memory;
}

// The settings under their names in model.json.
Json describe(const Generation &generation) {
  Json settings = Json::object();
  for (const GenerationSetting &setting : generationSettings())
    settings[setting.name] = valueOf(setting, generation);
  return settings;
}

// The type in which each decoding type keeps keys and values.
Json cacheTypes(const Module &module) {
  Json types = Json::object();
  for (const std::string &type : module.computeTypes(programs::decodeStep))
    types[type] = cacheType(module, type);
  return types;
}

// What the machine multiplies and copies at most, with the instructions of the image that runs here.
Json peakOf(const Engine &engine, int threads) {
  ThreadPool pool(threads);
  const Peak peak = measurePeak(pool, engine.device().name());
  return {{"gflops", peak.gflops},
          {"bf16_gflops", peak.bf16},
          {"int8_gops", peak.int8},
          {"read_gb_per_second", peak.readBandwidth},
          {"copy_gb_per_second", peak.copyBandwidth}};
}

// Needs neither a GPU nor its driver: what a GPU would hold follows from its plan.
Json describe(const InfoOptions &options) {
  Json targets = Json::array(), cpus = Json::array(), gpus = Json::array(), programs = Json::array(),
       memory = Json::object();
  for (const xfc_image *const *image = xfc_images; *image; ++image)
    cpus.push_back((*image)->cpu);
  for (const xfc_device_image *const *image = xfc_device_images; *image; ++image)
    gpus.push_back((*image)->arch);
  std::optional<Engine> engine;
  std::optional<Module> gpuPlan;
  if (!cpus.empty() || gpus.empty()) {
    targets.push_back("cpu");
    engine.emplace(1);
  }
  if (!gpus.empty()) {
    targets.push_back("cuda");
    gpuPlan = deserialize(xfc_device_images[0]->plan, xfc_device_images[0]->plan_size);
  }
  const Module &module = engine ? engine->module() : *gpuPlan;
  int threads = threadsGiven(options.model.threads);
  for (const std::string &program : module.programs.names())
    programs.push_back(program);
  if (engine)
    memory = memoryFor(module, options, threads);
  if (gpuPlan) {
    const Json onGpu = memoryFor(*gpuPlan, options, 0);
    for (const auto &[what, bytes] : onGpu.items())
      memory[what + " on a GPU"] = bytes;
  }
  if (options.peak && !engine)
    throw Error("--peak: measures the CPU, but this executable has code for GPUs alone; leave it out");
  const int64_t parameters = parameterCount(module);
  return {{"model", module.model},
          {"model_hash", module.hash},
          {"compiler", "xfc " XFC_VERSION},
          {"targets", targets},
          {"cpus", cpus},
          {"cpu", engine ? Json(engine->device().name()) : Json()},
          {"cuda_archs", gpus},
          {"type", module.compute},
          {"decode_types", module.computeTypes(programs::decodeStep)},
          {"cache_types", cacheTypes(module)},
          {"teacher_tokens", teacherTokens(module)},
          {"alignment_links", linksPerLabel(module)},
          {"parameters", parameters},
          {"parameter_bytes", parameters * bytesOf(module.type)},
          {"source_vocab", module.sourceVocab},
          {"target_vocab", module.targetVocab},
          {"max_length", module.maxLength},
          {"generation", module.targetVocab > 0 ? describe(module.settings.generation) : Json()},
          {"training", module.targetVocab > 0 && module.has(programs::lossAndGradients)
                           ? Json{{"label_smoothing", module.settings.training.labelSmoothing}}
                           : Json()},
          {"vocabulary_hashes", vocabularyHashes(options.model)},
          {"programs", programs},
          {"peak", options.peak ? peakOf(*engine, threads) : Json()},
          {"batch",
           {{"tokens", options.batchTokens},
            {"length", options.length},
            {"sentences", options.sentences},
            {"beam", options.beam},
            {"optimizer", options.optimizer},
            {"threads", threads},
            {"workers", options.model.workers}}},
          {"memory", memory}};
}

std::string joined(const Json &words) {
  std::string text;
  for (const Json &word : words)
    text += (text.empty() ? "" : ", ") + word.get<std::string>();
  return text;
}

// "bf16", or "f32 (f32), bf16 (bf16, int8)" if not all types that decoding can multiply in keep the same.
std::string keptIn(const Json &info) {
  std::vector<std::pair<std::string, Json>> kept; // and the types that keep this
  for (const Json &type : info["decode_types"]) {
    const auto cache = info["cache_types"][type.get<std::string>()].get<std::string>();
    const auto same = std::ranges::find(kept, cache, &std::pair<std::string, Json>::first);
    (same == kept.end() ? kept.emplace_back(cache, Json::array()) : *same).second.push_back(type);
  }
  if (kept.size() == 1)
    return kept.front().first;
  std::string text;
  for (const auto &[cache, types] : kept)
    text += (text.empty() ? "" : ", ") + cache + " (" + joined(types) + ")";
  return text;
}

void printText(const Json &info) {
  auto text = [&](const char *key) { return info[key].get<std::string>(); };
  auto number = [&](const char *key) { return static_cast<long long>(info[key].get<int64_t>()); };
  std::string targets;
  if (!info["cpu"].is_null())
    targets = "cpu (" + joined(info["cpus"]) + "; running on " + text("cpu") + ")";
  if (!info["cuda_archs"].empty())
    targets += (targets.empty() ? "" : ", ") + ("cuda (" + joined(info["cuda_archs"])) + ")";
  std::printf("model          %s\nmodel hash     %s\ncompiled by    %s\ntargets        %s\n", text("model").c_str(),
              text("model_hash").c_str(), text("compiler").c_str(), targets.c_str());
  const std::string kept = keptIn(info);
  std::printf("parameters     %lld, %.1f MB\nmultiplies in  %s%s%s%s\n", number("parameters"),
              number("parameter_bytes") / 1e6, text("type").c_str(),
              info["decode_types"].empty() ? "" : "; decodes in ", joined(info["decode_types"]).c_str(),
              kept.empty() ? "" : ("; keeps keys and values in " + kept).c_str());
  if (number("source_vocab") > 0)
    std::printf("vocabulary     %lld source, %lld target tokens\n", number("source_vocab"), number("target_vocab"));
  if (!info["vocabulary_hashes"].empty())
    std::printf("hashes         %s\n", joined(info["vocabulary_hashes"]).c_str());
  if (number("max_length") > 0)
    std::printf("max length     %lld tokens\n", number("max_length"));
  if (number("teacher_tokens") > 0)
    std::printf("distillation   %lld tokens of a teacher for each label\n", number("teacher_tokens"));
  if (number("alignment_links") > 0)
    std::printf("alignments     %lld links for each target token\n", number("alignment_links"));
  std::printf("programs       %s\n", joined(info["programs"]).c_str());
  if (!info["generation"].is_null()) {
    std::string settings;
    const Json usual = describe(Generation());
    for (const auto &[key, value] : info["generation"].items())
      if (key == "beam" || value != usual[key])
        settings +=
            (settings.empty() ? "" : ", ") + key + " " + (value.is_string() ? value.get<std::string>() : value.dump());
    std::printf("searches with  %s\n", settings.c_str());
  }
  if (!info["training"].is_null())
    std::printf("trains with    label_smoothing %g\n", info["training"]["label_smoothing"].get<double>());
  const Json &batch = info["batch"], &peak = info["peak"];
  auto of = [&](const char *key) { return static_cast<long long>(batch[key].get<int64_t>()); };
  if (!peak.is_null()) {
    auto rate = [&](const char *key) { return peak[key].get<double>(); };
    std::printf(
        "peak           %.1f GFLOP/s in f32 by multiply-adds, %.1f in bf16%s, %.1f in int8, copies at %.1f GB/s "
        "(%lld threads)\n",
        rate("gflops"), rate("bf16_gflops"), text("cpu").find("+amx") == std::string::npos ? "" : " by tiles",
        rate("int8_gops"), rate("copy_gb_per_second"), of("threads"));
  }
  for (const auto &[what, memory] : info["memory"].items()) {
    auto megabytes = [&, &memory = memory](const char *key) { return memory[key].get<int64_t>() / 1e6; };
    std::printf("\n%s needs %.1f MB: ", what.c_str(), megabytes("total_bytes"));
    if (what.starts_with("decoding"))
      std::printf("%lld sentences of %lld tokens, beam %lld%s", of("sentences"), of("length"), of("beam"),
                  of("workers") > 1 ? (", for each of " + std::to_string(of("workers")) + " workers").c_str() : "");
    else
      std::printf("batches of %lld tokens in sentences of %lld", of("tokens"), of("length"));
    if (what.starts_with("training"))
      std::printf(", optimizer %s", batch["optimizer"].get<std::string>().c_str());
    if (memory["batches_bytes"].get<int64_t>() == 0) // memory of the host
      std::printf(", %lld threads", of("threads"));
    std::printf("\n");
    for (const MemoryPart &part : memoryParts)
      if (memory[part.key].get<int64_t>() > 0)
        std::printf("  %-15s %10.1f MB\n", part.name, megabytes(part.key));
  }
}

void run(const InfoOptions &options) {
  Json info = describe(options);
  if (options.json)
    std::printf("%s\n", info.dump().c_str());
  else
    printText(info);
}

} // namespace

void addInfo(Command app) {
  Command command =
      app.addVerb("info", "show the model, what it was compiled for, and the memory that a batch will take",
                  "translator info --batch-tokens 8192");
  auto options = std::make_shared<InfoOptions>();
  options->model.addPathTo(command,
                           "folder written by train, or executable that `pack` wrote, for the hash of its vocabulary");
  options->model.addVocabularyTo(command, false);
  command.setSubject("Batches");
  command.addOption("--batch-tokens", options->batchTokens, "source and target tokens of a training batch")
      .positive()
      .showDefault();
  command.addOption("--length", options->length, "tokens per sentence").positive().showDefault();
  command.addOption("--sentences", options->sentences, "sentences decoded together").positive().showDefault();
  addBeam(command, options->beam);
  addOptimizer(command, options->optimizer, "optimization method of the training whose memory is computed");
  command.setSubject("Options");
  addThreads(command, options->model.threads);
  addWorkers(command, options->model.workers);
  addQuiet(command, options->model.quiet);
  command.addFlag("--peak", options->peak,
                  "also measure what this CPU multiplies at most, in each type, and how fast it copies memory");
  command.addFlag("--json", options->json, "one JSON object");
  command.setWork([options] { run(*options); });
}

} // namespace xfc
