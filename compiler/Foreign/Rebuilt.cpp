// Helpers of the readers for other kinds of files.
#include "Rebuilt.h"
#include "tensors/Numbers.h"
#include <algorithm>

namespace xfc {

using Json = nlohmann::ordered_json;

TensorView rowsOf(const TensorView &tensor, int64_t first, int64_t count) {
  const size_t row = tensor.bytes.size() / static_cast<size_t>(tensor.shape.front());
  TensorView rows = tensor;
  rows.shape.front() = count;
  rows.bytes = tensor.bytes.substr(row * static_cast<size_t>(first), row * static_cast<size_t>(count));
  return rows;
}

std::vector<float> floatsOf(const TensorView &tensor) {
  std::vector<float> numbers(static_cast<size_t>(elementsOf(tensor.shape)));
  eachNumber(tensor, 0, static_cast<int64_t>(numbers.size()),
             [&](int64_t i, double number) { numbers[static_cast<size_t>(i)] = static_cast<float>(number); });
  return numbers;
}

void addAs(Weights &weights, const std::string &name, TensorView tensor) {
  tensor.name = name;
  weights.add(std::move(tensor));
}

void addFloats(Weights &weights, const std::string &name, std::vector<int64_t> shape,
               const std::vector<float> &numbers) {
  weights.addMade({name, "F32", std::move(shape), {}}, bytesOf(numbers));
}

void addTable(Weights &weights, const std::string &name, const TensorView &table, int64_t rows) {
  const int64_t own = table.shape.front();
  if (own == rows)
    return addAs(weights, name, table);
  std::string bytes(table.bytes);
  bytes.resize(bytes.size() / static_cast<size_t>(own) * static_cast<size_t>(rows));
  weights.addMade({name, table.type, {rows, table.shape.back()}, {}}, std::move(bytes));
}

void addLogitsBias(Weights &weights, const TensorView *bias, int64_t rows) {
  // exp(-100) is negligible beside any other token, but its logarithm, which label smoothing needs, is still finite.
  constexpr float never = -100;
  std::vector<float> numbers = bias ? floatsOf(*bias) : std::vector<float>();
  numbers.resize(static_cast<size_t>(rows), never);
  addFloats(weights, "final_logits_bias", {1, rows}, numbers);
}

void setNormEps(Json &steps, double eps) {
  if (steps.is_object() && steps.contains("op") && (steps["op"] == "layer_norm" || steps["op"] == "rms_norm"))
    steps["eps"] = eps;
  else if (steps.is_structured())
    for (Json &part : steps)
      setNormEps(part, eps);
}

void leaveOutFinalNorms(ForeignModel &model) {
  for (const char *stack : stackNames)
    model.description[stack]["output"] = Json::array();
  std::erase_if(model.tensors, [](const TensorName &name) {
    return name.ours.starts_with("encoder.norm.") || name.ours.starts_with("decoder.norm.");
  });
}

Json sinusoidalPositions(int64_t d, int64_t offset) {
  Json step = {{"op", "positions"},
               {"kind", "sinusoidal"},
               {"max_length", "$max_length"},
               {"exponent_multiplier", static_cast<double>(d) / static_cast<double>(d - 2)},
               {"layout", "halves"}};
  if (offset > 0)
    step["offset"] = offset;
  return step;
}

Json learnedPositions() { return {{"op", "positions"}, {"kind", "learned"}, {"max_length", "$max_length"}}; }

} // namespace xfc
