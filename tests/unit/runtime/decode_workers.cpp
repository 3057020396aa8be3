// Tests what several decoders that share a queue promise: each request is answered once, as if it were alone, whichever
// of them takes it and whoever is cancelled meanwhile; and all of them work at the same time.
#include "decode/Workers.h"
#include "room.h"
#include <atomic>
#include <chrono>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <random>

using namespace xfc;

namespace {

using Ids = std::vector<int32_t>;

// Log-probabilities that are a fixed function of the sentence's source, the position, and the token before.
struct HashedModel : SearchedModel {
  explicit HashedModel(std::function<void()> stepping = {}) : stepping(std::move(stepping)) {}
  SearchVocabulary vocabulary() const override { return {12, 0, 2, 3}; }
  size_t groupOf(const SearchOptions &options, bool constrained) override {
    return options.generation.beam + 10 * static_cast<size_t>(constrained);
  }
  void join(size_t, std::span<const JoiningSentence> joining) override {
    for (const auto &[place, source] : joining)
      EXPECT_TRUE(running.emplace(place, source.front()).second) << "the place is taken";
  }
  void leave(size_t place) override { EXPECT_EQ(running.erase(place), 1u); }
  StepResult step(size_t, const StepRequest &request) override {
    if (stepping)
      stepping();
    numbers.clear();
    for (size_t row = 0; row < request.ids.size(); ++row) {
      std::mt19937 random(running.at(request.placeOf[row]) * 10007 + request.positions[row] * 101 + request.ids[row]);
      for (int32_t token = 0; token < vocabulary().size; ++token)
        numbers.push_back(-0.5F - static_cast<float>(random() % 4096) / 512);
    }
    return {.all = {numbers.data(), false, vocabulary().size}};
  }
  std::function<void()> stepping;
  std::map<size_t, int32_t> running; // by place
  std::vector<float> numbers;
};

std::vector<std::unique_ptr<Decoder>> decoders(size_t count, const std::function<void()> &stepping = {}) {
  std::vector<std::unique_ptr<Decoder>> made;
  for (size_t i = 0; i < count; ++i)
    made.push_back(std::make_unique<Decoder>(std::make_unique<HashedModel>(stepping), roomOf(5, 4096)));
  return made;
}

DecoderRequest requestFor(size_t number, bool watched) {
  static const std::vector<std::shared_ptr<const SearchOptions>> kinds = [] {
    std::vector<std::shared_ptr<const SearchOptions>> all;
    for (const SearchOptions &options :
         {SearchOptions{.generation = {.beam = 1, .maxLength = 9}},
          {.generation = {.beam = 3, .maxLength = 7, .minLength = 2}, .nBest = 2},
          {.generation = {.maxLength = 8, .topP = 0.9}, .nBest = 2, .sample = true, .seed = 5}})
      all.push_back(std::make_shared<const SearchOptions>(options));
    return all;
  }();
  return {.source = {static_cast<int32_t>(number % 37)},
          .prefix = {},
          .options = kinds[number % kinds.size()],
          .number = number,
          .watched = watched};
}

std::vector<Hypothesis> alone(size_t number) {
  Workers worker(decoders(1));
  worker.submit(requestFor(number, false));
  for (;;)
    for (DecoderEvent &event : worker.step())
      return std::move(event.found);
}

} // namespace

TEST(Workers, AnswersDoNotDependOnWhoGivesThem) {
  std::vector<std::vector<Hypothesis>> expected;
  for (size_t number = 0; number < 111; ++number)
    expected.push_back(alone(number));
  for (const size_t count : {1, 2, 5}) {
    std::mt19937 random(count);
    std::atomic<size_t> told = 0;
    Workers workers(decoders(count), [&] { ++told; });
    std::map<RequestId, size_t> open;
    std::map<RequestId, Ids> settled;
    size_t left = 600, finished = 0, cancelled = 0, grown = 0, most = 0;
    int64_t steps = 0, hypotheses = 0;
    while (left > 0 || !workers.idle()) {
      for (size_t arriving = random() % 6; left > 0 && arriving > 0; --arriving, --left) {
        const size_t number = random() % expected.size();
        open[workers.submit(requestFor(number, random() % 3 == 0))] = number;
      }
      if (!open.empty() && random() % 8 == 0) {
        const auto victim = std::next(open.begin(), static_cast<std::ptrdiff_t>(random() % open.size()));
        workers.cancel(victim->first);
        workers.cancel(victim->first);
        open.erase(victim);
        ++cancelled;
      }
      EXPECT_EQ(workers.idle(), open.empty());
      if (workers.idle())
        continue;
      most = std::max(most, workers.running());
      for (const DecoderEvent &event : workers.step()) {
        ASSERT_TRUE(open.contains(event.id)) << "cancelled, or answered twice";
        if (event.kind == DecoderEvent::Kind::Grown) {
          Ids &before = settled[event.id];
          EXPECT_TRUE(std::ranges::equal(before, std::span(event.settled).first(before.size())));
          before = event.settled;
          ++grown;
          continue;
        }
        ASSERT_EQ(event.kind, DecoderEvent::Kind::Finished);
        const std::vector<Hypothesis> &want = expected[open.at(event.id)];
        ASSERT_EQ(event.found.size(), want.size());
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_EQ(event.found[i].ids, want[i].ids);
          EXPECT_EQ(event.found[i].score, want[i].score);
        }
        EXPECT_TRUE(std::ranges::equal(settled[event.id], std::span(want.front().ids).first(settled[event.id].size())));
        open.erase(event.id);
        ++finished;
      }
      const auto [more, their] = workers.takeSteps();
      steps += more;
      hypotheses += their;
    }
    EXPECT_EQ(finished + cancelled, 600u);
    EXPECT_GT(cancelled, 20u);
    EXPECT_GT(grown, 100u);
    EXPECT_GT(most, 3u);
    EXPECT_GT(hypotheses, steps);
    EXPECT_EQ(told > 0, count > 1);
  }
}

// Of as many requests as there are decoders, each takes one: the first step of each waits for those of the others.
TEST(Workers, AllWorkAtTheSameTime) {
  constexpr size_t count = 4;
  std::atomic<size_t> stepping = 0;
  std::atomic<bool> late = false;
  Workers workers(decoders(count, [&] {
    ++stepping;
    for (const auto begin = std::chrono::steady_clock::now(); stepping < count && !late; std::this_thread::yield())
      late = std::chrono::steady_clock::now() - begin > std::chrono::seconds(10);
  }));
  for (size_t number = 0; number < count; ++number)
    workers.submit(requestFor(0, false));
  for (size_t finished = 0; finished < count;)
    finished += workers.step().size();
  EXPECT_FALSE(late);
}

// An error of a device reaches the caller, whichever decoder it stops.
TEST(Workers, FailuresReachTheCaller) {
  for (const bool own : {true, false}) {
    std::atomic<bool> failed = false;
    const std::thread::id caller = std::this_thread::get_id();
    Workers workers(decoders(2, [&] {
      if ((std::this_thread::get_id() == caller) == own) {
        failed = true;
        throw Error("the device is gone");
      }
      for (const auto begin = std::chrono::steady_clock::now();
           !failed && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10);)
        std::this_thread::yield();
    }));
    for (size_t number = 0; number < 20; ++number)
      workers.submit(requestFor(number, false));
    const auto runAll = [&] {
      while (!workers.idle())
        workers.step();
    };
    EXPECT_THROW(runAll(), Error);
  }
}
