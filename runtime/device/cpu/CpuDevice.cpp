// The CPU device: runs programs step by step in host memory, with each step's chunks spread over the threads.
#include "device/cpu/CpuDevice.h"
#include "device/HostMemory.h"
#include "device/cpu/AvailableMemory.h"
#include "device/cpu/Bounds.h"
#include "device/cpu/Features.h"
#include "support/Error.h"
#include "trace/Trace.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>

namespace xfc {
namespace {

class CpuMemory : public DeviceMemory {
public:
  CpuMemory(int64_t bytes, const char *what, bool sparse) {
    pages.allocate(bytes, what, sparse);
    begin = pages.data();
    size = bytes;
  }

private:
  HostMemory pages;
};

// A run has ended when it returns, and the next one soon overwrites its results, so this is a copy.
class CpuReadback : public Readback {
public:
  void take(const Output &output, const char *from, int64_t rows, int64_t stride) {
    const int64_t element = bytesOf(output.type), width = featuresOf(output) * element;
    values.resize(rows * width);
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(values.data() + row * width, from + row * stride * element, width);
    result = {&output, values.data(), featuresOf(output)};
  }
  View view() const override { return result; }

private:
  std::vector<char> values;
  View result;
};

class CpuDevice : public Device {
public:
  explicit CpuDevice(const xfc_image &image) : image(image) {}

  ImagePlan plan() const override { return ImagePlan(image); }
  void load(const Module &module, ThreadPool &pool) override {
    this->module = &module;
    this->pool = &pool;
    latest.resize(pool.threads());
  }
  std::unique_ptr<Device> another() const override { return std::make_unique<CpuDevice>(image); }

  const char *kind() const override { return "cpu"; }
  std::string name() const override { return image.cpu; }
  const DeviceTraits &traits() const override {
    static constexpr DeviceTraits traits{.hostMemory = true,
                                         .hostThreads = true,
                                         .keepsLayouts = false,
                                         .word = "cpu",
                                         .named = "instruction set",
                                         .owner = "system"};
    return traits;
  }

  std::unique_ptr<DeviceMemory> allocate(int64_t bytes, const char *what, bool sparse) override {
    return std::make_unique<CpuMemory>(bytes, what, sparse);
  }
  int64_t available() const override { return availableMemory(); }
  void copyToDevice(void *to, const void *from, int64_t bytes) override { std::memcpy(to, from, bytes); }
  void copyToHost(void *to, const void *from, int64_t bytes) override { std::memcpy(to, from, bytes); }

  // Threads copy separate shares.
  void copyOnDevice(void *to, const void *from, int64_t bytes) override {
    static constexpr int64_t share = 1 << 18;
    struct Copy {
      char *to;
      const char *from;
      int64_t bytes;
    } copy{static_cast<char *>(to), static_cast<const char *>(from), bytes};
    auto body = [](void *context, int64_t chunk, int) {
      const Copy &copy = *static_cast<Copy *>(context);
      const int64_t begin = chunk * share;
      std::memcpy(copy.to + begin, copy.from + begin, std::min(share, copy.bytes - begin));
    };
    pool->run(body, &copy, (bytes + share - 1) / share);
  }

  void prepare(const Program &program) override {
    int64_t needed = 0;
    for (const Step &step : program.steps) {
      needed = std::max(needed, module->kernels[step.kernel].scratch);
      operands = std::max(operands, step.buffers.size());
      for (const Place &place : step.buffers)
        if (place.kind == Place::Kind::Packed)
          needed = std::max(needed, module->kernels[module->packed[place.index].kernel].scratch);
    }
    buffers.resize(operands * pool->threads());
    strides.resize(buffers.size());
    if (needed > scratchBytes) {
      scratchBytes = (needed + 63) / 64 * 64;
      scratch.allocate(scratchBytes * pool->threads(), "scratch");
    }
  }

  void pack(std::span<const PackRun> runs, const std::function<void(size_t begun)> &between) override {
    static constexpr int64_t few = 1 << 21; // bytes of packed weights
    int64_t made = 0;
    for (size_t number = 0; number < runs.size(); ++number) {
      const PackRun &run = runs[number];
      void *operands[] = {run.from, run.to};
      const int64_t none[] = {0, 0};
      static const xfc_shape empty{};
      const xfc_call call{
          .shape = &empty, .rows = &empty.sets[0], .key_rows = &empty.sets[0], .buffers = operands, .strides = none};
      Launch packing = launchOf(run.kernel, call);
      packing.number = ++launches;
      packing.packing = &run;
      const int64_t chunkBytes = run.toBytes / run.chunks + 1;
      while (packing.first < run.chunks) {
        const int64_t left = run.chunks - packing.first,
                      chunks = between ? std::clamp<int64_t>((few - made) / chunkBytes, 1, left) : left;
        launch(packing, chunks, {});
        packing.first += chunks;
        made += chunks * chunkBytes;
        if (between && made + chunkBytes > few) {
          between(number + 1);
          made = 0;
        }
      }
    }
    if (between && made > 0)
      between(runs.size());
  }

  // If there are enough rows, each thread takes its own through all steps: what a step reads is in the cache of the
  // thread that wrote it, and no thread waits between steps. Otherwise, and if launches are timed, the chunks of each
  // step go to all threads.
  void run(const ProgramRun &run) override {
    if (pool->threads() > 1 && !timings && hasOwnRows(run)) {
      const int64_t ofAll = pool->threads() * static_cast<int64_t>(run.program->steps.size());
      Share share{this, &run, trace ? trace->newLaunches(ofAll) : 0};
      pool->run(runShare, &share, pool->threads());
      return;
    }
    for (size_t number = 0; number < run.program->steps.size(); ++number) {
      const Step &step = run.program->steps[number];
      if (run.observer)
        run.observer->before(run, static_cast<int64_t>(number));
      Launch stepping = launchOf(step.kernel, callOf(run, step, *run.shape), &run, &step);
      stepping.number = ++launches;
      launch(stepping, chunksOf(module->kernels[step.kernel].partition, run.counts, step), run.counts);
    }
  }

  void copyRows(const ProgramRun &run, const Output &output, void *rows, std::span<const int32_t> to) override {
    const int64_t bytes = featuresOf(output) * bytesOf(output.type),
                  stride = rowStrideOf(run, output) * bytesOf(output.type);
    const char *from = static_cast<const char *>(run.address(output.place));
    for (size_t row = 0; row < to.size(); ++row)
      std::memcpy(static_cast<char *>(rows) + to[row] * bytes, from + static_cast<int64_t>(row) * stride, bytes);
  }

  View output(const ProgramRun &run, const Output &output) override {
    return {&output, run.address(output.place), strideOf(run, output)};
  }
  void fetch(const ProgramRun &run, const Output &output, std::unique_ptr<Readback> &into) override {
    if (!into)
      into = std::make_unique<CpuReadback>();
    static_cast<CpuReadback &>(*into).take(output, static_cast<const char *>(run.address(output.place)),
                                           rowsOf(output, run.counts),
                                           output.set >= 0 ? rowStrideOf(run, output) : featuresOf(output));
  }

private:
  // With fewer rows per thread, splitting a step by columns is faster: each weight is then read by one thread only.
  // Multiplying that many rows takes about as long as reading the weights, of which those of a byte are read sooner.
  int64_t fewestOwnRows(const Program &program) const {
    int64_t bytes = 0, operations = 0; // of packed weights; of a row with them
    for (const Step &step : program.steps)
      for (const Place &place : step.buffers)
        if (place.kind == Place::Kind::Packed) {
          bytes += module->packed[place.index].bytes;
          operations += step.flops.rows[XFC_TARGET];
        }
    const int64_t weights = operations / 2; // a multiplication and an addition for each
    return 2 * bytes > 3 * weights ? 48 : 16;
  }

  bool hasOwnRows(const ProgramRun &run) const {
    const xfc_rows &rows = run.shape->sets[XFC_TARGET];
    if (!run.program->rowByRow || rows.rows != rows.sequences ||
        rows.rows < fewestOwnRows(*run.program) * pool->threads())
      return false;
    for (int64_t i = 0; i < rows.rows; ++i)
      if (rows.offsets[i] != i)
        return false;
    return true;
  }

  struct Share {
    CpuDevice *device;
    const ProgramRun *run;
    int64_t launches; // number of the first, if they are traced; each thread has its own launches
  };
  // The first row of a thread's own. A row that reads what the row before it writes in this run, the next token of the
  // same hypothesis, is its thread's.
  static int64_t firstOfShare(const xfc_shape &shape, int64_t share, int64_t shares) {
    const int64_t rows = shape.sets[XFC_TARGET].rows;
    int64_t first = rows * share / shares;
    while (shape.slots && first > 0 && first < rows && shape.before[first] == shape.slots[first - 1])
      ++first;
    return first;
  }

  // Runs a thread's own rows through all steps.
  static void runShare(void *context, int64_t share, int thread) {
    const auto [device, runOfAll, launches] = *static_cast<const Share *>(context);
    const ProgramRun &run = *runOfAll;
    const int64_t shares = device->pool->threads(), first = firstOfShare(*run.shape, share, shares),
                  end = firstOfShare(*run.shape, share + 1, shares);
    if (first == end)
      return;
    Counts counts = run.counts;
    counts.rows[XFC_TARGET] = counts.sequences[XFC_TARGET] = end - first;
    // The batch of these rows alone. Each row is a sequence, so offsets and sequence numbers are the same from any row
    // on.
    xfc_shape shape = *run.shape;
    xfc_rows &own = shape.sets[XFC_TARGET];
    own.rows = own.sequences = counts.rows[XFC_TARGET];
    own.positions += first;
    own.sentences += first;
    shape.slots += first;
    shape.before += first;
    for (int relation : {XFC_TARGET_SOURCE, XFC_TARGET_CACHE})
      for (int kind = 0; kind < 4; ++kind)
        if (xfc_keys &keys = shape.keys[relation * 4 + kind]; keys.begin) {
          keys.begin += first;
          keys.count += first;
          keys.limit += first;
        }
    int64_t number = launches + share * static_cast<int64_t>(run.program->steps.size());
    for (const Step &step : run.program->steps) {
      Launch launch = device->launchOf(step.kernel, device->ownCallOf(run, step, shape, first, thread), &run, &step);
      const int64_t chunks = chunksOf(device->module->kernels[step.kernel].partition, counts, step);
      if (device->trace) {
        TracedLaunch traced = device->tracedLaunchOf(launch, chunks, counts, number++);
        for (int64_t chunk = 0; chunk < chunks; ++chunk)
          runTracedChunk(traced, chunk, chunk - 1, thread);
        continue;
      }
      for (int64_t chunk = 0; chunk < chunks; ++chunk)
        runChunk(launch, chunk, chunk - 1, thread);
    }
  }

  // The call of a step on all rows of a batch. The operand arrays lie in a thread's part of `buffers` and `strides`.
  xfc_call callOf(const ProgramRun &run, const Step &step, const xfc_shape &shape, int thread = 0) {
    void **at = buffers.data() + thread * operands;
    int64_t *stride = strides.data() + thread * operands;
    for (size_t b = 0; b < step.buffers.size(); ++b) {
      const Place &place = step.buffers[b];
      at[b] = run.address(place);
      stride[b] = place.kind == Place::Kind::Argument ? run.arguments[place.index].stride : step.strides[b];
    }
    return {.shape = &shape,
            .rows = &shape.sets[step.set],
            .key_rows = &shape.sets[step.keySet],
            .keys = step.keys < 0 ? nullptr : &shape.keys[step.keys],
            .buffers = at,
            .strides = stride,
            .dropout = step.dropout,
            .elements = step.elements,
            .tensors = step.tensors.empty() ? nullptr : step.tensors.data(),
            .repacked_count = static_cast<int64_t>(step.repacked.size()),
            .repacked = step.repacked.empty() ? nullptr : step.repacked.data()};
  }

  // The call of a step on a thread's own rows, which begin at target row `first` and which `shape` describes.
  xfc_call ownCallOf(const ProgramRun &run, const Step &step, const xfc_shape &shape, int64_t first, int thread) {
    const xfc_call call = callOf(run, step, shape, thread);
    void **at = buffers.data() + thread * operands;
    for (size_t b = 0; b < step.buffers.size(); ++b) {
      const Place &place = step.buffers[b];
      if (place.kind == Place::Kind::Arena) {
        const int64_t width = run.program->buffers[place.index].size.rows[XFC_TARGET];
        at[b] = run.arena + run.layout.offsetOf(place.index, width, first, shape.sets[XFC_TARGET].rows) + place.offset;
      } else if (place.kind == Place::Kind::Argument && run.program->arguments[place.index].set == XFC_TARGET) {
        const BoundArgument &argument = run.arguments[place.index];
        at[b] =
            static_cast<char *>(at[b]) + first * argument.stride * bytesOf(run.program->arguments[place.index].type);
      }
    }
    return call;
  }

  struct Launch : CpuLaunch {
    xfc_kernel code;
    char *scratch;      // of thread 0
    int64_t number = 0; // of a launch on the pool
    int64_t first = 0;  // first chunk of the launch
  };
  Launch launchOf(int32_t kernel, const xfc_call &call, const ProgramRun *run = nullptr, const Step *step = nullptr) {
    return {{module, &module->kernels[kernel], run, step, nullptr, call, scratchBytes},
            image.kernels[kernel],
            static_cast<char *>(scratch.data())};
  }
  static void runChunk(const Launch &launch, int64_t chunk, int64_t previous, int thread) {
    char *scratch = launch.scratch + thread * launch.scratchBytes;
    setRunning(launch, chunk, scratch);
    launch.code(&launch.call, chunk, previous, scratch);
  }

  struct TracedLaunch {
    Launch *launch;
    Trace *trace;
    TraceEvent event;
  };
  TracedLaunch tracedLaunchOf(Launch &launch, int64_t chunks, const Counts &counts, int64_t number) const {
    TraceEvent event = eventOf(*launch.kernel, launch.run ? launch.run->program : nullptr, launch.step, counts);
    event.launch = number;
    event.allChunks = chunks;
    return {&launch, trace, event};
  }
  static void runTracedChunk(const TracedLaunch &traced, int64_t chunk, int64_t previous, int thread) {
    TraceEvent *share = traced.trace->share(thread, traced.event);
    runChunk(*traced.launch, chunk, previous, thread);
    if (share) {
      ++share->chunks;
      share->end = traced.trace->now();
    }
  }

  // The chunk that a thread has run last, and the number of its launch.
  struct alignas(64) Latest {
    int64_t launch = 0, chunk = -1;
  };
  struct Pooled {
    Launch *launch;
    TracedLaunch *traced; // null: it is not traced
    Latest *latest;       // of each thread
  };
  static void runPooledChunk(void *context, int64_t chunk, int thread) {
    const Pooled &pooled = *static_cast<Pooled *>(context);
    chunk += pooled.launch->first;
    Latest &latest = pooled.latest[thread];
    const int64_t number = pooled.launch->number, previous = latest.launch == number ? latest.chunk : -1;
    latest = {number, chunk};
    pooled.traced ? runTracedChunk(*pooled.traced, chunk, previous, thread)
                  : runChunk(*pooled.launch, chunk, previous, thread);
  }
  void runOnPool(Launch &launch, int64_t chunks, const Counts &counts) {
    Pooled pooled{&launch, nullptr, latest.data()};
    std::optional<TracedLaunch> traced;
    if (trace)
      pooled.traced = &traced.emplace(tracedLaunchOf(launch, chunks, counts, trace->newLaunches()));
    pool->run(runPooledChunk, &pooled, chunks);
  }

  void launch(Launch &launch, int64_t chunks, const Counts &counts) {
    if (!timings)
      return runOnPool(launch, chunks, counts);
    auto begin = std::chrono::steady_clock::now();
    runOnPool(launch, chunks, counts);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const Step *step = launch.step;
    timings->push_back({launch.kernel, step, seconds, step ? static_cast<double>(evaluate(step->flops, counts)) : 0,
                        step ? static_cast<double>(evaluate(step->traffic, counts)) : 0});
  }

  const xfc_image &image;
  const Module *module = nullptr;
  ThreadPool *pool = nullptr;
  HostMemory scratch;
  int64_t scratchBytes = 0;    // per thread
  int64_t launches = 0;        // on the pool, so far
  std::vector<Latest> latest;  // per thread
  size_t operands = 0;         // the most that any step has
  std::vector<void *> buffers; // of the current step, per thread
  std::vector<int64_t> strides;
};

const xfc_image &chooseImage(const xfc_image *const *images) {
  if (const std::vector<const xfc_image *> usable = usableImages(images); !usable.empty())
    return *usable.front();
  std::string refused;
  for (const xfc_image *const *image = images; *image; ++image)
    refused += (refused.empty() ? "" : "; ") + std::string((*image)->cpu) + " (this CPU lacks " +
               missingFeatures((*image)->features) + ")";
  if (refused.empty())
    throw Error(
        "this executable has code for GPUs only; use --device cuda, or compile the model with --target cpu,cuda");
  throw Error("this executable was compiled for " + refused +
              "; compile the model for this machine, or with --cpu x86-64-v3,x86-64-v4");
}

} // namespace

std::vector<const xfc_image *> usableImages(const xfc_image *const *images) {
  std::vector<const xfc_image *> usable;
  for (const xfc_image *const *image = images; *image; ++image)
    if (missingFeatures((*image)->features).empty())
      usable.push_back(*image);
  return usable;
}

std::unique_ptr<Device> cpuDevice(const xfc_image &image) { return std::make_unique<CpuDevice>(image); }
std::unique_ptr<Device> cpuDevice(const xfc_image *const *images) { return cpuDevice(chooseImage(images)); }

} // namespace xfc
