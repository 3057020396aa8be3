// Renders the logs of runs as one self-contained HTML page.
#pragma once

#include "vocabularies/Vocabulary.h"
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace xfc {

// The longest source of a sample that fits on the page; empty if there is none.
std::string sampleToDraw(const std::vector<nlohmann::json> &records);
// The --format of a run, from its config.json. Throws Error if that is not a text.
Format formatOf(const nlohmann::json &configuration);

struct ReportedRun {
  std::string name;
  std::vector<nlohmann::json> records; // of train.jsonl
  nlohmann::json configuration;        // config.json
};

// A figure of the page, below a heading and a text, which are escaped; the figure is HTML or SVG.
struct ReportedFigure {
  std::string heading, text, figure;
};

// Makes the page of one run, or one that compares several, at most as many as there are colors (support/Markup.h).
std::string reportPage(const std::vector<ReportedRun> &runs, const std::vector<ReportedFigure> &figures);

} // namespace xfc
