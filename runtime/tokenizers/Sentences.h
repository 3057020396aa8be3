// Splits a line into sentences, and sentences that are too long further.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

namespace xfc {

// The sentences of a line, without the white space around them. A sentence ends after . ! ? and their like in other
// scripts, and the quotes and brackets that close behind them, if white space follows and then no lower-case letter;
// after those of Chinese and Japanese, no white space is needed. No sentence ends after an abbreviation, an initial, or
// a number of one or two digits with a dot, which may be an ordinal: two sentences in one are translated better than
// half a one. A sentence has a letter or a number in it, except where the line has none. Takes time linear in the line.
std::vector<std::string_view> sentencesOf(std::string_view line);

// The same text in parts that fit, if one can be found: cut behind punctuation if possible, or else at white space, or
// else anywhere, near the middle each time.
std::vector<std::string_view> partsThatFit(std::string_view sentence,
                                           const std::function<bool(std::string_view)> &fits);

} // namespace xfc
