// Shows text from outside in messages: on one line, and no longer than a reader takes in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace xfc {

inline constexpr size_t mostShown = 200;

// At most this many characters of a text, and "..." if there are more. Control characters and bytes that are not UTF-8
// are escaped (\n, \x1b), so that the result is one line whatever the text is.
std::string escaped(std::string_view text, size_t most = mostShown);
// The same within quotes: 'text'.
std::string inQuotes(std::string_view text, size_t most = mostShown);
// "a, b, c", as they are; "none" of no names.
std::string listed(const std::vector<std::string> &names);
// A whole message: escaped, without the middle of a word that is longer than any quotation of 200 characters and than
// any name of a file, and if the message is longer than 4,000 bytes, without its middle.
std::string oneLine(std::string_view message);

} // namespace xfc
