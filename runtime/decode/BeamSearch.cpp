// The search over sentences, independent of the model.
#include "decode/BeamSearch.h"
#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

namespace xfc {

namespace {

// Allocates the rows of the cache. A row is shared by all hypotheses whose history contains it, and counts its
// references.
class Slots {
public:
  explicit Slots(int64_t count) : references(count, 0), free(count) {
    // Low rows first, so that the memory of rows that are never taken is never touched.
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
      release(slot);
  }
  void release(int32_t slot) {
    if (--references[slot] == 0)
      free.push_back(slot);
  }

private:
  std::vector<int32_t> references, free;
};

struct Live {
  std::vector<int32_t> ids; // decided so far
  // Cache rows of start and of ids (or of the last two), except the token that is read next.
  std::vector<int32_t> history;
  double logProbability = 0;
  int sample = 0;
};

// A continuation of the live hypothesis `parent`; token -1 if no token could be drawn.
struct Continuation {
  int parent;
  int32_t token;
  double logProbability;
};

// Memory of a thread for choosing, reused across sentences and steps.
struct Scratch {
  std::vector<Continuation> ranked;
  std::vector<Candidate> best;
  std::vector<int32_t> suppressed;
};

bool contains(std::span<const int32_t> tokens, int32_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

// log(exp(x) + exp(y)), of which one is finite.
double logAdd(double x, double y) { return std::max(x, y) + std::log1p(std::exp(-std::abs(x - y))); }

// Whether a hypothesis of maxLength tokens ends without eos.
bool endsAsItIs(const SearchOptions &options) {
  return options.ignoreEos || options.generation.atMaxLength == Generation::AtMaxLength::Cut;
}

// Live hypotheses reserve their final sizes at the beginning, so that extending them does not allocate.
class SentenceSearch {
public:
  SentenceSearch(const SearchSentence &sentence, const SearchVocabulary &vocabulary, const SearchOptions &options)
      : sentence(sentence), vocabulary(vocabulary), options(options), generation(options.generation),
        lives(searchWidth(options)), next(lives.size()), living(options.sample ? lives.size() : 1) {
    for (std::vector<Live> *list : {&lives, &next})
      for (Live &hypothesis : *list) {
        hypothesis.ids.reserve(sentence.maxLength);
        hypothesis.history.reserve(searchSteps(sentence, options));
      }
    for (size_t i = 0; i < living; ++i)
      lives[i].sample = static_cast<int>(i);
    chosen.reserve(2 * lives.size());
    if (endsAsItIs(options) && sentence.maxLength == 0)
      finishAll();
  }

  std::span<Live> live() { return {lives.data(), living}; } // best first
  bool ended() const { return living == 0; }

  // The token whose log-probability is needed whatever its rank.
  int32_t wanted() const {
    const Forced must = forced(length());
    return must.token >= 0 ? must.token : vocabulary.eos;
  }

  // Chooses how the live hypotheses continue, by the rows of `result` from `first` on. Touches only this sentence.
  void choose(const StepResult &result, int64_t first, Scratch &scratch) {
    chosen.clear();
    if (options.sample)
      drawContinuations(result, first, scratch);
    else
      rankContinuations(result, first, scratch);
  }

  // Replaces the live hypotheses by the chosen continuations; those that end with eos are finished.
  void grow(Slots &slots) {
    const int64_t before = length();
    if (chosen.empty() && (finished.empty() || !suppresses()))
      noCandidate(before);
    size_t grown = 0;
    for (const Continuation &continuation : chosen) {
      if (!std::isfinite(continuation.logProbability))
        noCandidate(before);
      const Live &parent = lives[continuation.parent];
      if (continuation.token == vocabulary.eos) {
        finish(parent.ids, continuation.logProbability, true);
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
    if (endsAsItIs(options) && before + 1 >= sentence.maxLength) {
      release(slots);
      finishAll();
    } else if (living > 0 && decided()) {
      release(slots);
      living = 0;
    }
  }

  // The live hypotheses as if they ended here, without eos.
  std::vector<Hypothesis> unfinished() {
    std::vector<Hypothesis> all;
    for (const Live &hypothesis : live())
      all.push_back({hypothesis.ids, hypothesis.logProbability / penalty(std::max<int64_t>(length(), 1)),
                     hypothesis.logProbability});
    return all;
  }

  std::vector<Hypothesis> best() && {
    std::stable_sort(finished.begin(), finished.end(),
                     [](const Hypothesis &a, const Hypothesis &b) { return a.score > b.score; });
    if (finished.size() > static_cast<size_t>(options.nBest))
      finished.resize(options.nBest);
    return std::move(finished);
  }

private:
  double penalty(int64_t n) const {
    const double length = static_cast<double>(n);
    const bool power = generation.penaltyForm == Generation::PenaltyForm::Power;
    return std::pow(power ? std::max(length, 1.0) : (5.0 + length) / 6.0, generation.lengthPenalty);
  }

  void finish(std::vector<int32_t> ids, double logProbability, bool byEos) {
    const int64_t n = static_cast<int64_t>(ids.size()) + byEos;
    finished.push_back({std::move(ids), logProbability / penalty(n), logProbability});
  }
  void finishAll() {
    for (Live &hypothesis : live())
      finish(hypothesis.ids, hypothesis.logProbability, false);
    living = 0;
  }
  void release(Slots &slots) {
    for (const Live &hypothesis : live())
      slots.release(hypothesis.history);
  }
  int64_t length() const { return static_cast<int64_t>(lives.front().ids.size()); }

  // The only token that a hypothesis of the given length may take, or -1. A certain one has log-probability 0, and all
  // are certain if the probabilities of what may come next add up to 1.
  struct Forced {
    int32_t token = -1;
    bool certain = false;
  };
  Forced forced(int64_t length) const {
    if (length >= sentence.maxLength)
      return options.ignoreEos
                 ? Forced()
                 : Forced{vocabulary.eos,
                          generation.renormalize || generation.atMaxLength == Generation::AtMaxLength::ForcedEos};
    const auto given = static_cast<int64_t>(generation.forcedFirst.size());
    if (length < given)
      return {generation.forcedFirst[length], true};
    if (length - given < static_cast<int64_t>(sentence.prefix.size()))
      return {sentence.prefix[length - given], generation.renormalize};
    return {};
  }

  bool suppresses() const {
    return !generation.suppress.empty() || !generation.badSequences.empty() || generation.noRepeatNgram > 0;
  }
  // The tokens that the settings do not allow after this hypothesis; pad and start are never candidates.
  void suppressedAfter(const Live &hypothesis, std::vector<int32_t> &tokens) const {
    const std::vector<int32_t> &ids = hypothesis.ids;
    tokens.assign(generation.suppress.begin(), generation.suppress.end());
    for (const std::vector<int32_t> &sequence : generation.badSequences) {
      const size_t before = sequence.size() - 1; // tokens before the last one; the first may be start
      if (before > ids.size() + 1)
        continue;
      const bool fromStart = before == ids.size() + 1;
      if ((!fromStart || sequence.front() == vocabulary.start) &&
          std::equal(sequence.begin() + fromStart, sequence.end() - 1, ids.end() - (before - fromStart)))
        tokens.push_back(sequence.back());
    }
    if (const auto size = static_cast<size_t>(generation.noRepeatNgram); size > 0 && ids.size() >= size)
      for (auto begin = ids.begin(); begin + size <= ids.end(); ++begin)
        if (std::equal(begin, begin + (size - 1), ids.end() - (size - 1)))
          tokens.push_back(begin[size - 1]);
  }
  bool eosAllowed(int64_t length) const { return !options.ignoreEos && length >= sentence.minLength; }

  [[noreturn]] void noCandidate(int64_t length) const {
    throw Error("sentence " + std::to_string(sentence.index + 1) + ", position " + std::to_string(length) +
                (suppresses() ? ": no token is left that has a finite log-probability and is not suppressed; suppress "
                                "fewer, or give a larger --no-repeat-ngram"
                              : ": the model gives no finite log-probability; its weights are broken or too large"));
  }

  void drawContinuations(const StepResult &result, int64_t first, Scratch &scratch) {
    const Forced must = forced(length());
    std::vector<int32_t> &never = scratch.suppressed;
    for (size_t h = 0; h < living; ++h) {
      LogProbabilityRow row = result.all.row(first + static_cast<int64_t>(h));
      Candidate drawn{must.token, 0};
      if (must.token >= 0) {
        drawn.logProbability = must.certain ? 0 : row[must.token];
      } else {
        suppressedAfter(lives[h], never);
        never.push_back(vocabulary.pad);
        if (vocabulary.start != vocabulary.eos)
          never.push_back(vocabulary.start);
        if (!eosAllowed(length()))
          never.push_back(vocabulary.eos);
        drawn = sampleToken(row, vocabulary.size, never, {options.temperature, options.topK, options.topP},
                            uniformNumber(options.seed, static_cast<uint32_t>(sentence.index),
                                          static_cast<uint32_t>(length()), static_cast<uint32_t>(lives[h].sample)));
        if (generation.renormalize) {
          std::sort(never.begin(), never.end());
          drawn.logProbability -= logSumOfOthers(row, vocabulary.size, never);
        }
      }
      chosen.push_back({static_cast<int>(h), drawn.token, lives[h].logProbability + drawn.logProbability});
    }
  }

  void rankContinuations(const StepResult &result, int64_t first, Scratch &scratch) {
    const int beam = generation.beam;
    const Forced must = forced(length());
    auto &[ranked, best, suppressed] = scratch;
    ranked.clear();
    for (size_t h = 0; h < living; ++h) {
      const int64_t row = first + static_cast<int64_t>(h);
      double total = 0; // the logarithm of the sum of the probabilities of what may come next
      auto add = [&](int32_t token, double logProbability) {
        ranked.push_back({static_cast<int>(h), token, lives[h].logProbability + (logProbability - total)});
      };
      const double wantedLogProbability = result.tokens ? result.wanted.row(row)[0] : result.all.row(row)[wanted()];
      if (must.token >= 0) {
        add(must.token, must.certain ? 0 : wantedLogProbability);
        continue;
      }
      suppressedAfter(lives[h], suppressed);
      const bool mayEnd =
          eosAllowed(length()) && wantedLogProbability > -HUGE_VAL && !contains(suppressed, vocabulary.eos);
      if (!result.tokens)
        suppressed.insert(suppressed.end(), {vocabulary.pad, vocabulary.start, vocabulary.eos});
      if (generation.renormalize) {
        if (!result.tokens) { // otherwise nothing is suppressed, and the numbers are relative to this sum
          std::sort(suppressed.begin(), suppressed.end());
          total = logSumOfOthers(result.all.row(row), vocabulary.size, suppressed);
        }
        if (mayEnd)
          total = logAdd(total, wantedLogProbability);
        if (!std::isfinite(total))
          continue; // there is no candidate, or the weights are broken
      }
      if (mayEnd)
        add(vocabulary.eos, wantedLogProbability);
      if (result.tokens) {
        const int32_t *tokens = result.tokens + row * result.tokenStride;
        for (int c = 0, left = beam; c < result.count && tokens[c] >= 0 && left > 0; ++c)
          if (!contains(suppressed, tokens[c])) {
            add(tokens[c], result.best.row(row)[c]);
            --left;
          }
      } else {
        bestTokens(result.all.row(row), vocabulary.size, suppressed, beam, best);
        for (const Candidate &candidate : best)
          add(candidate.token, candidate.logProbability);
      }
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

  // The score of the finished hypothesis at rank `place`, from 1.
  double finishedScore(int place) {
    scores.clear();
    for (const Hypothesis &hypothesis : finished)
      scores.push_back(hypothesis.score);
    std::nth_element(scores.begin(), scores.begin() + (place - 1), scores.end(), std::greater<>());
    return scores[place - 1];
  }

  // Whether the finished hypotheses already decide the result.
  bool decided() {
    if (options.sample)
      return false;
    const int count = static_cast<int>(finished.size());
    const int64_t shortest = length() + 1, longest = sentence.maxLength + !endsAsItIs(options);
    if (count >= generation.beam) {
      using enum Generation::EarlyStopping;
      if (generation.beam == 1 || generation.earlyStopping == Yes)
        return true;
      const bool atItsLongest = generation.earlyStopping == Never && generation.lengthPenalty > 0;
      if (lives[0].logProbability / penalty(atItsLongest ? longest : length()) <= finishedScore(generation.beam))
        return true;
    }
    if (count < options.nBest)
      return false;
    const double worst = finishedScore(options.nBest);
    return std::ranges::none_of(live(), [&](const Live &hypothesis) {
      double p = hypothesis.logProbability;
      return std::max(p / penalty(shortest), p / penalty(longest)) > worst;
    });
  }

  const SearchSentence &sentence;
  const SearchVocabulary &vocabulary;
  const SearchOptions &options;
  const Generation &generation;
  std::vector<Live> lives, next; // the first `living` elements of `lives` are live
  size_t living;
  std::vector<Continuation> chosen;
  std::vector<Hypothesis> finished;
  std::vector<double> scores;
};

// Each running sentence is one chunk, which reads its own rows of a step's result.
struct Choice {
  const std::vector<std::unique_ptr<SentenceSearch>> &searches;
  const std::vector<size_t> &running;
  std::vector<int64_t> rows;    // the first row of each sentence
  std::vector<Scratch> scratch; // one per thread
  StepResult result;
  static void run(void *context, int64_t i, int thread) {
    auto *choice = static_cast<Choice *>(context);
    choice->searches[choice->running[i]]->choose(choice->result, choice->rows[i], choice->scratch[thread]);
  }
};

} // namespace

int64_t searchWidth(const SearchOptions &options) { return options.sample ? options.nBest : options.generation.beam; }

int64_t searchCandidates(const SearchOptions &options, const SearchVocabulary &vocabulary) {
  const Generation &generation = options.generation;
  if (options.sample || generation.noRepeatNgram > 0)
    return 0;
  std::set<int32_t> suppressed(generation.suppress.begin(), generation.suppress.end());
  for (const std::vector<int32_t> &sequence : generation.badSequences)
    suppressed.insert(sequence.back());
  for (int32_t never : {vocabulary.pad, vocabulary.start, vocabulary.eos})
    suppressed.erase(never);
  if (generation.renormalize && !suppressed.empty())
    return 0; // any of them may have most of the probability, whatever its rank
  return generation.beam + static_cast<int64_t>(suppressed.size());
}

int64_t searchSteps(const SearchSentence &sentence, const SearchOptions &options) {
  return sentence.maxLength + !endsAsItIs(options);
}

struct SentenceSearches::State {
  std::span<const SearchSentence> sentences;
  const SearchVocabulary &vocabulary;
  const SearchOptions &options;
  SearchedModel &model;
  std::function<void(size_t)> done;
  ThreadPool *pool;

  Slots slots;
  std::vector<std::vector<Hypothesis>> results;
  std::vector<std::unique_ptr<SentenceSearch>> searches; // null for sentences that do not run
  std::vector<size_t> running;
  size_t waiting = 0; // the first sentence that waits
  // The request of a step, kept so that steps do not allocate.
  std::vector<int32_t> ids, wanted, sentenceOf, positions, taken;
  std::vector<std::span<const int32_t>> history;
  Choice choice{searches, running, {}, std::vector<Scratch>(pool ? pool->threads() : 1), {}};

  State(std::span<const SearchSentence> sentences, const SearchVocabulary &vocabulary, const SearchOptions &options,
        int64_t slotCount, SearchedModel &model, std::function<void(size_t)> &&done, ThreadPool *pool)
      : sentences(sentences), vocabulary(vocabulary), options(options), model(model), done(std::move(done)), pool(pool),
        slots(slotCount), results(sentences.size()), searches(sentences.size()) {}

  // Removes sentences that have ended and fills their places with waiting ones.
  void renew() {
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
  }

  void step() {
    ids.clear(), wanted.clear(), sentenceOf.clear(), positions.clear(), taken.clear(), history.clear();
    choice.rows.clear();
    for (size_t s : running) {
      choice.rows.push_back(static_cast<int64_t>(ids.size()));
      for (Live &hypothesis : searches[s]->live()) {
        ids.push_back(hypothesis.ids.empty() ? vocabulary.start : hypothesis.ids.back());
        wanted.push_back(searches[s]->wanted());
        sentenceOf.push_back(static_cast<int32_t>(s));
        positions.push_back(static_cast<int32_t>(hypothesis.ids.size()));
        if (!model.readsHistory() && hypothesis.history.size() == 2) {
          slots.release(hypothesis.history.front());
          hypothesis.history.erase(hypothesis.history.begin());
        }
        taken.push_back(slots.take());
        hypothesis.history.push_back(taken.back());
        history.emplace_back(hypothesis.history);
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
};

SentenceSearches::SentenceSearches(std::span<const SearchSentence> sentences, const SearchVocabulary &vocabulary,
                                   const SearchOptions &options, int64_t slots, SearchedModel &model,
                                   std::function<void(size_t)> done, ThreadPool *pool)
    : state(std::make_unique<State>(sentences, vocabulary, options, slots, model, std::move(done), pool)) {
  state->renew();
}

SentenceSearches::~SentenceSearches() = default;

bool SentenceSearches::advance() {
  if (state->running.empty())
    return false;
  state->step();
  state->renew();
  return !state->running.empty();
}

bool SentenceSearches::ended(size_t sentence) const { return sentence < state->waiting && !state->searches[sentence]; }

std::vector<Hypothesis> SentenceSearches::hypotheses(size_t sentence) const {
  if (const std::unique_ptr<SentenceSearch> &search = state->searches[sentence])
    return search->unfinished();
  return state->results[sentence];
}

std::vector<std::vector<Hypothesis>> SentenceSearches::results() && { return std::move(state->results); }

std::vector<std::vector<Hypothesis>> searchSentences(std::span<const SearchSentence> sentences,
                                                     const SearchVocabulary &vocabulary, const SearchOptions &options,
                                                     int64_t slots, SearchedModel &model,
                                                     const std::function<void(size_t)> &done, ThreadPool *pool) {
  SentenceSearches searches(sentences, vocabulary, options, slots, model, done, pool);
  while (searches.advance()) {
  }
  return std::move(searches).results();
}

} // namespace xfc
