// Tests the links that a training program compiled with --guided-alignment reads.
#include "corpora/WordAlignment.h"
#include "decode/AlignmentLinks.h"
#include <gtest/gtest.h>

using namespace xfc;

namespace {

// A module whose training program takes so many links for each label.
Module moduleWithLinks(int64_t links, DType type = DType::F32) {
  Module module;
  module.type = type;
  Program program;
  program.name = programs::lossAndGradients;
  program.arguments = {{names::source, Argument::Role::Input, DType::I32, XFC_SOURCE, {}}};
  if (links > 0)
    program.arguments.push_back({names::alignmentLinks, Argument::Role::Input, DType::I32, XFC_TARGET, {links}});
  module.programs.push_back(program);
  return module;
}

template <typename Number> std::vector<double> sharesOf(AlignmentLinks &links, size_t count) {
  const auto *shares = static_cast<const Number *>(links.shares().data);
  return std::vector<double>(shares, shares + count);
}

} // namespace

TEST(AlignmentLinks, LinksOfALabelHaveEqualShares) {
  for (const DType type : {DType::F32, DType::F64}) {
    const Module module = moduleWithLinks(2, type);
    EXPECT_EQ(linksPerLabel(module), 2);
    AlignmentLinks links;
    links.clear(module);
    const Link first[] = {{3, 0}, {0, 2}, {1, 2}}, second[] = {{5, 1}};
    links.add(3, 0.5, first);
    links.add(1, 0.5); // no alignment
    links.add(2, 0.25, second);
    links.add(2, 0, second); // no weight
    const auto *keys = static_cast<const int32_t *>(links.links().data);
    EXPECT_EQ(std::vector<int32_t>(keys, keys + 16),
              (std::vector<int32_t>{3, -1, -1, -1, 0, 1, -1, -1, -1, -1, 5, -1, -1, -1, -1, -1}));
    EXPECT_EQ(type == DType::F64 ? sharesOf<double>(links, 16) : sharesOf<float>(links, 16),
              (std::vector<double>{0.5, 0, 0, 0, 0.25, 0.25, 0, 0, 0, 0, 0.25, 0, 0, 0, 0, 0}));
    links.clear(module);
    links.add(1, 1);
    EXPECT_EQ(static_cast<const int32_t *>(links.links().data)[0], -1);
  }
}

TEST(AlignmentLinks, OtherProgramsHaveNone) {
  const Module module = moduleWithLinks(0);
  EXPECT_EQ(linksPerLabel(module), 0);
  AlignmentLinks links;
  links.clear(module);
  const Link link[] = {{0, 0}};
  links.add(3, 0.5, link);
  EXPECT_EQ(links.links().data, nullptr);
  EXPECT_EQ(linksPerLabel(Module()), 0);
}
