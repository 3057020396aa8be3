// Tests what the CUDA device does on the host: a batch as one block of bytes, buckets, and runs of rows.
#include "device/cuda/CudaDevice.h"
#include "device/cuda/Staging.h"
#include "engine/Batch.h"
#include "plan/Memory.h"
#include "support/Error.h"
#include <array>
#include <cstring>
#include <gtest/gtest.h>
#include <set>

using namespace xfc;
using namespace xfc::cuda;

namespace {

Program program() {
  Program program;
  program.arguments = {{"source", Argument::Role::Input, DType::I32, XFC_SOURCE, {}},
                       {"rows", Argument::Role::Input, DType::F32, XFC_TARGET, {3}},
                       {"cache", Argument::Role::State, DType::F32, XFC_CACHE, {4}},
                       {"hyper", Argument::Role::Scalar, DType::F32, -1, {8}}};
  Step step;
  step.keys = XFC_KEYS(XFC_TARGET_SOURCE, 1, 0);
  program.steps = {step, {}};
  return program;
}

// Reads the values at a device address within a block whose device address is `base`.
template <typename T>
std::vector<T> at(const std::vector<char> &block, uint64_t base, const T *address, int64_t count) {
  std::vector<T> values(count);
  const uint64_t offset = reinterpret_cast<uint64_t>(address) - base;
  EXPECT_LE(offset + count * sizeof(T), block.size());
  EXPECT_EQ(offset % sizeof(T), 0u);
  std::memcpy(values.data(), block.data() + offset, count * sizeof(T));
  return values;
}
template <typename T> std::vector<T> list(const T *begin, int64_t count) { return {begin, begin + count}; }

} // namespace

TEST(CudaStaging, EverythingIsFoundUnderItsNewAddress) {
  const std::vector<int32_t> a = {4, 0, 5}, b = {6}, c = {7, 8}, d = {9, 4, 4, 5};
  const std::vector<Sequence> sources = {{a, 3, 11}, {b, 1, 12}}, targets = {{c, 2, 11}, {d, 4, 12}};
  Batch batch;
  batch.assign(sources, targets, 0, true);
  batch.shape().dropout_key[1] = 77;
  batch.shape().training = 1;

  const Program program = ::program();
  std::vector<float> rows(6 * 5), hyper = {1, 2, 3, 4, 5, 6, 7, 8}; // rows of 3 with a stride of 5
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<float>(i);
  int deviceMemory = 0;
  ProgramRun run;
  run.program = &program;
  run.shape = &batch.shape();
  run.counts = countsOf(batch.shape());
  run.capacity = run.counts;
  run.capacity.rows[XFC_SOURCE] = 100; // room for more than the batch has
  run.arguments = {{batch.ids(XFC_SOURCE).data(), 1}, {rows.data(), 5}, {&deviceMemory, 4, true}, {hyper.data(), 0}};

  const StagingLayout layout = stagingLayout(run);
  EXPECT_EQ(layout.arguments[2], -1);
  constexpr uint64_t base = 0x7000000000;
  std::vector<char> block(layout.bytes, '\x55');
  const int64_t used = stage(run, layout, block.data(), base);
  EXPECT_LE(used, layout.bytes);
  EXPECT_LT(used, layout.bytes - 4 * 97); // structures take no room for missing source rows

  auto argument = [&]<typename T>(int i, const T *) { return reinterpret_cast<const T *>(base + layout.arguments[i]); };
  EXPECT_EQ(at(block, base, argument(0, static_cast<int32_t *>(nullptr)), 4), (std::vector<int32_t>{4, 0, 5, 6}));
  std::vector<float> dense;
  for (int row = 0; row < 6; ++row)
    for (int j = 0; j < 3; ++j)
      dense.push_back(rows[row * 5 + j]);
  EXPECT_EQ(at(block, base, argument(1, static_cast<float *>(nullptr)), 18), dense);
  EXPECT_EQ(at(block, base, argument(3, static_cast<float *>(nullptr)), 8), hyper);
  for (int i : {0, 1, 3})
    EXPECT_EQ(layout.arguments[i] % StagingLayout::alignment, 0);

  xfc_shape shape;
  std::memcpy(&shape, block.data(), sizeof shape);
  EXPECT_EQ(shape.dropout_key[1], 77u);
  EXPECT_EQ(shape.training, 1);
  for (int set : {XFC_SOURCE, XFC_TARGET}) {
    const xfc_rows &is = shape.sets[set], &was = batch.shape().sets[set];
    ASSERT_EQ(is.rows, was.rows);
    ASSERT_EQ(is.sequences, 2);
    EXPECT_EQ(at(block, base, is.offsets, 3), list(was.offsets, 3));
    EXPECT_EQ(at(block, base, is.positions, is.rows), list(was.positions, is.rows));
    EXPECT_EQ(at(block, base, is.sequence_of, is.rows), list(was.sequence_of, is.rows));
    EXPECT_EQ(at(block, base, is.sentences, 2), list(was.sentences, 2));
    EXPECT_EQ(at(block, base, is.by_id, is.rows), list(was.by_id, is.rows));
  }
  EXPECT_EQ(shape.sets[XFC_CACHE].offsets, nullptr);
  EXPECT_EQ(shape.slots, nullptr);
  for (int structure = 0; structure < XFC_KEY_STRUCTURES; ++structure) {
    const xfc_keys &is = shape.keys[structure], &was = batch.shape().keys[structure];
    if (structure != program.steps[0].keys) { // structures that no step reads are not copied
      EXPECT_EQ(is.keys, nullptr) << structure;
      EXPECT_EQ(is.pairs, 0) << structure;
      continue;
    }
    EXPECT_EQ(is.pairs, was.pairs);
    EXPECT_EQ(at(block, base, is.keys, 3), list(was.keys, 3)); // one of the four is a pad
    EXPECT_EQ(at(block, base, is.begin, 2), list(was.begin, 2));
    EXPECT_EQ(at(block, base, is.count, 2), list(was.count, 2));
    EXPECT_EQ(at(block, base, is.limit, 6), list(was.limit, 6));
    EXPECT_EQ(at(block, base, is.pair_offsets, 3), list(was.pair_offsets, 3));
  }
}

TEST(CudaStaging, AStepOfDecodingFitsWhatItsCountsSay) {
  Program program;
  program.arguments = {{"target", Argument::Role::Input, DType::I32, XFC_TARGET, {}}};
  for (int kind = 0; kind < 4; ++kind)
    for (int relation : {XFC_TARGET_SOURCE, XFC_TARGET_CACHE}) {
      program.steps.emplace_back();
      program.steps.back().keys = static_cast<int16_t>(relation * 4 + kind);
    }
  // Two sentences of two hypotheses each, at their maximum length.
  const std::vector<int32_t> ids[] = {{4, 5, 6}, {7, 8}}, rows[] = {{0, 1, 2}, {3, 4}};
  const EncodedSentence sentences[] = {{ids[0], rows[0]}, {ids[1], rows[1]}};
  const std::vector<int32_t> sentenceOf = {0, 0, 1, 1}, positions(4, 5), slots = {5, 11, 17, 23};
  std::vector<int32_t> histories[4];
  std::vector<std::span<const int32_t>> history;
  for (int h = 0; h < 4; ++h) {
    for (int i = 0; i < 6; ++i)
      histories[h].push_back(h * 6 + i);
    history.emplace_back(histories[h]);
  }
  Batch batch;
  batch.assignStep(sentences, 0, 5, sentenceOf, positions, slots, history, 24);
  std::vector<int32_t> tokens = {4, 5, 6, 7};
  ProgramRun run;
  run.program = &program;
  run.shape = &batch.shape();
  run.counts = run.capacity = countsOf(batch.shape());
  run.arguments = {{tokens.data(), 1}};
  const StagingLayout layout = stagingLayout(run);
  std::vector<char> block(layout.bytes);
  constexpr uint64_t base = 4096;
  stage(run, layout, block.data(), base);
  xfc_shape shape;
  std::memcpy(&shape, block.data(), sizeof shape);
  EXPECT_EQ(at(block, base, shape.slots, 4), slots);
  EXPECT_EQ(at(block, base, shape.before, 4), (std::vector<int32_t>{4, 10, 16, 22}));
  EXPECT_EQ(at(block, base, shape.keys[XFC_KEYS(XFC_TARGET_SOURCE, 0, 0)].keys, 5),
            (std::vector<int32_t>{0, 1, 2, 3, 4}));
  const xfc_keys &cache = shape.keys[XFC_KEYS(XFC_TARGET_CACHE, 0, 1)];
  EXPECT_EQ(at(block, base, cache.keys, 24), list(batch.shape().keys[XFC_KEYS(XFC_TARGET_CACHE, 0, 1)].keys, 24));
  EXPECT_EQ(at(block, base, cache.limit, 4), std::vector<int32_t>(4, 6));
}

TEST(CudaStaging, BucketsHoldTheirBatchesAndAreFew) {
  Counts capacity;
  capacity.rows[XFC_SOURCE] = capacity.rows[XFC_TARGET] = 5000;
  capacity.sequences[XFC_SOURCE] = capacity.sequences[XFC_TARGET] = 1500;
  std::set<int64_t> rows, sequences;
  for (int64_t count = 0; count <= 5000; ++count) {
    Counts counts;
    counts.rows[XFC_SOURCE] = count;
    counts.sequences[XFC_SOURCE] = std::min<int64_t>(count, 1500);
    const Counts bucket = bucketOf(counts, capacity);
    ASSERT_GE(bucket.rows[XFC_SOURCE], count);
    ASSERT_LE(bucket.rows[XFC_SOURCE], 5000);
    ASSERT_LE(bucket.rows[XFC_SOURCE], std::max<int64_t>(count > 1024 ? count + count / 4 : 2 * count, 1));
    ASSERT_GE(bucket.sequences[XFC_SOURCE], counts.sequences[XFC_SOURCE]);
    ASSERT_LE(bucket.sequences[XFC_SOURCE], 1500);
    rows.insert(bucket.rows[XFC_SOURCE]);
    sequences.insert(bucket.sequences[XFC_SOURCE]);
  }
  EXPECT_EQ(rows.size(), 11u + 4 + 4 + 1); // powers of two to 1024, two octaves in quarters, and the capacity
  EXPECT_EQ(sequences.size(), 11u + 1);
  // A batch beyond the reserved capacity has a bucket of exactly its size.
  Counts beyond;
  beyond.rows[XFC_TARGET] = 5001;
  EXPECT_EQ(bucketOf(beyond, capacity).rows[XFC_TARGET], 5001);
}

TEST(CudaStaging, NeighboursAreOneCopy) {
  const int32_t to[] = {3, 4, 5, 9, 0, 1, 7, 6};
  std::vector<std::array<int64_t, 3>> runs;
  for (const RowRun &run : runsOf(to))
    runs.push_back({run.from, run.to, run.count});
  EXPECT_EQ(runs, (std::vector<std::array<int64_t, 3>>{{0, 3, 3}, {3, 9, 1}, {4, 0, 2}, {6, 7, 1}, {7, 6, 1}}));
  EXPECT_TRUE(runsOf({}).empty());
}

xfc_device_image imageFor(const char *arch) {
  xfc_device_image image{};
  image.arch = arch;
  return image;
}

TEST(CudaImages, TheNewestThatRunsIsChosen) {
  const xfc_device_image a = imageFor("sm_120"), b = imageFor("sm_90a"), c = imageFor("sm_90"), d = imageFor("sm_80");
  const xfc_device_image *const images[] = {&a, &b, &c, &d, nullptr};
  EXPECT_EQ(chooseImage(images, 12, 1), 0);
  EXPECT_EQ(chooseImage(images, 10, 0), 2); // sm_90a is for 9.0 alone
  EXPECT_EQ(chooseImage(images, 9, 0), 1);
  EXPECT_EQ(chooseImage(images, 8, 9), 3);
  EXPECT_EQ(chooseImage(images, 8, 0), 3);
  EXPECT_EQ(chooseImage(images, 7, 5), -1);
}

TEST(CudaImages, OneMayBeAskedFor) {
  const xfc_device_image a = imageFor("sm_90a"), b = imageFor("sm_80");
  const xfc_device_image *const images[] = {&a, &b, nullptr};
  // Each name with the image, or the compilation by the driver, that it selects.
  for (auto [name, index, ptx] : {std::tuple{"", -1, false},
                                  {"sm_90a", 0, false},
                                  {"sm_80", 1, false},
                                  {"ptx", -1, true},
                                  {"ptx:sm_90a", 0, true},
                                  {"ptx:sm_80", 1, true}}) {
    const ImageRequest request = requestedImage(images, name);
    EXPECT_EQ(request.index, index) << name;
    EXPECT_EQ(request.ptx, ptx) << name;
  }
  for (const char *name : {"sm_90", "ptx:", "ptx:sm_90", "PTX", "cubin"})
    try {
      requestedImage(images, name);
      ADD_FAILURE() << name << " was taken";
    } catch (const Error &error) {
      EXPECT_NE(std::string(error.what()).find("this executable has sm_90a, sm_80, and ptx"), std::string::npos)
          << error.what();
    }
  // The best image, or exactly the one that was named if it can run.
  EXPECT_EQ(chooseImage(images, 9, 0, requestedImage(images, "sm_80")), 1);
  EXPECT_EQ(chooseImage(images, 9, 0, requestedImage(images, "sm_90a")), 0);
  EXPECT_EQ(chooseImage(images, 9, 0, requestedImage(images, "ptx")), 0);
  EXPECT_EQ(chooseImage(images, 8, 6, requestedImage(images, "ptx")), 1);
  EXPECT_EQ(chooseImage(images, 10, 0, requestedImage(images, "sm_90a")), -1);
  EXPECT_EQ(chooseImage(images, 8, 0, requestedImage(images, "ptx:sm_90a")), -1);
  EXPECT_EQ(chooseImage(images, 7, 5, requestedImage(images, "sm_80")), -1);
}

TEST(CudaImages, PtxNamesTheDriverItNeeds) {
  EXPECT_EQ(driverFor("//\n.version 7.1\n.target sm_80\n"), 11010);
  EXPECT_EQ(driverFor(".version 7.8"), 11080);
  EXPECT_EQ(driverFor(".version 8.0"), 12000);
  EXPECT_EQ(driverFor(".version 8.5"), 12050);
  EXPECT_EQ(driverFor(".version 8.6"), 12070);
  EXPECT_EQ(driverFor(".version 8.8"), 12090);
  EXPECT_EQ(driverFor(".version 9.1"), 13010);
  for (const char *without : {"nothing", ".version", ".version ", ".version 8", ".version 8.", ".version x.1"})
    EXPECT_EQ(driverFor(without), 0) << without;
}
