// Instructions for tiles of matrices.
#include "TensorCore.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/ErrorHandling.h"

using namespace mlir;

namespace xfc::gpu {

static Values membersOf(KernelBuilder &k, Value record, int64_t count) {
  Values members;
  for (int64_t i = 0; i < count; ++i)
    members.push_back(LLVM::ExtractValueOp::create(k.b, record, i));
  return members;
}

Values loadMatrices(KernelBuilder &k, const View &row, bool transposed) {
  auto type = LLVM::LLVMStructType::getLiteral(k.b.getContext(), SmallVector<Type>(4, k.i32));
  Value matrices =
      NVVM::LdMatrixOp::create(k.b, type, row.data, 4u, transposed ? NVVM::MMALayout::col : NVVM::MMALayout::row,
                               NVVM::LdStMatrixShapeAttr::get(k.b.getContext(), 8, 8), NVVM::LdStMatrixEltType::B16);
  return membersOf(k, matrices, 4);
}

// mma.sync of operands of this type, which have `depth` columns and rows.
static void multiplyBy(int64_t depth, NVVM::MMATypes operands, KernelBuilder &k, ArrayRef<Value> a, ArrayRef<Value> b,
                       MutableArrayRef<Value> c) {
  auto type = LLVM::LLVMStructType::getLiteral(k.b.getContext(), SmallVector<Type>(4, k.element));
  Value sums = NVVM::MmaOp::create(k.b, type, a, b, ValueRange(ArrayRef<Value>(c)), ArrayRef<int64_t>{16, 8, depth},
                                   std::nullopt, std::nullopt, std::array<NVVM::MMATypes, 2>{operands, operands},
                                   std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row, NVVM::MMALayout::col});
  llvm::copy(membersOf(k, sums, 4), c.begin());
}

static void multiplyBySixteen(KernelBuilder &k, ArrayRef<Value> a, ArrayRef<Value> b, MutableArrayRef<Value> c) {
  multiplyBy(16, NVVM::MMATypes::bf16, k, a, b, c);
}

// The cores by the names that architectures have for them.
constexpr std::pair<StringLiteral, decltype(&multiplyMatrices)> cores[] = {{"m16n8k16", multiplyBySixteen}};

void multiplyMatrices(KernelBuilder &k, ArrayRef<Value> a, ArrayRef<Value> b, MutableArrayRef<Value> c) {
  const auto *core = llvm::find_if(cores, [&](const auto &known) { return known.first == k.architecture.core; });
  if (core == std::end(cores))
    llvm::report_fatal_error("the table of targets names an unknown core: " + Twine(k.architecture.core));
  core->second(k, a, b, c);
}

SplitNumbers::SplitNumbers(KernelBuilder &k, ArrayRef<Value> numbers) {
  // TF32 is f32 without the last 13 bits, which products ignore. Halfway is away from zero.
  constexpr int32_t half = 1 << 12, kept = -(1 << 13);
  for (Value number : numbers) {
    Value bits = LLVM::BitcastOp::create(k.b, k.i32, number);
    high.push_back(k.bitAnd(k.add(bits, half), kept));
    Value rounded = LLVM::BitcastOp::create(k.b, k.element, high.back());
    low.push_back(LLVM::BitcastOp::create(k.b, k.i32, k.subf(number, rounded)));
  }
}

void multiplySplit(KernelBuilder &k, const SplitNumbers &a, int64_t ofA, const SplitNumbers &b, int64_t ofB,
                   MutableArrayRef<Value> c) {
  Values sums(4, k.scalar(0));
  auto add = [&](const Values &left, const Values &right) {
    multiplyBy(8, NVVM::MMATypes::tf32, k, ArrayRef<Value>(left).slice(ofA, 4), ArrayRef<Value>(right).slice(ofB, 2),
               sums);
  };
  add(a.low, b.high);
  add(a.high, b.low);
  add(a.high, b.high);
  for (auto [sum, more] : llvm::zip_equal(c, sums))
    sum = k.addf(sum, more);
}

void copyAsync(KernelBuilder &k, const View &to, const View &from, Value valid, int64_t bytes) {
  // Only copies of 16 bytes can bypass the L1 cache.
  NVVM::CpAsyncOp::create(k.b, to.data, from.data, static_cast<uint32_t>(bytes),
                          bytes == 16 ? NVVM::LoadCacheModifierKind::CG : NVVM::LoadCacheModifierKind::CA,
                          k.select(valid, k.i32Of(static_cast<int32_t>(bytes)), 0));
}
void commitCopies(KernelBuilder &k) { NVVM::CpAsyncCommitGroupOp::create(k.b); }
void waitForCopies(KernelBuilder &k, int64_t pending) {
  NVVM::CpAsyncWaitGroupOp::create(k.b, static_cast<uint32_t>(pending));
}

} // namespace xfc::gpu
