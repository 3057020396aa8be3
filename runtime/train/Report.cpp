// Renders the logs of runs as one self-contained HTML page: no scripts, no external files, nothing fetched.
#include "train/Report.h"
#include "decode/Flags.h"
#include "support/Format.h"
#include "support/Markup.h"
#include "support/Progress.h"
#include "train/Chart.h"
#include "train/Log.h"
#include <algorithm>
#include <set>

namespace xfc {
namespace {

constexpr const char *reportStyle =
    R"(body{max-width:980px}h1{font-size:1.6em}h2{font-size:1.15em;margin:1.6em 0 .4em}table{border-collapse:collapse}
td,th{padding:.2em .8em .2em 0;text-align:left;vertical-align:top}th{color:var(--faint);font-weight:normal}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:1em}.wide{overflow-x:auto}
.sample td{border-top:1px solid var(--line)}summary{cursor:pointer;color:var(--faint)}
.edge{stroke:var(--paper);stroke-width:.5}.live{stroke:var(--text)})";

Series seriesOf(const std::vector<nlohmann::json> &records, const std::string &name, const std::string &key) {
  Series series{name, {}};
  for (const nlohmann::json &record : records) {
    auto value = record.find(key), step = record.find("step");
    if (value != record.end() && value->is_number() && step != record.end() && step->is_number())
      series.points.emplace_back(step->get<double>(), value->get<double>());
  }
  return series;
}

// A row of a table, with a cell for each value.
std::string tableRow(const std::string &name, const std::vector<std::string> &values) {
  std::string row = "<tr><th>" + escapeMarkup(name) + "</th>";
  for (const std::string &value : values)
    row += "<td>" + escapeMarkup(value) + "</td>";
  return row + "</tr>\n";
}

// A row with the names of runs, if there are several.
std::string namesRow(const std::vector<ReportedRun> &runs) {
  std::string row;
  for (const ReportedRun &run : runs)
    row += "<th>" + escapeMarkup(run.name) + "</th>";
  return runs.size() == 1 ? "" : "<tr><th></th>" + row + "</tr>\n";
}

// The last value under a key, or "" without one.
std::string lastOf(const std::vector<nlohmann::json> &records, const std::string &key, const char *pattern) {
  Series series = seriesOf(records, key, key);
  return series.points.empty() ? "" : format(pattern, series.points.back().second);
}

std::string shown(const nlohmann::json &value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string resultsTable(const std::vector<ReportedRun> &runs) {
  std::string table = "<div class=\"wide\"><table>\n" + namesRow(runs);
  auto add = [&](const std::string &name, auto valueOf) {
    std::vector<std::string> values;
    values.reserve(runs.size());
    for (const ReportedRun &run : runs)
      values.push_back(valueOf(run.records));
    if (std::ranges::any_of(values, [](const std::string &value) { return !value.empty(); }))
      table += tableRow(name, values);
  };
  for (auto [key, name, pattern] : {std::tuple{"step", "steps", "%.0f"}, {"loss", "loss", "%.4f"}})
    add(name, [&](const auto &records) { return lastOf(records, key, pattern); });
  add("time", [](const auto &records) {
    const std::string wall = lastOf(records, "wall", "%.17g");
    return wall.empty() ? "" : duration(std::strtod(wall.c_str(), nullptr));
  });
  for (auto [key, name, pattern] : {std::tuple{"wps", "target tokens per second", "%.0f"},
                                    {"valid_ppl", "perplexity, validation", "%.3f"},
                                    {"bleu", "BLEU, validation", "%.2f"},
                                    {"chrf", "chrF, validation", "%.2f"},
                                    {"ter", "TER, validation", "%.2f"}})
    add(name, [&](const auto &records) { return lastOf(records, key, pattern); });
  return table + "</table></div>\n";
}

// A curve of a chart: its name where a page has one run, its key in the log, and whether it is dashed where a page
// compares runs, and color tells these apart.
struct Curve {
  const char *name, *key;
  bool dashed = false;
};

std::string chartOf(const std::string &heading, const std::vector<ReportedRun> &runs,
                    const std::vector<Curve> &curves) {
  std::vector<Series> all;
  for (size_t i = 0; i < runs.size(); ++i)
    for (const Curve &curve : curves) {
      Series series = seriesOf(runs[i].records, curve.name, curve.key);
      if (runs.size() > 1) {
        series.name = curve.dashed ? "" : runs[i].name;
        series.color = static_cast<int>(i) % seriesColors;
        series.dashed = curve.dashed;
      }
      if (!series.points.empty())
        all.push_back(std::move(series));
    }
  return all.empty() ? "" : "<div><h2>" + escapeMarkup(heading) + "</h2>\n" + chartSvg(all) + "</div>\n";
}

std::string charts(const std::vector<ReportedRun> &runs) {
  const bool many = runs.size() > 1;
  std::string text = "<div class=\"charts\">\n";
  text += chartOf(many ? "Loss per target token, dashed: validation" : "Loss per target token", runs,
                  {{"training", "loss"}, {"validation", "valid_loss", true}});
  text += chartOf("Learning rate", runs, {{"learning rate", "lr"}});
  const std::vector<Curve> qualities = {{"BLEU", "bleu"}, {"chrF", "chrf"}, {"TER", "ter"}};
  if (many)
    for (const Curve &quality : qualities)
      text += chartOf(std::string(quality.name) + " on the validation text", runs, {quality});
  else
    text += chartOf("Translation quality on the validation text", runs, qualities);
  text += chartOf("Target tokens per second", runs, {{"tokens/s", "wps"}});
  text += chartOf("Norm of the gradient", runs, {{"norm", "gnorm"}});
  return text + "</div>\n";
}

// The translations of the last validation.
std::string samplesOf(const ReportedRun &run, bool named) {
  auto withSamples = std::find_if(run.records.rbegin(), run.records.rend(),
                                  [](const nlohmann::json &record) { return record.contains("samples"); });
  if (withSamples == run.records.rend())
    return "";
  std::string text =
      "<h2>Translations at step " +
      escapeMarkup(shown(withSamples->value("step", nlohmann::json(0))) + (named ? " of " + run.name : "")) +
      "</h2>\n<table class=\"sample\">\n";
  auto textOf = [](const nlohmann::json &sample, const char *key) {
    return sample.is_object() ? shown(sample.value(key, nlohmann::json(""))) : "";
  };
  for (const nlohmann::json &sample : (*withSamples)["samples"])
    text += "<tr><td><table>" + tableRow("source", {textOf(sample, "source")}) +
            tableRow("translation", {textOf(sample, "hypothesis")}) +
            tableRow("reference", {textOf(sample, "reference")}) + "</table></td></tr>\n";
  return text + "</table>\n";
}

// The settings of all runs: those that differ in a table with a column for each run, the others in one that opens on a
// click.
std::string settingsOf(const std::vector<ReportedRun> &runs) {
  std::set<std::string> keys;
  for (const ReportedRun &run : runs)
    if (run.configuration.is_object())
      for (const auto &[key, value] : run.configuration.items())
        keys.insert(key);
  std::string differing, common;
  for (const std::string &key : keys) {
    std::vector<std::string> values;
    values.reserve(runs.size());
    for (const ReportedRun &run : runs)
      values.push_back(run.configuration.is_object() && run.configuration.contains(key) ? shown(run.configuration[key])
                                                                                        : "–");
    if (std::ranges::adjacent_find(values, std::ranges::not_equal_to()) == values.end())
      common += tableRow(key, {values.front()});
    else
      differing += tableRow(key, values);
  }
  std::string text;
  if (!differing.empty())
    text +=
        "<h2>Options that differ</h2>\n<div class=\"wide\"><table>\n" + namesRow(runs) + differing + "</table></div>\n";
  if (!common.empty())
    text += std::string("<h2>Options</h2>\n<details><summary>of ") + (runs.size() == 1 ? "this run" : "all runs") +
            "</summary><table>\n" + common + "</table></details>\n";
  return text;
}

} // namespace

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

std::string reportPage(const std::vector<ReportedRun> &runs, const std::vector<ReportedFigure> &figures) {
  const bool one = runs.size() == 1;
  const std::string title = one ? "Training run " + runs.front().name : std::to_string(runs.size()) + " training runs";
  std::string body = "<h1>" + escapeMarkup(title) + "</h1>\n" + resultsTable(runs) + charts(runs);
  for (const ReportedRun &run : runs)
    body += samplesOf(run, !one);
  for (const ReportedFigure &figure : figures)
    body += "<h2>" + escapeMarkup(figure.heading) + "</h2>\n<p>" + escapeMarkup(figure.text) +
            "</p>\n<div class=\"wide\">" + figure.figure + "</div>\n";
  return htmlPage(title, reportStyle, body + settingsOf(runs));
}

} // namespace xfc
