// Splits an optimizer's program so that groups of parameters have settings of their own.
#pragma once

#include "plan/Plan.h"
#include <span>

namespace xfc {

// Stands for a group's number: the parameter is not trained.
constexpr int frozenGroup = -1;

// The program `update` of an optimizer, split at the boundaries of groups: parameter i is updated with row groupOf[i]
// of the argument `hyper`, which has a row for each of the `count` groups, or not at all if it is frozen. Every updated
// element is computed as in the original program, with its row; the norm is still that of all gradients.
Program inGroups(const Module &module, const Program &update, std::span<const int> groupOf, int count);

} // namespace xfc
