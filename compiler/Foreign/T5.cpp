// Reads T5, T5 1.1, flan-T5, mT5, UMT5 and MADLAD: RMS norms before each branch, unscaled attention scores, and a bias
// of the scores by the distance between query and key, which all layers of a stack share except in UMT5.
#include "Stacks.h"

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;

class T5 {
public:
  T5(const Config &config, const Weights &weights) : config(config), weights(weights) {
    config.only("is_encoder_decoder", true, "it is not an encoder-decoder model");
    config.only("is_decoder", false, "it is only a decoder");
    refuseQuantized(config);
    const std::string type = config.string("model_type", "");
    const bool first = type == "t5"; // its defaults are those of the first T5
    ownBiases = type == "umt5";
    // The first T5 scales the rows that its output projection reads, and T5 1.1 does not. Configs tell them apart by
    // whether the output is tied, or, since transformers 5 calls every output tied, by a separate option. mT5 never
    // scales.
    scaled = type != "mt5" && config.boolean("scale_decoder_outputs", config.boolean("tie_word_embeddings", true));
    layers[0] = config.integer("num_layers", 1, mostLayers, first ? 6 : 8);
    layers[1] = config.integer("num_decoder_layers", 1, mostLayers, layers[0]);
    const std::string feedForward = config.string("feed_forward_proj", first ? "relu" : "gated-gelu");
    gated = feedForward.starts_with("gated-");
    const std::string function = feedForward.substr(gated ? std::string("gated-").size() : 0);
    // gated-gelu has always been computed with the tanh approximation of gelu.
    activation = activationStep(config, "feed_forward_proj", gated && function == "gelu" ? "gelu_new" : function);
    const int64_t buckets = config.integer("relative_attention_num_buckets", 4, 1024, 32),
                  maxDistance = config.integer("relative_attention_max_distance", 2, maxPositions, 128);
    if (buckets % 2)
      config.fail("relative_attention_num_buckets",
                  std::to_string(buckets) + " is odd; expected an even number, half of it for each direction");
    if (maxDistance <= buckets / 2) // in the decoder all buckets are for one direction
      config.fail("relative_attention_max_distance",
                  std::to_string(maxDistance) + " is not above " + std::to_string(buckets / 2) +
                      ", the number of buckets that hold one distance each (half of relative_attention_num_buckets)");
    const int64_t vocab = config.integer("vocab_size", 1, mostVocab, first ? 32128 : 250112);
    params = {{"source_vocab", vocab},
              {"target_vocab", vocab},
              {"d_model", config.integer("d_model", 1, mostFeatures, 512)},
              {"heads", config.integer("num_heads", 1, mostFeatures, first ? 8 : 6)},
              {"key_dim", config.integer("d_kv", 1, 4096, 64)},
              {"encoder_layers", layers[0]},
              {"decoder_layers", layers[1]},
              {"d_ff", config.integer("d_ff", 1, mostFeatures, first ? 2048 : 1024)},
              {"dropout", config.number("dropout_rate", 0, 1, /*open=*/true, 0.1)},
              {"norm_eps", config.number("layer_norm_epsilon", 1e-30, 1, false, 1e-6)},
              {"buckets", buckets},
              {"max_distance", maxDistance},
              // The length that the model was trained for; nothing in the weights limits it.
              {"max_length", config.integer("n_positions", 1, maxPositions, 512)}};
  }

  ForeignModel read() {
    Json &json = model.description;
    json["params"] = params;
    const int64_t vocab = params["target_vocab"], pad = config.requiredToken("pad_token_id", 0, vocab),
                  start = config.requiredToken("decoder_start_token_id", pad, vocab),
                  bos = config.token("bos_token_id", start, vocab);
    json["tokens"] = {{"pad", pad},
                      {"unk", 2},
                      {"bos", bos < 0 ? start : bos},
                      {"eos", config.requiredToken("eos_token_id", 1, vocab)},
                      {"start", start},
                      {"source_eos", true}};
    json["share"] = Json::array(); // only reserves its place in the order of keys; it is known last
    for (bool decoder : {false, true})
      json[stackNames[decoder]] = stack(decoder);
    json["head"] = Json::array();
    if (scaled)
      json["head"].push_back({{"op", "scale"}, {"by", "rsqrt_dim"}});
    json["head"].push_back({{"op", "linear"}, {"name", "output"}, {"features", "$target_vocab"}, {"bias", false}});
    // T5 was trained without label smoothing.
    json["training"] = {{"label_smoothing", config.number("label_smoothing", 0, 1, false, 0)}};
    json["share"] = mapEmbeddings(oneVocabulary(config, weights, ""), model.tensors);
    for (bool decoder : {false, true})
      mapBiases(decoder);
    if (json["share"].empty())
      json.erase("share");
    model.redundant = {"EncDecAttention.relative_attention_bias.weight", "shared.weight"}; // never read
    return std::move(model);
  }

private:
  static std::string layerOf(bool decoder, int64_t i) {
    return std::string(stackNames[decoder]) + ".layers." + std::to_string(i) + ".";
  }
  static std::string blockOf(bool decoder, int64_t i) {
    return std::string(stackNames[decoder]) + ".block." + std::to_string(i) + ".layer.";
  }

  // Maps a tensor of every layer. `place` is the index of its branch in the family's names.
  void map(bool decoder, int64_t place, const std::string &ours, const std::string &theirs) {
    for (int64_t i = 0; i < layers[decoder]; ++i)
      model.tensors.push_back({layerOf(decoder, i) + ours + ".weight",
                               blockOf(decoder, i) + std::to_string(place) + "." + theirs + ".weight"});
  }

  // Maps the tables of distance biases: one per layer, or that of the first layer for all.
  void mapBiases(bool decoder) {
    Json group = Json::array();
    for (int64_t i = 0; i < layers[decoder]; ++i) {
      model.tensors.push_back({layerOf(decoder, i) + "self_attn.distance_bias.weight",
                               blockOf(decoder, ownBiases ? i : 0) + "0.SelfAttention.relative_attention_bias.weight"});
      group.push_back(model.tensors.back().ours);
    }
    if (!ownBiases && layers[decoder] > 1)
      model.description["share"].push_back(group);
  }

  static Json norm(const std::string &name) { return {{"op", "rms_norm"}, {"name", name}, {"eps", "$norm_eps"}}; }

  static Json attention(bool decoder, bool cross) {
    Json step = {{"op", "attention"},
                 {"name", cross ? "cross_attn" : "self_attn"},
                 {"heads", "$heads"},
                 {"key_dim", "$key_dim"},
                 {"value_dim", "$key_dim"},
                 {"bias", false},
                 {"scale", 1}};
    if (cross)
      step["memory"] = "encoder";
    else if (decoder)
      step["mask"] = {"causal"}; // without "padding": the first token is pad, and is a key like any other
    if (!cross)
      step.update({{"distance_bias", "buckets"},
                   {"buckets", "$buckets"},
                   {"max_distance", "$max_distance"},
                   {"max_length", "$max_length"}});
    step["dropout"] = "$dropout";
    return step;
  }

  Json stack(bool decoder) {
    const Json drop = {{"op", "dropout"}, {"rate", "$dropout"}};
    Json layer = Json::array();
    int64_t place = 0;
    const auto add = [&](const std::string &itsNorm, Json body) {
      body.insert(body.begin(), norm(itsNorm));
      body.push_back(drop);
      layer.push_back({{"op", "residual"}, {"body", std::move(body)}});
      map(decoder, place++, itsNorm, "layer_norm");
    };
    const auto addAttention = [&](bool cross) {
      const std::string name = cross ? "cross_attn" : "self_attn";
      for (const char *projection : {"q", "k", "v", "o"})
        map(decoder, place, name + "." + projection,
            std::string(cross ? "EncDecAttention." : "SelfAttention.") + projection);
      add(name + "_norm", Json::array({attention(decoder, cross)}));
    };
    addAttention(false);
    if (decoder)
      addAttention(true);
    Json body = Json::array();
    if (gated) {
      body.push_back({{"op", "gated"}, {"name", "ffn.in"}, {"features", "$d_ff"}, {"activation", activation}});
      map(decoder, place, "ffn.in.gate", "DenseReluDense.wi_0");
      map(decoder, place, "ffn.in.value", "DenseReluDense.wi_1");
    } else {
      body.push_back({{"op", "linear"}, {"name", "ffn.in"}, {"features", "$d_ff"}, {"bias", false}});
      body.push_back({{"op", activation}});
      map(decoder, place, "ffn.in", "DenseReluDense.wi");
    }
    body.push_back(drop);
    body.push_back({{"op", "linear"}, {"name", "ffn.out"}, {"features", "$d_model"}, {"bias", false}});
    map(decoder, place, "ffn.out", "DenseReluDense.wo");
    add("ffn_norm", std::move(body));
    const std::string stack = stackNames[decoder];
    model.tensors.push_back({stack + ".norm.weight", stack + ".final_layer_norm.weight"});
    const Json embedding = {{"op", "embedding"},
                            {"name", "embed"},
                            {"vocab", decoder ? "$target_vocab" : "$source_vocab"},
                            {"dim", "$d_model"}};
    return {{"input", Json::array({embedding, drop})},
            {"layers", "$" + stack + "_layers"},
            {"layer", std::move(layer)},
            {"output", Json::array({norm("norm"), drop})}};
  }

  const Config &config;
  const Weights &weights;
  std::string activation;
  bool ownBiases, scaled, gated;
  int64_t layers[2]; // [1]: the decoder's
  Json params;
  ForeignModel model;
};

} // namespace

ForeignModel readT5(const Config &config, const Weights &weights) { return T5(config, weights).read(); }

} // namespace xfc
