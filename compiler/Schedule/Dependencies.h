// Finds which launches of a program must wait for which others, if they are not run one after the other.
#pragma once

#include "Plan/PlanDialect.h"
#include "llvm/ADT/SmallVector.h"

namespace xfc {

// For each launch, in order, the numbers of the earlier launches that must have finished before it begins, ascending.
// Directly or through others, these are all with which it shares memory that one of the two writes, in whatever way the
// arena is laid out: its offsets follow from the batch, but two buffers overlap only if no launch has both live. None
// is listed that another one has waited for. The launches must have places.
llvm::SmallVector<llvm::SmallVector<int32_t>> dependenciesOf(ProgramOp program);

} // namespace xfc
