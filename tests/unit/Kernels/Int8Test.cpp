// Compares int8 products with the integers that their definition (compiler/CPU/Int8.h) gives: equal bit for bit.
#include "KernelTest.h"
#include <cmath>
#include <limits>

using namespace xfc;
using namespace xfc::test;

namespace {

struct RoundedRow {
  std::vector<int> integers;
  float scale;
};

RoundedRow roundedRow(const double *x, int64_t count) {
  float largest = std::ldexp(1.0F, -100);
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::abs(static_cast<float>(x[i])));
  RoundedRow row{{}, largest / 127};
  const float factor = 127 / largest;
  for (int64_t i = 0; i < count; ++i)
    row.integers.push_back(static_cast<int>(std::nearbyint(x[i] * factor))); // exact in f64 before rounding
  return row;
}

// x W^T + b: the integer sum is converted, scaled by the column, then by the row, and the bias is added, in f32.
std::vector<double> product(const Tensor &x, const Tensor &weight, const Tensor *bias) {
  std::vector<RoundedRow> columns;
  for (int64_t n = 0; n < weight.shape[0]; ++n)
    columns.push_back(roundedRow(weight.row(n), weight.shape[1]));
  std::vector<double> y;
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    const RoundedRow row = roundedRow(x.row(i), x.shape[1]);
    for (int64_t n = 0; n < weight.shape[0]; ++n) {
      int64_t sum = 0;
      for (int64_t k = 0; k < x.shape[1]; ++k)
        sum += row.integers[k] * columns[n].integers[k];
      float value = static_cast<float>(sum) * columns[n].scale * row.scale;
      if (bias)
        value += static_cast<float>(bias->data[n]);
      y.push_back(value);
    }
  }
  return y;
}

const Target targets[] = {
    {}, {.cpu = "x86-64-v3+vnni"}, {.cpu = "x86-64-v4"}, {.cpu = "x86-64-v4+vnni"}, {.cpu = "x86-64-v4+amx"}};

class Int8 : public testing::TestWithParam<Target> {
protected:
  void SetUp() override {
    if (const std::string missing = GetParam().missing(); !missing.empty())
      GTEST_SKIP() << "this CPU lacks " << missing;
    // The emulation would take minutes to compile; v3+vnni covers its instruction, and v4 its panels.
    if (GetParam().cpu == "x86-64-v4+vnni" && !__builtin_cpu_supports("avx512vnni"))
      GTEST_SKIP() << "this CPU lacks avx512vnni";
  }
  static std::string rows(int64_t features) { return "!xfc.rows<source, " + std::to_string(features) + "xf32>"; }
  static std::string tensor(int64_t a, int64_t b) {
    return "tensor<" + std::to_string(a) + "x" + std::to_string(b) + "xf32>";
  }
  static std::string tensor(int64_t a) { return "tensor<" + std::to_string(a) + "xf32>"; }

  // Checks the kernel of a product on batches of these row counts; `change` may modify the operands.
  static void check(int64_t in, int64_t out, bool withBias, const std::vector<int> &counts,
                    const std::function<void(int64_t, Tensor &)> &change = {}) {
    std::vector<Tensor> operands(3);
    Options options{.extraStride = 3, .cpu = GetParam().cpu, .evaluate = false};
    options.set = [&](int64_t operand, Tensor &tensor) {
      if (change)
        change(operand, tensor);
      for (double &x : tensor.data)
        x = static_cast<float>(x);
      operands[operand] = tensor;
    };
    std::vector<std::string> types = {rows(in), tensor(out, in)};
    if (withBias)
      types.push_back(tensor(out));
    std::string text = std::string("xfc.linear %a0, %a1 ") + (withBias ? "bias %a2 " : "") + "in int8 : (";
    for (const std::string &type : types)
      text += (&type == types.data() ? "" : ", ") + type;
    text += ") -> (" + rows(out) + ")";
    CompiledOp kernel(text, types, options);
    for (int count : counts) {
      const Outcome outcome = kernel.run(Batch({count}, {1}));
      const std::vector<double> want = product(operands[0], operands[1], withBias ? &operands[2] : nullptr),
                                &got = outcome.kernel[0].data;
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i)
        if (std::isfinite(want[i]))
          ASSERT_EQ(got[i], want[i]) << text << ", " << count << " rows, row " << i / out << ", column " << i % out;
        else
          ASSERT_FALSE(std::isfinite(got[i]))
              << text << ", " << count << " rows, row " << i / out << ", column " << i % out;
    }
  }
};

// Sizes below a unit and a vector, over a panel, over an AMX tile, and round numbers; row counts below and equal to the
// micro-kernel's, and above a block.
TEST_P(Int8, EqualToTheBit) {
  bool bias = false;
  for (auto [in, out] :
       std::initializer_list<std::pair<int64_t, int64_t>>{{1, 1}, {3, 10}, {5, 33}, {17, 33}, {64, 300}, {600, 65}})
    ASSERT_NO_FATAL_FAILURE(check(in, out, bias = !bias, {1, 2, 3, 4, 5, 6, 7, 13, 33, 100}));
}

TEST_P(Int8, LargestIntegersDoNotOverflow) {
  for (double sign : {1.0, -1.0})
    ASSERT_NO_FATAL_FAILURE(check(4096, 20, false, {1, 5}, [=](int64_t operand, Tensor &tensor) {
      for (double &x : tensor.data)
        x = operand == 0 ? 3 : 3 * sign;
    }));
}

TEST_P(Int8, RowsAndColumnsOfZerosAndOfAnySize) {
  ASSERT_NO_FATAL_FAILURE(check(40, 20, true, {1, 5, 9}, [](int64_t operand, Tensor &tensor) {
    for (int64_t i = 0; operand < 2 && i < tensor.shape[0]; ++i)
      for (int64_t f = 0; f < tensor.features(); ++f)
        tensor.row(i)[f] *= i % 4 == 0 ? 0 : i % 4 == 1 ? 1e-20 : i % 4 == 2 ? 1e15 : 1;
  }));
}

// So that a search reports a broken model, as it does in f32; other rows are unaffected.
TEST_P(Int8, NaNAndInfinityStayInTheirRow) {
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::quiet_NaN(),
                     std::numeric_limits<double>::infinity()}) {
    std::vector<double> without;
    for (bool present : {false, true}) {
      Options options{.cpu = GetParam().cpu, .evaluate = false};
      options.set = [&](int64_t operand, Tensor &tensor) {
        if (operand == 0 && present)
          tensor.row(2)[7] = bad;
      };
      const std::vector<std::string> types = {rows(20), tensor(70, 20)};
      const Outcome outcome = runKernel(
          Batch({5}, {1}), "xfc.linear %a0, %a1 in int8 : (" + types[0] + ", " + types[1] + ") -> (" + rows(70) + ")",
          types, options);
      const Tensor &y = outcome.kernel[0];
      if (!present)
        without = y.data;
      else
        for (int64_t i = 0; i < 5; ++i)
          for (int64_t n = 0; n < 70; ++n)
            if (i == 2)
              EXPECT_FALSE(std::isfinite(y.row(i)[n])) << "column " << n;
            else
              EXPECT_EQ(y.row(i)[n], without[i * 70 + n]) << "row " << i << ", column " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(CPU, Int8, testing::ValuesIn(targets), nameOf);

} // namespace
