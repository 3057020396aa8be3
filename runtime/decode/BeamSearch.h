// The search over sentences, independent of the model: a step gives log-probabilities of the next token for all live
// hypotheses of the running sentences, and the search decides which continuations survive.
//
// Greedy and beam. A sentence starts with one empty hypothesis. At each step the continuations of its live hypotheses
// are ranked by log-probability (ties: the lower token, then the parent that ranked higher). In this order, a
// continuation that ends with eos is finished if fewer than `beam` rank above it; the others stay live, until there are
// `beam` of them. A sentence ends when
//  - a beam of 1 (greedy) has finished a hypothesis, or
//  - a larger beam has finished `beam` hypotheses and meets the condition of earlyStopping: at once, or when the best
//    live hypothesis, if it ended at its present length (or at the maximum length), would score no better than the
//    worst of the best `beam` finished ones, or
//  - `nBest` hypotheses have finished and no live one can still beat the nBest-th best of them: its log-probability p
//    can only fall, so its score is at most the larger of p / penalty(n) for the shortest and the longest n with which
//    it may end, or
//  - it is `maxLength` tokens long: then every live hypothesis is finished, by eos or (atMaxLength) as it is.
// penalty(n) = ((5+n)/6)^lengthPenalty or n^lengthPenalty; n includes eos if there is one. At first the tokens of
// forcedFirst, and then those of a sentence's prefix, are the only continuations; a token of forcedFirst, and an eos
// that is forced at maxLength, count as certain. eos is not a candidate below minLength; pad, start (unless it is eos
// too) and what `generation` suppresses never are. With `renormalize`, the probabilities of a step's candidates are
// divided by their sum, so that an only continuation is certain. With a length penalty of the power form, these are the
// rules of transformers' `generate`.
//
// Sampling. A sentence has `nBest` independent hypotheses, each of which draws its next token until it draws eos.
//
// Sums of log-probabilities are kept in double, and no sentence's result depends on another sentence.
#pragma once

#include "decode/Candidates.h"
#include "decode/Search.h"
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace xfc {

// The request of a step: row h is a live hypothesis (see Batch::assignStep), ids[h] is the token it reads, and
// wanted[h] a token whose log-probability is needed whatever its rank: the one that the hypothesis must take next, or
// eos.
struct StepRequest {
  std::span<const int32_t> ids;
  std::span<const int32_t> wanted;
  std::span<const int32_t> sentenceOf;
  std::span<const int32_t> positions;
  std::span<const int32_t> slots;
  std::span<const std::span<const int32_t>> history;
};

// Rows of numbers, f32 or f64.
struct NumberRows {
  const void *data = nullptr;
  bool isDouble = false;
  int64_t stride = 0; // elements
  LogProbabilityRow row(int64_t i) const {
    return {static_cast<const char *>(data) + i * stride * (isDouble ? 8 : 4), isDouble};
  }
};

// The result of a step for each hypothesis, valid until the next step: either all log-probabilities, or the `count`
// best tokens without pad, start and eos, in the order of bestTokens (padded with -1), with their log-probabilities and
// that of the wanted token. If the search renormalizes, these are relative to all tokens but pad, start and eos, so
// that nothing is lost when pad is much more probable than all others.
struct StepResult {
  NumberRows all = {};
  int count = 0;
  const int32_t *tokens = nullptr;
  int64_t tokenStride = 0;
  NumberRows best = {}, wanted = {};
};

struct SearchVocabulary {
  int64_t size;
  int32_t pad, start, eos;
};

struct SearchSentence {
  size_t index = 0; // in the input: keys random numbers, and is named in errors
  int64_t maxLength = 0;
  int64_t minLength = 0;
  std::span<const int32_t> prefix = {}; // follows forcedFirst. NOLINT(readability-redundant-member-init):
                                        // GCC warns about initializers that omit it
};

// The model as the search sees it. Sentences wait in order, run, and leave; the running ones share the available
// memory.
class SearchedModel {
public:
  virtual ~SearchedModel() = default;
  // How many of the waiting sentences, of which `first` is the first, join the running ones; at least one if `idle`,
  // that is if none runs.
  virtual size_t join(size_t first, bool idle) = 0;
  virtual StepResult step(const StepRequest &request) = 0;
  // Whether steps read the rows of all tokens of a hypothesis. If not, only the rows of its last two are kept.
  virtual bool readsHistory() const { return true; }
  // The sentence has ended.
  virtual void leave(size_t) {}
};

// The largest number of live hypotheses of a sentence: `beam`, or `nBest` samples.
int64_t searchWidth(const SearchOptions &options);
// How many candidates of each hypothesis the search needs so that enough remain if some are suppressed; 0: all
// log-probabilities.
int64_t searchCandidates(const SearchOptions &options, const SearchVocabulary &vocabulary);
// The most steps that a sentence takes: one per token, and one for eos. A hypothesis uses one row of cache per step, or
// two in all if the model does not read its history, so running sentences never hold more slots than the sum of
// searchWidth times either.
int64_t searchSteps(const SearchSentence &sentence, const SearchOptions &options);

// A search that advances one step per call, with `slots` rows of cache. `done` is called with the input's index of each
// sentence that ends. If there is a pool, its threads rank the continuations of different sentences. Everything passed
// by reference must outlive the search.
class SentenceSearches {
public:
  SentenceSearches(std::span<const SearchSentence> sentences, const SearchVocabulary &vocabulary,
                   const SearchOptions &options, int64_t slots, SearchedModel &model,
                   std::function<void(size_t)> done = {}, ThreadPool *pool = nullptr);
  ~SentenceSearches();
  // Takes one step of all running sentences. Returns false when all have ended. Throws Error when the model gives no
  // finite log-probability; the search cannot go on then.
  bool advance();
  bool ended(size_t sentence) const;
  // The result of a sentence that has ended; for a running one its live hypotheses, the most probable first, with the
  // scores they would have if they ended now; for a waiting one nothing.
  std::vector<Hypothesis> hypotheses(size_t sentence) const;
  // In the order of the sentences, once all have ended.
  std::vector<std::vector<Hypothesis>> results() &&;

private:
  struct State;
  std::unique_ptr<State> state;
};

// Runs a search from beginning to end.
std::vector<std::vector<Hypothesis>> searchSentences(std::span<const SearchSentence> sentences,
                                                     const SearchVocabulary &vocabulary, const SearchOptions &options,
                                                     int64_t slots, SearchedModel &model,
                                                     const std::function<void(size_t)> &done = {},
                                                     ThreadPool *pool = nullptr);

} // namespace xfc
