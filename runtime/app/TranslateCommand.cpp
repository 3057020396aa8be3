// `translate`: turns lines of the source language into lines of the target language.
#include "app/Commands.h"
#include "app/JsonLines.h"
#include "app/ResultWriter.h"
#include "corpora/LinePairs.h"
#include "decode/Choice.h"
#include "decode/Context.h"
#include "decode/Decoder.h"
#include "decode/Defaults.h"
#include "decode/Flags.h"
#include "decode/HeatMap.h"
#include "decode/ModelOptions.h"
#include "decode/Rescoring.h"
#include "decode/Search.h"
#include "decode/Translations.h"
#include "serve/Documents.h"
#include "support/CommandLine.h"
#include "support/Confinement.h"
#include "support/FileWriter.h"
#include "support/Format.h"
#include "support/LineReader.h"
#include "support/Progress.h"
#include "tokenizers/Sentences.h"
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace xfc {

namespace {

struct TranslateOptions {
  ModelOptions model;
  SearchFlags search;
  std::string input = "-", output = "-", prefix, constraints, attentionSvg;
  bool scores = false, json = false, jsonInput = false, document = false;
  int64_t documentTokens = 0; // 0: any number
};

// A file with a line for each line of the input, such as forced beginnings.
class LinesBeside {
public:
  // `what` they are, in messages, and `expected`: what to give.
  LinesBeside(const std::string &file, std::string what, std::string expected)
      : reader(file, longestLine), what(std::move(what)), expected(std::move(expected)) {}
  // The line for the input's last line.
  std::string next(LineReader &input) {
    std::string line;
    if (!reader.next(line))
      refuse(input);
    return line;
  }
  // Throws Error if there are more lines than the input has.
  void end(LineReader &input) {
    if (std::string line; reader.next(line))
      refuse(input);
  }
  std::string where() const { return reader.where(); }

private:
  // Reports that the numbers of lines differ, after counting the rest of both.
  [[noreturn]] void refuse(LineReader &input) {
    for (LineReader *one : {&input, &reader})
      for (std::string line; one->isFile() && one->next(line);) {
      }
    throw Error(reader.name() + ": " + std::to_string(reader.number()) + " " + what + " for " +
                std::to_string(input.number()) + (input.isFile() ? "" : " or more") + " lines of " + input.name() +
                "; give " + expected);
  }

  LineReader reader;
  std::string what, expected;
};

class Translator {
public:
  explicit Translator(TranslateOptions &options) : options(options), model(loadModel(options.model)) {
    options.search.resolve(generationOf(model.engine->module(), options.model.model), *model.target);
    requireDetails(model, options.search.options, options.model.format);
    if (const SearchOptions &search = options.search.options;
        model.draft && (draftsOf(search, 1) == 0 || search.nBest > 1 || search.generation.beamGroups > 1))
      throw Error("--draft drafts a single hypothesis; it needs --beam 1, or --sample, without --n-best, --mbr and "
                  "--beam-groups");
    if (!options.attentionSvg.empty())
      requireCrossAttention(model.models(), "--attention-svg");
    if (options.document)
      requireDocument();
  }

  // Translates one window after another, so that a stream may be longer than memory, and a caller that waits for an
  // answer gets it.
  void run() {
    ResultWriter output(options.output);
    if (!options.attentionSvg.empty() && options.attentionSvg != "-")
      checkWritable(options.attentionSvg);
    LineReader input(options.input, longestLine);
    if (!options.prefix.empty())
      prefixInput.emplace(options.prefix, "prefixes", "one prefix per line (an empty line for none)");
    if (!options.constraints.empty())
      constraintInput.emplace(options.constraints, "lines of constraints",
                              "one line of constraints per line (an empty line for none)");
    ProgressBar bar(options.model.quiet);
    size_t done = 0; // sentences
    while (readWindow(input)) {
      const bool last = input.atLast();
      const std::function<void(size_t)> progress = [&](size_t) {
        ++done;
        if (last)
          bar.update(static_cast<double>(done) / static_cast<double>(searched),
                     std::to_string(done) + " of " + std::to_string(searched) + " sentences");
        else
          bar.update(input.fraction(), std::to_string(done) + " sentences");
      };
      if (options.search.options.context.sentences > 0) {
        findInContext(progress);
      } else {
        std::vector<InputLine *> all;
        for (InputLine &line : lines)
          if (!line.source.empty())
            all.push_back(&line);
        find(all, progress);
      }
      write(output);
    }
    output.commit();
  }

private:
  // What a translation that consists of several has no place for.
  void requireDocument() const {
    const SearchOptions &search = options.search.options;
    if (options.model.format != Format::Text)
      throw Error("--document excludes --format " +
                  std::string(options.model.format == Format::Ids ? "ids" : "pieces") +
                  ": sentences are parts of a text");
    if (options.json)
      return;
    const char *one = options.scores                                           ? "--scores"
                      : search.nBest > 1                                       ? "--n-best"
                      : search.details.tokenScores                             ? "--token-scores"
                      : search.details.alignments != Details::Alignments::None ? "--alignments"
                                                                               : nullptr;
    if (one)
      throw Error(std::string(one) + " with --document needs --json, which tells it of each sentence");
  }

  // A line of the input, or a sentence of --document, and what is found for it.
  struct InputLine {
    std::string text, place;             // place: file and number
    std::vector<int32_t> source, prefix; // as the search takes them
    ContextTokens context = {};
    std::vector<Constraint> constraints = {};
    std::vector<ProtectedPart> parts = {};
    size_t number = 0; // of those that are not empty
    std::vector<Hypothesis> found = {};
    std::optional<TranslatedLine> told = {}; // once others are translated given it
  };

  // Searches for the translations of these lines, which are not empty.
  void find(const std::vector<InputLine *> &some, const std::function<void(size_t)> &done) {
    std::vector<std::vector<int32_t>> sources, prefixes;
    std::vector<std::vector<Constraint>> constraints;
    std::vector<size_t> numbers;
    std::vector<std::string> places;
    for (const InputLine *line : some) {
      sources.push_back(line->source);
      prefixes.push_back(line->prefix);
      constraints.push_back(line->constraints);
      numbers.push_back(line->number);
      places.push_back(line->place);
    }
    const SearchOptions asked = searchedFor(model, options.search.options);
    std::vector<std::vector<Hypothesis>> found =
        search(model.models(), sources, asked, prefixes, constraints, done, numbers, places);
    for (size_t i = 0; i < found.size(); ++i)
      found[i] = chosen(model, sources[i], std::move(found[i]), asked, options.model.format);
    rescore(model, sources, options.search.options, options.model.format, found);
    for (size_t i = 0; i < found.size(); ++i)
      some[i]->found = std::move(found[i]);
    if (!drawn && !some.empty() && !some.front()->found.empty()) {
      draw(*some.front());
      drawn = true;
    }
  }

  // The first sentences of all documents, then the second ones, and so on: each is translated given those before it.
  void findInContext(const std::function<void(size_t)> &done) {
    std::vector<DocumentContext> contexts(documents.size());
    for (size_t round = 0, left = documents.size(); left > 0; ++round) {
      left = 0;
      std::vector<InputLine *> now;
      std::vector<DocumentContext *> its;
      size_t first = 0; // of the document's sentences
      for (size_t i = 0; i < documents.size(); first += documents[i++].lines().size()) {
        if (round >= documents[i].lines().size())
          continue;
        ++left;
        InputLine &line = lines[first + round];
        if (line.source.empty())
          continue;
        SentenceInContext given =
            contexts[i].next(model, line.text, options.search.options, line.place, options.documentTokens);
        line.source = std::move(given.source);
        line.prefix = std::move(given.prefix);
        line.context = given.context;
        protect(line);
        now.push_back(&line);
        its.push_back(&contexts[i]);
      }
      find(now, done);
      for (size_t i = 0; i < now.size(); ++i) {
        now[i]->told = tell(*now[i]);
        its[i]->add(now[i]->text, now[i]->told->found.empty() ? "" : now[i]->told->found.front().text);
      }
    }
  }

  TranslatedLine tell(InputLine &line) {
    if (line.told)
      return std::move(*line.told);
    return translatedLine(model, {line.text, line.source, line.parts, line.place, line.context}, std::move(line.found),
                          options.search.options, options.model.format);
  }

  // Writes the translations of the window.
  void write(ResultWriter &output) {
    std::string text;
    size_t line = 0;
    const size_t count = options.document ? documents.size() : lines.size();
    for (size_t i = 0; i < count; ++i) {
      if (!options.document) {
        const TranslatedLine one = tell(lines[i]);
        text += options.json ? jsonLine(i, lines[i].text, jsonOf(one)) : textLines(i, one);
      } else {
        std::vector<std::string> best;
        nlohmann::ordered_json sentences = nlohmann::ordered_json::array();
        for (size_t sentence = 0; sentence < documents[i].lines().size(); ++sentence, ++line) {
          const TranslatedLine one = tell(lines[line]);
          best.push_back(one.found.empty() ? "" : one.found.front().text);
          if (options.json) {
            sentences.push_back({{"source", lines[line].text}});
            sentences.back().update(jsonOf(one));
          }
        }
        const std::string whole = documents[i].with(best);
        text += options.json ? jsonLine(i, documentLines[i], {{"translation", whole}, {"sentences", sentences}})
                             : whole + "\n";
      }
      if (text.size() >= windowBytes) // attention takes far more than the lines
        output.write(std::exchange(text, {}));
    }
    output.write(text);
  }

  // Reads the next window; false at the end of the input. Of sentences that others are translated given, all that is
  // told of a window is kept in memory: it is smaller.
  bool readWindow(LineReader &input) {
    first = static_cast<size_t>(input.number());
    lines.clear(), objects.clear(), documents.clear(), documentLines.clear();
    constexpr int patience = 50; // milliseconds to wait for more of a stream
    const bool inContext = options.search.options.context.sentences > 0;
    const size_t mostLines = inContext ? windowLines / 32 : windowLines,
                 mostBytes = inContext ? windowBytes / 32 : windowBytes;
    size_t bytes = 0;
    const auto empty = [&] { return lines.empty() && documents.empty(); };
    for (std::string line; std::max(lines.size(), documents.size()) < mostLines && bytes < mostBytes &&
                           (empty() || input.ready(patience)) && input.next(line);) {
      bytes += line.size();
      if (options.jsonInput)
        objects.push_back(readJsonLine(line, input.where(), options.document));
      std::string text = options.jsonInput ? objects.back().source : line;
      if (options.document) {
        Document document = Document::ofText(text);
        document.split(sentencesOf);
        document.split([&](std::string_view part) { return fittingParts(model, part, options.documentTokens); });
        for (const std::string &sentence : document.lines()) {
          addLine(sentence, input.where());
          if (!inContext)
            protect(lines.back());
        }
        documents.push_back(std::move(document));
        documentLines.push_back(std::move(text));
        continue;
      }
      addLine(std::move(text), input.where());
      readBeside(input);
      protect(lines.back());
    }
    for (std::optional<LinesBeside> *beside : {&prefixInput, &constraintInput})
      if (*beside && empty())
        (*beside)->end(input);
    return !empty();
  }

  void addLine(std::string text, const std::string &place) {
    InputLine &line = lines.emplace_back(std::move(text), place);
    line.source = encodeSource(model, line.text, options.model.format, place);
    line.number = searched;
    searched += !line.source.empty();
  }

  // Reads what the last line's translation is to begin with, and to contain.
  void readBeside(LineReader &input) {
    InputLine &line = lines.back();
    const Format format = options.model.format;
    const auto forced = [&](const std::string &prefix, const std::string &where) {
      line.prefix = encodePrefix(model, prefix, options.search.options, format, where);
    };
    if (!objects.empty()) {
      forced(objects.back().prefix, line.place + ": prefix");
      line.constraints = encodeConstraints(model, objects.back().constraints, format, line.place);
    }
    if (prefixInput) {
      const std::string prefix = prefixInput->next(input);
      forced(prefix, prefixInput->where());
    }
    if (constraintInput) {
      const std::vector<ConstraintText> texts = constraintsOfLine(constraintInput->next(input));
      line.constraints = encodeConstraints(model, texts, format, constraintInput->where());
    }
  }

  // Adds the parts of the line that its translation must have.
  void protect(InputLine &line) {
    if (!options.search.options.protect.empty() && !line.source.empty())
      line.parts = protectParts(model, line.text, line.source, line.prefix, options.search.options, line.constraints);
  }

  std::string textLines(size_t line, const TranslatedLine &translated) {
    const std::string number = options.search.options.nBest > 1 ? std::to_string(first + line + 1) + "\t" : "";
    if (translated.found.empty())
      return number + (options.scores ? "\t0" : "") + detailsAsText(translated.details, nullptr) + "\n";
    std::string text;
    for (const Translation &translation : translated.found) {
      text += number + translation.text;
      if (options.scores)
        text += "\t" + format("%.9g", translation.hypothesis.score);
      text += detailsAsText(translated.details, &translation) + "\n";
    }
    return text;
  }

  std::string jsonLine(size_t line, const std::string &source, const nlohmann::ordered_json &fields) {
    using Json = nlohmann::ordered_json;
    Json object;
    if (objects.empty() || !objects[line].hasLine)
      object["line"] = first + line + 1;
    if (objects.empty())
      object["source"] = source;
    object.update(fields);
    if (!objects.empty())
      return withFields(objects[line], object) + "\n";
    // Bytes that are not valid UTF-8 become U+FFFD.
    return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  void draw(const InputLine &line) {
    const Hypothesis &hypothesis = line.found.front();
    const CrossAttention attention = crossAttention(model.models(), line.source, hypothesis.ids, hypothesis.byEos);
    std::vector<std::string> columns, rows;
    for (int32_t id : line.source)
      columns.push_back(model.source->piece(id));
    for (int32_t id : hypothesis.ids)
      rows.push_back(model.target->piece(id));
    if (hypothesis.byEos)
      rows.push_back(model.target->piece(model.engine->module().eos));
    ResultWriter drawing(options.attentionSvg);
    drawing.write(heatMapSvg(attention.weights, rows, columns));
    drawing.commit();
  }

  TranslateOptions &options;
  TranslationModel model;
  std::optional<LinesBeside> prefixInput, constraintInput;
  size_t searched = 0; // lines that are not empty, so far
  bool drawn = options.attentionSvg.empty();
  // The current window.
  size_t first = 0;                       // lines before it
  std::vector<InputLine> lines;           // or sentences, of --document
  std::vector<Document> documents;        // of --document: the lines of the input
  std::vector<std::string> documentLines; // as they were
  std::vector<JsonLine> objects;          // of lines of JSON
};

} // namespace

void addTranslate(Command app) {
  Command command =
      app.addVerb("translate", "translate lines", "echo \"How are you?\" | translator translate --model run");
  auto options = std::make_shared<TranslateOptions>();
  options->model.addEnsembleTo(command);
  options->model.addRescorerTo(command);
  options->search.addRescoringTo(command);
  options->model.addDraftTo(command);
  options->model.addShortlistTo(command);
  addWorkers(command, options->model.workers);
  options->model.addVocabularyTo(command);
  command.setSubject("Input and output");
  command.addOption("--input", options->input, "lines to translate; -: standard input").showDefault();
  command.addOption("--output", options->output, "translations, one per line; -: standard output").showDefault();
  options->search.addTo(command);
  options->search.addSamplingTo(command);
  options->search.addDetailsTo(command);
  const CommandOption prefix =
      command.addOption("--prefix", options->prefix, "forced beginnings of the translations, one per line");
  const CommandOption constraints = command.addOption(
      "--constraints", options->constraints,
      "what the translations must contain, one line for each: phrases with a tab between two of them, or in "
      "place of a phrase several, of which one is enough, with || between two of them; an empty line: "
      "nothing");
  command.addFlag("--scores", options->scores, "write a tab and the score after each translation");
  command.addOption("--attention-svg", options->attentionSvg,
                    "file for a drawing of the first sentence's cross-attention");
  command.addFlag("--json", options->json, "one JSON object per line: line, source, translation, hypotheses");
  command
      .addFlag("--json-input", options->jsonInput,
               "lines to translate are JSON objects with the field source, and perhaps prefix and constraints, or "
               "strings: each is written as with --json, with all its fields as they were")
      .excludes(prefix)
      .excludes(constraints);
  const CommandOption document =
      command
          .addFlag("--document", options->document,
                   "lines are paragraphs: their sentences are translated one by one, and what is between them stays")
          .excludes(prefix)
          .excludes(constraints);
  options->search.addContextTo(command);
  for (const char *of : {"--document-context", "--document-separator"})
    command.option(of).needs(document);
  command
      .addOption("--document-tokens", options->documentTokens,
                 "--document: split sentences of more tokens than this, at punctuation or blanks if possible; 0: only "
                 "those that are longer than the model's max_length")
      .notNegative()
      .showDefault()
      .needs(document);
  addComputeType(command, options->search.options.computeType);
  command.setWork([options] {
    if (options->search.options.draws() && !options->constraints.empty())
      refuseConstraints(options->search.options);
    options->json |= options->jsonInput;
    if (options->attentionSvg == "-" && options->output == "-")
      throw UsageError("--attention-svg", "a drawing and translations cannot both go to standard output");
    confineOn(options->model.device.device, {options->output, options->attentionSvg});
    Translator(*options).run();
  });
}

} // namespace xfc
