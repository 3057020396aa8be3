// An optimizer's step with settings of their own for groups of parameters.
#pragma once

#include "plan/Plan.h"
#include <span>

namespace xfc {

// In place of a group's number: a parameter that stays as it is.
constexpr int frozenGroup = -1;

// The program `update` of an optimizer, cut where groups meet: parameter i takes its step with row groupOf[i] of the
// argument `hyper`, which has a row for each of the `count` groups, and none where it is frozen. Every element that
// takes a step is computed as in the program as it was, from its row; the norm is still that of all gradients.
Program inGroups(const Module &module, const Program &update, std::span<const int> groupOf, int count);

} // namespace xfc
