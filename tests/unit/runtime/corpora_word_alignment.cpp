// Tests the reader of word alignments.
#include "corpora/WordAlignment.h"
#include <gtest/gtest.h>

using namespace xfc;

namespace {

constexpr int32_t pad = 0;

// What `body` throws.
template <typename Body> std::string errorOf(const Body &body) {
  try {
    body();
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

void expectError(const std::string &found, const std::string &expected) {
  EXPECT_NE(found.find(expected), std::string::npos) << "found: " << found;
}

} // namespace

TEST(WordAlignment, ReadsLinks) {
  EXPECT_EQ(readLinks("0-0 12-3\t1-2 \r", "f:1"), (std::vector<Link>{{0, 0}, {12, 3}, {1, 2}}));
  EXPECT_TRUE(readLinks("", "f:1").empty());
  EXPECT_TRUE(readLinks("  \r", "f:1").empty());
  for (const char *wrong :
       {"1", "1-", "-1", "1--2", "-1-2", "1-2-3", "a-1", "1-b", "1:2", "1-2,", "99999999999-1", "+1-2"})
    expectError(errorOf([&] { readLinks(std::string("0-0 ") + wrong, "f:7"); }),
                "f:7: '" + std::string(wrong) + "' is not a link; expected");
}

// The source has a language token before its line, and the target a start and a language token.
TEST(WordAlignment, PlacesLinksBesideTheFrames) {
  const std::vector<int32_t> source = {9, 5, 6, 7, 3}, target = {2, 9, 5, 6, 3};
  const AlignedSide from{source, 1, 3}, to{target, 2, 2};
  EXPECT_EQ(placedLinks({{2, 1}, {0, 1}, {1, 0}, {2, 1}}, from, to, 2, pad, "f:1"),
            (std::vector<Link>{{2, 1}, {1, 2}, {3, 2}}));
  EXPECT_TRUE(placedLinks({}, from, to, 1, pad, "f:1").empty());
  expectError(errorOf([&] { placedLinks({{3, 0}}, from, to, 2, pad, "f:2"); }),
              "f:2: has the link 3-0, but the pair has 3 source and 2 target tokens");
  expectError(errorOf([&] { placedLinks({{0, 0}, {0, 2}}, from, to, 2, pad, "f:2"); }), "f:2: has the link 0-2, but");
  expectError(errorOf([&] { placedLinks({{2, 1}, {0, 1}, {1, 1}, {1, 1}}, from, to, 2, pad, "f:3"); }),
              "f:3: target token 1 has 3 links, but this executable takes 2; compile the model again with `xfc compile "
              "--guided-alignment 3`");
  expectError(errorOf([&] { placedLinks({{0, 0}}, from, to, 2, 6, "f:4"); }),
              "f:4: has links, but the pair has pads (id 6)");
}

TEST(WordAlignment, LinksAllTokensOfWords) {
  const std::vector<std::pair<int32_t, int32_t>> source = {{0, 2}, {2, 3}}, target = {{0, 1}, {1, 3}};
  EXPECT_EQ(linksOfWords({{0, 1}, {1, 0}}, source, target, "f:1"),
            (std::vector<Link>{{0, 1}, {0, 2}, {1, 1}, {1, 2}, {2, 0}}));
  expectError(errorOf([&] { linksOfWords({{2, 0}}, source, target, "f:5"); }),
              "f:5: has the link 2-0, but the pair has 2 source and 2 target words");
}
