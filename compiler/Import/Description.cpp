// Parses model.json into typed, validated data.
#include "Description.h"
#include "Generation.h"
#include "Json.h"
#include "StepKinds.h"
#include "Training.h"
#include "support/Quoted.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace xfc {
namespace {

constexpr int64_t maxLayers = 1024;
constexpr int64_t maxHeadDim = 4096; // kernels are unrolled over the features of a head; each takes 2 ms to compile
constexpr int64_t maxParameterBytes = int64_t(1) << 40;
constexpr int64_t maxUnrolled = int64_t(1) << 16; // limits the number of steps and that of parameters

// How each kind of parameter is initialized.
struct Init {
  std::string linear = "xavier_uniform", embedding = "scaled_normal", bias = "zero";
};

// A name that a step takes, relative to its layer: its own, or that of one of its parameters.
struct RelativeName {
  JsonValue step;
  std::string name;
  std::optional<ParameterDescription> parameter; // its name is not set yet; none if this is the step's own name
};

// The surroundings of a list of steps, which decide what the list may contain.
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
    top.onlyKeys({"$schema", "format", "name", "summary", "params", "tokens", "generation", "training", "init", "share",
                  "encoder", "decoder", "head"},
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
    if (std::optional<JsonValue> generation = top.find("generation")) {
      if (!model.targetVocab)
        generation->fail("needs a decoder that generates tokens");
      model.generation =
          readGeneration(*generation, model.targetVocab, model.tokens.pad, model.tokens.start, model.tokens.eos);
    }
    if (std::optional<JsonValue> training = top.find("training")) {
      if (!model.targetVocab)
        training->fail("needs a decoder that generates tokens");
      model.training = readTraining(*training);
    }
    readShare(top);
    root.erase("$schema");
    root.erase("summary");
    model.canonical = root.dump();
    return std::move(model);
  }

private:
  [[noreturn]] void failSetting(const Override &setting, const std::string &what) const {
    throw Error(std::string(file) + ": --set " + escaped(setting.key) + "=" + escaped(setting.value) + ": " + what);
  }

  //===-- values ------------------------------------------------------------------------------------------===//

  void readParams() {
    nlohmann::json &params = *root.emplace("params", nlohmann::json::object()).first;
    JsonValue values(params, file, "params");
    for (const std::string &key : values.keys())
      values.find(key)->number(-maxNumber, maxNumber);
    for (const Override &setting : overrides) {
      if (setting.key.starts_with("tokens."))
        continue;
      if (!params.contains(setting.key))
        failSetting(setting,
                    "not in params; " + suggestion(setting.key, values.keys()) + "; for token ids, use tokens.NAME");
      const std::optional<nlohmann::json> value = jsonIn(setting.value);
      if (!value || !value->is_number() || !(std::abs(value->get<double>()) <= maxNumber))
        failSetting(setting, "expected a number, at most 3.4e38");
      params[setting.key] = *value;
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
      const std::optional<nlohmann::json> value = jsonIn(setting.value);
      if (!value)
        failSetting(setting, name == "source_eos" ? "expected true or false" : "expected a token id");
      json[name] = *value;
    }
    TokenIds &tokens = model.tokens;
    auto id = [&](const char *name, int32_t &place, int64_t least) {
      if (json.contains(name))
        place = static_cast<int32_t>(JsonValue(json, file, "tokens").find(name)->integer(least, maxExtent));
      json[name] = place;
    };
    constexpr int64_t none = -1;
    id("pad", tokens.pad, none);
    id("unk", tokens.unk, none);
    id("bos", tokens.bos, 0);
    id("eos", tokens.eos, 0);
    id("start", tokens.start, 0);
    if (json.contains("source_eos"))
      tokens.sourceEos = JsonValue(json, file, "tokens").find("source_eos")->boolean();
    json["source_eos"] = tokens.sourceEos;
  }

  // Replaces each "$name" by its value in params.
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
      value.fail(value.shown() +
                 " is not a valid name; expected at most 128 letters, digits, _, - and single dots inside");
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
    stack.floatInput = inputSteps.empty() || kindOf(inputSteps.front()).place != StepKind::Place::StartOfInput;
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
      const auto &embedding = std::get<step::Embedding>(stack.input.front().options);
      stack.inputDim = embedding.dim;
      vocab = embedding.vocab;
    }
    declare(prefix);

    scope.input = false;
    stack.layers = json.at("layers", "how many times the layer is repeated").integer(1, maxLayers);
    JsonValue layer = json.at("layer", "the steps that are repeated");
    int64_t left = readSteps(layer.elements(), scope, features, stack.layer);
    if (left != features)
      layer.fail("takes " + std::to_string(features) + " features and gives " + std::to_string(left) +
                 "; expected the same number, since the layer is repeated");
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
    const char *what = "steps from the decoder's rows to logits, for example "
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

  // Rejects a layer that would unroll into more steps or parameters than any model has.
  void count(const JsonValue &layer, int64_t layers) {
    if (stepsRead * layers > maxUnrolled || static_cast<int64_t>(declared.size()) * layers > maxUnrolled)
      layer.fail("exceeds the limit of " + std::to_string(maxUnrolled) + " steps or parameters if repeated " +
                 std::to_string(layers) + " times");
  }

  // Adds the parameters read since the last call to the model under their full names, which must be unique.
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
        elements *= extent; // no overflow: there are at most two extents, each below 2^31
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

  // A step to be read: its JSON, its surroundings, and the number of features of its input rows x.
  struct Site {
    const JsonValue &json;
    const Scope &scope;
    int64_t features;
  };

  static const StepKind &kindOf(const JsonValue &json) {
    std::vector<std::string> ops, variants;
    for (const StepKind &kind : stepKinds())
      if (std::find(ops.begin(), ops.end(), kind.op) == ops.end())
        ops.push_back(kind.op);
    const std::string op = json.at("op", "the kind of step").oneOf(ops, "op");
    std::string variant, expected;
    for (const StepKind &kind : stepKinds())
      if (kind.op == op && !kind.variant.empty()) {
        expected += (variants.empty() ? "\"" : " or \"") + kind.variant + "\"";
        variants.push_back(kind.variant);
      }
    if (!variants.empty())
      variant = json.at("kind", expected).oneOf(variants, "kind of " + op);
    return *std::find_if(stepKinds().begin(), stepKinds().end(),
                         [&](const StepKind &kind) { return kind.op == op && kind.variant == variant; });
  }

  // Reads steps whose input rows have `features` features; returns the number of features of their output rows.
  int64_t readSteps(const std::vector<JsonValue> &list, const Scope &scope, int64_t features,
                    std::vector<StepDescription> &steps) {
    for (const JsonValue &json : list) {
      const StepKind &kind = kindOf(json);
      if (kind.place == StepKind::Place::StartOfInput && !(scope.input && steps.empty()))
        json.find("op")->fail("\"" + kind.op + "\" may only be the first step of a stack's input");
      if (kind.place == StepKind::Place::Stacks && scope.part == Scope::Part::Head)
        json.find("op")->fail("\"" + kind.op + "\" is not allowed in the head; use it in a stack");
      StepDescription &step = steps.emplace_back(StepDescription{&kind, json.path(), "", kind.defaults});
      ++stepsRead;
      readOptions(json, step);
      const Site site{json, scope, features};
      features = std::visit([&](auto &options) { return complete(options, step.name, site); }, step.options);
    }
    return features;
  }

  //===-- options, as the table says ----------------------------------------------------------------------===//

  void readOptions(const JsonValue &json, StepDescription &step) {
    std::vector<std::string> known = {"op"};
    if (!step.kind->variant.empty())
      known.push_back("kind");
    for (const Option &option : step.kind->options)
      known.push_back(option.name);
    json.onlyKeys(known, step.kind->title());
    for (const Option &option : step.kind->options) {
      std::optional<JsonValue> given = json.find(option.name);
      if (!given && option.presence == Option::Presence::Required)
        given = json.at(option.name, expectedFor(option)); // fails
      if (given)
        std::visit([&](const auto &type) { readOption(type, option, *given, step); }, option.type);
      else if (auto *name = std::get_if<Option::Name>(&option.type))
        setName(step, name->otherwise, json);
    }
  }

  static std::string expectedFor(const Option &option) {
    auto *number = std::get_if<Option::Number>(&option.type);
    const bool isRange = number && !number->words;
    return isRange ? JsonValue::range(number->low, number->high, number->open) : option.meaning;
  }

  void setName(StepDescription &step, const std::string &name, const JsonValue &json) {
    step.name = name;
    declared.push_back({json, name, std::nullopt});
  }

  void readOption(const Option::Name &, const Option &, const JsonValue &value, StepDescription &step) {
    setName(step, nameOf(value), value);
  }

  void readOption(const Option::Integer &type, const Option &, const JsonValue &value, StepDescription &step) {
    type.place(step.options) = value.integer(type.low, type.times ? type.high / type.times(step.options) : type.high);
  }

  void readOption(const Option::Choice &type, const Option &, const JsonValue &value, StepDescription &step) {
    std::string word = value.oneOf(type.words, type.noun);
    type.set(step.options, std::find(type.words.begin(), type.words.end(), word) - type.words.begin());
  }

  void readOption(const Option::Number &type, const Option &option, const JsonValue &value, StepDescription &step) {
    if (!type.words || value.isNumber())
      type.place(step.options) = value.number(type.low, type.high, type.open);
    else if (value.isString())
      readOption(*type.words, option, value, step);
    else
      value.fail("expected \"" + type.words->words[0] + "\", \"" + type.words->words[1] + "\" or " + type.what +
                 ", found " + value.shown());
  }

  void readOption(const Option::Flag &type, const Option &, const JsonValue &value, StepDescription &step) {
    type.place(step.options) = value.boolean();
  }

  void readOption(const Option::Flags &type, const Option &option, const JsonValue &value, StepDescription &step) {
    std::vector<std::string> names = namesOf(type.flags);
    if (value.isObject())
      value.onlyKeys(names, option.name);
    else if (!value.isBoolean())
      value.fail("expected true, false or an object of " + listed({names.begin(), names.end() - 1}) + " and " +
                 names.back() + ", found " + value.shown());
    for (const auto &[name, place] : type.flags)
      if (std::optional<JsonValue> given = value.isObject() ? value.find(name) : value)
        place(step.options) = given->boolean();
  }

  void readOption(const Option::Set &type, const Option &option, const JsonValue &value, StepDescription &step) {
    for (const auto &[name, place] : type.flags)
      place(step.options) = false;
    for (const JsonValue &element : value.elements()) {
      std::string word = element.oneOf(namesOf(type.flags), option.name);
      for (const auto &[name, place] : type.flags)
        if (name == word && std::exchange(place(step.options), true))
          element.fail(element.shown() + " is given twice");
    }
  }

  // Nested steps are read by complete(), which knows the number of features of their rows.
  void readOption(const Option::Steps &, const Option &, const JsonValue &, StepDescription &) {}

  static std::vector<std::string> namesOf(const Option::NamedFlags &flags) {
    std::vector<std::string> names;
    for (const auto &[name, place] : flags)
      names.push_back(name);
    return names;
  }

  //===-- what a step makes of x: checks, parameters, and the features it gives ---------------------------===//

  int64_t complete(step::Embedding &embedding, const std::string &name, const Site &at) {
    if (embedding.scaleBySqrtDim)
      embedding.scale = std::sqrt(double(embedding.dim));
    addParameter(at.json, name + ".weight", {embedding.vocab, embedding.dim}, init.embedding, embedding.dim,
                 embedding.vocab);
    return embedding.dim;
  }

  int64_t complete(step::SinusoidalPositions &positions, const std::string &, const Site &at) {
    if (at.features % 2)
      at.json.fail("sinusoidal positions need an even number of features, for sine and cosine; x has " +
                   std::to_string(at.features));
    limitLength(positions.maxLength, at.scope);
    return at.features;
  }

  int64_t complete(step::LearnedPositions &positions, const std::string &name, const Site &at) {
    addParameter(at.json, name + ".weight", {positions.maxLength + positions.offset, at.features}, init.embedding,
                 at.features, positions.maxLength);
    limitLength(positions.maxLength, at.scope);
    return at.features;
  }

  void limitLength(int64_t length, const Scope &scope) {
    int64_t &shortest = scope.sourceRows ? model.maxSourceLength : model.maxTargetLength;
    shortest = shortest ? std::min(shortest, length) : length;
  }

  int64_t complete(step::Attention &attention, const std::string &name, const Site &at) {
    const int64_t memoryFeatures = readMemory(attention, at);
    checkHeads(attention, at, memoryFeatures);
    if (int64_t widest = std::max(attention.keyDim, attention.valueDim); widest > maxHeadDim)
      at.json.fail("has heads of " + std::to_string(widest) + " features; expected at most " +
                   std::to_string(maxHeadDim) + ", since the code of an attention grows with them");
    checkDistances(attention, name, at);
    checkRotary(attention, at);
    if (attention.scale == 0) {
      const bool one = !attention.projections && !at.json.find("scale");
      attention.scale = one ? 1 : std::sqrt(double(attention.scaleBySqrtModelDim ? at.features : attention.keyDim));
    }
    if (attention.projections) {
      const int64_t heads = attention.heads, kvHeads = attention.kvHeads;
      addLinears(at.json, {{name + ".q", at.features, heads * attention.keyDim, attention.biasQ},
                           {name + ".k", memoryFeatures, kvHeads * attention.keyDim, attention.biasK},
                           {name + ".v", memoryFeatures, kvHeads * attention.valueDim, attention.biasV}});
      addLinears(at.json, {{name + ".o", heads * attention.valueDim, at.features, attention.biasO}});
    }
    return at.features;
  }

  // Reads what the attention attends to; returns its number of features.
  int64_t readMemory(step::Attention &attention, const Site &at) {
    std::optional<JsonValue> body = at.json.find("memory_body");
    if (!attention.encoderMemory) {
      if (body)
        body->fail("only allowed if \"memory\" is \"encoder\"; self-attention attends to x unchanged");
      return at.features;
    }
    if (at.scope.memoryBody)
      at.json.find("memory")->fail(
          "\"encoder\" is not allowed in a memory_body, whose x is the encoder's output; expected \"self\"");
    if (at.scope.part == Scope::Part::Encoder)
      at.json.find("memory")->fail(
          "\"encoder\" is only allowed in the decoder; the encoder can only attend to itself, expected \"self\"");
    if (!body)
      return model.encoder.dim;
    Scope inside = at.scope;
    inside.input = false;
    inside.memoryBody = inside.sourceRows = true;
    return readSteps(body->elements(), inside, model.encoder.dim, attention.memoryBody);
  }

  void checkHeads(step::Attention &attention, const Site &at, int64_t memoryFeatures) {
    const int64_t features = at.features;
    if (!attention.projections) {
      for (const char *key : {"kv_heads", "key_dim", "value_dim", "bias"})
        if (std::optional<JsonValue> given = at.json.find(key))
          given->fail("has no meaning if \"projections\" is false: q, k and v are x itself");
      if (std::optional<JsonValue> heads = at.json.find("heads"); heads && attention.heads != 1)
        heads->fail(heads->shown() + " heads, but \"projections\" is false; expected 1, or leave it out");
      if (features != memoryFeatures)
        at.json.fail("without projections, x and the memory need the same number of features; x has " +
                     std::to_string(features) + ", the memory has " + std::to_string(memoryFeatures));
      attention.keyDim = attention.valueDim = features;
      attention.kvHeads = 1;
      return;
    }
    JsonValue heads = at.json.at("heads", "the number of heads");
    if (!(attention.keyDim && attention.valueDim) && features % attention.heads) {
      auto width = model.params.find("d_model");
      std::string of =
          width != model.params.end() && width->second == double(features) ? "d_model " : "the features of x, ";
      heads.fail(heads.shown() + " does not divide " + of + std::to_string(features) + " (expected one of " +
                 divisors(features) + ", or key_dim and value_dim)");
    }
    for (int64_t *dim : {&attention.keyDim, &attention.valueDim})
      if (*dim == 0)
        *dim = features / attention.heads;
    if (attention.kvHeads == 0)
      attention.kvHeads = attention.heads;
    if (attention.heads % attention.kvHeads)
      at.json.find("kv_heads")
          ->fail(std::to_string(attention.kvHeads) + " does not divide the " + heads.shown() +
                 " heads (expected one of " + divisors(attention.heads) + ")");
  }

  // Rejects an option about the distance between tokens, which only tokens of one sequence have.
  static void failOnCrossAttention(const Site &at, const char *key) {
    at.json.find(key)->fail("tokens of two different sequences have no distance; use it in self-attention only");
  }

  void checkDistances(step::Attention &attention, const std::string &name, const Site &at) {
    using Bias = step::Attention::DistanceBias;
    const bool buckets = attention.distanceBias == Bias::buckets, any = attention.distanceBias != Bias::none;
    for (const char *key : {"buckets", "max_distance"})
      if (std::optional<JsonValue> given = at.json.find(key); given && !buckets)
        given->fail("has no meaning without a \"distance_bias\"" + std::string(any ? " of buckets" : ""));
    if (attention.window && attention.encoderMemory)
      failOnCrossAttention(at, "window");
    if (any && attention.encoderMemory)
      failOnCrossAttention(at, "distance_bias");
    if (any || attention.rotary != step::Attention::Rotary::none) {
      at.json.at("max_length", "the number of positions, which limits the length of a sequence");
      limitLength(attention.maxLength, at.scope);
    } else if (std::optional<JsonValue> given = at.json.find("max_length")) {
      given->fail("has no meaning without a \"distance_bias\" or \"rotary\"");
    }
    if (!buckets)
      return;
    const int64_t directions = attention.causal ? 1 : 2, each = attention.buckets / directions;
    if (attention.buckets % directions || each < 2)
      at.json.find("buckets")->fail(std::to_string(attention.buckets) +
                                    " does not give each direction two or more buckets; " +
                                    "expected an even number of at least 4, or a causal mask");
    if (attention.maxDistance <= each / 2)
      (at.json.find("max_distance") ? at.json.find("max_distance") : at.json.find("buckets"))
          ->fail("the first " + std::to_string(each / 2) +
                 " buckets of a direction hold one distance each; expected a max_distance above that, found " +
                 std::to_string(attention.maxDistance));
    addParameter(at.json, name + ".distance_bias.weight", {attention.buckets, attention.heads}, init.embedding,
                 attention.heads, attention.buckets);
  }

  void checkRotary(step::Attention &attention, const Site &at) {
    if (attention.rotary == step::Attention::Rotary::none) {
      for (const char *key : {"rotary_base", "rotary_dim"})
        if (std::optional<JsonValue> given = at.json.find(key))
          given->fail("has no meaning without \"rotary\"");
      return;
    }
    if (attention.encoderMemory)
      failOnCrossAttention(at, "rotary");
    std::optional<JsonValue> dim = at.json.find("rotary_dim");
    if (!dim)
      attention.rotaryDim = attention.keyDim;
    if (attention.rotaryDim % 2 || attention.rotaryDim > attention.keyDim)
      (dim ? dim : at.json.find("rotary"))
          ->fail("features are rotated in pairs; expected an even number, at most the " +
                 std::to_string(attention.keyDim) + " of a head, found " + std::to_string(attention.rotaryDim));
  }

  static std::string divisors(int64_t number) {
    std::vector<std::string> found;
    for (int64_t i = 1; i <= std::min<int64_t>(number, 64); ++i)
      if (number % i == 0)
        found.push_back(std::to_string(i));
    return listed(found) + (number > 64 ? ", ..." : "");
  }

  // It looks back only, so it may be used wherever rows are tokens of a sequence.
  int64_t complete(step::Recurrence &recurrence, const std::string &name, const Site &at) {
    addLinears(at.json, {{name + ".gate", at.features, at.features, recurrence.biasGate},
                         {name + ".value", at.features, at.features, recurrence.biasValue}});
    return at.features;
  }

  int64_t complete(step::Linear &linear, const std::string &name, const Site &at) {
    addLinears(at.json, {{name, at.features, linear.features, linear.bias}});
    return linear.features;
  }

  int64_t complete(step::LayerNorm &, const std::string &name, const Site &at) {
    addParameter(at.json, name + ".weight", {at.features}, "one", at.features, at.features);
    addParameter(at.json, name + ".bias", {at.features}, "zero", at.features, at.features);
    return at.features;
  }

  int64_t complete(step::RmsNorm &, const std::string &name, const Site &at) {
    addParameter(at.json, name + ".weight", {at.features}, "one", at.features, at.features);
    return at.features;
  }

  int64_t complete(step::Activation &, const std::string &, const Site &at) { return at.features; }
  int64_t complete(step::Dropout &, const std::string &, const Site &at) { return at.features; }

  int64_t complete(step::Scale &scale, const std::string &, const Site &at) {
    if (scale.power != 0)
      scale.by = std::pow(double(at.features), scale.power);
    return at.features;
  }

  int64_t complete(step::Gated &gated, const std::string &name, const Site &at) {
    addLinears(at.json, {{name + ".gate", at.features, gated.features, gated.bias},
                         {name + ".value", at.features, gated.features, gated.bias}});
    return gated.features;
  }

  int64_t complete(step::Residual &residual, const std::string &, const Site &at) {
    JsonValue body = *at.json.find("body");
    Scope inside = at.scope;
    inside.input = false;
    int64_t left = readSteps(body.elements(), inside, at.features, residual.body);
    if (residual.body.empty())
      body.fail("is empty; expected steps whose result is added to x");
    if (left != at.features)
      body.fail("gives " + std::to_string(left) + " features; expected " + std::to_string(at.features) +
                ", to be added to x");
    return at.features;
  }

  struct LinearParameters {
    std::string name;
    int64_t in, out;
    bool bias;
  };
  // All weights come before all biases. This is the order of the executable's parameter block, where the weights of
  // merged products are consecutive (Analysis/ParameterLayout.h), so a file in this order becomes the block without a
  // copy.
  void addLinears(const JsonValue &json, const std::vector<LinearParameters> &linears) {
    for (const LinearParameters &linear : linears)
      addParameter(json, linear.name + ".weight", {linear.out, linear.in}, init.linear, linear.in, linear.out);
    for (const LinearParameters &linear : linears)
      if (linear.bias)
        addParameter(json, linear.name + ".bias", {linear.out}, init.bias, linear.in, linear.out);
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
        tokens.find(name)->fail(std::to_string(id) + " is not in the vocabulary of " + std::to_string(vocab) +
                                " tokens; expected 0 to " + std::to_string(vocab - 1));
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
    std::map<std::string, std::string> tied; // name -> JSON path
    for (const JsonValue &group : share->elements()) {
      std::vector<JsonValue> members = group.elements();
      if (members.size() < 2)
        group.fail("ties nothing; expected the names of two or more parameters");
      ParameterDescription *first = nullptr;
      for (const JsonValue &member : members) {
        std::string name = member.string();
        auto found = byName.find(name);
        if (found == byName.end())
          member.fail(member.shown() + " is not a parameter; " + suggestionOfParameter(name, names));
        if (auto [other, isNew] = tied.emplace(name, member.path()); !isNew)
          member.fail(member.shown() + " is already tied by " + other->second);
        if (!first) {
          first = found->second;
          continue;
        }
        if (found->second->shape != first->shape)
          member.fail(member.shown() + " is " + shapeOf(*found->second) + ", but " + first->name + " is " +
                      shapeOf(*first) + "; tied parameters must have the same shape");
        first->aliases.push_back(name);
      }
    }
    std::erase_if(model.parameters, [&](const ParameterDescription &parameter) {
      auto place = tied.find(parameter.name);
      return place != tied.end() && parameter.aliases.empty();
    });
  }

  // A model has hundreds of parameters, so this lists the most similar name and the first few only.
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
  std::map<std::string, std::string> owners; // full name -> JSON path of the step
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
