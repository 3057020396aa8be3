// Parses and checks modules in textual form, and prints modules so that they can be parsed again.
#include "Dialect/Values.h"
#include "Generation.h"
#include "Import.h"
#include "ModuleLimits.h"
#include "Training.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/AsmParser/AsmParserState.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/Verifier.h"
#include "plan/Optimizers.h"
#include "plan/Programs.h"
#include "support/Error.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;

namespace xfc {
namespace {

// Adds positions in the file to the locations, which are printed as names only: diagnostics need both.
void addPositions(ModuleOp module, const AsmParserState &state, const llvm::SourceMgr &source, StringRef file) {
  StringAttr fileName = StringAttr::get(module.getContext(), file);
  module->walk([&](Operation *op) {
    const AsmParserState::OperationDefinition *definition = state.getOpDef(op);
    if (!definition)
      return;
    auto [line, column] = source.getLineAndColumn(definition->loc.Start);
    Location position = FileLineColLoc::get(fileName, line, column);
    if (auto name = dyn_cast<NameLoc>(op->getLoc()))
      op->setLoc(NameLoc::get(name.getName(), position));
    else if (isa<UnknownLoc>(op->getLoc()))
      op->setLoc(position);
    else
      op->setLoc(FusedLoc::get(module.getContext(), {position, op->getLoc()}));
  });
}

// The verifiers of ops check what holds for any module. This checks what also holds for a module that Import/ makes.
class ModelChecker {
public:
  ModelChecker(ModuleOp module, const ImportOptions &options) : module(module), options(options) {}

  LogicalResult check() {
    if (!modelOf(module))
      return module.emitError() << "has no attribute '" << attr::model
                                << "', which describes the model; `xfc compile model.json --emit imported` writes it";
    if (failed(checkSettings(modelOf(module))))
      return failure();
    for (Operation &op : *module.getBody())
      if (!isa<func::FuncOp, ParameterOp>(op))
        return op.emitError() << "a model can only contain functions and parameters, found '" << op.getName() << "'";
    auto programs = module.getOps<func::FuncOp>();
    if (programs.empty())
      return module.emitError() << "contains no programs; expected functions such as @forward";
    for (func::FuncOp program : programs)
      if (failed(checkProgram(program)))
        return failure();
    return checkType();
  }

private:
  // Checks the parts of the description that executables read at run time.
  LogicalResult checkSettings(ModelAttr model) {
    const std::optional<nlohmann::json> given = jsonIn(model.getDescription());
    if (!given || !given->is_object())
      return success();
    const nlohmann::json &description = *given;
    try {
      if (description.contains("generation"))
        readGeneration(JsonValue(description["generation"], "description", "generation"), model.getTargetVocab(),
                       model.getPad(), model.getStart(), model.getEos());
      if (description.contains("training"))
        readTraining(JsonValue(description["training"], "description", "training"));
    } catch (const Error &error) {
      return module.emitError() << error.what();
    }
    return success();
  }

  LogicalResult checkProgram(func::FuncOp program) {
    const StringRef name = program.getName();
    if (name == programs::lossAndGradients || name == programs::accumulate ||
        llvm::any_of(optimizers(), [&](const Optimizer &optimizer) { return name == optimizer.program; }))
      return program.emitError()
             << "this program was made by a later phase; expected a module printed by `xfc compile --emit imported`";
    if (!program.getBody().hasOneBlock())
      return program.emitError() << "expected a program of one block, found " << llvm::range_size(program.getBody())
                                 << " blocks";
    llvm::StringSet<> names;
    for (BlockArgument argument : program.getArguments()) {
      auto name = program.getArgAttrOfType<StringAttr>(argument.getArgNumber(), attr::name);
      if (!name || !program.getArgAttr(argument.getArgNumber(), attr::role))
        return program.emitError() << "argument " << argument.getArgNumber() << " needs '" << attr::name << "' and '"
                                   << attr::role << "'";
      if (!names.insert(name.getValue()).second)
        return program.emitError() << "has two arguments named " << name;
    }
    names.clear();
    for (unsigned i = 0; i < program.getNumResults(); ++i) {
      auto name = program.getResultAttrOfType<StringAttr>(i, attr::name);
      if (!name)
        return program.emitError() << "result " << i << " needs '" << attr::name << "'";
      if (!names.insert(name.getValue()).second)
        return program.emitError() << "has two results named " << name;
    }
    WalkResult walked = program.walk([&](Operation *op) {
      if (op != program && !isa<func::ReturnOp>(op) && !isa_and_present<XFCDialect>(op->getDialect()))
        return op->emitError() << "a program can only contain ops of the xfc dialect, found '" << op->getName() << "'",
               WalkResult::interrupt();
      return WalkResult::advance();
    });
    return failure(walked.wasInterrupted());
  }

  // Checks that the module computes in the type that --dtype selects.
  LogicalResult checkType() {
    const FailureOr<DType> type = floatTypeOf(module);
    if (failed(type))
      return failure();
    if (options.f64 == (*type == DType::F64))
      return success();
    return module.emitError() << (options.f64 ? "does not compute in f64; compile it without --dtype f64"
                                              : "computes in f64; compile it with --dtype f64");
  }

  ModuleOp module;
  const ImportOptions &options;
};

// Erases the programs that importModel() would not have made with these options.
void dropPrograms(ModuleOp module, const ImportOptions &options) {
  for (auto function : llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
    const StringRef name = function.getName();
    if ((!options.train && name == programs::loss) ||
        (!options.decode &&
         llvm::is_contained(
             {programs::encode, programs::decodeStep, programs::decodeCandidates, programs::decodeRenormalized}, name)))
      function.erase();
  }
}

} // namespace

OwningOpRef<ModuleOp> parseModule(std::string_view text, std::string_view file, MLIRContext &context) {
  context.loadDialect<XFCDialect, func::FuncDialect>();
  llvm::SourceMgr source;
  source.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(text, file), llvm::SMLoc());
  if (const std::optional<ExceededLimit> exceeded = exceededLimit(text)) {
    const char *place = source.getMemoryBuffer(source.getMainFileID())->getBufferStart() + exceeded->offset;
    auto [line, column] = source.getLineAndColumn(llvm::SMLoc::getFromPointer(place));
    emitError(FileLineColLoc::get(&context, file, line, column)) << exceeded->what;
    return {};
  }
  Block block;
  AsmParserState state;
  // The module is verified later, when diagnostics can point into the file.
  if (failed(parseAsmSourceFile(source, &block, ParserConfig(&context, /*verifyAfterParse=*/false), &state)))
    return {};
  auto module = block.getOperations().size() == 1 ? dyn_cast<ModuleOp>(block.front()) : ModuleOp();
  if (!module) {
    emitError(FileLineColLoc::get(&context, file, 1, 1))
        << "expected one module, printed by `xfc compile --emit imported` or `--emit scheduled`";
    return {};
  }
  module->remove();
  OwningOpRef<ModuleOp> owned = module;
  addPositions(module, state, source, file);
  if (failed(verify(module)))
    return {};
  return owned;
}

bool prepareModel(ModuleOp module, const ImportOptions &options) {
  if (failed(ModelChecker(module, options).check()))
    return false;
  dropPrograms(module, options);
  return true;
}

std::string printModule(ModuleOp module) {
  OwningOpRef<ModuleOp> named = module.clone();
  AttrTypeReplacer positions;
  positions.addReplacement(
      [](FileLineColRange position) -> Attribute { return UnknownLoc::get(position.getContext()); });
  positions.recursivelyReplaceElementsIn(*named, /*replaceAttrs=*/false, /*replaceLocs=*/true);
  std::string text;
  llvm::raw_string_ostream stream(text);
  named->print(stream, OpPrintingFlags().enableDebugInfo());
  return text + "\n";
}

} // namespace xfc
