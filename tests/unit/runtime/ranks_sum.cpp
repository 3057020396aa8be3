// Tests the communication of ranks and the sum of their gradients, with threads as ranks.
#include "plan/Programs.h"
#include "ranks/Ranks.h"
#include "train/GradientSum.h"
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <thread>

using namespace xfc;

namespace {

// Messages between threads: a receiver copies them from the sender's memory, as late as it can, as MPI may do.
struct Message {
  const void *data;
  int64_t bytes;
  bool taken = false;
};
struct Post {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> queues; // of (from, to)
};

class ThreadRank : public Ranks {
public:
  ThreadRank(Post &messages, int rank, int size) : Ranks(rank, size), messages(messages) { tellNames(); }
  int post(std::span<const Part> sends, std::span<const Part> receives) override {
    std::unique_lock lock(messages.mutex);
    Exchange &exchange = exchanges.emplace_back();
    for (const Part &part : sends) {
      exchange.sent.push_back(std::make_shared<Message>(part.data, part.bytes));
      messages.queues[{rank(), part.rank}].push_back(exchange.sent.back());
    }
    exchange.expected.assign(receives.begin(), receives.end());
    sending += !sends.empty();
    messages.changed.notify_all();
    return static_cast<int>(exchanges.size()) - 1;
  }
  bool test(int exchange) override {
    std::unique_lock lock(messages.mutex);
    return isDone(exchange);
  }
  void complete(int exchange) override {
    std::unique_lock lock(messages.mutex);
    messages.changed.wait(lock, [&] { return isDone(exchange); });
  }
  [[noreturn]] void abort() override { std::_Exit(1); }

  int sending = 0; // exchanges that have sent something

private:
  struct Exchange {
    std::deque<Part> expected;
    std::vector<std::shared_ptr<Message>> sent;
  };
  // Messages of a rank arrive in the order in which they are expected, whichever exchange is asked about.
  bool isDone(int number) {
    std::set<int> missing; // ranks whose next message has not arrived
    for (Exchange &exchange : exchanges)
      std::erase_if(exchange.expected, [&](const Part &part) {
        std::deque<std::shared_ptr<Message>> &queue = messages.queues[{part.rank, rank()}];
        if (queue.empty())
          missing.insert(part.rank);
        if (missing.contains(part.rank))
          return false;
        EXPECT_EQ(queue.front()->bytes, part.bytes);
        std::memcpy(part.data, queue.front()->data, part.bytes);
        queue.front()->taken = true;
        queue.pop_front();
        messages.changed.notify_all();
        return true;
      });
    return exchanges[number].expected.empty() && std::ranges::all_of(exchanges[number].sent, &Message::taken);
  }
  Post &messages;
  std::vector<Exchange> exchanges; // by number
};

void runRanks(int size, const std::function<void(Ranks &)> &body) {
  Post post;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      ThreadRank ranks(post, rank, size);
      body(ranks);
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const auto &[between, queue] : post.queues)
    EXPECT_TRUE(queue.empty()) << between.first << " sent " << between.second << " what nobody took";
}

} // namespace

TEST(Ranks, ToldByAllToAll) {
  for (int size = 1; size <= 9; ++size)
    runRanks(size, [&](Ranks &ranks) {
      const std::vector<std::string> all =
          ranks.gather(std::string(ranks.rank() * 3, static_cast<char>('a' + ranks.rank())));
      for (int rank = 0; rank < size; ++rank)
        EXPECT_EQ(all[rank], std::string(rank * 3, static_cast<char>('a' + rank)));
      EXPECT_EQ(ranks.broadcast(ranks.isFirst() ? "the first one's" : "another"), "the first one's");
      EXPECT_EQ(ranks.largest(ranks.rank() == size / 2 ? 7 : -ranks.rank()), 7);
      EXPECT_EQ(ranks.sharers(), size);
      for (int rank = 0; rank < size; ++rank)
        EXPECT_EQ(ranks.nameOf(rank).find("rank " + std::to_string(rank) + " (process "), 0u);
      for (size_t total = 0; total < 12; ++total) {
        std::vector<double> mine;
        for (size_t i = ranks.rank(); i < total; i += size)
          mine.insert(mine.end(), {double(i), -double(i)});
        const std::vector<double> numbers = ranks.gatherInTurn(mine, 2, total);
        ASSERT_EQ(numbers.size(), 2 * total);
        for (size_t i = 0; i < total; ++i)
          EXPECT_TRUE(numbers[2 * i] == double(i) && numbers[2 * i + 1] == -double(i));
      }
    });
}

TEST(Ranks, FailTogether) {
  runRanks(3, [&](Ranks &ranks) {
    EXPECT_NO_THROW(ranks.together([] {}));
    try {
      ranks.together([&] {
        if (ranks.rank() == 1)
          throw Error("no such file");
      });
      ADD_FAILURE();
    } catch (const CommonError &error) {
      EXPECT_EQ(std::string(error.what()), ranks.nameOf(1) + ": no such file");
    }
    try {
      ranks.together([] { throw Error("no such flag"); });
      ADD_FAILURE();
    } catch (const CommonError &error) {
      EXPECT_EQ(std::string(error.what()), "no such flag");
    }
  });
}

// A module whose program loss_and_gradients computes gradients in five steps, as a backward pass does: the last
// parameters first, but the very first of all together with the ones in the middle, at the end.
static Module moduleOf(int64_t elements, DType type) {
  Module module;
  module.parameterElements = elements;
  module.type = type;
  Program program;
  program.name = programs::lossAndGradients;
  program.steps.resize(8); // the first three are the forward pass
  const int64_t fifth = (elements + 4) / 5;
  const std::vector<std::vector<int64_t>> touched = {{4}, {3}, {1}, {2}, {0, 2}};
  for (size_t i = 0; i < touched.size(); ++i)
    for (int64_t place : touched[i])
      if (place * fifth < elements)
        program.steps[3 + i].buffers.push_back({Place::Kind::Gradients, 0, place * fifth * bytesOf(type)});
  module.programs.push_back(program);
  return module;
}

static int64_t sizeOf(const Sharding::Bucket &bucket) {
  return std::accumulate(bucket.shares.begin(), bucket.shares.end(), int64_t(0),
                         [](int64_t sum, const std::vector<Range> &share) { return sum + sizeOf(share); });
}

// What the steps of that program write: every gradient that a step touches, the last time with the values of the batch.
template <typename T>
static void runStep(const Module &module, int64_t step, const std::vector<T> &batch, std::vector<T> &block) {
  const int64_t fifth = (module.parameterElements + 4) / 5;
  for (const Place &place : module.programs[0].steps[step].buffers) {
    const int64_t begin = place.offset / bytesOf(module.type), end = std::min(begin + fifth, module.parameterElements);
    const bool last = step == 7 || begin != 2 * fifth;
    for (int64_t i = begin; i < end; ++i)
      block[i] = last ? batch[i] : T(77);
  }
}

// The sum has the bits of a single process that adds one batch after the other, also for element counts that do not
// divide evenly and for steps that end in the middle of a round. The numbers have very different magnitudes, so that
// another order would give other bits.
template <typename T> static void checkSums(DType type) {
  for (int size : {2, 3, 4, 5})
    for (int64_t elements : {1, 15, 33, 40007, 200001})
      for (int batches : {1, 2, 3, 7}) {
        std::mt19937 random(size + 10 * batches);
        std::vector<std::vector<T>> gradients(batches, std::vector<T>(elements));
        for (std::vector<T> &gradient : gradients)
          for (T &value : gradient)
            value = std::ldexp(T(random()) - T(2147483648.0), static_cast<int>(random() % 40) - 60);
        std::vector<T> expected = gradients[0];
        for (int batch = 1; batch < batches; ++batch)
          for (int64_t i = 0; i < elements; ++i)
            expected[i] = gradients[batch][i] + expected[i];
        const Module module = moduleOf(elements, type);
        const Sharding sharding(module, size);
        runRanks(size, [&](Ranks &ranks) {
          ThreadPool pool(1 + ranks.rank() % 2);
          GradientSum sum(ranks, pool, module, sharding);
          for (int step = 0; step < 2; ++step) {
            std::vector<T> block(elements);
            ProgramRun run;
            run.arena = reinterpret_cast<char *>(block.data());
            for (int round = 0; round * size < batches; ++round) {
              std::ranges::fill(block, T(99)); // the forward pass writes to the same memory
              sum.begin(std::min(size, batches - round * size), round == 0);
              if (const int batch = round * size + ranks.rank(); batch < batches) {
                int &sending = dynamic_cast<ThreadRank &>(ranks).sending;
                const int before = sending;
                for (int64_t of = 0; of < 8; ++of) {
                  sum.before(run, of);
                  runStep(module, of, gradients[batch], block);
                }
                // What others own, and is complete before the last step, is sent by then.
                int early = 0;
                for (const Sharding::Bucket &bucket : sharding.buckets())
                  early += bucket.step < 8 && sizeOf(bucket.shares[ranks.rank()]) < sizeOf(bucket);
                EXPECT_EQ(sending, before + early);
              }
              sum.end(block.data());
            }
            sum.finish(block.data());
            for (const Range &range : sharding.rangesOf(ranks.rank()))
              EXPECT_EQ(std::memcmp(&block[range.begin], &expected[range.begin], range.size() * sizeof(T)), 0)
                  << size << " ranks, " << elements << " elements, " << batches << " batches";
            sum.gather(block.data());
            EXPECT_EQ(std::memcmp(block.data(), expected.data(), elements * sizeof(T)), 0)
                << size << " ranks, " << elements << " elements, " << batches << " batches";
          }
        });
      }
}

// Every element has one owner, shares are equal up to a part per bucket, and a bucket is complete once the last step
// has run that touches any of its gradients.
TEST(Sharding, BucketsAreDealtToRanks) {
  for (int64_t elements : {5, 40007, 3000000})
    for (int ranks : {1, 2, 3, 8}) {
      const Module module = moduleOf(elements, DType::F32);
      const Sharding sharding(module, ranks, 131072);
      std::vector<int> owners(elements);
      for (int rank = 0; rank < ranks; ++rank) {
        for (const Range &range : sharding.rangesOf(rank)) {
          EXPECT_EQ(range.begin % squarePart, 0);
          for (int64_t i = range.begin; i < range.end; ++i)
            ++owners[i];
        }
        EXPECT_LE(sizeOf(sharding.rangesOf(rank)), sharding.largestShare());
      }
      EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), elements);
      EXPECT_LE(sharding.largestShare(),
                elements / ranks + squarePart * (1 + static_cast<int64_t>(sharding.buckets().size()) / ranks));
      const int64_t fifth = (elements + 4) / 5;
      const int64_t complete[] = {8, 6, 8, 5, 4}; // of each fifth: one past the last step that touches it
      int64_t before = 0;
      for (const Sharding::Bucket &bucket : sharding.buckets()) {
        EXPECT_GE(bucket.step, before);
        before = bucket.step;
        int64_t size = 0;
        for (const std::vector<Range> &share : bucket.shares)
          for (const Range &range : share) {
            size += range.size();
            for (int64_t at = range.begin / fifth; at * fifth < range.end; ++at)
              EXPECT_LE(complete[at], bucket.step);
          }
        EXPECT_LE(size, 131072);
      }
    }
}

TEST(GradientSum, IsThatOfOneProcess) {
  checkSums<float>(DType::F32);
  checkSums<double>(DType::F64);
}
