// The xfc dialect: types, ops and the interfaces that passes use.
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

// The gradients known so far while a function is differentiated backwards.
class Gradients {
public:
  explicit Gradients(mlir::OpBuilder &builder) : builder(builder) {}
  // The gradient of `value`, or null if it has none so far.
  mlir::Value of(mlir::Value value) const { return gradients.lookup(value); }
  // Adds `gradient` to the gradient of `value`, with xfc.add if there is one already. Null adds nothing.
  void add(mlir::Value value, mlir::Value gradient);
  // Whether the gradient of `value` is needed, that is, whether `value` depends on a parameter.
  bool wanted(mlir::Value value) const { return active.contains(value); }
  void activate(mlir::Value value) { active.insert(value); }

private:
  mlir::OpBuilder &builder;
  llvm::DenseMap<mlir::Value, mlir::Value> gradients;
  llvm::DenseSet<mlir::Value> active;
};

// Traits that scheduling, fusion and tests query; XFCInterfaces.td describes them.
template <typename Op> class Fused : public mlir::OpTrait::TraitBase<Op, Fused> {};
template <typename Op> class NoGradient : public mlir::OpTrait::TraitBase<Op, NoGradient> {};
template <typename Op> class InPlace : public mlir::OpTrait::TraitBase<Op, InPlace> {};
template <typename Op> class InEpilogue : public mlir::OpTrait::TraitBase<Op, InEpilogue> {};

// The packed forms of parameters, which products of later programs read.
struct PackedWeights : mlir::SideEffects::Resource::Base<PackedWeights> {
  llvm::StringRef getName() final { return "packed weights"; }
};

} // namespace xfc

#include "XFCDialect.h.inc"
#include "XFCEnums.h.inc"
#define GET_TYPEDEF_CLASSES
#include "XFCTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "XFCAttributes.h.inc"

namespace xfc {
// Whether products of the type multiply integers, which have no gradient.
constexpr bool isInteger(ComputeType type) { return type != ComputeType::bf16; }
// The elements of a row of a weight that have a scale of their own in int4.
inline constexpr int64_t int4Group = 32;
// The bytes that a weight of f32 with `bytes` bytes takes in the type, but for what is one number a row.
int64_t bytesOfWeight(int64_t bytes, ComputeType type);
// Checks that a product is defined in its compute type, if it has one, and has f32 operands then.
llvm::LogicalResult verifyComputeType(mlir::Operation *op);

// The rows over which a launch is divided and, for ops that pair rows with keys, the set of the keys and the index into
// xfc_shape.keys. Without keys, `keys` equals `rows`.
struct LaunchDomain {
  RowSet rows, keys;
  std::optional<int64_t> structure;
};
// The index into xfc_shape.keys of keys that pairs of these sets have. Rows of the source have keys of their own set
// only.
int64_t keyStructure(RowSet queries, RowSet keys, bool padding, bool causal);
// The default domain of an op: its pairs if it has any, else its first operand that is rows, else its first result that
// is rows.
LaunchDomain launchDomainOf(mlir::Operation *op);
// Operations per row of a product: two for each element of its weight. nullopt if the op is not a product with a
// weight.
std::optional<int64_t> flopsOfProduct(mlir::Operation *op);
// How an optimizer sees a tensor whose second moment it factors: its last dimension is that of the columns, and all
// others together are the rows. A tensor with fewer than two dimensions is not factored, and is a single column.
struct MatrixForm {
  explicit MatrixForm(mlir::RankedTensorType tensor);
  bool factored;
  int64_t rows, columns;
  // Sums over rows are cut into `parts` parts of `per` rows, the last of which may be shorter.
  int64_t per, parts;
};
// The tensors of a launch in the order in which it takes them, and the number of chunks of all of them.
struct PartedTensors {
  std::vector<xfc_parted_tensor> tensors;
  int64_t chunks = 0;
  // Adds a tensor with its number of chunks.
  void add(const MatrixForm &form, int64_t ofChunks);
};
// The total number of features per row of `values`, or their total number of elements if they are tensors.
int64_t extentOf(mlir::ValueRange values);
} // namespace xfc

#include "XFCInterfaces.h.inc"
#define GET_OP_CLASSES
#include "XFCOps.h.inc"

// The discardable attributes of an xfc module and of its functions' arguments and results. The dialect verifies them
// and rejects any other.
namespace xfc::attr {
inline constexpr llvm::StringLiteral model = "xfc.model";     // of a module: a ModelAttr
inline constexpr llvm::StringLiteral compute = "xfc.compute"; // of a module: the ComputeType of its products, as a
                                                              // string, if that is the same in all programs
inline constexpr llvm::StringLiteral name = "xfc.name";       // of an argument or a result: a string
inline constexpr llvm::StringLiteral role = "xfc.role";   // of an argument: a value below, or a state of the optimizer
inline constexpr llvm::StringLiteral alias = "xfc.alias"; // of a result: the index of the argument it replaces
inline constexpr llvm::StringLiteral parameter = "parameter", gradient = "gradient", input = "input", scalar = "scalar",
                                     state = "state";
} // namespace xfc::attr

namespace xfc {
// The attribute that describes the model of a module, or null. The model's parameters are the module's ParameterOps, in
// their order.
inline ModelAttr modelOf(mlir::ModuleOp module) { return module->getAttrOfType<ModelAttr>(attr::model); }
} // namespace xfc
