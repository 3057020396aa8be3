// Tests what is shown of long-running work.
#include "support/Progress.h"
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace xfc;

TEST(Duration, OfAnyNumber) {
  EXPECT_EQ(duration(-5), "0:00");
  EXPECT_EQ(duration(std::nan("")), "0:00");
  EXPECT_EQ(duration(1e300), "277777777:46:40");
  EXPECT_EQ(duration(std::numeric_limits<double>::infinity()), duration(1e12));
}
