// Turns plans and the tables of images into objects in memory, and finds the plans of executables.
#include "Images.h"
#include "MachineCode/MachineCode.h"
#include "MachineCode/X86.h"
#include "plan/Serialization.h"
#include "support/Error.h"
#include "support/MappedFile.h"
#include "xfc/abi.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Module.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Target/TargetMachine.h"
#include <functional>

namespace xfc {

namespace {

llvm::GlobalVariable *constant(llvm::Module &module, llvm::Constant *data, const llvm::Twine &name = "") {
  return new llvm::GlobalVariable(module, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data, name);
}

llvm::Constant *string(llvm::Module &module, const std::string &text) {
  llvm::GlobalVariable *global = constant(module, llvm::ConstantDataArray::getString(module.getContext(), text));
  global->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
  return global;
}

llvm::GlobalVariable *bytes(llvm::Module &module, const std::vector<uint8_t> &data, const llvm::Twine &name) {
  return constant(module, llvm::ConstantDataArray::get(module.getContext(), data), name);
}

// plansOf() finds the plan of an image by its section, whose name ends with that of the target.
constexpr llvm::StringLiteral planSection = ".xfc.plan.";

llvm::GlobalVariable *planBytes(llvm::Module &module, const std::vector<uint8_t> &plan, const std::string &target) {
  llvm::GlobalVariable *global = bytes(module, plan, "plan");
  global->setSection((planSection + target).str());
  return global;
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

// Emits an object that has only constants, for any CPU.
ObjectFile emitConstants(const std::function<void(llvm::Module &)> &add) {
  llvm::LLVMContext context;
  llvm::Module module("constants", context);
  std::unique_ptr<llvm::TargetMachine> machine = machineFor({executableFormat.baseline, "", 128});
  module.setTargetTriple(machine->getTargetTriple());
  module.setDataLayout(machine->createDataLayout());
  add(module);
  llvm::SmallVector<char, 0> bytes = emit(module, *machine, llvm::CodeGenFileType::ObjectFile);
  return {bytes.begin(), bytes.end()};
}

} // namespace

ObjectFile emitImage(const Module &plan, const std::string &image, const std::string &target,
                     const std::string &needed) {
  return emitConstants([&](llvm::Module &module) {
    llvm::LLVMContext &context = module.getContext();
    llvm::Type *i32 = llvm::Type::getInt32Ty(context), *i64 = llvm::Type::getInt64Ty(context);
    auto *pointer = llvm::PointerType::getUnqual(context);
    auto *type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), false);
    std::vector<llvm::Constant *> kernels;
    for (const Kernel &kernel : plan.kernels) {
      auto *function =
          llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, symbolOf(target, kernel.name), module);
      function->setVisibility(llvm::GlobalValue::HiddenVisibility);
      kernels.push_back(function);
    }
    auto *table =
        constant(module, llvm::ConstantArray::get(llvm::ArrayType::get(pointer, kernels.size()), kernels), "kernels");
    const std::vector<uint8_t> serialized = serialize(plan);
    static_assert(sizeof(xfc_image) == 48 && offsetof(xfc_image, plan_size) == 40);
    addStruct(module,
              {llvm::ConstantInt::get(i32, XFC_ABI_VERSION), llvm::ConstantInt::get(i32, kernels.size()),
               string(module, target), string(module, needed), table, planBytes(module, serialized, target),
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
               planBytes(module, serialized, code.arch), number(64, serialized.size())},
              image);
  });
}

std::vector<NamedPlan> plansOf(const std::string &file) {
  const MappedFile mapped = MappedFile::readOnly(file);
  const std::string_view contents = mapped.contents();
  auto read = llvm::object::ObjectFile::createELFObjectFile({{contents.data(), contents.size()}, file});
  if (!read)
    throw Error(file + ": not an executable: " + llvm::toString(read.takeError()));
  std::vector<NamedPlan> plans;
  for (const llvm::object::SectionRef &section : (*read)->sections()) {
    auto name = section.getName();
    auto data = section.getContents();
    if (!name || !data)
      throw Error(file + ": damaged: " + llvm::toString(name ? data.takeError() : name.takeError()));
    if (!name->consume_front(planSection))
      continue;
    Module &plan = plans.emplace_back(NamedPlan{name->str(), deserialize(data->bytes_begin(), data->size())}).plan;
    plan.programs.readAll();
  }
  if (plans.empty())
    throw Error(file + ": not an executable that this version of xfc made");
  return plans;
}

ObjectFile emitImageTables(const std::map<Platform, std::vector<std::string>> &images) {
  return emitConstants([&](llvm::Module &module) {
    for (const PlatformInfo &info : platforms) {
      const auto found = images.find(info.platform);
      addTable(module, found == images.end() ? std::vector<std::string>() : found->second, info.images);
    }
  });
}

} // namespace xfc
