// The encoder and the decoder that CTranslate2's TransformerSpec describes, for import and for export alike: which
// steps of ours it computes, how its options are called and stored, and which rows of its variables are which
// parameters.
#pragma once

#include "Import/Description.h"
#include <cmath>
#include <nlohmann/json.hpp>

namespace xfc::ctranslate2 {

inline constexpr const char *specification = "TransformerSpec";
inline constexpr uint32_t revision = 7; // of the specification, the latest

// An attention, which computes the same in every layer.
struct Attention {
  bool cross = false;
  int64_t headDim = 0, kvHeads = 0;
  double queriesScale = 0; // what queries are multiplied by
  bool biasQ = true, biasK = true, biasV = true, biasO = true;
  int64_t buckets = 0, maxDistance = 128; // of T5's bias by distance; 0 buckets: none
  int64_t rotaryDim = -1;                 // 0: all features of a head; below 0: not rotated
  bool rotaryInterleave = true;
  double rotaryBase = 10000;
  nlohmann::ordered_json maxLength = "$max_length"; // of a bias by distance or rotation; CTranslate2 sets no limit

  // Whether queries and keys know their positions, so that CTranslate2 adds none to the embeddings.
  bool hasPositions() const { return buckets > 0 || rotaryDim >= 0; }
};

struct Stack {
  int64_t layers = 0, vocab = 0, heads = 0, ffn = 0;
  double embeddingScale = 1;
  nlohmann::ordered_json positions; // the step, or null
  bool preNorm = true, rms = false, embeddingNorm = false, finalNorm = false;
  int64_t activation = 0; // an index of activations()
  bool gated = false, ffnInBias = true, ffnOutBias = true;
  Attention self, cross; // only a decoder's `cross` is used
};

struct Form {
  int64_t dim = 0, maxLength = 0;
  double eps = 0; // of all norms; 0: the default of their kind, which is CTranslate2's, too
  double outputScale = 1;
  bool outputBias = false;
  Stack stacks[2]; // [1]: the decoder's
};

// The activations by the numbers that CTranslate2 gives them, as steps are called here; "" for those that no step
// computes.
const std::vector<std::string> &activations();

// Calls visit(name, type, value, otherwise) for the options of a stack: the variable's name within the stack, the type
// in which it is stored, the member that it belongs to, and the value that files without it mean.
template <typename Visit> void eachOption(Stack &stack, Visit visit) {
  visit("num_heads", "I16", stack.heads, 8);
  visit("pre_norm", "I8", stack.preNorm, 1);
  visit("activation", "I8", stack.activation, 0);
}

// Calls visit for the options of an attention in a model of `dim` features with `heads` heads. `visit` must set
// head_dim when it is called with it, because the value that files without queries_scale mean is computed from it
// afterwards.
template <typename Visit> void eachOption(Attention &attention, int64_t dim, int64_t heads, Visit visit) {
  const int64_t usualDim = dim / heads;
  visit("head_dim", "I32", attention.headDim, static_cast<double>(usualDim));
  visit("num_heads_kv", "I32", attention.kvHeads, static_cast<double>(heads));
  visit("queries_scale", "F32", attention.queriesScale, 1 / std::sqrt(static_cast<double>(attention.headDim)));
  if (attention.cross)
    return;
  visit("rotary_dim", "I32", attention.rotaryDim, -1);
  visit("rotary_interleave", "I8", attention.rotaryInterleave, 1);
  visit("rotary_base", "F32", attention.rotaryBase, 10000);
}

// Keys of config.json that only we write, for our own import: whether source lines end with eos, if CTranslate2 is not
// asked to add it, and whether the vocabulary strips the lines that it decodes, if it is a SentencePiece model, which
// does not.
inline constexpr const char *ourSourceEos = "source_eos", *ourStrip = "strip";

// An option that only an attention with a bias by distance has, and must have.
inline constexpr const char *maxDistanceOption = "relative_attention_max_distance";

// Whether two finite numbers are the same but for the precision of F32; false for others.
inline bool sameNumber(double a, double b) {
  return std::isfinite(a) && std::isfinite(b) && std::abs(a - b) <= 1e-7 * std::max(std::abs(a), std::abs(b));
}

// Names of variables of a stack.
std::string attentionScope(bool decoder, int64_t layer, bool cross);
std::string embeddingName(bool decoder);
std::string positionsName(bool decoder);
inline constexpr const char *outputName = "decoder/projection";
inline constexpr const char *outputScaleName = "decoder/scale_outputs";
inline constexpr const char *zeroStartName = "decoder/start_from_zero_embedding";
inline std::string embeddingScaleName(bool decoder) { return std::string(stackNames[decoder]) + "/scale_embeddings"; }

// Some rows of a variable: those of a parameter of ours, from its row `first` on, or zeros if it has no name.
struct Part {
  std::string ours;
  int64_t rows, first = 0;
};
struct Variable {
  std::string name;
  std::vector<Part> parts;
  int64_t columns = 0; // 0: a vector

  std::vector<int64_t> shape() const;
};

// The variables of all layers and norms; not those of embeddings, positions and the output.
std::vector<Variable> variablesOf(const Form &form);

// The `params`, `encoder`, `decoder` and `head` of model.json.
nlohmann::ordered_json describe(const Form &form);

// The table of sinusoidal positions as the runtime computes it, from the first token's row on: [rows, dim], row by row.
std::vector<float> sinusoids(const step::SinusoidalPositions &positions, int64_t rows, int64_t dim);
// The step for these positions; `maxLength` is a number or a reference to a value of params.
nlohmann::ordered_json stepOf(const step::SinusoidalPositions &positions, const nlohmann::ordered_json &maxLength);

} // namespace xfc::ctranslate2
