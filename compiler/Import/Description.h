// Parses model.json into a Description, which is typed and validated. Errors name the JSON path. No MLIR here.
#pragma once

#include "Steps.h"
#include "plan/Generation.h"
#include "plan/Training.h"
#include "support/Error.h"
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// The keys of the two stacks in model.json.
inline constexpr const char *stackNames[2] = {"encoder", "decoder"};

struct StackDescription {
  std::vector<StepDescription> input, layer, output;
  int64_t layers = 0;
  int64_t inputDim = 0; // features of the input rows: the embedding's, or params.d_model for float rows
  int64_t dim = 0;      // features of the output rows
  bool floatInput = false;
};

struct TokenIds {
  int32_t pad = 0, unk = 1, bos = 2, eos = 3, start = 2;
  bool sourceEos = true;
};

// A parameter of the model. Description::parameters has them in the order encoder, decoder, head.
struct ParameterDescription {
  std::string name;
  std::vector<std::string> aliases; // tied names
  std::vector<int64_t> shape;
  std::string init; // xavier_uniform, fan_in_uniform, normal, scaled_normal, zero, one
  int64_t fanIn = 0, fanOut = 0;
};

struct Description {
  std::string name;
  std::string canonical; // the description with every value resolved, keys sorted: what is hashed and embedded
  std::map<std::string, double> params;
  TokenIds tokens;
  Generation generation;                    // of a model with a decoder that generates tokens
  std::optional<TrainingSettings> training; // if the file has any
  StackDescription encoder;
  std::optional<StackDescription> decoder;
  std::vector<StepDescription> head;
  std::vector<ParameterDescription> parameters;
  int64_t sourceVocab = 0, targetVocab = 0;         // 0: float rows
  int64_t maxSourceLength = 0, maxTargetLength = 0; // the smallest max_length of the steps; 0: no limit
  // The parameter that `name` is stored under (its group's first name if tied), or null.
  const ParameterDescription *parameter(std::string_view name) const;
};

// A `--set` of the command line. The key is a name in "params", or tokens.NAME.
struct Override {
  std::string key, value;
};

// Parses and validates everything. Throws Error: "FILE: JSON.PATH: what is wrong, what was expected".
Description parseDescription(std::string_view text, std::string_view file, const std::vector<Override> &overrides = {});

} // namespace xfc
