// A model of hand-written kernels, small enough to be checked by hand and complete enough for every command: a target
// row adds its own embedding to the mean of the source embeddings that it sees; logits are O times that.
#pragma once

#include "plan/Plan.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace xfc {

constexpr int64_t bagVocabulary = 12, bagWidth = 4;
constexpr int bagKeys = XFC_KEYS(XFC_TARGET_SOURCE, 1, 0);

template <typename T> T *operand(const xfc_call *call, int i) { return static_cast<T *>(call->buffers[i]); }

// The mean over the source rows that a target row sees, plus its own embedding.
inline void bagHidden(const xfc_call *call, int64_t row, const float *encoded, int64_t stride, const float *embedding,
                      const int32_t *ids, double *hidden) {
  const xfc_keys &keys = call->shape->keys[bagKeys];
  const int32_t sequence = call->shape->sets[XFC_TARGET].sequence_of[row], limit = keys.limit[row];
  for (int64_t j = 0; j < bagWidth; ++j) {
    hidden[j] = 0;
    for (int32_t k = 0; k < limit; ++k)
      hidden[j] += encoded[keys.keys[keys.begin[sequence] + k] * stride + j] / static_cast<double>(limit);
    hidden[j] += embedding[ids[row] * bagWidth + j];
  }
}

// Whether products round their operands to bf16, as those of an executable compiled with --dtype bf16.
inline bool bagRounds = false;

inline double bagOperand(double value) {
  return bagRounds ? std::bit_cast<float>((std::bit_cast<uint32_t>(static_cast<float>(value)) + 0x8000u) & 0xffff0000u)
                   : value;
}

inline void bagLogits(const double *hidden, const float *weight, double *logits) {
  for (int64_t v = 0; v < bagVocabulary; ++v) {
    logits[v] = 0;
    for (int64_t j = 0; j < bagWidth; ++j)
      logits[v] += bagOperand(hidden[j]) * bagOperand(weight[v * bagWidth + j]);
  }
}

inline double logSumExp(const double *logits) {
  double sum = 0;
  for (int64_t v = 0; v < bagVocabulary; ++v)
    sum += std::exp(logits[v]);
  return std::log(sum);
}

// source ids, source embedding -> encoded rows. One row per chunk.
inline void bagEncode(const xfc_call *call, int64_t row, int64_t, void *) {
  const float *from = operand<float>(call, 1) + operand<int32_t>(call, 0)[row] * bagWidth;
  std::copy(from, from + bagWidth, operand<float>(call, 2) + row * call->strides[2]);
}

// A deliberate error in the logits, like that of a sum that depends on the batch.
inline float bagBatchDefect = 0;

// encoded, target embedding, target ids, output weight -> logits, or log-probabilities if the id of the call is 1.
inline void bagPredict(const xfc_call *call, int64_t row, int64_t, void *) {
  double hidden[bagWidth], logits[bagVocabulary];
  bagHidden(call, row, operand<float>(call, 0), call->strides[0], operand<float>(call, 1), operand<int32_t>(call, 2),
            hidden);
  bagLogits(hidden, operand<float>(call, 3), logits);
  const double less = call->dropout ? logSumExp(logits) : 0;
  for (int64_t v = 0; v < bagVocabulary; ++v)
    operand<float>(call, 4)[row * call->strides[4] + v] =
        static_cast<float>(logits[v] - less + bagBatchDefect * call->rows->rows);
}

// -> the weight of every pair. One sequence per chunk.
inline void bagAttention(const xfc_call *call, int64_t sequence, int64_t, void *) {
  const xfc_keys &keys = *call->keys;
  const int64_t queries = call->rows->offsets[sequence + 1] - call->rows->offsets[sequence],
                count = keys.count[sequence];
  float *block = operand<float>(call, 0) + keys.pair_offsets[sequence];
  std::fill(block, block + queries * count, 1.0f / static_cast<float>(count));
}

// A deliberate error in the gradients.
inline float bagDefect = 1;

// encoded, source ids, target ids, labels, smoothing, embeddings, output weight, [loss_scale] -> loss, nll, [gradients
// of the three parameters]. A single chunk.
template <bool gradients> void bagLoss(const xfc_call *call, int64_t, int64_t, void *) {
  const xfc_rows &rows = call->shape->sets[XFC_TARGET];
  const xfc_keys &keys = call->shape->keys[bagKeys];
  const float *encoded = operand<float>(call, 0), *target = operand<float>(call, 5), *weight = operand<float>(call, 6);
  const int32_t *sourceIds = operand<int32_t>(call, 1), *ids = operand<int32_t>(call, 2),
                *labels = operand<int32_t>(call, 3);
  const double smoothing = *operand<float>(call, 4);
  float *loss = operand<float>(call, gradients ? 8 : 7), *nll = operand<float>(call, gradients ? 9 : 8);
  float *sourceGradient = nullptr, *targetGradient = nullptr, *weightGradient = nullptr;
  if (gradients) {
    sourceGradient = operand<float>(call, 10);
    targetGradient = operand<float>(call, 11);
    weightGradient = operand<float>(call, 12);
    for (float *gradient : {sourceGradient, targetGradient, weightGradient})
      std::fill(gradient, gradient + bagVocabulary * bagWidth, 0.0f);
  }
  for (int64_t row = 0; row < rows.rows; ++row) {
    loss[row] = nll[row] = 0;
    if (labels[row] < 0)
      continue;
    double hidden[bagWidth], logits[bagVocabulary], mean = 0, inner[bagWidth] = {};
    bagHidden(call, row, encoded, call->strides[0], target, ids, hidden);
    bagLogits(hidden, weight, logits);
    const double total = logSumExp(logits);
    for (double logit : logits)
      mean += (total - logit) / bagVocabulary;
    nll[row] = static_cast<float>(total - logits[labels[row]]);
    loss[row] = static_cast<float>((1 - smoothing) * (total - logits[labels[row]]) + smoothing * mean);
    if (!gradients)
      continue;
    for (int64_t v = 0; v < bagVocabulary; ++v) {
      const double slope =
          operand<float>(call, 7)[row] *
          (std::exp(logits[v] - total) - (1 - smoothing) * (v == labels[row]) - smoothing / bagVocabulary);
      for (int64_t j = 0; j < bagWidth; ++j) {
        weightGradient[v * bagWidth + j] += static_cast<float>(bagOperand(slope) * bagOperand(hidden[j]));
        inner[j] += bagOperand(slope) * bagOperand(weight[v * bagWidth + j]);
      }
    }
    const int32_t sequence = rows.sequence_of[row], limit = keys.limit[row];
    for (int64_t j = 0; j < bagWidth; ++j) {
      targetGradient[ids[row] * bagWidth + j] += bagDefect * static_cast<float>(inner[j]);
      for (int32_t k = 0; k < limit; ++k)
        sourceGradient[sourceIds[keys.keys[keys.begin[sequence] + k]] * bagWidth + j] +=
            static_cast<float>(inner[j] / limit);
    }
  }
}

// hyper, max_norm, parameters, gradients -> norm. Plain gradient descent is enough here.
inline void bagUpdate(const xfc_call *call, int64_t, int64_t, void *) {
  float *parameters = operand<float>(call, 2), *gradients = operand<float>(call, 3), squares = 0;
  for (int64_t i = 0; i < 3 * bagVocabulary * bagWidth; ++i) {
    squares += gradients[i] * gradients[i];
    parameters[i] -= operand<float>(call, 0)[0] * gradients[i];
  }
  *operand<float>(call, 4) = std::sqrt(squares);
}

inline constexpr xfc_kernel bagKernels[] = {bagEncode,      bagPredict,    bagAttention,
                                            bagLoss<false>, bagLoss<true>, bagUpdate};

inline Module bagModel() {
  constexpr int64_t elements = bagVocabulary * bagWidth; // 48: three whole cache lines
  Module module;
  module.model = "bag";
  module.hash = "b46";
  module.description = "{}";
  module.sourceVocab = module.targetVocab = bagVocabulary;
  module.maxLength = module.maxTargetLength = 30;
  module.hasDecoder = true;
  module.parameterElements = 3 * elements;
  module.states = {{"moment1"}, {"moment2"}};
  module.parameters = {
      {"encoder.embed.weight",
       {"source.weight"},
       {bagVocabulary, bagWidth},
       0,
       "scaled_normal",
       bagVocabulary,
       bagWidth},
      {"decoder.embed.weight", {}, {bagVocabulary, bagWidth}, elements, "normal", bagVocabulary, bagWidth},
      {"output.weight", {}, {bagVocabulary, bagWidth}, 2 * elements, "xavier_uniform", bagWidth, bagVocabulary}};
  const Partition one{Partition::Unit::One, 1, 1}, rows{Partition::Unit::Rows, 1, 1},
      sequences{Partition::Unit::Sequences, 1, 1};
  module.kernels = {{"encode", rows, 64}, {"predict", rows, 0},         {"attention", sequences, 0},
                    {"loss", one, 0},     {"loss_gradients", one, 128}, {"update", one, 0}};

  using Kind = Place::Kind;
  auto parameter = [&](Kind kind, int index) { return Place{kind, 0, index * elements * 4}; };
  auto arena = [](int64_t index) { return Place{Kind::Arena, index, 0}; };
  auto argument = [](int64_t index) { return Place{Kind::Argument, index, 0}; };
  auto input = [](const char *name, int8_t set, DType type = DType::I32, std::vector<int64_t> shape = {}) {
    return Argument{name, Argument::Role::Input, type, set, std::move(shape)};
  };
  auto scalar = [](const char *name, std::vector<int64_t> shape = {}) {
    return Argument{name, Argument::Role::Scalar, DType::F32, -1, std::move(shape)};
  };
  Size encoded, logits, perRow, pairs, number;
  encoded.rows[XFC_SOURCE] = bagWidth * 4;
  logits.rows[XFC_TARGET] = bagVocabulary * 4;
  perRow.rows[XFC_TARGET] = 4;
  pairs.pairs[bagKeys] = 4;
  number.constant = 4;
  auto step = [](int32_t kernel, int8_t set, std::vector<Place> buffers, std::vector<int64_t> strides,
                 const char *location) {
    Step result;
    result.kernel = kernel;
    result.set = result.keySet = set;
    strides.resize(buffers.size());
    result.buffers = std::move(buffers);
    result.strides = std::move(strides);
    result.location = location;
    return result;
  };
  const Step encode =
      step(0, XFC_SOURCE, {argument(0), parameter(Kind::Parameters, 0), arena(0)}, {0, 0, bagWidth}, "encoder.embed");

  for (const char *name : {"forward", "forward_attention"}) {
    Program forward;
    forward.name = name;
    forward.arguments = {input("source", XFC_SOURCE), input("target", XFC_TARGET)};
    forward.buffers = {{encoded, 0, 2}, {logits, 1, 2}};
    forward.steps = {
        encode, step(1, XFC_TARGET,
                     {arena(0), parameter(Kind::Parameters, 1), argument(1), parameter(Kind::Parameters, 2), arena(1)},
                     {bagWidth, 0, 0, 0, bagVocabulary}, "output")};
    forward.steps[1].flops.rows[XFC_TARGET] = 2 * elements;
    forward.steps[1].keys = bagKeys;
    forward.steps[1].keySet = XFC_SOURCE;
    forward.outputs = {{"logits", arena(1), DType::F32, XFC_TARGET, -1, {bagVocabulary}, bagVocabulary},
                       {"encoder_output", arena(0), DType::F32, XFC_SOURCE, -1, {bagWidth}, bagWidth}};
    if (forward.name == "forward_attention") {
      forward.buffers = {{encoded, 0, 3}, {logits, 1, 3}, {pairs, 2, 3}};
      forward.steps.push_back(step(2, XFC_TARGET, {arena(2)}, {}, "decoder.layers.0.cross_attn"));
      forward.steps.back().keySet = XFC_SOURCE;
      forward.steps.back().keys = bagKeys;
      forward.outputs.push_back({"attention.decoder.layers.0.cross_attn", arena(2), DType::F32, -1, bagKeys, {1}, 0});
    }
    module.programs.push_back(forward);
  }
  for (bool gradients : {false, true}) {
    Program loss;
    loss.name = gradients ? "loss_and_gradients" : "score";
    loss.arguments = {input("source", XFC_SOURCE), input("target", XFC_TARGET), input("labels", XFC_TARGET),
                      scalar("smoothing")};
    std::vector<Place> buffers = {arena(0),
                                  argument(0),
                                  argument(1),
                                  argument(2),
                                  argument(3),
                                  parameter(Kind::Parameters, 1),
                                  parameter(Kind::Parameters, 2)};
    if (gradients) {
      loss.arguments.push_back(input("loss_scale", XFC_TARGET, DType::F32));
      buffers.push_back(argument(4));
    }
    buffers.insert(buffers.end(), {arena(1), arena(2)});
    if (gradients)
      buffers.insert(buffers.end(),
                     {parameter(Kind::Gradients, 0), parameter(Kind::Gradients, 1), parameter(Kind::Gradients, 2)});
    loss.buffers = {{encoded, 0, 1}, {perRow, 1, 2}, {perRow, 1, 2}};
    loss.steps = {encode, step(3 + gradients, XFC_TARGET, buffers, {bagWidth}, "loss")};
    loss.outputs = {{"loss", arena(1), DType::F32, XFC_TARGET, -1, {}, 1},
                    {"nll", arena(2), DType::F32, XFC_TARGET, -1, {}, 1}};
    module.programs.push_back(loss);
  }
  Program update;
  update.name = "update";
  update.arguments = {scalar("hyper", {9}), scalar("max_norm")};
  update.buffers = {{number, 0, 1}};
  update.steps = {
      step(5, XFC_SOURCE,
           {argument(0), argument(1), parameter(Kind::Parameters, 0), parameter(Kind::Gradients, 0), arena(0)}, {},
           "update")};
  update.outputs = {{"norm", arena(0), DType::F32, -1, -1, {}, 0}};
  module.programs.push_back(update);

  Program encoder;
  encoder.name = "encode";
  encoder.arguments = {input("source", XFC_SOURCE)};
  encoder.buffers = {{encoded, 0, 1}};
  encoder.steps = {encode};
  encoder.outputs = {{"x.k", arena(0), DType::F32, XFC_SOURCE, -1, {bagWidth}, bagWidth}};
  module.programs.push_back(encoder);
  Program decode;
  decode.name = "decode_step";
  decode.arguments = {input("target", XFC_TARGET), input("x.k", XFC_SOURCE, DType::F32, {bagWidth})};
  decode.buffers = {{logits, 0, 1}};
  decode.steps = {
      step(1, XFC_TARGET,
           {argument(1), parameter(Kind::Parameters, 1), argument(0), parameter(Kind::Parameters, 2), arena(0)},
           {bagWidth, 0, 0, 0, bagVocabulary}, "output")};
  decode.steps[0].dropout = 1;
  decode.outputs = {{"log_probs", arena(0), DType::F32, XFC_TARGET, -1, {bagVocabulary}, bagVocabulary}};
  module.programs.push_back(decode);
  return module;
}

} // namespace xfc
