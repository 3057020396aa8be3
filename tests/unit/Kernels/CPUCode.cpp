// Compiles kernels of CPU/ and plain ones for this machine and calls them.
#include "CPU/Image.h"
#include "Code.h"
#include "MachineCode/Functions.h"
#include "MachineCode/MachineCode.h"
#include "MachineCode/X86.h"
#include "Pipeline/Targets.h"
#include "TileEmulator.h"
#include "device/cpu/Features.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Analysis/VectorUtils.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include <iostream>
#include <mutex>
#include <numeric>

using namespace mlir;

namespace xfc::test {
namespace {

// Rounds f32, one or a vector, to the nearest bf16, ties to even, in integers, for code that is made for AVX512-BF16
// and runs without it: LLVM would call a function of the compiler's library, which GCC's has only since version 13.
llvm::Value *roundToBF16(llvm::IRBuilder<> &b, llvm::Value *floats) {
  llvm::Type *from = floats->getType(), *words = from->getWithNewType(b.getInt32Ty());
  auto word = [&](uint64_t value) { return llvm::ConstantInt::get(words, value); };
  llvm::Value *bits = b.CreateBitCast(floats, words);
  llvm::Value *odd = b.CreateAnd(b.CreateLShr(bits, word(16)), word(1));
  llvm::Value *nearest = b.CreateAdd(b.CreateAdd(bits, word(0x7fff)), odd);
  // The carry must not turn a NaN into an infinity or a zero.
  llvm::Value *quiet = b.CreateOr(bits, word(0x400000));
  llvm::Value *rounded = b.CreateSelect(b.CreateFCmpUNO(floats, floats), quiet, nearest);
  llvm::Value *halves = b.CreateTrunc(b.CreateLShr(rounded, word(16)), from->getWithNewType(b.getInt16Ty()));
  return b.CreateBitCast(halves, from->getWithNewType(b.getBFloatTy()));
}

// A configuration of tiles in a shape that no kernel uses, as a thread may begin with one (TileEmulator.h).
struct alignas(64) LeftTiles {
  uint8_t palette = 1, reserved[15] = {};
  uint16_t bytes[16] = {4};
  uint8_t rows[16] = {1};
  bool operator==(const LeftTiles &) const = default;
};
__attribute__((target("amx-tile"), noinline)) void configureTiles(const LeftTiles &left) {
  asm volatile("ldtilecfg %0" : : "m"(left) : "memory");
}
__attribute__((target("amx-tile"), noinline)) LeftTiles configurationOfTiles() {
  LeftTiles found;
  asm volatile("sttilecfg %0" : "=m"(found));
  return found;
}
__attribute__((target("amx-tile"), noinline)) void releaseTiles() { asm volatile("tilerelease"); }

// Replaces what rounds f32 to bf16: two vectors by an intrinsic, the second one first, or any by a truncation.
void replaceTruncations(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::make_early_inc_range(llvm::instructions(function))) {
      llvm::IRBuilder<> b(&instruction);
      llvm::Value *floats = nullptr;
      if (auto *call = dyn_cast<llvm::IntrinsicInst>(&instruction);
          call && call->getIntrinsicID() == llvm::Intrinsic::x86_avx512bf16_cvtne2ps2bf16_512) {
        llvm::SmallVector<int> both(32);
        std::iota(both.begin(), both.end(), 0);
        floats = b.CreateShuffleVector(call->getArgOperand(1), call->getArgOperand(0), both);
      } else if (isa<llvm::FPTruncInst>(instruction) && instruction.getType()->getScalarType()->isBFloatTy()) {
        floats = instruction.getOperand(0);
      }
      if (!floats)
        continue;
      instruction.replaceAllUsesWith(roundToBF16(b, floats));
      instruction.eraseFromParent();
    }
}

// Loads and stores bf16 under a mask as integers: otherwise LLVM would truncate each element (and take them one by one
// without AVX512-BW).
void replaceMasked(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::make_early_inc_range(llvm::instructions(function))) {
      auto *access = dyn_cast<llvm::IntrinsicInst>(&instruction);
      const bool loads = access && access->getIntrinsicID() == llvm::Intrinsic::masked_load,
                 stores = access && access->getIntrinsicID() == llvm::Intrinsic::masked_store;
      llvm::Value *stored = stores ? access->getArgOperand(0) : nullptr;
      llvm::Type *type = stores ? stored->getType() : loads ? access->getType() : nullptr;
      if (!type || !type->getScalarType()->isBFloatTy())
        continue;
      llvm::IRBuilder<> b(access);
      llvm::Type *words = type->getWithNewType(b.getInt16Ty());
      if (stores) {
        b.CreateMaskedStore(b.CreateBitCast(stored, words), access->getArgOperand(1),
                            access->getParamAlign(1).valueOrOne(), access->getArgOperand(2));
      } else {
        llvm::Value *loaded =
            b.CreateMaskedLoad(words, access->getArgOperand(0), access->getParamAlign(0).valueOrOne(),
                               access->getArgOperand(1), b.CreateBitCast(access->getArgOperand(2), words));
        access->replaceAllUsesWith(b.CreateBitCast(loaded, type));
      }
      access->eraseFromParent();
    }
}

// Replaces some byte instructions by plain code on a machine that lacks them: each 32-bit (16-bit) element of the
// result is a sum of products of adjacent elements, the left ones unsigned if they are bytes.
void replaceMissing(llvm::Module &module, const InstructionSet &set, const llvm::MCSubtargetInfo &cpu) {
  auto has = [&](llvm::StringRef feature) { return cpu.checkFeatures(("+" + feature).str()); };
  struct Instruction {
    llvm::Intrinsic::ID id;
    const char *features;
    bool accumulates, saturates;
  };
  static const Instruction instructions[] = {
      {llvm::Intrinsic::x86_avx512_vpdpbusd_256, "avxvnni avx512vnni", true, false},
      {llvm::Intrinsic::x86_avx512_vpdpbusd_512, "avx512vnni", true, false},
      {llvm::Intrinsic::x86_avx512_pmaddubs_w_512, "avx512bw", false, true},
      {llvm::Intrinsic::x86_avx512_pmaddw_d_512, "avx512bw", false, false}};
  for (const Instruction &instruction : instructions) {
    llvm::SmallVector<llvm::StringRef> features;
    llvm::StringRef(instruction.features).split(features, ' ');
    llvm::Function *function = module.getFunction(llvm::Intrinsic::getName(instruction.id));
    if (!function || llvm::any_of(features, [&](llvm::StringRef feature) { return has(feature); }))
      continue;
    for (llvm::User *user : llvm::make_early_inc_range(function->users())) {
      auto *call = cast<llvm::CallInst>(user);
      llvm::IRBuilder<> b(call);
      llvm::Value *left = call->getArgOperand(instruction.accumulates),
                  *right = call->getArgOperand(instruction.accumulates + 1);
      auto *from = cast<llvm::FixedVectorType>(left->getType());
      const int count = cast<llvm::FixedVectorType>(call->getType())->getNumElements(),
                group = from->getNumElements() / count;
      auto *wide = llvm::FixedVectorType::get(b.getInt32Ty(), from->getNumElements());
      llvm::Value *products =
          b.CreateMul(from->getElementType()->isIntegerTy(8) ? b.CreateZExt(left, wide) : b.CreateSExt(left, wide),
                      b.CreateSExt(right, wide));
      llvm::Value *sum = instruction.accumulates ? call->getArgOperand(0) : nullptr;
      for (int i = 0; i < group; ++i) {
        llvm::Value *part = b.CreateShuffleVector(products, llvm::createStrideMask(i, group, count));
        sum = sum ? b.CreateAdd(sum, part) : part;
      }
      if (instruction.saturates) {
        auto limit = [&](int value) { return llvm::ConstantInt::getSigned(sum->getType(), value); };
        sum = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, sum, limit(32767));
        sum = b.CreateTrunc(b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, sum, limit(-32768)), call->getType());
      }
      call->replaceAllUsesWith(sum);
      call->eraseFromParent();
    }
  }
  if (set.bf16 && !has("avx512bf16")) { // other sets must not have what is replaced
    replaceTruncations(module);
    replaceMasked(module);
  }
}

// The machine that executes the tests, with additional features.
std::unique_ptr<llvm::TargetMachine> hostMachine(const std::vector<std::string> &features, bool foreign) {
  static std::once_flag once;
  std::call_once(once, [] {
    registerTranslations(context());
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  auto builder = llvm::cantFail(llvm::orc::JITTargetMachineBuilder::detectHost());
  if (const char *name = lesserCPU()) {
    builder.setCPU(name);
    builder.getFeatures() = llvm::SubtargetFeatures();
  }
  builder.addFeatures(features);
  builder.setRelocationModel(llvm::Reloc::PIC_);
  builder.setCodeGenOptLevel(foreign ? llvm::CodeGenOptLevel::None : llvm::CodeGenOptLevel::Aggressive);
  return llvm::cantFail(builder.createTargetMachine());
}

// Compiles kernels given in the LLVM dialect. Code in forms that this CPU does not have is `foreign`: optimizing the
// replacements of its wide vectors would take several times as long as running the test. All other code takes the
// passes that it takes in an executable.
ObjectFile compile(ModuleOp kernels, const InstructionSet &set, llvm::TargetMachine &machine, bool foreign) {
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> module = translate(kernels, llvmContext, machine);
  for (llvm::Function &function : *module) {
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
  }
  replaceMissing(*module, set, *machine.getMCSubtargetInfo());
  if (foreign)
    optimize(*module, machine, "default<O0>");
  else
    optimizeKernels(*module, machine);
  const llvm::SmallVector<char, 0> object = emit(*module, machine, llvm::CodeGenFileType::ObjectFile);
  return {object.begin(), object.end()};
}

class CPUCode : public Code {
public:
  CPUCode(Operation *op, Type element, const Options &options) {
    const auto made = makeTarget(Platform::CPU, options.device == Device::Plain ? "plain" : options.cpu,
                                 {.type = element.isF64() ? DType::F64 : DType::F32});
    const auto &target = static_cast<const ImageTarget &>(*made);
    OwningOpRef<ModuleOp> kernels = ModuleOp::create(UnknownLoc::get(&context()));
    emit(*kernels, op, element, target, options);
    PassManager lowering(&context());
    target.addLowering(lowering);
    const bool foreign = lesserCPU() || !missingFeatures(target.set.needed).empty();
    const std::vector<std::string> features = featuresOf(target.set);
    findsTiles = !features.empty() && options.evaluate;
    const std::unique_ptr<llvm::TargetMachine> machine = hostMachine(features, foreign);
    std::string passes;
    llvm::raw_string_ostream stream(passes);
    lowering.printAsTextualPipeline(stream);
    jit = llvm::cantFail(llvm::orc::LLJITBuilder().create());
    // One by one, as in an image: what many kernels call, such as the packing of rows, is larger than most of them.
    for (ModuleOp part : splitFunctions(*kernels)) {
      const ObjectFile object = keptOr(
          part, {machine->getTargetCPU(), machine->getTargetFeatureString(), foreign ? "foreign" : "", passes}, [&] {
            runLowering(lowering, part);
            return compile(part, target.set, *machine, foreign);
          });
      llvm::cantFail(jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy({object.data(), object.size()}, "part")));
    }
    auto find = [&](const std::string &name) { return llvm::cantFail(jit->lookup(name)).toPtr<xfc_kernel>(); };
    kernel = find("kernel");
    for (const Packing &packing : packings)
      packKernels.push_back(find("pack" + std::to_string(packing.operand)));
  }

  void pack(size_t packing, Block weight, Block packed) override {
    void *buffers[] = {weight.data, packed.data};
    const int64_t strides[] = {0, 0};
    const xfc_call call{.buffers = buffers, .strides = strides};
    for (int64_t chunk = packChunks[packing]; chunk-- > 0;)
      packKernels[packing](&call, chunk, -1, nullptr);
  }

  void run(const Batch &, const xfc_call &call, ArrayRef<Block>, size_t) override {
    // In reverse, and one in three by another thread: the order of chunks must not matter.
    GuardedBytes scratch[] = {GuardedBytes(info.scratch), GuardedBytes(info.scratch)};
    int64_t previous[] = {-1, -1};
    for (int64_t chunk = chunksOf(info.partition, call); chunk-- > 0;) {
      const int thread = chunk % 3 == 1;
      runChunk(call, chunk, previous[thread], scratch[thread].data());
      previous[thread] = chunk;
    }
    for (GuardedBytes &each : scratch)
      EXPECT_TRUE(each.guarded()) << "wrote past its scratch";
  }

  HostKernels hostKernels() const override { return {info, kernel, packKernels, packChunks}; }

private:
  // Whatever tiles a kernel finds configured, its results are the same, and it leaves none that it configured.
  void runChunk(const xfc_call &call, int64_t chunk, int64_t previous, void *scratch) {
    if (!findsTiles)
      return kernel(&call, chunk, previous, scratch);
    const LeftTiles left;
    configureTiles(left);
    kernel(&call, chunk, previous, scratch);
    const LeftTiles found = configurationOfTiles();
    releaseTiles();
    EXPECT_TRUE(found.palette == 0 || found == left) << "did not release its tiles";
  }

  // Tiles are the only extension that is compiled for any machine; says once who executes them.
  static std::vector<std::string> featuresOf(const InstructionSet &set) {
    if (!set.amx)
      return {};
    [[maybe_unused]] static const bool said = [] {
      std::cout << "tiles of AMX are executed by " << executorOf(prepareTiles()) << std::endl;
      return true;
    }();
    return {"+amx-tile", "+amx-bf16", "+amx-int8"};
  }

  void emit(ModuleOp kernels, Operation *op, Type element, const ImageTarget &target, const Options &options) {
    info = target.emit(op, "kernel", kernels);
    auto addPacking = [&](unsigned i, RankedTensorType weight, xfc::Packing packing) {
      const PackInfo pack = target.emitPack(weight, packing, "pack" + std::to_string(i), kernels);
      packings.push_back({i, pack.bytes});
      packChunks.push_back(pack.chunks);
    };
    for (unsigned i = 0; i < op->getNumOperands(); ++i)
      if (std::optional<xfc::Packing> packing = target.packs(op, i))
        addPacking(i, cast<RankedTensorType>(op->getOperand(i).getType()), *packing);
    if (options.device == Device::Plain)
      return;
    for (unsigned i = 0; i < 2 * options.weights.size(); ++i)
      addPacking(i, RankedTensorType::get({options.weights[i / 2].rows, options.weights[i / 2].columns}, element),
                 {i % 2 == 1});
  }

  KernelInfo info;
  std::unique_ptr<llvm::orc::LLJIT> jit;
  xfc_kernel kernel = nullptr;
  std::vector<xfc_kernel> packKernels;
  std::vector<int64_t> packChunks;
  bool findsTiles = false; // a configuration of others, unless a test counts instructions
};

} // namespace

std::unique_ptr<Code> compileForCPU(Operation *op, Type element, const Options &options) {
  return std::make_unique<CPUCode>(op, element, options);
}

} // namespace xfc::test
