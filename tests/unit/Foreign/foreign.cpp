// Imports and exports models of other programs: the descriptions they become, where their bytes go, and the messages
// for invalid folders.
#include "Foreign/Foreign.h"
#include "Foreign/Ctranslate2Model.h"
#include "Foreign/Export.h"
#include "Foreign/JsonText.h"
#include "Import/Description.h"
#include "bytes.h"
#include "runtime/folder.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "tensors/Safetensors.h"
#include "tokenizers/Tokenizer.h"
#include <array>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <list>
#include <nlohmann/json.hpp>
#include <tuple>
#include <type_traits>

using namespace xfc;
using Json = nlohmann::json;
using Shape = std::vector<int64_t>;

namespace {

// A folder with a model of 4 features, one layer per stack, 7 tokens.
class Foreign : public FolderTest {
protected:
  Foreign() {
    std::filesystem::create_directory(in("tiny-mt"));
    for (const std::string stack : {"encoder", "decoder"}) {
      const std::string layer = "model." + stack + ".layers.0.";
      addAttention(layer + "self_attn");
      if (stack == "decoder") {
        addAttention(layer + "encoder_attn");
        addNorm(layer + "encoder_attn_layer_norm");
      }
      addNorm(layer + "self_attn_layer_norm");
      addNorm(layer + "final_layer_norm");
      addLinear(layer + "fc1", 6, 4);
      addLinear(layer + "fc2", 4, 6);
    }
    add("model.shared.weight", {7, 4});
    add("final_logits_bias", {1, 7});
  }

  void add(const std::string &name, const Shape &shape, const std::string &type = "F32") {
    StoredTensor tensor{type, shape, {}};
    int64_t count = type == "F32" ? 1 : 2;
    for (int64_t extent : shape)
      count *= extent;
    for (int64_t i = 0; i < (type == "F32" ? count : count / 2); ++i) {
      const float value = static_cast<float>(++numbers) / 64;
      const auto *bytes = reinterpret_cast<const uint8_t *>(&value);
      tensor.bytes.insert(tensor.bytes.end(), bytes + (type == "F32" ? 0 : 2), bytes + 4); // BF16: the upper half
    }
    tensors[name] = std::move(tensor);
  }
  void addLinear(const std::string &name, int64_t out, int64_t in) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {out});
  }
  void addNorm(const std::string &name) {
    add(name + ".weight", {4});
    add(name + ".bias", {4});
  }
  void addAttention(const std::string &name) {
    for (const char *projection : {"q", "k", "v", "out"})
      addLinear(name + "." + projection + "_proj", 4, 4);
  }

  // Writes config.json and the weights, and imports them.
  ForeignImport import() {
    writeFile(in("tiny-mt/config.json"), config.dump());
    writeSafetensors(in("tiny-mt/model.safetensors"), viewsOf(tensors));
    return importWritten();
  }
  ForeignImport importWritten() { return importForeign({in("tiny-mt"), in("out")}); }
  // The error message, without the folder's name; checks that nothing was left behind.
  std::string error(bool write = true) {
    std::string message = errorOf([&] { write ? import() : importWritten(); });
    for (size_t at; (at = message.find(folder + "/")) != std::string::npos;)
      message.erase(at, folder.size() + 1);
    for (const auto &entry : std::filesystem::directory_iterator(folder))
      EXPECT_EQ(entry.path().filename(), "tiny-mt") << message;
    return message;
  }
  // Takes from the imported weights what they record about their model, so that model.json may be edited at will.
  void forgetModel() const {
    const Tensors weights = readSafetensors(in("out/model.safetensors"));
    writeSafetensors(in("out/model.safetensors"), viewsOf(weights));
  }
  Json description() const { return Json::parse(readFile(in("out/model.json"))); }

  Json config = {{"model_type", "marian"},
                 {"vocab_size", 7},
                 {"d_model", 4},
                 {"encoder_layers", 1},
                 {"decoder_layers", 1},
                 {"encoder_attention_heads", 2},
                 {"decoder_attention_heads", 2},
                 {"encoder_ffn_dim", 6},
                 {"decoder_ffn_dim", 6},
                 {"max_position_embeddings", 9},
                 {"activation_function", "swish"},
                 {"scale_embedding", true},
                 {"pad_token_id", 6},
                 {"decoder_start_token_id", 6},
                 {"eos_token_id", 0},
                 {"bos_token_id", nullptr}};
  Tensors tensors;
  int numbers = 0;
};

// Each key that a reader looks for must change what is imported, be refused, or be told: a key that is only marked as
// read would have no value in this table, or no effect.
class Keys : public Foreign {
protected:
  // What importing leads to: the model and the notes, or the error.
  std::string outcome() {
    std::filesystem::remove_all(in("out"));
    try {
      std::string text;
      for (const std::string &note : import().notes)
        text += note + "\n";
      return text + readFile(in("out/model.json"));
    } catch (const Error &error) {
      return error.what();
    }
  }

  void checkAll() {
    const Json before = config;
    const std::string usual = outcome();
    std::filesystem::remove_all(in("out"));
    const std::vector<std::string> asked = import().asked;
    EXPECT_GT(asked.size(), 25u);
    for (const std::string &of : asked) {
      const std::string key = of.substr(std::string("config.json: ").size());
      ASSERT_TRUE(others.contains(key)) << key << " is read, but this test has no other value for it";
      config = before;
      config[key] = others[key];
      ASSERT_NE(config, before) << key;
      EXPECT_NE(outcome(), usual) << key << " is read, but changes nothing";
    }
    config = before;
  }

  const Json others = {{"model_type", "other"},
                       {"vocab_size", 9},
                       {"d_model", 8},
                       {"encoder_layers", 2},
                       {"decoder_layers", 2},
                       {"encoder_attention_heads", 1},
                       {"decoder_attention_heads", 1},
                       {"encoder_ffn_dim", 5},
                       {"decoder_ffn_dim", 5},
                       {"max_position_embeddings", 8},
                       {"activation_function", "relu"},
                       {"scale_embedding", false},
                       {"pad_token_id", 4},
                       {"decoder_start_token_id", 5},
                       {"eos_token_id", 3},
                       {"bos_token_id", 4},
                       {"dropout", 0.375},
                       {"attention_dropout", 0.375},
                       {"activation_dropout", 0.375},
                       {"encoder_layerdrop", 0.5},
                       {"decoder_layerdrop", 0.5},
                       {"label_smoothing", 0.25},
                       {"tie_word_embeddings", false},
                       {"share_encoder_decoder_embeddings", false},
                       {"static_position_embeddings", "other"},
                       {"is_encoder_decoder", false},
                       {"is_decoder", true},
                       {"use_bfloat16", true},
                       {"quantization_config", {{"bits", 4}}},
                       {"normalize_before", "other"},
                       {"normalize_embedding", "other"},
                       {"add_final_layer_norm", "other"},
                       {"d_kv", 2},
                       {"num_layers", 1},
                       {"num_decoder_layers", 2},
                       {"num_heads", 1},
                       {"d_ff", 6},
                       {"feed_forward_proj", "silu"},
                       {"relative_attention_num_buckets", 8},
                       {"relative_attention_max_distance", 30},
                       {"n_positions", 30},
                       {"layer_norm_epsilon", 0.125},
                       {"dropout_rate", 0.375},
                       {"scale_decoder_outputs", false},
                       {"num_beams", 3},
                       {"num_beam_groups", 3},
                       {"diversity_penalty", 0.25},
                       {"repetition_penalty", 1.5},
                       {"temperature", 0.5},
                       {"top_k", 10},
                       {"top_p", 0.75},
                       {"min_p", 0.25},
                       {"typical_p", 0.75},
                       {"epsilon_cutoff", 0.25},
                       {"length_penalty", 0.5},
                       {"early_stopping", true},
                       {"max_new_tokens", 7},
                       {"max_length", 7},
                       {"min_new_tokens", 3},
                       {"min_length", 3},
                       {"forced_bos_token_id", 4},
                       {"forced_eos_token_id", 2},
                       {"suppress_tokens", {4}},
                       {"bad_words_ids", {{4, 5}}},
                       {"force_words_ids", {{5}}},
                       {"no_repeat_ngram_size", 2},
                       {"renormalize_logits", true}};
};

TEST_F(Foreign, MarianBecomesOrdinarySteps) {
  const ForeignImport done = import();
  EXPECT_EQ(done.model, "tiny-mt");
  EXPECT_EQ(done.parameters, 44u);
  const std::string text = readFile(in("out/model.json")), begin = R"({
  "format": "xfc-model/1",
  "name": "tiny-mt",
  "params": {
    "source_vocab": 7,
    "target_vocab": 7,
    "d_model": 4,
    "heads": 2,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "d_ff": 6,
    "dropout": 0.1,
    "max_length": 9
  },
  "tokens": { "pad": 6, "unk": 1, "bos": 6, "eos": 0, "start": 6, "source_eos": true },
  "share": [["encoder.embed.weight", "decoder.embed.weight", "output.weight"]],
  "encoder": {
    "input": [
      { "op": "embedding", "name": "embed", "vocab": "$source_vocab", "dim": "$d_model", "scale": "sqrt_dim" },
      { "op": "positions", "kind": "sinusoidal", "max_length": "$max_length", "layout": "halves" },
      { "op": "dropout", "rate": "$dropout" }
    ],
    "layers": "$encoder_layers",
    "layer": [
      {
        "op": "residual",
        "body": [
          { "op": "attention", "name": "self_attn", "heads": "$heads" },
          { "op": "dropout", "rate": "$dropout" }
        ]
      },
      { "op": "layer_norm", "name": "self_attn_norm" },
      {
        "op": "residual",
        "body": [
          { "op": "linear", "name": "ffn.in", "features": "$d_ff" },
          { "op": "silu" },
          { "op": "linear", "name": "ffn.out", "features": "$d_model" },
          { "op": "dropout", "rate": "$dropout" }
        ]
      },
      { "op": "layer_norm", "name": "ffn_norm" }
    ],
    "output": []
  },
)";
  EXPECT_EQ(text.substr(0, begin.size()), begin);
  const Json json = description(), decoder = json["decoder"], layer = decoder["layer"];
  ASSERT_EQ(layer.size(), 6u);
  EXPECT_EQ(decoder["input"][0]["vocab"], "$target_vocab");
  // The first token is pad, and its key is visible like any other.
  EXPECT_EQ(layer[0]["body"][0].dump(), R"({"heads":"$heads","mask":["causal"],"name":"self_attn","op":"attention"})");
  EXPECT_EQ(layer[1]["name"], "self_attn_norm");
  EXPECT_EQ(layer[2]["body"][0].dump(),
            R"({"heads":"$heads","memory":"encoder","name":"cross_attn","op":"attention"})");
  EXPECT_EQ(layer[4], json["encoder"]["layer"][2]);
  EXPECT_EQ(json["head"].dump(), R"([{"bias":true,"features":"$target_vocab","name":"output","op":"linear"}])");
}

TEST_F(Foreign, WeightsKeepTheirBytesUnderOurNames) {
  add("model.encoder.layers.0.fc1.weight", {6, 4}, "BF16");
  import();
  Metadata metadata;
  const Tensors ours = readSafetensors(in("out/model.safetensors"), &metadata);
  EXPECT_EQ(metadata["model"], "tiny-mt");
  EXPECT_EQ(Json::parse(metadata["description"])["tokens"]["pad"], 6);
  const std::pair<const char *, const char *> names[] = {
      {"encoder.embed.weight", "model.shared.weight"},
      {"encoder.layers.0.self_attn.o.bias", "model.encoder.layers.0.self_attn.out_proj.bias"},
      {"encoder.layers.0.ffn.in.weight", "model.encoder.layers.0.fc1.weight"},
      {"decoder.layers.0.cross_attn.k.weight", "model.decoder.layers.0.encoder_attn.k_proj.weight"},
      {"decoder.layers.0.cross_attn_norm.weight", "model.decoder.layers.0.encoder_attn_layer_norm.weight"},
      {"decoder.layers.0.ffn_norm.bias", "model.decoder.layers.0.final_layer_norm.bias"},
      {"output.bias", "final_logits_bias"}};
  for (auto [name, theirs] : names) {
    ASSERT_TRUE(ours.contains(name)) << name;
    EXPECT_EQ(ours.at(name).bytes, tensors[theirs].bytes) << name;
    EXPECT_EQ(ours.at(name).type, tensors[theirs].type) << name;
  }
  EXPECT_EQ(ours.at("output.bias").shape, Shape{7});
  EXPECT_EQ(ours.size(), tensors.size());
}

TEST_F(Foreign, TiesAreThoseOfTheFile) {
  const auto share = [&] {
    std::filesystem::remove_all(in("out"));
    import();
    return description().value("share", Json());
  };
  // Copies of the tied table, which other versions write, still become one parameter.
  tensors["lm_head.weight"] = tensors["model.encoder.embed_tokens.weight"] = tensors["model.shared.weight"];
  EXPECT_EQ(share(), Json::parse(R"([["encoder.embed.weight", "decoder.embed.weight", "output.weight"]])"));
  // A separate output is not tied, whatever the config says, as in transformers.
  add("lm_head.weight", {7, 4});
  EXPECT_EQ(share(), Json::parse(R"([["encoder.embed.weight", "decoder.embed.weight"]])"));
  EXPECT_EQ(readSafetensors(in("out/model.safetensors")).at("output.weight").bytes, tensors["lm_head.weight"].bytes);
  config["tie_word_embeddings"] = false;
  tensors["lm_head.weight"] = tensors["model.shared.weight"];
  EXPECT_EQ(share(), Json::parse(R"([["encoder.embed.weight", "decoder.embed.weight"]])"));
  // Three separate tables, and one that nothing reads.
  add("model.encoder.embed_tokens.weight", {7, 4});
  add("model.decoder.embed_tokens.weight", {7, 4});
  EXPECT_EQ(share(), Json());
  // Two vocabularies.
  config["tie_word_embeddings"] = true;
  config["share_encoder_decoder_embeddings"] = false;
  config["decoder_vocab_size"] = 8;
  for (const char *name : {"model.shared.weight", "lm_head.weight"})
    tensors.erase(name);
  add("model.encoder.embed_tokens.weight", {7, 4});
  add("model.decoder.embed_tokens.weight", {8, 4});
  add("final_logits_bias", {1, 8});
  EXPECT_EQ(share(), Json::parse(R"([["decoder.embed.weight", "output.weight"]])"));
  EXPECT_EQ(description()["params"]["target_vocab"], 8);
}

TEST_F(Foreign, BartHasATableOfPositionsAndANormAfterIt) {
  config["model_type"] = "bart";
  config.erase("decoder_start_token_id"); // then the defaults of the model family
  config.erase("bos_token_id");
  for (const std::string stack : {"model.encoder.", "model.decoder."}) {
    add(stack + "embed_positions.weight", {11, 4});
    addNorm(stack + "layernorm_embedding");
  }
  import();
  const Json post = description(), input = post["decoder"]["input"];
  EXPECT_EQ(post["tokens"].dump(), R"({"bos":0,"eos":0,"pad":6,"source_eos":true,"start":2,"unk":3})");
  EXPECT_EQ(input[1].dump(), R"({"kind":"learned","max_length":"$max_length","offset":2,"op":"positions"})");
  EXPECT_EQ(input[2].dump(), R"({"name":"embed_norm","op":"layer_norm"})");
  EXPECT_EQ(post["decoder"]["layer"][1]["name"], "self_attn_norm");
  // The first token uses the third row, and no row is dropped.
  const Tensors ours = readSafetensors(in("out/model.safetensors"));
  EXPECT_EQ(ours.at("decoder.pos.weight").shape, (Shape{11, 4}));
  EXPECT_EQ(ours.at("decoder.pos.weight").bytes, tensors["model.decoder.embed_positions.weight"].bytes);

  config["model_type"] = "mbart"; // pre-norm, and starts with bos
  config["bos_token_id"] = 1;
  addNorm("model.encoder.layer_norm");
  addNorm("model.decoder.layer_norm");
  std::filesystem::remove_all(in("out"));
  import();
  const Json pre = description();
  EXPECT_EQ(pre["tokens"]["start"], 1);
  EXPECT_EQ(pre["decoder"]["layer"].size(), 3u);
  EXPECT_EQ(pre["decoder"]["layer"][1]["body"][0]["name"], "cross_attn_norm");
  EXPECT_EQ(pre["encoder"]["output"].dump(), R"([{"name":"norm","op":"layer_norm"}])");
  std::filesystem::remove_all(in("out"));
  add("model.encoder.embed_positions.weight", {9, 4});
  EXPECT_EQ(error(), "tiny-mt/model.safetensors: 'model.encoder.embed_positions.weight' has shape [9, 4], but "
                     "tiny-mt/config.json requires [11, 4]");
}

TEST_F(Foreign, M2M100CountsPositionsFromThePaddingOn) {
  config["model_type"] = "m2m_100";
  config["pad_token_id"] = 1;
  for (const char *stack : {"model.encoder.", "model.decoder."})
    addNorm(std::string(stack) + "layer_norm");
  tensors.erase("final_logits_bias");
  add("model.encoder.embed_positions.weights", {11, 4}); // early versions saved this table, which can be computed
  import();
  const Json json = description(), positions = json["decoder"]["input"][1];
  EXPECT_EQ(positions["kind"], "sinusoidal");
  EXPECT_EQ(positions["layout"], "halves");
  EXPECT_EQ(positions["offset"], 2);
  EXPECT_EQ(positions["exponent_multiplier"], 2); // multiplies i/d: the last of two frequencies is exactly 1/10000
  EXPECT_EQ(json["decoder"]["input"].size(), 3u); // no norm
  EXPECT_EQ(json["decoder"]["output"][0]["name"], "norm");
  EXPECT_EQ(json["head"][0]["bias"], false);
  std::filesystem::remove_all(in("out"));
  config["d_model"] = 2;
  EXPECT_EQ(error(), "tiny-mt/config.json: d_model: 2: its positions need an even number of features, at least 4");
}

// A folder with a T5 model of 4 features, 2 heads of 3 features each, 2 + 1 layers and 8 tokens.
class ForeignT5 : public Keys {
protected:
  ForeignT5() {
    config = {{"model_type", "t5"},
              {"vocab_size", 8},
              {"d_model", 4},
              {"d_kv", 3},
              {"d_ff", 5},
              {"num_layers", 2},
              {"num_decoder_layers", 1},
              {"num_heads", 2},
              {"relative_attention_num_buckets", 6},
              {"relative_attention_max_distance", 9},
              {"layer_norm_epsilon", 1e-5},
              {"dropout_rate", 0.25}};
    tensors.clear();
    add("shared.weight", {8, 4});
    for (const std::string stack : {"encoder", "decoder"}) {
      const bool decoder = stack == "decoder";
      for (int i = 0; i < (decoder ? 1 : 2); ++i) {
        const std::string block = stack + ".block." + std::to_string(i) + ".layer.";
        addBranch(block + "0.", "SelfAttention.");
        if (decoder)
          addBranch(block + "1.", "EncDecAttention.");
        const std::string last = block + (decoder ? "2." : "1.");
        add(last + "layer_norm.weight", {4});
        add(last + "DenseReluDense.wi.weight", {5, 4});
        add(last + "DenseReluDense.wo.weight", {4, 5});
      }
      addBias(stack, 0);
      add(stack + ".final_layer_norm.weight", {4});
    }
  }
  void addBranch(const std::string &layer, const std::string &attention) {
    add(layer + "layer_norm.weight", {4});
    for (const char *projection : {"q", "k", "v"})
      add(layer + attention + projection + ".weight", {6, 4});
    add(layer + attention + "o.weight", {4, 6});
  }
  void addBias(const std::string &stack, int layer) {
    add(stack + ".block." + std::to_string(layer) + ".layer.0.SelfAttention.relative_attention_bias.weight", {6, 2});
  }
  void addGates() {
    for (const char *layer : {"encoder.block.0.layer.1.", "encoder.block.1.layer.1.", "decoder.block.0.layer.2."}) {
      tensors.erase(std::string(layer) + "DenseReluDense.wi.weight");
      for (const char *wi : {"wi_0", "wi_1"})
        add(std::string(layer) + "DenseReluDense." + wi + ".weight", {5, 4});
    }
  }
};

TEST_F(ForeignT5, EachKeyHasAnEffect) { checkAll(); }

TEST_F(ForeignT5, BecomesOrdinarySteps) {
  const ForeignImport done = import();
  EXPECT_EQ(done.parameters, tensors.size());
  const Json json = description();
  EXPECT_EQ(json["tokens"].dump(), R"({"bos":0,"eos":1,"pad":0,"source_eos":true,"start":0,"unk":2})");
  EXPECT_EQ(json["share"], Json::parse(R"([["encoder.embed.weight", "decoder.embed.weight", "output.weight"],
                            ["encoder.layers.0.self_attn.distance_bias.weight",
                             "encoder.layers.1.self_attn.distance_bias.weight"]])"));
  EXPECT_EQ(json["encoder"]["layer"][0]["body"][1],
            Json::parse(R"({"op": "attention", "name": "self_attn", "heads": "$heads", "key_dim": "$key_dim",
                            "value_dim": "$key_dim", "bias": false, "scale": 1, "distance_bias": "buckets",
                            "buckets": "$buckets", "max_distance": "$max_distance", "max_length": "$max_length",
                            "dropout": "$dropout"})"));
  EXPECT_EQ(json["decoder"]["layer"][0]["body"][1]["mask"], Json({"causal"}));
  EXPECT_FALSE(json["decoder"]["layer"][1]["body"][1].contains("distance_bias"));
  EXPECT_EQ(json["decoder"]["layer"][2]["body"][2]["op"], "relu");
  EXPECT_EQ(json["params"]["norm_eps"], 1e-5);
  EXPECT_EQ(json["head"][0].dump(), R"({"by":"rsqrt_dim","op":"scale"})");
  const Tensors ours = readSafetensors(in("out/model.safetensors"));
  EXPECT_EQ(ours.at("decoder.layers.0.cross_attn.v.weight").bytes,
            tensors["decoder.block.0.layer.1.EncDecAttention.v.weight"].bytes);
  EXPECT_EQ(ours.at("decoder.layers.0.ffn_norm.weight").bytes,
            tensors["decoder.block.0.layer.2.layer_norm.weight"].bytes);
}

TEST_F(ForeignT5, LaterOnesAreGatedAndHaveAnOutputOfTheirOwn) {
  config["feed_forward_proj"] = "gated-gelu";
  config["tie_word_embeddings"] = false;
  addGates();
  add("lm_head.weight", {8, 4});
  add("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", {6, 2}); // of early versions; unused
  import();
  Json json = description();
  EXPECT_EQ(json["encoder"]["layer"][1]["body"][1].dump(),
            R"({"activation":"gelu_tanh","features":"$d_ff","name":"ffn.in","op":"gated"})");
  EXPECT_EQ(json["head"].size(), 1u);
  EXPECT_EQ(json["share"][0], Json({"encoder.embed.weight", "decoder.embed.weight"}));
  const Tensors ours = readSafetensors(in("out/model.safetensors"));
  EXPECT_EQ(ours.at("encoder.layers.1.ffn.in.gate.weight").bytes,
            tensors["encoder.block.1.layer.1.DenseReluDense.wi_0.weight"].bytes);
  // transformers 5 marks every model as tied; T5 1.1 is recognized by its weights and another option.
  config["tie_word_embeddings"] = true;
  config["scale_decoder_outputs"] = false;
  std::filesystem::remove_all(in("out"));
  import();
  EXPECT_EQ(description(), json);
  // mT5 is the same, but never scales.
  config["model_type"] = "mt5";
  config.erase("scale_decoder_outputs");
  std::filesystem::remove_all(in("out"));
  import();
  EXPECT_EQ(description(), json);
  // UMT5 has a table of distance biases in each layer.
  config["model_type"] = "umt5";
  std::filesystem::remove_all(in("out"));
  EXPECT_EQ(error(), "tiny-mt/model.safetensors: "
                     "'encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight' [6, 2] is missing but "
                     "required by tiny-mt/config.json");
  addBias("encoder", 1);
  import();
  EXPECT_EQ(description()["share"].size(), 1u);
  EXPECT_EQ(description()["head"][0]["op"], "scale");
}

TEST_F(ForeignT5, ConfigsThatCannotBeExpressedAreRefused) {
  const auto with = [&](const char *key, const Json &value) {
    const Json before = config;
    config[key] = value;
    std::string message = error();
    config = before;
    EXPECT_EQ(message.rfind("tiny-mt/config.json: " + std::string(key), 0), 0u) << message;
  };
  with("feed_forward_proj", "gated-softplus");
  with("feed_forward_proj", "gated");
  with("is_encoder_decoder", false);
  with("quantization_config", Json::object());
  for (const char *key : {"num_layers", "num_decoder_layers", "num_heads", "d_kv", "d_ff", "d_model", "vocab_size",
                          "relative_attention_num_buckets", "relative_attention_max_distance", "n_positions"})
    with(key, int64_t(1000000000000));
  with("layer_norm_epsilon", 0);
  with("dropout_rate", 1);
}

TEST_F(Foreign, WhatTheConfigSaysReachesTheSteps) {
  config.update({{"encoder_attention_heads", 4},
                 {"decoder_ffn_dim", 5},
                 {"attention_dropout", 0.25},
                 {"activation_dropout", 0.125},
                 {"activation_function", "relu"},
                 {"scale_embedding", false},
                 {"decoder_layerdrop", 0.5},
                 {"bos_token_id", 3},
                 {"eos_token_id", {0}}});
  tensors.erase("final_logits_bias"); // then the output has no bias
  addLinear("model.decoder.layers.0.fc1", 5, 4);
  addLinear("model.decoder.layers.0.fc2", 4, 5);
  const ForeignImport done = import();
  const Json json = description(), params = json["params"];
  EXPECT_EQ(params["encoder_heads"], 4);
  EXPECT_EQ(params["decoder_heads"], 2);
  EXPECT_EQ(params["encoder_d_ff"], 6);
  EXPECT_EQ(params["decoder_d_ff"], 5);
  EXPECT_EQ(json["tokens"]["bos"], 3);
  EXPECT_FALSE(json["encoder"]["input"][0].contains("scale"));
  EXPECT_EQ(json["encoder"]["layer"][0]["body"][0]["heads"], "$encoder_heads");
  EXPECT_EQ(json["encoder"]["layer"][0]["body"][0]["dropout"], "$attention_dropout");
  EXPECT_EQ(json["decoder"]["layer"][4]["body"][1]["op"], "relu");
  EXPECT_EQ(json["decoder"]["layer"][4]["body"][2]["rate"], "$activation_dropout");
  EXPECT_EQ(json["head"][0]["bias"], false);
  ASSERT_EQ(done.notes.size(), 3u);
  EXPECT_NE(done.notes[0].find("decoder_layerdrop"), std::string::npos);
  EXPECT_NE(done.notes[1].find("names pad, 6, so `generate` may write it"), std::string::npos);
  EXPECT_NE(done.notes[2].find("has no tokenizer"), std::string::npos);
  EXPECT_FALSE(done.readsText);
}

TEST_F(Foreign, SettingsOfTheSearchComeAlong) {
  writeFile(in("tiny-mt/generation_config.json"), Json({{"num_beams", 6},
                                                        {"length_penalty", 0.5},
                                                        {"early_stopping", "never"},
                                                        {"max_length", 100},
                                                        {"min_length", 3},
                                                        {"forced_bos_token_id", 4},
                                                        {"forced_eos_token_id", 0},
                                                        {"bad_words_ids", {{6}, {2}, {2, 3}}},
                                                        {"suppress_tokens", {5}},
                                                        {"no_repeat_ngram_size", 3},
                                                        {"renormalize_logits", true},
                                                        {"encoder_repetition_penalty", 1.1}})
                                                      .dump());
  const ForeignImport done = import();
  // max_length includes start and the eos that is forced there; the padding token is never generated anyway.
  EXPECT_EQ(description()["generation"], Json({{"beam", 6},
                                               {"length_penalty", 0.5},
                                               {"length_penalty_form", "power"},
                                               {"early_stopping", "never"},
                                               {"max_length", 98},
                                               {"at_max_length", "forced_eos"},
                                               {"min_length", 2},
                                               {"forced_first", {4}},
                                               {"suppress", {5, 2}},
                                               {"bad_sequences", {{2, 3}}},
                                               {"no_repeat_ngram", 3},
                                               {"renormalize", true}}));
  ASSERT_EQ(done.notes.size(), 2u); // pad is among bad_words_ids
  EXPECT_EQ(done.notes[0].find(in("tiny-mt/generation_config.json: encoder_repetition_penalty: 1.1")), 0u)
      << done.notes[0];
}

TEST_F(Foreign, RequiredPhrasesComeAlong) {
  const auto write = [&](const Json &words) {
    writeFile(in("tiny-mt/generation_config.json"), Json({{"force_words_ids", words}}).dump());
    std::filesystem::remove_all(in("out"));
  };
  const Json words = {{5}, {4, 5}, {{2}, {5, 4}}};
  write(words);
  const std::vector<std::string> notes = import().notes;
  EXPECT_TRUE(std::ranges::any_of(notes, [](const std::string &note) {
    return note.find(": force_words_ids: the beam is shared otherwise") != std::string::npos;
  }));
  EXPECT_EQ(description()["generation"]["required_phrases"], Json::parse("[[[5]], [[4, 5]], [[2], [5, 4]]]"));
  const ForeignExport done = exportForeign({in("out"), in("back")});
  EXPECT_EQ(Json::parse(readFile(in("back/generation_config.json")))["force_words_ids"], words);
  EXPECT_TRUE(std::ranges::any_of(
      done.notes, [](const std::string &note) { return note.starts_with("generation.required_phrases: "); }));
  std::filesystem::remove_all(in("back"));
  write(Json::array());
  import();
  EXPECT_FALSE(description()["generation"].contains("required_phrases"));
  const std::pair<Json, const char *> cases[] = {
      {5, ": expected a list, found a number, 5"},
      {{5}, "[0]: expected a list, found a number, 5"},
      {Json::parse("[[]]"), "[0]: is empty; expected token ids, or lists of them"},
      {Json::parse("[[[5], []]]"), "[0][1]: is empty; expected token ids"},
      {Json::parse("[[99]]"), "[0][0]: expected a whole number"},
      {Json::parse("[[5, 6]]"), "[0][1]: is pad, which no translation contains; expected other tokens"}};
  for (const auto &[value, said] : cases) {
    write(value);
    std::filesystem::remove_all(in("out"));
    EXPECT_NE(error().find("generation_config.json: force_words_ids" + std::string(said)), std::string::npos)
        << error();
  }
}

TEST_F(Foreign, GroupsOfTheBeamComeAlong) {
  const auto write = [&](const Json &settings) {
    writeFile(in("tiny-mt/generation_config.json"), settings.dump());
    std::filesystem::remove_all(in("out"));
  };
  write({{"num_beams", 6}, {"num_beam_groups", 3}, {"diversity_penalty", 0.25}});
  import();
  EXPECT_EQ(description()["generation"]["beam_groups"], 3);
  EXPECT_EQ(description()["generation"]["diversity"], 0.25);
  exportForeign({in("out"), in("back")});
  const Json exported = Json::parse(readFile(in("back/generation_config.json")));
  EXPECT_EQ(exported["num_beam_groups"], 3);
  EXPECT_EQ(exported["diversity_penalty"], 0.25);
  std::filesystem::remove_all(in("back"));
  write({{"num_beams", 6}, {"num_beam_groups", 1}, {"diversity_penalty", 0.0}});
  const ForeignImport done = import();
  EXPECT_FALSE(description()["generation"].contains("beam_groups") ||
               description()["generation"].contains("diversity"));
  for (const std::string &note : done.notes)
    EXPECT_EQ(note.find("diversity"), std::string::npos) << note;
  write({{"num_beams", 6}, {"diversity_penalty", 0.5}});
  const std::vector<std::string> notes = import().notes;
  EXPECT_TRUE(std::ranges::any_of(notes, [](const std::string &note) {
    return note.ends_with("diversity_penalty: is of num_beam_groups, which are not given, so it is ignored");
  }));
  EXPECT_FALSE(description()["generation"].contains("diversity"));
  write({{"num_beams", 6}, {"num_beam_groups", 4}, {"diversity_penalty", 0.5}});
  EXPECT_EQ(error(), "tiny-mt/generation_config.json: num_beam_groups: 4 does not divide num_beams, 6");
  write({{"num_beams", 6}, {"num_beam_groups", 3}});
  EXPECT_EQ(error(), "tiny-mt/generation_config.json: diversity_penalty: 0 lets all num_beam_groups write the same; "
                     "expected a number above 0");
}

// Folders in which `generate` writes exactly so many tokens: with eos, which is forced after them, and without.
TEST_F(Foreign, TheMinimumMayBeTheMaximum) {
  const auto lengths = [&](const Json &settings) {
    writeFile(in("tiny-mt/generation_config.json"), settings.dump());
    std::filesystem::remove_all(in("out"));
    import();
    const Json generation = description()["generation"];
    return std::pair(generation["min_length"], generation["max_length"]);
  };
  EXPECT_EQ(lengths({{"min_length", 9}, {"max_length", 9}}), std::pair(Json(8), Json(8)));
  EXPECT_EQ(lengths({{"min_length", 9}, {"max_length", 9}, {"forced_eos_token_id", 0}}), std::pair(Json(7), Json(7)));
  EXPECT_EQ(lengths({{"min_new_tokens", 6}, {"max_new_tokens", 6}, {"forced_eos_token_id", 0}}),
            std::pair(Json(5), Json(5)));
  EXPECT_EQ(lengths({{"min_new_tokens", 8}, {"max_length", 9}}), std::pair(Json(8), Json(8)));
  writeFile(in("tiny-mt/generation_config.json"), R"({"min_length": 10, "max_length": 9, "forced_eos_token_id": 0})");
  std::filesystem::remove_all(in("out"));
  EXPECT_EQ(error(), "tiny-mt/generation_config.json: min_length: 10: more than max_length, 9, leaves room for; "
                     "expected less");
}

TEST_F(Keys, EachOfMarianHasAnEffect) { checkAll(); }

TEST_F(Keys, EachOfBartAndM2M100HasAnEffect) {
  config["model_type"] = "bart";
  for (const std::string stack : {"model.encoder.", "model.decoder."}) {
    add(stack + "embed_positions.weight", {11, 4});
    addNorm(stack + "layernorm_embedding");
  }
  checkAll();
  config["model_type"] = "m2m_100";
  for (const std::string stack : {"model.encoder.", "model.decoder."}) {
    for (const char *gone : {"embed_positions.weight", "layernorm_embedding.weight", "layernorm_embedding.bias"})
      tensors.erase(stack + gone);
    addNorm(stack + "layer_norm");
  }
  tensors.erase("final_logits_bias");
  checkAll();
}

TEST_F(Foreign, KeysThatNothingReadsAreTold) {
  config.update({{"architectures", {"MarianMTModel"}}, {"top_k", 50}, {"novel_norm", true}, {"stop_strings", nullptr}});
  const auto tells = [&](const std::string &key) {
    std::filesystem::remove_all(in("out"));
    for (const std::string &note : import().notes)
      if (note.find(": " + key + ": ") != std::string::npos)
        return note;
    return std::string();
  };
  EXPECT_EQ(tells("novel_norm"), in("tiny-mt/config.json: novel_norm: true is not known here and is ignored"));
  EXPECT_EQ(tells("architectures") + tells("top_k") + tells("stop_strings"), "");
  // Settings of the search that have an effect by any value but the neutral one.
  config["encoder_repetition_penalty"] = 1;
  EXPECT_EQ(tells("encoder_repetition_penalty"), "");
  const Json settings = {{"encoder_repetition_penalty", 1.25},
                         {"stop_strings", {"x"}},
                         {"do_sample", true},
                         {"watermarking_config", {{"bias", 2}}},
                         {"constraints", {1}},
                         {"penalty_alpha", 0.5},
                         {"dola_layers", "high"},
                         {"token_healing", true}};
  for (const auto &[key, value] : settings.items()) {
    writeFile(in("tiny-mt/generation_config.json"), Json({{key, value}}).dump());
    EXPECT_NE(tells(key).find("generation_config.json: " + key), std::string::npos) << key;
  }
}

TEST_F(Foreign, NullIsAValueOfTheConfig) {
  config["encoder_attention_heads"] = nullptr; // not BART's default
  EXPECT_EQ(
      error(),
      "tiny-mt/config.json: encoder_attention_heads: expected a whole number from 1 to 1048576, found null, null");
  config["encoder_attention_heads"] = 2;
  config["is_encoder_decoder"] = nullptr;
  EXPECT_EQ(error(), "tiny-mt/config.json: is_encoder_decoder: null cannot be imported: it is not an encoder-decoder "
                     "model; expected true");
  config["is_encoder_decoder"] = true;
  config["pad_token_id"] = nullptr;
  EXPECT_EQ(error(),
            "tiny-mt/config.json: pad_token_id: null: expected a token id, which a model of this family needs");
  config["pad_token_id"] = 6;
  config["decoder_start_token_id"] = nullptr;
  EXPECT_EQ(error(),
            "tiny-mt/config.json: decoder_start_token_id: null, and so is bos_token_id; expected the id of the "
            "token that translations begin with");
  config["bos_token_id"] = 3; // what `generate` takes then
  import();
  EXPECT_EQ(description()["tokens"]["start"], 3);
}

TEST_F(Foreign, WeightsAreFiniteNumbers) {
  auto &bytes = tensors.at("model.encoder.layers.0.fc1.weight").bytes;
  const std::vector<uint8_t> before = bytes;
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinity}) {
    std::memcpy(bytes.data() + 8, &bad, sizeof bad);
    EXPECT_EQ(error(),
              "tiny-mt/model.safetensors: 'model.encoder.layers.0.fc1.weight' holds NaN or infinity; the weights "
              "are damaged, or their training diverged; expected finite numbers");
  }
  bytes = before;
  StoredTensor &wide = tensors.at("model.encoder.layers.0.fc1.bias"); // becomes infinite as F32
  std::vector<double> numbers(6, 1e300);
  wide = {"F64", {6}, std::vector<uint8_t>(48)};
  std::memcpy(wide.bytes.data(), numbers.data(), 48);
  EXPECT_NE(error().find("'model.encoder.layers.0.fc1.bias' holds numbers beyond F32"), std::string::npos);
}

TEST_F(Foreign, WrappersOfModelsAreLeftOut) {
  const auto named = [&](const std::string &prefix) {
    Tensors renamed;
    for (const auto &[name, tensor] : tensors)
      renamed[prefix + name] = tensor;
    writeFile(in("tiny-mt/config.json"), config.dump());
    writeSafetensors(in("tiny-mt/model.safetensors"), viewsOf(renamed));
  };
  for (const char *prefix : {"_orig_mod.", "module.", "module._orig_mod."}) {
    named(prefix);
    std::filesystem::remove_all(in("out"));
    importWritten();
    EXPECT_EQ(readSafetensors(in("out/model.safetensors")).at("encoder.layers.0.ffn.in.weight").bytes,
              tensors.at("model.encoder.layers.0.fc1.weight").bytes);
  }
  std::filesystem::remove_all(in("out"));
  named("mine.");
  EXPECT_NE(error(false).find("; all names of the file begin with 'mine.', which the model's do not"),
            std::string::npos);
}

TEST_F(Foreign, ExportComparesTheModelWithItsWeights) {
  import();
  const std::string before = readFile(in("out/model.json"));
  const auto exportedWith = [&](const std::string &from, const std::string &to) {
    std::string text = before;
    text.replace(text.find(from), from.size(), to);
    writeFile(in("out/model.json"), text);
    const std::string message = errorOf([&] { exportForeign({in("out"), in("hf"), "hf"}); });
    std::filesystem::remove_all(in("hf"));
    return message;
  };
  const std::string other = exportedWith(R"({ "op": "silu" })", R"({ "op": "relu" })");
  EXPECT_NE(other.find("model.safetensors: these are weights of another model than that of"), std::string::npos)
      << other;
  EXPECT_NE(other.find("encoder.layer[2].body[1].op is \"silu\" there and \"relu\" here"), std::string::npos) << other;
  // What may be edited.
  EXPECT_EQ(exportedWith(R"("beam": 1)", R"("beam": 3)"), "no error");
  EXPECT_EQ(exportedWith(R"("dropout": 0.1)", R"("dropout": 0.2)"), "no error");
  EXPECT_NE(exportedWith(R"("source_eos": true)", R"("source_eos": false)").find("source_eos"), std::string::npos);
  writeFile(in("out/model.json"), before);
  const Tensors weights = readSafetensors(in("out/model.safetensors"));
  writeSafetensors(in("out/model.safetensors"), viewsOf(weights), {{"source_vocabulary", "0123456789abcdef"}});
  writeFile(in("out/vocab.model"), "<s>\n<pad>\n</s>\n<unk>\n");
  EXPECT_NE(errorOf([&] { exportForeign({in("out"), in("hf"), "hf"}); }).find("vocab.model: this vocabulary (hash "),
            std::string::npos);
}

TEST_F(Foreign, TheSearchSaysWhereTranslationsBeginAndEnd) {
  config.erase("decoder_start_token_id");
  writeFile(in("tiny-mt/generation_config.json"), R"({"decoder_start_token_id": 5, "eos_token_id": [3]})");
  import();
  EXPECT_EQ(description()["tokens"].dump(), R"({"bos":5,"eos":3,"pad":6,"source_eos":true,"start":5,"unk":1})");
}

TEST_F(Foreign, SettingsThatCannotBe) {
  const auto errorWith = [&](const Json &settings) {
    writeFile(in("tiny-mt/generation_config.json"), settings.dump());
    return error();
  };
  EXPECT_EQ(errorWith({{"forced_eos_token_id", 2}}),
            "tiny-mt/generation_config.json: forced_eos_token_id: 2 is not eos, which is 0; expected eos, or null");
  EXPECT_EQ(
      errorWith({{"suppress_tokens", {0}}}),
      "tiny-mt/generation_config.json: suppress_tokens[0]: is eos, without which no translation ends; expected other "
      "tokens");
  EXPECT_NE(errorWith({{"num_beams", 1000000000}}).find("tiny-mt/generation_config.json: num_beams: "),
            std::string::npos);
  EXPECT_NE(errorWith({{"suppress_tokens", {70}}}).find("70"), std::string::npos);
}

TEST_F(Foreign, LanguagesNeedATokenizer) {
  writeFile(in("tiny-mt/config.json"), config.dump());
  writeSafetensors(in("tiny-mt/model.safetensors"), viewsOf(tensors));
  EXPECT_NE(errorOf([&] { importForeign({in("tiny-mt"), in("out"), "en_XX", ""}); }).find("has no tokenizer"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(in("out")));
}

TEST_F(Foreign, WeightsComeInShards) {
  import();
  const std::string whole = readFile(in("out/model.safetensors"));
  std::filesystem::remove_all(in("out"));
  std::filesystem::remove(in("tiny-mt/model.safetensors"));
  Tensors shards[2];
  Json map;
  for (auto &[name, tensor] : tensors) {
    const int which = name.find("decoder") != std::string::npos;
    shards[which][name] = tensor;
    map[name] = which ? "b.safetensors" : "a.safetensors";
  }
  const auto write = [&] {
    writeSafetensors(in("tiny-mt/a.safetensors"), viewsOf(shards[0]));
    writeSafetensors(in("tiny-mt/b.safetensors"), viewsOf(shards[1]));
    writeFile(in("tiny-mt/model.safetensors.index.json"), Json{{"weight_map", map}}.dump());
  };
  write();
  importWritten();
  EXPECT_EQ(readFile(in("out/model.safetensors")), whole);

  std::filesystem::remove_all(in("out"));
  map["final_logits_bias"] = "b.safetensors";
  write();
  EXPECT_EQ(error(false), "tiny-mt/model.safetensors.index.json: weight_map.final_logits_bias: 'final_logits_bias' is "
                          "not in tiny-mt/b.safetensors");
  map["final_logits_bias"] = "../a.safetensors";
  write();
  EXPECT_EQ(error(false), "tiny-mt/model.safetensors.index.json: weight_map.final_logits_bias: \"../a.safetensors\": "
                          "expected the name of a .safetensors file of this folder");
  map["final_logits_bias"] = "a.safetensors";
  write();
  std::filesystem::remove(in("tiny-mt/b.safetensors"));
  EXPECT_EQ(error(false), "tiny-mt/b.safetensors: cannot open: No such file or directory");
}

TEST_F(Foreign, WrongFoldersAreRefused) {
  EXPECT_EQ(error(false),
            "tiny-mt: contains no model of a known kind; expected a Hugging Face folder (config.json, and "
            "model.safetensors or its shards), a CTranslate2 folder (model.bin), or a Marian .npz file, or "
            "a folder with one");
  config["model_type"] = "gpt2";
  EXPECT_EQ(error().substr(0, 61), "tiny-mt/config.json: model_type: unknown family \"gpt2\"; known");
  config.erase("model_type");
  EXPECT_EQ(error().substr(0, 61), "tiny-mt/config.json: model_type: missing; expected one of mar");
  config["model_type"] = "marian";
  import();
  EXPECT_NE(errorOf([&] { import(); }).find("/out: already exists and is not an empty folder"), std::string::npos);
  std::filesystem::remove_all(in("out"));
  std::filesystem::create_directory(in("out")); // an empty folder is accepted
  import();
  std::filesystem::remove_all(in("out"));

  const std::string whole = readFile(in("tiny-mt/model.safetensors"));
  writeFile(in("tiny-mt/model.safetensors"), whole.substr(0, whole.size() - 4));
  EXPECT_EQ(error(false).substr(0, 56), "tiny-mt/model.safetensors: not a valid safetensors file:");
  writeFile(in("tiny-mt/model.safetensors"), "PK");
  EXPECT_EQ(error(false), "tiny-mt/model.safetensors: not a valid safetensors file: it has 2 bytes");
  std::filesystem::rename(in("tiny-mt/model.safetensors"), in("tiny-mt/pytorch_model.bin"));
  const std::string pickle = error(false);
  EXPECT_NE(pickle.find("there is only pytorch_model.bin, a pickle"), std::string::npos) << pickle;
  EXPECT_NE(pickle.find("save_pretrained('CONVERTED')"), std::string::npos) << pickle;
  writeFile(in("tiny-mt/config.json"), "[1]");
  EXPECT_EQ(error(false), "tiny-mt/config.json: expected an object of options, found array");
  EXPECT_NE(
      errorOf([&] { importForeign({in("none"), in("out")}); }).find("none: does not exist; expected a Hugging Face"),
      std::string::npos);
}

TEST_F(Foreign, ConfigsThatCannotBeExpressedAreRefused) {
  const auto with = [&](const char *key, const Json &value) {
    const Json before = config;
    config[key] = value;
    std::string message = error();
    config = before;
    EXPECT_EQ(message.rfind("tiny-mt/config.json: " + std::string(key), 0), 0u) << message;
    return message;
  };
  EXPECT_EQ(with("activation_function", "softplus"),
            "tiny-mt/config.json: activation_function: \"softplus\" is not a supported activation; known: " +
                with("activation_function", "x")
                    .substr(std::string("tiny-mt/config.json: activation_function: \"x\" is "
                                        "not a supported activation; known: ")
                                .size()));
  EXPECT_EQ(with("normalize_before", true), "tiny-mt/config.json: normalize_before: true cannot be imported: models of "
                                            "this family have their norms elsewhere; expected false");
  EXPECT_EQ(with("d_model", 1000000000),
            "tiny-mt/config.json: d_model: expected a whole number from 1 to 1048576, found 1000000000");
  with("encoder_layers", 1000000000);
  with("encoder_layers", 0);
  with("vocab_size", "seven");
  with("dropout", 1);
  with("quantization_config", Json::object());
  with("is_encoder_decoder", false);
  with("static_position_embeddings", false);
  with("encoder_attention_heads", 3);
  with("eos_token_id", {0, 1});
  // Each value is within bounds, but the model exceeds the size limit.
  config["d_model"] = 1 << 20;
  config["encoder_attention_heads"] = config["decoder_attention_heads"] = 1 << 10;
  EXPECT_NE(error().find("exceed the limit of 2^40 bytes"), std::string::npos) << error();
}

TEST_F(Foreign, ConfigsThatContradictTheWeightsAreRefused) {
  config["vocab_size"] = 8;
  EXPECT_EQ(error(), "tiny-mt/model.safetensors: 'model.shared.weight' has shape [7, 4], but tiny-mt/config.json "
                     "requires [8, 4]");
  config["vocab_size"] = 7;
  config["encoder_layers"] = 2;
  EXPECT_EQ(error(), "tiny-mt/model.safetensors: 'model.encoder.layers.1.self_attn.q_proj.weight' [4, 4] is missing "
                     "but required by tiny-mt/config.json");
  config["encoder_layers"] = 1;
  add("model.encoder.layers.1.fc1.bias", {6});
  EXPECT_EQ(error(), "tiny-mt/model.safetensors: 'model.encoder.layers.1.fc1.bias' [6] is not part of the model that "
                     "tiny-mt/config.json describes; expected only the weights of that model");
  tensors.erase("model.encoder.layers.1.fc1.bias");
  tensors["model.encoder.layers.0.fc1.bias"].type = "I32";
  EXPECT_EQ(error(), "tiny-mt/model.safetensors: 'model.encoder.layers.0.fc1.bias' has type I32; expected F32, F64, "
                     "F16 or BF16");
}

//===-- and back ------------------------------------------------------------------------------------------------===//

// The exported folder holds exactly the tensors of the imported one.
void expectSameTensors(const std::string &exported, const Tensors &before) {
  Metadata metadata;
  const Tensors after = readSafetensors(exported + "/model.safetensors", &metadata);
  EXPECT_EQ(metadata["format"], "pt"); // transformers refuses files without it
  EXPECT_EQ(after.size(), before.size());
  for (const auto &[name, tensor] : before) {
    ASSERT_TRUE(after.contains(name)) << name;
    EXPECT_EQ(after.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(after.at(name).bytes, tensor.bytes) << name;
  }
}

TEST_F(Foreign, ExportGivesBackWhatWasImported) {
  config["attention_dropout"] = 0.25;
  config["bos_token_id"] = 6;
  writeFile(in("tiny-mt/generation_config.json"), Json({{"num_beams", 6},
                                                        {"length_penalty", 0.5},
                                                        {"early_stopping", "never"},
                                                        {"max_length", 100},
                                                        {"min_length", 3},
                                                        {"forced_bos_token_id", 4},
                                                        {"forced_eos_token_id", 0},
                                                        {"bad_words_ids", {{2, 3}}},
                                                        {"suppress_tokens", {6, 5}},
                                                        {"no_repeat_ngram_size", 3},
                                                        {"renormalize_logits", true}})
                                                      .dump());
  import();
  const ForeignExport done = exportForeign({in("out"), in("back")});
  EXPECT_EQ(done.modelType, "marian");
  EXPECT_EQ(done.tensors, tensors.size());
  expectSameTensors(in("back"), tensors);
  const Json exported = Json::parse(readFile(in("back/config.json")));
  for (const auto &[key, value] : config.items())
    EXPECT_EQ(exported[key], key == "activation_function" ? Json("silu") : value) << key;
  EXPECT_EQ(exported["architectures"], Json({"MarianMTModel"}));
  EXPECT_EQ(exported["dtype"], "float32");
  const Json searched = Json::parse(readFile(in("back/generation_config.json"))),
             before = Json::parse(readFile(in("tiny-mt/generation_config.json")));
  for (const auto &[key, value] : before.items())
    EXPECT_EQ(searched[key], value) << key;
  importForeign({in("back"), in("again")});
  Json first = description(), second = Json::parse(readFile(in("again/model.json")));
  first.erase("name");
  second.erase("name");
  EXPECT_EQ(first, second);
}

TEST_F(ForeignT5, ExportGivesBackWhatWasImported) {
  import();
  EXPECT_EQ(exportForeign({in("out"), in("back")}).modelType, "t5");
  expectSameTensors(in("back"), tensors);
  EXPECT_EQ(Json::parse(readFile(in("back/config.json")))["feed_forward_proj"], "relu");

  std::filesystem::remove_all(in("out"));
  std::filesystem::remove_all(in("back"));
  config.update({{"model_type", "umt5"}, {"feed_forward_proj", "gated-gelu"}, {"tie_word_embeddings", false}});
  addGates();
  addBias("encoder", 1);
  add("lm_head.weight", {8, 4});
  import();
  EXPECT_EQ(exportForeign({in("out"), in("back")}).modelType, "umt5");
  expectSameTensors(in("back"), tensors);
  const Json exported = Json::parse(readFile(in("back/config.json")));
  EXPECT_EQ(exported["feed_forward_proj"], "gated-gelu");
  EXPECT_EQ(exported["tie_word_embeddings"], false);
  EXPECT_EQ(exported["scale_decoder_outputs"], false);
}

// If sines and cosines alternate, features are permuted: 0 1 2 3 become 0 2 1 3.
TEST_F(Foreign, ExportPutsSinesFirst) {
  import();
  forgetModel();
  std::string text = readFile(in("out/model.json"));
  for (size_t at; (at = text.find(", \"layout\": \"halves\"")) != std::string::npos;)
    text.erase(at, std::string(", \"layout\": \"halves\"").size());
  writeFile(in("out/model.json"), text);
  exportForeign({in("out"), in("back")});
  const Tensors after = readSafetensors(in("back/model.safetensors"));
  const auto floats = [](const StoredTensor &tensor) {
    std::vector<float> values(tensor.bytes.size() / 4);
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  };
  const int64_t from[] = {0, 2, 1, 3};
  const auto check = [&](const std::string &name, bool rows, bool columns) {
    const std::vector<float> a = floats(tensors.at(name)), b = floats(after.at(name));
    const Shape &shape = after.at(name).shape;
    const int64_t width = shape.size() < 2 ? 1 : shape[1];
    for (int64_t i = 0; i < shape[0]; ++i)
      for (int64_t j = 0; j < width; ++j)
        EXPECT_EQ(b[i * width + j], a[(rows ? from[i] : i) * width + (columns ? from[j] : j)]) << name;
  };
  const std::string layer = "model.decoder.layers.0.";
  check("model.shared.weight", false, true);
  check(layer + "self_attn.q_proj.weight", false, true);
  check(layer + "self_attn.q_proj.bias", false, false);
  check(layer + "encoder_attn.k_proj.weight", false, true);
  check(layer + "encoder_attn.out_proj.weight", true, false);
  check(layer + "encoder_attn.out_proj.bias", true, false);
  check(layer + "final_layer_norm.bias", true, false);
  check(layer + "fc1.weight", false, true);
  check(layer + "fc1.bias", false, false);
  check(layer + "fc2.weight", true, false);
  check(layer + "fc2.bias", true, false);
}

TEST_F(Foreign, ExportTakesTheBestWeightsOfARun) {
  import();
  const std::string imported = readFile(in("out/model.safetensors"));
  std::filesystem::create_directory(in("run"));
  Metadata identity;
  Tensors weights = readSafetensors(in("out/model.safetensors"), &identity);
  writeFile(in("run/last.safetensors"), imported);
  weights.at("encoder.embed.weight").bytes[0] ^= 1;
  writeSafetensors(in("run/best.safetensors"), viewsOf(weights),
                   identityOf(identity["model"], identity["model_hash"], identity["description"]));
  EXPECT_EQ(exportForeign({in("run"), in("best")}).weights, in("run/best.safetensors"));
  EXPECT_EQ(readSafetensors(in("best/model.safetensors")).at("model.shared.weight").bytes,
            weights.at("encoder.embed.weight").bytes);
  std::filesystem::remove(in("run/best.safetensors"));
  exportForeign({in("run"), in("last")});
  expectSameTensors(in("last"), tensors);
}

TEST_F(Foreign, ExportSaysWhatDoesNotFit) {
  import();
  forgetModel();
  const std::string text = readFile(in("out/model.json"));
  const auto without = [&](const std::string &from, const std::string &to) {
    std::string edited = text;
    const size_t at = edited.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    writeFile(in("out/model.json"), edited.replace(at, from.size(), to));
    const std::string message = errorOf([&] { exportForeign({in("out"), in("back")}); });
    EXPECT_FALSE(std::filesystem::exists(in("back")));
    return message;
  };
  const std::string norm = without(R"("op": "layer_norm", "name": "self_attn_norm")",
                                   R"("op": "layer_norm", "eps": 0.01, "name": "self_attn_norm")");
  EXPECT_EQ(norm.find(in("out/model.json: matches no Hugging Face family that xfc knows")), 0u) << norm;
  EXPECT_NE(norm.find("\n  marian: encoder.layer[1].eps: 0.01, where marian has 1e-05"), std::string::npos) << norm;
  EXPECT_NE(norm.find("\n  mbart: encoder.input[1]: sinusoidal positions, where mbart has learned positions"),
            std::string::npos)
      << norm;
  EXPECT_NE(norm.find("\n  t5: encoder.layer: has no rms_norm"), std::string::npos) << norm;
  EXPECT_NE(without(R"("source_eos": true)", R"("source_eos": false)")
                .find("marian: tokens.source_eos: false, where marian has true"),
            std::string::npos);
  EXPECT_NE(without(R"(, "output.weight"])", "]").find("'output.weight' is missing"), std::string::npos);
  writeFile(in("out/model.json"), text);
  std::filesystem::remove(in("out/model.safetensors"));
  EXPECT_NE(errorOf([&] { exportForeign({in("out"), in("back")}); }).find("none of best.safetensors"),
            std::string::npos);
  EXPECT_NE(errorOf([&] { exportForeign({in("none"), in("back")}); }).find("none: is not a folder"), std::string::npos);
}

//===-- to CTranslate2 ------------------------------------------------------------------------------------------===//

ExportOptions toCtranslate2(const std::string &from, const std::string &to,
                            const std::string &quantization = "float32") {
  return {from, to, "ctranslate2", quantization};
}

struct Nothing {}; // the contents of a variable without elements

// A model.bin that can be changed.
class Variables {
public:
  explicit Variables(const std::string &file)
      : file(file), contents(readFile(file)), model(Ctranslate2Model::parse(contents, file)) {}

  const TensorView &operator[](const std::string &name) const { return model.variables.at(name); }
  bool has(const std::string &name) const { return model.variables.contains(name); }
  template <typename Number>
  void set(const std::string &name, const std::string &type, const Shape &shape, Number number) {
    made.push_back(std::string(reinterpret_cast<const char *>(&number), std::is_empty_v<Number> ? 0 : sizeof number));
    model.variables[name] = {name, type, shape, made.back()};
  }
  // Writes the file, where aliases stay aliases.
  void write() const {
    std::vector<Ctranslate2Variable> variables;
    std::vector<std::pair<std::string, std::string>> aliases;
    std::map<const char *, std::string> first;
    for (const auto &[name, variable] : model.variables)
      if (const auto [other, isNew] = first.emplace(variable.bytes.data(), name); isNew)
        variables.push_back(
            {name, variable.type, variable.shape, [bytes = variable.bytes] { return std::string(bytes); }});
      else
        aliases.emplace_back(name, other->second);
    writeCtranslate2(file, model.specification, model.revision, variables, aliases);
  }

private:
  std::string file, contents;
  std::list<std::string> made;
  Ctranslate2Model model;
};

TEST_F(Foreign, Ctranslate2JoinsAndSharesWeights) {
  import();
  const ForeignExport done = exportForeign(toCtranslate2(in("out"), in("ct2")));
  EXPECT_EQ(done.files, (std::vector<std::string>{"model.bin", "config.json", "shared_vocabulary.json"}));
  const Variables variables(in("ct2/model.bin"));
  const auto bytes = [&](const std::string &name) {
    const StoredTensor &tensor = tensors.at(name);
    return std::string(tensor.bytes.begin(), tensor.bytes.end());
  };
  const std::string layer = "model.decoder.layers.0.";
  for (const std::string part : {"weight", "bias"}) {
    EXPECT_EQ(variables["decoder/layer_0/self_attention/linear_0/" + part].bytes,
              bytes(layer + "self_attn.q_proj." + part) + bytes(layer + "self_attn.k_proj." + part) +
                  bytes(layer + "self_attn.v_proj." + part));
    EXPECT_EQ(variables["decoder/layer_0/attention/linear_1/" + part].bytes,
              bytes(layer + "encoder_attn.k_proj." + part) + bytes(layer + "encoder_attn.v_proj." + part));
    EXPECT_EQ(variables["decoder/layer_0/ffn/linear_1/" + part].bytes, bytes(layer + "fc2." + part));
  }
  EXPECT_EQ(variables["decoder/layer_0/self_attention/linear_0/weight"].shape, (Shape{12, 4}));
  EXPECT_EQ(variables["encoder/layer_0/ffn/layer_norm/gamma"].bytes,
            bytes("model.encoder.layers.0.final_layer_norm.weight"));
  EXPECT_EQ(variables["decoder/projection/bias"].bytes, bytes("final_logits_bias"));
  for (const char *table : {"decoder/projection/weight", "encoder/embeddings_0/weight"})
    EXPECT_EQ(variables[table].bytes.data(), variables["decoder/embeddings/weight"].bytes.data()) << table;
  EXPECT_EQ(variables["encoder/position_encodings/encodings"].shape, (Shape{9, 4}));
  EXPECT_EQ(variables["encoder/num_heads"].bytes, std::string("\2\0", 2));
  EXPECT_EQ(variables["encoder/activation"].bytes, "\2"); // Swish
  EXPECT_EQ(variables["decoder/pre_norm"].bytes, std::string(1, '\0'));
  EXPECT_FALSE(variables.has("encoder/layer_0/self_attention/queries_scale")); // the usual one
  const Json written = Json::parse(readFile(in("ct2/config.json")));
  EXPECT_EQ(
      written,
      Json::parse(
          R"({"add_source_bos": false, "add_source_eos": true, "bos_token": "<pad>", "decoder_start_token": "<pad>",
      "eos_token": "0", "layer_norm_epsilon": null, "multi_query_attention": false, "unk_token": "1"})"));
  EXPECT_EQ(Json::parse(readFile(in("ct2/shared_vocabulary.json"))), Json({"0", "1", "2", "3", "4", "5", "<pad>"}));
}

// Each key of CTranslate2's config.json, and each flag among the variables of older files.
TEST_F(Foreign, Ctranslate2KeysHaveAnEffect) {
  import();
  Json json = description();
  json["tokens"]["start"] = json["tokens"]["bos"] = 3;
  writeFile(in("out/model.json"), json.dump());
  forgetModel();
  exportForeign(toCtranslate2(in("out"), in("ct2")));
  const Json before = Json::parse(readFile(in("ct2/config.json")));
  std::vector<std::string> asked;
  const auto outcome = [&] {
    std::filesystem::remove_all(in("back"));
    try {
      const ForeignImport done = importForeign({in("ct2"), in("back")});
      asked = done.asked;
      std::string text;
      for (const std::string &note : done.notes)
        text += note + "\n";
      return text + readFile(in("back/model.json"));
    } catch (const Error &error) {
      return std::string(error.what());
    }
  };
  const auto outcomeOf = [&](const std::string &key, const Json &value) {
    Json config = before;
    config[key] = value;
    writeFile(in("ct2/config.json"), config.dump());
    return outcome();
  };
  const std::string usual = outcome();
  EXPECT_EQ(asked.size(), 9u);
  const Json others = {{"unk_token", "2"},           {"bos_token", "2"},
                       {"eos_token", "2"},           {"decoder_start_token", "2"},
                       {"add_source_eos", false},    {"add_source_bos", true},
                       {"layer_norm_epsilon", 0.25}, {"multi_query_attention", true},
                       {"quantization_type", 1}};
  for (const std::string &of : std::vector<std::string>(asked)) {
    const std::string key = of.substr(std::string("config.json: ").size());
    ASSERT_TRUE(others.contains(key)) << key;
    EXPECT_NE(outcomeOf(key, others[key]), usual) << key;
  }
  EXPECT_NE(outcomeOf("novel", 1).find("config.json: novel: 1 is not known here"), std::string::npos);
  const auto endsLines = [&] { return Json::parse(readFile(in("back/model.json")))["tokens"]["source_eos"]; };
  // OpenNMT's models begin with bos, and their lines end as they are; with another start, a tokenizer adds eos.
  outcomeOf("add_source_eos", false);
  EXPECT_EQ(endsLines(), false);
  Json hf = before;
  hf.update({{"add_source_eos", false}, {"decoder_start_token", hf["eos_token"]}});
  writeFile(in("ct2/config.json"), hf.dump());
  EXPECT_NE(outcome().find("as in models of transformers"), std::string::npos);
  EXPECT_EQ(endsLines(), true);
  // Our own folders say what is meant.
  json["tokens"]["start"] = json["tokens"]["eos"];
  json["tokens"]["source_eos"] = false;
  writeFile(in("out/model.json"), json.dump());
  std::filesystem::remove_all(in("ct2"));
  exportForeign(toCtranslate2(in("out"), in("ct2")));
  outcome();
  EXPECT_EQ(endsLines(), false);
  // Older files have no config.json, but flags.
  std::filesystem::remove(in("ct2/config.json"));
  Variables variables(in("ct2/model.bin"));
  variables.set("with_target_bos", "I8", {}, int8_t(0));
  variables.set("unk_token", "I8", {1}, '1');
  variables.set("eos_token", "I8", {1}, '0');
  variables.set("with_source_eos", "I8", {}, int8_t(1));
  variables.write();
  outcome();
  EXPECT_EQ(endsLines(), true);
  EXPECT_EQ(Json::parse(readFile(in("back/model.json")))["tokens"]["start"], 0);
}

// Files of version 1 have neither a specification nor options, and the names of OpenNMT-tf.
TEST_F(FolderTest, Ctranslate2OfTheFirstVersion) {
  std::string old;
  uint32_t count = 0;
  std::vector<Ctranslate2Variable> today;
  const auto add = [&](const std::string &name, const std::string &theirs, const Shape &shape, bool rounded = false) {
    std::string stored, floats;
    int64_t elements = 1;
    old += named(theirs) + static_cast<char>(shape.size());
    for (const int64_t extent : shape) {
      old += u32(static_cast<size_t>(extent));
      elements *= extent;
    }
    for (int64_t i = 0; i < elements; ++i) {
      const float value = static_cast<float>(i + count) / (rounded ? 1000.f : 64.f);
      floats += little(value);
      stored += rounded ? u16(static_cast<size_t>(i + count)) : little(value);
    }
    old += static_cast<char>(rounded ? 2 : 4) + u32(static_cast<size_t>(elements)) + stored;
    ++count;
    today.push_back({name, "F32", shape, [floats] { return floats; }});
  };
  const auto addLinear = [&](const std::string &name, const std::string &theirs, int64_t out, int64_t in) {
    add(name + "/weight", theirs + "/kernel:0", {out, in}, theirs.ends_with("conv1d_1"));
    add(name + "/bias", theirs + "/bias:0", {out});
  };
  const auto addNorm = [&](const std::string &name, const std::string &theirs) {
    for (const std::string part : {"/beta", "/gamma"})
      add(name + "/layer_norm" + part, theirs + "/LayerNorm" + part + ":0", {16});
  };
  add("encoder/embeddings_0/weight", "transformer/encoder/w_embs:0", {6, 16});
  add("decoder/embeddings/weight", "transformer/decoder/w_embs:0", {5, 16});
  addLinear("decoder/projection", "transformer/decoder/dense", 5, 16);
  for (const std::string stack : {"encoder", "decoder"}) {
    const std::string layer = stack + "/layer_0/", own = layer + "self_attention", theirs = "transformer/" + layer,
                      theirOwn = theirs + (stack == "decoder" ? "masked_multi_head" : "multi_head");
    addLinear(own + "/linear_0", theirOwn + "/conv1d", 48, 16);
    addLinear(own + "/linear_1", theirOwn + "/conv1d_1", 16, 16);
    addNorm(own, theirOwn);
    if (stack == "decoder") {
      addLinear(layer + "attention/linear_0", theirs + "multi_head/conv1d", 16, 16);
      addLinear(layer + "attention/linear_1", theirs + "multi_head/conv1d_1", 32, 16);
      addLinear(layer + "attention/linear_2", theirs + "multi_head/conv1d_2", 16, 16);
      addNorm(layer + "attention", theirs + "multi_head");
    }
    addLinear(layer + "ffn/linear_0", theirs + "ffn/conv1d", 24, 16);
    addLinear(layer + "ffn/linear_1", theirs + "ffn/conv1d_1", 16, 24);
    addNorm(layer + "ffn", theirs + "ffn");
    addNorm(stack, "transformer/" + stack);
    const std::pair<const char *, std::string> options[] = {
        {"num_heads", {"\x8\0", 2}}, {"pre_norm", "\1"}, {"activation", {"\0", 1}}};
    for (const auto &[name, bytes] : options)
      today.push_back({stack + "/" + name, bytes.size() == 2 ? "I16" : "I8", {}, [bytes = bytes] { return bytes; }});
  }
  for (const char *which : {"old", "today"}) {
    std::filesystem::create_directories(in(which) + "/ct2");
    writeFile(in(which) + "/ct2/source_vocabulary.txt", "<blank>\n<s>\n</s>\na\nb\n");
    writeFile(in(which) + "/ct2/target_vocabulary.txt", "<blank>\n<s>\n</s>\nc\n");
  }
  writeFile(in("old/ct2/model.bin"), u32(1) + u32(count) + old);
  writeCtranslate2(in("today/ct2/model.bin"), "TransformerSpec", 7, today, {});
  importForeign({in("today/ct2"), in("today/out")});
  const ForeignImport done = importForeign({in("old/ct2"), in("old/out")});
  EXPECT_EQ(done.parameters, 50u);
  for (const char *file : {"/model.json", "/model.safetensors", "/vocab.model", "/target-vocab.model"})
    EXPECT_TRUE(readFile(in("old/out") + file) == readFile(in("today/out") + file)) << file;
}

// The bytes of a SentencePiece model of an unknown token and these pieces.
std::string sentencePieces(const std::vector<std::string> &pieces) {
  const auto sized = [](const std::string &text) { return static_cast<char>(text.size()) + text; };
  std::string model = "\n" + sized("\n" + sized("<unk>") + "\x15" + little(0.f) + "\x18\2");
  for (const std::string &piece : pieces)
    model += "\n" + sized("\n" + sized(piece) + "\x15" + little(-1.f));
  return model;
}

// CTranslate2 returns pieces, which SentencePiece decodes; but a folder of transformers' files is decoded by those.
TEST_F(Foreign, Ctranslate2IsDecodedAsItsFolderSays) {
  import();
  exportForeign(toCtranslate2(in("out"), in("ct2")));
  writeFile(in("ct2/shared_vocabulary.json"), Json({"0", "1", "\u2581a", "\u2581", "b", "c", "<pad>"}).dump());
  writeFile(in("ct2/sentencepiece.model"), sentencePieces({"\u2581a", "\u2581", "b", "c"}));
  const auto vocabulary = [&](const std::string &from, const std::string &to) {
    importForeign({in(from), in(to)});
    return readFile(in(to + "/vocab.model"));
  };
  const auto decoded = [](const std::string &contents) {
    return makeTokenizer(contents, "vocabulary")->decode(std::vector<int32_t>{2, 4, 3});
  };
  const std::string pieces = vocabulary("ct2", "pieces");
  EXPECT_EQ(decoded(pieces), "ab ");
  writeFile(in("ct2/tokenizer_config.json"), "{}");
  const std::string stripped = vocabulary("ct2", "stripped");
  EXPECT_EQ(decoded(stripped), "ab");
  // Our own folders have no such file, and say what is meant.
  for (const auto &[from, contents] : {std::pair<std::string, std::string>("pieces", pieces), {"stripped", stripped}}) {
    exportForeign(toCtranslate2(in(from), in(from + ".ct2")));
    EXPECT_EQ(Json::parse(readFile(in(from + ".ct2/config.json"))).value("strip", false), from == "stripped");
    EXPECT_TRUE(vocabulary(from + ".ct2", from + ".again") == contents) << from;
  }
}

// A row of zeros that is the last one and only begins translations is not a token there.
TEST_F(Foreign, Ctranslate2BeginsFromZeroAsMarianDoes) {
  auto &table = tensors.at("model.shared.weight").bytes;
  std::fill(table.end() - 16, table.end(), 0);
  import();
  const ForeignExport done = exportForeign(toCtranslate2(in("out"), in("ct2")));
  const Variables variables(in("ct2/model.bin"));
  EXPECT_EQ(variables["decoder/start_from_zero_embedding"].bytes, "\1");
  EXPECT_EQ(variables["decoder/embeddings/weight"].shape, (Shape{6, 4}));
  EXPECT_EQ(variables["decoder/projection/bias"].shape, (Shape{6}));
  EXPECT_EQ(Json::parse(readFile(in("ct2/config.json")))["decoder_start_token"], "0");
  EXPECT_EQ(done.notes.back().find("suppress_sequences"), std::string::npos) << done.notes.back();
  // Nor do sequences exist there that contain it.
  Json json = description();
  json["generation"]["bad_sequences"] = {{6, 2}, {2, 3}};
  writeFile(in("out/model.json"), json.dump());
  const std::string note = exportForeign(toCtranslate2(in("out"), in("sequences"))).notes.back();
  EXPECT_NE(note.find(R"(suppress_sequences=[["2","3"]])"), std::string::npos) << note;
}

TEST_F(Foreign, Ctranslate2RoundsWeights) {
  import();
  exportForeign(toCtranslate2(in("out"), in("bf16"), "bfloat16"));
  // The table begins with 397/64, 398/64 and 399/64. BF16 has 8 bits: two of these lie halfway between 396, 398 and
  // 400.
  const Variables rounded(in("bf16/model.bin"));
  const TensorView &table = rounded["decoder/embeddings/weight"];
  EXPECT_EQ(table.type, "BF16");
  EXPECT_EQ(table.bytes.substr(0, 6), "\xC6\x40\xC7\x40\xC8\x40");
  exportForeign(toCtranslate2(in("out"), in("int8"), "int8"));
  const Variables variables(in("int8/model.bin"));
  EXPECT_EQ(variables["decoder/embeddings/weight"].type, "I8");
  EXPECT_EQ(variables["decoder/embeddings/weight"].bytes[3], 127); // the largest of its row
  EXPECT_EQ(variables["encoder/embeddings_0/weight_scale"].bytes.data(),
            variables["decoder/embeddings/weight_scale"].bytes.data());
  EXPECT_EQ(variables["decoder/layer_0/ffn/layer_norm/gamma"].type, "F32");
  EXPECT_EQ(variables["encoder/position_encodings/encodings"].type, "F32");
  add("model.encoder.layers.0.fc1.bias", {6});
  for (const auto &[type, large, text] :
       {std::tuple("float16", 70000.f, "70000"), std::tuple("bfloat16", 3.4e38f, "3.4e+38")}) {
    std::memcpy(tensors.at("model.encoder.layers.0.fc1.bias").bytes.data(), &large, sizeof large);
    std::filesystem::remove_all(in("out"));
    import();
    EXPECT_EQ(errorOf([&] { exportForeign(toCtranslate2(in("out"), in("large"), type)); }),
              in("out/model.safetensors: 'encoder/layer_0/ffn/linear_0/bias' holds ") + text +
                  ", which is too large for --quantization " + type + "; choose float32");
    EXPECT_FALSE(std::filesystem::exists(in("large")));
  }
}

TEST_F(Foreign, Ctranslate2SaysWhatItCannotCompute) {
  import();
  forgetModel();
  const std::string text = readFile(in("out/model.json"));
  // The message for a model.json with this change, without the beginning that all have.
  const auto with = [&](const std::string &from, const std::string &to) {
    std::string edited = text;
    const size_t at = edited.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    writeFile(in("out/model.json"), edited.replace(at, from.size(), to));
    const std::string message = errorOf([&] { exportForeign(toCtranslate2(in("out"), in("back"))); }),
                      begin = in("out/model.json: CTranslate2 cannot compute this model: ");
    EXPECT_FALSE(std::filesystem::exists(in("back")));
    EXPECT_EQ(message.substr(0, begin.size()), begin);
    return message.substr(std::min(begin.size(), message.size()));
  };
  const std::string self = R"("name": "self_attn", "heads": "$heads")", norm = R"("name": "self_attn_norm")";
  EXPECT_EQ(with(self, self + R"(, "window": 3)"), "encoder.layer[0].body[0].window: 3, where CTranslate2 has 0");
  EXPECT_EQ(with(self, self + R"(, "distance_bias": "slopes", "max_length": 9)"),
            "encoder.layer[0].body[0].distance_bias: \"slopes\", where CTranslate2 has \"none\"");
  EXPECT_EQ(with(self, self + R"(, "rotary": "halves", "max_length": 9)"),
            "encoder.input[1]: sinusoidal positions, where CTranslate2 has nothing, since the attentions of the stack "
            "know positions by themselves");
  EXPECT_EQ(with(self, self + R"(, "mask": ["causal"])"),
            "encoder.layer[0].body[0].mask: [\"padding\",\"causal\"], where CTranslate2 has [\"padding\"]");
  EXPECT_EQ(with(R"("mask": ["causal"])", R"("mask": ["causal", "padding"])"),
            "decoder.layer[0].body[0].mask: [\"padding\",\"causal\"], where CTranslate2 has [\"causal\"]");
  EXPECT_EQ(with(norm, norm + R"(, "variance": "unbiased")"),
            "encoder.layer[1].variance: \"unbiased\", where CTranslate2 has \"biased\"");
  EXPECT_EQ(with(norm, norm + R"(, "eps": 0.5)"), "encoder.layer[3].eps: 1e-05, where CTranslate2 has 0.5");
  EXPECT_EQ(with(R"({ "op": "silu" })", R"({ "op": "squared_relu" })"),
            "encoder.layer[2].body[1]: squared_relu, which CTranslate2 does not compute; it has relu, gelu_tanh, silu, "
            "gelu, tanh");
  EXPECT_EQ(with(R"({ "op": "silu" },)", ""), "encoder.layer: has no activation");
  EXPECT_EQ(with(R"({ "op": "silu" },)", R"({ "op": "silu" }, { "op": "silu" },)"),
            "encoder.layer[2].body[2]: silu, where CTranslate2 has linear");
  EXPECT_EQ(
      with(R"({ "op": "positions", "kind": "sinusoidal", "max_length": "$max_length", "layout": "halves" },)", ""),
      "encoder.input: has no positions, where CTranslate2 always adds some");
  EXPECT_EQ(with(R"("heads": "$heads", "memory": "encoder")",
                 R"("heads": "$heads", "memory": "encoder", "memory_body": [{ "op": "tanh" }])"),
            "decoder.layer[2].body[0].memory_body[0]: tanh, where CTranslate2 has nothing");
  EXPECT_EQ(with(R"("head": [)", R"("head": [{ "op": "tanh" }, )"), "head[0]: tanh, where CTranslate2 has linear");
}

TEST_F(ForeignT5, ToCtranslate2) {
  import();
  exportForeign(toCtranslate2(in("out"), in("ct2")));
  const std::string file = in("ct2/model.bin"), first = "encoder/layer_0/self_attention/",
                    second = "encoder/layer_1/self_attention/";
  {
    const Variables variables(file);
    EXPECT_EQ(variables[second + "relative_attention_bias"].bytes.data(),
              variables[first + "relative_attention_bias"].bytes.data());
    const auto number = [&](const std::string &name, auto value) {
      std::memcpy(&value, variables[name].bytes.data(), sizeof value);
      return value;
    };
    EXPECT_EQ(number(first + "relative_attention_max_distance", int32_t()), 9);
    EXPECT_EQ(number(first + "head_dim", int32_t()), 3);
    EXPECT_EQ(number(first + "queries_scale", 0.f), 1);
    EXPECT_EQ(number("decoder/scale_outputs", 0.f), 0.5f);
    EXPECT_FALSE(variables.has("encoder/position_encodings/encodings"));
    EXPECT_FALSE(variables.has(first + "layer_norm/beta"));
  }
  EXPECT_EQ(Json::parse(readFile(in("ct2/config.json")))["layer_norm_epsilon"], 1e-5);
  importForeign({in("ct2"), in("again")});
  Json before = description(), after = Json::parse(readFile(in("again/model.json")));
  EXPECT_EQ(after["share"], before["share"]);
  EXPECT_EQ(after["encoder"]["layer"][0]["body"][1].dump(),
            R"({"bias":false,"buckets":6,"distance_bias":"buckets","heads":"$heads","key_dim":3,"max_distance":9,)"
            R"("max_length":"$max_length","name":"self_attn","op":"attention","scale":1.0,"value_dim":3})");
  EXPECT_EQ(readSafetensors(in("again/model.safetensors")).size(), readSafetensors(in("out/model.safetensors")).size());

  // Numbers may contradict each other, or have no meaning.
  const std::string whole = readFile(file);
  const auto error = [&](const std::string &name, const std::string &type, const Shape &shape, auto value) {
    writeFile(file, whole);
    Variables variables(file);
    variables.set(name, type, shape, value);
    variables.write();
    const std::string message = errorOf([&] { importForeign({in("ct2"), in("bad")}); });
    return message.substr(std::min(message.size(), file.size() + 2));
  };
  EXPECT_EQ(error("decoder/scale_outputs", "F32", {1}, 0.5f),
            "'decoder/scale_outputs' has shape [1]; expected one number");
  EXPECT_EQ(error("decoder/scale_embeddings", "I8", {1}, int8_t(1)),
            "'decoder/scale_embeddings' has shape [1]; expected one number");
  EXPECT_EQ(error("encoder/num_heads", "I16", {1}, int16_t(2)),
            "'encoder/num_heads' has shape [1]; expected one number");
  EXPECT_EQ(error("decoder/scale_outputs", "F32", {}, std::numeric_limits<float>::infinity()),
            "'decoder/scale_outputs' is not a finite number");
  EXPECT_EQ(error(first + "relative_attention_max_distance", "I32", {}, 8),
            "'" + second + "relative_attention_max_distance' differs from '" + first +
                "relative_attention_max_distance'; expected the same in all layers");
  EXPECT_EQ(error("decoder/layer_0/self_attention/relative_attention_max_distance", "I32", {}, 1),
            "'decoder/layer_0/self_attention/relative_attention_max_distance' is 1.000000; expected a whole number "
            "from 2 to 1048576");
  EXPECT_EQ(error("decoder/layer_0/attention/queries_scale", "F32", {}, 0.f),
            "'decoder/layer_0/attention/queries_scale' is 0.000000; expected a number above 0");
  for (const int32_t heads : {-1, 0, 3})
    EXPECT_EQ(error("decoder/layer_0/self_attention/num_heads_kv", "I32", {}, heads),
              "'decoder/layer_0/self_attention/num_heads_kv' is " + std::to_string(heads) +
                  "; expected a divisor of the 2 heads of 'decoder/num_heads'");
  for (const int32_t features : {-2, 0})
    EXPECT_EQ(error("decoder/layer_0/attention/head_dim", "I32", {}, features),
              "'decoder/layer_0/attention/head_dim' is " + std::to_string(features) +
                  "; expected 1 or more features of a head");
  EXPECT_EQ(error(second + "relative_attention_bias", "F32", {6, 2}, std::array<float, 12>{}),
            "'" + second + "relative_attention_bias' differs from '" + first +
                "relative_attention_bias'; expected the same in all layers, since CTranslate2 adds the biases of the "
                "first layer in all");
  EXPECT_EQ(error("decoder/layer_0/self_attention/relative_attention_bias", "F32", {0, 2}, Nothing()),
            "'decoder/layer_0/self_attention/relative_attention_bias' has shape [0, 2]; expected one bucket or more, "
            "by 2 heads");
  EXPECT_EQ(error("encoder/activation", "I8", {}, int8_t(6)),
            "'encoder/activation' is 6; expected 0 (ReLU), 1 (GELU by tanh), 2 (Swish), 3 (GELU) or 5 (tanh)");
  EXPECT_EQ(error("encoder/num_heads", "I16", {}, int16_t(4)),
            "'" + first +
                "linear_1/weight' is missing, or its features are no multiple of the 4 heads of "
                "'encoder/num_heads'");
}

// CTranslate2 adds the first layer's biases in all layers.
TEST_F(ForeignT5, Ctranslate2HasNoTablesOfEachLayer) {
  config["model_type"] = "umt5";
  config["feed_forward_proj"] = "relu";
  addBias("encoder", 1);
  import();
  EXPECT_EQ(errorOf([&] { exportForeign(toCtranslate2(in("out"), in("ct2"))); }),
            in("out/model.json: CTranslate2 cannot compute this model: share: "
               "'encoder.layers.1.self_attn.distance_bias.weight' is a table of its own, where CTranslate2 has "
               "'encoder.layers.0.self_attn.distance_bias.weight' in all layers"));
}

TEST(JsonText, BreaksLinesThatAreTooLong) {
  nlohmann::ordered_json json = {{"b", {1, 2}}, {"a", nlohmann::ordered_json::array()}, {"c", std::string(60, 'x')}};
  EXPECT_EQ(jsonText(json), "{\n  \"b\": [1, 2],\n  \"a\": [],\n  \"c\": \"" + std::string(60, 'x') + "\"\n}\n");
  nlohmann::ordered_json wide = {{"list", {std::string(60, 'x'), std::string(60, 'y')}}};
  EXPECT_EQ(jsonText(wide),
            "{\n  \"list\": [\n    \"" + std::string(60, 'x') + "\",\n    \"" + std::string(60, 'y') + "\"\n  ]\n}\n");
}

} // namespace
