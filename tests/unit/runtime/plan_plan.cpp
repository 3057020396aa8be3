// Tests plans: buffer allocation, sizes, serialization, and damaged bytes.
#include "model.h"
#include "plan/GenerationSettings.h"
#include "plan/Layout.h"
#include "plan/Memory.h"
#include "plan/Serialization.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include <algorithm>
#include <array>
#include <cfenv>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <thread>

using namespace xfc;

namespace {

Program randomProgram(std::mt19937 &random) {
  Program program;
  const int steps = 1 + random() % 40;
  for (int i = 0, n = 1 + random() % 60; i < n; ++i) {
    Buffer buffer;
    buffer.size.constant = random() % 300;
    buffer.size.rows[random() % XFC_ROW_SETS] = random() % 50;
    buffer.size.pairs[random() % XFC_KEY_STRUCTURES] = random() % 5;
    buffer.first = random() % steps;
    buffer.last = buffer.first + random() % (steps - buffer.first);
    program.buffers.push_back(buffer);
  }
  return program;
}

} // namespace

TEST(Plan, NumbersAreRoundedToTheirType) {
  // A test of thread pools that ran earlier in this process leaves denormals flushed to zero.
  ASSERT_EQ(std::fesetenv(FE_DFL_ENV), 0);
  std::array<uint16_t, 9> narrow{};
  // Ties go to the even neighbor: 1 + 2^-8 lies between 1 and 1 + 2^-7, and 1 + 3 2^-8 between that and 1 + 2^-6.
  const float numbers[] = {1,
                           1 + 0x1p-8f,
                           1 + 3 * 0x1p-8f,
                           1 + 0x1.01p-8f,
                           -1 - 0x1.01p-8f,
                           3.4e38f,
                           -std::numeric_limits<float>::infinity(),
                           NAN,
                           1e-40f};
  const double expected[] = {1, 1, 1 + 0x1p-6, 1 + 0x1p-7, -1 - 0x1p-7, INFINITY, -INFINITY, NAN, 0x1p-133};
  for (int64_t i = 0; i < 9; ++i) {
    storeNumber(numbers[i], DType::BF16, narrow.data(), i);
    const double found = numberAt(DType::BF16, narrow.data(), i);
    EXPECT_TRUE(found == expected[i] || (std::isnan(found) && std::isnan(expected[i]))) << i << ": " << found;
  }
  EXPECT_EQ(bytesOf(DType::BF16), 2);
  // Integers of a byte, to the nearest, ties to even.
  std::array<int8_t, 4> bytes{};
  for (auto [i, number] : {std::pair{0, 126.5}, {1, -127.4}, {2, 2.5}, {3, -0.6}})
    storeNumber(number, DType::I8, bytes.data(), i);
  EXPECT_EQ(bytes, (std::array<int8_t, 4>{126, -127, 2, -1}));
  EXPECT_EQ(numberAt(DType::I8, bytes.data(), 1), -127);
  EXPECT_EQ(bytesOf(DType::I8), 1);

  std::array<double, 2> wide{};
  storeNumber(1 + 0x1p-40, DType::F64, wide.data(), 1);
  EXPECT_EQ(numberAt(DType::F64, wide.data(), 1), 1 + 0x1p-40);
  std::array<float, 2> single{};
  storeNumber(1 + 0x1p-40, DType::F32, single.data(), 1);
  EXPECT_EQ(single[1], 1);
  std::array<int32_t, 2> ids{};
  storeNumber(-7, DType::I32, ids.data(), 1);
  EXPECT_EQ(numberAt(DType::I32, ids.data(), 1), -7);
}

TEST(Plan, LivingBuffersNeverOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const Program program = randomProgram(random);
    Counts counts;
    for (int64_t &rows : counts.rows)
      rows = random() % 100;
    for (int64_t &pairs : counts.pairs)
      pairs = random() % 100;
    const Layout layout = plan({}, program, counts), again = plan({}, program, counts);
    EXPECT_EQ(layout.offsets, again.offsets);
    ASSERT_EQ(layout.offsets.size(), program.buffers.size());
    int64_t end = 0, sum = 0;
    std::vector<int64_t> alive(64, 0);
    for (size_t i = 0; i < program.buffers.size(); ++i) {
      const Buffer &a = program.buffers[i];
      const int64_t size = evaluate(a.size, counts), rounded = (size + 63) / 64 * 64;
      EXPECT_EQ(layout.offsets[i] % 64, 0);
      end = std::max(end, layout.offsets[i] + rounded);
      sum += rounded;
      for (int32_t step = a.first; step <= a.last; ++step)
        alive[step] += rounded;
      for (size_t j = 0; j < i; ++j) {
        const Buffer &b = program.buffers[j];
        if (a.last < b.first || b.last < a.first)
          continue;
        const int64_t other = evaluate(b.size, counts);
        EXPECT_TRUE(size == 0 || other == 0 || layout.offsets[i] + size <= layout.offsets[j] ||
                    layout.offsets[j] + other <= layout.offsets[i]);
      }
    }
    EXPECT_EQ(layout.bytes, end);
    EXPECT_LE(layout.bytes, sum);
    EXPECT_GE(layout.bytes, *std::max_element(alive.begin(), alive.end()));
  }
}

TEST(Plan, DeadBuffersGiveTheirPlaceAway) {
  Program chain; // each value is read by the next step only
  for (int32_t step = 0; step < 50; ++step) {
    Buffer buffer;
    buffer.size.rows[XFC_SOURCE] = 640;
    buffer.first = step;
    buffer.last = step + 1;
    chain.buffers.push_back(buffer);
  }
  Counts counts;
  counts.rows[XFC_SOURCE] = 7;
  EXPECT_EQ(plan({}, chain, counts).bytes, 2 * 640 * 7);
}

// Every gradient has its place from the step that computes it on, and those that no step computes, always. Elements are
// compared one by one.
TEST(Plan, BuffersLieAroundGradients) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    Module module;
    module.parameterElements = 16 * (1 + random() % 40);
    const int64_t block = module.parameterElements * 4;
    Program program = randomProgram(random);
    program.name = "loss_and_gradients";
    int32_t steps = 0;
    for (const Buffer &buffer : program.buffers)
      steps = std::max(steps, buffer.last + 1);
    program.steps.resize(steps);
    std::vector<int32_t> computedBy(module.parameterElements, GradientPart::never);
    const int results = 1 + random() % 8;
    for (int i = 0; i < results; ++i) { // those of merged weights may overlap
      const auto step = static_cast<int32_t>(random() % steps);
      const int64_t first = random() % module.parameterElements,
                    count = 1 + random() % (module.parameterElements - first);
      Step &computes = program.steps[step];
      computes.buffers.push_back({Place::Kind::Gradients, 0, first * 4});
      computes.results.push_back({static_cast<int32_t>(computes.buffers.size()) - 1, DType::F32, -1, -1, count});
      for (int64_t at = first; at < first + count; ++at)
        computedBy[at] = computedBy[at] < 0 ? step : std::min(computedBy[at], step);
    }
    Counts counts;
    for (int64_t &rows : counts.rows)
      rows = random() % 100;

    const std::vector<GradientPart> parts = gradientsOf(module, program);
    int64_t covered = 0;
    for (const GradientPart &part : parts) {
      EXPECT_EQ(part.begin, covered);
      covered = part.end;
      for (int64_t at = part.begin; at < part.end; at += 4)
        EXPECT_EQ(part.first, computedBy[at / 4]);
    }
    EXPECT_EQ(covered, block);
    const Layout layout = plan(module, program, counts);
    EXPECT_GE(layout.bytes, block);
    for (size_t i = 0; i < program.buffers.size(); ++i) {
      const Buffer &buffer = program.buffers[i];
      EXPECT_EQ(layout.offsets[i] % 64, 0);
      const int64_t end = std::min(layout.offsets[i] + evaluate(buffer.size, counts), block);
      for (int64_t at = layout.offsets[i]; at < end; at += 4)
        EXPECT_GT(computedBy[at / 4], buffer.last) << "a gradient that is not computed yet";
    }

    program.name = "update"; // reads them from its first step on
    EXPECT_EQ(gradientsOf(module, program).size(), 1u);
    const Layout reading = plan(module, program, counts);
    for (size_t i = 0; i < program.buffers.size(); ++i)
      EXPECT_TRUE(reading.offsets[i] >= block || evaluate(program.buffers[i].size, counts) == 0);
    EXPECT_LE(layout.bytes, reading.bytes);
  }
  EXPECT_TRUE(gradientsOf({}, randomProgram(random)).empty());
}

// A backward pass that reads activations in the reverse order of a forward pass, and computes a gradient of the same
// size with each of them but the first: all but one of the gradients lie where activations were.
TEST(Plan, GradientsTakeThePlacesOfActivations) {
  constexpr int32_t layers = 10;
  constexpr int64_t elements = 160;
  Module module;
  module.parameterElements = layers * elements;
  Program program{.name = "loss_and_gradients"};
  program.steps.resize(2 * layers);
  for (int32_t layer = 0; layer < layers; ++layer) {
    const int32_t backward = 2 * layers - 1 - layer;
    Buffer activation;
    activation.size.constant = elements * 4;
    activation.first = layer;
    activation.last = backward;
    program.buffers.push_back(activation);
    program.steps[backward].buffers = {{Place::Kind::Gradients, 0, layer * elements * 4}};
    program.steps[backward].results = {{0, DType::F32, -1, -1, elements}};
  }
  EXPECT_EQ(plan(module, program, {}).bytes, (layers + 1) * elements * 4);
}

TEST(Plan, SharesOfRowsMeetNowhere) {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    Program program;
    program.rowByRow = true;
    const int32_t steps = 1 + random() % 20;
    for (int i = 0; i < 20; ++i) {
      Buffer buffer;
      buffer.size.rows[XFC_TARGET] = random() % 300;
      buffer.first = random() % steps;
      buffer.last = buffer.first + random() % (steps - buffer.first);
      program.buffers.push_back(buffer);
    }
    for (int64_t result : {3, 7})
      program.outputs.push_back({"", {Place::Kind::Arena, result, 0}, DType::F32, XFC_TARGET, -1, {}, 1});
    Counts counts;
    counts.rows[XFC_TARGET] = random() % 100;
    const Layout layout = plan({}, program, counts);

    struct Part {
      size_t buffer;
      int64_t share, begin, end;
    };
    std::vector<Part> parts;
    const int64_t rows = counts.rows[XFC_TARGET] - random() % (counts.rows[XFC_TARGET] + 1), shares = 1 + random() % 4;
    for (size_t i = 0; i < program.buffers.size(); ++i)
      for (int64_t share = 0; share < shares; ++share) {
        const int64_t first = rows * share / shares, count = rows * (share + 1) / shares - first,
                      width = program.buffers[i].size.rows[XFC_TARGET],
                      begin = layout.offsetOf(static_cast<int64_t>(i), width, first, count);
        if (i == 3 || i == 7)
          EXPECT_EQ(begin, layout.offsets[i] + first * width) << "rows of results are read together";
        else
          EXPECT_EQ(begin % 64, 0);
        EXPECT_LE(begin + count * width, layout.bytes);
        parts.push_back({i, share, begin, begin + count * width});
      }
    for (const Part &a : parts)
      for (const Part &b : parts) {
        const Buffer &one = program.buffers[a.buffer], &other = program.buffers[b.buffer];
        const bool meet = a.share != b.share || (one.first <= other.last && other.first <= one.last);
        if (&a != &b && meet && a.begin < a.end && b.begin < b.end) {
          EXPECT_TRUE(a.end <= b.begin || b.end <= a.begin);
        }
      }
  }
}

TEST(Plan, DeadBuffersOfRowsGiveTheirPlaceAway) {
  Program chain;
  chain.rowByRow = true;
  for (int32_t step = 0; step < 50; ++step) {
    Buffer buffer;
    buffer.size.rows[XFC_TARGET] = 640;
    buffer.first = step;
    buffer.last = step + 1;
    chain.buffers.push_back(buffer);
  }
  chain.outputs.push_back({"last", {Place::Kind::Arena, 49, 0}, DType::F32, XFC_TARGET, -1, {160}, 160});
  Counts counts;
  counts.rows[XFC_TARGET] = 7;
  EXPECT_EQ(plan({}, chain, counts).bytes, (2 + 1) * 640 * 7);
}

TEST(Plan, SizesAreSumsOverCounts) {
  Size size;
  size.constant = 5;
  size.rows[XFC_TARGET] = 3;
  size.pairs[XFC_KEYS(XFC_TARGET_SOURCE, 1, 0)] = 11;
  size.sequences[XFC_SOURCE] = 100;
  size.chunks[XFC_TARGET] = 1000; // counted only if there is more than one chunk
  Counts counts;
  counts.rows[XFC_TARGET] = 10;
  counts.pairs[XFC_KEYS(XFC_TARGET_SOURCE, 1, 0)] = 2;
  counts.sequences[XFC_SOURCE] = 4;
  EXPECT_EQ(evaluate(size, counts), 5 + 30 + 22 + 400);
  for (auto [rows, chunks] :
       {std::pair<int64_t, int64_t>(chunkRows, 0), {chunkRows + 1, 2}, {2 * chunkRows, 2}, {5 * chunkRows - 1, 5}}) {
    counts.rows[XFC_TARGET] = rows;
    EXPECT_EQ(evaluate(size, counts), 5 + 3 * rows + 22 + 400 + 1000 * chunks);
  }
}

TEST(Plan, VariantsOfPrograms) {
  Module module;
  module.model = "one";
  for (const char *name : {"encode", "decode_step", "encode.bf16", "encode.int8", "decode_step.bf16"})
    module.programs.push_back({.name = name});
  const std::vector<std::string> three = {"f32", "bf16", "int8"};
  EXPECT_EQ(module.computeTypes("encode"), three);
  EXPECT_TRUE(module.computeTypes("score").empty());
  EXPECT_EQ(module.variant("encode", ""), "encode");
  EXPECT_EQ(module.variant("encode", "f32"), "encode");
  EXPECT_EQ(module.variant("encode", "int8"), "encode.int8");
  try {
    module.variant("decode_step", "int8");
    ADD_FAILURE() << "no error";
  } catch (const Error &error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("--compute-type int8: model 'one' decodes in f32 or bf16 only"))
        << error.what();
  }
  module.compute = "bf16";
  EXPECT_EQ(module.variant("encode", ""), "encode");
  EXPECT_EQ(module.variant("encode", "bf16"), "encode");
  EXPECT_EQ(module.computeTypes("decode_step").front(), "bf16");
}

TEST(Plan, SizesBeyondAnyMachineAreErrors) {
  constexpr int64_t huge = int64_t(1) << 62;
  EXPECT_EQ(product({1 << 20, 1 << 20, 1 << 10}), int64_t(1) << 50);
  EXPECT_THROW(product({1 << 20, 1 << 20, 1 << 11}), Error);
  EXPECT_THROW(product({huge, huge, 0}), Error);
  Size size;
  size.rows[XFC_SOURCE] = size.rows[XFC_TARGET] = 1;
  Counts counts;
  counts.rows[XFC_SOURCE] = counts.rows[XFC_TARGET] = huge;
  EXPECT_THROW(evaluate(size, counts), Error); // the sum
  counts.rows[XFC_TARGET] = 0;
  EXPECT_EQ(evaluate(size, counts), huge);
  size.rows[XFC_SOURCE] = 4;
  EXPECT_THROW(evaluate(size, counts), Error); // the product
  Program program;
  program.buffers = {{size, 0, 0}};
  counts.rows[XFC_SOURCE] = int64_t(1) << 48;
  EXPECT_EQ(plan({}, program, counts).bytes, int64_t(1) << 50);
  counts.rows[XFC_SOURCE] = int64_t(1) << 58;
  EXPECT_THROW(plan({}, program, counts), Error);
}

// A weight that kernel 5 packs in three chunks.
static Module packingModel() {
  Module module = bagModel();
  module.kernels[5].partition.times = 3;
  module.packed = {{5, {Place::Kind::Parameters, 0, 64}, 4096, 3}};
  return module;
}

TEST(Plan, BytesAndBack) {
  Module module = packingModel();
  module.tables = {{80, 6, 10000, 2, 1, true}};
  const std::vector<uint8_t> bytes = serialize(module);
  const Module back = deserialize(bytes.data(), bytes.size());
  EXPECT_EQ(serialize(back), bytes);
  EXPECT_EQ(back.model, "bag");
  EXPECT_EQ(back.eos, module.eos);
  ASSERT_EQ(back.parameters.size(), 3u);
  EXPECT_EQ(back.parameters[0].aliases, module.parameters[0].aliases);
  EXPECT_EQ(back.parameters[2].shape, (std::vector<int64_t>{bagVocabulary, bagWidth}));
  EXPECT_EQ(back.packed[0].source.offset, 64);
  EXPECT_EQ(back.packed[0].chunks, 3);
  EXPECT_EQ(back.tables[0].cosineOffset, 1);
  EXPECT_TRUE(back.tables[0].halves);
  const Program *score = back.find("score");
  ASSERT_TRUE(score);
  EXPECT_EQ(score->arguments[3].role, Argument::Role::Scalar);
  EXPECT_EQ(score->buffers[0].size.rows[XFC_SOURCE], module.find("score")->buffers[0].size.rows[XFC_SOURCE]);
  EXPECT_EQ(back.find("no such program"), nullptr);
}

// Every kind of field at the limits of its range.
#ifdef XFC_FUZZ_CORPUS
// The seed of the fuzz target `plan` has to be of the current version, or nothing behind the version's check is fuzzed.
// With XFC_WRITE_SEEDS=1 in the environment, this test writes it anew.
TEST(Plan, SeedOfFuzzingIsCurrent) {
  const std::string file = std::string(XFC_FUZZ_CORPUS) + "/plan/bag";
  const std::vector<uint8_t> bytes = serialize(bagModel());
  const std::string current(bytes.begin(), bytes.end());
  if (std::getenv("XFC_WRITE_SEEDS"))
    writeFile(file, current);
  EXPECT_EQ(readFile(file), current) << "XFC_WRITE_SEEDS=1 writes " << file << " anew";
}
#endif

TEST(Plan, ExtremesAndBack) {
  Module module = bagModel();
  constexpr int64_t largest = int64_t(1) << 50;
  module.pad = -1;
  module.start = std::numeric_limits<int32_t>::max();
  module.sourceEos = false;
  module.hash.clear();
  module.description = std::string(1000, 'd') + std::string(1, '\0') + "\xff";
  module.settings.width = largest;
  module.settings.generation = {.beam = 65536,
                                .lengthPenalty = -0.25,
                                .penaltyForm = Generation::PenaltyForm::Power,
                                .earlyStopping = Generation::EarlyStopping::Never,
                                .patience = 2.5,
                                .beamGroups = 4,
                                .diversity = 0.25,
                                .coveragePenalty = 0.125,
                                .atMaxLength = Generation::AtMaxLength::Cut,
                                .maxLength = 9,
                                .maxLengthRatio = 1.5,
                                .minLength = 2,
                                .minLengthRatio = 0.125,
                                .forcedFirst = {4},
                                .suppress = {5, 6},
                                .badSequences = {{4, 1}, {}, {std::numeric_limits<int32_t>::max()}},
                                .requiredPhrases = {{{4}, {1, 6}}, {}, {{}}},
                                .noRepeatNgram = 3,
                                .repetitionPenalty = 1.25,
                                .renormalize = true,
                                .temperature = 0.5,
                                .topK = 7,
                                .topP = 0.75,
                                .minP = 0.0625,
                                .typicalP = 0.875,
                                .epsilonCutoff = 0.001};
  for (const GenerationSetting &setting : generationSettings()) {
    Generation one;
    copySetting(setting, one, module.settings.generation);
    EXPECT_NE(one, Generation()) << setting.name << " has its default above, so that losing it would not be noticed";
  }
  module.settings.training.labelSmoothing = 0.3;
  module.kernels[0].scratch = largest;
  module.kernels[0].threads = 1024;
  module.kernels[0].small = 1;
  module.kernels[0].smallRows = largest;
  module.kernels[0].reduction = 2;
  module.kernels[0].resident = true;
  module.kernels[0].partition = {Partition::Unit::Elements, 127, 128};
  module.tables = {{1, 2, 1e-300, -0.1, 12345.678, true}};
  Program &program = module.programs[0];
  program.persistent = static_cast<int32_t>(module.kernels.size());
  module.kernels.push_back({.name = "all", .scratch = largest, .threads = 1024, .bodies = {2, 1}});
  Size &size = program.buffers[1].size;
  size.constant = 63;
  for (int i = 0; i < XFC_ROW_SETS; ++i) {
    size.rows[i] = 64 << i;
    size.sequences[i] = largest - i;
    size.chunks[i] = 5 << i;
  }
  for (int i = 0; i < XFC_KEY_STRUCTURES; ++i)
    size.pairs[i] = int64_t(1) << (3 * i);
  constexpr int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  program.steps[0].dropout = most;
  program.steps[0].tensors = {{least, most, 1, 2, 3, -1, -1}, {4, 5, 6, 7, 8, 9, 10}};
  program.steps[0].elements = 30;
  program.steps[0].buffers.resize(2);
  program.steps[0].strides.resize(2);
  program.steps[0].repacked = {{4, 13, 2}};
  ASSERT_GE(program.steps.size(), 2u);
  program.steps[1].after = {0};
  ASSERT_EQ(program.steps[1].buffers[1].kind, Place::Kind::Parameters);
  program.steps[1].weight = 1;
  program.steps[1].weightBytes = 8;
  program.outputs[0].keys = XFC_KEY_STRUCTURES - 1;
  const std::vector<uint8_t> bytes = serialize(module);
  const Module back = deserialize(bytes.data(), bytes.size());
  EXPECT_EQ(back.pad, -1);
  EXPECT_EQ(back.start, module.start);
  EXPECT_FALSE(back.sourceEos);
  EXPECT_EQ(back.hash, "");
  EXPECT_EQ(back.description, module.description);
  EXPECT_EQ(back.settings, module.settings);
  EXPECT_EQ(deserializeSettings(bytes.data(), bytes.size()), module.settings);
  EXPECT_EQ(back.kernels[0].scratch, largest);
  EXPECT_EQ(back.kernels[0].threads, 1024);
  EXPECT_EQ(back.kernels[0].small, 1);
  EXPECT_EQ(back.kernels[0].smallRows, largest);
  EXPECT_EQ(back.kernels[0].reduction, 2);
  EXPECT_TRUE(back.kernels[0].resident);
  EXPECT_EQ(back.kernels.back().bodies, (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(back.programs[0].persistent, static_cast<int32_t>(back.kernels.size()) - 1);
  EXPECT_EQ(back.programs[0].steps[1].after, std::vector<int32_t>{0});
  EXPECT_EQ(back.programs[0].steps[1].weight, 1);
  EXPECT_EQ(back.programs[0].steps[1].weightBytes, 8);
  EXPECT_EQ(back.kernels[0].partition.unit, Partition::Unit::Elements);
  EXPECT_EQ(back.kernels[0].partition.per, 127);
  EXPECT_EQ(back.kernels[0].partition.times, 128);
  EXPECT_EQ(back.tables[0].base, 1e-300);
  EXPECT_EQ(back.tables[0].exponentMultiplier, -0.1);
  const Size &again = back.programs[0].buffers[1].size;
  EXPECT_EQ(again.constant, 63);
  for (int i = 0; i < XFC_ROW_SETS; ++i) {
    EXPECT_EQ(again.rows[i], 64 << i);
    EXPECT_EQ(again.sequences[i], largest - i);
    EXPECT_EQ(again.chunks[i], 5 << i);
  }
  for (int i = 0; i < XFC_KEY_STRUCTURES; ++i)
    EXPECT_EQ(again.pairs[i], int64_t(1) << (3 * i));
  const Step &step = back.programs[0].steps[0];
  EXPECT_EQ(step.dropout, most);
  ASSERT_EQ(step.tensors.size(), 2u);
  const auto numbers = [](const xfc_parted_tensor &tensor) {
    return std::vector{tensor.first, tensor.rows,   tensor.columns, tensor.per,
                       tensor.parts, tensor.matrix, tensor.group};
  };
  EXPECT_EQ(numbers(step.tensors[0]), (std::vector<int64_t>{least, most, 1, 2, 3, -1, -1}));
  EXPECT_EQ(numbers(step.tensors[1]), (std::vector<int64_t>{4, 5, 6, 7, 8, 9, 10}));
  ASSERT_EQ(step.repacked.size(), 1u);
  EXPECT_EQ(step.repacked[0].first, 4);
  EXPECT_EQ(step.repacked[0].rows, 13);
  EXPECT_EQ(step.repacked[0].columns, 2);
  EXPECT_EQ(back.programs[0].outputs[0].keys, XFC_KEY_STRUCTURES - 1);
  EXPECT_EQ(back.programs[0].steps[0].location, program.steps[0].location);
}

TEST(Plan, AnotherVersionSaysSo) {
  std::vector<uint8_t> bytes = serialize(bagModel());
  ASSERT_EQ(bytes[0], 2 * planVersion); // the sign is bit 0
  bytes[0] += 2;
  try {
    deserialize(bytes.data(), bytes.size());
    FAIL();
  } catch (const Error &error) {
    EXPECT_EQ(std::string(error.what())
                  .rfind("this executable was compiled for version " + std::to_string(planVersion + 1), 0),
              0u);
  }
}

// Reads a plan and all its programs.
static void readWhole(const std::vector<uint8_t> &bytes) {
  const Module module = deserialize(bytes.data(), bytes.size());
  module.programs.readAll();
  for (size_t i = 0; i < module.programs.size(); ++i)
    EXPECT_EQ(module.programs[i].name, module.programs.names()[i]);
}

// A plan whose second program is damaged: one of its steps runs a kernel that does not exist.
static std::vector<uint8_t> withDamagedProgram() {
  Module module = bagModel();
  module.programs[1].steps[0].kernel = static_cast<int32_t>(module.kernels.size());
  return serialize(module);
}

TEST(Plan, ProgramsAreReadWhenTheyAreUsed) {
  const std::vector<uint8_t> bytes = withDamagedProgram();
  const Module module = deserialize(bytes.data(), bytes.size()), whole = bagModel();
  ASSERT_GT(module.programs.size(), 2u);
  EXPECT_EQ(module.programs.names(), whole.programs.names());
  const std::string damaged = module.programs.names()[1];
  EXPECT_TRUE(module.has(damaged));
  for (int again = 0; again < 2; ++again) {
    EXPECT_THROW(module.find(damaged), Error);
    EXPECT_THROW(module.programs[1], Error);
    EXPECT_THROW(ProgramList{module.programs}, Error);
    EXPECT_THROW(module.programs.readAll(), Error);
  }
  for (size_t i = 0; i < module.programs.size(); ++i) {
    if (i == 1)
      continue;
    const Program *program = module.find(module.programs.names()[i]);
    ASSERT_TRUE(program);
    EXPECT_EQ(program, &module.programs[i]);
    EXPECT_EQ(program->steps.size(), whole.programs[i].steps.size());
    EXPECT_EQ(program->arguments.size(), whole.programs[i].arguments.size());
  }
}

TEST(Plan, ThreadsReadOneProgram) {
  const std::vector<uint8_t> bytes = serialize(bagModel());
  for (int round = 0; round < 20; ++round) {
    const Module module = deserialize(bytes.data(), bytes.size());
    std::vector<std::thread> threads;
    std::array<size_t, 4> steps{};
    for (size_t &mine : steps)
      threads.emplace_back([&] { mine = module.find("score")->steps.size(); });
    for (std::thread &thread : threads)
      thread.join();
    for (const size_t mine : steps)
      EXPECT_EQ(mine, bagModel().find("score")->steps.size());
  }
}

TEST(Plan, ProgramsStayInPlaceWhenOthersAreAdded) {
  ProgramList programs = {{.name = "first"}};
  const Program *const first = programs.find("first");
  for (int i = 0; i < 100; ++i)
    programs.push_back({.name = "other" + std::to_string(i)});
  EXPECT_EQ(programs.find("first"), first);
  programs.find("first")->rowByRow = true;
  const ProgramList copy = programs;
  EXPECT_NE(copy.find("first"), first);
  EXPECT_TRUE(copy.find("first")->rowByRow);
  EXPECT_EQ(copy.names(), programs.names());
  EXPECT_FALSE(programs.has("none"));
  EXPECT_NO_THROW(programs.readAll());
}

TEST(Plan, DamagedBytesAreErrors) {
  const std::vector<uint8_t> bytes = serialize(bagModel());
  // Lengths beyond the data, numbers of more than 64 bits, and trailing bytes.
  std::vector<uint8_t> bad = bytes;
  bad.push_back(0);
  EXPECT_THROW(readWhole(bad), Error);
  for (int more = 1; more < 12; ++more)
    for (int last : {0, 1, 2, 127}) {
      bad = {bytes[0]};
      bad.insert(bad.end(), more, 0xFF);
      bad.push_back(static_cast<uint8_t>(last));
      EXPECT_THROW(readWhole(bad), Error);
      bad.insert(bad.end(), bytes.begin() + 1, bytes.end());
      EXPECT_THROW(readWhole(bad), Error);
    }
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(readWhole({bytes.begin(), bytes.begin() + static_cast<int64_t>(size)}), Error) << size;
  // A flipped bit is either detected or harmless (a letter of a name).
  std::mt19937 random(3);
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<uint8_t> damaged = bytes;
    damaged[random() % damaged.size()] ^= 1 << random() % 8;
    try {
      readWhole(damaged);
    } catch (const Error &) {
      ++found;
    }
  }
  EXPECT_GT(found, 300);
}

// A program with several records in every table, and all that a persistent kernel needs to know of its steps.
static Module tabledModel() {
  Module module = packingModel();
  module.tables = {{80, 6, 10000, 2, 1, true}, {90, 6, 10000, 2, 1, false}};
  module.kernels.push_back({.name = "all", .scratch = 1 << 20, .threads = 64, .bodies = {0, 1, 2}});
  Program program = *module.find("forward_attention");
  program.persistent = static_cast<int32_t>(module.kernels.size()) - 1;
  program.steps[0].elements = 60;
  program.steps[0].tensors = {{0, 5, 6, 7, 8, 0, -1}, {8, 9, 10, 11, 12, -1, 1}, {20, 13, 14, 15, 16, 1, 2}};
  program.steps[0].buffers.resize(4);
  program.steps[0].strides.resize(4);
  program.steps[0].repacked = {{4, 13, 2}, {30, 6, 5}};
  program.steps[1].weight = 1;
  program.steps[1].weightBytes = 8;
  program.steps[1].after = {0};
  program.steps[2].after = {0, 1};
  program.steps[2].results = {{0, DType::F32, -1, bagKeys, 1}, {0, DType::F32, -1, bagKeys, 1}};
  module.programs = {program};
  return module;
}

// The bytes of a plan with one program, and where that begins: directly after its size.
struct OneProgram {
  explicit OneProgram(const Module &module) : bytes(serialize(module)) {
    for (size_t size = bytes.size(); size-- > 0;)
      if (const std::vector<uint8_t> number = numberOf(size); size + number.size() < bytes.size()) {
        const auto end = bytes.end() - static_cast<int64_t>(size), at = end - static_cast<int64_t>(number.size());
        if (std::equal(at, end, number.begin())) {
          before.assign(bytes.begin(), at);
          program.assign(end, bytes.end());
          return;
        }
      }
  }
  // The same plan with another program, whose size it says.
  std::vector<uint8_t> with(const std::vector<uint8_t> &other) const {
    std::vector<uint8_t> changed = before;
    for (const std::vector<uint8_t> &part : {numberOf(other.size()), other})
      changed.insert(changed.end(), part.begin(), part.end());
    return changed;
  }
  static std::vector<uint8_t> numberOf(size_t size) {
    std::vector<uint8_t> number;
    for (size *= 2; size >= 0x80; size >>= 7)
      number.push_back(static_cast<uint8_t>(size | 0x80));
    number.push_back(static_cast<uint8_t>(size));
    return number;
  }
  std::vector<uint8_t> bytes, before, program;
};

// The plan itself is whole, and only its program ends early, between two records of a table or within one.
TEST(Plan, ProgramsThatEndEarlyAreErrors) {
  const OneProgram one(tabledModel());
  ASSERT_GT(one.program.size(), 200u);
  ASSERT_EQ(one.with(one.program), one.bytes);
  ASSERT_NO_THROW(readWhole(one.bytes));
  for (size_t size = 0; size < one.program.size(); ++size) {
    const std::vector<uint8_t> bytes =
        one.with({one.program.begin(), one.program.begin() + static_cast<int64_t>(size)});
    Module module;
    ASSERT_NO_THROW(module = deserialize(bytes.data(), bytes.size())) << size;
    EXPECT_THROW(module.programs.readAll(), Error) << size;
  }
}

// A table has fewer records than it says, or more, and all that follows it is there.
TEST(Plan, TablesOfOtherLengthsAreErrors) {
  const Module module = tabledModel();
  const OneProgram one(module);
  int tables = 0;
  auto damaged = [&](auto table, size_t length, bool most) {
    Module shorter = module;
    table(shorter).pop_back();
    const OneProgram other(shorter);
    ASSERT_EQ(other.before, one.before);
    // Where the tables differ first is their length.
    const auto [at, unused] = std::ranges::mismatch(one.program, other.program);
    ASSERT_EQ(*at, 2 * length);
    std::vector<uint8_t> says = other.program;
    says[at - one.program.begin()] = static_cast<uint8_t>(most ? 0x7E : 2 * length);
    EXPECT_THROW(readWhole(one.with(says)), Error) << "table " << tables << " lacks its last record";
    says = one.program;
    says[at - one.program.begin()] = static_cast<uint8_t>(2 * (length - 1));
    EXPECT_THROW(readWhole(one.with(says)), Error) << "table " << tables << " has a record too many";
    ++tables;
  };
  for (const bool most : {false, true}) {
    damaged([](Module &m) -> auto & { return m.programs[0].arguments; }, 2, most);
    damaged([](Module &m) -> auto & { return m.programs[0].outputs; }, 3, most);
    damaged([](Module &m) -> auto & { return m.programs[0].buffers; }, 3, most);
    damaged([](Module &m) -> auto & { return m.programs[0].steps; }, 3, most);
    damaged([](Module &m) -> auto & { return m.programs[0].steps[0].tensors; }, 3, most);
    damaged([](Module &m) -> auto & { return m.programs[0].steps[0].repacked; }, 2, most);
    damaged([](Module &m) -> auto & { return m.programs[0].steps[0].buffers; }, 4, most);
    damaged([](Module &m) -> auto & { return m.programs[0].steps[0].strides; }, 4, most);
    damaged([](Module &m) -> auto & { return m.programs[0].steps[2].results; }, 2, most);
    damaged([](Module &m) -> auto & { return m.programs[0].steps[2].after; }, 2, most);
  }
}

// Every field used as an index, a count or an allocation size.
TEST(Plan, NumbersOutOfRangeAreErrors) {
  auto whole = [] {
    Module module = packingModel();
    module.tables = {{80, 6, 10000, 2, 1, true}};
    return module;
  };
  int line = 0;
  auto accepted = [&](auto change) {
    Module module = whole();
    change(module);
    const std::vector<uint8_t> bytes = serialize(module);
    EXPECT_NO_THROW(readWhole(bytes)) << "change " << line;
  };
  auto refused = [&](auto change) {
    ++line;
    Module module = whole();
    change(module);
    const std::vector<uint8_t> bytes = serialize(module);
    EXPECT_THROW(readWhole(bytes), Error) << "change " << line;
  };
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  // Checks that a numeric field refuses the `bad` values and those beyond every size.
  auto number = [&](auto field, std::initializer_list<int64_t> bad) {
    for (int64_t value : bad)
      refused([&](Module &m) { field(m) = static_cast<std::decay_t<decltype(field(m))>>(value); });
  };
  auto size = [&](auto field) {
    number([&](Module &m) -> auto & { return field(m).constant; }, {-1, most});
    for (int i = 0; i < XFC_ROW_SETS; ++i) {
      number([&](Module &m) -> auto & { return field(m).rows[i]; }, {-1, most});
      number([&](Module &m) -> auto & { return field(m).sequences[i]; }, {-1, most});
      number([&](Module &m) -> auto & { return field(m).chunks[i]; }, {-1, most});
    }
    for (int i = 0; i < XFC_KEY_STRUCTURES; ++i)
      number([&](Module &m) -> auto & { return field(m).pairs[i]; }, {-1, most});
  };
  auto place = [&](auto field, bool program) {
    auto set = [&](Place value, bool good) {
      auto change = [&](Module &m) { field(m) = value; };
      good ? accepted(change) : refused(change);
    };
    using Kind = Place::Kind;
    const int64_t block = 3 * bagVocabulary * bagWidth * 4;
    for (Kind kind : {Kind::Parameters, Kind::Gradients, Kind::State}) {
      set({kind, 0, block - 4}, true);
      for (Place bad : {Place{kind, 0, block}, {kind, 0, -4}, {kind, 0, most}, {kind, 2, 0}, {kind, -1, 0}})
        set(bad, false);
    }
    set({Kind::Packed, 0, 0}, true);
    set({Kind::Table, 0, 0}, true);
    set({Kind::None, 0, 0}, true);
    for (Kind kind : {Kind::Packed, Kind::Table, Kind::Arena, Kind::Argument})
      for (int64_t index : {int64_t(-1), int64_t(99), most})
        set({kind, index, 0}, false);
    for (Place bad : {Place{Kind::Packed, 0, 4},
                      {Kind::Table, 0, 4},
                      {Kind::None, 0, 4},
                      {Kind::None, 1, 0},
                      {static_cast<Kind>(8), 0, 0}})
      set(bad, false);
    set({Kind::Arena, 0, 4}, program); // columns of a row of 4 floats
    set({Kind::Argument, 0, 0}, program);
    for (Place bad :
         {Place{Kind::Arena, 0, bagWidth * 4}, {Kind::Arena, 0, -4}, {Kind::Argument, 0, 4}, {Kind::Argument, 0, -4}})
      set(bad, false);
  };

  refused([](Module &m) { m.type = static_cast<DType>(3); });
  number([](Module &m) -> auto & { return m.parameterElements; }, {-1, 143, most});
  for (auto field : {&Module::sourceVocab, &Module::targetVocab, &Module::maxLength, &Module::maxTargetLength})
    number([&](Module &m) -> auto & { return m.*field; }, {-1, int64_t(1) << 31});
  for (int side : {0, 1})
    number([&](Module &m) -> auto & { return m.dims[side]; }, {-1, int64_t(1) << 31});
  for (auto field : {&Module::pad, &Module::unk, &Module::bos, &Module::eos, &Module::start})
    number([&](Module &m) -> auto & { return m.*field; }, {-2});

  number([](Module &m) -> auto & { return m.parameters[2].offset; }, {-1, 97, most});
  number([](Module &m) -> auto & { return m.parameters[2].shape[0]; }, {-1, 13, most});
  number([](Module &m) -> auto & { return m.parameters[2].fanIn; }, {-1, most});
  number([](Module &m) -> auto & { return m.parameters[2].fanOut; }, {-1, most});
  refused([](Module &m) { m.parameters[2].shape = {int64_t(1) << 32, int64_t(1) << 32}; });

  number([](Module &m) -> auto & { return m.packed[0].kernel; }, {-1, 6});
  number([](Module &m) -> auto & { return m.packed[0].bytes; }, {-1, most});
  // A weight is packed in the chunks that its kernel has: no others, and not in none.
  number([](Module &m) -> auto & { return m.packed[0].chunks; }, {-1, 0, 1, 4, most});
  number([](Module &m) -> auto & { return m.kernels[5].partition.times; }, {1, 4});
  refused([](Module &m) { m.packed[0].kernel = 0; }); // whose chunks are those of rows
  place([](Module &m) -> Place & { return m.packed[0].source; }, false);
  number([](Module &m) -> auto & { return m.tables[0].rows; }, {-1, most});
  number([](Module &m) -> auto & { return m.tables[0].dim; }, {-1, most});
  for (double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    refused([&](Module &m) { m.tables[0].base = bad; });
  refused([](Module &m) { m.tables[0].exponentMultiplier = std::nan(""); });
  refused([](Module &m) { m.tables[0].cosineOffset = std::nan(""); });

  refused([](Module &m) { m.kernels[0].partition.unit = static_cast<Partition::Unit>(5); });
  number([](Module &m) -> auto & { return m.kernels[0].partition.per; }, {-1, 0, most});
  number([](Module &m) -> auto & { return m.kernels[0].partition.times; }, {-1, 0, most});
  number([](Module &m) -> auto & { return m.kernels[0].scratch; }, {-1, most});
  number([](Module &m) -> auto & { return m.kernels[0].threads; }, {-1, 1025});
  number([](Module &m) -> auto & { return m.kernels[0].small; }, {-2, 0, 6}); // nor the kernel itself
  number([](Module &m) -> auto & { return m.kernels[0].smallRows; }, {-1, most});
  // A variant for few rows may have one for fewer.
  auto variants = [](int64_t few, int64_t fewer) {
    return [=](Module &m) {
      m.kernels[0].small = 1;
      m.kernels[0].smallRows = few;
      m.kernels[1].small = 2;
      m.kernels[1].smallRows = fewer;
    };
  };
  accepted(variants(8, 7));
  refused(variants(8, 8));
  number([](Module &m) -> auto & { return m.kernels[0].reduction; }, {-2, 0, 6});
  // A persistent kernel, of number 6, and the kernels whose copies it has.
  auto persistent = [](const std::vector<int32_t> &bodies, auto change) {
    return [=](Module &m) {
      m.kernels.push_back({.name = "all", .scratch = 1 << 20, .threads = 64, .bodies = bodies});
      m.programs[0].persistent = 6;
      change(m);
    };
  };
  accepted(persistent({1, 2}, [](Module &) {}));
  for (int32_t body : {-1, 6, 7}) // nor the kernel itself
    refused(persistent({1, body}, [](Module &) {}));
  refused(persistent({1}, [](Module &m) { m.kernels[1].threads = 96; }));
  refused(persistent({1}, [](Module &m) { m.kernels[1].scratch = 2 << 20; }));
  refused(persistent({1}, [](Module &m) { m.kernels[1].resident = true; }));
  for (int32_t program : {-2, 0, 7}) // 0 has no bodies
    refused(persistent({1}, [=](Module &m) { m.programs[0].persistent = program; }));
  // It is launched in no other way.
  refused(persistent({1}, [](Module &m) { m.programs[0].steps[0].kernel = 6; }));
  refused(persistent({1}, [](Module &m) { m.packed[0].kernel = 6; }));
  refused(persistent({1}, [](Module &m) { m.kernels[0].small = 6; }));
  refused(persistent({1}, [](Module &m) { m.kernels[0].reduction = 6; }));

  refused([](Module &m) { m.programs[0].arguments[0].role = static_cast<Argument::Role>(3); });
  refused([](Module &m) { m.programs[0].arguments[0].type = static_cast<DType>(3); });
  number([](Module &m) -> auto & { return m.programs[0].arguments[0].set; }, {-2, 3});
  refused([](Module &m) { m.programs[0].arguments[0].shape = {-1}; });
  refused([](Module &m) { m.programs[0].arguments[0].shape = {most, 2}; });
  number([](Module &m) -> auto & { return m.programs[0].buffers[0].first; }, {-1, 4});
  number([](Module &m) -> auto & { return m.programs[0].buffers[0].last; }, {-1, 3});
  size([](Module &m) -> Size & { return m.programs[0].buffers[1].size; });

  place([](Module &m) -> Place & { return m.programs[0].outputs[0].place; }, true);
  refused([](Module &m) { m.programs[0].outputs[0].type = static_cast<DType>(3); });
  number([](Module &m) -> auto & { return m.programs[0].outputs[0].set; }, {-2, 3});
  number([](Module &m) -> auto & { return m.programs[0].outputs[0].keys; }, {-2, 16});
  number([](Module &m) -> auto & { return m.programs[0].outputs[0].stride; }, {-1, most});
  refused([](Module &m) { m.programs[0].outputs[0].shape = {-1}; });

  number([](Module &m) -> auto & { return m.programs[0].steps[0].kernel; }, {-1, 6});
  number([](Module &m) -> auto & { return m.programs[0].steps[0].set; }, {-1, 3});
  number([](Module &m) -> auto & { return m.programs[0].steps[0].keySet; }, {-1, 3});
  number([](Module &m) -> auto & { return m.programs[0].steps[0].keys; }, {-2, 16});
  number([](Module &m) -> auto & { return m.programs[0].steps[0].elements; }, {-1, most});
  number([](Module &m) -> auto & { return m.programs[0].steps[0].strides[0]; }, {-1, most});
  place([](Module &m) -> Place & { return m.programs[0].steps[0].buffers[0]; }, true);
  number([](Module &m) -> auto & { return m.programs[0].steps[0].weight; }, {-2, 100});
  number([](Module &m) -> auto & { return m.programs[0].steps[0].weightBytes; }, {-1, most});
  for (int32_t earlier : {-1, 1, 2})
    refused([=](Module &m) { m.programs[0].steps[1].after = {earlier}; });
  refused([](Module &m) { m.programs[0].steps[1].after = {0, 0}; });
  auto weight = [](int32_t buffer, int64_t bytes) {
    return [=](Module &m) {
      m.programs[0].steps[0].weight = buffer;
      m.programs[0].steps[0].weightBytes = bytes;
    };
  };
  accepted(weight(1, 3 * 16 * bagWidth));
  refused(weight(1, int64_t(1) << 20)); // more than the parameters have
  refused(weight(0, 4));                // an argument
  size([](Module &m) -> Size & { return m.programs[0].steps[0].flops; });
  size([](Module &m) -> Size & { return m.programs[0].steps[0].traffic; });
  refused([](Module &m) { m.programs[0].steps[0].strides.clear(); });
}

TEST(Plan, SettingsThatNoModelJsonHasAreDamage) {
  const std::vector<std::function<void(ModelSettings &)>> damages = {
      [](ModelSettings &s) { s.width = 0; },
      [](ModelSettings &s) { s.generation.beam = 0; },
      [](ModelSettings &s) { s.generation.topP = 0; },
      [](ModelSettings &s) { s.generation.temperature = std::nan(""); },
      [](ModelSettings &s) { s.generation.penaltyForm = static_cast<Generation::PenaltyForm>(2); },
      [](ModelSettings &s) { s.generation.earlyStopping = static_cast<Generation::EarlyStopping>(3); },
      [](ModelSettings &s) { s.generation.atMaxLength = static_cast<Generation::AtMaxLength>(3); },
      [](ModelSettings &s) { s.generation.suppress = {-1}; },
      [](ModelSettings &s) { s.generation.badSequences = {{1}, {2, -3}}; },
      [](ModelSettings &s) { s.generation.requiredPhrases = {{{1}}, {{2}, {3, -3}}}; },
      [](ModelSettings &s) { s.training.labelSmoothing = 1.5; }};
  for (size_t i = 0; i < damages.size(); ++i) {
    Module module = bagModel();
    damages[i](module.settings);
    const std::vector<uint8_t> bytes = serialize(module);
    EXPECT_THROW(deserialize(bytes.data(), bytes.size()), Error) << i;
    EXPECT_THROW(deserializeSettings(bytes.data(), bytes.size()), Error) << i;
  }
}
