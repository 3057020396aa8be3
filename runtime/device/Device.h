// What programs run on: memory, and launches of kernels over it. The engine decides what lies where and what runs; a
// device knows nothing of models.
#pragma once

#include "device/ThreadPool.h"
#include "plan/Launch.h"
#include "trace/Trace.h"
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace xfc {

// Memory of a device, given back with its owner. On a device whose memory is the host's, kernels may read a vector past
// its end.
class DeviceMemory {
public:
  virtual ~DeviceMemory() = default;
  void *data() const { return begin; }
  int64_t bytes() const { return size; }

protected:
  void *begin = nullptr;
  int64_t size = 0;
};

// An argument of a program as it is bound: memory of the host, or of the device.
struct BoundArgument {
  void *data = nullptr;
  int64_t stride = 0; // elements between rows; 0 for a scalar
  bool onDevice = false;
  bool operator==(const BoundArgument &) const = default;
};

// A result in the host's memory, valid until the next run of any program.
struct View {
  const Output *output = nullptr;
  const void *data = nullptr;
  int64_t stride = 0; // elements between rows
  // Element j of row i, whatever the type.
  double at(int64_t i, int64_t j = 0) const;
};

// A result of one run, on its way to the host or there: later runs do not change it. Its memory is used again by the
// next one.
class Readback {
public:
  virtual ~Readback() = default;
  // Waits for it. Valid until another result is fetched into this.
  virtual View view() const = 0;
};

// A run of a program: the batch, and where the places of its steps lie.
struct ProgramRun {
  const Program *program = nullptr;
  Layout layout;
  Counts capacity;                  // the layout holds any batch within these
  const xfc_shape *shape = nullptr; // of the host
  Counts counts;                    // of the batch
  char *arena = nullptr, *parameters = nullptr, *gradients = nullptr;
  char *const *states = nullptr; // of the optimizer
  void *const *packed = nullptr, *const *tables = nullptr;
  std::vector<BoundArgument> arguments;
  // A number that is another one whenever any of these addresses is, but for those of arguments.
  uint64_t placement = 0;
  void *address(const Place &place) const;
};

inline void *ProgramRun::address(const Place &place) const {
  switch (place.kind) {
  case Place::Kind::Arena:
    return arena + layout.offsets[place.index] + place.offset;
  case Place::Kind::Parameters:
    return parameters + place.offset;
  case Place::Kind::Gradients:
    return gradients + place.offset;
  case Place::Kind::State:
    return states[place.index] + place.offset;
  case Place::Kind::Packed:
    return packed[place.index];
  case Place::Kind::Table:
    return tables[place.index];
  case Place::Kind::Argument:
    return static_cast<char *>(arguments[place.index].data) + place.offset;
  case Place::Kind::None:
    return nullptr;
  }
  return nullptr;
}

// Elements between the rows of a result; 0 where it has none.
inline int64_t strideOf(const ProgramRun &run, const Output &output) {
  const bool bound = output.place.kind == Place::Kind::Argument && output.set >= 0;
  return bound ? run.arguments[output.place.index].stride : output.stride;
}
// The same, where rows that lie dense may leave it out.
inline int64_t rowStrideOf(const ProgramRun &run, const Output &output) {
  const int64_t stride = strideOf(run, output);
  return stride ? stride : featuresOf(output);
}

inline int64_t rowsOf(const Output &output, const Counts &counts) {
  return output.set >= 0 ? counts.rows[output.set] : output.keys >= 0 ? counts.pairs[output.keys] : 1;
}

// A weight to be packed: a run of `chunks` chunks of the kernel, from the plain weight to the packed one.
struct PackRun {
  int32_t kernel = 0;
  int64_t chunks = 1;
  void *from = nullptr, *to = nullptr;
  int64_t fromBytes = 0, toBytes = 0; // to the end of the parameters; of the packed weight
  bool operator==(const PackRun &) const = default;
};

// One launch of a kernel, recorded while a list of them is set: `bench --profile`.
struct LaunchTiming {
  const Kernel *kernel;
  const Step *step; // null: a weight is packed
  double seconds;
  double flops, bytes; // what the step does for the batch it ran with
};

// The serialized plan of the image that a device runs, and what the image says about it.
struct ImagePlan {
  template <typename Image> // xfc_image or xfc_device_image
  explicit ImagePlan(const Image &image)
      : abiVersion(image.abi_version), kernelCount(image.kernel_count), bytes(image.plan), size(image.plan_size) {}
  uint32_t abiVersion, kernelCount;
  const uint8_t *bytes;
  uint64_t size;
};

// A launch as the timeline has it, but for its times. A merging one goes on with what another launch of the step has
// begun, where the operations are counted. Without a step a weight is packed.
TraceEvent eventOf(const Kernel &kernel, const Program *program, const Step *step, const Counts &counts,
                   bool merges = false);

class Device {
public:
  virtual ~Device() = default;
  // The plan of the image it was opened with. Its user reads it and calls load() once, before preparing a program, with
  // the module it found there and the host's threads; both stay where they are.
  virtual ImagePlan plan() const = 0;
  virtual void load(const Module &module, ThreadPool &pool) = 0;

  virtual const char *kind() const = 0; // as --device names it
  virtual std::string name() const = 0; // what it is, for people
  // Whether its memory is the host's: then nothing is copied between the two.
  virtual bool isHost() const = 0;

  // Zeroed. Throws Error naming `what` where there is not enough. Of `sparse` memory a part may never be touched.
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t bytes, const char *what, bool sparse = false) = 0;
  // Bytes that could still be allocated, or 0 where nobody knows.
  virtual int64_t available() const = 0;
  virtual void copyToDevice(void *to, const void *from, int64_t bytes) = 0;
  virtual void copyToHost(void *to, const void *from, int64_t bytes) = 0;
  virtual void copyOnDevice(void *to, const void *from, int64_t bytes) = 0;

  // Called once before a program runs.
  virtual void prepare(const Program &program) = 0;
  // A device whose memory is the host's calls `between`, if it is given, after every few megabytes and after the last,
  // while it packs nothing.
  virtual void pack(std::span<const PackRun> runs, const std::function<void()> &between = {}) = 0;
  // Copies the batch that the program will run next while the device computes, where that takes time. Until then what
  // the run reads of the host stays as it is.
  virtual void stage(const ProgramRun &) {}
  // May return before the run has ended; what reads its results waits for it.
  virtual void run(const ProgramRun &run) = 0;
  // A result of the last run of the program, of rows: row i becomes row to[i] of `rows`, dense rows in memory of the
  // device.
  virtual void copyRows(const ProgramRun &run, const Output &output, void *rows, std::span<const int32_t> to) = 0;
  // A result of the last run of the program.
  virtual View output(const ProgramRun &run, const Output &output) = 0;
  // Starts the copy of such a result, without waiting for it.
  virtual void fetch(const ProgramRun &run, const Output &output, std::unique_ptr<Readback> &into) = 0;
  void profile(std::vector<LaunchTiming> *timings) { this->timings = timings; }
  void traceTo(Trace *trace) { this->trace = trace; }

protected:
  std::vector<LaunchTiming> *timings = nullptr;
  Trace *trace = nullptr;
};

} // namespace xfc
