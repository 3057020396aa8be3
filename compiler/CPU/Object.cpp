// Kernels to LLVM IR to an object in memory.
#include "Object.h"
#include "core/Error.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include <mutex>

using namespace mlir;

namespace xfc {

void lowerToLLVM(ModuleOp kernels) {
  PassManager manager(kernels.getContext());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  manager.addPass(createSCFToControlFlowPass());
  manager.addPass(createConvertVectorToLLVMPass());
  manager.addPass(createConvertMathToLLVMPass());
  manager.addPass(createArithToLLVMConversionPass());
  manager.addPass(createConvertControlFlowToLLVMPass());
  manager.addPass(createConvertFuncToLLVMPass());
  manager.addPass(createUBToLLVMConversionPass());
  manager.addPass(createReconcileUnrealizedCastsPass());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  if (failed(manager.run(kernels)))
    throw Error("compile: the kernels could not be lowered to LLVM; see the message above");
}

namespace {

std::unique_ptr<llvm::TargetMachine> machineFor(const CodeTarget &target) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  llvm::Triple triple("x86_64-unknown-linux-gnu");
  std::string reason;
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, reason);
  if (!found)
    throw Error("compile: LLVM cannot generate code for x86-64: " + reason);
  llvm::TargetOptions options;
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(triple, target.cpu, target.features, options, llvm::Reloc::PIC_,
                                                                         std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

// The kernels are unrolled and vectorised by hand already.
void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopUnrolling = false;
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  llvm::PassBuilder builder(&machine, tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graph;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graph, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3).run(module, modules);
}

std::vector<char> emit(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    throw Error("compile: LLVM cannot emit an object for this machine");
  passes.run(module);
  return {bytes.begin(), bytes.end()};
}

llvm::Constant *string(llvm::Module &module, const std::string &text) {
  llvm::Constant *data = llvm::ConstantDataArray::getString(module.getContext(), text);
  auto *global = new llvm::GlobalVariable(module, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data);
  global->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
  return global;
}

// The constant xfc_image, field by field as abi.h has it.
void addImage(llvm::Module &module, const Module &plan, const std::string &image, const std::string &cpu, const std::string &needed) {
  llvm::LLVMContext &context = module.getContext();
  llvm::Type *i32 = llvm::Type::getInt32Ty(context), *i64 = llvm::Type::getInt64Ty(context);
  auto *pointer = llvm::PointerType::getUnqual(context);
  std::vector<llvm::Constant *> kernels;
  for (const Kernel &kernel : plan.kernels) {
    llvm::Function *function = module.getFunction(kernel.name);
    if (!function)
      throw Error("compile: no code was generated for the kernel '" + kernel.name + "'");
    kernels.push_back(function);
  }
  auto *tableType = llvm::ArrayType::get(pointer, kernels.size());
  auto *table = new llvm::GlobalVariable(module, tableType, true, llvm::GlobalValue::PrivateLinkage,
                                         llvm::ConstantArray::get(tableType, kernels), "kernels");
  std::vector<uint8_t> bytes = serialize(plan);
  llvm::Constant *data = llvm::ConstantDataArray::get(context, llvm::ArrayRef<uint8_t>(bytes));
  auto *planData = new llvm::GlobalVariable(module, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data, "plan");
  auto *type = llvm::StructType::get(context, {i32, i32, pointer, pointer, pointer, pointer, i64});
  static_assert(sizeof(xfc_image) == 48 && offsetof(xfc_image, plan_size) == 40);
  llvm::Constant *fields[] = {llvm::ConstantInt::get(i32, XFC_ABI_VERSION),
                              llvm::ConstantInt::get(i32, kernels.size()),
                              string(module, cpu),
                              string(module, needed),
                              table,
                              planData,
                              llvm::ConstantInt::get(i64, bytes.size())};
  new llvm::GlobalVariable(module, type, true, llvm::GlobalValue::ExternalLinkage, llvm::ConstantStruct::get(type, fields), image);
}

} // namespace

std::vector<char> emitObject(ModuleOp lowered, const CodeTarget &target, const Module &plan, const std::string &image,
                             const std::string &cpu, const std::string &needed, bool text) {
  registerBuiltinDialectTranslation(*lowered.getContext());
  registerLLVMDialectTranslation(*lowered.getContext());
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = translateModuleToLLVMIR(lowered, context);
  if (!module)
    throw Error("compile: the kernels could not be translated to LLVM IR; see the message above");
  std::unique_ptr<llvm::TargetMachine> machine = machineFor(target);
  module->setTargetTriple(machine->getTargetTriple());
  module->setDataLayout(machine->createDataLayout());
  for (llvm::Function &function : *module) {
    function.addFnAttr("target-cpu", target.cpu);
    if (!target.features.empty())
      function.addFnAttr("target-features", target.features);
    if (!target.tune.empty())
      function.addFnAttr("tune-cpu", target.tune);
    function.addFnAttr("prefer-vector-width", std::to_string(target.vectorBits));
    function.addFnAttr(llvm::Attribute::NoUnwind);
    // Several images may stand in one executable: only the image itself is visible.
    if (!function.isDeclaration())
      function.setLinkage(llvm::GlobalValue::InternalLinkage);
  }
  addImage(*module, plan, image, cpu, needed);
  optimize(*module, *machine);
  if (!text)
    return emit(*module, *machine);
  std::string printed;
  llvm::raw_string_ostream stream(printed);
  module->print(stream, nullptr);
  return {printed.begin(), printed.end()};
}

std::vector<char> emitImageTable(const std::vector<std::string> &images) {
  llvm::LLVMContext context;
  llvm::Module module("images", context);
  CodeTarget target{"x86-64", "", 128};
  std::unique_ptr<llvm::TargetMachine> machine = machineFor(target);
  module.setTargetTriple(machine->getTargetTriple());
  module.setDataLayout(machine->createDataLayout());
  auto *pointer = llvm::PointerType::getUnqual(context);
  std::vector<llvm::Constant *> entries;
  for (const std::string &image : images)
    entries.push_back(new llvm::GlobalVariable(module, pointer, true, llvm::GlobalValue::ExternalLinkage, nullptr, image));
  entries.push_back(llvm::ConstantPointerNull::get(pointer));
  auto *type = llvm::ArrayType::get(pointer, entries.size());
  new llvm::GlobalVariable(module, type, true, llvm::GlobalValue::ExternalLinkage, llvm::ConstantArray::get(type, entries), "xfc_images");
  return emit(module, *machine);
}

} // namespace xfc
