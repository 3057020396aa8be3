// A GPU of NVIDIA's: kernels of the executable's cubin or PTX, launched as graphs over GPU memory.
#include "device/cuda/CudaDevice.h"
#include "device/cuda/Driver.h"
#include "device/cuda/Events.h"
#include "device/cuda/Peers.h"
#include "device/cuda/Staging.h"
#include "plan/StepTable.h"
#include "trace/Trace.h"
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <unistd.h>

namespace xfc::cuda {
namespace {

Address addressOf(const void *pointer) { return reinterpret_cast<Address>(pointer); }
std::string text(int64_t number) { return std::to_string(number); }

// Parses "sm_90a" into 90 and true; code for an architecture without a letter also runs on later ones.
struct Architecture {
  int number = 0;
  bool exact = false;
};
Architecture architectureOf(std::string_view name) {
  Architecture architecture;
  const char *number = name.data() + std::string_view("sm_").size(), *end = name.data() + name.size();
  architecture.exact = std::from_chars(number, end, architecture.number).ptr != end;
  return architecture;
}

class CudaMemory : public DeviceMemory {
public:
  CudaMemory(const Driver &driver, int64_t bytes, const char *what, Stream stream) : driver(driver) {
    if (bytes == 0)
      return;
    Address address = 0;
    if (const Result refused = driver.allocate.result(&address, bytes); refused == error::outOfMemory) {
      size_t free = 0, total = 0;
      driver.getMemoryInfo(&free, &total);
      throw Error("--device cuda: " + text(bytes) + " bytes of " + what +
                  " do not fit into the GPU's memory, of which " + text(static_cast<int64_t>(free)) + " of " +
                  text(static_cast<int64_t>(total)) + " bytes are free; use smaller batches (--batch-tokens)");
    } else if (refused) {
      driver.allocate(&address, bytes); // throws, with the reason
    }
    begin = reinterpret_cast<void *>(address);
    size = bytes;
    driver.setBytesAsync(address, 0, bytes, stream);
  }
  ~CudaMemory() override {
    if (begin)
      driver.free.result(addressOf(begin));
  }
  Address address() const { return addressOf(begin); }

private:
  const Driver &driver;
};

// Pinned host memory, which the GPU reads and writes while the host does other work.
class PinnedMemory {
public:
  PinnedMemory(const Driver &driver, int64_t bytes) : size(bytes), driver(driver) {
    driver.allocateHost(&memory, std::max<int64_t>(bytes, 1));
  }
  ~PinnedMemory() { driver.freeHost.result(memory); }
  char *data() const { return static_cast<char *>(memory); }
  const int64_t size;

private:
  const Driver &driver;
  void *memory = nullptr;
};

class CudaReadback : public Readback {
public:
  CudaReadback(const Driver &driver, const HostWait &wait) : wait(wait), copied(driver) {}
  View view() const override {
    wait.forEvent(copied);
    return {output, memory->data(), output->set >= 0 ? featuresOf(*output) : output->stride};
  }
  const HostWait &wait;
  const Output *output = nullptr;
  std::unique_ptr<PinnedMemory> memory;
  const OwnedEvent copied;
};

// One launch of a kernel, whose arguments lie in GPU memory at `call`.
struct Launch {
  FunctionHandle function;
  const Kernel *kernel;
  const Step *step; // null: a weight is packed
  Address call;
  int64_t chunks;
  bool reduces = false; // adds up the partial sums of another launch of the step
};

// A sequence of launches. The second run captures it as a graph, and from then on one call launches it: what runs only
// once is not worth capturing.
class LaunchList {
public:
  explicit LaunchList(const Driver &driver) : driver(driver) {}
  LaunchList(const LaunchList &) = delete;
  ~LaunchList() {
    if (graph)
      driver.destroyGraphExec.result(graph);
  }
  std::vector<Launch> launches;

  void run(Stream stream) {
    if (!graph && ++uses < 2)
      return issue(stream);
    if (!graph)
      capture(stream);
    driver.launchGraph(graph, stream);
  }

  // Issues the launches one after the other, then calls tell(launch, begin, end) for each, when its events have
  // completed.
  template <typename Tell> void runTimed(Stream stream, const HostWait &wait, Tell tell) {
    std::vector<std::unique_ptr<OwnedEvent>> events;
    for (const Launch &launch : launches) {
      events.push_back(std::make_unique<OwnedEvent>(driver, 0));
      driver.recordEvent(*events.back(), stream);
      issue(launch, stream);
    }
    events.push_back(std::make_unique<OwnedEvent>(driver, 0));
    driver.recordEvent(*events.back(), stream);
    wait.forEvent(*events.back());
    for (size_t i = 0; i < launches.size(); ++i)
      tell(launches[i], *events[i], *events[i + 1]);
  }

private:
  void issue(const Launch &launch, Stream stream) const {
    Address call = launch.call;
    void *parameters[] = {&call};
    driver.launch(launch.function, static_cast<unsigned>(launch.chunks), 1, 1,
                  static_cast<unsigned>(launch.kernel->threads), 1, 1, static_cast<unsigned>(launch.kernel->scratch),
                  stream, parameters, nullptr);
  }
  void issue(Stream stream) const {
    for (const Launch &launch : launches)
      issue(launch, stream);
  }
  void capture(Stream stream) {
    struct Captured {
      ~Captured() { driver.destroyGraph.result(graph); }
      const Driver &driver;
      Graph graph = nullptr;
    };
    driver.beginCapture(stream, flag::captureThreadLocal);
    issue(stream);
    Captured captured{driver};
    driver.endCapture(stream, &captured.graph);
    driver.instantiateGraph(&graph, captured.graph, 0);
  }

  const Driver &driver;
  int uses = 0;
  GraphExec graph = nullptr;
};

// Runs all launches of a step as one launch of a persistent kernel, whose argument is an xfc_step (abi.h).
class PersistentLaunch {
public:
  // `step` holds the table (StepTable).
  PersistentLaunch(const Driver &driver, FunctionHandle function, const Kernel &kernel, int64_t blocks,
                   std::unique_ptr<CudaMemory> step)
      : driver(driver), function(function), kernel(kernel), blocks(blocks), step(std::move(step)) {}

  // False if the GPU cannot run all blocks at the same time, because others have a share of it.
  bool run(Stream stream) const {
    Address call = step->address();
    void *parameters[] = {&call};
    const Result refused = driver.launchCooperative.result(function, static_cast<unsigned>(blocks), 1, 1,
                                                           static_cast<unsigned>(kernel.threads), 1, 1,
                                                           static_cast<unsigned>(kernel.scratch), stream, parameters);
    if (refused && refused != error::cooperativeLaunchTooLarge)
      driver.fail("cuLaunchCooperativeKernel", refused);
    return !refused;
  }

private:
  const Driver &driver;
  FunctionHandle function;
  const Kernel &kernel;
  const int64_t blocks;
  const std::unique_ptr<CudaMemory> step;
};

// Calls in the form they have in GPU memory, consecutively: each is an xfc_call and the arrays that it points to.
class CallWriter {
public:
  // The offset of the next call from the first.
  int64_t next() const { return static_cast<int64_t>(bytes.size()); }
  // The address at which a call has the address of a buffer.
  static Address placeOf(Address call, size_t buffer) { return call + sizeof(xfc_call) + buffer * sizeof(void *); }
  void add(Address base, xfc_call call, std::span<void *const> buffers, std::span<const int64_t> strides,
           std::span<const xfc_parted_tensor> tensors = {}, std::span<const xfc_repacked_weight> repacked = {}) {
    const size_t at = bytes.size();
    bytes.resize(at + sizeof call);
    auto array = [&](const auto &values) {
      const Address place = base + bytes.size();
      const char *begin = reinterpret_cast<const char *>(values.data());
      bytes.insert(bytes.end(), begin, begin + values.size_bytes());
      return place;
    };
    call.buffers = reinterpret_cast<void *const *>(array(buffers));
    call.strides = reinterpret_cast<const int64_t *>(array(strides));
    if (!tensors.empty())
      call.tensors = reinterpret_cast<const xfc_parted_tensor *>(array(tensors));
    if (!repacked.empty())
      call.repacked = reinterpret_cast<const xfc_repacked_weight *>(array(repacked));
    std::memcpy(bytes.data() + at, &call, sizeof call);
  }
  std::vector<char> bytes;
};

} // namespace

ImageRequest requestedImage(const xfc_device_image *const *images, std::string_view name) {
  constexpr std::string_view ptx = "ptx";
  ImageRequest request;
  if (name.empty())
    return request;
  request.ptx = name == ptx || name.starts_with("ptx:");
  if (name == ptx)
    return request;
  const std::string_view arch = request.ptx ? name.substr(ptx.size() + 1) : name;
  std::string known;
  for (int i = 0; images[i]; ++i) {
    if (images[i]->arch == arch)
      request.index = i;
    known += std::string(images[i]->arch) + ", ";
  }
  if (request.index < 0)
    throw Error("--cuda-image " + std::string(name) + ": this executable has " + known +
                "and ptx (or ptx:NAME), which has the driver compile the PTX");
  return request;
}

int chooseImage(const xfc_device_image *const *images, int major, int minor, const ImageRequest &request) {
  const int capability = major * 10 + minor;
  for (int i = std::max(request.index, 0); images[i] && (request.index < 0 || i == request.index); ++i) {
    const Architecture architecture = architectureOf(images[i]->arch);
    if (architecture.exact ? architecture.number == capability : architecture.number <= capability)
      return i;
  }
  return -1;
}

// PTX 7.x came with CUDA 11.x, 8.0 to 8.5 with 12.0 to 12.5, 8.6 to 8.8 with 12.7 to 12.9, and 9.x with 13.x.
int driverFor(const char *ptx) {
  constexpr std::string_view directive = ".version ";
  const char *line = std::strstr(ptx, directive.data());
  if (!line)
    return 0;
  int major = 0, minor = 0;
  const char *number = line + directive.size(), *end = number + std::strlen(number);
  const char *point = std::from_chars(number, end, major).ptr;
  if (point == number || *point != '.' || std::from_chars(point + 1, end, minor).ec != std::errc())
    return 0;
  if (major == 8 && minor > 5)
    ++minor;
  return (major + 4) * 1000 + minor * 10;
}

struct CudaDevice::State {
  Driver driver;
  HostWait wait{driver};
  std::optional<Nccl> nccl; // once there is a group of processes
  DeviceNumber device = 0;
  int major = 0, minor = 0, version = 0;
  int64_t mostShared = 0;
  int processors = 0;          // multiprocessors
  int cacheBytes = 0;          // of the L2 cache
  bool runsPersistent = false; // whether persistent kernels run, where programs have them
  std::string gpu;             // the GPU's name
  const xfc_device_image *image = nullptr;
  Context context = nullptr;
  Stream stream = nullptr; // everything that a run needs, in order
  Stream copies = nullptr; // staged batches, concurrently
  ModuleHandle handle = nullptr;
  bool compiled = false; // the cubin is in use, not the PTX
  const Module *module = nullptr;
  std::vector<FunctionHandle> functions; // one for each kernel

  struct Result {
    std::unique_ptr<CudaReadback> readback;
    bool asked = false;  // read since the last run, so that the next run copies it at once
    bool copied = false; // since the last run
  };
  // The counts of a bucket: rows and sequences of each set.
  using Bucket = std::array<int64_t, size_t{2} * XFC_ROW_SETS>;
  // The resources that a program needs on the GPU.
  struct Prepared {
    explicit Prepared(const Driver &driver) : arrived(driver), taken(driver) {}
    StagingLayout staging;
    uint64_t placement = 0;               // of the run that the calls were written for
    std::vector<BoundArgument> arguments; // of that run; of host arguments only `onDevice` matters
    // `block` is the batch that runs, which the calls point to; `incoming` is a staged batch until it runs.
    std::unique_ptr<CudaMemory> block, incoming, calls;
    std::vector<int64_t> callOffsets; // of each step
    // The host fills one slot while the other may still be copied.
    struct Slot {
      std::unique_ptr<PinnedMemory> memory;
      std::unique_ptr<OwnedEvent> copied;
    } slots[2];
    int slot = 0;
    OwnedEvent arrived, taken; // the staged batch has arrived in `incoming`, or been copied out of it
    // The staged batch; it is used only if the run is given the same one.
    struct Staged {
      const xfc_shape *shape = nullptr; // null: nothing is staged
      xfc_shape content;
      std::vector<BoundArgument> arguments;
      int64_t bytes = 0;
    } staged;
    // What is launched for a bucket, in parts: each ends before the step that begins the next.
    struct Part {
      int64_t end;
      std::unique_ptr<LaunchList> list;
      PersistentLaunch *persistent = nullptr; // runs the whole list, unless it is null
    };
    std::map<Bucket, std::vector<Part>> lists;
    // By the bytes that their tables would have at address 0: buckets with the same launches share one.
    std::map<std::vector<char>, std::unique_ptr<PersistentLaunch>> persistent;
    std::vector<int64_t> stops; // of the observer that these were made for
    std::vector<Result> results;
  };
  std::map<const Program *, std::unique_ptr<Prepared>> programs;

  // Weights that are packed together.
  struct Packing {
    std::vector<PackRun> runs;
    std::unique_ptr<CudaMemory> calls;
    std::unique_ptr<LaunchList> list;
  };
  std::vector<std::unique_ptr<Packing>> packings;

  State(const xfc_device_image *const *images, const ImageRequest &request, int ordinal, bool persistent) {
    int count = 0;
    driver.getVersion(&version);
    driver.getDeviceCount(&count);
    if (count == 0)
      throw Error(
          "--device cuda: the driver found no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu");
    driver.getDevice(&device, ordinal % count);
    char name[256] = {};
    driver.getDeviceName(name, sizeof name, device);
    gpu = name;
    driver.getDeviceAttribute(&major, attribute::majorVersion, device);
    driver.getDeviceAttribute(&minor, attribute::minorVersion, device);
    driver.getDeviceAttribute(&processors, attribute::multiprocessors, device);
    driver.getDeviceAttribute(&cacheBytes, attribute::l2CacheBytes, device);
    int shared = 0, cooperative = 0;
    driver.getDeviceAttribute(&cooperative, attribute::cooperativeLaunch, device);
    runsPersistent = persistent && cooperative != 0;
    driver.getDeviceAttribute(&shared, attribute::sharedMemoryPerBlock, device);
    mostShared = shared;
    const int chosen = chooseImage(images, major, minor, request);
    if (chosen < 0 && request.index >= 0)
      throw Error("--cuda-image " + std::string(images[request.index]->arch) + ": is not for " + gpu +
                  ", which has compute capability " + text(major) + "." + text(minor) +
                  "; leave the option out to use the best available");
    if (chosen < 0) {
      std::string all;
      for (int i = 0; images[i]; ++i)
        all += (i ? ", " : "") + std::string(images[i]->arch);
      throw Error("--device cuda: " + gpu + " has compute capability " + text(major) + "." + text(minor) +
                  ", but this executable was compiled for " + all +
                  "; compile the model for it with --cuda-arch, or use --device cpu");
    }
    image = images[chosen];
    if (image->abi_version != XFC_ABI_VERSION)
      throw Error("this executable was compiled for another version of the runtime; compile the model again");
    driver.retainContext(&context, device);
    driver.setContext(context);
    for (Stream *created : {&stream, &copies})
      driver.createStream(created, flag::streamNonBlocking);
    loadCode(request.ptx);
  }

  ~State() {
    for (Stream created : {stream, copies})
      if (created)
        driver.synchronizeStream.result(created);
    packings.clear();
    programs.clear();
    if (handle)
      driver.unloadModule.result(handle);
    for (Stream created : {stream, copies})
      if (created)
        driver.destroyStream.result(created);
    if (context)
      driver.releaseContext.result(device);
  }

  // Loads the cubin if it is for the GPU's family, else the PTX, which the driver compiles (and caches).
  void loadCode(bool ptx) {
    const Architecture architecture = architectureOf(image->arch);
    const bool made =
        architecture.exact ? architecture.number == major * 10 + minor : architecture.number / 10 == major;
    if (image->cubin && made && !ptx && driver.loadModule.result(&handle, image->cubin, 0, nullptr, nullptr) == 0) {
      compiled = true;
      return;
    }
    const int needed = driverFor(image->ptx);
    if (version < needed)
      throw Error("--device cuda: NVIDIA's driver is for CUDA " + Driver::versionText(version) +
                  ", but this executable's PTX needs one for CUDA " + Driver::versionText(needed) +
                  " or later; update the driver, or use --device cpu");
    std::array<char, 4096> log{};
    int options[] = {flag::jitErrorLog, flag::jitErrorLogBytes};
    void *values[] = {log.data(), reinterpret_cast<void *>(log.size())};
    const int refused = driver.loadModule.result(&handle, image->ptx, 2, options, values);
    if (refused == 0)
      return;
    if (log[0])
      throw Error("--device cuda: the driver cannot compile the PTX of " + std::string(image->arch) + " (error " +
                  text(refused) + "): " + log.data());
    driver.loadModule(&handle, image->ptx, 0, nullptr, nullptr); // throws, with the reason
  }

  void loadKernels(const Module &plan) {
    module = &plan;
    for (const Kernel &kernel : plan.kernels) {
      FunctionHandle function = nullptr;
      driver.getFunction(&function, handle, kernel.name.c_str());
      if (kernel.scratch > mostShared)
        throw Error("--device cuda: kernel " + kernel.name + " takes " + text(kernel.scratch) +
                    " bytes of shared memory, but " + gpu + " has " + text(mostShared) +
                    " for a block; compile the model for it with --cuda-arch, or use --device cpu");
      constexpr int64_t without = 48 << 10; // available to every kernel
      if (kernel.scratch > without)
        driver.setFunctionAttribute(function, attribute::maxDynamicSharedMemory, static_cast<int>(kernel.scratch));
      functions.push_back(function);
    }
  }

  std::unique_ptr<CudaMemory> take(int64_t bytes, const char *what) {
    return std::make_unique<CudaMemory>(driver, bytes, what, stream);
  }

  void issue(LaunchList &list, const Program *program, const Counts &counts, std::vector<LaunchTiming> *timings,
             Trace *trace) {
    if (!timings && !trace)
      return list.run(stream);
    // An event recorded while the GPU is idle ties its clock to the host's.
    const OwnedEvent anchor(driver, 0);
    int64_t passed = 0;
    if (trace) {
      driver.recordEvent(anchor, stream);
      wait.forStream(stream);
      passed = trace->now();
    }
    list.runTimed(stream, wait, [&](const Launch &launch, Event begin, Event end) {
      TraceEvent event = eventOf(*launch.kernel, program, launch.step, counts, launch.reduces);
      if (timings)
        timings->push_back({launch.kernel, launch.step, secondsBetween(driver, begin, end), event.flops, event.bytes});
      if (!trace)
        return;
      event.launch = trace->newLaunches();
      event.chunks = event.allChunks = launch.chunks;
      event.begin = passed + static_cast<int64_t>(secondsBetween(driver, anchor, begin) * 1e9);
      event.end = passed + static_cast<int64_t>(secondsBetween(driver, anchor, end) * 1e9);
      trace->add(trace->gpu(), event);
    });
  }

  // The GPU address of a place of the run.
  Address address(const Prepared &prepared, const ProgramRun &run, const Place &place) const {
    if (place.kind == Place::Kind::Argument && !run.arguments[place.index].onDevice)
      return prepared.block->address() + prepared.staging.arguments[place.index] + place.offset;
    return addressOf(run.address(place));
  }
  int64_t stride(const ProgramRun &run, const Place &place, int64_t own) const {
    if (place.kind != Place::Kind::Argument)
      return own;
    const BoundArgument &argument = run.arguments[place.index];
    const Argument &description = run.program->arguments[place.index];
    return argument.onDevice ? argument.stride : description.set < 0 ? 0 : featuresOf(description);
  }

  static bool sameArguments(const std::vector<BoundArgument> &a, const std::vector<BoundArgument> &b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const BoundArgument &x, const BoundArgument &y) {
      return x.onDevice == y.onDevice && (!x.onDevice || (x.data == y.data && x.stride == y.stride));
    });
  }

  // Allocates memory for batches within the run's capacity, and writes the calls with the run's addresses.
  void place(Prepared &prepared, const ProgramRun &run) {
    if (prepared.placement == run.placement && sameArguments(prepared.arguments, run.arguments))
      return;
    prepared.staged.shape = nullptr;
    prepared.staging = stagingLayout(run);
    if (!prepared.block || prepared.block->bytes() < prepared.staging.bytes) {
      for (Stream user : {stream, copies})
        wait.forStream(user);
      for (std::unique_ptr<CudaMemory> *memory : {&prepared.block, &prepared.incoming}) {
        memory->reset();
        *memory = take(prepared.staging.bytes, "batches");
      }
      driver.recordEvent(prepared.taken, stream); // the zeroing is on that stream
      for (Prepared::Slot &slot : prepared.slots) {
        slot.memory = std::make_unique<PinnedMemory>(driver, prepared.staging.bytes);
        if (!slot.copied)
          slot.copied = std::make_unique<OwnedEvent>(driver);
      }
    }
    const auto *shape = reinterpret_cast<const xfc_shape *>(prepared.block->data());
    CallWriter calls;
    std::vector<void *> buffers;
    std::vector<int64_t> strides;
    // The size of the calls depends on the program alone, so their memory is never replaced.
    if (!prepared.calls)
      prepared.calls = take(callBytes(*run.program), "calls");
    prepared.callOffsets.clear();
    for (const Step &step : run.program->steps) {
      buffers.clear();
      strides.clear();
      for (size_t b = 0; b < step.buffers.size(); ++b) {
        buffers.push_back(reinterpret_cast<void *>(address(prepared, run, step.buffers[b])));
        strides.push_back(stride(run, step.buffers[b], step.strides[b]));
      }
      prepared.callOffsets.push_back(calls.next());
      const xfc_call call{.shape = shape,
                          .rows = &shape->sets[step.set],
                          .key_rows = &shape->sets[step.keySet],
                          .keys = step.keys < 0 ? nullptr : &shape->keys[step.keys],
                          .dropout = step.dropout,
                          .elements = step.elements,
                          .repacked_count = static_cast<int64_t>(step.repacked.size())};
      calls.add(prepared.calls->address(), call, buffers, strides, step.tensors, step.repacked);
    }
    copy(prepared.calls->address(), calls.bytes);
    prepared.placement = run.placement;
    prepared.arguments = run.arguments;
  }

  // Copies after everything issued before on the stream, and waits for it.
  void copy(Address to, const std::vector<char> &bytes) {
    if (bytes.empty())
      return;
    driver.copyToDeviceAsync(to, bytes.data(), bytes.size(), stream);
    wait.forStream(stream);
  }

  // The blocks to launch for the chunks of a resident kernel: an even number of them if that of the chunks is, because
  // its clusters have up to two blocks.
  int64_t residentBlocks(int64_t chunks) const { return std::min<int64_t>(chunks, std::max(2, processors / 2 * 2)); }

  std::vector<Prepared::Part> &launchesOf(Prepared &prepared, const ProgramRun &run, const Counts &bucket) {
    const std::span<const int64_t> stops = run.observer ? run.observer->stops() : std::span<const int64_t>();
    if (!std::ranges::equal(prepared.stops, stops)) {
      prepared.lists.clear();
      prepared.stops.assign(stops.begin(), stops.end());
    }
    Bucket key;
    std::copy_n(bucket.rows, XFC_ROW_SETS, key.begin());
    std::copy_n(bucket.sequences, XFC_ROW_SETS, key.begin() + XFC_ROW_SETS);
    std::vector<Prepared::Part> &parts = prepared.lists[key];
    if (!parts.empty())
      return parts;
    const auto steps = static_cast<int64_t>(run.program->steps.size());
    for (int64_t stop : stops)
      if (stop < steps)
        parts.push_back({stop, std::make_unique<LaunchList>(driver)});
    parts.push_back({steps, std::make_unique<LaunchList>(driver)});
    auto part = parts.begin();
    for (int64_t i = 0; i < steps; ++i) {
      while (i == part->end)
        ++part;
      const Step &step = run.program->steps[i];
      const Address call = prepared.calls->address() + prepared.callOffsets[i];
      auto launch = [&](int32_t number, bool reduces) {
        const Kernel &kernel = module->kernels[number];
        // A sum over no rows is 0, which still has to be written.
        const int64_t fewest = kernel.reduction >= 0 ? kernel.partition.times : 0;
        if (const int64_t chunks = std::max(chunksOf(kernel.partition, bucket, step), fewest))
          part->list->launches.push_back(
              {functions[number], &kernel, &step, call, kernel.resident ? residentBlocks(chunks) : chunks, reduces});
      };
      launch(kernelOf(*module, bucket, step), false);
      if (const int32_t reduction = reductionOf(*module, bucket, step); reduction >= 0)
        launch(reduction, true);
    }
    if (parts.size() == 1)
      parts.front().persistent = persistentOf(prepared, *run.program, parts.front().list->launches);
    return parts;
  }

  // Has weights fetched early: each when a block comes to the instruction that reads the one before, or to the next
  // one, since an instruction has one weight fetched at most. Of a weight that is larger than half of the L2 cache,
  // only so much is fetched: more would displace it before it is read.
  void fetchAhead(std::span<const Launch> launches, std::span<xfc_instruction> instructions) const {
    size_t when = 0;
    for (size_t i = 0; i < instructions.size(); ++i) {
      const Step &step = *launches[i].step;
      if (step.weight < 0)
        continue;
      instructions[when].weight = reinterpret_cast<void *const *>(CallWriter::placeOf(launches[i].call, step.weight));
      instructions[when].weight_bytes = std::min<int64_t>(step.weightBytes, cacheBytes / 2);
      when = std::max(when + 1, i);
    }
  }

  // A program's launches as one, or null if that is not wanted or not possible: the program has no persistent kernel,
  // the batch has more rows than that is for, or the GPU has no room for a block of it or for the table of launches.
  // Steps wait for each other by their numbers, so each must be one launch.
  PersistentLaunch *persistentOf(Prepared &prepared, const Program &program, std::span<const Launch> launches) {
    const int32_t number = program.persistent;
    if (!runsPersistent || number < 0 || launches.empty())
      return nullptr;
    const bool areSteps = std::ranges::equal(launches, program.steps, [](const Launch &launch, const Step &step) {
      return launch.step == &step && !launch.reduces;
    });
    if (!areSteps)
      return nullptr;
    const Kernel &kernel = module->kernels[number];
    StepTable table;
    int64_t most = 0; // chunks of an instruction
    for (const Launch &launch : launches) {
      const auto body = std::ranges::find(kernel.bodies, launch.kernel - module->kernels.data());
      if (body == kernel.bodies.end() || launch.chunks > std::numeric_limits<int32_t>::max())
        return nullptr;
      table.add({.call = reinterpret_cast<const xfc_call *>(launch.call),
                 .body = static_cast<int32_t>(body - kernel.bodies.begin()),
                 .chunks = static_cast<int32_t>(launch.chunks)},
                launch.step->after);
      most = std::max(most, launch.chunks);
    }
    fetchAhead(launches, table.instructions);
    std::unique_ptr<PersistentLaunch> &launch = prepared.persistent[table.bytesAt(0)];
    if (launch)
      return launch.get();
    FunctionHandle function = functions[number];
    int room = 0;
    driver.getOccupancy(&room, function, static_cast<int>(kernel.threads), static_cast<size_t>(kernel.scratch));
    if (room == 0)
      return nullptr;
    std::unique_ptr<CudaMemory> step;
    try {
      step = take(stepTableBytes(program), "steps");
    } catch (const Error &) { // a graph needs none; if the GPU itself has failed, that will say so
      return nullptr;
    }
    copy(step->address(), table.bytesAt(step->address()));
    launch = std::make_unique<PersistentLaunch>(driver, function, kernel, std::min<int64_t>(processors, most),
                                                std::move(step));
    return launch.get();
  }

  // Writes a batch to pinned memory and starts its copy.
  int64_t send(Prepared &prepared, const ProgramRun &run, const CudaMemory &to, Stream by) {
    Prepared::Slot &slot = prepared.slots[prepared.slot ^= 1];
    wait.forEvent(*slot.copied);
    const int64_t bytes = cuda::stage(run, prepared.staging, slot.memory->data(), prepared.block->address());
    driver.copyToDeviceAsync(to.address(), slot.memory->data(), bytes, by);
    driver.recordEvent(*slot.copied, by);
    return bytes;
  }

  // Starts copying a result of the last run to host memory, as dense rows.
  void fetch(const Prepared &prepared, const ProgramRun &run, const Output &output, CudaReadback &into) {
    const int64_t element = bytesOf(output.type), features = featuresOf(output), width = features * element,
                  rows = rowsOf(output, run.counts);
    if (into.memory && into.memory->size < rows * width)
      wait.forEvent(into.copied);
    if (!into.memory || into.memory->size < rows * width)
      into.memory = std::make_unique<PinnedMemory>(driver, std::max(rows, rowsOf(output, run.capacity)) * width);
    into.output = &output;
    const Address from = address(prepared, run, output.place);
    const int64_t stride = output.set >= 0 ? rowStrideOf(run, output) : features;
    if (rows * width > 0 && stride == features) {
      driver.copyToHostAsync(into.memory->data(), from, rows * width, stream);
    } else if (rows * width > 0) {
      Copy2D copy;
      copy.source = from;
      copy.sourcePitch = stride * element;
      copy.targetType = 1;
      copy.targetHost = into.memory->data();
      copy.targetPitch = width;
      copy.widthInBytes = width;
      copy.height = rows;
      driver.copy2DAsync(&copy, stream);
    }
    driver.recordEvent(into.copied, stream);
  }
  void fetch(const Prepared &prepared, const ProgramRun &run, const Output &output, Result &into) {
    if (!into.readback)
      into.readback = std::make_unique<CudaReadback>(driver, wait);
    fetch(prepared, run, output, *into.readback);
    into.copied = true;
  }
};

CudaDevice::CudaDevice(const xfc_device_image *const *images, std::string_view image, int ordinal, bool persistent) {
  if (!images[0])
    throw Error("--device cuda: this executable has no PTX; compile it with --target cpu,cuda");
  state = std::make_unique<State>(images, requestedImage(images, image), ordinal, persistent);
}
CudaDevice::~CudaDevice() = default;
ImagePlan CudaDevice::plan() const { return ImagePlan(*state->image); }
void CudaDevice::load(const Module &module, ThreadPool &) { state->loadKernels(module); }

std::string CudaDevice::name() const {
  return state->gpu + ", " + state->image->arch + (state->compiled ? "" : " PTX");
}

bool CudaDevice::runsPersistent() const { return state->runsPersistent; }

std::unique_ptr<DeviceMemory> CudaDevice::allocate(int64_t bytes, const char *what, bool) {
  return state->take(bytes, what);
}

int64_t CudaDevice::available() const {
  size_t free = 0, total = 0;
  state->driver.getMemoryInfo(&free, &total);
  return static_cast<int64_t>(free);
}

void CudaDevice::copyToDevice(void *to, const void *from, int64_t bytes) {
  if (bytes == 0)
    return;
  state->driver.copyToDeviceAsync(addressOf(to), from, bytes, state->stream);
  state->wait.forStream(state->stream);
}

void CudaDevice::copyToHost(void *to, const void *from, int64_t bytes) {
  if (bytes == 0)
    return;
  state->wait.forStream(state->stream); // a copy to memory that is not pinned would wait by itself
  state->driver.copyToHostAsync(to, addressOf(from), bytes, state->stream);
  state->wait.forStream(state->stream);
}

void CudaDevice::copyOnDevice(void *to, const void *from, int64_t bytes) {
  if (bytes > 0)
    state->driver.copyOnDeviceAsync(addressOf(to), addressOf(from), bytes, state->stream);
}

std::string CudaDevice::identity() const {
  Uuid uuid;
  state->driver.getDeviceUuid(&uuid, state->device);
  std::string identity(reinterpret_cast<const char *>(uuid.bytes), sizeof uuid.bytes);
  // This variable tells NCCL, from version 2.30, to let processes share a GPU.
  if (const char *shared = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE"); shared && std::string_view(shared) == "1")
    identity += std::to_string(getpid());
  return identity;
}

std::string CudaDevice::newGroup() {
  if (!state->nccl)
    state->nccl.emplace();
  GroupId group;
  state->nccl->getUniqueId(&group);
  return {group.bytes, sizeof group.bytes};
}

std::unique_ptr<Peers> CudaDevice::join(const std::string &group, int rank, int size) {
  State &s = *state;
  if (!s.nccl)
    s.nccl.emplace();
  GroupId id;
  group.copy(id.bytes, sizeof id.bytes);
  return std::make_unique<CudaPeers>(s.driver, *s.nccl, s.stream, id, rank, size, s.wait, trace);
}

void CudaDevice::prepare(const Program &program) {
  auto prepared = std::make_unique<State::Prepared>(state->driver);
  prepared->results.resize(program.outputs.size());
  state->programs[&program] = std::move(prepared);
}

void CudaDevice::pack(std::span<const PackRun> runs, const std::function<void(size_t)> &) {
  State &s = *state;
  for (const std::unique_ptr<State::Packing> &packing : s.packings)
    if (std::ranges::equal(packing->runs, runs))
      return s.issue(*packing->list, nullptr, {}, timings, trace);
  auto packing = std::make_unique<State::Packing>();
  packing->runs.assign(runs.begin(), runs.end());
  packing->list = std::make_unique<LaunchList>(s.driver);
  packing->calls = s.take(static_cast<int64_t>(runs.size()) * callBytes(2, 0, 0), "calls");
  CallWriter calls;
  for (const PackRun &run : runs) {
    const std::array<void *, 2> buffers{run.from, run.to};
    const std::array<int64_t, 2> strides{};
    packing->list->launches.push_back({s.functions[run.kernel], &s.module->kernels[run.kernel], nullptr,
                                       packing->calls->address() + calls.next(), run.chunks});
    calls.add(packing->calls->address(), {}, buffers, strides);
  }
  s.copy(packing->calls->address(), calls.bytes);
  s.packings.push_back(std::move(packing));
  s.issue(*s.packings.back()->list, nullptr, {}, timings, trace);
}

// Kernels read a batch at a fixed address, so that a graph serves every batch of its bucket. The GPU moves a staged
// batch there, which takes a hundredth of the time that its transfer took.
void CudaDevice::stage(const ProgramRun &run) {
  State &s = *state;
  State::Prepared &prepared = *s.programs.at(run.program);
  prepared.staged.shape = nullptr;
  if (!prepared.block || prepared.placement != run.placement ||
      !State::sameArguments(prepared.arguments, run.arguments))
    return; // the run will rewrite the calls
  Span span(trace, "copy", "stage batch");
  s.driver.waitForEvent(s.copies, prepared.taken, 0);
  prepared.staged.bytes = s.send(prepared, run, *prepared.incoming, s.copies);
  span.event.bytes = static_cast<double>(prepared.staged.bytes);
  s.driver.recordEvent(prepared.arrived, s.copies);
  prepared.staged.shape = run.shape;
  prepared.staged.content = *run.shape;
  prepared.staged.arguments = run.arguments;
}

void CudaDevice::run(const ProgramRun &run) {
  State &s = *state;
  State::Prepared &prepared = *s.programs.at(run.program);
  s.place(prepared, run);
  State::Prepared::Staged &staged = prepared.staged;
  if (staged.shape == run.shape && std::memcmp(&staged.content, run.shape, sizeof staged.content) == 0 &&
      staged.arguments == run.arguments) {
    s.driver.waitForEvent(s.stream, prepared.arrived, 0);
    s.driver.copyOnDeviceAsync(prepared.block->address(), prepared.incoming->address(), staged.bytes, s.stream);
    s.driver.recordEvent(prepared.taken, s.stream);
  } else {
    Span span(trace, "copy", "send batch");
    span.event.bytes = static_cast<double>(s.send(prepared, run, *prepared.block, s.stream));
  }
  staged.shape = nullptr;
  for (State::Prepared::Part &part : s.launchesOf(prepared, run, bucketOf(run.counts, run.capacity))) {
    if (timings || trace || !part.persistent || !part.persistent->run(s.stream))
      s.issue(*part.list, run.program, run.counts, timings, trace);
    if (run.observer && part.end < static_cast<int64_t>(run.program->steps.size()))
      run.observer->before(run, part.end);
  }
  for (const Output &output : run.program->outputs) {
    State::Result &result = prepared.results[&output - run.program->outputs.data()];
    result.copied = false;
    if (result.asked)
      s.fetch(prepared, run, output, result);
    result.asked = false;
  }
}

void CudaDevice::copyRows(const ProgramRun &run, const Output &output, void *rows, std::span<const int32_t> to) {
  State &s = *state;
  const State::Prepared &prepared = *s.programs.at(run.program);
  const int64_t element = bytesOf(output.type), width = featuresOf(output) * element,
                stride = rowStrideOf(run, output) * element;
  for (const RowRun &neighbours : runsOf(to)) {
    Copy2D copy;
    copy.source = s.address(prepared, run, output.place) + neighbours.from * stride;
    copy.sourcePitch = stride;
    copy.target = addressOf(rows) + neighbours.to * width;
    copy.targetPitch = width;
    copy.widthInBytes = width;
    copy.height = neighbours.count;
    s.driver.copy2DAsync(&copy, s.stream);
  }
}

View CudaDevice::output(const ProgramRun &run, const Output &output) {
  State &s = *state;
  State::Prepared &prepared = *s.programs.at(run.program);
  State::Result &result = prepared.results[&output - run.program->outputs.data()];
  result.asked = true;
  if (!result.copied)
    s.fetch(prepared, run, output, result);
  return result.readback->view();
}

void CudaDevice::fetch(const ProgramRun &run, const Output &output, std::unique_ptr<Readback> &into) {
  if (!into)
    into = std::make_unique<CudaReadback>(state->driver, state->wait);
  state->fetch(*state->programs.at(run.program), run, output, static_cast<CudaReadback &>(*into));
}

} // namespace xfc::cuda
