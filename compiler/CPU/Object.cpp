// Kernels in the LLVM dialect to an object in memory.
#include "Object.h"
#include "Codegen/MachineCode.h"
#include "core/Error.h"
#include "xfc/abi.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
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
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(triple, target.cpu, target.features, options, llvm::Reloc::PIC_,
                                                                         std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

std::vector<char> objectOf(llvm::Module &module, llvm::TargetMachine &machine) {
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

// A constant that others see, field by field as abi.h has it.
void addStruct(llvm::Module &module, llvm::ArrayRef<llvm::Constant *> fields, const std::string &name) {
  llvm::SmallVector<llvm::Type *> types;
  for (llvm::Constant *field : fields)
    types.push_back(field->getType());
  auto *type = llvm::StructType::get(module.getContext(), types);
  new llvm::GlobalVariable(module, type, true, llvm::GlobalValue::ExternalLinkage, llvm::ConstantStruct::get(type, fields), name);
}

// A table of pointers to constants of other objects, ended by null.
void addTable(llvm::Module &module, const std::vector<std::string> &names, const std::string &table) {
  auto *pointer = llvm::PointerType::getUnqual(module.getContext());
  std::vector<llvm::Constant *> entries;
  for (const std::string &name : names)
    entries.push_back(new llvm::GlobalVariable(module, pointer, true, llvm::GlobalValue::ExternalLinkage, nullptr, name));
  entries.push_back(llvm::ConstantPointerNull::get(pointer));
  auto *type = llvm::ArrayType::get(pointer, entries.size());
  new llvm::GlobalVariable(module, type, true, llvm::GlobalValue::ExternalLinkage, llvm::ConstantArray::get(type, entries), table);
}

// A module for constants alone, which any x86-64 links.
std::vector<char> emitConstants(const std::function<void(llvm::Module &)> &add) {
  llvm::LLVMContext context;
  llvm::Module module("constants", context);
  std::unique_ptr<llvm::TargetMachine> machine = machineFor({"x86-64", "", 128});
  module.setTargetTriple(machine->getTargetTriple());
  module.setDataLayout(machine->createDataLayout());
  add(module);
  return objectOf(module, *machine);
}

// The constant xfc_image.
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
  auto *table = constant(module, llvm::ConstantArray::get(llvm::ArrayType::get(pointer, kernels.size()), kernels), "kernels");
  const std::vector<uint8_t> serialized = serialize(plan);
  static_assert(sizeof(xfc_image) == 48 && offsetof(xfc_image, plan_size) == 40);
  addStruct(module,
            {llvm::ConstantInt::get(i32, XFC_ABI_VERSION), llvm::ConstantInt::get(i32, kernels.size()), string(module, cpu),
             string(module, needed), table, bytes(module, serialized, "plan"), llvm::ConstantInt::get(i64, serialized.size())},
            image);
}

} // namespace

std::vector<char> emitObject(ModuleOp lowered, const CodeTarget &target, const Module &plan, const std::string &image,
                             const std::string &cpu, const std::string &needed, bool text) {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::TargetMachine> machine = machineFor(target);
  std::unique_ptr<llvm::Module> module = translate(lowered, context, *machine);
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
    return objectOf(*module, *machine);
  std::string printed;
  llvm::raw_string_ostream stream(printed);
  module->print(stream, nullptr);
  return {printed.begin(), printed.end()};
}

std::vector<char> emitDeviceImage(const DeviceCode &code, const Module &plan, const std::string &image) {
  return emitConstants([&](llvm::Module &module) {
    auto number = [&](int bits, uint64_t value) { return llvm::ConstantInt::get(llvm::IntegerType::get(module.getContext(), bits), value); };
    const std::vector<uint8_t> serialized = serialize(plan);
    llvm::Constant *cubin = llvm::ConstantPointerNull::get(llvm::PointerType::getUnqual(module.getContext()));
    if (!code.cubin.empty())
      cubin = bytes(module, code.cubin, "cubin");
    static_assert(sizeof(xfc_device_image) == 64 && offsetof(xfc_device_image, plan_size) == 56);
    addStruct(module,
              {number(32, XFC_ABI_VERSION), number(32, plan.kernels.size()), string(module, code.arch), string(module, code.ptx),
               number(64, code.ptx.size()), cubin, number(64, code.cubin.size()), bytes(module, serialized, "plan"), number(64, serialized.size())},
              image);
  });
}

std::vector<char> emitImageTables(const std::vector<std::string> &images, const std::vector<std::string> &deviceImages) {
  return emitConstants([&](llvm::Module &module) {
    addTable(module, images, "xfc_images");
    addTable(module, deviceImages, "xfc_device_images");
  });
}

} // namespace xfc
