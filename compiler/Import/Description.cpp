// model.json as typed, validated data.
#include "Description.h"
#include "Json.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace xfc {
namespace {

using Op = StepDescription::Op;

constexpr int64_t maxLayers = 1024;
constexpr int64_t maxParameterBytes = int64_t(1) << 40;
constexpr int64_t maxPositions = int64_t(1) << 20;
constexpr int64_t maxUnrolled = int64_t(1) << 16; // steps, and parameter tensors
constexpr int64_t maxExtent = std::numeric_limits<int32_t>::max();
constexpr double largest = std::numeric_limits<float>::max();

const std::vector<std::string> opNames = {"embedding", "positions", "attention", "linear", "layer_norm",
                                          "rms_norm",  "relu",      "gelu",      "silu",   "tanh",
                                          "gated",     "dropout",   "residual"};
const std::vector<std::string> activationNames = {"relu", "gelu", "silu", "tanh"};

Op opNamed(const std::string &name) {
  return static_cast<Op>(std::find(opNames.begin(), opNames.end(), name) - opNames.begin());
}

// How each kind of parameter starts.
struct Init {
  std::string linear = "xavier_uniform", embedding = "scaled_normal", bias = "zero";
};

// A name a step takes up, relative to its layer: its own (no shape), or of one of its parameters.
struct RelativeName {
  JsonValue step;
  std::string name;
  std::optional<ParameterDescription> parameter; // without a name
};

// Where steps stand, for what may stand there.
struct Scope {
  enum class Part { Encoder, Decoder, Head } part;
  bool input = false;      // directly in a stack's input
  bool sourceRows = false; // x has the rows of the source: the encoder, or a memory_body
  bool memoryBody = false;
};

class DescriptionReader {
public:
  DescriptionReader(std::string_view file, const std::vector<Override> &overrides) : file(file), overrides(overrides) {}

  Description read(std::string_view text) {
    root = parseJson(text, file);
    JsonValue top(root, file, "");
    top.onlyKeys({"$schema", "format", "name", "params", "tokens", "init", "share", "encoder", "decoder", "head"},
                 "a model");
    top.at("format", "\"xfc-model/1\"").oneOf({"xfc-model/1"}, "format");
    model.name = nameOf(top.at("name", "the name of the model"));
    readParams();
    readTokens();
    for (const char *part : {"encoder", "decoder", "head"})
      if (root.contains(part))
        resolve(root[part], part);
    readInit();

    JsonValue encoder = top.at("encoder", "a stack: input, layers, layer and output");
    readStack(encoder, Scope::Part::Encoder, model.encoder, model.sourceVocab);
    if (std::optional<JsonValue> decoder = top.find("decoder"))
      readStack(*decoder, Scope::Part::Decoder, model.decoder.emplace(), model.targetVocab);
    readHead(top);
    checkTokens();
    readShare(top);
    root.erase("$schema");
    model.canonical = root.dump();
    return std::move(model);
  }

private:
  [[noreturn]] void failSetting(const Override &setting, const std::string &what) const {
    throw Error(std::string(file) + ": --set " + setting.key + "=" + setting.value + ": " + what);
  }

  //===-- values ------------------------------------------------------------------------------------------===//

  void readParams() {
    nlohmann::json &params = *root.emplace("params", nlohmann::json::object()).first;
    JsonValue values(params, file, "params");
    for (const std::string &key : values.keys())
      values.find(key)->number(-largest, largest);
    for (const Override &setting : overrides) {
      if (setting.key.starts_with("tokens."))
        continue;
      if (!params.contains(setting.key))
        failSetting(setting,
                    "not in params; " + suggestion(setting.key, values.keys()) + "; token ids are tokens.NAME");
      nlohmann::json value = nlohmann::json::parse(setting.value, nullptr, /*allow_exceptions=*/false);
      if (!value.is_number() || !(std::abs(value.get<double>()) <= largest))
        failSetting(setting, "expected a number, at most 3.4e38");
      params[setting.key] = value;
    }
    for (const auto &item : params.items())
      model.params[item.key()] = item.value().get<double>();
  }

  void readTokens() {
    nlohmann::json &json = *root.emplace("tokens", nlohmann::json::object()).first;
    std::vector<std::string> names = {"pad", "unk", "bos", "eos", "start", "source_eos"};
    JsonValue(json, file, "tokens").onlyKeys(names, "tokens");
    for (const Override &setting : overrides) {
      if (!setting.key.starts_with("tokens."))
        continue;
      std::string name = setting.key.substr(7);
      if (std::find(names.begin(), names.end(), name) == names.end())
        failSetting(setting, "unknown token; " + suggestion(name, names));
      nlohmann::json value = nlohmann::json::parse(setting.value, nullptr, /*allow_exceptions=*/false);
      if (value.is_discarded())
        failSetting(setting, name == "source_eos" ? "expected true or false" : "expected a token id");
      json[name] = value;
    }
    TokenIds &tokens = model.tokens;
    auto id = [&](const char *name, int32_t &place) {
      if (json.contains(name))
        place = static_cast<int32_t>(JsonValue(json, file, "tokens").find(name)->integer(0, maxExtent));
      json[name] = place;
    };
    id("pad", tokens.pad);
    id("unk", tokens.unk);
    id("bos", tokens.bos);
    id("eos", tokens.eos);
    id("start", tokens.start);
    if (json.contains("source_eos"))
      tokens.sourceEos = JsonValue(json, file, "tokens").find("source_eos")->boolean();
    json["source_eos"] = tokens.sourceEos;
  }

  // Puts the values of params in the place of their "$name".
  void resolve(nlohmann::json &json, const std::string &path) {
    if (json.is_object()) {
      for (auto &item : json.items())
        resolve(item.value(), extended(path, item.key()));
    } else if (json.is_array()) {
      for (size_t i = 0; i < json.size(); ++i)
        resolve(json[i], extended(path, i));
    } else if (json.is_string() && json.get_ref<const std::string &>().starts_with("$")) {
      std::string name = json.get<std::string>().substr(1);
      const nlohmann::json &params = root["params"];
      if (!params.contains(name)) {
        JsonValue value(json, file, path);
        value.fail(value.shown() + " is not in params; " + suggestion(name, JsonValue(params, file, "params").keys()));
      }
      json = nlohmann::json(params[name]);
    }
  }

  std::string nameOf(const JsonValue &value) const {
    std::string name = value.string();
    bool good = !name.empty() && name.size() <= 128 && name.front() != '.' && name.back() != '.' &&
                name.find("..") == std::string::npos && std::all_of(name.begin(), name.end(), [&](unsigned char c) {
                  return c < 128 && (std::isalnum(c) || c == '_' || c == '-' || c == '.');
                });
    if (!good)
      value.fail(value.shown() + " is no name; expected at most 128 letters, digits, _, - and single dots inside");
    return name;
  }

  void readInit() {
    nlohmann::json &json = *root.emplace("init", nlohmann::json::object()).first;
    JsonValue value(json, file, "init");
    value.onlyKeys({"linear", "embedding", "bias"}, "init");
    auto read = [&](const char *key, std::string &place, const std::vector<std::string> &known) {
      if (std::optional<JsonValue> given = value.find(key))
        place = given->oneOf(known, "initialisation");
      json[key] = place;
    };
    read("linear", init.linear, {"xavier_uniform", "fan_in_uniform"});
    read("embedding", init.embedding, {"normal", "scaled_normal", "xavier_uniform"});
    read("bias", init.bias, {"zero", "fan_in_uniform"});
  }

  //===-- stacks ------------------------------------------------------------------------------------------===//

  void readStack(const JsonValue &json, Scope::Part part, StackDescription &stack, int64_t &vocab) {
    json.onlyKeys({"input", "layers", "layer", "output"}, "a stack");
    bool isEncoder = part == Scope::Part::Encoder;
    std::string prefix = isEncoder ? "encoder." : "decoder.";
    JsonValue input = json.at("input", "the steps before the layers, [] for none");
    std::vector<JsonValue> inputSteps = input.elements();
    stack.floatInput = inputSteps.empty() || opOf(inputSteps.front()) != Op::Embedding;
    int64_t features = 0;
    if (stack.floatInput) {
      auto width = model.params.find("d_model");
      if (width == model.params.end())
        input.fail("does not begin with an embedding, so its rows are floats of params.d_model features; expected "
                   "d_model in params");
      features = stack.inputDim = JsonValue(root["params"], file, "params").find("d_model")->integer(1, maxExtent);
    }
    Scope scope{part};
    scope.sourceRows = isEncoder;
    scope.input = true;
    features = readSteps(inputSteps, scope, features, stack.input);
    if (!stack.floatInput) {
      stack.inputDim = stack.input.front().dim;
      vocab = stack.input.front().vocab;
    }
    declare(prefix);

    scope.input = false;
    stack.layers = json.at("layers", "how often the layer is repeated").integer(1, maxLayers);
    JsonValue layer = json.at("layer", "the steps that are repeated");
    int64_t left = readSteps(layer.elements(), scope, features, stack.layer);
    if (left != features)
      layer.fail("takes " + std::to_string(features) + " features and gives " + std::to_string(left) +
                 "; expected as many, since it is repeated");
    count(layer, stack.layers);
    std::vector<RelativeName> names = std::move(declared);
    for (int64_t i = 0; i < stack.layers; ++i) {
      declared = names;
      declare(prefix + "layers." + std::to_string(i) + ".");
    }
    declared.clear();

    if (std::optional<JsonValue> output = json.find("output"))
      features = readSteps(output->elements(), scope, features, stack.output);
    declare(prefix);
    stack.dim = features;
  }

  void readHead(const JsonValue &top) {
    const char *what = "steps from the decoder's rows to logits, as "
                       "[{\"op\": \"linear\", \"name\": \"output\", \"features\": \"$target_vocab\"}]";
    std::optional<JsonValue> json = model.decoder ? top.at("head", what) : top.find("head");
    int64_t features = model.decoder ? model.decoder->dim : model.encoder.dim;
    if (json) {
      Scope scope{Scope::Part::Head};
      scope.sourceRows = !model.decoder;
      features = readSteps(json->elements(), scope, features, model.head);
      declare("");
    }
    if (model.targetVocab && features != model.targetVocab)
      json->fail("gives " + std::to_string(features) + " features; expected a logit for each of the decoder's " +
                 std::to_string(model.targetVocab) + " tokens");
  }

  // Refuses what would unroll into more steps or parameters than any model has.
  void count(const JsonValue &layer, int64_t layers) {
    if (stepsRead * layers > maxUnrolled || static_cast<int64_t>(declared.size()) * layers > maxUnrolled)
      layer.fail(std::to_string(layers) + " layers of it have more than " + std::to_string(maxUnrolled) +
                 " steps or parameters");
  }

  // Gives what was read since the last call its full name.
  void declare(const std::string &prefix) {
    for (RelativeName &relative : declared) {
      std::string name = prefix + relative.name;
      auto [taken, isNew] = owners.emplace(name, relative.step.path());
      if (!isNew)
        relative.step.fail("the name \"" + name + "\" is taken by " + taken->second +
                           "; give one of them another name");
      if (!relative.parameter)
        continue;
      ParameterDescription parameter = *relative.parameter;
      int64_t elements = 1;
      for (int64_t extent : parameter.shape)
        elements *= extent; // two extents below 2^31
      parameterElements += std::min(elements, maxParameterBytes);
      if (parameterElements > maxParameterBytes / 4)
        relative.step.fail("with \"" + name + "\" the parameters exceed the limit of 2^40 bytes");
      parameter.name = std::move(name);
      model.parameters.push_back(std::move(parameter));
    }
    declared.clear();
    stepsRead = 0;
  }

  //===-- steps -------------------------------------------------------------------------------------------===//

  Op opOf(const JsonValue &json) const { return opNamed(json.at("op", "the kind of step").oneOf(opNames, "op")); }

  // Reads steps that begin with rows of `features`; returns the features of the rows they end with.
  int64_t readSteps(const std::vector<JsonValue> &list, const Scope &scope, int64_t features,
                    std::vector<StepDescription> &steps) {
    for (const JsonValue &json : list) {
      Op op = opOf(json);
      if (op == Op::Embedding && !(scope.input && steps.empty()))
        json.find("op")->fail("\"embedding\" may only be the first step of a stack's input");
      StepDescription &step = steps.emplace_back();
      step.op = op;
      step.jsonPath = json.path();
      ++stepsRead;
      features = readStep(json, scope, features, step);
    }
    return features;
  }

  int64_t readStep(const JsonValue &json, const Scope &scope, int64_t features, StepDescription &step) {
    switch (step.op) {
    case Op::Embedding:
      return readEmbedding(json, step);
    case Op::Positions:
      return readPositions(json, scope, features, step);
    case Op::Attention:
      return readAttention(json, scope, features, step);
    case Op::Linear:
      return readLinear(json, features, step);
    case Op::LayerNorm:
      return readLayerNorm(json, features, step);
    case Op::RmsNorm:
      json.onlyKeys({"op", "name", "eps"}, "rms_norm");
      readName(json, step);
      step.eps = readEps(json, 1e-6);
      addParameter(json, step.name + ".weight", {features}, "one", features, features);
      return features;
    case Op::Relu:
    case Op::Gelu:
    case Op::Silu:
    case Op::Tanh:
      json.onlyKeys({"op"}, opNames[static_cast<size_t>(step.op)]);
      return features;
    case Op::Gated:
      return readGated(json, features, step);
    case Op::Dropout:
      json.onlyKeys({"op", "rate"}, "dropout");
      step.rate = json.at("rate", "a number from 0 to below 1").number(0, 1, /*open=*/true);
      return features;
    case Op::Residual:
      return readResidual(json, scope, features, step);
    }
    return features;
  }

  int64_t readEmbedding(const JsonValue &json, StepDescription &step) {
    json.onlyKeys({"op", "name", "vocab", "dim", "scale"}, "embedding");
    readName(json, step);
    step.vocab = json.at("vocab", "the number of tokens").integer(1, maxExtent);
    step.dim = json.at("dim", "the features of a token").integer(1, maxExtent);
    if (std::optional<JsonValue> scale = json.find("scale")) {
      if (scale->isNumber())
        step.scale = scale->number(-largest, largest);
      else if (!scale->isString())
        scale->fail("expected \"none\", \"sqrt_dim\" or a number, found " + scale->shown());
      else if (scale->oneOf({"none", "sqrt_dim"}, "scale") == "sqrt_dim")
        step.scale = std::sqrt(double(step.dim));
    }
    addParameter(json, step.name + ".weight", {step.vocab, step.dim}, init.embedding, step.dim, step.vocab);
    return step.dim;
  }

  int64_t readPositions(const JsonValue &json, const Scope &scope, int64_t features, StepDescription &step) {
    if (scope.part == Scope::Part::Head)
      json.find("op")->fail("\"positions\" may not stand in the head; expected in a stack");
    JsonValue kind = json.at("kind", "\"sinusoidal\" or \"learned\"");
    step.learned = kind.oneOf({"sinusoidal", "learned"}, "kind of positions") == "learned";
    if (step.learned)
      json.onlyKeys({"op", "kind", "name", "max_length"}, "learned positions");
    else
      json.onlyKeys({"op", "kind", "max_length", "base", "exponent_multiplier", "cosine_offset", "layout"},
                    "sinusoidal positions");
    step.dim = features;
    step.maxLength = json.at("max_length", "the number of positions").integer(1, maxPositions);
    int64_t &shortest = scope.sourceRows ? model.maxSourceLength : model.maxTargetLength;
    shortest = shortest ? std::min(shortest, step.maxLength) : step.maxLength;
    if (step.learned) {
      step.name = "pos";
      if (json.find("name"))
        readName(json, step);
      else
        declared.push_back({json, step.name, std::nullopt});
      addParameter(json, step.name + ".weight", {step.maxLength, features}, init.embedding, features, step.maxLength);
      return features;
    }
    // Below these bounds a divisor could become 0, and a position NaN.
    if (std::optional<JsonValue> base = json.find("base"))
      step.base = base->number(1, largest);
    if (std::optional<JsonValue> multiplier = json.find("exponent_multiplier"))
      step.exponentMultiplier = multiplier->number(0, 1e6);
    if (std::optional<JsonValue> offset = json.find("cosine_offset"))
      step.cosineOffset = offset->number(0, 1e6);
    if (std::optional<JsonValue> layout = json.find("layout"))
      step.halves = layout->oneOf({"interleaved", "halves"}, "layout") == "halves";
    if (features % 2)
      json.fail("sinusoidal positions need an even number of features, sine and cosine; x has " +
                std::to_string(features));
    return features;
  }

  int64_t readAttention(const JsonValue &json, const Scope &scope, int64_t features, StepDescription &step) {
    json.onlyKeys({"op", "name", "heads", "key_dim", "value_dim", "bias", "memory", "memory_body", "mask", "scale",
                   "dropout", "return_weights", "projections"},
                  "attention");
    if (scope.part == Scope::Part::Head)
      json.find("op")->fail("\"attention\" may not stand in the head; expected in a stack");
    readName(json, step);
    if (std::optional<JsonValue> projections = json.find("projections"))
      step.projections = projections->boolean();
    int64_t memoryFeatures = readMemory(json, scope, features, step);
    readHeads(json, features, memoryFeatures, step);
    readMask(json, step);
    readScoreScale(json, features, step);
    if (std::optional<JsonValue> dropout = json.find("dropout"))
      step.weightDropout = dropout->number(0, 1, /*open=*/true);
    if (std::optional<JsonValue> weights = json.find("return_weights"))
      step.returnWeights = weights->boolean();
    if (step.projections) {
      readAttentionBias(json, step);
      addLinear(json, step.name + ".q", features, step.heads * step.keyDim, step.biasQ);
      addLinear(json, step.name + ".k", memoryFeatures, step.heads * step.keyDim, step.biasK);
      addLinear(json, step.name + ".v", memoryFeatures, step.heads * step.valueDim, step.biasV);
      addLinear(json, step.name + ".o", step.heads * step.valueDim, features, step.biasO);
    }
    return features;
  }

  // What is attended to; returns its features.
  int64_t readMemory(const JsonValue &json, const Scope &scope, int64_t features, StepDescription &step) {
    std::optional<JsonValue> memory = json.find("memory");
    step.encoderMemory = memory && memory->oneOf({"self", "encoder"}, "memory") == "encoder";
    std::optional<JsonValue> body = json.find("memory_body");
    if (!step.encoderMemory) {
      if (body)
        body->fail("only where \"memory\" is \"encoder\"; self-attention attends to x as it is");
      return features;
    }
    if (scope.memoryBody)
      memory->fail("\"encoder\" may not stand in a memory_body, whose x is the encoder's output; expected \"self\"");
    if (scope.part == Scope::Part::Encoder)
      memory->fail(
          "\"encoder\" may only stand in the decoder; the encoder has no memory but itself, expected \"self\"");
    int64_t memoryFeatures = model.encoder.dim;
    if (!body)
      return memoryFeatures;
    Scope inside = scope;
    inside.input = false;
    inside.memoryBody = inside.sourceRows = true;
    return readSteps(body->elements(), inside, memoryFeatures, step.body);
  }

  void readHeads(const JsonValue &json, int64_t features, int64_t memoryFeatures, StepDescription &step) {
    std::optional<JsonValue> keyDim = json.find("key_dim"), valueDim = json.find("value_dim");
    if (!step.projections) {
      for (const char *key : {"key_dim", "value_dim", "bias"})
        if (std::optional<JsonValue> given = json.find(key))
          given->fail("has no meaning where \"projections\" is false: q, k and v are x itself");
      if (std::optional<JsonValue> heads = json.find("heads"))
        if (heads->integer(1, maxExtent) != 1)
          heads->fail(heads->shown() + " heads where \"projections\" is false; expected 1, or none given");
      if (features != memoryFeatures)
        json.fail("without projections x and the memory need the same features; x has " + std::to_string(features) +
                  ", the memory " + std::to_string(memoryFeatures));
      step.keyDim = step.valueDim = features;
      return;
    }
    JsonValue heads = json.at("heads", "the number of heads");
    step.heads = heads.integer(1, maxExtent);
    if (!(keyDim && valueDim) && features % step.heads) {
      auto width = model.params.find("d_model");
      std::string of =
          width != model.params.end() && width->second == double(features) ? "d_model " : "the features of x, ";
      heads.fail(heads.shown() + " does not divide " + of + std::to_string(features) + " (expected one of " +
                 divisors(features) + ", or key_dim and value_dim)");
    }
    int64_t most = maxExtent / step.heads;
    step.keyDim = keyDim ? keyDim->integer(1, most) : features / step.heads;
    step.valueDim = valueDim ? valueDim->integer(1, most) : features / step.heads;
  }

  static std::string divisors(int64_t number) {
    std::vector<std::string> found;
    for (int64_t i = 1; i <= std::min<int64_t>(number, 64); ++i)
      if (number % i == 0)
        found.push_back(std::to_string(i));
    return listed(found) + (number > 64 ? ", ..." : "");
  }

  void readMask(const JsonValue &json, StepDescription &step) {
    std::optional<JsonValue> mask = json.find("mask");
    if (!mask)
      return;
    step.padding = step.causal = false;
    for (const JsonValue &element : mask->elements()) {
      bool &flag = element.oneOf({"padding", "causal"}, "mask") == "padding" ? step.padding : step.causal;
      if (flag)
        element.fail(element.shown() + " is given twice");
      flag = true;
    }
  }

  void readScoreScale(const JsonValue &json, int64_t features, StepDescription &step) {
    step.scale = step.projections ? std::sqrt(double(step.keyDim)) : 1;
    std::optional<JsonValue> scale = json.find("scale");
    if (!scale)
      return;
    if (scale->isNumber()) {
      step.scale = scale->number(1e-20, largest);
    } else if (!scale->isString()) {
      scale->fail("expected \"sqrt_key_dim\", \"sqrt_model_dim\" or a number to divide by, found " + scale->shown());
    } else {
      bool ofModel = scale->oneOf({"sqrt_key_dim", "sqrt_model_dim"}, "scale") == "sqrt_model_dim";
      step.scale = std::sqrt(double(ofModel ? features : step.keyDim));
    }
  }

  void readAttentionBias(const JsonValue &json, StepDescription &step) {
    std::optional<JsonValue> bias = json.find("bias");
    if (!bias)
      return;
    if (bias->isBoolean()) {
      step.biasQ = step.biasK = step.biasV = step.biasO = bias->boolean();
      return;
    }
    if (!bias->isObject())
      bias->fail("expected true, false or an object of q, k, v and o, found " + bias->shown());
    bias->onlyKeys({"q", "k", "v", "o"}, "bias");
    const std::pair<const char *, bool &> flags[] = {
        {"q", step.biasQ}, {"k", step.biasK}, {"v", step.biasV}, {"o", step.biasO}};
    for (auto &[key, flag] : flags)
      if (std::optional<JsonValue> given = bias->find(key))
        flag = given->boolean();
  }

  int64_t readLinear(const JsonValue &json, int64_t features, StepDescription &step) {
    json.onlyKeys({"op", "name", "features", "bias"}, "linear");
    readName(json, step);
    step.features = json.at("features", "the features it gives").integer(1, maxExtent);
    if (std::optional<JsonValue> bias = json.find("bias"))
      step.bias = bias->boolean();
    addLinear(json, step.name, features, step.features, step.bias);
    return step.features;
  }

  int64_t readLayerNorm(const JsonValue &json, int64_t features, StepDescription &step) {
    json.onlyKeys({"op", "name", "eps", "variance", "eps_in"}, "layer_norm");
    readName(json, step);
    step.eps = readEps(json, 1e-5);
    if (std::optional<JsonValue> variance = json.find("variance"))
      step.unbiased = variance->oneOf({"biased", "unbiased"}, "variance") == "unbiased";
    if (std::optional<JsonValue> place = json.find("eps_in"))
      step.epsInStd = place->oneOf({"variance", "std"}, "place of eps") == "std";
    addParameter(json, step.name + ".weight", {features}, "one", features, features);
    addParameter(json, step.name + ".bias", {features}, "zero", features, features);
    return features;
  }

  // Zero, or what is zero as f32, would make a row of equal features NaN.
  static double readEps(const JsonValue &json, double otherwise) {
    std::optional<JsonValue> eps = json.find("eps");
    return eps ? eps->number(1e-30, 1e6) : otherwise;
  }

  int64_t readGated(const JsonValue &json, int64_t features, StepDescription &step) {
    json.onlyKeys({"op", "name", "features", "activation", "bias"}, "gated");
    readName(json, step);
    step.features = json.at("features", "the features it gives").integer(1, maxExtent);
    if (std::optional<JsonValue> activation = json.find("activation"))
      step.activation = opNamed(activation->oneOf(activationNames, "activation"));
    std::optional<JsonValue> bias = json.find("bias");
    step.bias = bias && bias->boolean();
    addLinear(json, step.name + ".gate", features, step.features, step.bias);
    addLinear(json, step.name + ".value", features, step.features, step.bias);
    return step.features;
  }

  int64_t readResidual(const JsonValue &json, const Scope &scope, int64_t features, StepDescription &step) {
    json.onlyKeys({"op", "body"}, "residual");
    JsonValue body = json.at("body", "the steps whose result is added to x");
    Scope inside = scope;
    inside.input = false;
    int64_t left = readSteps(body.elements(), inside, features, step.body);
    if (step.body.empty())
      body.fail("is empty; expected steps whose result is added to x");
    if (left != features)
      body.fail("gives " + std::to_string(left) + " features; expected " + std::to_string(features) +
                ", to be added to x");
    return features;
  }

  void readName(const JsonValue &json, StepDescription &step) {
    JsonValue name = json.at("name", "the name of the step");
    step.name = nameOf(name);
    declared.push_back({name, step.name, std::nullopt});
  }

  void addLinear(const JsonValue &json, const std::string &name, int64_t in, int64_t out, bool bias) {
    addParameter(json, name + ".weight", {out, in}, init.linear, in, out);
    if (bias)
      addParameter(json, name + ".bias", {out}, init.bias, in, out);
  }

  void addParameter(const JsonValue &json, const std::string &name, std::vector<int64_t> shape, const std::string &how,
                    int64_t fanIn, int64_t fanOut) {
    declared.push_back({json, name, ParameterDescription{"", {}, std::move(shape), how, fanIn, fanOut}});
  }

  //===-- what needs the whole ----------------------------------------------------------------------------===//

  void checkTokens() const {
    int64_t vocab = std::numeric_limits<int64_t>::max();
    for (int64_t size : {model.sourceVocab, model.targetVocab})
      if (size)
        vocab = std::min(vocab, size);
    const TokenIds &ids = model.tokens;
    JsonValue tokens(root["tokens"], file, "tokens");
    const std::pair<const char *, int32_t> named[] = {
        {"pad", ids.pad}, {"unk", ids.unk}, {"bos", ids.bos}, {"eos", ids.eos}, {"start", ids.start}};
    for (auto [name, id] : named)
      if (id >= vocab)
        tokens.find(name)->fail(std::to_string(id) + " is no token of a vocabulary of " + std::to_string(vocab) +
                                "; expected 0 to " + std::to_string(vocab - 1));
    if (ids.eos == ids.pad)
      tokens.find("eos")->fail(std::to_string(ids.eos) + " is also pad, which is never learned; expected another id");
  }

  void readShare(const JsonValue &top) {
    std::optional<JsonValue> share = top.find("share");
    if (!share)
      return;
    std::map<std::string, ParameterDescription *> byName;
    std::vector<std::string> names;
    for (ParameterDescription &parameter : model.parameters) {
      byName[parameter.name] = &parameter;
      names.push_back(parameter.name);
    }
    std::map<std::string, std::string> tied; // name -> place
    for (const JsonValue &group : share->elements()) {
      std::vector<JsonValue> members = group.elements();
      if (members.size() < 2)
        group.fail("ties nothing; expected two or more names of parameters");
      ParameterDescription *first = nullptr;
      for (const JsonValue &member : members) {
        std::string name = member.string();
        auto found = byName.find(name);
        if (found == byName.end())
          member.fail(member.shown() + " is no parameter; " + suggestionOfParameter(name, names));
        if (auto [other, isNew] = tied.emplace(name, member.path()); !isNew)
          member.fail(member.shown() + " is already tied by " + other->second);
        if (!first) {
          first = found->second;
          continue;
        }
        if (found->second->shape != first->shape)
          member.fail(member.shown() + " is " + shapeOf(*found->second) + ", but " + first->name + " is " +
                      shapeOf(*first) + "; tied parameters have one shape");
        first->aliases.push_back(name);
      }
    }
    std::erase_if(model.parameters, [&](const ParameterDescription &parameter) {
      auto place = tied.find(parameter.name);
      return place != tied.end() && parameter.aliases.empty();
    });
  }

  // A model has hundreds of parameters: the nearest, and the first few.
  static std::string suggestionOfParameter(const std::string &name, std::vector<std::string> names) {
    std::string text = suggestion(name, names);
    text.erase(text.find("known: "));
    bool more = names.size() > 8;
    if (more)
      names.resize(8);
    return text + "known: " + listed(names) + (more ? ", ... (`xfc inspect` lists all)" : "");
  }

  static std::string shapeOf(const ParameterDescription &parameter) {
    std::string text;
    for (int64_t extent : parameter.shape)
      text += (text.empty() ? "[" : ", ") + std::to_string(extent);
    return text + "]";
  }

  std::string_view file;
  const std::vector<Override> &overrides;
  nlohmann::json root;
  Description model;
  Init init;
  std::vector<RelativeName> declared;        // since the last declare()
  std::map<std::string, std::string> owners; // full name -> place of the step
  int64_t stepsRead = 0;                     // since the last declare()
  int64_t parameterElements = 0;
};

} // namespace

const ParameterDescription *Description::parameter(std::string_view name) const {
  for (const ParameterDescription &parameter : parameters)
    if (parameter.name == name ||
        std::find(parameter.aliases.begin(), parameter.aliases.end(), name) != parameter.aliases.end())
      return &parameter;
  return nullptr;
}

Description parseDescription(std::string_view text, std::string_view file, const std::vector<Override> &overrides) {
  return DescriptionReader(file, overrides).read(text);
}

} // namespace xfc
