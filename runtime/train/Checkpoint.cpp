// Saves a training run's state and weights in its folder, and resumes from there.
#include "train/Checkpoint.h"
#include "engine/Identity.h"
#include "engine/Safetensors.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/Json.h"
#include "support/MappedFile.h"
#include "tensors/Numbers.h"
#include "vocabularies/Vocabulary.h"
#include "vocabularies/VocabularyIdentity.h"
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

namespace xfc {
namespace fs = std::filesystem;
namespace {

constexpr const char *stateFile = "state/training.safetensors", *previousFile = "state/previous.safetensors";
constexpr const char *lockFile = "train.lock";

} // namespace

// The sign that turns a value of the metric into one of which smaller is better.
static double signOf(const std::string &metric) { return metric == "loss" || metric == "ter" ? 1 : -1; }

std::string textOf(const Progress &p) {
  nlohmann::ordered_json json = {{"step", p.step},
                                 {"epoch", p.position.epoch},
                                 {"batch", p.position.batch},
                                 {"pool", p.position.pool},
                                 {"seed", p.facts.seed},
                                 {"data", p.facts.data},
                                 {"batch_tokens", p.facts.batchTokens},
                                 {"accumulate", p.facts.accumulate},
                                 {"seconds", p.seconds},
                                 {"best_step", p.bestStep},
                                 {"validated_step", p.validatedStep},
                                 {"without_improvement", p.withoutImprovement},
                                 {"averaged_step", p.averagedStep},
                                 {"records", p.records}};
  if (p.facts.metric != "loss")
    json["metric"] = p.facts.metric;
  if (p.bestStep > 0)
    json["best_" + p.facts.metric] = signOf(p.facts.metric) * p.best;
  for (const KeptBest &kept : p.keptBest)
    json["kept_best"].push_back({kept.step, signOf(p.facts.metric) * kept.value});
  if (!p.facts.groups.empty())
    json["groups"] = p.facts.groups;
  if (p.rateScale != 1)
    json["rate_scale"] = p.rateScale;
  if (!p.facts.mixture.empty())
    json["mixture"] = p.facts.mixture;
  if (!p.facts.sampling.empty())
    json["sampling"] = p.facts.sampling;
  if (p.facts.validation != 0)
    json["validation"] = p.facts.validation;
  return json.dump();
}

Progress progressOf(const std::string &text) try {
  const nlohmann::json json = parseJson(text, "progress");
  auto integerOf = [](const nlohmann::json &value, const char *key, int64_t least) {
    constexpr int64_t most = int64_t(1) << 53; // so that sums of a few do not overflow
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(most)) ||
        value.get<int64_t>() < least || value.get<int64_t>() > most)
      throw std::out_of_range(key);
    return value.get<int64_t>();
  };
  auto integer = [&](const char *key, int64_t least) { return integerOf(json.at(key), key, least); };
  auto bits = [&](const char *key) {
    if (!json.at(key).is_number_unsigned())
      throw std::out_of_range(key);
    return json.at(key).get<uint64_t>();
  };
  Progress p;
  p.step = integer("step", 0);
  constexpr int64_t mostEpochs = int64_t(1) << 31; // times an epoch's pairs, which may be that many too
  p.position = {integer("epoch", 0), integer("batch", 0), json.contains("pool") ? integer("pool", 0) : -1};
  p.facts.seed = bits("seed");
  p.facts.data = bits("data");
  p.facts.batchTokens = integer("batch_tokens", 1);
  p.facts.accumulate = integer("accumulate", 1);
  p.seconds = json.at("seconds").get<double>();
  p.bestStep = integer("best_step", 0);
  p.validatedStep = integer("validated_step", -1);
  p.facts.metric = json.value("metric", p.facts.metric);
  if (p.facts.metric != "loss" && p.facts.metric != "bleu" && p.facts.metric != "chrf" && p.facts.metric != "ter")
    throw std::out_of_range("metric");
  p.best = signOf(p.facts.metric) * json.value("best_" + p.facts.metric, signOf(p.facts.metric) * p.best);
  if (json.contains("kept_best"))
    for (const nlohmann::json &kept : json["kept_best"]) {
      p.keptBest.push_back({integerOf(kept.at(0), "kept_best", 0), signOf(p.facts.metric) * kept.at(1).get<double>()});
      if (p.keptBest.back().step > p.step)
        throw std::out_of_range("kept_best");
    }
  p.withoutImprovement = integer("without_improvement", 0);
  p.averagedStep = json.contains("averaged_step") ? integer("averaged_step", -1) : -1;
  p.records = json.contains("records") ? integer("records", -1) : -1;
  p.facts.groups = json.value("groups", "");
  p.facts.mixture = json.value("mixture", "");
  p.facts.sampling = json.value("sampling", "");
  p.facts.validation = json.contains("validation") ? bits("validation") : 0;
  p.rateScale = json.value("rate_scale", 1.0);
  if (p.position.epoch > mostEpochs)
    throw std::out_of_range("epoch");
  if (!(p.rateScale > 0 && p.rateScale <= 1))
    throw std::out_of_range("rate_scale");
  if (!(p.seconds >= 0 && p.seconds < 1e12) || p.bestStep > p.step || p.validatedStep > p.step)
    throw std::out_of_range("progress");
  return p;
} catch (const std::exception &) { // of the JSON library, or std::out_of_range
  throw Error("the progress it should hold cannot be read");
}

Metadata identityOf(const TranslationModel &model) {
  Metadata identity = identityOf(model.engine->module());
  for (const auto &[key, vocabulary] :
       {std::pair{sourceVocabularyKey, model.source}, {targetVocabularyKey, model.target}})
    if (!vocabulary->bytes().empty())
      identity[key] = vocabulary->hash();
  return identity;
}

void saveWeights(Engine &engine, const std::string &file, Metadata identity, int64_t step) {
  identity["step"] = std::to_string(step);
  writeSafetensors(file, weights(engine), identity, &engine.pool());
}

std::string RunFolder::keptFile(int64_t step) const { return "step-" + std::to_string(step) + ".safetensors"; }

std::string RunFolder::bestFile(int64_t step) const { return "best-" + std::to_string(step) + ".safetensors"; }

std::vector<int64_t> RunFolder::stepsOf(std::string (RunFolder::*fileOf)(int64_t) const) const {
  std::vector<int64_t> steps;
  for (const std::string &name : namesIn(path))
    if (const size_t hyphen = name.find('-'); hyphen != std::string::npos)
      if (int64_t step = std::strtoll(name.c_str() + hyphen + 1, nullptr, 10); name == (this->*fileOf)(step))
        steps.push_back(step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::vector<int64_t> RunFolder::keptSteps() const { return stepsOf(&RunFolder::keptFile); }

bool RunFolder::isFolder() const {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool RunFolder::empty() const {
  const std::vector<std::string> names = namesIn(path);
  return std::all_of(names.begin(), names.end(), [](const std::string &name) { return name == lockFile; });
}

void RunFolder::lock() {
  if (!held)
    held.emplace(file(lockFile), path + ": another training run uses this folder: ");
}

bool RunFolder::keeps(const std::string &other) const {
  const fs::path within = fs::path(canonicalPath(other)).lexically_relative(canonicalPath(path));
  if (within.empty() || *within.begin() == "..")
    return false;
  const std::string name = within.string();
  static const std::set<std::string> kept = {"config.json",  "data.json",      "distilled.tsv",
                                             "taught.pairs", folderVocabulary, folderTargetVocabulary,
                                             lockFile,       eventsFile};
  return *within.begin() == "state" || name.ends_with(".safetensors") || kept.contains(name);
}

void RunFolder::checkFor(bool resume) const {
  if (!resume && !empty())
    throw Error(path + ": the folder is not empty; continue its run with --resume, or train into a new folder");
  if (resume && !hasState())
    if (const std::string name = anyWeights(); !name.empty())
      throw Error(path + ": " + name +
                  " is there, but no state/ to continue from; train into a new folder, or move the weights away to "
                  "start over in this one");
}

void RunFolder::removePartial() const {
  const auto any = [](std::string_view) { return true; }; // a run and its teacher write files of many names
  removeAbandoned(path, any);
  removeAbandoned(file("state"), any);
}

bool RunFolder::hasState() const { return exists(file(stateFile)) || exists(file(previousFile)); }

std::string RunFolder::anyWeights() const {
  for (const std::string &name : namesIn(path))
    if (name.ends_with(".safetensors"))
      return name;
  return "";
}

void RunFolder::saveState(States &states, const Progress &progress) const {
  const std::vector<States::Tensor> &tensors = states.tensors();
  if (!states.ranksOf().isFirst()) {
    for (int pass = 0; states.areShared() && pass < passesOfWriting; ++pass)
      for (const States::Tensor &tensor : tensors)
        states.gather(tensor);
    return;
  }
  Engine &engine = states.engineOf();
  makeFolder(file("state"));
  Metadata metadata = identity;
  metadata["progress"] = textOf(progress);
  TensorViews views = weightsInState(engine);
  const size_t first = views.size();
  for (const States::Tensor &tensor : tensors)
    views.push_back({tensor.name, elementTypeOf(tensor.type).inTensors, tensor.part.shape, states.placeOf(tensor)});
  const auto bring = [&](size_t i) {
    if (i >= first)
      states.gather(tensors[i - first]);
  };
  writeSafetensors(file(stateFile), views, metadata, &engine.pool(), file(previousFile),
                   states.areShared() ? bring : std::function<void(size_t)>());
}

// Whether a file may hold a state's tensor as numbers of this type: its own, or those of an executable that keeps
// moments in the other one (`xfc compile --moment-type`).
static bool canHold(const States::Tensor &tensor, std::string_view type) {
  return type == elementTypeOf(tensor.type).inTensors ||
         (mayBeNarrow(tensor.state) && tensor.type != DType::F64 && (type == "F32" || type == "BF16"));
}

// Numbers as those of a state, each rounded to the nearest.
static std::string converted(const TensorView &stored, const States::Tensor &tensor) {
  const int64_t count = elementsOf(stored.shape);
  std::string bytes(static_cast<size_t>(count * bytesOf(tensor.type)), '\0');
  eachNumber(stored, 0, count, [&](int64_t i, double number) { storeNumber(number, tensor.type, bytes.data(), i); });
  return bytes;
}

Progress RunFolder::loadState(Engine &engine, const std::string &name) {
  Metadata metadata;
  MappedFile contents(name);
  const TensorViews tensors = parseSafetensors(contents.contents(), name, &metadata);
  // The earliest states stored the model's hash as "model".
  const std::string &model = metadata[metadata.contains("model_hash") ? "model_hash" : "model"];
  if (model != engine.module().hash)
    throw Error(name + ": this run was started with another model (hash " + model.substr(0, 12) +
                ", this executable's is " + engine.module().hash.substr(0, 12) +
                "); resume it with the executable it was started with, or train into a new --out");
  for (const auto &[key, hash] : identity)
    if (auto theirs = metadata.find(key);
        key.ends_with("_vocabulary") && theirs != metadata.end() && theirs->second != hash)
      throw Error(name + ": this run was started with another vocabulary (" + key + " " + theirs->second +
                  ", the one given is " + hash + "); give that one, or train into a new --out");
  verifyChecksums(&engine.pool(), tensors, metadata, name);
  TensorViews parameters;
  std::map<std::string_view, const TensorView *> byName;
  for (const TensorView &tensor : tensors)
    if (tensor.name.starts_with("weights."))
      parameters.push_back({tensor.name.substr(8), tensor.type, tensor.shape, tensor.bytes});
    else
      byName[tensor.name] = &tensor;
  const auto isWhose = [&](const Optimizer &candidate) {
    const Parameter &first = engine.module().parameters.front();
    return std::all_of(optimizerStates().begin(), optimizerStates().end(), [&](std::string_view state) {
      const bool kept = std::ranges::count(candidate.states, state) > 0 && shapeOfState(state, first.shape);
      return kept == byName.contains(std::string(state) + "." + first.name);
    });
  };
  if (!isWhose(*optimizer))
    for (const Optimizer &other : optimizers())
      if (isWhose(other))
        throw Error(name + ": this run was started with another optimizer (--optimizer " + std::string(other.name) +
                    (other.averages == optimizer->averages ? ""
                     : other.averages                      ? " with --ema"
                                                           : " without --ema") +
                    "); resume it with that, or train into a new --out");
  loadWeights(engine, parameters, name);
  loadedStates.clear();
  TensorViews others; // in another type
  for (const States::Tensor &tensor : States::tensorsOf(engine.module(), *optimizer)) {
    const auto found = byName.find(tensor.name);
    if (found == byName.end() || found->second->shape != tensor.part.shape || !canHold(tensor, found->second->type))
      throw Error(name + ": " + tensor.name +
                  " is missing, or of another shape or type; the file is damaged; start again in a new --out");
    loadedStates[tensor.name] = *found->second;
    if (found->second->type != elementTypeOf(tensor.type).inTensors)
      others.push_back(*found->second);
  }
  if (const TensorView *bad = notFinite(&engine.pool(), others))
    throw Error(name + ": '" + bad->name + "' holds NaN or infinity; the file is damaged; start again in a new --out");
  try {
    const Progress progress = progressOf(metadata["progress"]);
    loaded.emplace(std::move(contents));
    return progress;
  } catch (const Error &error) {
    throw Error(name + ": " + error.what() + "; the file is damaged; start again in a new --out");
  }
}

void RunFolder::shareStates(States &states) {
  Ranks &ranks = states.ranksOf();
  if (!ranks.largest(loaded.has_value()))
    return;
  for (const States::Tensor &tensor : states.tensors()) {
    if (!ranks.isFirst()) {
      states.scatter(tensor, {});
      continue;
    }
    const TensorView &stored = loadedStates.at(tensor.name);
    if (stored.type == elementTypeOf(tensor.type).inTensors)
      states.scatter(tensor, stored.bytes);
    else
      states.scatter(tensor, converted(stored, tensor));
  }
  states.engineOf().statesChanged();
  loadedStates.clear();
  loaded.reset();
}

Progress RunFolder::loadState(Engine &engine, std::string &said) {
  try {
    return loadState(engine, file(stateFile));
  } catch (const Error &error) {
    if (!exists(file(previousFile)))
      throw;
    try {
      const Progress progress = loadState(engine, file(previousFile));
      said = std::string("warning: ") + error.what() + "; the state before it is intact and is used instead";
      return progress;
    } catch (const Error &) {
      throw error;
    }
  }
}

int64_t RunFolder::revertState() const {
  if (!exists(file(previousFile)))
    return -1;
  Metadata metadata;
  int64_t step = -1;
  {
    const MappedFile contents(file(previousFile));
    parseSafetensors(contents.contents(), file(previousFile), &metadata);
    step = progressOf(metadata["progress"]).step;
  }
  fs::rename(file(previousFile), file(stateFile));
  return step;
}

void shareWeights(Engine &engine, Ranks &ranks) {
  if (ranks.size() == 1)
    return;
  for (const TensorView &tensor : weights(engine))
    ranks.broadcast(const_cast<char *>(tensor.bytes.data()), static_cast<int64_t>(tensor.bytes.size()));
  engine.parametersChanged();
}

void RunFolder::saveWeights(Engine &engine, const std::string &name, int64_t step) const {
  xfc::saveWeights(engine, file(name), identity, step);
}

void RunFolder::prune(int64_t count, int64_t step) const {
  std::vector<int64_t> steps = keptSteps();
  int64_t valid = std::upper_bound(steps.begin(), steps.end(), step) - steps.begin();
  for (int64_t i = 0; i < static_cast<int64_t>(steps.size()); ++i)
    if (i >= valid || i < valid - count) {
      std::error_code error;
      fs::remove(file(keptFile(steps[i])), error);
    }
}

void RunFolder::pruneBest(std::span<const KeptBest> kept) const {
  for (int64_t step : stepsOf(&RunFolder::bestFile))
    if (std::ranges::find(kept, step, &KeptBest::step) == kept.end()) {
      std::error_code error;
      fs::remove(file(bestFile(step)), error);
    }
}

void RunFolder::loadAverage(Engine &engine, int64_t count) const {
  std::vector<int64_t> steps = keptSteps();
  if (static_cast<int64_t>(steps.size()) > count)
    steps.erase(steps.begin(), steps.end() - count);
  std::vector<std::string> files;
  files.reserve(steps.size());
  for (int64_t step : steps)
    files.push_back(file(keptFile(step)));
  loadMean(engine, files);
}

} // namespace xfc
