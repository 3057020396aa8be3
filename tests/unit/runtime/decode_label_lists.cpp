// Tests the lists of labels that a training program compiled with --distillation reads.
#include "decode/LabelLists.h"
#include <gtest/gtest.h>

using namespace xfc;

namespace {

// A module whose training program takes `tokens` tokens of a teacher for each label.
Module moduleWithTeacher(int64_t tokens, DType type = DType::F32) {
  Module module;
  module.type = type;
  Program program;
  program.name = programs::lossAndGradients;
  program.arguments = {{names::source, Argument::Role::Input, DType::I32, XFC_SOURCE, {}}};
  if (tokens > 0)
    program.arguments.push_back({names::labelLists, Argument::Role::Input, DType::I32, XFC_TARGET, {1 + tokens}});
  module.programs.push_back(program);
  return module;
}

template <typename Number> std::vector<double> sharesOf(LabelLists &lists, size_t count) {
  const auto *shares = static_cast<const Number *>(lists.shares().data);
  return std::vector<double>(shares, shares + count);
}

} // namespace

TEST(LabelLists, SharesOfALabelAndItsTeacher) {
  for (const DType type : {DType::F32, DType::F64}) {
    const Module module = moduleWithTeacher(3, type);
    EXPECT_EQ(teacherTokens(module), 3);
    LabelLists lists;
    lists.clear(module);
    const TokenProbability taught[] = {{7, 0.5F}, {4, 0.25F}}; // fewer than the program takes
    lists.add(9, {0.25, 0.5}, taught);
    lists.add(8, {0.25, 0.5}); // the ordinary loss
    lists.add(6, {0.25, 0}, taught);
    lists.add(-1, {0.25, 0.5}, taught); // pad
    const auto *tokens = static_cast<const int32_t *>(lists.lists().data);
    EXPECT_EQ(std::vector<int32_t>(tokens, tokens + 16),
              (std::vector<int32_t>{9, 7, 4, -1, 8, -1, -1, -1, 6, -1, -1, -1, -1, 7, 4, -1}));
    const std::vector<double> ordinary = {0.25, 0.75, 0, 0, 0}, divided = {0.125, 0.375, 0.25, 0.125, 0};
    std::vector<double> expected;
    for (const auto &row : {divided, ordinary, ordinary, divided})
      expected.insert(expected.end(), row.begin(), row.end());
    EXPECT_EQ(type == DType::F64 ? sharesOf<double>(lists, 20) : sharesOf<float>(lists, 20), expected);
    lists.clear(module);
    lists.add(5, {0, 0});
    EXPECT_EQ(static_cast<const int32_t *>(lists.lists().data)[0], 5);
  }
}

TEST(LabelLists, OtherProgramsHaveNone) {
  const Module module = moduleWithTeacher(0);
  EXPECT_EQ(teacherTokens(module), 0);
  LabelLists lists;
  lists.clear(module);
  lists.add(9, {0.1, 0.5});
  EXPECT_EQ(lists.lists().data, nullptr);
  EXPECT_EQ(teacherTokens(Module()), 0);
}
