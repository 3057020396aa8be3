// The plan dialect: a compiled model as the runtime will run it, before it is serialized (runtime/plan/Plan.h).
#ifndef XFC_PLAN_OPS_TD
#define XFC_PLAN_OPS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "Dialect/XFCEnums.td"

def Plan_Dialect : Dialect {
  let name = "plan";
  let cppNamespace = "::xfc";
  let summary = "Kernels, launches, and the memory they work on";
  let description = [{
    Scheduling turns a module of xfc functions into a plan, pass by pass (Schedule/Passes.td). Programs keep their
    values, so the flow of data stays visible: a launch has the types of the op it runs, and `at` gives the place of
    each operand and result. Views (xfc.split, xfc.join, xfc.concat, xfc.slice, xfc.sinusoid) are not launches; they
    describe how values share memory.

    The code of the kernels is a module inside the plan, `module @code attributes {plan.target = "x86-64-v3"}`, with a
    function for each kernel, of the same name.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
}

class Plan_Op<string mnemonic, list<Trait> traits = []> : Op<Plan_Dialect, mnemonic, traits>;
class Plan_Attr<string name, string attrMnemonic> : AttrDef<Plan_Dialect, name> {
  let mnemonic = attrMnemonic;
  let hasCustomAssemblyFormat = 1;
}

//===--------------------------------------------------------------------------------------------------------===//
// Attributes
//===--------------------------------------------------------------------------------------------------------===//

def Plan_SizeAttr : Plan_Attr<"Size", "size"> {
  let summary = "a size that depends on the batch";
  let description = [{
    A linear combination of counts: `#plan.size<64 + 2048 source + 8 target sequences + 512 target chunks + 8 pairs 6>`.
    `source` counts rows, `chunks` counts chunks of 2048 rows (none if all rows fit one chunk), and `pairs` counts the pairs
    of a key structure.
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$terms);
  let builders = [AttrBuilder<(ins "const ::xfc::Size &":$size)>];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{ ::xfc::Size getSize() const; }];
}

def Plan_PlaceAttr : Plan_Attr<"Place", "place"> {
  let summary = "where an operand or a result lies";
  let description = [{
    `#plan.place<arena 3 + 64 by 512>`: 64 bytes into buffer 3 of the program, with a row stride of 512 elements. The other
    kinds are `parameters`, `gradients`, `state 1` of the optimizer, `packed 2`, `table 0`, `argument 1`, and `none`, for an operand that
    the op does not have or a result that nothing reads.
  }];
  let parameters = (ins "::xfc::Place::Kind":$kind, "int64_t":$index, "int64_t":$offset, "int64_t":$stride);
  let builders = [AttrBuilder<(ins "const ::xfc::Place &":$place, "int64_t":$stride)>];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{ ::xfc::Place getPlace() const { return {getKind(), getIndex(), getOffset()}; } }];
}
def Plan_Places : TypedArrayAttrBase<Plan_PlaceAttr, "places">;

def Plan_PartitionAttr : Plan_Attr<"Partition", "partition"> {
  let summary = "how a kernel's work is cut into chunks";
  let description = [{
    `#plan.partition<rows per 32 times 4>`: ceil(rows / 32) x 4 chunks. Units are `one`, `rows`, `key_rows`, `sequences` and
    `elements`.
  }];
  let parameters = (ins "::xfc::Partition::Unit":$unit, "int64_t":$per, "int64_t":$times);
  let builders = [AttrBuilder<(ins "const ::xfc::Partition &":$partition)>];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{ ::xfc::Partition getPartition() const { return {getUnit(), getPer(), getTimes()}; } }];
}

def Plan_DomainAttr : Plan_Attr<"Domain", "domain"> {
  let summary = "the rows over which a launch is divided, and the keys that they are paired with";
  let description = [{
    `#plan.domain<source>`; `#plan.domain<target keys source padding causal>`: each row of the target is paired with rows of the
    source, as xfc_shape.keys lists them without pad tokens and up to the row's own position. Without `padding` and `causal`, the keys
    are `unmasked`.
  }];
  // LaunchDomain in Dialect/XFC.h; a `structure` of -1 stands for none.
  let parameters = (ins "::xfc::RowSet":$rows, "::xfc::RowSet":$keys, DefaultValuedParameter<"int64_t", "-1">:$structure);
  let builders = [AttrBuilder<(ins "const ::xfc::LaunchDomain &":$domain)>];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{ bool hasKeys() const { return getStructure() >= 0; } }];
}

def Plan_TensorAttr : AttrDef<Plan_Dialect, "Tensor"> {
  let mnemonic = "tensor";
  let summary = "a tensor that a launch takes in chunks of its own (xfc_parted_tensor in abi.h)";
  let parameters = (ins "int64_t":$first, "int64_t":$rows, "int64_t":$columns, "int64_t":$per, "int64_t":$parts, "int64_t":$matrix,
                        "int64_t":$group);
  let assemblyFormat = "`<` struct(params) `>`";
}
def Plan_Tensors : TypedArrayAttrBase<Plan_TensorAttr, "tensors">;

def Plan_RepackedAttr : AttrDef<Plan_Dialect, "Repacked"> {
  let mnemonic = "repacked";
  let summary = "a weight that an optimizer packs: its first element among those that the launch updates, and its dimensions";
  let parameters = (ins "int64_t":$first, "int64_t":$rows, "int64_t":$columns);
  let assemblyFormat = "`<` struct(params) `>`";
}
def Plan_Repacked : TypedArrayAttrBase<Plan_RepackedAttr, "weights that are packed">;

//===--------------------------------------------------------------------------------------------------------===//
// The module: parameters, kernels, packed weights, tables
//===--------------------------------------------------------------------------------------------------------===//

def Plan_ParametersOp : Plan_Op<"parameters", [NoTerminator, SingleBlock]> {
  let summary = "the parameter block: its number of elements, their type, and its parameters in order";
  let description = [{
    The gradients, and each of the `states` that optimizers keep, have a block with the same layout, except for the states that a
    plan.state gives another. Parameters that some program reads as one tensor (xfc.concat) follow each other without gaps;
    everything else starts on a cache line.

    ```mlir
    plan.parameters 1040 x f32 states ["moment1", "moment2", "row_mean"] {
      plan.parameter @encoder.embed.weight at 0
      plan.parameter @encoder.norm.weight at 1024
      plan.state "row_mean" 80 {
        plan.part @encoder.embed.weight [64] at 0
        plan.part @encoder.norm.weight [16] at 64
      }
    }
    ```
  }];
  let arguments = (ins I64Attr:$elements, TypeAttrOf<AnyTypeOf<[F32, F64]>>:$type, DefaultValuedAttr<StrArrayAttr, "{}">:$states);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$elements `x` $type (`states` $states^)? $body attr-dict";
}

def Plan_OffsetOp : Plan_Op<"parameter", [HasParent<"ParametersOp">, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the element offset of an xfc.parameter in the block";
  let arguments = (ins FlatSymbolRefAttr:$name, I64Attr:$offset);
  let assemblyFormat = "$name `at` $offset attr-dict";
}

def Plan_StateOp : Plan_Op<"state", [NoTerminator, SingleBlock, HasParent<"ParametersOp">]> {
  let summary = "a state whose block is not laid out like the parameters: its number of elements, and its tensors in order";
  let arguments = (ins StrAttr:$name, I64Attr:$elements);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$name $elements $body attr-dict";
}

def Plan_PartOp : Plan_Op<"part", [HasParent<"StateOp">, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the tensor that the state holds of an xfc.parameter: its shape, and its element offset in the block";
  let arguments = (ins FlatSymbolRefAttr:$name, DenseI64ArrayAttr:$shape, I64Attr:$offset);
  let assemblyFormat = "$name $shape `at` $offset attr-dict";
}

def Plan_KernelOp : Plan_Op<"kernel", [Symbol, IsolatedFromAbove, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "code shared by launches";
  let description = [{
    The body holds the single op that the kernel computes; its arguments have the types of the op's operands, and it returns
    the results that are read. Code generation adds a function of the kernel's name to the module @code, the partition of the work, the `scratch` bytes per thread (on a GPU, per
    block of `threads` threads; if the kernel is `resident`, a block goes on with further parts of the work until none is left), and
    the companion kernels, which have no region: `small` replaces the kernel in batches of at
    most `small_rows` rows, and may have one for fewer rows in turn; `reduction` adds up the partial sums, `chunk_bytes` for each chunk, in batches of more than one
    chunk; `packing` names the kernel that packs each operand, or is unit for operands that are not packed. `decoding` marks
    an op of a decoding step, where each target row is a sequence of its own. A persistent kernel has no region either: it
    runs the `bodies`, which are other kernels, in one launch (xfc-make-persistent).

    ```mlir
    plan.kernel @linear_512x2048 attributes {partition = #plan.partition<rows per 32 times 1>, packing = [unit, @pack_transposed_512x2048]} {
    ^bb0(%x: !xfc.rows<source, 2048xf32>, %w: tensor<512x2048xf32>):
      %y = xfc.linear %x, %w : (!xfc.rows<source, 2048xf32>, tensor<512x2048xf32>) -> !xfc.rows<source, 512xf32>
      plan.return %y : !xfc.rows<source, 512xf32>
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, UnitAttr:$decoding, OptionalAttr<Plan_PartitionAttr>:$partition,
                       DefaultValuedAttr<I64Attr, "0">:$scratch, DefaultValuedAttr<I64Attr, "0">:$threads, UnitAttr:$resident,
                       OptionalAttr<FlatSymbolRefAttr>:$small, DefaultValuedAttr<I64Attr, "0">:$small_rows,
                       OptionalAttr<FlatSymbolRefAttr>:$reduction, DefaultValuedAttr<I64Attr, "0">:$chunk_bytes,
                       OptionalAttr<ArrayAttr>:$packing, OptionalAttr<FlatSymbolRefArrayAttr>:$bodies);
  let regions = (region MaxSizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword ($body^)?";
  let hasRegionVerifier = 1;
  let builders = [OpBuilder<(ins "::llvm::StringRef":$name)>];
  let extraClassDeclaration = [{
    // The op that the kernel computes; null for a companion kernel.
    ::mlir::Operation *getOp() { return getBody().empty() ? nullptr : &getBody().front().front(); }
    // The kernel that packs an operand, or null.
    ::mlir::FlatSymbolRefAttr getPackingOf(unsigned operand);
  }];
}

def Plan_PackKernelOp : Plan_Op<"pack_kernel", [Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "a kernel that packs weights of one shape";
  let description = [{
    Packs W^T (`transposed`) or W, of the shape of `weight`, rounded to `compute` if it is given, in the target's default layout
    or in its `blocks`. The packed weight takes `bytes` bytes and is packed in `chunks` chunks.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<AnyRankedTensor>:$weight, UnitAttr:$transposed, OptionalAttr<XFC_ComputeType>:$compute,
                       UnitAttr:$blocks, I64Attr:$bytes, I64Attr:$chunks, DefaultValuedAttr<I64Attr, "0">:$scratch,
                       DefaultValuedAttr<I64Attr, "0">:$threads);
  let assemblyFormat = "$sym_name `of` $weight (`in` $compute^)? attr-dict";
}

def Plan_PackedWeightOp : Plan_Op<"packed_weight", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the packed form of the weight at byte `offset` of the parameters, repacked whenever they change";
  let arguments = (ins I64Attr:$index, FlatSymbolRefAttr:$kernel, I64Attr:$offset);
  let assemblyFormat = "$index `=` $kernel `(` `parameters` `+` $offset `)` attr-dict";
}

def Plan_TableOp : Plan_Op<"table"> {
  let summary = "a table of sinusoids (Table in runtime/plan/Plan.h has the equation)";
  let arguments = (ins I64Attr:$index, I64Attr:$rows, I64Attr:$dim, F64Attr:$base, F64Attr:$exponent_multiplier, F64Attr:$cosine_offset,
                       UnitAttr:$halves);
  let assemblyFormat = "$index `=` $rows `x` $dim attr-dict";
}

//===--------------------------------------------------------------------------------------------------------===//
// Programs
//===--------------------------------------------------------------------------------------------------------===//

def Plan_ProgramOp : Plan_Op<"program", [FunctionOpInterface, IsolatedFromAbove, SingleBlock, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "an entry point of the executable: buffers, then launches and views in execution order";
  let description = [{
    Arguments and results keep the attributes that they had on the function. `row_by_row`: a thread may take its own rows
    through all launches (Program in runtime/plan/Plan.h). `persistent`: the kernel that can run all launches as one.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<FunctionType>:$function_type, OptionalAttr<DictArrayAttr>:$arg_attrs,
                       OptionalAttr<DictArrayAttr>:$res_attrs, UnitAttr:$row_by_row,
                       OptionalAttr<FlatSymbolRefAttr>:$persistent);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
  let skipDefaultBuilders = 1;
  // Takes over the name, type, attributes and body of a function, which is left without a body.
  let builders = [OpBuilder<(ins "::mlir::FunctionOpInterface":$function)>];
  let extraClassDeclaration = [{
    ::llvm::ArrayRef<::mlir::Type> getArgumentTypes() { return getFunctionType().getInputs(); }
    ::llvm::ArrayRef<::mlir::Type> getResultTypes() { return getFunctionType().getResults(); }
    ::mlir::Region *getCallableRegion() { return &getBody(); }
  }];
}

def Plan_BufferOp : Plan_Op<"buffer", [HasParent<"ProgramOp">]> {
  let summary = "memory in the arena, live from launch `first` to launch `last`";
  let arguments = (ins I64Attr:$index, Plan_SizeAttr:$size, I64Attr:$first, I64Attr:$last);
  let assemblyFormat = "$index `:` $size `from` $first `to` $last attr-dict";
  let hasVerifier = 1;
}

def Plan_LaunchOp : Plan_Op<"launch", [HasParent<"ProgramOp">, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "one launch of a kernel";
  let description = [{
    The work is divided over the rows of the `domain`. `dropout` is the id of the random numbers that the kernel draws, `elements`
    the number of those in the blocks of parameters that it iterates over, and `repacked` the weights among them that an
    optimizer packs. A kernel that takes `tensors` one by one has `elements` chunks. `flops` counts floating-point operations, `traffic` bytes. In a
    program with a persistent kernel, the launches of the numbers `after` must have finished before this one begins. Places are listed for the operands, the results,
    and then the workspace of a reduction or the weights that an optimizer packs.

    ```mlir
    %y = plan.launch @linear_512x2048(%x, %w) over target at [arena 3 by 2048, packed 7, arena 4 by 512] {...} : (..) -> ..
    ```

    A launch of a plan.pack_kernel packs a weight for the launches that read its result in place of the weight
    (xfc-pack-in-step).
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<AnyType>:$inputs, Plan_DomainAttr:$domain,
                       OptionalAttr<Plan_Places>:$places, OptionalAttr<I64Attr>:$dropout,
                       OptionalAttr<Plan_Tensors>:$tensors, DefaultValuedAttr<I64Attr, "0">:$elements,
                       OptionalAttr<Plan_Repacked>:$repacked, Plan_SizeAttr:$flops,
                       Plan_SizeAttr:$traffic, OptionalAttr<DenseI32ArrayAttr>:$after);
  let results = (outs Variadic<AnyType>:$outputs);
  let assemblyFormat = "$kernel `(` $inputs `)` `over` custom<Domain>($domain) (`at` custom<Places>($places)^)? attr-dict `:` functional-type($inputs, $outputs)";
}

def Plan_ReturnOp : Plan_Op<"return", [Terminator, ParentOneOf<["ProgramOp", "KernelOp"]>]> {
  let summary = "the results of a program and their places, or the results of a kernel that are read";
  let arguments = (ins Variadic<AnyType>:$values, OptionalAttr<Plan_Places>:$places);
  let assemblyFormat = "($values^)? (`at` custom<Places>($places)^)? attr-dict (`:` type($values)^)?";
  let hasVerifier = 1;
}

#endif
