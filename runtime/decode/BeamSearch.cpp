// The search over one batch of sentences, apart from the model.
#include "BeamSearch.h"
#include <algorithm>
#include <cmath>

namespace xfc {

namespace {

// Hands out rows of the cache. A row is shared by every hypothesis whose history holds it.
class Slots {
public:
  explicit Slots(int64_t count) : references(count, 0), free(count) {
    // Low rows first: memory of rows never taken is never touched.
    for (int64_t i = 0; i < count; ++i)
      free[i] = static_cast<int32_t>(count - 1 - i);
  }
  int32_t take() {
    int32_t slot = free.back();
    free.pop_back();
    references[slot] = 1;
    return slot;
  }
  void retain(const std::vector<int32_t> &history) {
    for (int32_t slot : history)
      ++references[slot];
  }
  void release(const std::vector<int32_t> &history) {
    for (int32_t slot : history)
      if (--references[slot] == 0)
        free.push_back(slot);
  }

private:
  std::vector<int32_t> references, free;
};

struct Live {
  std::vector<int32_t> ids;     // decided so far
  std::vector<int32_t> history; // cache rows of start and of ids, but for the one read next
  double logProbability = 0;
  int sample = 0;
};

// A continuation of the live hypothesis `parent`; token -1 when the model gave none.
struct Continuation {
  int parent;
  int32_t token;
  double logProbability;
};

class SentenceSearch {
public:
  SentenceSearch(const SearchSentence &sentence, const SearchVocabulary &vocabulary, const SearchOptions &options)
      : sentence(sentence), vocabulary(vocabulary), options(options),
        live(options.sample ? std::max(options.nBest, 1) : 1) {
    for (size_t i = 0; i < live.size(); ++i)
      live[i].sample = static_cast<int>(i);
    if (options.ignoreEos && sentence.maxLength == 0)
      finishAll();
  }

  std::vector<Live> &hypotheses() { return live; }
  bool ended() const { return live.empty(); }

  // Decides how the live hypotheses go on, from the rows first.. of `result`. Touches nothing but this sentence.
  void choose(const StepResult &result, int64_t first) {
    chosen.clear();
    int64_t length = static_cast<int64_t>(live.front().ids.size());
    if (options.sample)
      drawContinuations(result, first, length);
    else
      rankContinuations(result, first, length);
  }

  // Lets those chosen live, and all others go.
  void grow(Slots &slots) {
    int64_t length = static_cast<int64_t>(live.front().ids.size());
    std::vector<Live> next;
    for (const Continuation &continuation : chosen) {
      if (!std::isfinite(continuation.logProbability))
        noCandidate(length);
      extend(continuation, next);
    }
    if (chosen.empty())
      noCandidate(length);
    for (const Live &hypothesis : next)
      slots.retain(hypothesis.history);
    for (const Live &hypothesis : live)
      slots.release(hypothesis.history);
    live = std::move(next);
    if (options.ignoreEos && length + 1 >= sentence.maxLength)
      finishAll(&slots);
    else if (!live.empty() && decided())
      endNow(slots);
  }

  std::vector<Hypothesis> best() && {
    std::stable_sort(finished.begin(), finished.end(),
                     [](const Hypothesis &a, const Hypothesis &b) { return a.score > b.score; });
    if (finished.size() > static_cast<size_t>(options.nBest))
      finished.resize(options.nBest);
    return std::move(finished);
  }

private:
  double penalty(int64_t n) const { return std::pow((5.0 + static_cast<double>(n)) / 6.0, options.lengthPenalty); }

  void finish(std::vector<int32_t> ids, double logProbability) {
    int64_t n = static_cast<int64_t>(ids.size()) + (options.ignoreEos ? 0 : 1);
    finished.push_back({std::move(ids), logProbability / penalty(n), logProbability});
  }
  void finishAll(Slots *slots = nullptr) {
    for (Live &hypothesis : live) {
      if (slots)
        slots->release(hypothesis.history);
      finish(std::move(hypothesis.ids), hypothesis.logProbability);
    }
    live.clear();
  }
  void endNow(Slots &slots) {
    for (const Live &hypothesis : live)
      slots.release(hypothesis.history);
    live.clear();
  }

  // The one token a hypothesis of this length must take, or -1.
  int32_t forced(int64_t length) const {
    if (length < std::min(static_cast<int64_t>(sentence.prefix.size()), sentence.maxLength))
      return sentence.prefix[length];
    return length >= sentence.maxLength && !options.ignoreEos ? vocabulary.eos : -1;
  }
  bool eosAllowed(int64_t length) const { return !options.ignoreEos && length >= sentence.minLength; }

  [[noreturn]] void noCandidate(int64_t length) const {
    throw Error("sentence " + std::to_string(sentence.index + 1) + ", position " + std::to_string(length) +
                ": the model gives no finite log-probability; its weights are broken or too large");
  }

  void extend(const Continuation &continuation, std::vector<Live> &next) {
    const Live &parent = live[continuation.parent];
    if (continuation.token == vocabulary.eos)
      return finish(parent.ids, continuation.logProbability);
    Live child = parent;
    child.ids.push_back(continuation.token);
    child.logProbability = continuation.logProbability;
    next.push_back(std::move(child));
  }

  void drawContinuations(const StepResult &result, int64_t first, int64_t length) {
    std::vector<int32_t> excluded = {vocabulary.pad, vocabulary.start};
    if (!eosAllowed(length))
      excluded.push_back(vocabulary.eos);
    for (int h = 0; h < static_cast<int>(live.size()); ++h) {
      LogProbabilityRow row = result.row(first + h);
      Candidate drawn{forced(length), 0};
      if (drawn.token >= 0)
        drawn.logProbability = row[drawn.token];
      else
        drawn = sampleToken(row, vocabulary.size, excluded, {options.temperature, options.topK, options.topP},
                            uniformNumber(options.seed, static_cast<uint32_t>(sentence.index),
                                          static_cast<uint32_t>(length), static_cast<uint32_t>(live[h].sample)));
      chosen.push_back({h, drawn.token, live[h].logProbability + drawn.logProbability});
    }
  }

  void rankContinuations(const StepResult &result, int64_t first, int64_t length) {
    int beam = options.beam;
    const int32_t excluded[] = {vocabulary.pad, vocabulary.start, vocabulary.eos};
    std::vector<Continuation> ranked;
    std::vector<Candidate> best;
    for (int h = 0; h < static_cast<int>(live.size()); ++h) {
      LogProbabilityRow row = result.row(first + h);
      auto add = [&](int32_t token, double logProbability) {
        ranked.push_back({h, token, live[h].logProbability + logProbability});
      };
      if (int32_t token = forced(length); token >= 0) {
        add(token, row[token]);
        continue;
      }
      bestTokens(row, vocabulary.size, excluded, beam, best);
      for (const Candidate &candidate : best)
        add(candidate.token, candidate.logProbability);
      if (eosAllowed(length) && row[vocabulary.eos] > -HUGE_VAL)
        add(vocabulary.eos, row[vocabulary.eos]);
    }
    std::sort(ranked.begin(), ranked.end(), [](const Continuation &a, const Continuation &b) {
      if (a.logProbability != b.logProbability)
        return a.logProbability > b.logProbability;
      return a.token != b.token ? a.token < b.token : a.parent < b.parent;
    });
    int living = 0;
    for (size_t rank = 0; rank < ranked.size() && living < beam; ++rank) {
      bool ends = ranked[rank].token == vocabulary.eos;
      if (ends && static_cast<int>(rank) >= beam)
        continue;
      living += !ends;
      chosen.push_back(ranked[rank]);
    }
  }

  // Whether the finished hypotheses already decide the result.
  bool decided() const {
    if (options.sample)
      return false;
    if (static_cast<int>(finished.size()) >= options.beam)
      return true;
    if (static_cast<int>(finished.size()) < options.nBest)
      return false;
    std::vector<double> scores;
    for (const Hypothesis &hypothesis : finished)
      scores.push_back(hypothesis.score);
    std::nth_element(scores.begin(), scores.begin() + (options.nBest - 1), scores.end(), std::greater<>());
    double worst = scores[options.nBest - 1];
    int64_t shortest = static_cast<int64_t>(live.front().ids.size()) + 1, longest = sentence.maxLength + 1;
    return std::none_of(live.begin(), live.end(), [&](const Live &hypothesis) {
      double p = hypothesis.logProbability;
      return std::max(p / penalty(shortest), p / penalty(longest)) > worst;
    });
  }

  const SearchSentence &sentence;
  const SearchVocabulary &vocabulary;
  const SearchOptions &options;
  std::vector<Live> live; // best first
  std::vector<Continuation> chosen;
  std::vector<Hypothesis> finished;
};

// Each running sentence reads its own rows of a step's result: a chunk each.
struct Choice {
  std::vector<SentenceSearch> &searches;
  const std::vector<size_t> &running;
  std::vector<int64_t> rows; // the first of each
  const StepResult &result;
  static void run(void *context, int64_t i, int) {
    auto *choice = static_cast<Choice *>(context);
    choice->searches[choice->running[i]].choose(choice->result, choice->rows[i]);
  }
};

} // namespace

int64_t searchWidth(const SearchOptions &options) { return options.sample ? options.nBest : options.beam; }

int64_t searchSteps(const SearchSentence &sentence, const SearchOptions &options) {
  return sentence.maxLength + (options.ignoreEos ? 0 : 1);
}

std::vector<std::vector<Hypothesis>> searchBatch(std::span<const SearchSentence> sentences,
                                                 const SearchVocabulary &vocabulary, const SearchOptions &options,
                                                 const StepFunction &step, const std::function<void(size_t)> &done,
                                                 ThreadPool *pool) {
  int64_t rows = 0;
  for (const SearchSentence &sentence : sentences)
    rows += searchWidth(options) * searchSteps(sentence, options);
  Slots slots(rows);
  std::vector<SentenceSearch> searches;
  searches.reserve(sentences.size());
  for (const SearchSentence &sentence : sentences)
    searches.emplace_back(sentence, vocabulary, options);

  std::vector<int32_t> ids, sentenceOf, positions, taken;
  std::vector<const int32_t *> history;
  std::vector<size_t> running;
  for (size_t s = 0; s < sentences.size(); ++s)
    if (!searches[s].ended())
      running.push_back(s);
    else if (done)
      done(sentences[s].index);

  while (!running.empty()) {
    ids.clear(), sentenceOf.clear(), positions.clear(), taken.clear(), history.clear();
    for (size_t s : running)
      for (Live &hypothesis : searches[s].hypotheses()) {
        ids.push_back(hypothesis.ids.empty() ? vocabulary.start : hypothesis.ids.back());
        sentenceOf.push_back(static_cast<int32_t>(s));
        positions.push_back(static_cast<int32_t>(hypothesis.ids.size()));
        taken.push_back(slots.take());
        hypothesis.history.push_back(taken.back());
        history.push_back(hypothesis.history.data());
      }
    StepResult result = step({ids, sentenceOf, positions, taken, history});
    Choice choice{searches, running, {0}, result};
    for (size_t s : running)
      choice.rows.push_back(choice.rows.back() + static_cast<int64_t>(searches[s].hypotheses().size()));
    if (pool)
      pool->run(Choice::run, &choice, static_cast<int64_t>(running.size()));
    else
      for (size_t i = 0; i < running.size(); ++i)
        Choice::run(&choice, static_cast<int64_t>(i), 0);
    std::vector<size_t> continuing;
    for (size_t s : running) {
      searches[s].grow(slots);
      if (!searches[s].ended())
        continuing.push_back(s);
      else if (done)
        done(sentences[s].index);
    }
    running = std::move(continuing);
  }

  std::vector<std::vector<Hypothesis>> results;
  for (SentenceSearch &search : searches)
    results.push_back(std::move(search).best());
  return results;
}

} // namespace xfc
