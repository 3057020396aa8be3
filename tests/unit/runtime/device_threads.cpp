// Tests the thread pool: every chunk runs once, for any number of threads and regions.
#include "device/ThreadPool.h"
#include <atomic>
#include <gtest/gtest.h>
#include <new>
#include <thread>
#include <vector>
#include <xmmintrin.h>

using namespace xfc;

namespace {

struct Counted {
  std::vector<std::atomic<int>> runs;
  std::atomic<int> outside{0};
  int threads;
};

void count(void *context, int64_t chunk, int thread) {
  auto *counted = static_cast<Counted *>(context);
  ++counted->runs[chunk];
  counted->outside += thread < 0 || thread >= counted->threads;
}

} // namespace

TEST(ThreadPool, EveryChunkOnce) {
  for (int threads : {1, 2, 3, 16}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t chunks : {0, 1, 2, 7, 1000}) {
      Counted counted{std::vector<std::atomic<int>>(chunks), {}, threads};
      for (int region = 1; region <= 200; ++region) {
        pool.run(count, &counted, chunks);
        for (int64_t chunk = 0; chunk < chunks; ++chunk)
          ASSERT_EQ(counted.runs[chunk], region);
      }
      EXPECT_EQ(counted.outside, 0);
    }
  }
}

TEST(ThreadPool, WorkersThatFellAsleepWake) {
  ThreadPool pool(3);
  for (int region = 0; region < 5; ++region) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    Counted counted{std::vector<std::atomic<int>>(50), {}, 3};
    pool.run(count, &counted, 50);
    for (auto &runs : counted.runs)
      EXPECT_EQ(runs, 1);
  }
}

// What a thread writes in a region is visible to the caller and in the next region.
TEST(ThreadPool, RegionsAreOrdered) {
  ThreadPool pool(4);
  struct Steps {
    std::vector<int64_t> values = std::vector<int64_t>(256);
    int step = 0;
  } steps;
  for (steps.step = 0; steps.step < 5000; ++steps.step)
    pool.run(
        [](void *context, int64_t chunk, int) {
          auto *steps = static_cast<Steps *>(context);
          int64_t from = (chunk * 17 + steps->step) % 256; // written by another thread in the previous step
          if (steps->values[from] != steps->step)
            steps->values[from] = -1000000;
          ++steps->values[from];
        },
        &steps, 256);
  for (int64_t value : steps.values)
    ASSERT_EQ(value, 5000);
}

TEST(ThreadPool, ManyPoolsComeAndGo) {
  for (int i = 0; i < 100; ++i) {
    ThreadPool pool(1 + i % 5);
    Counted counted{std::vector<std::atomic<int>>(3), {}, 5};
    if (i % 2)
      pool.run(count, &counted, 3);
    EXPECT_EQ(counted.runs[2], i % 2);
  }
}

TEST(ThreadPool, EveryThreadFlushesDenormals) {
  ThreadPool pool(4);
  std::atomic<int> wrong{0};
  for (int region = 0; region < 50; ++region)
    pool.run([](void *context, int64_t,
                int) { *static_cast<std::atomic<int> *>(context) += (_mm_getcsr() & 0x8040) != 0x8040; },
             &wrong, 64);
  EXPECT_EQ(wrong, 0);
}

// run() rethrows an exception of any thread once no other thread is working, and the pool remains usable.
TEST(ThreadPool, ExceptionsComeOut) {
  for (int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int64_t bad : {0, 1, 99}) {
      struct Region {
        std::atomic<int> inside{0};
        int64_t bad;
      } region{{}, bad};
      auto body = [](void *context, int64_t chunk, int) {
        auto *region = static_cast<Region *>(context);
        ++region->inside;
        if (chunk == region->bad) {
          --region->inside;
          throw std::bad_alloc();
        }
        --region->inside;
      };
      EXPECT_THROW(pool.run(body, &region, 100), std::bad_alloc) << threads << " threads, chunk " << bad;
      EXPECT_EQ(region.inside, 0);
      Counted counted{std::vector<std::atomic<int>>(100), {}, threads};
      pool.run(count, &counted, 100);
      for (int64_t chunk = 0; chunk < 100; ++chunk)
        EXPECT_EQ(counted.runs[chunk], 1);
    }
  }
}
