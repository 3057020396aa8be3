// Ops declare their side effects, so that neither dead-code elimination nor CSE removes or merges an op that has one.
// RUN: %xfc-opt %s --canonicalize --cse | FileCheck %s

!t = tensor<4xf32>

// An optimizer step with `packs` writes packed weights, so it stays although its results are unused; a step without is dead.
// CHECK-LABEL: func.func @packs
// CHECK-COUNT-2: xfc.optimize "adam" {{.*}}packs
// CHECK-NOT: xfc.optimize "adam"
func.func @packs(%hyper: tensor<10xf32>, %factor: tensor<f32>, %p: !t, %g: !t, %m: !t, %v: !t) {
  %a:3 = xfc.optimize "adam" %hyper, %factor parameters(%p) gradients(%g) states(%m, %v) {packs} : (tensor<10xf32>, tensor<f32>, !t, !t, !t, !t) -> (!t, !t, !t)
  %b:3 = xfc.optimize "adam" %hyper, %factor parameters(%p) gradients(%g) states(%m, %v) {packs} : (tensor<10xf32>, tensor<f32>, !t, !t, !t, !t) -> (!t, !t, !t)
  %c:3 = xfc.optimize "adam" %hyper, %factor parameters(%p) gradients(%g) states(%m, %v) : (tensor<10xf32>, tensor<f32>, !t, !t, !t, !t) -> (!t, !t, !t)
  return
}

// A cache has value semantics: the caches before and after a write are two values, and CSE merges two equal writes.
// CHECK-LABEL: func.func @caches
// CHECK: %[[NEW:.*]] = xfc.cache_write
// CHECK-NOT: xfc.cache_write
// CHECK: return %{{.*}}, %[[NEW]], %[[NEW]]
func.func @caches(%cache: !xfc.rows<cache, 8xf32>, %rows: !xfc.rows<target, 8xf32>) -> (!xfc.rows<cache, 8xf32>, !xfc.rows<cache, 8xf32>, !xfc.rows<cache, 8xf32>) {
  %a = xfc.cache_write %cache, %rows : (!xfc.rows<cache, 8xf32>, !xfc.rows<target, 8xf32>) -> !xfc.rows<cache, 8xf32>
  %b = xfc.cache_write %cache, %rows : (!xfc.rows<cache, 8xf32>, !xfc.rows<target, 8xf32>) -> !xfc.rows<cache, 8xf32>
  return %cache, %a, %b : !xfc.rows<cache, 8xf32>, !xfc.rows<cache, 8xf32>, !xfc.rows<cache, 8xf32>
}

// Launches write memory, so they stay even if nothing reads their results.
// CHECK-LABEL: plan.program @launches
// CHECK-COUNT-2: plan.launch
plan.kernel @add {
^bb0(%x: !t, %y: !t):
  %a = xfc.add %x, %y : !t
  plan.return %a : !t
}
plan.program @launches(%x: !t, %y: !t) {
  %a = plan.launch @add(%x, %y) over source {flops = #plan.size<4>, traffic = #plan.size<48>} : (!t, !t) -> !t
  %b = plan.launch @add(%x, %y) over source {flops = #plan.size<4>, traffic = #plan.size<48>} : (!t, !t) -> !t
  plan.return
}
