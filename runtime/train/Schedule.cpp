// Computes the learning rate of each step.
#include "train/Schedule.h"
#include <algorithm>
#include <cmath>
#include <numbers>

namespace xfc {

double Schedule::at(int64_t step) const {
  double t = static_cast<double>(step), w = static_cast<double>(warmup);
  if (kind == Kind::Noam) // Vaswani et al., 2017, equation 3
    return rate / std::sqrt(static_cast<double>(width)) *
           std::min(1 / std::sqrt(t), warmup > 0 ? t / (w * std::sqrt(w)) : 1);
  if (step < warmup)
    return rate * t / w;
  if (kind == Kind::Constant)
    return rate;
  if (kind == Kind::InverseSqrt) // without warm-up the decay starts at the first step
    return rate * std::sqrt(std::max(w, 1.0) / t);
  double done = std::clamp((t - w) / std::max(static_cast<double>(steps) - w, 1.0), 0.0, 1.0);
  // Loshchilov and Hutter, 2017, with periods of equal length. The last one ends with the run.
  if (const double parts = done * static_cast<double>(restarts + 1); done < 1)
    done = parts - std::floor(parts);
  return kind == Kind::Linear ? rate * (1 - done) : rate * (1 + std::cos(std::numbers::pi * done)) / 2;
}

} // namespace xfc
