// Tests learning rates against their formulas, written out for single steps.
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

TEST(Schedule, InverseSquareRoot) {
  Schedule schedule{Schedule::Kind::InverseSqrt, 0.5, 100};
  EXPECT_DOUBLE_EQ(schedule.at(50), 0.25);
  EXPECT_DOUBLE_EQ(schedule.at(100), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(400), 0.25);
  schedule.warmup = 0;
  EXPECT_DOUBLE_EQ(schedule.at(1), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(16), 0.125);
}

TEST(Schedule, Restarts) {
  Schedule schedule{Schedule::Kind::Cosine, 1, 10, 310, 1, 2}; // three periods of 100 steps
  for (int64_t begin : {10, 110, 210}) {
    EXPECT_NEAR(schedule.at(begin), 1, 1e-15) << begin;
    EXPECT_NEAR(schedule.at(begin + 50), 0.5, 1e-12) << begin;
    EXPECT_LT(schedule.at(begin + 99), 0.001) << begin;
  }
  EXPECT_NEAR(schedule.at(310), 0, 1e-15);
  EXPECT_NEAR(schedule.at(400), 0, 1e-15);
  schedule.kind = Schedule::Kind::Linear;
  EXPECT_NEAR(schedule.at(135), 0.75, 1e-12);
}

} // namespace
