// The passes over the xfc dialect, in the order of the pipeline. Types are shortened in the examples.
#ifndef XFC_PASSES_TD
#define XFC_PASSES_TD

include "mlir/Pass/PassBase.td"

def FuseAttention : Pass<"xfc-fuse-attention", "::mlir::func::FuncOp"> {
  let summary = "Fuses scores, scale, bias, mask, softmax, dropout and combine into xfc.attention";
  let description = [{
    (query, key) pairs are no longer stored. A missing scale stands for a factor of 1; the mask may be missing if the attention
    is not causal; dropout and a distance bias are optional. If the function returns the probabilities, they become the third
    result.

    ```mlir
    %s = xfc.scores(%q, %k) : (...) -> !xfc.pairs<source, source, padding, 8xf32>
    %t = xfc.scale %s {factor = 0.125}
    %m = xfc.mask %t
    %p = xfc.softmax %m
    %d = xfc.dropout %p {rate = 0.1, id = 3}
    %o = xfc.combine %d, %v
    // becomes
    %o, %lse = xfc.attention %q, %k, %v {heads = 8, scale = 0.125, padding, rate = 0.1, id = 3}
    ```
  }];
  let statistics = [Statistic<"fused", "attentions fused", "attentions that no longer store pairs">,
                    Statistic<"withWeights", "attentions with weights", "fused attentions that also return probabilities">];
}

def FuseAddNorm : Pass<"xfc-fuse-add-norm", "::mlir::func::FuncOp"> {
  let summary = "Fuses a residual add and the norm of the sum into xfc.add_norm";
  let description = [{
    This takes one pass over memory instead of two. Other uses of the sum (the residual stream of pre-norm models) read `sum`.

    ```mlir
    %s = xfc.add %body, %x
    %y, %stats = xfc.norm %s, %w, %b {eps = 1.0e-5}
    // becomes
    %y, %s, %stats = xfc.add_norm %body, %x, %w, %b {eps = 1.0e-5}
    ```
  }];
  let statistics = [Statistic<"fused", "norms fused", "norms that add their residual">];
}

def FuseCrossEntropy : Pass<"xfc-fuse-cross-entropy", "::mlir::func::FuncOp"> {
  let summary = "Fuses output projection, log_softmax and nll into xfc.linear_cross_entropy";
  let description = [{
    Log-probabilities are never stored, and the gradient can overwrite the logits. If the logits have other uses, only
    log_softmax and nll are fused, into xfc.cross_entropy.

    ```mlir
    %z = xfc.linear %x, %w bias %b
    %p = xfc.log_softmax %z
    %loss, %nll = xfc.nll %p, %labels, %smoothing
    // becomes
    %loss, %nll, %z, %lse = xfc.linear_cross_entropy %x, %w, %b, %labels, %smoothing
    ```
  }];
  let statistics = [Statistic<"fused", "losses fused", "losses without stored log-probabilities">,
                    Statistic<"withLinear", "projections fused", "fused losses that include the output projection">];
}

def FuseLossGradient : Pass<"xfc-fuse-loss-gradient", "::mlir::func::FuncOp"> {
  let summary = "Fuses xfc.linear_cross_entropy and the gradient of its logits";
  let description = [{
    This runs after differentiation. The gradient of the loss itself is an input (`loss_scale`), since the loss is a weighted
    sum over tokens. So each row's logits become their gradient while they are in cache, instead of in another pass over a
    vocabulary-wide buffer.

    ```mlir
    %loss, %nll, %z, %lse = xfc.linear_cross_entropy %x, %w, %b, %labels, %smoothing
    %dz = xfc.cross_entropy_grad %z, %dloss, %labels, %lse, %smoothing
    // becomes
    %loss, %nll, %dz = xfc.linear_cross_entropy_with_grad %x, %w, %b, %labels, %smoothing, %dloss
    ```
  }];
  let statistics = [Statistic<"fused", "losses fused", "losses that compute the gradient of their logits">];
}

def FuseCandidates : Pass<"xfc-fuse-candidates", "::mlir::func::FuncOp"> {
  let summary = "Fuses output projection, log_softmax and candidates into xfc.linear_candidates and xfc.merge_candidates";
  let description = [{
    A decoding step stores no rows as wide as the vocabulary: each slab of columns is reduced to its best tokens and its
    log-sum-exp while it is in cache. The width of a slab depends on the vocabulary and the target only: the fewest `unit`s of columns
    that make at most `enough` slabs, but at most 512 columns. So a single row keeps two threads of a CPU busy, or at least
    half of a GPU's multiprocessors, if the vocabulary has as many tiles.

    ```mlir
    %z = xfc.linear %x, %w bias %b
    %p = xfc.log_softmax %z
    %tokens, %best, %wanted_log_prob = xfc.candidates %p, %wanted {excluded = array<i64: 0, 2, 3>}
    // becomes
    %t, %l, %lse, %wanted_logit = xfc.linear_candidates %x, %w, %b, %wanted {excluded = array<i64: 0, 2, 3>, slab = 512}
    %tokens, %best, %wanted_log_prob = xfc.merge_candidates %t, %l, %lse, %wanted_logit
    ```
  }];
  let options = [Option<"unit", "unit", "int64_t", /*default=*/"64", "columns of which a slab is a multiple, a multiple of 64">,
                 Option<"enough", "enough", "int64_t", /*default=*/"2",
                        "number of slabs, which is how many threads (or blocks of a GPU) can share a row">];
  let statistics = [Statistic<"fused", "projections fused", "projections that choose their candidates">];
}

def FuseCacheWrite : Pass<"xfc-fuse-cache-write", "::mlir::func::FuncOp"> {
  let summary = "Has the product that makes keys and values write them to the cache: xfc.linear_to_cache";
  let description = [{
    A decoding step has fewer launches then, and attention waits for the product alone. The last columns of a merged projection
    (xfc-merge-projections) go to caches if these keep them as they are. Keys and values that are kept in i8 are quantized before they are
    written, and keys that are rotated are rotated, so their writes stay.

    ```mlir
    %y = xfc.linear %x, %w
    %q, %k, %v = xfc.split %y
    %keys = xfc.cache_write %old_keys, %k
    %values = xfc.cache_write %old_values, %v
    // becomes
    %q, %keys, %values = xfc.linear_to_cache %x, %w into %old_keys, %old_values
    ```
  }];
  let statistics = [Statistic<"fused", "writes fused", "writes to the cache that a product does">];
}

def MergeProjections : Pass<"xfc-merge-projections", "::mlir::ModuleOp"> {
  let summary = "Merges projections of one attention or recurrence that read the same rows into one linear";
  let description = [{
    The parameters are concatenated, which is free because the layout of parameters makes them consecutive. So a group must be
    the same in every function of the module: q, k, v of a self-attention; k, v of a cross-attention, also in @encode; gate and value
    of a recurrence if both have a bias or neither has one.
    The two linears of a gated step are not merged: activation and product fuse into their epilogues.

    ```mlir
    %q = xfc.linear %x, %wq
    %k = xfc.linear %x, %wk
    %v = xfc.linear %x, %wv
    // becomes
    %w = xfc.concat %wq, %wk, %wv
    %qkv = xfc.linear %x, %w
    %q, %k, %v = xfc.split %qkv
    ```
  }];
  let statistics = [Statistic<"groups", "groups", "groups of parameters read as one">,
                    Statistic<"merged", "linears merged", "linears that became a part of another">];
}

def Differentiate : Pass<"xfc-differentiate", "::mlir::ModuleOp"> {
  let summary = "Turns @loss into @loss_and_gradients";
  let description = [{
    Walks @loss backwards and asks every op for the gradients of its operands (DifferentiableOpInterface). The new
    input `loss_scale` is the gradient of each row's loss, which weights it.

    ```mlir
    func.func @loss(%w, ..., %smoothing) -> (%loss, %nll)
    // becomes
    func.func @loss_and_gradients(%w, ..., %smoothing, %loss_scale) -> (%loss, %nll, %grad.w, ...)
    ```

    A parameter that the loss does not depend on has no gradient.
  }];
  let statistics = [Statistic<"differentiated", "ops differentiated", "ops that were asked for their gradients">];
}

def BuildOptimizer : Pass<"xfc-build-optimizer", "::mlir::ModuleOp"> {
  let summary = "Adds @update and @update.RULE (clipping and a step of each optimizer) and @accumulate (sums of gradients)";
  let description = [{
    ```mlir
    func.func @update(parameters, gradients, moment1s, moment2s, %hyper, %max_norm) { // likewise for the other optimizers
      %s = xfc.square_sum %g         // for each parameter
      %factor, %norm = xfc.clip_factor %max_norm, %s, ...
      %p1, %m1, %v1 = xfc.optimize "adam" %hyper, %factor parameters(%p) gradients(%g) states(%m, %v) // for each parameter
      return new parameters, new moment1s, new moment2s, %norm
    }
    func.func @accumulate(gradients, sums) { // sums: over the step's earlier batches
      %sum = xfc.add %g, %s                  // for each parameter; overwrites the gradient
      return sums
    }
    ```
  }];
  let options = [Option<"momentType", "moment-type", "std::string", /*default=*/"\"f32\"",
                        "type in which the moments that rules keep of each element are stored, f32 or bf16">];
  let statistics = [Statistic<"updated", "parameters updated", "parameters that have a gradient">];
}

def FuseOptimizer : Pass<"xfc-fuse-optimizer", "::mlir::ModuleOp"> {
  let summary = "Merges the square_sums of all parameters into one, and the optimizer's steps, too";
  let description = [{
    One pass over memory handles all parameters. The operands are in the order of the layout of parameters: as declared, except
    that parameters which some function concatenates follow each other. Nothing is merged if a parameter has no gradient, since
    the pass would run over it, too. The ops of an optimizer that takes its parameters one by one (xfc.row_moments and those that
    follow it) are merged, too, all of one kind into one.

    ```mlir
    %s = xfc.square_sum %g1
    %t = xfc.square_sum %g2
    %factor, %norm = xfc.clip_factor %max_norm, %s, %t
    // becomes
    %s = xfc.square_sum %g1, %g2
    %factor, %norm = xfc.clip_factor %max_norm, %s
    ```
  }];
  let statistics = [Statistic<"squareSums", "square_sums fused", "square_sums that became one">,
                    Statistic<"steps", "steps fused", "steps of an optimizer that became one">];
}

def FusePacking : Pass<"xfc-fuse-packing", "::mlir::ModuleOp"> {
  let summary = "Lets the optimizer write the packed weights of the next step along with the parameters";
  let description = [{
    Weights that products round are repacked in the pass that updates them, while their new values are in cache, instead of in a
    pass of their own; others are packed where they are read (xfc-pack-in-step). This does not apply to an optimizer step that
    updates only a part of a concatenated weight or no weight of a matrix product, nor if only some of these products round their
    operands.

    ```mlir
    %p, %m, %v = xfc.optimize "adam" %hyper, %factor parameters(%w) gradients(%g) states(%m, %v)
    // becomes, where products are in bf16
    %p, %m, %v = xfc.optimize "adam" %hyper, %factor parameters(%w) gradients(%g) states(%m, %v) in bf16 {packs}
    ```
  }];
  let statistics = [Statistic<"packing", "optimizers that pack", "steps that write packed weights">];
}

def FuseNormGrad : Pass<"xfc-fuse-norm-grad", "::mlir::func::FuncOp"> {
  let summary = "Fuses a norm's gradients with respect to its rows and its weights into xfc.norm_grad_with_parts";
  let description = [{
    This takes one pass over dy and x instead of two. The rows are divided into runs; the pass also leaves a partial sum of the
    weights' gradients for each run, and xfc.sum_parts adds these up.

    ```mlir
    %dx = xfc.norm_grad %dy, %x, %w, %stats {eps = 1.0e-5}
    %dw, %db = xfc.norm_weight_grad %dy, %x, %stats
    // becomes
    %dx, %dws, %dbs = xfc.norm_grad_with_parts %dy, %x, %w, %stats {eps = 1.0e-5}
    %dw, %db = xfc.sum_parts %dws, %dbs
    ```
  }];
  let options = [Option<"parts", "parts", "int64_t", /*default=*/"32",
                        "number of runs of rows, which is how many threads (or blocks of a GPU) can share the work">];
  let statistics = [Statistic<"fused", "gradients fused", "norms whose gradients come in one pass">];
}

def FuseEpilogue : Pass<"xfc-fuse-epilogue", "::mlir::func::FuncOp"> {
  let summary = "Pulls elementwise ops after a linear or its input gradient into its epilogue";
  let description = [{
    An op is pulled in if its other operands exist before the linear, so nothing is reordered. Values of the epilogue that are
    used elsewhere become results, of which there are at most two. An epilogue holds at most one dropout.

    ```mlir
    %a = xfc.linear %x, %w bias %b
    %r = xfc.activation relu %a
    %d = xfc.dropout %r {rate = 0.1, id = 2}
    // becomes
    %d = xfc.linear %x, %w bias %b {
    ^bb0(%row):
      %r = xfc.activation relu %row
      %e = xfc.dropout %r {rate = 0.1, id = 2}
      xfc.yield %e
    }
    ```

    If the result of relu and its gradient go through the same dropout, relu's gradient reads the activation after dropout, so
    the one before dropout need not be kept. They differ only where the activation was dropped, and the gradient is 0 there
    anyway. Since dy does not matter there, its dropout becomes one with `kept`, which draws no random numbers.
  }];
  let statistics = [Statistic<"epilogues", "epilogues", "linears with an epilogue">,
                    Statistic<"pulled", "ops pulled in", "elementwise ops in epilogues">];
}

def SetComputeType : Pass<"xfc-set-compute-type", "::mlir::ModuleOp"> {
  let summary = "Makes products round their operands to a type before they multiply";
  let description = [{
    This changes every product of the module; those of attention only with the option `attention`, and if they are defined in the type.
    With `variants`, it changes only copies of those functions, where they exist; a copy's name is the function's name, a dot, and the
    type. It is an error if another product is not defined in the type: gradients in int8, products of f64.

    The type can depend on the name of a product's weight: with `int8,decoder.*=int4,output=bf16`, weights of the decoder are multiplied
    in int4, that of the output layer in bf16, and all others in int8. Of several patterns that match a name, the last one counts; without
    a type in front, all others stay as they are. Weights that are multiplied together (`-xfc-merge-projections`) need the same type.

    ```mlir
    func.func @encode(%x, %w) { %y = xfc.linear %x, %w }
    // becomes with type=bf16
    func.func @encode(%x, %w) { %y = xfc.linear %x, %w in bf16 }
    // becomes with type=bf16 variants=encode
    func.func @encode(%x, %w) { %y = xfc.linear %x, %w }
    func.func @encode.bf16(%x, %w) { %y = xfc.linear %x, %w in bf16 }
    ```
  }];
  let options = [
    Option<"type", "type", "std::string", /*default=*/"\"bf16\"",
           "what operands are rounded to: bf16, int8, int4 or, by the names of weights, TYPE,PATTERN=TYPE,...">,
    ListOption<"variants", "variants", "std::string", "functions of which a copy is changed instead; if there are none, all functions are changed">,
    Option<"attention", "attention", "int64_t", /*default=*/"0",
           "change products of attention, too, if heads have at least this many features; 0: never">];
  let statistics = [Statistic<"changed", "products changed", "products that round their operands">];
}

def SetCacheType : Pass<"xfc-set-cache-type", "::mlir::ModuleOp"> {
  let summary = "Keeps the keys and values of decoding in a narrower type";
  let description = [{
    This changes the keys and values that a decoding step takes from the encoder, and those that it keeps of earlier tokens: what the
    encoder returns, and what steps read and write. In int8, each head of a row has a scale (xfc.quantize), which is kept beside the
    row under its name and ".scale". With where-rounded, only programs of a type in which a product of a step rounds its operands are
    changed, and their encoder with them. An attention whose keys or values have a number of features that is not a multiple of 8 reads them as they are. Only
    fused attention reads such rows; it is an error if another op would, but with where-rounded, the programs of that type stay as they are.

    ```mlir
    func.func @decode_candidates(%q, %rows, %k: !xfc.rows<cache, 512xf32>) {
      %now = xfc.cache_write %k, %rows
      %o, %lse = xfc.attention %q, %now, %now {heads = 8 : i64, ..}
    // becomes with type=int8
    func.func @decode_candidates(%q, %rows, %k: !xfc.rows<cache, 512xi8>, %scale: !xfc.rows<cache, 8xf32>) {
      %i, %s = xfc.quantize %rows {groups = 8 : i64}
      %scales = xfc.cache_write %scale, %s
      %now = xfc.cache_write %k, %i
      %o, %lse = xfc.attention %q, %now, %now scaled by %scales, %scales {heads = 8 : i64, ..}
    ```
  }];
  let options = [
    Option<"type", "type", "std::string", /*default=*/"\"bf16\"", "a value of --cache-type but f32">,
    Option<"whereRounded", "where-rounded", "bool", /*default=*/"false",
           "change only programs in which a product of a step rounds its operands">];
  let statistics = [Statistic<"narrowed", "narrowed", "keys and values of a step in the narrower type">];
}

def Recompute : Pass<"xfc-recompute", "::mlir::func::FuncOp"> {
  let summary = "Recomputes values of the forward part where the backward part reads them, instead of keeping them";
  let description = [{
    The backward part begins with the op that reads `loss_scale`; functions without it are left unchanged. A value is recomputed
    once, before its first use in the backward part, from values that are kept. The op that made it runs again, with two
    exceptions: an xfc.add_norm becomes a norm of its sum, and if a value follows from another result of its linear, only that
    part of the epilogue is repeated, without the product. Since ops, operands and dropout ids are the same, so are all bits.

    Values are chosen greedily, in ascending order of operations per byte: those whose recomputation lowers the peak of live
    bytes. Operations and bytes are those of Analysis/Kernels. Level `cheap` takes only values that cost at most one operation
    per byte moved, that is, memory-bound ones: norms, activations, dropout, embeddings. Level `most` has no such limit; it costs
    at most one more forward pass. No op runs again unless its first result is needed, such as a norm for its statistics alone.

    ```mlir
    %y, %sum, %stats = xfc.add_norm %body, %x, %w
    %q = xfc.linear %y, %wq
    ...                                            // the backward part:
    %gw = xfc.linear_weight_grad %dq, %y
    %dx = xfc.norm_grad %dy, %sum, %w, %stats
    // becomes
    ...
    %again, %stats2 = xfc.norm %sum, %w
    %gw = xfc.linear_weight_grad %dq, %again
    %dx = xfc.norm_grad %dy, %sum, %w, %stats2
    ```
  }];
  let options = [Option<"level", "level", "::xfc::RecomputeLevel", "::xfc::RecomputeLevel::cheap", "what may be recomputed",
                        [{::llvm::cl::values(clEnumValN(::xfc::RecomputeLevel::cheap, "cheap", "what is bound by memory"),
                                             clEnumValN(::xfc::RecomputeLevel::most, "most", "all that lowers the peak"))}]>];
  let statistics = [Statistic<"values", "values", "values no longer kept">,
                    Statistic<"copies", "ops copied", "ops of the forward part that run again">];
}

#endif
