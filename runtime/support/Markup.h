// Makes HTML pages that are one file and load nothing: what people look at, whatever names and texts it shows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace xfc {

// `text` with the reserved characters of HTML and SVG written as entities, and control characters as blanks.
std::string escapeMarkup(std::string_view text);

// `text`, escaped and shortened to `most` columns: of a longer text, an ellipsis and its last characters. Characters
// from U+1100 on count as two columns, the width of the widest of them.
std::string escapedEnd(std::string_view text, int64_t most);
// The number of columns of a text, counted in the same way.
int64_t columnsOf(std::string_view text);

// A page. `title` is text; `style`, `body` and `script` (empty: none) are CSS, HTML and JavaScript. The page's own
// style has the variables --text, --faint, --line, --paper and the classes series0 ... series7 of figures, each for
// light and for dark; a policy in the page keeps it from loading anything, whatever it contains.
std::string htmlPage(std::string_view title, std::string_view style, std::string_view body,
                     std::string_view script = {});

// How many classes of colors there are.
constexpr int seriesColors = 8;

} // namespace xfc
