// The table of step kinds.
#include "StepKinds.h"
#include <algorithm>
#include <cstdio>

namespace xfc {
namespace {

using namespace step;
using Presence = Option::Presence;
using Place = StepKind::Place;

Option name(std::string otherwise = "") {
  const Presence presence = otherwise.empty() ? Presence::Required : Presence::Optional;
  return {"name", Option::Name{std::move(otherwise)}, "the name of the step", presence};
}

// A required extent.
Option extent(std::string name, Member<int64_t> place, std::string meaning, int64_t high = maxExtent) {
  return {std::move(name), Option::Integer{std::move(place), 1, high, {}}, std::move(meaning), Presence::Required};
}

Option number(std::string name, Member<double> place, double low, double high, std::string meaning) {
  return {std::move(name), Option::Number{std::move(place), low, high}, std::move(meaning)};
}

// The fraction of elements to drop.
Option rate(std::string name, Member<double> place, std::string meaning, Presence presence) {
  return {std::move(name), Option::Number{std::move(place), 0, 1, /*open=*/true}, std::move(meaning), presence};
}

// An eps of zero, or one that rounds to zero in f32, would turn a row of equal features into NaN.
Option eps(Member<double> place) { return number("eps", std::move(place), 1e-30, 1e6, "added in the denominator"); }

Option flag(std::string name, Member<bool> place, std::string meaning) {
  return {std::move(name), Option::Flag{std::move(place)}, std::move(meaning)};
}

// A choice among words, each of which stands for a value of the member.
template <typename T>
Option::Choice choice(std::string noun, Member<T> place, const std::vector<std::pair<std::string, T>> &values) {
  std::vector<std::string> words;
  words.reserve(values.size());
  for (const auto &[word, value] : values)
    words.push_back(word);
  return {std::move(noun), std::move(words), [=](StepOptions &options, size_t i) { place(options) = values[i].second; },
          [=](const StepOptions &options) {
            auto holds = [&](const auto &value) { return value.second == place(options); };
            return size_t(std::find_if(values.begin(), values.end(), holds) - values.begin());
          }};
}

// The number that is added to the position of a token.
Option offset(Member<int64_t> place) {
  return {"offset", Option::Integer{std::move(place), 0, maxPositions, {}},
          "the position of the first token; the table has that many extra rows"};
}

StepKind activation(const std::string &function, std::string meaning) {
  return {function, "", std::move(meaning), Activation{function}};
}

template <typename Kind> std::function<std::string(const StepOptions &)> label(std::string (*text)(const Kind &)) {
  return [text](const StepOptions &options) { return text(std::get<Kind>(options)); };
}

std::string to(int64_t features) { return " to " + std::to_string(features); }

} // namespace

const std::vector<StepKind> &stepKinds() {
  static const std::vector<StepKind> kinds = {
      {.op = "embedding",
       .meaning = "table look-up: parameter NAME.weight [vocab, dim]",
       .defaults = Embedding{},
       .options = {name(),
                   extent("vocab", &Embedding::vocab, "the number of tokens"),
                   extent("dim", &Embedding::dim, "the features of a token"),
                   {"scale",
                    Option::Number{
                        &Embedding::scale, -maxNumber, maxNumber, false,
                        choice<bool>("scale", &Embedding::scaleBySqrtDim, {{"none", false}, {"sqrt_dim", true}})},
                    "what the rows are multiplied by"}},
       .place = Place::StartOfInput,
       .label = label<Embedding>(
           [](const Embedding &e) { return "embedding " + std::to_string(e.vocab) + " x " + std::to_string(e.dim); })},

      // Below the bounds of these options, a divisor could become 0 and an encoding NaN.
      {.op = "positions",
       .variant = "sinusoidal",
       .meaning = "adds pe[p,i] = sin(p / base^(m i/d)), pe[p,i+1] = cos(p / base^(m (i+c)/d)) for even i",
       .defaults = SinusoidalPositions{},
       .options = {extent("max_length", &SinusoidalPositions::maxLength, "the number of positions", maxPositions),
                   offset(&SinusoidalPositions::offset),
                   number("base", &SinusoidalPositions::base, 1, maxNumber, "the base of the wavelengths"),
                   number("exponent_multiplier", &SinusoidalPositions::exponentMultiplier, 0, 1e6, "m of the equation"),
                   number("cosine_offset", &SinusoidalPositions::cosineOffset, 0, 1e6, "c of the equation"),
                   {"layout",
                    choice<bool>("layout", &SinusoidalPositions::halves, {{"interleaved", false}, {"halves", true}}),
                    "sines and cosines in turn, or all sines first"}},
       .place = Place::Stacks},

      {.op = "positions",
       .variant = "learned",
       .meaning = "adds a row of the parameter NAME.weight [max_length + offset, d]",
       .defaults = LearnedPositions{},
       .options = {name("pos"),
                   extent("max_length", &LearnedPositions::maxLength, "the number of positions", maxPositions),
                   offset(&LearnedPositions::offset)},
       .place = Place::Stacks},

      {.op = "attention",
       .meaning = "multi-head attention: parameters NAME.{q,k,v,o}.{weight,bias}",
       .defaults = Attention{},
       .options = {name(),
                   {"heads", Option::Integer{&Attention::heads, 1, maxExtent, {}},
                    "the number of heads; required with projections", Presence::Depends},
                   {"kv_heads", Option::Integer{&Attention::kvHeads, 1, maxExtent, {}},
                    "the number of heads of keys and values, a divisor of heads; each is shared by equally many "
                    "neighbouring heads of queries; heads if not given",
                    Presence::Depends},
                   {"key_dim", Option::Integer{&Attention::keyDim, 1, maxExtent, &Attention::heads},
                    "the features of a query and a key of one head; d/heads if not given", Presence::Depends},
                   {"value_dim", Option::Integer{&Attention::valueDim, 1, maxExtent, &Attention::heads},
                    "the features of a value of one head; d/heads if not given", Presence::Depends},
                   {"bias",
                    Option::Flags{{{"q", &Attention::biasQ},
                                   {"k", &Attention::biasK},
                                   {"v", &Attention::biasV},
                                   {"o", &Attention::biasO}}},
                    "whether the projections have biases"},
                   {"memory", choice<bool>("memory", &Attention::encoderMemory, {{"self", false}, {"encoder", true}}),
                    "what is attended to: x itself, or in the decoder the encoder's output"},
                   {"memory_body", Option::Steps{&Attention::memoryBody},
                    "steps that the encoder's output goes through first; their names are relative to the layer"},
                   {"mask", Option::Set{{{"padding", &Attention::padding}, {"causal", &Attention::causal}}},
                    "padding: pad tokens are not attended to; causal: a query sees no later position"},
                   {"window", Option::Integer{&Attention::window, 1, maxPositions, {}},
                    "how many positions a query sees, in self-attention: with a causal mask its own and those before "
                    "it, otherwise that many to each side; all if not given",
                    Presence::Depends},
                   {"scale",
                    Option::Number{&Attention::scale, 1e-20, maxNumber, false,
                                   choice<bool>("scale", &Attention::scaleBySqrtModelDim,
                                                {{"sqrt_key_dim", false}, {"sqrt_model_dim", true}}),
                                   "a number to divide by"},
                    "what scores are divided by"},
                   {"distance_bias",
                    choice<Attention::DistanceBias>("bias", &Attention::distanceBias,
                                                    {{"none", Attention::DistanceBias::none},
                                                     {"buckets", Attention::DistanceBias::buckets},
                                                     {"slopes", Attention::DistanceBias::slopes}}),
                    "what is added to scores by the distance of key and query, in self-attention: a parameter "
                    "NAME.distance_bias.weight [buckets, heads] (T5's; one for several layers by `share`), or fixed "
                    "slopes, one per head (ALiBi)"},
                   {"buckets", Option::Integer{&Attention::buckets, 2, 1024, {}},
                    "the number of buckets of distances, half of them for each direction unless the mask is causal"},
                   {"max_distance", Option::Integer{&Attention::maxDistance, 2, maxPositions, {}},
                    "distances from this one on share the last bucket"},
                   {"rotary",
                    choice<Attention::Rotary>("layout", &Attention::rotary,
                                              {{"none", Attention::Rotary::none},
                                               {"interleaved", Attention::Rotary::interleaved},
                                               {"halves", Attention::Rotary::halves}}),
                    "whether queries and keys are rotated by their positions, in self-attention (RoPE): pairs of "
                    "features (a, b) become (a cos t - b sin t, b cos t + a sin t) with t = p / rotary_base^(2i/r) for "
                    "pair i of r/2; a pair is features 2i and 2i + 1 of a head, or i and i + r/2"},
                   number("rotary_base", &Attention::rotaryBase, 1, maxNumber, "the base of the wavelengths"),
                   {"rotary_dim", Option::Integer{&Attention::rotaryDim, 2, maxExtent, {}},
                    "r, the first features of a head, which are rotated; key_dim if not given", Presence::Depends},
                   {"max_length", Option::Integer{&Attention::maxLength, 1, maxPositions, {}},
                    "the number of positions; required with a distance_bias and with rotary", Presence::Depends},
                   rate("dropout", &Attention::dropout, "dropout of the weights", Presence::Optional),
                   flag("return_weights", &Attention::returnWeights, "whether the program forward returns the weights"),
                   flag("projections", &Attention::projections,
                        "false: no parameters, one head, q = k = v = x, and a scale of 1 unless given")},
       .place = Place::Stacks,
       .label = label<Attention>([](const Attention &a) {
         return std::string(a.encoderMemory ? "cross"
                            : a.causal      ? "causal self"
                                            : "self") +
                "-attention, " + std::to_string(a.heads) + (a.heads == 1 ? " head" : " heads");
       }),
       .conditions = R"({"if": {"properties": {"projections": {"const": false}}, "required": ["projections"]},
                         "then": {"not": {"anyOf": [{"required": ["kv_heads"]}, {"required": ["key_dim"]}, {"required": ["value_dim"]},
                                                    {"required": ["bias"]}]}},
                         "else": {"required": ["heads"]},
                         "allOf": [{"if": {"properties": {"distance_bias": {"enum": ["buckets", "slopes"]}},
                                           "required": ["distance_bias"]},
                                    "then": {"required": ["max_length"]}},
                                   {"if": {"properties": {"rotary": {"enum": ["interleaved", "halves"]}},
                                           "required": ["rotary"]},
                                    "then": {"required": ["max_length"]}}]})"},

      {.op = "recurrence",
       .meaning =
           "c[t] = f c[t-1] + (1 - f) (x[t] Wv^T + bv) with f = sigmoid(x[t] Wg^T + bg), from token to token (SSRU, "
           "without the relu that follows it): parameters NAME.{gate,value}.{weight,bias}",
       .defaults = Recurrence{},
       .options = {name(),
                   {"bias", Option::Flags{{{"gate", &Recurrence::biasGate}, {"value", &Recurrence::biasValue}}},
                    "whether the products have biases"}},
       .place = Place::Stacks},

      {.op = "linear",
       .meaning = "x W^T + b: parameters NAME.{weight,bias}",
       .defaults = Linear{},
       .options = {name(), extent("features", &Linear::features, "the number of features of the result"),
                   flag("bias", &Linear::bias, "whether there is a bias")},
       .label = label<Linear>([](const Linear &l) { return "linear" + to(l.features); })},

      {.op = "layer_norm",
       .meaning = "w (x - mean) / sqrt(var + eps) + b, or / (std + eps): parameters NAME.{weight,bias}",
       .defaults = LayerNorm{},
       .options = {name(),
                   eps(&LayerNorm::eps),
                   {"variance", choice<bool>("variance", &LayerNorm::unbiased, {{"biased", false}, {"unbiased", true}}),
                    "whether to divide by n or by n - 1"},
                   {"eps_in", choice<bool>("place of eps", &LayerNorm::epsInStd, {{"variance", false}, {"std", true}}),
                    "whether eps is added inside the root or outside it"}}},

      {.op = "rms_norm",
       .meaning = "w x / sqrt(mean(x^2) + eps): parameter NAME.weight",
       .defaults = RmsNorm{},
       .options = {name(), eps(&RmsNorm::eps)}},

      activation("relu", "max(x, 0)"),
      activation("squared_relu", "max(x, 0)^2"),
      activation("gelu", "x Phi(x), by erf"),
      activation("gelu_tanh", "x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2"),
      activation("silu", "x / (1 + exp(-x))"),
      activation("tanh", "tanh(x)"),

      {.op = "scale",
       .meaning = "x times a factor",
       .defaults = Scale{},
       .options = {{"by",
                    Option::Number{&Scale::by, -maxNumber, maxNumber, false,
                                   choice<double>("factor", &Scale::power, {{"sqrt_dim", 0.5}, {"rsqrt_dim", -0.5}})},
                    "the factor; sqrt_dim is the root of x's features, rsqrt_dim its reciprocal", Presence::Required}}},

      {.op = "gated",
       .meaning = "activation(x Wg^T) * (x Wv^T): parameters NAME.{gate,value}.{weight,bias}",
       .defaults = Gated{},
       .options = {name(),
                   extent("features", &Gated::features, "the number of features of the result"),
                   {"activation",
                    choice<std::string>("activation", &Gated::activation,
                                        {{"relu", "relu"},
                                         {"squared_relu", "squared_relu"},
                                         {"gelu", "gelu"},
                                         {"gelu_tanh", "gelu_tanh"},
                                         {"silu", "silu"},
                                         {"tanh", "tanh"}}),
                    "the activation of the gate"},
                   flag("bias", &Gated::bias, "whether both products have a bias")},
       .label = label<Gated>([](const Gated &g) { return "gated" + to(g.features); })},

      {.op = "dropout",
       .meaning = "inverted dropout, in training only",
       .defaults = Dropout{},
       .options = {rate("rate", &Dropout::rate, "the share of elements that become 0", Presence::Required)},
       .label = label<Dropout>([](const Dropout &d) {
         char text[40];
         std::snprintf(text, sizeof text, "dropout %g", d.rate);
         return std::string(text);
       })},

      {.op = "residual",
       .meaning = "x + body(x)",
       .defaults = Residual{},
       .options = {{"body", Option::Steps{&Residual::body, /*least=*/1}, "the steps whose result is added to x",
                    Presence::Required}}},
  };
  return kinds;
}

std::string StepKind::labelOf(const StepDescription &step) const {
  if (label)
    return label(step.options);
  std::string text = title();
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

const std::vector<StepDescription> &stepsInside(const StepDescription &step) {
  static const std::vector<StepDescription> none;
  for (const Option &option : step.kind->options)
    if (auto *steps = std::get_if<Option::Steps>(&option.type))
      return steps->place(step.options);
  return none;
}

} // namespace xfc
