// Runs a rectangular batch through a model: packs it into rows without padding, and unpacks results into rectangles.
#pragma once

#include "engine/Batch.h"
#include "engine/Engine.h"
#include "tensors/Safetensors.h"
#include <string>
#include <vector>

namespace xfc {

// The input of one stack: ids, or rows of numbers for a stack without an embedding.
struct Rectangle {
  int64_t batch = 0, columns = 0;
  std::vector<int32_t> ids;    // [batch, columns]
  std::vector<double> numbers; // [batch, columns, features], if the stack reads numbers
  bool isPad(int64_t i, int32_t pad) const { return !ids.empty() && ids[i] == pad; }
};

// The least id that a rectangle may hold. Lines are padded with the model's pad; a model without such a token has none
// to give, and -1 stands for it.
inline int32_t leastId(const Module &module) { return module.pad < 0 ? -1 : 0; }
// For messages: "but the vocabulary has the ids 0 to 59".
std::string rangeOfIds(int32_t least, int64_t vocabulary);

// Runs forward or forward_attention, and loss_and_gradients, without dropout. Every column becomes a row at its own
// position, except a sentence's trailing columns whose id and label are both pad, unless an attention sees pads that
// are tokens.
class Forward {
public:
  // Ids are from leastId() on, and below the vocabularies' sizes. A model without a decoder takes no `target`; `labels`
  // has the shape of `target`, or is empty. Throws Error if rectangles are empty, differ in size, or are longer than
  // the model allows, or if anything follows a -1.
  Forward(Engine &engine, Rectangle source, Rectangle target = {}, Rectangle labels = {});

  // Puts logits and encoder_output into `results`, and attention.PATH if `withAttention`.
  void run(bool withAttention);
  // Adds loss and grad.PARAMETER to `results`, for the mean cross-entropy over the labels that are not pad. Throws
  // Error if there are none, or the model has no gradients.
  void runGradients(double smoothing);

  Tensors results;

private:
  std::vector<uint8_t> scalar(double value) const;
  void store(std::vector<uint8_t> &bytes, int64_t i, double value) const;
  static void check(const char *name, const Rectangle &rectangle, int64_t maxLength);
  void makeRows(const char *name, const Rectangle &from, bool keepAll, const Rectangle *labels,
                std::vector<std::vector<int32_t>> &ids, std::vector<Sequence> &sequences, std::vector<float> &narrow,
                std::vector<double> &wide);
  std::vector<Binding> inputs();
  StoredTensor rowsResult(const View &view) const;
  StoredTensor pairsResult(const View &view) const;

  Engine &engine;
  const Module &module;
  Rectangle source, target, labels;
  std::vector<std::vector<int32_t>> sourceIds, targetIds;
  std::vector<Sequence> sources, targets;
  std::vector<float> sourceNumbers32, targetNumbers32;
  std::vector<double> sourceNumbers64, targetNumbers64;
  Batch batch;
};

} // namespace xfc
