// Checks the gradients of every differentiable op against central differences in f64.
#include "Fixture.h"

using namespace xfc::test;

namespace {

struct Case {
  std::string name;
  std::string text;
};

// Multiplies by fixed random rows, so that each element of a gradient has its own weight; a plain sum might hide an
// error.
std::string weighted(const std::string &value, const std::string &type) {
  return "%loss = xfc.multiply " + value + ", %c : " + type;
}

std::string activation(const std::string &kind) {
  return lossFunction({{"x", "!s5"}}, {{"c", "!s5"}}, "!s5",
                      "%y = xfc.activation " + kind + " %x : !s5\n" + weighted("%y", "!s5"));
}

std::string norm(const std::string &attributes, bool bias = true) {
  Arguments parameters = {{"x", "!s5"}, {"w", "tensor<5xf64>"}};
  if (bias)
    parameters.push_back({"b", "tensor<5xf64>"});
  return lossFunction(parameters, {{"c", "!s5"}}, "!s5",
                      "%y, %stats = xfc.norm %x, %w" + std::string(bias ? ", %b " : " ") + attributes +
                          " : (!s5, tensor<5xf64>" + (bias ? ", tensor<5xf64>" : "") + ") -> (!s5, !s2)\n" +
                          weighted("%y", "!s5"));
}

// `loss` computes %loss from %y, the norm of %sum.
std::string addNorm(const std::string &loss) {
  return lossFunction({{"x", "!t3"}, {"residual", "!t3"}, {"w", "tensor<3xf64>"}, {"b", "tensor<3xf64>"}},
                      {{"c", "!t3"}}, "!t3",
                      "%y, %sum, %stats = xfc.add_norm %x, %residual, %w, %b {eps = 1.0e-5} : "
                      "(!t3, !t3, tensor<3xf64>, tensor<3xf64>) -> (!t3, !t3, !t2)\n" +
                          loss);
}

// Attention of two heads. `shared`: they share one head of keys and values.
std::string attention(const std::string &queries, const std::string &keys, const std::string &attributes,
                      bool shared = false) {
  std::string q = "!" + queries + "6", k = "!" + keys + (shared ? "3" : "6"), v = "!" + keys + (shared ? "5" : "10"),
              o = "!" + queries + "10";
  return lossFunction({{"q", q}, {"k", k}, {"v", v}}, {{"c", o}}, o,
                      "%o, %lse = xfc.attention %q, %k, %v {heads = 2 : i64, scale = 0.7" + attributes + "} : (" + q +
                          ", " + k + ", " + v + ") -> (" + o + ", !" + queries + "2)\n" + weighted("%o", o));
}

// Scores of q and k, then `ops` from %s to %p, all of one type, then the combination of v by %p.
std::string scores(const std::string &queries, const std::string &keys, const std::string &pairs,
                   const std::string &ops) {
  std::string q = "!" + queries + "6", k = "!" + keys + "6", v = "!" + keys + "4", o = "!" + queries + "4";
  return lossFunction({{"q", q}, {"k", k}, {"v", v}}, {{"c", o}}, o,
                      "%s = xfc.scores %q, %k : (" + q + ", " + k + ") -> !" + pairs + "\n" + ops +
                          "\n%o = xfc.combine %p, %v : (!" + pairs + ", " + v + ") -> " + o + "\n" + weighted("%o", o));
}

// The loss that guides attention to links, of all heads or, with an attribute, of one.
std::string alignment(const std::string &attributes) {
  return lossFunction({{"q", "!t6"}, {"k", "!s6"}, {"x", "!t"}}, {{"links", "!tlists"}, {"shares", "!t3"}}, "!t",
                      "%s = xfc.scores %q, %k : (!t6, !s6) -> !ts\n%p = xfc.softmax %s : !ts\n"
                      "%loss, %alignment, %means = xfc.alignment_loss %x, %p, %links, %shares" +
                          attributes + " : (!t, !ts, !tlists, !t3) -> (!t, !t, !t3)");
}

// Unfused attention of four query heads that share two heads of k and v.
std::string shared() {
  const std::string pairs = "!xfc.pairs<source, source, padding, 4xf64>";
  return lossFunction({{"q", "!s8"}, {"k", "!s4"}, {"v", "!s6"}}, {{"c", "!s12"}}, "!s12",
                      "%s = xfc.scores %q, %k : (!s8, !s4) -> " + pairs +
                          "\n%m = xfc.mask %s {reach = 1 : i64} : " + pairs + "\n%p = xfc.softmax %m : " + pairs +
                          "\n%o = xfc.combine %p, %v : (" + pairs + ", !s6) -> !s12\n" + weighted("%o", "!s12"));
}

// Two heads of five features, the first four of which are rotated.
std::string rotate(const std::string &attributes) {
  return lossFunction({{"x", "!t10"}}, {{"c", "!t10"}}, "!t10",
                      "%table = xfc.sinusoid {base = 3.0" + std::string(attributes.empty() ? "" : ", halves") +
                          "} : () -> tensor<12x4xf64>\n"
                          "%y = xfc.rotate %x, %table {heads = 2 : i64" +
                          attributes + "} : (!t10, tensor<12x4xf64>) -> !t10\n" + weighted("%y", "!t10"));
}

// The states of a recurrence, whose gate may be a parameter of its own or its value.
std::string recurrence(const std::string &gate) {
  Arguments parameters = {{"x", "!t3"}};
  if (gate != "x")
    parameters.push_back({gate, "!t3"});
  return lossFunction(parameters, {{"c", "!t3"}}, "!t3",
                      "%y = xfc.recurrence %" + gate + ", %x : (!t3, !t3) -> !t3\n" + weighted("%y", "!t3"));
}

// Attention with a distance bias from a table of buckets, unfused or fused.
std::string biased(const std::string &set, const std::string &pairs, const std::string &flags,
                   const std::string &directions, bool fused) {
  const std::string q = "!" + set + "6", o = "!" + set + "4", table = "tensor<6x2xf64>", bias = "tensor<12x4xf64>";
  const std::string steps = "%s = xfc.scores %q, %k : (" + q + ", " + q + ") -> !" + pairs +
                            "\n%b = xfc.add_distance_bias %s, %bias : (!" + pairs + ", " + bias + ") -> !" + pairs +
                            "\n%m = xfc.mask %b : !" + pairs + "\n%p = xfc.softmax %m : !" + pairs +
                            "\n%o = xfc.combine %p, %v : (!" + pairs + ", " + o + ") -> " + o + "\n";
  const std::string one = "%o, %lse = xfc.attention %q, %k, %v, %bias {heads = 2 : i64, scale = 1.0" + flags + "} : (" +
                          q + ", " + q + ", " + o + ", " + bias + ") -> (" + o + ", !" + set + "2)\n";
  return lossFunction({{"q", q}, {"k", q}, {"v", o}, {"table", table}}, {{"c", o}}, o,
                      "%bias = xfc.distance_bias %table {max_distance = 5 : i64" + directions + "} : (" + table +
                          ") -> " + bias + "\n" + (fused ? one : steps) + weighted("%o", o));
}

std::vector<Case> cases() {
  std::vector<Case> cases = {
      {"embedding", lossFunction({{"table", "tensor<11x3xf64>"}}, {{"ids", "!sids"}, {"c", "!s3"}}, "!s3",
                                 "%y = xfc.embedding %ids, %table {scale = 1.7} : (!sids, tensor<11x3xf64>) -> !s3\n" +
                                     weighted("%y", "!s3"))},
      {"add_positions",
       lossFunction({{"x", "!s3"}, {"table", "tensor<6x3xf64>"}}, {{"c", "!s3"}}, "!s3",
                    "%y = xfc.add_positions %x, %table : (!s3, tensor<6x3xf64>) -> !s3\n" + weighted("%y", "!s3"))},
      {"add_positions_with_offset",
       lossFunction({{"x", "!s3"}, {"table", "tensor<8x3xf64>"}}, {{"c", "!s3"}}, "!s3",
                    "%y = xfc.add_positions %x, %table {offset = 2 : i64} : (!s3, tensor<8x3xf64>) -> !s3\n" +
                        weighted("%y", "!s3"))},
      {"scale", lossFunction({{"x", "!s3"}}, {{"c", "!s3"}}, "!s3",
                             "%y = xfc.scale %x {factor = -1.5} : !s3\n" + weighted("%y", "!s3"))},
      {"linear", lossFunction({{"x", "!s3"}, {"w", "tensor<5x3xf64>"}, {"b", "tensor<5xf64>"}}, {{"c", "!s5"}}, "!s5",
                              "%y = xfc.linear %x, %w bias %b : (!s3, tensor<5x3xf64>, tensor<5xf64>) -> !s5\n" +
                                  weighted("%y", "!s5"))},
      {"linear_no_bias",
       lossFunction({{"x", "!s3"}, {"w", "tensor<5x3xf64>"}}, {{"c", "!s5"}}, "!s5",
                    "%y = xfc.linear %x, %w : (!s3, tensor<5x3xf64>) -> !s5\n" + weighted("%y", "!s5"))},
      {"tied", lossFunction({{"w", "tensor<11x3xf64>"}}, {{"ids", "!tids"}, {"c", "!t11"}}, "!t11",
                            "%x = xfc.embedding %ids, %w : (!tids, tensor<11x3xf64>) -> !t3\n"
                            "%y = xfc.linear %x, %w : (!t3, tensor<11x3xf64>) -> !t11\n" +
                                weighted("%y", "!t11"))},
      {"split", lossFunction({{"x", "!s6"}}, {{"c", "!s2"}}, "!s2",
                             "%a, %b, %d = xfc.split %x : (!s6) -> (!s2, !s2, !s2)\n%y = xfc.multiply %a, %d : !s2\n" +
                                 weighted("%y", "!s2"))},
      {"concat",
       lossFunction({{"x", "!s3"}, {"w1", "tensor<4x3xf64>"}, {"w2", "tensor<1x3xf64>"}}, {{"c", "!s5"}}, "!s5",
                    "%w = xfc.concat %w1, %w2 : (tensor<4x3xf64>, tensor<1x3xf64>) -> tensor<5x3xf64>\n"
                    "%y = xfc.linear %x, %w : (!s3, tensor<5x3xf64>) -> !s5\n" +
                        weighted("%y", "!s5"))},
      {"add", lossFunction({{"x", "!s4"}, {"z", "!s4"}}, {{"c", "!s4"}}, "!s4",
                           "%a = xfc.add %x, %z : !s4\n%y = xfc.add %a, %x : !s4\n" + weighted("%y", "!s4"))},
      {"multiply",
       lossFunction({{"x", "!s4"}, {"z", "!s4"}}, {{"c", "!s4"}}, "!s4",
                    "%a = xfc.multiply %x, %z : !s4\n%y = xfc.multiply %a, %x : !s4\n" + weighted("%y", "!s4"))},
      {"dropout", lossFunction({{"x", "!t7"}}, {{"c", "!t7"}}, "!t7",
                               "%y = xfc.dropout %x {rate = 0.4, id = 3 : i64} : !t7\n" + weighted("%y", "!t7"))},
      {"norm", norm("{eps = 1.0e-5}")},
      {"norm_no_bias", norm("{eps = 1.0e-5}", false)},
      {"norm_unbiased", norm("{eps = 0.01, unbiased}")},
      {"norm_eps_in_std", norm("{eps = 0.01, eps_in_std}")},
      {"norm_unbiased_eps_in_std", norm("{eps = 0.01, unbiased, eps_in_std}")},
      {"norm_rms", norm("{eps = 1.0e-5, kind = 1 : i32}", false)},
      {"add_norm", addNorm("%loss = xfc.multiply %y, %c : !t3")},
      {"add_norm_with_sum", addNorm("%z = xfc.multiply %y, %sum : !t3\n%loss = xfc.multiply %z, %c : !t3")},
      {"scores_combine", scores("t", "s", "ts", "%p = xfc.scale %s {factor = 1.5} : !ts")},
      {"scores_combine_own", scores("s", "s", "sn", "%p = xfc.scale %s {factor = -0.5} : !sn")},
      {"mask_softmax", scores("t", "t", "tt", "%m = xfc.mask %s : !tt\n%p = xfc.softmax %m : !tt")},
      {"mask_softmax_cross", scores("t", "s", "ts", "%m = xfc.mask %s : !ts\n%p = xfc.softmax %m : !ts")},
      {"mask_zero", scores("t", "t", "tc", "%p = xfc.mask %s {zero} : !tc")},
      {"dropout_of_weights",
       scores("t", "s", "ts", "%m = xfc.softmax %s : !ts\n%p = xfc.dropout %m {rate = 0.3, id = 9 : i64} : !ts")},
      {"attention_self", attention("s", "s", ", padding")},
      {"attention_causal", attention("t", "t", ", causal")},
      {"attention_causal_padding", attention("t", "t", ", padding, causal")},
      {"attention_cross", attention("t", "s", ", padding")},
      {"attention_dropout", attention("t", "s", ", padding, rate = 0.3, id = 9 : i64")},
      {"attention_shared", attention("t", "s", ", padding", true)},
      {"attention_reach", attention("s", "s", ", padding, reach = 1 : i64")},
      {"attention_reach_causal_shared", attention("t", "t", ", causal, reach = 1 : i64", true)},
      {"shared", shared()},
      {"rotate", rotate("")},
      {"rotate_halves", rotate(", halves")},
      {"recurrence", recurrence("gate")},
      {"recurrence_of_one_value", recurrence("x")},
      {"bias", biased("s", "ss", ", padding", ", both_directions", false)},
      {"bias_causal", biased("t", "tt", ", padding, causal", "", false)},
      {"bias_fused", biased("s", "ss", ", padding", ", both_directions", true)},
      {"bias_fused_causal", biased("t", "tt", ", padding, causal", "", true)},
      {"alignment", alignment("")},
      {"alignment_of_one_head", alignment(" {head = 1 : i64}")},
      {"log_softmax",
       lossFunction({{"x", "!t5"}}, {{"c", "!t5"}}, "!t5", "%y = xfc.log_softmax %x : !t5\n" + weighted("%y", "!t5"))},
  };
  // With one label for each row, and with lists of labels.
  for (auto [suffix, labels, smoothing] : {std::tuple{"", "!tids", "tensor<f64>"}, {"_lists", "!tlists", "!t4"}}) {
    const Arguments others = {{"labels", labels}, {"smoothing", smoothing}};
    const std::string types = std::string(labels) + ", " + smoothing;
    cases.push_back(
        {"nll" + std::string(suffix),
         lossFunction({{"p", "!t11"}}, others, "!t",
                      "%loss, %nll = xfc.nll %p, %labels, %smoothing : (!t11, " + types + ") -> (!t, !t)")});
    cases.push_back({"cross_entropy" + std::string(suffix),
                     lossFunction({{"x", "!t11"}}, others, "!t",
                                  "%loss, %nll, %lse = xfc.cross_entropy %x, %labels, %smoothing : (!t11, " + types +
                                      ") -> (!t, !t, !t)")});
    cases.push_back({"linear_cross_entropy" + std::string(suffix),
                     lossFunction({{"x", "!t3"}, {"w", "tensor<11x3xf64>"}, {"b", "tensor<11xf64>"}}, others, "!t",
                                  "%loss, %nll, %z, %lse = xfc.linear_cross_entropy %x, %w, %b, %labels, %smoothing : "
                                  "(!t3, tensor<11x3xf64>, tensor<11xf64>, " +
                                      types + ") -> (!t, !t, !t11, !t)")});
  }
  for (unsigned i = 0; i <= xfc::getMaxEnumValForActivationKind(); ++i) {
    const std::string kind = xfc::stringifyActivationKind(static_cast<xfc::ActivationKind>(i)).str();
    cases.push_back({kind, activation(kind)});
  }
  return cases;
}

class Gradient : public testing::TestWithParam<Case> {};

TEST_P(Gradient, equalsCentralDifferences) { expectGradients(GetParam().text); }

INSTANTIATE_TEST_SUITE_P(ops, Gradient, testing::ValuesIn(cases()), [](const auto &info) { return info.param.name; });

TEST(Gradients, coverEveryDifferentiableOp) {
  mlir::MLIRContext context;
  context.loadDialect<xfc::XFCDialect>();
  std::string all;
  for (const Case &c : cases())
    all += c.text;
  for (mlir::RegisteredOperationName op : context.getRegisteredOperationsByDialect("xfc"))
    if (op.hasInterface<xfc::DifferentiableOpInterface>()) {
      EXPECT_NE(all.find(op.getStringRef().str() + " "), std::string::npos)
          << "no check of the gradient of " << op.getStringRef().str();
    }
}

// A parameter that does not affect the loss gets no gradient, and ops that only use it are removed.
TEST(Gradients, ofWhatDoesNotMatterAreLeftOut) {
  Program program(
      lossFunction({{"x", "!s4"}, {"unused", "tensor<4x4xf64>"}}, {{"c", "!s4"}}, "!s4",
                   "%dead = xfc.linear %x, %unused : (!s4, tensor<4x4xf64>) -> !s4\n" + weighted("%x", "!s4")));
  program.differentiate();
  EXPECT_EQ(program.function().getNumResults(), 2u);
  EXPECT_EQ(program.function().getNumArguments(), 3u); // x, c, loss_scale
}

} // namespace
