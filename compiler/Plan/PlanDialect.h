// The plan dialect: a compiled model as the runtime will run it, before it is serialized.
#pragma once

#include "Dialect/XFC.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "plan/Plan.h"

#include "PlanDialect.h.inc"
#define GET_ATTRDEF_CLASSES
#include "PlanAttributes.h.inc"
#define GET_OP_CLASSES
#include "PlanOps.h.inc"
