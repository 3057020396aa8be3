// Renders a run's log as one self-contained HTML page.
#pragma once

#include "text/Vocabulary.h"
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace xfc {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points; // step, value
};

// Draws curves over steps as SVG.
std::string chartSvg(const std::vector<Series> &series);

// The longest source of a sample that fits on the page; empty if there is none.
std::string sampleToDraw(const std::vector<nlohmann::json> &records);
// The --format of a run, from its config.json. Throws Error if that is not a text.
Format formatOf(const nlohmann::json &configuration);

// Makes the page from the records of train.jsonl, the run's config.json, and an SVG of attention weights (may be
// empty).
std::string reportPage(const std::string &title, const std::vector<nlohmann::json> &records,
                       const nlohmann::json &configuration, const std::string &attention);

} // namespace xfc
