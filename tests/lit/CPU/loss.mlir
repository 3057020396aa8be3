// Losses visit rows in vectors of 64 bytes on every instruction set, so that their sums do not depend on it.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --implicit-check-not=call < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --implicit-check-not=call < %t

!logits = !xfc.rows<target, 136xf32>
!ids = !xfc.rows<target, i32>
!number = !xfc.rows<target, f32>

// One pass takes the largest logit and the sum, in two chains each; a second one the sum of the exponentials, in four
// chains. The exponentials are not stored, and a row takes one logarithm.
// PLAN:        plan.kernel @cross_entropy_2 attributes {partition = #plan.partition<rows per 60 times 1>}
// CHECK-LABEL: func.func @cross_entropy_2(
// CHECK:       :4 = scf.for {{.*}} = %c0_i64 to %c128_i64 step %c32_i64
// CHECK-COUNT-2: llvm.load {{.*}} -> vector<16xf32>
// CHECK-NOT:   {{llvm.load|vector.shuffle}}
// CHECK:       scf.yield
// The lanes after the last of 136 logits are the lowest number for the largest one, and 0 for the sum.
// CHECK:       %[[LAST:.*]] = llvm.load {{.*}} -> vector<16xf32>
// CHECK-NEXT:  arith.select %[[LANES:.*]], %[[LAST]], %[[LOWEST:.*]] :
// CHECK:       arith.select %[[LANES]], %[[LAST]], %[[ZERO:.*]] :
// CHECK-COUNT-2: vector.extract
// CHECK:       :4 = scf.for {{.*}} = %c0_i64 to %c128_i64 step %c64_i64
// CHECK-COUNT-4: arith.shli {{.*}} : vector<16xi32>
// CHECK-NOT:   {{llvm.store|vector.shuffle}}
// CHECK:       scf.yield
// CHECK-COUNT-1: vector.extract
// CHECK-COUNT-1: math.log {{.*}} : f32
// A row without a label reads the first logit in its place, and no branch depends on it.
// CHECK:       arith.maxsi %[[LABEL:.*]], %c0_i64
// CHECK:       %[[KNOWN:.*]] = arith.cmpi sgt, %[[LABEL]], %c-1_i64
// CHECK:       arith.select %[[KNOWN]]
// CHECK:       arith.select %[[KNOWN]]
// CHECK-NOT:   {{math.log|arith.divf|scf.if|scf.for}}
// CHECK-COUNT-3: llvm.store {{.*}} : f32
// CHECK-NOT:   llvm.store
// CHECK:       return
func.func @cross_entropy(%l: !logits, %labels: !ids, %e: tensor<f32>) -> (!number, !number, !number) {
  %loss, %nll, %lse = xfc.cross_entropy %l, %labels, %e : (!logits, !ids, tensor<f32>) -> (!number, !number, !number)
  return %loss, %nll, %lse : !number, !number, !number
}

// The gradient takes one pass, because the log-sum-exp is given. The label's is computed before its logit may be
// overwritten, and stored afterwards. A row without a label has zeros.
// PLAN:        plan.kernel @cross_entropy_grad_136 attributes {partition = #plan.partition<rows per 60 times 1>}
// CHECK-LABEL: func.func @cross_entropy_grad_136(
// CHECK:       %[[KNOWN:.*]] = arith.cmpi sgt, %[[LABEL:.*]], %c-1_i64
// CHECK:       arith.maxsi %[[LABEL]], %c0_i64
// CHECK:       %[[OF_LABEL:.*]] = arith.select %[[KNOWN]], {{.*}} : f32
// CHECK-NEXT:  scf.for {{.*}} = %c0_i64 to %c128_i64 step %c16_i64
// CHECK-COUNT-1: llvm.load {{.*}} -> vector<16xf32>
// CHECK-NOT:   {{llvm.load|arith.divf|math.}}
// CHECK:       arith.shli
// CHECK:       llvm.store {{.*}} : vector<16xf32>
// CHECK-NEXT:  }
// CHECK:       llvm.intr.masked.store
// CHECK:       scf.if %[[KNOWN]] {
// CHECK:       llvm.store %[[OF_LABEL]]
func.func @cross_entropy_grad(%l: !logits, %d: !number, %labels: !ids, %lse: !number, %e: tensor<f32>) -> !logits {
  %g = xfc.cross_entropy_grad %l, %d, %labels, %lse, %e : (!logits, !number, !ids, !number, tensor<f32>) -> !logits
  return %g : !logits
}

// Three passes: the largest number, the sum of the exponentials, and the result.
// PLAN:        plan.kernel @log_softmax_136 attributes {partition = #plan.partition<rows per 60 times 1>}
// CHECK-LABEL: func.func @log_softmax_136(
// CHECK:       :4 = scf.for {{.*}} = %c0_i64 to %c128_i64 step %c64_i64
// CHECK-COUNT-4: arith.cmpf olt, {{.*}} : vector<16xf32>
// CHECK:       vector.extract
// CHECK:       :4 = scf.for {{.*}} = %c0_i64 to %c128_i64 step %c64_i64
// CHECK-COUNT-4: arith.shli {{.*}} : vector<16xi32>
// CHECK-NOT:   llvm.store
// CHECK:       vector.extract
// CHECK:       math.log {{.*}} : f32
// CHECK:       scf.for {{.*}} = %c0_i64 to %c128_i64 step %c16_i64
// CHECK-NOT:   arith.shli
// CHECK:       arith.subf {{.*}} : vector<16xf32>
// CHECK:       llvm.store
// CHECK:       llvm.intr.masked.store
// CHECK-NOT:   {{scf.for|math.log}}
// CHECK:       return
func.func @log_softmax(%l: !logits) -> !logits {
  %p = xfc.log_softmax %l : !logits
  return %p : !logits
}

// The sum of dy in one pass, in four chains, and the result in a second one.
// CHECK-LABEL: func.func @log_softmax_grad_136(
// CHECK:       :4 = scf.for {{.*}} = %c0_i64 to %c128_i64 step %c64_i64
// CHECK-COUNT-4: arith.addf
// CHECK-NOT:   {{vector.shuffle|arith.shli}}
// CHECK:       scf.yield
// CHECK:       vector.extract
// CHECK:       scf.for {{.*}} = %c0_i64 to %c128_i64 step %c16_i64
// CHECK-COUNT-2: llvm.load {{.*}} -> vector<16xf32>
// CHECK:       arith.shli
// CHECK:       llvm.store
func.func @log_softmax_grad(%dy: !logits, %y: !logits) -> !logits {
  %p = xfc.log_softmax_grad %dy, %y : !logits
  return %p : !logits
}

// PLAN:        plan.kernel @nll_2 attributes {partition = #plan.partition<rows per 60 times 1>}
// CHECK-LABEL: func.func @nll_2(
// CHECK:       :4 = scf.for {{.*}} = %c0_i64 to %c128_i64 step %c64_i64
// CHECK-COUNT-1: vector.extract
// A row without a label has no loss.
// CHECK:       %[[UNKNOWN:.*]] = arith.cmpi slt, {{.*}}, %c0_i64
// CHECK-NEXT:  :2 = scf.if %[[UNKNOWN]]
// CHECK-NEXT:  scf.yield
// CHECK-NEXT:  } else {
// CHECK-NOT:   {{vector.extract|arith.divf|math.log}}
// CHECK:       return
func.func @nll(%p: !logits, %labels: !ids, %e: tensor<f32>) -> (!number, !number) {
  %loss, %nll = xfc.nll %p, %labels, %e : (!logits, !ids, tensor<f32>) -> (!number, !number)
  return %loss, %nll : !number, !number
}

// A row has the same number everywhere, except where the label is; it is stored without being read.
// CHECK-LABEL: func.func @nll_grad_136(
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK-COUNT-1: arith.subf
// CHECK:       %[[OF_LABEL:.*]] = arith.subf
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK-NOT:   {{llvm.load|arith.mulf}}
// CHECK:       %[[EVEN:.*]] = vector.broadcast {{.*}} to vector<16xf32>
// CHECK:       llvm.store %[[EVEN]]
// CHECK:       scf.if
// CHECK-NOT:   llvm.load
// CHECK:       llvm.store %[[OF_LABEL]]
func.func @nll_grad(%d: !number, %labels: !ids, %e: tensor<f32>) -> !logits {
  %g = xfc.nll_grad %d, %labels, %e : (!number, !ids, tensor<f32>) -> !logits
  return %g : !logits
}

// With a teacher's distribution, the shares of the three other tokens are subtracted one by one. A missing one counts
// as 0 at token 0.
// PLAN:        plan.kernel @nll_grad_32 attributes {partition = #plan.partition<rows per 64 times 1>}
// CHECK-LABEL: func.func @nll_grad_32(
// CHECK:       scf.for {{.*}} = %c0_i64 to %c3_i64 step %c1_i64
// CHECK:       %[[MISSING:.*]] = arith.cmpi slt, {{.*}}, %c0_i64
// CHECK:       arith.select %[[MISSING]], {{.*}} : f32
// CHECK-NEXT:  arith.select %[[MISSING]], %c0_i64
// CHECK-NOT:   scf.if
// CHECK:       llvm.store
func.func @teacher(%d: !number, %labels: !xfc.rows<target, 4xi32>, %shares: !xfc.rows<target, 5xf32>) -> !xfc.rows<target, 32xf32> {
  %g = xfc.nll_grad %d, %labels, %shares : (!number, !xfc.rows<target, 4xi32>, !xfc.rows<target, 5xf32>) -> !xfc.rows<target, 32xf32>
  return %g : !xfc.rows<target, 32xf32>
}
