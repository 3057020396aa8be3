// RUN: not %xfc-opt %s --split-input-file --xfc-set-cache-type=type=int8 2>&1 | FileCheck %s
// RUN: not %xfc-opt %s --split-input-file --xfc-set-cache-type=type=int4 2>&1 | FileCheck %s --check-prefix=TYPE
// TYPE: error: cache type int4: expected bf16 or int8

!t = !xfc.rows<target, 16xf32>
!c = !xfc.rows<cache, 16xf32>

// Attention that is not fused.
// CHECK: set-cache-type-invalid.mlir:[[@LINE+1]]:1: error: 'self.k' is read by an op that reads no rows of 'i8'; only fused attention does (xfc-fuse-attention)
func.func @decode_step(%q: !t {xfc.name = "target", xfc.role = "input"}, %old: !c {xfc.name = "self.k", xfc.role = "state"})
    -> (!xfc.pairs<target, cache, 2xf32>, !c {xfc.name = "self.k", xfc.alias = 1}) {
  %now = xfc.cache_write %old, %q : (!c, !t) -> !c
  %s = xfc.scores %q, %now : (!t, !c) -> !xfc.pairs<target, cache, 2xf32>
  return %s, %now : !xfc.pairs<target, cache, 2xf32>, !c
}
