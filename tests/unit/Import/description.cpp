// Checks what a model.json means once read: parameters, shapes, ties, overrides; and that no text crashes the reader.
#include "Import/Generation.h"
#include "Import/StepKinds.h"
#include "Models.h"
#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>

using namespace xfc;
using namespace xfc::test;
using Shape = std::vector<int64_t>;

namespace {

std::string errorOf(const std::string &text, const std::vector<Override> &overrides = {}) {
  try {
    parseDescription(text, "m.json", overrides);
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

std::vector<std::string> namesOf(const Description &model) {
  std::vector<std::string> names;
  for (const ParameterDescription &parameter : model.parameters)
    names.push_back(parameter.name);
  return names;
}

Shape shapeOf(const Description &model, const std::string &name) {
  const ParameterDescription *parameter = model.parameter(name);
  return parameter ? parameter->shape : Shape{};
}

int64_t elements(const Description &model) {
  int64_t sum = 0;
  for (const ParameterDescription &parameter : model.parameters) {
    int64_t product = 1;
    for (int64_t extent : parameter.shape)
      product *= extent;
    sum += product;
  }
  return sum;
}

template <typename Kind> const Kind &as(const StepDescription &step) { return std::get<Kind>(step.options); }

StepDescription onlyStep(const std::string &step) {
  return parseDescription(encoderText(step), "m.json").encoder.layer.at(0);
}

// Step `i` in the body of the layer's step `residual`, which is a residual.
const StepDescription &inResidual(const StackDescription &stack, size_t residual, size_t i) {
  return as<step::Residual>(stack.layer.at(residual)).body.at(i);
}

template <typename Kind> Kind only(const std::string &step) { return as<Kind>(onlyStep(step)); }

} // namespace

// Counted by hand from the papers' equations, with V = 16000, d = 512, ff = 2048.
TEST(Shipped, ParameterCounts) {
  const int64_t V = 16000, d = 512, f = 2048;
  const int64_t norm = 2 * d, ffn = 2 * d * f + f + d, attention = 4 * d * d + 4 * d;
  EXPECT_EQ(elements(shippedModel("original")),
            V * d + 6 * (attention + ffn + 2 * norm) + 6 * (2 * attention + ffn + 3 * norm));
  EXPECT_EQ(elements(shippedModel("original-book-positions")),
            2 * V * d + 6 * (4 * d * d + ffn + 2 * norm) + 6 * (8 * d * d + ffn + 3 * norm) + V * d + V);
  EXPECT_EQ(elements(shippedModel("final-norm")), 2 * V * d + 6 * (attention + ffn + 2 * norm) + norm +
                                                      6 * (2 * attention + ffn + 3 * norm) + norm + V * d + V);
  EXPECT_EQ(elements(shippedModel("memory-norm")),
            2 * V * d + 6 * (4 * d * d + ffn + 2 * norm) + 6 * (8 * d * d + ffn + 4 * norm) + V * d + V);
  EXPECT_EQ(elements(shippedModel("learned-positions")),
            2 * (V + 100) * d + 6 * (attention + ffn + 2 * norm) + 6 * (2 * attention + ffn + 3 * norm) + V * d + V);
  EXPECT_EQ(elements(shippedModel("plain-attention")), 0);
  EXPECT_EQ(elements(shippedModel("encoder-block")), attention + ffn + 2 * norm);
  EXPECT_EQ(elements(shippedModel("modern")),
            V * d + 8 * (4 * d * d + 3 * d * 1376 + 2 * d) + d + 2 * (8 * d * d + 3 * d * 1376 + 3 * d) + d);
}

TEST(Shipped, FreeHeadDimsTakesOddSizes) {
  Description model = shippedModel("free-head-dims", {{"d_model", "32"},
                                                      {"heads", "4"},
                                                      {"key_dim", "5"},
                                                      {"value_dim", "7"},
                                                      {"source_vocab", "10"},
                                                      {"target_vocab", "10"},
                                                      {"d_ff", "48"}});
  EXPECT_EQ(shapeOf(model, "decoder.layers.5.cross_attn.q.weight"), (Shape{20, 32}));
  EXPECT_EQ(shapeOf(model, "decoder.layers.5.cross_attn.v.weight"), (Shape{28, 32}));
  EXPECT_EQ(shapeOf(model, "decoder.layers.5.cross_attn.o.weight"), (Shape{32, 28}));
  EXPECT_DOUBLE_EQ(as<step::Attention>(inResidual(model.encoder, 0, 0)).scale, std::sqrt(5.0));
}

TEST(Shipped, ParametersHaveTheDocumentedNames) {
  Description model = shippedModel("tiny");
  for (const char *name :
       {"encoder.embed.weight", "decoder.embed.weight", "encoder.layers.0.self_attn.q.weight",
        "encoder.layers.1.ffn.in.bias", "decoder.layers.1.cross_attn.o.bias", "decoder.layers.0.cross_attn_norm.weight",
        "encoder.norm.weight", "decoder.norm.bias", "output.weight", "output.bias"})
    EXPECT_NE(model.parameter(name), nullptr) << name;
  EXPECT_NE(shippedModel("learned-positions").parameter("encoder.pos.weight"), nullptr);
  EXPECT_NE(shippedModel("memory-norm").parameter("decoder.layers.5.memory_norm.bias"), nullptr);
  EXPECT_NE(shippedModel("modern").parameter("encoder.layers.7.ffn.in.gate.weight"), nullptr);
}

TEST(Shipped, EveryTranslatorTakesTheCommonParameters) {
  for (const std::string &name : shipped) {
    Description model = shippedModel(name);
    if (!model.decoder)
      continue;
    for (const char *param : {"source_vocab", "target_vocab", "d_model", "encoder_layers", "decoder_layers", "d_ff",
                              "dropout", "max_length"})
      EXPECT_TRUE(model.params.count(param)) << name << " " << param;
    EXPECT_TRUE(model.params.count("heads") ||
                (model.params.count("encoder_heads") && model.params.count("decoder_heads")))
        << name;
  }
}

TEST(Shipped, WhatTheSeedDocumentsCompute) {
  Description book = shippedModel("original-book-positions");
  const auto &positions = as<step::SinusoidalPositions>(book.encoder.input.at(1));
  EXPECT_EQ(positions.exponentMultiplier, 2);
  EXPECT_EQ(positions.cosineOffset, 0);
  EXPECT_DOUBLE_EQ(as<step::Embedding>(book.encoder.input.at(0)).scale, std::sqrt(512.0));
  Description final = shippedModel("final-norm");
  const auto &norm = as<step::LayerNorm>(final.decoder->output.at(0));
  EXPECT_TRUE(norm.unbiased && norm.epsInStd);
  EXPECT_EQ(norm.eps, 1e-6);
  EXPECT_EQ(as<step::SinusoidalPositions>(final.encoder.input.at(1)).cosineOffset, 1);
  EXPECT_EQ(final.maxSourceLength, 80);
  const auto &masked = as<step::Attention>(inResidual(*final.decoder, 0, 1));
  EXPECT_TRUE(masked.padding && masked.causal);
  EXPECT_EQ(masked.dropout, 0.1);
  Description memory = shippedModel("memory-norm", {{"encoder_heads", "4"}});
  EXPECT_EQ(as<step::Attention>(inResidual(memory.encoder, 0, 1)).heads, 4);
  const auto &cross = as<step::Attention>(inResidual(*memory.decoder, 1, 1));
  EXPECT_EQ(cross.heads, 8);
  EXPECT_TRUE(cross.encoderMemory && cross.returnWeights && !cross.biasQ && !cross.biasO);
  EXPECT_EQ(as<step::LayerNorm>(cross.memoryBody.at(0)).eps, 1e-5);
  Description learned = shippedModel("learned-positions");
  EXPECT_DOUBLE_EQ(as<step::Attention>(inResidual(learned.encoder, 0, 0)).scale, std::sqrt(512.0));
  EXPECT_EQ(as<step::Embedding>(learned.encoder.input.at(0)).scale, 1);
  EXPECT_FALSE(as<step::Attention>(inResidual(*learned.decoder, 0, 0)).padding);
}

TEST(Description, DefaultsOfEveryStep) {
  auto attention = only<step::Attention>(R"({"op": "attention", "name": "a", "heads": 3})");
  EXPECT_EQ(attention.keyDim, 2);
  EXPECT_EQ(attention.valueDim, 2);
  EXPECT_DOUBLE_EQ(attention.scale, std::sqrt(2.0));
  EXPECT_TRUE(attention.padding && !attention.causal && !attention.encoderMemory && attention.projections &&
              !attention.returnWeights);
  EXPECT_TRUE(attention.biasQ && attention.biasK && attention.biasV && attention.biasO);
  EXPECT_EQ(attention.dropout, 0);
  auto plain = only<step::Attention>(R"({"op": "attention", "name": "a", "projections": false})");
  EXPECT_EQ(plain.scale, 1);
  EXPECT_EQ(plain.heads, 1);
  EXPECT_EQ(plain.keyDim, 6);
  auto layerNorm = only<step::LayerNorm>(R"({"op": "layer_norm", "name": "n"})");
  EXPECT_EQ(layerNorm.eps, 1e-5);
  EXPECT_FALSE(layerNorm.unbiased || layerNorm.epsInStd);
  EXPECT_EQ(only<step::RmsNorm>(R"({"op": "rms_norm", "name": "n"})").eps, 1e-6);
  auto gated = only<step::Gated>(R"({"op": "gated", "name": "g", "features": 6})");
  EXPECT_EQ(gated.activation, "silu");
  EXPECT_FALSE(gated.bias);
  auto positions = only<step::SinusoidalPositions>(R"({"op": "positions", "kind": "sinusoidal", "max_length": 7})");
  EXPECT_EQ(positions.base, 10000);
  EXPECT_EQ(positions.exponentMultiplier, 1);
  EXPECT_EQ(positions.cosineOffset, 0);
  EXPECT_FALSE(positions.halves);
  EXPECT_EQ(onlyStep(R"({"op": "positions", "kind": "learned", "max_length": 7})").name, "pos");
}

TEST(Description, OptionsOfEveryStep) {
  auto attention = only<step::Attention>(
      R"({"op": "attention", "name": "a", "heads": 4, "key_dim": 5, "value_dim": 3, "mask": ["causal"],
      "scale": 2.5, "dropout": 0.25, "bias": {"k": false, "o": false}, "return_weights": true})");
  EXPECT_EQ(attention.keyDim, 5);
  EXPECT_EQ(attention.valueDim, 3);
  EXPECT_EQ(attention.scale, 2.5);
  EXPECT_TRUE(attention.biasQ && !attention.biasK && attention.biasV && !attention.biasO);
  EXPECT_TRUE(!attention.padding && attention.causal && attention.returnWeights);
  EXPECT_EQ(attention.dropout, 0.25);
  EXPECT_DOUBLE_EQ(
      only<step::Attention>(R"({"op": "attention", "name": "a", "heads": 3, "scale": "sqrt_model_dim"})").scale,
      std::sqrt(6.0));
  EXPECT_EQ(
      only<step::Attention>(R"({"op": "attention", "name": "a", "projections": false, "scale": 4, "heads": 1})").scale,
      4);
  auto none = only<step::Attention>(R"({"op": "attention", "name": "a", "heads": 3, "bias": false, "mask": []})");
  EXPECT_FALSE(none.biasQ || none.biasK || none.biasV || none.biasO || none.padding || none.causal);
  auto positions =
      only<step::SinusoidalPositions>(R"({"op": "positions", "kind": "sinusoidal", "max_length": 7, "base": 100,
      "exponent_multiplier": 2, "cosine_offset": 1, "layout": "halves"})");
  EXPECT_EQ(positions.base, 100);
  EXPECT_TRUE(positions.halves);
  auto norm = only<step::LayerNorm>(
      R"({"op": "layer_norm", "name": "n", "eps": 0.5, "variance": "unbiased", "eps_in": "std"})");
  EXPECT_TRUE(norm.unbiased && norm.epsInStd);
  EXPECT_EQ(norm.eps, 0.5);
  EXPECT_EQ(only<step::Gated>(R"({"op": "gated", "name": "g", "features": 6, "activation": "tanh"})").activation,
            "tanh");
}

TEST(Description, FeaturesFlowThroughSteps) {
  Description model =
      parseDescription(encoderText(R"({"op": "gated", "name": "g", "features": 10, "bias": true}, {"op": "tanh"},
      {"op": "residual", "body": [{"op": "attention", "name": "a", "heads": 5}]}, {"op": "linear", "name": "l", "features": 6})",
                                   R"(, "head": [{"op": "linear", "name": "out", "features": 4}])"),
                       "m.json");
  EXPECT_EQ(shapeOf(model, "encoder.layers.1.g.gate.weight"), (Shape{10, 6}));
  EXPECT_EQ(shapeOf(model, "encoder.layers.1.g.value.bias"), (Shape{10}));
  EXPECT_EQ(shapeOf(model, "encoder.layers.1.a.k.weight"), (Shape{10, 10}));
  EXPECT_EQ(shapeOf(model, "encoder.layers.1.l.weight"), (Shape{6, 10}));
  EXPECT_EQ(shapeOf(model, "out.weight"), (Shape{4, 6}));
  EXPECT_TRUE(model.encoder.floatInput);
  EXPECT_EQ(model.encoder.inputDim, 6);
  EXPECT_FALSE(model.decoder);
}

TEST(Description, MemoryBodyComesBeforeItsAttention) {
  Description model = parseDescription(
      translatorText(R"({"op": "attention", "name": "c", "heads": 2, "memory": "encoder", "bias": false,
                         "memory_body": [{"op": "linear", "name": "narrow", "features": 4, "bias": false}, {"op": "rms_norm", "name": "n"}]})"),
      "m.json");
  EXPECT_EQ(namesOf(model),
            (std::vector<std::string>{
                "encoder.embed.weight", "decoder.embed.weight", "decoder.layers.0.narrow.weight",
                "decoder.layers.0.n.weight", "decoder.layers.0.c.q.weight", "decoder.layers.0.c.k.weight",
                "decoder.layers.0.c.v.weight", "decoder.layers.0.c.o.weight", "decoder.layers.1.narrow.weight",
                "decoder.layers.1.n.weight", "decoder.layers.1.c.q.weight", "decoder.layers.1.c.k.weight",
                "decoder.layers.1.c.v.weight", "decoder.layers.1.c.o.weight", "output.weight"}));
  EXPECT_EQ(shapeOf(model, "decoder.layers.0.c.q.weight"), (Shape{6, 6}));
  EXPECT_EQ(shapeOf(model, "decoder.layers.0.c.k.weight"), (Shape{6, 4}));
}

TEST(Description, TiedParametersAreOneUnderTheFirstName) {
  Description model = parseDescription(
      translatorText(R"({"op": "relu"})",
                     R"(, "share": [["output.weight", "decoder.embed.weight", "encoder.embed.weight"]])"),
      "m.json");
  EXPECT_EQ(namesOf(model), std::vector<std::string>{"output.weight"});
  EXPECT_EQ(model.parameters[0].aliases, (std::vector<std::string>{"decoder.embed.weight", "encoder.embed.weight"}));
  EXPECT_EQ(model.parameters[0].init, "xavier_uniform");
  EXPECT_EQ(model.parameter("encoder.embed.weight"), &model.parameters[0]);
  EXPECT_EQ(model.parameter("encoder.embed.bias"), nullptr);
}

TEST(Description, Initialisation) {
  const std::string layer =
      R"({"op": "linear", "name": "l", "features": 8}, {"op": "layer_norm", "name": "n"}, {"op": "linear", "name": "k", "features": 6})";
  Description plain = parseDescription(encoderText(layer), "m.json");
  const ParameterDescription &weight = *plain.parameter("encoder.layers.0.l.weight");
  EXPECT_EQ(weight.init, "xavier_uniform");
  EXPECT_EQ(weight.fanIn, 6);
  EXPECT_EQ(weight.fanOut, 8);
  EXPECT_EQ(plain.parameter("encoder.layers.0.l.bias")->init, "zero");
  EXPECT_EQ(plain.parameter("encoder.layers.0.n.weight")->init, "one");
  EXPECT_EQ(plain.parameter("encoder.layers.0.n.bias")->init, "zero");
  Description other = parseDescription(
      translatorText(layer,
                     R"(, "init": {"linear": "fan_in_uniform", "embedding": "normal", "bias": "fan_in_uniform"})"),
      "m.json");
  EXPECT_EQ(other.parameter("decoder.layers.1.l.weight")->init, "fan_in_uniform");
  EXPECT_EQ(other.parameter("decoder.layers.1.l.bias")->init, "fan_in_uniform");
  EXPECT_EQ(other.parameter("decoder.layers.1.l.bias")->fanIn, 6);
  EXPECT_EQ(other.parameter("encoder.embed.weight")->init, "normal");
  EXPECT_EQ(other.parameter("encoder.embed.weight")->fanIn, 6);
  EXPECT_EQ(other.parameter("decoder.layers.0.n.bias")->init, "zero");
}

TEST(Description, OverridesReachStepsAndTheCanonicalText) {
  Description model =
      shippedModel("tiny", {{"d_model", "32"}, {"dropout", "0"}, {"tokens.pad", "7"}, {"tokens.source_eos", "false"}});
  EXPECT_EQ(shapeOf(model, "encoder.embed.weight"), (Shape{4000, 32}));
  EXPECT_EQ(as<step::Dropout>(model.encoder.input.at(2)).rate, 0);
  EXPECT_EQ(model.tokens.pad, 7);
  EXPECT_FALSE(model.tokens.sourceEos);
  nlohmann::json canonical = nlohmann::json::parse(model.canonical);
  EXPECT_EQ(canonical["params"]["d_model"], 32);
  EXPECT_EQ(canonical["tokens"]["pad"], 7);
  EXPECT_EQ(canonical["tokens"]["source_eos"], false);
  EXPECT_EQ(canonical["encoder"]["input"][0]["dim"], 32);
  EXPECT_EQ(model.canonical.find('$'), std::string::npos);
}

TEST(Description, CanonicalTextDescribesTheSameModel) {
  for (const std::string &name : shipped) {
    Description model = shippedModel(name), again = parseDescription(model.canonical, "canonical");
    EXPECT_EQ(again.canonical, model.canonical) << name;
    EXPECT_EQ(namesOf(again), namesOf(model)) << name;
  }
}

TEST(Description, GenerationIsReadAndEmbedded) {
  const std::string text =
      R"({"beam": 4, "length_penalty": 1, "length_penalty_form": "power", "early_stopping": "never",
    "max_length": 200, "min_length": 2, "at_max_length": "forced_eos", "forced_first": [7], "suppress": [5, 0],
    "bad_sequences": [[4, 6], [2, 8]], "required_phrases": [[[5]], [[4, 6], [8]]], "no_repeat_ngram": 3,
    "renormalize": true})";
  const nlohmann::json json = nlohmann::json::parse(text);
  Generation expected;
  expected.beam = 4;
  expected.lengthPenalty = 1;
  expected.penaltyForm = Generation::PenaltyForm::Power;
  expected.earlyStopping = Generation::EarlyStopping::Never;
  expected.maxLength = 200;
  expected.minLength = 2;
  expected.atMaxLength = Generation::AtMaxLength::ForcedEos;
  expected.forcedFirst = {7};
  expected.suppress = {5, 0};
  expected.badSequences = {{4, 6}, {2, 8}};
  expected.requiredPhrases = {{{5}}, {{4, 6}, {8}}};
  expected.noRepeatNgram = 3;
  expected.renormalize = true;
  EXPECT_EQ(readGeneration(JsonValue(json, "m.json", "generation"), 9, 0, 2, 3), expected);
  const nlohmann::json none = nlohmann::json::object();
  EXPECT_EQ(readGeneration(JsonValue(none, "m.json", "generation"), 9, 0, 2, 3), Generation());

  const Description model =
      parseDescription(translatorText(R"({"op": "relu"})", R"(, "generation": )" + text), "m.json");
  EXPECT_EQ(nlohmann::json::parse(model.canonical)["generation"], json);
  EXPECT_EQ(parseDescription(model.canonical, "canonical").canonical, model.canonical);
  EXPECT_FALSE(nlohmann::json::parse(shippedModel("tiny").canonical).contains("generation"));
}

TEST(Description, WrongGenerationIsAnErrorWithItsPlace) {
  auto error = [](const std::string &settings) {
    return errorOf(translatorText(R"({"op": "relu"})", R"(, "generation": {)" + settings + "}"));
  };
  const std::pair<const char *, const char *> cases[] = {
      {R"("beams": 4)",
       ".beams: unknown key of generation; did you mean \"beam\"? known: beam, length_penalty, "
       "length_penalty_form, early_stopping, patience, beam_groups, diversity, coverage_penalty, max_length, "
       "max_length_ratio, min_length, min_length_ratio, at_max_length, forced_first, suppress, "
       "bad_sequences, required_phrases, no_repeat_ngram, "
       "repetition_penalty, renormalize, temperature, top_k, top_p, min_p, typical_p, "
       "epsilon_cutoff"},
      {R"("beam": 0)", ".beam: expected a whole number from 1 to 65536, found 0"},
      {R"("beam": "4")", ".beam: expected a whole number from 1 to 65536, found \"4\""},
      {R"("beam_groups": 0)", ".beam_groups: expected a whole number from 1 to 65536, found 0"},
      {R"("beam": 4, "beam_groups": 3)", ".beam_groups: 3 does not divide beam, 4, into groups of equal size"},
      {R"("beam": 4, "beam_groups": 2, "diversity": 0)",
       ".beam_groups: 2 groups without diversity write the same; expected a diversity above 0"},
      {R"("diversity": -1)", ".diversity: expected a number from 0 to 100, found -1"},
      {R"("length_penalty": 41)", ".length_penalty: expected a number from -40 to 40, found 41"},
      {R"("length_penalty_form": "gnmt")", ".length_penalty_form: expected \"offset\" or \"power\", found \"gnmt\""},
      {R"("early_stopping": "yes")", ".early_stopping: expected false, true or \"never\", found \"yes\""},
      {R"("early_stopping": 1)", ".early_stopping: expected false, true or \"never\", found 1"},
      {R"("at_max_length": true)", ".at_max_length: expected \"eos\", \"forced_eos\" or \"cut\", found true"},
      {R"("max_length": 1e9)", ".max_length: expected a whole number from 0 to 1048576, found 1000000000.0"},
      {R"("max_length": 3, "min_length": 4)", ".min_length: 4 is larger than max_length, 3"},
      {R"("forced_first": 7)", ".forced_first: expected a list of token ids, found 7"},
      {R"("forced_first": [7, 9])", ".forced_first[1]: 9 is not a token of a vocabulary of 9; expected 0 to 8"},
      {R"("forced_first": [3])",
       ".forced_first[0]: 3 is eos, which occurs in no translation; expected a token of the text, "
       "or of a language"},
      {R"("forced_first": [0])",
       ".forced_first[0]: 0 is pad, which occurs in no translation; expected a token of the text, "
       "or of a language"},
      {R"("forced_first": [4, 5], "max_length": 1)", ".forced_first: 2 tokens, more than max_length, 1"},
      {R"("suppress": [4, 3])",
       ".suppress[1]: 3 is eos, without which no translation ends; use min_length for longer ones"},
      {R"("suppress": [4], "forced_first": [4])",
       ".suppress[0]: 4 is forced by forced_first; expected it in only one of the two"},
      {R"("suppress": [-1])", ".suppress[0]: expected a whole number from 0 to 2147483647, found -1"},
      {R"("bad_sequences": [4])", ".bad_sequences[0]: expected a list of token ids, found 4"},
      {R"("bad_sequences": [[4], []])", ".bad_sequences[1]: is empty; expected at least one token id"},
      {R"("bad_sequences": [[4, 9]])", ".bad_sequences[0][1]: 9 is not a token of a vocabulary of 9; expected 0 to 8"},
      {R"("bad_sequences": [[3]])",
       ".bad_sequences[0]: is eos alone, without which no translation ends; use min_length for longer ones"},
      {R"("required_phrases": 4)",
       ".required_phrases: expected a list of constraints, each a list of phrases, each a list "
       "of token ids, found 4"},
      {R"("required_phrases": [[[4]], [5]])", ".required_phrases[1][0]: expected a list of token ids, found 5"},
      {R"("required_phrases": [4])",
       ".required_phrases[0]: expected a list of phrases, each a list of token ids, found 4"},
      {R"("required_phrases": [[[4]], []])",
       ".required_phrases[1]: is empty; expected a phrase, or several of which one is enough"},
      {R"("required_phrases": [[[4], []]])", ".required_phrases[0][1]: is empty; expected at least one token id"},
      {R"("required_phrases": [[[4, 9]]])",
       ".required_phrases[0][0][1]: 9 is not a token of a vocabulary of 9; expected 0 to 8"},
      {R"("required_phrases": [[[4], [5, 3]]])",
       ".required_phrases[0][1][1]: 3 is pad, start or eos, which no translation contains"},
      {R"("required_phrases": [[[2]]])",
       ".required_phrases[0][0][0]: 2 is pad, start or eos, which no translation contains"},
      {R"("no_repeat_ngram": -1)", ".no_repeat_ngram: expected a whole number from 0 to 1048576, found -1"},
      {R"("renormalize": 1)", ".renormalize: expected false or true, found 1"},
      {R"("top_p": 0)", ".top_p: expected a number above 0, at most 1, found 0"},
      {R"("max_length_ratio": 1, "min_length_ratio": 2)",
       ".min_length_ratio: 2.0 is larger than max_length_ratio, 1.0"},
  };
  for (const auto &[settings, expected] : cases)
    EXPECT_EQ(error(settings), std::string("m.json: generation") + expected);
  EXPECT_EQ(errorOf(encoderText(R"({"op": "relu"})", R"(, "generation": {})")),
            "m.json: generation: needs a decoder that generates tokens");
}

TEST(Description, LaterOverridesWin) {
  EXPECT_EQ(shippedModel("tiny", {{"source_vocab", "50"}, {"source_vocab", "60"}}).sourceVocab, 60);
}

TEST(Description, TheShortestPositionsLimitTheLength) {
  Description model = parseDescription(
      translatorText(
          R"({"op": "positions", "kind": "learned", "max_length": 30}, {"op": "positions", "kind": "sinusoidal", "max_length": 20},
                        {"op": "attention", "name": "c", "heads": 1, "memory": "encoder",
                         "memory_body": [{"op": "positions", "kind": "sinusoidal", "max_length": 11}]})"),
      "m.json");
  EXPECT_EQ(model.maxTargetLength, 20);
  EXPECT_EQ(model.maxSourceLength, 11);
}

TEST(Description, WholeNumbersMayBeWrittenAsFloats) {
  EXPECT_EQ(only<step::Linear>(R"({"op": "linear", "name": "l", "features": 6.0})").features, 6);
  EXPECT_NE(errorOf(encoderText(R"({"op": "linear", "name": "l", "features": 1e30})")), "no error");
}

TEST(Description, ErrorsSayWhereWhatAndWhatWasExpected) {
  EXPECT_EQ(errorOf(encoderText(R"({"op": "residual", "body": [{"op": "attention", "name": "a", "heads": 4}]})")),
            "m.json: encoder.layer[0].body[0].heads: 4 does not divide d_model 6 (expected one of 1, 2, 3, 6, or "
            "key_dim and value_dim)");
  EXPECT_EQ(errorOf("{\n  \"name\": ]\n}"), "m.json:2:11: not JSON: unexpected ']'; expected '[', '{', or a literal");
  EXPECT_TRUE(errorOf(fileText("tiny"), {{"hedas", "4"}})
                  .starts_with("m.json: --set hedas=4: not in params; did you mean \"heads\"? known: d_ff, "));
}

// Constraints that the table of steps cannot express.
TEST(StepKinds, ChoicesAreDistinctAndActivationsAreSteps) {
  std::vector<std::string> activations;
  for (const StepKind &kind : stepKinds()) {
    SCOPED_TRACE(kind.title());
    EXPECT_FALSE(kind.meaning.empty());
    if (std::holds_alternative<step::Activation>(kind.defaults))
      activations.push_back(kind.op);
    for (const Option &option : kind.options) {
      EXPECT_FALSE(option.meaning.empty()) << option.name;
      const auto *choice = std::get_if<Option::Choice>(&option.type);
      if (auto *number = std::get_if<Option::Number>(&option.type); number && number->words)
        choice = &*number->words;
      for (size_t i = 0; choice && i < choice->words.size(); ++i) {
        StepOptions options = kind.defaults;
        choice->set(options, i);
        EXPECT_EQ(choice->get(options), i) << option.name;
      }
      if (option.name == "activation") {
        EXPECT_EQ(std::get<Option::Choice>(option.type).words, activations);
      }
    }
  }
}

// The part of schema.json that is not generated from the table lists exactly what the reader knows.
TEST(Schema, KeysAndWordsOutsideOfStepsAreThoseOfTheReader) {
  const auto schema = nlohmann::ordered_json::parse(fileText("schema"));
  auto expectKnown = [](const std::string &text, const nlohmann::ordered_json &words) {
    std::string known;
    for (const auto &word : words.items())
      known += (known.empty() ? "known: " : ", ") + (words.is_object() ? word.key() : word.value().get<std::string>());
    const std::string message = errorOf(text);
    EXPECT_TRUE(message.ends_with(known)) << message << " / " << known;
  };
  const std::string start = R"({"format": "xfc-model/1", "name": "m", )";
  expectKnown(R"({"?": 1})", schema["properties"]);
  expectKnown(start + R"("tokens": {"?": 1}})", schema["properties"]["tokens"]["properties"]);
  expectKnown(start + R"("encoder": {"?": 1}})", schema["$defs"]["stack"]["properties"]);
  const auto &init = schema["properties"]["init"]["properties"];
  expectKnown(start + R"("init": {"?": 1}})", init);
  for (const auto &item : init.items())
    expectKnown(start + R"("init": {")" + item.key() + R"(": "?"}})", item.value()["enum"]);
  const auto &layers = schema["$defs"]["stack"]["properties"]["layers"]["anyOf"][0];
  EXPECT_NE(errorOf(R"({"format": "xfc-model/1", "name": "m", "params": {"d_model": 6},
                        "encoder": {"input": [], "layers": 0, "layer": []}})")
                .find("from " + layers["minimum"].dump() + " to " + layers["maximum"].dump() + ","),
            std::string::npos);
}

// Prefixes of a model, and models with random changed bytes, are either read or refused; nothing crashes or hangs.
TEST(Description, BrokenTextIsRefused) {
  const std::string text = fileText("modern");
  for (size_t length = 0; length + 2 < text.size(); length += 3)
    EXPECT_NE(errorOf(text.substr(0, length)), "no error") << length;
  std::mt19937 random(1);
  const std::string bytes = "{}[]\",:0123456789-.e$ abcdefghijklmnopqrstuvwxyz\\\n\x01\xff";
  for (int round = 0; round < 3000; ++round) {
    std::string broken = text;
    for (int edits = 1 + round % 4; edits > 0; --edits)
      broken[random() % broken.size()] = bytes[random() % bytes.size()];
    std::string message = errorOf(broken);
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Description, DeepNestingIsRefused) {
  std::string text = encoderText(R"({"op": "relu"})");
  for (int depth : {10, 1000, 1000000}) {
    std::string body;
    for (int i = 0; i < depth; ++i)
      body += R"({"op": "residual", "body": [)";
    body += R"({"op": "relu"})";
    for (int i = 0; i < depth; ++i)
      body += "]}";
    std::string message = errorOf(encoderText(body));
    if (depth == 10)
      EXPECT_EQ(message, "no error");
    else
      EXPECT_NE(message.find(depth == 1000 ? "nested deeper than 64 levels" : "larger than 16 MB"), std::string::npos)
          << message;
  }
}
