// Tests attention on a GPU, in f32 and with bf16 operands, and by tiles of AMX: head dimensions, ragged lengths, and
// bits that depend only on the row's own sequence.
#include "KernelTest.h"
#include "TileEmulator.h"
#include <cmath>

using namespace xfc;
using namespace xfc::test;

namespace {

class Attention : public testing::TestWithParam<Target> {
protected:
  const std::string in = GetParam().compute.empty() ? "" : " in " + GetParam().compute;
  static std::string rows(const std::string &set, int features, const std::string &element = "f32") {
    return "!xfc.rows<" + set + ", " + std::to_string(features) + "x" + element + ">";
  }

  void SetUp() override {
    if (const std::string missing = GetParam().missing(); !missing.empty())
      GTEST_SKIP() << "this CPU lacks " << missing;
  }
  // The same options for the target.
  static Options on(Options options) {
    options.device = GetParam().device;
    options.cpu = GetParam().cpu;
    options.arch = GetParam().arch;
    return options;
  }

  // Relative to the largest value of a result. The expected results round operands to bf16 in the same places; but an
  // f32 close to a tie may round to the other neighbor than the f64, kernels for GPUs scale scores for exp2, and with
  // several blocks of keys, probabilities are rounded relative to the largest score so far.
  double tolerance(bool gradient = false) const { return GetParam().compute.empty() ? 1e-5 : gradient ? 2e-2 : 1e-2; }

  // An attention op with these numbers of heads and dimensions.
  struct Case {
    std::string queries, keys, flags; // "source", "target", "padding, causal"
    int heads, keyDim, valueDim;
    bool dropout = false, weights = false;
    int distances = 0; // entries of the bias by distance, if any
    int sharing = 1;   // query heads per head of keys
    double scale = 0;
    std::string element = "f32"; // of rows, but lse
    std::string kept = {};       // of keys and values, if it differs: "bf16", or "i8", which has scales

    std::string attributes() const {
      return " {heads = " + std::to_string(heads) +
             " : i64, scale = " + std::to_string(scale ? scale : 1 / std::sqrt(keyDim)) +
             (flags.empty() ? "" : ", " + flags) + (dropout ? ", rate = 0.3, id = 9 : i64}" : "}");
    }
    std::string q() const { return rows(queries, heads * keyDim, element); }
    std::string k() const { return rows(keys, heads / sharing * keyDim, kept.empty() ? element : kept); }
    std::string v() const { return rows(keys, heads / sharing * valueDim, kept.empty() ? element : kept); }
    bool hasScales() const { return kept == "i8"; }
    std::string scales() const { return rows(keys, heads / sharing); }
    std::string o() const { return rows(queries, heads * valueDim, element); }
    std::string lse() const { return rows(queries, heads); }
    std::string bias() const {
      return "tensor<" + std::to_string(distances) + "x" + std::to_string(2 * heads) + "xf32>";
    }
    std::string dbias() const { return rows(queries, 2 * heads); }
    std::string pairs() const {
      std::string kind = flags;
      std::erase(kind, ',');
      return "!xfc.pairs<" + queries + ", " + keys + (kind.empty() ? "" : ", " + kind) + ", " + std::to_string(heads) +
             "xf32>";
    }
    std::vector<std::string> operands() const {
      std::vector<std::string> types = {q(), k(), v()};
      if (distances)
        types.push_back(bias());
      if (hasScales())
        types.insert(types.end(), 2, scales());
      return types;
    }
    std::vector<std::string> gradientOperands() const {
      std::vector<std::string> types = {o(), q(), k(), v(), o(), lse()};
      if (distances)
        types.push_back(bias());
      return types;
    }
    std::string forward(const std::string &in) const {
      const char *const scaled = distances ? " scaled by %a4, %a5" : " scaled by %a3, %a4";
      return "xfc.attention %a0, %a1, %a2" + std::string(distances ? ", %a3" : "") + (hasScales() ? scaled : "") + in +
             attributes() + " : (" + q() + ", " + k() + ", " + v() + (distances ? ", " + bias() : "") +
             (hasScales() ? ", " + scales() + ", " + scales() : "") + ") -> (" + o() + ", " + lse() +
             (weights ? ", " + pairs() : "") + ")";
    }
    std::string gradient(const std::string &in) const {
      return "xfc.attention_grad %a0, %a1, %a2, %a3, %a4, %a5" + std::string(distances ? ", %a6" : "") + in +
             attributes() + " : (" + o() + ", " + q() + ", " + k() + ", " + v() + ", " + o() + ", " + lse() +
             (distances ? ", " + bias() : "") + ") -> (" + q() + ", " + k() + ", " + v() +
             (distances ? ", " + dbias() : "") + ")";
    }
  };

  // The same op over rows as the target stores them.
  static Case stored(Case c) {
    if (GetParam().narrow && c.keyDim % 8 == 0 && c.valueDim % 8 == 0)
      c.element = "bf16";
    return c;
  }

  // Both directions, with these tolerances.
  void check(const Batch &batch, const Case &op, int64_t extraStride, double forwards, double backwards) {
    const Case c = stored(op);
    if (GetParam().narrow && c.element == "f32")
      return; // the same kernel as without narrow rows
    SCOPED_TRACE(c.forward(in));
    std::vector<Tensor> saved;
    Options options =
        on({.extraStride = extraStride, .dropout = 9, .set = [&](int64_t, Tensor &t) { saved.push_back(t); }});
    Outcome forward;
    ASSERT_NO_THROW(forward = runKernel(batch, c.forward(in), c.operands(), options));
    expectClose(forward, forwards, "forward");
    // The gradient recomputes the probabilities from o and lse, which must match its operands.
    options.set = [&](int64_t operand, Tensor &t) {
      if (operand >= 1)
        t = operand <= 3 ? saved[operand - 1] : operand <= 5 ? forward.expected[operand - 4] : saved[3];
    };
    ASSERT_NO_THROW(
        expectClose(runKernel(batch, c.gradient(in), c.gradientOperands(), options), backwards, "gradient"));
  }
  void check(const Batch &batch, const Case &c, int64_t extraStride) {
    check(batch, c, extraStride, tolerance(), tolerance(true));
  }
};

// Keys and values as decoding keeps them.
class AttentionToCache : public Attention {};
// Attention as a body of the persistent kernel of a GPU (GPUCode.cpp).
class PersistentAttention : public Attention {};

// Rows that are a multiple of 16 bytes and rows that are not; full and partial blocks of keys and of queries; a
// sequence whose keys are all pads.
TEST_P(Attention, HeadDimensions) {
  const Batch batch({1, 2, 17, 33, 65}, {65, 17, 2, 1, 33});
  check(batch, {"source", "source", "padding", 3, 5, 7, true}, 3);
  check(batch, {"target", "target", "padding, causal", 2, 16, 16}, 0);
  check(batch, {"target", "source", "", 2, 32, 16, true}, 4);
  check(batch, {"source", "source", "causal", 1, 64, 64, true}, 0);
  check(batch, {"target", "source", "padding", 1, 40, 128}, 0);
  check(batch, {"target", "target", "causal", 1, 128, 128, true}, 8);
}

// Several blocks of queries and of keys. Covers dropout's fast path (keys that fill whole blocks of random numbers) and
// the other one (pads in between).
TEST_P(Attention, LongSequences) {
  const Batch batch({150, 3}, {200, 2});
  check(batch, {"target", "source", "padding", 2, 16, 16, true}, 0);
  check(batch, {"source", "source", "causal", 2, 16, 16, true}, 0);
  check(batch, {"target", "source", "", 1, 64, 32}, 0);
}

// Queries and keys that fit into one tile, of which one block of threads computes all gradients on a GPU: tiles that
// are full, and one row more on either side.
TEST_P(Attention, ShortSequences) {
  const Batch batch({64, 1, 20, 65, 64, 3}, {64, 5, 33, 64, 65, 1});
  check(batch, {"target", "source", "padding", 2, 16, 16, true}, 0);
  check(batch, {"target", "target", "padding, causal", 2, 5, 7, true}, 3);
  check(batch, {"source", "source", "reach = 9 : i64", 1, 64, 32, true}, 0);
}

// Rows that are stored in bf16. A GPU copies them to the tiles as they are, the next block of keys while one is used.
TEST_P(Attention, NarrowRows) {
  if (GetParam().compute.empty())
    GTEST_SKIP() << "rows of bf16 are for products in bf16";
  auto narrow = [&](const Batch &batch, Case c) {
    c.element = "bf16";
    check(batch, c, 8);
  };
  const Batch shorter({64, 1, 20, 65, 64}, {64, 5, 33, 64, 65}), longer({200, 3}, {150, 70});
  for (const Batch *batch : {&shorter, &longer}) {
    narrow(*batch, {"target", "source", "padding", 2, 64, 64, true});
    narrow(*batch, {"target", "target", "padding, causal", 2, 24, 8, true});
  }
  narrow(longer, {"source", "source", "reach = 70 : i64", 2, 16, 16, false, false, 200});
  narrow(longer, {"target", "source", "", 1, 128, 80, true});
  narrow(longer, {"source", "source", "padding, causal", 1, 80, 40, true});
  narrow(shorter, {"target", "source", "padding", 1, 96, 48});
  if (GetParam().device == Device::GPU) // a CPU sums gradients of shared keys where they are stored, in f32
    narrow(shorter, {"source", "source", "causal", 4, 16, 16, true, false, 0, 2});
}

// The widest heads for which warpgroups multiply. Their gradient is for warps.
TEST_P(Attention, WideHeadsByWarpgroups) {
  if (!GetParam().narrow)
    GTEST_SKIP() << "tiles of f32 rows would not fit into shared memory";
  const Batch batch({70, 3}, {66, 9});
  for (const Case &c : {stored({"target", "source", "padding", 1, 256, 192, true}),
                        stored({"source", "source", "causal", 1, 160, 256})})
    ASSERT_NO_THROW(expectClose(runKernel(batch, c.forward(in), c.operands(), on({.extraStride = 8, .dropout = 9})),
                                tolerance(), c.forward(in)));
}

// All forms of distance bias: narrow and wide heads, any size of the last block of distances, pads in between, keys
// within reach, heads that share keys. Its gradient consists of sums for each sequence.
TEST_P(Attention, Bias) {
  const Batch batch({1, 140}, {3, 1});
  check(batch, {"source", "source", "padding", 1, 16, 16, true, false, 140}, 0);
  const Batch shorter({1, 70}, {66, 3});
  check(shorter, {"target", "target", "padding, causal", 2, 5, 7, false, false, 200, 2}, 3);
  check(shorter, {"source", "source", "reach = 40 : i64", 1, 8, 8, true, false, 150}, 0);
  check(shorter, {"target", "target", "causal", 1, 64, 64, false, false, 80}, 0);
  check(shorter, {"source", "source", "padding", 1, 128, 80, true, false, 70}, 8);
  const Case returned = stored({"source", "source", "padding", 2, 16, 16, false, true, 80});
  ASSERT_NO_THROW(
      expectClose(runKernel(shorter, returned.forward(in), returned.operands(), on({})), tolerance(), "weights"));
}

// If the gradients of some operands are unused, the others and that of the bias have the same bits.
TEST_P(Attention, BiasWithUnusedResults) {
  const Batch batch({70, 3}, {1, 1});
  const Case c = stored({"source", "source", "padding", 2, 8, 8, false, false, 70});
  Options options = on({.evaluate = false});
  const Outcome all = runKernel(batch, c.gradient(in), c.gradientOperands(), options);
  for (const auto &unused : std::vector<std::vector<int>>{{3}, {0}, {1, 2}, {0, 1, 2}}) {
    options.unused = unused;
    const Outcome some = runKernel(batch, c.gradient(in), c.gradientOperands(), options);
    for (size_t i = 0, j = 0; i < 4; ++i)
      if (std::find(unused.begin(), unused.end(), i) == unused.end()) {
        EXPECT_EQ(some.kernel[j++].data, all.kernel[i].data) << "result " << i;
      }
  }
}

TEST_P(Attention, NoDropoutOutsideOfTraining) {
  const Batch batch({33, 2}, {17, 9}, 40, /*training=*/false);
  check(batch, {"target", "source", "", 2, 16, 16, true}, 0);
}

TEST_P(Attention, ReturnedWeights) {
  const Batch batch({1, 17, 70}, {66, 2, 9});
  for (const Case &c : {stored({"target", "source", "padding", 2, 16, 16, true, true}),
                        Case{"target", "target", "causal", 2, 5, 7, false, true}}) {
    SCOPED_TRACE(c.forward(in));
    ASSERT_NO_THROW(
        expectClose(runKernel(batch, c.forward(in), c.operands(), on({.dropout = 9})), tolerance(), "forward"));
  }
}

// Unused results are null, and the others have the same bits.
TEST_P(Attention, UnusedResults) {
  const Batch batch({70, 3, 30}, {20, 66, 40});
  const Case c = stored({"target", "source", "padding", 2, 16, 16, true});
  const Options all = on({.dropout = 9, .evaluate = false});
  auto without = [&](std::vector<int> unused) {
    Options options = all;
    options.unused = unused;
    return options;
  };
  const Outcome forward = runKernel(batch, c.forward(in), c.operands(), all);
  EXPECT_EQ(forward.kernel[0].data, runKernel(batch, c.forward(in), c.operands(), without({1})).kernel[0].data);
  const Outcome gradient = runKernel(batch, c.gradient(in), c.gradientOperands(), all);
  for (const auto &unused : std::vector<std::vector<int>>{{0}, {1}, {2}, {1, 2}, {0, 1}, {0, 2}}) {
    const Outcome some = runKernel(batch, c.gradient(in), c.gradientOperands(), without(unused));
    for (size_t i = 0, j = 0; i < 3; ++i)
      if (std::find(unused.begin(), unused.end(), i) == unused.end()) {
        EXPECT_EQ(some.kernel[j++].data, gradient.kernel[i].data) << "result " << i;
      }
  }
}

// One query per hypothesis. It sees the cache rows that its list names (none, one, one less than a part of keys,
// exactly a part, one more, and several rounds of parts), or the encoder's rows. Rows that are a multiple of 16 bytes
// and rows that are not; heads that fill the lanes and heads that do not.
TEST_P(Attention, Decoding) {
  const Batch batch({9, 70, 1, 33, 2, 64}, {1, 1, 1, 1, 1, 1}, 401, /*training=*/false, 0, {0, 1, 63, 64, 65, 200});
  for (const Case &c : {Case{"target", "cache", "", 2, 64, 64}, Case{"target", "cache", "causal", 3, 5, 7},
                        Case{"target", "cache", "", 1, 32, 16}, Case{"target", "cache", "", 2, 40, 130},
                        Case{"target", "cache", "", 1, 300, 4}, Case{"target", "source", "padding", 2, 64, 64},
                        Case{"target", "source", "padding, causal", 2, 8, 8},
                        Case{"target", "cache", "causal", 4, 20, 20, false, false, 230, 2},
                        Case{"target", "cache", "reach = 70 : i64", 2, 5, 7, false, false, 200}})
    for (int stride : {0, 3}) {
      const Options options = on({.extraStride = stride, .unused = {1}, .decodingStep = true});
      ASSERT_NO_THROW(expectClose(runKernel(batch, c.forward(in), c.operands(), options), tolerance(), c.forward(in)));
    }
}

// Keys and values that are kept in bf16, or as integers with a scale for each head of a row: integers up to 127, and
// scales that differ from row to row, so that one of another row or head would be seen. Also several queries of a
// sequence, which read them in blocks.
TEST_P(AttentionToCache, NarrowRows) {
  const Batch batch({9, 70, 1, 33, 2, 64}, {1, 1, 1, 1, 1, 1}, 401, /*training=*/false, 0, {0, 1, 63, 64, 65, 200}),
      several({9, 70}, {3, 2}, 401, /*training=*/false, 0, {70, 5});
  for (const std::string kept : {"bf16", "i8"})
    for (Case c : {Case{"target", "cache", "", 2, 64, 64}, Case{"target", "cache", "causal", 3, 8, 16},
                   Case{"target", "cache", "", 2, 40, 136}, Case{"target", "source", "padding", 2, 64, 64},
                   Case{"target", "cache", "causal", 4, 20, 20, false, false, 230, 2},
                   Case{"target", "cache", "reach = 70 : i64", 2, 8, 24, false, false, 200}}) {
      c.kept = kept;
      const auto set = [&](int64_t operand, Tensor &t) {
        const int64_t scales = 3 + (c.distances ? 1 : 0);
        for (size_t i = 0; i < t.data.size(); ++i)
          if (operand >= scales)
            t.data[i] = (1 + std::sin(i * 1.7 + operand) * 0.8) / 60;
          else if (kept == "i8" && (operand == 1 || operand == 2))
            t.data[i] = std::nearbyint(127 * std::sin(i * 0.9 + operand));
      };
      for (const Batch *each : {&batch, &several}) {
        // On a GPU, a sequence has one query in a program that has a cache.
        if (each == &several && GetParam().device == Device::GPU && c.keys == "cache")
          continue;
        const Options options = on({.extraStride = 3, .unused = {1}, .decodingStep = each == &batch, .set = set});
        ASSERT_NO_THROW(
            expectClose(runKernel(*each, c.forward(in), c.operands(), options), tolerance(), c.forward(in)));
      }
    }
}

// Hypotheses of a sentence, which have one list of keys: from one to more than a chunk of a CPU takes, lists of several
// blocks and of none. They have the bits that they have with lists of their own. On a CPU, one has two queries.
TEST_P(AttentionToCache, HypothesesOfASentence) {
  const std::vector<int> keys = {9, 300, 0, 33, 0, 64, 21}, hypotheses = {5, 3, 1, 11, 2, 1, 3};
  std::vector<int> queries(26, 1);
  queries[24] = GetParam().device == Device::CPU ? 2 : 1;
  Batch batch(std::vector<int>(26, 20), queries, 401, /*training=*/false);
  std::vector<int32_t> list, starts[2], counts, limits; // with lists of their own, and with shared ones
  for (size_t sentence = 0; sentence < keys.size(); ++sentence)
    for (int i = 0; i < hypotheses[sentence]; ++i) {
      starts[1].push_back(i ? starts[1].back() : static_cast<int32_t>(list.size()));
      starts[0].push_back(static_cast<int32_t>(list.size()));
      for (int key = 0; key < keys[sentence]; ++key)
        list.push_back(static_cast<int32_t>(sentence * 17 + key));
      limits.insert(limits.end(), queries[counts.size()], keys[sentence]);
      counts.push_back(keys[sentence]);
    }
  xfc_keys &structure = batch.shape.keys[XFC_KEYS(XFC_TARGET_SOURCE, 1, 0)];
  structure.keys = list.data();
  structure.count = counts.data();
  structure.limit = limits.data();
  for (const std::string kept : {"", "bf16", "i8"})
    for (Case c : {Case{"target", "source", "padding", 2, 64, 64}, Case{"target", "source", "padding", 4, 40, 16}}) {
      SCOPED_TRACE(c.forward(in) + " " + kept);
      c.kept = kept;
      const auto set = [&](int64_t operand, Tensor &t) {
        for (size_t i = 0; i < t.data.size(); ++i)
          t.data[i] = operand >= 3                   ? (1 + std::sin(i * 1.7 + operand) * 0.8) / 60
                      : kept == "i8" && operand >= 1 ? std::nearbyint(127 * std::sin(i * 0.9 + operand))
                                                     : std::sin(i * 0.9 + operand);
      };
      const Options options = on({.extraStride = 8, .unused = {1}, .decodingStep = true, .set = set});
      Outcome outcomes[2];
      for (int shared = 0; shared < 2; ++shared) {
        structure.begin = starts[shared].data();
        ASSERT_NO_THROW(outcomes[shared] = runKernel(batch, c.forward(in), c.operands(), options));
        expectClose(outcomes[shared], tolerance(), shared ? "shared" : "own");
      }
      EXPECT_EQ(outcomes[0].kernel[0].data, outcomes[1].kernel[0].data);
    }
}

// Returned weights, which the kernel for decoding steps does not support.
TEST_P(Attention, DecodingWithWeights) {
  const Batch batch({9, 70}, {1, 1}, 301, /*training=*/false, 0, {65, 3});
  for (int distances : {0, 80}) {
    const Case c = stored({"target", "cache", "", 2, 16, 16, false, true, distances});
    ASSERT_NO_THROW(
        expectClose(runKernel(batch, c.forward(in), c.operands(), on({.unused = {1}})), tolerance(), "weights"));
  }
}

// A persistent kernel has up to 16 MB of keys and values fetched early: 2048 keys of these rows, which are as many as
// the lists name, or fewer. What a list does not take of its share, others do not get. No query sees a key, so that
// little is computed.
TEST_P(PersistentAttention, FetchesWhatHasRoomInTheCache) {
  const Case c{"target", "cache", "causal", 16, 64, 64};
  for (const std::vector<int> &lists : {std::vector(32, 64), std::vector(32, 65), {2047, 1}, {1100, 3}}) {
    const Batch batch({1}, std::vector<int>(lists.size(), 1), 401, /*training=*/false, 0, lists);
    const Options options = on({.unused = {1}, .decodingStep = true});
    ASSERT_NO_THROW(expectClose(runKernel(batch, c.forward(in), c.operands(), options), tolerance(), c.forward(in)));
  }
}

// A hypothesis alone has the same bits as among others that see more or fewer keys.
TEST_P(Attention, BitsOfAHypothesis) {
  const Case c{"target", "cache", "", 2, 20, 20, false, false, 230};
  auto run = [&](const std::vector<int> &cached) {
    const Batch batch({1}, std::vector<int>(cached.size(), 1), 401, false, 0, cached);
    auto set = [&](int64_t operand, Tensor &t) {
      for (size_t i = 0; i < t.data.size(); ++i) // all queries are equal
        t.data[i] = std::sin((operand ? i : i % t.features()) * 0.37 + operand);
    };
    return runKernel(batch, c.forward(in), c.operands(), on({.unused = {1}, .evaluate = false, .set = set})).kernel[0];
  };
  const std::vector<int> counts = {1, 200, 64, 63, 130};
  const Tensor all = run(counts);
  for (size_t i = 0; i < counts.size(); ++i)
    EXPECT_TRUE(std::equal(all.row(i), all.row(i) + all.features(), run({counts[i]}).data.begin()))
        << counts[i] << " keys";
}

// The last sequence of a batch has the same bits when computed alone, and on a GPU its first query (as in decoding).
TEST_P(Attention, BitsOfASequence) {
  const Batch many({7, 66, 90}, {5, 31, 70}, 40, true, 0), alone({90}, {70}, 40, true, 2),
      first({90}, {1}, 40, true, 2);
  const Case c = stored({"target", "source", "padding", 3, 8, 8, true});
  // Fills the last `last` rows of each set with numbers that do not depend on the rows before.
  auto numbers = [](const std::vector<int64_t> &last) {
    return [last](int64_t operand, Tensor &t) {
      const int64_t n = t.shape[0], f = t.features(), from = n - last[operand];
      for (int64_t i = std::max<int64_t>(from, 0); i < n; ++i)
        for (int64_t j = 0; j < f; ++j)
          t.data[i * f + j] = std::sin((i - from) * 31.7 + j * 1.3 + operand);
    };
  };
  auto endsWith = [](const Tensor &all, const Tensor &end) {
    return std::equal(end.data.begin(), end.data.end(), all.data.end() - end.data.size());
  };
  auto forward = [&](const Batch &batch, int64_t queries) {
    return runKernel(batch, c.forward(in), c.operands(),
                     on({.dropout = 9, .evaluate = false, .set = numbers({queries, 90, 90})}));
  };
  const Outcome a = forward(many, 70), b = forward(alone, 70), one = forward(first, 1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(endsWith(a.kernel[i], b.kernel[i])) << "result " << i;
    if (GetParam().device == Device::GPU) {
      EXPECT_TRUE(std::equal(one.kernel[i].data.begin(), one.kernel[i].data.end(), b.kernel[i].data.begin()))
          << "result " << i << ", one query";
    }
  }
  auto gradient = [&](const Batch &batch) {
    return runKernel(batch, c.gradient(in), c.gradientOperands(),
                     on({.dropout = 9, .evaluate = false, .set = numbers({70, 70, 90, 90, 70, 70})}));
  };
  const Outcome g = gradient(many), h = gradient(alone);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(endsWith(g.kernel[i], h.kernel[i])) << "gradient " << i;
}

// The same for a sequence that fits into one tile, and that two kinds of blocks compute, as the second or the first of
// its batch.
TEST_P(Attention, BitsOfAShortSequence) {
  const bool narrow = !GetParam().compute.empty();
  const Batch many({7, 31}, {5, 20}, 40, true, 0), alone({31}, {20}, 40, true, 1);
  Case c{"target", "source", "padding", 3, 8, 8, true};
  c.element = narrow ? "bf16" : "f32";
  auto gradient = [&](const Batch &batch) {
    const std::vector<int64_t> last = {20, 20, 31, 31, 20, 20};
    auto numbers = [&](int64_t operand, Tensor &t) {
      const int64_t n = t.shape[0], f = t.features(), from = n - last[operand];
      for (int64_t i = from; i < n; ++i)
        for (int64_t j = 0; j < f; ++j)
          t.data[i * f + j] = std::sin((i - from) * 31.7 + j * 1.3 + operand);
    };
    return runKernel(batch, c.gradient(in), c.gradientOperands(),
                     on({.extraStride = narrow ? 8 : 1, .dropout = 9, .evaluate = false, .set = numbers}));
  };
  const Outcome a = gradient(many), b = gradient(alone);
  for (int i = 0; i < 3; ++i) {
    const std::vector<double> &all = a.kernel[i].data, &one = b.kernel[i].data;
    EXPECT_TRUE(std::equal(one.begin(), one.end(), all.end() - one.size())) << "gradient " << i;
  }
}

// Attention with a bias, whose gradient consists of sums for each sequence.
TEST_P(Attention, BitsOfASequenceWithABias) {
  const Batch many({7, 66, 90}, {1, 1, 1}, 40, true, 0), alone({90}, {1}, 40, true, 2);
  const Case c = stored({"source", "source", "padding", 2, 8, 8, true, false, 90});
  auto numbers = [](int64_t operand, Tensor &t) {
    const int64_t n = t.shape[0], f = t.features();
    for (int64_t i = 0; i < 90; ++i)
      for (int64_t j = 0; j < f; ++j)
        t.data[(n - 90 + i) * f + j] = std::sin(i * 31.7 + j * 1.3 + operand);
  };
  const Options options = on({.dropout = 9, .evaluate = false, .set = numbers});
  auto same = [&](const std::string &text, const std::vector<std::string> &operands, int results) {
    const Outcome a = runKernel(many, text, operands, options), b = runKernel(alone, text, operands, options);
    for (int i = 0; i < results; ++i) {
      const std::vector<double> &all = a.kernel[i].data, &one = b.kernel[i].data;
      EXPECT_TRUE(std::equal(one.begin(), one.end(), all.end() - one.size())) << "result " << i;
    }
  };
  same(c.forward(in), c.operands(), 2);
  same(c.gradient(in), c.gradientOperands(), 4);
}

const Target gpuTargets[] = {{.device = Device::GPU}, {.device = Device::GPU, .compute = "bf16"}};
// Rows of bf16, which warpgroups multiply.
const Target warpgroups[] = {{.device = Device::GPU, .compute = "bf16", .arch = "sm_90a", .narrow = true}};
const Target vectors[] = {{.cpu = "x86-64-v3"}, {.cpu = "x86-64-v4"}};
INSTANTIATE_TEST_SUITE_P(CPU, AttentionToCache, testing::ValuesIn(vectors), nameOf);
INSTANTIATE_TEST_SUITE_P(GPU, AttentionToCache, testing::ValuesIn(gpuTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(GPU, Attention, testing::ValuesIn(gpuTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(GPU, PersistentAttention, testing::ValuesIn(gpuTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(Warpgroups, Attention, testing::ValuesIn(warpgroups), nameOf);
const Target tiles[] = {{.cpu = "x86-64-v4+amx", .compute = "bf16"}};
INSTANTIATE_TEST_SUITE_P(Tiles, Attention, testing::ValuesIn(tiles), nameOf);
INSTANTIATE_TEST_SUITE_P(Tiles, AttentionToCache, testing::ValuesIn(tiles), nameOf);

class TiledAttention : public Attention {
protected:
  // Counts the tile instructions that the emulator executes when the op runs.
  static TileCounts countsOf(const Batch &batch, const std::string &op, const std::vector<std::string> &operands,
                             Options options = {}) {
    options.evaluate = false;
    CompiledOp kernel(op, operands, on(options));
    const TileCounts before = emulatedTiles();
    kernel.run(batch);
    return emulatedTiles() - before;
  }
};

// 32 queries, 32 keys and a head of 64 features are 8 products of tiles each of the two times, or five, that pairs are
// multiplied.
TEST_P(TiledAttention, LoadsEachTileOnceForTwoProducts) {
  if (prepareTiles() != TileUnit::Emulator)
    GTEST_SKIP() << "tiles are executed by the CPU, which does not count them";
  const Batch batch({32}, {32});
  const Case c{"target", "source", "", 1, 64, 64};
  const TileCounts forward = countsOf(batch, c.forward(in), c.operands());
  EXPECT_EQ(forward.products, 2 * 8);
  EXPECT_EQ(forward.loads, 2 * 8 + 8); // and the outputs so far
  EXPECT_EQ(forward.stores, 4 + 8);
  EXPECT_EQ(forward.configurations, 1);
  const TileCounts gradient = countsOf(batch, c.gradient(in), c.gradientOperands());
  EXPECT_EQ(gradient.products, 5 * 8);
  EXPECT_EQ(gradient.loads, 5 * 8 + 2 * 8); // and the dk and dv so far
  EXPECT_EQ(gradient.stores, 2 * 4 + 3 * 8);
  EXPECT_EQ(gradient.configurations, 1);
}

// A single query, as in decoding, is multiplied by vectors.
TEST_P(TiledAttention, LeavesTilesAloneForASingleQuery) {
  const Batch batch({1}, {1}, 40, /*training=*/false, 0, {30});
  const Case c{"target", "cache", "", 1, 64, 64};
  const TileCounts counts = countsOf(batch, c.forward(in), c.operands(), {.unused = {1}, .decodingStep = true});
  EXPECT_EQ(counts.configurations, 0);
  EXPECT_EQ(counts.products, 0);
}

// Every number is rounded where the interpreter rounds it: with so few of them, none is close to a tie, and results
// agree as they do in f32. One query is multiplied by vectors.
TEST_P(TiledAttention, RoundsLikeTheInterpreter) {
  const Batch batch({7, 5}, {9, 1});
  check(batch, {"target", "source", "", 1, 32, 40, true}, 0, 1e-5, 2e-5);
}

// More keys than a block has, in the forward pass as well, seen by all queries or by some.
TEST_P(TiledAttention, AddsUpBlocksOfKeys) {
  const Batch batch({300, 2}, {50, 1});
  check(batch, {"target", "source", "padding", 1, 40, 32, true}, 0);
  check(batch, {"source", "source", "causal", 1, 32, 40}, 0);
  check(batch, {"source", "source", "causal, reach = 60 : i64", 1, 32, 32}, 0);
}

INSTANTIATE_TEST_SUITE_P(AMX, TiledAttention, testing::ValuesIn(tiles), nameOf);

} // namespace
