// `translate`: turns lines of the source language into lines of the target language.
#include "app/Commands.h"
#include "app/ResultWriter.h"
#include "decode/Alignment.h"
#include "decode/Defaults.h"
#include "decode/Flags.h"
#include "decode/ModelOptions.h"
#include "decode/Search.h"
#include "support/CommandLine.h"
#include "support/Confinement.h"
#include "support/Files.h"
#include "support/Progress.h"
#include "text/HeatMap.h"
#include "text/LinePairs.h"
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

namespace xfc {

namespace {

struct TranslateOptions {
  ModelOptions model;
  SearchFlags search;
  std::string input = "-", output = "-", prefix, attentionSvg;
  bool scores = false, alignments = false, json = false;
};

std::string format(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

class Translation {
public:
  explicit Translation(TranslateOptions &options) : options(options), model(loadModel(options.model)) {
    options.search.resolve(generationOf(model.engine->module(), options.model.model), *model.target);
  }

  // Translates one window after another, so that a stream may be longer than memory, and a caller that waits for an
  // answer gets it.
  void run() {
    ResultWriter output(options.output);
    if (!options.attentionSvg.empty() && options.attentionSvg != "-")
      checkWritable(options.attentionSvg);
    LineReader input(options.input, longestLine);
    std::optional<LineReader> prefixInput;
    if (!options.prefix.empty())
      prefixInput.emplace(options.prefix, longestLine);
    ProgressBar bar(options.model.quiet);
    size_t done = 0; // sentences
    bool drawn = options.attentionSvg.empty();
    while (readWindow(input, prefixInput ? &*prefixInput : nullptr)) {
      std::vector<std::vector<int32_t>> filled, forced;
      for (size_t line : searched) {
        filled.push_back(sources[line]);
        if (prefixInput)
          forced.push_back(prefixes[line]);
      }
      const size_t before = done;
      const bool last = input.atLast();
      found = search(
          *model.engine, filled, options.search.options, forced,
          [&](size_t) {
            ++done;
            if (last)
              bar.update(static_cast<double>(done) / static_cast<double>(before + searched.size()),
                         std::to_string(done) + " of " + std::to_string(before + searched.size()) + " sentences");
            else
              bar.update(input.fraction(), std::to_string(done) + " sentences");
          },
          before);
      std::string text;
      const std::vector<Hypothesis> none;
      for (size_t line = 0, next = 0; line < lines.size(); ++line) {
        const bool empty = next == searched.size() || searched[next] != line;
        const std::vector<Hypothesis> &hypotheses = empty ? none : found[next++];
        text += options.json ? jsonLine(line, hypotheses) : textLines(line, hypotheses);
      }
      output.write(text);
      if (!drawn && !searched.empty() && !found.front().empty()) {
        draw(searched.front(), found.front().front());
        drawn = true;
      }
    }
    output.commit();
  }

private:
  // Reads the next window; false at the end of the input.
  bool readWindow(LineReader &input, LineReader *prefixInput) {
    first = static_cast<size_t>(input.number());
    lines.clear(), sources.clear(), prefixes.clear(), searched.clear();
    constexpr int patience = 50; // milliseconds to wait for more of a stream
    size_t bytes = 0;
    for (std::string line; lines.size() < windowLines && bytes < windowBytes &&
                           (lines.empty() || input.ready(patience)) && input.next(line);) {
      bytes += line.size();
      sources.push_back(encodeSource(model, line, options.model.format, input.where()));
      if (!sources.back().empty())
        searched.push_back(lines.size());
      lines.push_back(std::move(line));
      if (prefixInput)
        readPrefix(input, *prefixInput);
    }
    if (std::string line; prefixInput && lines.empty() && prefixInput->next(line))
      wrongPrefixes(input, *prefixInput);
    return !lines.empty();
  }

  void readPrefix(LineReader &input, LineReader &prefixInput) {
    std::string line;
    if (!prefixInput.next(line))
      wrongPrefixes(input, prefixInput);
    prefixes.push_back(encodePrefix(model, line, options.search.options, options.model.format, prefixInput.where()));
  }

  // Reports that lines and prefixes differ in number, after counting the rest of both.
  [[noreturn]] void wrongPrefixes(LineReader &input, LineReader &prefixInput) {
    for (LineReader *reader : {&input, &prefixInput})
      for (std::string line; reader->isFile() && reader->next(line);) {
      }
    throw Error(options.prefix + ": " + std::to_string(prefixInput.number()) + " prefixes for " +
                std::to_string(input.number()) + (input.isFile() ? "" : " or more") +
                " lines; give one prefix per line (an empty line for none)");
  }

  // Alignments count the line's own tokens, without the frame that encodeSource adds.
  std::vector<std::pair<int64_t, int64_t>> alignment(size_t line, const Hypothesis &hypothesis) {
    const auto [prefix, suffix] = model.source->sourceFrame(model.engine->module(), options.model.format);
    return hardAlignment(crossAttention(*model.engine, sources[line], hypothesis.ids),
                         static_cast<int64_t>(sources[line].size() - prefix.size() - suffix.size()),
                         static_cast<int64_t>(prefix.size()));
  }

  std::string textLines(size_t line, const std::vector<Hypothesis> &hypotheses) {
    std::string number = options.search.options.nBest > 1 ? std::to_string(first + line + 1) + "\t" : "";
    if (hypotheses.empty())
      return number + (options.scores ? "\t0" : "") + (options.alignments ? "\t" : "") + "\n";
    std::string text;
    for (const Hypothesis &hypothesis : hypotheses) {
      std::string translation = decodeTarget(model, hypothesis.ids, options.search.options, options.model.format);
      // A vocabulary with byte pieces can produce a newline; a translation is one line.
      std::replace(translation.begin(), translation.end(), '\n', ' ');
      text += number + translation;
      if (options.scores)
        text += "\t" + format(hypothesis.score);
      if (options.alignments) {
        text += "\t";
        bool first = true;
        for (auto [i, j] : alignment(line, hypothesis)) {
          text += (first ? "" : " ") + std::to_string(i) + "-" + std::to_string(j);
          first = false;
        }
      }
      text += "\n";
    }
    return text;
  }

  std::string jsonLine(size_t line, const std::vector<Hypothesis> &hypotheses) {
    using Json = nlohmann::ordered_json;
    Json object = {
        {"line", first + line + 1}, {"source", lines[line]}, {"translation", ""}, {"hypotheses", Json::array()}};
    for (const Hypothesis &hypothesis : hypotheses) {
      Json entry = {{"text", decodeTarget(model, hypothesis.ids, options.search.options, options.model.format)},
                    {"score", hypothesis.score},
                    {"log_probability", hypothesis.logProbability},
                    {"ids", hypothesis.ids}};
      if (options.alignments)
        entry["alignment"] = alignment(line, hypothesis);
      object["hypotheses"].push_back(std::move(entry));
    }
    if (!hypotheses.empty())
      object["translation"] = object["hypotheses"][0]["text"];
    // Bytes that are not valid UTF-8 become U+FFFD.
    return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  void draw(size_t line, const Hypothesis &hypothesis) {
    CrossAttention attention = crossAttention(*model.engine, sources[line], hypothesis.ids);
    std::vector<std::string> columns, rows;
    for (int32_t id : sources[line])
      columns.push_back(model.source->piece(id));
    for (int32_t id : hypothesis.ids)
      rows.push_back(model.target->piece(id));
    rows.push_back(model.target->piece(model.engine->module().eos));
    ResultWriter drawing(options.attentionSvg);
    drawing.write(heatMapSvg(attention.weights, rows, columns));
    drawing.commit();
  }

  TranslateOptions &options;
  TranslationModel model;
  // The current window.
  size_t first = 0; // lines before it
  std::vector<std::string> lines;
  std::vector<std::vector<int32_t>> sources, prefixes; // by line
  std::vector<size_t> searched;                        // lines that are not empty
  std::vector<std::vector<Hypothesis>> found;          // for these lines
};

} // namespace

void addTranslate(Command app) {
  Command command =
      app.addVerb("translate", "translate lines", "echo \"How are you?\" | translator translate --model run");
  auto options = std::make_shared<TranslateOptions>();
  options->model.addTo(command);
  options->model.addVocabularyTo(command);
  command.setSubject("Input and output");
  command.addOption("--input", options->input, "lines to translate; -: standard input").showDefault();
  command.addOption("--output", options->output, "translations, one per line; -: standard output").showDefault();
  options->search.addTo(command);
  options->search.addSamplingTo(command);
  command.addOption("--prefix", options->prefix, "forced beginnings of the translations, one per line");
  command.addFlag("--scores", options->scores, "write a tab and the score after each translation");
  command.addFlag("--alignments", options->alignments,
                  "write a tab and i-j pairs (source token - target token, from 0) after each translation");
  command.addOption("--attention-svg", options->attentionSvg,
                    "file for a drawing of the first sentence's cross-attention");
  command.addFlag("--json", options->json, "one JSON object per line: line, source, translation, hypotheses");
  addComputeType(command, options->search.options.computeType);
  command.setWork([options] {
    if (options->attentionSvg == "-" && options->output == "-")
      throw UsageError("--attention-svg", "a drawing and translations cannot both go to standard output");
    confineOn(options->model.device.device, {options->output, options->attentionSvg});
    Translation(*options).run();
  });
}

} // namespace xfc
