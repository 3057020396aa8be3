// The engine: allocates memory by plan, and brings everything that a program reads up to date before it runs.
#include "engine/Engine.h"
#include "device/HostMemory.h"
#include "device/factory/DeviceFactory.h"
#include "plan/Layout.h"
#include "plan/Memory.h"
#include "plan/Programs.h"
#include "plan/Serialization.h"
#include "support/MappedFile.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

namespace xfc {

static const Output &outputOf(const Program &program, std::string_view name) {
  for (const Output &output : program.outputs)
    if (output.name == name)
      return output;
  throw Error("the program '" + program.name + "' has no result '" + std::string(name) + "'");
}

namespace {

// Parameters, or a state: on the device, with a copy on the host. If device memory is host memory, there is only the
// latter. Each is brought up to date on request.
struct Block {
  int64_t bytes = 0;
  HostMemory host;
  std::unique_ptr<DeviceMemory> device;
  enum class Newer { Neither, Host, Device } newer = Newer::Neither;
  bool unwritten = false; // the host's copy is as in the file
};

// The parameters and what is made of them, which engines may share. An engine that brings something up to date holds
// the mutex. What is up to date stays where it is while one of them reads it.
struct Weights {
  std::mutex mutex;
  Block parameters;
  uint64_t version = 1; // of the parameters
  struct MadeTable {
    std::shared_ptr<DeviceMemory> memory; // an engine that reads it keeps it when another makes a longer one
    int64_t rows = 0;
  };
  std::vector<MadeTable> tables;
  std::vector<std::unique_ptr<DeviceMemory>> packedMemory; // one for each time that weights were first packed
  std::vector<void *> packed;                              // the address of each
  std::vector<uint64_t> packedVersions;

  explicit Weights(const Module &module)
      : tables(module.tables.size()), packed(module.packed.size()), packedVersions(module.packed.size()) {}
};

} // namespace

struct Engine::State {
  Module module;
  std::string library; // that the module is from; empty: this executable
  ThreadPool pool;
  std::unique_ptr<Device> device;
  const std::shared_ptr<Weights> weights;
  Block &parameters;         // of the weights
  std::vector<Block> states; // of the optimizer
  std::vector<Range> kept;   // of each state
  std::vector<char *> statePlaces;
  std::unique_ptr<DeviceMemory> arena;
  bool hasGradients = false; // at the beginning of the arena: a program that uses them ran last, or they were asked for
  HostMemory hostGradients;  // a copy of them, if device memory is not the host's
  bool hostGradientsAreOld = true;
  std::vector<std::shared_ptr<DeviceMemory>> tableMemory; // that this engine reads
  std::vector<void *> tables;                             // the address of each
  std::vector<PackRun> packRuns;
  Trace *trace = nullptr;
  uint64_t placement = 0; // incremented when memory is allocated or laid out anew
  std::map<std::string, std::unique_ptr<DeviceMemory>, std::less<>> rows;

  // Rows of the parameters, from the byte `begin` on, that a program reads by ids.
  struct Embedding {
    int64_t ids; // the argument
    int set;
    int64_t begin, bytes, rowBytes;
    int64_t rowsIn = 0; // brought in from a file since its pages were last released
  };
  struct Prepared {
    ProgramRun run, next; // next: the run that was staged last
    bool planned = false;
    std::vector<int64_t> packed, tables, states; // that the program uses
    std::vector<GradientPart> gradients;         // if it uses them
    std::vector<Embedding> embeddings;           // the large ones
  };
  std::map<std::string, Prepared, std::less<>> programs;

  // Without weights to share, it has its own.
  State(std::unique_ptr<Device> opened, const ImagePlan &plan, int threads, std::shared_ptr<Weights> shared)
      : module(deserialize(plan.bytes, plan.size)), pool(std::max(1, threads)),
        weights(shared ? std::move(shared) : std::make_shared<Weights>(module)), parameters(weights->parameters),
        states(module.states.size()), statePlaces(module.states.size()), tableMemory(module.tables.size()),
        tables(module.tables.size()) {
    if (plan.abiVersion != XFC_ABI_VERSION)
      throw Error("this executable was compiled for another version of the runtime; compile the model again");
    if (plan.kernelCount != module.kernels.size())
      throw Error("the plan inside this executable is damaged; compile the model again");
    device = std::move(opened);
    device->load(module, pool);
    parameters.bytes = blockBytes();
    keepStatesOf({{0, module.parameterElements}});
  }

  void keepStatesOf(std::vector<Range> ranges) {
    kept = std::move(ranges);
    for (size_t i = 0; i < states.size(); ++i) {
      const OptimizerState &state = module.states[i];
      states[i].bytes = (state.likeParameters ? sizeOf(kept) : module.elementsOf(state)) * bytesOf(state.type);
    }
  }

  std::unique_ptr<DeviceMemory> allocate(int64_t bytes, const char *what, bool sparse = false) {
    ++placement;
    return device->allocate(bytes, what, sparse);
  }

  bool inHostMemory() const { return device->traits().hostMemory; }
  int64_t blockBytes() const { return module.parameterElements * bytesOf(module.type); }

  void *onHost(Block &block, const char *what) {
    if (!block.host.data())
      block.host.allocate(block.bytes, what);
    if (block.newer == Block::Newer::Device) {
      device->copyToHost(block.host.data(), block.device->data(), block.bytes);
      block.newer = Block::Newer::Neither;
    }
    return block.host.data();
  }
  char *onDevice(Block &block, const char *what) {
    if (inHostMemory())
      return static_cast<char *>(onHost(block, what));
    if (!block.device)
      block.device = allocate(block.bytes, what);
    if (block.newer == Block::Newer::Host) {
      device->copyToDevice(block.device->data(), block.host.data(), block.bytes);
      block.newer = Block::Newer::Neither;
      if (block.unwritten)
        block.host.releaseUnwritten();
    }
    return static_cast<char *>(block.device->data());
  }
  void changedOnDevice(Block &block) {
    if (!inHostMemory())
      block.newer = Block::Newer::Device;
  }
  // A host copy that is out of date does not become the newer one.
  void changedOnHost(Block &block) {
    if (!inHostMemory() && block.host.data() && block.newer == Block::Newer::Neither)
      block.newer = Block::Newer::Host;
  }

  // Brings the blocks that a program reads or writes up to date on the device.
  void placeBlocks(Prepared &prepared) {
    ProgramRun &run = prepared.run;
    run.parameters = onDevice(parameters, "parameters");
    for (int64_t index : prepared.states)
      statePlaces[index] = onDevice(states[index], "the optimizer's state");
  }

  Prepared &prepare(std::string_view name) {
    if (auto known = programs.find(name); known != programs.end())
      return known->second;
    const Program *program = module.find(name);
    if (!program)
      throw Error("this executable has no program '" + std::string(name) +
                  "'; it was compiled without it (--mode), or the model has none");
    Prepared &prepared = programs[std::string(name)];
    std::set<int64_t> packs, tableSet, stateSet;
    for (const Step &step : program->steps) {
      addEmbeddings(*program, step, prepared.embeddings);
      for (const Place &place : step.buffers) {
        if (place.kind == Place::Kind::Packed)
          packs.insert(place.index);
        else if (place.kind == Place::Kind::Table)
          tableSet.insert(place.index);
        else if (place.kind == Place::Kind::State)
          stateSet.insert(place.index);
      }
    }
    prepared.gradients = gradientsOf(module, *program);
    prepared.packed.assign(packs.begin(), packs.end());
    prepared.tables.assign(tableSet.begin(), tableSet.end());
    prepared.states.assign(stateSet.begin(), stateSet.end());
    prepared.run.program = program;
    prepared.run.arguments.resize(program->arguments.size());
    prepared.run.packed = weights->packed.data();
    prepared.run.tables = tables.data();
    prepared.run.states = statePlaces.data();
    device->prepare(*program);
    return prepared;
  }

  // A step that reads ids, and a matrix of parameters that is not packed, reads the matrix's rows by them.
  void addEmbeddings(const Program &program, const Step &step, std::vector<Embedding> &embeddings) const {
    constexpr int64_t large = 16 << 20; // bytes
    const int64_t element = bytesOf(module.type);
    for (const Place &ids : step.buffers) {
      if (ids.kind != Place::Kind::Argument || program.arguments[ids.index].type != DType::I32)
        continue;
      for (const Place &place : step.buffers)
        for (const Parameter &parameter : module.parameters)
          if (const int64_t bytes = elementsOf(parameter.shape) * element;
              place.kind == Place::Kind::Parameters && place.offset == parameter.offset * element &&
              parameter.shape.size() == 2 && bytes >= large)
            embeddings.push_back({ids.index, step.set, place.offset, bytes, parameter.shape[1] * element});
    }
  }

  static void bind(ProgramRun &run, const xfc_shape &shape, std::span<const Binding> bindings) {
    for (size_t i = 0; i < run.arguments.size(); ++i) {
      const Argument &argument = run.program->arguments[i];
      // Bindings in the order of the arguments need no search.
      auto bound =
          i < bindings.size() && bindings[i].name == argument.name
              ? bindings.begin() + i
              : std::find_if(
                    bindings.begin(), bindings.end(), [&](const Binding &b) { return b.name == argument.name; });
      if (bound == bindings.end())
        throw Error("the program '" + run.program->name + "' was run without its argument '" + argument.name + "'");
      const int64_t stride = argument.set < 0 ? 0 : bound->stride ? bound->stride : featuresOf(argument);
      run.arguments[i] = {bound->data, stride, bound->onDevice};
    }
    run.shape = &shape;
    run.counts = countsOf(shape);
  }

  // The layout for a batch: the present one if the batch fits.
  void layOut(Prepared &prepared, const Counts &counts) {
    ProgramRun &run = prepared.run;
    if (!prepared.planned || !within(counts, run.capacity)) {
      // A layout that the device keeps something of is replaced by one that fits the old batches as well.
      run.capacity = prepared.planned && device->traits().keepsLayouts ? larger(run.capacity, counts) : counts;
      run.layout = plan(module, *run.program, run.capacity);
      ++placement;
      // What computes the gradients has no need of those that are there.
      growArena(run.layout.bytes, hasGradients && !run.program->is(programs::lossAndGradients));
      prepared.planned = true;
    }
    run.arena = arena ? static_cast<char *>(arena->data()) : nullptr;
  }

  int64_t arenaBytes() const { return arena ? arena->bytes() : 0; }
  void growArena(int64_t bytes, bool keepsGradients) {
    if (bytes <= arenaBytes())
      return;
    const std::unique_ptr<DeviceMemory> kept = keepsGradients ? std::move(arena) : nullptr;
    arena.reset();
    arena = allocate(bytes, "the arena");
    if (kept)
      device->copyOnDevice(arena->data(), kept->data(), blockBytes());
  }

  char *gradientsOnDevice() {
    growArena(blockBytes(), false);
    hasGradients = true;
    return arena ? static_cast<char *>(arena->data()) : nullptr; // a model may have no parameters
  }
  void *gradientsOnHost() {
    char *const onDevice = gradientsOnDevice();
    if (inHostMemory())
      return onDevice;
    if (!hostGradients.data())
      hostGradients.allocate(blockBytes(), "gradients");
    if (hostGradientsAreOld)
      device->copyToHost(hostGradients.data(), onDevice, blockBytes());
    hostGradientsAreOld = false;
    return hostGradients.data();
  }
  // These bytes of the gradients.
  void clearGradients(int64_t first, int64_t bytes) {
    char *const begin = gradientsOnDevice() + first;
    if (inHostMemory())
      std::memset(begin, 0, static_cast<size_t>(bytes));
    else
      device->copyOnDevice(begin, rowsNamed("zeros", bytes), bytes); // these are never written to
  }
  // Gradients that the program does not compute, and the memory between those of two parameters, are 0.
  void clearWhatIsNotComputed(const Prepared &prepared) {
    for (const GradientPart &part : prepared.gradients)
      if (part.first == GradientPart::never)
        clearGradients(part.begin, part.end - part.begin);
  }

  std::unique_ptr<DeviceMemory> newRows(int64_t bytes) {
    return allocate(bytes, "rows that steps hand on", /*sparse=*/true);
  }
  void *rowsNamed(std::string_view name, int64_t bytes) {
    auto known = rows.find(name);
    if (known == rows.end())
      known = rows.emplace(name, nullptr).first;
    std::unique_ptr<DeviceMemory> &memory = known->second;
    if (!memory || memory->bytes() < bytes) {
      memory.reset();
      memory = newRows(bytes);
    }
    return memory->data();
  }

  void makeTables(const Prepared &prepared, int64_t longest) {
    for (int64_t index : prepared.tables) {
      const Table &table = module.tables[index];
      if (longest > table.rows)
        throw Error("a sequence has " + std::to_string(longest) + " tokens, but the model's max_length is " +
                    std::to_string(table.rows));
      auto &[memory, made] = weights->tables[index];
      if (const int64_t rows = tableRows(table, longest); rows > made) {
        tableMemory[index].reset();
        memory.reset();
        memory = makeTable(table, rows);
        made = rows;
      }
      tableMemory[index] = memory;
      tables[index] = memory->data();
    }
  }

  std::shared_ptr<DeviceMemory> makeTable(const Table &table, int64_t rows) {
    const int64_t bytes = rows * table.dim * bytesOf(module.type);
    std::shared_ptr<DeviceMemory> memory = allocate(bytes, "a table of positions");
    if (inHostMemory()) {
      fillTable(table, rows, memory->data());
    } else {
      std::vector<char> values(bytes);
      fillTable(table, rows, values.data());
      device->copyToDevice(memory->data(), values.data(), bytes);
    }
    return memory;
  }

  void fillTable(const Table &table, int64_t rows, void *values) const {
    const int64_t half = (table.dim + 1) / 2;
    auto set = [&](int64_t p, int64_t column, double value) {
      if (module.type == DType::F64)
        static_cast<double *>(values)[p * table.dim + column] = value;
      else
        static_cast<float *>(values)[p * table.dim + column] = static_cast<float>(value);
    };
    for (int64_t i = 0; i < table.dim; i += 2) {
      const double sine = std::pow(table.base, table.exponentMultiplier * i / table.dim),
                   cosine = std::pow(table.base, table.exponentMultiplier * (i + table.cosineOffset) / table.dim);
      for (int64_t p = 0; p < rows; ++p) {
        set(p, table.halves ? i / 2 : i, std::sin(p / sine));
        if (i + 1 < table.dim)
          set(p, table.halves ? half + i / 2 : i + 1, std::cos(p / cosine));
      }
    }
  }

  // Packs what the program needs. Parameters that lie in a file, where nobody changes them, are packed once and for all
  // programs that are prepared, so that each page of the file is read once.
  void pack(const Prepared &prepared) {
    if (prepared.run.program->is(programs::update)) { // it writes packed weights, and the parameters
      givePackedMemory(prepared.packed);
      parameters.unwritten = false;
      return;
    }
    std::set<int64_t> stale;
    auto add = [&](const Prepared &program) {
      for (int64_t index : program.packed)
        if (weights->packedVersions[index] != weights->version)
          stale.insert(index);
    };
    add(prepared);
    if (stale.empty())
      return;
    if (parameters.unwritten)
      for (const auto &[name, other] : programs)
        if (!other.run.program->is(programs::update)) // it packs its own
          add(other);
    const std::vector<int64_t> indices(stale.begin(), stale.end());
    givePackedMemory(indices);
    packRuns.clear();
    for (int64_t index : indices) {
      const Packed &entry = module.packed[index];
      packRuns.push_back({entry.kernel, entry.chunks, prepared.run.address(entry.source), weights->packed[index],
                          blockBytes() - entry.source.offset, entry.bytes});
      weights->packedVersions[index] = weights->version;
    }
    if (!parameters.unwritten) {
      device->pack(packRuns);
      return;
    }
    // The pages of the file that have been read need not stay in memory. A weight of many megabytes is released several
    // times while it is packed, so that little of it is in memory at a time: pages still needed are mapped again.
    std::ranges::sort(packRuns, {}, &PackRun::from);
    device->pack(packRuns, [&](size_t begun) {
      // The same weight may be packed in several forms, one after the other.
      while (begun < packRuns.size() && packRuns[begun].from == packRuns[begun - 1].from)
        ++begun;
      const int64_t read = begun == packRuns.size() ? parameters.bytes : parameters.bytes - packRuns[begun].fromBytes;
      parameters.host.releaseUnwritten(0, read);
    });
    if (readsFile())
      bringInVectors();
  }

  void givePackedMemory(const std::vector<int64_t> &indices) {
    std::vector<void *> &packed = weights->packed;
    int64_t missing = 0;
    auto room = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
    for (int64_t index : indices)
      missing += packed[index] ? 0 : room(module.packed[index].bytes);
    if (missing == 0)
      return;
    weights->packedMemory.push_back(allocate(missing, "packed weights"));
    char *next = static_cast<char *>(weights->packedMemory.back()->data());
    for (int64_t index : indices)
      if (!packed[index]) {
        packed[index] = next;
        next += room(module.packed[index].bytes);
      }
  }

  // Whether a run reads parameters from the pages of a file.
  bool readsFile() const { return parameters.unwritten && inHostMemory(); }

  // Biases and the parameters of norms, which are not packed. Those that lie close together are brought in at once.
  void bringInVectors() {
    constexpr int64_t near = 4096; // bytes
    const int64_t element = bytesOf(module.type);
    int64_t begin = 0, end = 0;
    for (const Parameter &parameter : module.parameters) {
      if (parameter.shape.size() != 1)
        continue;
      const int64_t from = parameter.offset * element;
      if (end > 0 && (from < begin || from > end + near)) {
        parameters.host.bringIn(begin, end - begin);
        end = 0;
      }
      if (end == 0)
        begin = from;
      end = from + parameter.shape[0] * element;
    }
    if (end > 0)
      parameters.host.bringIn(begin, end - begin);
  }

  // The rows of large embeddings that a run will read. The rows of earlier runs, which would in time be the whole
  // table, are released now and then.
  void bringInRows(Prepared &prepared) {
    constexpr int64_t mostRows = 512;
    for (Embedding &table : prepared.embeddings) {
      const int64_t rows = prepared.run.counts.rows[table.set];
      if (table.rowsIn += rows; table.rowsIn > mostRows) {
        parameters.host.releaseUnwritten(table.begin, table.bytes);
        table.rowsIn = rows;
      }
      const auto *ids = static_cast<const int32_t *>(prepared.run.arguments[table.ids].data);
      for (int64_t row = 0; row < rows; ++row)
        parameters.host.bringIn(table.begin + ids[row] * table.rowBytes, table.rowBytes);
    }
  }

  // Everything that precedes the device's work.
  Prepared &ready(std::string_view name, const xfc_shape &shape, std::span<const Binding> bindings) {
    Prepared &prepared = prepare(name);
    ProgramRun &run = prepared.run;
    bind(run, shape, bindings);
    layOut(prepared, run.counts);
    {
      const std::lock_guard<std::mutex> lock(weights->mutex);
      makeTables(prepared, run.counts.longest);
      placeBlocks(prepared);
      pack(prepared);
    }
    if (readsFile())
      bringInRows(prepared);
    run.placement = placement;
    return prepared;
  }
};

// Opens the device on which the choice's programs run.
static std::unique_ptr<Device> open(const DeviceChoice &choice) {
  const auto withImages = [&](const Images &images) {
    return openDevice(choice.device, {choice.cudaImage, choice.cudaStep}, choice.ordinal, images);
  };
  if (choice.library.empty())
    return withImages(ownImages());
  const Images images = imagesOf(choice.library);
  try {
    return withImages(images);
  } catch (const Error &error) { // what is missing in the code
    throw Error(choice.library + ": " + error.what());
  }
}

Engine::Engine(int threads, const DeviceChoice &choice) : Engine(open(choice), threads) {
  state->library = choice.library;
}
Engine::Engine(std::unique_ptr<Device> device, int threads) {
  const ImagePlan plan = device->plan();
  state = std::make_unique<State>(std::move(device), plan, threads, nullptr);
}
Engine::Engine(std::unique_ptr<State> state) : state(std::move(state)) {}
Engine::~Engine() = default;

std::unique_ptr<Engine> Engine::sharing(int threads) const {
  std::unique_ptr<Device> device = state->device->another();
  if (!device)
    throw Error("--workers: only a CPU has several workers; give one worker with --device " +
                std::string(state->device->kind()));
  const ImagePlan plan = device->plan();
  return std::unique_ptr<Engine>(new Engine(std::make_unique<State>(std::move(device), plan, threads, state->weights)));
}

const Module &Engine::module() const { return state->module; }
const std::string &Engine::library() const { return state->library; }
const Device &Engine::device() const { return *state->device; }
Device &Engine::device() { return *state->device; }
ThreadPool &Engine::pool() { return state->pool; }
bool Engine::has(std::string_view program) const { return state->module.has(program); }
void Engine::replace(Program program) {
  if (state->programs.contains(program.name))
    throw Error("the program '" + program.name + "' is in use already");
  Program *const old = state->module.programs.find(program.name);
  if (!old)
    throw Error("this executable has no program '" + program.name + "'");
  *old = std::move(program);
}
void Engine::profile(std::vector<LaunchTiming> *timings) { state->device->profile(timings); }
void Engine::traceTo(Trace *trace) {
  state->trace = trace;
  state->device->traceTo(trace);
}
Trace *Engine::trace() const { return state->trace; }

void *Engine::parameters() {
  state->parameters.unwritten = false; // the caller may write to it
  return state->onHost(state->parameters, "parameters");
}
void Engine::takeParameters(MappedFile &&file, const char *begin) {
  state->parameters.host.take(std::move(file), begin, state->blockBytes());
  state->parameters.newer = Block::Newer::Neither;
  state->parameters.unwritten = true;
  parametersChanged();
}
void Engine::parametersChanged() {
  ++state->weights->version;
  state->changedOnHost(state->parameters);
}
void *Engine::gradients() { return state->gradientsOnHost(); }
void *Engine::optimizerState(std::string_view name) {
  const OptimizerState *found = state->module.findState(name);
  if (!found)
    throw Error("this executable's optimizers keep no '" + std::string(name) + "'");
  return state->onHost(state->states[found - state->module.states.data()], "the optimizer's state");
}
void Engine::keepStatesOf(std::vector<Range> ranges) { state->keepStatesOf(std::move(ranges)); }
const std::vector<Range> &Engine::statesKept() const { return state->kept; }
void Engine::statesChanged() {
  for (Block &block : state->states)
    state->changedOnHost(block);
}

void Engine::reserve(std::string_view program, const Counts &counts) {
  State::Prepared &prepared = state->prepare(program);
  state->layOut(prepared, counts);
  const std::lock_guard<std::mutex> lock(state->weights->mutex);
  state->makeTables(prepared, counts.longest);
  state->placeBlocks(prepared);
}

const ProgramRun &Engine::prepare(std::string_view program, const xfc_shape &shape, std::span<const Binding> bindings) {
  return state->ready(program, shape, bindings).run;
}

void Engine::run(std::string_view program, const xfc_shape &shape, std::span<const Binding> bindings,
                 StepObserver *observer) {
  State &s = *state;
  Span span(s.trace, "program", "program");
  State::Prepared &prepared = s.ready(program, shape, bindings);
  span.event.name = prepared.run.program->name;
  prepared.run.observer = observer;
  s.clearWhatIsNotComputed(prepared);
  s.device->run(prepared.run);
  s.hasGradients = !prepared.gradients.empty();
  s.hostGradientsAreOld |= s.hasGradients;
  for (int64_t index : prepared.states)
    s.changedOnDevice(s.states[index]);
  if (prepared.run.program->is(programs::update)) {
    s.changedOnDevice(s.parameters);
    ++s.weights->version;
    for (int64_t index : prepared.packed)
      s.weights->packedVersions[index] = s.weights->version;
  }
}

void Engine::stage(std::string_view program, const xfc_shape &shape, std::span<const Binding> bindings) {
  State &s = *state;
  State::Prepared &prepared = s.prepare(program);
  // A batch that needs a new layout is not staged: its run copies it.
  if (s.inHostMemory() || !prepared.planned || !within(countsOf(shape), prepared.run.capacity))
    return;
  prepared.next = prepared.run;
  State::bind(prepared.next, shape, bindings);
  prepared.next.placement = s.placement;
  s.device->stage(prepared.next);
}

void *Engine::rows(std::string_view name, int64_t bytes) { return state->rowsNamed(name, bytes); }

std::unique_ptr<DeviceMemory> Engine::newRows(int64_t bytes) { return state->newRows(bytes); }

void Engine::copyRows(std::string_view program, std::string_view name, void *rows, std::span<const int32_t> to) {
  State::Prepared &prepared = state->prepare(program);
  state->device->copyRows(prepared.run, outputOf(*prepared.run.program, name), rows, to);
}

void *Engine::parametersOnDevice() {
  void *place = state->onDevice(state->parameters, "parameters");
  state->changedOnDevice(state->parameters);
  return place;
}
void *Engine::gradientsOnDevice() {
  state->hostGradientsAreOld = true;
  return state->gradientsOnDevice();
}

void Engine::copyGradients(void *to) {
  const Span span(state->trace, "copy", "copy gradients");
  state->device->copyOnDevice(to, state->gradientsOnDevice(), state->blockBytes());
}

void Engine::clearGradients(int64_t first, int64_t count) {
  const int64_t element = bytesOf(state->module.type);
  state->clearGradients(first * element, count * element);
}

View Engine::output(std::string_view program, std::string_view name) const {
  State::Prepared &prepared = state->prepare(program);
  return state->device->output(prepared.run, outputOf(*prepared.run.program, name));
}

void Engine::fetch(std::string_view program, std::string_view name, std::unique_ptr<Readback> &into) {
  State::Prepared &prepared = state->prepare(program);
  state->device->fetch(prepared.run, outputOf(*prepared.run.program, name), into);
}

int Engine::computingThreads() const { return state->device->traits().hostThreads ? state->pool.threads() : 0; }

int64_t Engine::arenaBytes() const { return state->arenaBytes(); }

int64_t Engine::stateBytes() const {
  const State &s = *state;
  int64_t total = 0;
  std::vector<const Block *> blocks = {&s.parameters};
  for (const Block &block : s.states)
    blocks.push_back(&block);
  for (const Block *block : blocks)
    total += s.inHostMemory() ? block->host.bytes() : block->device ? block->device->bytes() : 0;
  for (const std::unique_ptr<DeviceMemory> &memory : s.weights->packedMemory)
    total += memory->bytes();
  for (const std::shared_ptr<DeviceMemory> &memory : s.tableMemory)
    total += memory ? memory->bytes() : 0;
  return total;
}

int64_t Engine::deviceBytes() const {
  int64_t total = arenaBytes() + stateBytes();
  for (const auto &[name, memory] : state->rows)
    total += memory->bytes();
  return total;
}

} // namespace xfc
