// Tests how an ensemble averages, and that a search over it is a search over the averaged distribution.
#include "decode/Ensemble.h"
#include "decode/EnsembleModel.h"
#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>

using namespace xfc;

namespace {

using Ids = std::vector<int32_t>;
constexpr SearchVocabulary words{200, 0, 2, 3}; // more than one block of tokens

// Log-probabilities that depend on a seed and on the tokens read so far; f32 or f64.
struct RandomModel : SearchedModel {
  RandomModel(uint32_t seed, bool isDouble) : seed(seed), isDouble(isDouble) {}
  SearchVocabulary vocabulary() const override { return words; }
  size_t groupOf(const SearchOptions &, bool constrained) override {
    EXPECT_TRUE(constrained) << "an ensemble averages all log-probabilities";
    return 0;
  }
  void join(size_t, std::span<const JoiningSentence> joining) override {
    for (const auto &[place, source] : joining)
      keys[static_cast<int32_t>(place)] = source[0];
  }
  void leave(size_t place) override { EXPECT_EQ(keys.erase(static_cast<int32_t>(place)), 1u); }

  std::vector<double> row(int32_t key, const Ids &read) const {
    Ids mixed = read;
    mixed.insert(mixed.end(), {key, static_cast<int32_t>(seed)});
    std::seed_seq sequence(mixed.begin(), mixed.end());
    std::mt19937 random(sequence);
    std::vector<double> numbers(static_cast<size_t>(words.size));
    double sum = 0;
    for (double &x : numbers) {
      x = static_cast<double>(random() % 1000) / 150; // some are equal
      sum += std::exp(x);
    }
    for (double &x : numbers) {
      x -= std::log(sum);
      if (!isDouble)
        x = static_cast<float>(x);
    }
    numbers[static_cast<size_t>(10 + seed)] = -INFINITY;
    return numbers;
  }

  StepResult step(size_t, const StepRequest &request) override {
    for (size_t h = 0; h < request.ids.size(); ++h)
      cache[request.slots[h]] = request.ids[h];
    wide.clear(), narrow.clear();
    for (size_t h = 0; h < request.ids.size(); ++h) {
      Ids read;
      for (const int32_t slot : request.history[h])
        read.push_back(cache.at(slot));
      for (const double x : row(keys.at(request.placeOf[h]), read)) {
        wide.push_back(x);
        narrow.push_back(static_cast<float>(x));
      }
    }
    return {.all = {isDouble ? static_cast<const void *>(wide.data()) : narrow.data(), isDouble, words.size}};
  }

  uint32_t seed;
  bool isDouble;
  std::map<int32_t, int32_t> keys, cache;
  std::vector<double> wide;
  std::vector<float> narrow;
};

// The same, from the state that the step of the token before has left in its cache row, as recurrences have it.
struct RecurrentModel : RandomModel {
  using RandomModel::RandomModel;
  bool readsHistory() const override { return false; }
  StepResult step(size_t, const StepRequest &request) override {
    std::map<int32_t, Ids> after = states;
    wide.clear(), narrow.clear();
    for (size_t h = 0; h < request.ids.size(); ++h) {
      const std::span<const int32_t> rows = request.history[h];
      Ids read = rows.size() > 1 ? states.at(rows[rows.size() - 2]) : Ids();
      read.push_back(request.ids[h]);
      for (const double x : row(keys.at(request.placeOf[h]), read)) {
        wide.push_back(x);
        narrow.push_back(static_cast<float>(x));
      }
      after[request.slots[h]] = std::move(read);
    }
    states = std::move(after);
    return {.all = {isDouble ? static_cast<const void *>(wide.data()) : narrow.data(), isDouble, words.size}};
  }
  std::map<int32_t, Ids> states; // by cache row
};

Counts plentyOfRoom() {
  Counts room;
  std::ranges::fill(room.rows, int64_t(1) << 40);
  std::ranges::fill(room.sequences, int64_t(1) << 40);
  std::ranges::fill(room.pairs, int64_t(1) << 40);
  room.longest = int64_t(1) << 40;
  room.rows[XFC_CACHE] = 20000;
  return room;
}

std::vector<std::vector<Hypothesis>> searchWith(std::unique_ptr<SearchedModel> model, const SearchOptions &options,
                                                ThreadPool *pool = nullptr, int sentences = 5) {
  Decoder decoder(std::move(model), plentyOfRoom(), pool);
  const auto shared = std::make_shared<const SearchOptions>(options);
  for (int32_t i = 0; i < sentences; ++i)
    decoder.submit({.source = {100 + i}, .prefix = {}, .options = shared, .number = static_cast<size_t>(i)});
  std::vector<std::vector<Hypothesis>> found(static_cast<size_t>(sentences));
  while (!decoder.idle())
    for (DecoderEvent &event : decoder.step()) {
      EXPECT_EQ(event.message, "");
      found[event.id] = std::move(event.found);
    }
  return found;
}

struct MemberOf {
  uint32_t seed;
  bool isDouble = false;
};
std::unique_ptr<SearchedModel> ensembleOf(const std::vector<MemberOf> &members, std::vector<double> weights,
                                          ThreadPool *pool = nullptr) {
  std::vector<std::unique_ptr<SearchedModel>> models;
  for (const auto &[seed, isDouble] : members)
    models.push_back(std::make_unique<RandomModel>(seed, isDouble));
  return ensembleModel(std::move(models), std::move(weights), pool);
}

// One model that says what the ensemble should say: the means, in long double and by their definition.
struct AveragedModel : RandomModel {
  AveragedModel(std::vector<MemberOf> members, std::vector<double> weights)
      : RandomModel(0, true), members(std::move(members)), weights(std::move(weights)) {}
  size_t groupOf(const SearchOptions &, bool) override { return 0; }
  StepResult step(size_t, const StepRequest &request) override {
    for (size_t h = 0; h < request.ids.size(); ++h)
      cache[request.slots[h]] = request.ids[h];
    wide.clear();
    for (size_t h = 0; h < request.ids.size(); ++h) {
      Ids read;
      for (const int32_t slot : request.history[h])
        read.push_back(cache.at(slot));
      std::vector<long double> sums(static_cast<size_t>(words.size));
      long double total = 0;
      for (size_t m = 0; m < members.size(); ++m) {
        const RandomModel member(members[m].seed, members[m].isDouble);
        const std::vector<double> numbers = member.row(keys.at(request.placeOf[h]), read);
        for (size_t token = 0; token < sums.size(); ++token)
          sums[token] += weights[m] * std::exp(static_cast<long double>(numbers[token]));
        total += weights[m];
      }
      for (const long double sum : sums)
        wide.push_back(static_cast<double>(std::log(sum / total)));
    }
    return {.all = {wide.data(), true, words.size}};
  }
  std::vector<MemberOf> members;
  std::vector<double> weights;
};

void expectNear(const std::vector<std::vector<Hypothesis>> &found, const std::vector<std::vector<Hypothesis>> &expected,
                double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t s = 0; s < found.size(); ++s) {
    ASSERT_EQ(found[s].size(), expected[s].size());
    for (size_t i = 0; i < found[s].size(); ++i) {
      EXPECT_EQ(found[s][i].ids, expected[s][i].ids);
      EXPECT_NEAR(found[s][i].score, expected[s][i].score, tolerance);
      EXPECT_NEAR(found[s][i].logProbability, expected[s][i].logProbability, tolerance);
    }
  }
}

} // namespace

TEST(Ensemble, MeansOfEqualNumbersAreTheNumber) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> weight(0.01, 3), number(-30, 0);
  for (int i = 0; i < 1000; ++i) {
    const double x = i % 2 ? number(random) : static_cast<float>(number(random));
    std::vector<double> numbers(1 + i % 9, x), weights;
    for (size_t m = 0; m < numbers.size(); ++m)
      weights.push_back(weight(random));
    EXPECT_EQ(logMean(numbers, weights), x);
    EXPECT_EQ(mean(numbers, weights), x);
  }
}

TEST(Ensemble, MeansAreThoseOfProbabilities) {
  EXPECT_NEAR(logMean(std::vector{std::log(0.5), std::log(0.1)}, std::vector{1.0, 3.0}), std::log(0.2), 1e-15);
  EXPECT_NEAR(mean(std::vector{0.5, 0.1}, std::vector{1.0, 3.0}), 0.2, 1e-15);
  EXPECT_EQ(logMean(std::vector<double>{-INFINITY, -INFINITY}, std::vector{1.0, 3.0}), -INFINITY);
  EXPECT_NEAR(logMean(std::vector<double>{-INFINITY, -2}, std::vector{1.0, 1.0}), -2 - std::log(2), 1e-15);
  EXPECT_NEAR(logMean(std::vector{-2000.0, -2001.0}, std::vector{1.0, 1.0}), -2000 + std::log((1 + std::exp(-1)) / 2),
              1e-12);
  EXPECT_TRUE(std::isnan(logMean(std::vector<double>{NAN, -1}, std::vector{1.0, 1.0})));
  EXPECT_TRUE(std::isnan(logMean(std::vector<double>{-INFINITY, NAN}, std::vector{1.0, 1.0})));
  // Never above the largest, on which the choice of candidates relies.
  std::mt19937 random(2);
  std::uniform_real_distribution<double> weight(0.01, 3), near(0, 1e-15);
  for (int i = 0; i < 10000; ++i) {
    const std::vector<double> numbers = {-1 - near(random), -1 - near(random), -1 - near(random)};
    EXPECT_LE(logMean(numbers, std::vector{weight(random), weight(random), weight(random)}),
              *std::ranges::max_element(numbers));
  }
}

TEST(Ensemble, SearchesTheAveragedDistribution) {
  const std::vector<double> weights = {1, 2.5, 0.7};
  for (const bool isDouble : {false, true})
    for (const auto &[beam, sample, noRepeatNgram, renormalize] : {std::tuple{1, false, 0, false},
                                                                   {5, false, 0, false},
                                                                   {5, false, 2, false},
                                                                   {5, false, 0, true},
                                                                   {40, false, 0, false},
                                                                   {300, false, 0, false},
                                                                   {4, true, 0, false}}) {
      const SearchOptions options{
          .generation = {.beam = beam, .maxLength = 6, .noRepeatNgram = noRepeatNgram, .renormalize = renormalize},
          .nBest = std::min(beam, 4),
          .sample = sample};
      SCOPED_TRACE(testing::Message() << beam << sample << noRepeatNgram << renormalize << isDouble);
      const std::vector<MemberOf> members = {{1, isDouble}, {2, true}, {3, isDouble}};
      const auto found = searchWith(ensembleOf(members, weights), options);
      expectNear(found, searchWith(std::make_unique<AveragedModel>(members, weights), options), 1e-12);
      ThreadPool pool(3);
      expectNear(searchWith(ensembleOf(members, weights, &pool), options, &pool), found, 0);
    }
}

TEST(Ensemble, MembersMayReadEarlierTokensInOtherWays) {
  for (const bool recurrentFirst : {false, true})
    for (const int beam : {1, 5}) {
      SCOPED_TRACE(testing::Message() << recurrentFirst << beam);
      const SearchOptions options{.generation = {.beam = beam, .maxLength = 6}, .nBest = std::min(beam, 4)};
      std::vector<std::unique_ptr<SearchedModel>> models;
      models.push_back(std::make_unique<RandomModel>(1, false));
      models.push_back(std::make_unique<RecurrentModel>(2, false));
      std::vector<MemberOf> members = {{1}, {2}};
      if (recurrentFirst) {
        std::ranges::reverse(models);
        std::ranges::reverse(members);
      }
      const std::vector<double> weights = {1, 2.5};
      expectNear(searchWith(ensembleModel(std::move(models), weights, nullptr), options),
                 searchWith(std::make_unique<AveragedModel>(members, weights), options), 1e-12);
    }
}

TEST(Ensemble, ModelsThatDoNotFitAreRefused) {
  Module first;
  first.model = "first";
  first.hasDecoder = true;
  first.sourceVocab = first.targetVocab = 9;
  const auto problemOf = [&](const std::function<void(Module &)> &change) {
    Module other = first;
    other.model = "other";
    change(other);
    try {
      requireFits(first, other, "--model run");
      return std::string();
    } catch (const Error &error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(problemOf([](Module &other) {
              other.parameterElements = 5;
              other.type = DType::F64;
              other.compute = "f64";
            }),
            "");
  const std::string expected = "; expected a model with the same vocabularies and special tokens";
  const std::string begin = "--model run: model 'other' ", but = ", but model 'first' ";
  EXPECT_EQ(problemOf([](Module &other) { other.sourceVocab = 8; }),
            begin + "has 8 source tokens" + but + "has 9" + expected);
  EXPECT_EQ(problemOf([](Module &other) { other.targetVocab = 10; }),
            begin + "has 10 target tokens" + but + "has 9" + expected);
  EXPECT_EQ(problemOf([](Module &other) { other.pad = -1; }), begin + "has -1 as pad" + but + "has 0" + expected);
  EXPECT_EQ(problemOf([](Module &other) { other.start = 0; }), begin + "has 0 as start" + but + "has 2" + expected);
  EXPECT_EQ(problemOf([](Module &other) { other.eos = 1; }), begin + "has 1 as eos" + but + "has 3" + expected);
  EXPECT_EQ(problemOf([](Module &other) { other.sourceEos = false; }),
            begin + "reads lines without eos at their end" + but +
                "with it; expected a model with the same source_eos");
  EXPECT_NE(problemOf([](Module &other) { other.hasDecoder = false; }).find("has no decoder"), std::string::npos);

  // The first takes any number of tokens, and then 40.
  EXPECT_NE(problemOf([](Module &other) {
              other.maxLength = 40;
            }).find(begin + "takes sentences of 40 source tokens" + but + "takes any number; expected one that takes"),
            std::string::npos);
  first.maxLength = first.maxTargetLength = 40;
  EXPECT_EQ(problemOf([](Module &) {}), "");
  EXPECT_EQ(problemOf([](Module &other) { other.maxLength = other.maxTargetLength = 41; }), "");
  EXPECT_EQ(problemOf([](Module &other) { other.maxLength = other.maxTargetLength = 0; }), "");
  EXPECT_NE(problemOf([](Module &other) {
              other.maxTargetLength = 39;
            }).find(begin + "takes sentences of 39 target tokens" + but + "takes 40; expected one that takes as many"),
            std::string::npos);
}

TEST(Ensemble, OfOneModelWithItselfIsTheModel) {
  struct Alone : RandomModel {
    using RandomModel::RandomModel;
    size_t groupOf(const SearchOptions &, bool) override { return 0; }
  };
  for (const int beam : {1, 3, 50})
    for (const size_t count : {2, 3, 7}) {
      const SearchOptions options{.generation = {.beam = beam, .maxLength = 6}, .nBest = std::min(beam, 5)};
      std::vector<double> weights;
      for (size_t m = 0; m < count; ++m)
        weights.push_back(0.1 * static_cast<double>(m + 1));
      expectNear(searchWith(ensembleOf(std::vector<MemberOf>(count, {4}), weights), options),
                 searchWith(std::make_unique<Alone>(4, false), options), 0);
    }
}

TEST(Ensemble, BrokenMembersAreAnError) {
  struct Broken : RandomModel {
    using RandomModel::RandomModel;
    StepResult step(size_t group, const StepRequest &request) override {
      const StepResult result = RandomModel::step(group, request);
      std::ranges::fill(narrow, NAN);
      return result;
    }
  };
  std::vector<std::unique_ptr<SearchedModel>> models;
  models.push_back(std::make_unique<RandomModel>(1, false));
  models.push_back(std::make_unique<Broken>(2, false));
  Decoder decoder(ensembleModel(std::move(models), {1, 1}, nullptr), plentyOfRoom());
  decoder.submit({.source = {4}, .prefix = {}, .options = std::make_shared<const SearchOptions>()});
  const auto events = decoder.step();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_NE(events[0].message.find("the model gives no finite log-probability"), std::string::npos)
      << events[0].message;
}
