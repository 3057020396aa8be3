// Several decoders of the same models that answer the requests of one queue at the same time (--workers). Each has
// engines, memory and threads of its own, and waits for none of the others: where the products of a step are too small
// for many threads, several steps at a time are faster. A request is taken by whichever decoder has the least to do,
// and its answer does not depend on which (decode/Decoder.h).
//
// The first decoder steps on the caller's thread, so that the caller may use its engines between steps; every other has
// a thread of its own.
#pragma once

#include "decode/Decoder.h"
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <vector>

namespace xfc {

// To be used from one thread, the caller's.
class Workers {
public:
  // `told` is called from the threads of the others whenever there is something for step() to return.
  explicit Workers(std::vector<std::unique_ptr<Decoder>> decoders, std::function<void()> told = {});
  ~Workers();
  Workers(const Workers &) = delete;

  // As of a decoder. prepare() comes before the first request.
  void prepare(const SearchOptions &options);
  RequestId submit(DecoderRequest request);
  void cancel(RequestId id);
  bool hasRoomFor(const SearchOptions &options, int64_t sourceLength, std::span<const int32_t> prefix) const {
    return decoders.front()->hasRoomFor(options, sourceLength, prefix);
  }
  bool idle() const { return open.empty(); }
  size_t waitingCount() const { return decoders.front()->waitingCount(); }
  size_t running() const { return open.size() - waitingCount(); }
  // What happened, after a step of the first decoder or, if it has nothing to do, as soon as another tells something.
  // The events of a request come in their order.
  std::span<DecoderEvent> step();
  // Whether step() has something to do, so that it does not wait for the others.
  bool ready() const;

  // The steps of all decoders, and the hypotheses that these have extended, since they were asked for last.
  struct Steps {
    int64_t count = 0, hypotheses = 0;
  };
  Steps takeSteps();

  // With a single decoder: as of that.
  std::vector<Hypothesis> hypotheses(RequestId id) const { return decoders.front()->hypotheses(id); }

private:
  void work(size_t worker);
  bool stepOf(Decoder &decoder); // whether anything happened
  void wake();
  void end();

  std::vector<std::unique_ptr<Decoder>> decoders;
  const std::function<void()> told;
  std::set<RequestId> open; // not answered, and not cancelled
  std::vector<DecoderEvent> events;

  mutable std::mutex mutex;                      // of what follows
  std::condition_variable asked, answered;       // for the others; for the caller
  std::vector<DecoderEvent> happened;            // and not returned yet
  std::vector<std::vector<RequestId>> cancelled; // for each decoder but the first
  std::exception_ptr failure;
  Steps steps;
  bool ending = false;
  std::vector<std::thread> threads;
};

} // namespace xfc
