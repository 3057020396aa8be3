// A libcuda.so.1 for machines without a GPU: the functions of CUDA's driver API that generated executables call,
// implemented on the interpreter.
//
// Work on a stream runs only when something waits for it, as late as the API allows, so that a missing wait is
// detected: an asynchronous copy from pinned memory reads it then, and a device fault appears in the next call that
// waits.
//
// Environment variables configure the device and inject faults:
//   XFC_PTX_DRIVER_VERSION=11040  the result of cuDriverGetVersion; newer PTX is refused
//   XFC_PTX_DEVICES=0             the number of devices
//   XFC_PTX_ARCH=75               the compute capability; PTX for a later one is refused
//   XFC_PTX_MEMORY=bytes          the device's memory
//   XFC_PTX_LOST_AFTER=n[:code]   from launch n + 1 on every call fails with that error (700, or 214 for ECC)
//   XFC_PTX_CHECK=1               find races, also between streams, and reads of uninitialized shared memory
//   XFC_PTX_TRACE=file            log each operation given to a stream to this file
//   XFC_PTX_THREADS=n             host threads for the blocks of a launch
//   XFC_PTX_PROCESSORS=n          the device's multiprocessors
//   XFC_PTX_COOPERATIVE=n         0: no cooperative launches; -1: none has room at the moment; else their most blocks
//   XFC_PTX_ORDER=seed            the blocks of a cooperative launch take turns in a random order
#include "Interpreter.h"
#include "Streams.h"
#include "TensorMap.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <iostream>
#include <mutex>
#include <set>
#include <thread>
#include <type_traits>

using namespace xfc::ptx;

namespace {

enum Code {
  Success = 0,
  InvalidValue = 1,
  OutOfMemory = 2,
  NotInitialized = 3,
  NoDevice = 100,
  InvalidDevice = 101,
  InvalidContext = 201,
  NoBinaryForGpu = 209,
  EccUncorrectable = 214,
  InvalidPtx = 218,
  UnsupportedPtxVersion = 222,
  InvalidHandle = 400,
  NotFound = 500,
  NotReady = 600,
  IllegalAddress = 700,
  LaunchOutOfResources = 701,
  CooperativeLaunchTooLarge = 720,
  NotSupported = 801,
  CaptureUnsupported = 900,
  CaptureInvalidated = 901,
  CaptureUnmatched = 903,
  CaptureUnjoined = 904,
  CaptureImplicit = 906,
};

struct {
  int code;
  const char *name, *text;
} const errors[] = {
    {Success, "CUDA_SUCCESS", "no error"},
    {InvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {InvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {InvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {EccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {InvalidPtx, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {UnsupportedPtxVersion, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {InvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {IllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {CooperativeLaunchTooLarge, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {NotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {CaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {CaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
};

int64_t environment(const char *name, int64_t otherwise) {
  const char *value = getenv(name);
  return value && *value ? atoll(value) : otherwise;
}

// Returns whether it is done: if not, it is called again.
using Work = std::function<bool()>;

struct Graph {
  std::vector<Work> work;
};

// A capture: it began on stream `origin`; other streams join by waiting for an event of a capturing stream.
struct Capture {
  struct Stream *origin;
  int mode; // which threads may not make unsafe calls meanwhile: 0 all, 1 only the one that captures, 2 none
  std::thread::id thread = std::this_thread::get_id();
  Graph graph = {};
  std::set<struct Stream *> unjoined = {}; // streams with work that origin has not waited for
  bool invalid = false;
};

struct Stream {
  uint32_t number;      // from 1
  bool blocking = true; // synchronizes with the legacy stream
  std::deque<Work> queue;
  std::shared_ptr<Capture> capture;
};

struct Record { // an event recorded on a stream
  Stream *stream;
  StreamOrder::Clock clock;
  bool done = false;
  std::chrono::steady_clock::time_point time;
  std::shared_ptr<Capture> capture;
};

struct Event {
  std::shared_ptr<Record> record;
  bool timing;
};

struct Module {
  const Program *program;
  std::map<std::string, std::unique_ptr<struct FunctionHandle>> functions;
};

struct FunctionHandle {
  std::string name;
  Interpreter::Entry entry;
  size_t dynamicLimit = 49152;
};

struct Context {};

struct State {
  std::recursive_mutex mutex;
  bool initialized = false;
  int sticky = Success; // the error of a device that is lost
  int64_t launches = 0, lostAfter = -1, lostCode = IllegalAddress;
  int version = int(environment("XFC_PTX_DRIVER_VERSION", 12080));
  int devices = int(environment("XFC_PTX_DEVICES", 1));
  int arch = int(environment("XFC_PTX_ARCH", 80));
  int processors = int(environment("XFC_PTX_PROCESSORS", 4));
  int64_t cooperative = environment("XFC_PTX_COOPERATIVE", std::numeric_limits<int32_t>::max());
  size_t memory = size_t(environment("XFC_PTX_MEMORY", int64_t(8) << 30));
  Interpreter interpreter{{.threads = int(environment("XFC_PTX_THREADS", 1)),
                           .checks = environment("XFC_PTX_CHECK", 0) != 0,
                           .memory = memory,
                           .order = uint32_t(environment("XFC_PTX_ORDER", 0))}};
  Context context;
  int retained = 0;
  std::vector<Stream *> streams;
  std::set<Event *> events;
  std::set<Module *> modules;
  std::set<FunctionHandle *> functions;
  std::set<Graph *> graphs, executables;
  std::map<const uint8_t *, size_t> pinned;
  const bool checks = environment("XFC_PTX_CHECK", 0) != 0;
  StreamOrder order;
  std::shared_ptr<const StreamOrder::Work> running;
  std::ofstream trace;

  State() {
    if (const char *text = getenv("XFC_PTX_LOST_AFTER"); text && *text) {
      lostAfter = atoll(text);
      if (const char *colon = strchr(text, ':'))
        lostCode = atoll(colon + 1);
    }
    if (const char *file = getenv("XFC_PTX_TRACE"); file && *file)
      trace.open(file);
  }
  size_t sharedOptIn() const {
    return arch >= 90 ? 232448 : arch == 86 || arch == 89 ? 101376 : arch >= 80 ? 166912 : 65536;
  }
  // How many blocks a multiprocessor has room for, as far as their threads and shared memory are concerned.
  int64_t blocksOfProcessor(uint64_t threads, size_t shared) const {
    return int64_t(std::min<uint64_t>({2048 / threads, (sharedOptIn() + 1024) / (shared + 1024), 32}));
  }
};

State &state() {
  static State s;
  return s;
}

thread_local Context *current = nullptr;

struct Failure {
  int code;
};
[[noreturn]] void fail(int code) { throw Failure{code}; }
void require(bool holds, int code = InvalidValue) {
  if (!holds)
    fail(code);
}

// Runs the body of an API function. `needs`: 0 nothing, 1 cuInit, 2 also a current context.
template <class F> int call(int needs, F body) {
  State &s = state();
  std::lock_guard lock(s.mutex);
  try {
    require(needs < 1 || s.initialized, NotInitialized);
    require(needs < 2 || current, InvalidContext);
    if (needs == 2 && s.sticky)
      return s.sticky;
    body(s);
    return Success;
  } catch (const Failure &f) {
    return f.code;
  } catch (const Error &) {
    return InvalidValue;
  } catch (const std::bad_alloc &) {
    return OutOfMemory;
  }
}

// ---- streams

void traced(State &s, const Stream *stream, const std::string &what) {
  if (s.trace.is_open())
    s.trace << "stream " << (stream ? stream->number : StreamOrder::Host) << ": " << what << std::endl;
}

// Records that the running work accesses these bytes.
void touch(State &s, uint64_t address, size_t bytes, bool writes) {
  if (!s.checks)
    return;
  if (auto race = s.order.access(s.running, address, bytes, writes)) {
    std::cerr << "race between streams: " << *race << std::endl;
    s.sticky = IllegalAddress;
    fail(s.sticky);
  }
}
uint64_t numberOf(const void *host) { return reinterpret_cast<uint64_t>(host); }

// Runs the stream's next work. False if it is not done: it waits for another process.
bool step(Stream &stream) {
  Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (work())
    return true;
  stream.queue.push_front(std::move(work));
  return false;
}
// Runs the stream's work until the record is reached, if one is given, or all of it. False if some of it is not done.
bool advance(Stream &stream, const Record *record = nullptr) {
  while (!(record && record->done) && !stream.queue.empty())
    if (!step(stream))
      return false;
  return true;
}
void drain(Stream &stream, const Record *record = nullptr) {
  while (!advance(stream, record))
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}
// Makes the host wait for the stream.
void finish(State &s, Stream &stream) {
  drain(stream);
  s.order.wait(StreamOrder::Host, s.order.clockOf(stream.number));
}
void finishAll(State &s, bool blockingOnly = false) {
  for (Stream *stream : s.streams)
    if (!blockingOnly || stream->blocking)
      finish(s, *stream);
}
bool reach(const Record &record) { return record.done || advance(*record.stream, &record); }
void until(const Record &record) {
  if (!record.done)
    drain(*record.stream, &record);
}

Stream &streamOf(State &s, Stream *stream) {
  require(std::count(s.streams.begin(), s.streams.end(), stream), InvalidHandle);
  return *stream;
}

// Enqueues work on a stream: it becomes part of a captured graph, or runs later; on the legacy stream (null) it runs
// now, after all other streams. `body` may return whether it is done.
template <typename Body> void enqueue(State &s, Stream *stream, const std::string &what, Body body) {
  Work work = [body = std::move(body)]() -> bool {
    if constexpr (std::is_void_v<decltype(body())>)
      return body(), true;
    else
      return body();
  };
  traced(s, stream, what);
  if (!stream) {
    for (Stream *other : s.streams)
      if (other->blocking && other->capture) {
        other->capture->invalid = true;
        fail(CaptureImplicit);
      }
    finishAll(s, true);
    s.running = s.order.give(StreamOrder::Host, what);
    while (!work())
      ;
    return;
  }
  streamOf(s, stream);
  if (stream->capture) {
    require(!stream->capture->invalid, CaptureInvalidated);
    stream->capture->graph.work.push_back(std::move(work));
    if (stream != stream->capture->origin)
      stream->capture->unjoined.insert(stream);
    return;
  }
  stream->queue.push_back([&s, given = s.order.give(stream->number, what), work = std::move(work)] {
    s.running = given;
    return work();
  });
}

// Functions that wait must not be called for a capturing stream.
void mustNotCapture(Stream &stream) {
  if (stream.capture) {
    stream.capture->invalid = true;
    fail(CaptureUnsupported);
  }
}
// Nor may those that wait for the whole context.
void noneCaptures(State &s) {
  for (Stream *stream : s.streams)
    mustNotCapture(*stream);
}
// Calls that may wait for streams, such as allocations, are unsafe while a stream captures in a mode that says so.
void mayBeUnsafe(State &s) {
  for (Stream *stream : s.streams)
    if (stream->capture && (stream->capture->mode == 0 ||
                            (stream->capture->mode == 1 && stream->capture->thread == std::this_thread::get_id())))
      mustNotCapture(*stream);
}

// ---- work

bool isPinned(State &s, const void *pointer, size_t bytes) {
  auto at = static_cast<const uint8_t *>(pointer);
  auto it = s.pinned.upper_bound(at);
  return it != s.pinned.begin() && (--it, at + bytes <= it->first + it->second);
}

// A device address must be valid when the call is made.
void mustBeDevice(State &s, uint64_t address, size_t bytes) {
  if (bytes)
    s.interpreter.copy(address, address, bytes);
}

void toDevice(State &s, uint64_t to, const void *from, size_t bytes, Stream *stream) {
  mustBeDevice(s, to, bytes);
  const std::string what = "copy of " + std::to_string(bytes) + " bytes to the device";
  if (isPinned(s, from, bytes) || (stream && streamOf(s, stream).capture))
    return enqueue(s, stream, what, [&s, to, from, bytes] {
      touch(s, numberOf(from), bytes, false);
      touch(s, to, bytes, true);
      s.interpreter.write(to, from, bytes);
    });
  // Pageable memory is copied before the call returns.
  auto staged = std::make_shared<std::vector<uint8_t>>(static_cast<const uint8_t *>(from),
                                                       static_cast<const uint8_t *>(from) + bytes);
  enqueue(s, stream, what, [&s, to, staged] {
    touch(s, to, staged->size(), true);
    s.interpreter.write(to, staged->data(), staged->size());
  });
}
void toHost(State &s, void *to, uint64_t from, size_t bytes, Stream *stream) {
  mustBeDevice(s, from, bytes);
  enqueue(s, stream, "copy of " + std::to_string(bytes) + " bytes to the host", [&s, to, from, bytes] {
    touch(s, from, bytes, false);
    touch(s, numberOf(to), bytes, true);
    s.interpreter.read(to, from, bytes);
  });
  if (stream && !stream->capture && !isPinned(s, to, bytes))
    finish(s, *stream);
}

void runKernel(State &s, const FunctionHandle &f, Dimensions grid, Dimensions block, size_t shared,
               const std::vector<uint8_t> &parameters, bool cooperative) {
  if (s.lostAfter >= 0 && s.launches++ >= s.lostAfter) {
    s.sticky = int(s.lostCode);
    fail(s.sticky);
  }
  try {
    s.interpreter.launch(f.entry, grid, block, shared, parameters.data(), f.entry.cluster, cooperative);
  } catch (const Error &e) {
    std::cerr << e.what() << std::endl;
    s.sticky = IllegalAddress;
    fail(s.sticky);
  }
  for (const Interpreter::Accessed &range : s.interpreter.accessed())
    touch(s, range.address, range.bytes, range.written);
}

} // namespace

#define API extern "C" __attribute__((visibility("default"))) int

// ---- the device

API cuInit(unsigned flags) {
  return call(0, [&](State &s) {
    require(flags == 0);
    require(s.devices > 0, NoDevice);
    s.initialized = true;
  });
}
API cuDriverGetVersion(int *version) {
  return call(0, [&](State &s) { *version = s.version; });
}
API cuDeviceGetCount(int *count) {
  return call(1, [&](State &s) { *count = s.devices; });
}
API cuDeviceGet(int *device, int ordinal) {
  return call(1, [&](State &s) {
    require(ordinal >= 0 && ordinal < s.devices, InvalidDevice);
    *device = ordinal;
  });
}
API cuDeviceGetName(char *name, int length, int device) {
  return call(1, [&](State &s) {
    require(device < s.devices, InvalidDevice);
    snprintf(name, size_t(length), "PTX interpreter (sm_%d)", s.arch);
  });
}
API cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  return call(1, [&](State &s) {
    require(device < s.devices, InvalidDevice);
    memset(uuid, 0, 16);
    uuid[15] = static_cast<unsigned char>(device);
  });
}
API cuDeviceTotalMem_v2(size_t *bytes, int device) {
  return call(1, [&](State &s) {
    require(device < s.devices, InvalidDevice);
    *bytes = s.memory;
  });
}
API cuDeviceGetAttribute(int *value, int attribute, int device) {
  return call(1, [&](State &s) {
    require(device < s.devices, InvalidDevice);
    const std::map<int, int> values = {{1, 1024},
                                       {2, 1024},
                                       {3, 1024},
                                       {4, 64},
                                       {5, INT32_MAX},
                                       {6, 65535},
                                       {7, 65535},
                                       {8, 49152},
                                       {9, 65536},
                                       {10, 32},
                                       {12, 65536},
                                       {13, 1000000},
                                       {16, s.processors},
                                       {36, 1000000},
                                       {37, 256},
                                       {38, 4 << 20},
                                       {39, 2048},
                                       {41, 1},
                                       {75, s.arch / 10},
                                       {76, s.arch % 10},
                                       {81, int(s.sharedOptIn() + 1024)},
                                       {82, 65536},
                                       {95, s.cooperative != 0},
                                       {97, int(s.sharedOptIn())},
                                       {106, 16},
                                       {111, 1024}};
    auto found = values.find(attribute);
    require(found != values.end());
    *value = found->second;
  });
}
API cuDevicePrimaryCtxRetain(Context **context, int device) {
  return call(1, [&](State &s) {
    require(device < s.devices, InvalidDevice);
    ++s.retained;
    *context = &s.context;
  });
}
API cuDevicePrimaryCtxRelease_v2(int device) {
  return call(1, [&](State &s) {
    require(device < s.devices, InvalidDevice);
    require(s.retained > 0, InvalidContext);
    --s.retained;
  });
}
API cuCtxSetCurrent(Context *context) {
  return call(1, [&](State &s) {
    require(!context || (context == &s.context && s.retained > 0), InvalidContext);
    current = context;
  });
}
API cuCtxSynchronize() {
  return call(2, [&](State &s) {
    noneCaptures(s);
    finishAll(s);
  });
}

// ---- memory

API cuMemGetInfo_v2(size_t *left, size_t *total) {
  return call(2, [&](State &s) {
    *left = s.memory - s.interpreter.memoryUsed();
    *total = s.memory;
  });
}
API cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  return call(2, [&](State &s) {
    require(bytes > 0);
    mayBeUnsafe(s);
    require(bytes <= s.memory - s.interpreter.memoryUsed(), OutOfMemory);
    *address = s.interpreter.allocate(bytes);
  });
}
API cuMemFree_v2(uint64_t address) {
  return call(2, [&](State &s) {
    mayBeUnsafe(s);
    finishAll(s);
    if (address)
      s.interpreter.free(address);
  });
}
API cuMemAllocHost_v2(void **pointer, size_t bytes) {
  return call(2, [&](State &s) {
    require(bytes > 0);
    auto *memory = static_cast<uint8_t *>(aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
    require(memory, OutOfMemory);
    memset(memory, 0xff, bytes);
    s.pinned[memory] = bytes;
    *pointer = memory;
  });
}
API cuMemFreeHost(void *pointer) {
  return call(2, [&](State &s) {
    finishAll(s);
    auto found = s.pinned.find(static_cast<const uint8_t *>(pointer));
    require(found != s.pinned.end());
    s.order.forget(numberOf(pointer), found->second);
    s.pinned.erase(found);
    free(pointer);
  });
}
API cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
  return call(2, [&](State &s) { toDevice(s, to, from, bytes, nullptr); });
}
API cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
  return call(2, [&](State &s) { toHost(s, to, from, bytes, nullptr); });
}
API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, Stream *stream) {
  return call(2, [&](State &s) { toDevice(s, to, from, bytes, stream); });
}
API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, Stream *stream) {
  return call(2, [&](State &s) { toHost(s, to, from, bytes, stream); });
}
API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream *stream) {
  return call(2, [&](State &s) {
    mustBeDevice(s, to, bytes);
    mustBeDevice(s, from, bytes);
    enqueue(s, stream, "copy of " + std::to_string(bytes) + " bytes on the device", [&s, to, from, bytes] {
      touch(s, from, bytes, false);
      touch(s, to, bytes, true);
      s.interpreter.copy(to, from, bytes);
    });
  });
}
API cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, Stream *stream) {
  return call(2, [&](State &s) {
    mustBeDevice(s, to, bytes);
    enqueue(s, stream, "setting of " + std::to_string(bytes) + " bytes", [&s, to, value, bytes] {
      touch(s, to, bytes, true);
      s.interpreter.fill(to, value, bytes);
    });
  });
}

namespace {
struct Side { // one side of CUDA_MEMCPY2D
  size_t x, y;
  int type; // 1 host, 2 device
  uint8_t *host;
  uint64_t device;
  void *array;
  size_t pitch;
};
} // namespace
struct Copy2D {
  Side from, to;
  size_t width, height;
};
API cuMemcpy2DAsync_v2(const Copy2D *copy, Stream *stream) {
  return call(2, [&](State &s) {
    Copy2D c = *copy;
    if (!c.width || !c.height)
      return;
    bool pageable = false;
    for (Side *side : {&c.from, &c.to}) {
      require(side->type == 1 || side->type == 2);
      side->pitch = side->pitch ? side->pitch : c.width;
      require(c.height == 1 || side->pitch >= c.width);
      size_t extent = side->pitch * (c.height - 1) + c.width, offset = side->y * side->pitch + side->x;
      if (side->type == 2)
        mustBeDevice(s, side->device += offset, extent);
      else
        pageable |= !isPinned(s, side->host += offset, extent);
    }
    const char *where = c.to.type == 1 ? "to the host" : c.from.type == 1 ? "to the device" : "on the device";
    enqueue(s, stream,
            "copy of " + std::to_string(c.height) + " rows of " + std::to_string(c.width) + " bytes " + where, [&s, c] {
              std::vector<uint8_t> row(c.width);
              for (size_t y = 0; y < c.height; ++y) {
                touch(s, (c.from.type == 1 ? numberOf(c.from.host) : c.from.device) + y * c.from.pitch, c.width, false);
                touch(s, (c.to.type == 1 ? numberOf(c.to.host) : c.to.device) + y * c.to.pitch, c.width, true);
                if (c.from.type == 1)
                  memcpy(row.data(), c.from.host + y * c.from.pitch, c.width);
                else
                  s.interpreter.read(row.data(), c.from.device + y * c.from.pitch, c.width);
                if (c.to.type == 1)
                  memcpy(c.to.host + y * c.to.pitch, row.data(), c.width);
                else
                  s.interpreter.write(c.to.device + y * c.to.pitch, row.data(), c.width);
              }
            });
    if (pageable && stream && !stream->capture)
      finish(s, *stream);
  });
}

// ---- modules

API cuModuleLoadDataEx(Module **module, const void *image, unsigned count, int *options, void **values) {
  return call(2, [&](State &s) {
    mayBeUnsafe(s);
    require(memcmp(image, "\177ELF", 4) != 0, NoBinaryForGpu); // a cubin
    std::string log;
    int code = Success;
    std::string text = static_cast<const char *>(image);
    // The first lines of the text name its target.
    auto after = [&](const char *directive) {
      size_t at = text.find(directive);
      return at == std::string::npos ? std::string() : text.substr(at + strlen(directive), 40);
    };
    double version = atof(after(".version").c_str());
    int known = (s.version / 1000 - 4) * 10 + s.version % 1000 / 10;
    std::string target = after(".target");
    size_t sm = target.find("sm_");
    int arch = sm == std::string::npos ? 0 : atoi(target.c_str() + sm + 3);
    bool exact = arch && target[target.find_first_not_of("0123456789", sm + 3)] == 'a'; // sm_90a runs only on 9.0
    if (int(version * 10 + 0.5) > known)
      code = UnsupportedPtxVersion;
    else if (arch > s.arch || (exact && arch != s.arch))
      code = NoBinaryForGpu;
    else
      try {
        auto loaded = std::make_unique<Module>();
        loaded->program = &s.interpreter.load(text);
        *module = *s.modules.insert(loaded.release()).first;
      } catch (const Error &e) {
        code = InvalidPtx;
        log = "PTX JIT: " + std::string(e.what());
      }
    for (unsigned k = 0; k < count; ++k) // CU_JIT_ERROR_LOG_BUFFER, whose size is another option
      if (options[k] == 5)
        for (unsigned n = 0; n < count; ++n)
          if (options[n] == 6) {
            auto size = reinterpret_cast<size_t>(values[n]);
            snprintf(static_cast<char *>(values[k]), size, "%s", log.c_str());
            values[n] = reinterpret_cast<void *>(std::min(size, log.size()));
          }
    require(!code, code);
  });
}
API cuModuleUnload(Module *module) {
  return call(2, [&](State &s) {
    require(s.modules.count(module), InvalidHandle);
    finishAll(s);
    for (auto &[name, f] : module->functions)
      s.functions.erase(f.get());
    s.interpreter.unload(*module->program);
    s.modules.erase(module);
    delete module;
  });
}
API cuModuleGetFunction(FunctionHandle **function, Module *module, const char *name) {
  return call(2, [&](State &s) {
    require(s.modules.count(module), InvalidHandle);
    auto &f = module->functions[name];
    if (!f)
      try {
        f = std::make_unique<FunctionHandle>(FunctionHandle{name, s.interpreter.entry(*module->program, name)});
      } catch (const Error &) {
        module->functions.erase(name);
        fail(NotFound);
      }
    s.functions.insert(f.get());
    *function = f.get();
  });
}
API cuFuncSetAttribute(FunctionHandle *function, int attribute, int value) {
  return call(2, [&](State &s) {
    require(s.functions.count(function), InvalidHandle);
    if (attribute == 8) { // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
      require(value >= 0 && size_t(value) + function->entry.staticShared <= s.sharedOptIn());
      function->dynamicLimit = size_t(value);
    } else {
      require(attribute == 9); // the preferred carveout of shared memory
    }
  });
}
API cuFuncGetAttribute(int *value, int attribute, FunctionHandle *function) {
  return call(2, [&](State &s) {
    require(s.functions.count(function), InvalidHandle);
    const std::map<int, size_t> values = {
        {0, function->entry.maximum}, {1, function->entry.staticShared}, {2, 0}, {3, 0}, {4, 0}, {5, 80},
        {6, size_t(s.arch)},          {8, function->dynamicLimit}};
    auto found = values.find(attribute);
    require(found != values.end());
    *value = int(found->second);
  });
}
// Gives a stream a launch. `extra`: see cuLaunchKernel.
static void launch(State &s, FunctionHandle *function, Dimensions grid, Dimensions block, unsigned shared,
                   Stream *stream, void **parameters, void **extra, bool cooperative) {
  require(s.functions.count(function), InvalidHandle);
  const Interpreter::Entry &entry = function->entry;
  require(grid.count() && block.count() && grid.y <= 65535 && grid.z <= 65535);
  require(block.count() <= 1024);
  require(block.count() <= entry.maximum, LaunchOutOfResources);
  const size_t allShared = shared + entry.staticShared;
  require(allShared <= std::max<size_t>(function->dynamicLimit, 49152));
  if (cooperative) {
    require(s.cooperative != 0, NotSupported);
    const int64_t room = s.processors * s.blocksOfProcessor(block.count(), allShared);
    require(int64_t(grid.count()) <= std::min(s.cooperative, room), CooperativeLaunchTooLarge);
  }
  std::vector<uint8_t> bytes(entry.parameterBytes);
  if (extra) {
    require(!parameters);
    for (void **e = extra; *e; e += 2)
      if (*e == reinterpret_cast<void *>(1))
        for (void **size = extra; *size; size += 2)
          if (*size == reinterpret_cast<void *>(2)) {
            require(*static_cast<size_t *>(size[1]) == bytes.size());
            memcpy(bytes.data(), e[1], bytes.size());
          }
  } else {
    size_t k = 0;
    for (auto [offset, size] : entry.parameters)
      memcpy(bytes.data() + offset, parameters[k++], size);
  }
  enqueue(s, stream, (cooperative ? "cooperative kernel " : "kernel ") + function->name,
          [&s, function, grid, block, shared, bytes, cooperative] {
            runKernel(s, *function, grid, block, shared, bytes, cooperative);
          });
}
API cuLaunchKernel(FunctionHandle *function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                   unsigned blockY, unsigned blockZ, unsigned shared, Stream *stream, void **parameters, void **extra) {
  return call(2, [&](State &s) {
    launch(s, function, {gridX, gridY, gridZ}, {blockX, blockY, blockZ}, shared, stream, parameters, extra, false);
  });
}
API cuLaunchCooperativeKernel(FunctionHandle *function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                              unsigned blockY, unsigned blockZ, unsigned shared, Stream *stream, void **parameters) {
  return call(2, [&](State &s) {
    launch(s, function, {gridX, gridY, gridZ}, {blockX, blockY, blockZ}, shared, stream, parameters, nullptr, true);
  });
}
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, FunctionHandle *function, int threads, size_t shared) {
  return call(2, [&](State &s) {
    require(s.functions.count(function), InvalidHandle);
    require(threads > 0);
    const bool fits = threads <= 1024 && uint32_t(threads) <= function->entry.maximum &&
                      shared <= std::max<size_t>(function->dynamicLimit, 49152);
    *blocks = fits ? int(s.blocksOfProcessor(uint64_t(threads), shared + function->entry.staticShared)) : 0;
  });
}

// ---- streams, graphs, events

API cuStreamCreate(Stream **stream, unsigned flags) {
  return call(2, [&](State &s) {
    require(flags <= 1);
    *stream = new Stream{.number = s.order.newStream(), .blocking = flags == 0, .queue = {}, .capture = nullptr};
    s.streams.push_back(*stream);
  });
}
API cuStreamDestroy_v2(Stream *stream) {
  return call(2, [&](State &s) {
    drain(streamOf(s, stream));
    std::erase(s.streams, stream);
    delete stream;
  });
}
API cuStreamSynchronize(Stream *stream) {
  return call(2, [&](State &s) {
    if (!stream)
      return finishAll(s, true);
    mustNotCapture(streamOf(s, stream));
    finish(s, *stream);
  });
}
API cuStreamBeginCapture_v2(Stream *stream, int mode) {
  return call(2, [&](State &s) {
    require(mode >= 0 && mode <= 2);
    require(stream, CaptureUnsupported);
    mustNotCapture(streamOf(s, stream));
    stream->capture = std::make_shared<Capture>(Capture{stream, mode});
  });
}
API cuStreamEndCapture(Stream *stream, Graph **graph) {
  return call(2, [&](State &s) {
    auto capture = streamOf(s, stream).capture;
    require(capture != nullptr, InvalidValue);
    require(capture->origin == stream, CaptureUnmatched);
    for (Stream *other : s.streams)
      if (other->capture == capture)
        other->capture = nullptr;
    *graph = nullptr;
    require(!capture->invalid, CaptureInvalidated);
    require(capture->unjoined.empty(), CaptureUnjoined);
    *graph = *s.graphs.insert(new Graph(std::move(capture->graph))).first;
  });
}
API cuStreamWaitEvent(Stream *stream, Event *event, unsigned) {
  return call(2, [&](State &s) {
    require(s.events.count(event), InvalidHandle);
    std::shared_ptr<Record> record = event->record;
    if (!record)
      return;
    if (record->capture && stream) {
      Stream &waiting = streamOf(s, stream);
      require(!waiting.capture || waiting.capture == record->capture, CaptureUnsupported);
      waiting.capture = record->capture;
      if (&waiting == record->capture->origin)
        record->capture->unjoined.erase(record->stream);
      else
        record->capture->unjoined.insert(&waiting);
      return;
    }
    if (stream)
      s.order.wait(streamOf(s, stream).number, record->clock);
    enqueue(s, stream, "wait for an event", [record] { return reach(*record); });
  });
}
API cuGraphInstantiateWithFlags(Graph **executable, Graph *graph, unsigned long long) {
  return call(2, [&](State &s) {
    require(s.graphs.count(graph), InvalidHandle);
    *executable = *s.executables.insert(new Graph(*graph)).first;
  });
}
API cuGraphLaunch(Graph *executable, Stream *stream) {
  return call(2, [&](State &s) {
    require(s.executables.count(executable), InvalidHandle);
    // Copy the work: the executable graph may be destroyed while it runs.
    enqueue(s, stream, "graph", [work = executable->work] {
      for (const Work &w : work)
        while (!w())
          ;
    });
  });
}
API cuGraphExecDestroy(Graph *executable) {
  return call(2, [&](State &s) {
    require(s.executables.erase(executable), InvalidHandle);
    delete executable;
  });
}
API cuGraphDestroy(Graph *graph) {
  return call(2, [&](State &s) {
    require(s.graphs.erase(graph), InvalidHandle);
    delete graph;
  });
}
API cuEventCreate(Event **event, unsigned flags) {
  return call(2, [&](State &s) { *event = *s.events.insert(new Event{nullptr, !(flags & 2)}).first; });
}
API cuEventRecord(Event *event, Stream *stream) {
  return call(2, [&](State &s) {
    require(s.events.count(event), InvalidHandle);
    auto record = std::make_shared<Record>();
    record->stream = stream;
    if (stream && streamOf(s, stream).capture)
      record->capture = stream->capture;
    else
      enqueue(s, stream, "event", [record] {
        record->done = true;
        record->time = std::chrono::steady_clock::now();
      });
    record->clock = s.order.clockOf(stream ? stream->number : StreamOrder::Host);
    event->record = record;
  });
}
API cuEventQuery(Event *event) {
  return call(2, [&](State &s) {
    require(s.events.count(event), InvalidHandle);
    if (!event->record)
      return;
    require(!event->record->capture, CaptureUnsupported);
    require(reach(*event->record), NotReady);
    s.order.wait(StreamOrder::Host, event->record->clock);
  });
}
API cuEventSynchronize(Event *event) {
  return call(2, [&](State &s) {
    require(s.events.count(event), InvalidHandle);
    if (!event->record)
      return;
    require(!event->record->capture, CaptureUnsupported);
    until(*event->record);
    s.order.wait(StreamOrder::Host, event->record->clock);
  });
}
API cuEventElapsedTime_v2(float *milliseconds, Event *from, Event *to) {
  return call(2, [&](State &s) {
    require(s.events.count(from) && s.events.count(to) && from->timing && to->timing, InvalidHandle);
    require(from->record && to->record && !from->record->capture && !to->record->capture, InvalidHandle);
    require(from->record->done && to->record->done, NotReady);
    *milliseconds = std::chrono::duration<float, std::milli>(to->record->time - from->record->time).count();
  });
}
API cuEventElapsedTime(float *milliseconds, Event *from, Event *to) {
  return cuEventElapsedTime_v2(milliseconds, from, to);
}
API cuEventDestroy_v2(Event *event) {
  return call(2, [&](State &s) {
    require(s.events.erase(event), InvalidHandle);
    delete event;
  });
}

// ---- tensor maps

API cuTensorMapEncodeTiled(TensorMap *map, int dataType, unsigned rank, uint64_t address, const uint64_t *sizes,
                           const uint64_t *strides, const unsigned *box, const unsigned *elementStrides, int interleave,
                           int swizzle, int l2Promotion, int fill) {
  return call(1, [&](State &s) {
    require(map && reinterpret_cast<uintptr_t>(map) % 64 == 0 && l2Promotion >= 0 && l2Promotion <= 3);
    if (auto wrong = encodeTiled(*map, dataType, rank, address, sizes, strides, box, elementStrides, interleave,
                                 swizzle, fill)) {
      std::cerr << "cuTensorMapEncodeTiled: " << *wrong << std::endl;
      fail(InvalidValue);
    }
  });
}

// ---- what the tests' libnccl.so.2 needs of this library (Nccl.cpp)

// Gives a stream work that exchanges memory with other processes: advance(exchange) returns whether it is done. Fails
// if the stream captures.
API xfcPtxEnqueue(Stream *stream, const char *what, int (*advance)(void *), void *exchange) {
  return call(2, [&](State &s) {
    mustNotCapture(streamOf(s, stream));
    enqueue(s, stream, what, [advance, exchange] { return advance(exchange) != 0; });
  });
}
// Device memory that the work which is running reads or writes.
API xfcPtxRead(void *to, uint64_t from, size_t bytes) {
  return call(0, [&](State &s) {
    mustBeDevice(s, from, bytes);
    touch(s, from, bytes, false);
    s.interpreter.read(to, from, bytes);
  });
}
API xfcPtxWrite(uint64_t to, const void *from, size_t bytes) {
  return call(0, [&](State &s) {
    mustBeDevice(s, to, bytes);
    touch(s, to, bytes, true);
    s.interpreter.write(to, from, bytes);
  });
}
// Runs a stream's work as far as that is possible without waiting: other processes may wait for it.
API xfcPtxAdvance(Stream *stream) {
  return call(0, [&](State &s) {
    if (std::count(s.streams.begin(), s.streams.end(), stream) && !s.sticky)
      advance(*stream);
  });
}

// ---- errors

API cuGetErrorName(int code, const char **name) {
  for (auto &e : errors)
    if (e.code == code) {
      *name = e.name;
      return Success;
    }
  *name = nullptr;
  return InvalidValue;
}
API cuGetErrorString(int code, const char **text) {
  for (auto &e : errors)
    if (e.code == code) {
      *text = e.text;
      return Success;
    }
  *text = nullptr;
  return InvalidValue;
}
