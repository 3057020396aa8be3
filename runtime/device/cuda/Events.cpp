// Events of a GPU, and how the host waits for them.
#include "device/cuda/Events.h"
#include "device/cuda/Peers.h"
#include <chrono>
#include <thread>

namespace xfc::cuda {

double secondsBetween(const Driver &driver, Event begin, Event end) {
  float milliseconds = 0;
  driver.elapsedTime(&milliseconds, begin, end);
  return milliseconds * 1e-3;
}

void HostWait::forEvent(Event event) const {
  using namespace std::chrono_literals;
  if (!peers)
    return driver.synchronizeEvent(event);
  for (int64_t tries = 0;; ++tries) {
    if (const Result found = driver.queryEvent.result(event); found == 0)
      return;
    else if (found != error::notReady)
      driver.queryEvent(event); // throws, with the reason
    peers->check();
    if (tries >= 200)
      std::this_thread::sleep_for(50us);
  }
}

void HostWait::forStream(Stream stream) const {
  if (!peers)
    return driver.synchronizeStream(stream);
  const OwnedEvent reached(driver);
  driver.recordEvent(reached, stream);
  forEvent(reached);
}

} // namespace xfc::cuda
