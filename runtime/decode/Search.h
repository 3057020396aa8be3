// Turns source sentences into target sentences: greedy search, beam search and sampling over the programs encode,
// decode_candidates, decode_renormalized and decode_step.
#pragma once

#include "corpora/ContextOptions.h"
#include "decode/Constraints.h"
#include "decode/Ensemble.h"
#include "engine/Batch.h"
#include "engine/Engine.h"
#include "metrics/Metrics.h"
#include "plan/Generation.h"
#include "tokenizers/RegularExpression.h"
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace xfc {

// What is told of each translation beside its text and score.
struct Details {
  enum class Alignments : uint8_t { None, Hard, Soft };
  bool tokenScores = false;                 // the log-probability of each token
  Alignments alignments = Alignments::None; // links, or the probabilities of the cross-attention
  bool replaceUnknowns = false;             // source tokens stand in the text for tokens that are unknown
};

struct SearchOptions {
  Generation generation;
  int nBest = 1; // at most the beam; with `sample`, the number of independent samples; with `alternatives`, any number
  bool sample = false;
  // The translations are those of the nBest most probable tokens after the forced beginning, each the best one that
  // goes on with it; but a token that is less probable than this begins one only if it is the most probable.
  bool alternatives = false;
  double leastAlternative = 0;
  // Minimum Bayes risk (decode/MinimumRisk.h): there are `samples` of them, of which the nBest are kept that have the
  // highest expected utility.
  std::optional<Utility> utility = {};
  int samples = 32;
  uint64_t seed = 1;
  int64_t batchTokens = 2048; // of the running sentences: at most this many source tokens, and as many live hypotheses
  int64_t batchSentences = 0; // the most sentences that run together; 0: as many as batchTokens allows
  std::string computeType;    // of the products: one of Module::computeTypes; empty: the executable's own
  bool ignoreEos = false;     // bench: every sentence runs to maxLength, and no eos is scored
  Details details;
  std::vector<RegularExpression> protect = {}; // decode/Protected.h
  // What the log-probability by a model that rescores is multiplied by (decode/Rescoring.h); nothing is given: 1.
  std::optional<double> rescoreWeight = {};
  // Of documents (decode/Context.h). If there are sentences, prefixes are of them, and do not count for constraints.
  ContextOptions context = {};

  // Whether tokens are drawn at random, and how many translations there are then.
  bool draws() const { return sample || utility; }
  int drawn() const { return utility ? samples : nBest; }
};

inline constexpr int64_t mostDraftTokens = 64; // at a time
inline constexpr int mostSamples = 1024;       // for minimum Bayes risk, which compares each with each

// Throws Error: the search is to draw tokens, but also to meet constraints. `where` begins the message.
[[noreturn]] void refuseConstraints(const SearchOptions &options, const std::string &where = "");

struct Hypothesis {
  std::vector<int32_t> ids; // without start and eos
  double score = 0;         // with the length penalty
  double logProbability = 0;
  bool byEos = false; // whether eos followed
  int sample = 0;     // its number among those that are drawn
  int group = 0;      // of the beam, or the rank of the alternative
  // Of details.tokenScores: what each token, and eos if it followed, added to logProbability.
  std::vector<double> tokenLogProbabilities = {};
  std::optional<double> rescored = {}; // its log-probability by another model (decode/Rescoring.h)
};

// Sources include eos if the model wants one, and are not empty. `prefixes` is empty, or gives each sentence's forced
// beginning; `constraints` is empty, or gives what each sentence's translations must contain. Results are in the order
// of the input, each best first. A sentence's result does not depend on the others; its number keys its random numbers:
// `numbers` is empty, or gives that of each sentence in place of its index. `places` is empty, or names each sentence
// in errors. Sentences that finish are replaced by waiting ones. `done` is called as sentences finish, for progress.
// BeamSearch.h states the rules of the search.
std::vector<std::vector<Hypothesis>>
search(const Ensemble &models, const std::vector<std::vector<int32_t>> &sources, const SearchOptions &options,
       const std::vector<std::vector<int32_t>> &prefixes = {},
       const std::vector<std::vector<Constraint>> &constraints = {}, const std::function<void(size_t)> &done = {},
       const std::vector<size_t> &numbers = {}, const std::vector<std::string> &places = {});

// A search that advances one step at a time, by a single worker. Several may be in progress on the same models, and
// other programs may run between their steps. Throws Error as search() does.
class SteppedSearch {
public:
  SteppedSearch(const Ensemble &models, const std::vector<std::vector<int32_t>> &sources, const SearchOptions &options,
                const std::vector<std::vector<int32_t>> &prefixes = {},
                const std::vector<std::vector<Constraint>> &constraints = {},
                const std::vector<std::string> &places = {});
  ~SteppedSearch();
  // Takes one step of all running sentences: each live hypothesis grows by a token. Returns false when all sentences
  // have ended.
  bool advance();
  bool ended(size_t sentence) const;
  // The result of a sentence that has ended; for a running one its live hypotheses, the most probable first, with the
  // scores they would have if they ended now; for a waiting one nothing.
  std::vector<Hypothesis> hypotheses(size_t sentence) const;

private:
  struct State;
  std::unique_ptr<State> state;
};

// The counts that such a search stays within, for reserving memory.
Counts searchCounts(const Module &module, const std::vector<std::vector<int32_t>> &sources,
                    const SearchOptions &options);

// A decoder (decode/Decoder.h) for requests that are not known yet. Its rows are the engines', which keep them for
// others that run later; with `ownRows`, they are its own, and others may run between its steps.
class Decoder;
std::unique_ptr<Decoder> makeDecoder(const Ensemble &models, const Counts &capacity, bool ownRows);
// Such a decoder for the models, and one for each of the workers beside them.
class Workers;
std::unique_ptr<Workers> makeWorkers(const Ensemble &models, const Counts &capacity, bool ownRows,
                                     std::function<void()> told = {});
// The capacity of each if requests are expected to have such options: batchTokens source tokens and hypotheses,
// batchSentences sentences, and the cache that they take.
Counts decoderCounts(const Ensemble &models, const SearchOptions &options);

} // namespace xfc
