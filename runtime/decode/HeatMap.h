// Draws a matrix of weights from 0 to 1 as an SVG: rows are target tokens, columns source tokens, and larger weights
// are darker.
#pragma once

#include <string>
#include <vector>

namespace xfc {

// weights[i * columns.size() + j] belongs to rows[i] and columns[j]. A cell has the class "mark", and the weight, to
// three decimals, as the opacity of its fill; those of weight 0.000 are left out. In a page (support/Markup.h), the
// colors are those of the page; alone, the drawing has its own.
std::string heatMapSvg(const std::vector<double> &weights, const std::vector<std::string> &rows,
                       const std::vector<std::string> &columns);

} // namespace xfc
