// A thread that owns a model and translates with it.
#include "serve/Executor.h"
#include "decode/Choice.h"
#include "decode/Defaults.h"
#include "decode/Rescoring.h"
#include "decode/Workers.h"
#include "support/RoundUp.h"
#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

namespace xfc {

namespace {

// The part of the text that more tokens will not change: without what decoding replaced at its end, which may be the
// first bytes of a character.
std::string_view certain(std::string_view text) {
  constexpr std::string_view replaced = "\xEF\xBF\xBD";
  while (text.ends_with(replaced))
    text.remove_suffix(replaced.size());
  return text;
}

// What the attention of a line may take, so that nobody can ask for more than memory or keep the others waiting: its
// memory grows as the square of the tokens, and the passes for a line's translations run in a row.
constexpr ReplacementLimits attended{.tokens = 512, .translations = 64};
// And all alignments of a request: an answer lists all pairs of tokens. A pass of the decoder takes some time, whatever
// it reads. Replacing unknown tokens is not counted: its passes are shorter than the decoding of the lines was, and
// which lines had to do without would depend on the order in which they end.
constexpr size_t mostPairs = size_t(1) << 20, leastPairs = 1024;
// The most samples for minimum Bayes risk: all pairs of them are compared, and other requests wait meanwhile.
constexpr int mostCompared = 256;

// Is thrown by what works for a job that nobody wants any more.
struct Unwanted {};

} // namespace

struct Executor::State {
  const ModelOptions options;
  const std::vector<std::string> words;
  const int64_t documentTokens;
  ExecutorCounts &counts;
  std::function<void(const std::string &)> loaded;

  std::mutex mutex;
  std::condition_variable changed;
  struct Command {
    std::shared_ptr<const TranslationJob> job;
    bool cancels;
  };
  std::vector<Command> commands; // these two under the mutex
  bool ending = false;
  std::atomic<int64_t> capacity{0};
  int64_t longestSentence = 0; // in tokens
  std::thread thread;

  // Of the thread.
  struct Line {
    std::vector<int32_t> source;
    ContextTokens before; // of the source, and of what is written
    std::vector<ProtectedPart> parts;
    size_t number = 0;   // of those that are not empty
    std::string shown;   // of a job that streams
    size_t idsShown = 0; // likewise
    // Of a sentence that is translated given those before it, and the next one given this.
    DocumentContext *context = nullptr;
    bool endsDocument = false;
  };
  struct Active {
    std::shared_ptr<const TranslationJob> job;
    std::shared_ptr<const SearchOptions> options, asked; // asked: of the job, for whose sake the search has its own
    size_t left = 0;                                     // lines that are not translated
    std::map<RequestId, size_t> requests;                // their lines
    std::vector<Line> lines;
    std::vector<DocumentContext> contexts; // of its documents, if sentences have one
    std::vector<std::string> warnings;
    size_t pairs = 0; // of tokens, of alignments
  };
  TranslationModel model;
  SearchOptions defaults;
  std::unique_ptr<Workers> workers;
  std::vector<std::string> warnings;         // about the line that was read last
  const TranslationJob *finishing = nullptr; // whose lines are told
  std::map<const TranslationJob *, std::unique_ptr<Active>> jobs;
  std::map<RequestId, Active *> owners;
  std::pair<int64_t, int64_t> counted; // sentences that waited and ran when they were counted last

  State(const ModelOptions &options, const std::vector<std::string> &words, int64_t documentTokens,
        ExecutorCounts &counts, std::function<void(const std::string &)> loaded)
      : options(options), words(words), documentTokens(documentTokens), counts(counts), loaded(std::move(loaded)) {}

  void run() {
    std::string problem;
    try {
      load();
    } catch (const std::bad_alloc &) {
      problem = "out of memory";
    } catch (const std::exception &error) {
      problem = error.what();
    }
    loaded(problem);
    while (problem.empty() && serve())
      ;
    count(0, 0);
    // What belongs to this thread, such as a GPU's context, ends on it.
    workers.reset();
    model = {};
  }

  // The numbers are those of all executors that share the counts.
  void count(int64_t waiting, int64_t running) {
    counts.waiting += waiting - std::exchange(counted.first, waiting);
    counts.running += running - std::exchange(counted.second, running);
  }

  // The engine belongs to this thread, which flushes denormals from here on, as an executable's does.
  void load() {
    model = loadModel(options);
    const Module &module = model.engine->module();
    defaults = searchOptionsOf(words, {.generation = generationOf(module, options.model)}, model);
    requireDetails(model, defaults, options.format);
    if (defaults.utility && defaults.samples > mostCompared)
      throw Error("--samples: a server draws at most " + std::to_string(mostCompared) + " for a line, but " +
                  std::to_string(defaults.samples) + " were given");
    const Counts room = decoderCounts(model.models(), defaults);
    capacity = room.rows[XFC_TARGET];
    const Frame frame = model.source->sourceFrame(module, options.format);
    const auto around = static_cast<int64_t>(frame.prefix.size() + frame.suffix.size());
    longestSentence = std::max<int64_t>(defaults.batchTokens - around, 1);
    if (documentTokens > 0)
      longestSentence = std::min(longestSentence, documentTokens);
    startWorkers(room);
    model.warn = [this](const std::string &warning) { warnings.push_back(warning); };
    model.beforePass = [this] {
      if (!wanted(finishing))
        throw Unwanted();
    };
  }

  // Whether nobody has cancelled the job, also since the commands were heeded last.
  bool wanted(const TranslationJob *job) {
    const std::lock_guard<std::mutex> lock(mutex);
    return !ending && std::ranges::none_of(commands, [&](const Command &command) {
      return command.cancels && command.job.get() == job;
    });
  }

  void startWorkers(const Counts &room) {
    workers.reset(); // before others run on their engines
    workers = makeWorkers(model.models(), room, /*ownRows=*/true, [this] {
      const std::lock_guard<std::mutex> lock(mutex);
      changed.notify_one();
    });
    workers->prepare(defaults);
  }

  // Heeds what came, and takes a step. Returns false when there is nothing left to do.
  bool serve() {
    std::vector<Command> now;
    {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return ending || !commands.empty() || workers->ready(); });
      if (ending)
        return false;
      now.swap(commands);
    }
    for (const Command &command : now)
      if (command.cancels)
        remove(command.job.get());
      else
        begin(command.job);
    try {
      step();
    } catch (const std::exception &error) { // the device's: no other step can be taken
      const std::string message = std::string("the model stopped working: ") + error.what();
      for (const auto &[job, active] : jobs)
        job->tell({.kind = TranslationUpdate::Kind::Failed, .text = message});
      jobs.clear(), owners.clear();
      startWorkers(decoderCounts(model.models(), defaults));
    }
    const size_t waiting = workers->waitingCount();
    count(static_cast<int64_t>(waiting), static_cast<int64_t>(workers->running()));
    return true;
  }

  void begin(const std::shared_ptr<const TranslationJob> &job) {
    auto active = std::make_unique<Active>();
    Active &added = *active;
    added.job = job;
    added.lines.resize(job->lines.size());
    jobs[job.get()] = std::move(active);
    try {
      submit(added);
    } catch (const std::exception &error) {
      job->tell({.kind = TranslationUpdate::Kind::Refused, .text = error.what()});
      remove(job.get());
      return;
    }
    finishIfDone(added);
  }

  void submit(Active &active) {
    const TranslationJob &job = *active.job;
    SearchOptions search = searchOptionsOf(job.options, defaults, model);
    requireDetails(model, search, options.format);
    if (job.alternatives > 0) {
      search.nBest = std::max(search.nBest, job.alternatives + 1);
      if (search.utility)
        search.samples = std::max(search.samples, search.nBest);
      else if (!search.sample && !search.alternatives)
        search.generation.beam =
            std::max<int64_t>(search.generation.beam, roundUp(search.nBest, search.generation.beamGroups));
    }
    if (search.details.alignments != Details::Alignments::None &&
        static_cast<size_t>(search.nBest) > attended.translations)
      throw Error("--alignments takes at most " + std::to_string(attended.translations) +
                  " translations of a line; give a smaller --n-best");
    if (search.utility && search.samples > mostCompared)
      throw Error("--samples: at most " + std::to_string(mostCompared) + " in a request, but " +
                  std::to_string(search.samples) + " were given");
    if (job.documents.empty()) {
      if (search.context != defaults.context)
        throw Error("--document-context and --document-separator are of texts with document: true, whose sentences are "
                    "translated one by one");
      search.context = {};
    }
    active.asked = std::make_shared<const SearchOptions>(search);
    active.options = std::make_shared<const SearchOptions>(searchedFor(model, std::move(search)));
    active.left = job.lines.size();
    size_t number = 0; // of lines that are not empty, as `translate` counts them
    for (size_t line = 0; line < job.lines.size(); ++line) {
      warnings.clear();
      Line &added = active.lines[line];
      added.source = encodeSource(model, job.lines[line], options.format, placeOf(line));
      added.number = number;
      number += !added.source.empty();
      keepWarnings(active);
    }
    if (active.asked->context.sentences == 0) {
      for (size_t line = 0; line < job.lines.size(); ++line)
        submit(active, line);
      return;
    }
    active.contexts.resize(job.documents.size());
    size_t first = 0;
    for (size_t document = 0; document < job.documents.size(); first += job.documents[document++]) {
      const std::span<Line> its = std::span(active.lines).subspan(first, job.documents[document]);
      for (Line &line : its)
        line.context = &active.contexts[document];
      if (!its.empty()) {
        its.back().endsDocument = true;
        submitFrom(active, first);
      }
    }
  }

  // Submits a line, which is told at once if it is empty.
  void submit(Active &active, size_t number) {
    const TranslationJob &job = *active.job;
    Line &line = active.lines[number];
    const std::string where = placeOf(number);
    warnings.clear();
    std::vector<int32_t> prefix;
    if (!job.prefixes.empty())
      prefix = encodePrefix(model, job.prefixes[number], *active.asked, options.format, where + " of prefix");
    std::vector<Constraint> constraints;
    if (!job.constraints.empty())
      constraints = encodeConstraints(model, job.constraints[number], options.format, where + " of constraints");
    if (line.context) {
      SentenceInContext given = line.context->next(
          model, job.lines[number], *active.asked, where, longestSentence, [&](const auto &source, const auto &before) {
            return workers->hasRoomFor(*active.options, std::ssize(source), before);
          });
      line.source = std::move(given.source);
      line.before = given.context;
      prefix = std::move(given.prefix);
    }
    if (!active.asked->protect.empty() && !line.source.empty())
      line.parts = protectParts(model, job.lines[number], line.source, prefix, *active.asked, constraints);
    keepWarnings(active);
    if (line.source.empty()) {
      tellLine(active, number, {});
      return;
    }
    counts.sourceTokens += std::ssize(line.source);
    const RequestId id = workers->submit({.source = line.source,
                                          .prefix = std::move(prefix),
                                          .constraints = std::move(constraints),
                                          .options = active.options,
                                          .number = line.number,
                                          .where = where,
                                          .watched = job.stream});
    active.requests[id] = number;
    owners[id] = &active;
  }

  // Submits the next sentence of a document; those before it that are empty are told at once.
  void submitFrom(Active &active, size_t number) {
    for (submit(active, number); active.lines[number].source.empty() && !active.lines[number].endsDocument;)
      submit(active, ++number);
  }

  static std::string placeOf(size_t line) { return "line " + std::to_string(line + 1); }

  void keepWarnings(Active &active) const {
    active.warnings.insert(active.warnings.end(), warnings.begin(), warnings.end());
  }

  void step() {
    if (!workers->ready())
      return;
    for (DecoderEvent &event : workers->step()) {
      const auto owner = owners.find(event.id);
      if (owner == owners.end()) // of a job that has failed in this step
        continue;
      Active &active = *owner->second;
      const size_t line = active.requests.at(event.id);
      switch (event.kind) {
      case DecoderEvent::Kind::Grown:
        tellTokens(active, line, event.settled);
        break;
      case DecoderEvent::Kind::Failed:
        active.job->tell({.kind = event.byOptions ? TranslationUpdate::Kind::Refused : TranslationUpdate::Kind::Failed,
                          .text = event.message});
        owners.erase(owner);
        active.requests.erase(event.id);
        remove(active.job.get());
        break;
      case DecoderEvent::Kind::Finished:
        owners.erase(owner);
        active.requests.erase(event.id);
        if (finish(active, line, std::move(event.found)))
          finishIfDone(active);
        break;
      }
    }
    const auto [steps, hypotheses] = workers->takeSteps();
    counts.steps += steps;
    counts.stepHypotheses += hypotheses;
  }

  // Tells what was found for a line, and submits the sentence that waits for it. False: the job is gone, since that is
  // refused or has failed.
  bool finish(Active &active, size_t number, std::vector<Hypothesis> found) {
    const std::vector<int32_t> &source = active.lines[number].source;
    TranslationUpdate::Kind kind = TranslationUpdate::Kind::Refused;
    std::string what;
    finishing = active.job.get();
    try {
      // A coverage penalty needs the attention of all that was found.
      const bool covers = active.options->generation.coveragePenalty > 0;
      what = covers ? excess(active, number, found) : "";
      if (what.empty()) {
        found = chosen(model, source, std::move(found), *active.options, options.format);
        rescore(model, {&source, 1}, *active.asked, options.format, {&found, 1});
      }
      if (!covers)
        what = excess(active, number, found);
      if (what.empty() && !holdAlignments(active, number, found)) {
        kind = TranslationUpdate::Kind::Busy;
        what = "there is no room for more alignments before others are read; come again later";
      }
      if (what.empty())
        tellLine(active, number, std::move(found));
    } catch (const Unwanted &) {
      remove(finishing);
      return false;
    } catch (const std::exception &error) { // there is no memory for its attention
      kind = TranslationUpdate::Kind::Failed;
      what = error.what();
    }
    try {
      if (what.empty() && active.lines[number].context && !active.lines[number].endsDocument)
        submitFrom(active, number + 1);
    } catch (const std::exception &error) {
      what = error.what();
    }
    if (what.empty())
      return true;
    active.job->tell({.kind = kind, .text = what});
    remove(active.job.get());
    return false;
  }

  void tellTokens(Active &active, size_t number, const std::vector<int32_t> &ids) {
    Line &line = active.lines[number];
    if (ids.size() <= line.idsShown)
      return;
    const std::string text = textSoFar(model, ids, *active.options, options.format, line.parts);
    const std::string_view now = certain(text);
    TranslationUpdate update{.kind = TranslationUpdate::Kind::Tokens, .line = number};
    update.ids.assign(ids.begin() + static_cast<std::ptrdiff_t>(line.idsShown), ids.end());
    if (now.size() > line.shown.size() && now.starts_with(line.shown)) {
      update.text = now.substr(line.shown.size());
      line.shown = now;
    }
    line.idsShown = ids.size();
    active.job->tell(std::move(update));
  }

  // What is wrong with asking for the attention of these translations; empty: nothing.
  static std::string excess(Active &active, size_t line, const std::vector<Hypothesis> &hypotheses) {
    const bool covers = active.options->generation.coveragePenalty > 0;
    if (active.options->details.alignments == Details::Alignments::None && !covers)
      return "";
    const std::string option = covers ? "--coverage-penalty" : "--alignments";
    const size_t from = active.lines[line].source.size();
    for (const Hypothesis &hypothesis : hypotheses) {
      const size_t to = hypothesis.ids.size() + hypothesis.byEos;
      if (std::max(from, to) > attended.tokens)
        return "line " + std::to_string(line + 1) + ": has " + std::to_string(from) + " tokens, and " +
               std::to_string(to) + " in its translation; " + option + " takes at most " +
               std::to_string(attended.tokens);
      active.pairs += std::max(from * to, leastPairs);
    }
    return active.pairs <= mostPairs ? ""
                                     : option + " takes fewer translations at a time; give fewer lines, or a smaller " +
                                           (covers ? "--beam" : "--n-best");
  }

  // Takes the room for the soft alignments of these translations, if the line is told with them; false if there is
  // none.
  static bool holdAlignments(const Active &active, size_t line, const std::vector<Hypothesis> &hypotheses) {
    if (active.options->details.alignments != Details::Alignments::Soft)
      return true;
    int64_t pairs = 0;
    for (const Hypothesis &hypothesis : hypotheses)
      pairs += std::ssize(active.lines[line].source) * (std::ssize(hypothesis.ids) + hypothesis.byEos);
    return active.job->held->take(pairs);
  }

  void tellLine(Active &active, size_t number, std::vector<Hypothesis> hypotheses) {
    TranslationUpdate update{.kind = TranslationUpdate::Kind::Line, .line = number};
    warnings.clear();
    const Line &line = active.lines[number];
    update.found =
        translatedLine(model, {active.job->lines[number], line.source, line.parts, placeOf(number), line.before},
                       std::move(hypotheses), *active.options, options.format, attended);
    keepWarnings(active);
    if (line.context)
      line.context->add(active.job->lines[number], update.found.found.empty() ? "" : update.found.found.front().text);
    if (!update.found.found.empty()) {
      ++counts.sentences;
      counts.targetTokens += static_cast<int64_t>(update.found.found.front().hypothesis.ids.size());
    }
    --active.left;
    active.job->tell(std::move(update));
  }

  void finishIfDone(Active &active) {
    if (active.left > 0)
      return;
    active.job->tell({.kind = TranslationUpdate::Kind::Done, .warnings = std::move(active.warnings)});
    jobs.erase(active.job.get());
  }

  void remove(const TranslationJob *job) {
    const auto found = jobs.find(job);
    if (found == jobs.end())
      return;
    for (const auto &[id, line] : found->second->requests) {
      workers->cancel(id);
      owners.erase(id);
    }
    jobs.erase(found);
  }

  void tell(Command command) {
    const std::lock_guard<std::mutex> lock(mutex);
    commands.push_back(std::move(command));
    changed.notify_one();
  }
};

Executor::Executor(const ModelOptions &model, const std::vector<std::string> &options, int64_t documentTokens,
                   ExecutorCounts &counts, std::function<void(const std::string &)> loaded)
    : state(std::make_unique<State>(model, options, documentTokens, counts, std::move(loaded))) {
  state->thread = std::thread([this] { state->run(); });
}

Executor::~Executor() {
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    state->ending = true;
    state->changed.notify_one();
  }
  state->thread.join();
}

void Executor::submit(const std::shared_ptr<const TranslationJob> &job) { state->tell({job, /*cancels=*/false}); }
void Executor::cancel(const std::shared_ptr<const TranslationJob> &job) { state->tell({job, /*cancels=*/true}); }
int64_t Executor::capacity() const { return state->capacity; }
// Reads what the thread does not change after the model is loaded.
std::vector<std::string_view> Executor::parts(std::string_view sentence) const {
  return fittingParts(state->model, sentence, state->longestSentence);
}

} // namespace xfc
