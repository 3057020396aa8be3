// The engine: memory by plan, steps by kernel, chunks by thread.
#include "Engine.h"
#include "Features.h"
#include "Files.h"
#include "Memory.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <sys/mman.h>

namespace xfc {
namespace {

// The program that changes the parameters. Packed weights among its buffers are written, not read.
constexpr std::string_view updateProgram = "update";

// Zeroed pages, with room to read a vector past the end, in huge pages where the system has them.
class Block {
public:
  Block() = default;
  Block(const Block &) = delete;
  ~Block() { release(); }
  void *data() const { return memory; }
  int64_t bytes() const { return used; }
  // From 1 MB on in huge pages: besides fewer misses of the TLB, what lies together is spread evenly over a cache's sets.
  void allocate(int64_t size, const char *what) {
    constexpr size_t small = 4096, huge = 1 << 21;
    release();
    const size_t page = size >= 1 << 20 ? huge : small;
    mapped = (size + 128 + page - 1) / page * page + (page - small);
    void *pages = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
      mapped = 0;
      throw Error("out of memory: " + std::to_string(size) + " bytes of " + what + " were refused; use smaller batches (--batch-tokens)");
    }
    mapping = pages;
    memory = reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(pages) + page - 1) / page * page);
    used = size;
    if (page == huge)
      madvise(pages, mapped, MADV_HUGEPAGE);
  }
  // A part of a mapped file in place of pages of its own.
  void take(MappedFile &&from, const char *begin, int64_t size) {
    release();
    file.emplace(std::move(from));
    memory = const_cast<char *>(begin); // a private mapping can be written
    used = size;
  }

private:
  void release() {
    file.reset();
    if (mapping)
      munmap(mapping, mapped);
    mapping = memory = nullptr;
    used = mapped = 0;
  }
  std::optional<MappedFile> file;
  void *mapping = nullptr, *memory = nullptr;
  int64_t used = 0;
  size_t mapped = 0;
};

const xfc_image &chooseImage() {
  std::string refused;
  for (const xfc_image *const *image = xfc_images; *image; ++image) {
    const std::string missing = missingFeatures((*image)->features);
    if (missing.empty())
      return **image;
    refused += (refused.empty() ? "" : "; ") + std::string((*image)->cpu) + " (this CPU lacks " + missing + ")";
  }
  throw Error("this executable was compiled for " + refused + "; compile the model for this machine, or with --cpu x86-64-v3,x86-64-v4");
}

} // namespace

double View::at(int64_t i, int64_t j) const {
  const int64_t k = i * stride + j;
  switch (output->type) {
  case DType::F64:
    return static_cast<const double *>(data)[k];
  case DType::F32:
    return static_cast<const float *>(data)[k];
  case DType::I32:
    return static_cast<const int32_t *>(data)[k];
  }
  return 0;
}

struct Engine::State {
  const xfc_image &image;
  Module module;
  ThreadPool pool;
  Block parameters, gradients, moments1, moments2, arena;
  std::vector<Block> tables;
  std::list<Block> packedBlocks; // one for what a program is the first to need
  std::vector<void *> packed;
  std::vector<int64_t> tableRowsMade;
  std::vector<uint64_t> packedVersions;
  uint64_t version = 1; // of the parameters
  Block scratch;
  int64_t scratchBytes = 0; // a thread
  std::vector<Timing> *timings = nullptr;
  std::vector<void *> buffers; // of the step that runs
  std::vector<int64_t> strides;

  struct Prepared {
    const Program *program = nullptr;
    Layout layout;
    Counts counts; // the layout holds any batch within these
    bool planned = false;
    std::vector<int64_t> packed, tables;
    bool gradients = false, moments = false;
    std::vector<void *> arguments;
    std::vector<int64_t> argumentStrides;
  };
  std::map<std::string, Prepared, std::less<>> programs;

  State(const xfc_image &image, int threads)
      : image(image), module(deserialize(image.plan, image.plan_size)), pool(std::max(1, threads)), tables(module.tables.size()),
        packed(module.packed.size()), tableRowsMade(module.tables.size()), packedVersions(module.packed.size()) {
    if (image.abi_version != XFC_ABI_VERSION)
      throw Error("this executable was compiled for another version of the runtime; compile the model again");
    if (image.kernel_count != module.kernels.size())
      throw Error("the plan inside this executable is damaged; compile the model again");
  }

  int64_t blockBytes() const { return module.parameterElements * bytesOf(module.type); }
  void *block(Block &block, const char *what) {
    if (!block.data())
      block.allocate(blockBytes(), what);
    return block.data();
  }

  Prepared &prepare(std::string_view name) {
    if (auto known = programs.find(name); known != programs.end())
      return known->second;
    Prepared &prepared = programs[std::string(name)];
    prepared.program = module.find(std::string(name));
    if (!prepared.program) {
      programs.erase(std::string(name));
      throw Error("this executable has no program '" + std::string(name) + "'; it was compiled without it (--mode), or the model has none");
    }
    std::set<int64_t> packs, tableSet;
    int64_t needed = 0;
    for (const Step &step : prepared.program->steps) {
      needed = std::max(needed, module.kernels[step.kernel].scratch);
      buffers.resize(std::max(buffers.size(), step.buffers.size()));
      for (const Place &place : step.buffers) {
        if (place.kind == Place::Kind::Packed) {
          packs.insert(place.index);
          needed = std::max(needed, module.kernels[module.packed[place.index].kernel].scratch);
        } else if (place.kind == Place::Kind::Table) {
          tableSet.insert(place.index);
        }
        prepared.gradients |= place.kind == Place::Kind::Gradients;
        prepared.moments |= place.kind == Place::Kind::Moments1 || place.kind == Place::Kind::Moments2;
      }
    }
    strides.resize(buffers.size());
    prepared.packed.assign(packs.begin(), packs.end());
    prepared.tables.assign(tableSet.begin(), tableSet.end());
    prepared.arguments.resize(prepared.program->arguments.size());
    prepared.argumentStrides.resize(prepared.program->arguments.size());
    if (needed > scratchBytes) {
      scratchBytes = (needed + 63) / 64 * 64;
      scratch.allocate(scratchBytes * pool.threads(), "scratch");
    }
    return prepared;
  }

  // The layout for a batch: that of the reserved counts if they hold it.
  void layOut(Prepared &prepared, const Counts &counts) {
    if (prepared.planned && within(counts, prepared.counts))
      return;
    prepared.layout = plan(*prepared.program, counts);
    prepared.counts = counts;
    prepared.planned = true;
    if (prepared.layout.bytes > arena.bytes())
      arena.allocate(prepared.layout.bytes, "the arena");
  }

  void makeTables(const Prepared &prepared, int64_t longest) {
    for (int64_t index : prepared.tables) {
      const Table &table = module.tables[index];
      if (longest > table.rows)
        throw Error("a sequence has " + std::to_string(longest) + " tokens, the model's max_length is " + std::to_string(table.rows));
      const int64_t rows = tableRows(table, longest), half = (table.dim + 1) / 2;
      if (rows <= tableRowsMade[index])
        continue;
      tables[index].allocate(rows * table.dim * bytesOf(module.type), "a table of positions");
      auto set = [&](int64_t p, int64_t column, double value) {
        if (module.type == DType::F64)
          static_cast<double *>(tables[index].data())[p * table.dim + column] = value;
        else
          static_cast<float *>(tables[index].data())[p * table.dim + column] = static_cast<float>(value);
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
      tableRowsMade[index] = rows;
    }
  }

  void *address(const Prepared &prepared, const Place &place) {
    auto at = [&](void *base) { return static_cast<void *>(static_cast<char *>(base) + place.offset); };
    switch (place.kind) {
    case Place::Kind::Arena:
      return static_cast<char *>(arena.data()) + prepared.layout.offsets[place.index] + place.offset;
    case Place::Kind::Parameters:
      return at(block(parameters, "parameters"));
    case Place::Kind::Gradients:
      return at(block(gradients, "gradients"));
    case Place::Kind::Moments1:
      return at(block(moments1, "moments"));
    case Place::Kind::Moments2:
      return at(block(moments2, "moments"));
    case Place::Kind::Packed:
      return packed[place.index];
    case Place::Kind::Table:
      return tables[place.index].data();
    case Place::Kind::Argument:
      return at(prepared.arguments[place.index]);
    case Place::Kind::None:
      return nullptr;
    }
    return nullptr;
  }

  struct Launch {
    const State *state;
    xfc_kernel kernel;
    xfc_call call;
  };
  static void runChunk(void *context, int64_t chunk, int thread) {
    auto *launch = static_cast<Launch *>(context);
    launch->kernel(&launch->call, chunk, static_cast<char *>(launch->state->scratch.data()) + thread * launch->state->scratchBytes);
  }
  // `step` is null for packing.
  void launch(int32_t kernel, const Step *step, const xfc_call &call, int64_t chunks, const Counts &counts) {
    Launch launch{this, image.kernels[kernel], call};
    if (!timings) {
      pool.run(runChunk, &launch, chunks);
      return;
    }
    auto begin = std::chrono::steady_clock::now();
    pool.run(runChunk, &launch, chunks);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    timings->push_back({&module.kernels[kernel], step, seconds, step ? static_cast<double>(evaluate(step->flops, counts)) : 0,
                        step ? static_cast<double>(evaluate(step->traffic, counts)) : 0});
  }

  void pack(const Prepared &prepared) {
    int64_t missing = 0;
    auto room = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
    for (int64_t index : prepared.packed)
      missing += packed[index] ? 0 : room(module.packed[index].bytes);
    if (missing) {
      Block &block = packedBlocks.emplace_back();
      block.allocate(missing, "packed weights");
      char *next = static_cast<char *>(block.data());
      for (int64_t index : prepared.packed)
        if (!packed[index]) {
          packed[index] = next;
          next += room(module.packed[index].bytes);
        }
    }
    if (prepared.program->name == updateProgram)
      return;
    for (int64_t index : prepared.packed) {
      const Packed &entry = module.packed[index];
      if (packedVersions[index] == version)
        continue;
      void *buffers[] = {address(prepared, entry.source), packed[index]};
      const int64_t strides[] = {0, 0};
      static const xfc_shape empty{};
      launch(entry.kernel, nullptr, {&empty, &empty.sets[0], &empty.sets[0], nullptr, buffers, strides, nullptr}, entry.chunks, {});
      packedVersions[index] = version;
    }
  }

  static int64_t chunksOf(const Partition &partition, const xfc_shape &shape, const Step &step) {
    int64_t count = 1;
    switch (partition.unit) {
    case Partition::Unit::One:
      break;
    case Partition::Unit::Rows:
      count = shape.sets[step.set].rows;
      break;
    case Partition::Unit::KeyRows:
      count = shape.sets[step.keySet].rows;
      break;
    case Partition::Unit::Sequences:
      count = shape.sets[step.set].sequences;
      break;
    case Partition::Unit::Elements:
      count = step.elements;
      break;
    }
    return (count + partition.per - 1) / partition.per * partition.times;
  }
};

Engine::Engine(int threads) : Engine(chooseImage(), threads) {}
Engine::Engine(const xfc_image &image, int threads) : state(std::make_unique<State>(image, threads)) {}
Engine::~Engine() = default;

const Module &Engine::module() const { return state->module; }
const char *Engine::cpu() const { return state->image.cpu; }
ThreadPool &Engine::pool() { return state->pool; }
void *Engine::parameters() { return state->block(state->parameters, "parameters"); }
void Engine::takeParameters(MappedFile &&file, const char *begin) {
  state->parameters.take(std::move(file), begin, state->blockBytes());
  parametersChanged();
}
void Engine::parametersChanged() { ++state->version; }
void *Engine::gradients() { return state->block(state->gradients, "gradients"); }
void *Engine::moments1() { return state->block(state->moments1, "moments"); }
void *Engine::moments2() { return state->block(state->moments2, "moments"); }
bool Engine::has(std::string_view program) const { return state->module.find(std::string(program)) != nullptr; }
void Engine::profile(std::vector<Timing> *timings) { state->timings = timings; }

void Engine::reserve(std::string_view program, const Counts &counts) {
  State::Prepared &prepared = state->prepare(program);
  state->layOut(prepared, counts);
  state->makeTables(prepared, counts.longest);
  state->block(state->parameters, "parameters");
  if (prepared.gradients)
    gradients();
  if (prepared.moments) {
    moments1();
    moments2();
  }
}

void Engine::run(std::string_view program, const xfc_shape &shape, std::span<const Binding> bindings) {
  State &s = *state;
  State::Prepared &prepared = s.prepare(program);
  for (size_t i = 0; i < prepared.arguments.size(); ++i) {
    const Argument &argument = prepared.program->arguments[i];
    // Bindings in the order of the arguments are found at once.
    auto bound = i < bindings.size() && bindings[i].name == argument.name
                     ? bindings.begin() + i
                     : std::find_if(bindings.begin(), bindings.end(), [&](const Binding &b) { return b.name == argument.name; });
    if (bound == bindings.end())
      throw Error("the program '" + std::string(program) + "' was run without its argument '" + argument.name + "'");
    int64_t features = 1;
    for (int64_t extent : argument.shape)
      features *= extent;
    prepared.arguments[i] = bound->data;
    prepared.argumentStrides[i] = argument.set < 0 ? 0 : bound->stride ? bound->stride : features;
  }
  const Counts counts = countsOf(shape);
  s.layOut(prepared, counts);
  s.makeTables(prepared, counts.longest);
  s.pack(prepared);

  for (const Step &step : prepared.program->steps) {
    for (size_t b = 0; b < step.buffers.size(); ++b) {
      const Place &place = step.buffers[b];
      s.buffers[b] = s.address(prepared, place);
      s.strides[b] = place.kind == Place::Kind::Argument ? prepared.argumentStrides[place.index] : step.strides[b];
    }
    const Kernel &kernel = s.module.kernels[step.kernel];
    const xfc_call call{&shape,
                        &shape.sets[step.set],
                        &shape.sets[step.keySet],
                        step.keys < 0 ? nullptr : &shape.keys[step.keys],
                        s.buffers.data(),
                        s.strides.data(),
                        step.immediates.data()};
    const int64_t chunks = State::chunksOf(kernel.partition, shape, step);
    s.launch(step.kernel, &step, call, chunks, counts);
  }
  if (program == updateProgram) {
    ++s.version;
    for (int64_t index : prepared.packed)
      s.packedVersions[index] = s.version;
  }
}

View Engine::output(std::string_view program, std::string_view name) const {
  State::Prepared &prepared = state->prepare(program);
  for (const Output &output : prepared.program->outputs)
    if (output.name == name) {
      int64_t stride = output.stride;
      if (output.place.kind == Place::Kind::Argument && output.set >= 0)
        stride = prepared.argumentStrides[output.place.index];
      return {&output, state->address(prepared, output.place), stride};
    }
  throw Error("the program '" + std::string(program) + "' has no result '" + std::string(name) + "'");
}

int64_t Engine::arenaBytes() const { return state->arena.bytes(); }

int64_t Engine::stateBytes() const {
  const State &s = *state;
  int64_t total = s.parameters.bytes() + s.gradients.bytes() + s.moments1.bytes() + s.moments2.bytes();
  for (const Block &block : s.packedBlocks)
    total += block.bytes();
  for (const Block &block : s.tables)
    total += block.bytes();
  return total;
}

} // namespace xfc
