// Products with a vocabulary, fused with what is computed from their logits while they are in the cache.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V3 < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN-V4 < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V4 < %t

!x = !xfc.rows<target, 40xf32>
!ids = !xfc.rows<target, i32>
!number = !xfc.rows<target, f32>
!w = tensor<192x40xf32>
!logits = !xfc.rows<target, 192xf32>

// Nothing reads the logits, so they stay in scratch, where a row needs all of them at once: 72 x 192 beside the tile of
// the product.
// PLAN:        plan.kernel @linear_cross_entropy_192x40 attributes {packing = [unit, @pack_transposed_192x40, unit, unit], partition = #plan.partition<rows per 72 times 1>, scratch = 73728 : i64}
// PLAN-V4:     plan.kernel @linear_cross_entropy_192x40 attributes {packing = [unit, @pack_transposed_192x40, unit, unit], partition = #plan.partition<rows per 84 times 1>, scratch = 86016 : i64}
// CHECK-LABEL: func.func @linear_cross_entropy_192x40(
// CHECK-NOT:   rw = 1
// CHECK:       scf.for {{.*}} = %c0_i64 to %c3_i64 step %c1_i64
// V3:          func.call @product_6x16_rows_fetching_2_fetching_rows_2(
// V4:          func.call @product_6x64_rows_fetching_4_fetching_rows_2(
// CHECK:       func.call @product_5x
// Then one pass over a row takes the largest logit and the sum, and a second one the sum of the exponentials, which are
// not stored.
// CHECK:       :4 = scf.for {{.*}} = %c0_i64 to %c192_i64 step %c32_i64
// CHECK-COUNT-2: vector.extract
// CHECK:       :4 = scf.for {{.*}} = %c0_i64 to %c192_i64 step %c64_i64
// CHECK-COUNT-4: arith.shli {{.*}} : vector<16xi32>
// CHECK-NOT:   llvm.store
// CHECK:       vector.extract
// CHECK:       math.log
// CHECK-COUNT-2: llvm.store {{.*}} : f32
// CHECK-NOT:   llvm.store
// CHECK:       return
func.func @loss(%x: !x, %w: !w, %labels: !ids, %e: tensor<f32>) -> (!number, !number) {
  %loss, %nll, %logits, %lse = xfc.linear_cross_entropy %x, %w, %labels, %e : (!x, !w, !ids, tensor<f32>) -> (!number, !number, !logits, !number)
  return %loss, %nll : !number, !number
}

// Both ops need the same packed weight. The logits are the result: their exponentials overwrite them, and then their
// gradient, with one division per row. A row without a label becomes zeros.
// PLAN:        plan.kernel @linear_cross_entropy_with_grad_192x40 attributes {packing = [unit, @pack_transposed_192x40, unit, unit, unit, unit], partition = #plan.partition<rows per 72 times 1>, scratch = 18432 : i64}
// PLAN-V4:     plan.kernel @linear_cross_entropy_with_grad_192x40 attributes {packing = [unit, @pack_transposed_192x40, unit, unit, unit, unit], partition = #plan.partition<rows per 84 times 1>, scratch = 21504 : i64}
// CHECK-LABEL: func.func @linear_cross_entropy_with_grad_192x40(
// CHECK:       rw = 1
// CHECK:       func.call @product_6x
// CHECK:       :4 = scf.for {{.*}} = %c0_i64 to %c192_i64 step %c32_i64
// CHECK:       :4 = scf.for {{.*}} = %c0_i64 to %c192_i64 step %c64_i64
// CHECK-COUNT-4: llvm.store {{.*}} : vector<16xf32>
// CHECK:       scf.yield
// CHECK:       scf.if
// CHECK-COUNT-1: arith.divf {{.*}} : f32
// CHECK:       scf.for {{.*}} = %c0_i64 to %c192_i64 step %c16_i64
// CHECK-NOT:   {{arith.shli|arith.divf}}
// CHECK:       vector.fma
// CHECK:       llvm.store {{.*}} : vector<16xf32>
// The label's share is subtracted last.
// CHECK:       llvm.store {{.*}} : f32
// CHECK:       } else {
// CHECK-NEXT:  scf.for {{.*}} = %c0_i64 to %c192_i64 step %c16_i64
// CHECK-NOT:   {{llvm.load|arith.divf|call}}
// CHECK:       llvm.store
func.func @with_grad(%x: !x, %w: !w, %b: tensor<192xf32>, %labels: !ids, %e: tensor<f32>, %d: !number) -> (!number, !logits) {
  %loss, %nll, %dlogits = xfc.linear_cross_entropy_with_grad %x, %w, %b, %labels, %e, %d : (!x, !w, tensor<192xf32>, !ids, tensor<f32>, !number) -> (!number, !number, !logits)
  return %loss, %dlogits : !number, !logits
}

// A chunk is one of two slabs of 128 columns, whatever the number of rows. Its logits stay in scratch, followed by
// those of the excluded tokens, which count for the log-sum-exp but are no candidates.
// PLAN:        plan.kernel @linear_candidates_192x40 attributes {packing = [unit, @pack_transposed_192x40, unit], partition = #plan.partition<rows per 72 times 2>, scratch = 59904 : i64}
// PLAN-V4:     plan.kernel @linear_candidates_192x40 attributes {packing = [unit, @pack_transposed_192x40, unit], partition = #plan.partition<rows per 84 times 2>, scratch = 69888 : i64}
// CHECK-LABEL: func.func @linear_candidates_192x40(
// CHECK-NOT:   rw = 1
// CHECK:       arith.remui %arg1, %c2_i64
// CHECK:       func.call @product_6x
// CHECK:       func.call @product_5x
// Only the slab that has the wanted token, or an excluded one, reads its logit.
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       scf.if
// CHECK:       scf.if
// CHECK:       scf.if
// CHECK:       :4 = scf.for {{.*}} step %c64_i64
// CHECK:       :4 = scf.for {{.*}} step %c64_i64
// CHECK:       math.log
// CHECK:       :2 = scf.for {{.*}} step %c64_i64
// CHECK:       math.ctpop
// CHECK:       llvm.store {{.*}} : vector<4xi32>
// CHECK:       llvm.store {{.*}} : vector<4xf32>
// CHECK:       llvm.store {{.*}} : f32
// CHECK-NOT:   {{llvm.store|call}}
// CHECK:       return
func.func @candidates(%x: !x, %w: !w, %wanted: !ids) -> (!xfc.rows<target, 8xi32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, 2xf32>, !number) {
  %t, %n, %lse, %wl = xfc.linear_candidates %x, %w, %wanted {excluded = array<i64: 0, 100>, slab = 128 : i64} : (!x, !w, !ids) -> (!xfc.rows<target, 8xi32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, 2xf32>, !number)
  return %t, %n, %lse, %wl : !xfc.rows<target, 8xi32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, 2xf32>, !number
}
