// Matrix products, their epilogues and their gradients against the interpreter, in f32 and f64, at odd shapes.
#include "KernelTest.h"

using namespace xfc;
using namespace xfc::test;

namespace {

class Matrix : public testing::TestWithParam<bool> {
protected:
  std::string element() const { return GetParam() ? "f64" : "f32"; }
  std::string rows(int64_t features) const { return "!xfc.rows<source, " + std::to_string(features) + "x" + element() + ">"; }
  std::string row() const { return "!xfc.rows<source, " + element() + ">"; }
  std::string tensor(int64_t a, int64_t b) const { return "tensor<" + std::to_string(a) + "x" + std::to_string(b) + "x" + element() + ">"; }
  std::string tensor(int64_t a) const { return "tensor<" + std::to_string(a) + "x" + element() + ">"; }

  // Products sum many terms: the tolerance of a type grows with the square root of how many.
  Outcome check(const Batch &batch, const std::string &op, const std::vector<std::string> &types, const std::string &results,
                int64_t terms, Options options = {}) {
    std::string text = op + " : (";
    for (size_t i = 0; i < types.size(); ++i)
      text += (i ? ", " : "") + types[i];
    text += ") -> (" + results + ")";
    SCOPED_TRACE(text);
    Outcome outcome = runKernel(batch, text, types, options);
    expectClose(outcome, toleranceOf(GetParam()) * std::max(1.0, std::sqrt(static_cast<double>(terms)) / 8), text);
    return outcome;
  }
};

struct Shape {
  int64_t in, out;
};
// Below a vector, over a panel, over a K block, over a slab of columns, and round numbers.
const Shape shapes[] = {{5, 10}, {17, 33}, {600, 24}, {32, 130}, {64, 300}, {128, 256}};
// Fewer rows than the micro-kernel's, as many, one more, one more than a block, and two sequences.
const std::vector<std::vector<int>> batches = {{1}, {5}, {6}, {7}, {73}, {80, 70}};

TEST_P(Matrix, Linear) {
  for (const std::vector<int> &lengths : batches)
    for (auto [in, out] : shapes) {
      Batch batch(lengths, {1});
      check(batch, "xfc.linear %a0, %a1", {rows(in), tensor(out, in)}, rows(out), in);
    }
  Batch batch({9, 31}, {1});
  for (auto [in, out] : shapes)
    check(batch, "xfc.linear %a0, %a1 bias %a2", {rows(in), tensor(out, in), tensor(out)}, rows(out), in, {.extraStride = 3});
}

TEST_P(Matrix, LinearInputGrad) {
  for (const std::vector<int> &lengths : batches)
    for (auto [in, out] : shapes) {
      Batch batch(lengths, {1});
      check(batch, "xfc.linear_input_grad %a0, %a1", {rows(out), tensor(out, in)}, rows(in), out, {.extraStride = 1});
    }
}

TEST_P(Matrix, Epilogues) {
  for (bool training : {true, false})
    for (int64_t out : {10, 64, 130, 200}) {
      Batch batch({9, 31}, {1}, 40, training);
      const std::string t = rows(out);
      check(batch,
            "xfc.linear %a0, %a1 bias %a2 {\n^bb0(%y: " + t + "):\n  %p = xfc.activation relu %y : <source, " + std::to_string(out) + "x" +
                element() + ">\n  %d = xfc.dropout %p {rate = 0.3, id = 9 : i64} : " + t + "\n  xfc.yield %d : " + t + "\n}",
            {rows(20), tensor(out, 20), tensor(out)}, t, 20, {.immediates = {9}});
      check(batch,
            "xfc.linear %a0, %a1 with %a2 {\n^bb0(%y: " + t + ", %e: " + t + "):\n  %s = xfc.add %y, %e : " + t +
                "\n  %p = xfc.activation gelu %s : <source, " + std::to_string(out) + "x" + element() + ">\n  xfc.yield %s, %p : " + t + ", " +
                t + "\n}",
            {rows(20), tensor(out, 20), t}, t + ", " + t, 20, {.extraStride = 2});
      check(batch,
            "xfc.linear_input_grad %a0, %a1 with %a2 {\n^bb0(%y: " + t + ", %e: " + t +
                "):\n  %d = xfc.dropout %y {rate = 0.5, id = 3 : i64} : " + t + "\n  %g = xfc.activation_grad relu %d, %e : <source, " +
                std::to_string(out) + "x" + element() + ">\n  xfc.yield %g : " + t + "\n}",
            {rows(20), tensor(20, out), t}, t, 20, {.immediates = {3}});
    }
}

TEST_P(Matrix, WeightGradients) {
  for (const std::vector<int> &lengths : {std::vector<int>{1}, {7}, {80, 70}, {300, 1, 20}})
    for (auto [in, out] : shapes) {
      Batch batch(lengths, {1});
      check(batch, "xfc.linear_weight_grad %a0, %a1", {rows(out), rows(in)}, tensor(out, in), 321, {.extraStride = 2});
      check(batch, "xfc.bias_grad %a0", {rows(out)}, tensor(out), 321, {.extraStride = 5});
    }
}

TEST_P(Matrix, LinearCrossEntropy) {
  for (const std::vector<int> &lengths : {std::vector<int>{1}, {50}, {9, 91}})
    for (int64_t vocabulary : {40, 300}) { // ids are below 37
      Batch batch(lengths, {1});
      const std::string ids = "!xfc.rows<source, i32>", scalar = "tensor<" + element() + ">";
      auto set = [](int64_t operand, Tensor &tensor) {
        if (tensor.shape.empty())
          tensor.data = {0.1}; // smoothing
        if (operand == 3)
          for (size_t i = 0; i < tensor.data.size(); i += 4)
            tensor.data[i] = -1; // pads
      };
      check(batch, "xfc.linear_cross_entropy %a0, %a1, %a2, %a3, %a4",
            {rows(30), tensor(vocabulary, 30), tensor(vocabulary), ids, scalar}, row() + ", " + row() + ", " + rows(vocabulary) + ", " + row(), 30,
            {.set = set});
    }
}

// A row's result is the same to the bit whatever stands beside it: products are cut by rows, never summed by them.
TEST_P(Matrix, RowsDoNotTouchEachOther) {
  auto set = [](int64_t operand, Tensor &tensor) {
    for (size_t i = 0; i < tensor.data.size(); ++i)
      tensor.data[i] = std::sin(static_cast<double>(i) * (operand + 1));
  };
  Batch one({1}, {1}), many({90, 10}, {1});
  for (auto [in, out] : shapes) {
    std::vector<std::string> types = {rows(in), tensor(out, in)};
    Outcome alone = check(one, "xfc.linear %a0, %a1", types, rows(out), in, {.set = set});
    Outcome among = check(many, "xfc.linear %a0, %a1", types, rows(out), in, {.set = set});
    for (int64_t f = 0; f < out; ++f)
      EXPECT_EQ(alone.kernel[0].data[f], among.kernel[0].data[f]) << "feature " << f;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Matrix, testing::Bool(), [](const auto &type) { return type.param ? "f64" : "f32"; });

} // namespace
