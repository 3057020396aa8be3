// Turns kernels for a GPU into PTX text, and PTX into cubins.
#include "PTX.h"
#include "MachineCode.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/MappedFile.h"
#include "support/TemporaryFolder.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include <cstdlib>
#include <mutex>

using namespace mlir;

namespace xfc::gpu {

static std::unique_ptr<llvm::TargetMachine> machineFor(const Architecture &architecture) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string reason;
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, reason);
  if (!found)
    throw Error("compile: LLVM cannot generate PTX: " + reason);
  return std::unique_ptr<llvm::TargetMachine>(
      found->createTargetMachine(triple, architecture.name, architecture.features, llvm::TargetOptions(), std::nullopt,
                                 std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

ObjectFile emitPTX(ModuleOp kernels, const Architecture &architecture) {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::TargetMachine> machine = machineFor(architecture);
  // Set before translation, which derives the alignment of every load from it: otherwise a load of 8 bytes becomes two
  // of 4.
  kernels->setAttr(LLVM::LLVMDialect::getDataLayoutAttrName(),
                   StringAttr::get(kernels.getContext(), machine->createDataLayout().getStringRepresentation()));
  std::unique_ptr<llvm::Module> module = translate(kernels, context, *machine);
  for (llvm::Function &function : *module) {
    function.addFnAttr(llvm::Attribute::NoUnwind);
    function.addFnAttr("denormal-fp-math-f32", "preserve-sign");
    // The LLVM dialect cannot mark inline PTX as convergent, but code that synchronizes threads must not be moved or
    // duplicated.
    for (llvm::BasicBlock &block : function)
      for (llvm::Instruction &instruction : block)
        if (auto *call = llvm::dyn_cast<llvm::CallInst>(&instruction))
          if (auto *assembly = llvm::dyn_cast<llvm::InlineAsm>(call->getCalledOperand());
              assembly && assembly->hasSideEffects())
            call->addFnAttr(llvm::Attribute::Convergent);
  }
  // After fewer passes, ptxas takes more registers for some kernels of rows, and fits fewer blocks of them on a
  // processor.
  optimize(*module, *machine, "default<O3>");
  llvm::SmallVector<char, 0> text = emit(*module, *machine, llvm::CodeGenFileType::AssemblyFile);
  return {text.begin(), text.end()};
}

std::string joinPTX(llvm::ArrayRef<ObjectFile> modules) {
  constexpr llvm::StringLiteral endOfHead = ".address_size 64\n", declaration = ".extern ";
  std::string joined;
  llvm::StringSet<> declared; // what several modules share, of which one has to have one declaration
  for (const ObjectFile &module : modules) {
    auto [head, rest] = llvm::StringRef(module.data(), module.size()).split(endOfHead);
    if (joined.empty())
      joined = (head + endOfHead).str();
    while (!rest.empty()) {
      auto [line, others] = rest.split('\n');
      if (!line.starts_with(declaration) || declared.insert(line).second)
        (joined += line) += '\n';
      rest = others;
    }
  }
  return joined;
}

std::optional<std::string> findPtxas() {
  if (auto found = llvm::sys::findProgramByName("ptxas"))
    return *found;
  if (const char *home = std::getenv("CUDA_HOME")) {
    llvm::SmallString<256> folder(home);
    llvm::sys::path::append(folder, "bin");
    if (auto found = llvm::sys::findProgramByName("ptxas", {folder.str()}))
      return *found;
  }
  return std::nullopt;
}

// Runs ptxas with these arguments, and all that it says going to a file. Whether it succeeded, and if not, why.
static bool run(const std::string &ptxas, llvm::ArrayRef<llvm::StringRef> arguments, const std::string &messages,
                std::string &reason) {
  llvm::SmallVector<llvm::StringRef> words = {ptxas};
  words.append(arguments.begin(), arguments.end());
  return llvm::sys::ExecuteAndWait(ptxas, words, std::nullopt, {std::nullopt, messages, messages}, 0, 0, &reason) == 0;
}

// Runs ptxas with one argument and returns what it prints. Throws Error if it cannot be run.
static std::string answerOf(const std::string &ptxas, llvm::StringRef argument) {
  const TemporaryFolder folder("ptxas");
  const std::string messages = folder.file("messages");
  std::string reason;
  if (!run(ptxas, {argument}, messages, reason))
    throw Error("compile: " + ptxas + " cannot be run: " + reason + readFile(messages));
  return readFile(messages);
}

std::string versionOf(const std::string &ptxas) { return answerOf(ptxas, "--version"); }

std::vector<uint8_t> assemble(const std::string &ptxas, const std::string &ptx, const Architecture &architecture) {
  const TemporaryFolder folder("ptxas");
  const std::string text = folder.file("text"), cubin = folder.file("cubin"), messages = folder.file("messages");
  writeFile(text, ptx);
  std::string reason;
  const std::string arch = "-arch=" + architecture.name;
  llvm::SmallVector<llvm::StringRef> arguments = {arch, "-o", cubin, text};
  // 0 is one thread for each CPU. Old versions lack the option. The code does not depend on the number of CPUs.
  if (llvm::StringRef(answerOf(ptxas, "--help")).contains("--split-compile"))
    arguments.append({"--split-compile", "0"});
  if (!run(ptxas, arguments, messages, reason))
    throw Error("compile: " + ptxas + " rejected the generated PTX for " + architecture.name + ": " + reason +
                readFile(messages));
  const MappedFile assembled(cubin);
  return {assembled.contents().begin(), assembled.contents().end()};
}

} // namespace xfc::gpu
