// Descriptions for tests: the shipped files, and small models around given steps.
#pragma once

#include "Import/Description.h"
#include <fstream>
#include <sstream>
#include <string>

namespace xfc::test {

inline const std::vector<std::string> shipped = {
    "original",       "original-book-positions", "final-norm",    "memory-norm", "learned-positions",
    "free-head-dims", "plain-attention",         "encoder-block", "tiny",        "small",
    "modern"};

inline std::string fileText(const std::string &name) {
  std::ifstream file(std::string(XFC_MODELS) + "/" + name + ".json");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline Description shippedModel(const std::string &name, const std::vector<Override> &overrides = {}) {
  return parseDescription(fileText(name), name + ".json", overrides);
}

// An encoder of 2 layers over rows of 6 floats.
inline std::string encoderText(const std::string &layer, const std::string &more = "") {
  return R"({"format": "xfc-model/1", "name": "m", "params": {"d_model": 6},
             "encoder": {"input": [], "layers": 2, "layer": [)" +
         layer + "]}" + more + "}";
}

// A model of 9 tokens and 6 features with one encoder layer and two decoder layers.
inline std::string translatorText(const std::string &decoderLayer, const std::string &more = "",
                                  const std::string &encoderLayer = R"({"op": "relu"})") {
  const std::string input = R"("input": [{"op": "embedding", "name": "embed", "vocab": 9, "dim": 6}], )";
  return R"({"format": "xfc-model/1", "name": "m", "encoder": {)" + input + R"("layers": 1, "layer": [)" +
         encoderLayer + R"(]}, "decoder": {)" + input + R"("layers": 2, "layer": [)" + decoderLayer +
         R"(]}, "head": [{"op": "linear", "name": "output", "features": 9, "bias": false}])" + more + "}";
}

} // namespace xfc::test
