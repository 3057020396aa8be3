// Draws a matrix of weights from 0 to 1 as an SVG.
#include "decode/HeatMap.h"
#include "support/Format.h"
#include "support/Markup.h"
#include <algorithm>
#include <cmath>

namespace xfc {
namespace {

int64_t widest(const std::vector<std::string> &labels) {
  int64_t most = 1;
  for (const std::string &label : labels)
    most = std::max(most, columnsOf(label));
  return most;
}

} // namespace

std::string heatMapSvg(const std::vector<double> &weights, const std::vector<std::string> &rows,
                       const std::vector<std::string> &columns) {
  constexpr double cell = 26, letter = 7.5;
  const double left = 16 + letter * static_cast<double>(widest(rows)),
               top = 16 + letter * static_cast<double>(widest(columns)),
               across = cell * static_cast<double>(columns.size()), down = cell * static_cast<double>(rows.size()),
               width = left + across + 16, height = top + down + 16;
  std::string svg =
      format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
             "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" class=\"paper\" "
             "fill=\"#fff\"/>\n<path class=\"rule\" stroke=\"#ddd\" d=\"",
             width, height, width, height);
  for (size_t i = 0; i <= rows.size(); ++i)
    svg += format("M%.1f %.1fh%.1f", left, top + cell * static_cast<double>(i), across);
  for (size_t j = 0; j <= columns.size(); ++j)
    svg += format("M%.1f %.1fv%.1f", left + cell * static_cast<double>(j), top, down);
  svg += "\"/>\n";
  for (size_t j = 0; j < columns.size(); ++j)
    svg += format("<text class=\"ink\" fill=\"#222\" transform=\"translate(%.1f %.1f) rotate(-90)\">",
                  left + cell * (static_cast<double>(j) + 0.5) + 4, top - 6) +
           escapeMarkup(columns[j]) + "</text>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const double y = top + cell * static_cast<double>(i);
    svg += format("<text class=\"ink\" fill=\"#222\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", left - 6,
                  y + cell / 2 + 4) +
           escapeMarkup(rows[i]) + "</text>\n";
    for (size_t j = 0; j < columns.size(); ++j) {
      const double weight = weights[i * columns.size() + j];
      const double shade = std::isfinite(weight) ? std::clamp(weight, 0.0, 1.0) : 0;
      if (shade < 0.0005)
        continue;
      // Opaque is dark blue; a tooltip shows the number.
      svg += format("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.0f\" height=\"%.0f\" class=\"mark\" fill=\"#08306b\" "
                    "fill-opacity=\"%.3f\"><title>",
                    left + cell * static_cast<double>(j), y, cell, cell, shade) +
             escapeMarkup(rows[i]) + " ← " + escapeMarkup(columns[j]) + format(": %.3f</title></rect>\n", shade);
    }
  }
  return svg + "</svg>\n";
}

} // namespace xfc
