// Tests the engine with hand-written kernels: weights are repacked after they change, tables are correct, and memory
// use is as predicted.
#include "allocations.h"
#include "device/cpu/Bounds.h"
#include "device/cpu/CpuDevice.h"
#include "engine/Batch.h"
#include "engine/Engine.h"
#include "engine/Safetensors.h"
#include "model.h"
#include "plan/Memory.h"
#include "plan/Serialization.h"
#include "support/TemporaryFolder.h"
#include <atomic>
#include <gtest/gtest.h>
#include <map>
#include <thread>
#include <utility>

using namespace xfc;

namespace {

std::atomic<int64_t> packRuns = 0; // atomic because several threads run chunks

// weight [width, width] -> its transpose.
void packKernel(const xfc_call *call, int64_t chunk, int64_t, void *) {
  ++packRuns;
  for (int64_t j = 0; j < bagWidth; ++j)
    operand<float>(call, 1)[j * bagWidth + chunk] = operand<float>(call, 0)[chunk * bagWidth + j];
}

// The scratch of linearKernel, in which each chunk finds the numbers that the chunk before it left.
struct Scratch {
  float sum;
  int64_t run, chunk; // of the chunk that ran last
};
int64_t runs = 0;                       // of the engine, so far
std::atomic<int64_t> wrongPrevious = 0; // chunks that were not told what ran before with their scratch

// x, packed weight, table -> x W^T + positions. Each chunk has four rows and half of the columns; scratch is used.
void linearKernel(const xfc_call *call, int64_t chunk, int64_t previous, void *scratch) {
  Scratch &own = *static_cast<Scratch *>(scratch);
  wrongPrevious += previous != (own.run == runs ? own.chunk : -1);
  own = {0, runs, chunk};
  float *sum = &own.sum;
  const int64_t first = chunk / 2 * 4;
  for (int64_t row = first; row < std::min(first + 4, call->rows->rows); ++row)
    for (int64_t j = chunk % 2 * 2; j < chunk % 2 * 2 + 2; ++j) {
      *sum = operand<float>(call, 2)[call->rows->positions[row] * bagWidth + j];
      for (int64_t i = 0; i < bagWidth; ++i)
        *sum += operand<float>(call, 0)[row * call->strides[0] + i] * operand<float>(call, 1)[i * bagWidth + j];
      operand<float>(call, 3)[row * call->strides[3] + j] = *sum;
    }
}

// Like linearKernel; records what the bounds check says of accesses around its memory.
std::vector<std::string> faults;
void probingKernel(const xfc_call *call, int64_t chunk, int64_t previous, void *scratch) {
  if (chunk == 0 && faults.empty()) {
    const auto bytes = [&](int i) { return operand<char>(call, i); };
    const int64_t rows = call->rows->rows, input = ((rows - 1) * call->strides[0] + bagWidth) * 4;
    faults = {
        faultOf(bytes(0), 4, false),
        faultOf(bytes(0) + input - 4, 4 + 64, false), // a vector beyond the end
        faultOf(bytes(0) + input - 4, 4 + 65, false),
        faultOf(bytes(1) + 60, 4, true),
        faultOf(bytes(2) + 60, 4, false),
        faultOf(bytes(3) + rows * 16 - 4, 4, true),
        faultOf(bytes(3) + rows * 16, 1, true),
        faultOf(bytes(3) - 1, 1, false),
        faultOf(static_cast<char *>(scratch) + 60, 4, true),
        faultOf(static_cast<char *>(scratch) + 64, 4, true),
        faultOf(call->rows->positions + rows - 1, 4, false),
        faultOf(call->rows->positions + rows, 4, false),
        faultOf(call->rows->positions, 4, true),
    };
  }
  linearKernel(call, chunk, previous, scratch);
}

// weight -> twice the weight, and its packed copy.
void updateKernel(const xfc_call *call, int64_t chunk, int64_t, void *) {
  for (int64_t j = 0; j < bagWidth; ++j) {
    float &weight = operand<float>(call, 0)[chunk * bagWidth + j];
    operand<float>(call, 1)[j * bagWidth + chunk] = weight *= 2;
  }
}

Module linearModel() {
  Module module;
  module.model = "linear";
  module.parameterElements = 32;
  module.states = {{"moment1"}, {"moment2"}};
  module.parameters = {{"unused", {}, {16}, 0, "one", 0, 0},
                       {"w", {}, {bagWidth, bagWidth}, 16, "xavier_uniform", 4, 4}};
  module.tables = {{100, bagWidth, 10000, 2, 1, false}};
  module.kernels = {{"pack", {Partition::Unit::One, 1, 4}, 0},
                    {"linear", {Partition::Unit::Rows, 4, 2}, 64},
                    {"update", {Partition::Unit::One, 1, 4}, 0}};
  module.packed = {{0, {Place::Kind::Parameters, 0, 64}, 64, 4}, {0, {Place::Kind::Parameters, 0, 0}, 64, 4}};
  Program program;
  program.name = "forward";
  program.arguments = {{"source", Argument::Role::Input, DType::F32, XFC_SOURCE, {bagWidth}}};
  Size rows;
  rows.rows[XFC_SOURCE] = bagWidth * 4;
  program.buffers = {{rows, 0, 1}};
  Step step;
  step.kernel = 1;
  step.buffers = {{Place::Kind::Argument, 0, 0},
                  {Place::Kind::Packed, 0, 0},
                  {Place::Kind::Table, 0, 0},
                  {Place::Kind::Arena, 0, 0}};
  step.strides = {bagWidth, 0, 0, bagWidth};
  step.flops.rows[XFC_SOURCE] = 32;
  step.traffic.constant = 1000;
  step.location = "encoder.layers.0.linear";
  program.steps = {step};
  program.outputs = {{"encoder_output", {Place::Kind::Arena, 0, 0}, DType::F32, XFC_SOURCE, -1, {bagWidth}, bagWidth}};
  module.programs = {program};
  program.name = "other"; // reads the first 16 parameters
  program.steps[0].buffers[1].index = 1;
  module.programs.push_back(program);
  Step update;
  update.kernel = 2;
  update.buffers = {{Place::Kind::Parameters, 0, 64}, {Place::Kind::Packed, 0, 0}};
  update.strides = {0, 0};
  module.programs.push_back({.name = "update", .steps = {update}});
  return module;
}

class EngineRun : public testing::Test {
protected:
  void SetUp() override {
    packRuns = 0;
    initializeParameters(engine, 1);
  }
  void assign(int64_t count, int64_t length) {
    std::vector<Sequence> sequences(count, Sequence{{}, length, 0});
    batch.assign(sequences, {}, 0, false);
    x.resize(count * length * 6); // rows of 4 with a stride of 6
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i * 7 % 13) - 6;
  }
  void run() {
    const Binding bindings[] = {{"source", x.data(), 6}};
    engine.run("forward", batch.shape(), bindings);
  }
  void check() {
    const auto *w = static_cast<float *>(engine.parameters()) + 16;
    View view = engine.output("forward", "encoder_output");
    for (int64_t row = 0; row < batch.shape().sets[XFC_SOURCE].rows; ++row) {
      const double p = batch.shape().sets[XFC_SOURCE].positions[row];
      const double positions[] = {std::sin(p), std::cos(p / std::pow(10000.0, 0.5)),
                                  std::sin(p / std::pow(10000.0, 1.0)), std::cos(p / std::pow(10000.0, 1.5))};
      for (int64_t j = 0; j < bagWidth; ++j) {
        double want = positions[j];
        for (int64_t i = 0; i < bagWidth; ++i)
          want += x[row * 6 + i] * w[j * bagWidth + i];
        ASSERT_NEAR(view.at(row, j), want, 1e-5) << row << " " << j;
      }
    }
  }
  static constexpr xfc_kernel kernels[] = {packKernel, linearKernel, updateKernel};
  std::vector<uint8_t> plan = serialize(linearModel());
  xfc_image image{XFC_ABI_VERSION, 3, "any", "", kernels, plan.data(), plan.size()};
  Engine engine{cpuDevice(image), 1};
  Batch batch;
  std::vector<float> x;
};

} // namespace

// A kernel may access its operands only, and forbidden accesses are reported.
TEST_F(EngineRun, KnowsTheMemoryOfACall) {
  faults.clear();
  static constexpr xfc_kernel probing[] = {packKernel, probingKernel, updateKernel};
  xfc_image probed{XFC_ABI_VERSION, 3, "any", "", probing, plan.data(), plan.size()};
  Engine other{cpuDevice(probed), 1};
  initializeParameters(other, 1);
  assign(2, 3);
  const Binding bindings[] = {{"source", x.data(), 6}};
  other.run("forward", batch.shape(), bindings);
  const std::vector<bool> allowed = {true,  true, false, true, true,  true, false,
                                     false, true, false, true, false, false};
  ASSERT_EQ(faults.size(), allowed.size());
  for (size_t i = 0; i < faults.size(); ++i)
    EXPECT_EQ(faults[i].empty(), allowed[i]) << i << ": " << faults[i];
  EXPECT_EQ(faults[6], "kernel linear (encoder.layers.0.linear), chunk 0: writes 1 bytes out of bounds: "
                       "96 bytes after the beginning of operand 3, which has 96");
}

TEST_F(EngineRun, RunsWithStridesTablesAndScratch) {
  for (auto [count, length] : {std::pair(1, 1), {3, 5}, {2, 70}, {1, 100}, {4, 2}}) {
    assign(count, length);
    run();
    check();
  }
}

TEST_F(EngineRun, ChunksAreToldWhatRanBeforeWithTheirScratch) {
  assign(4, 100);
  const Binding bindings[] = {{"source", x.data(), 6}};
  for (const int threads : {1, 3}) {
    Engine other{cpuDevice(image), threads};
    initializeParameters(other, 1);
    wrongPrevious = 0;
    for (int i = 0; i < 3; ++i) {
      ++runs;
      other.run("forward", batch.shape(), bindings);
    }
    EXPECT_EQ(wrongPrevious, 0) << threads << " threads";
  }
}

TEST_F(EngineRun, WeightsArePackedWhenTheyChanged) {
  assign(2, 3);
  run();
  EXPECT_EQ(packRuns, 4); // one weight; no program uses the other
  run();
  EXPECT_EQ(packRuns, 4);
  static_cast<float *>(engine.parameters())[20] = 3;
  engine.parametersChanged();
  run();
  EXPECT_EQ(packRuns, 8);
  check();
}

// A run packs the weights of all programs that have been prepared, if they lie in a file.
TEST_F(EngineRun, WeightsInAFileArePackedTogether) {
  const TemporaryFolder folder("engine");
  writeSafetensors(folder.path + "/weights", weights(engine));
  assign(2, 3);
  const Binding bindings[] = {{"source", x.data(), 6}};
  std::vector<float> results[2];
  for (const bool fromFile : {false, true}) {
    Engine other{cpuDevice(image), 1};
    if (fromFile)
      loadWeights(other, folder.path + "/weights");
    else
      initializeParameters(other, 1);
    packRuns = 0;
    other.reserve("other", countsOf(batch.shape()));
    for (const auto &[program, packed] : {std::pair("forward", fromFile ? 8 : 4), {"other", 8}, {"forward", 8}}) {
      other.run(program, batch.shape(), bindings);
      EXPECT_EQ(packRuns, packed) << program << (fromFile ? ", from a file" : "");
      const View view = other.output(program, "encoder_output");
      for (int64_t row = 0; row < 6; ++row)
        for (int64_t j = 0; j < bagWidth; ++j)
          results[fromFile].push_back(static_cast<float>(view.at(row, j)));
    }
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(EngineRun, WeightsThatAnUpdatePacksAreNotPackedAgain) {
  assign(2, 3);
  const Binding bindings[] = {{"source", x.data(), 6}};
  engine.run("update", batch.shape(), {}); // also if nothing was packed before
  run();
  check();
  EXPECT_EQ(packRuns, 0);
  engine.run("other", batch.shape(), bindings);
  EXPECT_EQ(packRuns, 4);
  engine.run("update", batch.shape(), {});
  run();
  check();
  EXPECT_EQ(packRuns, 4);
  engine.run("other", batch.shape(), bindings); // the update left its weight stale
  EXPECT_EQ(packRuns, 8);
  engine.parametersChanged();
  run();
  EXPECT_EQ(packRuns, 12);
}

TEST_F(EngineRun, TakesTheMemoryThatWasPredicted) {
  Counts counts;
  counts.rows[XFC_SOURCE] = 90;
  counts.sequences[XFC_SOURCE] = 30;
  counts.longest = 70;
  engine.reserve("forward", counts);
  assign(1, 70);
  run();
  check();
  const Memory memory = predictMemory(engine.module(), {"forward"}, counts, 1);
  EXPECT_EQ(memory.arena, (90 * 16 + 63) / 64 * 64);
  EXPECT_EQ(engine.arenaBytes(), memory.arena);
  EXPECT_EQ(engine.stateBytes(), memory.state());
  EXPECT_EQ(memory.tables, 100 * 16); // not the next power of two, which would exceed the rows
  EXPECT_EQ(memory.packed, 64);
  EXPECT_EQ(memory.scratch, 64);
  EXPECT_EQ(memory.parameters, 128);
  const void *before = engine.output("forward", "encoder_output").data;
  assign(30, 3);
  run();
  check();
  EXPECT_EQ(engine.output("forward", "encoder_output").data, before);
}

// Batches up to the reserved size, in any order; the first run may allocate.
TEST_F(EngineRun, RunsDoNotAllocate) {
  Counts counts;
  counts.rows[XFC_SOURCE] = 200;
  counts.sequences[XFC_SOURCE] = 30;
  std::fill(std::begin(counts.pairs), std::end(counts.pairs), 200 * 70);
  counts.longest = 70;
  engine.reserve("forward", counts);
  assign(2, 70);
  run();
  check();
  for (auto [count, length] : {std::pair(3, 5), {30, 6}, {1, 1}}) {
    assign(count, length);
    const int64_t before = allocations;
    run();
    run();
    EXPECT_EQ(allocations, before) << count << " x " << length;
    check();
  }
}

TEST_F(EngineRun, ThreadsDoNotMatter) {
  assign(13, 7);
  run();
  View one = engine.output("forward", "encoder_output");
  for (int threads : {2, 5}) {
    Engine other(cpuDevice(image), threads);
    initializeParameters(other, 1);
    const Binding bindings[] = {{"source", x.data(), 6}};
    other.run("forward", batch.shape(), bindings);
    View view = other.output("forward", "encoder_output");
    for (int64_t row = 0; row < 91; ++row)
      for (int64_t j = 0; j < bagWidth; ++j)
        ASSERT_EQ(view.at(row, j), one.at(row, j));
  }
}

// Engines that share weights pack them once, whichever comes first, and compute the same at the same time, also while
// one of them makes a longer table.
TEST_F(EngineRun, SeveralShareTheWeights) {
  std::vector<Batch> batches(3);
  const std::vector<int64_t> lengths = {3, 40, 100};
  x.assign(100 * bagWidth, 0.5F);
  const Binding bindings[] = {{"source", x.data(), bagWidth}};
  const auto resultOf = [&](Engine &one, size_t number) {
    one.run("forward", batches[number].shape(), bindings);
    const View view = one.output("forward", "encoder_output");
    std::vector<double> numbers;
    for (int64_t row = 0; row < lengths[number]; ++row)
      for (int64_t j = 0; j < bagWidth; ++j)
        numbers.push_back(view.at(row, j));
    return numbers;
  };
  std::vector<std::vector<double>> expected;
  for (size_t i = 0; i < batches.size(); ++i) {
    batches[i].assign(std::vector<Sequence>{{{}, lengths[i], 0}}, {}, 0, false);
    Engine alone{cpuDevice(image), 1};
    initializeParameters(alone, 1);
    expected.push_back(resultOf(alone, i));
  }
  packRuns = 0;
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 4; ++worker)
    engines.push_back(engine.sharing(1 + worker % 2));
  for (const std::unique_ptr<Engine> &own : engines)
    threads.emplace_back([&] {
      for (size_t round = 0; round < 60; ++round)
        EXPECT_EQ(resultOf(*own, round / 20), expected[round / 20]);
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(packRuns, 4);
  EXPECT_EQ(resultOf(engine, 2), expected[2]);
  EXPECT_EQ(packRuns, 4);
  for (const std::unique_ptr<Engine> &own : engines) {
    EXPECT_EQ(own->parameters(), engine.parameters());
    EXPECT_EQ(own->prepare("forward", batches[2].shape(), bindings).packed[0],
              engine.prepare("forward", batches[2].shape(), bindings).packed[0]);
    EXPECT_EQ(own->stateBytes(), engine.stateBytes());
  }
}

TEST_F(EngineRun, ProfilesEveryLaunch) {
  assign(2, 5);
  std::vector<LaunchTiming> timings;
  engine.profile(&timings);
  run();
  run();
  engine.profile(nullptr);
  run();
  ASSERT_EQ(timings.size(), 3u); // one of them packs
  EXPECT_EQ(timings[0].kernel->name, "pack");
  EXPECT_EQ(timings[0].step, nullptr);
  EXPECT_EQ(timings[1].kernel->name, "linear");
  EXPECT_EQ(timings[1].step->location, "encoder.layers.0.linear");
  EXPECT_EQ(timings[1].flops, 320);
  EXPECT_EQ(timings[1].bytes, 1000);
  EXPECT_GE(timings[1].seconds, 0);
}

// Every chunk of every launch belongs to the share of some thread, with the data of a profile.
TEST_F(EngineRun, TracesEveryShare) {
  assign(7, 13);
  run();
  const View plain = engine.output("forward", "encoder_output");
  for (int threads : {1, 3}) {
    Engine other(cpuDevice(image), threads);
    initializeParameters(other, 1);
    const Binding bindings[] = {{"source", x.data(), 6}};
    Trace trace(threads);
    other.traceTo(&trace);
    for (int i = 0; i < 2; ++i)
      other.run("forward", batch.shape(), bindings);
    other.traceTo(nullptr);
    other.run("forward", batch.shape(), bindings);
    const View view = other.output("forward", "encoder_output");
    for (int64_t row = 0; row < 91; ++row)
      for (int64_t j = 0; j < bagWidth; ++j)
        ASSERT_EQ(view.at(row, j), plain.at(row, j));

    std::vector<TraceEvent> programs;
    std::map<int64_t, std::pair<std::string, int64_t>> launches; // name and chunks by number
    for (int track = 0; track < threads; ++track) {
      int64_t last = 0;
      for (const TraceEvent &event : trace.events(track)) {
        if (event.kind == "program") {
          EXPECT_EQ(track, 0);
          EXPECT_EQ(event.name, "forward");
          programs.push_back(event);
          continue;
        }
        EXPECT_EQ(event.kind, "kernel");
        EXPECT_LE(last, event.begin) << "shares of a thread overlap";
        EXPECT_LE(event.begin, event.end);
        last = event.end;
        auto &[name, chunks] = launches[event.launch];
        name = event.name;
        chunks += event.chunks;
        EXPECT_EQ(event.allChunks, event.name == "pack" ? 4 : 46);
        if (event.name == "pack") {
          EXPECT_EQ(event.place, "packing weights");
          continue;
        }
        EXPECT_EQ(event.place, "encoder.layers.0.linear");
        EXPECT_EQ(event.program, "forward");
        EXPECT_EQ(event.rows, 91);
        EXPECT_EQ(event.flops, 32 * 91);
        EXPECT_EQ(event.bytes, 1000);
      }
    }
    const std::map<int64_t, std::pair<std::string, int64_t>> want = {
        {0, {"pack", 4}}, {1, {"linear", 46}}, {2, {"linear", 46}}};
    EXPECT_EQ(launches, want);
    ASSERT_EQ(programs.size(), 2u);
    for (int track = 0; track < threads; ++track)
      for (const TraceEvent &event : trace.events(track))
        if (event.kind == "kernel") {
          const TraceEvent &program = programs[event.launch == 2];
          EXPECT_TRUE(program.begin <= event.begin && event.end <= program.end);
        }
    EXPECT_EQ(trace.leftOut(), 0);
  }
}

TEST_F(EngineRun, WhatIsMissingIsNamed) {
  assign(1, 2);
  auto message = [](auto run) {
    try {
      run();
    } catch (const Error &error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message([&] { engine.run("forward", batch.shape(), {}); }).find("'source'"), std::string::npos);
  EXPECT_NE(message([&] { engine.run("decode_step", batch.shape(), {}); }).find("'decode_step'"), std::string::npos);
  EXPECT_NE(message([&] { engine.output("forward", "logits"); }).find("'logits'"), std::string::npos);
  EXPECT_FALSE(engine.has("decode_step"));
  assign(1, 101);
  EXPECT_NE(message([&] { run(); }).find("101 tokens"), std::string::npos);

  xfc_image other = image;
  other.abi_version = XFC_ABI_VERSION + 1;
  EXPECT_THROW(Engine(cpuDevice(other), 1), Error);
  other = image;
  other.kernel_count = 2;
  EXPECT_THROW(Engine(cpuDevice(other), 1), Error);
  other = image;
  other.plan_size -= 1;
  EXPECT_THROW(Engine(cpuDevice(other), 1), Error);
}

TEST_F(EngineRun, BlocksAreZeroedAndAligned) {
  for (void *block : {engine.gradients(), engine.optimizerState("moment1"), engine.optimizerState("moment2")}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
    for (int64_t i = 0; i < 32; ++i)
      EXPECT_EQ(static_cast<float *>(block)[i], 0);
  }
  EXPECT_EQ(engine.gradients(), engine.gradients());
  EXPECT_NE(engine.optimizerState("moment1"), engine.optimizerState("moment2"));
}
