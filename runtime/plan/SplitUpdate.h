// Splits an optimizer's program: so that groups of parameters have settings of their own, and so that each of several
// ranks updates its share.
#pragma once

#include "plan/Sharding.h"
#include <span>

namespace xfc {

// Stands for a group's number: the parameter is not trained.
constexpr int frozenGroup = -1;

// The program `update` of an optimizer, split at the boundaries of groups unless its launches take parameters one by
// one: parameter i is updated with row groupOf[i] of the argument `hyper`, which has a row for each of the `count`
// groups, or not at all if it is frozen. Every updated element is computed as in the original program, with its row;
// the norm is still that of all gradients.
Program inGroups(const Module &module, const Program &update, std::span<const int> groupOf, int count);

// A rank's share of an optimizer's program. Its steps update the rank's ranges of the parameters, and read the states
// from blocks that hold these ranges only, one after another. The partial sums of squares of the other ranks' gradients
// must be put in place before the step `clips`.
struct ShareOfUpdate {
  Program program;
  int64_t clips = 0; // the step that computes the norm from the partial sums
  Place squares;     // of the partial sums: an f64 for each part of the block that has parameters
  int64_t parts = 0; // how many there are
};
// Whether the program can be split: it computes one block of partial sums, and then updates elements on their own.
bool canShare(const Module &module, const Program &update);
ShareOfUpdate inShare(const Module &module, const Program &update, std::span<const Range> owned);

} // namespace xfc
