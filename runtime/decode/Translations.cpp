// Tells translations: their text, and what the search's details ask for beside it.
#include "decode/Translations.h"
#include "support/Format.h"
#include "support/Quoted.h"
#include "tokenizers/Utf8.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace xfc {

namespace {

// How many of the line's own tokens are among the encoder's, and where they begin.
struct OwnTokens {
  int64_t first, count;
};

OwnTokens ownTokens(const TranslationModel &model, std::span<const int32_t> ids, Format format) {
  const Frame frame = model.source->sourceFrame(model.engine->module(), format);
  const auto around = frame.prefix.size() + frame.suffix.size();
  return {static_cast<int64_t>(frame.prefix.size()), static_cast<int64_t>(ids.size() - std::min(around, ids.size()))};
}

bool hasUnknown(const TranslationModel &model, const std::vector<int32_t> &ids) {
  const int32_t unk = model.target->special().unk;
  return unk >= 0 && std::ranges::find(ids, unk) != ids.end();
}

std::string asOneLine(std::string text) {
  std::ranges::replace(text, '\n', ' '); // a vocabulary with byte pieces can produce one
  return text;
}

// Leaves out `count` elements, from the one at `first` on, as far as they are there.
template <typename T> void leaveOut(std::vector<T> &list, size_t first, size_t count) {
  first = std::min(first, list.size());
  const auto begin = list.begin() + static_cast<std::ptrdiff_t>(first);
  list.erase(begin, begin + static_cast<std::ptrdiff_t>(std::min(count, list.size() - first)));
}

// The attention without the rows and columns of the context, which begin there.
CrossAttention withoutContext(CrossAttention attention, int64_t firstTarget, int64_t firstSource,
                              const ContextTokens &context) {
  const auto targets = static_cast<int64_t>(context.target), sources = static_cast<int64_t>(context.source);
  if (targets == 0)
    return attention;
  CrossAttention rest{attention.targets - targets, attention.sources - sources, {}};
  for (int64_t target = 0; target < attention.targets; ++target)
    for (int64_t source = 0; source < attention.sources; ++source)
      if ((target < firstTarget || target >= firstTarget + targets) &&
          (source < firstSource || source >= firstSource + sources))
        rest.weights.push_back(attention.at(target, source));
  return rest;
}

std::vector<double> rowOf(const CrossAttention &attention, int64_t target) {
  const auto begin = attention.weights.begin() + target * attention.sources;
  return {begin, begin + attention.sources};
}

} // namespace

std::vector<std::string> piecesOf(const Vocabulary &vocabulary, std::span<const int32_t> ids) {
  std::vector<std::string> pieces;
  for (const int32_t id : ids)
    pieces.push_back(vocabulary.piece(id));
  return pieces;
}

void requireDetails(const TranslationModel &model, const SearchOptions &options, Format format) {
  const Details &details = options.details;
  if (!options.protect.empty() && format != Format::Text)
    throw Error("--protect excludes --format " + std::string(format == Format::Ids ? "ids" : "pieces") +
                ": expressions are for lines of text");
  if (!options.protect.empty() && options.draws())
    throw Error("--protect excludes " + std::string(options.utility ? "--mbr" : "--sample") +
                ": tokens that are drawn at random cannot be made to keep parts of the line");
  if (options.context.sentences > 0 && (model.source->fromEnd() || model.target->fromEnd()))
    throw Error("--document-context excludes a vocabulary from right to left: what precedes a sentence is not the "
                "beginning of what such a model writes");
  if (model.rescorer && options.utility)
    throw Error("--rescore excludes --mbr, whose translations are chosen by their utility");
  if (options.rescoreWeight && !model.rescorer)
    throw Error("--rescore-weight is what the log-probability by the model of --rescore is multiplied by, but there is "
                "no such model");
  if (details.replaceUnknowns && format == Format::Ids)
    throw Error("--replace-unknowns excludes --format ids: the lines have no words that could be written");
  if (details.alignments != Details::Alignments::None)
    requireCrossAttention(model.models(), "--alignments");
  if (details.replaceUnknowns)
    requireCrossAttention(model.models(), "--replace-unknowns");
  if (options.generation.coveragePenalty > 0)
    requireCrossAttention(model.models(), "--coverage-penalty");
}

TranslatedLine translatedLine(const TranslationModel &model, const SourceLine &source,
                              std::vector<Hypothesis> hypotheses, const SearchOptions &options, Format format,
                              const ReplacementLimits &limits) {
  using enum Details::Alignments;
  const Details &details = options.details;
  TranslatedLine line{.details = details, .sourceTokens = {}, .found = {}};
  std::vector<int32_t> read(source.ids.begin(), source.ids.end());
  leaveOut(read, model.source->sourceFrame(model.engine->module(), format).prefix.size(), source.context.source);
  if (details.alignments == Soft)
    line.sourceTokens = piecesOf(*model.source, read);
  const auto [first, count] = ownTokens(model, read, format);
  std::vector<std::string> words; // of the source
  std::vector<const ProtectedPart *> lacking;
  for (Hypothesis &hypothesis : hypotheses) {
    Translation translation;
    const std::vector<int32_t> written = hypothesis.ids;
    const size_t longest = std::max(source.ids.size(), written.size() + hypothesis.byEos);
    const size_t forced = std::min(options.generation.forcedFirst.size(), written.size());
    leaveOut(hypothesis.ids, forced, source.context.target);
    leaveOut(hypothesis.tokenLogProbabilities, forced, source.context.target);
    const bool replaces =
        details.replaceUnknowns && hasUnknown(model, hypothesis.ids) &&
        (details.alignments != None || (longest <= limits.tokens && line.found.size() < limits.translations));
    if (replaces || details.alignments != None) {
      model.beforePass();
      translation.attention = withoutContext(crossAttention(model.models(), source.ids, written, hypothesis.byEos),
                                             static_cast<int64_t>(forced), first, source.context);
    }
    if (replaces || details.alignments == Hard)
      translation.links =
          hardAlignment(translation.attention, static_cast<int64_t>(hypothesis.ids.size()), count, first);
    std::vector<std::string> attended; // by token of the translation
    if (replaces) {
      if (words.empty())
        words = model.source->pieces(std::span(read).subspan(first, count), source.text, format);
      for (const auto &[from, to] : translation.links)
        attended.push_back(words[from]);
    }
    std::vector<int32_t> ids = hypothesis.ids;
    placeParts(model, source.parts, forced, ids, attended);
    translation.text = asOneLine(decodeTarget(model, ids, options, format, attended));
    if (source.context.target > 0) // what separates it from the sentence before
      translation.text = std::string(withoutOuterSpace(translation.text));
    for (const ProtectedPart *part : lackingParts(source.parts, translation.text))
      lacking.push_back(part);
    if (details.tokenScores || details.alignments == Soft)
      translation.tokens = piecesOf(*model.target, hypothesis.ids);
    if (details.alignments != Hard)
      translation.links = {};
    if (details.alignments != Soft)
      translation.attention = {};
    translation.hypothesis = std::move(hypothesis);
    line.found.push_back(std::move(translation));
  }
  for (const ProtectedPart &part : source.parts)
    if (std::ranges::find(lacking, &part) != lacking.end())
      model.warn(source.where + ": " + inQuotes(part.text, 40) + ", which --protect keeps, is not in " +
                 (line.found.size() > 1 ? "every" : "the") + " translation" +
                 (part.problem.empty() ? "" : ": " + part.problem));
  return line;
}

std::string textSoFar(const TranslationModel &model, std::span<const int32_t> ids, const SearchOptions &options,
                      Format format, std::span<const ProtectedPart> parts) {
  if (model.target->fromEnd()) // its beginning comes last
    return "";
  const int32_t unk = model.target->special().unk;
  const auto end = std::ranges::find_if(
      ids, [&](int32_t id) { return (options.details.replaceUnknowns && id == unk) || beginsInexact(parts, id); });
  return asOneLine(decodeTarget(model, {ids.begin(), end}, options, format));
}

nlohmann::ordered_json jsonOf(const TranslatedLine &line) {
  using Json = nlohmann::ordered_json;
  using enum Details::Alignments;
  const Details &details = line.details;
  Json object = {{"translation", line.found.empty() ? "" : line.found.front().text}};
  if (details.alignments == Soft)
    object["source_tokens"] = line.sourceTokens;
  Json &hypotheses = object["hypotheses"] = Json::array();
  for (const auto &[text, hypothesis, tokens, links, attention] : line.found) {
    Json entry = {{"text", text},
                  {"score", hypothesis.score},
                  {"log_probability", hypothesis.logProbability},
                  {"ids", hypothesis.ids}};
    if (hypothesis.rescored)
      entry["rescore_log_probability"] = *hypothesis.rescored;
    if (details.tokenScores || details.alignments == Soft)
      entry["tokens"] = tokens;
    if (details.tokenScores)
      entry["token_log_probabilities"] = hypothesis.tokenLogProbabilities;
    if (details.alignments == Hard)
      entry["alignment"] = links;
    if (details.alignments == Soft) {
      Json &rows = entry["attention"] = Json::array();
      for (int64_t target = 0; target < attention.targets; ++target)
        rows.push_back(rowOf(attention, target));
    }
    hypotheses.push_back(std::move(entry));
  }
  return object;
}

std::string numberList(std::span<const double> numbers, char separator) {
  std::string text;
  for (const double number : numbers)
    text += (text.empty() ? std::string() : std::string(1, separator)) + format("%.9g", number);
  return text;
}

std::string detailsAsText(const Details &details, const Translation *translation) {
  using enum Details::Alignments;
  std::string text;
  if (details.tokenScores)
    text += "\t" + (translation ? numberList(translation->hypothesis.tokenLogProbabilities, ' ') : "");
  if (details.alignments == None)
    return text;
  text += '\t';
  if (!translation)
    return text;
  std::string blank;
  for (const auto &[from, to] : translation->links) {
    text += blank + std::to_string(from) + "-" + std::to_string(to);
    blank = " ";
  }
  for (int64_t target = 0; target < translation->attention.targets; ++target) {
    text += blank + numberList(rowOf(translation->attention, target), ',');
    blank = " ";
  }
  return text;
}

} // namespace xfc
