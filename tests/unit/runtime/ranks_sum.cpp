// Tests the communication of ranks and the sum of their gradients, with threads as ranks.
#include "ranks/Ranks.h"
#include "train/GradientSum.h"
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <random>
#include <thread>

using namespace xfc;

namespace {

// Message queues between threads, one for each pair.
struct Post {
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<std::pair<int, int>, std::deque<std::string>> queues; // of (from, to)
};

class ThreadRank : public Ranks {
public:
  ThreadRank(Post &post, int rank, int size) : Ranks(rank, size), post(post) { tellNames(); }
  void swap(std::span<const Part> sends, std::span<const Part> receives) override {
    std::unique_lock lock(post.mutex);
    for (const Part &part : sends)
      post.queues[{rank(), part.rank}].emplace_back(static_cast<const char *>(part.data), part.bytes);
    post.arrived.notify_all();
    for (const Part &part : receives) {
      std::deque<std::string> &queue = post.queues[{part.rank, rank()}];
      post.arrived.wait(lock, [&] { return !queue.empty(); });
      ASSERT_EQ(static_cast<int64_t>(queue.front().size()), part.bytes);
      std::memcpy(part.data, queue.front().data(), part.bytes);
      queue.pop_front();
    }
  }
  [[noreturn]] void abort() override { std::_Exit(1); }

private:
  Post &post;
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

// The sum has the bits of a single process that adds one batch after the other, also for element counts that do not
// divide evenly and for steps that end in the middle of a round. The numbers have very different magnitudes, so that
// another order would give other bits.
template <typename T> static void checkSums(DType type) {
  for (int size : {2, 3, 4, 5})
    for (int64_t elements : {1, 15, 33, 1000, 40007})
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
        Module module;
        module.parameterElements = elements;
        module.type = type;
        runRanks(size, [&](Ranks &ranks) {
          ThreadPool pool(1 + ranks.rank() % 2);
          GradientSum sum(ranks, pool, module);
          for (int step = 0; step < 2; ++step) {
            std::vector<T> block(elements, T(99)); // left over from an earlier step
            for (int round = 0; round * size < batches; ++round) {
              if (const int batch = round * size + ranks.rank(); batch < batches)
                block = gradients[batch];
              sum.add(block.data(), std::min(size, batches - round * size), round == 0);
            }
            sum.finish(block.data());
            EXPECT_EQ(std::memcmp(block.data(), expected.data(), elements * sizeof(T)), 0)
                << size << " ranks, " << elements << " elements, " << batches << " batches";
          }
        });
      }
}

TEST(GradientSum, IsThatOfOneProcess) {
  checkSums<float>(DType::F32);
  checkSums<double>(DType::F64);
}
