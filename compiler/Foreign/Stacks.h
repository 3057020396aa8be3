// What the families after "Attention Is All You Need" have in common: the sizes in config.json, the steps of both
// stacks, and the names of their tensors. They differ in norms, positions and defaults.
#pragma once

#include "Families.h"
#include "Import/StepKinds.h"

namespace xfc {

// Larger ones are slips of whoever wrote the file; model.json has bounds of its own.
constexpr int64_t mostLayers = 1024, mostFeatures = 1 << 20, mostVocab = 1 << 28;

// How a family is built, and what its reader takes where config.json does not say.
struct StacksForm {
  bool preNorm = false;       // norms begin the residual branches, and one ends each stack; else they follow the sums
  bool embeddingNorm = false; // a norm after the positions
  bool logitsBias = false;    // final_logits_bias may be there
  int64_t vocab = 0, maxLength = 1024;
  std::string activation = "gelu";
  bool scaleEmbedding = false;
  double attentionDropout = 0;
  int64_t pad = 1, unk = 3, bos = 0, eos = 2, start = 2; // start -1: bos
};

// The tensors that both stacks' embeddings and the output are read from.
struct EmbeddingTensors {
  std::string encoder, decoder, output;
};

class Stacks {
public:
  // Reads and checks the sizes. Throws Error naming the key.
  Stacks(const Config &config, StacksForm form);

  // The two numbers of tokens; one if not set.
  void setTargetVocab(int64_t size) { targetVocab = size; }
  int64_t vocab() const { return sourceVocab; }
  int64_t width() const { return dModel; }
  int64_t pad() const { return padToken; }

  // Everything, with `positions` as the step that both stacks have after their embedding.
  ForeignModel build(const Weights &weights, const nlohmann::ordered_json &positions, const EmbeddingTensors &tensors);

private:
  nlohmann::ordered_json params() const, tokens() const, stack(bool decoder, const nlohmann::ordered_json &positions),
      attention(bool decoder, bool cross) const;
  std::string perStack(const char *name, bool decoder) const;
  void mapStack(bool decoder, bool table, std::vector<TensorName> &tensors) const;

  const Config &config;
  StacksForm form;
  int64_t sourceVocab, targetVocab, dModel, maxLength, heads[2], layers[2], ffn[2]; // [1]: of the decoder
  double dropout, attentionDropout, activationDropout;
  std::string activation;
  bool scaled;
  int64_t padToken;
};

// The tensor that stands for `own`: of the tied ones it is equal to, the first; where it is not in the file, the first
// of them that is. `own` where there is none.
std::string tiedTensor(const Weights &weights, const std::string &own, const std::vector<std::string> &tied);

// Of one vocabulary: one table for both stacks, or two, and the output tied to it unless tie_word_embeddings is false.
// `prefix` is what the tables' names begin with.
EmbeddingTensors oneVocabulary(const Config &config, const Weights &weights, const std::string &prefix);

// Adds the embeddings and the output to `tensors`, and gives what `share` of model.json says of them.
nlohmann::ordered_json mapEmbeddings(const EmbeddingTensors &embeddings, std::vector<TensorName> &tensors);

// Fails where the weights are those of a quantized model.
void refuseQuantized(const Config &config);

// The step for an activation of this name of transformers. Throws Error naming the key and those that are known.
std::string activationStep(const Config &config, const std::string &key, const std::string &name);

} // namespace xfc
