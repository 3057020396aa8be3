// Tests that answers hold their part of the room for alignments as long as they are there, and no longer.
#include "serve/AlignmentRoom.h"
#include <gtest/gtest.h>
#include <optional>

using namespace xfc;

TEST(AlignmentRoom, IsSharedByAnswersUntilTheyEnd) {
  const auto room = std::make_shared<AlignmentRoom>(100);
  std::optional<HeldAlignments> one(room), other(room);
  EXPECT_TRUE(one->take(40));
  EXPECT_TRUE(one->take(20));
  EXPECT_FALSE(other->take(41));
  EXPECT_TRUE(other->take(40)); // what was refused takes nothing
  EXPECT_FALSE(one->take(1));
  EXPECT_TRUE(one->take(0));
  one.reset();
  EXPECT_FALSE(other->take(61));
  EXPECT_TRUE(other->take(60));
  other.reset();
  EXPECT_TRUE(HeldAlignments(room).take(100));
  EXPECT_TRUE(HeldAlignments(room).take(100));
}
