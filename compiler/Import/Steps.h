// The steps of a model, as read from model.json: one struct per kind of step, with its options. No MLIR here.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace xfc {

struct StepDescription;
struct StepKind;

// The initial values are the defaults. StepKinds.cpp says what the options mean.
namespace step {

struct Embedding {
  int64_t vocab = 0, dim = 0;
  double scale = 1;
  bool scaleBySqrtDim = false; // if set, scale is sqrt(dim) once read
};

struct SinusoidalPositions {
  int64_t maxLength = 0, offset = 0;
  double base = 10000, exponentMultiplier = 1, cosineOffset = 0;
  bool halves = false;
};

struct LearnedPositions {
  int64_t maxLength = 0, offset = 0;
};

struct Attention {
  enum class DistanceBias { none, buckets, slopes };
  enum class Rotary { none, interleaved, halves };
  int64_t heads = 1, keyDim = 0, valueDim = 0; // dimensions of one head, never 0 once read
  int64_t kvHeads = 0;                         // heads of keys and values, never 0 once read
  bool biasQ = true, biasK = true, biasV = true, biasO = true;
  bool encoderMemory = false;
  std::vector<StepDescription> memoryBody;
  bool padding = true, causal = false;
  int64_t window = 0; // 0: no limit besides the mask
  double scale = 0;   // what scores are divided by, never 0 once read
  bool scaleBySqrtModelDim = false;
  DistanceBias distanceBias = DistanceBias::none;
  int64_t buckets = 32, maxDistance = 128; // of a distanceBias
  Rotary rotary = Rotary::none;
  double rotaryBase = 10000;
  int64_t rotaryDim = 0; // never 0 once read, with `rotary`
  int64_t maxLength = 0; // of a distanceBias or `rotary`
  double dropout = 0;
  bool returnWeights = false, projections = true;
};

struct Recurrence {
  bool biasGate = true, biasValue = true;
};

struct Linear {
  int64_t features = 0;
  bool bias = true;
};

struct LayerNorm {
  double eps = 1e-5;
  bool unbiased = false, epsInStd = false;
};

struct RmsNorm {
  double eps = 1e-6;
};

struct Activation {
  std::string function; // as the dialect spells it
};

struct Scale {
  double by = 1;
  double power = 0; // if not 0, `by` is the number of features of x to this power, once read
};

struct Gated {
  int64_t features = 0;
  std::string activation = "silu";
  bool bias = false;
};

struct Dropout {
  double rate = 0;
};

struct Residual {
  std::vector<StepDescription> body;
};

} // namespace step

using StepOptions = std::variant<step::Embedding, step::SinusoidalPositions, step::LearnedPositions, step::Attention,
                                 step::Recurrence, step::Linear, step::LayerNorm, step::RmsNorm, step::Activation,
                                 step::Scale, step::Gated, step::Dropout, step::Residual>;

// One step of a stack or of the head, its "$name" values resolved.
struct StepDescription {
  const StepKind *kind; // its row in the table
  std::string jsonPath; // encoder.layer[0].body[0]
  std::string name;     // relative to the layer; empty if the kind has none
  StepOptions options;
};

} // namespace xfc
