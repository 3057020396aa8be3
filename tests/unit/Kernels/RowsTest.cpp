// Compares every kernel that is not a matrix product with the interpreter, in f32 and f64 and with rows of bf16, on
// ragged batches.
#include "KernelTest.h"
#include "plan/Optimizers.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

using namespace xfc;
using namespace xfc::test;

namespace {

class Rows : public testing::TestWithParam<Target> {
protected:
  bool f64() const { return GetParam().f64; }
  Device device() const { return GetParam().device; }
  bool plain() const { return device() == Device::Plain; }
  std::string element() const { return GetParam().element(); }
  std::string rows(const std::string &set, const std::string &features) const {
    return "!xfc.rows<" + set + ", " + features + "x" + GetParam().elementOfRows(std::stoi(features)) + ">";
  }
  // Rows that are never narrow, whatever their width (KernelOpInterface::staysWide).
  std::string wide(const std::string &set, const std::string &features) const {
    return "!xfc.rows<" + set + ", " + features + "x" + element() + ">";
  }
  // What is rounded to bf16 when it is stored may round to the other neighbor.
  double tolerance() const { return GetParam().narrow ? 0x1p-8 : toleranceOf(f64()); }
  void SetUp() override {
    if (const std::string missing = GetParam().missing(); !missing.empty())
      GTEST_SKIP() << "this CPU lacks " << missing;
  }
  std::string row(const std::string &set) const { return "!xfc.rows<" + set + ", " + element() + ">"; }
  std::string ids(const std::string &set) const { return "!xfc.rows<" + set + ", i32>"; }
  std::string tensor(const std::string &shape) const {
    return "tensor<" + shape + (shape.empty() ? "" : "x") + element() + ">";
  }
  std::string pairs(const std::string &kind, int heads) const {
    return "!xfc.pairs<" + kind + ", " + std::to_string(heads) + "x" + element() + ">";
  }

  void check(const Batch &batch, const std::string &op, const std::vector<std::string> &types,
             const std::string &results, Options options = {}, std::optional<double> allowed = {}) {
    std::string text = op + " : (";
    for (size_t i = 0; i < types.size(); ++i)
      text += (i ? ", " : "") + types[i];
    check(batch, text + ") -> (" + results + ")", types, options, allowed);
  }
  // Checks an op whose operands and result all have one type.
  void checkSame(const Batch &batch, const std::string &op, const std::string &type, int operands,
                 Options options = {}) {
    check(batch, op + " : " + type, std::vector<std::string>(operands, type), options);
  }
  void check(const Batch &batch, const std::string &text, const std::vector<std::string> &types, Options options,
             std::optional<double> allowed = {}) {
    SCOPED_TRACE(text);
    options.device = device();
    options.cpu = GetParam().cpu;
    ASSERT_NO_THROW(expectClose(runKernel(batch, text, types, options), allowed.value_or(tolerance()), text));
  }
};

// Tests of ops that have no plain lowering.
class FusedRows : public Rows {};
// Tests of what only the CPU's kernels do.
class PackingRows : public Rows {};

const std::vector<int> sourceLengths = {1, 7, 71, 13}, targetLengths = {3, 17, 66, 1};

TEST_P(Rows, Elementwise) {
  Batch batch(sourceLengths, targetLengths);
  for (const char *width : {"1", "5", "32", "40", "75"}) {
    std::string type = rows("source", width);
    EXPECT_GE(elementwiseOps().size(), 2u);
    for (const auto &[name, operands] : elementwiseOps()) {
      std::string op = name + " %a0";
      for (int i = 1; i < operands; ++i)
        op += ", %a" + std::to_string(i);
      checkSame(batch, op, type, operands, {.extraStride = 3});
      checkSame(batch, op, type, operands, {.extraStride = 4});
      checkSame(batch, op, type, operands, {.inPlace = true});
    }
  }
  std::string type = rows("target", "21");
  for (unsigned i = 0; i <= getMaxEnumValForActivationKind(); ++i) {
    const std::string kind = stringifyActivationKind(static_cast<ActivationKind>(i)).str();
    checkSame(batch, "xfc.activation " + kind + " %a0", type, 1);
    checkSame(batch, "xfc.activation_grad " + kind + " %a0, %a1", type, 2, {.extraStride = 1});
    // Squares that overflow in f32 must not give NaN.
    if (kind == "gelu_tanh")
      checkSame(batch, "xfc.activation_grad gelu_tanh %a0, %a1", type, 2, {.set = [](int64_t operand, Tensor &t) {
                  for (size_t i = 0; operand == 1 && i < t.data.size(); ++i)
                    t.data[i] = (i % 2 ? 1 : -1) * std::pow(10, static_cast<double>(i % 30));
                }});
  }
  checkSame(batch, "xfc.scale %a0 {factor = -0.3}", type, 1, {.extraStride = 2});
  checkSame(batch, "xfc.activation gelu %a0", rows("target", "68"), 1);
  check(batch, "xfc.zeros", {}, rows("target", "12"));
  check(batch, "xfc.zeros", {}, rows("target", "9"), {.extraStride = 2});
  checkSame(batch, "xfc.add %a0, %a1", tensor("37x500"), 2, {.elements = 37 * 500});
}

TEST_P(Rows, Dropout) {
  for (bool training : {true, false}) {
    Batch batch(sourceLengths, targetLengths, 40, training);
    for (const char *width : {"5", "64", "72", "100", "150"})
      for (int extraStride : {0, 2})
        checkSame(batch, "xfc.dropout %a0 {rate = 0.3, id = 7 : i64}", rows("target", width), 1,
                  {.extraStride = extraStride, .dropout = 7});
    for (const char *rate : {"1.0e-6", "0.99999"}) // that drop none and nearly all
      checkSame(batch, std::string("xfc.dropout %a0 {rate = ") + rate + ", id = 7 : i64}", rows("target", "72"), 1,
                {.dropout = 7});
    for (const char *width : {"5", "64", "150"})
      checkSame(batch, "xfc.dropout %a0 {rate = 0.3, id = 7 : i64, kept}", rows("target", width), 1,
                {.extraStride = 3});
    for (const char *kind : {"source, source, padding", "target, target, causal", "target, source"})
      for (const char *rate : {"0.3", "1.0e-6", "0.99999"}) // that drop some, none and nearly all
        checkSame(batch, std::string("xfc.dropout %a0 {rate = ") + rate + ", id = 5 : i64}", pairs(kind, 3), 1,
                  {.dropout = 5, .inPlace = true});
  }
}

TEST_P(Rows, PositionsAndCache) {
  Batch batch(sourceLengths, targetLengths, 400);
  check(batch, "xfc.add_positions %a0, %a1", {rows("source", "19"), tensor("80x19")}, rows("source", "19"),
        {.extraStride = 5});
  check(batch, "xfc.positions_grad %a0", {rows("source", "19")}, tensor("80x19"));
  for (const char *width : {"19", "20", "24"}) {
    const std::string table = tensor(std::string("73x") + width), x = rows("source", width);
    check(batch, "xfc.add_positions %a0, %a1 {offset = 2 : i64}", {x, table}, x);
    check(batch, "xfc.positions_grad %a0 {offset = 2 : i64}", {x}, table);
  }
  check(batch, "xfc.positions_grad %a0", {rows("source", "70")}, tensor("80x70"), {.extraStride = 5});
  for (const char *width : {"19", "20", "24"})
    check(batch, "xfc.cache_write %a0, %a1", {rows("cache", width), rows("target", width)}, rows("cache", width));
  if (!f64() && !plain()) {
    for (const char *width : {"8", "72"}) {
      check(batch, "xfc.quantize %a0", {wide("source", width)}, std::string("!xfc.rows<source, ") + width + "xbf16>",
            {.extraStride = 3}, 0x1p-8);
      check(batch, "xfc.cache_write %a0, %a1",
            {std::string("!xfc.rows<cache, ") + width + "xbf16>", wide("target", width)},
            std::string("!xfc.rows<cache, ") + width + "xbf16>", {}, 0x1p-8);
      check(batch, "xfc.cache_write %a0, %a1",
            {std::string("!xfc.rows<cache, ") + width + "xi8>", std::string("!xfc.rows<target, ") + width + "xi8>"},
            std::string("!xfc.rows<cache, ") + width + "xi8>", {.set = [](int64_t operand, Tensor &t) {
              for (size_t i = 0; i < t.data.size(); ++i)
                t.data[i] = std::nearbyint(127 * std::sin(i * 0.9 + operand));
            }});
    }
    // An integer may be the other neighbor of a number close to the middle between two. Parts of zeros stay zeros.
    for (const auto &[width, groups] : {std::pair{"8", 1}, {"72", 3}, {"24", 3}, {"24", 4}, {"128", 2}, {"320", 1}})
      check(batch, "xfc.quantize %a0 {groups = " + std::to_string(groups) + " : i64}", {wide("source", width)},
            std::string("!xfc.rows<source, ") + width + "xi8>, " + wide("source", std::to_string(groups)),
            {.extraStride = 3,
             .set =
                 [](int64_t, Tensor &t) {
                   for (int64_t i = 0; i < 2 * t.features(); ++i)
                     t.data[i] = 0;
                 }},
            1.0 / 127);
  }
  check(batch, "xfc.positions_grad %a0", {rows("source", "68")}, tensor("80x68"));
  // Heads whose pairs fill vectors, or do not; and features that are not rotated.
  for (auto [width, rotated] : {std::pair{16, "16"}, {48, "32"}, {7, "6"}})
    for (const char *attributes : {"", ", halves", ", inverse", ", halves, inverse"}) {
      const std::string x = rows("source", std::to_string(3 * width)),
                        op = std::string("xfc.rotate %a0, %a1 {heads = 3 : i64") + attributes + "}";
      check(batch, op, {x, tensor(std::string("71x") + rotated)}, x, {.extraStride = 5});
      check(batch, op, {x, tensor(std::string("71x") + rotated)}, x, {.inPlace = true});
    }
}

// Columns that fill several chunks, or leave a part of a vector; rows that are a multiple of 16 bytes, or are not.
TEST_P(Rows, Recurrence) {
  Batch batch(sourceLengths, targetLengths);
  for (const char *width : {"1", "5", "40", "64", "75", "300"}) {
    const std::string x = rows("target", width), op = "xfc.recurrence %a0, %a1";
    check(batch, op, {x, x}, x, {.extraStride = 3});
    check(batch, op, {x, x}, x, {.inPlace = true});
    const std::string grad = "xfc.recurrence_grad %a0, %a1, %a2, %a3";
    for (const std::vector<int> &unused : {std::vector<int>(), {0}, {1}})
      check(batch, grad, {x, x, x, x}, x + ", " + x, {.extraStride = 4, .unused = unused});
    const std::string source = rows("source", width);
    check(batch, grad, {source, source, source, source}, source + ", " + source, {.extraStride = 3});
  }
}

// Hypotheses at their first token and later.
TEST_P(Rows, RecurrenceInADecodingStep) {
  Batch batch({3, 2}, std::vector<int>(70, 1));
  for (const char *width : {"1", "5", "64", "75", "300"}) {
    const std::string x = rows("target", width), op = "xfc.recurrence %a0, %a1, %a2";
    check(batch, op, {x, x, rows("cache", width)}, x, {.extraStride = 3, .decodingStep = true});
    check(batch, op, {x, x, rows("cache", width)}, x, {.inPlace = true, .decodingStep = true});
  }
}

TEST_P(Rows, Embedding) {
  Batch batch(sourceLengths, targetLengths);
  for (std::string width : {"5", "40", "48", "300"}) {
    check(batch, "xfc.embedding %a0, %a1 {scale = 3.0}", {ids("source"), tensor("37x" + width)}, rows("source", width),
          {.extraStride = 3});
    check(batch, "xfc.embedding_grad %a0, %a1 {scale = 3.0}", {rows("source", width), ids("source")},
          tensor("37x" + width), {.extraStride = 3});
    // Most tokens of this vocabulary occur in no row.
    check(batch, "xfc.embedding_grad %a0, %a1", {rows("target", width), ids("target")}, tensor("700x" + width));
  }
  // Hundreds of rows for each id.
  Batch many({8000}, {3});
  for (std::string width : {"20", "21"})
    check(many, "xfc.embedding_grad %a0, %a1", {rows("source", width), ids("source")}, tensor("39x" + width));
}

TEST_P(Rows, Norm) {
  Batch batch(sourceLengths, targetLengths);
  for (std::string width : {"1", "5", "32", "40", "100", "1200"})
    for (std::string kind : {"", ", kind = 1 : i32", ", unbiased", ", unbiased, eps_in_std", ", eps_in_std"}) {
      const bool rms = kind.find("kind") != std::string::npos;
      std::string attributes = " {eps = 1.0e-3" + kind + "}", x = rows("source", width), w = tensor(width),
                  stats = rows("source", "2");
      if (!rms)
        check(batch, "xfc.norm %a0, %a1, %a2" + attributes, {x, w, w}, x + ", " + stats, {.extraStride = 3});
      check(batch, "xfc.norm %a0, %a1" + attributes, {x, w}, x + ", " + stats);
      if (!rms && !plain())
        check(batch, "xfc.add_norm %a0, %a1, %a2, %a3" + attributes, {x, x, w, w}, x + ", " + x + ", " + stats,
              {.extraStride = 1});
      if (!plain())
        check(batch, "xfc.add_norm %a0, %a1, %a2" + attributes, {x, x, w}, x + ", " + x + ", " + stats);
      // Plausible norm statistics: a mean, and a positive r.
      Options options{.extraStride = 2, .set = [&](int64_t operand, Tensor &t) {
                        if (operand == 3)
                          for (size_t i = 0; i < t.data.size(); ++i)
                            t.data[i] = i % 2 ? 0.5 + std::abs(t.data[i]) / 4 : rms ? 0 : t.data[i] / 4;
                      }};
      if (kind.find("eps_in_std") != std::string::npos)
        continue; // their r must match x: see NormGradEpsInStd
      check(batch, "xfc.norm_grad %a0, %a1, %a2, %a3" + attributes, {x, x, w, stats}, x, options);
      check(batch, "xfc.norm_grad %a0, %a1, %a2, %a3, %a4" + attributes, {x, x, w, stats, x}, x, options);
      if (plain())
        continue;
      // Parts of several rows each, and parts of one row or none.
      for (int parts : {3, 150}) {
        const std::string sums = tensor(std::to_string(parts) + "x" + width);
        check(batch, "xfc.norm_grad_with_parts %a0, %a1, %a2, %a3" + attributes, {x, x, w, stats},
              x + ", " + sums + (rms ? "" : ", " + sums), options);
        check(batch, "xfc.norm_grad_with_parts %a0, %a1, %a2, %a3, %a4" + attributes, {x, x, w, stats, x},
              x + ", " + sums + ", " + sums, options);
      }
    }
  Batch many({1200, 3}, {1});
  check(batch, "xfc.norm %a0, %a1 {eps = 1.0e-3}", {rows("source", "1101"), tensor("1101")},
        rows("source", "1101") + ", " + rows("source", "2"));
  check(many, "xfc.norm_weight_grad %a0, %a1, %a2", {rows("source", "20"), rows("source", "20"), rows("source", "2")},
        tensor("20") + ", " + tensor("20"));
  for (std::string width : {"1", "5", "32", "40", "100"}) {
    std::string x = rows("source", width), w = tensor(width), stats = rows("source", "2");
    check(batch, "xfc.norm_weight_grad %a0, %a1, %a2", {x, x, stats}, w + ", " + w, {.extraStride = 3});
    check(batch, "xfc.norm_weight_grad %a0, %a1, %a2", {x, x, stats}, w);
    const std::string parts = tensor("32x" + width);
    if (!plain())
      for (const std::vector<int> &unused : {std::vector<int>(), {0}, {1}})
        check(batch, "xfc.sum_parts %a0, %a1", {parts, parts}, w + ", " + w, {.unused = unused});
  }
  // More parts than a GPU block holds in shared memory at once.
  if (!plain())
    check(batch, "xfc.sum_parts %a0", {tensor("1100x10")}, tensor("10"));
  // Unused results are not written.
  const std::string x = rows("source", "20"), parts = tensor("4x20");
  if (!plain())
    for (int unused : {0, 1, 2})
      check(many, "xfc.norm_grad_with_parts %a0, %a1, %a2, %a3 {eps = 1.0e-3}",
            {x, x, tensor("20"), rows("source", "2")}, x + ", " + parts + ", " + parts, {.unused = {unused}});
}

TEST_P(Rows, NormGradEpsInStd) {
  Batch batch({3, 5}, {1});
  for (std::string variant : {"eps_in_std", "eps_in_std, unbiased"}) {
    std::string x = rows("source", "12"), w = tensor("12"), stats = rows("source", "2"),
                attributes = " {eps = 1.0e-3, " + variant + "}";
    std::vector<double> values;
    Options forward{.device = device(), .cpu = GetParam().cpu, .set = [&](int64_t operand, Tensor &t) {
                      if (operand == 0) {
                        std::fill_n(t.data.begin(), 12, 0.0); // std is 0
                        values = t.data;
                      }
                    }};
    Outcome statistics =
        runKernel(batch, "xfc.norm %a0, %a1" + attributes + " : (" + x + ", " + w + ") -> (" + x + ", " + stats + ")",
                  {x, w}, forward);
    check(batch, "xfc.norm_grad %a0, %a1, %a2, %a3" + attributes, {x, x, w, stats}, x,
          {.set = [&](int64_t operand, Tensor &t) {
            if (operand == 1)
              t.data = values;
            if (operand == 3)
              t = statistics.expected[1];
          }});
  }
}

const char *const pairKinds[] = {"source, source", "source, source, padding", "target, target, causal",
                                 "target, target, padding causal", "target, source, padding"};

TEST_P(Rows, ElementwisePairs) {
  Batch batch(sourceLengths, targetLengths);
  for (std::string kind : pairKinds) {
    std::string p = pairs(kind, 3);
    checkSame(batch, "xfc.scale %a0 {factor = 0.3}", p, 1);
    checkSame(batch, "xfc.add %a0, %a1", p, 2);
    checkSame(batch, "xfc.mask %a0", p, 1, {.inPlace = true});
    checkSame(batch, "xfc.mask %a0 {zero}", p, 1);
  }
}

TEST_P(Rows, Pairs) {
  Batch batch(sourceLengths, targetLengths);
  for (std::string kind : pairKinds) {
    std::string p = pairs(kind, 3);
    checkSame(batch, "xfc.softmax_grad %a0, %a1", p, 2);
    for (const char *width : {"21", "24"}) {
      std::string q = rows(kind.substr(0, 6), width), k = rows(kind.substr(8, 6), width);
      check(batch, "xfc.scores %a0, %a1", {q, k}, p, {.extraStride = 4});
      check(batch, "xfc.combine %a0, %a1", {p, k}, q, {.extraStride = 4});
      check(batch, "xfc.combine_transposed %a0, %a1", {p, q}, k, {.extraStride = 4});
    }
    int64_t calls = 0;
    // Some rows consist of minus infinity only; they give 0.
    checkSame(batch, "xfc.softmax %a0", p, 1, {.inPlace = true, .set = [&](int64_t, Tensor &t) {
                                                 for (double &x : t.data)
                                                   if (calls++ % 3 == 0 || calls < 60)
                                                     x = -INFINITY;
                                               }});
  }
}

TEST_P(Rows, AlignmentLoss) {
  Batch batch(sourceLengths, targetLengths);
  for (auto [kind, structure] : {std::pair{"target, source, padding", XFC_KEYS(XFC_TARGET_SOURCE, 1, 0)},
                                 {"source, source", XFC_KEYS(XFC_SOURCE_SOURCE, 0, 0)}})
    for (std::string width : {"1", "4", "40"})
      for (std::string head : {"", " {head = 2 : i64}"}) {
        const std::string set = std::string(kind).substr(0, 6), p = pairs(kind, 3), one = row(set),
                          links = "!xfc.rows<" + set + ", " + width + "xi32>", shares = wide(set, width);
        const auto queries = set == "target" ? RowSet::target : RowSet::source;
        for (const std::vector<int> &unused : {std::vector<int>{}, {0}, {1, 2}})
          check(batch, "xfc.alignment_loss %a0, %a1, %a2, %a3" + head, {one, p, links, shares},
                one + ", " + one + ", " + shares,
                {.extraStride = 3, .unused = unused, .set = setLinks(batch, queries, structure)});
        check(batch, "xfc.alignment_loss_grad %a0, %a1, %a2, %a3" + head, {one, shares, links, shares}, p,
              {.extraStride = 3, .set = setLinks(batch, queries, structure)});
      }
}

// The bias by the distance of key and query, and its gradient.
TEST_P(Rows, DistanceBias) {
  Batch batch(sourceLengths, targetLengths);
  const std::string bias = tensor("600x6");
  for (std::string table : {tensor("32x3"), tensor("6x3")})
    for (std::string attributes : {" {max_distance = 128 : i64}", " {max_distance = 100 : i64, both_directions}"}) {
      check(batch, "xfc.distance_bias %a0" + attributes, {table}, bias);
      check(batch, "xfc.distance_bias_grad %a0" + attributes, {bias}, table);
    }
  check(batch, "xfc.distance_bias", {}, tensor("70x10"));
  for (std::string kind : {"source, source, padding", "target, target, causal", "source, source"}) {
    const std::string p = pairs(kind, 3);
    check(batch, "xfc.add_distance_bias %a0, %a1", {p, bias}, p, {.inPlace = true});
    check(batch, "xfc.sum_distances %a0", {p}, rows(kind.substr(0, 6), "6"), {.extraStride = 3});
  }
  Batch step({9, 70}, {1, 1, 1, 1, 1}, 700);
  const std::string p = pairs("target, cache", 3);
  check(step, "xfc.add_distance_bias %a0, %a1", {p, bias}, p);
}

// Fused attention, whose bias gradient consists of sums for each sequence.
TEST_P(FusedRows, AttentionWithABias) {
  Batch batch(sourceLengths, targetLengths), longer({270, 3}, {5, 2}); // several blocks of keys
  for (auto [b, set, flags] :
       {std::tuple{&batch, "source", ", padding"}, {&batch, "target", ", padding, causal"}, {&longer, "source", ""}}) {
    const bool dropout = b == &longer;
    const std::string attributes =
        std::string(" {heads = 2 : i64, scale = 0.4") + flags + (dropout ? ", rate = 0.3, id = 9 : i64}" : "}");
    const std::string q = rows(set, "14"), lse = rows(set, "2"), bias = tensor("280x4");
    std::vector<Tensor> saved;
    Options options{
        .device = device(), .extraStride = 3, .cpu = GetParam().cpu, .dropout = 9, .set = [&](int64_t, Tensor &t) {
          saved.push_back(t);
        }};
    const std::string text = "xfc.attention %a0, %a1, %a2, %a3" + attributes + " : (" + q + ", " + q + ", " + q + ", " +
                             bias + ") -> (" + q + ", " + lse + ")";
    Outcome forward = runKernel(*b, text, {q, q, q, bias}, options);
    expectClose(forward, tolerance(), text);
    options.set = [&](int64_t operand, Tensor &t) {
      if (operand >= 1)
        t = operand <= 3 ? saved[operand - 1] : operand <= 5 ? forward.expected[operand - 4] : saved[3];
    };
    check(*b, "xfc.attention_grad %a0, %a1, %a2, %a3, %a4, %a5, %a6" + attributes, {q, q, q, q, q, lse, bias},
          q + ", " + q + ", " + q + ", " + rows(set, "4"), options);
  }
  Batch step({9, 70}, {1, 1, 1, 1, 1}, 700);
  const std::string q = rows("target", "10"), k = rows("cache", "10");
  check(step, "xfc.attention %a0, %a1, %a2, %a3 {heads = 2 : i64, scale = 0.2}", {q, k, k, tensor("700x4")},
        q + ", " + rows("target", "2"), {.extraStride = 3});
}

// Heads that share keys, and keys within reach: unfused, and fused with a bias, dropout and returned weights.
TEST_P(Rows, SharedHeadsAndReach) {
  Batch batch(sourceLengths, targetLengths);
  const std::string q = rows("source", "30"), k = rows("source", "10"), p = pairs("source, source, padding", 6);
  check(batch, "xfc.scores %a0, %a1", {q, k}, p, {.extraStride = 3});
  check(batch, "xfc.combine %a0, %a1", {p, k}, q, {.extraStride = 3});
  check(batch, "xfc.combine_transposed %a0, %a1", {p, q}, k, {.extraStride = 3});
  for (const char *kind : {"source, source, padding", "target, target, causal"})
    for (const char *attributes : {"{reach = 0 : i64}", "{reach = 5 : i64, zero}"})
      checkSame(batch, std::string("xfc.mask %a0 ") + attributes, pairs(kind, 3), 1, {.inPlace = true});
  Batch step({9, 70}, {1, 1, 1}, 300, /*training=*/false, 0, {1, 11, 70});
  checkSame(step, "xfc.mask %a0 {reach = 9 : i64}", pairs("target, cache", 3), 1);
}

TEST_P(FusedRows, SharedHeadsAndReach) {
  Batch batch(sourceLengths, targetLengths), longer({530, 3}, {5, 2}); // several blocks of keys
  for (auto [b, set, heads, flags] : {std::tuple{&batch, "source", 6, "padding, reach = 6 : i64"},
                                      {&batch, "target", 6, "padding, causal, rate = 0.3, id = 9 : i64"},
                                      {&longer, "source", 2, "causal, reach = 300 : i64, rate = 0.3, id = 9 : i64"}}) {
    const std::string count = std::to_string(heads),
                      attributes = " {heads = " + count + " : i64, scale = 0.4, " + flags + "}";
    auto rowsOf = [&, set = set](int heads, int dim) { return rows(set, std::to_string(heads * dim)); };
    const std::string q = rowsOf(heads, 5), k = rowsOf(heads / 2, 5), v = rowsOf(heads / 2, 7), o = rowsOf(heads, 7),
                      lse = rows(set, count);
    std::vector<Tensor> saved;
    Options options{
        .device = device(), .extraStride = 3, .cpu = GetParam().cpu, .dropout = 9, .set = [&](int64_t, Tensor &t) {
          saved.push_back(t);
        }};
    const std::string text =
        "xfc.attention %a0, %a1, %a2" + attributes + " : (" + q + ", " + k + ", " + v + ") -> (" + o + ", " + lse + ")";
    Outcome forward = runKernel(*b, text, {q, k, v}, options);
    expectClose(forward, tolerance(), text);
    options.set = [&](int64_t operand, Tensor &t) {
      if (operand >= 1)
        t = operand <= 3 ? saved[operand - 1] : forward.expected[operand - 4];
    };
    check(*b, "xfc.attention_grad %a0, %a1, %a2, %a3, %a4, %a5" + attributes, {o, q, k, v, o, lse},
          q + ", " + k + ", " + v, options);
  }
  const std::string q = rows("source", "20"), k = rows("source", "10"), lse = rows("source", "4");
  check(batch, "xfc.attention %a0, %a1, %a2 {heads = 4 : i64, scale = 0.4, reach = 3 : i64}", {q, k, k},
        q + ", " + lse + ", " + pairs("source, source", 4), {.extraStride = 3});
  // Hypotheses of up to 300 tokens, of which the last ten are visible.
  Batch step({9, 70}, {1, 1, 1, 1, 1}, 700, /*training=*/false, 0, {1, 10, 11, 300, 64});
  for (const char *reach : {"", ", reach = 9 : i64"})
    check(step, std::string("xfc.attention %a0, %a1, %a2 {heads = 4 : i64, scale = 0.2") + reach + "}",
          {rows("target", "20"), rows("cache", "10"), rows("cache", "10")},
          rows("target", "20") + ", " + rows("target", "4"), {.extraStride = 3});
}

TEST_P(FusedRows, Attention) {
  Batch batch(sourceLengths, targetLengths);
  for (auto [keyDim, valueDim] : {std::pair{5, 5}, {7, 3}, {16, 16}, {40, 128}})
    for (auto [queries, keys, flags] :
         {std::tuple{"source", "source", "padding"}, {"target", "target", "padding, causal"}, {"target", "source", ""}})
      for (bool dropout : {false, true}) {
        const int heads = 3;
        std::string attributes = std::string(" {heads = 3 : i64, scale = 0.4") + (*flags ? ", " : "") + flags +
                                 (dropout ? ", rate = 0.3, id = 9 : i64" : "") + "}";
        std::string kind = std::string(queries) + ", " + keys + (*flags ? ", " : "") +
                           (std::string(flags) == "padding, causal" ? "padding causal" : flags);
        std::string q = rows(queries, std::to_string(heads * keyDim)), k = rows(keys, std::to_string(heads * keyDim));
        std::string v = rows(keys, std::to_string(heads * valueDim)),
                    o = rows(queries, std::to_string(heads * valueDim)), lse = rows(queries, "3");
        std::vector<Tensor> saved;
        Options options{
            .device = device(), .extraStride = 3, .cpu = GetParam().cpu, .dropout = 9, .set = [&](int64_t, Tensor &t) {
              saved.push_back(t);
            }};
        const std::string text =
            "xfc.attention %a0, %a1, %a2" + attributes + " : (" + q + ", " + k + ", " + v + ") -> (" + o + ", " + lse;
        const Outcome forward = runKernel(batch, text + ")", {q, k, v}, options);
        expectClose(forward, tolerance(), text);
        if (keyDim == 7)
          expectClose(runKernel(batch, text + ", " + pairs(kind, 3) + ")", {q, k, v}, options), tolerance(),
                      text + ", weights");
        // The gradient recomputes the probabilities from o and lse, which must match its operands.
        options.set = [&](int64_t operand, Tensor &t) {
          if (operand >= 1 && operand <= 3)
            t = saved[operand - 1];
          else if (operand >= 4)
            t = forward.expected[operand - 4];
        };
        check(batch, "xfc.attention_grad %a0, %a1, %a2, %a3, %a4, %a5" + attributes, {o, q, k, v, o, lse},
              q + ", " + k + ", " + v, options);
      }
}

// Keys in several blocks of the online softmax, forward and backward.
TEST_P(FusedRows, LongAttention) {
  Batch batch({530, 3}, {300, 2});
  for (auto [queries, keys, flags] : {std::tuple{"target", "source", "padding"}, {"source", "source", "causal"}}) {
    std::string attributes = std::string(" {heads = 2 : i64, scale = 0.9, ") + flags + ", rate = 0.2, id = 3 : i64}";
    std::string q = rows(queries, "16"), k = rows(keys, "16"), lse = rows(queries, "2");
    std::vector<Tensor> saved;
    Options options{.device = device(), .cpu = GetParam().cpu, .dropout = 3, .set = [&](int64_t, Tensor &t) {
                      saved.push_back(t);
                    }};
    Outcome forward = runKernel(batch,
                                "xfc.attention %a0, %a1, %a2" + attributes + " : (" + q + ", " + k + ", " + k +
                                    ") -> (" + q + ", " + lse + ")",
                                {q, k, k}, options);
    expectClose(forward, tolerance(), "forward");
    options.set = [&](int64_t operand, Tensor &t) {
      if (operand >= 1)
        t = operand <= 3 ? saved[operand - 1] : forward.expected[operand - 4];
    };
    check(batch, "xfc.attention_grad %a0, %a1, %a2, %a3, %a4, %a5" + attributes, {q, q, k, k, q, lse},
          q + ", " + k + ", " + k, options);
  }
}

TEST_P(FusedRows, DecodingAttention) {
  Batch batch({9, 70}, {1, 1, 1, 1, 1}, 700);
  for (int dim : {5, 32, 80}) {
    std::string q = rows("target", std::to_string(2 * dim)), k = rows("cache", std::to_string(2 * dim));
    check(batch, "xfc.attention %a0, %a1, %a2 {heads = 2 : i64, scale = 0.2}", {q, k, k},
          q + ", " + rows("target", "2"), {.extraStride = 3});
  }
}

TEST_P(FusedRows, SequencesDoNotTouchEachOther) {
  // The last sequence of a batch, computed alone, gives the same bytes.
  Batch many({7, 66, 19}, {5, 31, 19}, 40, true, 0), alone({19}, {19}, 40, true, 2);
  std::string q = rows("source", "24"), lse = rows("source", "3");
  std::string op = "xfc.attention %a0, %a1, %a2 {heads = 3 : i64, scale = 0.4, padding, rate = 0.2, id = 2 : i64} : (" +
                   q + ", " + q + ", " + q + ") -> (" + q + ", " + lse + ")";
  auto tail = [](int64_t, Tensor &t) {
    const int64_t n = t.shape[0], f = t.features();
    for (int64_t i = 0; i < 19; ++i)
      for (int64_t j = 0; j < f; ++j)
        t.data[(n - 19 + i) * f + j] = std::sin(i * 31.7 + j * 1.3);
  };
  Outcome a = runKernel(many, op, {q, q, q}, {.device = device(), .cpu = GetParam().cpu, .dropout = 2, .set = tail});
  Outcome b = runKernel(alone, op, {q, q, q}, {.device = device(), .cpu = GetParam().cpu, .dropout = 2, .set = tail});
  for (int result = 0; result < 2; ++result) {
    const auto &all = a.kernel[result].data, &one = b.kernel[result].data;
    EXPECT_TRUE(std::equal(one.begin(), one.end(), all.end() - one.size())) << "result " << result;
  }
}

TEST_P(Rows, Loss) {
  Batch batch(sourceLengths, targetLengths);
  for (std::string vocabulary : {"37", "64", "301", "1300"}) {
    std::string logits = wide("target", vocabulary), one = row("target");
    checkSame(batch, "xfc.log_softmax %a0", logits, 1, {.inPlace = true});
    checkSame(batch, "xfc.log_softmax_grad %a0, %a1", logits, 2, {.extraStride = 2});
    for (auto [labels, e] : {std::pair{ids("target"), tensor("")}, // one label for each row, and lists of labels
                             {"!xfc.rows<target, 1xi32>", wide("target", "2")},
                             {"!xfc.rows<target, 9xi32>", wide("target", "10")}}) {
      check(batch, "xfc.nll %a0, %a1, %a2", {logits, labels, e}, one + ", " + one,
            {.extraStride = 2, .set = setTarget(1, 2)});
      check(batch, "xfc.nll_grad %a0, %a1, %a2", {one, labels, e}, logits, {.set = setTarget(1, 2)});
      if (plain())
        continue;
      check(batch, "xfc.cross_entropy %a0, %a1, %a2", {logits, labels, e}, one + ", " + one + ", " + one,
            {.extraStride = 2, .set = setTarget(1, 2)});
      for (bool inPlace : {false, true})
        check(batch, "xfc.cross_entropy_grad %a0, %a1, %a2, %a3, %a4", {logits, one, labels, one, e}, logits,
              {.inPlace = inPlace, .set = setTarget(2, 4)});
    }
  }
}

// Multiples of 1/4, so that there are ties; rows with NaN, and rows with fewer candidates than requested.
TEST_P(Rows, Candidates) {
  Batch batch(sourceLengths, targetLengths);
  auto set = [](int64_t operand, Tensor &t) {
    for (size_t j = 0; operand == 0 && j < t.data.size(); ++j) {
      const size_t row = j / t.features(), token = j % t.features();
      t.data[j] = row % 9 == 5 && token >= 37                 ? NAN // no wanted token is 37 or more
                  : row % 9 == 7 && token >= 4 && token != 33 ? -HUGE_VAL
                                                              : std::round(4 * t.data[j]) / 4;
    }
  };
  for (std::string vocabulary : {"37", "64", "301", "1300"})
    for (std::string count : {"1", "3", "8", "11"}) {
      const std::string results =
          "!xfc.rows<target, " + count + "xi32>, " + wide("target", count) + ", " + row("target");
      for (const std::string last : {"", ", renormalize"}) {
        check(batch, "xfc.candidates %a0, %a1 {excluded = array<i64: 0, 2, 3>" + last + "}",
              {wide("target", vocabulary), ids("target")}, results, {.set = set});
        check(batch, "xfc.candidates %a0, %a1 {excluded = array<i64: 5>" + last + "}",
              {wide("target", vocabulary), ids("target")}, results, {.extraStride = 3, .unused = {2}, .set = set});
      }
    }
}

// The slabs' lists are sorted; equal numbers occur in several slabs, and some slabs have no candidate. A warp has more
// lanes than some rows have slabs, and fewer than others.
TEST_P(FusedRows, MergeCandidates) {
  Batch batch(sourceLengths, targetLengths);
  for (int count : {1, 3, 8})
    for (int slabs : {1, 2, 17, 75}) {
      const std::string list = std::to_string(slabs * count), found = std::to_string(count);
      auto set = [&](int64_t operand, Tensor &t) {
        if (operand > 1)
          return;
        t.data.resize(t.shape[0] * slabs * count);
        for (size_t j = 0; j < t.data.size(); ++j) {
          const int64_t row = static_cast<int64_t>(j) / (slabs * count), slab = static_cast<int64_t>(j) / count % slabs,
                        c = static_cast<int64_t>(j) % count;
          const bool none = (row + slab) % 4 == 3;
          t.data[j] = operand == 0 ? (none ? -1 : slab * 20 + c) : none ? -HUGE_VAL : (row * slab % 5) * 0.5 - c / 2;
        }
      };
      check(batch, "xfc.merge_candidates %a0, %a1, %a2, %a3",
            {"!xfc.rows<target, " + list + "xi32>", wide("target", list), wide("target", std::to_string(slabs)),
             row("target")},
            "!xfc.rows<target, " + found + "xi32>, " + wide("target", found) + ", " + row("target"),
            {.extraStride = 2, .set = set});
    }
}

TEST_P(Rows, Optimizer) {
  Batch batch({1}, {1});
  // The split of a total into partial sums is up to the kernel; the interpreter computes a single one.
  Outcome squares = runKernel(batch, "xfc.square_sum %a0 : (" + tensor("40003") + ") -> (tensor<3xf64>)",
                              {tensor("40003")}, {.device = device(), .cpu = GetParam().cpu, .elements = 40003});
  auto total = [](const Tensor &t) { return t.data[0] + t.data[1] + t.data[2]; };
  EXPECT_NEAR(total(squares.kernel[0]) / total(squares.expected[0]), 1, toleranceOf(f64()));
  for (double most : {0.0, 0.5, 1e9})
    check(batch, "xfc.clip_factor %a0, %a1, %a2", {tensor(""), "tensor<3xf64>", "tensor<2xf64>"},
          tensor("") + ", " + tensor(""), {.set = [&](int64_t i, Tensor &t) {
            for (double &x : t.data)
              x = i ? std::abs(x) : most;
          }});
}

// The second step of an optimizer over one tensor.
struct OptimizerStep {
  OptimizerStep(const Optimizer &optimizer, const std::string &type, int64_t elements,
                const std::function<std::string(const std::string &)> &tensor, double clipValue = 0,
                const std::string &narrow = {}) // the type of states that may be narrow, if they are
      : op("xfc.optimize \"" + std::string(optimizer.rule) + "\" %a0, %a1 parameters(%a2) gradients(%a3) states("),
        operands{tensor(std::to_string(optimizer.hyper.size())), tensor(""), type, type}, results(type),
        options{.elements = elements} {
    for (size_t i = 0; i < optimizer.states.size(); ++i) {
      op += (i ? ", %a" : "%a") + std::to_string(4 + i);
      operands.push_back(narrow.empty() || !mayBeNarrow(optimizer.states[i]) ? type : narrow);
      results += ", " + operands.back();
    }
    op += ") ";
    options.set = [&optimizer, clipValue](int64_t i, Tensor &t) {
      const OptimizerSettings settings{.rate = 0.01, .epsilon = 1e-3, .weightDecay = 0.1, .clipValue = clipValue};
      if (i == 0)
        for (size_t h = 0; h < optimizer.hyper.size(); ++h)
          t.data[h] = optimizer.hyper[h].value(settings, 2);
      if (i > 3 && optimizer.states[i - 4] == "moment2") // a mean of squares is not negative
        for (double &x : t.data)
          x = std::abs(x);
    };
  }

  std::string op;
  std::vector<std::string> operands;
  std::string results;
  Options options;
};

TEST_P(Rows, OptimizerSteps) {
  Batch batch({1}, {1});
  ASSERT_GE(optimizers().size(), 2u);
  for (const Optimizer &optimizer : optimizers())
    for (double clipValue : optimizer.elementwise ? std::vector{0.0, 0.05} : std::vector<double>()) {
      const OptimizerStep step(
          optimizer, tensor("17003"), 17003, [&](const std::string &shape) { return tensor(shape); }, clipValue);
      check(batch, step.op, step.operands, step.results, step.options);
    }
}

// Moments in bf16. The parameters are as exact as with moments in f32. Moments are rounded as the interpreter rounds
// them, but for the few that an f32 is so close to the number where rounding changes that the f64 is beyond it.
TEST_P(Rows, OptimizerStepsWithNarrowMoments) {
  if (f64() || plain())
    return;
  Batch batch({1}, {1});
  constexpr int64_t elements = 17003;
  for (const Optimizer &optimizer : optimizers()) {
    if (!optimizer.elementwise)
      continue;
    OptimizerStep step(
        optimizer, tensor("17003"), elements, [&](const std::string &shape) { return tensor(shape); }, 0,
        "tensor<17003xbf16>");
    SCOPED_TRACE(step.op);
    step.options.device = device();
    step.options.cpu = GetParam().cpu;
    const std::string types = " : (" + llvm::join(step.operands, ", ") + ") -> (" + step.results + ")";
    Outcome outcome;
    ASSERT_NO_THROW(outcome = runKernel(batch, step.op + types, step.operands, step.options));
    for (size_t i = 0; i < outcome.kernel.size(); ++i) {
      const bool narrow = i > 0 && mayBeNarrow(optimizer.states[i - 1]);
      int64_t others = 0;
      for (int64_t e = 0; e < elements; ++e) {
        const double found = outcome.kernel[i].data[e], expected = outcome.expected[i].data[e],
                     error = std::abs(found - expected);
        ASSERT_LE(error, std::max(std::abs(expected), 1e-30) * (narrow ? 0x1p-7 : 0) + (narrow ? 0 : 2e-5))
            << i << " " << e;
        others += narrow && error > 0;
      }
      EXPECT_LE(others, elements / 500) << i;
    }
  }
}

// The mean of numbers that are rounded at random is the number, though it is far closer to one neighbor: 0.999 between
// 255/256 and 1. An element whose parameter and gradient stay the same has other random bits in the next step.
TEST_P(Rows, NarrowMomentsDecay) {
  if (f64() || plain())
    return;
  Batch batch({1}, {1});
  const Optimizer &adam = optimizers().front();
  OptimizerStep step(
      adam, tensor("17003"), 17003, [&](const std::string &shape) { return tensor(shape); }, 0, "tensor<17003xbf16>");
  step.options.device = device();
  step.options.cpu = GetParam().cpu;
  double number = 100000;
  step.options.set = [&adam, &number](int64_t i, Tensor &t) {
    const OptimizerSettings settings{.rate = 0.01, .beta2 = 0.999};
    if (i == 0)
      for (size_t h = 0; h < adam.hyper.size(); ++h)
        t.data[h] = adam.hyper[h].value(settings, number);
    else if (i == 1 || i >= 4)
      std::ranges::fill(t.data, 1);
    else if (i == 3)
      for (double &x : t.data)
        x *= 1e-6;
  };
  const std::string types = " : (" + llvm::join(step.operands, ", ") + ") -> (" + step.results + ")";
  Outcome outcome;
  ASSERT_NO_THROW(outcome = runKernel(batch, step.op + types, step.operands, step.options));
  const Tensor squares = outcome.kernel[2];
  double sum = 0;
  for (double x : squares.data) {
    EXPECT_TRUE(x == 1 || x == 1 - 0x1p-8) << x;
    sum += x;
  }
  EXPECT_NEAR(sum / 17003, 0.999, 6e-5);
  ++number;
  ASSERT_NO_THROW(outcome = runKernel(batch, step.op + types, step.operands, step.options));
  int64_t differing = 0;
  for (size_t i = 0; i < squares.data.size(); ++i)
    differing += squares.data[i] != outcome.kernel[2].data[i];
  EXPECT_NEAR(differing / 17003.0, 2 * 0.256 * 0.744,
              0.02); // of two independent roundings, down with probability 0.256
}

// Matrices of one and of several parts of rows, one of several chunks of columns, and tensors that are no matrices.
const std::vector<std::vector<int64_t>> factoredShapes = {{600, 37}, {20000}, {9, 1100}, {5}, {3, 1}, {7, 50, 19}, {}};

TEST_P(Rows, FactoredSteps) {
  Batch batch({1}, {1});
  size_t found = 0;
  for (const Optimizer &optimizer : optimizers())
    for (const std::vector<int64_t> &shape :
         optimizer.elementwise ? std::vector<std::vector<int64_t>>() : factoredShapes)
      for (const OpCase &each :
           factoredStep(optimizer, f64() ? "f64" : "f32", {shape}, /*clipValue=*/optimizer.averages ? 0.05 : 0)) {
        check(batch, each.op, each.operands, each.results, each.options);
        ++found;
      }
  EXPECT_GT(found, 0u);
}

// One launch for all tensors.
TEST_P(FusedRows, FactoredSteps) {
  Batch batch({1}, {1});
  for (const Optimizer &optimizer : optimizers())
    if (!optimizer.elementwise)
      for (const OpCase &each : factoredStep(optimizer, f64() ? "f64" : "f32", factoredShapes, 0))
        check(batch, each.op, each.operands, each.results, each.options);
}

// The copies that an optimizer packs equal those that the pack kernels make of its result, whose bits do not change.
TEST_P(PackingRows, OptimizersThatPack) {
  Batch batch({1}, {1});
  for (const Optimizer &optimizer : optimizers()) {
    if (!optimizer.elementwise) // weights are packed when they are next read
      continue;
    OptimizerStep step(optimizer, tensor("140003"), 140003, [&](const std::string &shape) { return tensor(shape); });
    SCOPED_TRACE(step.op);
    const std::string types = " : (" + llvm::join(step.operands, ", ") + ") -> (" + step.results + ")";
    step.options.evaluate = false;
    Outcome flat = runKernel(batch, step.op + types, step.operands, step.options);
    // Odd sizes, adjacent weights, one of which no copy is wanted; blocks of columns, panels longer than a chunk; one
    // that ends at the end.
    step.options.weights = {{3, 37, 19},
                            {706, 16, 16, {true, false}},
                            {962, 1, 50},
                            {1012, 5, 3, {false, false}},
                            {1030, 64, 32, {false, true}},
                            {3200, 21, 2101},
                            {48000, 300, 96},
                            {76803, 790, 80}};
    Outcome packing = runKernel(batch, step.op + "{packs}" + types, step.operands, step.options);
    ASSERT_EQ(flat.kernel.size(), 1 + optimizer.states.size());
    for (size_t i = 0; i < flat.kernel.size(); ++i)
      EXPECT_EQ(packing.kernel[i].data, flat.kernel[i].data) << i;
    if (f64())
      continue;
    OptimizerStep narrow(
        optimizer, tensor("140003"), 140003, [&](const std::string &shape) { return tensor(shape); }, 0,
        "tensor<140003xbf16>");
    const std::string narrowTypes = " : (" + llvm::join(narrow.operands, ", ") + ") -> (" + narrow.results + ")";
    narrow.options.evaluate = false;
    flat = runKernel(batch, narrow.op + narrowTypes, narrow.operands, narrow.options);
    narrow.options.weights = step.options.weights;
    packing = runKernel(batch, narrow.op + "{packs}" + narrowTypes, narrow.operands, narrow.options);
    for (size_t i = 0; i < flat.kernel.size(); ++i)
      EXPECT_EQ(packing.kernel[i].data, flat.kernel[i].data) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(CPU, Rows, testing::ValuesIn(cpuTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(Plain, Rows, testing::ValuesIn(plainTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(CPU, FusedRows, testing::ValuesIn(cpuTargets), nameOf);
const Target narrowTargets[] = {{.cpu = "x86-64-v4+amx", .narrow = true}};
INSTANTIATE_TEST_SUITE_P(AMX, Rows, testing::ValuesIn(narrowTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(AMX, FusedRows, testing::ValuesIn(narrowTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(GPU, Rows, testing::ValuesIn(gpuTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(GPU, FusedRows, testing::ValuesIn(gpuTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(CPU, PackingRows, testing::ValuesIn(cpuTargets), nameOf);

} // namespace
