// Tests how the launches of an optimizer step are split at the boundaries of parameter groups, and of ranks' shares.
#include "plan/Programs.h"
#include "plan/SplitUpdate.h"
#include "support/Error.h"
#include <array>
#include <gtest/gtest.h>
#include <vector>

using namespace xfc;

namespace {

using Kind = Place::Kind;

// Five parameters of 16, 30, 16, 16 and 16 elements, aligned to 16, and a step that packs two weights: the second
// parameter, and the last two as one.
Module model() {
  Module module;
  const int64_t offsets[] = {0, 16, 48, 64, 80}, sizes[] = {16, 30, 16, 16, 16};
  for (int i = 0; i < 5; ++i)
    module.parameters.push_back({std::to_string(i), {}, {sizes[i]}, offsets[i], "zero"});
  module.parameterElements = 96;
  module.states = {{"moment1"}, {"moment2", DType::BF16}};
  return module;
}

using Weights = std::vector<std::array<int64_t, 3>>;

// The first elements, rows and columns of the weights that the step packs.
Weights weightsOf(const Step &step) {
  Weights weights;
  for (const xfc_repacked_weight &weight : step.repacked)
    weights.push_back({weight.first, weight.rows, weight.columns});
  return weights;
}

Program update() {
  Program program;
  program.name = "update";
  program.arguments = {{names::hyper, Argument::Role::Scalar, DType::F32, -1, {4}},
                       {names::maxNorm, Argument::Role::Scalar, DType::F32, -1, {}}};
  Step norm, step;
  norm.buffers = {{Kind::Gradients, 0, 0}, {Kind::Arena, 0, 0}};
  norm.elements = 96;
  step.buffers = {{Kind::Argument, 0, 0}, {Kind::Arena, 1, 0}, {Kind::Parameters, 0, 0}, {Kind::Gradients, 0, 0},
                  {Kind::State, 0, 0},    {Kind::State, 1, 0}, {Kind::Packed, 3, 0},     {Kind::None, 0, 0},
                  {Kind::Packed, 5, 0},   {Kind::Packed, 6, 0}};
  step.strides.assign(step.buffers.size(), 0);
  step.elements = 96;
  step.repacked = {{16, 5, 6}, {64, 2, 16}};
  step.flops.constant = 960;
  program.steps = {norm, step};
  program.buffers = {{{}, 0, 1}, {{}, 0, 2}};
  return program;
}

} // namespace

TEST(SplitUpdate, LaunchesAreCutWhereGroupsMeet) {
  const int groupOf[] = {0, 1, frozenGroup, 1, 1};
  const Program cut = inGroups(model(), update(), groupOf, 2);
  EXPECT_EQ(cut.arguments[0].shape, (std::vector<int64_t>{2, 4}));
  ASSERT_EQ(cut.steps.size(), 4u);
  EXPECT_EQ(cut.steps[0].elements, 96); // the norm is over all gradients
  const struct {
    int64_t begin, elements, group;
    Weights weights;
    std::vector<int64_t> packed;
  } expected[] = {{0, 16, 0, {}, {}}, {16, 30, 1, {{0, 5, 6}}, {3}}, {64, 32, 1, {{0, 2, 16}}, {5, 6}}};
  for (size_t i = 0; i < 3; ++i) {
    const Step &step = cut.steps[i + 1];
    EXPECT_EQ(step.elements, expected[i].elements);
    EXPECT_EQ(weightsOf(step), expected[i].weights);
    EXPECT_EQ(step.buffers[0].offset, expected[i].group * 16); // a row of hyper has 4 f32
    for (size_t buffer : {2, 3, 4, 5})
      EXPECT_EQ(step.buffers[buffer].offset, (buffer == 5 ? 2 : 4) * expected[i].begin); // the second state is in bf16
    EXPECT_EQ(step.buffers[1].offset, 0);
    std::vector<int64_t> packed;
    for (const Place &place : step.buffers)
      if (place.kind == Kind::Packed)
        packed.push_back(place.index);
    EXPECT_EQ(packed, expected[i].packed);
    EXPECT_EQ(step.buffers.size(), step.strides.size());
    EXPECT_EQ(step.flops.constant, 10 * expected[i].elements);
  }
  // Values live until the last launch split from the one that read them last.
  EXPECT_EQ(cut.buffers[0].last, 3);
  EXPECT_EQ(cut.buffers[1].last, 4);
}

// A weight that lies only partly in a group is packed when it is read.
TEST(SplitUpdate, APartOfAWeightIsNotPacked) {
  const int groupOf[] = {0, 0, 0, 0, 1};
  const Program cut = inGroups(model(), update(), groupOf, 2);
  ASSERT_EQ(cut.steps.size(), 3u);
  EXPECT_EQ(cut.steps[1].elements, 80);
  EXPECT_EQ(weightsOf(cut.steps[1]), (Weights{{16, 5, 6}}));
  EXPECT_EQ(cut.steps[2].elements, 16);
  EXPECT_TRUE(cut.steps[2].repacked.empty());
}

// A rank updates its ranges, whose states lie one after another, and computes the partial sums of its parts.
TEST(SplitUpdate, ARankUpdatesItsShare) {
  constexpr int64_t part = squarePart;
  Module module;
  module.states = {{"moment1"}, {"moment2", DType::BF16}};
  const int64_t sizes[] = {part + 100, 2 * part - 100, part / 2};
  for (int64_t size : sizes) {
    module.parameters.push_back({std::to_string(size), {}, {size}, module.parameterElements, "zero"});
    module.parameterElements += size;
  }
  Program whole = update();
  for (Step &step : whole.steps)
    step.elements = module.parameterElements;
  whole.steps[1].repacked = {{0, part + 100, 1}, {part + 100, 2 * part - 100, 1}};
  Step clip;
  clip.buffers = {{Kind::Argument, 1, 0}, {Kind::Arena, 0, 0}, {Kind::Arena, 1, 0}};
  whole.steps.insert(whole.steps.begin() + 1, clip);
  whole.buffers = {{{}, 0, 1}, {{}, 1, 3}};
  ASSERT_TRUE(canShare(module, whole));
  const Range owned[] = {{0, part}, {part * 3, module.parameterElements}};
  const ShareOfUpdate share = inShare(module, whole, owned);
  EXPECT_EQ(share.clips, 2);
  EXPECT_EQ(share.parts, 4);
  EXPECT_EQ(share.squares.index, 0);
  const std::vector<Step> &steps = share.program.steps;
  ASSERT_EQ(steps.size(), 5u);
  const int64_t begins[] = {0, 3 * part}, counts[] = {part, part / 2}, places[] = {0, part}, parts[] = {0, 3};
  for (size_t i = 0; i < 2; ++i) {
    const Step &squares = steps[i], &step = steps[3 + i];
    EXPECT_EQ(squares.elements, counts[i]);
    EXPECT_EQ(squares.buffers[0].offset, 4 * begins[i]);
    EXPECT_EQ(squares.buffers[1].offset, 8 * parts[i]);
    EXPECT_EQ(step.elements, counts[i]);
    EXPECT_EQ(step.buffers[2].offset, 4 * begins[i]);
    EXPECT_EQ(step.buffers[3].offset, 4 * begins[i]);
    EXPECT_EQ(step.buffers[4].offset, 4 * places[i]);
    EXPECT_EQ(step.buffers[5].offset, 2 * places[i]); // in bf16
    EXPECT_TRUE(step.repacked.empty());               // each weight is partly another rank's
  }
  EXPECT_EQ(steps[2].buffers.size(), 3u);
  EXPECT_EQ(share.program.buffers[0].last, 2);
  EXPECT_EQ(share.program.buffers[1].last, 5); // is read after the program
  EXPECT_TRUE(inShare(module, whole, {}).program.steps.size() == 1 && inShare(module, whole, {}).clips == 0);
  whole.steps.insert(whole.steps.begin(), whole.steps[0]); // sums of several blocks, as without fuse-optimizer
  EXPECT_FALSE(canShare(module, whole));
}

TEST(SplitUpdate, OneGroupIsTheProgramAsItWas) {
  const int groupOf[] = {0, 0, 0, 0, 0};
  const Program cut = inGroups(model(), update(), groupOf, 1);
  ASSERT_EQ(cut.steps.size(), 2u);
  EXPECT_EQ(weightsOf(cut.steps[1]), weightsOf(update().steps[1]));
  EXPECT_EQ(cut.steps[1].buffers.size(), update().steps[1].buffers.size());
  EXPECT_THROW(inGroups(model(), Program(), groupOf, 1), Error);
}

// A launch that takes tensors one by one is not cut: its table has the groups of its parameters, or that they are
// frozen. The parameter is found by the place of its value, or of a state with a layout of its own.
TEST(SplitUpdate, TablesOfTensorsHaveTheGroups) {
  Module module = model();
  module.states = {{"moment"}, {"row_mean", DType::F32, false, 64, {{3, {4}, 0}, {1, {5}, 16}, {2, {4}, 32}}}};
  Program program = update();
  Step step, other;
  step.tensors.resize(2);
  other.tensors.resize(2);
  step.buffers = {{Kind::Argument, 0, 0}, {Kind::Parameters, 0, 48 * 4}, {Kind::Parameters, 0, 0}};
  other.buffers = {{Kind::Argument, 0, 0}, {Kind::State, 1, 0}, {Kind::State, 1, 16 * 4}, {Kind::Arena, 0, 0}};
  program.steps = {step, other};
  const int groupOf[] = {2, 1, frozenGroup, 1, 0};
  const Program cut = inGroups(module, program, groupOf, 3);
  ASSERT_EQ(cut.steps.size(), 2u);
  auto groups = [&](const Step &of) { return std::pair(of.tensors[0].group, of.tensors[1].group); };
  EXPECT_EQ(groups(cut.steps[0]), std::pair(int64_t(frozenGroup), int64_t(2)));
  EXPECT_EQ(groups(cut.steps[1]), std::pair(int64_t(1), int64_t(1)));
  EXPECT_EQ(cut.steps[0].buffers[0].offset, 0);
}
