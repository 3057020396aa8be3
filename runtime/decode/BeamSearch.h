// The search for the translations of one sentence, independent of the model: a step gives log-probabilities of the next
// token for all live hypotheses, and the search decides which continuations survive.
//
// Greedy and beam. A sentence starts with one empty hypothesis. At each step the continuations of its live hypotheses
// are ranked by log-probability (ties: the lower token, then the parent that ranked higher). In this order, a
// continuation that ends with eos is finished if fewer than `beam` rank above it; the others stay live, until there are
// `beam` of them. A sentence ends when
//  - a beam of 1 (greedy) has finished a hypothesis, or
//  - a larger beam has finished `beam` hypotheses, times `patience`, and meets the condition of earlyStopping: at once,
//    or when the best live hypothesis, if it ended at its present length (or at the maximum length), would score no
//    better than the worst of the best `beam` finished ones, or
//  - `nBest` hypotheses have finished and no live one can still beat the nBest-th best of them: its log-probability p
//    can only fall, so its score is at most the larger of p / penalty(n) for the shortest and the longest n with which
//    it may end, or
//  - it is `maxLength` tokens long: then every live hypothesis is finished, by eos or (atMaxLength) as it is.
// penalty(n) = ((5+n)/6)^lengthPenalty or n^lengthPenalty; n includes eos if there is one. At first the tokens of
// forcedFirst, and then those of a sentence's prefix, are the only continuations; a token of forcedFirst, and an eos
// that is forced at maxLength, count as certain. With a repetition penalty, the log-probabilities of start and of the
// tokens that the hypothesis has are multiplied by it before anything else. eos is not a candidate below minLength;
// pad, start (unless it is eos too) and what `generation` suppresses never are. With `renormalize`, the probabilities
// of a step's candidates are divided by their sum, so that an only continuation is certain. With a length penalty of
// the power form, these are the rules of transformers' `generate`.
//
// Groups (diverse beam search; Vijayakumar et al. 2016, with the Hamming diversity, as in transformers). A beam of G
// groups begins with an empty hypothesis in each, and a group is a beam of `beam` / G hypotheses with results of its
// own. In each step the groups choose one after the other. A continuation loses `diversity` for each live continuation
// with the same token that an earlier group has chosen in this step, unless it is the only one. What a hypothesis has
// lost in all is subtracted from its log-probability where it is ranked or scored. A group ends by the first two of the
// conditions above, of its own hypotheses (the second one with the nBest / G that are expected of it, rounded up, in
// place of nBest); with groups, the third one does not hold, since what a group still writes makes the others differ.
// The result is the nBest best of all groups, each of which gives its `beam` / G best.
//
// Alternatives. At the first token that is not forced, the sentence goes on with the nBest most probable tokens other
// than eos, each of which begins a beam of its own: as wide as `beam`, with results of its own, of which the best one
// counts. Each ends by the conditions above as if nBest were 1, so it is what a search finds for a prefix with this
// token. The results come in the order of these tokens.
//
// Coverage. With a coverage penalty, the scores of finished hypotheses change when the search has ended
// (decode/Choice.h): its result is all of them, and a sentence does not end by the third condition.
//
// Shortlists (decode/Shortlist.h). A token that is not listed has no probability, whatever the model says.
//
// Constraints (decode/Constraints.h). If a sentence has any, every hypothesis that finishes meets them. The tokens of
// forcedFirst and of the prefix count for them. A hypothesis needs the fewest tokens that must follow so that it meets
// them. eos is a candidate only if it needs none, and another token only if what is needed after it still fits into
// maxLength: when there is just enough room left, only tokens that bring a hypothesis nearer to its constraints are.
// The most probable continuations come first, half as many as the beam has places, rounded down: so the model can go on
// as it would, and come to what is wanted by itself. The others are ranked in banks (Post and Vilar 2018), one for each
// number of tokens needed, and the banks take turns, of which they have had one for each continuation among the first:
// in each round, every bank whose turn it is gives its best one, the bank that needs the fewest tokens first. Their
// places are shared by hypotheses that have met many and those that have met few of their constraints, and go to the
// former if there are more banks than places: greedy search writes what is wanted at once. In this order they finish or
// stay live. (Of 300 lines whose translation had the two wanted words already, a beam of 5 left 258 as they were, and
// 187 when the banks took turns for all places.) No continuation is left out before it is ranked, however improbable:
// the search reads all log-probabilities.
//
// Sampling. A sentence has `nBest` independent hypotheses, each of which draws its next token until it draws eos. For
// minimum Bayes risk it has `samples` of them, and its result is all of these in the order of their numbers.
//
// Sums of log-probabilities are kept in double, and no sentence's result depends on another sentence.
#pragma once

#include "decode/Candidates.h"
#include "decode/Constraints.h"
#include "decode/Search.h"
#include "support/Error.h"
#include <optional>
#include <span>
#include <vector>

namespace xfc {

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

// The settings and the constraints of a sentence allow no further token, although the model gives finite
// log-probabilities.
struct NothingLeft : Error {
  using Error::Error;
};

struct SearchVocabulary {
  int64_t size;
  int32_t pad, start, eos;
};

struct SearchSentence {
  size_t index = 0; // in the input: keys random numbers
  int64_t maxLength = 0;
  int64_t minLength = 0;
  std::span<const int32_t> prefix = {};     // follows forcedFirst. NOLINT(readability-redundant-member-init):
                                            // GCC warns about initializers that omit it
  const Constraints *constraints = nullptr; // which need all log-probabilities
  // Of a shortlist, which needs them too: the only tokens that may be written, ascending. Empty: all.
  std::span<const int32_t> listed = {}; // NOLINT(readability-redundant-member-init)
  // Names the sentence in errors; empty: its index does, from 1.
  std::string where = {}; // NOLINT(readability-redundant-member-init)
  std::string place() const { return where.empty() ? "sentence " + std::to_string(index + 1) : where; }
};

// Of what a search has found, keeps the nBest of the highest scores, best first; of a beam with groups, no more of each
// group than it is wide. Of alternatives, keeps the best one of each, in their order.
void keepBest(std::vector<Hypothesis> &found, const SearchOptions &options);
// The largest number of live hypotheses of a sentence: `beam`, or the number of samples.
int64_t searchWidth(const SearchOptions &options);
// How many candidates of each hypothesis the search needs so that enough remain if some are suppressed; 0: all
// log-probabilities.
int64_t searchCandidates(const SearchOptions &options, const SearchVocabulary &vocabulary);
// The most steps that a sentence takes: one per token, and one for eos. A hypothesis uses one row of cache per step, or
// two in all if the model does not read its history, so running sentences never hold more slots than the sum of
// searchWidth times either.
int64_t searchSteps(const SearchSentence &sentence, const SearchOptions &options);

// Allocates the rows of the cache. A row is shared by all hypotheses whose history contains it, and counts its
// references.
class CacheRows {
public:
  explicit CacheRows(int64_t count);
  int32_t take();
  void retain(const std::vector<int32_t> &history);
  void release(const std::vector<int32_t> &history);
  void release(int32_t row);

private:
  std::vector<int32_t> references, free;
};

struct LiveHypothesis {
  std::vector<int32_t> ids; // decided so far
  // Cache rows of start and of ids (or of the last two), except the token that is read next.
  std::vector<int32_t> history;
  double logProbability = 0;
  double lost = 0; // for diversity
  int sample = 0, group = 0;
  std::vector<double> tokenLogProbabilities; // if details.tokenScores
  Constraints::State met;                    // how far ids meet the sentence's constraints, if it has some
};

// A continuation of the live hypothesis `parent`; token -1 if no token could be drawn.
struct Continuation {
  int parent;
  int32_t token;
  double logProbability;
  double ofToken;  // what the token added to it
  double lost = 0; // with what its hypothesis has lost before
  int group = 0;
  int64_t needed = 0; // tokens that must follow it so that constraints are met
  size_t round = 0;   // its rank among those that need as many
  double value() const { return logProbability - lost; }
};

// Memory of a thread for choosing, reused across sentences and steps.
struct SearchScratch {
  std::vector<Continuation> ranked;
  std::vector<Candidate> best;
  std::vector<int32_t> suppressed;
  std::vector<double> numbers; // log-probabilities
  std::vector<int32_t> taken;  // tokens that earlier groups have chosen
  // The tokens that may follow a hypothesis with constraints. `allowed` lists the tokens with which a phrase begins or
  // goes on, each with the number of tokens that the constraints need after it. `others` is the number that they need
  // after any other token; it is empty if no other token may follow.
  std::vector<Constraints::Wanted> allowed;
  std::optional<int64_t> others;
};

// penalty(n), by which the log-probability of a translation of n tokens, eos included, is divided.
double lengthPenalty(const Generation &generation, int64_t n);

// Live hypotheses reserve their final sizes at the beginning, so that extending them does not allocate. What the
// constructor is given must outlive the search.
class SentenceSearch {
public:
  SentenceSearch(const SearchSentence &sentence, const SearchVocabulary &vocabulary, const SearchOptions &options);

  std::span<LiveHypothesis> live() { return {lives.data(), living}; } // best first
  bool ended() const { return living == 0; }
  // The token whose log-probability is needed whatever its rank, now or this many tokens later.
  int32_t wanted(int64_t later = 0) const;
  // The only token that a hypothesis of the given length may take, or -1.
  int32_t forcedToken(int64_t length) const { return forced(length).token; }

  // Chooses how the live hypotheses continue, by the rows of `result` from `first` on. Touches only this sentence.
  void choose(const StepResult &result, int64_t first, SearchScratch &scratch);
  // Replaces the live hypotheses by the chosen continuations; those that end with eos are finished. Throws Error
  // when the model gave no finite log-probability, and NothingLeft when none of those that it gave may be chosen; the
  // search can only be abandoned then.
  void grow(CacheRows &rows);
  // Ends the search without a result.
  void abandon(CacheRows &rows);

  // The live hypotheses as if they ended here, without eos.
  std::vector<Hypothesis> unfinished() const;
  // How many tokens at the beginning are the same in all hypotheses, live or finished: no later step changes them.
  size_t settled() const;
  std::vector<Hypothesis> best() &&;

private:
  // Whether the token at this place is of the sentences before, whose translations meet no constraint of this one.
  bool isContext(int64_t place) const;
  // The only token that a hypothesis of the given length may take, or -1. A certain one has log-probability 0, and all
  // are certain if the probabilities of what may come next add up to 1.
  struct Forced {
    int32_t token = -1;
    bool certain = false;
  };
  Forced forced(int64_t length) const;
  double penalty(int64_t n) const { return lengthPenalty(generation, n); }
  void finish(const LiveHypothesis &hypothesis, double logProbability, bool byEos);
  void finishAll();
  void release(CacheRows &rows);
  int64_t length() const { return static_cast<int64_t>(lives.front().ids.size()); }
  // Whether the model gave any finite log-probability for a live hypothesis.
  bool anyFinite(const StepResult &result, int64_t first) const;
  // Whether there may be no candidate left although the model gives finite log-probabilities.
  bool restricts() const;
  // The tokens that the settings do not allow after this hypothesis; pad and start are never candidates.
  void suppressedAfter(const LiveHypothesis &hypothesis, std::vector<int32_t> &tokens) const;
  // The row with the repetition penalty, and without what is not listed, in memory of the scratch if there are such.
  LogProbabilityRow changed(LogProbabilityRow row, const LiveHypothesis &hypothesis, SearchScratch &scratch) const;
  bool eosAllowed(int64_t length) const { return !options.ignoreEos && length >= sentence.minLength; }
  // Fills what the scratch says about constraints, for tokens that are not suppressed, and suppresses those that are
  // wanted but leave too little room.
  void allowedAfter(const LiveHypothesis &hypothesis, SearchScratch &scratch) const;
  // Puts continuations of a group, the most probable first, into the order that constraints ask for.
  void takeTurns(std::vector<Continuation> &ranked) const;
  [[noreturn]] void noCandidate(int64_t length) const;
  void drawContinuations(const StepResult &result, int64_t first, SearchScratch &scratch);
  void rankContinuations(const StepResult &result, int64_t first, SearchScratch &scratch);
  // Ranks the continuations of one group, the live hypotheses from `begin` to `end`, and chooses among them.
  void rankGroup(const StepResult &result, int64_t first, size_t begin, size_t end, SearchScratch &scratch);
  int64_t groupWidth() const {
    return options.alternatives ? generation.beam : generation.beam / generation.beamGroups;
  }
  // Whether the next token is the one whose alternatives are wanted.
  bool branches() const;
  // The end of the group of live hypotheses that begins there.
  size_t groupEnd(size_t begin) const;
  // The score of the group's finished hypothesis at rank `place`, from 1.
  double finishedScore(int place, int group);
  // Whether the finished hypotheses of a group already decide its result. `group`: its live ones.
  bool decided(std::span<const LiveHypothesis> group);
  // Takes the groups that are decided out of the live hypotheses.
  void leaveDecided(CacheRows &rows);

  const SearchSentence &sentence;
  const SearchVocabulary &vocabulary;
  const SearchOptions &options;
  const Generation &generation;
  std::vector<LiveHypothesis> lives, next; // the first `living` elements of `lives` are live
  size_t living;
  std::vector<Continuation> chosen;
  bool broken = false; // the model gave no finite log-probability
  std::vector<Hypothesis> finished;
  std::vector<double> scores;
};

} // namespace xfc
