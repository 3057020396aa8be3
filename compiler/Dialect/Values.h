// What a program may compute with: the only place that says which element types are known.
#pragma once

#include "XFC.h"
#include "mlir/IR/BuiltinOps.h"
#include "plan/Plan.h"
#include <optional>

namespace xfc {

// The element type of a plan for one of MLIR's, and back; none if executables have no such numbers.
std::optional<DType> dtypeOf(mlir::Type element);
mlir::Type elementType(mlir::MLIRContext *context, DType type);

// The type that elements are computed in: f32 for the narrower floats and i8, and otherwise their own.
mlir::Type computedType(mlir::Type element);

// The element type of rows, pairs or a tensor; null for any other type.
mlir::Type elementOf(mlir::Type type);
// Bytes of such an element, which must be known.
int64_t elementBytes(mlir::Type type);

// Whether rows have whole pieces of 8 features. Only such rows become narrower than they are computed in, since kernels
// access several narrow numbers of a row at once, and copy them by 16 bytes.
bool hasWholePieces(RowsType rows);

// Whether an argument or a result of a program of this name is keys or values that decoding keeps: PATH.k or PATH.v.
bool isKeysOrValues(llvm::StringRef name);

// Checks that each value inside the op, and each parameter, is rows, pairs or a static tensor of known numbers, of a
// size that memory could hold. Only rows and tensors that an op makes, and arguments that are kept from run to run, may
// have elements of bf16 or i8. Fails with a diagnostic at the op that makes the value.
llvm::LogicalResult verifyValues(mlir::Operation *op);

// The floating-point type of the module's parameters and arguments, in which rows are computed; f32 if it has none.
// Fails with a diagnostic if verifyValues() does, or if two of them differ.
llvm::FailureOr<DType> floatTypeOf(mlir::ModuleOp module);

} // namespace xfc
