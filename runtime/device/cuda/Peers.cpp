// The GPUs of several processes, which exchange memory by NCCL.
#include "device/cuda/Peers.h"
#include <chrono>
#include <exception>
#include <thread>

namespace xfc::cuda {

CudaPeers::CudaPeers(const Driver &driver, const Nccl &nccl, Stream computes, const GroupId &group, int rank, int size,
                     HostWait &host, Trace *const &trace)
    : host(host), trace(trace), driver(driver), nccl(nccl), computes(computes) {
  nccl.joinRank(&communicator, size, group, rank);
  driver.createStream(&exchanges, flag::streamNonBlocking);
  for (Event *event : {&given, &exchanged})
    driver.createEvent(event, flag::eventDisableTiming);
  host.peers = this;
}

CudaPeers::~CudaPeers() {
  using namespace std::chrono_literals;
  host.peers = nullptr;
  Result found = driver.recordEvent.result(exchanged, exchanges);
  if (found == 0 && std::uncaught_exceptions() == 0)
    while ((found = driver.queryEvent.result(exchanged)) == error::notReady && failure() == 0)
      std::this_thread::sleep_for(50us);
  if (found != 0 || std::uncaught_exceptions() > 0)
    abandon();
  driver.synchronizeStream.result(exchanges);
  if (communicator)
    nccl.destroy.result(communicator);
  for (Event event : {given, exchanged})
    driver.destroyEvent.result(event);
  driver.destroyStream.result(exchanges);
}

void CudaPeers::start(std::span<const Part> sends, std::span<const Part> receives) {
  if (trace)
    timeNext();
  driver.recordEvent(given, computes);
  driver.waitForEvent(exchanges, given, 0);
  if (trace)
    driver.recordEvent(timed.back()->begin, exchanges);
  nccl.beginGroup();
  for (const Part &part : sends)
    if (part.bytes > 0)
      nccl.send(part.data, static_cast<size_t>(part.bytes), Nccl::bytes, part.rank, communicator, exchanges);
  for (const Part &part : receives)
    if (part.bytes > 0)
      nccl.receive(part.data, static_cast<size_t>(part.bytes), Nccl::bytes, part.rank, communicator, exchanges);
  nccl.endGroup();
  if (!trace)
    return;
  for (const auto &parts : {sends, receives})
    for (const Part &part : parts)
      timed.back()->bytes += static_cast<double>(part.bytes);
  driver.recordEvent(timed.back()->end, exchanges);
}

// An event that the host knows to be reached ties the GPU's clock to the host's.
void CudaPeers::timeNext() {
  if (timed.empty()) {
    anchor = std::make_unique<OwnedEvent>(driver, 0);
    driver.recordEvent(*anchor, exchanges);
    host.forEvent(*anchor);
    anchored = trace->now();
  }
  timed.push_back(std::make_unique<Timed>(driver));
}

void CudaPeers::addTimed() {
  const auto at = [&](Event event) {
    return anchored + static_cast<int64_t>(secondsBetween(driver, *anchor, event) * 1e9);
  };
  for (const auto &each : timed)
    trace->add(
        trace->ranks(),
        {.kind = "exchange", .name = "exchange", .bytes = each->bytes, .begin = at(each->begin), .end = at(each->end)});
  timed.clear();
}

void CudaPeers::wait() {
  driver.recordEvent(exchanged, exchanges);
  driver.waitForEvent(computes, exchanged, 0);
  if (trace && !timed.empty()) {
    host.forEvent(exchanged);
    addTimed();
  }
}

Nccl::Result CudaPeers::failure() const {
  Nccl::Result found = 0;
  if (communicator)
    nccl.getAsyncError.result(communicator, &found);
  return found == Nccl::inProgress ? 0 : found;
}

void CudaPeers::check() {
  const Nccl::Result found = failure();
  if (found == 0)
    return;
  abandon();
  throw Error("an exchange with the GPUs of the other processes failed (NCCL: " + nccl.describe(found) +
              "): one of them has probably ended, or its connection was lost; what was saved before is intact: start "
              "again with --resume");
}

void CudaPeers::abandon() {
  if (communicator)
    nccl.abort.result(communicator);
  communicator = nullptr;
}

} // namespace xfc::cuda
