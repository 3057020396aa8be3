// Computes the learning rate of each step.
#pragma once

#include <cstdint>
#include <string>

namespace xfc {

struct Schedule {
  enum class Kind { Noam, InverseSqrt, Cosine, Linear, Constant };
  Kind kind = Kind::Noam;
  double rate = 1;       // noam: a factor; others: the largest rate
  int64_t warmup = 4000; // steps over which the rate grows linearly; 0: none
  int64_t steps = 0;     // in the whole run; cosine and linear reach 0 at its end
  int64_t width = 512;   // d_model, for noam
  int64_t restarts = 0;  // how often cosine and linear restart at the largest rate, in periods of equal length

  // Whether the rate depends on the length of the run.
  bool endsWithRun() const { return kind == Kind::Cosine || kind == Kind::Linear; }

  // The rate for a step, numbered from 1.
  double at(int64_t step) const;
};

} // namespace xfc
