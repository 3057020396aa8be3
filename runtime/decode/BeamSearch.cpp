// The search for the translations of one sentence, independent of the model.
#include "decode/BeamSearch.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>
#include <set>

namespace xfc {

namespace {

bool contains(std::span<const int32_t> tokens, int32_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

// log(exp(x) + exp(y)), of which one is finite.
double logAdd(double x, double y) { return std::max(x, y) + std::log1p(std::exp(-std::abs(x - y))); }

// Whether a continuation is more probable than another; of equal ones, the lower token comes first, then the parent
// that ranked higher.
bool ranksHigher(const Continuation &a, const Continuation &b) {
  if (a.value() != b.value())
    return a.value() > b.value();
  return a.token != b.token ? a.token < b.token : a.parent < b.parent;
}

// Whether a hypothesis of maxLength tokens ends without eos.
bool endsAsItIs(const SearchOptions &options) {
  return options.ignoreEos || options.generation.atMaxLength == Generation::AtMaxLength::Cut;
}

} // namespace

CacheRows::CacheRows(int64_t count) : references(count, 0), free(count) {
  // Low rows first, so that the memory of rows that are never taken is never touched.
  for (int64_t i = 0; i < count; ++i)
    free[i] = static_cast<int32_t>(count - 1 - i);
}

int32_t CacheRows::take() {
  const int32_t row = free.back();
  free.pop_back();
  references[row] = 1;
  return row;
}

void CacheRows::retain(const std::vector<int32_t> &history) {
  for (int32_t row : history)
    ++references[row];
}

void CacheRows::release(const std::vector<int32_t> &history) {
  for (int32_t row : history)
    release(row);
}

void CacheRows::release(int32_t row) {
  if (--references[row] == 0)
    free.push_back(row);
}

SentenceSearch::SentenceSearch(const SearchSentence &sentence, const SearchVocabulary &vocabulary,
                               const SearchOptions &options)
    : sentence(sentence), vocabulary(vocabulary), options(options), generation(options.generation),
      lives(searchWidth(options)), next(lives.size()),
      living(options.draws()        ? lives.size()
             : options.alternatives ? 1
                                    : static_cast<size_t>(generation.beamGroups)) {
  for (std::vector<LiveHypothesis> *list : {&lives, &next})
    for (LiveHypothesis &hypothesis : *list) {
      hypothesis.ids.reserve(sentence.maxLength);
      hypothesis.history.reserve(searchSteps(sentence, options));
      if (options.details.tokenScores)
        hypothesis.tokenLogProbabilities.reserve(sentence.maxLength);
    }
  for (size_t i = 0; i < living; ++i) {
    (options.draws() ? lives[i].sample : lives[i].group) = static_cast<int>(i);
    if (sentence.constraints)
      lives[i].met = sentence.constraints->start();
  }
  chosen.reserve(2 * lives.size());
  if (endsAsItIs(options) && sentence.maxLength == 0)
    finishAll();
}

int32_t SentenceSearch::wanted(int64_t later) const {
  const int32_t must = forcedToken(length() + later);
  return must >= 0 ? must : vocabulary.eos;
}

void SentenceSearch::choose(const StepResult &result, int64_t first, SearchScratch &scratch) {
  chosen.clear();
  if (options.draws())
    drawContinuations(result, first, scratch);
  else
    rankContinuations(result, first, scratch);
  const auto isFinite = [](const Continuation &continuation) { return std::isfinite(continuation.logProbability); };
  broken = (chosen.empty() || !std::ranges::all_of(chosen, isFinite)) && !anyFinite(result, first);
}

bool SentenceSearch::anyFinite(const StepResult &result, int64_t first) const {
  for (int64_t row = first; row < first + static_cast<int64_t>(living); ++row) {
    const LogProbabilityRow numbers = result.tokens ? result.best.row(row) : result.all.row(row);
    for (int64_t i = 0, count = result.tokens ? result.count : vocabulary.size; i < count; ++i)
      if (std::isfinite(numbers[i]) && (!result.tokens || result.tokens[row * result.tokenStride + i] >= 0))
        return true;
    if (result.tokens && std::isfinite(result.wanted.row(row)[0]))
      return true;
  }
  return false;
}

void SentenceSearch::grow(CacheRows &rows) {
  const int64_t before = length();
  if (chosen.empty() && (finished.empty() || !restricts()))
    noCandidate(before);
  for (const Continuation &continuation : chosen)
    if (!std::isfinite(continuation.logProbability))
      noCandidate(before);
  size_t grown = 0;
  for (const Continuation &continuation : chosen) {
    const LiveHypothesis &parent = lives[continuation.parent];
    if (continuation.token == vocabulary.eos) {
      finish(parent, continuation.logProbability, true);
      if (options.details.tokenScores)
        finished.back().tokenLogProbabilities.push_back(continuation.ofToken);
      continue;
    }
    LiveHypothesis &child = next[grown++];
    child = parent;
    child.ids.push_back(continuation.token);
    child.logProbability = continuation.logProbability;
    child.lost = continuation.lost;
    child.group = continuation.group;
    if (options.details.tokenScores)
      child.tokenLogProbabilities.push_back(continuation.ofToken);
    if (sentence.constraints && !isContext(before))
      child.met = sentence.constraints->advance(parent.met, continuation.token);
    rows.retain(child.history);
  }
  release(rows);
  lives.swap(next);
  living = grown;
  if (endsAsItIs(options) && before + 1 >= sentence.maxLength) {
    release(rows);
    finishAll();
  } else {
    leaveDecided(rows);
  }
}

void SentenceSearch::leaveDecided(CacheRows &rows) {
  size_t kept = 0;
  for (size_t begin = 0, end = 0; begin < living; begin = end) {
    end = groupEnd(begin);
    const std::span<LiveHypothesis> group = live().subspan(begin, end - begin);
    if (decided(group))
      for (const LiveHypothesis &hypothesis : group)
        rows.release(hypothesis.history);
    else
      for (LiveHypothesis &hypothesis : group)
        if (LiveHypothesis &place = lives[kept++]; &place != &hypothesis)
          std::swap(place, hypothesis);
  }
  living = kept;
}

size_t SentenceSearch::groupEnd(size_t begin) const {
  size_t end = begin + 1;
  while (end < living && lives[end].group == lives[begin].group)
    ++end;
  return end;
}

void SentenceSearch::abandon(CacheRows &rows) {
  release(rows);
  living = 0;
}

std::vector<Hypothesis> SentenceSearch::unfinished() const {
  std::vector<Hypothesis> all;
  for (const LiveHypothesis &hypothesis : std::span(lives).first(living))
    all.push_back(
        {hypothesis.ids, (hypothesis.logProbability - hypothesis.lost) / penalty(std::max<int64_t>(length(), 1)),
         hypothesis.logProbability, false, hypothesis.sample, hypothesis.group, hypothesis.tokenLogProbabilities});
  if (generation.beamGroups > 1 || options.alternatives)
    std::ranges::stable_sort(all, std::ranges::greater(), &Hypothesis::score);
  return all;
}

size_t SentenceSearch::settled() const {
  const std::vector<int32_t> &one = living > 0 ? lives.front().ids : finished.front().ids;
  size_t same = one.size();
  const auto compare = [&](const std::vector<int32_t> &other) {
    const auto end = one.begin() + static_cast<std::ptrdiff_t>(same);
    same = static_cast<size_t>(std::mismatch(one.begin(), end, other.begin(), other.end()).first - one.begin());
  };
  for (size_t h = 1; h < living; ++h)
    compare(lives[h].ids);
  for (const Hypothesis &hypothesis : finished)
    compare(hypothesis.ids);
  return same;
}

std::vector<Hypothesis> SentenceSearch::best() && {
  if (options.utility)
    std::ranges::sort(finished, {}, &Hypothesis::sample);
  else if (generation.coveragePenalty == 0)
    keepBest(finished, options);
  return std::move(finished);
}

double lengthPenalty(const Generation &generation, int64_t n) {
  const double length = static_cast<double>(n);
  const bool power = generation.penaltyForm == Generation::PenaltyForm::Power;
  return std::pow(power ? std::max(length, 1.0) : (5.0 + length) / 6.0, generation.lengthPenalty);
}

void SentenceSearch::finish(const LiveHypothesis &hypothesis, double logProbability, bool byEos) {
  const int64_t n = static_cast<int64_t>(hypothesis.ids.size()) + byEos;
  finished.push_back({hypothesis.ids, (logProbability - hypothesis.lost) / penalty(n), logProbability, byEos,
                      hypothesis.sample, hypothesis.group, hypothesis.tokenLogProbabilities});
}

void SentenceSearch::finishAll() {
  for (LiveHypothesis &hypothesis : live())
    finish(hypothesis, hypothesis.logProbability, false);
  living = 0;
}

void SentenceSearch::release(CacheRows &rows) {
  for (const LiveHypothesis &hypothesis : live())
    rows.release(hypothesis.history);
}

SentenceSearch::Forced SentenceSearch::forced(int64_t length) const {
  if (length >= sentence.maxLength)
    return options.ignoreEos ? Forced()
                             : Forced{vocabulary.eos, generation.renormalize ||
                                                          generation.atMaxLength == Generation::AtMaxLength::ForcedEos};
  const auto given = static_cast<int64_t>(generation.forcedFirst.size());
  if (length < given)
    return {generation.forcedFirst[length], true};
  if (length - given < static_cast<int64_t>(sentence.prefix.size()))
    return {sentence.prefix[length - given], generation.renormalize};
  return {};
}

bool SentenceSearch::isContext(int64_t place) const {
  const int64_t first = std::ssize(generation.forcedFirst);
  return options.context.sentences > 0 && place >= first && place < first + std::ssize(sentence.prefix);
}

bool SentenceSearch::branches() const {
  return options.alternatives && length() < sentence.maxLength &&
         length() == static_cast<int64_t>(generation.forcedFirst.size() + sentence.prefix.size());
}

bool SentenceSearch::restricts() const {
  return !generation.suppress.empty() || !generation.badSequences.empty() || generation.noRepeatNgram > 0 ||
         sentence.constraints || !sentence.listed.empty();
}

void SentenceSearch::suppressedAfter(const LiveHypothesis &hypothesis, std::vector<int32_t> &tokens) const {
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

LogProbabilityRow SentenceSearch::changed(LogProbabilityRow row, const LiveHypothesis &hypothesis,
                                          SearchScratch &scratch) const {
  if (generation.repetitionPenalty == 1 && sentence.listed.empty())
    return row;
  std::vector<double> &numbers = scratch.numbers;
  numbers.assign(static_cast<size_t>(vocabulary.size), -HUGE_VAL);
  for (const int32_t token : sentence.listed)
    numbers[static_cast<size_t>(token)] = row[token];
  for (int64_t token = 0; sentence.listed.empty() && token < vocabulary.size; ++token)
    numbers[static_cast<size_t>(token)] = row[token];
  if (generation.repetitionPenalty == 1)
    return {numbers.data(), true};
  const auto multiply = [&](int32_t token) { // a token that is there is listed
    numbers[static_cast<size_t>(token)] = row[token] * generation.repetitionPenalty;
  };
  multiply(vocabulary.start);
  std::ranges::for_each(hypothesis.ids, multiply);
  return {numbers.data(), true};
}

void SentenceSearch::allowedAfter(const LiveHypothesis &hypothesis, SearchScratch &scratch) const {
  const Constraints &constraints = *sentence.constraints;
  const int64_t left = sentence.maxLength - length() - 1; // tokens that may follow the next one
  constraints.wanted(hypothesis.met, scratch.allowed);
  const size_t before = scratch.suppressed.size();
  size_t kept = 0;
  for (const auto &[token, needed] : scratch.allowed) {
    if (contains(std::span(scratch.suppressed).first(before), token))
      continue;
    if (needed <= left)
      scratch.allowed[kept++] = {token, needed};
    else
      scratch.suppressed.push_back(token);
  }
  scratch.allowed.resize(kept);
  scratch.others = constraints.needed(constraints.advance(hypothesis.met, Constraints::none));
  if (scratch.others > left)
    scratch.others.reset();
}

void SentenceSearch::takeTurns(std::vector<Continuation> &ranked) const {
  std::map<int64_t, size_t> banks; // how many continuations of each have come
  for (Continuation &continuation : ranked)
    continuation.round = banks[continuation.needed]++;
  const auto half = static_cast<size_t>(groupWidth() / 2);
  const std::span<Continuation> others = std::span(ranked).subspan(std::min(half, ranked.size()));
  std::ranges::stable_sort(
      others, {}, [](const Continuation &continuation) { return std::pair(continuation.round, continuation.needed); });
}

void SentenceSearch::noCandidate(int64_t length) const {
  const std::string where = sentence.place() + ", position " + std::to_string(length) + ": ";
  if (broken || !restricts())
    throw Error(where + "the model gives no finite log-probability; its weights are broken or too large");
  const std::string settings = std::string("give fewer --suppress or --bad-sequences, ") +
                               (sentence.listed.empty() ? "" : "more --shortlist-first, ") +
                               "or a larger --no-repeat-ngram";
  if (sentence.constraints)
    throw NothingLeft(where +
                      "no token is left that has a finite log-probability, is not suppressed, and leaves room for the "
                      "constraints; " +
                      settings + " or --max-length, or fewer constraints");
  throw NothingLeft(where + "no token is left that has a finite log-probability and is not suppressed; " + settings);
}

void SentenceSearch::drawContinuations(const StepResult &result, int64_t first, SearchScratch &scratch) {
  const Forced must = forced(length());
  std::vector<int32_t> &never = scratch.suppressed;
  for (size_t h = 0; h < living; ++h) {
    const LogProbabilityRow row = changed(result.all.row(first + static_cast<int64_t>(h)), lives[h], scratch);
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
      drawn = sampleToken(row, vocabulary.size, never, generation,
                          uniformNumber(options.seed, static_cast<uint32_t>(sentence.index),
                                        static_cast<uint32_t>(length()), static_cast<uint32_t>(lives[h].sample)));
      if (generation.renormalize) {
        std::sort(never.begin(), never.end());
        drawn.logProbability -= logSumOfOthers(row, vocabulary.size, never);
      }
    }
    chosen.push_back(
        {static_cast<int>(h), drawn.token, lives[h].logProbability + drawn.logProbability, drawn.logProbability});
  }
}

void SentenceSearch::rankContinuations(const StepResult &result, int64_t first, SearchScratch &scratch) {
  scratch.taken.clear();
  for (size_t begin = 0, end = 0; begin < living; begin = end) {
    end = groupEnd(begin);
    const size_t before = chosen.size();
    rankGroup(result, first, begin, end, scratch);
    if (end < living && generation.beamGroups > 1)
      for (const Continuation &continuation : std::span(chosen).subspan(before))
        if (continuation.token != vocabulary.eos)
          scratch.taken.push_back(continuation.token);
  }
}

void SentenceSearch::rankGroup(const StepResult &result, int64_t first, size_t begin, size_t end,
                               SearchScratch &scratch) {
  // As many candidates of a hypothesis as the whole beam is wide are enough: at most (beam - width) of them lose
  // something, since the groups before have no more hypotheses.
  const bool branching = branches();
  const int beam = branching ? options.nBest : static_cast<int>(generation.beam),
            width = branching ? options.nBest : static_cast<int>(groupWidth());
  const Forced must = forced(length());
  std::vector<Continuation> &ranked = scratch.ranked;
  std::vector<int32_t> &suppressed = scratch.suppressed;
  const Constraints *constraints = sentence.constraints;
  scratch.allowed.clear();
  scratch.others = 0;
  ranked.clear();
  for (size_t h = begin; h < end; ++h) {
    const int64_t row = first + static_cast<int64_t>(h);
    double total = 0; // the logarithm of the sum of the probabilities of what may come next
    auto add = [&](int32_t token, double logProbability, int64_t needed = 0) {
      const double ofToken = logProbability - total;
      const auto times = must.token >= 0 ? 0 : std::ranges::count(scratch.taken, token);
      ranked.push_back({static_cast<int>(h), token, lives[h].logProbability + ofToken, ofToken,
                        lives[h].lost + generation.diversity * static_cast<double>(times), lives[h].group, needed});
    };
    const LogProbabilityRow all = result.tokens ? LogProbabilityRow() : changed(result.all.row(row), lives[h], scratch);
    const double wantedLogProbability = result.tokens ? result.wanted.row(row)[0] : all[wanted()];
    if (must.token >= 0) {
      add(must.token, must.certain ? 0 : wantedLogProbability);
      continue;
    }
    suppressedAfter(lives[h], suppressed);
    const bool mayEnd = eosAllowed(length()) && !branching && wantedLogProbability > -HUGE_VAL &&
                        !contains(suppressed, vocabulary.eos) &&
                        (!constraints || constraints->needed(lives[h].met) == 0);
    if (!result.tokens)
      suppressed.insert(suppressed.end(), {vocabulary.pad, vocabulary.start, vocabulary.eos});
    if (constraints)
      allowedAfter(lives[h], scratch);
    if (generation.renormalize) {
      if (!scratch.others) {
        total = -HUGE_VAL;
        for (const auto &[token, needed] : scratch.allowed)
          if (all[token] > -HUGE_VAL)
            total = logAdd(total, all[token]);
      } else if (!result.tokens) { // otherwise nothing is suppressed, and the numbers are relative to this sum
        std::sort(suppressed.begin(), suppressed.end());
        total = logSumOfOthers(all, vocabulary.size, suppressed);
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
      for (const auto &[token, needed] : scratch.allowed) {
        if (all[token] > -HUGE_VAL)
          add(token, all[token], needed);
        suppressed.push_back(token);
      }
      scratch.best.clear();
      if (scratch.others) // of which no more than a whole beam can be chosen
        bestTokens(all, vocabulary.size, suppressed, beam, scratch.best);
      for (const Candidate &candidate : scratch.best)
        add(candidate.token, candidate.logProbability, *scratch.others);
    }
  }
  std::ranges::sort(ranked, ranksHigher);
  if (branching) {
    const auto unlikely = [&](const Continuation &one) { return std::exp(one.ofToken) < options.leastAlternative; };
    ranked.erase(std::ranges::find_if(ranked | std::views::drop(1), unlikely), ranked.end());
    for (size_t rank = 0; rank < ranked.size(); ++rank)
      ranked[rank].group = static_cast<int>(rank);
  } else if (constraints) {
    takeTurns(ranked);
  }
  const size_t before = chosen.size();
  int staying = 0;
  for (size_t rank = 0; rank < ranked.size() && staying < width; ++rank) {
    bool ends = ranked[rank].token == vocabulary.eos;
    if (ends && static_cast<int>(rank) >= width)
      continue;
    staying += !ends;
    chosen.push_back(ranked[rank]);
  }
  if (constraints && !branching)
    std::ranges::sort(std::span(chosen).subspan(before), ranksHigher);
}

double SentenceSearch::finishedScore(int place, int group) {
  scores.clear();
  for (const Hypothesis &hypothesis : finished)
    if (hypothesis.group == group)
      scores.push_back(hypothesis.score);
  std::nth_element(scores.begin(), scores.begin() + (place - 1), scores.end(), std::greater<>());
  return scores[place - 1];
}

bool SentenceSearch::decided(std::span<const LiveHypothesis> group) {
  if (options.draws())
    return false;
  const int number = group.front().group;
  const int count = static_cast<int>(std::ranges::count(finished, number, &Hypothesis::group));
  const int64_t shortest = length() + 1, longest = sentence.maxLength + !endsAsItIs(options);
  const int groups = options.alternatives ? options.nBest : static_cast<int>(generation.beamGroups),
            width = static_cast<int>(groupWidth());
  const int expected = (options.nBest + groups - 1) / groups;
  const int enough =
      generation.beam == 1 ? 1 : std::max(static_cast<int>(std::lround(width * generation.patience)), expected);
  if (count >= enough) {
    using enum Generation::EarlyStopping;
    if (generation.beam == 1 || generation.earlyStopping == Yes)
      return true;
    const bool atItsLongest = generation.earlyStopping == Never && generation.lengthPenalty > 0;
    if ((group.front().logProbability - group.front().lost) / penalty(atItsLongest ? longest : length()) <=
        finishedScore(std::min(width, count), number))
      return true;
  }
  if (generation.beamGroups > 1 || count < expected || generation.coveragePenalty > 0)
    return false;
  const double worst = finishedScore(expected, number);
  return std::ranges::none_of(group, [&](const LiveHypothesis &hypothesis) {
    double p = hypothesis.logProbability;
    return std::max(p / penalty(shortest), p / penalty(longest)) > worst;
  });
}

void keepBest(std::vector<Hypothesis> &found, const SearchOptions &options) {
  const Generation &generation = options.generation;
  std::ranges::stable_sort(found, std::ranges::greater(), &Hypothesis::score);
  if (options.alternatives) {
    std::ranges::stable_sort(found, {}, &Hypothesis::group);
    found.erase(std::ranges::unique(found, {}, &Hypothesis::group).begin(), found.end());
    return;
  }
  if (!options.draws() && generation.beamGroups > 1) {
    std::vector<int64_t> ofGroups(static_cast<size_t>(generation.beamGroups));
    std::erase_if(found, [&](const Hypothesis &hypothesis) {
      return ++ofGroups[static_cast<size_t>(hypothesis.group)] > generation.beam / generation.beamGroups;
    });
  }
  if (found.size() > static_cast<size_t>(options.nBest))
    found.resize(static_cast<size_t>(options.nBest));
}

int64_t searchWidth(const SearchOptions &options) {
  return options.draws() ? options.drawn() : options.generation.beam * (options.alternatives ? options.nBest : 1);
}

int64_t searchCandidates(const SearchOptions &options, const SearchVocabulary &vocabulary) {
  const Generation &generation = options.generation;
  if (options.draws() || generation.noRepeatNgram > 0 || generation.repetitionPenalty != 1)
    return 0;
  std::set<int32_t> suppressed(generation.suppress.begin(), generation.suppress.end());
  for (const std::vector<int32_t> &sequence : generation.badSequences)
    suppressed.insert(sequence.back());
  for (int32_t never : {vocabulary.pad, vocabulary.start, vocabulary.eos})
    suppressed.erase(never);
  if (generation.renormalize && !suppressed.empty())
    return 0; // any of them may have most of the probability, whatever its rank
  return std::max<int64_t>(generation.beam, options.alternatives ? options.nBest : 1) +
         static_cast<int64_t>(suppressed.size());
}

int64_t searchSteps(const SearchSentence &sentence, const SearchOptions &options) {
  return sentence.maxLength + !endsAsItIs(options);
}

} // namespace xfc
