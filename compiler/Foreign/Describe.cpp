// Describes a model as other programs do.
#include "Describe.h"
#include "Import/StepKinds.h"
#include "support/Quoted.h"
#include <algorithm>
#include <cmath>

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;
using Steps = std::vector<StepDescription>;

// The first step of a kind (and of a name, if given) in these steps and those nested in them, or null.
template <typename Kind> const StepDescription *findStep(const Steps &steps, std::string_view name = "") {
  for (const StepDescription &step : steps) {
    if (std::holds_alternative<Kind>(step.options) && (name.empty() || step.name == name))
      return &step;
    if (const StepDescription *inside = findStep<Kind>(stepsInside(step), name))
      return inside;
  }
  return nullptr;
}

template <typename Kind> const Kind *find(const Steps &steps, std::string_view name = "") {
  const StepDescription *step = findStep<Kind>(steps, name);
  return step ? &std::get<Kind>(step->options) : nullptr;
}

template <typename Kind>
const Kind &required(const Steps &steps, const std::string &path, const std::string &what, std::string_view name = "") {
  const Kind *found = find<Kind>(steps, name);
  if (!found)
    throw Error(path + ": has no " + what);
  return *found;
}

const StackDescription &stackOf(const Description &model, bool decoder) {
  if (decoder && !model.decoder)
    throw Error("decoder: missing");
  return decoder ? *model.decoder : model.encoder;
}

// The rate of a dropout that a product follows in the same list of steps (the one inside a feed-forward branch), or 0.
double innerDropout(const Steps &steps) {
  double rate = 0;
  for (const StepDescription &step : steps) {
    if (const auto *dropout = std::get_if<step::Dropout>(&step.options))
      rate = dropout->rate;
    else if (std::holds_alternative<step::Linear>(step.options) && rate > 0)
      return rate;
    if (const double inside = innerDropout(stepsInside(step)); inside > 0)
      return inside;
  }
  return 0;
}

std::string activationName(const std::string &function) {
  if (function == "gelu_tanh")
    return "gelu_new";
  return function == "squared_relu" ? "relu2" : function;
}

bool tied(const Description &model, const char *a, const char *b) {
  const ParameterDescription *first = model.parameter(a);
  return first && first == model.parameter(b);
}

void addCommon(const Description &model, Json &json) {
  json.update({{"is_encoder_decoder", true},
               {"pad_token_id", model.tokens.pad},
               {"bos_token_id", model.tokens.bos},
               {"eos_token_id", model.tokens.eos},
               {"decoder_start_token_id", model.tokens.start},
               {"tie_word_embeddings", tied(model, "output.weight", "decoder.embed.weight")},
               {"use_cache", true}});
  if (model.training)
    json["label_smoothing"] = model.training->labelSmoothing;
}

//===-- the comparison ------------------------------------------------------------------------------------------===//

// The value of an option as model.json would have it; null for names and steps, which are compared separately.
struct ValueOf {
  const StepOptions &options;
  Json operator()(const Option::Name &) const { return nullptr; }
  Json operator()(const Option::Integer &type) const { return type.place(options); }
  Json operator()(const Option::Choice &type) const { return type.words[type.get(options)]; }
  Json operator()(const Option::Number &type) const { return type.place(options); }
  Json operator()(const Option::Flag &type) const { return type.place(options); }
  Json operator()(const Option::Flags &type) const {
    Json flags;
    for (const auto &[name, place] : type.flags)
      flags[name] = place(options);
    return flags;
  }
  Json operator()(const Option::Set &type) const {
    Json set = Json::array();
    for (const auto &[name, place] : type.flags)
      if (place(options))
        set.push_back(name);
    return set;
  }
  Json operator()(const Option::Steps &) const { return nullptr; }
};

bool sameValue(const Json &a, const Json &b) {
  if (!a.is_number_float() || !b.is_number_float())
    return a == b;
  const double x = a, y = b;
  return std::abs(x - y) <= 1e-7 * std::max(std::abs(x), std::abs(y)); // less than f32 can distinguish
}

class Comparison {
public:
  Comparison(const Description &model, const Description &other, std::string family)
      : model(model), other(other), family(std::move(family)) {}

  std::string first() const {
    if (!model.tokens.sourceEos)
      return "tokens.source_eos: false" + where("true");
    for (bool decoder : {false, true}) {
      const StackDescription &a = stackOf(model, decoder), &b = stackOf(other, decoder);
      const std::string stack = stackNames[decoder];
      for (const auto &[part, path] :
           {std::pair(&StackDescription::input, ".input"), std::pair(&StackDescription::layer, ".layer"),
            std::pair(&StackDescription::output, ".output")})
        if (std::string found = ofLists(a.*part, b.*part, stack + path); !found.empty())
          return found;
    }
    if (std::string found = ofLists(model.head, other.head, "head"); !found.empty())
      return found;
    return ofShared();
  }

private:
  std::string where(const std::string &theirs) const { return ", where " + family + " has " + theirs; }

  // The steps without dropout, which acts in training only.
  static std::vector<const StepDescription *> computing(const Steps &steps) {
    std::vector<const StepDescription *> list;
    for (const StepDescription &step : steps)
      if (!std::holds_alternative<step::Dropout>(step.options))
        list.push_back(&step);
    return list;
  }

  std::string ofLists(const Steps &ours, const Steps &theirs, const std::string &path) const {
    const std::vector<const StepDescription *> a = computing(ours), b = computing(theirs);
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      if (std::string found = ofSteps(*a[i], *b[i]); !found.empty())
        return found;
    if (a.size() > b.size())
      return a[b.size()]->jsonPath + ": " + a[b.size()]->kind->title() + where("nothing");
    return a.size() < b.size() ? path + ": ends" + where("another step, " + b[a.size()]->kind->title()) : "";
  }

  std::string ofSteps(const StepDescription &a, const StepDescription &b) const {
    if (a.kind != b.kind)
      return a.jsonPath + ": " + a.kind->title() + where(b.kind->title());
    if (a.name != b.name)
      return a.jsonPath + ".name: " + inQuotes(a.name) + where(inQuotes(b.name));
    for (const Option &option : a.kind->options) {
      if (option.name == "dropout" || option.name == "return_weights")
        continue;
      const Json ours = std::visit(ValueOf{a.options}, option.type),
                 theirs = std::visit(ValueOf{b.options}, option.type);
      if (!sameValue(ours, theirs))
        return a.jsonPath + "." + option.name + ": " + ours.dump() + where(theirs.dump());
    }
    return ofLists(stepsInside(a), stepsInside(b), a.jsonPath + ".body");
  }

  // Compares which parameters are tied.
  std::string ofShared() const {
    const auto owner = [](const Description &description, const std::string &name) {
      const ParameterDescription *found = description.parameter(name);
      return found ? found->name : "";
    };
    for (const Description *description : {&other, &model})
      for (const ParameterDescription &parameter : description->parameters)
        for (const std::string &name : parameter.aliases) {
          const std::string ours = owner(model, name), theirs = owner(other, name);
          if (ours != theirs)
            return "share: " + inQuotes(name) + " is " + (ours == name ? "untied" : "tied to " + inQuotes(ours)) +
                   where(theirs == name ? "it untied" : "it tied to " + inQuotes(theirs));
        }
    return "";
  }

  const Description &model, &other;
  std::string family;
};

} // namespace

Json describeStacks(const Description &model) {
  Json json;
  for (bool decoder : {false, true}) {
    const StackDescription &stack = stackOf(model, decoder);
    const std::string name = stackNames[decoder], layer = name + ".layer";
    const auto &embedding = required<step::Embedding>(stack.input, name + ".input", "embedding");
    const auto &attention = required<step::Attention>(stack.layer, layer, "attention");
    if (!decoder) {
      json["vocab_size"] = embedding.vocab;
      json["d_model"] = embedding.dim;
      json["scale_embedding"] = embedding.scaleBySqrtDim || (embedding.scale != 1 && embedding.dim > 1);
      const auto *learned = find<step::LearnedPositions>(stack.input);
      json["max_position_embeddings"] =
          learned ? learned->maxLength
                  : required<step::SinusoidalPositions>(stack.input, name + ".input", "positions").maxLength;
      json["activation_function"] =
          activationName(required<step::Activation>(stack.layer, layer, "activation").function);
      const auto *dropout = find<step::Dropout>(stack.input);
      json["dropout"] = dropout ? dropout->rate : 0;
      json["attention_dropout"] = attention.dropout;
      json["activation_dropout"] = innerDropout(stack.layer);
    }
    json[name + "_layers"] = stack.layers;
    json[name + "_attention_heads"] = attention.heads;
    json[name + "_ffn_dim"] = required<step::Linear>(stack.layer, layer, "linear named ffn.in", "ffn.in").features;
    json[name + "_layerdrop"] = 0.0;
  }
  addCommon(model, json);
  return json;
}

Json describeMarian(const Description &model) {
  Json json = describeStacks(model);
  const bool shared = tied(model, "encoder.embed.weight", "decoder.embed.weight");
  json["share_encoder_decoder_embeddings"] = shared;
  json["decoder_vocab_size"] = model.targetVocab;
  json["static_position_embeddings"] = true;
  return json;
}

Json describeT5(const Description &model) {
  Json json;
  const StackDescription &encoder = model.encoder, &decoder = stackOf(model, true);
  const auto &embedding = required<step::Embedding>(encoder.input, "encoder.input", "embedding");
  const auto &attention = required<step::Attention>(encoder.layer, "encoder.layer", "attention");
  json["vocab_size"] = embedding.vocab;
  json["d_model"] = embedding.dim;
  json["d_kv"] = attention.keyDim;
  const auto *gated = find<step::Gated>(encoder.layer);
  json["d_ff"] = gated
                     ? gated->features
                     : required<step::Linear>(encoder.layer, "encoder.layer", "linear named ffn.in", "ffn.in").features;
  json["num_layers"] = encoder.layers;
  json["num_decoder_layers"] = decoder.layers;
  json["num_heads"] = attention.heads;
  json["relative_attention_num_buckets"] = attention.buckets;
  json["relative_attention_max_distance"] = attention.maxDistance;
  json["n_positions"] = attention.maxLength;
  if (!gated)
    json["feed_forward_proj"] =
        activationName(required<step::Activation>(encoder.layer, "encoder.layer", "activation").function);
  else if (gated->activation == "gelu_tanh")
    json["feed_forward_proj"] = "gated-gelu"; // T5's name for it, whatever "gelu" means elsewhere
  else
    json["feed_forward_proj"] =
        "gated-" + (gated->activation == "gelu" ? "gelu_python" : activationName(gated->activation));
  const auto *dropout = find<step::Dropout>(encoder.input);
  json["dropout_rate"] = dropout ? dropout->rate : 0;
  json["layer_norm_epsilon"] = required<step::RmsNorm>(encoder.layer, "encoder.layer", "rms_norm").eps;
  json["scale_decoder_outputs"] = find<step::Scale>(model.head) != nullptr;
  addCommon(model, json);
  return json;
}

//===-- CTranslate2 ---------------------------------------------------------------------------------------------===//

// The eps of the first norm, and whether it is an RMS norm.
static std::pair<double, bool> normIn(const Steps &layer, const std::string &path) {
  if (const auto *rms = find<step::RmsNorm>(layer))
    return {rms->eps, true};
  return {required<step::LayerNorm>(layer, path, "norm").eps, false};
}

static bool hasNorm(const Steps &steps) { return find<step::RmsNorm>(steps) || find<step::LayerNorm>(steps); }

// Whether the norm of the first branch comes first in it.
static bool isPreNorm(const Steps &layer) {
  const auto *residual = find<step::Residual>(layer);
  return residual && hasNorm(residual->body);
}

static ctranslate2::Attention attentionOf(const Steps &layer, const std::string &path, bool cross) {
  const std::string name = cross ? "cross_attn" : "self_attn";
  const auto &from = required<step::Attention>(layer, path, "attention named " + name, name);
  ctranslate2::Attention attention;
  attention.cross = cross;
  attention.headDim = from.keyDim;
  attention.kvHeads = from.kvHeads;
  attention.queriesScale = 1 / from.scale;
  attention.biasQ = from.biasQ;
  attention.biasK = from.biasK;
  attention.biasV = from.biasV;
  attention.biasO = from.biasO;
  if (from.distanceBias == step::Attention::DistanceBias::buckets)
    attention.buckets = from.buckets;
  attention.maxDistance = from.maxDistance;
  attention.rotaryDim = from.rotary == step::Attention::Rotary::none ? -1 : from.rotaryDim;
  attention.rotaryInterleave = from.rotary != step::Attention::Rotary::halves;
  attention.rotaryBase = from.rotaryBase;
  attention.maxLength = from.maxLength;
  return attention;
}

// The positions of a stack, which CTranslate2 adds if, and only if, its attentions know none.
static Json positionsOf(const StackDescription &stack, const std::string &name, bool inAttention) {
  const StepDescription *learned = findStep<step::LearnedPositions>(stack.input),
                        *sinusoidal = findStep<step::SinusoidalPositions>(stack.input),
                        *step = learned ? learned : sinusoidal;
  if (step && inAttention)
    throw Error(step->jsonPath + ": " + step->kind->title() +
                ", where CTranslate2 has nothing, since the attentions of the stack know positions by themselves");
  if (!step && !inAttention)
    throw Error(name + ".input: has no positions, where CTranslate2 always adds some");
  if (learned) {
    const auto &positions = std::get<step::LearnedPositions>(learned->options);
    Json json = {{"op", "positions"}, {"kind", "learned"}, {"max_length", positions.maxLength}};
    if (positions.offset > 0)
      json["offset"] = positions.offset;
    return json;
  }
  if (!step)
    return nullptr;
  const auto &positions = std::get<step::SinusoidalPositions>(step->options);
  return ctranslate2::stepOf(positions, positions.maxLength);
}

static int64_t activationOf(const Steps &layer, const std::string &path, bool gated) {
  const StepDescription *step = gated ? findStep<step::Gated>(layer) : findStep<step::Activation>(layer);
  if (!step)
    throw Error(path + ": has no activation");
  const std::string function =
      gated ? std::get<step::Gated>(step->options).activation : std::get<step::Activation>(step->options).function;
  const std::vector<std::string> &known = ctranslate2::activations();
  const auto found = std::find(known.begin(), known.end(), function);
  if (found != known.end())
    return found - known.begin();
  std::string list;
  for (const std::string &name : known)
    list += name.empty() ? "" : (list.empty() ? "" : ", ") + name;
  throw Error(step->jsonPath + ": " + function + ", which CTranslate2 does not compute; it has " + list);
}

ctranslate2::Form describeCtranslate2(const Description &model) {
  ctranslate2::Form form;
  for (bool decoder : {false, true}) {
    const StackDescription &from = stackOf(model, decoder);
    const std::string name = stackNames[decoder], layer = name + ".layer";
    const auto &embedding = required<step::Embedding>(from.input, name + ".input", "embedding");
    const auto *gated = find<step::Gated>(from.layer);
    const auto [eps, rms] = normIn(from.layer, layer);
    ctranslate2::Stack &stack = form.stacks[decoder];
    if (!decoder) {
      form.dim = embedding.dim;
      form.maxLength = std::max<int64_t>(model.maxSourceLength, 1);
      form.eps = eps;
    }
    stack.layers = from.layers;
    stack.vocab = embedding.vocab;
    stack.embeddingScale = embedding.scale;
    stack.preNorm = isPreNorm(from.layer);
    stack.rms = rms;
    stack.embeddingNorm = hasNorm(from.input);
    stack.finalNorm = hasNorm(from.output);
    stack.self = attentionOf(from.layer, layer, false);
    stack.heads = required<step::Attention>(from.layer, layer, "attention").heads;
    stack.cross.cross = true;
    if (decoder)
      stack.cross = attentionOf(from.layer, layer, true);
    stack.positions = positionsOf(from, name, stack.self.hasPositions());
    stack.gated = gated != nullptr;
    stack.activation = activationOf(from.layer, layer, stack.gated);
    const auto *in = gated ? nullptr : &required<step::Linear>(from.layer, layer, "linear named ffn.in", "ffn.in");
    stack.ffn = gated ? gated->features : in->features;
    stack.ffnInBias = gated ? gated->bias : in->bias;
    stack.ffnOutBias = required<step::Linear>(from.layer, layer, "linear named ffn.out", "ffn.out").bias;
  }
  const auto *scale = find<step::Scale>(model.head);
  form.outputScale = scale ? scale->by : 1;
  form.outputBias = required<step::Linear>(model.head, "head", "linear named output", "output").bias;
  return form;
}

std::string differenceFrom(const Description &model, const Description &other, const std::string &family) {
  return Comparison(model, other, family).first();
}

} // namespace xfc
