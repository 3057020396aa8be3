// Checks that a kernel's results have the same bits for AVX2 and for AVX-512: sums use the same number of lanes in both
// (KernelBuilder::SumLanes), and nothing is approximated by an instruction that only one of them has. On a machine
// without AVX-512 its vectors are split in two, which does not change the results. Products in int8 have the same bits
// with AMX, too, whose tiles are emulated on a machine without them.
#include "KernelTest.h"
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
void expectSameBits(const Batch &batch, const std::string &op, const std::vector<std::string> &types,
                    const std::string &results, Options options = {}, const std::string &wide = "x86-64-v4") {
  std::string text = op + " : ";
  if (results.empty()) {
    text += types.front();
  } else {
    for (size_t i = 0; i < types.size(); ++i)
      text += (i ? ", " : "(") + types[i];
    text += ") -> (" + results + ")";
  }
  SCOPED_TRACE(text);
  options.evaluate = false;
  std::vector<Tensor> found[2];
  for (int form = 0; form < 2; ++form) {
    options.cpu = form ? wide : "x86-64-v3";
    ASSERT_NO_THROW(found[form] = runKernel(batch, text, types, options).kernel);
  }
  ASSERT_EQ(found[0].size(), found[1].size());
  ASSERT_FALSE(found[0].empty());
  for (size_t i = 0; i < found[0].size(); ++i) {
    const std::vector<double> &one = found[0][i].data, &other = found[1][i].data;
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

TEST(InstructionSets, GradientNorm) {
  Batch batch({3}, {1});
  expectSameBits(batch, "xfc.square_sum %a0", {tensor({40003})}, "tensor<3xf64>", {.elements = 40003});
}
