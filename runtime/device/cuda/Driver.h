// NVIDIA's driver: the functions we call, looked up in libcuda.so.1 when a GPU is requested. Types and constants are
// declared here, so that building needs no header or library of CUDA, and an executable also runs where there is none.
#pragma once

#include "device/cuda/LibraryFunction.h"
#include "support/Error.h"
#include <cstddef>
#include <cstdint>
#include <string>

namespace xfc::cuda {

using Result = int;       // CUresult; 0 is success
using Address = uint64_t; // CUdeviceptr
using DeviceNumber = int; // CUdevice
using Context = struct ContextObject *;
using ModuleHandle = struct ModuleObject *;
using FunctionHandle = struct FunctionObject *;
using Stream = struct StreamObject *;
using Event = struct EventObject *;
using Graph = struct GraphObject *;
using GraphExec = struct GraphExecObject *;

// CUDA_MEMCPY2D. Memory types: 1 host, 2 device.
struct Copy2D {
  size_t sourceX = 0, sourceY = 0;
  uint32_t sourceType = 2;
  const void *sourceHost = nullptr;
  Address source = 0;
  void *sourceArray = nullptr;
  size_t sourcePitch = 0;
  size_t targetX = 0, targetY = 0;
  uint32_t targetType = 2;
  void *targetHost = nullptr;
  Address target = 0;
  void *targetArray = nullptr;
  size_t targetPitch = 0;
  size_t widthInBytes = 0, height = 0;
};

namespace error {
constexpr Result outOfMemory = 2, noDevice = 100, noBinaryForGpu = 209, eccUncorrectable = 214, invalidPtx = 218,
                 unsupportedPtxVersion = 222, notFound = 500, notReady = 600, cooperativeLaunchTooLarge = 720;
} // namespace error
namespace attribute {
constexpr int multiprocessors = 16, l2CacheBytes = 38, majorVersion = 75, minorVersion = 76, cooperativeLaunch = 95,
              sharedMemoryPerBlock = 97;  // of a device
constexpr int maxDynamicSharedMemory = 8; // of a function
} // namespace attribute
namespace flag {
constexpr unsigned streamNonBlocking = 1, eventDisableTiming = 2;
constexpr int captureThreadLocal = 1;
constexpr int jitErrorLog = 5, jitErrorLogBytes = 6; // options of cuModuleLoadDataEx
} // namespace flag

// CUuuid: of a GPU, or of an instance that shares one with others (MIG).
struct Uuid {
  unsigned char bytes[16] = {};
};

class Driver {
  void *library; // opened before the functions are looked up

public:
  // Throws Error if there is no driver, or it does not start.
  Driver();
  Driver(const Driver &) = delete;

  static constexpr Result notFound = error::notFound;
  template <typename... P> using F = LibraryFunction<Driver, P...>;
  F<Result, const char **> getErrorName{*this, "cuGetErrorName"}, getErrorString{*this, "cuGetErrorString"};
  F<unsigned> init{*this, "cuInit"};
  F<int *> getVersion{*this, "cuDriverGetVersion"};
  F<int *> getDeviceCount{*this, "cuDeviceGetCount"};
  F<DeviceNumber *, int> getDevice{*this, "cuDeviceGet"};
  F<char *, int, DeviceNumber> getDeviceName{*this, "cuDeviceGetName"};
  F<int *, int, DeviceNumber> getDeviceAttribute{*this, "cuDeviceGetAttribute"};
  F<Uuid *, DeviceNumber> getDeviceUuid{*this, "cuDeviceGetUuid_v2", "cuDeviceGetUuid"};
  F<Context *, DeviceNumber> retainContext{*this, "cuDevicePrimaryCtxRetain"};
  F<DeviceNumber> releaseContext{*this, "cuDevicePrimaryCtxRelease_v2"};
  F<Context> setContext{*this, "cuCtxSetCurrent"};
  F<> synchronize{*this, "cuCtxSynchronize"};
  F<size_t *, size_t *> getMemoryInfo{*this, "cuMemGetInfo_v2"}; // free, total
  F<Address *, size_t> allocate{*this, "cuMemAlloc_v2"};
  F<Address> free{*this, "cuMemFree_v2"};
  F<void **, size_t> allocateHost{*this, "cuMemAllocHost_v2"};
  F<void *> freeHost{*this, "cuMemFreeHost"};
  F<Address, const void *, size_t> copyToDevice{*this, "cuMemcpyHtoD_v2"};
  F<void *, Address, size_t> copyToHost{*this, "cuMemcpyDtoH_v2"};
  F<Address, const void *, size_t, Stream> copyToDeviceAsync{*this, "cuMemcpyHtoDAsync_v2"};
  F<void *, Address, size_t, Stream> copyToHostAsync{*this, "cuMemcpyDtoHAsync_v2"};
  F<Address, Address, size_t, Stream> copyOnDeviceAsync{*this, "cuMemcpyDtoDAsync_v2"};
  F<const Copy2D *, Stream> copy2DAsync{*this, "cuMemcpy2DAsync_v2"};
  F<Address, unsigned char, size_t, Stream> setBytesAsync{*this, "cuMemsetD8Async"};
  F<ModuleHandle *, const void *, unsigned, int *, void **> loadModule{*this, "cuModuleLoadDataEx"};
  F<ModuleHandle> unloadModule{*this, "cuModuleUnload"};
  F<FunctionHandle *, ModuleHandle, const char *> getFunction{*this, "cuModuleGetFunction"};
  F<FunctionHandle, int, int> setFunctionAttribute{*this, "cuFuncSetAttribute"};
  F<FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void **, void **>
      launch{*this, "cuLaunchKernel"};
  // All blocks run at the same time, so that they may wait for each other.
  F<FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void **>
      launchCooperative{*this, "cuLaunchCooperativeKernel"};
  // The blocks of a function that a multiprocessor has room for, given their threads and dynamic shared memory.
  F<int *, FunctionHandle, int, size_t> getOccupancy{*this, "cuOccupancyMaxActiveBlocksPerMultiprocessor"};
  F<Stream *, unsigned> createStream{*this, "cuStreamCreate"};
  F<Stream> destroyStream{*this, "cuStreamDestroy_v2"}, synchronizeStream{*this, "cuStreamSynchronize"};
  F<Stream, int> beginCapture{*this, "cuStreamBeginCapture_v2"};
  F<Stream, Graph *> endCapture{*this, "cuStreamEndCapture"};
  F<GraphExec *, Graph, uint64_t> instantiateGraph{*this, "cuGraphInstantiateWithFlags"};
  F<GraphExec, Stream> launchGraph{*this, "cuGraphLaunch"};
  F<GraphExec> destroyGraphExec{*this, "cuGraphExecDestroy"};
  F<Graph> destroyGraph{*this, "cuGraphDestroy"};
  F<Event *, unsigned> createEvent{*this, "cuEventCreate"};
  F<Event, Stream> recordEvent{*this, "cuEventRecord"};
  F<Stream, Event, unsigned> waitForEvent{*this, "cuStreamWaitEvent"};
  F<Event> queryEvent{*this, "cuEventQuery"}, synchronizeEvent{*this, "cuEventSynchronize"},
      destroyEvent{*this, "cuEventDestroy_v2"};
  F<float *, Event, Event> elapsedTime{*this, "cuEventElapsedTime_v2", "cuEventElapsedTime"};

  // "12.8"
  static std::string versionText(int version);

  // For LibraryFunction.
  void *find(const char *name) const; // null where this driver lacks it
  [[noreturn]] void fail(const char *function, Result result) const;
  [[noreturn]] void lacks(const char *function) const;
};

} // namespace xfc::cuda
