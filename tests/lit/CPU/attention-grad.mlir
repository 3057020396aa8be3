// The gradients of fused attention are computed from blocks of scores in scratch: no pairs are stored.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V3 --implicit-check-not=atomic < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V4 --implicit-check-not=atomic < %t

!rows = !xfc.rows<source, 64xf32>
!lse = !xfc.rows<source, 2xf32>

// Probabilities are recomputed from the log-sum-exp. A chunk is one head of keys of one sequence; scratch has 48 x 128
// probabilities and their gradients, and copies of rows.
// PLAN:        plan.kernel @attention_grad_64 attributes {partition = #plan.partition<sequences per 1 times 2>, scratch = 160256 : i64}
// CHECK-LABEL: func.func @attention_grad_64(
// CHECK-NOT:   arith.constant 1401181199
// CHECK:       arith.constant -1253254570
// CHECK-NOT:   arith.constant 1401181199
// CHECK-NOT:   math.log
// CHECK:       scf.for {{.*}} step %c128_i64
// CHECK:       scf.for {{.*}} step %c48_i64
// Blocks of queries that see none of the keys are left out.
// CHECK:       scf.if
// Two products give the scores and the gradients of the probabilities.
// CHECK:       func.call @product_n({{.*}}, %false)
// CHECK:       func.call @product_n({{.*}}, %false)
// CHECK-NOT:   func.call
// For each query, one sum over lanes (do o), seven rounds of Philox in training, and one pass over its keys, which has
// no branch, no division and no sum over lanes, and stores to scratch.
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       vector.fma {{.*}} : vector<16xf32>
// CHECK-COUNT-1: vector.extract
// CHECK:       scf.for {{.*}} step %c64_i64
// CHECK-COUNT-4: arith.cmpi uge, {{.*}} : vector<16xi32>
// CHECK:       } else {
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK-NOT:   {{scf.if|arith.divf|vector.extract|masked.store}}
// CHECK:       arith.shli
// CHECK-NOT:   {{scf.if|arith.divf|vector.extract|masked.store}}
// CHECK-COUNT-2: llvm.store {{.*}} : vector<16xf32>
// CHECK-NOT:   {{llvm.store|scf.if}}
// CHECK:       }
// dv and dk of the keys add up over the blocks of queries in scratch, and dq is computed anew and added to the rows.
// CHECK:       func.call @product_t({{.*}}, %true)
// CHECK:       func.call @product_t({{.*}}, %true)
// CHECK:       func.call @product_n({{.*}}, %false)
// V3:          arith.addf {{.*}} : vector<8xf32>
// V4:          arith.addf {{.*}} : vector<16xf32>
// CHECK-NEXT:  llvm.store
// CHECK-NOT:   {{func.call|masked.store|atomic|math.log}}
// CHECK:       return
func.func @grad(%d: !rows, %q: !rows, %k: !rows, %v: !rows, %o: !rows, %lse: !lse) -> (!rows, !rows, !rows) {
  %dq, %dk, %dv = xfc.attention_grad %d, %q, %k, %v, %o, %lse {heads = 2 : i64, scale = 0.125, padding, rate = 0.1, id = 3 : i64} : (!rows, !rows, !rows, !rows, !rows, !lse) -> (!rows, !rows, !rows)
  return %dq, %dk, %dv : !rows, !rows, !rows
}

// Two heads of queries share one of keys: one chunk takes both, one after the other, and adds to dk. Nothing reads dv,
// so it is not computed. The gradient of the bias is summed by distance in a line of scratch.
// PLAN:        plan.kernel @attention_grad_64_2 attributes {partition = #plan.partition<sequences per 1 times 1>, scratch = 170496 : i64}
// CHECK-LABEL: func.func @attention_grad_64_2(
// CHECK-NOT:   {{arith.xori}}
// CHECK:       scf.for {{.*}} = %c0_i64 to %c2_i64 step %c1_i64
// CHECK:       scf.for {{.*}} step %c128_i64
// CHECK:       func.call @product_n({{.*}}, %false)
// CHECK:       func.call @product_n({{.*}}, %false)
// CHECK:       func.call @product_t({{.*}}, %true)
// CHECK-NOT:   func.call @product_t
// CHECK:       func.call @product_n({{.*}}, %false)
// CHECK-NOT:   {{func.call|arith.xori}}
// CHECK:       return
func.func @shared(%d: !rows, %q: !rows, %k: !xfc.rows<source, 32xf32>, %o: !rows, %lse: !lse, %b: tensor<600x4xf32>) -> (!rows, !xfc.rows<source, 32xf32>, !xfc.rows<source, 4xf32>) {
  %dq, %dk, %dv, %db = xfc.attention_grad %d, %q, %k, %k, %o, %lse, %b {heads = 2 : i64, scale = 0.125, causal} : (!rows, !rows, !xfc.rows<source, 32xf32>, !xfc.rows<source, 32xf32>, !rows, !lse, tensor<600x4xf32>) -> (!rows, !xfc.rows<source, 32xf32>, !xfc.rows<source, 32xf32>, !xfc.rows<source, 4xf32>)
  return %dq, %dk, %db : !rows, !xfc.rows<source, 32xf32>, !xfc.rows<source, 4xf32>
}
