// Compares the search with enumeration of all sequences, and tests its promises: order, ties, prefixes, lengths,
// batches, samples.
#include "allocations.h"
#include "constraints.h"
#include "decode/Decoder.h"
#include "decode/Drafter.h"
#include "room.h"
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

using namespace xfc;

namespace {

using Ids = std::vector<int32_t>;

// Random log-probabilities as a fixed function of the model's seed, the sentence's key, and the ids so far.
struct FakeModel {
  SearchVocabulary vocabulary{6, 0, 2, 3}; // pad 0, unk 1, start 2, eos 3, and 4, 5
  uint32_t seed = 1;
  double sharpness = 1;

  std::vector<float> row(uint32_t key, const Ids &ids) const {
    std::seed_seq words{seed, key, static_cast<uint32_t>(ids.size())};
    std::vector<uint32_t> mixed(ids.begin(), ids.end());
    mixed.push_back(key);
    mixed.push_back(seed);
    std::seed_seq sequence(mixed.begin(), mixed.end());
    std::mt19937 random(sequence);
    std::vector<double> logits(vocabulary.size);
    double sum = 0;
    for (double &x : logits) {
      x = sharpness * (static_cast<double>(random()) / 4294967296.0 * 4 - 2);
      sum += std::exp(x);
    }
    std::vector<float> result;
    for (double x : logits)
      result.push_back(static_cast<float>(x - std::log(sum)));
    return result;
  }

  double logProbability(uint32_t key, const Ids &ids, bool withEos = true) const {
    double sum = 0;
    Ids before;
    for (int32_t id : ids) {
      sum += row(key, before)[id];
      before.push_back(id);
    }
    return withEos ? sum + row(key, before)[vocabulary.eos] : sum;
  }
};

// A request for the sentence, with its own lengths. The source is its number.
DecoderRequest requestFor(const SearchSentence &sentence, SearchOptions options,
                          const std::vector<Constraint> &constraints = {}) {
  options.generation.maxLength = sentence.maxLength;
  options.generation.minLength = sentence.minLength;
  return {.source = {static_cast<int32_t>(sentence.index)},
          .prefix = {sentence.prefix.begin(), sentence.prefix.end()},
          .constraints = constraints,
          .options = std::make_shared<const SearchOptions>(options),
          .number = sentence.index};
}

// Submits all sentences and runs to the end. `done` is called with the index of each that ends.
std::vector<std::vector<Hypothesis>> runAll(Decoder &decoder, std::span<const SearchSentence> sentences,
                                            const SearchOptions &options, const std::function<void(size_t)> &done = {},
                                            const std::vector<Constraint> &constraints = {}) {
  std::vector<std::vector<Hypothesis>> found(sentences.size());
  for (const SearchSentence &sentence : sentences)
    decoder.submit(requestFor(sentence, options, constraints));
  while (!decoder.idle())
    for (DecoderEvent &event : decoder.step()) {
      if (event.kind == DecoderEvent::Kind::Failed)
        throw Error(event.message);
      found[event.id] = std::move(event.found);
      if (done)
        done(sentences[event.id].index);
    }
  return found;
}

// A model given by a function.
struct StepModel : SearchedModel {
  StepModel(const SearchVocabulary &vocabulary, std::function<StepResult(const StepRequest &)> function)
      : tokens(vocabulary), function(std::move(function)) {}
  SearchVocabulary vocabulary() const override { return tokens; }
  size_t groupOf(const SearchOptions &, bool) override { return 0; }
  void join(size_t, std::span<const JoiningSentence>) override {}
  StepResult step(size_t, const StepRequest &request) override { return function(request); }
  void leave(size_t) override {}
  SearchVocabulary tokens;
  std::function<StepResult(const StepRequest &)> function;
};

std::vector<std::vector<Hypothesis>> searchAll(std::span<const SearchSentence> sentences,
                                               const SearchVocabulary &vocabulary, const SearchOptions &options,
                                               std::function<StepResult(const StepRequest &)> step) {
  int64_t slots = 0;
  for (const SearchSentence &sentence : sentences)
    slots += searchWidth(options) * searchSteps(sentence, options);
  Decoder decoder(std::make_unique<StepModel>(vocabulary, std::move(step)), roomOf(1000, slots));
  return runAll(decoder, sentences, options);
}

// A model with a cache that holds the token of each slot, so that it sees only what the histories list. It returns all
// log-probabilities, or this many candidates. With `recurrent`, a slot holds all tokens up to its own, and only that of
// the step before is read.
struct FakeDecoder : SearchedModel {
  FakeDecoder(const FakeModel &model, int64_t slots, int candidates, bool recurrent = false)
      : model(model), candidates(candidates), recurrent(recurrent), cache(slots, -1), states(slots) {}
  SearchVocabulary vocabulary() const override { return model.vocabulary; }
  int64_t longestTarget() const override { return longest; }
  bool readsHistory() const override { return !recurrent; }
  // One group for those who renormalize, and one for the others; and two more if they are constrained, which get all
  // log-probabilities.
  size_t groupOf(const SearchOptions &options, bool constrained) override {
    return options.generation.renormalize + 2 * constrained;
  }
  void join(size_t group, std::span<const JoiningSentence> joining) override {
    for (const auto &[place, source] : joining)
      EXPECT_TRUE(running.insert({static_cast<int32_t>(place), {source[0], group}}).second) << "the place is taken";
  }
  void leave(size_t place) override { EXPECT_EQ(running.erase(static_cast<int32_t>(place)), 1u); }

  StepResult step(size_t group, const StepRequest &request) override {
    ++steps;
    std::set<int32_t> taken(request.slots.begin(), request.slots.end());
    EXPECT_EQ(taken.size(), request.slots.size()) << "two hypotheses write the same slot";
    for (size_t h = 0; h < request.ids.size(); ++h)
      cache.at(request.slots[h]) = request.ids[h];
    const std::vector<Ids> before = states;
    all.clear(), best.clear(), tokens.clear(), wanted.clear();
    for (size_t h = 0; h < request.ids.size(); ++h) {
      const auto &[key, itsGroup] = running.at(request.placeOf[h]);
      EXPECT_EQ(itsGroup, group);
      const std::span<const int32_t> history = request.history[h];
      const auto length = static_cast<size_t>(request.positions[h]) + 1;
      EXPECT_EQ(history.size(), recurrent ? std::min<size_t>(length, 2) : length);
      EXPECT_EQ(history.back(), request.slots[h]);
      Ids ids;
      if (recurrent && length > 1) {
        ids = before.at(history[0]);
        ids.push_back(request.ids[h]);
        EXPECT_EQ(ids.size() + 1, length);
      } else if (!recurrent) {
        EXPECT_EQ(cache.at(history[0]), model.vocabulary.start);
        for (size_t p = 1; p < length; ++p)
          ids.push_back(cache.at(history[p]));
      }
      states.at(request.slots[h]) = ids;
      std::vector<float> row = model.row(static_cast<uint32_t>(key), ids);
      all.insert(all.end(), row.begin(), row.end());
      all.push_back(std::numeric_limits<float>::quiet_NaN()); // between the rows
      const auto &[size, pad, start, eos] = model.vocabulary;
      std::vector<int32_t> order;
      double sum = 0;
      for (int32_t token = 0; token < size; ++token)
        if (token != pad && token != start && token != eos) {
          order.push_back(token);
          sum += std::exp(row[token]);
        }
      if (group == 1 && candidates > 0)
        for (float &x : row)
          x -= static_cast<float>(std::log(sum));
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
      order.resize(candidates + 1, -1);
      for (int32_t token : order) {
        tokens.push_back(token);
        best.push_back(token < 0 ? -INFINITY : row[token]);
      }
      wanted.push_back(row[request.wanted[h]]);
    }
    if (candidates == 0 || group > 1)
      return {.all = {all.data(), false, model.vocabulary.size + 1}};
    return {.all = {},
            .count = candidates,
            .tokens = tokens.data(),
            .tokenStride = candidates + 1,
            .best = {best.data(), false, candidates + 1},
            .wanted = {wanted.data(), false, 1}};
  }

  const FakeModel &model;
  int candidates;
  bool recurrent;
  int64_t steps = 0, longest = 0;
  Ids cache, tokens;
  std::vector<Ids> states;
  std::map<int32_t, std::pair<int32_t, size_t>> running; // by place: number and group
  std::vector<float> all, best, wanted;
};

// As many slots as the `together` sentences that need most may need.
int64_t slotsOf(const std::vector<SearchSentence> &sentences, const SearchOptions &options, size_t together,
                bool recurrent) {
  std::vector<int64_t> slots;
  for (const SearchSentence &sentence : sentences)
    slots.push_back(searchWidth(options) * (recurrent ? 2 : searchSteps(sentence, options)));
  std::sort(slots.rbegin(), slots.rend());
  slots.resize(std::min(slots.size(), together));
  return std::accumulate(slots.begin(), slots.end(), int64_t(0));
}

std::vector<std::vector<Hypothesis>> run(const FakeModel &model, const std::vector<SearchSentence> &sentences,
                                         const SearchOptions &options, std::set<size_t> *done = nullptr,
                                         size_t together = 1000, int candidates = 0, bool recurrent = false,
                                         int64_t *steps = nullptr, const std::vector<Constraint> &constraints = {}) {
  const int64_t slots = slotsOf(sentences, options, together, recurrent);
  auto made = std::make_unique<FakeDecoder>(model, slots, candidates, recurrent);
  FakeDecoder &fake = *made;
  if (sentences[0].maxLength == 0)
    fake.longest = 1; // start alone
  Decoder decoder(std::move(made), roomOf(static_cast<int64_t>(together), slots));
  auto found = runAll(
      decoder, sentences, options,
      [&](size_t index) {
        if (done) {
          EXPECT_TRUE(done->insert(index).second);
        }
      },
      constraints);
  EXPECT_TRUE(fake.running.empty());
  if (steps)
    *steps = fake.steps;
  return found;
}

// Enumerates every sequence of minLength..maxLength tokens without pad, start and eos, best first.
std::vector<Hypothesis> enumerate(const FakeModel &model, uint32_t key, int64_t minLength, int64_t maxLength,
                                  double lengthPenalty) {
  std::vector<Hypothesis> all;
  std::vector<Ids> level = {{}};
  for (int64_t length = 0; length <= maxLength; ++length) {
    std::vector<Ids> next;
    for (const Ids &ids : level) {
      if (length >= minLength) {
        double p = model.logProbability(key, ids);
        all.push_back({ids, p / std::pow((5.0 + length + 1) / 6.0, lengthPenalty), p});
      }
      for (int32_t token : {1, 4, 5}) {
        Ids longer = ids;
        longer.push_back(token);
        next.push_back(longer);
      }
    }
    level = next;
  }
  std::sort(all.begin(), all.end(), [](auto &a, auto &b) { return a.score > b.score; });
  return all;
}

void expectSame(const std::vector<Hypothesis> &found, const std::vector<Hypothesis> &expected, double tolerance = 0) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].ids, expected[i].ids) << i;
    EXPECT_NEAR(found[i].score, expected[i].score, tolerance) << i;
    EXPECT_NEAR(found[i].logProbability, expected[i].logProbability, tolerance) << i;
  }
}

} // namespace

TEST(BeamSearch, WideBeamIsExhaustive) {
  for (uint32_t seed = 1; seed <= 10; ++seed)
    for (double lengthPenalty : {0.0, 0.6, 1.0, 2.0, -1.0})
      for (int nBest : {1, 3, 121}) {
        FakeModel model{.seed = seed, .sharpness = 1.0 + seed % 4};
        SearchOptions options{.generation = {.beam = 400, .lengthPenalty = lengthPenalty}, .nBest = nBest};
        auto found = run(model, {{.index = 7, .maxLength = 4}}, options)[0];
        auto expected = enumerate(model, 7, 0, 4, lengthPenalty);
        ASSERT_EQ(expected.size(), 121u);
        expected.resize(nBest);
        SCOPED_TRACE(testing::Message() << "seed " << seed << " penalty " << lengthPenalty << " nBest " << nBest);
        expectSame(found, expected);
      }
}

TEST(BeamSearch, MinimumAndMaximumLength) {
  FakeModel model{.seed = 5};
  SearchOptions options{.generation = {.beam = 400}, .nBest = 400};
  auto found = run(model, {{.index = 1, .maxLength = 3, .minLength = 2}}, options)[0];
  expectSame(found, enumerate(model, 1, 2, 3, 0.6));
  found = run(model, {{.index = 1, .maxLength = 0}}, options)[0];
  expectSame(found, enumerate(model, 1, 0, 0, 0.6));
}

TEST(BeamSearch, GreedyTakesTheBestToken) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    FakeModel model{.seed = seed};
    Ids expected;
    while (expected.size() < 8) {
      auto row = model.row(0, expected);
      int32_t best = 1;
      for (int32_t token : {3, 4, 5})
        if (row[token] > row[best])
          best = token;
      if (best == 3)
        break;
      expected.push_back(best);
    }
    auto found = run(model, {{.index = 0, .maxLength = 8}}, {.generation = {.beam = 1}})[0];
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].ids, expected);
    EXPECT_EQ(found[0].logProbability, model.logProbability(0, expected));
  }
}

// A second implementation of the rule in BeamSearch.h, without slots, rows or early exits on single rows.
TEST(BeamSearch, NarrowBeamFollowsItsRule) {
  int endedEarly = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    FakeModel model{.seed = seed, .sharpness = 0.5 + seed % 5};
    int beam = 2 + seed % 3, nBest = 1 + seed % 2;
    double lengthPenalty = 0.6 * (seed % 5);
    auto penalty = [&](double n) { return std::pow((5 + n) / 6, lengthPenalty); };
    const int64_t maxLength = 7;
    std::vector<Ids> live = {{}};
    std::vector<Hypothesis> finished;
    for (int64_t length = 0; !live.empty(); ++length) {
      std::vector<std::pair<double, Ids>> ranked;
      for (const Ids &ids : live)
        for (int32_t token : {1, 3, 4, 5})
          if (token == 3 || length < maxLength) {
            Ids longer = ids;
            longer.push_back(token);
            ranked.push_back(
                {token == 3 ? model.logProbability(0, ids) : model.logProbability(0, longer, false), longer});
          }
      std::stable_sort(ranked.begin(), ranked.end(), [](auto &a, auto &b) { return a.first > b.first; });
      live.clear();
      for (size_t rank = 0; rank < ranked.size(); ++rank) {
        auto &[p, ids] = ranked[rank];
        if (static_cast<int>(live.size()) == beam)
          break;
        if (ids.back() != 3)
          live.push_back(ids);
        else if (static_cast<int>(rank) < beam)
          finished.push_back({Ids(ids.begin(), ids.end() - 1), p / penalty(ids.size()), p});
      }
      std::stable_sort(finished.begin(), finished.end(), [](auto &a, auto &b) { return a.score > b.score; });
      if (static_cast<int>(finished.size()) >= beam)
        break;
      if (static_cast<int>(finished.size()) >= nBest) {
        bool hope = false;
        for (const Ids &ids : live)
          for (int64_t n = length + 2; n <= maxLength + 1; ++n)
            hope |= model.logProbability(0, ids, false) / penalty(n) > finished[nBest - 1].score;
        if (!hope) {
          endedEarly += !live.empty();
          break;
        }
      }
    }
    if (static_cast<int>(finished.size()) > nBest)
      finished.resize(nBest);
    SCOPED_TRACE(seed);
    expectSame(run(model, {{.index = 0, .maxLength = maxLength}},
                   {.generation = {.beam = beam, .lengthPenalty = lengthPenalty}, .nBest = nBest})[0],
               finished);
  }
  EXPECT_GT(endedEarly, 10) << "the bound was never put to the test";
}

// A finished translation must not end the search while the length penalty can still let a less probable one overtake
// it.
TEST(BeamSearch, NoEndWhileTheLengthPenaltyCanTurnTheOrder) {
  SearchVocabulary vocabulary{6, 0, 2, 3};
  const std::vector<double> certainEos = {1e-9, 1e-9, 1e-9, 1 - 5e-9, 1e-9, 1e-9};
  auto best = [&](double lengthPenalty, std::vector<double> first, std::vector<double> later) {
    SearchSentence sentence{.index = 0, .maxLength = 5};
    std::vector<double> rows;
    return searchAll({&sentence, 1}, vocabulary, {.generation = {.beam = 8, .lengthPenalty = lengthPenalty}},
                     [&](const StepRequest &request) {
                       rows.clear();
                       for (int32_t position : request.positions)
                         for (double p : position == 0 ? first : position < 5 ? later : certainEos)
                           rows.push_back(std::log(p));
                       return StepResult{.all = {rows.data(), true, 6}};
                     })[0][0];
  };
  // eos at once has probability 0.5, token 4 five times 0.3: log(0.3) / (11/6)^2 > log(0.5).
  Hypothesis longest = best(2, {.01, .03, .01, .5, .3, .15}, {1e-9, 1e-9, 1e-9, 1e-9, 1 - 5e-9, 1e-9});
  EXPECT_EQ(longest.ids, (Ids{4, 4, 4, 4, 4})) << "the bound must count on the longest";
  // With a negative penalty the shortest ending is the best: log(0.5) (7/6) > log(0.3), not so at six tokens.
  Hypothesis shorter = best(-1, {.01, .03, .01, .3, .5, .15}, certainEos);
  EXPECT_EQ(shorter.ids, Ids{4}) << "the bound must count on the shortest";
}

TEST(BeamSearch, LengthPenaltyPrefersLonger) {
  double previous = -1;
  for (double lengthPenalty : {-2.0, 0.0, 1.0, 4.0}) {
    double length = 0;
    for (uint32_t key = 0; key < 50; ++key)
      length +=
          run({}, {{.index = key, .maxLength = 5}}, {.generation = {.beam = 8, .lengthPenalty = lengthPenalty}})[0][0]
              .ids.size();
    EXPECT_GT(length, previous);
    previous = length;
  }
}

TEST(BeamSearch, PrefixIsForcedAndScored) {
  FakeModel model{.seed = 3};
  const Ids prefix = {5, 1};
  SearchOptions options{.generation = {.beam = 400}, .nBest = 400};
  auto found = run(model, {{.index = 2, .maxLength = 4, .prefix = prefix}}, options)[0];
  std::vector<Hypothesis> expected;
  for (const Hypothesis &hypothesis : enumerate(model, 2, 0, 4, 0.6))
    if (hypothesis.ids.size() >= 2 && std::equal(prefix.begin(), prefix.end(), hypothesis.ids.begin()))
      expected.push_back(hypothesis);
  ASSERT_EQ(expected.size(), 13u);
  expectSame(found, expected);
  // A prefix longer than maxLength is truncated.
  found = run(model, {{.index = 2, .maxLength = 1, .prefix = prefix}}, options)[0];
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].ids, Ids{5});
}

TEST(BeamSearch, NoSentenceDependsOnTheOthers) {
  FakeModel model{.seed = 9};
  const Ids prefix = {4, 4};
  std::vector<SearchSentence> all;
  for (size_t i = 0; i < 20; ++i)
    all.push_back({.index = i,
                   .maxLength = static_cast<int64_t>(1 + i % 9),
                   .minLength = static_cast<int64_t>(i % 2),
                   .prefix = i % 5 == 0 ? std::span<const int32_t>(prefix) : std::span<const int32_t>()});
  std::vector<SearchOptions> kinds = {{.generation = {.beam = 1}},
                                      {.generation = {.beam = 4}, .nBest = 4},
                                      {.generation = {.topP = 0.9}, .nBest = 3, .sample = true}};
  for (const SearchOptions &options : kinds) {
    std::set<size_t> done;
    auto together = run(model, all, options, &done);
    EXPECT_EQ(done.size(), all.size());
    std::vector<SearchSentence> reversed(all.rbegin(), all.rend());
    auto backwards = run(model, reversed, options);
    // Waiting sentences take the places and slots of those that ended.
    std::set<size_t> fewDone;
    auto few = run(model, all, options, &fewDone, 3);
    EXPECT_EQ(fewDone, done);
    auto candidates = options.sample ? few : run(model, all, options, nullptr, 3, 4);
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(i);
      expectSame(together[i], run(model, {all[i]}, options)[0]);
      expectSame(together[i], backwards[all.size() - 1 - i]);
      expectSame(together[i], few[i]);
      if (!options.sample) {
        expectSame(together[i], candidates[i]);
      }
      EXPECT_TRUE(
          std::is_sorted(together[i].begin(), together[i].end(), [](auto &a, auto &b) { return a.score > b.score; }));
    }
  }
}

// As many sentences run as possible, so the last one does not wait for all others.
TEST(BeamSearch, OthersTakeThePlacesOfThoseThatEnd) {
  FakeModel model{.seed = 4};
  std::vector<SearchSentence> sentences;
  int64_t tokens = 0;
  for (size_t i = 0; i < 12; ++i) {
    sentences.push_back({.index = i, .maxLength = static_cast<int64_t>(i % 4 == 0 ? 12 : 2)});
    tokens += sentences.back().maxLength;
  }
  const SearchOptions options{.generation = {.beam = 1}, .ignoreEos = true};
  int64_t steps = 0;
  auto found = run(model, sentences, options, nullptr, 4, 0, false, &steps);
  for (size_t i = 0; i < sentences.size(); ++i)
    expectSame(found[i], run(model, {sentences[i]}, options)[0]);
  EXPECT_EQ(tokens, 54);
  EXPECT_EQ(steps, 16) << "three batches of four would take 36";
}

// A model that does not read its history needs two slots for each hypothesis, and finds the same.
TEST(BeamSearch, KeepsTwoSlotsWhereOnlyTheLastIsRead) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    FakeModel model{.seed = seed};
    std::vector<SearchSentence> sentences;
    for (size_t i = 0; i < 5; ++i)
      sentences.push_back({.index = i, .maxLength = static_cast<int64_t>(3 + (seed + i) % 6), .minLength = 1});
    const SearchOptions options{.generation = {.beam = static_cast<int>(1 + seed % 4), .lengthPenalty = 0.5}};
    const auto whole = run(model, sentences, options), last = run(model, sentences, options, nullptr, 2, 0, true);
    for (size_t s = 0; s < sentences.size(); ++s)
      expectSame(last[s], whole[s]);
  }
}

// Between steps the live hypotheses are visible and grow by one token each time, with an event; a waiting sentence has
// none. What has settled stays.
TEST(Decoder, ShowsWhatLivesBetweenSteps) {
  FakeModel model{.seed = 9};
  std::vector<SearchSentence> sentences;
  for (size_t i = 0; i < 3; ++i)
    sentences.push_back({.index = i, .maxLength = 6, .minLength = 2});
  for (int beam : {1, 2}) {
    const SearchOptions options{.generation = {.beam = beam, .lengthPenalty = 0.5}};
    const int64_t slots = slotsOf(sentences, options, 2, false);
    Decoder decoder(std::make_unique<FakeDecoder>(model, slots, 0), roomOf(2, slots));
    for (const SearchSentence &sentence : sentences) {
      DecoderRequest request = requestFor(sentence, options);
      request.watched = sentence.index < 2;
      EXPECT_EQ(decoder.submit(std::move(request)), sentence.index);
    }
    EXPECT_EQ(decoder.waitingCount(), 3u);
    EXPECT_TRUE(decoder.hypotheses(0).empty());
    const auto whole = run(model, sentences, options);
    size_t seen = 0, settled = 0, finished = 0;
    std::vector<Ids> settledBefore(2);
    for (size_t steps = 1; !decoder.idle(); ++steps) {
      std::map<RequestId, Ids> grown; // and what has settled
      for (const DecoderEvent &event : decoder.step())
        if (event.kind == DecoderEvent::Kind::Grown) {
          EXPECT_TRUE(grown.emplace(event.id, event.settled).second);
        } else {
          EXPECT_EQ(event.kind, DecoderEvent::Kind::Finished);
          expectSame(event.found, whole[event.id]);
          ++finished;
        }
      if (steps <= 2) { // then there are as many hypotheses as the beam is wide
        EXPECT_EQ(decoder.stepRows(), steps == 1 ? 2 : 2 * beam);
      }
      for (RequestId id : {0, 1}) { // the sentences that run from the start
        const std::vector<Hypothesis> all = decoder.hypotheses(id);
        EXPECT_EQ(grown.contains(id), !all.empty());
        for (const Hypothesis &live : all) {
          EXPECT_EQ(live.ids.size(), steps);
          EXPECT_NEAR(live.logProbability, model.logProbability(static_cast<uint32_t>(id), live.ids, false), 1e-5);
          EXPECT_NEAR(live.score, live.logProbability / std::sqrt((5 + static_cast<double>(steps)) / 6), 1e-9);
          ++seen;
        }
        if (all.empty())
          continue;
        const Ids &now = grown[id], &end = whole[id][0].ids;
        EXPECT_TRUE(beam > 1 || now.size() == steps);
        ASSERT_LE(now.size(), end.size());
        EXPECT_TRUE(std::equal(now.begin(), now.end(), end.begin()));
        EXPECT_TRUE(std::equal(settledBefore[id].begin(), settledBefore[id].end(), now.begin()));
        settled += now.size();
        settledBefore[id] = now;
      }
    }
    EXPECT_EQ(finished, 3u);
    EXPECT_GT(seen, 5u);
    EXPECT_GT(settled, 2u);
    EXPECT_TRUE(decoder.step().empty());
  }
}

// Requests of many kinds come at random, and some are cancelled; none that stays notices, and nothing is left behind.
TEST(Decoder, AnswersDoNotDependOnWhoElseAsks) {
  FakeModel model{.seed = 12};
  const Ids prefix = {4, 4};
  const std::vector<SearchOptions> kinds = {{.generation = {.beam = 1}},
                                            {.generation = {.beam = 3, .renormalize = true}, .nBest = 2},
                                            {.generation = {.topP = 0.9}, .nBest = 2, .sample = true, .seed = 5},
                                            {.generation = {.topP = 0.9}, .nBest = 2, .sample = true, .seed = 6}};
  std::mt19937 random(1);
  size_t cancelled = 0, waited = 0, together = 0, constrained = 0;
  for (int round = 0; round < 20; ++round) {
    constexpr int64_t slots = 90, most = 6;
    auto made = std::make_unique<FakeDecoder>(model, slots, 0);
    FakeDecoder &fake = *made;
    Decoder decoder(std::move(made), roomOf(most, slots));
    struct Asked {
      SearchSentence sentence;
      const SearchOptions *options;
      std::vector<Constraint> constraints;
    };
    std::map<RequestId, Asked> asked;
    std::vector<RequestId> order, joined;
    size_t left = 60;
    while (left > 0 || !decoder.idle()) {
      for (size_t arriving = random() % 4; left > 0 && arriving > 0; --arriving, --left) {
        const SearchOptions &options = kinds[random() % kinds.size()];
        const SearchSentence sentence{.index = random() % 100,
                                      .maxLength = static_cast<int64_t>(1 + random() % 8),
                                      .prefix = random() % 4 == 0 ? std::span<const int32_t>(prefix)
                                                                  : std::span<const int32_t>()};
        std::vector<Constraint> constraints;
        if (!options.sample && sentence.maxLength > 5 && random() % 2 == 0)
          constraints = {{{5, 1}, {1}}, {{4}}};
        const RequestId id = decoder.submit(requestFor(sentence, options, constraints));
        EXPECT_EQ(id, 59 - (left - 1)) << "ids are consecutive";
        asked[id] = {sentence, &options, constraints};
      }
      if (!asked.empty() && random() % 8 == 0) {
        const auto victim = std::next(asked.begin(), static_cast<std::ptrdiff_t>(random() % asked.size()));
        decoder.cancel(victim->first);
        decoder.cancel(victim->first);
        asked.erase(victim);
        ++cancelled;
      }
      for (const DecoderEvent &event : decoder.step()) {
        ASSERT_EQ(event.kind, DecoderEvent::Kind::Finished);
        ASSERT_TRUE(asked.contains(event.id)) << "cancelled, or answered twice";
        const auto &[sentence, options, constraints] = asked[event.id];
        expectSame(event.found, run(model, {sentence}, *options, nullptr, 1, 0, false, nullptr, constraints)[0]);
        for (const Hypothesis &hypothesis : event.found)
          EXPECT_TRUE(meets(hypothesis.ids, constraints));
        constrained += !constraints.empty();
        asked.erase(event.id);
      }
      EXPECT_LE(decoder.running(), static_cast<size_t>(most));
      EXPECT_EQ(decoder.running(), fake.running.size());
      for (const auto &[place, sentence] : fake.running)
        EXPECT_LT(place, most) << "places are used again";
      waited += decoder.waitingCount() > 0;
      together += decoder.running() > 2;
    }
    EXPECT_TRUE(asked.empty());
    // All rows of the cache are free again: a request that needs each of them runs.
    const SearchSentence whole{.index = 1, .maxLength = slots - 1};
    const RequestId last = decoder.submit(requestFor(whole, {.generation = {.beam = 1}, .ignoreEos = true}));
    EXPECT_THROW(decoder.submit(requestFor({.index = 3, .maxLength = slots + 1}, {.generation = {.beam = 1}})), Error);
    size_t answers = 0;
    while (!decoder.idle())
      for (const DecoderEvent &event : decoder.step()) {
        EXPECT_EQ(event.id, last);
        EXPECT_EQ(event.found[0].ids.size(), static_cast<size_t>(slots - 1));
        ++answers;
      }
    EXPECT_EQ(answers, 1u);
  }
  EXPECT_GT(cancelled, 50u);
  EXPECT_GT(waited, 50u);
  EXPECT_GT(together, 50u);
  EXPECT_GT(constrained, 50u);
}

// Sentences run in the order in which they came: a large one is not passed by small ones that would find room.
TEST(Decoder, FirstComeFirstServed) {
  FakeModel model{.seed = 2};
  const SearchOptions options{.generation = {.beam = 1}, .ignoreEos = true};
  Decoder decoder(std::make_unique<FakeDecoder>(model, 10, 0), roomOf(10, 10));
  for (int64_t length : {6, 9, 2, 1})
    decoder.submit(requestFor({.index = 0, .maxLength = length}, options));
  std::vector<RequestId> order;
  while (!decoder.idle())
    for (const DecoderEvent &event : decoder.step())
      order.push_back(event.id);
  EXPECT_EQ(order, (std::vector<RequestId>{0, 1, 3, 2})) << "the last two run together";
}

// A request that fails leaves the others and its place alone.
TEST(Decoder, FailuresAreOfOneRequest) {
  FakeModel model{.seed = 1};
  const SearchOptions broken{.generation = {.beam = 2, .noRepeatNgram = 1}}, right{.generation = {.beam = 2}};
  const SearchSentence first{.index = 4, .maxLength = 9, .minLength = 5}, second{.index = 6, .maxLength = 8};
  Decoder decoder(std::make_unique<FakeDecoder>(model, 38, 0), roomOf(2, 38));
  for (int repeat = 0; repeat < 3; ++repeat) {
    decoder.submit(requestFor(first, broken));
    decoder.submit(requestFor(second, right));
    size_t failed = 0, finished = 0;
    while (!decoder.idle())
      for (const DecoderEvent &event : decoder.step())
        if (event.kind == DecoderEvent::Kind::Failed) {
          EXPECT_EQ(event.id % 2, 0u);
          EXPECT_TRUE(event.message.starts_with("sentence 5, position 3: no token is left")) << event.message;
          EXPECT_TRUE(event.byOptions);
          ++failed;
        } else {
          expectSame(event.found, run(model, {second}, right)[0]);
          ++finished;
        }
    EXPECT_EQ(failed, 1u);
    EXPECT_EQ(finished, 1u);
  }
}

namespace {

std::vector<Hypothesis> runConstrained(const FakeModel &model, const SearchSentence &sentence,
                                       const SearchOptions &options, const std::vector<Constraint> &constraints,
                                       int candidates = 0) {
  return run(model, {sentence}, options, nullptr, 1, candidates, false, nullptr, constraints)[0];
}

const std::vector<std::vector<Constraint>> someConstraints = {
    {{{4}}},
    {{{5, 4}}},
    {{{4, 4, 5}}},
    {{{1}}, {{4, 1}}},
    {{{5}}, {{5}}},
    {{{4, 5}, {1}}},
    {{{1, 5}, {5, 5}}, {{5}, {4, 1}}},
    {{{4, 5}}, {{5, 4}}},
};

} // namespace

TEST(Constrained, WideBeamIsExhaustive) {
  for (uint32_t seed = 1; seed <= 4; ++seed)
    for (double lengthPenalty : {0.0, 2.0}) {
      FakeModel model{.seed = seed, .sharpness = 1.0 + seed % 4};
      const SearchOptions options{.generation = {.beam = 130, .lengthPenalty = lengthPenalty}, .nBest = 121};
      const auto all = enumerate(model, 7, 0, 4, lengthPenalty);
      for (const std::vector<Constraint> &constraints : someConstraints) {
        auto expected = all;
        std::erase_if(expected, [&](const Hypothesis &one) { return !meets(one.ids, constraints); });
        ASSERT_FALSE(expected.empty());
        SCOPED_TRACE(testing::Message() << "seed " << seed << " penalty " << lengthPenalty);
        expectSame(runConstrained(model, {.index = 7, .maxLength = 4}, options, constraints), expected);
      }
    }
}

// However narrow the beam, every answer meets its constraints, also if they have just enough room, and one within which
// they have none is refused before the search.
TEST(Constrained, EveryAnswerMeetsThem) {
  const Ids prefix = {4, 5};
  for (uint32_t seed = 1; seed <= 40; ++seed)
    for (const std::vector<Constraint> &constraints : someConstraints)
      for (const std::span<const int32_t> &forced : {std::span<const int32_t>(), std::span<const int32_t>(prefix)})
        for (const auto end : {Generation::AtMaxLength::Eos, Generation::AtMaxLength::Cut}) {
          FakeModel model{.seed = seed, .sharpness = 0.5 + seed % 5};
          const int beam = static_cast<int>(1 + seed % 4);
          const SearchOptions options{.generation = {.beam = beam, .atMaxLength = end, .renormalize = seed % 3 == 0},
                                      .nBest = beam};
          const Constraints states(constraints, {});
          const int64_t least =
              static_cast<int64_t>(forced.size()) + states.needed(states.advance(states.start(), forced));
          for (int64_t room = 0; room < 3; ++room) {
            const SearchSentence sentence{
                .index = 7, .maxLength = std::max<int64_t>(least + room, 1), .prefix = forced};
            const auto found = runConstrained(model, sentence, options, constraints, beam);
            ASSERT_FALSE(found.empty());
            for (const Hypothesis &one : found) {
              EXPECT_TRUE(meets(one.ids, constraints));
              EXPECT_TRUE(std::equal(forced.begin(), forced.end(), one.ids.begin()));
              const bool ended =
                  end == Generation::AtMaxLength::Eos || static_cast<int64_t>(one.ids.size()) < sentence.maxLength;
              if (!options.generation.renormalize) {
                EXPECT_NEAR(one.logProbability, model.logProbability(7, one.ids, ended), 1e-5);
              }
            }
          }
          if (least > static_cast<int64_t>(std::max<size_t>(forced.size(), 1))) {
            const SearchSentence shorter{.index = 7, .maxLength = least - 1, .prefix = forced};
            EXPECT_THROW(runConstrained(model, shorter, options, constraints), Error);
          }
        }
}

// Greedy search writes what is wanted first; a beam that has a place for each bank goes on with what is probable, too.
TEST(Constrained, BanksShareTheBeam) {
  const SearchVocabulary vocabulary{8, 0, 2, 3};
  // Whatever came before: 4, 5 and eos are probable, and 6 and 7, which are wanted, are not.
  const std::vector<float> row = {-99, -30, -99, -3, -1, -1.5, -9, -9.5};
  const std::vector<Constraint> constraints = {{{6, 7}}};
  for (const auto &[beam, expected] : std::vector<std::pair<int, std::vector<Ids>>>{
           {1, {{6}}}, {2, {{4}, {6}}}, {3, {{4}, {5}, {6}}}, {4, {{4}, {5}, {6}, {7}}}}) {
    std::vector<float> rows;
    for (int h = 0; h < beam; ++h)
      rows.insert(rows.end(), row.begin(), row.end());
    Decoder decoder(std::make_unique<StepModel>(
                        vocabulary, [&](const StepRequest &) { return StepResult{.all = {rows.data(), false, 8}}; }),
                    roomOf(1, 1000));
    const RequestId id =
        decoder.submit(requestFor({.index = 0, .maxLength = 6}, {.generation = {.beam = beam}}, constraints));
    decoder.step();
    std::vector<Ids> live;
    for (const Hypothesis &one : decoder.hypotheses(id))
      live.push_back(one.ids);
    EXPECT_EQ(live, expected) << "beam " << beam;
    // Then 6 7 needs no token, and 4 6 one; 4 4 is the most probable one, and 5 4 the next.
    decoder.step();
    live.clear();
    for (const Hypothesis &one : decoder.hypotheses(id))
      live.push_back(one.ids);
    const std::vector<std::vector<Ids>> next = {
        {{6, 7}}, {{4, 4}, {6, 7}}, {{4, 4}, {4, 6}, {6, 7}}, {{4, 4}, {5, 4}, {4, 6}, {6, 7}}};
    EXPECT_EQ(live, next[static_cast<size_t>(beam - 1)]) << "beam " << beam;
  }
}

// Sentences that share their options still take the steps that they need: only those with constraints read all
// log-probabilities.
TEST(Constrained, SentencesWithoutConstraintsGoOnAsBefore) {
  FakeModel model{.seed = 4};
  const auto options = std::make_shared<const SearchOptions>(SearchOptions{.generation = {.beam = 3, .maxLength = 6}});
  Decoder decoder(std::make_unique<FakeDecoder>(model, 400, 3), roomOf(9, 400));
  for (int32_t number = 0; number < 9; ++number)
    decoder.submit({.source = {number},
                    .prefix = {},
                    .constraints = number % 3 == 1 ? someConstraints[3] : std::vector<Constraint>(),
                    .options = options});
  while (!decoder.idle())
    for (const DecoderEvent &event : decoder.step()) {
      const SearchSentence sentence{.index = static_cast<size_t>(event.id), .maxLength = 6};
      ASSERT_EQ(event.kind, DecoderEvent::Kind::Finished);
      expectSame(event.found, event.id % 3 == 1 ? runConstrained(model, sentence, *options, someConstraints[3])
                                                : run(model, {sentence}, *options)[0]);
    }
}

// Phrases that the settings require are met as if they were constraints of every sentence.
TEST(Constrained, SettingsRequirePhrasesOfEverySentence) {
  FakeModel model{.seed = 3};
  const SearchSentence sentence{.index = 1, .maxLength = 7};
  const std::vector<Constraint> own = {{{4}}}, required = {{{5, 5}, {1}}, {{5}}};
  std::vector<Constraint> all = own;
  all.insert(all.end(), required.begin(), required.end());
  for (const int64_t beam : {1, 2, 5})
    for (const std::vector<Constraint> &given : {own, std::vector<Constraint>()}) {
      const SearchOptions plain{.generation = {.beam = beam}, .nBest = static_cast<int>(beam)};
      SearchOptions requiring = plain;
      requiring.generation.requiredPhrases = required;
      const std::vector<Hypothesis> found = runConstrained(model, sentence, requiring, given);
      expectSame(found, runConstrained(model, sentence, plain, given.empty() ? required : all));
      for (const Hypothesis &hypothesis : found)
        EXPECT_NE(std::ranges::find(hypothesis.ids, 5), hypothesis.ids.end());
    }
}

TEST(Constrained, WhatCannotBeMetIsRefused) {
  FakeModel model{.seed = 1};
  const std::vector<Constraint> constraints = {{{4}}, {{5, 5}, {5, 1}}};
  const auto said = [&](const SearchSentence &sentence, const SearchOptions &options) -> std::string {
    try {
      runConstrained(model, sentence, options, constraints);
    } catch (const Error &error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(said({.index = 2, .maxLength = 3}, {.generation = {.beam = 2}}), "");
  EXPECT_EQ(said({.index = 2, .maxLength = 2}, {.generation = {.beam = 2}}),
            "sentence 3: the constraints need 3 tokens, but there is room for 2; give a larger --max-length (up to the "
            "model's), or fewer or shorter phrases");
  const Ids prefix = {1, 4};
  EXPECT_EQ(said({.index = 2, .maxLength = 4, .prefix = prefix}, {.generation = {.beam = 2, .forcedFirst = {1}}}),
            "sentence 3: the constraints need 2 tokens after the 3 of the forced beginning, but there is room for 1; "
            "give a larger --max-length (up to the model's), or fewer or shorter phrases");
  EXPECT_EQ(said({.index = 2, .maxLength = 8}, {.generation = {.beam = 2, .suppress = {5}}}),
            "sentence 3: constraint 2 cannot be met: --suppress, --bad-sequences or --no-repeat-ngram "
            "forbids each of its phrases");
  // Those of the settings count after those of the sentence.
  EXPECT_EQ(said({.index = 2, .maxLength = 3}, {.generation = {.beam = 2, .requiredPhrases = {{{6}}}}}),
            "sentence 3: the constraints need 4 tokens, but there is room for 3; give a larger --max-length (up to the "
            "model's), or fewer or shorter phrases");
  EXPECT_EQ(said({.index = 2, .maxLength = 8},
                 {.generation = {.beam = 2, .suppress = {6}, .requiredPhrases = {{{7}}, {{6, 7}, {6}}}}}),
            "sentence 3: --required-phrases 2 cannot be met: --suppress, --bad-sequences or --no-repeat-ngram "
            "forbids each of its phrases");
  const std::string both =
      " does not go with constraints: tokens that are drawn at random cannot be made to meet them; "
      "leave out one of the two";
  EXPECT_EQ(said({.index = 2, .maxLength = 8}, {.sample = true}), "sentence 3: --sample" + both);
  EXPECT_EQ(said({.index = 2, .maxLength = 8}, {.utility = Utility::Bleu}), "sentence 3: --mbr" + both);
  // What is forbidden only in some places shows when no token is left.
  EXPECT_NE(
      said({.index = 2, .maxLength = 3}, {.generation = {.beam = 1, .badSequences = {{5, 4}, {4, 5}, {1, 4}}}})
          .find(": no token is left that has a finite log-probability, is not suppressed, and leaves room for the "
                "constraints"),
      std::string::npos);
  // Without a maximum length, there is room for what is wanted; the model's own limit stays.
  const Generation free{.beam = 1, .maxLengthRatio = 0.1};
  const std::unique_ptr<const Constraints> built = constraintsFor({.generation = free}, constraints);
  EXPECT_EQ(sentenceFor({.generation = free}, 0, 5, {}, 0).maxLength, 1);
  EXPECT_EQ(sentenceFor({.generation = free}, 0, 5, {}, 0, built.get()).maxLength, 3);
  EXPECT_EQ(sentenceFor({.generation = free}, 0, 5, prefix, 0, built.get()).maxLength, 4);
  EXPECT_EQ(sentenceFor({.generation = free}, 0, 5, prefix, 4, built.get()).maxLength, 3);
}

// Once all hypotheses are live, a step allocates no memory.
// Whatever is drafted, a search writes what it writes without, with the same numbers, in fewer steps if the draft is
// good; all slots come back, also when requests are cancelled.
TEST(Drafter, ChangesNothingButTheNumberOfSteps) {
  using enum Generation::AtMaxLength;
  const Ids prefix = {5, 1, 4};
  const std::vector<Constraint> wanted = {{{4, 4}}, {{1, 5}, {5, 5, 1}}};
  std::vector<SearchOptions> searches(7, {.generation = {.beam = 1}, .details = {.tokenScores = true}});
  searches[1].sample = true;
  searches[2].generation.repetitionPenalty = 1.3;
  searches[3].generation.atMaxLength = Cut;
  searches[4].generation.noRepeatNgram = 3;
  searches[5].generation.renormalize = true;
  searches[6].generation.forcedFirst = {4, 5};
  int64_t most = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed)
    for (const SearchOptions &options : searches)
      for (const int candidates : {0, 1}) {
        if (candidates > 0 &&
            (options.sample || options.generation.repetitionPenalty != 1 || options.generation.noRepeatNgram > 0))
          continue;
        const std::vector<Constraint> constraints =
            seed % 3 == 0 && !options.sample ? wanted : std::vector<Constraint>();
        const FakeModel model{.seed = seed, .sharpness = 2}, other{.seed = seed + 100};
        const std::vector<SearchSentence> sentences = {{.index = 3, .maxLength = 11, .minLength = 5},
                                                       {.index = 4, .maxLength = 9, .prefix = prefix},
                                                       {.index = 5, .maxLength = 8},
                                                       {.index = 9, .maxLength = 14, .minLength = 3}};
        const auto expected = run(model, sentences, options, nullptr, 1000, candidates, false, nullptr, constraints);
        for (const FakeModel *drafting : {&model, &other})
          for (const bool recurrent : {false, true})
            for (const int64_t tokens : {1, 3, 20}) {
              const int64_t slots = slotsOf(sentences, options, 2, false);
              auto made = std::make_unique<FakeDecoder>(model, slots, candidates),
                   draft = std::make_unique<FakeDecoder>(*drafting, slots, seed % 2 ? 1 : 0, recurrent);
              FakeDecoder &fake = *made, &fakeDraft = *draft;
              Counts room = roomOf(2, slots);
              Decoder decoder(std::move(made),
                              std::make_unique<Drafter>(std::move(draft), std::vector<std::string>(), room), tokens,
                              room);
              // Requests that are cancelled leave nothing behind.
              decoder.submit(requestFor(sentences[3], options, constraints));
              decoder.step();
              decoder.cancel(0);
              EXPECT_TRUE(fake.running.empty() && fakeDraft.running.empty());
              const int64_t before = fake.steps;
              std::vector<std::vector<Hypothesis>> found;
              for (const SearchSentence &sentence : sentences)
                decoder.submit(requestFor(sentence, options, constraints));
              found.resize(sentences.size());
              while (!decoder.idle())
                for (DecoderEvent &event : decoder.step()) {
                  EXPECT_EQ(event.message, "");
                  found[event.id - 1] = std::move(event.found);
                }
              for (size_t i = 0; i < sentences.size(); ++i) {
                expectSame(found[i], expected[i]);
                ASSERT_EQ(found[i][0].tokenLogProbabilities, expected[i][0].tokenLogProbabilities);
              }
              EXPECT_TRUE(fake.running.empty() && fakeDraft.running.empty());
              if (drafting == &model && tokens == 20 && !options.sample && constraints.empty() &&
                  options.generation.repetitionPenalty == 1 && options.generation.noRepeatNgram == 0)
                most = std::max(most, fake.steps - before);
            }
      }
  EXPECT_LE(most,
            4); // of four sentences, of which two run at a time, and whose drafts may end before their minimum length
}

TEST(BeamSearch, StepsDoNotAllocate) {
  SearchVocabulary vocabulary{6, 0, 2, 3};
  const std::vector<SearchSentence> sentences = {{.index = 0, .maxLength = 30}, {.index = 1, .maxLength = 30}};
  for (int beam : {1, 3}) {
    const std::vector<float> rows(static_cast<size_t>(2 * beam) * 6, std::log(1.0f / 6));
    std::vector<int64_t> before;
    before.reserve(100);
    const SearchOptions options{.generation = {.beam = beam}, .ignoreEos = true, .details = {.tokenScores = true}};
    auto found = searchAll(sentences, vocabulary, options, [&](const StepRequest &) {
      before.push_back(allocations);
      return StepResult{.all = {rows.data(), false, 6}};
    });
    EXPECT_EQ(found[1][0].ids.size(), 30u);
    ASSERT_EQ(before.size(), 30u);
    EXPECT_EQ(before.back(), before[3]) << "beam " << beam;
    EXPECT_GT(before[1], 0);
  }
}

// The log-probabilities of the tokens are those that the model gives for each after the ones before it, whichever way
// the search took: as they are, relative to what may come next, or none where a token is certain.
TEST(BeamSearch, TokenScoresAreThoseOfTeacherForcing) {
  using enum Generation::AtMaxLength;
  const Ids prefix = {5, 1};
  int withoutEos = 0, reordered = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed)
    for (const Generation::AtMaxLength end : {Eos, ForcedEos, Cut})
      for (const bool sample : {false, true})
        for (const bool renormalize : {false, true}) {
          FakeModel model{.seed = seed, .sharpness = 0.5 + seed % 4};
          const std::vector<SearchSentence> sentences = {{.index = 0, .maxLength = 6},
                                                         {.index = 1, .maxLength = 5, .prefix = prefix}};
          SearchOptions options{
              .generation = {.beam = 3, .atMaxLength = end, .renormalize = renormalize}, .nBest = 3, .sample = sample};
          if (seed % 3 == 0)
            options.generation.forcedFirst = {4};
          SearchOptions telling = options;
          telling.details.tokenScores = true;
          const int candidates = sample || seed % 2 ? 0 : 3;
          const auto plain = run(model, sentences, options, nullptr, 1000, candidates),
                     found = run(model, sentences, telling, nullptr, 1000, candidates);
          for (const SearchSentence &sentence : sentences) {
            expectSame(found[sentence.index], plain[sentence.index]);
            const Ids given = [&] {
              Ids ids = options.generation.forcedFirst;
              ids.insert(ids.end(), sentence.prefix.begin(), sentence.prefix.end());
              return ids;
            }();
            for (const Hypothesis &hypothesis : found[sentence.index]) {
              EXPECT_TRUE(plain[sentence.index].front().tokenLogProbabilities.empty());
              const auto &[ids, score, sum, byEos, sample, group, tokens, rescored] = hypothesis;
              EXPECT_EQ(byEos, end != Cut || static_cast<int64_t>(ids.size()) < sentence.maxLength);
              ASSERT_EQ(tokens.size(), ids.size() + byEos);
              withoutEos += !byEos;
              Ids before;
              for (size_t i = 0; i < tokens.size(); ++i) {
                const int32_t token = i < ids.size() ? ids[i] : model.vocabulary.eos;
                const std::vector<float> row = model.row(static_cast<uint32_t>(sentence.index), before);
                const bool last = static_cast<int64_t>(i) == sentence.maxLength;
                double expected = row[token], all = 0;
                for (const int32_t possible : {1, 3, 4, 5})
                  all += std::exp(row[possible]);
                if (i < options.generation.forcedFirst.size() || (last && end == ForcedEos) ||
                    (renormalize && (last || i < given.size())))
                  expected = 0;
                else if (renormalize)
                  expected -= std::log(all);
                EXPECT_NEAR(tokens[i], expected, renormalize ? 1e-6 : 0) << seed << " " << i;
                before.push_back(token);
              }
              EXPECT_NEAR(std::accumulate(tokens.begin(), tokens.end(), 0.0), sum, 1e-12);
            }
            reordered +=
                found[sentence.index].size() > 1 && found[sentence.index][0].ids != found[sentence.index][1].ids;
          }
        }
  EXPECT_GT(withoutEos, 100);
  EXPECT_GT(reordered, 100);
}

// A prefix and a forced end need log-probabilities of tokens that are not candidates.
TEST(BeamSearch, CandidatesAreEnough) {
  const Ids prefix = {5, 1};
  for (uint32_t seed = 1; seed <= 50; ++seed)
    for (int beam : {1, 2, 3}) {
      FakeModel model{.seed = seed, .sharpness = 0.5 + seed % 5};
      const std::vector<SearchSentence> sentences = {{.index = 0, .maxLength = 5, .minLength = 2},
                                                     {.index = 1, .maxLength = 4, .prefix = prefix}};
      const SearchOptions options{.generation = {.beam = beam}, .nBest = beam};
      auto all = run(model, sentences, options), candidates = run(model, sentences, options, nullptr, 1000, beam);
      for (size_t s : {0, 1})
        expectSame(candidates[s], all[s]);
    }
}

namespace {

// A second implementation of transformers' generate with these settings: all candidates of a step in one list, of which
// the best 2 x beam continue or end.
std::vector<Hypothesis> generate(const FakeModel &model, uint32_t key, const Generation &g, int64_t maxLength,
                                 const Ids &prefix) {
  const auto &[vocabulary, pad, start, eos] = model.vocabulary;
  auto has = [](const Ids &list, int32_t token) { return std::find(list.begin(), list.end(), token) != list.end(); };
  auto normalized = [&](double sum, int64_t n) {
    return sum / std::pow(g.penaltyForm == Generation::PenaltyForm::Power ? n : (5.0 + n) / 6, g.lengthPenalty);
  };
  // Whether `list` contains `part` at position `at`.
  auto stands = [](const Ids &list, const Ids &part, size_t at) {
    return at + part.size() <= list.size() && std::equal(part.begin(), part.end(), list.begin() + at);
  };
  auto allowed = [&](const Ids &ids, int32_t token) {
    if (token == pad || (token == start && start != eos) || has(g.suppress, token) ||
        (token == eos && static_cast<int64_t>(ids.size()) < g.minLength))
      return false;
    Ids read = {start}, text = ids;
    read.insert(read.end(), ids.begin(), ids.end());
    read.push_back(token);
    text.push_back(token);
    for (const Ids &bad : g.badSequences)
      if (bad.size() <= read.size() && stands(read, bad, read.size() - bad.size()))
        return false;
    const auto n = static_cast<size_t>(g.noRepeatNgram);
    if (n > 0 && text.size() > n) {
      const Ids last(text.end() - g.noRepeatNgram, text.end());
      for (size_t at = 0; at + n < text.size(); ++at)
        if (stands(text, last, at))
          return false;
    }
    return true;
  };
  struct Beam {
    double sum;
    Ids ids;
  };
  std::vector<Beam> live = {{0, {}}};
  std::vector<Hypothesis> done;
  Ids certain = g.forcedFirst, given = certain;
  given.insert(given.end(), prefix.begin(), prefix.end());
  for (int64_t position = 0; !live.empty(); ++position) {
    std::vector<Beam> all;
    for (const Beam &beam : live) {
      const std::vector<float> row = model.row(key, beam.ids);
      std::vector<std::pair<int32_t, double>> next;
      if (position == maxLength)
        next = {{eos, g.atMaxLength == Generation::AtMaxLength::ForcedEos ? 0 : row[eos]}};
      else if (position < static_cast<int64_t>(given.size()))
        next = {{given[position], position < static_cast<int64_t>(certain.size()) ? 0 : row[given[position]]}};
      else
        for (int32_t token = 0; token < vocabulary; ++token)
          if (allowed(beam.ids, token))
            next.emplace_back(token, row[token]);
      double probabilities = 0;
      for (const auto &[token, logProbability] : next)
        probabilities += std::exp(logProbability);
      for (const auto &[token, logProbability] : next) {
        all.push_back({beam.sum + logProbability - (g.renormalize ? std::log(probabilities) : 0), beam.ids});
        all.back().ids.push_back(token);
      }
    }
    std::stable_sort(all.begin(), all.end(), [](const Beam &a, const Beam &b) { return a.sum > b.sum; });
    live.clear();
    for (int rank = 0; rank < std::min<int>(2 * g.beam, static_cast<int>(all.size())); ++rank) {
      auto &[sum, ids] = all[rank];
      const bool eosEnds = ids.back() == eos && !(position < static_cast<int64_t>(given.size()));
      const bool ends = eosEnds || (g.atMaxLength == Generation::AtMaxLength::Cut && position + 1 == maxLength);
      if (!ends && static_cast<int>(live.size()) < g.beam)
        live.push_back(all[rank]);
      if (ends && rank < g.beam)
        done.push_back({Ids(ids.begin(), ids.end() - eosEnds), normalized(sum, position + 1), sum});
    }
    std::stable_sort(done.begin(), done.end(), [](auto &a, auto &b) { return a.score > b.score; });
    if (static_cast<int>(done.size()) < g.beam || live.empty())
      continue;
    done.resize(g.beam);
    const bool atEnd = g.earlyStopping == Generation::EarlyStopping::Never && g.lengthPenalty > 0;
    const int64_t longest = maxLength + (g.atMaxLength != Generation::AtMaxLength::Cut);
    if (g.beam == 1 || g.earlyStopping == Generation::EarlyStopping::Yes ||
        normalized(live[0].sum, atEnd ? longest : position + 1) <= done.back().score)
      break;
  }
  return done;
}

} // namespace

// Random settings, including pad or eos as start token, both with all log-probabilities and with as many candidates as
// the search requests.
// The candidates that a beam without groups needs are enough for one with groups.
TEST(BeamSearch, GroupsNeedNoMoreCandidates) {
  int differing = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed)
    for (const auto &[beam, groups] : {std::pair{3, 3}, {2, 2}, {3, 1}})
      for (const double diversity : {0.2, 1.0, 5.0}) {
        const FakeModel model{.seed = seed, .sharpness = 0.5 + seed % 5};
        const std::vector<SearchSentence> sentences = {{.index = 1, .maxLength = 6}, {.index = 2, .maxLength = 4}};
        SearchOptions options{.generation = {.beam = beam, .beamGroups = groups, .diversity = diversity},
                              .nBest = beam};
        const auto all = run(model, sentences, options);
        ASSERT_EQ(searchCandidates(options, model.vocabulary), beam);
        const auto best = run(model, sentences, options, nullptr, 1, beam);
        const auto recurrent = run(model, sentences, options, nullptr, 1000, beam, /*recurrent=*/true);
        options.generation.beamGroups = 1;
        const auto plain = run(model, sentences, options);
        for (size_t s = 0; s < sentences.size(); ++s) {
          expectSame(best[s], all[s]);
          expectSame(recurrent[s], all[s]);
          std::set<Ids> mine, theirs;
          for (const Hypothesis &hypothesis : all[s]) {
            mine.insert(hypothesis.ids);
            EXPECT_EQ(hypothesis.logProbability,
                      model.logProbability(static_cast<uint32_t>(sentences[s].index), hypothesis.ids));
          }
          for (const Hypothesis &hypothesis : plain[s])
            theirs.insert(hypothesis.ids);
          EXPECT_TRUE(groups > 1 || mine == theirs);
          differing += mine != theirs;
        }
      }
  EXPECT_GT(differing, 100);
}

// A group goes on although its best is found, since what it writes makes the others differ.
TEST(BeamSearch, GroupsGoOnForTheOthers) {
  const FakeModel words;
  std::vector<double> rows; // the same in each step: eos is so probable that nothing beats the empty translation
  const auto step = [&](const StepRequest &request) {
    rows.clear();
    for (size_t h = 0; h < request.ids.size(); ++h)
      for (const double p : {0.0, 0.05, 0.0, 0.6, 0.2, 0.15})
        rows.push_back(std::log(p));
    return StepResult{.all = {rows.data(), true, words.vocabulary.size}};
  };
  for (const int groups : {1, 2}) {
    const SearchOptions options{.generation = {.beam = 4, .lengthPenalty = 0, .beamGroups = groups, .diversity = 5}};
    Decoder decoder(std::make_unique<StepModel>(words.vocabulary, step), roomOf(1, 100));
    const RequestId id = decoder.submit(requestFor({.maxLength = 5}, options));
    const auto events = decoder.step();
    EXPECT_EQ(decoder.idle(), groups == 1) << "without groups the best is found";
    EXPECT_EQ(events.size(), groups == 1 ? 1u : 0u);
    std::vector<Ids> live;
    for (const Hypothesis &hypothesis : decoder.hypotheses(id))
      live.push_back(hypothesis.ids);
    // The first group writes 4 and 5, of which the second one takes 4 after 1 only because it has to take two.
    EXPECT_EQ(live, groups == 1 ? std::vector<Ids>() : (std::vector<Ids>{{4}, {5}, {1}, {4}}));
  }
}

TEST(BeamSearch, SettingsFollowTheirRules) {
  std::mt19937 random(7);
  auto below = [&](uint32_t n) { return random() % n; };
  int suppressed = 0, candidatesUsed = 0, renormalized = 0, ended = 0;
  for (uint32_t seed = 1; seed <= 600; ++seed) {
    FakeModel model{.vocabulary = {14, 0, static_cast<int32_t>(below(3) == 0 ? 0 : 2 + below(2)), 3},
                    .seed = seed,
                    .sharpness = 0.3 + below(4)};
    auto token = [&] { return static_cast<int32_t>(4 + below(10)); };
    Generation g;
    g.beam = static_cast<int32_t>(1 + below(4));
    g.lengthPenalty = std::vector<double>{-1, 0, 0.6, 1, 2}[below(5)];
    g.penaltyForm = static_cast<Generation::PenaltyForm>(below(2));
    g.earlyStopping = static_cast<Generation::EarlyStopping>(below(3));
    g.atMaxLength = static_cast<Generation::AtMaxLength>(below(3));
    g.maxLength = 4 + below(5);
    g.minLength = below(4);
    for (size_t i = below(3); i > 0; --i)
      g.forcedFirst.push_back(1);
    for (size_t i = below(3); i > 0; --i)
      g.suppress.push_back(token());
    for (size_t i = below(3); i > 0; --i)
      g.badSequences.push_back(below(2) ? Ids{token(), token()} : Ids{model.vocabulary.start, token()});
    if (below(2))
      g.badSequences.push_back({token(), 3});
    g.noRepeatNgram = below(3) == 0 ? 1 + below(3) : 0;
    if (g.renormalize = below(2); g.renormalize && below(2))
      g.suppress.clear(), g.badSequences.clear(), g.noRepeatNgram = 0; // only then candidates are enough
    ASSERT_FALSE(findProblem(g, 14, 0, 2, 3));
    const Ids prefix = below(4) == 0 ? Ids{token(), token()} : Ids{};
    const int nBest = static_cast<int>(1 + below(g.beam));
    std::vector<Hypothesis> expected = generate(model, 5, g, g.maxLength, prefix);
    suppressed += generate(
                      model, 5,
                      [&] {
                        Generation free = g;
                        free.suppress.clear(), free.badSequences.clear(), free.noRepeatNgram = 0;
                        return free;
                      }(),
                      g.maxLength, prefix)
                      .front()
                      .ids != expected.front().ids;
    ended += static_cast<int64_t>(expected.front().ids.size()) < g.maxLength;
    if (static_cast<int>(expected.size()) > nBest)
      expected.resize(nBest);
    const SearchOptions options{.generation = g, .nBest = nBest};
    const std::vector<SearchSentence> sentences = {
        {.index = 5, .maxLength = g.maxLength, .minLength = g.minLength, .prefix = prefix}};
    SCOPED_TRACE(seed);
    expectSame(run(model, sentences, options)[0], expected, g.renormalize ? 1e-12 : 0);
    if (const int64_t count = searchCandidates(options, model.vocabulary); count > 0) {
      ++(g.renormalize ? renormalized : candidatesUsed);
      expectSame(run(model, sentences, options, nullptr, 1, static_cast<int>(count))[0], expected,
                 g.renormalize ? 1e-5 : 0);
    }
  }
  EXPECT_GT(suppressed, 100) << "what is suppressed was never put to the test";
  EXPECT_GT(candidatesUsed, 100);
  EXPECT_GT(renormalized, 100);
  EXPECT_GT(ended, 100);
}

// For any beam, the device must give one candidate more for each suppressed token.
TEST(BeamSearch, CandidatesAreOneMoreForEachSuppressedToken) {
  const SearchVocabulary vocabulary{14, 0, 2, 3};
  EXPECT_EQ(searchCandidates({.generation = {.beam = 4}}, vocabulary), 4);
  EXPECT_EQ(searchCandidates({.generation = {.beam = 4, .suppress = {5, 0, 6, 5}}}, vocabulary), 6);
  EXPECT_EQ(searchCandidates({.generation = {.beam = 4, .suppress = {5}, .badSequences = {{7, 5}, {7, 8}, {7, 3}}}},
                             vocabulary),
            6);
  EXPECT_EQ(searchCandidates({.generation = {.beam = 4, .noRepeatNgram = 2}}, vocabulary), 0);
  EXPECT_EQ(searchCandidates({.generation = {.beam = 4}, .sample = true}, vocabulary), 0);
  // The probabilities of suppressed tokens are needed, too, unless they are pad, start or eos.
  EXPECT_EQ(searchCandidates({.generation = {.beam = 4, .suppress = {0}, .renormalize = true}}, vocabulary), 4);
  EXPECT_EQ(searchCandidates({.generation = {.beam = 4, .suppress = {5}, .renormalize = true}}, vocabulary), 0);
}

// However improbable the tokens are beside those that may not come, their probabilities add up to 1.
TEST(BeamSearch, RenormalizesWhatIsLeft) {
  const SearchVocabulary vocabulary{6, 0, 2, 3};
  const std::vector<float> row = {0, -40, -1, -42, -41, -43};
  const SearchSentence first{.index = 0, .maxLength = 1}, longer{.index = 0, .maxLength = 1, .minLength = 1};
  for (const SearchSentence *sentence : {&first, &longer})
    for (bool sample : {false, true}) {
      const SearchOptions options{
          .generation = {.beam = 4, .suppress = {5}, .renormalize = true}, .nBest = sample ? 200 : 4, .sample = sample};
      const std::vector<float> rows = [&] {
        std::vector<float> all;
        for (int64_t h = 0; h < searchWidth(options); ++h)
          all.insert(all.end(), row.begin(), row.end());
        return all;
      }();
      const auto found = searchAll({sentence, 1}, vocabulary, options,
                                   [&](const StepRequest &) { return StepResult{.all = {rows.data(), false, 6}}; })[0];
      std::map<Ids, double> expected = {{{1}, std::exp(-40)}, {{4}, std::exp(-41)}}, seen;
      if (sentence == &first)
        expected[{}] = std::exp(-42);
      double sum = 0;
      for (const auto &[ids, probability] : expected)
        sum += probability;
      for (auto &[ids, probability] : expected)
        probability /= sum;
      for (const Hypothesis &hypothesis : found)
        seen[hypothesis.ids] = std::exp(hypothesis.logProbability);
      EXPECT_EQ(seen.size(), expected.size());
      for (const auto &[ids, probability] : seen)
        EXPECT_NEAR(probability, expected[ids], 1e-12);
    }
}

TEST(Candidates, LogSumOfOthers) {
  const std::vector<double> row = {std::log(0.1), std::log(0.2), std::log(0.3), std::log(0.4), -INFINITY};
  const Ids none, some = {1, 1, 3}, ends = {0, 4}, all = {0, 1, 2, 3, 4}, finite = {0, 1, 2, 3};
  EXPECT_NEAR(logSumOfOthers({row.data(), true}, 5, none), 0, 1e-15);
  EXPECT_NEAR(logSumOfOthers({row.data(), true}, 5, some), std::log(0.4), 1e-15);
  EXPECT_NEAR(logSumOfOthers({row.data(), true}, 5, ends), std::log(0.9), 1e-15);
  EXPECT_EQ(logSumOfOthers({row.data(), true}, 5, all), -INFINITY);
  EXPECT_EQ(logSumOfOthers({row.data(), true}, 5, finite), -INFINITY);
  const std::vector<float> far = {-1000, -1001, 0};
  const Ids last = {2};
  EXPECT_NEAR(logSumOfOthers({far.data(), false}, 3, last), -1000 + std::log1p(std::exp(-1)), 1e-12);
}

TEST(BeamSearch, SamplesKeepToTheSettings) {
  for (int32_t start : {0, 2, 3}) {
    FakeModel model{.vocabulary = {8, 0, start, 3}, .seed = 3};
    const SearchOptions options{
        .generation = {.forcedFirst = {1}, .suppress = {5}, .badSequences = {{6, 7}}, .noRepeatNgram = 2},
        .nBest = 200,
        .sample = true};
    int ended = 0;
    const std::vector<Hypothesis> samples = run(model, {{.index = 0, .maxLength = 8}}, options)[0];
    for (const Hypothesis &sample : samples) {
      const Ids &ids = sample.ids;
      ASSERT_FALSE(ids.empty());
      EXPECT_EQ(ids[0], 1);
      std::set<std::pair<int32_t, int32_t>> pairs;
      double sum = 0;
      for (size_t i = 1; i < ids.size(); ++i) {
        EXPECT_TRUE(ids[i] != 5 && ids[i] != 0 && ids[i] != 3 && (ids[i] != 2 || start != 2)) << ids[i];
        EXPECT_FALSE(ids[i - 1] == 6 && ids[i] == 7);
        EXPECT_TRUE(pairs.insert({ids[i - 1], ids[i]}).second);
        sum += model.row(0, Ids(ids.begin(), ids.begin() + i))[ids[i]];
      }
      EXPECT_EQ(sample.logProbability, sum + model.row(0, ids)[3]) << "what is forced first is certain";
      ended += ids.size() < 8;
    }
    EXPECT_GT(ended, 100) << "start " << start;
  }
}

// A beam all of whose continuations are suppressed ends with its finished hypotheses; it is an error if there are none.
TEST(BeamSearch, NothingLeftToWrite) {
  FakeModel model{.seed = 1};
  Generation g{.beam = 2, .earlyStopping = Generation::EarlyStopping::Never, .noRepeatNgram = 1};
  // Three tokens, each used at most once: there is no fourth token.
  auto found = run(model, {{.index = 0, .maxLength = 9}}, {.generation = g, .nBest = 2})[0];
  ASSERT_EQ(found.size(), 2u);
  EXPECT_LE(found[0].ids.size(), 3u);
  try {
    run(model, {{.index = 4, .maxLength = 9, .minLength = 5}}, {.generation = g});
    FAIL();
  } catch (const Error &error) {
    EXPECT_EQ(std::string(error.what()),
              "sentence 5, position 3: no token is left that has a finite log-probability and is not suppressed; "
              "give fewer --suppress or --bad-sequences, or a larger --no-repeat-ngram");
  }
}

TEST(BeamSearch, TiesGoToTheLowerTokenThenTheLowerParent) {
  // All tokens are always equally likely: the first two live hypotheses are 1 and 4, their children 1 1 and 4 1, and so
  // on.
  SearchVocabulary vocabulary{6, 0, 2, 3};
  std::vector<double> row(6, std::log(1.0 / 6));
  std::vector<double> rows;
  std::vector<std::vector<int32_t>> read;
  SearchSentence sentence{.index = 0, .maxLength = 3, .minLength = 3};
  SearchOptions options{.generation = {.beam = 2}, .nBest = 2};
  auto found = searchAll({&sentence, 1}, vocabulary, options, [&](const StepRequest &request) {
    read.push_back({request.ids.begin(), request.ids.end()});
    rows.clear();
    for (size_t h = 0; h < request.ids.size(); ++h)
      rows.insert(rows.end(), row.begin(), row.end());
    return StepResult{.all = {rows.data(), true, 6}};
  })[0];
  EXPECT_EQ(read, (std::vector<Ids>{{2}, {1, 4}, {1, 1}, {1, 1}}));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].ids, (Ids{1, 1, 1}));
  EXPECT_EQ(found[1].ids, (Ids{4, 1, 1}));
}

TEST(BeamSearch, IgnoreEosRunsToMaxLength) {
  FakeModel model{.seed = 4};
  for (int beam : {1, 3}) {
    auto found = run(model, {{.index = 0, .maxLength = 6}, {.index = 1, .maxLength = 3}},
                     {.generation = {.beam = beam}, .ignoreEos = true});
    EXPECT_EQ(found[0][0].ids.size(), 6u);
    EXPECT_EQ(found[1][0].ids.size(), 3u);
    EXPECT_EQ(found[0][0].logProbability, model.logProbability(0, found[0][0].ids, false));
  }
}

TEST(BeamSearch, BrokenLogProbabilitiesAreAnError) {
  SearchVocabulary vocabulary{6, 0, 2, 3};
  std::vector<float> row(6, std::numeric_limits<float>::quiet_NaN());
  SearchSentence sentence{.index = 4, .maxLength = 3};
  // Settings under which a token may be missing for another reason do not hide it.
  for (int noRepeatNgram : {0, 1})
    for (bool sample : {false, true})
      try {
        searchAll({&sentence, 1}, vocabulary,
                  {.generation = {.beam = 1, .noRepeatNgram = noRepeatNgram}, .sample = sample},
                  [&](const StepRequest &) { return StepResult{.all = {row.data(), false, 6}}; });
        FAIL();
      } catch (const Error &error) {
        EXPECT_EQ(std::string(error.what()), "sentence 5, position 0: the model gives no finite log-probability; its "
                                             "weights are broken or too large");
      }
}

TEST(Candidates, BestTokensAgreeWithSorting) {
  std::mt19937 random(3);
  for (int vocabulary : {1, 5, 63, 64, 65, 1000})
    for (int count : {1, 2, 5, 2000}) {
      std::vector<float> row(vocabulary);
      for (float &x : row)
        x = static_cast<float>(random() % 50) - 60; // many ties
      std::vector<Candidate> expected, found;
      for (int token = 0; token < vocabulary; ++token)
        if (token != 3 && token != 0)
          expected.push_back({token, row[token]});
      std::stable_sort(expected.begin(), expected.end(),
                       [](auto &a, auto &b) { return a.logProbability > b.logProbability; });
      expected.resize(std::min<size_t>(expected.size(), count));
      const int32_t excluded[] = {0, 3};
      bestTokens({row.data(), false}, vocabulary, excluded, count, found);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_EQ(found[i].token, expected[i].token);
    }
}

TEST(Sampling, FollowsTheDistribution) {
  // Chi-square of 20,000 draws; the 0.999 quantile for 7 degrees of freedom is 24.3.
  const std::vector<double> row = {std::log(.02), std::log(.3),  std::log(.08), std::log(.1),
                                   std::log(.15), std::log(.05), std::log(.2),  std::log(.1)};
  struct Case {
    Generation sampling;
    std::vector<double> probabilities;
  };
  auto tempered = [&](double t, std::set<int> kept) {
    std::vector<double> p(8, 0);
    double sum = 0;
    for (int i : kept)
      sum += p[i] = std::exp(row[i] / t);
    for (double &x : p)
      x /= sum;
    return p;
  };
  const std::set<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<Case> cases = {
      {{}, tempered(1, all)},
      {{.temperature = 0.5}, tempered(0.5, all)},
      {{.temperature = 2, .topK = 3}, tempered(2, {1, 4, 6})},
      {{.topK = 4}, tempered(1, {1, 3, 4, 6})}, // 3 and 7 tie
      {{.topP = 0.51}, tempered(1, {1, 4, 6})},
      {{.topP = 0.49}, tempered(1, {1, 6})},
      {{.topP = 1e-9}, tempered(1, {1})},
      {{.topK = 2, .topP = 0.5}, tempered(1, {1})},
      {{.minP = 0.49}, tempered(1, {1, 4, 6})},
      {{.minP = 1}, tempered(1, {1})},
      // The entropy is 1.858, and -log p of 4 is 1.897; then come 6, and 3 and 7, which tie.
      {{.typicalP = 0.14}, tempered(1, {4})},
      {{.typicalP = 0.3}, tempered(1, {4, 6})},
      {{.typicalP = 0.36}, tempered(1, {3, 4, 6, 7})},
      {{.epsilonCutoff = 0.09}, tempered(1, {1, 3, 4, 6, 7})},
      {{.epsilonCutoff = 0.9}, tempered(1, {1})},
      {{.temperature = 0.5, .epsilonCutoff = 0.2}, tempered(0.5, {1, 6})},
      // Of what minP leaves, 6 has 0.31 and 4 has 0.23.
      {{.minP = 0.49, .epsilonCutoff = 0.3}, tempered(1, {1, 6})}};
  for (size_t c = 0; c < cases.size(); ++c) {
    std::vector<int> counts(8, 0);
    const int draws = 20000;
    for (int i = 0; i < draws; ++i) {
      Candidate drawn =
          sampleToken({row.data(), true}, 8, {}, cases[c].sampling,
                      uniformNumber(42, static_cast<uint32_t>(i % 100), static_cast<uint32_t>(i / 100), 0));
      ASSERT_GE(drawn.token, 0);
      EXPECT_EQ(drawn.logProbability, row[drawn.token]);
      ++counts[drawn.token];
    }
    double chiSquare = 0;
    for (int token = 0; token < 8; ++token) {
      double expected = draws * cases[c].probabilities[token];
      if (expected == 0) {
        EXPECT_EQ(counts[token], 0) << "case " << c << " token " << token;
      } else {
        chiSquare += (counts[token] - expected) * (counts[token] - expected) / expected;
      }
    }
    EXPECT_LT(chiSquare, 24.3) << "case " << c;
  }
}

TEST(Sampling, SearchDrawsSequencesByTheirProbability) {
  FakeModel model{.seed = 2};
  std::vector<SearchSentence> sentences = {{.index = 3, .maxLength = 2}};
  std::map<Ids, int> counts;
  const int draws = 20000;
  auto samples = run(model, sentences, {.nBest = draws, .sample = true, .seed = 11})[0];
  ASSERT_EQ(samples.size(), static_cast<size_t>(draws));
  for (const Hypothesis &sample : samples) {
    EXPECT_EQ(sample.logProbability, model.logProbability(3, sample.ids));
    ++counts[sample.ids];
  }
  // The probability of each of the 1 + 3 + 9 sequences, renormalized without pad and start, with a certain eos at the
  // maximum length.
  double chiSquare = 0;
  for (const Hypothesis &hypothesis : enumerate(model, 3, 0, 2, 0)) {
    double p = 1;
    Ids before;
    for (size_t i = 0; i <= hypothesis.ids.size() && i < 2; ++i) {
      auto row = model.row(3, before);
      double sum = 0;
      for (int32_t token : {1, 3, 4, 5})
        sum += std::exp(row[token]);
      p *= std::exp(row[i < hypothesis.ids.size() ? hypothesis.ids[i] : 3]) / sum;
      if (i < hypothesis.ids.size())
        before.push_back(hypothesis.ids[i]);
    }
    double expected = draws * p;
    chiSquare += (counts[hypothesis.ids] - expected) * (counts[hypothesis.ids] - expected) / expected;
  }
  EXPECT_LT(chiSquare, 32.9); // the 0.999 quantile for 12 degrees of freedom

  auto again = run(model, sentences, {.nBest = 50, .sample = true, .seed = 11})[0];
  auto other = run(model, sentences, {.nBest = 50, .sample = true, .seed = 12})[0];
  auto third = run(model, sentences, {.nBest = 50, .sample = true, .seed = 11})[0];
  expectSame(again, third);
  bool differs = false;
  for (size_t i = 0; i < 50; ++i)
    differs |= again[i].ids != other[i].ids;
  EXPECT_TRUE(differs);
}
