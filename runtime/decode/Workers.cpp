// Several decoders of the same models that answer the requests of one queue at the same time.
#include "decode/Workers.h"
#include "device/ThreadPool.h"
#include "support/Signals.h"
#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

namespace xfc {

Workers::Workers(std::vector<std::unique_ptr<Decoder>> given, std::function<void()> told)
    : decoders(std::move(given)), told(std::move(told)), cancelled(decoders.size()) {
  for (size_t worker = 1; worker < decoders.size(); ++worker)
    decoders[worker]->shareQueueOf(*decoders.front());
  const SignalsBlocked blocked;
  try {
    for (size_t worker = 1; worker < decoders.size(); ++worker)
      threads.emplace_back([this, worker] { work(worker); });
  } catch (const std::system_error &refused) {
    end();
    throw Error("the thread of worker " + std::to_string(threads.size() + 2) + " of " +
                std::to_string(decoders.size()) + " cannot be started: " + refused.code().message() +
                "; use fewer (--workers)");
  }
}

Workers::~Workers() { end(); }

void Workers::end() {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    ending = true;
  }
  asked.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

void Workers::prepare(const SearchOptions &options) {
  for (const std::unique_ptr<Decoder> &decoder : decoders)
    decoder->prepare(options);
}

RequestId Workers::submit(DecoderRequest request) {
  const RequestId id = decoders.front()->submit(std::move(request));
  open.insert(id);
  return id;
}

void Workers::cancel(RequestId id) {
  if (open.erase(id) == 0)
    return;
  decoders.front()->cancel(id);
  if (threads.empty())
    return;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    for (size_t worker = 1; worker < decoders.size(); ++worker)
      cancelled[worker].push_back(id);
  }
  asked.notify_all();
}

bool Workers::ready() const {
  const std::lock_guard<std::mutex> lock(mutex);
  return failure || !happened.empty() || !decoders.front()->idle();
}

std::span<DecoderEvent> Workers::step() {
  events.clear();
  if (!threads.empty() && waitingCount() > 0)
    wake();
  if (!decoders.front()->idle())
    stepOf(*decoders.front());
  {
    std::unique_lock<std::mutex> lock(mutex);
    answered.wait(lock, [&] { return failure || !happened.empty() || open.empty() || !decoders.front()->idle(); });
    if (failure)
      std::rethrow_exception(failure);
    events.swap(happened);
  }
  std::erase_if(events, [&](const DecoderEvent &event) {
    return event.kind == DecoderEvent::Kind::Grown ? !open.contains(event.id) : open.erase(event.id) == 0;
  });
  return events;
}

// Those that sleep are not woken by each request, so that requests that come together are dealt as a whole.
void Workers::wake() {
  const std::lock_guard<std::mutex> lock(mutex); // a worker that has just found nothing to do is asleep by now
  asked.notify_all();
}

Workers::Steps Workers::takeSteps() {
  const std::lock_guard<std::mutex> lock(mutex);
  return std::exchange(steps, {});
}

bool Workers::stepOf(Decoder &decoder) {
  const std::span<DecoderEvent> its = decoder.step();
  const std::lock_guard<std::mutex> lock(mutex);
  happened.insert(happened.end(), std::make_move_iterator(its.begin()), std::make_move_iterator(its.end()));
  steps.count += decoder.stepRows() > 0;
  steps.hypotheses += decoder.stepRows();
  return !its.empty();
}

void Workers::work(size_t worker) {
  flushDenormals();
  Decoder &decoder = *decoders[worker];
  std::vector<RequestId> leaving;
  for (bool failed = false; !failed;) {
    {
      std::unique_lock<std::mutex> lock(mutex);
      asked.wait(lock, [&] { return ending || !cancelled[worker].empty() || !decoder.idle(); });
      if (ending)
        return;
      leaving.swap(cancelled[worker]);
    }
    for (const RequestId id : leaving)
      decoder.cancel(id);
    leaving.clear();
    try {
      if (!stepOf(decoder))
        continue;
    } catch (...) { // the device's: no other step can be taken
      failed = true;
      const std::lock_guard<std::mutex> lock(mutex);
      failure = std::current_exception();
    }
    answered.notify_one();
    if (told)
      told();
  }
}

} // namespace xfc
