// What the verifiers of ops share.
#pragma once

#include "XFC.h"

namespace xfc {

// Rows, pairs and tensors of an op share one floating-point type.
llvm::LogicalResult verifyOneElementType(mlir::Operation *op);

// Tokens and their numbers are lists of one length, one number a row is the wanted token's, and `excluded` are tokens
// in order.
llvm::LogicalResult verifyCandidates(mlir::Operation *op, RowsType rows, RowsType wanted, RowsType tokens,
                                     RowsType numbers, RowsType wantedNumber, llvm::ArrayRef<int64_t> excluded,
                                     int64_t vocabulary);

// Labels belong to the rows of the logits, and `numbers` are one a row.
llvm::LogicalResult verifyLoss(mlir::Operation *op, RowsType logits, RowsType labels, llvm::ArrayRef<RowsType> numbers);

} // namespace xfc
