// Events of a GPU, and how the host waits for them.
#pragma once

#include "device/cuda/Driver.h"

namespace xfc::cuda {

class OwnedEvent {
public:
  explicit OwnedEvent(const Driver &driver, unsigned flags = flag::eventDisableTiming) : driver(driver) {
    driver.createEvent(&event, flags);
  }
  OwnedEvent(const OwnedEvent &) = delete;
  ~OwnedEvent() { driver.destroyEvent.result(event); }
  operator Event() const { return event; }

private:
  const Driver &driver;
  Event event = nullptr;
};

// Between two events that were created with timing, and have been reached.
double secondsBetween(const Driver &driver, Event begin, Event end);

class CudaPeers;

// How the host waits for the GPU. While the GPU exchanges memory with those of other processes, work that it waits for
// may never complete, which the driver does not notice.
class HostWait {
public:
  explicit HostWait(const Driver &driver) : driver(driver) {}
  void forEvent(Event event) const;
  void forStream(Stream stream) const;
  CudaPeers *peers = nullptr;

private:
  const Driver &driver;
};

} // namespace xfc::cuda
