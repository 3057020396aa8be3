// A small pool: each thread starts with its own share of consecutive chunks, and then helps the others. A kernel's
// chunks are rows in order, so a thread mostly reads what it wrote itself in the previous kernel and still has in its
// own cache. The caller works too and closes the region, so a late worker never blocks it. Idle workers spin briefly,
// then sleep on a futex.
#pragma once

#include <cstdint>
#include <memory>

namespace xfc {

// The calling thread flushes denormals to zero from now on.
void flushDenormals();

class ThreadPool {
public:
  // `threads` >= 1 includes the caller. Every thread flushes denormals to zero. Throws Error if the system refuses to
  // start a thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  int threads() const;
  // Calls body(context, chunk, thread) for each chunk in 0..chunks-1, and returns when all are done. An exception is
  // rethrown here once no thread runs a chunk any more; chunks that were not started by then are skipped.
  void run(void (*body)(void *context, int64_t chunk, int thread), void *context, int64_t chunks);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace xfc
