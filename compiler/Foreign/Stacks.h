// The common part of the families that follow "Attention Is All You Need": the sizes in config.json, the steps of both
// stacks, and the names of their tensors. The families differ in norms, positions and defaults.
#pragma once

#include "Families.h"
#include "Import/StepKinds.h"

namespace xfc {

// Larger values are mistakes in the file; model.json has its own bounds.
constexpr int64_t mostLayers = 1024, mostFeatures = 1 << 20, mostVocab = 1 << 28;

// The structure of a family, and the defaults that its reader assumes for keys missing from config.json.
struct StacksForm {
  bool preNorm = false;         // norms begin the residual branches and end each stack; if not, they follow the sums
  bool embeddingNorm = false;   // a norm after the positions
  bool logitsBias = false;      // final_logits_bias may exist
  bool recurrent = false;       // the decoder has a recurrence with relu (SSRU) in place of self-attention
  bool recurrentOutput = false; // a product follows it
  int64_t vocab = 0, maxLength = 1024;
  std::string activation = "gelu";
  bool scaleEmbedding = false;
  double attentionDropout = 0;
  int64_t pad = 1, unk = 3, bos = 0, eos = 2, start = 2; // a start of -1 means bos
};

// The tensors that both stacks' embeddings and the output are read from.
struct EmbeddingTensors {
  std::string encoder, decoder, output;
};

class Stacks {
public:
  // Reads and checks the sizes. Throws Error naming the key.
  Stacks(const Config &config, StacksForm form);

  // Sets the size of the target's vocabulary, which is that of the source by default.
  void setTargetVocab(int64_t size) { targetVocab = size; }
  int64_t vocab() const { return sourceVocab; }
  int64_t width() const { return dModel; }
  int64_t pad() const { return padToken; }

  // Builds the model, with `positions` as the step that follows the embedding in both stacks.
  ForeignModel build(const Weights &weights, const nlohmann::ordered_json &positions, const EmbeddingTensors &tensors);

private:
  nlohmann::ordered_json params() const, tokens() const, stack(bool decoder, const nlohmann::ordered_json &positions),
      attention(bool decoder, bool cross) const, recurrence() const;
  std::string perStack(const char *name, bool decoder) const;
  void mapStack(bool decoder, bool table, std::vector<TensorName> &tensors) const;

  const Config &config;
  StacksForm form;
  int64_t sourceVocab, targetVocab, dModel, maxLength, heads[2], layers[2], ffn[2]; // [1]: the decoder's
  double dropout, attentionDropout, activationDropout;
  std::string activation;
  bool scaled;
  int64_t padToken;
};

// The tensor that stands for `own`: the first of `tied` that equals it or, if `own` is not in the file, the first of
// `tied` that is. `own` itself if there is none.
std::string tiedTensor(const Weights &weights, const std::string &own, const std::vector<std::string> &tied);

// The tensors of a model with one vocabulary: one table for both stacks or two, and an output that is tied to a table
// unless tie_word_embeddings is false. The tables' names begin with `prefix`.
EmbeddingTensors oneVocabulary(const Config &config, const Weights &weights, const std::string &prefix);

// Adds the embeddings and the output to `tensors`, and returns their groups for `share` of model.json.
nlohmann::ordered_json mapEmbeddings(const EmbeddingTensors &embeddings, std::vector<TensorName> &tensors);

// Fails if the weights are those of a quantized model.
void refuseQuantized(const Config &config);

// The step for an activation that transformers calls `name`. Throws an Error that names the key and lists the known
// activations.
std::string activationStep(const Config &config, const std::string &key, const std::string &name);

} // namespace xfc
