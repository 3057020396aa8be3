// Runs the programs of an executable on a device: owns the parameter blocks, packed weights, tables, arena and threads.
#pragma once

#include "device/Device.h"
#include "support/Error.h"
#include "trace/Trace.h"
#include <string_view>

namespace xfc {

class MappedFile;

// Data the runtime gives a program: an input, a scalar or a state, under the argument's name.
struct Binding {
  std::string_view name;
  void *data;
  int64_t stride = 0;    // elements between rows; 0: the argument's own features
  bool onDevice = false; // it is memory of rows()
};

// Where programs run, as --device and --cuda-image say it.
struct DeviceChoice {
  std::string device = "cpu"; // or cuda
  std::string cudaImage;      // which of the GPU images, and whether its PTX (device/cuda); empty: the best
};

class Engine {
public:
  // Picks the best image that this CPU, or the first GPU, can run, or the one that is asked for; throws Error saying
  // what is missing if there is none. The threads do the host's part of the work where a GPU does the rest.
  explicit Engine(int threads, const DeviceChoice &choice = {});
  Engine(std::unique_ptr<Device> device, int threads);
  ~Engine();

  const Module &module() const;
  const Device &device() const;
  Device &device();
  ThreadPool &pool();

  // The host's copy of the parameter block: module().parameterElements elements of module().type, zeroed at first. It
  // is brought up to date by the call, and what is written to it counts once parametersChanged() says so.
  void *parameters();
  // The parameter block is this part of a file from now on, aligned to 64 bytes; what is written to it does not reach
  // the file.
  void takeParameters(MappedFile &&file, const char *begin);
  // Must be called after the parameters were written from outside: packed weights are remade at the next run.
  void parametersChanged();
  // Copies of blocks laid out as the parameters, zeroed when first asked for. Gradients are only read.
  void *gradients();
  void *optimizerState(std::string_view state); // one of module().states
  // Must be called after the optimizer's states were written from outside.
  void statesChanged();

  bool has(std::string_view program) const;
  // Puts a program in the place of the one of its name, before that one is prepared or run.
  void replace(Program program);
  // Makes the arena large enough for any batch within `counts`, so that later runs do not allocate.
  void reserve(std::string_view program, const Counts &counts);
  // Runs a program. Every argument of the program must be bound. Throws Error for a missing one.
  // A program `update` of an optimizer marks the parameters as changed: packed weights that it did not write are stale.
  void run(std::string_view program, const xfc_shape &shape, std::span<const Binding> bindings);
  // All that run() does before the device computes, for checks that go deeper than results: what the device would be
  // given.
  const ProgramRun &prepare(std::string_view program, const xfc_shape &shape, std::span<const Binding> bindings);
  // Says early what run() will be given for this program next, so that it is copied while the device computes. Until
  // that run the shape, the bindings and what they point at stay as they are. Asks for nothing: run() is right without
  // it.
  void stage(std::string_view program, const xfc_shape &shape, std::span<const Binding> bindings);
  // A result of the last run of `program`.
  View output(std::string_view program, std::string_view name) const;
  // The same for whoever reads it after later runs: the copy starts now, and is waited for when it is looked at.
  void fetch(std::string_view program, std::string_view name, std::unique_ptr<Readback> &into);

  // Memory of the device for rows that runs hand on, as those of a cache: at least `bytes`, kept under the name until
  // more is asked for. Its contents are undefined at first.
  void *rows(std::string_view name, int64_t bytes);
  // The same as memory of the caller, which is given back with its owner.
  std::unique_ptr<DeviceMemory> newRows(int64_t bytes);
  // Rows of a result of the last run of `program`: row i becomes row to[i] of `rows`, dense rows in memory of the
  // device.
  void copyRows(std::string_view program, std::string_view name, void *rows, std::span<const int32_t> to);

  // The gradients into such memory of as many bytes.
  void copyGradients(void *to);
  // Zeros in place of `count` gradients from element `first` of the block on.
  void clearGradients(int64_t first, int64_t count);

  int64_t arenaBytes() const;
  // Bytes of parameters, gradients, states, packed weights and tables that the device now holds.
  int64_t stateBytes() const;

  // Bytes of all it holds on the device: the arena, state, and rows.
  int64_t deviceBytes() const;

  // Every launch is timed while a list is set.
  void profile(std::vector<LaunchTiming> *timings);
  // While a trace is set, it is told of every program that runs, and of its launches. The names are the module's.
  void traceTo(Trace *trace);
  Trace *trace() const; // or null

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace xfc
