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

// Runs forward or forward_attention, and loss_and_gradients, without dropout. Every column becomes a row at its own
// position, except a sentence's trailing columns whose id and label are both pad, unless an attention sees pads.
class Forward {
public:
  // Ids are those of the vocabularies. A model without a decoder takes no `target`; `labels` has the shape of `target`,
  // or is empty. Throws Error if rectangles are empty, differ in size, or are longer than the model allows.
  Forward(Engine &engine, Rectangle source, Rectangle target = {}, Rectangle labels = {});

  // Puts logits and encoder_output into `results`, and attention.PATH if `withAttention`.
  void run(bool withAttention);
  // Adds loss and grad.PARAMETER to `results`, for the mean cross-entropy over the labels that are not pad. Throws
  // Error if there are none, or the model has no gradients.
  void runGradients(double smoothing);

  Tensors results;

private:
  const char *typeName() const { return module.type == DType::F64 ? "F64" : "F32"; }
  std::vector<uint8_t> scalar(double value) const;
  void store(std::vector<uint8_t> &bytes, int64_t i, double value) const;
  static void check(const char *name, const Rectangle &rectangle, int64_t maxLength);
  void makeRows(const Rectangle &from, bool keepAll, const Rectangle *labels, std::vector<std::vector<int32_t>> &ids,
                std::vector<Sequence> &sequences, std::vector<float> &narrow, std::vector<double> &wide);
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
