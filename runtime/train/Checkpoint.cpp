// What a training run leaves in its folder, and how it goes on from there.
#include "train/Checkpoint.h"
#include "engine/Safetensors.h"
#include "support/Files.h"
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace xfc {
namespace fs = std::filesystem;
namespace {

constexpr const char *stateFile = "state/training.safetensors";

int64_t elements(const Parameter &parameter) {
  int64_t count = 1;
  for (int64_t size : parameter.shape)
    count *= size;
  return count;
}

template <typename Use> void forEachMoment(Engine &engine, Use use) {
  int64_t bytes = bytesOf(engine.module().type);
  for (const Parameter &parameter : engine.module().parameters) {
    use("moment1." + parameter.name, parameter, static_cast<uint8_t *>(engine.moments1()) + parameter.offset * bytes,
        elements(parameter) * bytes);
    use("moment2." + parameter.name, parameter, static_cast<uint8_t *>(engine.moments2()) + parameter.offset * bytes,
        elements(parameter) * bytes);
  }
}

std::string text(const Progress &p) {
  nlohmann::ordered_json json = {{"step", p.step},
                                 {"epoch", p.position.epoch},
                                 {"batch", p.position.batch},
                                 {"seed", p.seed},
                                 {"data", p.data},
                                 {"batch_tokens", p.batchTokens},
                                 {"accumulate", p.accumulate},
                                 {"seconds", p.seconds},
                                 {"best_step", p.bestStep},
                                 {"validated_step", p.validatedStep},
                                 {"without_improvement", p.withoutImprovement}};
  if (p.bestStep > 0)
    json["best_loss"] = p.bestLoss;
  return json.dump();
}

Progress progressOf(const std::string &text) {
  nlohmann::json json = nlohmann::json::parse(text);
  Progress p;
  p.step = json.at("step");
  p.position = {json.at("epoch"), json.at("batch")};
  p.seed = json.at("seed");
  p.data = json.at("data");
  p.batchTokens = json.at("batch_tokens");
  p.accumulate = json.at("accumulate");
  p.seconds = json.at("seconds");
  p.bestStep = json.at("best_step");
  p.validatedStep = json.at("validated_step");
  p.bestLoss = json.value("best_loss", p.bestLoss);
  p.withoutImprovement = json.at("without_improvement");
  return p;
}

} // namespace

std::string RunFolder::keptFile(int64_t step) const { return "step-" + std::to_string(step) + ".safetensors"; }

std::vector<int64_t> RunFolder::keptSteps() const {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator(path, error)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".safetensors"))
      steps.push_back(std::strtoll(name.c_str() + 5, nullptr, 10));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

bool RunFolder::isFolder() const {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool RunFolder::empty() const {
  std::error_code error;
  return !fs::exists(path, error) || fs::is_empty(path, error);
}

void RunFolder::removePartial() const {
  std::error_code error;
  for (const std::string &folder : {path, file("state")})
    for (const fs::directory_entry &entry : fs::directory_iterator(folder, error))
      if (entry.path().filename().string().find(".partial.") != std::string::npos)
        fs::remove(entry.path(), error);
}

bool RunFolder::hasState() const { return exists(file(stateFile)); }

void RunFolder::saveState(Engine &engine, const Progress &progress) const {
  TensorViews tensors = weights(engine);
  for (TensorView &tensor : tensors)
    tensor.name = "weights." + tensor.name;
  const char *type = engine.module().type == DType::F64 ? "F64" : "F32";
  forEachMoment(engine, [&](const std::string &name, const Parameter &parameter, uint8_t *data, int64_t bytes) {
    tensors.push_back(
        {name, type, parameter.shape, {reinterpret_cast<const char *>(data), static_cast<size_t>(bytes)}});
  });
  makeFolder(file("state"));
  writeSafetensors(file(stateFile), tensors, {{"model", engine.module().hash}, {"progress", text(progress)}});
}

Progress RunFolder::loadState(Engine &engine) const {
  std::string name = file(stateFile);
  std::map<std::string, std::string> metadata;
  Tensors tensors = readSafetensors(name, &metadata);
  if (metadata["model"] != engine.module().hash)
    throw Error(name + ": this run was begun with another model; resume it with the executable it was begun with, or "
                       "train into a new --out");
  Tensors parameters;
  for (auto &[key, tensor] : tensors)
    if (key.starts_with("weights."))
      parameters[key.substr(8)] = std::move(tensor);
  loadWeights(engine, viewsOf(parameters), name);
  forEachMoment(engine, [&](const std::string &key, const Parameter &, uint8_t *data, int64_t bytes) {
    auto found = tensors.find(key);
    if (found == tensors.end() || static_cast<int64_t>(found->second.bytes.size()) != bytes)
      throw Error(name + ": " + key +
                  " is missing or of another size; the file is damaged, begin again in a new --out");
    std::memcpy(data, found->second.bytes.data(), bytes);
  });
  engine.momentsChanged();
  try {
    return progressOf(metadata["progress"]);
  } catch (const nlohmann::json::exception &) {
    throw Error(name + ": the progress it should hold cannot be read; the file is damaged, begin again in a new --out");
  }
}

void RunFolder::saveWeights(Engine &engine, const std::string &name, int64_t step) const {
  writeSafetensors(file(name), weights(engine),
                   {{"format", "xfc"}, {"model", engine.module().model}, {"step", std::to_string(step)}});
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

void RunFolder::loadAverage(Engine &engine, int64_t count) const {
  std::vector<int64_t> steps = keptSteps();
  if (static_cast<int64_t>(steps.size()) > count)
    steps.erase(steps.begin(), steps.end() - count);
  std::vector<double> sum(engine.module().parameterElements);
  bool f64 = engine.module().type == DType::F64;
  for (int64_t step : steps) {
    loadWeights(engine, file(keptFile(step)));
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] += f64 ? static_cast<double *>(engine.parameters())[i] : static_cast<float *>(engine.parameters())[i];
  }
  for (size_t i = 0; i < sum.size(); ++i) {
    double mean = sum[i] / static_cast<double>(steps.size());
    if (f64)
      static_cast<double *>(engine.parameters())[i] = mean;
    else
      static_cast<float *>(engine.parameters())[i] = static_cast<float>(mean);
  }
  engine.parametersChanged();
}

} // namespace xfc
