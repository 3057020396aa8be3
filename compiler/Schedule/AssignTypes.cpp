// Decides which rows of a program are stored in bf16.
#include "Analysis/Kernels.h"
#include "Dialect/Values.h"
#include "Passes.h"
#include "TargetPass.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_ASSIGNTYPES
#include "Schedule/Passes.h.inc"

namespace {

struct AssignTypes : TargetPass<impl::AssignTypesBase<AssignTypes>> {
  using TargetPass::TargetPass;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (multipliesInBF16(function) && !isDecodingStep(&function.getBody().front().front()))
        narrow(function);
  }

private:
  static bool multipliesInBF16(func::FuncOp function) {
    return function
        .walk([](ProductOpInterface product) {
          return product.getCompute() == ComputeType::bf16 ? WalkResult::interrupt() : WalkResult::advance();
        })
        .wasInterrupted();
  }

  bool takesNarrow(Operation *op, unsigned buffer) const {
    if (isa<ViewOpInterface>(op))
      return true;
    auto kernel = dyn_cast<KernelOpInterface>(op);
    if (!kernel || kernel.staysWide(buffer) || (target->options.wideResidual && kernel.carriesResidual(buffer)))
      return false;
    return target->takesNarrowRows(op, buffer);
  }

  // Whether the value's type may change, as far as its maker and its readers are concerned.
  bool mayBeNarrow(OpResult value) const {
    auto rows = dyn_cast<RowsType>(value.getType());
    return rows && rows.getElementType().isF32() && hasWholePieces(rows) &&
           takesNarrow(value.getOwner(), value.getOwner()->getNumOperands() + value.getResultNumber()) &&
           llvm::all_of(value.getUses(),
                        [&](OpOperand &use) { return takesNarrow(use.getOwner(), use.getOperandNumber()); });
  }

  void narrow(func::FuncOp function) {
    Block &body = function.getBody().front();
    // Values that must have one type: a view's parts and its whole, and the rows of ops that are defined on one type.
    llvm::EquivalenceClasses<Value> alike;
    for (Operation &op : body)
      if (isa<ViewOpInterface>(op) || op.hasTrait<OpTrait::SameOperandsAndResultType>()) {
        SmallVector<Value> values(op.getOperands());
        llvm::append_range(values, op.getResults());
        for (Value value : values)
          if (isa<RowsType>(value.getType()))
            alike.unionSets(values.front(), value);
      }
    auto leaderOf = [&](Value value) { return alike.getOrInsertLeaderValue(value); };
    llvm::DenseSet<Value> wide;
    auto check = [&](Value value) {
      auto result = dyn_cast<OpResult>(value);
      if (isa<RowsType>(value.getType()) && (!result || !mayBeNarrow(result)))
        wide.insert(leaderOf(value));
    };
    llvm::for_each(body.getArguments(), check);
    for (Operation &op : body)
      llvm::for_each(op.getResults(), check);
    for (Operation &op : body)
      for (Value result : op.getResults())
        if (auto rows = dyn_cast<RowsType>(result.getType()); rows && !wide.contains(leaderOf(result))) {
          result.setType(rows.in(BFloat16Type::get(&getContext())));
          ++narrowed;
        }
  }
};

} // namespace

std::unique_ptr<Pass> createAssignTypes(const Target &target) { return std::make_unique<AssignTypes>(target); }

} // namespace xfc
