// Checks that a kernel's results have the same bits for AVX2 and for AVX-512: sums use the same number of lanes in both
// (KernelBuilder::SumLanes), and nothing is approximated by an instruction that only one of them has. On a machine
// without AVX-512 its vectors are split in two, which does not change the results. Products in int8 have the same bits
// with AMX, too, whose tiles are emulated on a machine without them. Ops that have no other test with AVX-512 are also
// compared with the interpreter.
#include "KernelTest.h"
#include <array>
#include <bit>

using namespace xfc;
using namespace xfc::test;

namespace {

std::string rows(const std::string &set, int features) {
  return "!xfc.rows<" + set + ", " + std::to_string(features) + "xf32>";
}
std::string row(const std::string &set) { return "!xfc.rows<" + set + ", f32>"; }
std::string ids(const std::string &set) { return "!xfc.rows<" + set + ", i32>"; }
std::string tensor(const std::vector<int> &shape) {
  std::string text = "tensor<";
  for (int extent : shape)
    text += std::to_string(extent) + "x";
  return text + "f32>";
}

// `results` is empty for an op whose operands and result all have one type, which is printed only once.
std::string textOf(const std::string &op, const std::vector<std::string> &types, const std::string &results) {
  std::string text = op + " : ";
  if (results.empty()) {
    text += types.front();
  } else {
    for (size_t i = 0; i < types.size(); ++i)
      text += (i ? ", " : "(") + types[i];
    text += ") -> (" + results + ")";
  }
  return text;
}

// The results of a kernel that is compiled for AVX2, and of the same kernel compiled for the instruction set `wide`.
using Outcomes = std::array<Outcome, 2>;
Outcomes runOnBoth(const Batch &batch, const std::string &text, const std::vector<std::string> &types, Options options,
                   const std::string &wide = "x86-64-v4") {
  Outcomes found;
  for (int form = 0; form < 2; ++form) {
    options.cpu = form ? wide : "x86-64-v3";
    found[form] = runKernel(batch, text, types, options);
  }
  return found;
}

void compareBits(const Outcomes &found) {
  ASSERT_EQ(found[0].kernel.size(), found[1].kernel.size());
  ASSERT_FALSE(found[0].kernel.empty());
  for (size_t i = 0; i < found[0].kernel.size(); ++i) {
    const std::vector<double> &one = found[0].kernel[i].data, &other = found[1].kernel[i].data;
    ASSERT_EQ(one.size(), other.size());
    size_t differing = 0, first = 0;
    for (size_t at = one.size(); at-- > 0;)
      if (std::bit_cast<uint64_t>(one[at]) != std::bit_cast<uint64_t>(other[at])) {
        ++differing;
        first = at;
      }
    EXPECT_EQ(differing, 0u) << "of " << one.size() << " numbers of result " << i << "; number " << first << " is "
                             << one[first] << " and " << other[first];
  }
}

void expectSameBits(const Batch &batch, const std::string &op, const std::vector<std::string> &types,
                    const std::string &results, Options options = {}, const std::string &wide = "x86-64-v4") {
  const std::string text = textOf(op, types, results);
  SCOPED_TRACE(text);
  options.evaluate = false;
  Outcomes found;
  ASSERT_NO_THROW(found = runOnBoth(batch, text, types, options, wide));
  compareBits(found);
}

// Expects the same bits that are also, to the tolerance, what the interpreter computes in f64: both instruction sets
// could be wrong alike.
void expectSameValues(const Batch &batch, const std::string &op, const std::vector<std::string> &types,
                      const std::string &results, double tolerance, const Options &options = {}) {
  const std::string text = textOf(op, types, results);
  SCOPED_TRACE(text);
  Outcomes found;
  ASSERT_NO_THROW(found = runOnBoth(batch, text, types, options));
  compareBits(found);
  for (int form = 0; form < 2; ++form)
    expectClose(found[form], tolerance, form ? "AVX-512" : "AVX2");
}

// Options for labels and smoothing at these operands.
Options withTarget(int64_t labels, int64_t smoothing) {
  Options options;
  options.set = setTarget(labels, smoothing);
  return options;
}

} // namespace

TEST(InstructionSets, FactoredSteps) {
  Batch batch({1}, {1});
  for (const Optimizer &optimizer : optimizers())
    if (!optimizer.elementwise)
      for (const OpCase &each : factoredStep(optimizer, "f32", {{600, 37}, {20000}, {9, 1100}, {5}}, 0.5))
        expectSameBits(batch, each.op, each.operands, each.results, each.options);
}

TEST(InstructionSets, Norms) {
  Batch batch({1, 7, 71, 13}, {1});
  const std::string stats = rows("source", 2);
  for (int width : {5, 100, 520})
    for (const char *kind : {"", ", kind = 1 : i32", ", eps_in_std"}) {
      const std::string x = rows("source", width), w = tensor({width}), parts = tensor({3, width}),
                        attributes = std::string(" {eps = 1.0e-3") + kind + "}";
      expectSameBits(batch, "xfc.norm %a0, %a1" + attributes, {x, w}, x + ", " + stats);
      expectSameBits(batch, "xfc.add_norm %a0, %a1, %a2" + attributes, {x, x, w}, x + ", " + x + ", " + stats);
      expectSameBits(batch, "xfc.norm_grad %a0, %a1, %a2, %a3" + attributes, {x, x, w, stats}, x);
      expectSameBits(batch, "xfc.norm_grad_with_parts %a0, %a1, %a2, %a3" + attributes, {x, x, w, stats},
                     x + ", " + parts);
    }
  const std::string x = rows("source", 100), w = tensor({100});
  expectSameBits(batch, "xfc.norm_weight_grad %a0, %a1, %a2", {x, x, stats}, w + ", " + w);
  expectSameBits(batch, "xfc.sum_parts %a0", {tensor({32, 100})}, w);
}

TEST(InstructionSets, Losses) {
  Batch batch({1}, {3, 17, 66, 1});
  const std::string one = row("target");
  for (int vocabulary : {37, 301, 1300}) {
    const std::string logits = rows("target", vocabulary);
    expectSameBits(batch, "xfc.log_softmax %a0", {logits}, "");
    expectSameBits(batch, "xfc.log_softmax_grad %a0, %a1", {logits, logits}, "");
    for (const auto &[labels, e] :
         {std::pair{ids("target"), tensor({})}, {"!xfc.rows<target, 5xi32>", rows("target", 6)}}) {
      expectSameBits(batch, "xfc.nll %a0, %a1, %a2", {logits, labels, e}, one + ", " + one, withTarget(1, 2));
      expectSameBits(batch, "xfc.cross_entropy %a0, %a1, %a2", {logits, labels, e}, one + ", " + one + ", " + one,
                     withTarget(1, 2));
      expectSameBits(batch, "xfc.cross_entropy_grad %a0, %a1, %a2, %a3, %a4", {logits, one, labels, one, e}, logits,
                     withTarget(2, 4));
    }
  }
}

TEST(InstructionSets, Attention) {
  Batch batch({530, 1, 7, 71}, {3, 300, 17, 66});
  for (auto [keyDim, valueDim] : {std::pair{7, 3}, {24, 40}})
    for (auto [queries, keys, flags] : {std::tuple{"target", "source", ", padding"}}) {
      const std::string q = rows(queries, 2 * keyDim), k = rows(keys, 2 * keyDim), v = rows(keys, 2 * valueDim),
                        o = rows(queries, 2 * valueDim), lse = rows(queries, 2),
                        attributes =
                            std::string(" {heads = 2 : i64, scale = 0.4") + flags + ", rate = 0.3, id = 9 : i64}";
      expectSameBits(batch, "xfc.attention %a0, %a1, %a2" + attributes, {q, k, v}, o + ", " + lse, {.dropout = 9});
      expectSameBits(batch, "xfc.attention_grad %a0, %a1, %a2, %a3, %a4, %a5" + attributes, {o, q, k, v, o, lse},
                     q + ", " + k + ", " + v, {.dropout = 9});
    }
  // Single queries, as in decoding.
  Batch steps({9, 70}, {1, 1, 1, 1, 1}, 700);
  for (int dim : {5, 24}) {
    const std::string q = rows("target", 2 * dim), k = rows("cache", 2 * dim);
    expectSameBits(steps, "xfc.attention %a0, %a1, %a2 {heads = 2 : i64, scale = 0.2}", {q, k, k},
                   q + ", " + rows("target", 2));
  }
  // Unfused.
  const std::string pairs = "!xfc.pairs<target, source, padding, 2xf32>", q = rows("target", 48),
                    k = rows("source", 48);
  expectSameBits(batch, "xfc.scores %a0, %a1", {q, k}, pairs);
  expectSameBits(batch, "xfc.softmax %a0", {pairs}, "");
  expectSameBits(batch, "xfc.softmax_grad %a0, %a1", {pairs, pairs}, "");
  expectSameBits(batch, "xfc.combine %a0, %a1", {pairs, k}, q);
  expectSameBits(batch, "xfc.combine_transposed %a0, %a1", {pairs, q}, k);
  const std::string one = row("target"), links = "!xfc.rows<target, 5xi32>", shares = rows("target", 5);
  const Options linked{.set = setLinks(batch, RowSet::target, XFC_KEYS(XFC_TARGET_SOURCE, 1, 0))};
  expectSameBits(batch, "xfc.alignment_loss %a0, %a1, %a2, %a3", {one, pairs, links, shares},
                 one + ", " + one + ", " + shares, linked);
  expectSameBits(batch, "xfc.alignment_loss_grad %a0, %a1, %a2, %a3", {one, shares, links, shares}, pairs, linked);
}

TEST(InstructionSets, Products) {
  Batch batch({9, 31, 260}, {1});
  for (auto [in, out] : {std::pair{5, 10}, {600, 24}}) {
    const std::string x = rows("source", in), y = rows("source", out), w = tensor({out, in}), b = tensor({out});
    expectSameBits(batch,
                   "xfc.linear %a0, %a1 bias %a2 {\n^bb0(%y: " + y + "):\n  %p = xfc.activation gelu %y : <source, " +
                       std::to_string(out) + "xf32>\n  %d = xfc.dropout %p {rate = 0.3, id = 9 : i64} : " + y +
                       "\n  xfc.yield %d : " + y + "\n}",
                   {x, w, b}, y, {.dropout = 9});
    if (in == 600)
      expectSameBits(batch, "xfc.linear %a0, %a1 in int8", {x, w}, y);
    expectSameBits(batch, "xfc.linear_input_grad %a0, %a1", {y, w}, x);
    expectSameBits(batch, "xfc.linear_weight_grad %a0, %a1", {y, x}, w + ", " + b);
  }
  const std::string one = row("source"), x = rows("source", 30), labels = ids("source"), e = tensor({});
  for (int vocabulary : {300}) {
    const std::string w = tensor({vocabulary, 30}), logits = rows("source", vocabulary);
    expectSameBits(batch, "xfc.linear_cross_entropy %a0, %a1, %a2, %a3", {x, w, labels, e},
                   one + ", " + one + ", " + logits + ", " + one, withTarget(2, 3));
    expectSameBits(batch, "xfc.linear_cross_entropy_with_grad %a0, %a1, %a2, %a3, %a4", {x, w, labels, e, one},
                   one + ", " + one + ", " + logits, withTarget(2, 3));
  }
}

TEST(InstructionSets, ProductsByTilesOfBytes) {
  const Target amx = {.cpu = "x86-64-v4+amx"};
  if (const std::string missing = amx.missing(); !missing.empty())
    GTEST_SKIP() << "this CPU lacks " << missing;
  Batch batch({9, 31, 1, 100}, {1});
  for (auto [in, out] : {std::pair{5, 10}, {600, 24}, {64, 130}})
    expectSameBits(batch, "xfc.linear %a0, %a1 bias %a2 in int8",
                   {rows("source", in), tensor({out, in}), tensor({out})}, rows("source", out), {}, amx.cpu);
}

TEST(InstructionSets, Candidates) {
  Batch batch({9, 31}, {1});
  const std::string one = row("source");
  for (const std::string last : {"", ", renormalize"}) {
    expectSameBits(batch,
                   "xfc.linear_candidates %a0, %a1, %a2 {excluded = array<i64: 0, 2, 3>, slab = 64 : i64" + last + "}",
                   {rows("source", 33), tensor({150, 33}), ids("source")},
                   "!xfc.rows<source, 24xi32>, " + rows("source", 24) + ", " + rows("source", 3) + ", " + one);
    expectSameBits(batch, "xfc.candidates %a0, %a1 {excluded = array<i64: 0, 2, 3>" + last + "}",
                   {rows("source", 301), ids("source")}, "!xfc.rows<source, 8xi32>, " + rows("source", 8) + ", " + one);
  }
  expectSameBits(batch, "xfc.merge_candidates %a0, %a1, %a2, %a3",
                 {"!xfc.rows<source, 40xi32>", rows("source", 40), rows("source", 5), one},
                 "!xfc.rows<source, 8xi32>, " + rows("source", 8) + ", " + one);
}

// Rows of a part of a vector, of several vectors of either length and of more than the 64 numbers that are drawn at
// once; and pairs, which have no whole vectors in short sequences.
TEST(InstructionSets, Dropout) {
  constexpr double rounding = 0x1p-22; // of the factor, and of the product with it
  for (const bool training : {true, false}) {
    Batch batch({1, 7, 71, 13}, {3, 17, 66, 1}, 40, training);
    for (const int width : {5, 72, 150})
      for (const char *kept : {"", ", kept"})
        expectSameValues(batch, std::string("xfc.dropout %a0 {rate = 0.3, id = 7 : i64") + kept + "}",
                         {rows("target", width)}, "", rounding, {.extraStride = 2, .dropout = *kept ? 0 : 7});
    for (const char *kind : {"source, source, padding", "target, target, causal", "target, source"})
      expectSameValues(batch, "xfc.dropout %a0 {rate = 0.3, id = 5 : i64}",
                       {std::string("!xfc.pairs<") + kind + ", 3xf32>"}, "", rounding, {.dropout = 5});
  }
}

// A mask computes nothing, so the interpreter's numbers are the kernel's.
TEST(InstructionSets, Masks) {
  Batch batch({1, 7, 71, 13}, {3, 17, 66, 1}), step({9, 70}, {1, 1, 1}, 300, /*training=*/false, 0, {1, 11, 70});
  for (const char *attributes : {"", " {zero}", " {reach = 5 : i64}", " {reach = 0 : i64, zero}"}) {
    const std::string op = std::string("xfc.mask %a0") + attributes;
    for (const char *kind : {"source, source, padding", "target, target, padding causal"})
      expectSameValues(batch, op, {std::string("!xfc.pairs<") + kind + ", 3xf32>"}, "", 0);
    expectSameValues(step, op, {"!xfc.pairs<target, cache, 3xf32>"}, "", 0);
  }
}

// A position has as many rows as sequences reach it, one of them the rows of most sequences, and the last ones none.
TEST(InstructionSets, PositionsGrad) {
  std::vector<int> lengths(70, 3);
  lengths.insert(lengths.end(), {1, 7, 71, 13});
  Batch batch(lengths, {1});
  for (const int width : {5, 19, 72}) {
    const std::string dy = rows("source", width);
    expectSameValues(batch, "xfc.positions_grad %a0", {dy}, tensor({80, width}), 1e-6, {.extraStride = 3});
    expectSameValues(batch, "xfc.positions_grad %a0 {offset = 2 : i64}", {dy}, tensor({73, width}), 1e-6);
  }
}

// One sum for each 16384 elements, the last of which may have fewer. Squares of these numbers are beyond f32, and those
// of f32 would be less exact than the sums.
TEST(InstructionSets, SquareSums) {
  Batch batch({3}, {1});
  constexpr int part = 16384;
  for (const int elements : {1, 37, part, part + 1, 40003}) {
    std::vector<double> sums((elements + part - 1) / part);
    const Options options{.elements = elements, .set = [&](int64_t, Tensor &t) {
                            std::ranges::fill(sums, 0);
                            for (size_t i = 0; i < t.data.size(); ++i) {
                              const double x = t.data[i] = static_cast<float>(1e25 * t.data[i]);
                              sums[i / part] += x * x;
                            }
                          }};
    const std::string text =
        textOf("xfc.square_sum %a0", {tensor({elements})}, "tensor<" + std::to_string(sums.size()) + "xf64>");
    SCOPED_TRACE(text);
    Outcomes found;
    ASSERT_NO_THROW(found = runOnBoth(batch, text, {tensor({elements})}, options));
    compareBits(found);
    for (const Outcome &outcome : found) {
      ASSERT_EQ(outcome.kernel[0].data.size(), sums.size());
      double total = 0;
      for (size_t i = 0; i < sums.size(); ++i) {
        EXPECT_NEAR(outcome.kernel[0].data[i] / sums[i], 1, 1e-13) << "part " << i;
        total += outcome.kernel[0].data[i];
      }
      EXPECT_NEAR(total / outcome.expected[0].data[0], 1, 1e-13); // the interpreter has a single part
    }
  }
}

// The norm of several lists of partial sums, clipped, not clipped and not limited, and one that is 0. In f64, sums of
// another order than theirs are visible: each 1 after the first number is lost, and a hundred of them together are not.
TEST(InstructionSets, ClipFactor) {
  Batch batch({3}, {1});
  for (const bool wide : {false, true})
    for (const double most : {0.0, 0.5, 1e30})
      for (const double first : {0.0, 0x1p53}) {
        const std::string one = wide ? "tensor<f64>" : "tensor<f32>",
                          text = textOf("xfc.clip_factor %a0, %a1, %a2", {one, "tensor<100xf64>", "tensor<37xf64>"},
                                        one + ", " + one);
        SCOPED_TRACE(text + " of " + std::to_string(first) + " at most " + std::to_string(most));
        const Options options{.set = [=](int64_t i, Tensor &t) {
          std::ranges::fill(t.data, i == 0 ? most : first > 0 ? 1 : 0);
          if (i == 1)
            t.data[0] = first;
        }};
        Outcomes found;
        ASSERT_NO_THROW(found = runOnBoth(batch, text, {one, "tensor<100xf64>", "tensor<37xf64>"}, options));
        compareBits(found);
        for (const Outcome &outcome : found)
          for (const int result : {0, 1}) {
            const double expected = outcome.expected[result].data[0];
            EXPECT_NEAR(outcome.kernel[result].data[0], expected, expected * (wide ? 0x1p-52 : 0x1p-23)) << result;
          }
      }
}
