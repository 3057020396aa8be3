// Learning rates against their formulas, written out for single steps.
#include "train/Schedule.h"
#include <cmath>
#include <gtest/gtest.h>

using xfc::Schedule;

namespace {

TEST(Schedule, Noam) {
  Schedule schedule{Schedule::Kind::Noam, 2, 400, 0, 128};
  EXPECT_NEAR(schedule.at(1), 2 * std::pow(128, -0.5) * std::pow(400, -1.5), 1e-15);
  EXPECT_NEAR(schedule.at(400), 2 * std::pow(128, -0.5) * std::pow(400, -0.5), 1e-15); // the peak
  EXPECT_NEAR(schedule.at(1600), schedule.at(400) / 2, 1e-15);
  EXPECT_LT(schedule.at(399), schedule.at(400));
  EXPECT_LT(schedule.at(401), schedule.at(400));
}

TEST(Schedule, NoamWithoutWarmup) {
  EXPECT_NEAR((Schedule{Schedule::Kind::Noam, 1, 0, 0, 64}.at(4)), 1.0 / 8 / 2, 1e-15);
}

TEST(Schedule, Constant) {
  Schedule schedule{Schedule::Kind::Constant, 0.5, 10, 0, 1};
  EXPECT_DOUBLE_EQ(schedule.at(5), 0.25);
  EXPECT_DOUBLE_EQ(schedule.at(10), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(1000), 0.5);
  schedule.warmup = 0;
  EXPECT_DOUBLE_EQ(schedule.at(1), 0.5);
}

TEST(Schedule, Linear) {
  Schedule schedule{Schedule::Kind::Linear, 1, 10, 110, 1};
  EXPECT_DOUBLE_EQ(schedule.at(10), 1);
  EXPECT_DOUBLE_EQ(schedule.at(60), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(110), 0);
  EXPECT_DOUBLE_EQ(schedule.at(200), 0);
}

TEST(Schedule, Cosine) {
  Schedule schedule{Schedule::Kind::Cosine, 1, 10, 110, 1};
  EXPECT_DOUBLE_EQ(schedule.at(10), 1);
  EXPECT_NEAR(schedule.at(60), 0.5, 1e-15);
  EXPECT_NEAR(schedule.at(35), 0.5 + std::sqrt(0.125), 1e-15); // cos(pi/4)
  EXPECT_NEAR(schedule.at(110), 0, 1e-15);
}

} // namespace
