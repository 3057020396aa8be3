// Compares matrix products, their epilogues and their gradients with the interpreter, in f32, f64 and bf16, at odd
// shapes, with the tiles of AVX2 and of AVX-512 (which LLVM splits in two if the machine lacks it), with AVX512-BF16 if
// the machine has it, and with AMX, which is emulated if it does not.
#include "KernelTest.h"
#include "TileEmulator.h"
#include <limits>

using namespace xfc;
using namespace xfc::test;

namespace {

// Includes AVX-512's tiles: a host without AVX-512 splits them in two.
const Target matrixTargets[] = {
    {.f64 = false}, {.f64 = true}, {.f64 = false, .cpu = "x86-64-v4"}, {.f64 = true, .cpu = "x86-64-v4"}};
const Target bf16Targets[] = {{.compute = "bf16"},
                              {.cpu = "x86-64-v4", .compute = "bf16"},
                              {.cpu = "x86-64-v4+bf16", .compute = "bf16"},
                              {.cpu = "x86-64-v4+amx", .compute = "bf16"},
                              {.cpu = "x86-64-v4+amx", .compute = "bf16", .narrow = true}};
const auto tiledTargets = llvm::ArrayRef(bf16Targets).take_back(2);

// In f32, code for an A100 (sm_80) multiplies by tensor cores, and code for sm_86 by fused multiply-adds.
const Target gpuMatrixTargets[] = {
    {.device = Device::GPU}, {.device = Device::GPU, .compute = "bf16"}, {.device = Device::GPU, .arch = "sm_86"}};
const auto tensorCoreTargets = llvm::ArrayRef(gpuMatrixTargets).take_front(2);
const Target warpgroupTargets[] = {{.device = Device::GPU, .compute = "bf16", .arch = "sm_90a"}};

class Matrix : public testing::TestWithParam<Target> {
protected:
  void SetUp() override {
    if (const std::string missing = GetParam().missing(); !missing.empty())
      GTEST_SKIP() << "this CPU lacks " << missing;
  }
  std::string element() const { return GetParam().element(); }
  std::string rows(int64_t features) const {
    return "!xfc.rows<source, " + std::to_string(features) + "x" + GetParam().elementOfRows(features) + ">";
  }
  // Rows that are never stored in bf16: those of an epilogue, which are in registers, and logits.
  std::string wide(int64_t features) const {
    return "!xfc.rows<source, " + std::to_string(features) + "x" + element() + ">";
  }
  // Rows that are stored in bf16, whose number of features and whose distance are multiples of 8.
  static std::string narrowRows(int64_t features) { return "!xfc.rows<source, " + std::to_string(features) + "xbf16>"; }
  std::string row() const { return "!xfc.rows<source, " + element() + ">"; }
  std::string tensor(int64_t a, int64_t b) const {
    return "tensor<" + std::to_string(a) + "x" + std::to_string(b) + "x" + element() + ">";
  }
  std::string tensor(int64_t a) const { return "tensor<" + std::to_string(a) + "x" + element() + ">"; }

  static std::string textOf(const std::string &op, const std::vector<std::string> &types, const std::string &results) {
    std::string text = op;
    // The compute type precedes the epilogue.
    if (const std::string &compute = GetParam().compute; !compute.empty())
      text.insert(std::min(op.find(" {"), op.size()), " in " + compute);
    text += " : (";
    for (size_t i = 0; i < types.size(); ++i)
      text += (i ? ", " : "") + types[i];
    return text + ") -> (" + results + ")";
  }

  // Checks one kernel on several batches. A sum of n terms takes n roundings, which add up like a random walk; its
  // largest value grows like sqrt(n) too, so the relative error stays at a few times sqrt(n) / 4 roundings. 4 more are
  // for the epilogue's functions. Results that are stored in bf16 are rounded once more, which is not expected here,
  // and `further` is what operands that a kernel stores in between may add.
  void check(const std::vector<std::vector<int>> &batches, const std::string &op, const std::vector<std::string> &types,
             const std::string &results, int64_t terms, Options options = {}, bool training = true,
             double further = 0) {
    const double stored = results.find("xbf16") == std::string::npos ? 0 : 0x1p-8;
    const std::string text = textOf(op, types, results);
    const double rounding =
        GetParam().f64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
    options.cpu = GetParam().cpu;
    options.device = GetParam().device;
    options.arch = GetParam().arch;
    CompiledOp kernel(text, types, options);
    for (const std::vector<int> &lengths : batches) {
      Batch batch(lengths, {1}, 40, training);
      SCOPED_TRACE(text);
      expectClose(kernel.run(batch), rounding * (4 + std::sqrt(static_cast<double>(terms))) + stored + further, text);
    }
  }

  // Checks bias, activations, dropout and residuals after products with these numbers of columns.
  void checkEpilogues(const std::vector<int64_t> &widths) {
    for (bool training : {true, false})
      for (int64_t out : widths) {
        const std::string t = rows(out), w = wide(out);
        check({{9, 31}},
              "xfc.linear %a0, %a1 bias %a2 {\n^bb0(%y: " + w + "):\n  %p = xfc.activation relu %y : <source, " +
                  std::to_string(out) + "x" + element() + ">\n  %d = xfc.dropout %p {rate = 0.3, id = 9 : i64} : " + w +
                  "\n  xfc.yield %d : " + w + "\n}",
              {rows(20), tensor(out, 20), tensor(out)}, t, 20, {.dropout = 9}, training);
        check({{9, 31}},
              "xfc.linear %a0, %a1 with %a2 {\n^bb0(%y: " + w + ", %e: " + w + "):\n  %s = xfc.add %y, %e : " + w +
                  "\n  %p = xfc.activation gelu %s : <source, " + std::to_string(out) + "x" + element() +
                  ">\n  xfc.yield %s, %p : " + w + ", " + w + "\n}",
              {rows(20), tensor(out, 20), t}, t + ", " + t, 20, {.extraStride = 2}, training);
        check({{9, 31}},
              "xfc.linear_input_grad %a0, %a1 with %a2 {\n^bb0(%y: " + w + ", %e: " + w +
                  "):\n  %d = xfc.dropout %y {rate = 0.5, id = 3 : i64} : " + w +
                  "\n  %g = xfc.activation_grad relu %d, %e : <source, " + std::to_string(out) + "x" + element() +
                  ">\n  xfc.yield %g : " + w + "\n}",
              {rows(20), tensor(20, out), t}, t, 20, {.dropout = 3}, training);
        check({{9, 31}},
              "xfc.linear_input_grad %a0, %a1 with %a2 {\n^bb0(%y: " + w + ", %e: " + w +
                  "):\n  %d = xfc.dropout %y {rate = 0.5, id = 3 : i64, kept} : " + w +
                  "\n  %g = xfc.activation_grad relu %d, %e : <source, " + std::to_string(out) + "x" + element() +
                  ">\n  xfc.yield %g : " + w + "\n}",
              {rows(20), tensor(20, out), t}, t, 20, {}, training);
      }
  }

  // A pseudo-random number from -1 to 1 for each index; much cheaper than a sine, because large operands are filled
  // with it.
  static double scattered(int64_t at) {
    return static_cast<double>((static_cast<uint64_t>(at + 1) * 0x9E3779B97F4A7C15u) >> 40) / (1 << 23) - 1;
  }

  // Checks that a row's result has the same bits wherever the row lies and whatever rows surround it: products are
  // split by rows, but rows are never summed. Rows are taken from the same 200, and so are operands with one row per
  // batch row. Ids count up from `lowestId`: -1, an ignored label, or 0.
  void checkRowsAlone(const std::string &op, const std::vector<std::string> &types, const std::string &results,
                      std::vector<int> unused = {}, int lowestId = -1) {
    constexpr int most = 200;
    int first = 0;
    const std::string text = textOf(op, types, results);
    auto set = [&](int64_t operand, Tensor &tensor) {
      const bool isRows = llvm::StringRef(types[operand]).starts_with("!xfc.rows"),
                 isIds = types[operand].ends_with("i32>");
      const int64_t begin = isRows ? first * tensor.features() : 0;
      if (isIds)
        tensor.data.resize(tensor.shape[0] * tensor.features());
      for (size_t i = 0; i < tensor.data.size(); ++i) {
        const int64_t at = begin + static_cast<int64_t>(i);
        tensor.data[i] = isIds ? at % 37 + lowestId : scattered(at * (operand + 1));
      }
    };
    CompiledOp kernel(text, types,
                      {.device = GetParam().device,
                       .extraStride = text.find("xbf16") == std::string::npos ? 1 : 8,
                       .cpu = GetParam().cpu,
                       .arch = GetParam().arch,
                       .unused = std::move(unused),
                       .evaluate = false,
                       .set = set});
    const Outcome all = kernel.run(Batch({most}, {1}));
    auto expectSame = [&](int count, int from) {
      first = from;
      const Outcome some = kernel.run(Batch({count}, {1}));
      for (size_t result = 0; result < some.kernel.size(); ++result) {
        const std::vector<double> &got = some.kernel[result].data, &want = all.kernel[result].data;
        const int64_t features = all.kernel[result].features();
        ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin() + from * features))
            << text << ", result " << result << ": " << count << " rows from row " << from
            << " differ from the same among " << most;
      }
    };
    // A GPU's tiles begin at multiples of 16 and of 64 rows; test fewer offsets because the PTX interpreter is slow.
    const int step = GetParam().device == Device::GPU ? 21 : 1;
    for (int from = 0; from < most; from += step)
      ASSERT_NO_FATAL_FAILURE(expectSame(1, from));
    for (int count = 2; count < most; count += step)
      ASSERT_NO_FATAL_FAILURE(expectSame(count, count * 31 % (most - count + 1)));
  }

  const std::string ids = "!xfc.rows<source, i32>";
};

// Tests of ops for which only the CPU has kernels.
class FusedMatrix : public Matrix {};

struct Shape {
  int64_t in, out;
};
// Sizes below a vector, over a panel, over a K block, over a slab of columns, and round numbers.
const Shape shapes[] = {{5, 10}, {17, 33}, {600, 24}, {600, 150}, {32, 130}, {64, 300}, {128, 256}};
// The kernels of sm_86 differ from those of sm_80 only in how a block of K is multiplied, so three shapes suffice.
llvm::ArrayRef<Shape> shapesOf(const Target &target) {
  const llvm::ArrayRef<Shape> all = shapes;
  return target.arch == "sm_86" ? all.slice(1, 3) : all;
}
// On CPUs, fewer rows than the micro-kernel's, as many, one more, one more than a block; the last batch has two
// sequences. On GPUs, one row, fewer than a warp's, one more than a small tile's, and more than a large one's.
const std::vector<std::vector<int>> rowsOnCPUs = {{1}, {5}, {6}, {7}, {13}, {14}, {15}, {73}, {85}, {80, 70}},
                                    rowsOnGPUs = {{1}, {7}, {33}, {80, 70}};
const std::vector<std::vector<int>> &batchesOf(const Target &target) {
  return target.device == Device::GPU ? rowsOnGPUs : rowsOnCPUs;
}

TEST_P(Matrix, Linear) {
  for (auto [in, out] : shapesOf(GetParam())) {
    check(batchesOf(GetParam()), "xfc.linear %a0, %a1", {rows(in), tensor(out, in)}, rows(out), in);
    check({{9, 31}}, "xfc.linear %a0, %a1 bias %a2", {rows(in), tensor(out, in), tensor(out)}, rows(out), in,
          {.extraStride = 3});
  }
}

TEST_P(Matrix, LinearInputGrad) {
  for (auto [in, out] : shapesOf(GetParam()))
    check(batchesOf(GetParam()), "xfc.linear_input_grad %a0, %a1", {rows(out), tensor(out, in)}, rows(in), out,
          {.extraStride = 1});
}

TEST_P(FusedMatrix, Epilogues) { checkEpilogues({10, 64, 130}); }

TEST_P(Matrix, WeightGradients) {
  for (auto [in, out] : shapesOf(GetParam())) {
    const std::vector<std::vector<int>> some = {{1}, {7}, {80, 70}, {300, 1, 20}};
    check(some, "xfc.linear_weight_grad %a0, %a1", {rows(out), rows(in)}, tensor(out, in), 321, {.extraStride = 2});
    check(some, "xfc.linear_weight_grad %a0, %a1", {rows(out), rows(in)}, tensor(out, in) + ", " + tensor(out), 321,
          {.extraStride = 5});
  }
  // Many tiles, and enough of them for the GPU's large tiles.
  check({{300}}, "xfc.linear_weight_grad %a0, %a1", {rows(1300), rows(20)}, tensor(1300, 20) + ", " + tensor(1300),
        300);
  check({{9, 8}}, "xfc.linear_weight_grad %a0, %a1", {rows(1030), rows(390)}, tensor(1030, 390) + ", " + tensor(1030),
        17);
  // Whole panels of x, more than a tile of them, and fewer outputs than the micro-kernel has rows.
  check({{9, 8}}, "xfc.linear_weight_grad %a0, %a1", {rows(515), rows(576)}, tensor(515, 576) + ", " + tensor(515), 17);
  check({{300}}, "xfc.linear_weight_grad %a0, %a1", {rows(4), rows(64)}, tensor(4, 64) + ", " + tensor(4), 300);
  // Rows of dW that are 4 KB apart, whose sums lie in scratch.
  check({{9, 8}, {300}}, "xfc.linear_weight_grad %a0, %a1", {rows(20), rows(1024)}, tensor(20, 1024), 300);
}

// In bf16 by AMX: blocks of 256 rows, tiles of 32 rows, 32 x 32 sums at a time. The order of the sums follows from the
// rows' positions alone, so rows of zeros at the end change no bit.
class TiledGradient : public Matrix {
protected:
  std::string text(int64_t out, int64_t in) const {
    const std::string weight = std::to_string(out) + "x" + std::to_string(in) + "xf32>";
    return "xfc.linear_weight_grad %a0, %a1 in bf16 : (" + rows(out) + ", " + rows(in) + ") -> (tensor<" + weight +
           ", tensor<" + std::to_string(out) + "xf32>)";
  }
  std::vector<std::string> types(int64_t out, int64_t in) const { return {rows(out), rows(in)}; }
};

TEST_P(TiledGradient, RowsOfAnyNumber) {
  for (auto [in, out] : {Shape{32, 32}, {64, 48}, {33, 17}, {1, 1}, {96, 130}}) {
    const std::vector<std::vector<int>> some = {{1}, {2}, {31}, {32}, {33}, {255}, {256}, {257}, {513}};
    check(some, "xfc.linear_weight_grad %a0, %a1", {rows(out), rows(in)}, tensor(out, in) + ", " + tensor(out), 513,
          {.extraStride = 1});
    check(some, "xfc.linear_weight_grad %a0, %a1", {rows(out), rows(in)}, tensor(out, in), 513, {.extraStride = 3});
  }
}

TEST_P(TiledGradient, RowsOfZerosChangeNothing) {
  for (auto [in, out] : {Shape{64, 48}, {33, 70}}) {
    int64_t real = 0;
    auto set = [&](int64_t operand, Tensor &tensor) {
      for (int64_t i = 0; i < tensor.shape[0]; ++i)
        for (int64_t f = 0; f < tensor.features(); ++f)
          tensor.row(i)[f] = i < real ? scattered(i * tensor.features() + f + operand) : 0;
    };
    CompiledOp kernel(text(out, in), types(out, in), {.cpu = GetParam().cpu, .evaluate = false, .set = set});
    for (int count : {1, 17, 64, 300}) {
      real = count;
      const Outcome alone = kernel.run(Batch({count}, {1})), more = kernel.run(Batch({count + 270}, {1}));
      for (size_t result = 0; result < 2; ++result)
        EXPECT_EQ(alone.kernel[result].data, more.kernel[result].data) << count << " rows, result " << result;
    }
  }
}

// db is the f32 sum of the rows in their order.
TEST_P(TiledGradient, SumsOfUnroundedRows) {
  std::vector<double> dy;
  auto set = [&](int64_t operand, Tensor &tensor) {
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      const double x = scattered(static_cast<int64_t>(i));
      tensor.data[i] = GetParam().narrow ? std::round(x * 128) / 128 : static_cast<float>(x);
    }
    if (operand == 0)
      dy = tensor.data;
  };
  const Outcome outcome =
      runKernel(Batch({300}, {1}), text(40, 32), types(40, 32), {.cpu = GetParam().cpu, .evaluate = false, .set = set});
  for (int64_t f = 0; f < 40; ++f) {
    float sum = 0;
    for (int64_t row = 0; row < 300; ++row)
      sum += static_cast<float>(dy[row * 40 + f]);
    EXPECT_EQ(outcome.kernel[1].data[f], sum) << "output " << f;
  }
}

// 2 x 2 blocks of 32 x 32 sums, each stored once for a block of 256 rows, and loaded for each but the first; in each of
// 8 steps of 32 rows, two tiles of each operand are loaded for four products. Tiles are configured once.
TEST_P(TiledGradient, LoadsEachTileOnceForTwoProducts) {
  CompiledOp kernel(text(64, 64), types(64, 64), {.cpu = GetParam().cpu, .evaluate = false});
  for (int blocks : {1, 2}) {
    const TileCounts before = emulatedTiles();
    kernel.run(Batch({256 * blocks}, {1}));
    if (prepareTiles() != TileUnit::Emulator)
      GTEST_SKIP() << "tiles are executed by the CPU, which does not count them";
    const TileCounts counts = emulatedTiles() - before;
    EXPECT_EQ(counts.products, 4 * 8 * 4 * blocks);
    EXPECT_EQ(counts.loads, 4 * (8 * 4 * blocks + 4 * (blocks - 1)));
    EXPECT_EQ(counts.stores, 4 * 4 * blocks);
    EXPECT_EQ(counts.configurations, 1);
  }
}

// Products of rows by AMX, in bf16 and int8: blocks of up to 256 rows, tiles with as many rows as there are if there
// are fewer than 16, chunks of columns that depend on the number of rows.
class TiledProduct : public Matrix {
protected:
  CompiledOp compiled(int64_t in, int64_t out) const {
    const std::string weight = "tensor<" + std::to_string(out) + "x" + std::to_string(in) + "xf32>";
    auto set = [](int64_t operand, Tensor &tensor) {
      for (size_t i = 0; i < tensor.data.size(); ++i)
        tensor.data[i] = scattered(static_cast<int64_t>(i) * (operand + 1));
    };
    return {"xfc.linear %a0, %a1 in " + GetParam().compute + " : (" + rows(in) + ", " + weight + ") -> " + rows(out),
            {rows(in), weight},
            {.extraStride = 1, .cpu = GetParam().cpu, .evaluate = false, .set = set}};
  }
};

TEST_P(TiledProduct, RowsAloneAndAmongOthers) {
  for (auto [in, out] : {Shape{64, 64}, {1100, 300}, {37, 1000}, {1056, 72}, {40, 8}}) {
    CompiledOp kernel = compiled(in, out);
    const std::vector<double> most = kernel.run(Batch({600}, {1})).kernel[0].data;
    for (int count : {1, 2, 3, 4, 5, 15, 16, 17, 40, 255, 256, 257, 500}) {
      const std::vector<double> some = kernel.run(Batch({count}, {1})).kernel[0].data;
      ASSERT_EQ(some.size(), static_cast<size_t>(count * out));
      ASSERT_TRUE(std::equal(some.begin(), some.end(), most.begin())) << count << " rows, " << in << " x " << out;
    }
  }
}

// Chunks without columns or rows do nothing; a chunk configures tiles once.
TEST_P(TiledProduct, LoadsEachTileOnceForTwoProducts) {
  const int64_t steps = GetParam().compute == "int8" ? 1 : 2; // of 16 units, for 64 features
  CompiledOp kernel = compiled(64, 64), wide = compiled(64, 512);
  auto countsOf = [](CompiledOp &op, int rows) {
    const TileCounts before = emulatedTiles();
    op.run(Batch({rows}, {1}));
    return emulatedTiles() - before;
  };
  TileCounts counts = countsOf(kernel, 256);
  if (prepareTiles() != TileUnit::Emulator)
    GTEST_SKIP() << "tiles are executed by the CPU, which does not count them";
  EXPECT_EQ(counts.products, 8 * 2 * steps * 4);
  EXPECT_EQ(counts.loads, 8 * 2 * steps * 4);
  EXPECT_EQ(counts.stores, 8 * 2 * 4);
  EXPECT_EQ(counts.configurations, 1);
  counts = countsOf(kernel, 3);
  EXPECT_EQ(counts.products, steps * 4);
  EXPECT_EQ(counts.loads, steps * 5);
  EXPECT_EQ(counts.stores, 4);
  // Few rows are divided by columns; of many, each block is converted once.
  EXPECT_EQ(countsOf(wide, 1).configurations, 2);
  EXPECT_EQ(countsOf(wide, 16 * 256).configurations, 16);
}

INSTANTIATE_TEST_SUITE_P(AMX, TiledProduct,
                         testing::Values(bf16Targets[3], bf16Targets[4],
                                         Target{.cpu = "x86-64-v4+amx", .compute = "int8"}),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(AMX, TiledGradient, testing::ValuesIn(tiledTargets), nameOf);

// Chunks of 2,048 rows, with a full or partial last one, and unused results.
TEST_P(FusedMatrix, WeightGradientsOfManyRows) {
  for (auto [in, out] : {Shape{5, 10}, {12, 72}}) {
    const std::string results = tensor(out, in) + ", " + tensor(out);
    const std::vector<std::vector<int>> many = {{2048}, {2049}, {2000, 2096}, {4500}};
    check(many, "xfc.linear_weight_grad %a0, %a1", {rows(out), rows(in)}, results, 4500);
    check({{2100}}, "xfc.linear_weight_grad %a0, %a1", {rows(out), rows(in)}, results, 2100,
          {.extraStride = 3, .unused = {0}});
    check({{2100}}, "xfc.linear_weight_grad %a0, %a1", {rows(out), rows(in)}, results, 2100, {.unused = {1}});
  }
}

// If the logits are unused they stay in scratch, and no memory is written for them.
TEST_P(FusedMatrix, LinearCrossEntropy) {
  const std::vector<std::vector<int>> some = {{1}, {50}, {9, 91}};
  const std::pair<std::string, std::string> forms[] = {{ids, "tensor<" + element() + ">"},
                                                       {"!xfc.rows<source, 6xi32>", wide(7)}}; // lists of labels
  for (const auto &[labels, smoothing] : forms)
    for (int64_t vocabulary : {40, 300}) // ids are below 37
      for (const std::vector<int> &unused : {std::vector<int>{}, {2}, {1, 2, 3}}) {
        const std::string results = row() + ", " + row() + ", " + wide(vocabulary) + ", " + row();
        check(some, "xfc.linear_cross_entropy %a0, %a1, %a2, %a3, %a4",
              {rows(30), tensor(vocabulary, 30), tensor(vocabulary), labels, smoothing}, results, vocabulary,
              {.unused = unused, .set = setTarget(3, 4)});
        check(some, "xfc.linear_cross_entropy %a0, %a1, %a2, %a3",
              {rows(30), tensor(vocabulary, 30), labels, smoothing}, results, vocabulary,
              {.extraStride = 3, .unused = unused, .set = setTarget(2, 3)});
      }
  // Some logits are near 10; the error of a logit becomes a relative error of its exponential.
  for (const auto &[labels, smoothing] : forms)
    for (int64_t vocabulary : {40, 300}) {
      const int64_t terms = 16 * vocabulary;
      const std::string results = row() + ", " + row() + ", " + wide(vocabulary);
      check(some, "xfc.linear_cross_entropy_with_grad %a0, %a1, %a2, %a3, %a4, %a5",
            {rows(30), tensor(vocabulary, 30), tensor(vocabulary), labels, smoothing, row()}, results, terms,
            {.set = setTarget(3, 4)});
      check(some, "xfc.linear_cross_entropy_with_grad %a0, %a1, %a2, %a3, %a4",
            {rows(30), tensor(vocabulary, 30), labels, smoothing, row()}, results, terms,
            {.extraStride = 3, .unused = {1}, .set = setTarget(2, 3)});
    }
}

// Integers, which f32 adds exactly: the candidates have the interpreter's order, including ties.
TEST_P(FusedMatrix, LinearCandidates) {
  auto set = [](int64_t, Tensor &tensor) {
    for (double &x : tensor.data)
      x = std::round(x);
  };
  const std::vector<std::vector<int>> some = {{1}, {50}, {9, 91}};
  struct Case {
    int64_t vocabulary, slab, count;
  };
  for (auto [vocabulary, slab, count] :
       {Case{40, 64, 8}, {70, 64, 8}, {300, 64, 3}, {300, 192, 8}, {1000, 512, 8}, {130, 128, 1}, {500, 128, 20}}) {
    const int64_t slabs = (vocabulary + slab - 1) / slab;
    const std::string list = "!xfc.rows<source, " + std::to_string(slabs * count) + "xi32>";
    const std::string results = list + ", " + wide(slabs * count) + ", " + wide(slabs) + ", " + row();
    for (const std::string last : {"", ", renormalize"}) {
      const std::string end = ", slab = " + std::to_string(slab) + " : i64" + last + "}";
      const std::string attributes = " {excluded = array<i64: 0, 2, 3, 70>" + end;
      const std::string attributesBelow70 = " {excluded = array<i64: 1>" + end;
      check(some, "xfc.linear_candidates %a0, %a1, %a2, %a3" + (vocabulary > 70 ? attributes : attributesBelow70),
            {wide(30), tensor(vocabulary, 30), tensor(vocabulary), ids}, results, vocabulary, {.set = set});
      check({{80}}, "xfc.linear_candidates %a0, %a1, %a2" + attributesBelow70,
            {wide(600), tensor(vocabulary, 600), ids}, results, vocabulary,
            {.extraStride = 3, .unused = {3}, .set = set});
    }
  }
}

// Columns that begin and end within tiles, and within the vectors of a group, go to rows of caches, which may be
// narrower. The small-M variants give the same bits.
TEST_P(FusedMatrix, LinearToCache) {
  auto rowsOf = [&](const std::string &set, int64_t features, const std::string &type) {
    return "!xfc.rows<" + set + ", " + std::to_string(features) + "x" + type + ">";
  };
  struct Case {
    int64_t in, first;
    std::vector<int64_t> caches;
    std::vector<int> targets; // rows of each sequence
  };
  const double rounding =
      GetParam().f64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  for (const auto &[in, first, caches, targets] : {Case{30, 16, {16, 16}, {1}},
                                                   {70, 48, {32, 80}, {3, 40}},
                                                   {160, 128, {128, 128}, {9, 31}},
                                                   {600, 112, {16}, {5}}})
    for (const bool narrow : {false, true}) {
      if (narrow && GetParam().f64)
        continue;
      int64_t columns = first;
      std::vector<std::string> stored;
      std::string names, results = rowsOf("target", first, element());
      for (size_t i = 0; i < caches.size(); ++i) {
        stored.push_back(rowsOf("cache", caches[i], narrow ? "bf16" : element()));
        names += (i ? ", %a" : "%a") + std::to_string(3 + i);
        results += ", " + stored.back();
        columns += caches[i];
      }
      std::vector<std::string> types = {rowsOf("target", in, element()), tensor(columns, in), tensor(columns)};
      types.insert(types.end(), stored.begin(), stored.end());
      const std::string text = textOf("xfc.linear_to_cache %a0, %a1 bias %a2 into " + names, types, results);
      SCOPED_TRACE(text);
      CompiledOp kernel(
          text, types, {.device = GetParam().device, .extraStride = 3, .cpu = GetParam().cpu, .arch = GetParam().arch});
      expectClose(kernel.run(Batch({1}, targets, 400)),
                  rounding * (4 + std::sqrt(static_cast<double>(in))) + (narrow ? 0x1p-8 : 0), text);
    }
}

// A slab may consist of an excluded token alone.
TEST_P(FusedMatrix, CandidatesOfASlabWithoutAny) {
  for (const std::string last : {"", ", renormalize"})
    check({{9, 91}}, "xfc.linear_candidates %a0, %a1, %a2 {excluded = array<i64: 3, 64>, slab = 64 : i64" + last + "}",
          {wide(30), tensor(65, 30), ids}, "!xfc.rows<source, 4xi32>, " + wide(4) + ", " + wide(2) + ", " + row(), 65);
}

TEST_P(FusedMatrix, CandidatesRowsDoNotTouchEachOther) {
  for (const std::string last : {"", ", renormalize"})
    checkRowsAlone("xfc.linear_candidates %a0, %a1, %a2, %a3 {excluded = array<i64: 0>, slab = 64 : i64" + last + "}",
                   {wide(33), tensor(150, 33), tensor(150), "!xfc.rows<source, i32>"},
                   "!xfc.rows<source, 24xi32>, " + wide(24) + ", " + wide(3) + ", " + row(), {}, 0);
}

TEST_P(Matrix, LinearRowsDoNotTouchEachOther) {
  for (auto [in, out] : {Shape{5, 10}, {600, 24}, {64, 300}})
    checkRowsAlone("xfc.linear %a0, %a1 bias %a2", {rows(in), tensor(out, in), tensor(out)}, rows(out));
}

TEST_P(FusedMatrix, EpilogueRowsDoNotTouchEachOther) {
  for (int64_t out : {10, 130}) {
    const std::string t = rows(out);
    checkRowsAlone("xfc.linear %a0, %a1 bias %a2 with %a3 {\n^bb0(%y: " + t + ", %e: " + t +
                       "):\n  %p = xfc.activation gelu %y : <source, " + std::to_string(out) + "x" + element() +
                       ">\n  %s = xfc.add %p, %e : " + t + "\n  xfc.yield %s, %p : " + t + ", " + t + "\n}",
                   {rows(33), tensor(out, 33), tensor(out), t}, t + ", " + t);
  }
}

TEST_P(Matrix, InputGradRowsDoNotTouchEachOther) {
  for (auto [in, out] : {Shape{10, 5}, {24, 600}, {300, 64}})
    checkRowsAlone("xfc.linear_input_grad %a0, %a1", {rows(out), tensor(out, in)}, rows(in));
}

TEST_P(FusedMatrix, CrossEntropyRowsDoNotTouchEachOther) {
  for (const std::vector<int> &unused : {std::vector<int>{}, {2}})
    checkRowsAlone("xfc.linear_cross_entropy %a0, %a1, %a2, %a3",
                   {rows(33), tensor(70, 33), ids, "tensor<" + element() + ">"},
                   row() + ", " + row() + ", " + rows(70) + ", " + row(), unused);
  checkRowsAlone("xfc.linear_cross_entropy_with_grad %a0, %a1, %a2, %a3, %a4",
                 {rows(33), tensor(70, 33), "!xfc.rows<source, 4xi32>", rows(5), row()},
                 row() + ", " + row() + ", " + rows(70));
}

// Tests of what only the GPU's kernels do.
class GPUMatrix : public Matrix {};

// Each chunk's sum equals that of the chunk alone, and the sums are added in order.
TEST_P(GPUMatrix, ChunksOfRowsAreAddedInTheirOrder) {
  const std::vector<std::string> types = {rows(24), rows(10)};
  int64_t first = 0;
  auto set = [&](int64_t operand, Tensor &tensor) {
    for (size_t i = 0; i < tensor.data.size(); ++i)
      tensor.data[i] = std::sin((first * tensor.features() + static_cast<int64_t>(i)) * 0.7 + operand);
  };
  CompiledOp kernel(textOf("xfc.linear_weight_grad %a0, %a1", types, tensor(24, 10) + ", " + tensor(24)), types,
                    {.device = Device::GPU, .evaluate = false, .set = set});
  const Outcome all = kernel.run(Batch({4100}, {1}));
  std::vector<std::vector<float>> sums;
  for (; first < 4100; first += 2048) {
    const Outcome chunk = kernel.run(Batch({static_cast<int>(std::min<int64_t>(4100 - first, 2048))}, {1}));
    for (size_t result = 0; result < 2; ++result) {
      const std::vector<double> &part = chunk.kernel[result].data;
      if (first == 0)
        sums.emplace_back(part.begin(), part.end());
      for (size_t i = 0; first > 0 && i < part.size(); ++i)
        sums[result][i] += static_cast<float>(part[i]);
    }
  }
  for (size_t result = 0; result < 2; ++result)
    EXPECT_TRUE(std::equal(sums[result].begin(), sums[result].end(), all.kernel[result].data.begin()))
        << "result " << result;
}

INSTANTIATE_TEST_SUITE_P(GPU, GPUMatrix, testing::ValuesIn(tensorCoreTargets), nameOf);

// Rows that are stored in bf16, which warpgroups (sm_90a) and tiles of AMX multiply as they are: K below a block, with
// more blocks than stages, and with a partial block; columns beyond a tile, in narrow and in wide tiles; rows apart.
// Rows in one block of a cluster, in both, and in a second cluster. Tiles read rows in place if they are a multiple of
// 32, but not the last rows of a block of 256.
class NarrowMatrix : public Matrix {
protected:
  struct Case {
    Shape shape;
    int64_t extraStride;
    std::vector<std::vector<int>> batches;
  };
  const std::vector<Case> cases = {{{24, 136}, 0, {{1}, {9, 120}, {200, 57}}},
                                   {{40, 304}, 0, {{40}}},
                                   {{64, 256}, 8, {{1}, {200}}},
                                   {{600, 264}, 0, {{73}}},
                                   {{72, 80}, 16, {{150}}},
                                   {{1056, 40}, 8, {{7}, {300}}}};
};

TEST_P(NarrowMatrix, Linear) {
  for (const auto &[shape, extraStride, some] : cases) {
    const auto [in, out] = shape;
    for (const std::string &results : {wide(out), narrowRows(out)})
      check(some, "xfc.linear %a0, %a1 bias %a2", {narrowRows(in), tensor(out, in), tensor(out)}, results, in,
            {.extraStride = extraStride});
  }
}

// Rows of f32 are multiplied by mma.sync, and in a decoding step again by the small-M variant, whose bits are compared.
TEST_P(NarrowMatrix, DecodingSteps) {
  for (const auto &[shape, extraStride, some] : cases) {
    const auto [in, out] = shape;
    check(some, "xfc.linear %a0, %a1 bias %a2", {wide(in), tensor(out, in), tensor(out)}, wide(out), in,
          {.extraStride = extraStride, .decodingStep = true});
  }
}

TEST_P(NarrowMatrix, LinearInputGrad) {
  for (const auto &[shape, extraStride, some] : cases) {
    const auto [out, in] = shape;
    for (const std::string &results : {wide(in), narrowRows(in)})
      check(some, "xfc.linear_input_grad %a0, %a1", {narrowRows(out), tensor(out, in)}, results, out,
            {.extraStride = extraStride});
  }
}

// Sums over few rows, over none, and over more than are summed at once.
TEST_P(NarrowMatrix, WeightGradients) {
  for (const auto &[shape, extraStride, some] : cases) {
    const auto [in, out] = shape;
    for (const std::string &results : {tensor(out, in), tensor(out, in) + ", " + tensor(out)})
      check(some, "xfc.linear_weight_grad %a0, %a1", {narrowRows(out), narrowRows(in)}, results, 257,
            {.extraStride = extraStride});
  }
  check({{2100}, {0}}, "xfc.linear_weight_grad %a0, %a1", {narrowRows(40), narrowRows(24)},
        tensor(40, 24) + ", " + tensor(40), 2100);
  // Enough tiles for wide ones.
  check({{90}}, "xfc.linear_weight_grad %a0, %a1", {narrowRows(1032), narrowRows(520)},
        tensor(1032, 520) + ", " + tensor(1032), 90);
}

TEST_P(NarrowMatrix, Epilogues) {
  const std::string wide = this->wide(304), narrow = narrowRows(304);
  for (bool training : {true, false}) {
    check({{9, 31}},
          "xfc.linear %a0, %a1 with %a2 {\n^bb0(%y: " + wide + ", %e: " + wide + "):\n  %s = xfc.add %y, %e : " + wide +
              "\n  %p = xfc.activation gelu %s : <source, 304xf32>\n  xfc.yield %s, %p : " + wide + ", " + wide + "\n}",
          {narrowRows(24), tensor(304, 24), narrow}, wide + ", " + narrow, 24, {.extraStride = 8}, training);
    check({{9, 130}},
          "xfc.linear_input_grad %a0, %a1 with %a2 {\n^bb0(%y: " + wide + ", %e: " + wide +
              "):\n  %d = xfc.dropout %y {rate = 0.5, id = 3 : i64} : " + wide +
              "\n  %g = xfc.activation_grad relu %d, %e : <source, 304xf32>\n  xfc.yield %g : " + wide + "\n}",
          {narrowRows(24), tensor(24, 304), narrow}, wide, 24, {.dropout = 3}, training);
  }
}

// The gradient is computed from logits that were stored in bf16. A sum that differs in its last bits may be rounded to
// the other neighbor, and the error of a logit becomes a relative error of its exponential.
TEST_P(NarrowMatrix, LinearCrossEntropy) {
  const std::pair<std::string, std::string> forms[] = {{"!xfc.rows<source, i32>", "tensor<f32>"},
                                                       {"!xfc.rows<source, 6xi32>", wide(7)}}; // lists of labels
  auto smaller = [set = setTarget(2, 3)](int64_t operand, Tensor &tensor) { // logits of at most about 8
    set(operand, tensor);
    for (double &x : tensor.data)
      if (operand < 2)
        x /= 2;
  };
  for (const auto &[labels, smoothing] : forms)
    for (int64_t vocabulary : {40, 304}) { // ids are below 37
      check({{1}, {50}, {9, 291}}, "xfc.linear_cross_entropy %a0, %a1, %a2, %a3, %a4",
            {narrowRows(24), tensor(vocabulary, 24), tensor(vocabulary), labels, smoothing},
            row() + ", " + row() + ", " + wide(vocabulary) + ", " + row(), vocabulary, {.set = setTarget(3, 4)});
      check({{1}, {9, 291}}, "xfc.linear_cross_entropy_with_grad %a0, %a1, %a2, %a3, %a4",
            {narrowRows(24), tensor(vocabulary, 24), labels, smoothing, row()},
            row() + ", " + row() + ", " + narrowRows(vocabulary), 16 * vocabulary, {.extraStride = 8, .set = smaller},
            true, 0.05);
    }
}

// Rows of which few would fit the second cache, which tiles take block by block: of these alone, and of several chunks.
TEST_P(NarrowMatrix, LongRows) {
  if (GetParam().device == Device::GPU)
    GTEST_SKIP() << "a GPU takes all rows in the same way, which other tests cover";
  check({{7}, {300}}, "xfc.linear %a0, %a1 bias %a2", {narrowRows(4128), tensor(72, 4128), tensor(72)}, wide(72), 4128,
        {.extraStride = 8});
  check({{40}, {530}}, "xfc.linear_input_grad %a0, %a1", {narrowRows(8000), tensor(8000, 328)}, narrowRows(328), 8000);
  checkRowsAlone("xfc.linear %a0, %a1 bias %a2", {narrowRows(4128), tensor(72, 4128), tensor(72)}, narrowRows(72));
}

TEST_P(NarrowMatrix, RowsDoNotTouchEachOther) {
  checkRowsAlone("xfc.linear %a0, %a1 bias %a2", {narrowRows(72), tensor(136, 72), tensor(136)}, narrowRows(136));
}

INSTANTIATE_TEST_SUITE_P(CPU, Matrix, testing::ValuesIn(matrixTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(BF16, Matrix, testing::ValuesIn(bf16Targets), nameOf);
INSTANTIATE_TEST_SUITE_P(Plain, Matrix, testing::ValuesIn(plainTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(GPU, Matrix, testing::ValuesIn(gpuMatrixTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(GPU, NarrowMatrix, testing::ValuesIn(warpgroupTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(AMX, NarrowMatrix, testing::Values(bf16Targets[3]), nameOf);
INSTANTIATE_TEST_SUITE_P(GPU, FusedMatrix, testing::ValuesIn(tensorCoreTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(CPU, FusedMatrix, testing::ValuesIn(matrixTargets), nameOf);
INSTANTIATE_TEST_SUITE_P(BF16, FusedMatrix, testing::ValuesIn(bf16Targets), nameOf);

} // namespace
