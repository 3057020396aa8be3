// Compares two texts of IR line by line, as a reader does: values that only got another number are the same.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace xfc {

// Some lines of both texts, in order: equal ones, as many of each, or those of one text that take the place of those of
// the other, either of which may be none.
struct DiffPart {
  bool equal = false;
  size_t beforeBegin = 0, beforeEnd = 0, afterBegin = 0, afterEnd = 0;
};

// The lines of a text of IR, without line ends. The signature of a whole model's function and its updates of all
// parameters are lines of up to a megabyte, of which passes change a few operands: long lines are broken between them.
std::vector<std::string_view> linesOf(std::string_view text);

// Lines are equal if they agree except for the numbers of SSA values (%12), and each value is, in both texts, one that
// equal lines have in the same place. If the texts differ in more than a few thousand lines of a part that begins and
// ends with different ones, all lines of that part differ.
std::vector<DiffPart> diffOf(const std::vector<std::string_view> &before, const std::vector<std::string_view> &after);

} // namespace xfc
