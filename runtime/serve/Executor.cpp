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
  struct Active {
    std::shared_ptr<const TranslationJob> job;
    std::shared_ptr<const SearchOptions> options, asked; // asked: of the job, for whose sake the search has its own
    size_t left = 0;                                     // lines that are not translated
    std::map<RequestId, size_t> lines;
    std::vector<std::string> shown, warnings;      // shown: by line, of a job that streams
    std::vector<size_t> ids;                       // how many were shown
    size_t pairs = 0;                              // of tokens, of alignments
    std::vector<std::vector<int32_t>> sources;     // by line
    std::vector<std::vector<ProtectedPart>> parts; // by line
  };
  TranslationModel model;
  SearchOptions defaults;
  std::unique_ptr<Workers> workers;
  std::vector<std::string> warnings; // about the line that was read last
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
    added.shown.resize(job->lines.size());
    added.ids.resize(job->lines.size());
    added.sources.resize(job->lines.size());
    added.parts.resize(job->lines.size());
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
    active.asked = std::make_shared<const SearchOptions>(search);
    active.options = std::make_shared<const SearchOptions>(searchedFor(model, std::move(search)));
    active.left = job.lines.size();
    size_t number = 0; // of lines that are not empty, as `translate` counts them
    for (size_t line = 0; line < job.lines.size(); ++line) {
      const std::string where = "line " + std::to_string(line + 1);
      warnings.clear();
      std::vector<int32_t> prefix, &source = active.sources[line];
      source = encodeSource(model, job.lines[line], options.format, where);
      if (!job.prefixes.empty())
        prefix = encodePrefix(model, job.prefixes[line], *active.options, options.format, where + " of prefix");
      std::vector<Constraint> constraints;
      if (!job.constraints.empty())
        constraints = encodeConstraints(model, job.constraints[line], options.format, where + " of constraints");
      if (!active.options->protect.empty() && !source.empty())
        active.parts[line] = protectParts(model, job.lines[line], source, prefix, *active.options, constraints);
      active.warnings.insert(active.warnings.end(), warnings.begin(), warnings.end());
      if (source.empty()) {
        tellLine(active, line, {});
        continue;
      }
      counts.sourceTokens += static_cast<int64_t>(source.size());
      const RequestId id = workers->submit({.source = source,
                                            .prefix = std::move(prefix),
                                            .constraints = std::move(constraints),
                                            .options = active.options,
                                            .number = number++,
                                            .where = where,
                                            .watched = job.stream});
      active.lines[id] = line;
      owners[id] = &active;
    }
  }

  void step() {
    if (!workers->ready())
      return;
    for (DecoderEvent &event : workers->step()) {
      const auto owner = owners.find(event.id);
      if (owner == owners.end()) // of a job that has failed in this step
        continue;
      Active &active = *owner->second;
      const size_t line = active.lines.at(event.id);
      switch (event.kind) {
      case DecoderEvent::Kind::Grown:
        tellTokens(active, line, event.settled);
        break;
      case DecoderEvent::Kind::Failed:
        active.job->tell({.kind = event.byOptions ? TranslationUpdate::Kind::Refused : TranslationUpdate::Kind::Failed,
                          .text = event.message});
        owners.erase(owner);
        active.lines.erase(event.id);
        remove(active.job.get());
        break;
      case DecoderEvent::Kind::Finished:
        owners.erase(owner);
        active.lines.erase(event.id);
        try {
          // A coverage penalty needs the attention of all that was found.
          const bool covers = active.options->generation.coveragePenalty > 0;
          std::string what = covers ? excess(active, line, event.found) : "";
          if (what.empty()) {
            event.found = chosen(model, active.sources[line], std::move(event.found), *active.options, options.format);
            rescore(model, {&active.sources[line], 1}, *active.asked, options.format, {&event.found, 1});
          }
          if (!covers)
            what = excess(active, line, event.found);
          if (!what.empty()) {
            active.job->tell({.kind = TranslationUpdate::Kind::Refused, .text = what});
            remove(active.job.get());
            break;
          }
          tellLine(active, line, std::move(event.found));
        } catch (const std::exception &error) { // there is no memory for its attention
          active.job->tell({.kind = TranslationUpdate::Kind::Failed, .text = error.what()});
          remove(active.job.get());
          break;
        }
        finishIfDone(active);
        break;
      }
    }
    const auto [steps, hypotheses] = workers->takeSteps();
    counts.steps += steps;
    counts.stepHypotheses += hypotheses;
  }

  void tellTokens(Active &active, size_t line, const std::vector<int32_t> &ids) {
    if (ids.size() <= active.ids[line])
      return;
    const std::string text = textSoFar(model, ids, *active.options, options.format, active.parts[line]);
    const std::string_view now = certain(text);
    TranslationUpdate update{.kind = TranslationUpdate::Kind::Tokens, .line = line};
    update.ids.assign(ids.begin() + static_cast<std::ptrdiff_t>(active.ids[line]), ids.end());
    if (std::string &shown = active.shown[line]; now.size() > shown.size() && now.starts_with(shown)) {
      update.text = now.substr(shown.size());
      shown = now;
    }
    active.ids[line] = ids.size();
    active.job->tell(std::move(update));
  }

  // What is wrong with asking for the attention of these translations; empty: nothing.
  static std::string excess(Active &active, size_t line, const std::vector<Hypothesis> &hypotheses) {
    const bool covers = active.options->generation.coveragePenalty > 0;
    if (active.options->details.alignments == Details::Alignments::None && !covers)
      return "";
    const std::string option = covers ? "--coverage-penalty" : "--alignments";
    const size_t from = active.sources[line].size();
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

  void tellLine(Active &active, size_t line, std::vector<Hypothesis> hypotheses) {
    TranslationUpdate update{.kind = TranslationUpdate::Kind::Line, .line = line};
    warnings.clear();
    update.found = translatedLine(
        model, {active.job->lines[line], active.sources[line], active.parts[line], "line " + std::to_string(line + 1)},
        std::move(hypotheses), *active.options, options.format, attended);
    active.warnings.insert(active.warnings.end(), warnings.begin(), warnings.end());
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
    for (const auto &[id, line] : found->second->lines) {
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
