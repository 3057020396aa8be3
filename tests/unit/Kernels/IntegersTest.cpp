// Compares products of integers with what their definition (ComputeType in compiler/Dialect/XFCEnums.td) gives: equal
// bit for bit.
#include "KernelTest.h"
#include <algorithm>
#include <bit>
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

// A row of a weight in int4: the integers of each group of 32, with the group's scale.
std::vector<RoundedRow> groupsOf(const double *x, int64_t count) {
  std::vector<RoundedRow> groups;
  for (int64_t begin = 0; begin < count; begin += 32) {
    float positive = std::ldexp(1.0F, -100), negative = 0;
    for (int64_t i = begin; i < std::min(begin + 32, count); ++i) {
      positive = std::max(positive, static_cast<float>(x[i]));
      negative = std::max(negative, static_cast<float>(-x[i]));
    }
    const float exact = positive >= negative ? positive / -8 : negative / 8;
    uint32_t bits = std::bit_cast<uint32_t>(exact);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000; // the nearest bf16, ties to even
    RoundedRow group{{}, std::bit_cast<float>(bits)};
    const float factor = 1 / group.scale;
    for (int64_t i = begin; i < std::min(begin + 32, count); ++i)
      group.integers.push_back(static_cast<int>(std::clamp(std::nearbyint(x[i] * factor), -8.0, 7.0)));
    groups.push_back(group);
  }
  return groups;
}

// A product without the scale of the row. int8: the integer sum is converted, and scaled. int4: so is that of each
// group, and added to the one before, with a single rounding.
float scaledSum(const RoundedRow &row, const std::vector<RoundedRow> &groups, bool perGroup) {
  float total = 0;
  size_t at = 0;
  for (const RoundedRow &group : groups) {
    int64_t sum = 0;
    for (int integer : group.integers)
      sum += row.integers[at++] * integer;
    total = perGroup ? std::fma(static_cast<float>(sum), group.scale, total) : static_cast<float>(sum) * group.scale;
  }
  return total;
}

// x W^T + b: sums are scaled by the row, and the bias is added, in f32.
std::vector<double> product(const std::string &type, const Tensor &x, const Tensor &weight, const Tensor *bias) {
  const bool int4 = type == "int4";
  std::vector<std::vector<RoundedRow>> columns;
  for (int64_t n = 0; n < weight.shape[0]; ++n)
    columns.push_back(int4 ? groupsOf(weight.row(n), weight.shape[1])
                           : std::vector{roundedRow(weight.row(n), weight.shape[1])});
  std::vector<double> y;
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    const RoundedRow row = roundedRow(x.row(i), x.shape[1]);
    for (int64_t n = 0; n < weight.shape[0]; ++n) {
      float value = scaledSum(row, columns[n], int4) * row.scale;
      if (bias)
        value += static_cast<float>(bias->data[n]);
      y.push_back(value);
    }
  }
  return y;
}

const Target targets[] = {
    {}, {.cpu = "x86-64-v3+vnni"}, {.cpu = "x86-64-v4"}, {.cpu = "x86-64-v4+vnni"}, {.cpu = "x86-64-v4+amx"}};

using Parameters = std::tuple<std::string, Target>;

class Integers : public testing::TestWithParam<Parameters> {
protected:
  static std::string type() { return std::get<0>(GetParam()); }
  static const Target &target() { return std::get<1>(GetParam()); }

  void SetUp() override {
    if (const std::string missing = target().missing(); !missing.empty())
      GTEST_SKIP() << "this CPU lacks " << missing;
    // The emulation would take minutes to compile; v3+vnni covers its instruction, and v4 its panels.
    if (target().cpu == "x86-64-v4+vnni" && !__builtin_cpu_supports("avx512vnni"))
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
    Options options{.extraStride = 3, .cpu = target().cpu, .evaluate = false};
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
    std::string text = std::string("xfc.linear %a0, %a1 ") + (withBias ? "bias %a2 " : "") + "in " + type() + " : (";
    for (const std::string &type : types)
      text += (&type == types.data() ? "" : ", ") + type;
    text += ") -> (" + rows(out) + ")";
    CompiledOp kernel(text, types, options);
    for (int count : counts) {
      const Outcome outcome = kernel.run(Batch({count}, {1}));
      const std::vector<double> want = product(type(), operands[0], operands[1], withBias ? &operands[2] : nullptr),
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
TEST_P(Integers, EqualToTheBit) {
  bool bias = false;
  for (auto [in, out] : std::initializer_list<std::pair<int64_t, int64_t>>{
           {1, 1}, {3, 10}, {5, 33}, {17, 33}, {64, 300}, {101, 17}, {600, 65}})
    ASSERT_NO_FATAL_FAILURE(check(in, out, bias = !bias, {1, 2, 3, 4, 5, 6, 7, 13, 33, 100}));
}

// So many blocks of rows that a chunk has several slabs of columns, and some chunks have none. With three blocks of 25
// groups of columns, the last chunk of each block is one of these: what runs after it finds other rows in scratch.
TEST_P(Integers, ManyRows) { ASSERT_NO_FATAL_FAILURE(check(5, 1600, true, {200, 600, 1400})); }

TEST_P(Integers, LargestIntegersDoNotOverflow) {
  for (double sign : {1.0, -1.0})
    ASSERT_NO_FATAL_FAILURE(check(4096, 20, false, {1, 5}, [=](int64_t operand, Tensor &tensor) {
      for (double &x : tensor.data)
        x = operand == 0 ? 3 : 3 * sign;
    }));
}

TEST_P(Integers, RowsAndColumnsOfZerosAndOfAnySize) {
  ASSERT_NO_FATAL_FAILURE(check(40, 20, true, {1, 5, 9}, [](int64_t operand, Tensor &tensor) {
    for (int64_t i = 0; operand < 2 && i < tensor.shape[0]; ++i)
      for (int64_t f = 0; f < tensor.features(); ++f)
        tensor.row(i)[f] *= i % 4 == 0 ? 0 : i % 4 == 1 ? 1e-20 : i % 4 == 2 ? 1e15 : 1;
  }));
}

// So that a search reports a broken model, as it does in f32; other rows are unaffected.
TEST_P(Integers, NaNAndInfinityStayInTheirRow) {
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::quiet_NaN(),
                     std::numeric_limits<double>::infinity()}) {
    std::vector<double> without;
    for (bool present : {false, true}) {
      Options options{.cpu = target().cpu, .evaluate = false};
      options.set = [&](int64_t operand, Tensor &tensor) {
        if (operand == 0 && present)
          tensor.row(2)[7] = bad;
      };
      const std::vector<std::string> types = {rows(20), tensor(70, 20)};
      const Outcome outcome = runKernel(Batch({5}, {1}),
                                        "xfc.linear %a0, %a1 in " + type() + " : (" + types[0] + ", " + types[1] +
                                            ") -> (" + rows(70) + ")",
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

std::string nameOfBoth(const testing::TestParamInfo<Parameters> &info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param).name();
}
INSTANTIATE_TEST_SUITE_P(CPU, Integers, testing::Combine(testing::Values("int8", "int4"), testing::ValuesIn(targets)),
                         nameOfBoth);

} // namespace
