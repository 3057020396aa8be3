// `forward`: a rectangular batch from a file through the model, for comparing it with other implementations.
#include "app/Commands.h"
#include "decode/ModelOptions.h"
#include "engine/Batch.h"
#include "engine/Safetensors.h"
#include "plan/Programs.h"
#include "support/CommandLine.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace xfc {

namespace {

struct ForwardOptions {
  ModelOptions model;
  std::string input, output;
  bool attention = false, gradients = false;
  double smoothing = 0;
};

std::string textOf(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// What IN holds for one stack: ids, or rows of numbers for a stack without an embedding.
struct Rectangle {
  int64_t batch = 0, columns = 0;
  std::vector<int32_t> ids;    // [batch, columns]
  std::vector<double> numbers; // [batch, columns, features], if the stack reads numbers
  bool isPad(int64_t i, int32_t pad) const { return !ids.empty() && ids[i] == pad; }
};

class Input {
public:
  explicit Input(const std::string &file) : file(file), tensors(readSafetensors(file)) {}
  bool has(const std::string &name) const { return tensors.count(name) != 0; }

  Rectangle ids(const std::string &name, int64_t vocabulary) const {
    const StoredTensor &tensor = find(name, "int32 [batch, tokens]");
    if ((tensor.type != "I32" && tensor.type != "I64") || tensor.shape.size() != 2)
      fail(name, tensor, "int32 [batch, tokens]");
    Rectangle result{tensor.shape[0], tensor.shape[1], {}, {}};
    for (int64_t i = 0; i < result.batch * result.columns; ++i) {
      int64_t id = tensor.type == "I64" ? value<int64_t>(tensor, i) : value<int32_t>(tensor, i);
      if (id < 0 || id >= vocabulary)
        throw Error(file + ": '" + name + "'[" + std::to_string(i / result.columns) + ", " +
                    std::to_string(i % result.columns) + "] is " + std::to_string(id) +
                    ", the vocabulary has the ids 0 to " + std::to_string(vocabulary - 1));
      result.ids.push_back(static_cast<int32_t>(id));
    }
    return result;
  }

  Rectangle numbers(const std::string &name, int64_t features) const {
    const std::string expected = "f32 [batch, tokens, " + std::to_string(features) + "]";
    const StoredTensor &tensor = find(name, expected);
    if ((tensor.type != "F32" && tensor.type != "F64") || tensor.shape.size() != 3 || tensor.shape[2] != features)
      fail(name, tensor, expected);
    Rectangle result{tensor.shape[0], tensor.shape[1], {}, {}};
    for (int64_t i = 0; i < elementsOf(tensor.shape); ++i) {
      result.numbers.push_back(tensor.type == "F64" ? value<double>(tensor, i) : value<float>(tensor, i));
      if (!std::isfinite(result.numbers.back()))
        throw Error(file + ": '" + name + "' holds NaN or infinity");
    }
    return result;
  }

  [[noreturn]] void fail(const std::string &name, const StoredTensor &tensor, const std::string &expected) const {
    throw Error(file + ": '" + name + "' is " + tensor.type + " " + textOf(tensor.shape) + ", expected " + expected);
  }

private:
  const StoredTensor &find(const std::string &name, const std::string &expected) const {
    auto found = tensors.find(name);
    if (found == tensors.end())
      throw Error(file + ": '" + name + "' is missing; expected " + expected);
    return found->second;
  }
  template <typename T> static T value(const StoredTensor &tensor, int64_t i) {
    T result;
    std::memcpy(&result, tensor.bytes.data() + i * sizeof(T), sizeof(T));
    return result;
  }

  std::string file;
  Tensors tensors;
};

// Whether some attention of any program has these queries and keys, and neither mask.
bool hasUnmasked(const Module &module, int relation, bool orCausal = false) {
  for (const Program &program : module.programs)
    for (const Step &step : program.steps)
      if (step.keys == XFC_KEYS(relation, 0, 0) || (orCausal && step.keys == XFC_KEYS(relation, 0, 1)))
        return true;
  return false;
}

// The rectangular input as ragged rows, and ragged results as rectangles.
class Forward {
public:
  Forward(Engine &engine, const Input &input) : engine(engine), module(engine.module()) {
    source = read(input, "source", module.sourceVocab, module.sourceDim, module.maxLength);
    if (module.hasDecoder)
      target = read(input, "target", module.targetVocab, module.targetDim, module.maxTargetLength);
    if (module.hasDecoder && target.batch != source.batch)
      throw Error("'source' has " + std::to_string(source.batch) + " sentences, 'target' " +
                  std::to_string(target.batch));
    if (module.hasDecoder && input.has("labels")) {
      labels = input.ids("labels", module.targetVocab);
      if (labels.batch != target.batch || labels.columns != target.columns)
        throw Error("'labels' is " + textOf({labels.batch, labels.columns}) + ", expected the shape of 'target', " +
                    textOf({target.batch, target.columns}));
    }

    // Without its padding, an attention sees pads: they must be there.
    bool keepSource = hasUnmasked(module, XFC_SOURCE_SOURCE) || hasUnmasked(module, XFC_TARGET_SOURCE, true);
    bool keepTarget = hasUnmasked(module, XFC_TARGET_TARGET) || hasUnmasked(module, XFC_TARGET_SOURCE);
    makeRows(source, keepSource, nullptr, sourceIds, sources, sourceNumbers32, sourceNumbers64);
    if (module.hasDecoder)
      makeRows(target, keepTarget, &labels, targetIds, targets, targetNumbers32, targetNumbers64);
    batch.assign(sources, targets, module.pad, true);
  }

  void run(bool withAttention) {
    const char *program =
        withAttention && engine.has(programs::forwardAttention) ? programs::forwardAttention : programs::forward;
    engine.run(program, batch.shape(), inputs());
    for (const Output &output : module.find(program)->outputs) {
      if (output.keys >= 0)
        results[output.name] = pairsResult(engine.output(program, output.name));
      else
        results[output.name] = rowsResult(engine.output(program, output.name));
    }
  }

  void runGradients(double smoothing) {
    if (!engine.has(programs::lossAndGradients))
      throw Error("--gradients: model '" + module.model +
                  "' has no gradients: that takes a decoder with a head, and an executable compiled with --mode train");
    if (labels.ids.empty())
      throw Error("--gradients: the input holds no 'labels' int32 [batch, tokens]");
    std::vector<int32_t> says; // one a row; -1 counts nowhere
    int64_t counted = 0;
    for (int64_t b = 0; b < target.batch; ++b)
      for (int64_t t = 0; t < targets[b].length; ++t) {
        int32_t label = labels.ids[b * target.columns + t];
        says.push_back(label == module.pad ? -1 : label);
        counted += label != module.pad;
      }
    if (counted == 0)
      throw Error("--gradients: every label is pad; there is no loss");
    std::vector<uint8_t> smoothingData = scalar(smoothing), scale = scalar(1.0 / static_cast<double>(counted));
    std::vector<Binding> bindings = inputs();
    bindings.insert(
        bindings.end(),
        {{names::labels, says.data()}, {names::smoothing, smoothingData.data()}, {names::lossScale, scale.data()}});
    engine.run(programs::lossAndGradients, batch.shape(), bindings);

    View loss = engine.output(programs::lossAndGradients, names::loss);
    double sum = 0;
    for (size_t row = 0; row < says.size(); ++row)
      sum += loss.at(static_cast<int64_t>(row));
    results[names::loss] = {typeName(), {}, scalar(sum / static_cast<double>(counted))};
    for (const Parameter &parameter : module.parameters) {
      const uint8_t *begin = static_cast<const uint8_t *>(engine.gradients()) + parameter.offset * bytesOf(module.type);
      results[names::gradientOf + parameter.name] = {
          typeName(), parameter.shape,
          std::vector<uint8_t>(begin, begin + elementsOf(parameter.shape) * bytesOf(module.type))};
    }
  }

  Tensors results;

private:
  const char *typeName() const { return module.type == DType::F64 ? "F64" : "F32"; }

  std::vector<uint8_t> scalar(double value) const {
    std::vector<uint8_t> bytes(bytesOf(module.type));
    store(bytes, 0, value);
    return bytes;
  }
  void store(std::vector<uint8_t> &bytes, int64_t i, double value) const {
    float narrow = static_cast<float>(value);
    if (module.type == DType::F64)
      std::memcpy(bytes.data() + i * 8, &value, 8);
    else
      std::memcpy(bytes.data() + i * 4, &narrow, 4);
  }

  static Rectangle read(const Input &input, const std::string &name, int64_t vocabulary, int64_t features,
                        int64_t maxLength) {
    Rectangle result = vocabulary > 0 ? input.ids(name, vocabulary) : input.numbers(name, features);
    if (result.batch == 0 || result.columns == 0)
      throw Error("'" + name + "' is " + textOf({result.batch, result.columns}) +
                  ", expected at least one sentence of one token");
    if (maxLength > 0 && result.columns > maxLength)
      throw Error("'" + name + "' has " + std::to_string(result.columns) +
                  " tokens a sentence, the model's max_length is " + std::to_string(maxLength));
    return result;
  }

  // Drops the columns after a sentence's last id or label that is not pad, unless pads are seen.
  void makeRows(const Rectangle &from, bool keepAll, const Rectangle *labels, std::vector<std::vector<int32_t>> &ids,
                std::vector<Sequence> &sequences, std::vector<float> &narrow, std::vector<double> &wide) {
    for (int64_t b = 0; b < from.batch; ++b) {
      int64_t length = from.columns;
      while (!keepAll && length > 0 && from.isPad(b * from.columns + length - 1, module.pad) &&
             (!labels || labels->ids.empty() || labels->isPad(b * from.columns + length - 1, module.pad)))
        --length;
      ids.emplace_back();
      if (!from.ids.empty())
        ids.back().assign(from.ids.begin() + b * from.columns, from.ids.begin() + b * from.columns + length);
      sequences.push_back({{}, length, static_cast<uint32_t>(b)});
    }
    for (size_t b = 0; b < sequences.size(); ++b)
      sequences[b].ids = ids[b];
    if (module.type == DType::F64)
      wide = from.numbers;
    else
      narrow.assign(from.numbers.begin(), from.numbers.end());
  }

  std::vector<Binding> inputs() {
    auto data = [&](int set, const Rectangle &from, std::vector<float> &narrow, std::vector<double> &wide) -> void * {
      if (from.numbers.empty())
        return batch.ids(set).data();
      return module.type == DType::F64 ? static_cast<void *>(wide.data()) : narrow.data();
    };
    std::vector<Binding> bindings = {{names::source, data(XFC_SOURCE, source, sourceNumbers32, sourceNumbers64)}};
    if (module.hasDecoder)
      bindings.push_back({names::target, data(XFC_TARGET, target, targetNumbers32, targetNumbers64)});
    return bindings;
  }

  // [batch, columns, features]; columns that have no row, and the encoder's output at pads, are 0.
  StoredTensor rowsResult(const View &view) const {
    const Output &output = *view.output;
    const Rectangle &shape = output.set == XFC_SOURCE ? source : target;
    const xfc_rows &rows = batch.shape().sets[output.set];
    const int64_t features = elementsOf(output.shape);
    StoredTensor result{typeName(), {shape.batch, shape.columns, features}, {}};
    result.bytes.assign(shape.batch * shape.columns * features * bytesOf(module.type), 0);
    for (int64_t b = 0; b < shape.batch; ++b)
      for (int64_t row = rows.offsets[b]; row < rows.offsets[b + 1]; ++row) {
        const int64_t column = b * shape.columns + rows.positions[row];
        if (output.name == "encoder_output" && shape.isPad(column, module.pad))
          continue;
        for (int64_t j = 0; j < features; ++j)
          store(result.bytes, column * features + j, view.at(row, j));
      }
    return result;
  }

  // [batch, heads, queries, keys]
  StoredTensor pairsResult(const View &view) const {
    const Output &output = *view.output;
    const int relation = output.keys / 4;
    const int querySet = relation == XFC_SOURCE_SOURCE ? XFC_SOURCE : XFC_TARGET,
              keySet = relation == XFC_TARGET_TARGET ? XFC_TARGET : XFC_SOURCE;
    const Rectangle &queryShape = querySet == XFC_SOURCE ? source : target,
                    &keyShape = keySet == XFC_SOURCE ? source : target;
    const xfc_rows &queries = batch.shape().sets[querySet], &keyRows = batch.shape().sets[keySet];
    const xfc_keys &keys = batch.shape().keys[output.keys];
    const int64_t heads = elementsOf(output.shape);
    StoredTensor result{typeName(), {queryShape.batch, heads, queryShape.columns, keyShape.columns}, {}};
    result.bytes.assign(elementsOf(result.shape) * bytesOf(module.type), 0);
    for (int64_t b = 0; b < queryShape.batch; ++b) {
      const int64_t first = queries.offsets[b], count = queries.offsets[b + 1] - first, width = keys.count[b];
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < count; ++i)
          for (int64_t j = 0; j < keys.limit[first + i]; ++j) {
            const int64_t query = queries.positions[first + i], key = keyRows.positions[keys.keys[keys.begin[b] + j]];
            store(result.bytes, ((b * heads + h) * queryShape.columns + query) * keyShape.columns + key,
                  view.at(0, keys.pair_offsets[b] * heads + (h * count + i) * width + j));
          }
    }
    return result;
  }

  Engine &engine;
  const Module &module;
  Rectangle source, target, labels;
  std::vector<std::vector<int32_t>> sourceIds, targetIds;
  std::vector<Sequence> sources, targets;
  std::vector<float> sourceNumbers32, targetNumbers32;
  std::vector<double> sourceNumbers64, targetNumbers64;
  Batch batch;
};

// A model without parameters needs no weights.
std::unique_ptr<Engine> engineFor(const ModelOptions &options) {
  if (options.model.empty() && options.weights.empty())
    if (auto engine = makeEngine(options.threads, options.device); engine->module().parameters.empty())
      return engine;
  return loadEngine(options);
}

void run(const ForwardOptions &options) {
  Input input(options.input);
  std::unique_ptr<Engine> engine = engineFor(options.model);
  Forward forward(*engine, input);
  forward.run(options.attention);
  if (options.gradients)
    forward.runGradients(options.smoothing);
  writeSafetensors(options.output, viewsOf(forward.results),
                   {{"model", engine->module().model}, {"hash", engine->module().hash}});
}

} // namespace

void addForward(CLI::App &app) {
  CLI::App *command =
      app.add_subcommand("forward", "logits, attention weights and gradients of a batch in a file, for checking");
  auto options = std::make_shared<ForwardOptions>();
  options->model.addTo(*command);
  command->add_option("--input", options->input, "safetensors: source, target, labels [batch, tokens]")->required();
  command->add_option("--output", options->output, "safetensors: logits, encoder_output, attention.*, loss, grad.*")
      ->required();
  command->add_flag("--attention", options->attention, "also the weights of every attention");
  command->add_flag("--gradients", options->gradients,
                    "also the loss and the gradient of every parameter, without dropout");
  command->add_option("--label-smoothing", options->smoothing, "of the loss")
      ->check(CLI::Range(0.0, 1.0))
      ->check(FiniteNumber)
      ->capture_default_str();
  command->callback([options] { run(*options); });
}

} // namespace xfc
