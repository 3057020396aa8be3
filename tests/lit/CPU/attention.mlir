// Fused attention: a chunk is one head of one sequence. It keeps a block of scores in scratch, with an online softmax
// over the blocks of keys, and stores no pairs unless they are a result.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V3 --implicit-check-not=atomic < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V4 --implicit-check-not=atomic < %t

!rows = !xfc.rows<source, 64xf32>
!lse = !xfc.rows<source, 2xf32>

// Scratch has a block of 48 x 256 scores, queries, outputs, keys and values, and a number of each query and key.
// PLAN:        plan.kernel @attention_64 attributes {partition = #plan.partition<sequences per 1 times 2>, scratch = 133632 : i64}
// CHECK-LABEL: func.func @attention_64(
// CHECK-NOT:   arith.constant 1401181199
// CHECK:       arith.constant -1253254570
// CHECK-NOT:   arith.constant 1401181199
// A single query, as in decoding, packs no keys and calls no product.
// CHECK:       %[[SINGLE:.*]] = arith.cmpi eq, {{.*}}, %c1_i64
// CHECK:       scf.if %[[SINGLE]]
// CHECK-NOT:   func.call
// It takes as many dot products at once as their sums fill half of the registers, and adds up the lanes of all of them
// together: a transposition, and then sums of vectors.
// CHECK:       scf.for {{.*}} step %c256_i64
// CHECK:       scf.for {{.*}} step %c{{8|16}}_i64
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK-COUNT-2: llvm.intr.prefetch
// CHECK-NOT:   prefetch
// V3:          :4 = scf.for {{.*}} = %c0_i64 to %c32_i64 step %c16_i64
// V3-COUNT-4:  vector.fma {{.*}} : vector<16xf32>
// V3:          :4 = scf.for {{.*}} = %c0_i64 to %c32_i64 step %c16_i64
// V3-COUNT-24: vector.shuffle {{.*}} : vector<8xf32>, vector<8xf32>
// V3-COUNT-7:  arith.addf {{.*}} : vector<8xf32>
// V4:          :16 = scf.for {{.*}} = %c0_i64 to %c32_i64 step %c16_i64
// V4-COUNT-16: vector.fma {{.*}} : vector<16xf32>
// V4-COUNT-64: vector.shuffle {{.*}} : vector<16xf32>, vector<16xf32>
// V4-COUNT-15: arith.addf {{.*}} : vector<16xf32>
// CHECK-NOT:   {{vector.extract|arith.addf}}
// CHECK:       llvm.store {{.*}} : vector<{{8|16}}xf32>
// CHECK-NEXT:  }
// CHECK-NOT:   func.call
// The values are added in registers, key by key. Of the next head's keys and values, two cache lines each are
// prefetched, keys along with the scores and values with their sums.
// V3:          :4 = scf.for {{.*}} step %c1_i64 {{.*}} -> (vector<8xf32>,
// V3-COUNT-2:  llvm.intr.prefetch
// V3-COUNT-4:  vector.fma
// V4:          :2 = scf.for {{.*}} step %c1_i64 {{.*}} -> (vector<16xf32>,
// V4-COUNT-2:  llvm.intr.prefetch
// V4-COUNT-2:  vector.fma
// CHECK-NOT:   {{llvm.store|vector.fma}}
// CHECK:       scf.yield

// Several queries: blocks of 48, which are multiplied by the scale as they are copied, against blocks of 256 keys.
// CHECK:       } else {
// CHECK:       scf.for {{.*}} step %c48_i64
// CHECK:       arith.mulf {{.*}} : vector<16xf32>
// CHECK:       scf.for {{.*}} step %c256_i64
// Keys are transposed and values copied only if this block of queries is the first, or there are several blocks of
// keys.
// CHECK:       arith.ori
// CHECK:       scf.if
// CHECK:       vector.shuffle
// CHECK:       func.call @product_n({{.*}}, %false)
// CHECK-NOT:   func.call
// A row of scores takes three passes in two chains: the mask and the largest score, the exponentials and their sum, and
// dropout in training. The sum over lanes is taken once.
// CHECK:       :2 = scf.for {{.*}} step %c32_i64
// CHECK-NOT:   {{scf.if|vector.extract}}
// CHECK-COUNT-2: arith.cmpf olt, {{.*}} : vector<16xf32>
// CHECK-NOT:   {{scf.if|vector.extract}}
// CHECK:       scf.yield
// CHECK-COUNT-1: vector.extract
// CHECK:       :2 = scf.for {{.*}} step %c32_i64
// CHECK-NOT:   {{scf.if|vector.extract|arith.divf}}
// CHECK-COUNT-2: arith.shli {{.*}} : vector<16xi32>
// CHECK-NOT:   {{scf.if|vector.extract|arith.divf}}
// CHECK:       scf.yield
// Earlier sums and outputs shrink to the new maximum, from the second block of keys on.
// CHECK:       %[[LATER:.*]] = arith.cmpi sgt, {{.*}}, %c0_i64
// CHECK-NEXT:  scf.if %[[LATER]]
// CHECK-COUNT-2: vector.extract
// Eight counters of seven rounds drop 64 keys, as in unfused attention: a word has the numbers of two.
// CHECK:       scf.for {{.*}} step %c64_i64
// CHECK-COUNT-12: arith.muli {{.*}} : vector<8xi64>
// CHECK-NOT:   {{arith.muli .* : vector}}
// CHECK-COUNT-4: arith.cmpi uge, {{.*}} : vector<16xi32>
// CHECK:       func.call @product_n({{.*}}, %true)
// CHECK-NOT:   func.call
// An output takes one division per query, and the log-sum-exp one logarithm.
// CHECK:       arith.divf {{.*}} : f32
// CHECK:       arith.mulf
// CHECK:       llvm.store
// CHECK:       math.log {{.*}} : f32
// CHECK-NOT:   {{arith.divf|math.log|func.call}}
// CHECK:       return
func.func @attention(%q: !rows, %k: !rows, %v: !rows) -> (!rows, !lse) {
  %o, %lse = xfc.attention %q, %k, %v {heads = 2 : i64, scale = 0.125, padding, rate = 0.1, id = 3 : i64} : (!rows, !rows, !rows) -> (!rows, !lse)
  return %o, %lse : !rows, !lse
}

// The scores become probabilities in place of the pairs that are returned: they are stored before the softmax, and
// finished when the log-sum-exp is known. Without dropout, no random number is drawn.
// CHECK-LABEL: func.func @attention_64_2(
// CHECK-NOT:   arith.xori
// CHECK:       scf.for {{.*}} step %c48_i64
// CHECK:       func.call @product_n({{.*}}, %false)
// CHECK:       llvm.intr.masked.store
// CHECK:       func.call @product_n({{.*}}, %true)
// CHECK:       math.log {{.*}} : f32
// CHECK:       arith.shli {{.*}} : vector<{{8|16}}xi32>
// CHECK:       llvm.intr.masked.store
// CHECK-NOT:   arith.xori
// CHECK:       return
func.func @weights(%q: !rows, %k: !rows, %v: !rows) -> (!rows, !xfc.pairs<source, source, 2xf32>) {
  %o, %lse, %w = xfc.attention %q, %k, %v {heads = 2 : i64, scale = 0.125} : (!rows, !rows, !rows) -> (!rows, !lse, !xfc.pairs<source, source, 2xf32>)
  return %o, %w : !rows, !xfc.pairs<source, source, 2xf32>
}

// In a decoding step, two heads of queries share one of keys and values. Keys in the cache are at consecutive
// positions, so what is in reach of a query is computed without a look at positions of keys, and earlier blocks of keys
// are not read.
// PLAN:        plan.kernel @attention_64_3 attributes {decoding, partition = #plan.partition<sequences per 1 times 2>
// CHECK-LABEL: func.func @attention_64_3(
// CHECK:       %[[HEAD:.*]] = arith.remui %arg1, %c2_i64
// CHECK:       arith.divui %[[HEAD]], %c2_i64
// CHECK:       scf.if
// CHECK:       %[[AFTER:.*]] = arith.addi {{.*}}, %c10_i64
// CHECK-NEXT:  arith.minsi %[[AFTER]]
// CHECK:       %[[BEFORE:.*]] = arith.subi {{.*}}, %c9_i64
// CHECK-NEXT:  arith.minsi %[[BEFORE]]
// CHECK:       scf.for %{{.*}} = %{{[0-9]+}} to %{{[0-9]+}} step %c256_i64
// CHECK-NOT:   func.call
// CHECK:       } else {
// CHECK:       scf.for {{.*}} step %c48_i64
// Blocks of keys are counted from the start of the list, so that a row's sums do not depend on what queries are
// computed with it.
// CHECK:       %[[BLOCK:.*]] = arith.divui {{.*}}, %c256_i64
// CHECK-NEXT:  %[[FROM:.*]] = arith.muli %[[BLOCK]], %c256_i64
// CHECK:       scf.for {{.*}} = %[[FROM]] to %{{.*}} step %c256_i64
// Nothing reads the log-sum-exp, so no logarithm is taken.
// CHECK-NOT:   math.log
// CHECK:       return
func.func @decode(%q: !xfc.rows<target, 64xf32>, %k: !xfc.rows<cache, 32xf32>) -> !xfc.rows<target, 64xf32> {
  %o, %lse = xfc.attention %q, %k, %k {heads = 2 : i64, scale = 0.125, reach = 9 : i64} : (!xfc.rows<target, 64xf32>, !xfc.rows<cache, 32xf32>, !xfc.rows<cache, 32xf32>) -> (!xfc.rows<target, 64xf32>, !xfc.rows<target, 2xf32>)
  return %o : !xfc.rows<target, 64xf32>
}

// The biases of the head take a line of scratch, indexed by the distance, so that neighboring keys have neighboring
// biases: they are added by vectors to keys at consecutive positions, and otherwise one by one.
// PLAN:        plan.kernel @attention_64_4 attributes {partition = #plan.partition<sequences per 1 times 2>, scratch = 138752 : i64}
// CHECK-LABEL: func.func @attention_64_4(
// CHECK:       scf.for {{.*}} step %c48_i64
// CHECK:       func.call @product_n({{.*}}, %false)
// CHECK:       scf.if
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK:       arith.addf {{.*}} : vector<16xf32>
// CHECK-NEXT:  llvm.store
// CHECK:       } else {
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       arith.addf {{.*}} : f32
// CHECK-NEXT:  llvm.store
// CHECK:       :2 = scf.for {{.*}} step %c32_i64
func.func @bias(%q: !rows, %k: !rows, %v: !rows, %b: tensor<600x4xf32>) -> !rows {
  %o, %lse = xfc.attention %q, %k, %v, %b {heads = 2 : i64, scale = 0.125, causal} : (!rows, !rows, !rows, tensor<600x4xf32>) -> (!rows, !lse)
  return %o : !rows
}
