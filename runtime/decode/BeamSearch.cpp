// The search over sentences, apart from the model.
#include "decode/BeamSearch.h"
#include <algorithm>
#include <cmath>
#include <memory>

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

// A thread's memory for choosing, kept from sentence to sentence and from step to step.
struct Scratch {
  std::vector<Continuation> ranked;
  std::vector<Candidate> best;
};

// Its vectors have their final sizes from the beginning: steps do not allocate.
class SentenceSearch {
public:
  SentenceSearch(const SearchSentence &sentence, const SearchVocabulary &vocabulary, const SearchOptions &options)
      : sentence(sentence), vocabulary(vocabulary), options(options), lives(searchWidth(options)), next(lives.size()),
        living(options.sample ? lives.size() : 1) {
    for (std::vector<Live> *list : {&lives, &next})
      for (Live &hypothesis : *list) {
        hypothesis.ids.reserve(sentence.maxLength);
        hypothesis.history.reserve(searchSteps(sentence, options));
      }
    for (size_t i = 0; i < living; ++i)
      lives[i].sample = static_cast<int>(i);
    chosen.reserve(2 * lives.size());
    if (options.ignoreEos && sentence.maxLength == 0)
      finishAll();
  }

  std::span<Live> live() { return {lives.data(), living}; } // best first
  bool ended() const { return living == 0; }

  // The token whose log-probability is needed whatever its rank.
  int32_t wanted() const {
    const int32_t token = forced(length());
    return token >= 0 ? token : vocabulary.eos;
  }

  // Decides how the live hypotheses go on, from the rows first.. of `result`. Touches nothing but this sentence.
  void choose(const StepResult &result, int64_t first, Scratch &scratch) {
    chosen.clear();
    if (options.sample)
      drawContinuations(result, first);
    else
      rankContinuations(result, first, scratch);
  }

  // Lets those chosen live, and all others go.
  void grow(Slots &slots) {
    const int64_t before = length();
    if (chosen.empty())
      noCandidate(before);
    size_t grown = 0;
    for (const Continuation &continuation : chosen) {
      if (!std::isfinite(continuation.logProbability))
        noCandidate(before);
      const Live &parent = lives[continuation.parent];
      if (continuation.token == vocabulary.eos) {
        finish(parent.ids, continuation.logProbability);
        continue;
      }
      Live &child = next[grown++];
      child = parent;
      child.ids.push_back(continuation.token);
      child.logProbability = continuation.logProbability;
      slots.retain(child.history);
    }
    release(slots);
    lives.swap(next);
    living = grown;
    if (options.ignoreEos && before + 1 >= sentence.maxLength) {
      release(slots);
      finishAll();
    } else if (living > 0 && decided()) {
      release(slots);
      living = 0;
    }
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
  void finishAll() {
    for (Live &hypothesis : live())
      finish(hypothesis.ids, hypothesis.logProbability);
    living = 0;
  }
  void release(Slots &slots) {
    for (const Live &hypothesis : live())
      slots.release(hypothesis.history);
  }
  int64_t length() const { return static_cast<int64_t>(lives.front().ids.size()); }

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

  void drawContinuations(const StepResult &result, int64_t first) {
    const int32_t excluded[] = {vocabulary.pad, vocabulary.start, vocabulary.eos};
    const std::span<const int32_t> never(excluded, eosAllowed(length()) ? 2 : 3);
    for (size_t h = 0; h < living; ++h) {
      LogProbabilityRow row = result.all.row(first + static_cast<int64_t>(h));
      Candidate drawn{forced(length()), 0};
      if (drawn.token >= 0)
        drawn.logProbability = row[drawn.token];
      else
        drawn = sampleToken(row, vocabulary.size, never, {options.temperature, options.topK, options.topP},
                            uniformNumber(options.seed, static_cast<uint32_t>(sentence.index),
                                          static_cast<uint32_t>(length()), static_cast<uint32_t>(lives[h].sample)));
      chosen.push_back({static_cast<int>(h), drawn.token, lives[h].logProbability + drawn.logProbability});
    }
  }

  void rankContinuations(const StepResult &result, int64_t first, Scratch &scratch) {
    const int beam = options.beam;
    const int32_t excluded[] = {vocabulary.pad, vocabulary.start, vocabulary.eos};
    auto &[ranked, best] = scratch;
    ranked.clear();
    for (size_t h = 0; h < living; ++h) {
      const int64_t row = first + static_cast<int64_t>(h);
      auto add = [&](int32_t token, double logProbability) {
        ranked.push_back({static_cast<int>(h), token, lives[h].logProbability + logProbability});
      };
      const double wantedLogProbability = result.tokens ? result.wanted.row(row)[0] : result.all.row(row)[wanted()];
      if (forced(length()) >= 0) {
        add(wanted(), wantedLogProbability);
        continue;
      }
      if (result.tokens) {
        const int32_t *tokens = result.tokens + row * result.tokenStride;
        for (int c = 0; c < std::min(beam, result.count) && tokens[c] >= 0; ++c)
          add(tokens[c], result.best.row(row)[c]);
      } else {
        bestTokens(result.all.row(row), vocabulary.size, excluded, beam, best);
        for (const Candidate &candidate : best)
          add(candidate.token, candidate.logProbability);
      }
      if (eosAllowed(length()) && wantedLogProbability > -HUGE_VAL)
        add(vocabulary.eos, wantedLogProbability);
    }
    std::sort(ranked.begin(), ranked.end(), [](const Continuation &a, const Continuation &b) {
      if (a.logProbability != b.logProbability)
        return a.logProbability > b.logProbability;
      return a.token != b.token ? a.token < b.token : a.parent < b.parent;
    });
    int staying = 0;
    for (size_t rank = 0; rank < ranked.size() && staying < beam; ++rank) {
      bool ends = ranked[rank].token == vocabulary.eos;
      if (ends && static_cast<int>(rank) >= beam)
        continue;
      staying += !ends;
      chosen.push_back(ranked[rank]);
    }
  }

  // Whether the finished hypotheses already decide the result.
  bool decided() {
    if (options.sample)
      return false;
    if (static_cast<int>(finished.size()) >= options.beam)
      return true;
    if (static_cast<int>(finished.size()) < options.nBest)
      return false;
    scores.clear();
    for (const Hypothesis &hypothesis : finished)
      scores.push_back(hypothesis.score);
    std::nth_element(scores.begin(), scores.begin() + (options.nBest - 1), scores.end(), std::greater<>());
    double worst = scores[options.nBest - 1];
    int64_t shortest = length() + 1, longest = sentence.maxLength + 1;
    return std::ranges::none_of(live(), [&](const Live &hypothesis) {
      double p = hypothesis.logProbability;
      return std::max(p / penalty(shortest), p / penalty(longest)) > worst;
    });
  }

  const SearchSentence &sentence;
  const SearchVocabulary &vocabulary;
  const SearchOptions &options;
  std::vector<Live> lives, next; // the first `living` of lives live
  size_t living;
  std::vector<Continuation> chosen;
  std::vector<Hypothesis> finished;
  std::vector<double> scores;
};

// Each running sentence reads its own rows of a step's result: a chunk each.
struct Choice {
  const std::vector<std::unique_ptr<SentenceSearch>> &searches;
  const std::vector<size_t> &running;
  std::vector<int64_t> rows;    // the first of each
  std::vector<Scratch> scratch; // one per thread
  StepResult result;
  static void run(void *context, int64_t i, int thread) {
    auto *choice = static_cast<Choice *>(context);
    choice->searches[choice->running[i]]->choose(choice->result, choice->rows[i], choice->scratch[thread]);
  }
};

} // namespace

int64_t searchWidth(const SearchOptions &options) { return options.sample ? options.nBest : options.beam; }

int64_t searchCandidates(const SearchOptions &options) { return options.sample ? 0 : options.beam; }

int64_t searchSteps(const SearchSentence &sentence, const SearchOptions &options) {
  return sentence.maxLength + (options.ignoreEos ? 0 : 1);
}

std::vector<std::vector<Hypothesis>> searchSentences(std::span<const SearchSentence> sentences,
                                                     const SearchVocabulary &vocabulary, const SearchOptions &options,
                                                     int64_t slotCount, SearchedModel &model,
                                                     const std::function<void(size_t)> &done, ThreadPool *pool) {
  Slots slots(slotCount);
  std::vector<std::vector<Hypothesis>> results(sentences.size());
  std::vector<std::unique_ptr<SentenceSearch>> searches(sentences.size()); // of those that run
  std::vector<size_t> running;
  size_t waiting = 0; // the first that waits

  // Sentences that have ended go, and others take their places.
  auto renew = [&] {
    auto ended = [&](size_t s) {
      if (!searches[s]->ended())
        return false;
      results[s] = std::move(*searches[s]).best();
      searches[s].reset();
      model.leave(s);
      if (done)
        done(sentences[s].index);
      return true;
    };
    do {
      std::erase_if(running, ended);
      if (waiting == sentences.size())
        return;
      for (size_t joining = model.join(waiting, running.empty()); joining > 0; --joining, ++waiting) {
        searches[waiting] = std::make_unique<SentenceSearch>(sentences[waiting], vocabulary, options);
        running.push_back(waiting);
      }
    } while (std::ranges::all_of(running, [&](size_t s) { return searches[s]->ended(); }));
  };

  std::vector<int32_t> ids, wanted, sentenceOf, positions, taken;
  std::vector<const int32_t *> history;
  Choice choice{searches, running, {}, std::vector<Scratch>(pool ? pool->threads() : 1), {}};
  for (renew(); !running.empty(); renew()) {
    ids.clear(), wanted.clear(), sentenceOf.clear(), positions.clear(), taken.clear(), history.clear();
    choice.rows.clear();
    for (size_t s : running) {
      choice.rows.push_back(static_cast<int64_t>(ids.size()));
      for (Live &hypothesis : searches[s]->live()) {
        ids.push_back(hypothesis.ids.empty() ? vocabulary.start : hypothesis.ids.back());
        wanted.push_back(searches[s]->wanted());
        sentenceOf.push_back(static_cast<int32_t>(s));
        positions.push_back(static_cast<int32_t>(hypothesis.ids.size()));
        taken.push_back(slots.take());
        hypothesis.history.push_back(taken.back());
        history.push_back(hypothesis.history.data());
      }
    }
    choice.result = model.step({ids, wanted, sentenceOf, positions, taken, history});
    if (pool)
      pool->run(Choice::run, &choice, static_cast<int64_t>(running.size()));
    else
      for (size_t i = 0; i < running.size(); ++i)
        Choice::run(&choice, static_cast<int64_t>(i), 0);
    for (size_t s : running)
      searches[s]->grow(slots);
  }
  return results;
}

} // namespace xfc
