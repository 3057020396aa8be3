// Runs the programs of an executable: owns the parameter blocks, packed weights, tables, arena and threads.
#pragma once

#include "Error.h"
#include "Plan.h"
#include "ThreadPool.h"
#include <memory>
#include <span>
#include <string_view>

namespace xfc {

class MappedFile;

// Data the runtime gives a program: an input, a scalar or a state, under the argument's name.
struct Binding {
  std::string_view name;
  void *data;
  int64_t stride = 0; // elements between rows; 0: the argument's own features
};

// A result inside the engine's memory, valid until the next run.
struct View {
  const Output *output = nullptr;
  const void *data = nullptr;
  int64_t stride = 0; // elements between rows
  // Element j of row i, whatever the type.
  double at(int64_t i, int64_t j = 0) const;
};

class Engine {
public:
  // Picks the best image this CPU can run; throws Error naming the missing feature if there is none.
  explicit Engine(int threads);
  // For tests: a given image.
  Engine(const xfc_image &image, int threads);
  ~Engine();

  const Module &module() const;
  const char *cpu() const; // the image's
  ThreadPool &pool();

  // The parameter block: module().parameterElements elements of module().type. Zeroed at first.
  void *parameters();
  // The parameter block is this part of a file from now on, aligned to 64 bytes; what is written to it does not reach the file.
  void takeParameters(MappedFile &&file, const char *begin);
  // Must be called after the parameters were written from outside: packed weights are remade at the next run.
  void parametersChanged();
  // Blocks laid out as the parameters, allocated zeroed when first asked for.
  void *gradients();
  void *moments1();
  void *moments2();

  bool has(std::string_view program) const;
  // Makes the arena large enough for any batch within `counts`, so that later runs do not allocate.
  void reserve(std::string_view program, const Counts &counts);
  // Runs a program. Every argument of the program must be bound. Throws Error for a missing one.
  // The program "update" marks the parameters as changed: packed weights that it did not write are stale.
  void run(std::string_view program, const xfc_shape &shape, std::span<const Binding> bindings);
  // A result of the last run of `program`.
  View output(std::string_view program, std::string_view name) const;

  int64_t arenaBytes() const;
  // Bytes of parameters, gradients, moments, packed weights and tables now held.
  int64_t stateBytes() const;

  // One launch, recorded while a list of them is set: `bench --profile`.
  struct Timing {
    const Kernel *kernel;
    const Step *step; // null: a weight is packed
    double seconds;
    double flops, bytes; // what the step does for the batch it ran with
  };
  void profile(std::vector<Timing> *timings);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace xfc
