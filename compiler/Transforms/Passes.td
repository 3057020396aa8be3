// The passes over the xfc dialect, in the order of the pipeline. Types are shortened in the examples.
#ifndef XFC_PASSES_TD
#define XFC_PASSES_TD

include "mlir/Pass/PassBase.td"

def FuseAttention : Pass<"xfc-fuse-attention", "::mlir::func::FuncOp"> {
  let summary = "Fuses scores, scale, bias, mask, softmax, dropout and combine into xfc.attention";
  let description = [{
    No (query, key) pair is stored any more. A missing scale counts as 1; a missing mask is fine where nothing is
    causal; dropout and a bias by distance are optional. Probabilities that are also a result of the function become the third result.

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
  let options = [Option<"biases", "biases", "bool", /*default=*/"true", "whether the target has an xfc.attention with a bias">];
  let statistics = [Statistic<"fused", "attentions fused", "attentions that no longer store pairs">,
                    Statistic<"withWeights", "attentions with weights", "fused attentions that also return probabilities">];
}

def FuseAddNorm : Pass<"xfc-fuse-add-norm", "::mlir::func::FuncOp"> {
  let summary = "Fuses a residual add and the norm of the sum into xfc.add_norm";
  let description = [{
    One pass over memory instead of two. Other uses of the sum (the residual stream of pre-norm models) read `sum`.

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
    Log-probabilities are never stored, and the gradient can take the place of the logits. Where the logits are used
    otherwise, only log_softmax and nll are fused, into xfc.cross_entropy.

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
    After differentiation. The loss's own gradient is known beforehand, since the loss is a sum over tokens: each row's
    logits become their gradient while they are in cache, instead of in a walk over a vocabulary-wide buffer.

    ```mlir
    %loss, %nll, %z, %lse = xfc.linear_cross_entropy %x, %w, %b, %labels, %smoothing
    %dloss = xfc.fill %factor
    %dz = xfc.cross_entropy_grad %z, %dloss, %labels, %lse, %smoothing
    // becomes
    %dloss = xfc.fill %factor
    %loss, %nll, %dz = xfc.linear_cross_entropy_with_grad %x, %w, %b, %labels, %smoothing, %dloss
    ```
  }];
  let statistics = [Statistic<"fused", "losses fused", "losses that leave the gradient of their logits">];
}

def FuseCandidates : Pass<"xfc-fuse-candidates", "::mlir::func::FuncOp"> {
  let summary = "Fuses output projection, log_softmax and candidates into xfc.linear_candidates and xfc.merge_candidates";
  let description = [{
    A step of decoding stores no row of the vocabulary's width: each slab of columns leaves its best tokens and its
    log-sum-exp while it is in cache. Slabs depend on the vocabulary alone: of 512 columns, and narrower where there
    would be only one, so that a single row keeps two threads busy.

    ```mlir
    %z = xfc.linear %x, %w bias %b
    %p = xfc.log_softmax %z
    %tokens, %best, %wanted_log_prob = xfc.candidates %p, %wanted {excluded = array<i64: 0, 2, 3>}
    // becomes
    %t, %l, %lse, %wanted_logit = xfc.linear_candidates %x, %w, %b, %wanted {excluded = array<i64: 0, 2, 3>, slab = 512}
    %tokens, %best, %wanted_log_prob = xfc.merge_candidates %t, %l, %lse, %wanted_logit
    ```
  }];
  let statistics = [Statistic<"fused", "projections fused", "projections that choose their candidates">];
}

def MergeProjections : Pass<"xfc-merge-projections", "::mlir::ModuleOp"> {
  let summary = "Merges projections of one attention that read the same rows into one linear";
  let description = [{
    The parameters' parts are concatenated, which the layout of parameters makes free. So a group must be the
    same in every function of the module: q, k, v of a self-attention; k, v of a cross-attention, also in @encode.
    A gated pair stays apart: activation and product fuse into its two linears' epilogues.

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
    scalar `loss_scale` is the gradient of each row's loss.

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
  let summary = "Adds clipping and a step of each optimizer (@update, @update.RULE), and @accumulate, sums of gradients";
  let description = [{
    ```mlir
    func.func @update(parameters, gradients, moment1s, moment2s, %hyper, %max_norm) { // likewise of the other optimizers
      %s = xfc.square_sum %g         // for each parameter
      %factor, %norm = xfc.clip_factor %max_norm, %s, ...
      %p1, %m1, %v1 = xfc.optimize "adam" %hyper, %factor parameters(%p) gradients(%g) states(%m, %v) // for each parameter
      return new parameters, new moment1s, new moment2s, %norm
    }
    func.func @accumulate(gradients, sums) { // of the batches of a step before this one
      %sum = xfc.add %g, %s                  // for each parameter, in the gradient's place
      return sums
    }
    ```
  }];
  let statistics = [Statistic<"updated", "parameters updated", "parameters that have a gradient">];
}

def FuseOptimizer : Pass<"xfc-fuse-optimizer", "::mlir::ModuleOp"> {
  let summary = "Makes one square_sum and one step of an optimizer of those of all parameters";
  let description = [{
    One walk over memory. The operands go in the order of the layout of parameters: as declared, but groups that some
    function concatenates follow each other. Refused where a parameter has no gradient, since the walk would go through it.

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
  let summary = "Lets the optimizer write the packed weights of the next step besides the parameters";
  let description = [{
    Weights are packed again in the walk that changes them, while their new values are in cache, and not in a walk of
    their own. Refused for an optimizer that holds only a part of a concatenated weight, or no weight of a matrix product, and where these
    products round their operands.

    ```mlir
    %p, %m, %v = xfc.optimize "adam" %hyper, %factor parameters(%w) gradients(%g) states(%m, %v)
    // becomes
    %p, %m, %v = xfc.optimize "adam" %hyper, %factor parameters(%w) gradients(%g) states(%m, %v) {packs}
    ```
  }];
  let statistics = [Statistic<"packing", "optimizers that pack", "steps that write packed weights">];
}

def FuseNormGrad : Pass<"xfc-fuse-norm-grad", "::mlir::func::FuncOp"> {
  let summary = "Fuses a norm's gradients to its rows and to its weights into xfc.norm_grad_with_parts";
  let description = [{
    One pass over dy and x instead of two: the gradient of some runs of rows comes with sums over them, which are added up
    after it.

    ```mlir
    %dx = xfc.norm_grad %dy, %x, %w, %stats {eps = 1.0e-5}
    %dw, %db = xfc.norm_weight_grad %dy, %x, %stats
    // becomes
    %dx, %dws, %dbs = xfc.norm_grad_with_parts %dy, %x, %w, %stats {eps = 1.0e-5}
    %dw, %db = xfc.sum_parts %dws, %dbs
    ```
  }];
  let options = [Option<"parts", "parts", "int64_t", /*default=*/"32",
                        "runs of rows: as many threads (or blocks of a GPU) can share the work">];
  let statistics = [Statistic<"fused", "gradients fused", "norms whose gradients come in one pass">];
}

def FuseEpilogue : Pass<"xfc-fuse-epilogue", "::mlir::func::FuncOp"> {
  let summary = "Pulls elementwise ops after a linear or its input gradient into its epilogue";
  let description = [{
    An op is pulled in if its other operands exist before the linear, so nothing is reordered. Values of the epilogue
    used elsewhere become results, at most two; at most one dropout.

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

    relu's gradient reads the dropped activation if the gradient was dropped the same way: it is 0 where they differ,
    and the activation itself need not be kept. What is dropped of the gradient does not matter then, and none of it is.
  }];
  let statistics = [Statistic<"epilogues", "epilogues", "linears with an epilogue">,
                    Statistic<"pulled", "ops pulled in", "elementwise ops in epilogues">];
}

def SetComputeType : Pass<"xfc-set-compute-type", "::mlir::ModuleOp"> {
  let summary = "Makes products round their operands to a type before they multiply";
  let description = [{
    Every product of the module but attention's, or those of a copy of each function of `variants` that there is: the copy's name is the
    function's, a dot, and the type. Refused where a product is not defined in the type: gradients in int8, products of f64.

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
    Option<"type", "type", "::xfc::ComputeType", /*default=*/"::xfc::ComputeType::bf16", "what operands are rounded to",
           [{::llvm::cl::values(clEnumValN(::xfc::ComputeType::bf16, "bf16", "the nearest bf16"),
                                clEnumValN(::xfc::ComputeType::int8, "int8", "integers, with a factor for each row"))}]>,
    ListOption<"variants", "variants", "std::string", "functions that stay as they are and get a copy; none: all are changed">,
    Option<"attention", "attention", "bool", /*default=*/"false", "products of attention, too, for targets that have kernels for it">];
  let statistics = [Statistic<"changed", "products changed", "products that round their operands">];
}

def Recompute : Pass<"xfc-recompute", "::mlir::func::FuncOp"> {
  let summary = "Computes values of the forward part again where the backward part reads them, instead of keeping them";
  let description = [{
    The backward part begins with the op that reads `loss_scale`; functions without it stay as they are. A value is computed again,
    once, before its first use there, from values that are kept: by the op that made it; norms from the sum; what an epilogue makes
    of another result of its linear without the product. Same ops, same operands, same dropout ids: the same bits.

    Which values: those that lower the peak of live bytes, greedily, the fewest operations a byte first; operations and bytes
    are those of Analysis/Kernels. Level `cheap` takes only what does at most one operation a byte it moves, which is what
    memory bounds: norms, activations, dropout, embeddings. Level `most` has no such limit; it costs at most one more forward pass.
    No op runs again for a result that is not its first, as a norm for its statistics alone.

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
  let options = [Option<"level", "level", "::xfc::RecomputeLevel", "::xfc::RecomputeLevel::cheap", "what may be computed again",
                        [{::llvm::cl::values(clEnumValN(::xfc::RecomputeLevel::cheap, "cheap", "what is bound by memory"),
                                             clEnumValN(::xfc::RecomputeLevel::most, "most", "all that lowers the peak"))}]>];
  let statistics = [Statistic<"values", "values", "values no longer kept">,
                    Statistic<"copies", "ops copied", "ops of the forward part that run again">];
}

#endif
