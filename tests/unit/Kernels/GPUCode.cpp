// Compiles kernels of GPU/ to PTX and executes them in the interpreter of tests/ptx with all its checks.
#include "Analysis/Kernels.h"
#include "Code.h"
#include "Dialect/Values.h"
#include "Interpreter.h"
#include "Pipeline/Targets.h"
#include <map>

using namespace mlir;

namespace xfc::test {
namespace {

// Copies the memory that a call points to into a device's memory.
class DeviceMemory {
public:
  explicit DeviceMemory(ptx::Interpreter &device) : device(device) {}
  ~DeviceMemory() {
    for (uint64_t address : allocated)
      device.free(address);
  }

  uint64_t copy(const void *from, size_t bytes) {
    if (!from)
      return 0;
    allocated.push_back(device.allocate(std::max<size_t>(bytes, 1)));
    device.write(allocated.back(), from, bytes);
    return allocated.back();
  }
  template <typename T> void move(const T *&list, size_t count) {
    list = reinterpret_cast<const T *>(copy(list, count * sizeof(T)));
  }

  uint64_t copy(const xfc_shape &host) {
    xfc_shape shape = host;
    for (int structure = 0; structure < XFC_KEY_STRUCTURES; ++structure) {
      const xfc_rows &queries = host.sets[structure / 4 == XFC_SOURCE_SOURCE ? XFC_SOURCE : XFC_TARGET];
      xfc_keys &keys = shape.keys[structure];
      int64_t listed = 0;
      for (int64_t b = 0; b < queries.sequences; ++b)
        listed = std::max<int64_t>(listed, keys.begin[b] + keys.count[b]);
      move(keys.keys, listed);
      move(keys.begin, queries.sequences);
      move(keys.count, queries.sequences);
      move(keys.limit, queries.rows);
      move(keys.pair_offsets, queries.sequences + 1);
    }
    for (xfc_rows &rows : shape.sets) {
      move(rows.offsets, rows.sequences + 1);
      move(rows.positions, rows.rows);
      move(rows.sequence_of, rows.rows);
      move(rows.sentences, rows.sequences);
      move(rows.by_id, rows.rows);
    }
    move(shape.slots, host.sets[XFC_TARGET].rows);
    move(shape.before, host.sets[XFC_TARGET].rows);
    return copy(&shape, sizeof shape);
  }

private:
  ptx::Interpreter &device;
  std::vector<uint64_t> allocated;
};

class GPUCode : public Code {
public:
  GPUCode(Operation *op, const std::string &arch) : device({.threads = 2, .checks = true}) {
    const auto target = makeTarget(Platform::CUDA, arch);
    OwningOpRef<ModuleOp> code = ModuleOp::create(UnknownLoc::get(&context()));
    info = target->emit(op, "kernel", *code);
    small = target->emitSmall(op, "kernel_small", *code);
    if (info.chunkBytes)
      reduction = target->emitReduction(op, "kernel_reduction", *code);
    EXPECT_FALSE(info.resident && target->canBeBody("kernel", *code)) << "its blocks depend on how many there are";
    if (!small.empty()) {
      SmallVector<KernelBody> bodies = {{"kernel", info.scratch, info.threads}};
      for (const SmallKernel &variant : small)
        bodies.push_back({variant.name, variant.kernel.scratch, variant.kernel.threads});
      for (const KernelBody &body : bodies)
        EXPECT_TRUE(target->canBeBody(body.kernel, *code));
      persistent = target->emitPersistent(bodies, "persistent", *code);
    }
    if (auto attention = dyn_cast<AttentionOp>(op); attention && isDecodingStep(op)) {
      for (OpOperand *rows : {&attention.getKMutable(), &attention.getVMutable()}) {
        auto type = cast<RowsType>(rows->get().getType());
        listed.push_back({rows->getOperandNumber(), elementBytes(type), type.getFeatures() * elementBytes(type)});
      }
      persistent = target->emitPersistent({{"kernel", info.scratch, info.threads, listed}}, "persistent", *code);
    }
    for (unsigned i = 0; i < op->getNumOperands(); ++i)
      if (std::optional<xfc::Packing> packing = target->packs(op, i)) {
        packs.push_back(target->emitPack(cast<RankedTensorType>(op->getOperand(i).getType()), *packing,
                                         "pack" + std::to_string(i), *code));
        packings.push_back({i, packs.back().bytes});
      }
    const ObjectFile ptx = keptOr(*code, {arch}, [&] {
      const std::string text = target->text(*code);
      return ObjectFile(text.begin(), text.end());
    });
    program = &device.load({ptx.begin(), ptx.end()});
  }

  void pack(size_t packing, Block weight, Block packed) override {
    const PackInfo &info = packs[packing];
    launch("pack" + std::to_string(packings[packing].operand), info.chunks, info.threads, info.scratch,
           {weight, packed}, {0, 0}, 0, {}, nullptr);
  }

  void run(const Batch &batch, const xfc_call &call, ArrayRef<Block> blocks, size_t tensors) override {
    // The partial results that the kernel leaves to the reduction.
    const int64_t rows = call.rows->rows;
    GuardedBytes chunks(rows > chunkRows ? info.chunkBytes * ((rows - 1) / chunkRows + 1) : 0);
    SmallVector<Block> all(blocks);
    SmallVector<int64_t> strides(call.strides, call.strides + blocks.size());
    if (info.chunkBytes) {
      all.push_back(rows > chunkRows ? chunks.block() : Block());
      strides.push_back(0);
    }
    // Launch some more blocks than the batch needs, like a grid sized for the largest batch.
    auto launchAll = [&](const std::string &name, const KernelInfo &kernel) {
      const int64_t chunks = chunksOf(kernel.partition, call, /*surplus=*/3);
      // Two clusters of two blocks, so that both take turns, and the second may have one turn less.
      launch(name, kernel.resident ? std::min<int64_t>(chunks, 4) : chunks, kernel.threads, kernel.scratch, all,
             strides, tensors, call, &batch.shape);
    };
    const std::vector<std::string> before = contentsOf(blocks);
    launchAll("kernel", info);
    EXPECT_TRUE(chunks.guarded()) << "wrote past what the kernel leaves to the reduction";
    if (info.chunkBytes)
      launchAll("kernel_reduction", reduction);
    const std::vector<std::string> after = contentsOf(blocks);
    auto startAgain = [&] {
      for (size_t i = 0; i < blocks.size(); ++i)
        std::copy(before[i].begin(), before[i].end(), blocks[i].data);
    };
    for (const SmallKernel &variant : small) {
      startAgain();
      launchAll(variant.name, variant.kernel);
      EXPECT_TRUE(contentsOf(blocks) == after) << variant.name << " gives other bits";
    }
    if (!small.empty())
      runPersistent(batch, call, all, strides, tensors, startAgain, after);
    if (!listed.empty())
      runAfterFetch(batch, call, all, strides, startAgain, after);
  }

private:
  static std::vector<std::string> contentsOf(ArrayRef<Block> blocks) {
    std::vector<std::string> contents;
    for (const Block &block : blocks)
      contents.emplace_back(block.data, block.data ? block.bytes : 0);
    return contents;
  }

  // Runs the call by the persistent kernel with each of its bodies, after it ran with another one, for which it waits.
  // Two blocks take turns, and the second may have one turn less; the two bodies cut the work into other chunks, so
  // what a block overwrites the other one has written. If the second one does not wait, that is a race.
  template <typename Restart>
  void runPersistent(const Batch &batch, const xfc_call &call, ArrayRef<Block> blocks, ArrayRef<int64_t> strides,
                     size_t tensors, Restart startAgain, ArrayRef<std::string> expected) {
    SmallVector<KernelInfo> bodies = {info};
    for (const SmallKernel &variant : small)
      bodies.push_back(variant.kernel);
    auto instructionOf = [&](size_t body) {
      const auto chunks = static_cast<int32_t>(chunksOf(bodies[body].partition, call, /*surplus=*/3));
      return xfc_instruction{
          .call = nullptr, .body = static_cast<int32_t>(body), .chunks = chunks, .waits = nullptr, .wait_count = 1};
    };
    auto launchBoth = [&](const xfc_instruction &first, const xfc_instruction &second) {
      startAgain();
      launch("persistent", 2, persistent.threads, persistent.scratch, blocks, strides, tensors, call, &batch.shape,
             {first, second});
    };
    for (size_t body = 0; body < bodies.size(); ++body) {
      launchBoth(instructionOf((body ? body : bodies.size()) - 1), instructionOf(body));
      EXPECT_TRUE(ArrayRef(contentsOf(blocks.take_front(expected.size()))) == expected)
          << "body " << body << " of a persistent kernel gives other bits";
    }
    // The race needs bodies that cut the columns in different ways: if only the rows of their tiles differ, they cut a
    // batch of few rows into the same chunks.
    const int64_t across = bodies.back().partition.times;
    size_t before = bodies.size() - 1;
    while (before > 0 && bodies[before].partition.times == across)
      --before;
    if (triedRace || chunksOf(bodies.back().partition, call) < 2 || bodies[before].partition.times == across)
      return;
    triedRace = true;
    xfc_instruction hasty = instructionOf(bodies.size() - 1);
    hasty.wait_count = 0;
    std::string fault;
    try {
      launchBoth(instructionOf(before), hasty);
    } catch (const ptx::Fault &found) {
      fault = found.what();
    }
    EXPECT_NE(fault.find("race on global memory"), std::string::npos) << "found: " << fault;
    for (size_t i = 0; i < expected.size(); ++i)
      std::copy(expected[i].begin(), expected[i].end(), blocks[i].data);
  }

  // Runs an attention by the persistent kernel after one of its chunks, for which the second of two blocks has no work:
  // it has the keys and values fetched that the lists name, each once, as far as they have room in the cache.
  template <typename Restart>
  void runAfterFetch(const Batch &batch, const xfc_call &call, ArrayRef<Block> blocks, ArrayRef<int64_t> strides,
                     Restart startAgain, ArrayRef<std::string> expected) {
    constexpr const char *fetch = "prefetch.global.L2";
    constexpr int64_t line = 128, ofWarp = 32 * line;
    const auto chunks = static_cast<int32_t>(chunksOf(info.partition, call, /*surplus=*/3));
    const SmallVector<xfc_instruction> instructions = {
        {.call = nullptr, .body = 0, .chunks = 1, .waits = nullptr, .wait_count = 0},
        {.call = nullptr, .body = 0, .chunks = chunks, .waits = nullptr, .wait_count = 1}};
    auto launchBoth = [&](ArrayRef<Block> blocks, const xfc_shape &shape) {
      xfc_call own = call;
      own.shape = &shape;
      own.rows = &shape.sets[call.rows - batch.shape.sets];
      own.key_rows = &shape.sets[call.key_rows - batch.shape.sets];
      own.keys = &shape.keys[call.keys - batch.shape.keys];
      launch("persistent", 2, persistent.threads, persistent.scratch, blocks, strides, 0, own, &shape, instructions);
    };
    // The lists share 16 MB equally, and the first keys of a list are fetched, as many as fit in its share.
    int64_t together = 0;
    for (const ListedRows &rows : listed)
      together += rows.bytes;
    const int64_t room = (16 << 20) / together / std::max<int64_t>(call.rows->sequences, 1);
    uint64_t fetched = 0;
    int64_t last = -1; // the last row that is fetched
    for (int64_t b = 0; b < call.rows->sequences; ++b)
      for (int64_t key = 0; key < std::min<int64_t>(call.keys->count[b], room); ++key) {
        last = std::max<int64_t>(last, call.keys->keys[call.keys->begin[b] + key]);
        for (const ListedRows &rows : listed)
          fetched += (rows.bytes + ofWarp - 1) / ofWarp;
      }
    startAgain();
    device.resetCounters();
    launchBoth(blocks, batch.shape);
    EXPECT_TRUE(ArrayRef(contentsOf(blocks)) == expected) << "a persistent kernel gives other bits";
    const auto executed = device.counters().executed.find(fetch);
    EXPECT_EQ(executed == device.counters().executed.end() ? 0 : executed->second, fetched) << "times, by a warp";
    if (last < 1)
      return;
    // If memory ends before the last line of the last row that is fetched, nothing but that notices where queries
    // see no keys.
    xfc_shape blind = batch.shape;
    const std::vector<int32_t> none(call.rows->rows, 0);
    blind.keys[call.keys - batch.shape.keys].limit = none.data();
    for (const ListedRows &rows : listed) {
      SmallVector<Block> shorter(blocks);
      shorter[rows.operand].bytes = last * strides[rows.operand] * rows.elementBytes + (rows.bytes - 1) / line * line;
      std::string fault;
      try {
        launchBoth(shorter, blind);
      } catch (const ptx::Fault &found) {
        fault = found.what();
      }
      EXPECT_NE(fault.find("prefetch of global memory out of bounds"), std::string::npos) << "found: " << fault;
    }
    for (size_t i = 0; i < expected.size(); ++i)
      std::copy(expected[i].begin(), expected[i].end(), blocks[i].data);
  }

  // Translates the call's addresses within `shape` to those within its copy. A persistent kernel runs it as these
  // instructions, of which each waits for the one before if it waits at all.
  void launch(const std::string &kernel, int64_t grid, int64_t threads, int64_t shared, ArrayRef<Block> blocks,
              ArrayRef<int64_t> strides, size_t tensors, xfc_call call, const xfc_shape *shape,
              SmallVector<xfc_instruction> instructions = {}) {
    DeviceMemory memory(device);
    std::map<char *, uint64_t> addresses;
    std::vector<uint64_t> buffers;
    for (const Block &block : blocks) {
      uint64_t &address = addresses[block.data];
      if (!address)
        address = memory.copy(block.data, block.bytes);
      buffers.push_back(address);
    }
    if (shape) {
      const uint64_t copy = memory.copy(*shape);
      auto within = [&](auto *&p) {
        if (p)
          p = reinterpret_cast<std::remove_reference_t<decltype(p)>>(
              copy + (reinterpret_cast<const char *>(p) - reinterpret_cast<const char *>(shape)));
      };
      within(call.shape);
      within(call.rows);
      within(call.key_rows);
      within(call.keys);
    }
    call.buffers = reinterpret_cast<void *const *>(memory.copy(buffers.data(), buffers.size() * 8));
    call.strides = reinterpret_cast<const int64_t *>(memory.copy(strides.data(), strides.size() * 8));
    call.tensors =
        reinterpret_cast<const xfc_parted_tensor *>(memory.copy(call.tensors, tensors * sizeof(xfc_parted_tensor)));
    uint64_t argument = memory.copy(&call, sizeof call);
    const std::vector<uint32_t> zeros(instructions.size() + 1);
    uint64_t finished = 0;
    if (!instructions.empty()) {
      for (auto [i, instruction] : llvm::enumerate(instructions)) {
        instruction.call = reinterpret_cast<const xfc_call *>(argument);
        if (i == 0)
          instruction.wait_count = 0;
        const xfc_wait wait{.instruction = static_cast<int32_t>(i) - 1, .chunks = instructions[i ? i - 1 : 0].chunks};
        instruction.waits = reinterpret_cast<const xfc_wait *>(memory.copy(&wait, sizeof wait));
      }
      finished = memory.copy(zeros.data(), zeros.size() * sizeof(uint32_t));
      const uint64_t table = memory.copy(instructions.data(), instructions.size() * sizeof(xfc_instruction));
      const xfc_step step{.count = static_cast<int64_t>(instructions.size()),
                          .instructions = reinterpret_cast<const xfc_instruction *>(table),
                          .finished = reinterpret_cast<uint32_t *>(finished)};
      argument = memory.copy(&step, sizeof step);
    }
    const ptx::Interpreter::Entry entry = device.entry(*program, kernel);
    device.launch(entry, {static_cast<uint32_t>(grid)}, {static_cast<uint32_t>(threads)}, shared, &argument,
                  entry.cluster, /*cooperative=*/!instructions.empty());
    if (!instructions.empty()) {
      std::vector<uint32_t> counters(zeros.size());
      device.read(counters.data(), finished, counters.size() * sizeof(uint32_t));
      EXPECT_EQ(counters, zeros) << "the last block leaves no counters for the next launch";
    }
    for (const Block &block : blocks)
      if (block.data)
        device.read(block.data, addresses[block.data], block.bytes);
  }

  ptx::Interpreter device;
  const ptx::Program *program = nullptr;
  KernelInfo info, reduction, persistent;
  std::vector<SmallKernel> small;
  SmallVector<ListedRows, 2> listed; // by an attention in a decoding step
  bool triedRace = false;            // where an instruction did not wait
  std::vector<PackInfo> packs;
};

} // namespace

std::unique_ptr<Code> compileForGPU(Operation *op, const std::string &arch) {
  return std::make_unique<GPUCode>(op, arch);
}

} // namespace xfc::test
