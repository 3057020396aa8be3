// The xfc dialect: computation graphs of encoder-decoder Transformers over ragged rows.
//
// Letters in the documentation: B sequences, N rows (tokens), H heads, P (query, key) pairs, d features,
// V vocabulary, M positions.
#ifndef XFC_OPS_TD
#define XFC_OPS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "XFCEnums.td"
include "XFCInterfaces.td"

def XFC_Dialect : Dialect {
  let name = "xfc";
  let cppNamespace = "::xfc";
  let summary = "Transformers as ops over ragged rows";
  let description = [{
    A batch is ragged: a value holds one row of features for each real token, and which rows belong to which
    sequence is known at run time (`xfc_shape` in abi.h). A value's type names its set of rows, so rows of the
    source and rows of the target cannot be mixed up. Parameters and their gradients are builtin tensors.
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  // The discardable attributes are those of Dialect/XFC.h (xfc::attr); any other is rejected.
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

//===--------------------------------------------------------------------------------------------------------===//
// Types
//===--------------------------------------------------------------------------------------------------------===//

class XFC_Type<string name, string typeMnemonic> : TypeDef<XFC_Dialect, name> { let mnemonic = typeMnemonic; }

def XFC_RowsType : XFC_Type<"Rows", "rows"> {
  let summary = "one row of features for each token of a set";
  let description = [{
    `!xfc.rows<target, 512xf32>` is [N, 512]; `!xfc.rows<source, i32>` is [N] token ids. Rows of `bf16` are computed in f32 and rounded
    to the nearest bf16, ties to even, when they are stored (xfc-assign-types). Rows of `i8` are what xfc.quantize makes.
  }];
  let parameters = (ins "::xfc::RowSet":$set, ArrayRefParameter<"int64_t">:$shape, "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    // The number of features per row; 1 if each row is a scalar.
    int64_t getFeatures() const;
    // The same rows with elements of another type, and with those of the type that their elements are computed in.
    RowsType in(::mlir::Type element) const;
    RowsType computed() const;
  }];
}

def XFC_PairsType : XFC_Type<"Pairs", "pairs"> {
  let summary = "one number for each head and (query, key) pair";
  let description = [{
    `!xfc.pairs<target, source, padding, 8xf32>` has 8 heads. `xfc_keys` lists the keys of each sequence, without pad
    tokens if the type says `padding`. With `causal`, a query sees only keys at or before its own position; pairs with
    later keys are stored, too, but masked.
  }];
  let parameters = (ins "::xfc::RowSet":$queries, "::xfc::RowSet":$keys, "bool":$padding, "bool":$causal,
                        "int64_t":$heads, "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    // The index into xfc_shape.keys.
    int64_t getStructure() const;
  }];
}

def XFC_FloatRows : Type<CPred<"::llvm::isa<::xfc::RowsType>($_self) && ::llvm::cast<::xfc::RowsType>($_self).getElementType().isFloat()">, "rows of floats", "::xfc::RowsType">;
def XFC_StoredRows : Type<CPred<"::llvm::isa<::xfc::RowsType>($_self) && (::llvm::cast<::xfc::RowsType>($_self).getElementType().isFloat() || ::llvm::cast<::xfc::RowsType>($_self).getElementType().isInteger(8))">, "rows of floats or of i8", "::xfc::RowsType">;
def XFC_IdRows : Type<CPred<"::llvm::isa<::xfc::RowsType>($_self) && ::llvm::cast<::xfc::RowsType>($_self).getElementType().isInteger(32) && ::llvm::cast<::xfc::RowsType>($_self).getShape().empty()">, "rows of token ids", "::xfc::RowsType">;
def XFC_TokenRows : Type<CPred<"::llvm::isa<::xfc::RowsType>($_self) && ::llvm::cast<::xfc::RowsType>($_self).getElementType().isInteger(32) && ::llvm::cast<::xfc::RowsType>($_self).getShape().size() == 1">, "rows of lists of token ids", "::xfc::RowsType">;
def XFC_LabelRows : Type<Or<[XFC_IdRows.predicate, XFC_TokenRows.predicate]>, "rows of token ids, or of lists of them", "::xfc::RowsType">;
def XFC_Pairs : Type<CPred<"::llvm::isa<::xfc::PairsType>($_self)">, "pairs", "::xfc::PairsType">;
def XFC_Tensor : Type<CPred<"::llvm::isa<::mlir::RankedTensorType>($_self) && ::llvm::cast<::mlir::RankedTensorType>($_self).hasStaticShape() && ::llvm::cast<::mlir::RankedTensorType>($_self).getElementType().isFloat()">, "static tensor of floats", "::mlir::RankedTensorType">;
def XFC_Scalar : Type<CPred<"::llvm::isa<::mlir::RankedTensorType>($_self) && ::llvm::cast<::mlir::RankedTensorType>($_self).getRank() == 0">, "scalar tensor", "::mlir::RankedTensorType">;
def XFC_Smoothing : AnyTypeOf<[XFC_Scalar, XFC_FloatRows]>;
def XFC_Any : AnyTypeOf<[XFC_FloatRows, XFC_Pairs, XFC_Tensor]>;

include "XFCModel.td"

//===--------------------------------------------------------------------------------------------------------===//
// Op classes
//===--------------------------------------------------------------------------------------------------------===//

def Differentiable : DeclareOpInterfaceMethods<DifferentiableOpInterface>;
def Kernel : DeclareOpInterfaceMethods<KernelOpInterface>;

// Extra declarations of products that are not defined in integers: those that compute gradients, or that read no weight.
defvar NoIntegers = [{
  bool computesIn(::xfc::ComputeType type) { return !::xfc::isInteger(type); }
}];
// Extra declarations of ops none of whose rows become narrower.
defvar StaysWide = [{
  bool staysWide(unsigned) { return true; }
}];
// Extra declarations of products that read a weight matrix.
defvar ReadsWeight = [{
  ::std::optional<unsigned> getWeightOperand() { return getWeightMutable().getOperandNumber(); }
}];

class XFC_Op<string mnemonic, list<Trait> traits = [], list<Trait> effects = [Pure]>
    : Op<XFC_Dialect, mnemonic, !listconcat(effects, traits)> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

def XFC_Norm_Kind : I32EnumAttr<"NormKind", "layer or root-mean-square norm", [
    I32EnumAttrCase<"layer", 0>, I32EnumAttrCase<"rms", 1>]> { let cppNamespace = "::xfc"; }
def XFC_Activation_Kind : I32EnumAttr<"ActivationKind", "an activation", [
    I32EnumAttrCase<"relu", 0>, I32EnumAttrCase<"gelu", 1>, I32EnumAttrCase<"silu", 2>, I32EnumAttrCase<"tanh", 3>,
    I32EnumAttrCase<"gelu_tanh", 4>, I32EnumAttrCase<"squared_relu", 5>]> { let cppNamespace = "::xfc"; }

// How a norm normalizes. layer: y = w (x - mean) r + b. rms: y = w x r.
// r = 1/sqrt(var + eps), or 1/(std + eps) with eps_in_std; var over n, or n - 1 if unbiased; rms: var = mean(x^2).
defvar NormAttributes = (ins DefaultValuedAttr<XFC_Norm_Kind, "::xfc::NormKind::layer">:$kind,
                             F64Attr:$eps, UnitAttr:$unbiased, UnitAttr:$eps_in_std);

//===--------------------------------------------------------------------------------------------------------===//
// Input: embeddings and positions
//===--------------------------------------------------------------------------------------------------------===//

def XFC_EmbeddingOp : XFC_Op<"embedding", [Differentiable, Kernel]> {
  let summary = "table look-up: y[i] = scale * table[ids[i]]";
  let arguments = (ins XFC_IdRows:$ids, XFC_Tensor:$table, DefaultValuedAttr<F64Attr, "1.0">:$scale);
  let results = (outs XFC_FloatRows:$result);
  let hasVerifier = 1;
}

def XFC_EmbeddingGradOp : XFC_Op<"embedding_grad", [NoGradient, Kernel]> {
  let summary = "the table's gradient: g[v] = scale * sum of dy[i] over ids[i] = v, in row order";
  let arguments = (ins XFC_FloatRows:$dy, XFC_IdRows:$ids, DefaultValuedAttr<F64Attr, "1.0">:$scale);
  let results = (outs XFC_Tensor:$result);
  let hasVerifier = 1;
}

def XFC_SinusoidOp : XFC_Op<"sinusoid", [NoGradient, ViewOpInterface]> {
  let summary = "the table [M, d] of sinusoidal position encodings (`Table` in runtime/plan/Plan.h has the equation)";
  let arguments = (ins DefaultValuedAttr<F64Attr, "10000.0">:$base, DefaultValuedAttr<F64Attr, "1.0">:$exponent_multiplier,
                       DefaultValuedAttr<F64Attr, "0.0">:$cosine_offset, UnitAttr:$halves);
  let results = (outs XFC_Tensor:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    // The table is the whole; the runtime computes it beforehand, and it has no parts.
    ::mlir::Value getWhole() { return getResult(); }
    ::mlir::ValueRange getParts() { return {}; }
  }];
}

def XFC_AddPositionsOp : XFC_Op<"add_positions", [Differentiable, Kernel, InPlace]> {
  let summary = "y[i] = x[i] + table[position of row i + offset]";
  let arguments = (ins XFC_FloatRows:$x, XFC_Tensor:$table, DefaultValuedAttr<I64Attr, "0">:$offset);
  let results = (outs XFC_FloatRows:$result);
  let hasVerifier = 1;
}

def XFC_PositionsGradOp : XFC_Op<"positions_grad", [NoGradient, Kernel]> {
  let summary = "the gradient of a learned table: g[p] = sum of dy[i] over rows at position p - offset, in row order";
  let arguments = (ins XFC_FloatRows:$dy, DefaultValuedAttr<I64Attr, "0">:$offset);
  let results = (outs XFC_Tensor:$result);
  let hasVerifier = 1;
}

def XFC_RotateOp : XFC_Op<"rotate", [Differentiable, Kernel, InPlace]> {
  let summary = "rotates pairs of a head's features by angles that grow with the position of the row (Su et al., 2021)";
  let description = [{
    x has `heads` heads of n features each. `table` [M, R] is an xfc.sinusoid; R is even and at most n. Row p of the table holds the
    sines and cosines of R/2 angles, interleaved, or with `halves` all sines first. Pair i of a head consists of features 2i and 2i + 1,
    or with `halves` of features i and i + R/2; features from R on are copied unchanged. A pair (a, b) whose angle has the sine s and
    the cosine c becomes (a c - b s, b c + a s). `inverse` undoes the rotation; this is also its gradient.
  }];
  let arguments = (ins XFC_FloatRows:$x, XFC_Tensor:$table, I64Attr:$heads, UnitAttr:$halves, UnitAttr:$inverse);
  let results = (outs XFC_FloatRows:$result);
  let hasVerifier = 1;
}

//===--------------------------------------------------------------------------------------------------------===//
// Linear algebra over rows
//===--------------------------------------------------------------------------------------------------------===//

def XFC_LinearOp : XFC_Op<"linear", [AttrSizedOperandSegments, Differentiable, Kernel, ProductOpInterface]> {
  let summary = "y = x W^T + b, followed by an optional epilogue";
  let description = [{
    x [N, in], W [out, in], b [out]. The epilogue is a region whose first argument is the row x W^T + b and
    whose other arguments are `extras`, all rows of `out` features; it holds elementwise ops of this dialect (those with
    the trait InEpilogue, at most one of them a dropout) and yields the results.
    Without a region, the only result is the row itself. Differentiation runs before epilogues are fused.
    `in bf16`: x and W are rounded before they are multiplied (ComputeType).
  }];
  let arguments = (ins XFC_FloatRows:$x, XFC_Tensor:$weight, Optional<XFC_Tensor>:$bias, Variadic<XFC_FloatRows>:$extras,
                       OptionalAttr<XFC_ComputeType>:$compute);
  let results = (outs Variadic<XFC_FloatRows>:$results);
  let regions = (region AnyRegion:$epilogue);
  let assemblyFormat = "$x `,` $weight (`bias` $bias^)? (`with` $extras^)? (`in` $compute^)? ($epilogue^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let extraClassDeclaration = ReadsWeight;
}

def XFC_LinearToCacheOp : XFC_Op<"linear_to_cache", [AttrSizedOperandSegments, NoGradient, Kernel, Fused, ProductOpInterface]> {
  let summary = "y = x W^T + b, of which the first columns are rows and the others go to caches";
  let description = [{
    x [N, in], W [out, in], b [out]. The result [N, F] has the first F columns of y. Each cache takes as many of the next ones as it has
    features, in order, in place of its row `slots[h]`, as with xfc.cache_write. F and the features of caches are multiples of 16.
  }];
  let arguments = (ins XFC_FloatRows:$x, XFC_Tensor:$weight, Optional<XFC_Tensor>:$bias, Variadic<XFC_FloatRows>:$caches,
                       OptionalAttr<XFC_ComputeType>:$compute);
  let results = (outs XFC_FloatRows:$result, Variadic<XFC_FloatRows>:$written);
  let assemblyFormat = "$x `,` $weight (`bias` $bias^)? `into` $caches (`in` $compute^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let extraClassDeclaration = !strconcat(StaysWide, ReadsWeight, [{
    // Parts of the columns begin and end at multiples of it, so that a kernel decides for several columns at once where they go.
    static constexpr int64_t columnsTogether = 16;
    bool isAlwaysInPlace() { return true; }
    int64_t getInPlaceOperand(unsigned result) {
      return result == 0 ? -1 : static_cast<int64_t>(getCaches().getBeginOperandIndex() + result - 1);
    }
  }]);
}

def XFC_LinearInputGradOp : XFC_Op<"linear_input_grad", [NoGradient, Kernel, ProductOpInterface]> {
  let summary = "dx = dy W, followed by an optional epilogue as in xfc.linear; `in bf16` rounds dy and W";
  let arguments = (ins XFC_FloatRows:$dy, XFC_Tensor:$weight, Variadic<XFC_FloatRows>:$extras, OptionalAttr<XFC_ComputeType>:$compute);
  let results = (outs Variadic<XFC_FloatRows>:$results);
  let regions = (region AnyRegion:$epilogue);
  let assemblyFormat = "$dy `,` $weight (`with` $extras^)? (`in` $compute^)? ($epilogue^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let extraClassDeclaration = !strconcat(NoIntegers, ReadsWeight, [{
    unsigned getContractedDimension() { return 0; }
  }]);
}

def XFC_YieldOp : Op<XFC_Dialect, "yield", [Pure, Terminator]> {
  let summary = "the results of an epilogue";
  let arguments = (ins Variadic<XFC_FloatRows>:$values);
  let assemblyFormat = "operands attr-dict `:` type(operands)";
}

def XFC_LinearWeightGradOp : XFC_Op<"linear_weight_grad", [NoGradient, Kernel, ProductOpInterface]> {
  let summary = "dW = dy^T x [out, in], and db = sum of dy over rows [out] if there is a second result; rows are summed in ascending order";
  let description = [{ `in bf16` rounds dy and x for dW; db is the sum of the unrounded dy. }];
  let arguments = (ins XFC_FloatRows:$dy, XFC_FloatRows:$x, OptionalAttr<XFC_ComputeType>:$compute);
  let results = (outs XFC_Tensor:$dweight, Optional<XFC_Tensor>:$dbias);
  let assemblyFormat = "operands (`in` $compute^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let extraClassDeclaration = NoIntegers # [{
    ::std::string getKernelSuffix() { return getDbias() ? "_bias" : ""; }
    ::std::optional<int64_t> getFlops() { return 2 * getDweight().getType().getNumElements(); }
  }];
}

def XFC_SplitOp : XFC_Op<"split", [ViewOpInterface, Differentiable]> {
  let summary = "cuts the features of a row into consecutive parts; a view, not a kernel";
  let arguments = (ins XFC_FloatRows:$x);
  let results = (outs Variadic<XFC_FloatRows>:$results);
  let hasVerifier = 1;
  let hasFolder = 1;
  let extraClassDeclaration = [{
    ::mlir::Value getWhole() { return getX(); }
    ::mlir::ValueRange getParts() { return getResults(); }
  }];
}

def XFC_JoinOp : XFC_Op<"join", [NoGradient, ViewOpInterface]> {
  let summary = "joins the features of several rows into one row: the gradient of split; the parts are written directly into the result";
  let arguments = (ins Variadic<XFC_FloatRows>:$parts);
  let results = (outs XFC_FloatRows:$result);
  let hasVerifier = 1;
  let hasFolder = 1;
  let extraClassDeclaration = [{
    ::mlir::Value getWhole() { return getResult(); }
  }];
}

def XFC_ConcatOp : XFC_Op<"concat", [ViewOpInterface, Differentiable]> {
  let summary = "parameters concatenated along their first dimension; a view, since the compiler lays them out consecutively";
  let arguments = (ins Variadic<XFC_Tensor>:$parts);
  let results = (outs XFC_Tensor:$result);
  let hasVerifier = 1;
  let hasFolder = 1;
  let extraClassDeclaration = [{
    ::mlir::Value getWhole() { return getResult(); }
  }];
}

def XFC_SliceOp : XFC_Op<"slice", [NoGradient, ViewOpInterface]> {
  let summary = "consecutive entries of a tensor along its first dimension, from `offset` on; a view";
  let arguments = (ins XFC_Tensor:$x, I64Attr:$offset);
  let results = (outs XFC_Tensor:$result);
  let hasVerifier = 1;
  let hasFolder = 1;
  let extraClassDeclaration = [{
    ::mlir::Value getWhole() { return getX(); }
    ::mlir::ValueRange getParts() { return (*this)->getResults(); }
    int64_t getPartOffset(unsigned part);
  }];
}

//===--------------------------------------------------------------------------------------------------------===//
// Elementwise
//===--------------------------------------------------------------------------------------------------------===//

def XFC_AddOp : XFC_Op<"add", [Differentiable, Kernel, InPlace, InEpilogue, SameOperandsAndResultType]> {
  let summary = "a + b";
  let arguments = (ins XFC_Any:$a, XFC_Any:$b);
  let results = (outs XFC_Any:$result);
  let assemblyFormat = "operands attr-dict `:` type($result)";
  let extraClassDeclaration = [{
    // Only an add of tensors iterates over a block of elements.
    ::mlir::OperandRange getSpan() {
      return (*this)->getOperands().take_front(::llvm::isa<::mlir::RankedTensorType>(getType()) ? 1 : 0);
    }
    bool carriesResidual(unsigned) { return true; }
  }];
}

def XFC_MultiplyOp : XFC_Op<"multiply", [Differentiable, Kernel, InPlace, InEpilogue, SameOperandsAndResultType]> {
  let summary = "a * b, element by element";
  let arguments = (ins XFC_FloatRows:$a, XFC_FloatRows:$b);
  let results = (outs XFC_FloatRows:$result);
  let assemblyFormat = "operands attr-dict `:` type($result)";
}

def XFC_ActivationOp : XFC_Op<"activation", [Differentiable, Kernel, InPlace, InEpilogue, SameOperandsAndResultType]> {
  let summary = "relu, gelu by erf or by tanh, silu x/(1+exp(-x)), tanh, or the square of relu";
  let arguments = (ins XFC_FloatRows:$x, XFC_Activation_Kind:$kind);
  let results = (outs XFC_FloatRows:$result);
  let assemblyFormat = "$kind $x attr-dict `:` type($result)";
  let extraClassDeclaration = [{
    ::std::string getKernelName() { return ::xfc::stringifyActivationKind(getKind()).str(); }
  }];
}

def XFC_ActivationGradOp : XFC_Op<"activation_grad", [NoGradient, Kernel, InPlace, InEpilogue, SameOperandsAndResultType]> {
  let summary = "dy * f'(x); for relu, x may also be the activation's result";
  let arguments = (ins XFC_FloatRows:$dy, XFC_FloatRows:$x, XFC_Activation_Kind:$kind);
  let results = (outs XFC_FloatRows:$result);
  let assemblyFormat = "$kind operands attr-dict `:` type($result)";
  let extraClassDeclaration = [{
    ::std::string getKernelName() { return ::xfc::stringifyActivationKind(getKind()).str() + "_grad"; }
  }];
}

def XFC_ScaleOp : XFC_Op<"scale", [Differentiable, Kernel, InPlace, InEpilogue, SameOperandsAndResultType]> {
  let summary = "factor * x";
  let arguments = (ins AnyTypeOf<[XFC_FloatRows, XFC_Pairs]>:$x, F64Attr:$factor);
  let results = (outs AnyTypeOf<[XFC_FloatRows, XFC_Pairs]>:$result);
  let hasFolder = 1;
  let assemblyFormat = "operands attr-dict `:` type($result)";
}

def XFC_DropoutOp : XFC_Op<"dropout", [Differentiable, Kernel, InPlace, InEpilogue, SameOperandsAndResultType]> {
  let summary = "inverted dropout; the identity unless xfc_shape.training. Its own gradient (same id, same mask)";
  let description = [{
    `id` is the number of the dropout in the unrolled model; abi.h defines the random numbers. With `kept`, which is for rows only, every
    element is kept and no random number is drawn: for values that are not used where they would be dropped.
  }];
  let arguments = (ins AnyTypeOf<[XFC_FloatRows, XFC_Pairs]>:$x, F64Attr:$rate, I64Attr:$id, UnitAttr:$kept);
  let results = (outs AnyTypeOf<[XFC_FloatRows, XFC_Pairs]>:$result);
  let assemblyFormat = "operands attr-dict `:` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
  let extraClassDeclaration = [{
    ::std::string getKernelName() { return getKept() ? "kept" : "dropout"; }
    ::llvm::ArrayRef<::llvm::StringRef> getLaunchAttributes() {
      static const ::llvm::StringRef names[] = {"id"};
      return names;
    }
    ::std::optional<int64_t> getDropoutId() { return getKept() ? ::std::nullopt : ::std::optional<int64_t>(getId()); }
  }];
}

def XFC_ZerosOp : XFC_Op<"zeros", [NoGradient, Kernel]> {
  let summary = "rows of zeros: the gradient of an unused part of xfc.split";
  let results = (outs XFC_FloatRows:$result);
}

//===--------------------------------------------------------------------------------------------------------===//
// Norms
//===--------------------------------------------------------------------------------------------------------===//

def XFC_NormOp : XFC_Op<"norm", [Differentiable, Kernel]> {
  let summary = "layer or rms norm of each row; stats [N, 2] are mean and r (rms: 0 and r)";
  let description = [{
    layer: y = w (x - mean) r + b; rms: y = w x r. r = 1/sqrt(var + eps), or 1/(std + eps) with eps_in_std; var
    over n, or n - 1 if unbiased; rms: var = mean(x^2). Where n - 1 is 0, var is 0.
  }];
  let arguments = !con((ins XFC_FloatRows:$x, XFC_Tensor:$weight, Optional<XFC_Tensor>:$bias), NormAttributes);
  let results = (outs XFC_FloatRows:$result, XFC_FloatRows:$stats);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    bool staysWide(unsigned buffer) { return buffer >= (*this)->getNumOperands() + 1; }
  }];
}

def XFC_AddNormOp : XFC_Op<"add_norm", [Differentiable, Kernel, Fused]> {
  let summary = "sum = x + residual; result = norm(sum)";
  let arguments = !con((ins XFC_FloatRows:$x, XFC_FloatRows:$residual, XFC_Tensor:$weight, Optional<XFC_Tensor>:$bias), NormAttributes);
  let results = (outs XFC_FloatRows:$result, XFC_FloatRows:$sum, XFC_FloatRows:$stats);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    bool staysWide(unsigned buffer) { return buffer >= (*this)->getNumOperands() + 2; }
    bool carriesResidual(unsigned buffer) {
      return buffer == getResidualMutable().getOperandNumber() || buffer == (*this)->getNumOperands() + 1;
    }
  }];
}

// The gradient of a norm that reads the residual stream. The addend is the gradient of the stream from all that reads it
// after the norm, and the result is its gradient before the norm.
defvar gradientOfResidual = [{
    bool carriesResidual(unsigned buffer) {
      return getAddend() && (buffer + 1 == (*this)->getNumOperands() || buffer == (*this)->getNumOperands());
    }
}];

def XFC_NormGradOp : XFC_Op<"norm_grad", [NoGradient, Kernel]> {
  let summary = "dx of a norm, plus `addend` if given";
  let description = [{
    With n features, g = dy * w, c = x - mean (rms: x): dx = r (g - mean(g)) - k c sum(g c) + addend (rms: without
    mean(g)), where k is r^3/n, r^3/(n-1) if unbiased, r^2/(std n) or r^2/(std (n-1)) with eps_in_std; k = 0 where std = 0.
  }];
  let arguments = !con((ins XFC_FloatRows:$dy, XFC_FloatRows:$x, XFC_Tensor:$weight, XFC_FloatRows:$stats, Optional<XFC_FloatRows>:$addend), NormAttributes);
  let results = (outs XFC_FloatRows:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = gradientOfResidual;
}

def XFC_NormWeightGradOp : XFC_Op<"norm_weight_grad", [NoGradient, Kernel]> {
  let summary = "dw = sum of dy (x - mean) r over rows, and db = sum of dy if there is a second result";
  let arguments = (ins XFC_FloatRows:$dy, XFC_FloatRows:$x, XFC_FloatRows:$stats);
  let results = (outs XFC_Tensor:$dweight, Optional<XFC_Tensor>:$dbias);
  let hasVerifier = 1;
}

def XFC_NormGradWithPartsOp : XFC_Op<"norm_grad_with_parts", [NoGradient, Kernel, Fused]> {
  let summary = "xfc.norm_grad and partial sums of xfc.norm_weight_grad, in one pass over dy and x";
  let description = [{
    With N rows, row p of dweights [P, n] and dbiases [P, n] holds the sums over rows p N / P .. (p + 1) N / P - 1, where
    quotients are rounded down; xfc.sum_parts adds up the partial sums.
  }];
  let arguments = !con((ins XFC_FloatRows:$dy, XFC_FloatRows:$x, XFC_Tensor:$weight, XFC_FloatRows:$stats, Optional<XFC_FloatRows>:$addend), NormAttributes);
  let results = (outs XFC_FloatRows:$result, XFC_Tensor:$dweights, Optional<XFC_Tensor>:$dbiases);
  let hasVerifier = 1;
  let extraClassDeclaration = gradientOfResidual;
}

def XFC_SumPartsOp : XFC_Op<"sum_parts", [NoGradient, Kernel, Fused]> {
  let summary = "the sum [n] of each operand's rows [P, n], in an order that depends on P and n alone";
  let arguments = (ins Variadic<XFC_Tensor>:$parts);
  let results = (outs Variadic<XFC_Tensor>:$sums);
  let hasVerifier = 1;
}

//===--------------------------------------------------------------------------------------------------------===//
// Attention, step by step
//===--------------------------------------------------------------------------------------------------------===//

def XFC_ScoresOp : XFC_Op<"scores", [Differentiable, Kernel]> {
  let summary = "s[b,h,i,j] = sum over the head's features of q[i] k[j]; head h owns features h*f/H .. (h+1)*f/H";
  let description = [{
    Several heads of q may share one head of k, which then has fewer heads of the same size: if k has G heads, head h of q reads head
    h / (H / G) of k, rounded down (Ainslie et al., 2023). The same holds for v in xfc.combine, and for the result of
    xfc.combine_transposed, which sums over the heads that share one of its heads.
  }];
  let arguments = (ins XFC_FloatRows:$q, XFC_FloatRows:$k);
  let results = (outs XFC_Pairs:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::std::optional<int64_t> getFlops() { return 2 * getQ().getType().getFeatures(); }
  }];
}

defvar DistanceBiasAttributes = (ins DefaultValuedAttr<I64Attr, "0">:$max_distance, UnitAttr:$both_directions);

def XFC_DistanceBiasOp : XFC_Op<"distance_bias", [Differentiable, Kernel]> {
  let summary = "the bias that is added to the scores of each head, by the distance between query and key: a table [M, H*2]";
  let description = [{
    Entry [t, 2h] is the bias of head h for a key t positions before the query (t = 0: at it), entry [t, 2h + 1] for a key t positions
    after it.

    With `table` [buckets, H], an entry is that of the distance's bucket. With `both_directions`, the first half of the buckets is for
    keys at or before the query and the second half for keys after it. Otherwise, all buckets are for keys at or before the query, and
    later keys share the first bucket. Of the n buckets of a direction, the first n/2 hold one distance each; the others cover ranges
    that grow logarithmically up to max_distance, and the last one also holds everything beyond (Raffel et al., 2020, section 2.1).

    Without a table, an entry is -t times the head's slope. If H is a power of two, the slope of head h is 2^(-8 (h + 1) / H).
    Otherwise, the slopes for the largest power of two below H come first, followed by every second slope, from the first on, for the
    next power of two (Press et al., 2022).
  }];
  let arguments = !con((ins Optional<XFC_Tensor>:$table), DistanceBiasAttributes);
  let results = (outs XFC_Tensor:$result);
  let hasVerifier = 1;
}

def XFC_DistanceBiasGradOp : XFC_Op<"distance_bias_grad", [NoGradient, Kernel]> {
  let summary = "the gradient of the table of xfc.distance_bias: sums over the distances of each bucket, in ascending order";
  let arguments = !con((ins XFC_Tensor:$dy), DistanceBiasAttributes);
  let results = (outs XFC_Tensor:$result);
  let hasVerifier = 1;
}

def XFC_AddDistanceBiasOp : XFC_Op<"add_distance_bias", [Differentiable, Kernel, InPlace]> {
  let summary = "scores plus the bias of their head and distance (xfc.distance_bias)";
  let arguments = (ins XFC_Pairs:$x, XFC_Tensor:$bias);
  let results = (outs XFC_Pairs:$result);
  let hasVerifier = 1;
}

def XFC_SumDistancesOp : XFC_Op<"sum_distances", [NoGradient, Kernel]> {
  let summary = "sums over the pairs of equal distance, for each sequence and head: rows of the queries [N, H*2]";
  let description = [{
    The row at position t of a sequence holds its sums for distance t: feature 2h is the sum of head h over the pairs whose key is t
    positions before the query (t = 0: at it), and feature 2h + 1 the sum over the pairs whose key is t positions after it, in the order
    of the queries. xfc.positions_grad adds up the sums of all sequences, which gives the gradient of a bias.
  }];
  let arguments = (ins XFC_Pairs:$x);
  let results = (outs XFC_FloatRows:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = StaysWide;
}

def XFC_MaskOp : XFC_Op<"mask", [Differentiable, Kernel, InPlace, SameOperandsAndResultType]> {
  let summary = "pairs beyond the query's limit (xfc_keys) become minus infinity, or 0 with `zero`";
  let description = [{ With `reach`, so do pairs whose key is more than that many positions before or after the query. }];
  let arguments = (ins XFC_Pairs:$x, UnitAttr:$zero, OptionalAttr<I64Attr>:$reach);
  let results = (outs XFC_Pairs:$result);
  let hasVerifier = 1;
  let assemblyFormat = "operands attr-dict `:` type($result)";
}

def XFC_SoftmaxOp : XFC_Op<"softmax", [Differentiable, Kernel, InPlace, SameOperandsAndResultType]> {
  let summary = "softmax over the keys of each query and head; if all scores are minus infinity, the result is 0";
  let arguments = (ins XFC_Pairs:$x);
  let results = (outs XFC_Pairs:$result);
  let assemblyFormat = "operands attr-dict `:` type($result)";
}

def XFC_SoftmaxGradOp : XFC_Op<"softmax_grad", [NoGradient, Kernel, InPlace, SameOperandsAndResultType]> {
  let summary = "ds = p (dp - sum over keys of p dp)";
  let arguments = (ins XFC_Pairs:$dp, XFC_Pairs:$p);
  let results = (outs XFC_Pairs:$result);
  let assemblyFormat = "operands attr-dict `:` type($result)";
}

def XFC_CombineOp : XFC_Op<"combine", [Differentiable, Kernel]> {
  let summary = "o[i] = sum over keys of p[b,h,i,j] v[j], head by head: rows of the queries";
  let arguments = (ins XFC_Pairs:$p, XFC_FloatRows:$v);
  let results = (outs XFC_FloatRows:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::std::optional<int64_t> getFlops() { return 2 * getType().getFeatures(); }
  }];
}

def XFC_CombineTransposedOp : XFC_Op<"combine_transposed", [NoGradient, Kernel]> {
  let summary = "y[j] = sum over queries of p[b,h,i,j] x[i], head by head: rows of the keys; 0 for a row that is not a key";
  let arguments = (ins XFC_Pairs:$p, XFC_FloatRows:$x);
  let results = (outs XFC_FloatRows:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::std::optional<int64_t> getFlops() { return 2 * getX().getType().getFeatures(); }
  }];
}

//===--------------------------------------------------------------------------------------------------------===//
// Attention, fused
//===--------------------------------------------------------------------------------------------------------===//

defvar AttentionAttributes = (ins I64Attr:$heads, F64Attr:$scale, UnitAttr:$padding, UnitAttr:$causal,
                                  OptionalAttr<I64Attr>:$reach,
                                  DefaultValuedAttr<F64Attr, "0.0">:$rate, DefaultValuedAttr<I64Attr, "0">:$id,
                                  OptionalAttr<XFC_ComputeType>:$compute);
defvar AttentionDeclarations = [{
  // The index into xfc_shape.keys.
  int64_t getStructure();
  // The features of a head's key and value, and the number of heads of k and v: each is shared by getHeads() /
  // getKeyHeads() heads of q.
  int64_t getKeyDim() { return getQ().getType().getFeatures() / static_cast<int64_t>(getHeads()); }
  int64_t getKeyHeads() { return getK().getType().getFeatures() / getKeyDim(); }
  int64_t getValueDim() { return getV().getType().getFeatures() / getKeyHeads(); }
  bool computesIn(::xfc::ComputeType type) { return !::xfc::isInteger(type); }
  ::xfc::LaunchDomain getLaunchDomain() {
    return {getQ().getType().getSet(), getK().getType().getSet(), getStructure()};
  }
  // `padding` and `causal` only select the key structure, which is an argument of the launch.
  ::llvm::ArrayRef<::llvm::StringRef> getLaunchAttributes() {
    static const ::llvm::StringRef names[] = {"id", "padding", "causal"};
    return names;
  }
  ::std::optional<int64_t> getDropoutId() {
    return getRate().convertToDouble() > 0 ? ::std::optional<int64_t>(getId()) : ::std::nullopt;
  }
}];

def XFC_AttentionOp : XFC_Op<"attention", [AttrSizedOperandSegments, Differentiable, Kernel, Fused, ProductOpInterface]> {
  let summary = "o = combine(dropout(softmax(mask(scale * scores(q, k) + bias))), v), without storing any pairs";
  let description = [{
    q [Nq, H*key_dim], k [Nk, G*key_dim], v [Nk, G*value_dim]; result [Nq, H*value_dim]; lse [Nq, H] is the
    log-sum-exp of each query's scaled scores, which the gradient needs (0 if the query sees no key). The third result,
    if there is one, is the probabilities before dropout. `in bf16` rounds scale * q, k, v and, where they are
    multiplied, the probabilities, which are rounded after dropout and before dividing by their sum; GPUs and CPUs with
    AMX have kernels for it. `bias`, if given, is a table of xfc.distance_bias. G, the number of heads of k and v, divides
    H: several heads of q may share one (xfc.scores). With `reach`, a query sees only keys at most that many positions
    before or after it, and no other keys are read. Rows of i8 have scales [Nk, G], by which the features of each head are
    multiplied (xfc.quantize).
  }];
  let arguments = !con((ins XFC_FloatRows:$q, XFC_StoredRows:$k, XFC_StoredRows:$v, Optional<XFC_Tensor>:$bias,
                            Optional<XFC_FloatRows>:$k_scale, Optional<XFC_FloatRows>:$v_scale), AttentionAttributes);
  let results = (outs XFC_FloatRows:$result, XFC_FloatRows:$lse, Optional<XFC_Pairs>:$weights);
  let assemblyFormat = [{
    $q `,` $k `,` $v (`,` $bias^)? (`scaled` `by` $k_scale^ `,` $v_scale)? (`in` $compute^)? attr-dict
    `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = !strconcat(AttentionDeclarations, [{
    bool staysWide(unsigned buffer) { return buffer >= (*this)->getNumOperands() + 1; }
    // Two products per pair: the score, and its use with v.
    ::std::optional<int64_t> getFlops() { return 2 * static_cast<int64_t>(getHeads()) * (getKeyDim() + getValueDim()); }
  }]);
}

def XFC_AttentionGradOp : XFC_Op<"attention_grad", [NoGradient, Kernel, Fused, ProductOpInterface]> {
  let summary = "dq, dk, dv of xfc.attention; probabilities are recomputed from lse (Dao et al., 2022, algorithm 4)";
  let description = [{
    With a bias, dbias is the gradient of the scores, summed as in xfc.sum_distances. `in bf16` rounds doutput, scale * q, k,
    v and, where they are multiplied, the probabilities after dropout and the gradients of the scores.
  }];
  let arguments = !con((ins XFC_FloatRows:$doutput, XFC_FloatRows:$q, XFC_FloatRows:$k, XFC_FloatRows:$v,
                            XFC_FloatRows:$output, XFC_FloatRows:$lse, Optional<XFC_Tensor>:$bias), AttentionAttributes);
  let results = (outs XFC_FloatRows:$dq, XFC_FloatRows:$dk, XFC_FloatRows:$dv, Optional<XFC_FloatRows>:$dbias);
  let assemblyFormat = "operands (`in` $compute^)? attr-dict `:` functional-type(operands, results)";
  let extraClassDeclaration = !strconcat(AttentionDeclarations, [{
    bool staysWide(unsigned buffer) { return buffer >= (*this)->getNumOperands() + 3; }
    // The scores are recomputed, and four more products follow.
    ::std::optional<int64_t> getFlops() { return 2 * static_cast<int64_t>(getHeads()) * (3 * getKeyDim() + 2 * getValueDim()); }
  }]);
  let hasVerifier = 1;
}

def XFC_QuantizeOp : XFC_Op<"quantize", [NoGradient, Kernel, Fused]> {
  let summary = "rows in a narrower type, in which they are kept from step to step (xfc-set-cache-type)";
  let description = [{
    x [N, F]; result [N, F]. Rows of floats are rounded to the nearest, ties to even. Those of i8 have `groups` equal parts, one for each
    head, and become s q, where m is the largest magnitude in a part, s = m / 127, and q are the integers nearest to x (127 / m), ties
    to even; scale [N, groups] holds s. A part has s = 0 and only zeros if m is below 2^-100.
  }];
  let arguments = (ins XFC_FloatRows:$x, DefaultValuedAttr<I64Attr, "1">:$groups);
  let results = (outs XFC_StoredRows:$result, Optional<XFC_FloatRows>:$scale);
  let hasVerifier = 1;
  let extraClassDeclaration = StaysWide;
}

def XFC_CacheWriteOp : XFC_Op<"cache_write", [NoGradient, Kernel, InPlace]> {
  let summary = "the cache with row `slots[h]` replaced by row h; always in place";
  let arguments = (ins XFC_StoredRows:$cache, XFC_StoredRows:$rows);
  let results = (outs XFC_StoredRows:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = !strconcat([{
    ::xfc::LaunchDomain getLaunchDomain() {
      return {getRows().getType().getSet(), getRows().getType().getSet(), ::std::nullopt};
    }
    bool isAlwaysInPlace() { return true; }
  }], StaysWide);
}

//===--------------------------------------------------------------------------------------------------------===//
// Recurrence
//===--------------------------------------------------------------------------------------------------------===//

def XFC_RecurrenceOp : XFC_Op<"recurrence", [Differentiable, Kernel, InPlace]> {
  let summary = "c[t] = f[t] c[t-1] + (1 - f[t]) x[t] with f = 1/(1+exp(-gate)), along the rows of each sequence (Kim et al., 2019)";
  let description = [{
    gate, x and the result c are rows of one type. Before the first row of a sequence, c is 0.

    With `states`, rows of the cache, row h is a hypothesis of a decoding step, and c[t-1] is row `before[h]` of `states` (`xfc_shape` in
    abi.h), which the hypothesis wrote in the step before; without such a row, c[t-1] is 0. xfc.cache_write keeps the result for the
    next step.
  }];
  let arguments = (ins XFC_FloatRows:$gate, XFC_FloatRows:$x, Optional<XFC_FloatRows>:$states);
  let results = (outs XFC_FloatRows:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::std::string getKernelSuffix() { return getStates() ? "_step" : ""; }
  }];
}

def XFC_RecurrenceGradOp : XFC_Op<"recurrence_grad", [NoGradient, Kernel]> {
  let summary = "dgate and dx of xfc.recurrence without states, along the rows of each sequence from the last one on";
  let description = [{
    c is the result of xfc.recurrence. With dc[t] = dy[t] + f[t+1] dc[t+1], where the second summand is 0 for the last row of a sequence:
    dx[t] = (1 - f[t]) dc[t], and dgate[t] = f[t] (1 - f[t]) (c[t-1] - x[t]) dc[t].
  }];
  let arguments = (ins XFC_FloatRows:$dy, XFC_FloatRows:$gate, XFC_FloatRows:$x, XFC_FloatRows:$c);
  let results = (outs XFC_FloatRows:$dgate, XFC_FloatRows:$dx);
  let hasVerifier = 1;
}

//===--------------------------------------------------------------------------------------------------------===//
// Losses. loss = sum over v of -t[v] log p[v], where a row's target t is given in one of two forms:
//   labels [N], smoothing e: 1 - e on the label, and e spread evenly over the vocabulary.
//   labels [N, M], smoothing [N, M + 1]: smoothing[i, 0] spread evenly, and smoothing[i, 1 + j] on labels[i, j], unless
//   that is negative. These shares need not add up to 1. With the tokens that a teacher finds most probable among the
//   labels, this is word-level distillation (Hinton et al., 2015; Kim and Rush, 2016).
// A row whose (first) label is negative (the runtime puts -1 for pad) has loss 0 and no gradient. nll is -log p of the
// (first) label.
//===--------------------------------------------------------------------------------------------------------===//

def XFC_LogSoftmaxOp : XFC_Op<"log_softmax", [Differentiable, Kernel, InPlace, SameOperandsAndResultType]> {
  let summary = "x - log(sum(exp(x))) over the features of each row";
  let arguments = (ins XFC_FloatRows:$x);
  let results = (outs XFC_FloatRows:$result);
  let assemblyFormat = "operands attr-dict `:` type($result)";
  let extraClassDeclaration = StaysWide;
}

def XFC_LogSoftmaxGradOp : XFC_Op<"log_softmax_grad", [NoGradient, Kernel, InPlace, SameOperandsAndResultType]> {
  let summary = "dx = dy - exp(y) sum(dy), with y the result of log_softmax";
  let arguments = (ins XFC_FloatRows:$dy, XFC_FloatRows:$y);
  let results = (outs XFC_FloatRows:$result);
  let assemblyFormat = "operands attr-dict `:` type($result)";
  let extraClassDeclaration = StaysWide;
}

def XFC_NllOp : XFC_Op<"nll", [Differentiable, Kernel]> {
  let summary = "label-smoothed loss and plain negative log-likelihood [N] of log-probabilities";
  let arguments = (ins XFC_FloatRows:$log_probs, XFC_LabelRows:$labels, XFC_Smoothing:$smoothing);
  let results = (outs XFC_FloatRows:$loss, XFC_FloatRows:$nll);
  let hasVerifier = 1;
  let extraClassDeclaration = StaysWide;
}

def XFC_NllGradOp : XFC_Op<"nll_grad", [NoGradient, Kernel]> {
  let summary = "gradient of the loss of xfc.nll with respect to the log-probabilities";
  let arguments = (ins XFC_FloatRows:$dloss, XFC_LabelRows:$labels, XFC_Smoothing:$smoothing);
  let results = (outs XFC_FloatRows:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = StaysWide;
}

def XFC_CrossEntropyOp : XFC_Op<"cross_entropy", [Differentiable, Kernel, Fused]> {
  let summary = "nll(log_softmax(logits)) without storing the log-probabilities; the gradient needs lse [N]";
  let arguments = (ins XFC_FloatRows:$logits, XFC_LabelRows:$labels, XFC_Smoothing:$smoothing);
  let results = (outs XFC_FloatRows:$loss, XFC_FloatRows:$nll, XFC_FloatRows:$lse);
  let hasVerifier = 1;
  let extraClassDeclaration = StaysWide;
}

def XFC_CrossEntropyGradOp : XFC_Op<"cross_entropy_grad", [NoGradient, Kernel, Fused, InPlace]> {
  let summary = "dlogits = dloss (s exp(logits - lse) - t), with s the sum of the target t; may overwrite the logits";
  let arguments = (ins XFC_FloatRows:$logits, XFC_FloatRows:$dloss, XFC_LabelRows:$labels, XFC_FloatRows:$lse, XFC_Smoothing:$smoothing);
  let results = (outs XFC_FloatRows:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = StaysWide;
}

def XFC_LinearCrossEntropyOp : XFC_Op<"linear_cross_entropy", [Differentiable, Kernel, Fused, ProductOpInterface]> {
  let summary = "cross_entropy(linear(x, weight, bias)); the logits are stored once, and their gradient may overwrite them";
  let arguments = (ins XFC_FloatRows:$x, XFC_Tensor:$weight, Optional<XFC_Tensor>:$bias, XFC_LabelRows:$labels, XFC_Smoothing:$smoothing,
                       OptionalAttr<XFC_ComputeType>:$compute);
  let results = (outs XFC_FloatRows:$loss, XFC_FloatRows:$nll, XFC_FloatRows:$logits, XFC_FloatRows:$lse);
  let assemblyFormat = "operands (`in` $compute^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let extraClassDeclaration = ReadsWeight # [{
    bool staysWide(unsigned buffer) { return buffer != getXMutable().getOperandNumber(); }
  }];
}

def XFC_LinearCrossEntropyWithGradOp : XFC_Op<"linear_cross_entropy_with_grad", [NoGradient, Kernel, Fused, ProductOpInterface]> {
  let summary = "linear_cross_entropy that turns the logits into their gradient (cross_entropy_grad) while they are in cache";
  let description = [{
    If dlogits is stored in a narrower type than f32, the logits are rounded to that type first: the statistics of the softmax, the loss
    and the gradient are those of the rounded logits, and the gradient is rounded once more when it is stored.
  }];
  let arguments = (ins XFC_FloatRows:$x, XFC_Tensor:$weight, Optional<XFC_Tensor>:$bias, XFC_LabelRows:$labels, XFC_Smoothing:$smoothing,
                       XFC_FloatRows:$dloss, OptionalAttr<XFC_ComputeType>:$compute);
  let results = (outs XFC_FloatRows:$loss, XFC_FloatRows:$nll, XFC_FloatRows:$dlogits);
  let assemblyFormat = "operands (`in` $compute^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let extraClassDeclaration = !strconcat(NoIntegers, ReadsWeight, [{
    bool staysWide(unsigned buffer) {
      return buffer != getXMutable().getOperandNumber() && buffer != (*this)->getNumOperands() + 2;
    }
  }]);
}

//===--------------------------------------------------------------------------------------------------------===//
// Guided alignment (Chen et al., 2016): the attention of some queries is to go to given keys, the links of a word alignment.
//===--------------------------------------------------------------------------------------------------------===//

def XFC_AlignmentLossOp : XFC_Op<"alignment_loss", [Differentiable, Kernel]> {
  let summary = "loss plus the cross-entropy between given links and attention probabilities";
  let description = [{
    links [N, K] are indices into the list of keys (`xfc_keys`) of each query's sequence, without repetition in a row; a negative one is
    no link. means[i, k] is the average of p over the heads at link k of query i, in ascending order, or p of `head` if that is given; 0
    where there is no link.

    alignment[i] = sum over the links of -shares[i, k] log(means[i, k] + 1e-6), and result = loss + alignment, each one number per
    query. The gradient needs the means.
  }];
  let arguments = (ins XFC_FloatRows:$loss, XFC_Pairs:$p, XFC_TokenRows:$links, XFC_FloatRows:$shares, OptionalAttr<I64Attr>:$head);
  let results = (outs XFC_FloatRows:$result, XFC_FloatRows:$alignment, XFC_FloatRows:$means);
  let hasVerifier = 1;
  let extraClassDeclaration = !strconcat([{
    // What is added to a mean so that its logarithm and its gradient stay finite.
    static constexpr double epsilon = 1e-6;
  }], StaysWide);
}

def XFC_AlignmentLossGradOp : XFC_Op<"alignment_loss_grad", [NoGradient, Kernel]> {
  let summary = "dp of xfc.alignment_loss: -dloss share / (H (mean + 1e-6)) at the links, for each of the H heads, and otherwise 0";
  let description = [{ With `head`, only this head has a gradient, which is not divided by H. }];
  let arguments = (ins XFC_FloatRows:$dloss, XFC_FloatRows:$means, XFC_TokenRows:$links, XFC_FloatRows:$shares, OptionalAttr<I64Attr>:$head);
  let results = (outs XFC_Pairs:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = StaysWide;
}

//===--------------------------------------------------------------------------------------------------------===//
// Candidates of a decoding step
//===--------------------------------------------------------------------------------------------------------===//

def XFC_CandidatesOp : XFC_Op<"candidates", [NoGradient, Kernel]> {
  let summary = "the C most probable tokens of each row, and the log-probability of one wanted token";
  let description = [{
    log_probs [N, V], wanted [N]. tokens and best [N, C]: the C most probable tokens and their log-probabilities, best
    first; of equally probable ones, the lower token comes first. Tokens in `excluded` (ascending) and those whose
    log-probability is NaN or minus infinity are no candidates. If fewer than C remain, the list is filled up with token -1
    at minus infinity. wanted_log_prob [N] is the log-probability of token wanted[i], excluded or not. With `renormalize`,
    excluded tokens have no part in the distribution either: the log-sum-exp of the others is subtracted from all results.
  }];
  let arguments = (ins XFC_FloatRows:$log_probs, XFC_IdRows:$wanted, DenseI64ArrayAttr:$excluded, UnitAttr:$renormalize);
  let results = (outs XFC_TokenRows:$tokens, XFC_FloatRows:$best, XFC_FloatRows:$wanted_log_prob);
  let hasVerifier = 1;
  let extraClassDeclaration = StaysWide;
}

def XFC_LinearCandidatesOp : XFC_Op<"linear_candidates", [NoGradient, Kernel, Fused, ProductOpInterface]> {
  let summary = "candidates of each slab of columns of linear(x, weight, bias); no row of logits is stored";
  let description = [{
    The columns are cut into S = ceil(V / slab) slabs of `slab` columns, a multiple of 64. tokens and largest [N, S*C]:
    the C largest logits of each slab and their tokens, in the order of xfc.candidates; lse [N, S]: the log-sum-exp of each
    slab's logits, with `renormalize` without the excluded ones; wanted_logit [N]: the logit of token wanted[i].
    xfc.merge_candidates combines them into the candidates of whole rows.
  }];
  let arguments = (ins XFC_FloatRows:$x, XFC_Tensor:$weight, Optional<XFC_Tensor>:$bias, XFC_IdRows:$wanted,
                       DenseI64ArrayAttr:$excluded, I64Attr:$slab,
                       UnitAttr:$renormalize, OptionalAttr<XFC_ComputeType>:$compute);
  let results = (outs XFC_TokenRows:$tokens, XFC_FloatRows:$largest, XFC_FloatRows:$lse, XFC_FloatRows:$wanted_logit);
  let assemblyFormat = "operands (`in` $compute^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let extraClassDeclaration = !strconcat(StaysWide, ReadsWeight, [{
    // S and C.
    int64_t getSlabs();
    int64_t getCount();
    // The tokens that have no part in the log-sum-exp.
    llvm::ArrayRef<int64_t> getLeftOut() { return getRenormalize() ? getExcluded() : llvm::ArrayRef<int64_t>(); }
  }]);
}

def XFC_MergeCandidatesOp : XFC_Op<"merge_candidates", [NoGradient, Kernel, Fused]> {
  let summary = "merges the candidates of the slabs, in the order of the slabs, into those of whole rows (xfc.candidates)";
  let arguments = (ins XFC_TokenRows:$slab_tokens, XFC_FloatRows:$largest, XFC_FloatRows:$lse, XFC_FloatRows:$wanted_logit);
  let results = (outs XFC_TokenRows:$tokens, XFC_FloatRows:$best, XFC_FloatRows:$wanted_log_prob);
  let hasVerifier = 1;
  let extraClassDeclaration = StaysWide;
}

//===--------------------------------------------------------------------------------------------------------===//
// Optimizer
//===--------------------------------------------------------------------------------------------------------===//

def XFC_SquareSumOp : XFC_Op<"square_sum", [NoGradient, Kernel]> {
  let summary = "partial sums of squares of the tensors, one for every 16384 elements of their common block";
  let description = [{ The tensors follow each other in the gradient block; gaps hold zeros. The result has one f64 per partial sum. }];
  let arguments = (ins Variadic<XFC_Tensor>:$tensors);
  let results = (outs XFC_Tensor:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    static constexpr int64_t elementsOfPart = 16384;
    bool isShapeless() { return true; }
    ::mlir::OperandRange getSpan() { return getTensors(); }
  }];
}

def XFC_ClipFactorOp : XFC_Op<"clip_factor", [NoGradient, Kernel]> {
  let summary = "norm = sqrt(sum of the partial sums in order); factor = min(1, max_norm / norm), 1 if max_norm is 0";
  let arguments = (ins XFC_Scalar:$max_norm, Variadic<XFC_Tensor>:$sums);
  let results = (outs XFC_Scalar:$factor, XFC_Scalar:$norm);
  let hasVerifier = 1;
}

def XFC_OptimizeOp : XFC_Op<"optimize", [AttrSizedOperandSegments, NoGradient, Kernel],
                            [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "a step of an optimizer over n parameters, in place";
  let description = [{
    `rule` names the formula, which the interpreter defines (`compiler/Interpreter/Optimizer.cpp`); the table of optimizers
    (`runtime/plan/Optimizers.cpp`) says what `hyper` holds and how many states each parameter has. Gradients are multiplied by
    `factor` before the rule is applied. `states` holds the first state of every parameter, then the second state of every parameter,
    and so on. The results are the new parameters, then the new states.

    States of bf16 are computed in f32, of which the new parameter is computed, and then rounded at random: up or down to a neighbor
    with probabilities that make the mean the number itself. Nearest numbers would not do: 0.999 v is nearest to v, which would never
    decay. The 16 bits below those of a bf16 are added to 16 random bits, whose carry rounds the magnitude up. The random bits are the lower half, for
    the first state, and the upper half, for the second, of h = mix(2654435761 p + 2246822519 g + salt) modulo 2^32, where p and g are the bits
    of the old parameter and of the gradient, salt is the sum of (2 i + 1) 3266489917 times the bits of element i of `hyper`, and of 668265263
    times those of `factor`, and mix is the finalizer of MurmurHash3 (Appleby, 2011): x ^= x >> 16, x *= 0x85ebca6b, x ^= x >> 13,
    x *= 0xc2b2ae35, x ^= x >> 16. So they depend neither on threads nor on ranks, and the number of the step in `hyper` makes them differ from
    step to step. Infinity and NaN stay as they are.

    With `packs`, the op also writes the packed forms of the parameters that products read (the resource "packed weights"), rounded to
    the type `compute` if these products round their operands to it; scheduling determines which packed forms there are.

    ```mlir
    %p1, %m1, %v1 = xfc.optimize "adam" %hyper, %factor parameters(%p) gradients(%g) states(%m, %v) : ...
    ```
  }];
  let arguments = (ins StrAttr:$rule, XFC_Tensor:$hyper, XFC_Scalar:$factor, Variadic<XFC_Tensor>:$parameters,
                       Variadic<XFC_Tensor>:$gradients, Variadic<XFC_Tensor>:$states, UnitAttr:$packs,
                       OptionalAttr<XFC_ComputeType>:$compute);
  let results = (outs Variadic<XFC_Tensor>:$updated);
  let assemblyFormat = "$rule $hyper `,` $factor `parameters` `(` $parameters `)` `gradients` `(` $gradients `)` `states` `(` $states `)` (`in` $compute^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::std::string getKernelName() { return getRule().str(); }
    bool isShapeless() { return true; }
    ::mlir::OperandRange getSpan() { return getParameters(); }
    int64_t getInPlaceOperand(unsigned result);
    ::mlir::OperandRange getRepacked() { return getPacks() ? getParameters() : getParameters().take_front(0); }
    ::std::optional<::xfc::ComputeType> getRepackedCompute() { return getCompute(); }
    unsigned getNumStates() { return getStates().size() / getParameters().size(); } // per parameter
    ::mlir::OperandRange getState(unsigned i) { return getStates().slice(i * getParameters().size(), getParameters().size()); }
    // The index in `hyper` of the hyperparameter with this name.
    int64_t getHyperIndex(::llvm::StringRef name);
  }];
}

// A launch of an optimizer whose rule is not elementwise. It keeps means of the squared gradient instead of all squares: for each
// tensor a mean of each row and, if the tensor is a matrix, of each column (MatrixForm). A step takes four ops, since each
// needs sums over whole tensors that the one before it computes. Adafactor (Shazeer and Stern, 2018) is such a rule.
class XFC_FactoredOp<string mnemonic> : XFC_Op<mnemonic, [AttrSizedOperandSegments, NoGradient, Kernel]> {
  let hasVerifier = 1;
  code shared = [{
    ::std::string getKernelName() { return getOperationName().drop_front(4).str() + "_" + getRule().str(); }
    bool isShapeless() { return true; }
    ::xfc::PartedTensors getPartedTensors();
    int64_t getInPlaceOperand(unsigned result);
    // How many results there are of each kind, in the order of the kinds.
    ::llvm::SmallVector<unsigned> getResultSegments();
    ::mlir::ResultRange getResultSegment(unsigned kind) {
      const auto sizes = getResultSegments();
      unsigned begin = 0;
      for (unsigned i = 0; i < kind; ++i)
        begin += sizes[i];
      return getOperation()->getResults().slice(begin, sizes[kind]);
    }
    // The index in `hyper` of the hyperparameter with this name.
    int64_t getHyperIndex(::llvm::StringRef name);
  }];
  let extraClassDeclaration = shared;
}

def XFC_RowMomentsOp : XFC_FactoredOp<"row_moments"> {
  let summary = "updates the means of the rows of n squared gradients, in place, and sums up what later ops need";
  let description = [{
    With g the gradient after clipping, the mean of row i becomes `rows[i] + share (mean over j of g[i, j]^2 + eps1 - rows[i])`. A tensor
    with fewer than two dimensions has rows of one element. The results are the new means of n tensors; for each tensor, the sum of
    the squares of the parameter in each part of its rows (MatrixForm), in f64; and for each of the m matrices, the sum of the squares of
    the gradient in each part of its rows, column by column, in f64.
  }];
  let arguments = (ins StrAttr:$rule, XFC_Tensor:$hyper, XFC_Scalar:$factor, Variadic<XFC_Tensor>:$parameters,
                       Variadic<XFC_Tensor>:$gradients, Variadic<XFC_Tensor>:$rows);
  let results = (outs Variadic<XFC_Tensor>:$updated);
  let assemblyFormat = "$rule $hyper `,` $factor `parameters` `(` $parameters `)` `gradients` `(` $gradients `)` `rows` `(` $rows `)` attr-dict `:` functional-type(operands, results)";
}

def XFC_ColumnMomentsOp : XFC_FactoredOp<"column_moments"> {
  let summary = "updates the means of the columns of m squared gradients, in place, and derives the factors of the columns";
  let description = [{
    The mean of column j becomes `columns[j] + share (mean over i of g[i, j]^2 + eps1 - columns[j])`, from the partial sums of
    xfc.row_moments. The results are the new means, and for each matrix `sqrt(mean of rows / columns[j])`, from the new means of rows
    and columns: the factored second moment of element (i, j) is `rows[i] columns[j] / mean of rows`.
  }];
  let arguments = (ins StrAttr:$rule, XFC_Tensor:$hyper, Variadic<XFC_Tensor>:$rows, Variadic<XFC_Tensor>:$column_sums,
                       Variadic<XFC_Tensor>:$columns);
  let results = (outs Variadic<XFC_Tensor>:$updated);
  let assemblyFormat = "$rule $hyper `rows` `(` $rows `)` `sums` `(` $column_sums `)` `columns` `(` $columns `)` attr-dict `:` functional-type(operands, results)";
  // Columns of a chunk.
  let extraClassDeclaration = shared # [{
    static constexpr int64_t columnsOfChunk = 512;
  }];
}

def XFC_UpdateSquaresOp : XFC_FactoredOp<"update_squares"> {
  let summary = "for n tensors, the sum of the squares of the unscaled update in each part of the rows, in f64";
  let description = [{
    The unscaled update of element (i, j) is `g[i, j] factors[j] / sqrt(rows[i])`, without the factor for a tensor that is no matrix.
  }];
  let arguments = (ins StrAttr:$rule, XFC_Tensor:$hyper, XFC_Scalar:$factor, Variadic<XFC_Tensor>:$gradients, Variadic<XFC_Tensor>:$rows,
                       Variadic<XFC_Tensor>:$factors);
  let results = (outs Variadic<XFC_Tensor>:$squares);
  let assemblyFormat = "$rule $hyper `,` $factor `gradients` `(` $gradients `)` `rows` `(` $rows `)` `factors` `(` $factors `)` attr-dict `:` functional-type(operands, results)";
}

def XFC_FactoredUpdateOp : XFC_FactoredOp<"factored_update"> {
  let summary = "updates n parameters, in place, with the update of xfc.update_squares";
  let description = [{
    With u the unscaled update of a tensor, RMS the root of its mean square, and r the rate, times max(eps2, RMS(parameter)) if `scales`
    is 1, the new parameter is `parameter - r decay parameter - r u / max(1, RMS(u) / clip_threshold)`. A rule with "_ema" also
    updates the `averages`, which are results, too.
  }];
  let arguments = (ins StrAttr:$rule, XFC_Tensor:$hyper, XFC_Scalar:$factor, Variadic<XFC_Tensor>:$parameters,
                       Variadic<XFC_Tensor>:$gradients, Variadic<XFC_Tensor>:$rows, Variadic<XFC_Tensor>:$factors,
                       Variadic<XFC_Tensor>:$parameter_squares, Variadic<XFC_Tensor>:$update_squares, Variadic<XFC_Tensor>:$averages);
  let results = (outs Variadic<XFC_Tensor>:$updated);
  let assemblyFormat = "$rule $hyper `,` $factor `parameters` `(` $parameters `)` `gradients` `(` $gradients `)` `rows` `(` $rows `)` `factors` `(` $factors `)` `squares` `(` $parameter_squares `)` `,` `(` $update_squares `)` `averages` `(` $averages `)` attr-dict `:` functional-type(operands, results)";
}

#endif
