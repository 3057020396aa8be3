// The encoder and the decoder that CTranslate2's TransformerSpec describes.
#include "Ctranslate2Form.h"

namespace xfc::ctranslate2 {
namespace {

using Json = nlohmann::ordered_json;

class Steps {
public:
  explicit Steps(const Form &form) : form(form) {}

  Json model() {
    const Stack &encoder = form.stacks[0], &decoder = form.stacks[1];
    Json &params = json["params"];
    params = {{"source_vocab", encoder.vocab}, {"target_vocab", decoder.vocab}, {"d_model", form.dim}};
    for (const bool which : {false, true})
      params[perStack("heads", which)] = form.stacks[which].heads;
    for (const bool which : {false, true})
      params[std::string(stackNames[which]) + "_layers"] = form.stacks[which].layers;
    for (const bool which : {false, true})
      params[perStack("d_ff", which)] = form.stacks[which].ffn;
    params["dropout"] = 0; // these models say nothing about training
    params["max_length"] = form.maxLength;
    for (const bool which : {false, true})
      json[stackNames[which]] = stack(which);
    json["head"] = Json::array();
    if (form.outputScale != 1)
      json["head"].push_back({{"op", "scale"}, {"by", factor(form.outputScale, -0.5, "rsqrt_dim")}});
    json["head"].push_back(
        {{"op", "linear"}, {"name", "output"}, {"features", "$target_vocab"}, {"bias", form.outputBias}});
    return std::move(json);
  }

private:
  // "heads", or "encoder_heads" if the stacks differ.
  std::string perStack(const std::string &name, bool decoder) const {
    const bool same =
        name == "heads" ? form.stacks[0].heads == form.stacks[1].heads : form.stacks[0].ffn == form.stacks[1].ffn;
    return same ? name : std::string(stackNames[decoder]) + "_" + name;
  }

  // A factor, or a word if it is this power of the number of features.
  Json factor(double value, double power, const char *word) const {
    return sameNumber(value, std::pow(static_cast<double>(form.dim), power)) ? Json(word) : Json(value);
  }

  Json norm(bool rms, const std::string &name) const {
    Json step = {{"op", rms ? "rms_norm" : "layer_norm"}, {"name", name}};
    if (form.eps > 0)
      step["eps"] = form.eps;
    return step;
  }

  Json attention(bool decoder, const Attention &attention) const {
    Json step = {{"op", "attention"},
                 {"name", attention.cross ? "cross_attn" : "self_attn"},
                 {"heads", "$" + perStack("heads", decoder)}};
    const int64_t heads = form.stacks[decoder].heads;
    if (attention.kvHeads != heads)
      step["kv_heads"] = attention.kvHeads;
    if (attention.headDim * heads != form.dim)
      step["key_dim"] = step["value_dim"] = attention.headDim;
    const bool biases[] = {attention.biasQ, attention.biasK, attention.biasV, attention.biasO};
    if (!biases[0] && !biases[1] && !biases[2] && !biases[3])
      step["bias"] = false;
    else if (!biases[0] || !biases[1] || !biases[2] || !biases[3])
      step["bias"] = {{"q", biases[0]}, {"k", biases[1]}, {"v", biases[2]}, {"o", biases[3]}};
    if (attention.cross)
      step["memory"] = "encoder";
    else if (decoder)
      step["mask"] = {"causal"}; // without "padding": the first token may be pad, and is a key like any other
    if (!sameNumber(attention.queriesScale, 1 / std::sqrt(static_cast<double>(attention.headDim))))
      step["scale"] = 1 / attention.queriesScale;
    if (attention.buckets > 0)
      step.update(
          {{"distance_bias", "buckets"}, {"buckets", attention.buckets}, {"max_distance", attention.maxDistance}});
    if (attention.rotaryDim >= 0) {
      step["rotary"] = attention.rotaryInterleave ? "interleaved" : "halves";
      if (attention.rotaryBase != 10000)
        step["rotary_base"] = attention.rotaryBase;
      if (attention.rotaryDim > 0 && attention.rotaryDim != attention.headDim)
        step["rotary_dim"] = attention.rotaryDim;
    }
    if (attention.hasPositions())
      step["max_length"] = attention.maxLength;
    return step;
  }

  Json feedForward(bool decoder) const {
    const Stack &stack = form.stacks[decoder];
    const std::string function = activations()[static_cast<size_t>(stack.activation)],
                      features = "$" + perStack("d_ff", decoder);
    const auto linear = [](const char *name, const std::string &features, bool bias) {
      Json step = {{"op", "linear"}, {"name", name}, {"features", features}};
      if (!bias)
        step["bias"] = false;
      return step;
    };
    Json body = Json::array();
    if (stack.gated) {
      body.push_back({{"op", "gated"}, {"name", "ffn.in"}, {"features", features}, {"activation", function}});
      if (stack.ffnInBias)
        body.back()["bias"] = true;
    } else {
      body.push_back(linear("ffn.in", features, stack.ffnInBias));
      body.push_back({{"op", function}});
    }
    body.push_back(linear("ffn.out", "$d_model", stack.ffnOutBias));
    return body;
  }

  Json stack(bool decoder) const {
    const Stack &stack = form.stacks[decoder];
    const Json drop = {{"op", "dropout"}, {"rate", "$dropout"}};
    Json input = Json::array({{{"op", "embedding"},
                               {"name", "embed"},
                               {"vocab", decoder ? "$target_vocab" : "$source_vocab"},
                               {"dim", "$d_model"}}});
    if (stack.embeddingScale != 1)
      input.back()["scale"] = factor(stack.embeddingScale, 0.5, "sqrt_dim");
    if (!stack.positions.is_null())
      input.push_back(stack.positions);
    if (stack.embeddingNorm)
      input.push_back(norm(stack.rms, "embed_norm"));
    input.push_back(drop);

    Json layer = Json::array();
    const auto branch = [&](const std::string &name, Json body) {
      const Json itsNorm = norm(stack.rms, name);
      if (stack.preNorm)
        body.insert(body.begin(), itsNorm);
      body.push_back(drop);
      layer.push_back({{"op", "residual"}, {"body", std::move(body)}});
      if (!stack.preNorm)
        layer.push_back(itsNorm);
    };
    branch("self_attn_norm", Json::array({attention(decoder, stack.self)}));
    if (decoder)
      branch("cross_attn_norm", Json::array({attention(decoder, stack.cross)}));
    branch("ffn_norm", feedForward(decoder));
    return {{"input", std::move(input)},
            {"layers", std::string("$") + stackNames[decoder] + "_layers"},
            {"layer", std::move(layer)},
            {"output", stack.finalNorm ? Json::array({norm(stack.rms, "norm")}) : Json::array()}};
  }

  const Form &form;
  Json json;
};

class Variables {
public:
  explicit Variables(const Form &form) : form(form) {}

  std::vector<Variable> all() {
    for (const bool decoder : {false, true}) {
      const Stack &stack = form.stacks[decoder];
      const std::string name = stackNames[decoder];
      if (stack.embeddingNorm)
        addNorm(stack, name + "/layernorm_embedding", name + ".embed_norm");
      for (int64_t i = 0; i < stack.layers; ++i)
        addLayer(decoder, i);
      if (stack.finalNorm)
        addNorm(stack, name + "/layer_norm", name + ".norm");
    }
    return std::move(variables);
  }

private:
  struct Product {
    std::string ours;
    int64_t rows;
    bool bias;
  };
  // Adds a linear layer, whose rows are those of several products of ours.
  void addLinear(const std::string &scope, int64_t columns, const std::vector<Product> &products) {
    Variable weight{scope + "/weight", {}, columns}, bias{scope + "/bias", {}};
    bool hasBias = false;
    for (const Product &product : products) {
      weight.parts.push_back({product.ours + ".weight", product.rows});
      bias.parts.push_back({product.bias ? product.ours + ".bias" : "", product.rows});
      hasBias |= product.bias;
    }
    variables.push_back(std::move(weight));
    if (hasBias)
      variables.push_back(std::move(bias));
  }

  void addNorm(const Stack &stack, const std::string &scope, const std::string &ours) {
    variables.push_back({scope + "/gamma", {{ours + ".weight", form.dim}}});
    if (!stack.rms)
      variables.push_back({scope + "/beta", {{ours + ".bias", form.dim}}});
  }

  void addAttention(const std::string &scope, const std::string &ours, const Stack &stack, const Attention &attention) {
    const int64_t keys = attention.kvHeads * attention.headDim, queries = stack.heads * attention.headDim;
    const Product q{ours + ".q", queries, attention.biasQ}, k{ours + ".k", keys, attention.biasK},
        v{ours + ".v", keys, attention.biasV};
    if (attention.cross) {
      addLinear(scope + "/linear_0", form.dim, {q});
      addLinear(scope + "/linear_1", form.dim, {k, v});
    } else {
      addLinear(scope + "/linear_0", form.dim, {q, k, v});
    }
    addLinear(scope + (attention.cross ? "/linear_2" : "/linear_1"), queries,
              {{ours + ".o", form.dim, attention.biasO}});
    if (attention.buckets > 0)
      variables.push_back(
          {scope + "/relative_attention_bias", {{ours + ".distance_bias.weight", attention.buckets}}, stack.heads});
    addNorm(stack, scope + "/layer_norm", ours + "_norm");
  }

  void addLayer(bool decoder, int64_t i) {
    const Stack &stack = form.stacks[decoder];
    const std::string ours = std::string(stackNames[decoder]) + ".layers." + std::to_string(i) + ".",
                      scope = std::string(stackNames[decoder]) + "/layer_" + std::to_string(i) + "/ffn";
    addAttention(attentionScope(decoder, i, false), ours + "self_attn", stack, stack.self);
    if (decoder)
      addAttention(attentionScope(decoder, i, true), ours + "cross_attn", stack, stack.cross);
    addLinear(scope + "/linear_0", form.dim,
              {{ours + (stack.gated ? "ffn.in.gate" : "ffn.in"), stack.ffn, stack.ffnInBias}});
    if (stack.gated)
      addLinear(scope + "/linear_0_noact", form.dim, {{ours + "ffn.in.value", stack.ffn, stack.ffnInBias}});
    addLinear(scope + "/linear_1", stack.ffn, {{ours + "ffn.out", form.dim, stack.ffnOutBias}});
    addNorm(stack, scope + "/layer_norm", ours + "ffn_norm");
  }

  const Form &form;
  std::vector<Variable> variables;
};

} // namespace

const std::vector<std::string> &activations() {
  static const std::vector<std::string> names = {"relu", "gelu_tanh", "silu", "gelu", "", "tanh", ""};
  return names;
}

std::string attentionScope(bool decoder, int64_t layer, bool cross) {
  return std::string(stackNames[decoder]) + "/layer_" + std::to_string(layer) +
         (cross ? "/attention" : "/self_attention");
}

// The encoder has a list of tables, since its tokens may have features.
std::string embeddingName(bool decoder) {
  return decoder ? "decoder/embeddings/weight" : "encoder/embeddings_0/weight";
}

std::string positionsName(bool decoder) { return std::string(stackNames[decoder]) + "/position_encodings/encodings"; }

std::vector<int64_t> Variable::shape() const {
  int64_t rows = 0;
  for (const Part &part : parts)
    rows += part.rows;
  return columns > 0 ? std::vector<int64_t>{rows, columns} : std::vector<int64_t>{rows};
}

std::vector<Variable> variablesOf(const Form &form) { return Variables(form).all(); }

Json describe(const Form &form) { return Steps(form).model(); }

std::vector<float> sinusoids(const step::SinusoidalPositions &positions, int64_t rows, int64_t dim) {
  std::vector<float> table(static_cast<size_t>(rows * dim));
  for (int64_t pair = 0; 2 * pair < dim; ++pair) {
    const auto column = static_cast<double>(2 * pair), d = static_cast<double>(dim);
    const double wavelengths[] = {
        std::pow(positions.base, positions.exponentMultiplier * column / d),
        std::pow(positions.base, positions.exponentMultiplier * (column + positions.cosineOffset) / d)};
    const int64_t sine = positions.halves ? pair : 2 * pair,
                  cosine = positions.halves ? (dim + 1) / 2 + pair : 2 * pair + 1;
    for (int64_t row = 0; row < rows; ++row) {
      const auto position = static_cast<double>(row + positions.offset);
      table[static_cast<size_t>(row * dim + sine)] = static_cast<float>(std::sin(position / wavelengths[0]));
      if (2 * pair + 1 < dim)
        table[static_cast<size_t>(row * dim + cosine)] = static_cast<float>(std::cos(position / wavelengths[1]));
    }
  }
  return table;
}

Json stepOf(const step::SinusoidalPositions &positions, const Json &maxLength) {
  Json step = {{"op", "positions"}, {"kind", "sinusoidal"}, {"max_length", maxLength}};
  const step::SinusoidalPositions usual;
  if (positions.base != usual.base)
    step["base"] = positions.base;
  if (positions.exponentMultiplier != usual.exponentMultiplier)
    step["exponent_multiplier"] = positions.exponentMultiplier;
  if (positions.cosineOffset != usual.cosineOffset)
    step["cosine_offset"] = positions.cosineOffset;
  if (positions.halves)
    step["layout"] = "halves";
  if (positions.offset > 0)
    step["offset"] = positions.offset;
  return step;
}

} // namespace xfc::ctranslate2
