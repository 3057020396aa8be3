// The learning rate of each step.
#pragma once

#include <cstdint>
#include <string>

namespace xfc {

struct Schedule {
  enum class Kind { Noam, InverseSqrt, Cosine, Linear, Constant };
  Kind kind = Kind::Noam;
  double rate = 1;       // noam: a factor; others: the largest rate
  int64_t warmup = 4000; // steps over which the rate grows linearly; 0: none
  int64_t steps = 0;     // of the whole run; cosine and linear reach 0 there
  int64_t width = 512;   // d_model, for noam
  int64_t restarts = 0;  // times that cosine and linear begin again at the largest rate: parts of equal length

  // Whether the rate depends on the length of the run.
  bool endsWithRun() const { return kind == Kind::Cosine || kind == Kind::Linear; }

  // The rate of step 1, 2, ...
  double at(int64_t step) const;
};

} // namespace xfc
