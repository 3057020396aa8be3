// The xfc dialect: types, ops and the interfaces passes talk to.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "xfc/abi.h"
#include "llvm/ADT/DenseMap.h"
#include <vector>

namespace xfc {

// A value in the reference interpreter: everything in f64, ids and labels too. Rows are [N, features...] (ids
// [N]); pairs are [P * H] in the block layout of abi.h; tensors have their own shape.
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<double> data;
  double *row(int64_t i) { return data.data() + i * features(); }
  const double *row(int64_t i) const { return data.data() + i * features(); }
  // Elements of one entry of the first dimension.
  int64_t features() const {
    int64_t n = 1;
    for (size_t d = 1; d < shape.size(); ++d)
      n *= shape[d];
    return n;
  }
};

// The gradients known so far while a function is differentiated backwards.
class Gradients {
public:
  explicit Gradients(mlir::OpBuilder &builder) : builder(builder) {}
  // The gradient of `value`, or null where nothing depends on it.
  mlir::Value of(mlir::Value value) const { return gradients.lookup(value); }
  // Adds `gradient` to what is known of `value`, summing with xfc.add. Null adds nothing.
  void add(mlir::Value value, mlir::Value gradient);
  // Whether a gradient for `value` is wanted: whether it depends on a parameter.
  bool wanted(mlir::Value value) const { return active.contains(value); }
  void activate(mlir::Value value) { active.insert(value); }

private:
  mlir::OpBuilder &builder;
  llvm::DenseMap<mlir::Value, mlir::Value> gradients;
  llvm::DenseSet<mlir::Value> active;
};

class PlainBuilder; // PlainBuilder.h

} // namespace xfc

#include "XFCDialect.h.inc"
#include "XFCEnums.h.inc"
#define GET_TYPEDEF_CLASSES
#include "XFCTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "XFCAttributes.h.inc"

namespace xfc {
// Of a product: it is defined in its compute type, and its operands are f32.
llvm::LogicalResult verifyComputeType(mlir::Operation *op);
} // namespace xfc

#include "XFCInterfaces.h.inc"
#define GET_OP_CLASSES
#include "XFCOps.h.inc"

// The discardable attributes of an xfc module and of its functions' arguments and results. The dialect verifies them
// and refuses any other.
namespace xfc::attr {
inline constexpr llvm::StringLiteral model = "xfc.model"; // of a module: a ModelAttr
inline constexpr llvm::StringLiteral name = "xfc.name";   // of an argument or a result: a string
inline constexpr llvm::StringLiteral role = "xfc.role";   // of an argument; the values are below
inline constexpr llvm::StringLiteral alias = "xfc.alias"; // of a result: the index of the argument it replaces
inline constexpr llvm::StringLiteral parameter = "parameter", gradient = "gradient", moment1 = "moment1",
                                     moment2 = "moment2", input = "input", scalar = "scalar", state = "state";
} // namespace xfc::attr

namespace xfc {
// What a module says about its model, or null. Parameters are its ParameterOps, in the order of the model.
inline ModelAttr modelOf(mlir::ModuleOp module) { return module->getAttrOfType<ModelAttr>(attr::model); }
} // namespace xfc
