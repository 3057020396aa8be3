// Turns functions into programs, and their ops into launches of shared kernels.
#include "Analysis/BufferAssignment.h"
#include "Analysis/Kernels.h"
#include "Dialect/Values.h"
#include "Passes.h"
#include "TargetPass.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_OUTLINEKERNELS
#include "Schedule/Passes.h.inc"

namespace {

struct OutlineKernels : TargetPass<impl::OutlineKernelsBase<OutlineKernels>> {
  using TargetPass::TargetPass;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    symbols.clear();
    kernelOf.clear();
    before = nullptr;
    for (Operation &op : module.getOps())
      if (auto symbol = op.getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName()))
        symbols.insert(symbol.getValue());
    for (auto function : llvm::to_vector(module.getOps<func::FuncOp>()))
      if (failed(outline(function)))
        return signalPassFailure();
  }

private:
  LogicalResult outline(func::FuncOp function) {
    if (!function.getBody().hasOneBlock())
      return function.emitOpError("must have a body with exactly one block");
    if (failed(verifyValues(function)))
      return failure();
    OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
    auto program = ProgramOp::create(builder, function.getLoc(), function);
    if (!before)
      before = program;
    function.erase();
    for (Operation &op : llvm::make_early_inc_range(program.getBody().front())) {
      builder.setInsertionPoint(&op);
      if (isView(&op))
        continue;
      if (isa<func::ReturnOp>(op))
        ReturnOp::create(builder, op.getLoc(), op.getOperands(), ArrayAttr());
      else if (!isa<KernelOpInterface>(op))
        return op.emitOpError("is neither a kernel nor a view");
      else
        op.replaceAllUsesWith(launch(builder, &op));
      op.erase();
    }
    return success();
  }

  LaunchOp launch(OpBuilder &builder, Operation *op) {
    auto kernel = cast<KernelOpInterface>(op);
    const PartedTensors parted = kernel.getPartedTensors();
    const std::optional<int64_t> dropout = dropoutId(op);
    SmallVector<Attribute> tensors;
    for (const xfc_parted_tensor &tensor : parted.tensors)
      tensors.push_back(TensorAttr::get(&getContext(), tensor.first, tensor.rows, tensor.columns, tensor.per,
                                        tensor.parts, tensor.matrix, tensor.group));
    ++launches;
    return LaunchOp::create(builder, op->getLoc(), op->getResultTypes(), kernelFor(op), op->getOperands(),
                            DomainAttr::get(&getContext(), kernel.getLaunchDomain()), ArrayAttr(),
                            dropout ? builder.getI64IntegerAttr(*dropout) : IntegerAttr(),
                            tensors.empty() ? ArrayAttr() : builder.getArrayAttr(tensors), parted.chunks, ArrayAttr(),
                            SizeAttr::get(&getContext(), flopsOf(op)), SizeAttr::get(&getContext(), trafficOf(op)),
                            DenseI32ArrayAttr());
  }

  StringRef kernelFor(Operation *op) {
    const std::string variant = target->variant(op);
    std::string &name = kernelOf[kernelKey(op) + variant];
    if (!name.empty())
      return name;
    const std::string base = kernelName(op) + (variant.empty() ? "" : "_" + variant);
    name = base;
    for (int count = 2; !symbols.insert(name).second; ++count)
      name = base + "_" + std::to_string(count);
    ++kernels;

    OpBuilder builder(before);
    auto kernel = KernelOp::create(builder, op->getLoc(), name);
    kernel.setDecoding(isDecodingStep(op));
    Block *body = builder.createBlock(&kernel.getBody());
    for (Value operand : op->getOperands())
      body->addArgument(operand.getType(), operand.getLoc());
    Operation *copy = builder.insert(op->clone());
    copy->setOperands(body->getArguments());
    SmallVector<Value> read;
    for (auto [result, own] : llvm::zip_equal(op->getResults(), copy->getResults()))
      if (!result.use_empty())
        read.push_back(own);
    ReturnOp::create(builder, op->getLoc(), read, ArrayAttr());
    return name;
  }

  llvm::StringSet<> symbols;
  llvm::StringMap<std::string> kernelOf; // by key and variant
  Operation *before = nullptr;           // the first program; kernels are inserted before it
};

} // namespace

std::unique_ptr<Pass> createOutlineKernels(const Target &target) { return std::make_unique<OutlineKernels>(target); }

} // namespace xfc
