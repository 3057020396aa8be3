// Compares fused ops with the chains that they replace, forward and backward.
#include "Fixture.h"

using namespace xfc;
using namespace xfc::test;

namespace {

// Both programs take the same arguments; results and gradients must agree.
void expectEqual(const std::string &fused, const std::string &chain) {
  OddBatch batch;
  for (bool gradients : {false, true}) {
    Program a(fused), b(chain);
    if (gradients) {
      a.differentiate();
      b.differentiate();
    }
    auto x = a.evaluate(batch), y = b.evaluate(batch);
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i)
      expectNear(x[i], y[i], 1e-12, (gradients ? "gradient " : "result ") + std::to_string(i));
  }
}

struct Mask {
  const char *name, *queries, *keys, *pairs, *attributes, *dropout;
};

class FusedAttention : public testing::TestWithParam<Mask> {};

TEST_P(FusedAttention, equalsItsSteps) {
  auto [name, queries, keys, pairs, attributes, dropout] = GetParam();
  std::string q = std::string("!") + queries + "6", k = std::string("!") + keys + "6",
              v = std::string("!") + keys + "10", o = std::string("!") + queries + "10", p = std::string("!") + pairs;
  Arguments arguments = {{"q", q}, {"k", k}, {"v", v}};
  std::string fused =
      lossFunction(arguments, {{"c", o}}, o,
                   "%o, %lse = xfc.attention %q, %k, %v {heads = 2 : i64, scale = 0.7" + std::string(attributes) +
                       (*dropout ? ", rate = 0.3, id = 9 : i64" : "") + "} : (" + q + ", " + k + ", " + v + ") -> (" +
                       o + ", !" + queries + "2)\n%loss = xfc.multiply %o, %c : " + o);
  std::string chain = lossFunction(
      arguments, {{"c", o}}, o,
      "%s = xfc.scores %q, %k : (" + q + ", " + k + ") -> " + p + "\n%t = xfc.scale %s {factor = 0.7} : " + p +
          "\n%m = xfc.mask %t : " + p + "\n%p = xfc.softmax %m : " + p + "\n" +
          (*dropout ? "%d = xfc.dropout %p {rate = 0.3, id = 9 : i64} : " + p + "\n" : "") + "%o = xfc.combine " +
          (*dropout ? "%d" : "%p") + ", %v : (" + p + ", " + v + ") -> " + o + "\n%loss = xfc.multiply %o, %c : " + o);
  expectEqual(fused, chain);
}

INSTANTIATE_TEST_SUITE_P(masks, FusedAttention,
                         testing::Values(Mask{"none", "s", "s", "sn", "", ""},
                                         Mask{"padding", "s", "s", "ss", ", padding", ""},
                                         Mask{"causal", "t", "t", "tc", ", causal", ""},
                                         Mask{"paddingCausal", "t", "t", "tt", ", padding, causal", ""},
                                         Mask{"cross", "t", "s", "ts", ", padding", ""},
                                         Mask{"crossDropout", "t", "s", "ts", ", padding", "dropout"},
                                         Mask{"causalDropout", "t", "t", "tc", ", causal", "dropout"}),
                         [](const auto &info) { return std::string(info.param.name); });

class BiasedAttention : public testing::TestWithParam<Mask> {};

TEST_P(BiasedAttention, equalsItsSteps) {
  auto [name, queries, keys, pairs, attributes, dropout] = GetParam();
  const std::string q = std::string("!") + queries + "6", p = std::string("!") + pairs, bias = "tensor<12x4xf64>";
  const Arguments arguments = {{"q", q}, {"k", q}, {"v", q}, {"bias", bias}};
  expectEqual(
      lossFunction(arguments, {{"c", q}}, q,
                   "%o, %lse = xfc.attention %q, %k, %v, %bias {heads = 2 : i64, scale = 0.7" +
                       std::string(attributes) + "} : (" + q + ", " + q + ", " + q + ", " + bias + ") -> (" + q +
                       ", !" + queries + "2)\n%loss = xfc.multiply %o, %c : " + q),
      lossFunction(arguments, {{"c", q}}, q,
                   "%s = xfc.scores %q, %k : (" + q + ", " + q + ") -> " + p + "\n%t = xfc.scale %s {factor = 0.7} : " +
                       p + "\n%b = xfc.add_distance_bias %t, %bias : (" + p + ", " + bias + ") -> " + p +
                       "\n%m = xfc.mask %b : " + p + "\n%p = xfc.softmax %m : " + p + "\n%o = xfc.combine %p, %v : (" +
                       p + ", " + q + ") -> " + q + "\n%loss = xfc.multiply %o, %c : " + q));
}

INSTANTIATE_TEST_SUITE_P(masks, BiasedAttention,
                         testing::Values(Mask{"none", "s", "s", "sn", "", ""},
                                         Mask{"padding", "s", "s", "ss", ", padding", ""},
                                         Mask{"paddingCausal", "t", "t", "tt", ", padding, causal", ""}),
                         [](const auto &info) { return std::string(info.param.name); });

// Four query heads that share two heads of keys and values, and keys within reach only.
TEST(SharedAttention, equalsItsSteps) {
  for (auto [set, flags, reach] : {std::tuple{"source", "", ""},
                                   {"source", "padding", ", reach = 1 : i64"},
                                   {"target", "causal", ", reach = 0 : i64"},
                                   {"target", "padding causal", ", reach = 2 : i64"}}) {
    const std::string rows = std::string("!") + set[0], q = rows + "8", k = rows + "4", v = rows + "6", o = rows + "12";
    std::string p = std::string("!xfc.pairs<") + set + ", " + set + ", " + flags + (*flags ? ", " : "") + "4xf64>";
    std::string attributes = flags;
    if (attributes == "padding causal")
      attributes = "padding, causal";
    const Arguments arguments = {{"q", q}, {"k", k}, {"v", v}};
    expectEqual(lossFunction(arguments, {{"c", o}}, o,
                             "%o, %lse = xfc.attention %q, %k, %v {heads = 4 : i64, scale = 0.7" + std::string(reach) +
                                 (*flags ? ", " : "") + attributes + "} : (" + q + ", " + k + ", " + v + ") -> (" + o +
                                 ", " + rows + "4)\n%loss = xfc.multiply %o, %c : " + o),
                lossFunction(arguments, {{"c", o}}, o,
                             "%s = xfc.scores %q, %k : (" + q + ", " + k + ") -> " + p +
                                 "\n%t = xfc.scale %s {factor = 0.7} : " + p + "\n%m = xfc.mask %t " +
                                 (*reach ? "{" + std::string(reach + 2) + "} " : "") + ": " + p +
                                 "\n%p = xfc.softmax %m : " + p + "\n%o = xfc.combine %p, %v : (" + p + ", " + v +
                                 ") -> " + o + "\n%loss = xfc.multiply %o, %c : " + o));
  }
}

// The types of labels and smoothing: one label for each row, or lists of labels.
const std::pair<std::string, std::string> lossForms[] = {{"!tids", "tensor<f64>"}, {"!tlists", "!t4"}};
const Arguments lossParameters = {{"x", "!t3"}, {"w", "tensor<11x3xf64>"}, {"b", "tensor<11xf64>"}};
const std::string logits = "%z = xfc.linear %x, %w bias %b : (!t3, tensor<11x3xf64>, tensor<11xf64>) -> !t11\n";

TEST(CrossEntropy, alsoWithItsLinearEqualsLogSoftmaxAndNll) {
  for (const auto &[labels, smoothing] : lossForms) {
    const Arguments inputs = {{"labels", labels}, {"smoothing", smoothing}};
    const std::string types = labels + ", " + smoothing,
                      chain = lossFunction(lossParameters, inputs, "!t",
                                           logits +
                                               "%p = xfc.log_softmax %z : !t11\n"
                                               "%loss, %nll = xfc.nll %p, %labels, %smoothing : (!t11, " +
                                               types + ") -> (!t, !t)");
    expectEqual(lossFunction(lossParameters, inputs, "!t",
                             logits + "%loss, %nll, %lse = xfc.cross_entropy %z, %labels, %smoothing : (!t11, " +
                                 types + ") -> (!t, !t, !t)"),
                chain);
    expectEqual(lossFunction(lossParameters, inputs, "!t",
                             "%loss, %nll, %z, %lse = xfc.linear_cross_entropy %x, %w, %b, %labels, %smoothing : "
                             "(!t3, tensor<11x3xf64>, tensor<11xf64>, " +
                                 types + ") -> (!t, !t, !t11, !t)"),
                chain);
  }
}

TEST(AddNorm, equalsAddAndNorm) {
  const Arguments parameters = {{"x", "!t3"}, {"residual", "!t3"}, {"w", "tensor<3xf64>"}, {"b", "tensor<3xf64>"}};
  const std::string use = "%z = xfc.multiply %y, %sum : !t3\n%loss = xfc.multiply %z, %c : !t3";
  expectEqual(lossFunction(parameters, {{"c", "!t3"}}, "!t3",
                           "%y, %sum, %stats = xfc.add_norm %x, %residual, %w, %b {eps = 1.0e-5} : "
                           "(!t3, !t3, tensor<3xf64>, tensor<3xf64>) -> (!t3, !t3, !t2)\n" +
                               use),
              lossFunction(parameters, {{"c", "!t3"}}, "!t3",
                           "%sum = xfc.add %x, %residual : !t3\n%y, %stats = xfc.norm %sum, %w, %b {eps = 1.0e-5} : "
                           "(!t3, tensor<3xf64>, tensor<3xf64>) -> (!t3, !t2)\n" +
                               use));
}

TEST(Linear, epilogueEqualsTheOpsAfterIt) {
  OddBatch batch;
  const Arguments arguments = {{"x", "!s3"}, {"w", "tensor<5x3xf64>"}, {"b", "tensor<5xf64>"}, {"r", "!s5"}};
  Program fused(lossFunction(
      arguments, {}, "!s5",
      "%loss = xfc.linear %x, %w bias %b with %r {\n^bb0(%y: !s5, %e: !s5):\n%a = xfc.activation gelu %y : !s5\n"
      "%d = xfc.dropout %a {rate = 0.3, id = 4 : i64} : !s5\n%z = xfc.add %d, %e : !s5\nxfc.yield %z : !s5\n} : "
      "(!s3, tensor<5x3xf64>, tensor<5xf64>, !s5) -> !s5"));
  Program chain(lossFunction(arguments, {}, "!s5",
                             "%y = xfc.linear %x, %w bias %b : (!s3, tensor<5x3xf64>, tensor<5xf64>) -> !s5\n%a = "
                             "xfc.activation gelu %y : !s5\n"
                             "%d = xfc.dropout %a {rate = 0.3, id = 4 : i64} : !s5\n%loss = xfc.add %d, %r : !s5"));
  expectNear(fused.evaluate(batch)[0], chain.evaluate(batch)[0], 0, "result");
}

// Merged projections: a linear with concatenated weights, followed by a split, equals the separate linears.
TEST(Linear, ofConcatenatedWeightsSplitsIntoTheParts) {
  const Arguments arguments = {{"x", "!s3"}, {"w1", "tensor<5x3xf64>"}, {"w2", "tensor<5x3xf64>"}};
  expectEqual(
      lossFunction(
          arguments, {{"c", "!s5"}}, "!s5",
          "%w = xfc.concat %w1, %w2 : (tensor<5x3xf64>, tensor<5x3xf64>) -> tensor<10x3xf64>\n"
          "%y = xfc.linear %x, %w : (!s3, tensor<10x3xf64>) -> !s10\n%a, %b = xfc.split %y : (!s10) -> (!s5, !s5)\n"
          "%m = xfc.multiply %a, %b : !s5\n%loss = xfc.multiply %m, %c : !s5"),
      lossFunction(arguments, {{"c", "!s5"}}, "!s5",
                   "%a = xfc.linear %x, %w1 : (!s3, tensor<5x3xf64>) -> !s5\n%b = xfc.linear %x, %w2 : (!s3, "
                   "tensor<5x3xf64>) -> !s5\n"
                   "%m = xfc.multiply %a, %b : !s5\n%loss = xfc.multiply %m, %c : !s5"));
}

// 100 tokens make two slabs of 64; the weights repeat, so that equal logits occur in both.
static void expectSlabsToGiveTheRow(const std::string &attributes) {
  OddBatch batch;
  const std::string parameters = "%x: !t3, %w: tensor<100x3xf64>, %b: tensor<100xf64>, %wanted: !tids",
                    lists = "!xfc.rows<target, 8xi32>, !t8, !t";
  const std::string types = "(!t3, tensor<100x3xf64>, tensor<100xf64>, !tids)";
  Program fused("func.func @f(" + parameters + ") -> (" + lists +
                    ") {\n%st, %sl, %lse, %z = xfc.linear_candidates %x, %w, %b, %wanted "
                    "{" +
                    attributes + ", slab = 64 : i64} : " + types +
                    " -> (!xfc.rows<target, 16xi32>, !xfc.rows<target, 16xf64>, !t2, !t)\n"
                    "%tokens, %best, %given = xfc.merge_candidates %st, %sl, %lse, %z : (!xfc.rows<target, 16xi32>, "
                    "!xfc.rows<target, 16xf64>, !t2, !t) -> (" +
                    lists + ")\nreturn %tokens, %best, %given : " + lists + "\n}",
                "f");
  Program chain("func.func @f(" + parameters + ") -> (" + lists +
                    ") {\n%z = xfc.linear %x, %w bias %b : (!t3, tensor<100x3xf64>, tensor<100xf64>) -> "
                    "!xfc.rows<target, 100xf64>\n%p = xfc.log_softmax %z : !xfc.rows<target, 100xf64>\n%tokens, %best, "
                    "%given = xfc.candidates %p, %wanted "
                    "{" +
                    attributes + "} : (!xfc.rows<target, 100xf64>, !tids) -> (" + lists +
                    ")\nreturn %tokens, %best, %given : " + lists + "\n}",
                "f");
  std::vector<Tensor> inputs = fused.inputs(batch);
  for (int64_t token = 50; token < 100; ++token) {
    for (int64_t i = 0; i < 3; ++i)
      inputs[1].row(token)[i] = inputs[1].row(token - 50)[i];
    inputs[2].data[token] = inputs[2].data[token - 50];
  }
  auto x = fused.evaluate(batch, inputs), y = chain.evaluate(batch, inputs);
  EXPECT_EQ(x[0].data, y[0].data);
  for (size_t i : {1, 2})
    expectNear(x[i], y[i], 1e-12, "result " + std::to_string(i));
}

TEST(Candidates, ofSlabsAreThoseOfTheRow) {
  expectSlabsToGiveTheRow("excluded = array<i64: 0, 2, 70>");
  expectSlabsToGiveTheRow("excluded = array<i64: 0, 2, 70>, renormalize");
}

} // namespace
