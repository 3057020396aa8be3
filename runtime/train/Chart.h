// Draws curves over steps, and what figures with axes share: tick marks and legends.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace xfc {

struct Series {
  std::string name;                              // in the legend; empty: not there
  std::vector<std::pair<double, double>> points; // step, value
  int color = -1;                                // of support/Markup.h; -1: by its place among the series
  bool dashed = false;
};

// Draws curves over steps as SVG for a page (support/Markup.h), with their names below.
std::string chartSvg(const std::vector<Series> &series);

// Where an axis from `low` to `high` has marks: at 1, 2 or 5 times a power of ten, about five of them and at most 12,
// whatever the numbers are.
std::vector<double> axisMarks(double low, double high);

// Names below a figure, each behind a swatch of its color, in as many lines as they need.
class LegendLines {
public:
  // Name i has the color i. Names that would not fit are cut at their beginning.
  LegendLines(const std::vector<std::string> &names, double width);
  void add(const std::string &name, int color, bool dashed = false);
  double height() const;
  // The lines below y = `top`, from x = `left` on.
  std::string svg(double left, double top) const;

private:
  struct Entry {
    std::string name; // escaped
    int color;
    bool dashed;
    double x;
    int line;
  };
  std::vector<Entry> entries;
  double width, next = 0; // where the next name begins
  int line = 0;
};

} // namespace xfc
