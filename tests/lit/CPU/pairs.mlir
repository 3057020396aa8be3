// Unfused attention: a chunk is one head of one sequence, and rows of pairs are computed by whole vectors with a mask
// at their ends. Sums over lanes are taken once per query, in vectors of 64 bytes on every instruction set.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V3 --implicit-check-not=atomic < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V4 --implicit-check-not=atomic < %t

!rows = !xfc.rows<source, 64xf32>
!pairs = !xfc.pairs<source, source, padding, 2xf32>
!bias = tensor<600x4xf32>

// A chunk transposes blocks of up to 256 keys to scratch, and multiplies blocks of up to 48 queries by them. Rows of
// scores in scratch are 272 elements apart, so that they spread over the cache's sets.
// PLAN:        plan.kernel @scores_2 attributes {partition = #plan.partition<sequences per 1 times 2>, scratch = 93184 : i64}
// CHECK-LABEL: func.func @scores_2(
// CHECK:       scf.for {{.*}} step %c256_i64
// The transposition stays in registers: it loads as many rows as a vector has lanes, and shuffles them.
// V3:          scf.for {{.*}} step %c8_i64
// V4:          scf.for {{.*}} step %c16_i64
// V3:          scf.for {{.*}} = %c0_i64 to %c32_i64 step %c8_i64
// V3-COUNT-8:  llvm.load {{.*}} -> vector<8xf32>
// V3-COUNT-24: vector.shuffle
// V3-COUNT-8:  llvm.store {{.*}} : vector<8xf32>
// V4:          scf.for {{.*}} = %c0_i64 to %c32_i64 step %c16_i64
// V4-COUNT-16: llvm.load {{.*}} -> vector<16xf32>
// V4-COUNT-64: vector.shuffle
// V4-COUNT-16: llvm.store {{.*}} : vector<16xf32>
// CHECK-NOT:   vector.shuffle
// CHECK:       scf.for {{.*}} step %c48_i64
// CHECK:       func.call @product_n({{.*}}, %c32_i64, %{{.*}}, %c272_i64, %arg3, %c272_i64, {{.*}}, %c32_i64, %false)
// The next sequence's scores follow a block's last row at once.
// CHECK-NOT:   llvm.store {{.*}} : vector<{{8|16}}xf32>
// CHECK:       llvm.intr.masked.store
// CHECK:       return

// Two vectors of columns at a time, then one that is left; six rows with 16 registers, eight with 32, and then what is
// left of them.
// CHECK-LABEL: func.func @product_n(
// V3:          func.call @tile_n6x2(
// V3:          func.call @tile_n5x2(
// V3:          func.call @tile_n6x1(
// V3:          func.call @tile_n5x1(
// V4:          func.call @tile_n8x2(
// V4:          func.call @tile_n7x2(
// V4:          func.call @tile_n8x1(
// V4:          func.call @tile_n7x1(

// The sums stay in registers over the inner dimension, four steps of which are unrolled. A step loads two vectors of
// the right operand, and an element of each row of the left one. It stores nothing.
// V3-LABEL:    func.func @tile_n6x2(
// V4-LABEL:    func.func @tile_n8x2(
// CHECK:       scf.for {{.*}} step %c4_i64
// CHECK-NOT:   {{llvm.store|scf.if|call|arith.divf}}
// CHECK-COUNT-2: llvm.load {{.*}} -> vector<{{8|16}}xf32>
// V3-COUNT-48: vector.fma {{.*}} : vector<8xf32>
// V4-COUNT-64: vector.fma {{.*}} : vector<16xf32>
// CHECK-NOT:   {{vector.fma|llvm.store|scf.if|call}}
// CHECK:       scf.yield
// CHECK:       scf.for {{.*}} step %c1_i64
// V3-COUNT-12: vector.fma
// V4-COUNT-16: vector.fma
// CHECK-NOT:   vector.fma
// What is there is added once, after all steps, if at all.
// CHECK:       scf.if %arg7
// V3-COUNT-12: arith.addf {{.*}} : vector
// V4-COUNT-16: arith.addf {{.*}} : vector
// V3-COUNT-12: llvm.store
// V4-COUNT-16: llvm.store
// CHECK:       return
func.func @scores(%q: !rows, %k: !rows) -> !pairs {
  %s = xfc.scores %q, %k : (!rows, !rows) -> !pairs
  return %s : !pairs
}

// What a query sees begins and ends at keys that are computed once per query: by subtraction if the keys are at
// consecutive positions, and otherwise by counting. No branch depends on a pair.
// PLAN:        plan.kernel @mask_2 attributes {partition = #plan.partition<sequences per 1 times 2>}
// CHECK-LABEL: func.func @mask_2(
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       arith.subi {{.*}}, %c3_i64
// CHECK-NEXT:  scf.if
// CHECK:       arith.addi {{.*}}, %c4_i64
// CHECK-NEXT:  scf.if
// CHECK:       scf.for {{.*}} step %c{{8|16}}_i64
// CHECK-NOT:   {{scf.if|scf.for}}
// CHECK:       arith.select {{.*}}, %{{.*}}, %[[HIDDEN:[a-z0-9_]+]] : vector<{{8|16}}xi1>, vector<{{8|16}}xf32>
// CHECK:       arith.select {{.*}}, %[[HIDDEN]], %{{.*}} : vector<{{8|16}}xi1>, vector<{{8|16}}xf32>
// CHECK-NEXT:  llvm.intr.masked.store
func.func @mask(%x: !pairs) -> !pairs {
  %m = xfc.mask %x {reach = 3 : i64} : !pairs
  return %m : !pairs
}

// The factors of up to 256 keys are put into scratch first. Eight Philox counters serve 64 keys at consecutive
// positions.
// PLAN:        plan.kernel @dropout_2 attributes {partition = #plan.partition<sequences per 1 times 2>, scratch = 1280 : i64}
// CHECK-LABEL: func.func @dropout_2(
// CHECK-NOT:   arith.constant 1401181199
// CHECK:       arith.constant -1253254570
// CHECK-NOT:   arith.constant 1401181199
// CHECK:       %[[TRAINING:.*]] = arith.cmpi ne, {{.*}} : i32
// CHECK:       scf.for {{.*}} step %c256_i64
// CHECK:       scf.if %[[TRAINING]]
// CHECK:       scf.if
// CHECK:       scf.for {{.*}} step %c64_i64
// CHECK-COUNT-4: arith.cmpi uge, {{.*}} : vector<16xi32>
// CHECK:       } else {
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK-NOT:   scf.if
// CHECK:       llvm.store {{.*}} : f32
// CHECK:       scf.for {{.*}} step %c{{8|16}}_i64
// CHECK-NOT:   {{arith.xori|scf.if}}
// CHECK:       %[[DROPPED:.*]] = arith.mulf %[[X:.*]], %
// CHECK-NEXT:  arith.select %[[TRAINING]], %[[DROPPED]], %[[X]]
// CHECK-NEXT:  llvm.intr.masked.store
func.func @dropout(%x: !pairs) -> !pairs {
  %m = xfc.dropout %x {rate = 0.25, id = 7 : i64} : !pairs
  return %m : !pairs
}

// Three passes over a row: the largest score, the exponentials and their sum, and a multiplication, with one division
// per row. A row that sees nothing becomes 0, by selections.
// PLAN:        plan.kernel @softmax_2 attributes {partition = #plan.partition<sequences per 1 times 2>}
// CHECK-LABEL: func.func @softmax_2(
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK-NOT:   {{vector.shuffle|masked.store}}
// CHECK:       scf.yield
// CHECK-COUNT-1: vector.extract
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK-NOT:   vector.shuffle
// CHECK:       llvm.intr.masked.store
// CHECK:       scf.yield
// CHECK-COUNT-1: vector.extract
// CHECK-COUNT-1: arith.divf {{.*}} : f32
// CHECK-NOT:   arith.divf
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK-NOT:   arith.divf
// CHECK:       arith.mulf {{.*}} : vector<16xf32>
// CHECK:       llvm.intr.masked.store
// CHECK:       return
func.func @softmax(%x: !pairs) -> !pairs {
  %p = xfc.softmax %x : !pairs
  return %p : !pairs
}

// CHECK-LABEL: func.func @softmax_grad_2(
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK-COUNT-2: llvm.load {{.*}} -> vector<16xf32>
// CHECK-NOT:   vector.shuffle
// CHECK:       scf.yield
// CHECK-COUNT-1: vector.extract
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK-COUNT-2: llvm.load {{.*}} -> vector<16xf32>
// CHECK:       arith.subf
// CHECK-NEXT:  %[[DS:.*]] = arith.mulf
// CHECK:       llvm.intr.masked.store %[[DS]]
// CHECK-NOT:   arith.divf
// CHECK:       return
func.func @softmax_grad(%dp: !pairs, %p: !pairs) -> !pairs {
  %d = xfc.softmax_grad %dp, %p : !pairs
  return %d : !pairs
}

// Probabilities are read in place, with the number of keys as the stride; the values of up to 256 keys are gathered in
// scratch. Products of several blocks add up.
// PLAN:        plan.kernel @combine_64 attributes {partition = #plan.partition<sequences per 1 times 2>, scratch = 38912 : i64}
// CHECK-LABEL: func.func @combine_64(
// CHECK:       scf.for {{.*}} step %c48_i64
// CHECK:       scf.for {{.*}} step %c256_i64
// CHECK:       func.call @product_n(%{{.*}}, %[[KEYS:.*]], %arg3, %c32_i64, %{{.*}}, %c32_i64, %{{.*}}, %c{{4|2}}_i64, %{{.*}}, %true)
func.func @combine(%p: !pairs, %v: !rows) -> !rows {
  %o = xfc.combine %p, %v : (!pairs, !rows) -> !rows
  return %o : !rows
}

// The transposed product reads the probabilities in place, too, column by column. Rows that are no keys are cleared, if
// there are any.
// PLAN:        plan.kernel @combine_transposed_64 attributes {partition = #plan.partition<sequences per 1 times 2>, scratch = 38912 : i64}
// CHECK-LABEL: func.func @combine_transposed_64(
// CHECK:       %[[FEWER:.*]] = arith.cmpi slt
// CHECK-NEXT:  scf.if %[[FEWER]]
// CHECK:       scf.for {{.*}} step %c256_i64
// CHECK:       scf.for {{.*}} step %c48_i64
// CHECK:       func.call @product_t(

// Adjacent columns of the left operand are elements of one row: the loop carries one address of it, besides the right
// one.
// V3-LABEL:    func.func @tile_t6x2(
// V4-LABEL:    func.func @tile_t8x2(
// V3:          :14 = scf.for {{.*}} step %c4_i64
// V4:          :18 = scf.for {{.*}} step %c4_i64
// CHECK-NOT:   {{llvm.store|scf.if|call}}
// V3-COUNT-48: vector.fma {{.*}} : vector<8xf32>
// V4-COUNT-64: vector.fma {{.*}} : vector<16xf32>
// CHECK-NOT:   {{vector.fma|llvm.store|scf.if|call}}
// CHECK:       scf.yield
func.func @combine_transposed(%p: !pairs, %x: !rows) -> !rows {
  %o = xfc.combine_transposed %p, %x : (!pairs, !rows) -> !rows
  return %o : !rows
}

// Two heads that share a head of keys are one chunk, which adds up their products without an atomic operation.
// PLAN:        plan.kernel @combine_transposed_32 attributes {partition = #plan.partition<sequences per 1 times 1>, scratch = 38912 : i64}
// CHECK-LABEL: func.func @combine_transposed_32(
// CHECK:       scf.for {{.*}} step %c256_i64
// CHECK:       scf.for {{.*}} = %c0_i64 to %c2_i64 step %c1_i64
// CHECK:       scf.for {{.*}} step %c48_i64
// CHECK:       func.call @product_t({{.*}}, %true)
func.func @shared(%p: !pairs, %x: !rows) -> !xfc.rows<source, 32xf32> {
  %o = xfc.combine_transposed %p, %x : (!pairs, !rows) -> !xfc.rows<source, 32xf32>
  return %o : !xfc.rows<source, 32xf32>
}

// A chunk has 512 distances. There is a loop for the distances of each bucket, so that none computes a logarithm: of
// the four buckets of a direction, two hold one distance each, and the others 2 .. 5 and 6 .. 599.
// PLAN:        plan.kernel @distance_bias_600x4 attributes {partition = #plan.partition<one per 1 times 2>}
// CHECK-LABEL: func.func @distance_bias_600x4(
// CHECK-NOT:   math.log
// CHECK:       arith.minsi %{{.*}}, %c1_i64
// CHECK:       arith.minsi %{{.*}}, %c2_i64
// CHECK:       %[[TWO:.*]] = arith.maxsi %{{.*}}, %c2_i64
// CHECK-NEXT:  %[[SIX:.*]] = arith.minsi %{{.*}}, %c6_i64
// CHECK-NEXT:  scf.for {{.*}} = %[[TWO]] to %[[SIX]] step %c1_i64
// CHECK:       arith.minsi %{{.*}}, %c600_i64
// CHECK-NOT:   math.log
// CHECK:       return
// Without a table, a bias is the distance times a slope, the same in both directions: 1/16 and 1/256 of two heads.
// CHECK-LABEL: func.func @distance_bias_600x4_2(
// CHECK-DAG:   %[[FIRST:.*]] = arith.constant -6.250000e-02 : f32
// CHECK-DAG:   %[[SECOND:.*]] = arith.constant -3.906250e-03 : f32
// CHECK:       %[[OF_FIRST:.*]] = arith.select %{{.*}}, %[[FIRST]]
// CHECK:       %[[SLOPE:.*]] = arith.select %{{.*}}, %[[SECOND]], %[[OF_FIRST]]
// CHECK:       %[[DISTANCE:.*]] = arith.sitofp
// CHECK-NEXT:  %[[BIAS:.*]] = arith.mulf %[[DISTANCE]], %[[SLOPE]]
// CHECK-NEXT:  llvm.store %[[BIAS]]
// CHECK:       llvm.store %[[BIAS]]
func.func @distance_bias(%t: tensor<8x2xf32>) -> (!bias, !bias) {
  %0 = xfc.distance_bias %t {max_distance = 16 : i64, both_directions} : (tensor<8x2xf32>) -> !bias
  %1 = xfc.distance_bias : () -> !bias
  return %0, %1 : !bias, !bias
}

// A chunk has one bucket, and adds up the distances that are its.
// PLAN:        plan.kernel @distance_bias_grad_8x2 attributes {partition = #plan.partition<one per 1 times 8>}
// CHECK-LABEL: func.func @distance_bias_grad_8x2(
// CHECK-NOT:   math.log
// CHECK:       arith.cmpi eq, %arg1, %c7_i64
// CHECK-NEXT:  scf.if
// CHECK-NEXT:  scf.for {{.*}} = %c12_i64 to %c600_i64 step %c1_i64
func.func @distance_bias_grad(%d: !bias) -> tensor<8x2xf32> {
  %0 = xfc.distance_bias_grad %d {max_distance = 16 : i64} : (!bias) -> tensor<8x2xf32>
  return %0 : tensor<8x2xf32>
}

// PLAN:        plan.kernel @add_distance_bias_2 attributes {partition = #plan.partition<sequences per 1 times 2>}
// CHECK-LABEL: func.func @add_distance_bias_2(
// CHECK:       %[[MINUS:.*]] = arith.subi %c0_i64, %[[D:[0-9]+]] :
// CHECK-NEXT:  %[[DISTANCE:.*]] = arith.maxsi %[[D]], %[[MINUS]]
// CHECK-NEXT:  arith.cmpi sgt, %[[D]], %c0_i64
// CHECK:       arith.muli %[[DISTANCE]], %c4_i64
// CHECK-NOT:   scf.if
// CHECK:       arith.addf
// CHECK-NEXT:  llvm.store
func.func @add_distance_bias(%x: !pairs, %b: !bias) -> !pairs {
  %0 = xfc.add_distance_bias %x, %b : (!pairs, !bias) -> !pairs
  return %0 : !pairs
}

// A head of a sequence has its own two features of the rows, which the chunk clears before it adds to them, leaving
// others as they are.
// PLAN:        plan.kernel @sum_distances_4 attributes {partition = #plan.partition<sequences per 1 times 2>}
// CHECK-LABEL: func.func @sum_distances_4(
// CHECK:       %[[TWO:.*]] = arith.constant dense<[true, true, false,
// CHECK:       llvm.intr.masked.store %{{.*}}, %{{.*}}, %[[TWO]]
// CHECK-NOT:   {{llvm.store .* : vector}}
// CHECK:       arith.addf {{.*}} : f32
// CHECK-NEXT:  llvm.store
// CHECK-NOT:   {{llvm.store .* : vector}}
// CHECK:       return
func.func @sum_distances(%x: !pairs) -> !xfc.rows<source, 4xf32> {
  %0 = xfc.sum_distances %x : (!pairs) -> !xfc.rows<source, 4xf32>
  return %0 : !xfc.rows<source, 4xf32>
}

// A chunk is a whole sequence, because the mean of a link is over its heads.
// PLAN:        plan.kernel @alignment_loss attributes {partition = #plan.partition<sequences per 1 times 1>}
// CHECK-LABEL: func.func @alignment_loss(
// CHECK:       scf.for {{.*}} = %c0_i64 to %c4_i64 step %c1_i64 {{.*}} -> (f32)
// CHECK-COUNT-1: math.log {{.*}} : f32
// CHECK-NOT:   math.log
// CHECK:       return
// The gradient clears the pairs of a head by vectors, and stores those of the links if the head is the one that is
// guided.
// PLAN:        plan.kernel @alignment_loss_grad_2 attributes {partition = #plan.partition<sequences per 1 times 2>}
// CHECK-LABEL: func.func @alignment_loss_grad_2(
// CHECK:       scf.for {{.*}} step %c{{8|16}}_i64
// CHECK:       llvm.intr.masked.store
// CHECK:       scf.if
// CHECK:       scf.for {{.*}} = %c0_i64 to %c4_i64 step %c1_i64
// CHECK:       llvm.store {{.*}} : f32
func.func @alignment(%loss: !xfc.rows<source, f32>, %p: !pairs, %links: !xfc.rows<source, 4xi32>, %shares: !xfc.rows<source, 4xf32>) -> (!xfc.rows<source, f32>, !xfc.rows<source, f32>, !pairs) {
  %sum, %alignment, %means = xfc.alignment_loss %loss, %p, %links, %shares : (!xfc.rows<source, f32>, !pairs, !xfc.rows<source, 4xi32>, !xfc.rows<source, 4xf32>) -> (!xfc.rows<source, f32>, !xfc.rows<source, f32>, !xfc.rows<source, 4xf32>)
  %dp = xfc.alignment_loss_grad %sum, %means, %links, %shares {head = 1 : i64} : (!xfc.rows<source, f32>, !xfc.rows<source, 4xf32>, !xfc.rows<source, 4xi32>, !xfc.rows<source, 4xf32>) -> !pairs
  return %sum, %alignment, %dp : !xfc.rows<source, f32>, !xfc.rows<source, f32>, !pairs
}
