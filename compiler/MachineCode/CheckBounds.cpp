// Instruments kernels in LLVM IR to check each memory access before it happens.
#include "CheckBounds.h"
#include "support/Error.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace xfc {

namespace {

class Checks {
public:
  explicit Checks(Module &module) : module(module), builder(module.getContext()) {
    Type *nothing = builder.getVoidTy(), *pointer = builder.getPtrTy(), *i64 = builder.getInt64Ty(),
         *i32 = builder.getInt32Ty();
    rows = module.getOrInsertFunction("xfc_check_rows", nothing, pointer, i64, i64, i64, i32);
    lanes = module.getOrInsertFunction("xfc_check_lanes", nothing, pointer, i64, i64, i32);
  }

  void check(Instruction &instruction) {
    builder.SetInsertPoint(&instruction);
    if (auto *load = dyn_cast<LoadInst>(&instruction))
      return whole(load->getPointerOperand(), load->getType(), false);
    if (auto *store = dyn_cast<StoreInst>(&instruction))
      return whole(store->getPointerOperand(), store->getValueOperand()->getType(), true);
    if (auto *intrinsic = dyn_cast<IntrinsicInst>(&instruction))
      return check(*intrinsic);
    // Calls are not checked: the functions they call check their own accesses.
    if (!isa<CallInst>(instruction) && instruction.mayReadOrWriteMemory() && !isa<FenceInst>(instruction))
      refuse(instruction.getOpcodeName());
  }

private:
  void check(IntrinsicInst &call) {
    switch (call.getIntrinsicID()) {
    case Intrinsic::masked_load:
      return masked(call, call.getType(), false);
    case Intrinsic::masked_store:
      return masked(call, call.getArgOperand(0)->getType(), true);
    case Intrinsic::x86_tileloadd64: // tile, address, stride
    case Intrinsic::x86_tileloaddt164:
      return tile(call, false);
    case Intrinsic::x86_tilestored64:
      return tile(call, true);
    case Intrinsic::x86_ldtilecfg:
      return span(call.getArgOperand(0), builder.getInt64(64), false);
    case Intrinsic::prefetch: // may have any address
      return;
    default:
      break;
    }
    if (auto *set = dyn_cast<MemSetInst>(&call))
      return span(set->getDest(), set->getLength(), true);
    if (auto *copy = dyn_cast<MemTransferInst>(&call)) {
      span(copy->getSource(), copy->getLength(), false);
      return span(copy->getDest(), copy->getLength(), true);
    }
    const bool takesPointers = any_of(call.args(), [](const Use &use) { return use->getType()->isPointerTy(); });
    if (!takesPointers || call.isLifetimeStartOrEnd() || call.isAssumeLikeIntrinsic())
      return;
    refuse(call.getCalledFunction()->getName());
  }

  [[noreturn]] static void refuse(StringRef what) {
    throw Error("compile: --check-bounds does not know what '" + what.str() + "' reads or writes");
  }

  static bool isOwn(const Value *pointer) {
    const Value *object = getUnderlyingObject(pointer, /*MaxLookup=*/0);
    if (const auto *global = dyn_cast<GlobalVariable>(object))
      return global->isConstant();
    return isa<AllocaInst>(object);
  }

  void call(Value *pointer, Value *count, Value *bytes, Value *stride, bool writes) {
    if (!isOwn(pointer))
      builder.CreateCall(rows, {pointer, count, bytes, stride, builder.getInt32(writes)});
  }
  void span(Value *pointer, Value *bytes, bool writes) {
    call(pointer, builder.getInt64(1), builder.CreateZExtOrTrunc(bytes, builder.getInt64Ty()), builder.getInt64(0),
         writes);
  }
  void whole(Value *pointer, Type *type, bool writes) {
    span(pointer, builder.getInt64(module.getDataLayout().getTypeStoreSize(type).getFixedValue()), writes);
  }

  void masked(IntrinsicInst &access, Type *type, bool writes) {
    Value *pointer = nullptr, *mask = nullptr;
    for (Value *argument : access.args()) {
      if (argument->getType()->isPointerTy())
        pointer = argument;
      else if (argument->getType()->isIntOrIntVectorTy(1))
        mask = argument;
    }
    auto *vector = cast<FixedVectorType>(type);
    if (isOwn(pointer))
      return;
    Value *bits = builder.CreateBitCast(mask, builder.getIntNTy(vector->getNumElements()));
    const uint64_t bytes = module.getDataLayout().getTypeStoreSize(vector->getElementType()).getFixedValue();
    builder.CreateCall(lanes, {pointer, builder.CreateZExt(bits, builder.getInt64Ty()), builder.getInt64(bytes),
                               builder.getInt32(writes)});
  }

  // The largest tile: a kernel configures fewer rows only where it has memory for all of them (configureTiles).
  void tile(IntrinsicInst &access, bool writes) {
    call(access.getArgOperand(1), builder.getInt64(16), builder.getInt64(64), access.getArgOperand(2), writes);
  }

  Module &module;
  IRBuilder<> builder;
  FunctionCallee rows, lanes;
};

} // namespace

void checkBounds(Module &module) {
  SmallVector<Instruction *> accesses;
  for (Function &function : module)
    for (Instruction &instruction : instructions(function))
      if (instruction.mayReadOrWriteMemory())
        accesses.push_back(&instruction);
  Checks checks(module);
  for (Instruction *access : accesses)
    checks.check(*access);
}

} // namespace xfc
