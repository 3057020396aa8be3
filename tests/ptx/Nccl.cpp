// A libnccl.so.2 for machines without a GPU: the functions of NCCL that executables call, between processes that use
// the driver of Driver.cpp. Messages go through Unix sockets named after the group's id.
//
// An exchange runs when something waits for its stream, like all work of that driver, or some time after it was given:
// others may wait for it, and a GPU would not. Each message carries its size, so that a receive of another size is
// found.
//
// If another process is gone, exchanges with it never complete, and ncclCommGetAsyncError says so.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <memory>
#include <random>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;

enum Result {
  Success = 0,
  UnhandledCudaError = 1,
  SystemError = 2,
  InvalidArgument = 4,
  InvalidUsage = 5,
  RemoteError = 6,
};

struct Id {
  char bytes[128];
};

// The driver's entry points for this library.
template <typename... P> int driver(const char *name, P... parameters) {
  static void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void *symbol = library ? dlsym(library, name) : nullptr;
  if (!symbol) {
    std::fprintf(stderr, "this libnccl.so.2 needs the tests' libcuda.so.1\n");
    std::abort();
  }
  return reinterpret_cast<int (*)(P...)>(symbol)(parameters...);
}

int refuse(Result result, const std::string &why) {
  std::fprintf(stderr, "NCCL of the tests: %s\n", why.c_str());
  return result;
}

struct Communicator {
  int rank = 0, size = 0;
  std::vector<int> sockets; // by rank; -1 for this one
  std::atomic<int> error = Success;
  std::atomic<bool> aborted = false, ends = false;
  std::atomic<int> underWay = 0; // exchanges
  std::atomic<void *> stream = nullptr;
  std::thread helper;

  void close() {
    ends = true;
    if (helper.joinable())
      helper.join();
    for (int &socket : sockets)
      if (socket >= 0)
        ::close(std::exchange(socket, -1));
  }
};

struct Operation {
  bool sends;
  uint64_t address;
  size_t bytes;
  int peer;
  std::vector<uint8_t> message; // the size, then the bytes
  size_t done = 0;              // bytes of the message
};

// The sends and receives of a group, which all run at the same time.
struct Exchange {
  std::shared_ptr<Communicator> communicator;
  std::deque<Operation> operations;
  bool begun = false;

  int fail(Result result, const std::string &why) {
    if (communicator->error == Success) {
      refuse(result, why);
      communicator->error = result;
    }
    return 0;
  }
  // Returns whether it is done.
  int advance() {
    if (communicator->aborted)
      return 1;
    if (communicator->error != Success)
      return 0;
    for (Operation &operation : operations) {
      if (begun)
        break;
      operation.message.resize(sizeof(uint64_t) + operation.bytes);
      const uint64_t size = operation.bytes;
      if (operation.sends)
        std::memcpy(operation.message.data(), &size, sizeof size);
      if (operation.sends && driver<void *, uint64_t, size_t>("xfcPtxRead", operation.message.data() + sizeof size,
                                                              operation.address, operation.bytes))
        return fail(UnhandledCudaError, "a send reads what is no device memory");
    }
    begun = true;
    bool all = true;
    for (int peer = 0; peer < communicator->size; ++peer)
      for (bool sends : {true, false})
        for (Operation &operation : operations) { // those of one peer and direction are done in order
          if (operation.peer != peer || operation.sends != sends || operation.done == operation.message.size())
            continue;
          if (!move(operation))
            return 0;
          if (operation.done < operation.message.size()) {
            all = false;
            break;
          }
        }
    return all;
  }
  // Moves what can be moved now. False if that failed.
  bool move(Operation &operation) {
    const int socket = communicator->sockets[operation.peer];
    while (operation.done < operation.message.size()) {
      uint8_t *at = operation.message.data() + operation.done;
      // The size comes first, alone, because the message that follows may be another than the expected one.
      const size_t left =
          (!operation.sends && operation.done < sizeof(uint64_t) ? sizeof(uint64_t) : operation.message.size()) -
          operation.done;
      const ssize_t moved = operation.sends ? ::send(socket, at, left, MSG_DONTWAIT | MSG_NOSIGNAL)
                                            : ::recv(socket, at, left, MSG_DONTWAIT);
      if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return true;
      if (moved <= 0)
        return fail(RemoteError, "rank " + std::to_string(operation.peer) + " is gone");
      operation.done += static_cast<size_t>(moved);
      uint64_t size = 0;
      std::memcpy(&size, operation.message.data(), sizeof size);
      if (!operation.sends && operation.done == sizeof size && size != operation.bytes)
        return fail(InvalidUsage, "rank " + std::to_string(communicator->rank) + " receives " +
                                      std::to_string(operation.bytes) + " bytes, but rank " +
                                      std::to_string(operation.peer) + " has sent " + std::to_string(size));
    }
    if (!operation.sends &&
        driver<uint64_t, const void *, size_t>("xfcPtxWrite", operation.address,
                                               operation.message.data() + sizeof(uint64_t), operation.bytes))
      return fail(UnhandledCudaError, "a receive writes to what is no device memory");
    return true;
  }
};

int advance(void *pointer) {
  auto *exchange = static_cast<Exchange *>(pointer);
  if (!exchange->advance())
    return 0;
  --exchange->communicator->underWay;
  delete exchange;
  return 1;
}

// The group that this thread has begun.
struct Group {
  int depth = 0;
  std::shared_ptr<Communicator> communicator;
  void *stream = nullptr;
  std::deque<Operation> operations;
};
thread_local Group group;

// Communicators stay allocated, also when the process ends: exchanges and callers may still know them.
std::deque<std::shared_ptr<Communicator>> &communicators = *new std::deque<std::shared_ptr<Communicator>>;

std::shared_ptr<Communicator> find(const void *handle) {
  for (const auto &communicator : communicators)
    if (communicator.get() == handle)
      return communicator;
  return nullptr;
}

int add(bool sends, uint64_t address, size_t count, int type, int peer, const void *handle, void *stream) {
  const std::shared_ptr<Communicator> communicator = find(handle);
  if (!communicator || communicator->aborted || communicator->ends)
    return refuse(InvalidArgument, "there is no such communicator");
  if (group.depth == 0)
    return refuse(InvalidUsage, "a send or a receive outside of a group may wait for one that comes after it");
  if (type != 0 && type != 1) // ncclInt8, ncclUint8
    return refuse(InvalidArgument, "only bytes are known");
  if (peer < 0 || peer >= communicator->size || peer == communicator->rank)
    return refuse(InvalidArgument, "there is no other rank " + std::to_string(peer));
  if (group.communicator && (group.communicator != communicator || group.stream != stream))
    return refuse(InvalidUsage, "a group has one communicator and one stream here");
  group.communicator = communicator;
  group.stream = stream;
  group.operations.push_back({sends, address, count, peer, {}});
  return Success;
}

sockaddr_un addressOf(const Id &id, int rank, socklen_t &length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = std::string(id.bytes) + "-" + std::to_string(rank);
  std::memcpy(address.sun_path + 1, name.data(), name.size()); // abstract: no file
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

// Connects to the lower ranks, and is connected to by the higher ones. Each tells its rank.
bool connectAll(Communicator &communicator, const Id &id) {
  communicator.sockets.assign(static_cast<size_t>(communicator.size), -1);
  socklen_t length = 0;
  const sockaddr_un own = addressOf(id, communicator.rank, length);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool good = listener >= 0 && bind(listener, reinterpret_cast<const sockaddr *>(&own), length) == 0 &&
              listen(listener, communicator.size) == 0;
  const auto end = std::chrono::steady_clock::now() + 60s;
  for (int rank = 0; rank < communicator.rank && good; ++rank) {
    const sockaddr_un other = addressOf(id, rank, length);
    const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (connect(connection, reinterpret_cast<const sockaddr *>(&other), length) != 0 && good) {
      good = std::chrono::steady_clock::now() < end;
      std::this_thread::sleep_for(1ms);
    }
    good = good && ::send(connection, &communicator.rank, sizeof communicator.rank, MSG_NOSIGNAL) ==
                       static_cast<ssize_t>(sizeof communicator.rank);
    communicator.sockets[static_cast<size_t>(rank)] = connection;
  }
  for (int rank = communicator.rank + 1; rank < communicator.size && good; ++rank) {
    const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    int from = -1;
    good = connection >= 0 && recv(connection, &from, sizeof from, MSG_WAITALL) == static_cast<ssize_t>(sizeof from) &&
           from > communicator.rank && from < communicator.size;
    if (good)
      communicator.sockets[static_cast<size_t>(from)] = connection;
  }
  close(listener);
  return good;
}

} // namespace

#define API extern "C" __attribute__((visibility("default"))) int

API ncclGetVersion(int *version) {
  *version = 22304;
  return Success;
}
API ncclGetUniqueId(Id *id) {
  std::random_device random;
  *id = {};
  std::snprintf(id->bytes, sizeof id->bytes, "xfc-nccl-%d-%08x%08x", static_cast<int>(getpid()), random(), random());
  return Success;
}
API ncclCommInitRank(Communicator **made, int size, Id id, int rank) {
  if (size < 1 || rank < 0 || rank >= size || std::strncmp(id.bytes, "xfc-nccl-", 9) != 0)
    return refuse(InvalidArgument, "no group of this id, or no such rank");
  auto communicator = std::make_shared<Communicator>();
  communicator->rank = rank;
  communicator->size = size;
  if (!connectAll(*communicator, id)) {
    communicator->close();
    return refuse(SystemError, "not all ranks have joined");
  }
  communicator->helper = std::thread([of = communicator.get()] {
    while (!of->ends) {
      std::this_thread::sleep_for(10ms);
      if (void *stream = of->stream; stream && of->underWay > 0 && !of->ends)
        driver<void *>("xfcPtxAdvance", stream);
    }
  });
  communicators.push_back(communicator);
  *made = communicator.get();
  return Success;
}
API ncclGroupStart() {
  ++group.depth;
  return Success;
}
API ncclGroupEnd() {
  if (group.depth == 0)
    return refuse(InvalidUsage, "a group ends that has not begun");
  if (--group.depth > 0 || group.operations.empty())
    return Success;
  Group given = std::exchange(group, {});
  void *const before = given.communicator->stream.exchange(given.stream);
  if (before && before != given.stream)
    return refuse(InvalidUsage, "a communicator has one stream here");
  auto *exchange = new Exchange{given.communicator, std::move(given.operations)};
  ++exchange->communicator->underWay;
  const std::string what = "exchange of " + std::to_string(exchange->operations.size()) + " parts";
  if (const int refused = driver<void *, const char *, int (*)(void *), void *>("xfcPtxEnqueue", given.stream,
                                                                                what.c_str(), advance, exchange)) {
    --exchange->communicator->underWay;
    delete exchange;
    return refuse(UnhandledCudaError, "the stream takes no exchange: error " + std::to_string(refused));
  }
  return Success;
}
API ncclSend(const void *from, size_t count, int type, int peer, Communicator *communicator, void *stream) {
  return add(true, reinterpret_cast<uint64_t>(from), count, type, peer, communicator, stream);
}
API ncclRecv(void *to, size_t count, int type, int peer, Communicator *communicator, void *stream) {
  return add(false, reinterpret_cast<uint64_t>(to), count, type, peer, communicator, stream);
}
API ncclCommGetAsyncError(Communicator *communicator, int *error) {
  if (!find(communicator))
    return InvalidArgument;
  *error = communicator->error;
  return Success;
}
API ncclCommAbort(Communicator *communicator) {
  if (!find(communicator))
    return InvalidArgument;
  communicator->aborted = true;
  communicator->close();
  return Success;
}
API ncclCommDestroy(Communicator *communicator) {
  if (!find(communicator))
    return InvalidArgument;
  if (communicator->underWay > 0)
    return refuse(InvalidUsage, "a communicator is destroyed while an exchange is under way");
  communicator->close();
  return Success;
}
extern "C" __attribute__((visibility("default"))) const char *ncclGetErrorString(int result) {
  switch (result) {
  case Success:
    return "no error";
  case UnhandledCudaError:
    return "unhandled cuda error";
  case SystemError:
    return "unhandled system error";
  case InvalidArgument:
    return "invalid argument";
  case InvalidUsage:
    return "invalid usage";
  case RemoteError:
    return "remote process exited or there was a network error";
  default:
    return "unknown result code";
  }
}
