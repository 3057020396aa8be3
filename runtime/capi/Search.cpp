// Searches in the C interface: from beginning to end, or step by step.
#include "decode/Search.h"
#include "capi/Handles.h"
#include "decode/Choice.h"
#include "decode/Rescoring.h"
#include "decode/Translations.h"
#include <cmath>
#include <new>

using namespace xfc;

struct xfc_search {
  static constexpr size_t none = static_cast<size_t>(-1);
  std::shared_ptr<OpenModel> open;
  SearchOptions options; // as the caller gives them
  std::vector<std::string> lines;
  std::vector<std::vector<int32_t>> sources;     // by sentence
  std::vector<std::vector<ProtectedPart>> parts; // by line
  std::vector<size_t> sentenceOf;                // by line; none: the line is empty
  std::unique_ptr<SteppedSearch> stepped;        // of a search in steps
  std::vector<std::vector<Hypothesis>> found;    // by sentence, of a search from beginning to end
  std::vector<TranslatedLine> shown;             // by line, filled on request
  std::vector<bool> isShown;
  std::string failure; // message of the step that failed; there is no step after it

  bool ended(size_t line) const { return !stepped || sentenceOf[line] == none || stepped->ended(sentenceOf[line]); }

  const std::vector<Translation> &hypotheses(size_t line) {
    require(line < sentenceOf.size(), "the search has no line with this number");
    if (isShown[line])
      return shown[line].found;
    const size_t sentence = sentenceOf[line];
    std::vector<Hypothesis> all(1);
    if (sentence != none)
      all = stepped ? stepped->hypotheses(sentence) : found[sentence];
    const std::span<const int32_t> ids = sentence != none ? sources[sentence] : std::span<const int32_t>();
    if (ended(line) && sentence != none) {
      all = chosen(open->model, ids, std::move(all), searchedFor(open->model, options), open->format);
      rescore(open->model, {&sources[sentence], 1}, options, open->format, {&all, 1});
    }
    const std::span<const ProtectedPart> its = ended(line) ? parts[line] : std::span<const ProtectedPart>();
    shown[line] = translatedLine(open->model, {lines[line], ids, its, placeOf("line", line)}, std::move(all), options,
                                 open->format);
    isShown[line] = true;
    return shown[line].found;
  }

  const Translation &hypothesis(size_t line, size_t rank) {
    const std::vector<Translation> &all = hypotheses(line);
    require(rank < all.size(), "the line has no hypothesis with this rank");
    return all[rank];
  }
};

// Encodes the lines, and starts a search in steps or runs a whole one.
static xfc_status begin(xfc_model *model, const char *const *lines, const char *const *prefixes,
                        const char *const *constraints, size_t count, const char *const *options, xfc_search **result,
                        bool stepped) {
  if (!model || !result)
    return XFC_MISUSE;
  *result = nullptr;
  return guardedOpen(*model->open, [&] {
    OpenModel &opened = *model->open;
    opened.warnings.clear();
    auto search = std::make_unique<xfc_search>();
    search->open = model->open;
    search->options = searchOptionsOf(wordsOf(options), {.generation = opened.generation}, opened.model);
    requireDetails(opened.model, search->options, opened.format);
    if (search->options.context.sentences > 0)
      throw Error(
          "--document-context is of documents, which a library does not split; give lines that hold the sentences "
          "before, and prefixes that hold their translations");
    search->lines = linesOf(lines, count, "line");
    std::vector<std::vector<int32_t>> &sources = search->sources, forced;
    std::vector<std::vector<Constraint>> wanted;
    std::vector<std::string> places;
    for (size_t i = 0; i < count; ++i) {
      std::vector<int32_t> source = encodeSource(opened.model, search->lines[i], opened.format, placeOf("line", i));
      std::vector<int32_t> prefix;
      std::vector<Constraint> itsConstraints;
      if (prefixes && prefixes[i])
        prefix = encodePrefix(opened.model, linesOf(prefixes + i, 1, "prefix").front(), search->options, opened.format,
                              placeOf("prefix", i));
      if (constraints && constraints[i])
        itsConstraints =
            encodeConstraints(opened.model, constraintsOfLine(linesOf(constraints + i, 1, "constraints").front()),
                              opened.format, placeOf("constraints", i));
      search->parts.emplace_back();
      if (!search->options.protect.empty() && !source.empty())
        search->parts.back() =
            protectParts(opened.model, search->lines[i], source, prefix, search->options, itsConstraints);
      search->sentenceOf.push_back(source.empty() ? xfc_search::none : sources.size());
      if (source.empty())
        continue;
      sources.push_back(std::move(source));
      places.push_back(placeOf("line", i));
      if (prefixes)
        forced.push_back(std::move(prefix));
      if (constraints || !search->options.protect.empty())
        wanted.push_back(std::move(itsConstraints));
    }
    search->shown.resize(count);
    search->isShown.resize(count);
    const SearchOptions asked = searchedFor(opened.model, search->options);
    if (stepped)
      search->stepped = std::make_unique<SteppedSearch>(opened.model.models(), sources, asked, forced, wanted, places);
    else
      search->found = xfc::search(opened.model.models(), sources, asked, forced, wanted, {}, {}, places);
    *result = search.release();
  });
}

xfc_status xfc_translate(xfc_model *model, const char *const *lines, const char *const *prefixes, size_t count,
                         const char *const *options, xfc_search **search) {
  return begin(model, lines, prefixes, nullptr, count, options, search, /*stepped=*/false);
}

xfc_status xfc_translate_constrained(xfc_model *model, const char *const *lines, const char *const *prefixes,
                                     const char *const *constraints, size_t count, const char *const *options,
                                     xfc_search **search) {
  return begin(model, lines, prefixes, constraints, count, options, search, /*stepped=*/false);
}

xfc_status xfc_search_start(xfc_model *model, const char *const *lines, const char *const *prefixes, size_t count,
                            const char *const *options, xfc_search **search) {
  return begin(model, lines, prefixes, nullptr, count, options, search, /*stepped=*/true);
}

xfc_status xfc_search_start_constrained(xfc_model *model, const char *const *lines, const char *const *prefixes,
                                        const char *const *constraints, size_t count, const char *const *options,
                                        xfc_search **search) {
  return begin(model, lines, prefixes, constraints, count, options, search, /*stepped=*/true);
}

xfc_status xfc_search_advance(xfc_search *search, size_t steps, int *running) {
  if (!search || !running)
    return XFC_MISUSE;
  return guardedOpen(*search->open, [&] {
    *running = 0;
    if (!search->failure.empty())
      throw Error(search->failure);
    if (!search->stepped)
      return;
    search->isShown.assign(search->isShown.size(), false);
    try {
      bool more = true;
      for (size_t step = 0; more && step < steps; ++step)
        more = search->stepped->advance();
      for (size_t line = 0; line < search->sentenceOf.size(); ++line)
        *running |= !search->ended(line);
    } catch (const std::exception &error) {
      search->failure = error.what();
      throw;
    }
  });
}

xfc_status xfc_search_line(xfc_search *search, size_t line, size_t *count, int *ended) {
  if (!search || !count || !ended)
    return XFC_MISUSE;
  return guardedOpen(*search->open, [&] {
    *count = search->hypotheses(line).size();
    *ended = search->ended(line);
  });
}

xfc_status xfc_search_hypothesis(xfc_search *search, size_t line, size_t rank, xfc_hypothesis *hypothesis) {
  if (!search || !hypothesis)
    return XFC_MISUSE;
  return guardedOpen(*search->open, [&] {
    const Translation &shown = search->hypothesis(line, rank);
    const Hypothesis &found = shown.hypothesis;
    *hypothesis = {shown.text.c_str(), shown.text.size(), found.ids.data(),
                   found.ids.size(),   found.score,       found.logProbability};
  });
}

xfc_status xfc_search_token_scores(xfc_search *search, size_t line, size_t rank, const double **log_probabilities,
                                   size_t *count) {
  if (!search || !log_probabilities || !count)
    return XFC_MISUSE;
  return guardedOpen(*search->open, [&] {
    const std::vector<double> &numbers = search->hypothesis(line, rank).hypothesis.tokenLogProbabilities;
    *log_probabilities = numbers.data();
    *count = numbers.size();
  });
}

xfc_status xfc_search_attention(xfc_search *search, size_t line, size_t rank, const double **probabilities,
                                size_t *targets, size_t *sources) {
  if (!search || !probabilities || !targets || !sources)
    return XFC_MISUSE;
  return guardedOpen(*search->open, [&] {
    const CrossAttention &attention = search->hypothesis(line, rank).attention;
    *probabilities = attention.weights.data();
    *targets = static_cast<size_t>(attention.targets);
    *sources = static_cast<size_t>(attention.sources);
  });
}

xfc_status xfc_search_rescored(xfc_search *search, size_t line, size_t rank, double *log_probability) {
  if (!search || !log_probability)
    return XFC_MISUSE;
  return guardedOpen(*search->open,
                     [&] { *log_probability = search->hypothesis(line, rank).hypothesis.rescored.value_or(NAN); });
}

void xfc_search_close(xfc_search *search) {
  if (!search)
    return;
  const std::shared_ptr<OpenModel> open = search->open; // the mutex must outlive the lock
  const std::lock_guard<std::mutex> lock(open->mutex);
  delete search;
}
