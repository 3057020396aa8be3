// What passes ask of an op, so that no pass needs to know op names.
#ifndef XFC_INTERFACES_TD
#define XFC_INTERFACES_TD

include "mlir/IR/OpBase.td"

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op that can give the gradients of its operands from those of its results. Implementations build ops at
    the builder's insertion point, carry the op's location, and add one gradient for each operand that has one.
    A result nobody used has no gradient (`gradients.of` gives null) and counts as 0.
  }];
  let methods = [InterfaceMethod<"Appends the gradient computation.", "::llvm::LogicalResult", "differentiate",
                                 (ins "::mlir::OpBuilder &":$builder, "::xfc::Gradients &":$gradients)>];
}

def KernelOpInterface : OpInterface<"KernelOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op that becomes one launch of one kernel. Everything that scheduling asks of it is here, with the answer of most
    ops as the default; what an op answers otherwise stands in its record.
  }];
  let methods = [
    InterfaceMethod<"What the kernel is called before the shape: the op's own name unless attributes make another kernel of it.",
                    "::std::string", "getKernelName", (ins), "",
                    "return $_op->getName().stripDialect().str();">,
    InterfaceMethod<"What follows the shape in the kernel's name: tells apart kernels of one shape.",
                    "::std::string", "getKernelSuffix", (ins), "", "return {};">,
    InterfaceMethod<[{Attributes that every launch passes to the kernel, or that show in the batch's structures alone. All others
                      are compiled in, so that ops share a kernel only if they agree in them.}],
                    "::llvm::ArrayRef<::llvm::StringRef>", "getLaunchAttributes", (ins), "", "return {};">,
    InterfaceMethod<[{Whether the kernel walks tensors of any shape: their size is passed at launch, and is no part of its
                      identity or name.}], "bool", "isShapeless", (ins), "", "return false;">,
    InterfaceMethod<[{The tensors, consecutive in memory, whose number of elements together is passed at launch; none if the
                      kernel does not walk elements.}],
                    "::mlir::OperandRange", "getSpan", (ins), "", "return $_op->getOperands().take_front(0);">,
    InterfaceMethod<"The rows, and the keys if any, that the launch is divided over.", "::xfc::LaunchDomain", "getLaunchDomain", (ins),
                    "", "return ::xfc::launchDomainOf($_op);">,
    InterfaceMethod<[{Floating-point operations for each row of the launch's domain, or for each pair where the domain has keys.
                      Nothing: the op is bound by memory, and one operation for each element of a result is near enough.}],
                    "::std::optional<int64_t>", "getFlops", (ins), "", "return ::xfc::flopsOfProduct($_op);">,
    InterfaceMethod<"The id of the random numbers that the op draws, if it draws some; a launch passes it.",
                    "::std::optional<int64_t>", "getDropoutId", (ins), "", "return ::std::nullopt;">,
    InterfaceMethod<"The operand whose buffer the result may take over when nobody reads it later, or -1.",
                    "int64_t", "getInPlaceOperand", (ins "unsigned":$result), "",
                    "return ConcreteOp::template hasTrait<::xfc::InPlace>() ? 0 : -1;">,
    InterfaceMethod<"Whether the results always take over those operands, of which the kernel writes a part only.",
                    "bool", "isAlwaysInPlace", (ins), "", "return false;">,
    InterfaceMethod<"The parameters, consecutive in memory, whose packed forms the kernel writes besides; none for most ops.",
                    "::mlir::OperandRange", "getRepacked", (ins), "", "return $_op->getOperands().take_front(0);">];
}

def ProductOpInterface : OpInterface<"ProductOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    A product of matrices, whose attribute `compute` says what its operands are rounded to (ComputeType); absent,
    they are multiplied as they are.
  }];
  let methods = [
    InterfaceMethod<"What the operands are rounded to.", "::std::optional<::xfc::ComputeType>", "getCompute">,
    InterfaceMethod<"Sets it.", "void", "setComputeAttr", (ins "::xfc::ComputeTypeAttr":$type)>,
    InterfaceMethod<"Whether the product is defined in `type`.", "bool", "computesIn", (ins "::xfc::ComputeType":$type), "", "return true;">,
    InterfaceMethod<"The operand that is a weight matrix, which a target may read in a packed form; none if both are rows.",
                    "::std::optional<unsigned>", "getWeightOperand", (ins), "", "return ::std::nullopt;">,
    InterfaceMethod<"The dimension of the weight that the product sums over: 1 for x W^T, 0 for dy W.",
                    "unsigned", "getContractedDimension", (ins), "", "return 1;">];
  let verify = [{ return ::xfc::verifyComputeType($_op); }];
}

def ViewOpInterface : OpInterface<"ViewOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op that only says where values lie: its parts lie in its whole. Nothing is launched for it. Where the whole is an
    operand, each part is given a place in it; where it is the result, the parts are written or laid out there.
  }];
  let methods = [
    InterfaceMethod<"The value that the parts lie in: an operand, or a result.", "::mlir::Value", "getWhole">,
    InterfaceMethod<"The values that lie in it.", "::mlir::ValueRange", "getParts">,
    InterfaceMethod<[{Where a part begins: the number of features from the beginning of the whole's row, and of elements from the
                      beginning of a whole tensor. By default each part follows the one before.}],
                    "int64_t", "getPartOffset", (ins "unsigned":$part), "", "return ::xfc::extentOf($_op.getParts().take_front(part));">,
    InterfaceMethod<"Whether the whole is a result, which the parts make up.", "bool", "makesWhole", (ins), "",
                    "return $_op.getWhole().getDefiningOp() == $_op.getOperation();">];
}

// Fusion makes the op of others, which have plain kernels where it has none.
def Fused : NativeOpTrait<"Fused"> { let cppNamespace = "::xfc"; }

// Differentiation never meets the op: it makes it, or what follows the loss does.
def NoGradient : NativeOpTrait<"NoGradient"> { let cppNamespace = "::xfc"; }

// Each result may take the place of the first operand (KernelOpInterface::getInPlaceOperand).
def InPlace : NativeOpTrait<"InPlace"> { let cppNamespace = "::xfc"; }

// The op may be part of a product's epilogue: an element of its one result depends on the same element of its operands,
// which are rows of one type, and on nothing else.
def InEpilogue : NativeOpTrait<"InEpilogue"> { let cppNamespace = "::xfc"; }

#endif
