// The passes that turn a module of fused xfc functions into a plan, in their order. Types are shortened in the examples.
#ifndef XFC_SCHEDULE_PASSES_TD
#define XFC_SCHEDULE_PASSES_TD

include "mlir/Pass/PassBase.td"

def LayOutParameters : Pass<"xfc-lay-out-parameters", "::mlir::ModuleOp"> {
  let summary = "Gives every parameter its place in one block";
  let description = [{
    Parameters are laid out in the order of their declarations, except that parameters which some op concatenates follow each
    other without gaps. The pass fails where that is impossible: if a group is concatenated in two orders, or a parameter
    belongs to two groups.

    ```mlir
    xfc.parameter @q : tensor<4x4xf32> init zero
    xfc.parameter @b : tensor<3xf32> init zero
    xfc.parameter @k : tensor<4x4xf32> init zero
    func.func @forward(%q, %k, ..) { %qk = xfc.concat %q, %k .. }
    // adds
    plan.parameters 48 x f32 {
      plan.parameter @q at 0
      plan.parameter @k at 16
      plan.parameter @b at 32
    }
    ```
  }];
  let dependentDialects = ["::xfc::PlanDialect"];
}

def AssignTypes : Pass<"xfc-assign-types", "::mlir::ModuleOp"> {
  let summary = "Decides which rows are stored in bf16";
  let description = [{
    In a function that multiplies in bf16, every row of features that a kernel makes is stored in bf16, if the target's kernels take
    such rows: a conversion happens once, where a value is made, and never where it is read. f32 are statistics, sums, losses and
    logits (KernelOpInterface::staysWide), a function's arguments and results, rows whose number of features is not a multiple of 8,
    and all rows of a decoding step; and, if the target's options say so, the residual stream and its gradient
    (KernelOpInterface::carriesResidual).

    ```mlir
    %y, %stats = xfc.norm %x, %w : (!xfc.rows<source, 512xf32>, tensor<512xf32>) -> (!xfc.rows<source, 512xf32>, !xfc.rows<source, 2xf32>)
    // becomes
    %y, %stats = xfc.norm %x, %w : (!xfc.rows<source, 512xbf16>, tensor<512xf32>) -> (!xfc.rows<source, 512xbf16>, !xfc.rows<source, 2xf32>)
    ```
  }];
  let statistics = [Statistic<"narrowed", "narrowed", "values that are stored in bf16">];
}

def OutlineKernels : Pass<"xfc-outline-kernels", "::mlir::ModuleOp"> {
  let summary = "Turns each function into a program, and its ops into launches of shared kernels";
  let description = [{
    Ops share a kernel if they differ only in the row sets they work on, in the ids of dropouts, and in what masks drop
    (Analysis/Kernels.h). A kernel holds a copy of the first such op, and returns the results that are read. Views remain. The
    pass fails on an op that is neither a kernel nor a view.

    ```mlir
    func.func @forward(%x, %y) { %s = xfc.add %x, %y  return %s }
    // becomes
    plan.kernel @add_512 { ^bb0(%a, %b):  %s = xfc.add %a, %b  plan.return %s }
    plan.program @forward(%x, %y) { %s = plan.launch @add_512(%x, %y) over source {flops = .., traffic = ..}  plan.return %s }
    ```
  }];
  let dependentDialects = ["::xfc::PlanDialect"];
  let statistics = [Statistic<"kernels", "kernels", "distinct ops">, Statistic<"launches", "launches", "ops">];
}

def GenerateKernels : Pass<"xfc-generate-kernels", "::mlir::ModuleOp"> {
  let summary = "Generates the code of every kernel and records how the runtime calls it";
  let description = [{
    The code of a kernel is the function of its name in the module @code, which `plan.target` says the target of. A kernel is
    followed by its companions (small-M variant, reduction) and by the kernels that pack its operands. Without a target, as
    xfc-opt runs this pass alone, there is no code; --xfc-kernels=target=x86-64-v3 generates it.

    ```mlir
    plan.kernel @linear_8x4 { .. }
    // becomes
    plan.kernel @linear_8x4 attributes {partition = #plan.partition<rows per 32 times 1>, packing = [unit, @pack_transposed_8x4]} { .. }
    plan.pack_kernel @pack_transposed_8x4 of tensor<8x4xf32> {transposed, bytes = 512, chunks = 1}
    module @code attributes {plan.target = "x86-64-v3"} {
      func.func @linear_8x4(%call: !llvm.ptr, %chunk: i64, %scratch: !llvm.ptr) { .. }
      func.func @pack_transposed_8x4(%call: !llvm.ptr, %chunk: i64, %scratch: !llvm.ptr) { .. }
    }
    ```
  }];
  let dependentDialects = ["::xfc::PlanDialect"];
}

def PackInStep : Pass<"xfc-pack-in-step", "::mlir::ModuleOp"> {
  let summary = "Packs the weights that a launch of the training step reads right before it, into the arena";
  let description = [{
    Products read weights in packed form, and the gradients of their inputs read them in another one. An update changes all that are
    trained, so a packed copy serves one launch, or one for each batch of a step that has several. One that is kept until the next step takes as much memory as the parameters; one that
    a launch makes and the next one reads shares the memory of activations, and is still in cache. A form that is rounded is kept
    (xfc-fuse-packing): it is smaller than the weight, and reading the weight once more costs more than it saves.

    ```mlir
    plan.program @loss_and_gradients {
      %dx = plan.launch @linear_input_grad_8x4(%dy, %w) over source {..}
    // becomes
      %p = plan.launch @pack_8x4(%w) over source {..} : (tensor<8x4xf32>) -> tensor<128xf32>
      %dx = plan.launch @linear_input_grad_8x4(%dy, %p) over source {..}
    ```
  }];
  let statistics = [Statistic<"packed", "packed weights", "weights that are packed in the step">];
}

def AssignBuffers : Pass<"xfc-assign-buffers", "::mlir::ModuleOp"> {
  let summary = "Gives every value a place: in the arena, a block of parameters, or an argument";
  let description = [{
    A buffer is live from the launch that writes it to the last launch that reads it or a view of it
    (Analysis/BufferAssignment.h). A result that replaces an argument overwrites it, and a value that is always updated in place
    (a cache) stays where it is. The pass fails if a later launch reads what would be overwritten.

    ```mlir
    %y = plan.launch @activation_8(%x) over source {..}
    plan.return %y
    // becomes
    plan.buffer 0 : <32 source> from 0 to 1
    %y = plan.launch @activation_8(%x) over source at [argument 0 by 8, arena 0 by 8] {..}
    plan.return %y at [arena 0 by 8]
    ```
  }];
  let statistics = [Statistic<"buffers", "buffers", "buffers of all programs">];
}

def PackWeights : Pass<"xfc-pack-weights", "::mlir::ModuleOp"> {
  let summary = "Makes launches read weights in the packed form that their kernels expect";
  let description = [{
    There is one packed weight for each parameter and form, shared by all programs that read it. An optimizer that packs
    (`xfc.optimize {packs}`) also writes the packed weights that the training step reads: its launch gets their places and
    dimensions.

    ```mlir
    %y = plan.launch @linear_8x4(%x, %w) over source at [arena 0 by 4, parameters + 64, arena 1 by 8] {..}
    // becomes
    plan.packed_weight 0 = @pack_transposed_8x4(parameters + 64)
    %y = plan.launch @linear_8x4(%x, %w) over source at [arena 0 by 4, packed 0, arena 1 by 8] {..}
    ```
  }];
  let statistics = [Statistic<"packed", "packed weights", "weights and forms of them">];
}

def MakePersistent : Pass<"xfc-make-persistent", "::mlir::ModuleOp"> {
  let summary = "Generates one kernel that can run all launches of a decoding step";
  let description = [{
    A decoding step of few rows has about ten short launches for each layer, which wait for each other. If the target has
    persistent kernels (GPUs have), one kernel gets copies of all kernels that the decoding steps run, in their variants for few
    rows, and each step's program names it. Its blocks stay until the step has ended: each takes its chunks of every launch in
    turn, and waits for the launches that this one depends on (`after`, Schedule/Dependencies.h; GPU/Persistent.cpp). A program with a kernel that cannot be run in this way (one whose
    blocks form clusters) does without. The runtime chooses between this kernel and the launches (`--cuda-step`).

    ```mlir
    plan.kernel @linear_8x4 attributes {decoding, small = @linear_8x4_small, small_rows = 4096, ..} { .. }
    plan.program @decode_step { .. %y = plan.launch @linear_8x4(%x, %w) over target .. {..} }
    // becomes
    plan.kernel @decoding_steps attributes {bodies = [@linear_8x4_small], scratch = 24576, threads = 128, ..}
    plan.program @decode_step attributes {persistent = @decoding_steps} {
      .. %y = plan.launch @linear_8x4(%x, %w) over target .. {after = array<i32: 0>, ..}
    }
    module @code { .. llvm.func @decoding_steps(%step: i64) { .. } }
    ```
  }];
  let dependentDialects = ["::xfc::PlanDialect"];
  let statistics = [Statistic<"persistent", "persistent", "programs that one kernel can run">];
}

#endif
