// Draws a matrix of weights from 0 to 1 as an SVG: rows are target tokens, columns source tokens, and larger weights
// are darker.
#pragma once

#include <string>
#include <vector>

namespace xfc {

// `text` with the reserved characters of HTML and SVG written as entities.
std::string escapeMarkup(const std::string &text);

// weights[i * columns.size() + j] belongs to rows[i] and columns[j].
std::string heatMapSvg(const std::vector<double> &weights, const std::vector<std::string> &rows,
                       const std::vector<std::string> &columns);

} // namespace xfc
