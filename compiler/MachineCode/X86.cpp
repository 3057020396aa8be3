// Turns kernels in the LLVM dialect into objects for x86-64, in memory.
#include "X86.h"
#include "CheckBounds.h"
#include "MachineCode.h"
#include "support/Error.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include <algorithm>
#include <mutex>

using namespace mlir;

namespace xfc {

std::unique_ptr<llvm::TargetMachine> machineFor(const CodeTarget &target) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  llvm::Triple triple(executableFormat.triple);
  std::string reason;
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, reason);
  if (!found)
    throw Error("compile: LLVM cannot generate code for " + triple.str() + ": " + reason);
  llvm::TargetOptions options;
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(triple, target.cpu, target.features, options,
                                                                         llvm::Reloc::PIC_, std::nullopt,
                                                                         llvm::CodeGenOptLevel::Aggressive));
}

std::string symbolOf(llvm::StringRef instructionSet, llvm::StringRef kernel) {
  std::string symbol = (instructionSet + "." + kernel).str();
  std::replace(symbol.begin(), symbol.end(), ' ', '_'); // of "tuned for"
  return symbol;
}

void optimizeKernels(llvm::Module &module, llvm::TargetMachine &machine) {
  // Kernels come unrolled and vectorized, so they gain from these passes only: with O3, making their machine code takes
  // 1.6 times as long, and it is not faster.
  optimize(module, machine,
           "function(sroa,early-cse,instcombine<no-verify-fixpoint>,loop-mssa(licm),gvn,adce,simplifycfg)");
}

// Lowered kernels as optimized LLVM IR.
static std::unique_ptr<llvm::Module> optimized(ModuleOp kernels, llvm::LLVMContext &context,
                                               llvm::TargetMachine &machine, const CodeTarget &target) {
  std::unique_ptr<llvm::Module> module = translate(kernels, context, machine);
  for (llvm::Function &function : *module) {
    function.addFnAttr("target-cpu", target.cpu);
    if (!target.features.empty())
      function.addFnAttr("target-features", target.features);
    if (!target.tune.empty())
      function.addFnAttr("tune-cpu", target.tune);
    function.addFnAttr("prefer-vector-width", std::to_string(target.vectorBits));
    function.addFnAttr(llvm::Attribute::NoUnwind);
  }
  optimizeKernels(*module, machine);
  if (target.checkBounds)
    checkBounds(*module);
  return module;
}

ObjectFile emitKernels(ModuleOp part, const llvm::StringSet<> &kernels, const CodeTarget &target,
                       llvm::StringRef instructionSet) {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::TargetMachine> machine = machineFor(target);
  std::unique_ptr<llvm::Module> module = optimized(part, context, *machine, target);
  // Hidden, so that an executable exports none of them.
  for (llvm::Function &function : *module)
    if (kernels.contains(function.getName())) {
      function.setName(symbolOf(instructionSet, function.getName()));
      function.setVisibility(llvm::GlobalValue::HiddenVisibility);
    }
  llvm::SmallVector<char, 0> bytes = emit(*module, *machine, llvm::CodeGenFileType::ObjectFile);
  return {bytes.begin(), bytes.end()};
}

std::string printKernels(ModuleOp kernels, const CodeTarget &target) {
  registerTranslations(*kernels.getContext());
  std::unique_ptr<llvm::TargetMachine> machine = machineFor(target);
  llvm::LLVMContext context;
  std::string text;
  llvm::raw_string_ostream stream(text);
  optimized(kernels, context, *machine, target)->print(stream, nullptr);
  return text;
}

} // namespace xfc
