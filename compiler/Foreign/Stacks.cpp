// The common part of the families that follow "Attention Is All You Need".
#include "Stacks.h"
#include "support/Quoted.h"
#include <algorithm>
#include <map>

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;

Json norm(const char *name) { return {{"op", "layer_norm"}, {"name", name}}; }

} // namespace

std::string activationStep(const Config &config, const std::string &key, const std::string &name) {
  static const std::map<std::string, std::string> steps = {
      {"relu", "relu"},           {"gelu", "gelu"},
      {"gelu_python", "gelu"},    {"swish", "silu"},
      {"silu", "silu"},           {"tanh", "tanh"},
      {"gelu_new", "gelu_tanh"},  {"gelu_pytorch_tanh", "gelu_tanh"},
      {"gelu_fast", "gelu_tanh"}, {"relu2", "squared_relu"}};
  const auto isStep = [](const std::string &op) {
    return std::any_of(stepKinds().begin(), stepKinds().end(), [&](const StepKind &kind) { return kind.op == op; });
  };
  auto found = steps.find(name);
  if (found != steps.end() && isStep(found->second))
    return found->second;
  std::vector<std::string> known;
  for (const auto &[theirs, ours] : steps)
    if (isStep(ours))
      known.push_back(theirs);
  config.fail(key, config.at(key, "").shown() + " is not a supported activation; known: " + listed(known));
}

std::string tiedTensor(const Weights &weights, const std::string &own, const std::vector<std::string> &tied) {
  const TensorView *tensor = weights.find(own);
  for (const std::string &name : tied)
    if (const TensorView *other = weights.find(name); other && (!tensor || Weights::same(*tensor, *other)))
      return name;
  return own;
}

EmbeddingTensors oneVocabulary(const Config &config, const Weights &weights, const std::string &prefix) {
  const std::string encoder = prefix + "encoder.embed_tokens.weight", decoder = prefix + "decoder.embed_tokens.weight",
                    output = "lm_head.weight";
  const std::vector<std::string> tied = {prefix + "shared.weight", encoder, decoder};
  return {tiedTensor(weights, encoder, tied), tiedTensor(weights, decoder, tied),
          config.boolean("tie_word_embeddings", true) ? tiedTensor(weights, output, tied) : output};
}

Json mapEmbeddings(const EmbeddingTensors &tensors, std::vector<TensorName> &names) {
  const std::pair<std::string, std::string> embeddings[] = {{"encoder.embed.weight", tensors.encoder},
                                                            {"decoder.embed.weight", tensors.decoder},
                                                            {"output.weight", tensors.output}};
  Json share = Json::array();
  for (size_t i = 0; i < 3; ++i) {
    const auto &[ours, theirs] = embeddings[i];
    names.push_back({ours, theirs});
    Json group = {ours};
    for (size_t j = i + 1; j < 3; ++j)
      if (embeddings[j].second == theirs)
        group.push_back(embeddings[j].first);
    const bool first =
        std::none_of(embeddings, embeddings + i, [&](const auto &other) { return other.second == theirs; });
    if (first && group.size() > 1)
      share.push_back(group);
  }
  return share;
}

void refuseQuantized(const Config &config) {
  if (config.has("quantization_config"))
    config.fail("quantization_config", "quantized weights cannot be imported; expected the original weights, which "
                                       "--compute-type int8 rounds at run time");
}

Stacks::Stacks(const Config &config, StacksForm given) : config(config), form(std::move(given)) {
  config.only("is_encoder_decoder", true, "it is not an encoder-decoder model");
  config.only("is_decoder", false, "it is only a decoder");
  config.only("use_bfloat16", false, "it belongs to another program");
  refuseQuantized(config);
  config.only("normalize_before", form.preNorm, "models of this family have their norms elsewhere");
  config.only("normalize_embedding", form.embeddingNorm, "models of this family have their norms elsewhere");
  config.only("add_final_layer_norm", form.preNorm, "models of this family have their norms elsewhere");
  sourceVocab = targetVocab = config.integer("vocab_size", 1, mostVocab, form.vocab);
  dModel = config.integer("d_model", 1, mostFeatures, 1024);
  maxLength = config.integer("max_position_embeddings", 1, maxPositions, form.maxLength);
  for (int i : {0, 1}) {
    const std::string stack = stackNames[i];
    layers[i] = config.integer(stack + "_layers", 1, mostLayers, 12);
    heads[i] = config.integer(stack + "_attention_heads", 1, mostFeatures, 16);
    ffn[i] = config.integer(stack + "_ffn_dim", 1, mostFeatures, 4096);
    if (dModel % heads[i])
      config.fail(stack + "_attention_heads",
                  std::to_string(heads[i]) + " does not divide d_model " + std::to_string(dModel));
  }
  dropout = config.number("dropout", 0, 1, /*open=*/true, 0.1);
  attentionDropout = config.number("attention_dropout", 0, 1, true, form.attentionDropout);
  activationDropout = config.number("activation_dropout", 0, 1, true, 0);
  activation = activationStep(config, "activation_function", config.string("activation_function", form.activation));
  scaled = config.boolean("scale_embedding", form.scaleEmbedding);
  padToken = config.requiredToken("pad_token_id", form.pad, sourceVocab);
}

// "heads", or "encoder_heads" if the stacks differ.
std::string Stacks::perStack(const char *name, bool decoder) const {
  const std::string text = name;
  const int64_t *both = text == "heads" ? heads : ffn;
  return both[0] == both[1] ? text : std::string(stackNames[decoder]) + "_" + text;
}

Json Stacks::params() const {
  Json params = {{"source_vocab", sourceVocab}, {"target_vocab", targetVocab}, {"d_model", dModel}};
  for (int i : {0, 1})
    params[perStack("heads", i)] = heads[i];
  params["encoder_layers"] = layers[0];
  params["decoder_layers"] = layers[1];
  for (int i : {0, 1})
    params[perStack("d_ff", i)] = ffn[i];
  params["dropout"] = dropout;
  if (attentionDropout > 0)
    params["attention_dropout"] = attentionDropout;
  if (activationDropout > 0)
    params["activation_dropout"] = activationDropout;
  params["max_length"] = maxLength;
  return params;
}

Json Stacks::tokens() const {
  const int64_t vocab = std::min(sourceVocab, targetVocab), eos = config.requiredToken("eos_token_id", form.eos, vocab),
                bos = config.token("bos_token_id", form.bos, vocab);
  int64_t start = config.token("decoder_start_token_id", form.start < 0 ? bos : form.start, vocab);
  if (start < 0) // null, in place of which `generate` takes bos
    start = bos;
  if (start < 0)
    config.fail("decoder_start_token_id",
                "null, and so is bos_token_id; expected the id of the token that translations "
                "begin with");
  return {{"pad", config.requiredToken("pad_token_id", form.pad, vocab)},
          {"unk", form.unk},
          {"bos", bos < 0 ? start : bos},
          {"eos", eos},
          {"start", start},
          {"source_eos", true}};
}

Json Stacks::attention(bool decoder, bool cross) const {
  Json step = {{"op", "attention"}, {"name", cross ? "cross_attn" : "self_attn"}};
  step["heads"] = "$" + perStack("heads", decoder);
  if (cross)
    step["memory"] = "encoder";
  else if (decoder)
    step["mask"] = {"causal"}; // without "padding": the first token may be pad, and is a key like any other
  if (attentionDropout > 0)
    step["dropout"] = "$attention_dropout";
  return step;
}

Json Stacks::recurrence() const {
  Json steps = {{{"op", "recurrence"}, {"name", "rnn"}, {"bias", {{"value", false}}}}, {{"op", "relu"}}};
  if (form.recurrentOutput)
    steps.push_back({{"op", "linear"}, {"name", "rnn_out"}, {"features", "$d_model"}});
  return steps;
}

Json Stacks::stack(bool decoder, const Json &positions) {
  const Json drop = {{"op", "dropout"}, {"rate", "$dropout"}};
  Json embedding = {{"op", "embedding"},
                    {"name", "embed"},
                    {"vocab", decoder ? "$target_vocab" : "$source_vocab"},
                    {"dim", "$d_model"}};
  if (scaled)
    embedding["scale"] = "sqrt_dim";
  Json input = {embedding, positions};
  if (form.embeddingNorm)
    input.push_back(norm("embed_norm"));
  input.push_back(drop);

  Json layer = Json::array();
  const auto add = [&](const char *itsNorm, Json body) {
    if (form.preNorm)
      body.insert(body.begin(), norm(itsNorm));
    body.push_back(drop);
    layer.push_back({{"op", "residual"}, {"body", std::move(body)}});
    if (!form.preNorm)
      layer.push_back(norm(itsNorm));
  };
  if (decoder && form.recurrent)
    add("rnn_norm", recurrence());
  else
    add("self_attn_norm", Json::array({attention(decoder, false)}));
  if (decoder)
    add("cross_attn_norm", Json::array({attention(decoder, true)}));
  Json feedForward = Json::array(
      {{{"op", "linear"}, {"name", "ffn.in"}, {"features", "$" + perStack("d_ff", decoder)}}, {{"op", activation}}});
  if (activationDropout > 0)
    feedForward.push_back({{"op", "dropout"}, {"rate", "$activation_dropout"}});
  feedForward.push_back({{"op", "linear"}, {"name", "ffn.out"}, {"features", "$d_model"}});
  add("ffn_norm", std::move(feedForward));

  return {{"input", std::move(input)},
          {"layers", std::string("$") + stackNames[decoder] + "_layers"},
          {"layer", std::move(layer)},
          {"output", form.preNorm ? Json::array({norm("norm")}) : Json::array()}};
}

void Stacks::mapStack(bool decoder, bool table, std::vector<TensorName> &tensors) const {
  const std::string ours = std::string(stackNames[decoder]) + ".", theirs = "model." + ours;
  const auto map = [&](const std::string &a, const std::string &b, bool bias = true) {
    tensors.push_back({ours + a + ".weight", theirs + b + ".weight"});
    if (bias)
      tensors.push_back({ours + a + ".bias", theirs + b + ".bias"});
  };
  if (table)
    tensors.push_back({ours + "pos.weight", theirs + "embed_positions.weight"});
  if (form.embeddingNorm)
    map("embed_norm", "layernorm_embedding");
  for (int64_t i = 0; i < layers[decoder]; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    const auto mapAttention = [&](const std::string &a, const std::string &b) {
      for (const char *projection : {"q", "k", "v"})
        map(layer + a + "." + projection, layer + b + "." + projection + "_proj");
      map(layer + a + ".o", layer + b + ".out_proj");
      map(layer + a + "_norm", layer + b + "_layer_norm");
    };
    if (decoder && form.recurrent) {
      map(layer + "rnn.gate", layer + "rnn.gate");
      map(layer + "rnn.value", layer + "rnn.value", /*bias=*/false);
      if (form.recurrentOutput)
        map(layer + "rnn_out", layer + "rnn.out");
      map(layer + "rnn_norm", layer + "rnn_layer_norm");
    } else {
      mapAttention("self_attn", "self_attn");
    }
    if (decoder)
      mapAttention("cross_attn", "encoder_attn");
    map(layer + "ffn.in", layer + "fc1");
    map(layer + "ffn.out", layer + "fc2");
    map(layer + "ffn_norm", layer + "final_layer_norm");
  }
  if (form.preNorm)
    map("norm", "layer_norm");
}

ForeignModel Stacks::build(const Weights &weights, const Json &positions, const EmbeddingTensors &tensors) {
  ForeignModel model;
  Json &json = model.description;
  json["params"] = params();
  json["tokens"] = tokens();

  if (Json share = mapEmbeddings(tensors, model.tensors); !share.empty())
    json["share"] = std::move(share);

  for (bool decoder : {false, true}) {
    json[stackNames[decoder]] = stack(decoder, positions);
    mapStack(decoder, positions["kind"] == "learned", model.tensors);
  }
  if (config.has("label_smoothing"))
    json["training"] = {{"label_smoothing", config.number("label_smoothing", 0, 1, false, 0)}};
  const bool bias = form.logitsBias && weights.has("final_logits_bias");
  if (bias)
    model.tensors.push_back({"output.bias", "final_logits_bias", /*row=*/true});
  json["head"] = Json::array({{{"op", "linear"}, {"name", "output"}, {"features", "$target_vocab"}, {"bias", bias}}});

  // If all three tables are separate, nothing reads the one they would share.
  model.redundant = {"encoder.version", "decoder.version", "shared.weight"};
  for (const std::string stack : stackNames)
    if (const double rate = config.number(stack + "_layerdrop", 0, 1, false, 0); rate > 0)
      model.notes.push_back(config.file() + ": " + stack + "_layerdrop: no step skips whole layers, so it is ignored");
  return model;
}

} // namespace xfc
