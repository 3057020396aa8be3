// Uses the tests' libcuda.so.1 as an executable does: opens it by name and finds every function with dlsym.
#include "Fixture.h"
#include <array>
#include <dlfcn.h>
#include <functional>
#include <future>

using namespace xfc::ptx::test;

namespace {

// y[i] = y[i] * factor + x[i] for i < n, one thread per element.
const std::string saxpy = ".version 7.1\n.target sm_80\n.address_size 64\n"
                          R"(
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 factor, .param .u32 n)
{
.reg .b64 %x, %y; .reg .b32 %i, %c, %n, %t; .reg .f32 %f, %a, %b; .reg .pred %p;
ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; ld.param.f32 %f, [factor]; ld.param.u32 %n, [n];
mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %i, %ntid.x; mad.lo.u32 %i, %c, %i, %t;
setp.ge.u32 %p, %i, %n; @%p ret;
mad.wide.u32 %x, %i, 4, %x; mad.wide.u32 %y, %i, 4, %y;
ld.global.f32 %a, [%x]; ld.global.f32 %b, [%y]; fma.rn.f32 %b, %b, %f, %a; st.global.f32 [%y], %b;
ret;
}
.extern .shared .align 16 .b8 dynamic[];
.visible .entry wild(.param .u64 x) { .reg .b64 %x; ld.param.u64 %x, [x]; st.global.u32 [%x], 1; ret; }
)";

using Handle = void *;
using Address = uint64_t;

// Closes and reopens the library for each environment, because a separate process for each would be slow.
class Driver : public testing::Test {
protected:
  void open(std::vector<std::pair<const char *, const char *>> environment = {}) {
    for (const char *name : {"XFC_PTX_DRIVER_VERSION", "XFC_PTX_DEVICES", "XFC_PTX_ARCH", "XFC_PTX_MEMORY",
                             "XFC_PTX_LOST_AFTER", "XFC_PTX_CHECK", "XFC_PTX_THREADS", "XFC_PTX_TRACE",
                             "XFC_PTX_PROCESSORS", "XFC_PTX_COOPERATIVE", "XFC_PTX_ORDER"})
      unsetenv(name);
    for (auto [name, value] : environment)
      setenv(name, value, 1);
    library = dlopen(XFC_PTX_DRIVER, RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(library) << dlerror();
  }
  void TearDown() override {
    ASSERT_EQ(dlclose(library), 0);
    ASSERT_EQ(dlopen(XFC_PTX_DRIVER, RTLD_NOLOAD | RTLD_NOW), nullptr) << "the next test would see this one's state";
  }
  template <class... P> int call(const char *name, P... parameters) {
    void *symbol = dlsym(library, name);
    EXPECT_TRUE(symbol) << name;
    return symbol ? reinterpret_cast<int (*)(P...)>(symbol)(parameters...) : -1;
  }
  void start() {
    ASSERT_EQ(call("cuInit", 0u), 0);
    Handle context = nullptr;
    ASSERT_EQ(call("cuDevicePrimaryCtxRetain", &context, 0), 0);
    ASSERT_EQ(call("cuCtxSetCurrent", context), 0);
  }
  int load(const std::string &text, std::string *log = nullptr) {
    std::vector<char> buffer(200);
    int options[] = {5, 6};
    void *values[] = {buffer.data(), reinterpret_cast<void *>(buffer.size())};
    int code = call("cuModuleLoadDataEx", &module, static_cast<const void *>(text.c_str()), 2u, +options, +values);
    if (log)
      *log = buffer.data();
    return code;
  }
  Handle function(const char *name) {
    Handle f = nullptr;
    EXPECT_EQ(call("cuModuleGetFunction", &f, module, name), 0);
    return f;
  }
  Address allocate(size_t bytes) {
    Address address = 0;
    EXPECT_EQ(call("cuMemAlloc_v2", &address, bytes), 0);
    return address;
  }
  Handle stream(unsigned flags = 1) {
    Handle s = nullptr;
    EXPECT_EQ(call("cuStreamCreate", &s, flags), 0);
    return s;
  }
  int launch(Handle f, unsigned grid, unsigned block, Handle on, std::vector<void *> parameters, unsigned shared = 0) {
    return call("cuLaunchKernel", f, grid, 1u, 1u, block, 1u, 1u, shared, on, parameters.data(),
                static_cast<void **>(nullptr));
  }
  std::vector<float> read(Address from, size_t n) {
    std::vector<float> values(n);
    EXPECT_EQ(call("cuMemcpyDtoH_v2", static_cast<void *>(values.data()), from, 4 * n), 0);
    return values;
  }
  float *pinned(size_t n) {
    void *p = nullptr;
    EXPECT_EQ(call("cuMemAllocHost_v2", &p, 4 * n), 0);
    return static_cast<float *>(p);
  }

  void *library = nullptr;
  Handle module = nullptr;
};

TEST_F(Driver, DescribesTheDevice) {
  open({{"XFC_PTX_ARCH", "86"}, {"XFC_PTX_MEMORY", "1000000"}});
  int value = 0, device = -1;
  EXPECT_EQ(call("cuDeviceGetCount", &value), 3); // not initialized
  EXPECT_EQ(call("cuCtxSynchronize"), 3);
  EXPECT_EQ(call("cuInit", 0u), 0);
  EXPECT_EQ(call("cuCtxSynchronize"), 201); // no context
  start();
  EXPECT_EQ(call("cuDriverGetVersion", &value), 0);
  EXPECT_EQ(value, 12080);
  EXPECT_EQ(call("cuDeviceGetCount", &value), 0);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(call("cuDeviceGet", &device, 0), 0);
  EXPECT_EQ(call("cuDeviceGet", &device, 1), 101);
  EXPECT_EQ(call("cuDeviceGetAttribute", &value, 75, 0), 0);
  EXPECT_EQ(value, 8);
  EXPECT_EQ(call("cuDeviceGetAttribute", &value, 76, 0), 0);
  EXPECT_EQ(value, 6);
  EXPECT_EQ(call("cuDeviceGetAttribute", &value, 97, 0), 0);
  EXPECT_EQ(value, 99 * 1024);
  char name[40];
  EXPECT_EQ(call("cuDeviceGetName", +name, 40, 0), 0);
  EXPECT_STREQ(name, "PTX interpreter (sm_86)");
  size_t left = 0, total = 0;
  Address a = allocate(600000);
  EXPECT_EQ(call("cuMemGetInfo_v2", &left, &total), 0);
  EXPECT_EQ(left, 400000u);
  EXPECT_EQ(total, 1000000u);
  EXPECT_EQ(call("cuMemAlloc_v2", &a, size_t(400001)), 2);
  const char *text = nullptr;
  EXPECT_EQ(call("cuGetErrorName", 700, &text), 0);
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EQ(call("cuGetErrorString", 2, &text), 0);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(call("cuGetErrorName", 12345, &text), 1);
}

// As many blocks as have room on the device at the same time.
TEST_F(Driver, CooperativeLaunches) {
  open({{"XFC_PTX_PROCESSORS", "3"}});
  start();
  ASSERT_EQ(load(saxpy), 0);
  Handle f = function("saxpy"), s = stream();
  Address x = allocate(4096), y = allocate(4096);
  float factor = 0;
  uint32_t n = 0;
  int value = 0;
  auto cooperative = [&](unsigned grid, unsigned threads) {
    void *parameters[] = {&x, &y, &factor, &n};
    return call("cuLaunchCooperativeKernel", f, grid, 1u, 1u, threads, 1u, 1u, 0u, s, +parameters);
  };
  EXPECT_EQ(call("cuDeviceGetAttribute", &value, 16, 0), 0);
  EXPECT_EQ(value, 3);
  EXPECT_EQ(call("cuDeviceGetAttribute", &value, 95, 0), 0);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(call("cuOccupancyMaxActiveBlocksPerMultiprocessor", &value, f, 1024, size_t(0)), 0);
  EXPECT_EQ(value, 2);
  EXPECT_EQ(call("cuOccupancyMaxActiveBlocksPerMultiprocessor", &value, f, 128, size_t(49152)), 0);
  EXPECT_EQ(value, 3); // of 164 KiB
  EXPECT_EQ(call("cuOccupancyMaxActiveBlocksPerMultiprocessor", &value, f, 128, size_t(49153)), 0);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(cooperative(6, 1024), 0);
  EXPECT_EQ(cooperative(7, 1024), 720);
  EXPECT_EQ(call("cuStreamSynchronize", s), 0);
  TearDown();
  open({{"XFC_PTX_COOPERATIVE", "0"}});
  start();
  ASSERT_EQ(load(saxpy), 0);
  f = function("saxpy"), s = stream();
  EXPECT_EQ(call("cuDeviceGetAttribute", &value, 95, 0), 0);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(cooperative(1, 128), 801);
}

TEST_F(Driver, RunsKernelsAndCopies) {
  open({{"XFC_PTX_THREADS", "2"}});
  start();
  ASSERT_EQ(load(saxpy), 0);
  Handle f = function("saxpy"), s = stream();
  constexpr uint32_t n = 300;
  float *x = pinned(n), *y = pinned(n), factor = 3;
  for (uint32_t i = 0; i < n; ++i)
    x[i] = float(i), y[i] = 1;
  Address dx = allocate(4 * n), dy = allocate(4 * n);
  Handle from = nullptr, to = nullptr;
  EXPECT_EQ(call("cuEventCreate", &from, 0u), 0);
  EXPECT_EQ(call("cuEventCreate", &to, 0u), 0);
  EXPECT_EQ(call("cuMemcpyHtoDAsync_v2", dx, static_cast<const void *>(x), size_t(4 * n), s), 0);
  EXPECT_EQ(call("cuMemcpyHtoDAsync_v2", dy, static_cast<const void *>(y), size_t(4 * n), s), 0);
  EXPECT_EQ(call("cuEventRecord", from, s), 0);
  uint32_t count = n;
  EXPECT_EQ(launch(f, 3, 128, s, {&dx, &dy, &factor, &count}), 0);
  factor = 100; // the parameters have already been read
  EXPECT_EQ(call("cuEventRecord", to, s), 0);
  float time = 0;
  EXPECT_EQ(call("cuEventElapsedTime_v2", &time, from, to), 600);
  EXPECT_EQ(call("cuMemcpyDtoHAsync_v2", static_cast<void *>(y), dy, size_t(4 * n), s), 0);
  EXPECT_EQ(y[5], 1) << "the copy is asynchronous";
  EXPECT_EQ(call("cuStreamSynchronize", s), 0);
  EXPECT_EQ(call("cuEventElapsedTime_v2", &time, from, to), 0);
  for (uint32_t i = 0; i < n; ++i)
    ASSERT_EQ(y[i], 3 + float(i));
  // Copies columns 1 and 2 of a 4 by 3 matrix to the host.
  struct {
    size_t fromX = 4, fromY = 0;
    int fromType = 2;
    const void *fromHost = nullptr;
    Address from;
    void *fromArray = nullptr;
    size_t fromPitch = 16, toX = 0, toY = 0;
    int toType = 1;
    void *toHost;
    Address to = 0;
    void *toArray = nullptr;
    size_t toPitch = 8, width = 8, height = 3;
  } copy;
  float part[6];
  copy.from = dx;
  copy.toHost = part;
  EXPECT_EQ(call("cuMemcpy2DAsync_v2", static_cast<const void *>(&copy), s), 0);
  EXPECT_EQ(std::vector<float>(part, part + 6), (std::vector<float>{1, 2, 5, 6, 9, 10}));
  EXPECT_EQ(call("cuMemsetD8Async", dx, static_cast<unsigned char>(0), size_t(8), s), 0);
  EXPECT_EQ(call("cuMemcpyDtoDAsync_v2", dy, dx, size_t(12), s), 0);
  EXPECT_EQ(call("cuCtxSynchronize"), 0);
  EXPECT_EQ(read(dy, 3), (std::vector<float>{0, 0, 2}));
  // Launch limits.
  EXPECT_EQ(launch(f, 1, 32, s, {&dx, &dy, &factor, &count}, 49153), 1);
  EXPECT_EQ(call("cuFuncSetAttribute", f, 8, 99 * 1024), 0);
  EXPECT_EQ(launch(f, 1, 32, s, {&dx, &dy, &factor, &count}, 49153), 0);
  EXPECT_EQ(call("cuFuncSetAttribute", f, 8, 300 * 1024), 1);
  EXPECT_EQ(launch(f, 1, 1025, s, {&dx, &dy, &factor, &count}), 1);
  Handle none = nullptr;
  EXPECT_EQ(call("cuModuleGetFunction", &none, module, "nosuch"), 500);
  EXPECT_EQ(call("cuModuleUnload", module), 0);
  EXPECT_EQ(launch(f, 1, 32, s, {&dx, &dy, &factor, &count}), 400);
}

TEST_F(Driver, CapturesGraphsOverTwoStreams) {
  open();
  start();
  ASSERT_EQ(load(saxpy), 0);
  Handle f = function("saxpy"), a = stream(), b = stream(), forked = nullptr, joined = nullptr, graph = nullptr,
         exec = nullptr;
  float *x = pinned(4), *out = pinned(4), factor = 2;
  Address dx = allocate(16), dy = allocate(16);
  EXPECT_EQ(call("cuMemsetD8Async", dy, static_cast<unsigned char>(0), size_t(16), a), 0);
  EXPECT_EQ(call("cuStreamSynchronize", a), 0);
  EXPECT_EQ(call("cuEventCreate", &forked, 2u), 0);
  EXPECT_EQ(call("cuEventCreate", &joined, 2u), 0);
  uint32_t n = 4;
  auto record = [&](bool join) {
    EXPECT_EQ(call("cuStreamBeginCapture_v2", a, 1), 0);
    EXPECT_EQ(call("cuEventRecord", forked, a), 0);
    EXPECT_EQ(call("cuStreamWaitEvent", b, forked, 0u), 0);
    EXPECT_EQ(call("cuMemcpyHtoDAsync_v2", dx, static_cast<const void *>(x), size_t(16), b), 0);
    EXPECT_EQ(call("cuEventRecord", joined, b), 0);
    if (join) {
      EXPECT_EQ(call("cuStreamWaitEvent", a, joined, 0u), 0);
    }
    EXPECT_EQ(launch(f, 1, 4, a, {&dx, &dy, &factor, &n}), 0);
    EXPECT_EQ(call("cuMemcpyDtoHAsync_v2", static_cast<void *>(out), dy, size_t(16), a), 0);
    return call("cuStreamEndCapture", a, &graph);
  };
  EXPECT_EQ(record(false), 904);
  ASSERT_EQ(record(true), 0);
  EXPECT_EQ(call("cuGraphInstantiateWithFlags", &exec, graph, 0ull), 0);
  EXPECT_EQ(call("cuGraphDestroy", graph), 0);
  for (int i = 0; i < 4; ++i)
    out[i] = -1;
  EXPECT_EQ(call("cuCtxSynchronize"), 0);
  EXPECT_EQ(out[0], -1) << "capturing runs nothing";
  float want = 0;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i)
      x[i] = float(round + 1);
    EXPECT_EQ(call("cuGraphLaunch", exec, a), 0);
    EXPECT_EQ(call("cuStreamSynchronize", a), 0);
    want = want * 2 + float(round + 1);
    EXPECT_EQ(out[3], want);
  }
  // Calls that are invalid while a stream captures.
  EXPECT_EQ(call("cuStreamBeginCapture_v2", a, 1), 0);
  EXPECT_EQ(call("cuStreamSynchronize", a), 900);
  EXPECT_EQ(call("cuStreamEndCapture", a, &graph), 901);
  EXPECT_EQ(call("cuGraphExecDestroy", exec), 0);
  EXPECT_EQ(call("cuGraphLaunch", exec, a), 400);
}

// While a stream captures, calls that may wait for streams are refused in the threads that the capture's mode names.
TEST_F(Driver, RefusesUnsafeCallsWhileAStreamCaptures) {
  open();
  start();
  Handle a = stream(), graph = nullptr;
  auto allocates = [&] {
    Address address = 0;
    const int status = call("cuMemAlloc_v2", &address, size_t(4));
    return status == 0 ? call("cuMemFree_v2", address) : status;
  };
  Handle context = nullptr;
  EXPECT_EQ(call("cuDevicePrimaryCtxRetain", &context, 0), 0);
  auto allocatesElsewhere = [&] {
    return std::async(std::launch::async,
                      [&] {
                        EXPECT_EQ(call("cuCtxSetCurrent", context), 0);
                        return allocates();
                      })
        .get();
  };
  const int all = 0, own = 1, none = 2;
  for (auto [mode, here, elsewhere] : {std::array{all, 900, 900}, {own, 900, 0}, {none, 0, 0}}) {
    for (bool inThisThread : {true, false}) {
      const int expected = inThisThread ? here : elsewhere;
      EXPECT_EQ(call("cuStreamBeginCapture_v2", a, mode), 0);
      EXPECT_EQ(inThisThread ? allocates() : allocatesElsewhere(), expected) << mode;
      EXPECT_EQ(call("cuStreamEndCapture", a, &graph), expected ? 901 : 0) << mode;
    }
  }
  EXPECT_EQ(call("cuStreamBeginCapture_v2", a, none), 0);
  EXPECT_EQ(call("cuCtxSynchronize"), 900) << "it waits for the stream that captures, whatever the mode";
  EXPECT_EQ(call("cuStreamEndCapture", a, &graph), 901);
}

// A stream that waits for an event runs after the other stream's work, which nothing else waits for.
TEST_F(Driver, OrdersStreamsByEvents) {
  open();
  start();
  Handle a = stream(), b = stream(), event = nullptr;
  EXPECT_EQ(call("cuEventCreate", &event, 2u), 0);
  Address first = allocate(4), second = allocate(4);
  float *x = pinned(1), *y = pinned(1);
  *x = 5;
  EXPECT_EQ(call("cuMemcpyHtoDAsync_v2", first, static_cast<const void *>(x), size_t(4), a), 0);
  EXPECT_EQ(call("cuEventRecord", event, a), 0);
  EXPECT_EQ(call("cuStreamWaitEvent", b, event, 0u), 0);
  EXPECT_EQ(call("cuMemcpyDtoDAsync_v2", second, first, size_t(4), b), 0);
  EXPECT_EQ(call("cuMemcpyDtoHAsync_v2", static_cast<void *>(y), second, size_t(4), b), 0);
  EXPECT_EQ(call("cuStreamSynchronize", b), 0);
  EXPECT_EQ(*y, 5);
}

// Work of two streams on the same bytes, with and without synchronization.
TEST_F(Driver, FindsRacesBetweenStreams) {
  open({{"XFC_PTX_CHECK", "1"}});
  start();
  ASSERT_EQ(load(saxpy), 0);
  Handle f = function("saxpy"), a = stream(), b = stream(), event = nullptr, second = nullptr, graph = nullptr,
         exec = nullptr;
  EXPECT_EQ(call("cuEventCreate", &event, 2u), 0);
  EXPECT_EQ(call("cuEventCreate", &second, 2u), 0);
  Address x = allocate(64), y = allocate(64), z = allocate(64);
  float *from = pinned(16), *to = pinned(16), factor = 2;
  uint32_t n = 16;
  auto in = [&](Address at, Handle on, size_t bytes = 64) {
    EXPECT_EQ(call("cuMemcpyHtoDAsync_v2", at, static_cast<const void *>(from), bytes, on), 0);
  };
  auto out = [&](Address at, Handle on) {
    EXPECT_EQ(call("cuMemcpyDtoHAsync_v2", static_cast<void *>(to), at, size_t(64), on), 0);
  };
  auto kernel = [&](Handle on) { EXPECT_EQ(launch(f, 1, 16, on, {&x, &y, &factor, &n}), 0); };
  auto order = [&](Handle event, Handle first, Handle then) {
    EXPECT_EQ(call("cuEventRecord", event, first), 0);
    EXPECT_EQ(call("cuStreamWaitEvent", then, event, 0u), 0);
  };
  auto meet = [&] { return call("cuCtxSynchronize"); };
  // Ordered: by events, also through a third stream; by a wait on the host; if both only read; if the bytes are
  // disjoint.
  in(x, a), in(y, a), order(event, a, b), kernel(b), order(second, b, a), out(y, a);
  EXPECT_EQ(meet(), 0);
  in(x, a);
  EXPECT_EQ(call("cuStreamSynchronize", a), 0);
  kernel(b);
  EXPECT_EQ(call("cuEventRecord", event, b), 0);
  EXPECT_EQ(call("cuEventSynchronize", event), 0);
  in(x, a), out(y, b);
  EXPECT_EQ(meet(), 0);
  EXPECT_EQ(call("cuMemcpyDtoDAsync_v2", z, x, size_t(32), a), 0);
  EXPECT_EQ(call("cuMemcpyDtoDAsync_v2", z + 32, x, size_t(32), b), 0);
  EXPECT_EQ(meet(), 0);
  Handle c = stream();
  in(x, a), order(event, a, c), order(second, c, b), kernel(b);
  EXPECT_EQ(meet(), 0);
  // A graph is checked like the work it holds.
  EXPECT_EQ(call("cuStreamBeginCapture_v2", a, 1), 0);
  kernel(a);
  EXPECT_EQ(call("cuStreamEndCapture", a, &graph), 0);
  EXPECT_EQ(call("cuGraphInstantiateWithFlags", &exec, graph, 0ull), 0);
  EXPECT_EQ(call("cuGraphLaunch", exec, a), 0);
  order(event, a, b), out(y, b);
  EXPECT_EQ(meet(), 0);
  TearDown();

  // Nothing orders the following pairs. A device is unusable after a fault, so each pair gets a new one.
  const std::pair<const char *, std::function<void()>> races[] = {
      {"kernel saxpy on stream 2 reads what copy of 64 bytes to the device on stream 1 writes",
       [&] { in(x, a), kernel(b); }},
      {"copy of 4 bytes to the device on stream 2 writes what kernel saxpy on stream 1 reads",
       [&] { kernel(a), in(x + 60, b, 4); }},
      {"copy of 64 bytes to the host on stream 2 reads what graph on stream 1 writes",
       [&] {
         EXPECT_EQ(call("cuStreamBeginCapture_v2", a, 1), 0);
         kernel(a);
         EXPECT_EQ(call("cuStreamEndCapture", a, &graph), 0);
         EXPECT_EQ(call("cuGraphInstantiateWithFlags", &exec, graph, 0ull), 0);
         EXPECT_EQ(call("cuGraphLaunch", exec, a), 0);
         out(y, b);
       }},
      {"copy of 64 bytes to the host on stream 2 writes what copy of 64 bytes to the host on stream 1 writes",
       [&] { out(x, a), out(y, b); }},
      {"copy of 64 bytes to the device on stream 2 writes what setting of 64 bytes on stream 1 writes",
       [&] {
         EXPECT_EQ(call("cuMemsetD8Async", x, static_cast<unsigned char>(0), size_t(64), a), 0);
         in(x, b);
       }},
      // The event is recorded too early.
      {"copy of 64 bytes to the device on stream 2 writes what kernel saxpy on stream 1 reads",
       [&] { order(event, a, b), kernel(a), in(x, b); }},
  };
  for (const auto &[reason, work] : races) {
    open({{"XFC_PTX_CHECK", "1"}});
    start();
    ASSERT_EQ(load(saxpy), 0);
    f = function("saxpy"), a = stream(), b = stream(), x = allocate(64), y = allocate(64), from = pinned(16),
    to = pinned(16);
    EXPECT_EQ(call("cuEventCreate", &event, 2u), 0);
    work();
    testing::internal::CaptureStderr();
    EXPECT_EQ(meet(), 700);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              std::string("race between streams: ") + reason + ": nothing orders the two\n");
    if (&work != &races[std::size(races) - 1].second)
      TearDown();
  }
}

// A tensor map passed as a kernel parameter, encoded by the driver.
TEST_F(Driver, EncodesTensorMaps) {
  open({{"XFC_PTX_ARCH", "90"}, {"XFC_PTX_CHECK", "1"}});
  start();
  ASSERT_EQ(load(".version 8.0\n.target sm_90a\n.address_size 64\n"
                 R"(
.shared .align 128 .b8 tile[64];
.shared .align 8 .b64 bar;
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out)
{
.reg .b64 %m, %out; .reg .b32 %x, %b, %t; .reg .pred %q;
mov.b64 %m, map; cvta.param.u64 %m, %m; ld.param.u64 %out, [out];
mov.u32 %b, bar; mov.u32 %t, tile;
mbarrier.init.shared::cta.b64 [%b], 1; fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 64;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%t], [%m, {4, 1}], [%b];
W: mbarrier.try_wait.parity.shared::cta.b64 %q, [%b], 0; @!%q bra W;
ld.shared.u32 %x, [%t+20]; st.global.u32 [%out], %x;
ret;
}
)"),
            0);
  std::vector<float> values(64);
  for (size_t k = 0; k < values.size(); ++k)
    values[k] = float(k);
  Address in = allocate(256), out = allocate(4);
  EXPECT_EQ(call("cuMemcpyHtoD_v2", in, static_cast<const void *>(values.data()), size_t(256)), 0);
  struct alignas(64) {
    char bytes[128];
  } map;
  const uint64_t sizes[] = {8, 8}, strides[] = {32};
  const unsigned box[] = {4, 4}, ones[] = {1, 1};
  auto encode = [&](Address address) {
    return call("cuTensorMapEncodeTiled", static_cast<void *>(&map), 7, 2u, address, +sizes, +strides, +box, +ones, 0,
                0, 0, 0);
  };
  EXPECT_EQ(encode(in + 4), 1);
  ASSERT_EQ(encode(in), 0);
  Handle f = function("k"), s = stream();
  EXPECT_EQ(launch(f, 1, 1, s, {&map, &out}), 0);
  EXPECT_EQ(call("cuStreamSynchronize", s), 0);
  EXPECT_EQ(read(out, 1)[0], values[2 * 8 + 5]); // row 1 and column 1 of the box
}

TEST_F(Driver, RefusesModules) {
  open();
  start();
  std::string log;
  EXPECT_EQ(load(std::string("\177ELF") + "cubin"), 209);
  EXPECT_EQ(load(".version 7.1\n.target sm_80\n.address_size 64\n.visible .entry k() { frob.b32 1; }", &log), 218);
  EXPECT_EQ(log, "PTX JIT: line 4: unknown instruction frob");
  EXPECT_EQ(load(".version 8.0\n.target sm_90a\n.address_size 64\n"), 209);
}

TEST_F(Driver, AnOldDriverOrDevice) {
  open({{"XFC_PTX_DRIVER_VERSION", "11040"}, {"XFC_PTX_ARCH", "75"}});
  start();
  int version = 0;
  EXPECT_EQ(call("cuDriverGetVersion", &version), 0);
  EXPECT_EQ(version, 11040);
  EXPECT_EQ(load(".version 8.0\n.target sm_70\n.address_size 64\n"), 222);
  EXPECT_EQ(load(".version 7.1\n.target sm_80\n.address_size 64\n"), 209);
  EXPECT_EQ(load(".version 7.1\n.target sm_70\n.address_size 64\n"), 0);
}

TEST_F(Driver, NoDevice) {
  open({{"XFC_PTX_DEVICES", "0"}});
  EXPECT_EQ(call("cuInit", 0u), 100);
}

TEST_F(Driver, ALostDevice) {
  open({{"XFC_PTX_LOST_AFTER", "2:214"}});
  start();
  ASSERT_EQ(load(saxpy), 0);
  Handle f = function("saxpy"), s = stream();
  Address a = allocate(4);
  float factor = 1;
  uint32_t n = 0;
  for (int k = 0; k < 3; ++k) {
    EXPECT_EQ(launch(f, 1, 1, s, {&a, &a, &factor, &n}), 0);
    EXPECT_EQ(call("cuStreamSynchronize", s), k < 2 ? 0 : 214);
  }
  EXPECT_EQ(call("cuMemAlloc_v2", &a, size_t(4)), 214);
  EXPECT_EQ(call("cuCtxSynchronize"), 214);
}

TEST_F(Driver, AFaultOfTheDevice) {
  open();
  start();
  ASSERT_EQ(load(saxpy), 0);
  Handle s = stream();
  Address a = allocate(4), wild = a + 4;
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch(function("wild"), 1, 1, s, {&wild}), 0);
  EXPECT_EQ(call("cuStreamSynchronize", s), 700);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "kernel wild, PTX line 16, block (0,0,0), thread (0,0,0): global memory out of bounds: 4 bytes at offset 4 "
            "of an allocation of 4 bytes\n");
  EXPECT_EQ(call("cuMemFree_v2", a), 700);
}

} // namespace
