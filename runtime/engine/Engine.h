// Runs the programs of an executable on a device: owns the parameter blocks, packed weights, tables, arena and threads.
#pragma once

#include "device/Device.h"
#include "plan/Sharding.h"
#include "support/Error.h"
#include "trace/Trace.h"
#include <string_view>

namespace xfc {

class MappedFile;

// Data that the runtime passes to a program, under the name of an argument: an input, a scalar or a state.
struct Binding {
  std::string_view name;
  void *data;
  int64_t stride = 0;    // elements between rows; 0: the rows are dense
  bool onDevice = false; // it is memory of rows() or newRows()
};

// The device on which programs run, as given by --device, --cuda-image and --cuda-step, and the programs.
struct DeviceChoice {
  std::string device = "cpu";     // or cuda
  std::string cudaImage;          // which GPU image, and whether as PTX (device/cuda); empty: the best
  std::string cudaStep = "graph"; // how a GPU runs a decoding step: its launches as a graph, or one persistent kernel
  int ordinal = 0;                // which GPU, modulo their number
  std::string library = {}; // a file that `xfc compile --emit lib` wrote, whose programs run; empty: this executable's
};

class Engine {
public:
  // Uses the requested image, or the best one that this CPU, or the chosen GPU, can run; throws Error saying what is
  // missing if there is none. If a GPU computes, the threads do the host's part of the work.
  explicit Engine(int threads, const DeviceChoice &choice = {});
  Engine(std::unique_ptr<Device> device, int threads);
  ~Engine();
  // Another engine for the same programs, with threads, an arena and rows of its own, that shares the parameters, what
  // is packed of them, and tables: each is in memory once. The two may run at the same time, from different threads, as
  // long as no program writes to the parameters, and nobody else. Throws Error if the device's memory is not the
  // host's.
  std::unique_ptr<Engine> sharing(int threads) const;

  const Module &module() const;
  const std::string &library() const; // DeviceChoice::library
  const Device &device() const;
  Device &device();
  ThreadPool &pool();
  // How many of its threads run kernels; 0 if a device of its own does.
  int computingThreads() const;

  // The host's copy of the parameter block: module().parameterElements elements of module().type, initially zero. The
  // call brings it up to date; writes to it take effect once parametersChanged() is called.
  void *parameters();
  // Makes this part of a file, aligned to 64 bytes, the parameter block. Writes to it do not reach the file.
  void takeParameters(MappedFile &&file, const char *begin);
  // Must be called after writing to the parameters from outside: the next run packs its weights again.
  void parametersChanged();
  // The host's copy of the gradients, laid out like the parameters. They lie in the arena: a program that does not use
  // them overwrites them. What is written to them on the host does not reach a GPU.
  void *gradients();
  // The host's copy of a state's block, initially zero; Module::partsOf says where its tensors are.
  void *optimizerState(std::string_view state); // one of module().states
  // From now on, the blocks of states that are laid out like the parameters hold only these ranges of that layout,
  // ascending, one after another. For programs made for that (inShare), before the states are used.
  void keepStatesOf(std::vector<Range> ranges);
  const std::vector<Range> &statesKept() const; // initially all
  // Must be called after writing to the optimizer's states from outside.
  void statesChanged();

  bool has(std::string_view program) const;
  // Replaces the program of the same name, which must not have been prepared or run.
  void replace(Program program);
  // Makes the arena large enough for any batch within `counts`, so that later runs do not allocate.
  void reserve(std::string_view program, const Counts &counts);
  // Runs a program, all of whose arguments must be bound. Throws Error if one is missing. An optimizer's program
  // `update` marks the parameters as changed: packed weights that it did not write are stale.
  void run(std::string_view program, const xfc_shape &shape, std::span<const Binding> bindings,
           StepObserver *observer = nullptr);
  // Does everything that run() does before the device computes, for checks that need what the device would be given.
  const ProgramRun &prepare(std::string_view program, const xfc_shape &shape, std::span<const Binding> bindings);
  // Announces what the next run() of this program will be given, so that it is copied while the device computes. Until
  // that run the shape, the bindings and what they point to must not change. Optional: run() is correct without it.
  void stage(std::string_view program, const xfc_shape &shape, std::span<const Binding> bindings);
  // A result of the last run of `program`.
  View output(std::string_view program, std::string_view name) const;
  // Fetches a result that is read after later runs: the copy starts now, and viewing it waits.
  void fetch(std::string_view program, std::string_view name, std::unique_ptr<Readback> &into);

  // Device memory for rows that one run passes to another, such as those of a cache: at least `bytes`, kept under the
  // name until more is requested. Its initial contents are undefined.
  void *rows(std::string_view name, int64_t bytes);
  // The same, owned by the caller.
  std::unique_ptr<DeviceMemory> newRows(int64_t bytes);
  // Copies rows of a result of the last run of `program`: row i becomes row to[i] of `rows`, dense rows in device
  // memory.
  void copyRows(std::string_view program, std::string_view name, void *rows, std::span<const int32_t> to);

  // Parameters and gradients in device memory, up to date, which the caller then changes there: the host's copies are
  // out of date.
  void *parametersOnDevice();
  void *gradientsOnDevice();
  // Copies the gradients to such memory, which must have the size of the block.
  void copyGradients(void *to);
  // Sets `count` gradients to zero, from element `first` of the block on.
  void clearGradients(int64_t first, int64_t count);

  int64_t arenaBytes() const;
  // Bytes of parameters, states, packed weights and tables that the device now holds, those that are shared included.
  int64_t stateBytes() const;

  // Bytes of what the engine holds on the device: the arena, stateBytes(), and memory of rows().
  int64_t deviceBytes() const;

  // While a list is set, every launch is timed.
  void profile(std::vector<LaunchTiming> *timings);
  // While a trace is set, it records every program that runs, and its launches. Its names point into the module.
  void traceTo(Trace *trace);
  Trace *trace() const; // or null

private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

} // namespace xfc
