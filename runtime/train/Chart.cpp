// Draws curves over steps, and what figures with axes share.
#include "train/Chart.h"
#include "support/Format.h"
#include "support/Markup.h"
#include <algorithm>
#include <cmath>

namespace xfc {
namespace {

constexpr double lineHeight = 15, letterWidth = 6.7; // of a monospaced font of 11 pixels
constexpr double swatchWidth = 20, entryGap = 14;

} // namespace

std::vector<double> axisMarks(double low, double high) {
  const double rough = (high - low) / 5, power = std::pow(10, std::floor(std::log10(rough)));
  double distance = 10 * power;
  for (double factor : {5.0, 2.0, 1.0})
    if (rough <= factor * power)
      distance = factor * power;
  std::vector<double> places;
  const double first = std::ceil(low / distance);
  for (int i = 0; i < 12 && (first + i) * distance <= high; ++i) {
    const double place = (first + i) * distance;
    places.push_back(std::fabs(place) < distance * 1e-9 ? 0.0 : place);
  }
  return places;
}

LegendLines::LegendLines(const std::vector<std::string> &names, double width) : width(width) {
  for (size_t i = 0; i < names.size(); ++i)
    add(names[i], static_cast<int>(i) % seriesColors);
}

void LegendLines::add(const std::string &name, int color, bool dashed) {
  const auto most = static_cast<int64_t>((width - swatchWidth) / letterWidth);
  const double taken = swatchWidth + letterWidth * static_cast<double>(std::min(columnsOf(name), most));
  if (next > 0 && next + taken > width) {
    next = 0;
    ++line;
  }
  entries.push_back({escapedEnd(name, most), color, dashed, next, line});
  next += taken + entryGap;
}

double LegendLines::height() const { return entries.empty() ? 0 : lineHeight * (line + 1) + 4; }

std::string LegendLines::svg(double left, double top) const {
  std::string text;
  for (const Entry &entry : entries) {
    const double x = left + entry.x, y = top + lineHeight * entry.line;
    text += format("<g class=\"series%d legend\" font-family=\"monospace\"><path stroke=\"currentColor\" "
                   "stroke-width=\"3\"%s d=\"M%.1f %.1fh14\"/><text fill=\"currentColor\" x=\"%.1f\" y=\"%.1f\">",
                   entry.color, entry.dashed ? " stroke-dasharray=\"4 3\"" : "", x, y + 7, x + swatchWidth, y + 11) +
            entry.name + "</text></g>\n";
  }
  return text;
}

std::string chartSvg(const std::vector<Series> &series) {
  constexpr double width = 480, height = 260, left = 62, right = 14, top = 14, bottom = 34;
  double lowX = INFINITY, highX = -INFINITY, lowY = INFINITY, highY = -INFINITY;
  for (const Series &one : series)
    for (auto [x, y] : one.points)
      if (std::isfinite(x) && std::isfinite(y)) {
        lowX = std::min(lowX, x);
        highX = std::max(highX, x);
        lowY = std::min(lowY, y);
        highY = std::max(highY, y);
      }
  if (lowX > highX || !std::isfinite(highX - lowX) || !std::isfinite(highY - lowY))
    return "<p>nothing that can be drawn was recorded</p>\n";
  // Widen a range that is too narrow for distinct tick marks.
  auto widen = [](double low, double high, double least) {
    return std::max(high, low + std::max(least, 1e-9 * std::max(std::fabs(low), std::fabs(high))));
  };
  highX = widen(lowX, highX, 1);
  highY = highY == lowY ? widen(lowY, highY, lowY == 0 ? 1 : std::fabs(lowY) / 10) : widen(lowY, highY, 1e-300);
  double pad = (highY - lowY) * 0.05;
  lowY = lowY >= 0 ? std::max(0.0, lowY - pad) : lowY - pad;
  highY += pad;
  auto placeX = [&](double x) { return left + (x - lowX) / (highX - lowX) * (width - left - right); };
  auto placeY = [&](double y) { return height - bottom - (y - lowY) / (highY - lowY) * (height - top - bottom); };
  auto colorOf = [&](size_t i) { return series[i].color < 0 ? static_cast<int>(i) % seriesColors : series[i].color; };

  LegendLines legend({}, width - left - right);
  for (size_t i = 0; i < series.size(); ++i)
    if (!series[i].points.empty() && !series[i].name.empty())
      legend.add(series[i].name, colorOf(i), series[i].dashed);
  const double whole = height + legend.height();
  std::string svg = format("<svg class=\"chart\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
                           "font-family=\"sans-serif\" font-size=\"11\">\n",
                           width, whole, width, whole);
  for (double y : axisMarks(lowY, highY))
    svg += format("<path class=\"rule\" d=\"M%.1f %.1fH%.1f\"/><text class=\"faint\" x=\"%.1f\" y=\"%.1f\" "
                  "text-anchor=\"end\">%.4g</text>\n",
                  left, placeY(y), width - right, left - 6, placeY(y) + 4, y);
  for (double x : axisMarks(lowX, highX))
    svg += format("<text class=\"faint\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.6g</text>\n", placeX(x),
                  height - bottom + 16, x);
  svg += format("<text class=\"faint\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">step</text>\n", width - right,
                height - 4);
  for (size_t i = 0; i < series.size(); ++i) {
    if (series[i].points.empty())
      continue;
    std::string line;
    for (auto [x, y] : series[i].points)
      if (std::isfinite(x) && std::isfinite(y))
        line += format("%s%.1f %.1f", line.empty() ? "M" : "L", placeX(x), placeY(y));
    svg += format("<path class=\"series%d\" fill=\"none\" stroke-width=\"1.6\" stroke=\"currentColor\"%s d=\"",
                  colorOf(i), series[i].dashed ? " stroke-dasharray=\"5 3\"" : "") +
           line + "\"/>\n";
    if (series[i].points.size() == 1)
      svg += format("<circle class=\"series%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"currentColor\"/>\n", colorOf(i),
                    placeX(series[i].points[0].first), placeY(series[i].points[0].second));
  }
  return svg + legend.svg(left, height) + "</svg>\n";
}

} // namespace xfc
