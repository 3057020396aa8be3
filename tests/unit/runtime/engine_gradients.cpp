// Tests that gradients share memory with what else is in the arena, with hand-written kernels.
#include "device/cpu/CpuDevice.h"
#include "engine/Batch.h"
#include "engine/Engine.h"
#include "model.h"
#include "plan/Memory.h"
#include "plan/Serialization.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

using namespace xfc;

namespace {

// Of three parameters: the first begins the block, the second does not fill its last cache line, and no step computes
// the gradient of the third.
constexpr int64_t firstCount = 16, secondBegin = 16, secondCount = 20, thirdBegin = 48, thirdCount = 16, elements = 64;

// -> two activations of 16 numbers.
void activationsKernel(const xfc_call *call, int64_t, int64_t, void *) {
  std::fill_n(operand<float>(call, 0), 16, 2.0f);
  std::fill_n(operand<float>(call, 1), 16, 3.0f);
}
// activation -> gradient of the first parameter, and a last activation.
void firstGradientKernel(const xfc_call *call, int64_t, int64_t, void *) {
  for (int64_t i = 0; i < 16; ++i)
    operand<float>(call, 1)[i] = operand<float>(call, 0)[i] + static_cast<float>(i);
  operand<float>(call, 2)[0] = operand<float>(call, 0)[15];
}
// activation -> gradient of the second parameter.
void secondGradientKernel(const xfc_call *call, int64_t, int64_t, void *) {
  std::fill_n(operand<float>(call, 1), secondCount, 100 * operand<float>(call, 0)[0]);
}
// -> 2 KB of NaN
void notANumberKernel(const xfc_call *call, int64_t, int64_t, void *) {
  std::fill_n(operand<float>(call, 0), 512, std::numeric_limits<float>::quiet_NaN());
}
// gradients -> their sum, in the last of 4 KB, the others of which are overwritten.
void sumOfGradientsKernel(const xfc_call *call, int64_t, int64_t, void *) {
  auto *room = operand<float>(call, 1);
  std::fill_n(room, 1023, std::numeric_limits<float>::quiet_NaN());
  room[1023] = 0;
  for (int64_t i = 0; i < elements; ++i)
    room[1023] += operand<float>(call, 0)[i];
}

Buffer ofBytes(int64_t constant, int32_t first, int32_t last) {
  Buffer buffer{{}, first, last};
  buffer.size.constant = constant;
  return buffer;
}

Module modelWithGap() {
  using Kind = Place::Kind;
  Module module;
  module.model = "gradients";
  module.parameterElements = elements;
  module.parameters = {{"first", {}, {firstCount}, 0, "one", 0, 0},
                       {"second", {}, {secondCount}, secondBegin, "one", 0, 0},
                       {"third", {}, {thirdCount}, thirdBegin, "one", 0, 0}};
  for (const char *name : {"forward", "first", "second", "other", "update"})
    module.kernels.push_back({name, {Partition::Unit::One, 1, 1}, 0});
  const auto step = [](int32_t kernel, std::vector<Place> buffers, std::vector<LaunchResult> results) {
    Step made;
    made.kernel = kernel;
    made.strides.resize(buffers.size());
    made.buffers = std::move(buffers);
    made.results = std::move(results);
    return made;
  };
  const auto tensor = [](int32_t buffer, int64_t width) { return LaunchResult{buffer, DType::F32, -1, -1, width}; };
  Program gradients{.name = "loss_and_gradients"};
  gradients.buffers = {ofBytes(64, 0, 1), ofBytes(64, 0, 0), ofBytes(64, 1, 2)};
  gradients.steps = {step(0, {{Kind::Arena, 0, 0}, {Kind::Arena, 1, 0}}, {tensor(0, 16), tensor(1, 16)}),
                     step(1, {{Kind::Arena, 0, 0}, {Kind::Gradients, 0, 0}, {Kind::Arena, 2, 0}},
                          {tensor(1, firstCount), tensor(2, 16)}),
                     step(2, {{Kind::Arena, 2, 0}, {Kind::Gradients, 0, secondBegin * 4}}, {tensor(1, secondCount)})};
  Program other{.name = "score", .buffers = {ofBytes(2048, 0, 0)}, .steps = {step(3, {{Kind::Arena, 0, 0}}, {})}};
  Program update{.name = "update",
                 .outputs = {{"sum", {Kind::Arena, 0, 4092}, DType::F32, -1, -1, {}, 0}},
                 .buffers = {ofBytes(4096, 0, 1)},
                 .steps = {step(4, {{Kind::Gradients, 0, 0}, {Kind::Arena, 0, 0}}, {})}};
  module.programs = {gradients, other, update};
  return module;
}

const std::vector<uint8_t> gradientPlan = serialize(modelWithGap());
constexpr xfc_kernel gradientKernels[] = {activationsKernel, firstGradientKernel, secondGradientKernel,
                                          notANumberKernel, sumOfGradientsKernel};
const xfc_image gradientImage{XFC_ABI_VERSION,     std::size(gradientKernels), "any", "", gradientKernels,
                              gradientPlan.data(), gradientPlan.size()};

class EngineGradients : public testing::Test {
protected:
  void SetUp() override { batch.assign(std::vector<Sequence>(1, Sequence{{}, 1, 0}), {}, 0, false); }
  void run(const char *program) { engine.run(program, batch.shape(), {}); }
  void check() {
    const auto *found = static_cast<float *>(engine.gradients());
    for (int64_t i = 0; i < elements; ++i)
      ASSERT_EQ(found[i], i < firstCount                                      ? 2 + static_cast<float>(i)
                          : i >= secondBegin && i < secondBegin + secondCount ? 200
                                                                              : 0)
          << "element " << i;
  }
  Engine engine{cpuDevice(gradientImage), 1};
  Batch batch;
};

} // namespace

TEST_F(EngineGradients, LieWhereActivationsWere) {
  run("loss_and_gradients");
  check();
  const Memory memory = predictMemory(engine.module(), {"loss_and_gradients"}, countsOf(batch.shape()), 1);
  EXPECT_EQ(memory.arena, elements * 4 + 64) << "two of the three activations lie where gradients are computed later";
  EXPECT_EQ(engine.arenaBytes(), memory.arena);
  EXPECT_EQ(engine.stateBytes(), memory.state());
  EXPECT_EQ(memory.state(), elements * 4) << "the parameters";
}

TEST_F(EngineGradients, WhatIsNotComputedIsZeroWhateverRanBefore) {
  for (int i = 0; i < 2; ++i) {
    run("score");
    run("loss_and_gradients");
    check();
  }
}

TEST_F(EngineGradients, StayWhenTheArenaGrows) {
  run("loss_and_gradients");
  const int64_t before = engine.arenaBytes();
  run("update");
  EXPECT_GE(engine.arenaBytes(), elements * 4 + 4096);
  EXPECT_LT(before, engine.arenaBytes());
  EXPECT_EQ(engine.output("update", "sum").at(0), 16 * 2 + 15 * 8 + secondCount * 200);
  check();
}

TEST_F(EngineGradients, MayBeGivenByTheCaller) {
  std::fill_n(static_cast<float *>(engine.gradientsOnDevice()), elements, 0.5f);
  run("update");
  EXPECT_EQ(engine.output("update", "sum").at(0), elements / 2);
  std::vector<float> copied(elements);
  engine.copyGradients(copied.data());
  EXPECT_EQ(copied, std::vector<float>(elements, 0.5f));
  engine.clearGradients(8, 4);
  run("update");
  EXPECT_EQ(engine.output("update", "sum").at(0), elements / 2 - 2);
}
