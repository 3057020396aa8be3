// A device: memory, and launches of kernels over it, by which programs run. The engine decides on the memory layout and
// on what runs; a device does not know the model.
#pragma once

#include "device/ThreadPool.h"
#include "plan/Launch.h"
#include "plan/Layout.h"
#include "trace/Trace.h"
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace xfc {

// Memory of a device, freed with its owner. If it is host memory, kernels may read up to one vector past its end.
class DeviceMemory {
public:
  virtual ~DeviceMemory() = default;
  void *data() const { return begin; }
  int64_t bytes() const { return size; }

protected:
  void *begin = nullptr;
  int64_t size = 0;
};

// A bound argument of a program, in host memory or in device memory.
struct BoundArgument {
  void *data = nullptr;
  int64_t stride = 0; // elements between rows; 0 for a scalar
  bool onDevice = false;
  bool operator==(const BoundArgument &) const = default;
};

// A result in host memory, valid until the next run of any program.
struct View {
  const Output *output = nullptr;
  const void *data = nullptr;
  int64_t stride = 0; // elements between rows
  // Element j of row i, whatever the type.
  double at(int64_t i, int64_t j = 0) const;
};

// A result of one run, copied or being copied to the host: later runs do not change it. The next result that is fetched
// into it reuses its memory.
class Readback {
public:
  virtual ~Readback() = default;
  // Waits for the copy. The view is valid until another result is fetched into this object.
  virtual View view() const = 0;
};

struct ProgramRun;

// Is called while a program runs, by the thread that runs it.
class StepObserver {
public:
  virtual ~StepObserver() = default;
  // On a device that uses host memory, the steps before this one are complete, and it has not begun. Any other device
  // has been given the steps before it, and is given later what the observer gives it now.
  virtual void before(const ProgramRun &run, int64_t step) = 0;
  // The only steps, ascending, at which a device with memory of its own calls it: there, it is given the program in
  // parts. They must not change while the device runs the program again and again.
  virtual std::span<const int64_t> stops() const { return {}; }
};

// The devices of several processes, one in each, which exchange memory among themselves. All processes start the same
// exchanges in the same order.
class Peers {
public:
  virtual ~Peers() = default;
  struct Part { // device memory to send to another process, or to receive from it
    int rank;
    void *data;
    int64_t bytes;
  };
  // Starts to send and to receive all of these parts, none of them to or from this process, once the device has done
  // what it was given so far; what it is given later may run at the same time. Parts sent to the same process arrive in
  // order.
  virtual void start(std::span<const Part> sends, std::span<const Part> receives) = 0;
  // What the device is given from now on runs after all exchanges that were started. The host does not wait.
  virtual void wait() = 0;
};

// A run of a program: the batch, and the addresses of the places of its steps.
struct ProgramRun {
  const Program *program = nullptr;
  Layout layout;
  Counts capacity;                  // the layout fits any batch within these
  const xfc_shape *shape = nullptr; // in host memory
  Counts counts;                    // of the batch
  char *arena = nullptr, *parameters = nullptr;
  char *const *states = nullptr; // of the optimizer
  void *const *packed = nullptr, *const *tables = nullptr;
  std::vector<BoundArgument> arguments;
  StepObserver *observer = nullptr;
  // A number that changes whenever any of these addresses does, except those of arguments.
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
    return arena + place.offset;
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

// Elements between the rows of a result; 0 if it has no rows.
inline int64_t strideOf(const ProgramRun &run, const Output &output) {
  const bool bound = output.place.kind == Place::Kind::Argument && output.set >= 0;
  return bound ? run.arguments[output.place.index].stride : output.stride;
}
// The same, but for dense rows, which may have stride 0, the number of features.
inline int64_t rowStrideOf(const ProgramRun &run, const Output &output) {
  const int64_t stride = strideOf(run, output);
  return stride ? stride : featuresOf(output);
}

inline int64_t rowsOf(const Output &output, const Counts &counts) {
  return output.set >= 0 ? counts.rows[output.set] : output.keys >= 0 ? counts.pairs[output.keys] : 1;
}

// A weight to be packed: `chunks` chunks of the kernel turn the plain weight into the packed one.
struct PackRun {
  int32_t kernel = 0;
  int64_t chunks = 1;
  void *from = nullptr, *to = nullptr;
  int64_t fromBytes = 0, toBytes = 0; // from `from` to the end of the parameters; of the packed weight
  bool operator==(const PackRun &) const = default;
};

// One launch of a kernel, recorded for `bench --profile` while a list is set.
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

// A launch as the timeline shows it, without its times. A reduction adds up the partial sums of another launch of the
// step; the operations are counted there. Without a step, the launch packs a weight.
TraceEvent eventOf(const Kernel &kernel, const Program *program, const Step *step, const Counts &counts,
                   bool reduces = false);

// How devices differ, as far as others need to know: nobody asks which device it is.
struct DeviceTraits {
  bool hostMemory;  // device memory is host memory: nothing is copied between the two, and it is committed when touched
  bool hostThreads; // the host's threads compute: a result is read without waiting, and a StepObserver sees each step
  bool keepsLayouts; // what the device keeps of a layout is worth more than the memory that a smaller one would save
  const char *word;  // in results that programs read: cpu, gpu
  const char *named; // what name() is the name of, in messages
  const char *owner; // of its memory, in messages
};

class Device {
public:
  virtual ~Device() = default;
  // The plan of the image that the device was opened with. The caller deserializes it and calls load() once, before
  // preparing a program, with the resulting module and the host's threads; both must outlive the device.
  virtual ImagePlan plan() const = 0;
  virtual void load(const Module &module, ThreadPool &pool) = 0;
  // Another device for the same image, not loaded, whose programs may read this one's memory at any time. Null: there
  // is none, as the memory is not the host's.
  virtual std::unique_ptr<Device> another() const { return nullptr; }

  virtual const char *kind() const = 0; // as --device spells it
  virtual std::string name() const = 0; // human-readable
  virtual const DeviceTraits &traits() const = 0;
  // Whether programs that have a persistent kernel run as one launch, for which the device keeps tables.
  virtual bool runsPersistent() const { return false; }

  // Zeroed memory. Throws Error naming `what` if there is not enough. Parts of `sparse` memory may never be touched.
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t bytes, const char *what, bool sparse = false) = 0;
  // Bytes that could still be allocated, or 0 if unknown.
  virtual int64_t available() const = 0;
  virtual void copyToDevice(void *to, const void *from, int64_t bytes) = 0;
  virtual void copyToHost(void *to, const void *from, int64_t bytes) = 0;
  virtual void copyOnDevice(void *to, const void *from, int64_t bytes) = 0;

  // Several processes that use a device each, with memory of its own. Two of them must not use the same, which is the
  // one with the same identity. One process calls newGroup() and tells the others what it returns; then all join the
  // group at the same time, and wait for each other. The peers must not outlive the device. A device that uses host
  // memory has no need of this, and throws Error.
  virtual std::string identity() const;
  virtual std::string newGroup();
  virtual std::unique_ptr<Peers> join(const std::string &group, int rank, int size);

  // Called once before a program runs.
  virtual void prepare(const Program &program) = 0;
  // With DeviceTraits::hostMemory, `between`, if given, is called after every few megabytes and after the last ones,
  // while no thread packs, with the number of weights that have been packed or begun.
  virtual void pack(std::span<const PackRun> runs, const std::function<void(size_t begun)> &between = {}) = 0;
  // Copies the next batch of the program while the device computes, if copying takes time. What the run reads from the
  // host must not change until then.
  virtual void stage(const ProgramRun &) {}
  // May return before the run has ended; reading a result waits for it.
  virtual void run(const ProgramRun &run) = 0;
  // Copies rows of a result of the program's last run: row i becomes row to[i] of `rows`, dense rows in device memory.
  virtual void copyRows(const ProgramRun &run, const Output &output, void *rows, std::span<const int32_t> to) = 0;
  // A result of the program's last run.
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
