// Compares the interpreter with independent values: worked examples, published test vectors, and numbers computed by
// hand.
#include "Fixture.h"
#include "Interpreter/Support.h"
#include <bit>
#include <cmath>

using namespace xfc;
using namespace xfc::test;

namespace {

// Evaluates @f on one source sequence of `rows` rows (ids 1, 2, ...) and no target.
llvm::SmallVector<Tensor> evaluateOn(int rows, const std::string &text, const std::vector<Tensor> &inputs) {
  RaggedSequence sequence;
  for (int i = 0; i < rows; ++i)
    sequence.ids.push_back(i + 1);
  Shape shape({sequence}, {}, 0);
  Program program(text, "f");
  auto results = xfc::evaluate(program.function(), shape.shape(), inputs);
  EXPECT_TRUE(succeeded(results));
  return *results;
}

void expectRow(const Tensor &tensor, int64_t row, const std::vector<double> &expected, double tolerance) {
  ASSERT_EQ(tensor.features(), static_cast<int64_t>(expected.size()));
  for (size_t f = 0; f < expected.size(); ++f)
    EXPECT_NEAR(tensor.row(row)[f], expected[f], tolerance) << "row " << row << ", feature " << f;
}

// Published results of philox4x32 with 7 rounds (the kat_vectors of Random123).
TEST(Philox, equalsPublishedVectors) {
  auto expect = [](std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key, std::array<uint32_t, 4> expected) {
    std::array<uint32_t, 4> out;
    xfc_philox(counter.data(), key.data(), out.data());
    EXPECT_EQ(out, expected);
  };
  const uint32_t ones = 0xffffffffu;
  expect({0, 0, 0, 0}, {0, 0}, {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48});
  expect({ones, ones, ones, ones}, {ones, ones}, {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662});
  expect({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
         {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a});
}

// Random numbers of features, from an independent implementation of the layout in abi.h.
TEST(Philox, numbersFeatures) {
  const uint32_t key[2] = {0x12345678u, 0x9abcdef0u};
  EXPECT_EQ(xfc_random(key, 3, 17, 0, 0, 0), 0x23d5u);
  EXPECT_EQ(xfc_random(key, 3, 17, 1, 70, 0), 0xc52au);
  EXPECT_EQ(xfc_random(key, 1, 0, 100, 511, 0), 0x58a0u);
}

// The same of attention weights.
TEST(Philox, numbersPairs) {
  const uint32_t key[2] = {0x12345678u, 0x9abcdef0u};
  EXPECT_EQ(xfc_random(key, 9, 5, 2, 3, 2), 0x2baau);
  EXPECT_EQ(xfc_random(key, 9, 5, 2, 11, 2), 0x7242u);
  EXPECT_EQ(xfc_random(key, 3, 17, 40, 190, 1), 0x90ecu);
  EXPECT_EQ(xfc_random(key, 1, 0, 0, 64, 8), 0x86d8u);
}

TEST(Dropout, comparesSixteenBits) {
  EXPECT_EQ(xfc_threshold(0), 0u);
  EXPECT_EQ(xfc_threshold(0.3), 19660u); // 19660.8
  EXPECT_EQ(xfc_threshold(0.9999999), 65535u);
}

TEST(Dropout, keepsTheRateAndTheMean) {
  RaggedSequence sequence{std::vector<int32_t>(400, 1), 3};
  const std::string text =
      "func.func @f(%x: !s12) -> !s12 { %y = xfc.dropout %x {rate = 0.3, id = 5 : i64} : !s12\nreturn %y : !s12 }";
  Program program(text, "f");
  Tensor ones{{400, 12}, std::vector<double>(400 * 12, 1.0)};
  Shape shape({sequence}, {}, 0);
  Tensor untouched = (*xfc::evaluate(program.function(), shape.shape(), {ones}))[0];
  EXPECT_EQ(untouched.data, ones.data) << "dropout is the identity outside training";
  shape.setTraining(1, 2);
  Tensor y = (*xfc::evaluate(program.function(), shape.shape(), {ones}))[0];
  int64_t zeros = 0;
  for (double value : y.data) {
    zeros += value == 0;
    if (value != 0) {
      ASSERT_DOUBLE_EQ(value, 1 / 0.7);
    }
  }
  EXPECT_NEAR(zeros / 4800.0, 0.3, 0.03); // 4.5 standard deviations
}

// A sentence gets the same dropout mask alone and in a batch.
TEST(Dropout, dependsOnTheSentenceAndNotOnTheBatch) {
  const std::string text =
      "func.func @f(%x: !s12) -> !s12 { %y = xfc.dropout %x {rate = 0.5, id = 5 : i64} : !s12\nreturn %y : !s12 }";
  Program program(text, "f");
  RaggedSequence a{{1, 2, 3}, 40}, b{{4, 5}, 41};
  Shape both({a, b}, {}, 0), alone({b}, {}, 0);
  both.setTraining(1, 2);
  alone.setTraining(1, 2);
  Tensor y = (*xfc::evaluate(program.function(), both.shape(), {Tensor{{5, 12}, std::vector<double>(60, 1.0)}}))[0];
  Tensor z = (*xfc::evaluate(program.function(), alone.shape(), {Tensor{{2, 12}, std::vector<double>(24, 1.0)}}))[0];
  EXPECT_EQ(std::vector<double>(y.data.begin() + 36, y.data.end()), z.data);
  EXPECT_NE(std::vector<double>(y.data.begin(), y.data.begin() + 24), z.data);
}

// x rounded to the compute type: a product with the identity matrix, whose entries are exact in that type.
std::vector<double> roundedBy(const std::string &compute, const std::vector<double> &x) {
  const auto n = static_cast<int64_t>(x.size());
  const std::string rows = "!xfc.rows<source, " + std::to_string(n) + "xf32>",
                    tensor = "tensor<" + std::to_string(n) + "x" + std::to_string(n) + "xf32>";
  Tensor identity{{n, n}, std::vector<double>(n * n, 0.0)};
  for (int64_t i = 0; i < n; ++i)
    identity.row(i)[i] = 1;
  return evaluateOn(1,
                    "func.func @f(%x: " + rows + ", %w: " + tensor + ") -> " + rows + " { %y = xfc.linear %x, %w in " +
                        compute + " : (" + rows + ", " + tensor + ") -> " + rows + "\nreturn %y : " + rows + " }",
                    {Tensor{{1, n}, x}, identity})[0]
      .data;
}

// Expected: rounded to the nearest, ties to even.
TEST(ComputeTypes, bf16IsTheNearest) {
  EXPECT_EQ(roundedBy("bf16", {1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 + 0x1.01p-8, -0x1.fep-3, 3.38953e38, 0}),
            (std::vector<double>{1, 1 + 0x1p-6, 1 + 0x1p-7, -0x1.fep-3, 0x1.fep127, 0}));
  std::vector<double> x, expected;
  for (uint32_t i = 0; i < 200; ++i) {
    const uint32_t bits = (i * 2654435761u & 0x807fffffu) | (100 + i % 60) << 23;
    x.push_back(std::bit_cast<float>(bits));
    expected.push_back(std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u));
  }
  EXPECT_EQ(roundedBy("bf16", x), expected);
}

TEST(ComputeTypes, int8IsARowsOwnScale) {
  EXPECT_EQ(roundedBy("int8", {-127, 1, -0.4, 63.5, 64.5, 126.6}), (std::vector<double>{-127, 1, 0, 64, 64, 127}));
  const std::vector<double> y = roundedBy("int8", {0.5, -0.1});
  EXPECT_DOUBLE_EQ(y[0], 0.5);
  EXPECT_DOUBLE_EQ(y[1], -25 * 0.5 / 127);
  EXPECT_EQ(roundedBy("int8", {0, 0}), (std::vector<double>{0, 0}));
}

// x is rounded as in int8, which leaves the identity alone, and the weight's groups each have a scale: 1 and 0.25.
TEST(ComputeTypes, int4HasAScaleForEachGroup) {
  std::vector<double> weight(40, 0.0), expected(40, 0.0);
  for (auto [at, w, nearest] : std::initializer_list<std::tuple<int, double, double>>{
           {0, -8, -8}, {1, 7.6, 7}, {2, 0.5, 0}, {3, 1.5, 2}, {32, 2, 2}, {33, -1.9, -1.75}, {34, -0.13, -0.25}}) {
    weight[at] = w;
    expected[at] = nearest;
  }
  const std::string rows = "!xfc.rows<source, 40xf32>", tensor = "tensor<1x40xf32>", y = "!xfc.rows<source, 1xf32>";
  for (int at = 0; at < 40; ++at) {
    std::vector<double> x(40, 0.0);
    x[at] = 127;
    EXPECT_EQ(evaluateOn(1,
                         "func.func @f(%x: " + rows + ", %w: " + tensor + ") -> " + y +
                             " { %y = xfc.linear %x, %w in int4 : (" + rows + ", " + tensor + ") -> " + y +
                             "\nreturn %y : " + y + " }",
                         {Tensor{{1, 40}, x}, Tensor{{1, 40}, weight}})[0]
                  .data[0],
              127 * expected[at])
        << at;
  }
}

// The positional encoding of the book, with doubled exponents: PE(2), PE(10) and their cosine.
TEST(Book, positionalEncoding) {
  Tensor table = evaluateOn(1,
                            "func.func @f() -> tensor<11x512xf64> { %t = xfc.sinusoid {exponent_multiplier = 2.0} : () "
                            "-> tensor<11x512xf64>\n"
                            "return %t : tensor<11x512xf64> }",
                            {})[0];
  const double *two = table.row(2), *ten = table.row(10);
  // The book prints 32-bit numbers.
  EXPECT_FLOAT_EQ(two[0], 9.09297407e-01f);
  EXPECT_FLOAT_EQ(two[1], -4.16146845e-01f);
  EXPECT_FLOAT_EQ(ten[0], -5.44021130e-01f);
  EXPECT_FLOAT_EQ(ten[1], -8.39071512e-01f);
  EXPECT_FLOAT_EQ(ten[2], 1.18776485e-01f);
  EXPECT_FLOAT_EQ(ten[510], 1.07460785e-07f);
  double dot = 0, twos = 0, tens = 0;
  for (int i = 0; i < 512; ++i) {
    dot += two[i] * ten[i];
    twos += two[i] * two[i];
    tens += ten[i] * ten[i];
  }
  EXPECT_NEAR(dot / std::sqrt(twos * tens), 0.8600013, 5e-8);
}

// The self-attention of the book: d_model 4, d_k 3, divisor 1.
TEST(Book, attention) {
  const std::string text = R"(
    !p = !xfc.pairs<source, source, 1xf64>
    func.func @f(%q: !s3, %k: !s3, %v: !s3) -> (!p, !s3) {
      %s = xfc.scores %q, %k : (!s3, !s3) -> !p
      %p = xfc.softmax %s : !p
      %o = xfc.combine %p, %v : (!p, !s3) -> !s3
      return %p, %o : !p, !s3
    })";
  auto results = evaluateOn(3, text,
                            {Tensor{{3, 3}, {1, 0, 2, 2, 2, 2, 2, 1, 3}}, Tensor{{3, 3}, {0, 1, 1, 4, 4, 0, 2, 3, 1}},
                             Tensor{{3, 3}, {1, 2, 3, 2, 8, 0, 2, 6, 3}}});
  results[0].shape = {3, 3};
  expectRow(results[0], 0, {0.06337894, 0.46831053, 0.46831053}, 1e-8);
  expectRow(results[0], 1, {6.03366485e-06, 9.82007865e-01, 1.79861014e-02}, 1e-9);
  expectRow(results[0], 2, {2.95387223e-04, 8.80536902e-01, 1.19167711e-01}, 1e-9);
  expectRow(results[1], 0, {1.93662106, 6.68310531, 1.59506841}, 1e-8);
}

TEST(Sinusoid, halvesAndCosineOffset) {
  Tensor table = evaluateOn(1,
                            "func.func @f() -> tensor<4x5xf64> { %t = xfc.sinusoid {halves, cosine_offset = 1.0, base "
                            "= 100.0} : () -> tensor<4x5xf64>\n"
                            "return %t : tensor<4x5xf64> }",
                            {})[0];
  auto angle = [](double exponent) { return 3 / std::pow(100, exponent); };
  expectRow(
      table, 3,
      {std::sin(angle(0)), std::sin(angle(0.4)), std::sin(angle(0.8)), std::cos(angle(0.2)), std::cos(angle(0.6))},
      1e-15);
}

// x = 1, 2, 3, 6: mean 3, variance 14/4, unbiased 14/3, mean of squares 50/4.
TEST(Norm, variants) {
  const Tensor x{{1, 4}, {1, 2, 3, 6}}, w{{4}, {1, 2, 3, 4}}, b{{4}, {0.5, 0, 0, -1}};
  auto expect = [&](const std::string &attributes, double r) {
    auto results =
        evaluateOn(1,
                   "func.func @f(%x: !s4, %w: tensor<4xf64>, %b: tensor<4xf64>) -> (!s4, !s2) { %y, %s = xfc.norm %x, "
                   "%w, %b {eps = 0.1" +
                       attributes + "} : (!s4, tensor<4xf64>, tensor<4xf64>) -> (!s4, !s2)\nreturn %y, %s : !s4, !s2 }",
                   {x, w, b});
    expectRow(results[0], 0, {-2 * r + 0.5, -2 * r, 0, 12 * r - 1}, 1e-14);
    expectRow(results[1], 0, {3, r}, 1e-14);
  };
  expect("", 1 / std::sqrt(3.5 + 0.1));
  expect(", unbiased", 1 / std::sqrt(14.0 / 3 + 0.1));
  expect(", eps_in_std", 1 / (std::sqrt(3.5) + 0.1));
  expect(", unbiased, eps_in_std", 1 / (std::sqrt(14.0 / 3) + 0.1));
  auto rms = evaluateOn(
      1,
      "func.func @f(%x: !s4, %w: tensor<4xf64>) -> (!s4, !s2) { %y, %s = xfc.norm %x, %w {eps = 0.1, kind = 1 : i32} : "
      "(!s4, tensor<4xf64>) -> (!s4, !s2)\nreturn %y, %s : !s4, !s2 }",
      {x, w});
  double r = 1 / std::sqrt(12.5 + 0.1);
  expectRow(rms[0], 0, {r, 4 * r, 9 * r, 24 * r}, 1e-14);
  expectRow(rms[1], 0, {0, r}, 1e-14);
}

// A row of one feature has no unbiased variance, and equal features have no deviation: the results must still be
// finite.
TEST(Norm, degenerateRowsAreFinite) {
  for (const char *attributes : {"", ", unbiased", ", eps_in_std", ", unbiased, eps_in_std"})
    for (int features : {1, 3}) {
      const std::string n = std::to_string(features), rows = "!s" + n, tensor = "tensor<" + n + "xf64>";
      auto results = evaluateOn(
          1,
          "func.func @f(%x: " + rows + ", %w: " + tensor + ", %dy: " + rows + ") -> (" + rows + ", " + rows +
              ") { %y, %s = xfc.norm %x, %w {eps = 0.01" + attributes + "} : (" + rows + ", " + tensor + ") -> (" +
              rows + ", !s2)\n%dx = xfc.norm_grad %dy, %x, %w, %s {eps = 0.01" + attributes + "} : (" + rows + ", " +
              rows + ", " + tensor + ", !s2) -> " + rows + "\nreturn %y, %dx : " + rows + ", " + rows + " }",
          {Tensor{{1, features}, std::vector<double>(features, 2.0)},
           Tensor{{features}, std::vector<double>(features, 1.5)},
           Tensor{{1, features}, std::vector<double>(features, 1.0)}});
      for (const Tensor &result : results)
        for (double value : result.data)
          EXPECT_NEAR(value, 0, 1e-12) << attributes << ", " << features;
    }
}

TEST(Activation, values) {
  auto at = [](const std::string &kind, double x) {
    return evaluateOn(1, "func.func @f(%x: !s1) -> !s1 { %y = xfc.activation " + kind + " %x : !s1\nreturn %y : !s1 }",
                      {Tensor{{1, 1}, {x}}})[0]
        .data[0];
  };
  EXPECT_EQ(at("relu", -1.5), 0);
  EXPECT_EQ(at("relu", 1.5), 1.5);
  EXPECT_NEAR(at("gelu", 1), 0.8413447460685429, 1e-15); // the normal cumulative distribution function at 1
  EXPECT_NEAR(at("gelu", -2), -2 * 0.02275013194817921, 1e-15);
  EXPECT_NEAR(at("silu", 1), 0.7310585786300049, 1e-15);
  EXPECT_NEAR(at("gelu_tanh", 1), 0.84119199060827, 1e-13);
  EXPECT_EQ(at("squared_relu", 3), 9);
  EXPECT_EQ(at("squared_relu", -3), 0);
  EXPECT_NEAR(at("tanh", 0.5), 0.46211715726000973, 1e-15);
}

static std::vector<double> distanceBias(int64_t distances, const std::string &attributes, int64_t buckets,
                                        int64_t heads) {
  Tensor table{{buckets, heads}, {}};
  for (int64_t i = 0; i < buckets * heads; ++i)
    table.data.push_back(i);
  const std::string type = "tensor<" + std::to_string(buckets) + "x" + std::to_string(heads) + "xf64>",
                    bias = "tensor<" + std::to_string(distances) + "x" + std::to_string(2 * heads) + "xf64>";
  return evaluateOn(1,
                    "func.func @f(%t: " + type + ") -> " + bias + " { %b = xfc.distance_bias %t " + attributes +
                        " : (" + type + ") -> " + bias + "\nreturn %b : " + bias + " }",
                    {table})[0]
      .data;
}

// The first distance of each bucket as T5's own code computes them, for 32 buckets and a maximum distance of 128.
TEST(DistanceBias, buckets) {
  const std::vector<int64_t> both = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91},
                             one = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                    16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
  auto bucketOf = [](const std::vector<int64_t> &first, int64_t distance) {
    return std::upper_bound(first.begin(), first.end(), distance) - first.begin() - 1;
  };
  const std::vector<double> two = distanceBias(300, "{max_distance = 128 : i64, both_directions}", 32, 1),
                            before = distanceBias(300, "{max_distance = 128 : i64}", 32, 1);
  for (int64_t t = 0; t < 300; ++t) {
    EXPECT_EQ(two[2 * t], bucketOf(both, t)) << t;
    EXPECT_EQ(two[2 * t + 1], t ? 16 + bucketOf(both, t) : 0) << t;
    EXPECT_EQ(before[2 * t], bucketOf(one, t)) << t;
    EXPECT_EQ(before[2 * t + 1], 0) << t;
  }
}

// For 8 heads 1/2, 1/4, .. 1/256; for 6, the slopes of 4 heads followed by every second one of 8.
TEST(DistanceBias, slopes) {
  auto slopes = [](int64_t heads) {
    const std::string bias = "tensor<3x" + std::to_string(2 * heads) + "xf64>";
    const Tensor table = evaluateOn(
        1, "func.func @f() -> " + bias + " { %b = xfc.distance_bias : () -> " + bias + "\nreturn %b : " + bias + " }",
        {})[0];
    std::vector<double> found;
    for (int64_t h = 0; h < heads; ++h) {
      EXPECT_EQ(table.row(0)[2 * h], 0);
      EXPECT_EQ(table.row(2)[2 * h], 2 * table.row(1)[2 * h]);
      EXPECT_EQ(table.row(2)[2 * h + 1], table.row(2)[2 * h]);
      found.push_back(-table.row(1)[2 * h]);
    }
    return found;
  };
  EXPECT_EQ(slopes(8), (std::vector<double>{1 / 2., 1 / 4., 1 / 8., 1 / 16., 1 / 32., 1 / 64., 1 / 128., 1 / 256.}));
  EXPECT_EQ(slopes(6), (std::vector<double>{1 / 4., 1 / 16., 1 / 64., 1 / 256., 1 / 2., 1 / 8.}));
}

// Each score gets the entry for its distance: queries at 0 and 1 of two tokens, entries [before, after] of one head.
TEST(DistanceBias, isAddedToTheScoresOfItsDistance) {
  const auto results = evaluateOn(2, R"(
    !p = !xfc.pairs<source, source, 1xf64>
    func.func @f(%q: !s1, %bias: tensor<3x2xf64>) -> (!p, !s2) {
      %s = xfc.scores %q, %q : (!s1, !s1) -> !p
      %y = xfc.add_distance_bias %s, %bias : (!p, tensor<3x2xf64>) -> !p
      %d = xfc.sum_distances %y : (!p) -> !s2
      return %y, %d : !p, !s2
    })",
                                  {Tensor{{2, 1}, {1, 10}}, Tensor{{3, 2}, {1000, 9, 2000, 3000, 9, 9}}});
  EXPECT_EQ(results[0].data, (std::vector<double>{1001, 3010, 2010, 1100}));
  expectRow(results[1], 0, {1001 + 1100, 0}, 0);
  expectRow(results[1], 1, {2010, 3010}, 0);
}

// One head of five features at positions 0 and 1: at position 1, the two pairs of the first four features rotate by 1
// and 1/10.
TEST(Rotate, values) {
  const Tensor x{{2, 5}, {1, 2, 3, 4, 5, 1, 2, 3, 4, 5}};
  const double s = std::sin(1), c = std::cos(1), s2 = std::sin(0.1), c2 = std::cos(0.1);
  auto rotated = [&](const std::string &layout, const std::string &attributes) {
    return evaluateOn(2,
                      "func.func @f(%x: !s5) -> !s5 { %t = xfc.sinusoid {base = 100.0" + layout +
                          "} : () -> tensor<3x4xf64>\n%y = xfc.rotate %x, %t {heads = 1 : i64" + layout + attributes +
                          "} : (!s5, tensor<3x4xf64>) -> !s5\nreturn %y : !s5 }",
                      {x})[0];
  };
  const Tensor pairs = rotated("", ""), halves = rotated(", halves", ""), back = rotated("", ", inverse");
  expectRow(pairs, 0, {1, 2, 3, 4, 5}, 0);
  expectRow(pairs, 1, {c - 2 * s, 2 * c + s, 3 * c2 - 4 * s2, 4 * c2 + 3 * s2, 5}, 1e-14);
  expectRow(halves, 0, {1, 2, 3, 4, 5}, 0);
  expectRow(halves, 1, {c - 3 * s, 2 * c2 - 4 * s2, 3 * c + s, 4 * c2 + 2 * s2, 5}, 1e-14);
  expectRow(back, 1, {c + 2 * s, 2 * c - s, 3 * c2 + 4 * s2, 4 * c2 - 3 * s2, 5}, 1e-14);
}

// Three tokens whose scores are all 0: a query gets the mean of the visible values, which two heads share.
TEST(Attention, seesKeysWithinReach) {
  auto means = [](const std::string &attributes) {
    return evaluateOn(3,
                      "func.func @f(%q: !s2, %k: !s1) -> !s2 { %o, %lse = xfc.attention %q, %k, %k {heads = 2 : i64, "
                      "scale = 0.0, " +
                          attributes + "} : (!s2, !s1, !s1) -> (!s2, !s2)\nreturn %o : !s2 }",
                      {Tensor{{3, 2}, {1, 1, 1, 1, 1, 1}}, Tensor{{3, 1}, {1, 10, 100}}})[0];
  };
  const Tensor both = means("reach = 1 : i64"), causal = means("causal, reach = 1 : i64"),
               own = means("reach = 0 : i64");
  const double expected[3][3] = {{5.5, 37, 55}, {1, 5.5, 55}, {1, 10, 100}};
  for (int64_t i = 0; i < 3; ++i) {
    expectRow(both, i, {expected[0][i], expected[0][i]}, 1e-13);
    expectRow(causal, i, {expected[1][i], expected[1][i]}, 1e-13);
    expectRow(own, i, {expected[2][i], expected[2][i]}, 1e-13);
  }
}

// Queries that see no key give 0, forward and backward, unfused and fused.
TEST(Attention, ofNothingIsZero) {
  OddBatch batch;
  Program program("func.func @f(%q: !t6 {xfc.name = \"q\"}, %k: !s6 {xfc.name = \"k\"}, %v: !s6 {xfc.name = \"v\"}) -> "
                  "(!t6, !t6, !t2, !ts) {\n"
                  "%s = xfc.scores %q, %k : (!t6, !s6) -> !ts\n%m = xfc.mask %s : !ts\n%p = xfc.softmax %m : !ts\n"
                  "%o = xfc.combine %p, %v : (!ts, !s6) -> !t6\n"
                  "%a, %lse, %w = xfc.attention %q, %k, %v {heads = 2 : i64, scale = 1.0, padding} : (!t6, !s6, !s6) "
                  "-> (!t6, !t2, !ts)\n"
                  "return %o, %a, %lse, %w : !t6, !t6, !t2, !ts\n}",
                  "f");
  auto results = program.evaluate(batch);
  const int64_t row = 2; // the target whose source has only pads
  ASSERT_EQ(batch.shape().keys[XFC_KEYS(XFC_TARGET_SOURCE, 1, 0)].limit[row], 0);
  for (int result : {0, 1})
    expectRow(results[result], row, {0, 0, 0, 0, 0, 0}, 0);
  expectRow(results[2], row, {0, 0}, 0);
  double sum = 0;
  for (double weight : results[3].data)
    sum += weight;
  EXPECT_NEAR(sum, 2 * 6, 1e-12) << "2 heads of 6 queries that see a key";
}

// With e = 0.1 and 4 words: 0.9 nll + 0.1/4 of the sum over the vocabulary.
TEST(Loss, labelSmoothing) {
  const double p[4] = {0.1, 0.2, 0.3, 0.4};
  Tensor logits{{2, 4}, {}};
  for (int row = 0; row < 2; ++row)
    for (double probability : p)
      logits.data.push_back(std::log(probability) + 7);
  auto results =
      evaluateOn(2,
                 "func.func @f(%z: !s4, %labels: !sids, %e: tensor<f64>) -> (!s, !s, !s) {\n"
                 "%loss, %nll, %lse = xfc.cross_entropy %z, %labels, %e : (!s4, !sids, tensor<f64>) -> (!s, !s, !s)\n"
                 "return %loss, %nll, %lse : !s, !s, !s }",
                 {logits, Tensor{{2}, {2, -1}}, Tensor{{}, {0.1}}});
  double sum = -std::log(0.1 * 0.2 * 0.3 * 0.4);
  EXPECT_NEAR(results[0].data[0], 0.9 * -std::log(0.3) + 0.1 / 4 * sum, 1e-14);
  EXPECT_NEAR(results[1].data[0], -std::log(0.3), 1e-14);
  EXPECT_NEAR(results[2].data[0], 7, 1e-14);
  EXPECT_EQ(results[0].data[1], 0) << "a row whose label is negative has no loss";
  EXPECT_EQ(results[1].data[1], 0);
}

// A list of labels: 0.08 is spread evenly, the label has 0.32, a token 0.3, the label once more 0.2; -1 has no share.
TEST(Loss, listsOfLabels) {
  const double p[4] = {0.1, 0.2, 0.3, 0.4};
  Tensor logits{{2, 4}, {}};
  for (int row = 0; row < 2; ++row)
    for (double probability : p)
      logits.data.push_back(std::log(probability) - 2);
  const std::string types = "(!s4, !xfc.rows<source, 4xi32>, !s5)";
  auto results = evaluateOn(2,
                            "func.func @f(%z: !s4, %labels: !xfc.rows<source, 4xi32>, %e: !s5) -> (!s, !s, !s, !s4) {\n"
                            "%loss, %nll, %lse = xfc.cross_entropy %z, %labels, %e : " +
                                types +
                                " -> (!s, !s, !s)\n"
                                "%d = xfc.cross_entropy_grad %z, %nll, %labels, %lse, %e : (!s4, !s, "
                                "!xfc.rows<source, 4xi32>, !s, !s5) -> !s4\n"
                                "return %loss, %nll, %lse, %d : !s, !s, !s, !s4 }",
                            {logits, Tensor{{2, 4}, {2, 0, -1, 2, -1, 0, 1, 2}},
                             Tensor{{2, 5}, {0.08, 0.32, 0.3, 9, 0.2, 0.1, 0.2, 0.3, 0.4, 0.5}}});
  const double nll = -std::log(0.3), target[4] = {0.32, 0.02, 0.54, 0.02}; // 0.9 in all
  EXPECT_NEAR(results[0].data[0], 0.52 * nll - 0.3 * std::log(0.1) - 0.02 * std::log(0.1 * 0.2 * 0.3 * 0.4), 1e-14);
  EXPECT_NEAR(results[1].data[0], nll, 1e-14);
  EXPECT_NEAR(results[2].data[0], -2, 1e-14);
  for (int v = 0; v < 4; ++v)
    EXPECT_NEAR(results[3].data[v], nll * (0.9 * p[v] - target[v]), 1e-14) << v;
  EXPECT_EQ(results[0].data[1], 0) << "a row whose first label is negative has no loss";
  EXPECT_EQ(results[1].data[1], 0);
  EXPECT_EQ(results[3].row(1)[0], 0);
}

// Two heads: the first row links its third key, the second the first two keys, and the third none.
TEST(Loss, alignment) {
  const Tensor p{{18}, {0.1, 0.2, 0.7, 0.5, 0.25, 0.25, 0.3, 0.3, 0.4, 0.3, 0.3, 0.4, 0.1, 0.85, 0.05, 0, 0, 1}};
  for (const bool one : {false, true}) {
    const std::string attribute = one ? " {head = 1 : i64}" : "";
    auto results = evaluateOn(
        3,
        "!links = !xfc.rows<source, 2xi32>\n"
        "func.func @f(%x: !s, %p: !ss, %links: !links, %shares: !s2) -> (!s, !s, !s2, !ss) {\n"
        "%loss, %alignment, %means = xfc.alignment_loss %x, %p, %links, %shares" +
            attribute +
            " : (!s, !ss, !links, !s2) -> (!s, !s, !s2)\n"
            "%dp = xfc.alignment_loss_grad %x, %means, %links, %shares" +
            attribute +
            " : (!s, !s2, !links, !s2) -> !ss\n"
            "return %loss, %alignment, %means, %dp : !s, !s, !s2, !ss }",
        {Tensor{{3}, {2, 3, 4}}, p, Tensor{{3, 2}, {2, -1, 1, 0, -1, -1}}, Tensor{{3, 2}, {0.1, 9, 0.2, 0.4, 9, 9}}});
    const double third = one ? 0.4 : 0.55, second = one ? 0.85 : 0.55, first = one ? 0.1 : 0.3;
    const double alignment[] = {-0.1 * std::log(third + 1e-6),
                                -0.2 * std::log(second + 1e-6) - 0.4 * std::log(first + 1e-6), 0};
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(results[0].data[i], 2 + static_cast<double>(i) + alignment[i], 1e-14);
      EXPECT_NEAR(results[1].data[i], alignment[i], 1e-14);
    }
    expectRow(results[2], 0, {third, 0}, 1e-15);
    expectRow(results[2], 1, {second, first}, 1e-15);
    expectRow(results[2], 2, {0, 0}, 0);
    const double heads = one ? 1 : 2;
    std::vector<double> expected(18);
    for (const int64_t head : one ? std::vector<int64_t>{1} : std::vector<int64_t>{0, 1}) {
      expected[9 * head + 2] = -2 * 0.1 / (heads * (third + 1e-6));
      expected[9 * head + 4] = -3 * 0.2 / (heads * (second + 1e-6));
      expected[9 * head + 3] = -3 * 0.4 / (heads * (first + 1e-6));
    }
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(results[3].data[i], expected[i], 1e-13) << i;
  }
}

// The first step of Adam moves every parameter by lr, whatever the gradient's size; the clipping factor is min(1,
// limit/norm).
TEST(Adam, firstStepAndClipping) {
  const std::string text = R"(
    func.func @f(%h: tensor<10xf64>, %p: tensor<2xf64>, %g: tensor<2xf64>, %m: tensor<2xf64>, %v: tensor<2xf64>, %limit: tensor<f64>)
        -> (tensor<2xf64>, tensor<2xf64>, tensor<2xf64>, tensor<f64>, tensor<f64>) {
      %s = xfc.square_sum %g : (tensor<2xf64>) -> tensor<1xf64>
      %factor, %norm = xfc.clip_factor %limit, %s : (tensor<f64>, tensor<1xf64>) -> (tensor<f64>, tensor<f64>)
      %a, %b, %c = xfc.optimize "adam" %h, %factor parameters(%p) gradients(%g) states(%m, %v)
        : (tensor<10xf64>, tensor<f64>, tensor<2xf64>, tensor<2xf64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<2xf64>, tensor<2xf64>, tensor<2xf64>)
      return %a, %b, %c, %factor, %norm : tensor<2xf64>, tensor<2xf64>, tensor<2xf64>, tensor<f64>, tensor<f64>
    })";
  const Tensor zero{{2}, {0, 0}}, gradient{{2}, {3, -4}};
  auto step = [&](std::vector<double> hyper, double limit, double value = HUGE_VAL) {
    hyper.insert(hyper.end(), {value, 1}); // and the step
    return evaluateOn(1, text,
                      {Tensor{{10}, std::move(hyper)}, Tensor{{2}, {1, 2}}, gradient, zero, zero, Tensor{{}, {limit}}});
  };
  auto plain = step({0.01, 0.9, 0.98, 0, 0, 0, 0.1, 0.02}, 0);
  expectNear(plain[0], Tensor{{2}, {0.99, 2.01}}, 1e-15, "parameters");
  expectNear(plain[1], Tensor{{2}, {0.3, -0.4}}, 1e-15, "first moments");
  expectNear(plain[2], Tensor{{2}, {0.18, 0.32}}, 1e-15, "second moments");
  EXPECT_EQ(plain[3].data[0], 1);
  EXPECT_EQ(plain[4].data[0], 5);
  auto clipped = step({0.01, 0.9, 0.98, 0, 0, 0, 0.1, 0.02}, 1);
  EXPECT_DOUBLE_EQ(clipped[3].data[0], 0.2);
  expectNear(clipped[1], Tensor{{2}, {0.06, -0.08}}, 1e-15, "first moments, clipped");
  EXPECT_EQ(step({0.01, 0.9, 0.98, 0, 0, 0, 0.1, 0.02}, 6)[3].data[0], 1) << "a norm below the limit is not scaled up";
  // Elements are clipped after clipping by norm, here 0.6 and -0.8.
  auto elements = step({0.01, 0.9, 0.98, 0, 0, 0, 0.1, 0.02}, 1, 0.7);
  expectNear(elements[1], Tensor{{2}, {0.06, -0.07}}, 1e-15, "first moments, the larger element clipped");
  expectNear(elements[2], Tensor{{2}, {0.0072, 0.0098}}, 1e-15, "second moments, the larger element clipped");
  EXPECT_EQ(elements[4].data[0], 5) << "the norm is that of before";
  // AdamW: decoupled decay acts on the parameter alone; L2 is added to the gradient.
  auto decayed = step({0.01, 0.9, 0.98, 0, 0, 0.5, 0.1, 0.02}, 0);
  expectNear(decayed[0], Tensor{{2}, {0.99 - 0.01 * 0.5 * 1, 2.01 - 0.01 * 0.5 * 2}}, 1e-15, "parameters, decayed");
  auto l2 = step({0.01, 0.9, 0.98, 0, 0.5, 0, 0.1, 0.02}, 0);
  expectNear(l2[1], Tensor{{2}, {0.35, -0.3}}, 1e-15, "first moments, l2");
}

// Two steps of SGD with momentum, by hand: m = 0.9 m + g + 0.5 p, p = p - 0.1 m.
TEST(Sgd, twoSteps) {
  const std::string text = R"(
    func.func @f(%h: tensor<5xf64>, %factor: tensor<f64>, %p: tensor<2xf64>, %q: tensor<1xf64>, %g: tensor<2xf64>, %i: tensor<1xf64>, %m: tensor<2xf64>, %n: tensor<1xf64>)
        -> (tensor<2xf64>, tensor<1xf64>, tensor<2xf64>, tensor<1xf64>) {
      %r:4 = xfc.optimize "sgd" %h, %factor parameters(%p, %q) gradients(%g, %i) states(%m, %n)
        : (tensor<5xf64>, tensor<f64>, tensor<2xf64>, tensor<1xf64>, tensor<2xf64>, tensor<1xf64>, tensor<2xf64>, tensor<1xf64>)
        -> (tensor<2xf64>, tensor<1xf64>, tensor<2xf64>, tensor<1xf64>)
      return %r#0, %r#1, %r#2, %r#3 : tensor<2xf64>, tensor<1xf64>, tensor<2xf64>, tensor<1xf64>
    })";
  const Tensor hyper{{5}, {0.1, 0.9, 0.5, HUGE_VAL, 1}}, factor{{}, {0.5}}, g{{2}, {6, -8}}, i{{1}, {2}};
  auto first = evaluateOn(1, text, {hyper, factor, {{2}, {1, 2}}, {{1}, {4}}, g, i, {{2}, {0, 0}}, {{1}, {10}}});
  expectNear(first[0], Tensor{{2}, {0.65, 2.3}}, 1e-15, "parameters");
  expectNear(first[1], Tensor{{1}, {2.8}}, 1e-15, "the other parameter");
  expectNear(first[2], Tensor{{2}, {3.5, -3}}, 1e-15, "momentum");
  expectNear(first[3], Tensor{{1}, {12}}, 1e-15, "the other's momentum");
  auto second = evaluateOn(1, text, {hyper, factor, first[0], first[1], g, i, first[2], first[3]});
  expectNear(second[2], Tensor{{2}, {6.475, -5.55}}, 1e-14, "momentum of the second step");
  expectNear(second[0], Tensor{{2}, {0.0025, 2.855}}, 1e-14, "parameters after the second step");
}

// SGD with a moving average of the parameters: p = p - 0.1 g, a = a + 0.25 (p - a).
TEST(Sgd, average) {
  const std::string text = R"(
    func.func @f(%h: tensor<6xf64>, %factor: tensor<f64>, %p: tensor<2xf64>, %q: tensor<1xf64>, %g: tensor<2xf64>, %i: tensor<1xf64>, %m: tensor<2xf64>, %n: tensor<1xf64>, %a: tensor<2xf64>, %b: tensor<1xf64>)
        -> (tensor<2xf64>, tensor<1xf64>, tensor<2xf64>, tensor<1xf64>, tensor<2xf64>, tensor<1xf64>) {
      %r:6 = xfc.optimize "sgd_ema" %h, %factor parameters(%p, %q) gradients(%g, %i) states(%m, %n, %a, %b)
        : (tensor<6xf64>, tensor<f64>, tensor<2xf64>, tensor<1xf64>, tensor<2xf64>, tensor<1xf64>, tensor<2xf64>, tensor<1xf64>, tensor<2xf64>, tensor<1xf64>)
        -> (tensor<2xf64>, tensor<1xf64>, tensor<2xf64>, tensor<1xf64>, tensor<2xf64>, tensor<1xf64>)
      return %r#0, %r#1, %r#2, %r#3, %r#4, %r#5 : tensor<2xf64>, tensor<1xf64>, tensor<2xf64>, tensor<1xf64>, tensor<2xf64>, tensor<1xf64>
    })";
  const Tensor hyper{{6}, {0.1, 0, 0, HUGE_VAL, 0.25, 1}}, one{{}, {1}}, zeros{{2}, {0, 0}}, zero{{1}, {0}};
  auto step = evaluateOn(
      1, text,
      {hyper, one, {{2}, {1, 2}}, {{1}, {4}}, {{2}, {5, -10}}, {{1}, {20}}, zeros, zero, {{2}, {2.5, 3}}, {{1}, {0}}});
  expectNear(step[0], Tensor{{2}, {0.5, 3}}, 1e-15, "parameters");
  expectNear(step[1], Tensor{{1}, {2}}, 1e-15, "the other parameter");
  expectNear(step[4], Tensor{{2}, {2, 3}}, 1e-15, "averages");
  expectNear(step[5], Tensor{{1}, {0.5}}, 1e-15, "the other's average");
}

// A step of Lion by hand: the sign of 0.5 m + 0.5 g is the direction, and the new state is m = 0.75 m + 0.25 g.
TEST(Lion, step) {
  const std::string text = R"(
    func.func @f(%h: tensor<6xf64>, %factor: tensor<f64>, %p: tensor<4xf64>, %g: tensor<4xf64>, %m: tensor<4xf64>) -> (tensor<4xf64>, tensor<4xf64>) {
      %r:2 = xfc.optimize "lion" %h, %factor parameters(%p) gradients(%g) states(%m)
        : (tensor<6xf64>, tensor<f64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>) -> (tensor<4xf64>, tensor<4xf64>)
      return %r#0, %r#1 : tensor<4xf64>, tensor<4xf64>
    })";
  const Tensor hyper{{6}, {0.1, 0.5, 0.75, 0.5, HUGE_VAL, 1}},
      factor{{}, {0.5}}; // rate, beta1, beta2, decay, limit, step
  // The updates: down, up, and twice none, because gradient and mean cancel out or are 0.
  const auto stepped =
      evaluateOn(1, text, {hyper, factor, {{4}, {1, 2, -4, 8}}, {{4}, {6, 2, -4, 0}}, {{4}, {1, -8, 2, 0}}});
  expectNear(stepped[0], Tensor{{4}, {0.85, 2, -3.8, 7.6}}, 1e-15, "parameters");
  expectNear(stepped[1], Tensor{{4}, {1.5, -5.75, 1, 0}}, 1e-15, "means");
}

// A step of Adafactor over a matrix and a vector, by hand. The squares of the matrix' gradient, 1, 49, 25 and 25, leave
// the means of rows, 25 and 25, and of columns, 13 and 37, as they are, and so the update is 1/v13, 7/v37, 5/v13,
// 5/v37.
TEST(Adafactor, step) {
  const std::string text = R"(
    !m = tensor<2x2xf64>
    !v = tensor<2xf64>
    !p = tensor<1xf64>
    func.func @f(%h: tensor<8xf64>, %factor: tensor<f64>, %w: !m, %b: !v, %gw: !m, %gb: !v, %r: !v, %s: !v, %c: !v)
        -> (!m, !v, !v, !v, !v, !v, !p, !p) {
      %r1, %s1, %qw, %qb, %sums = xfc.row_moments "adafactor" %h, %factor parameters(%w, %b) gradients(%gw, %gb) rows(%r, %s)
        : (tensor<8xf64>, tensor<f64>, !m, !v, !m, !v, !v, !v) -> (!v, !v, !p, !p, tensor<1x2xf64>)
      %c1, %f = xfc.column_moments "adafactor" %h rows(%r1) sums(%sums) columns(%c)
        : (tensor<8xf64>, !v, tensor<1x2xf64>, !v) -> (!v, !v)
      %uw, %ub = xfc.update_squares "adafactor" %h, %factor gradients(%gw, %gb) rows(%r1, %s1) factors(%f)
        : (tensor<8xf64>, tensor<f64>, !m, !v, !v, !v, !v) -> (!p, !p)
      %w1, %b1 = xfc.factored_update "adafactor" %h, %factor parameters(%w, %b) gradients(%gw, %gb) rows(%r1, %s1) factors(%f)
        squares(%qw, %qb), (%uw, %ub) averages()
        : (tensor<8xf64>, tensor<f64>, !m, !v, !m, !v, !v, !v, !v, !p, !p, !p, !p) -> (!m, !v)
      return %w1, %b1, %r1, %s1, %c1, %f, %uw, %ub : !m, !v, !v, !v, !v, !v, !p, !p
    })";
  // rate, share, eps1, eps2, clip_threshold, scales, decay, limit
  const Tensor hyper{{8}, {0.1, 0.5, 0, 3, 0.5, 1, 0.5, 10}}, factor{{}, {0.5}};
  const auto stepped = evaluateOn(1, text,
                                  {hyper,
                                   factor,
                                   {{2, 2}, {6, 6, -6, 6}},
                                   {{2}, {1, 2}},
                                   {{2, 2}, {2, 14, 10, -10}},
                                   {{2}, {4, 40}},
                                   {{2}, {25, 25}},
                                   {{2}, {0, 28}},
                                   {{2}, {13, 37}}});
  const double v13 = std::sqrt(13), v37 = std::sqrt(37);
  expectNear(stepped[2], Tensor{{2}, {25, 25}}, 1e-14, "means of rows");
  expectNear(stepped[4], Tensor{{2}, {13, 37}}, 1e-14, "means of columns");
  expectNear(stepped[5], Tensor{{2}, {5 / v13, 5 / v37}}, 1e-14, "factors");
  expectNear(stepped[6], Tensor{{1}, {4}}, 1e-14, "the sum of the squares of the update");
  // The rate is 0.1 times the parameter's root mean square of 6, and RMS(update) / clip_threshold is 2.
  expectNear(stepped[0], Tensor{{2, 2}, {4.2 - 0.3 / v13, 4.2 - 2.1 / v37, -4.2 - 1.5 / v13, 4.2 + 1.5 / v37}}, 1e-14,
             "the matrix");
  // The gradients are 2 and, clipped to the limit of 10, 10; the update is 2 / v2 and 10 / 8, and eps2 the larger
  // scale.
  expectNear(stepped[3], Tensor{{2}, {2, 64}}, 1e-14, "means of the vector");
  const double v2 = std::sqrt(2), shrink = 2 * std::sqrt((2 + 1.5625) / 2);
  expectNear(stepped[7], Tensor{{1}, {2 + 1.5625}}, 1e-14, "the sum of the squares of the vector's update");
  expectNear(stepped[1], Tensor{{2}, {0.85 - 0.3 * v2 / shrink, 1.7 - 0.3 * 1.25 / shrink}}, 1e-14, "the vector");
}

// Where nothing of the old means is kept and a row has no gradient, eps1 keeps its mean from 0, and its update is 0.
TEST(Adafactor, rowWithoutGradient) {
  const std::string text = R"(
    !v = tensor<2xf64>
    !p = tensor<1xf64>
    func.func @f(%h: tensor<8xf64>, %factor: tensor<f64>, %w: !v, %g: !v, %r: !v) -> (!v, !v) {
      %r1, %q = xfc.row_moments "adafactor" %h, %factor parameters(%w) gradients(%g) rows(%r)
        : (tensor<8xf64>, tensor<f64>, !v, !v, !v) -> (!v, !p)
      %u = xfc.update_squares "adafactor" %h, %factor gradients(%g) rows(%r1) factors()
        : (tensor<8xf64>, tensor<f64>, !v, !v) -> !p
      %w1 = xfc.factored_update "adafactor" %h, %factor parameters(%w) gradients(%g) rows(%r1) factors()
        squares(%q), (%u) averages() : (tensor<8xf64>, tensor<f64>, !v, !v, !v, !p, !p) -> !v
      return %w1, %r1 : !v, !v
    })";
  const Tensor hyper{{8}, {0.5, 1, 1e-30, 3, 10, 0, 0, HUGE_VAL}}, factor{{}, {1}};
  const auto stepped = evaluateOn(1, text, {hyper, factor, {{2}, {6, 6}}, {{2}, {0, 4}}, {{2}, {1e-6, 1e-6}}});
  expectNear(stepped[0], Tensor{{2}, {6, 5.5}}, 1e-14, "parameters");
  expectNear(stepped[1], Tensor{{2}, {1e-30, 16}}, 1e-40, "means");
}

// Keys and values are written to their slots, and a hypothesis attends only to the rows of its history.
TEST(Cache, writesAndAttends) {
  Shape shape({{{1, 2}, 0}}, {{{5}, 0}, {{6}, 0}}, 0);
  shape.setCache(4, {{0, 3}, {0, 1}});
  Program program(R"(
    !c = !xfc.rows<cache, 2xf64>
    func.func @f(%old: !c, %rows: !t2) -> (!c, !t2) {
      %new = xfc.cache_write %old, %rows : (!c, !t2) -> !c
      %o, %lse = xfc.attention %rows, %new, %new {heads = 1 : i64, scale = 0.0, causal} : (!t2, !c, !c) -> (!t2, !xfc.rows<target, 1xf64>)
      return %new, %o : !c, !t2
    })",
                  "f");
  auto results = xfc::evaluate(program.function(), shape.shape(),
                               {Tensor{{4, 2}, {10, 20, 0, 0, 7, 7, 0, 0}}, Tensor{{2, 2}, {1, 2, 3, 4}}});
  ASSERT_TRUE(succeeded(results));
  EXPECT_EQ((*results)[0].data, (std::vector<double>{10, 20, 3, 4, 7, 7, 1, 2}));
  expectRow((*results)[1], 0, {5.5, 11}, 1e-12); // scores are 0: the mean of rows 0 and 3
  expectRow((*results)[1], 1, {6.5, 12}, 1e-12);
}

// The first 16 columns are rows, and the next ones the rows of a cache that hypotheses write.
TEST(Cache, takesColumnsOfAProduct) {
  Shape shape({{{1, 2}, 0}}, {{{5}, 0}, {{6}, 0}}, 0);
  shape.setCache(4, {{0, 3}, {0, 1}});
  Program program(R"(
    !c = !xfc.rows<cache, 16xf64>
    func.func @f(%x: !t1, %w: tensor<32x1xf64>, %b: tensor<32xf64>, %old: !c) -> (!xfc.rows<target, 16xf64>, !c) {
      %y, %new = xfc.linear_to_cache %x, %w bias %b into %old
        : (!t1, tensor<32x1xf64>, tensor<32xf64>, !c) -> (!xfc.rows<target, 16xf64>, !c)
      return %y, %new : !xfc.rows<target, 16xf64>, !c
    })",
                  "f");
  Tensor weight{{32, 1}, {}}, bias{{32}, {}};
  for (int column = 0; column < 32; ++column) {
    weight.data.push_back(column);
    bias.data.push_back(0.5);
  }
  auto results = xfc::evaluate(program.function(), shape.shape(),
                               {Tensor{{2, 1}, {2, 10}}, weight, bias, Tensor{{4, 16}, std::vector<double>(64, -1)}});
  ASSERT_TRUE(succeeded(results));
  for (int column = 0; column < 16; ++column) {
    EXPECT_EQ((*results)[0].row(0)[column], 2 * column + 0.5);
    EXPECT_EQ((*results)[0].row(1)[column], 10 * column + 0.5);
    EXPECT_EQ((*results)[1].row(3)[column], 2 * (16 + column) + 0.5);
    EXPECT_EQ((*results)[1].row(1)[column], 10 * (16 + column) + 0.5);
    EXPECT_EQ((*results)[1].row(0)[column], -1);
    EXPECT_EQ((*results)[1].row(2)[column], -1);
  }
}

// Integers are the nearest, ties to even, to the numbers times 127 / largest of a part, and attention multiplies them
// by the scale of their row and head.
TEST(Cache, scalesIntegers) {
  Shape shape({{{1, 2}, 0}}, {{{5}, 0}, {{6}, 0}}, 0);
  shape.setCache(2, {{0}, {1}});
  Program program(R"(
    !cached = !xfc.rows<cache, 4xi8>
    !scales = !xfc.rows<cache, 2xf32>
    !queries = !xfc.rows<target, 4xf32>
    func.func @f(%old: !cached, %scales: !scales, %rows: !queries) -> (!cached, !scales, !queries) {
      %i, %t = xfc.quantize %rows {groups = 2 : i64} : (!queries) -> (!xfc.rows<target, 4xi8>, !xfc.rows<target, 2xf32>)
      %new = xfc.cache_write %old, %i : (!cached, !xfc.rows<target, 4xi8>) -> !cached
      %now = xfc.cache_write %scales, %t : (!scales, !xfc.rows<target, 2xf32>) -> !scales
      %o, %lse = xfc.attention %rows, %new, %new scaled by %now, %now {heads = 2 : i64, scale = 0.0} : (!queries, !cached, !cached, !scales, !scales) -> (!queries, !xfc.rows<target, 2xf32>)
      return %new, %now, %o : !cached, !scales, !queries
    })",
                  "f");
  auto results = xfc::evaluate(program.function(), shape.shape(),
                               {Tensor{{2, 4}, {1, 1, 1, 1, 1, 1, 1, 1}}, Tensor{{2, 2}, {9, 9, 9, 9}},
                                Tensor{{2, 4}, {-254, 5, 0, 0, 127, 2.5, 1, -1}}});
  ASSERT_TRUE(succeeded(results));
  // The slots of the two hypotheses are rows 0 and 1. 5 / 2 = 2.5 is between 2 and 3.
  EXPECT_EQ((*results)[0].data, (std::vector<double>{-127, 2, 0, 0, 127, 2, 127, -127}));
  EXPECT_EQ((*results)[1].data, (std::vector<double>{2, 0, 1, 1.0 / 127}));
  expectRow((*results)[2], 0, {-254, 4, 0, 0}, 1e-12);
  expectRow((*results)[2], 1, {127, 2, 1, -1}, 1e-12);
}

// With a gate of 0, half of the state is kept: 1/2 c + 1/2 x. Each sequence begins with a state of 0.
TEST(Recurrence, scansEachSequence) {
  Shape shape({{{1, 2}, 0}}, {{{5, 6, 7}, 0}, {{8}, 0}}, 0);
  Program program("func.func @f(%gate: !t2, %x: !t2) -> !t2 { %c = xfc.recurrence %gate, %x : (!t2, !t2) -> !t2\n"
                  "return %c : !t2 }",
                  "f");
  // The second feature keeps 3/4.
  const double gate = std::log(3);
  auto results =
      xfc::evaluate(program.function(), shape.shape(),
                    {Tensor{{4, 2}, {0, gate, 0, gate, 0, gate, 0, gate}}, Tensor{{4, 2}, {8, 16, 4, -4, 2, 8, 6, 4}}});
  ASSERT_TRUE(succeeded(results));
  expectRow((*results)[0], 0, {4, 4}, 1e-14);
  expectRow((*results)[0], 1, {4, 2}, 1e-14);
  expectRow((*results)[0], 2, {3, 3.5}, 1e-14);
  expectRow((*results)[0], 3, {3, 1}, 1e-14);
}

// A hypothesis continues from the row that it wrote in the step before: the last but one of its history, if there is
// one.
TEST(Recurrence, continuesFromTheCache) {
  Shape shape({{{1, 2}, 0}}, {{{5}, 0}, {{6}, 0}, {{7}, 0}}, 0);
  shape.setCache(5, {{0, 3, 1}, {0, 4}, {2}});
  Program program(R"(
    !c = !xfc.rows<cache, 1xf64>
    func.func @f(%gate: !t1, %x: !t1, %old: !c) -> (!t1, !c) {
      %state = xfc.recurrence %gate, %x, %old : (!t1, !t1, !c) -> !t1
      %new = xfc.cache_write %old, %state : (!c, !t1) -> !c
      return %state, %new : !t1, !c
    })",
                  "f");
  auto results = xfc::evaluate(
      program.function(), shape.shape(),
      {Tensor{{3, 1}, {0, 0, 0}}, Tensor{{3, 1}, {2, 4, 6}}, Tensor{{5, 1}, {100, 1000, 1000, 10, 1000}}});
  ASSERT_TRUE(succeeded(results));
  EXPECT_EQ((*results)[0].data, (std::vector<double>{6, 52, 3}));
  EXPECT_EQ((*results)[1].data, (std::vector<double>{100, 6, 3, 10, 52}));
}

TEST(Interpreter, refusesInputsOfTheWrongShape) {
  OddBatch batch;
  Program program("func.func @f(%x: !s4) -> !s4 { return %x : !s4 }", "f");
  mlir::ScopedDiagnosticHandler quiet(program.function().getContext(),
                                      [](mlir::Diagnostic &) { return mlir::success(); });
  EXPECT_TRUE(failed(xfc::evaluate(program.function(), batch.shape(), {})));
  EXPECT_TRUE(failed(xfc::evaluate(program.function(), batch.shape(), {Tensor{{8, 4}, std::vector<double>(32)}})));
  EXPECT_TRUE(succeeded(xfc::evaluate(program.function(), batch.shape(), {Tensor{{9, 4}, std::vector<double>(36)}})));
}

// Ties go to the lower token; excluded tokens, NaN and minus infinity are never chosen; -1 if none is left.
TEST(Candidates, inTheirOrder) {
  const std::string text = R"(
    func.func @f(%p: !s6, %wanted: !sids) -> (!xfc.rows<source, 3xi32>, !s3, !s) {
      %t, %b, %g = xfc.candidates %p, %wanted {excluded = array<i64: 0, 3>} : (!s6, !sids) -> (!xfc.rows<source, 3xi32>, !s3, !s)
      return %t, %b, %g : !xfc.rows<source, 3xi32>, !s3, !s
    })";
  const Tensor p{{2, 6}, {-1, -3, -2, -1, -2, -4, -1, NAN, -HUGE_VAL, -2, -5, NAN}}, wanted{{2}, {3, 4}};
  auto results = evaluateOn(2, text, {p, wanted});
  EXPECT_EQ(results[0].data, (std::vector<double>{2, 4, 1, 4, -1, -1}));
  EXPECT_EQ(results[1].data, (std::vector<double>{-2, -2, -3, -5, -HUGE_VAL, -HUGE_VAL}));
  EXPECT_EQ(results[2].data, (std::vector<double>{-1, -5}));
}

// Renormalized, log-probabilities are those among tokens 1, 2, 4 and 5: 3/8, 1/8, 1/4 and 1/4.
TEST(Candidates, amongOthers) {
  const std::string text = R"(
    func.func @f(%p: !s6, %wanted: !sids) -> (!xfc.rows<source, 3xi32>, !s3, !s) {
      %t, %b, %g = xfc.candidates %p, %wanted {excluded = array<i64: 0, 3>, renormalize} : (!s6, !sids) -> (!xfc.rows<source, 3xi32>, !s3, !s)
      return %t, %b, %g : !xfc.rows<source, 3xi32>, !s3, !s
    })";
  const Tensor wanted{{2}, {3, 1}};
  Tensor p{{2, 6}, {40, 3, 1, 16, 2, 2, 40, 3, 1, 16, 2, NAN}};
  for (double &x : p.data)
    x = std::log(x);
  auto results = evaluateOn(2, text, {p, wanted});
  EXPECT_EQ(results[0].data, (std::vector<double>{1, 4, 5, -1, -1, -1}));
  for (int i = 0; i < 3; ++i)
    EXPECT_NEAR(results[1].data[i], std::log(i == 0 ? 0.375 : 0.25), 1e-12);
  EXPECT_NEAR(results[2].data[0], std::log(2.0), 1e-12); // an excluded token is relative to the others, too
  EXPECT_TRUE(std::isnan(results[2].data[1]));
}

} // namespace
