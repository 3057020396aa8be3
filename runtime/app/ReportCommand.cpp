// `report`: turns a training run's log into one HTML page with curves, translations and a drawing of attention.
#include "app/Commands.h"
#include "decode/Alignment.h"
#include "decode/Defaults.h"
#include "decode/ModelOptions.h"
#include "decode/Search.h"
#include "support/Files.h"
#include "support/Json.h"
#include "support/Quoted.h"
#include "text/HeatMap.h"
#include "train/Log.h"
#include "train/Report.h"
#include <cstdio>

namespace xfc {
namespace {

struct ReportOptions {
  std::string folder, output;
};

nlohmann::json configurationOf(const std::string &folder) {
  std::string file = folder + "/config.json";
  if (!exists(file))
    return nlohmann::json::object();
  const std::optional<nlohmann::json> configuration = jsonIn(readFile(file));
  return configuration && configuration->is_object() ? *configuration : nlohmann::json::object();
}

// Draws the cross-attention of the run's model for one of its samples. Empty if there is no sample;
// throws Error if the model cannot draw one.
std::string drawAttention(const std::string &folder, const std::vector<nlohmann::json> &records,
                          const nlohmann::json &configuration) {
  const std::string source = sampleToDraw(records);
  if (source.empty())
    return "";
  ModelOptions options;
  options.model = folder;
  options.format = formatOf(configuration);
  TranslationModel model = loadModel(options);
  std::vector<int32_t> ids = encodeSource(model, source, options.format, "the sample");
  SearchOptions search;
  search.generation = generationOf(model.engine->module(), folder);
  std::vector<std::vector<Hypothesis>> found = xfc::search(*model.engine, {ids}, search);
  if (found.empty() || found[0].empty())
    return "";
  const std::vector<int32_t> &target = found[0][0].ids;
  CrossAttention attention = crossAttention(*model.engine, ids, target);
  std::vector<std::string> rows, columns;
  for (int32_t id : target)
    rows.push_back(model.target->piece(id));
  rows.push_back(model.target->piece(model.engine->module().eos));
  for (int32_t id : ids)
    columns.push_back(model.source->piece(id));
  return heatMapSvg(attention.weights, rows, columns);
}

void run(const ReportOptions &options) {
  std::string log = options.folder + "/train.jsonl";
  if (!exists(log))
    throw Error(options.folder + ": holds no train.jsonl; expected the --out folder of train");
  std::vector<nlohmann::json> records = readLog(log);
  if (records.empty())
    throw Error(log + ": holds no record yet; let train run a few steps first");
  const std::string output = options.output.empty() ? options.folder + "/report.html" : options.output;
  checkWritable(output);
  nlohmann::json configuration = configurationOf(options.folder);
  std::string attention;
  try {
    attention = drawAttention(options.folder, records, configuration);
  } catch (const Error &error) {
    std::fprintf(stderr, "report: leaving out the drawing of attention: %s\n", oneLine(error.what()).c_str());
  }
  std::string page;
  try {
    page = reportPage("Training run " + options.folder, records, configuration, attention);
  } catch (const nlohmann::json::exception &) {
    throw Error(log + ": a record has a value of a type that train does not write; remove its line");
  }
  writeFile(output, page);
  std::fprintf(stderr, "report: wrote %s\n", output.c_str());
}

} // namespace

void addReport(Command app) {
  Command command = app.addVerb("report", "write a training run's curves and sample translations as one HTML page",
                                "translator report run -o report.html");
  auto options = std::make_shared<ReportOptions>();
  command.addOption("folder", options->folder, "the --out folder of train").required();
  command.addOption("-o,--output", options->output, "the page to write (default: report.html in the folder)");
  command.setWork([options] { run(*options); });
}

} // namespace xfc
