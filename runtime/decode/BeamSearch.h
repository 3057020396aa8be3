// The search over sentences, apart from the model: a step gives log-probabilities of the next token for all live
// hypotheses of the sentences that run, and the search decides which live on.
//
// Greedy and beam. A sentence starts with one empty hypothesis. At each step the continuations of its live hypotheses
// are ranked by log-probability (equal ones: lower token, then the parent that ranked higher). From the best on, one
// that ends with eos is finished if fewer than `beam` stand before it; the others live on until there are `beam`.
// A sentence ends when
//  - a beam of 1 (greedy) has finished a hypothesis, or
//  - a larger one has finished `beam`, and earlyStopping finds that enough: at once, or when the best live one would
//    score no better than the worst of the best `beam` finished ones if it ended at its present length (or at the
//    longest), or
//  - `nBest` have finished, and no live one can still be better than the nBest-th best of them: its log-probability p
//    can only fall, so its score is at most the larger of p / penalty(n) for the shortest and the longest n it may end
//    with, or
//  - it is `maxLength` tokens long: then every live hypothesis is finished, by eos or (atMaxLength) as it is.
// penalty(n) = ((5+n)/6)^lengthPenalty or n^lengthPenalty, n counts eos where there is one. While forcedFirst, and then
// a sentence's prefix, last, their token is the only continuation; one of forcedFirst, and eos where it is forced at
// maxLength, counts as certain. eos is none below minLength; pad, start (where it is not eos too) and what `generation`
// suppresses never are. With a length penalty of the power form, these are the rules of transformers' `generate`.
//
// Sampling. A sentence has `nBest` independent hypotheses, each of which draws its next token until it draws eos.
//
// Sums of log-probabilities are kept in double, and nothing of a sentence depends on another.
#pragma once

#include "decode/Candidates.h"
#include "decode/Search.h"
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace xfc {

// What a step asks for: row h is a live hypothesis (see Batch::assignStep), ids[h] the token it reads, and wanted[h]
// one whose log-probability is needed whatever its rank: what the hypothesis must take next, or eos.
struct StepRequest {
  std::span<const int32_t> ids;
  std::span<const int32_t> wanted;
  std::span<const int32_t> sentenceOf;
  std::span<const int32_t> positions;
  std::span<const int32_t> slots;
  std::span<const int32_t *const> history;
};

// Numbers of each row, f32 or f64.
struct NumberRows {
  const void *data = nullptr;
  bool isDouble = false;
  int64_t stride = 0; // elements
  LogProbabilityRow row(int64_t i) const {
    return {static_cast<const char *>(data) + i * stride * (isDouble ? 8 : 4), isDouble};
  }
};

// What a step gives for each hypothesis, valid until the next: all log-probabilities, or those of the `count` best
// tokens without pad, start and eos, as bestTokens orders them (-1 where there are fewer), and of the wanted one.
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
  size_t index = 0; // in the input: keys random numbers, and named in errors
  int64_t maxLength = 0;
  int64_t minLength = 0;
  std::span<const int32_t> prefix = {}; // comes after what is forced first. NOLINT(readability-redundant-member-init):
                                        // GCC warns of initializers without
};

// The model as the search sees it. Sentences wait in their order, run, and leave; those that run share the memory there
// is.
class SearchedModel {
public:
  virtual ~SearchedModel() = default;
  // How many of the waiting sentences, the first of which is `first`, join those that run. At least one if `idle`: none
  // runs.
  virtual size_t join(size_t first, bool idle) = 0;
  virtual StepResult step(const StepRequest &request) = 0;
  // The sentence has ended.
  virtual void leave(size_t) {}
};

// The live hypotheses of a sentence: `beam`, or `nBest` samples.
int64_t searchWidth(const SearchOptions &options);
// The candidates of a hypothesis that the search needs, so that enough are left where some are suppressed; 0: all
// log-probabilities.
int64_t searchCandidates(const SearchOptions &options, const SearchVocabulary &vocabulary);
// The most steps a sentence takes: one for each token, and one for eos. Each hypothesis has a row of cache for each, so
// sentences that run together never hold more slots than the sum of searchWidth x searchSteps.
int64_t searchSteps(const SearchSentence &sentence, const SearchOptions &options);

// A search that takes one step when it is asked to, with `slots` rows of cache. `done` is called with the input's index
// as sentences end. With a pool its threads rank the continuations of different sentences. What it is given stays where
// it is until the search ends.
class SentenceSearches {
public:
  SentenceSearches(std::span<const SearchSentence> sentences, const SearchVocabulary &vocabulary,
                   const SearchOptions &options, int64_t slots, SearchedModel &model,
                   std::function<void(size_t)> done = {}, ThreadPool *pool = nullptr);
  ~SentenceSearches();
  // A step of all sentences that run. False where none runs any more: all have ended. Throws Error when the model gives
  // no finite log-probability; the search cannot go on then.
  bool advance();
  bool ended(size_t sentence) const;
  // The result of a sentence that has ended. Of one that runs, its live hypotheses, the most probable first, with the
  // scores they would have if they ended as they are. Of one that waits, nothing.
  std::vector<Hypothesis> hypotheses(size_t sentence) const;
  // In the order of the sentences, when all have ended.
  std::vector<std::vector<Hypothesis>> results() &&;

private:
  struct State;
  std::unique_ptr<State> state;
};

// The same from beginning to end.
std::vector<std::vector<Hypothesis>> searchSentences(std::span<const SearchSentence> sentences,
                                                     const SearchVocabulary &vocabulary, const SearchOptions &options,
                                                     int64_t slots, SearchedModel &model,
                                                     const std::function<void(size_t)> &done = {},
                                                     ThreadPool *pool = nullptr);

} // namespace xfc
