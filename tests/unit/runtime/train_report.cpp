// Tests the page of `report` and its figures: curves, memory and time.
#include "decode/HeatMap.h"
#include "plan/Layout.h"
#include "plan/Memory.h"
#include "support/Error.h"
#include "support/Markup.h"
#include "train/Chart.h"
#include "train/FlameGraph.h"
#include "train/MemoryMap.h"
#include "train/Report.h"
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <regex>

using namespace xfc;

namespace {

using Json = nlohmann::json;

Json event(const char *kind, const char *name, double begin, double duration, Json arguments = Json::object(),
           int thread = 0) {
  return {{"ph", "X"},    {"pid", 0},    {"tid", thread},   {"cat", kind},
          {"name", name}, {"ts", begin}, {"dur", duration}, {"args", std::move(arguments)}};
}

// Two steps of one program: 5 and 3 us of a kernel on the main thread, 6 on another one.
Json smallTrace() {
  const Json inner = {{"program", "loss"}, {"place", "encoder.layers.0"}}, outer = {{"program", "loss"}};
  return {{"traceEvents",
           {{{"ph", "M"}, {"name", "process_name"}},
            event("step", "step 1", 0, 20),
            event("data", "batch", 1, 2),
            event("program", "loss", 4, 10),
            event("kernel", "linear", 5, 5, inner),
            event("kernel", "add<script>", 10, 3, outer),
            event("kernel", "linear", 4, 6, inner, 1),
            event("step", "step 2", 20, 4)}}};
}

const FlameFrame &partOf(const FlameFrame &frame, const std::string &name) {
  for (const FlameFrame &part : frame.parts)
    if (part.name == name)
      return part;
  throw Error(frame.name + ": has no " + name);
}

TEST(FlameGraph, EachNanosecondOfAThreadCountsOnce) {
  const StepProfile profile = profileOf(smallTrace(), "trace.json");
  EXPECT_EQ(profile.steps, 2);
  EXPECT_EQ(profile.all.nanoseconds, 24000 + 6000); // all of the main thread, and the other one's kernel
  EXPECT_EQ(partOf(profile.all, "step").nanoseconds, 20000 - 2000 - 10000 + 4000);
  EXPECT_EQ(partOf(profile.all, "data").nanoseconds, 2000);
  const FlameFrame &program = partOf(profile.all, "loss");
  EXPECT_EQ(program.nanoseconds, 10000 + 6000);
  EXPECT_EQ(partOf(program, "add<script>").nanoseconds, 3000);
  EXPECT_EQ(partOf(partOf(partOf(partOf(program, "encoder"), "layers"), "0"), "linear").nanoseconds, 11000);
  EXPECT_EQ(profile.all.parts.front().name, "loss") << "the largest comes first";
}

TEST(FlameGraph, PartsLieWithinTheirWholeSideBySide) {
  std::mt19937 random(1);
  Json events = Json::array();
  for (int i = 0; i < 3000; ++i)
    events.push_back(event("kernel", std::to_string(random() % 7).c_str(), i * 10, 1 + random() % 9,
                           {{"program", std::to_string(random() % 3)},
                            {"place", std::to_string(random() % 4) + "." + std::to_string(random() % 5)}}));
  const StepProfile profile = profileOf({{"traceEvents", events}}, "trace.json");
  const std::vector<FlameBox> boxes = flameBoxes(profile.all, 960, 0);
  EXPECT_EQ(boxes.size(), 1U + 3 + 3 * 4 + 3 * 4 * 5 + 3 * 4 * 5 * 7);
  double bottom = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const FlameBox &box = boxes[i];
    if (box.frame->parts.empty())
      bottom += box.width;
    if (!box.within)
      continue;
    EXPECT_EQ(box.depth, box.within->depth + 1);
    EXPECT_GE(box.x, box.within->x - 1e-9);
    EXPECT_LE(box.x + box.width, box.within->x + box.within->width + 1e-9);
    for (size_t j = i + 1; j < boxes.size(); ++j)
      if (boxes[j].depth == box.depth) {
        EXPECT_GE(boxes[j].x, box.x + box.width - 1e-9);
      }
  }
  EXPECT_NEAR(bottom, 960, 1e-6) << "kernels fill the drawing";
  EXPECT_LT(flameBoxes(profile.all, 960, 5).size(), boxes.size());
}

TEST(FlameGraph, NamesAreText) {
  const std::string svg = flameGraphSvg(profileOf(smallTrace(), "trace.json"));
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_NE(svg.find("loss › encoder › layers › 0 › linear: 0.005 ms a step, 36.7 %"), std::string::npos) << svg;
}

TEST(FlameGraph, OtherFilesAreErrors) {
  for (const char *text :
       {"5", "[]", "{}", R"({"traceEvents": 5})", R"({"traceEvents": []})", R"({"traceEvents": [5]})",
        R"({"traceEvents": [{"ph": "X", "cat": "step", "ts": 1, "dur": 1}]})",
        R"({"traceEvents": [{"ph": "X", "cat": "kernel", "ts": -1, "dur": 1}]})",
        R"({"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "dur": 1e300}]})",
        R"({"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "dur": "long"}]})"})
    EXPECT_THROW(profileOf(Json::parse(text), "trace.json"), Error) << text;
  // Names and places of any type and depth.
  std::string place;
  for (int i = 0; i < 1000; ++i)
    place += "a.";
  EXPECT_NO_THROW(profileOf({{"traceEvents",
                              {{{"ph", "X"}, {"cat", "kernel"}, {"name", 5}, {"ts", 0}, {"dur", 0}},
                               event("kernel", "k", 0, 1, {{"place", place}, {"program", 7}})}}},
                            "trace.json"));
}

Module smallModule() {
  Module module;
  module.kernels = {{.name = "linear<b>"}, {.name = "add"}};
  Program loss{.name = "loss"}, update{.name = "update"};
  for (int i = 0; i < 3; ++i)
    loss.steps.push_back({.kernel = i % 2, .location = i == 0 ? "encoder.layers.0" : "decoder"});
  update.steps.push_back({.kernel = 1});
  auto buffer = [](int64_t constant, int64_t ofRow, int32_t first, int32_t last) {
    Buffer made;
    made.size.constant = constant;
    made.size.rows[XFC_SOURCE] = ofRow;
    made.first = first;
    made.last = last;
    return made;
  };
  loss.buffers = {buffer(0, 64, 0, 1), buffer(100, 0, 1, 2), buffer(0, 0, 0, 2), buffer(0, 128, 2, 2)};
  update.buffers = {buffer(640, 0, 0, 1)}; // a result
  module.programs = {loss, update};
  return module;
}

TEST(MemoryMap, IsThePlansLayout) {
  const Module module = smallModule();
  Counts counts;
  counts.rows[XFC_SOURCE] = 10;
  const MemoryMap map = memoryMap(module, {"loss", "update"}, counts);
  const Layout layout = plan(module, *module.find("loss"), counts);
  EXPECT_EQ(map.programs, (std::vector<std::pair<std::string, int64_t>>{{"loss", 0}, {"update", 3}}));
  ASSERT_EQ(map.buffers.size(), 4U) << "the empty one is left out";
  for (auto [at, index] : {std::pair{0, 0}, {1, 1}, {2, 3}}) {
    const MappedBuffer &mapped = map.buffers[at];
    const Buffer &buffer = module.find("loss")->buffers[index];
    EXPECT_EQ(mapped.offset, layout.offsets[index]);
    EXPECT_EQ(mapped.bytes, evaluate(buffer.size, counts));
    EXPECT_EQ(mapped.first, buffer.first);
    EXPECT_EQ(mapped.last, buffer.last);
  }
  EXPECT_EQ(map.buffers[3].first, 3);
  EXPECT_EQ(map.buffers[3].last, 3) << "the last launch";
  EXPECT_EQ(map.buffers[0].place, "encoder.layers.0");
  EXPECT_EQ(map.live, (std::vector<int64_t>{640, 740, 1380, 640}));
  EXPECT_EQ(map.arena, predictMemory(module, {"loss", "update"}, counts, 1).arena);
  EXPECT_THROW(memoryMap(module, {"none"}, counts), Error);
}

TEST(MemoryMap, HasGradientsFromTheLaunchThatComputesThem) {
  Module module;
  module.parameterElements = 64;
  module.kernels = {{.name = "grad"}, {.name = "norm"}};
  Program gradients{.name = "loss_and_gradients"}, update{.name = "update"};
  gradients.steps.resize(2);
  gradients.steps[1].location = "decoder";
  gradients.steps[1].buffers = {{Place::Kind::Gradients, 0, 64}};
  gradients.steps[1].results = {{0, DType::F32, -1, -1, 32}};
  update.steps = {{.kernel = 1, .buffers = {{Place::Kind::Gradients, 0, 0}}}};
  module.programs = {gradients, update};
  const MemoryMap map = memoryMap(module, {"loss_and_gradients", "update"}, {});
  ASSERT_EQ(map.buffers.size(), 4U);
  EXPECT_EQ(map.buffers[1].offset, 64);
  EXPECT_EQ(map.buffers[1].bytes, 128);
  EXPECT_EQ(map.buffers[1].first, 1);
  EXPECT_EQ(map.buffers[1].place, "decoder");
  EXPECT_EQ(map.buffers[3].kernel, "norm");
  EXPECT_EQ(map.live, (std::vector<int64_t>{128, 256, 256})) << "what is never computed is there always, as zeros";
  EXPECT_EQ(map.arena, 256);
}

TEST(MemoryMap, BoxesLieWithinTheFigure) {
  Counts counts;
  counts.rows[XFC_SOURCE] = 10;
  const std::string svg = memoryMapSvg(memoryMap(smallModule(), {"loss", "update"}, counts));
  const std::regex box("<rect class=\"series[0-7] edge\" x=\"([0-9.]+)\" y=\"([0-9.]+)\" width=\"([0-9.]+)\" "
                       "height=\"([0-9.]+)\"");
  int boxes = 0;
  for (std::sregex_iterator found(svg.begin(), svg.end(), box), none; found != none; ++found, ++boxes) {
    auto number = [&](int i) { return std::stod((*found)[i]); };
    EXPECT_GE(number(1), 62);
    EXPECT_LE(number(1) + number(3), 952.02);
    EXPECT_GE(number(2), 19.98);
    EXPECT_LE(number(2) + number(4), 346.02);
  }
  EXPECT_EQ(boxes, 4);
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  for (const char *part : {">encoder<", ">decoder<", ">other<", "640 bytes at ", ">update<"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  EXPECT_NE(memoryMapSvg({}).find("</svg>"), std::string::npos);
}

TEST(HeatMap, OpacitiesOfARowAddUpToItsWeights) {
  const std::vector<double> weights = {0.25, 0.75, 0, 0.1, 0.2, 0.7};
  const std::string svg = heatMapSvg(weights, {"<script>", "日本語"}, {"a", "b", "c"});
  const std::regex cell("y=\"([0-9.]+)\" width=\"26\"[^>]*fill-opacity=\"([0-9.]+)\"");
  std::map<std::string, double> rows;
  for (std::sregex_iterator found(svg.begin(), svg.end(), cell), none; found != none; ++found)
    rows[(*found)[1]] += std::stod((*found)[2]);
  ASSERT_EQ(rows.size(), 2U);
  for (const auto &[y, sum] : rows)
    EXPECT_NEAR(sum, 1, 0.002) << y;
  EXPECT_EQ(svg.find("<script"), std::string::npos);
}

TEST(Legend, NamesNeitherOverlapNorLeaveTheFigure) {
  std::vector<std::string> names;
  for (size_t i = 0; i < 8; ++i)
    names.push_back(std::string(i * 12, 'r') + "run");
  names.push_back("長い名前" + std::string(200, 'x'));
  const LegendLines legend(names, 404);
  const std::string svg = legend.svg(62, 260);
  const std::regex entry("<text fill=\"currentColor\" x=\"([0-9.]+)\" y=\"([0-9.]+)\">([^<]*)<");
  double lastY = 0, end = 0;
  size_t count = 0;
  for (std::sregex_iterator found(svg.begin(), svg.end(), entry), none; found != none; ++found, ++count) {
    const double x = std::stod((*found)[1]), y = std::stod((*found)[2]);
    if (y == lastY)
      EXPECT_GE(x, end);
    else
      EXPECT_GE(y, lastY + 15);
    end = x + 6.7 * static_cast<double>(columnsOf((*found)[3].str()));
    EXPECT_LE(end, 62 + 404 + 6.7);
    lastY = y;
  }
  EXPECT_EQ(count, names.size());
  EXPECT_LE(lastY, 260 + legend.height());
}

TEST(Markup, EndsOfLongTexts) {
  EXPECT_EQ(escapedEnd("runs/a<b>", 20), "runs/a&lt;b&gt;");
  EXPECT_EQ(escapedEnd("runs/a<b>", 4), "…&lt;b&gt;");
  EXPECT_EQ(escapedEnd("日本語", 5), "…本語");
  EXPECT_EQ(escapedEnd("日本語", 4), "…語");
  EXPECT_EQ(columnsOf("é日"), 3);
  EXPECT_EQ(columnsOf("\xff\xc3"), 3) << "U+1100 and what no text has";
}

TEST(Report, OfAnyNumbers) {
  for (const std::vector<double> &losses : std::vector<std::vector<double>>{{1, std::nextafter(1.0, 2)},
                                                                            {1e300, std::nextafter(1e300, INFINITY)},
                                                                            {-1e308, 1e308},
                                                                            {5e-324, 1e-323},
                                                                            {NAN, INFINITY},
                                                                            {3}}) {
    Series series{"loss", {}};
    for (size_t i = 0; i < losses.size(); ++i)
      series.points.emplace_back(static_cast<double>(i), losses[i]);
    EXPECT_LT(chartSvg({series}).size(), 10000u) << losses[0];
  }
  EXPECT_LT(chartSvg({{"x", {{1e17, 1}, {std::nextafter(1e17, 1e18), 2}}}}).size(), 10000u);
}

TEST(Report, DrawsTheLongestSampleThatFits) {
  const auto source = [](size_t length) { return nlohmann::json{{"source", std::string(length, 'a')}}; };
  EXPECT_EQ(sampleToDraw({{{"samples", {source(3), source(80)}}}, {{"samples", {source(81), source(5)}}}}).size(), 80u);
  // Records whose samples have another form than those that a run writes are skipped.
  for (const char *samples : {"5", "[5]", "[\"x\"]", "[{\"source\": 5}]", "[{}]", "null", "{\"source\": \"x\"}"})
    EXPECT_EQ(sampleToDraw({{{"samples", nlohmann::json::parse(samples)}}, {{"samples", {source(3)}}}}), "aaa")
        << samples;
}

TEST(Report, FormatIsAString) {
  EXPECT_EQ(formatOf(nlohmann::json::object()), Format::Text);
  EXPECT_EQ(formatOf({{"format", "ids"}}), Format::Ids);
  EXPECT_THROW(formatOf({{"format", 5}}), Error);
}

TEST(Report, StepsAreText) {
  const std::string page =
      reportPage({{"run", {{{"step", "<script>alert(1)</script>"}, {"samples", nlohmann::json::array()}}}, {}}}, {});
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_NE(page.find("&lt;script"), std::string::npos);
}

TEST(Report, HasCurvesSamplesAndNothingFromOutside) {
  std::vector<nlohmann::json> records = {
      {{"step", 1}, {"loss", 5.0}, {"lr", 0.1}, {"wps", 100.0}, {"gnorm", 1.0}, {"wall", 1.0}},
      {{"step", 2}, {"loss", 4.0}, {"lr", 0.2}, {"wps", 110.0}, {"gnorm", 1.0}, {"wall", 2.0}},
      {{"step", 2},
       {"valid_loss", 4.5},
       {"bleu", 12.5},
       {"chrf", 30.0},
       {"samples", {{{"source", "<a> & b"}, {"hypothesis", "x"}, {"reference", "y"}}}}}};
  std::string page =
      reportPage({{"run", records, {{"steps", 2}}}}, {{"Attention", "of a line", "<svg id=\"attention\"></svg>"}});
  for (const char *part : {"Loss per target token", "Learning rate", "Target tokens per second", "12.50",
                           "&lt;a&gt; &amp; b", "id=\"attention\""})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("<a> & b"), std::string::npos);
}

TEST(Report, ComparesRuns) {
  const std::vector<ReportedRun> runs = {
      {"a", {{{"step", 1}, {"loss", 5.0}}, {{"step", 2}, {"loss", 4.0}, {"bleu", 1.5}}}, {{"lr", 1}, {"seed", 7}}},
      {"<script>b", {{{"step", 1}, {"loss", 3.0}, {"valid_loss", 3.5}}}, {{"lr", 2}, {"seed", 7}, {"ema", 0.5}}}};
  const std::string page = reportPage(runs, {});
  EXPECT_EQ(page.find("<script"), std::string::npos);
  for (const char *part :
       {"2 training runs", "<tr><th></th><th>a</th><th>&lt;script&gt;b</th></tr>",
        "<tr><th>loss</th><td>4.0000</td><td>3.0000</td></tr>",
        "<tr><th>BLEU, validation</th><td>1.50</td><td></td></tr>", "<tr><th>lr</th><td>1</td><td>2</td></tr>",
        "<tr><th>ema</th><td>–</td><td>0.5</td></tr>", "<tr><th>seed</th><td>7</td></tr>", "stroke-dasharray"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  // One chart has the losses of both runs, each in its color and with its name.
  const size_t chart = page.find("Loss per target token"), end = page.find("</svg>", chart);
  const std::string losses = page.substr(chart, end - chart);
  for (const char *part : {">a</text>", ">&lt;script&gt;b</text>", "class=\"series0\"", "class=\"series1\""})
    EXPECT_NE(losses.find(part), std::string::npos) << part;
}

} // namespace
