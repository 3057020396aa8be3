// `forward`: runs a rectangular batch from a file through the model, for comparison with other implementations.
#include "app/Commands.h"
#include "decode/Forward.h"
#include "decode/ModelOptions.h"
#include "engine/Safetensors.h"
#include "plan/Programs.h"
#include "support/CommandLine.h"
#include "support/Confinement.h"
#include "support/FileWriter.h"
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

// The tensors of the input file.
class Input {
public:
  explicit Input(const std::string &file) : file(file), tensors(readSafetensors(file)) {}
  bool has(const std::string &name) const { return tensors.count(name) != 0; }

  Rectangle ids(const std::string &name, const Module &module, int64_t vocabulary) const {
    const StoredTensor &tensor = find(name, "int32 [batch, tokens]");
    if ((tensor.type != "I32" && tensor.type != "I64") || tensor.shape.size() != 2)
      fail(name, tensor, "int32 [batch, tokens]");
    Rectangle result{tensor.shape[0], tensor.shape[1], {}, {}};
    for (int64_t i = 0; i < result.batch * result.columns; ++i) {
      int64_t id = tensor.type == "I64" ? value<int64_t>(tensor, i) : value<int32_t>(tensor, i);
      if (id < leastId(module) || id >= vocabulary)
        throw Error(file + ": '" + name + "'[" + std::to_string(i / result.columns) + ", " +
                    std::to_string(i % result.columns) + "] is " + std::to_string(id) + ", " +
                    rangeOfIds(leastId(module), vocabulary));
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

Rectangle read(const Input &input, const Module &module, const char *name, int64_t vocabulary, int64_t features) {
  return vocabulary > 0 ? input.ids(name, module, vocabulary) : input.numbers(name, features);
}

// A model without parameters needs no weights.
std::unique_ptr<Engine> engineFor(const ModelOptions &options) {
  if (options.model.empty() && options.weights.empty() && options.packed.empty())
    if (auto engine = makeEngine(options.threads, options.device); engine->module().parameters.empty())
      return engine;
  return loadEngine(options);
}

void run(const ForwardOptions &options) {
  confineOn(options.model.device.device, {options.output});
  checkWritable(options.output);
  Input input(options.input);
  std::unique_ptr<Engine> engine = engineFor(options.model);
  const Module &module = engine->module();
  Rectangle target, labels;
  Rectangle source = read(input, module, names::source, module.sourceVocab, module.dims[0]);
  if (module.hasDecoder) {
    target = read(input, module, names::target, module.targetVocab, module.dims[1]);
    if (input.has(names::labels))
      labels = input.ids(names::labels, module, module.targetVocab);
  }
  Forward forward(*engine, std::move(source), std::move(target), std::move(labels));
  forward.run(options.attention);
  if (options.gradients)
    forward.runGradients(options.smoothing);
  writeSafetensors(options.output, viewsOf(forward.results), {{"model", module.model}, {"hash", module.hash}});
}

} // namespace

void addForward(Command app) {
  Command command = app.addVerb(
      "forward", "compute the logits, attention weights and gradients of a batch given in a file, for checking",
      "translator forward --weights run/best.safetensors --input batch.safetensors --output logits.safetensors");
  auto options = std::make_shared<ForwardOptions>();
  options->model.addTo(command);
  command.setSubject("Input and output");
  command.addOption("--input", options->input, "safetensors: source, target, labels [batch, tokens]").required();
  command.addOption("--output", options->output, "safetensors: logits, encoder_output, attention.*, loss, grad.*")
      .required();
  command.addFlag("--attention", options->attention, "also write the weights of every attention");
  command.addFlag("--gradients", options->gradients,
                  "also write the loss and the gradient of every parameter, without dropout");
  command.addOption("--label-smoothing", options->smoothing, "label smoothing of the loss")
      .within(0.0, 1.0)
      .finite()
      .showDefault();
  command.setWork([options] { run(*options); });
}

} // namespace xfc
