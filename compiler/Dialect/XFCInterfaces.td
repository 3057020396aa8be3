// The interfaces and traits through which passes query ops, so that no pass needs to know op names.
#ifndef XFC_INTERFACES_TD
#define XFC_INTERFACES_TD

include "mlir/IR/OpBase.td"

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op that can compute the gradients of its operands from those of its results. An implementation builds ops at
    the builder's insertion point, gives them the op's location, and adds a gradient for each operand that needs one.
    A result that the loss does not depend on has no gradient: `gradients.of` returns null, which stands for 0.
  }];
  let methods = [InterfaceMethod<"Appends the gradient computation.", "::llvm::LogicalResult", "differentiate",
                                 (ins "::mlir::OpBuilder &":$builder, "::xfc::Gradients &":$gradients)>];
}

def KernelOpInterface : OpInterface<"KernelOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op that becomes one launch of one kernel. The methods are all that scheduling needs to know about it. The defaults
    suit most ops; an op that differs overrides them in its TableGen record.
  }];
  let methods = [
    InterfaceMethod<"The part of the kernel's name before the shape: the op's own name, unless attributes select a different kernel.",
                    "::std::string", "getKernelName", (ins), "",
                    "return $_op->getName().stripDialect().str();">,
    InterfaceMethod<"The part of the kernel's name after the shape, which distinguishes kernels of the same shape.",
                    "::std::string", "getKernelSuffix", (ins), "", "return {};">,
    InterfaceMethod<[{Attributes that each launch passes to the kernel, or that only select one of the batch's key structures.
                      All others are compiled into the kernel, so ops share a kernel only if they agree in these.}],
                    "::llvm::ArrayRef<::llvm::StringRef>", "getLaunchAttributes", (ins), "", "return {};">,
    InterfaceMethod<[{Whether the kernel handles tensors of any shape: their size is passed at launch and is not part of the
                      kernel's identity or name.}], "bool", "isShapeless", (ins), "", "return false;">,
    InterfaceMethod<[{The tensors, in ascending order in memory, whose joint extent in elements (gaps included) is passed at
                      launch; empty if the kernel does not iterate over such a block.}],
                    "::mlir::OperandRange", "getSpan", (ins), "", "return $_op->getOperands().take_front(0);">,
    InterfaceMethod<"The rows, and the keys if any, over which the launch is divided.", "::xfc::LaunchDomain", "getLaunchDomain", (ins),
                    "", "return ::xfc::launchDomainOf($_op);">,
    InterfaceMethod<[{Floating-point operations per row of the launch's domain, or per pair if the domain has keys. nullopt means
                      that the op is memory-bound; one operation per element of each result is then a good enough estimate.}],
                    "::std::optional<int64_t>", "getFlops", (ins), "", "return ::xfc::flopsOfProduct($_op);">,
    InterfaceMethod<"The id of the random numbers that the op draws, if any; each launch passes it to the kernel.",
                    "::std::optional<int64_t>", "getDropoutId", (ins), "", "return ::std::nullopt;">,
    InterfaceMethod<"The operand whose buffer the result may reuse if nothing reads the operand afterwards, or -1.",
                    "int64_t", "getInPlaceOperand", (ins "unsigned":$result), "",
                    "return ConcreteOp::template hasTrait<::xfc::InPlace>() ? 0 : -1;">,
    InterfaceMethod<"Whether the results must reuse those operands' buffers because the kernel writes only a part of them.",
                    "bool", "isAlwaysInPlace", (ins), "", "return false;">,
    InterfaceMethod<[{Whether a buffer (the op's operands in order, then its results) keeps the type that is computed in where other
                      rows become narrower (xfc-assign-types): statistics, sums, and what probabilities are computed from.}],
                    "bool", "staysWide", (ins "unsigned":$buffer), "", "return false;">,
    InterfaceMethod<[{Whether a buffer holds the residual stream or its gradient, which may keep the type that is computed in where
                      other rows become narrower (`xfc compile --residual f32`).}],
                    "bool", "carriesResidual", (ins "unsigned":$buffer), "", "return false;">,
    InterfaceMethod<"The parameters, consecutive in memory, whose packed forms the kernel writes, too; empty for most ops.",
                    "::mlir::OperandRange", "getRepacked", (ins), "", "return $_op->getOperands().take_front(0);">,
    InterfaceMethod<"The type that these packed forms are rounded to, if any.", "::std::optional<::xfc::ComputeType>",
                    "getRepackedCompute", (ins), "", "return ::std::nullopt;">,
    InterfaceMethod<[{The tensors that the kernel takes one by one, each in chunks of its own; their table is passed at launch. Empty
                      for most ops.}], "::xfc::PartedTensors", "getPartedTensors", (ins), "", "return {};">];
}

def ProductOpInterface : OpInterface<"ProductOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    A matrix product. Its attribute `compute` is the type that its operands are rounded to (ComputeType); without it, they
    are multiplied unrounded.
  }];
  let methods = [
    InterfaceMethod<"The type that the operands are rounded to, if any.", "::std::optional<::xfc::ComputeType>", "getCompute">,
    InterfaceMethod<"Sets that type.", "void", "setComputeAttr", (ins "::xfc::ComputeTypeAttr":$type)>,
    InterfaceMethod<"Whether the product is defined in `type`.", "bool", "computesIn", (ins "::xfc::ComputeType":$type), "", "return true;">,
    InterfaceMethod<"The operand that is a weight matrix, which a target may read in a packed form; nullopt if both are rows.",
                    "::std::optional<unsigned>", "getWeightOperand", (ins), "", "return ::std::nullopt;">,
    InterfaceMethod<"The dimension of the weight that the product sums over: 1 for x W^T, 0 for dy W.",
                    "unsigned", "getContractedDimension", (ins), "", "return 1;">];
  let verify = [{ return ::xfc::verifyComputeType($_op); }];
}

def ViewOpInterface : OpInterface<"ViewOpInterface"> {
  let cppNamespace = "::xfc";
  let description = [{
    An op that only relates places in memory: its parts lie inside its whole, and no kernel is launched for it. If the whole
    is an operand, each part is a view into it. If it is the result, the parts are written to or laid out at their places in
    it.
  }];
  let methods = [
    InterfaceMethod<"The value that contains the parts: an operand or a result.", "::mlir::Value", "getWhole">,
    InterfaceMethod<"The values that lie in the whole.", "::mlir::ValueRange", "getParts">,
    InterfaceMethod<[{The offset of a part: in features from the start of the whole's row, or in elements if the whole is a tensor.
                      By default, each part directly follows the previous one.}],
                    "int64_t", "getPartOffset", (ins "unsigned":$part), "", "return ::xfc::extentOf($_op.getParts().take_front(part));">,
    InterfaceMethod<"Whether the whole is a result, which the parts compose.", "bool", "makesWhole", (ins), "",
                    "return $_op.getWhole().getDefiningOp() == $_op.getOperation();">];
}

// Only fusion creates the op, or a pass over fused programs. It has no plain kernel (PlainOpInterface), but the ops that it replaces,
// if there are any, have one each.
def Fused : NativeOpTrait<"Fused"> { let cppNamespace = "::xfc"; }

// The op is never differentiated: differentiation or a later pass creates it, it occurs only in decoding, or it depends
// on no parameter.
def NoGradient : NativeOpTrait<"NoGradient"> { let cppNamespace = "::xfc"; }

// Each result may reuse the buffer of the first operand (KernelOpInterface::getInPlaceOperand).
def InPlace : NativeOpTrait<"InPlace"> { let cppNamespace = "::xfc"; }

// The op may be part of a product's epilogue: each element of its only result depends on nothing but the same element of
// its operands, which are rows of one type.
def InEpilogue : NativeOpTrait<"InEpilogue"> { let cppNamespace = "::xfc"; }

#endif
