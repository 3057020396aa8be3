// Draws a matrix of weights from 0 to 1 as an SVG.
#include "text/HeatMap.h"
#include "support/Format.h"
#include "text/Unicode.h"
#include <algorithm>
#include <cmath>

namespace xfc {
namespace {

size_t longest(const std::vector<std::string> &labels) {
  size_t most = 1;
  for (const std::string &label : labels)
    most = std::max(most, codePoints(label).size());
  return most;
}

} // namespace

std::string escapeMarkup(const std::string &text) {
  std::string result;
  for (char c : text)
    switch (c) {
    case '&':
      result += "&amp;";
      break;
    case '<':
      result += "&lt;";
      break;
    case '>':
      result += "&gt;";
      break;
    case '"':
      result += "&quot;";
      break;
    default:
      result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  return result;
}

std::string heatMapSvg(const std::vector<double> &weights, const std::vector<std::string> &rows,
                       const std::vector<std::string> &columns) {
  constexpr double cell = 26, letter = 7.5;
  double left = 16 + letter * longest(rows), top = 16 + letter * longest(columns);
  double width = left + cell * columns.size() + 16, height = top + cell * rows.size() + 16;
  std::string svg =
      format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
             "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n<rect width=\"100%%\" height=\"100%%\" "
             "fill=\"#fff\"/>\n",
             width, height, width, height);
  for (size_t j = 0; j < columns.size(); ++j) {
    double x = left + cell * (j + 0.5) + 4;
    svg += format("<text transform=\"translate(%.1f %.1f) rotate(-90)\">", x, top - 6) + escapeMarkup(columns[j]) +
           "</text>\n";
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    double y = top + cell * i;
    svg += format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", left - 6, y + cell / 2 + 4) +
           escapeMarkup(rows[i]) + "</text>\n";
    for (size_t j = 0; j < columns.size(); ++j) {
      double weight = weights[i * columns.size() + j];
      double shade = std::isfinite(weight) ? std::clamp(weight, 0.0, 1.0) : 0;
      // From white to dark blue; a tooltip shows the number.
      svg += format("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.0f\" height=\"%.0f\" fill=\"rgb(%d,%d,%d)\" "
                    "stroke=\"#ddd\"><title>",
                    left + cell * j, y, cell, cell, static_cast<int>(255 - 247 * shade),
                    static_cast<int>(255 - 207 * shade), static_cast<int>(255 - 148 * shade)) +
             escapeMarkup(rows[i]) + " ← " + escapeMarkup(columns[j]) + format(": %.3f</title></rect>\n", weight);
    }
  }
  return svg + "</svg>\n";
}

} // namespace xfc
