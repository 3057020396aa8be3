// Renders a run's log as one self-contained HTML page: no scripts, no external files, nothing fetched.
#include "train/Report.h"
#include "decode/Flags.h"
#include "support/Format.h"
#include "support/Progress.h"
#include "text/HeatMap.h"
#include "train/Log.h"
#include <algorithm>
#include <cmath>

namespace xfc {
namespace {

constexpr const char *colors[] = {"#1f5fa8", "#c8501e", "#2f8f4e"};

constexpr const char *style =
    R"(body{font:15px/1.5 system-ui,sans-serif;color:#222;max-width:980px;margin:2em auto;padding:0 1em}
h1{font-size:1.6em}h2{font-size:1.15em;margin:1.6em 0 .4em}table{border-collapse:collapse}td,th{padding:.2em .8em .2em 0;text-align:left;vertical-align:top}
th{color:#666;font-weight:normal}.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:1em}svg{max-width:100%;height:auto}
.sample td{border-top:1px solid #ddd}summary{cursor:pointer;color:#666})";

// The distance between tick marks on an axis: 1, 2 or 5 times a power of ten, giving about five marks.
double markDistance(double range) {
  double rough = range / 5, power = std::pow(10, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power)
      return factor * power;
  return 10 * power;
}

// Multiples of the distance within the range; at most 12, whatever the numbers are.
std::vector<double> marks(double low, double high, double distance) {
  std::vector<double> places;
  const double first = std::ceil(low / distance);
  for (int i = 0; i < 12 && (first + i) * distance <= high; ++i)
    places.push_back((first + i) * distance);
  return places;
}

Series seriesOf(const std::vector<nlohmann::json> &records, const std::string &name, const std::string &key) {
  Series series{name, {}};
  for (const nlohmann::json &record : records) {
    auto value = record.find(key), step = record.find("step");
    if (value != record.end() && value->is_number() && step != record.end() && step->is_number())
      series.points.emplace_back(step->get<double>(), value->get<double>());
  }
  return series;
}

std::string row(const std::string &name, const std::string &value) {
  return "<tr><th>" + escapeMarkup(name) + "</th><td>" + escapeMarkup(value) + "</td></tr>\n";
}

// The last value under a key, or "" without one.
std::string lastOf(const std::vector<nlohmann::json> &records, const std::string &key, const char *pattern) {
  Series series = seriesOf(records, key, key);
  return series.points.empty() ? "" : format(pattern, series.points.back().second);
}

std::string shown(const nlohmann::json &value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

} // namespace

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

  std::string svg = format("<svg viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
                           "font-size=\"11\" fill=\"#555\">\n",
                           width, height, width, height);
  double stepY = markDistance(highY - lowY), stepX = markDistance(highX - lowX);
  for (double y : marks(lowY, highY, stepY))
    svg += format(
        "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#e4e4e4\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
        left, placeY(y), width - right, left - 6, placeY(y) + 4, std::fabs(y) < stepY * 1e-9 ? 0.0 : y);
  for (double x : marks(lowX, highX, stepX))
    svg +=
        format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.6g</text>\n", placeX(x), height - bottom + 16, x);
  svg += format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">step</text>\n", width - right, height - 4);
  for (size_t i = 0; i < series.size(); ++i) {
    if (series[i].points.empty())
      continue;
    const char *color = colors[i % std::size(colors)];
    std::string line;
    for (auto [x, y] : series[i].points)
      if (std::isfinite(x) && std::isfinite(y))
        line += format("%s%.1f %.1f", line.empty() ? "M" : "L", placeX(x), placeY(y));
    svg += format("<path fill=\"none\" stroke-width=\"1.6\" stroke=\"%s\" d=\"", color) + line + "\"/>\n";
    if (series[i].points.size() == 1)
      svg += format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", placeX(series[i].points[0].first),
                    placeY(series[i].points[0].second), color);
    svg += format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" fill=\"%s\">", width - right - 4,
                  top + 12 + 15.0 * i, color) +
           escapeMarkup(series[i].name) + "</text>\n";
  }
  return svg + "</svg>\n";
}

std::string sampleToDraw(const std::vector<nlohmann::json> &records) {
  constexpr size_t longest = 80;
  std::string chosen;
  for (const nlohmann::json &record : records)
    if (const auto samples = record.find("samples"); samples != record.end())
      for (const nlohmann::json &sample : *samples)
        if (sample.is_object() && sample.contains("source") && sample["source"].is_string())
          if (std::string text = sample["source"]; text.size() > chosen.size() && text.size() <= longest)
            chosen = std::move(text);
  return chosen;
}

Format formatOf(const nlohmann::json &configuration) {
  if (!configuration.contains("format"))
    return Format::Text;
  if (!configuration["format"].is_string())
    throw Error("config.json: format: not a string; expected text, pieces or ids");
  return formatNamed(configuration["format"].get<std::string>());
}

std::string reportPage(const std::string &title, const std::vector<nlohmann::json> &records,
                       const nlohmann::json &configuration, const std::string &attention) {
  std::string page = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + escapeMarkup(title) +
                     "</title>\n<style>" + style + "</style></head><body>\n<h1>" + escapeMarkup(title) +
                     "</h1>\n<table>\n";
  page += row("steps", lastOf(records, "step", "%.0f")) + row("loss", lastOf(records, "loss", "%.4f"));
  if (std::string wall = lastOf(records, "wall", "%.17g"); !wall.empty())
    page += row("time", duration(std::strtod(wall.c_str(), nullptr)));
  for (auto [key, name, pattern] : {std::tuple{"wps", "target tokens per second", "%.0f"},
                                    {"valid_ppl", "perplexity, validation", "%.3f"},
                                    {"bleu", "BLEU, validation", "%.2f"},
                                    {"chrf", "chrF, validation", "%.2f"},
                                    {"ter", "TER, validation", "%.2f"}})
    if (std::string value = lastOf(records, key, pattern); !value.empty())
      page += row(name, value);
  page += "</table>\n<div class=\"charts\">\n";

  auto chart = [&](const std::string &heading, std::vector<Series> series) {
    std::erase_if(series, [](const Series &one) { return one.points.empty(); });
    if (!series.empty())
      page += "<div><h2>" + heading + "</h2>\n" + chartSvg(series) + "</div>\n";
  };
  chart("Loss per target token",
        {seriesOf(records, "training", "loss"), seriesOf(records, "validation", "valid_loss")});
  chart("Learning rate", {seriesOf(records, "learning rate", "lr")});
  chart("Translation quality on the validation text",
        {seriesOf(records, "BLEU", "bleu"), seriesOf(records, "chrF", "chrf"), seriesOf(records, "TER", "ter")});
  chart("Target tokens per second", {seriesOf(records, "tokens/s", "wps")});
  chart("Norm of the gradient", {seriesOf(records, "norm", "gnorm")});
  page += "</div>\n";

  auto withSamples = std::find_if(records.rbegin(), records.rend(),
                                  [](const nlohmann::json &record) { return record.contains("samples"); });
  if (withSamples != records.rend()) {
    page += "<h2>Translations at step " + escapeMarkup(shown(withSamples->value("step", nlohmann::json(0)))) +
            "</h2>\n<table class=\"sample\">\n";
    auto textOf = [](const nlohmann::json &sample, const char *key) {
      return sample.is_object() ? shown(sample.value(key, nlohmann::json(""))) : "";
    };
    for (const nlohmann::json &sample : (*withSamples)["samples"])
      page += "<tr><td><table>" + row("source", textOf(sample, "source")) +
              row("translation", textOf(sample, "hypothesis")) + row("reference", textOf(sample, "reference")) +
              "</table></td></tr>\n";
    page += "</table>\n";
  }
  if (!attention.empty())
    page += "<h2>Where the decoder looks</h2>\n<p>Cross-attention of the last layer, mean of its heads: each row is a "
            "token being written, "
            "each column a token of the source.</p>\n" +
            attention;
  if (configuration.is_object() && !configuration.empty()) {
    page += "<h2>Options</h2>\n<details><summary>of this run</summary><table>\n";
    for (const auto &[key, value] : configuration.items())
      page += row(key, shown(value));
    page += "</table></details>\n";
  }
  return page + "</body></html>\n";
}

} // namespace xfc
