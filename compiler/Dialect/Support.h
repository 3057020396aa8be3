// Checks that the verifiers of several ops share.
#pragma once

#include "XFC.h"

namespace xfc {

// Checks that the rows, pairs and tensors of an op are computed in one floating-point element type.
llvm::LogicalResult verifyOneElementType(mlir::Operation *op);

// Checks that tokens and their numbers are lists of one length, that the wanted token has one number per row, and that
// `excluded` holds tokens in ascending order.
llvm::LogicalResult verifyCandidates(mlir::Operation *op, RowsType rows, RowsType wanted, RowsType tokens,
                                     RowsType numbers, RowsType wantedNumber, llvm::ArrayRef<int64_t> excluded,
                                     int64_t vocabulary);

// Checks that labels and logits belong to the same set of rows, that labels and smoothing have one of the two forms of
// a loss's target, and that each of `numbers` is one number per row.
llvm::LogicalResult verifyLoss(mlir::Operation *op, RowsType logits, RowsType labels, mlir::Type smoothing,
                               llvm::ArrayRef<RowsType> numbers);

} // namespace xfc
