// Turns kernels in the LLVM dialect into objects in memory.
#include "Object.h"
#include "CheckBounds.h"
#include "Codegen/MachineCode.h"
#include "mlir/IR/Threading.h"
#include "support/Error.h"
#include "xfc/abi.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include <exception>
#include <functional>
#include <mutex>

using namespace mlir;

namespace xfc {

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
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(triple, target.cpu, target.features, options,
                                                                         llvm::Reloc::PIC_, std::nullopt,
                                                                         llvm::CodeGenOptLevel::Aggressive));
}

ObjectFile objectOf(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::SmallVector<char, 0> bytes = emit(module, machine, llvm::CodeGenFileType::ObjectFile);
  return {bytes.begin(), bytes.end()};
}

llvm::GlobalVariable *constant(llvm::Module &module, llvm::Constant *data, const llvm::Twine &name = "") {
  return new llvm::GlobalVariable(module, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data, name);
}

llvm::Constant *string(llvm::Module &module, const std::string &text) {
  llvm::GlobalVariable *global = constant(module, llvm::ConstantDataArray::getString(module.getContext(), text));
  global->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
  return global;
}

llvm::Constant *bytes(llvm::Module &module, const std::vector<uint8_t> &data, const llvm::Twine &name) {
  return constant(module, llvm::ConstantDataArray::get(module.getContext(), data), name);
}

// Defines an externally visible constant, with the fields of its struct in abi.h.
void addStruct(llvm::Module &module, llvm::ArrayRef<llvm::Constant *> fields, const std::string &name) {
  llvm::SmallVector<llvm::Type *> types;
  for (llvm::Constant *field : fields)
    types.push_back(field->getType());
  auto *type = llvm::StructType::get(module.getContext(), types);
  new llvm::GlobalVariable(module, type, true, llvm::GlobalValue::ExternalLinkage,
                           llvm::ConstantStruct::get(type, fields), name);
}

// Defines a null-terminated table of pointers to constants in other objects.
void addTable(llvm::Module &module, const std::vector<std::string> &names, const std::string &table) {
  auto *pointer = llvm::PointerType::getUnqual(module.getContext());
  std::vector<llvm::Constant *> entries;
  entries.reserve(names.size() + 1);
  for (const std::string &name : names)
    entries.push_back(
        new llvm::GlobalVariable(module, pointer, true, llvm::GlobalValue::ExternalLinkage, nullptr, name));
  entries.push_back(llvm::ConstantPointerNull::get(pointer));
  auto *type = llvm::ArrayType::get(pointer, entries.size());
  new llvm::GlobalVariable(module, type, true, llvm::GlobalValue::ExternalLinkage,
                           llvm::ConstantArray::get(type, entries), table);
}

// Emits an object that has only constants, for any x86-64.
ObjectFile emitConstants(const std::function<void(llvm::Module &)> &add) {
  llvm::LLVMContext context;
  llvm::Module module("constants", context);
  std::unique_ptr<llvm::TargetMachine> machine = machineFor({"x86-64", "", 128});
  module.setTargetTriple(machine->getTargetTriple());
  module.setDataLayout(machine->createDataLayout());
  add(module);
  return objectOf(module, *machine);
}

// Lowered kernels as optimized LLVM IR.
std::unique_ptr<llvm::Module> optimized(ModuleOp kernels, llvm::LLVMContext &context, llvm::TargetMachine &machine,
                                        const CodeTarget &target) {
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
  optimize(*module, machine);
  if (target.checkBounds)
    checkBounds(*module);
  return module;
}

std::string symbolOf(llvm::StringRef image, llvm::StringRef name) { return (image + "." + name).str(); }

} // namespace

std::vector<ObjectFile> emitKernels(llvm::ArrayRef<ModuleOp> parts, const llvm::StringSet<> &kernels,
                                    const CodeTarget &target, const std::string &image) {
  std::vector<ObjectFile> objects(parts.size());
  if (parts.empty())
    return objects;
  MLIRContext &mlir = *parts.front()->getContext();
  registerTranslations(mlir);
  std::vector<std::exception_ptr> errors(parts.size());
  parallelFor(&mlir, 0, parts.size(), [&](size_t i) {
    try {
      llvm::LLVMContext context;
      std::unique_ptr<llvm::TargetMachine> machine = machineFor(target);
      std::unique_ptr<llvm::Module> module = optimized(parts[i], context, *machine, target);
      // Kernels are named after their image, since an executable may contain several, and hidden, so that it exports
      // none of them.
      for (llvm::Function &function : *module)
        if (kernels.contains(function.getName())) {
          function.setName(symbolOf(image, function.getName()));
          function.setVisibility(llvm::GlobalValue::HiddenVisibility);
        }
      objects[i] = objectOf(*module, *machine);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr &error : errors)
    if (error)
      std::rethrow_exception(error);
  return objects;
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

ObjectFile emitImage(const Module &plan, const std::string &image, const std::string &cpu, const std::string &needed) {
  return emitConstants([&](llvm::Module &module) {
    llvm::LLVMContext &context = module.getContext();
    llvm::Type *i32 = llvm::Type::getInt32Ty(context), *i64 = llvm::Type::getInt64Ty(context);
    auto *pointer = llvm::PointerType::getUnqual(context);
    auto *type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), false);
    std::vector<llvm::Constant *> kernels;
    for (const Kernel &kernel : plan.kernels) {
      auto *function =
          llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, symbolOf(image, kernel.name), module);
      function->setVisibility(llvm::GlobalValue::HiddenVisibility);
      kernels.push_back(function);
    }
    auto *table =
        constant(module, llvm::ConstantArray::get(llvm::ArrayType::get(pointer, kernels.size()), kernels), "kernels");
    const std::vector<uint8_t> serialized = serialize(plan);
    static_assert(sizeof(xfc_image) == 48 && offsetof(xfc_image, plan_size) == 40);
    addStruct(module,
              {llvm::ConstantInt::get(i32, XFC_ABI_VERSION), llvm::ConstantInt::get(i32, kernels.size()),
               string(module, cpu), string(module, needed), table, bytes(module, serialized, "plan"),
               llvm::ConstantInt::get(i64, serialized.size())},
              image);
  });
}

ObjectFile emitDeviceImage(const DeviceCode &code, const Module &plan, const std::string &image) {
  return emitConstants([&](llvm::Module &module) {
    auto number = [&](int bits, uint64_t value) {
      return llvm::ConstantInt::get(llvm::IntegerType::get(module.getContext(), bits), value);
    };
    const std::vector<uint8_t> serialized = serialize(plan);
    llvm::Constant *cubin = llvm::ConstantPointerNull::get(llvm::PointerType::getUnqual(module.getContext()));
    if (!code.cubin.empty())
      cubin = bytes(module, code.cubin, "cubin");
    static_assert(sizeof(xfc_device_image) == 64 && offsetof(xfc_device_image, plan_size) == 56);
    addStruct(module,
              {number(32, XFC_ABI_VERSION), number(32, plan.kernels.size()), string(module, code.arch),
               string(module, code.ptx), number(64, code.ptx.size()), cubin, number(64, code.cubin.size()),
               bytes(module, serialized, "plan"), number(64, serialized.size())},
              image);
  });
}

ObjectFile emitImageTables(const std::vector<std::string> &images, const std::vector<std::string> &deviceImages) {
  return emitConstants([&](llvm::Module &module) {
    addTable(module, images, "xfc_images");
    addTable(module, deviceImages, "xfc_device_images");
  });
}

} // namespace xfc
