// Elementwise kernels compute rows by whole vectors, eight elements of f32 with AVX2 and sixteen with AVX-512, and the
// end of a row by a masked store. They neither call functions nor branch.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V3 --implicit-check-not=call --implicit-check-not='{{math\.}}' < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V4 --implicit-check-not=call --implicit-check-not='{{math\.}}' < %t

!rows = !xfc.rows<source, 40xf32>
!pairs = !xfc.pairs<source, source, padding, 3xf32>

// A chunk has about 8192 elements, but no more than 64 rows. Its rows begin at 64 times its number, and end with the
// batch.
// PLAN:        plan.kernel @add_40 attributes {partition = #plan.partition<rows per 64 times 1>}
// CHECK-LABEL: func.func @add_40(
// CHECK:       %[[FROM:.*]] = arith.muli %arg1, %c64_i64
// CHECK:       %[[COUNT:.*]] = llvm.load {{.*}} -> i64
// CHECK-NEXT:  %[[AFTER:.*]] = arith.addi %[[FROM]], %c64_i64
// CHECK-NEXT:  %[[END:.*]] = arith.minsi %[[AFTER]], %[[COUNT]]
// CHECK-NEXT:  scf.for {{.*}} = %[[FROM]] to %[[END]] step %c1_i64
// Of 40 features, AVX2 computes five whole vectors, AVX-512 two, and then half a vector, without a second loop.
// CHECK-NOT:   scf.if
// V3:          scf.for %[[AT:.*]] = %c0_i64 to %c40_i64 step %c8_i64
// V4:          scf.for %[[AT:.*]] = %c0_i64 to %c32_i64 step %c16_i64
// CHECK-NEXT:  llvm.getelementptr
// CHECK-NEXT:  %[[X:.*]] = llvm.load {{.*}} -> [[VECTOR:vector<[0-9]+xf32>]]
// CHECK-NEXT:  llvm.getelementptr
// CHECK-NEXT:  %[[Y:.*]] = llvm.load {{.*}} -> [[VECTOR]]
// CHECK:       %[[SUM:.*]] = arith.addf %[[X]], %[[Y]] : [[VECTOR]]
// CHECK-NEXT:  llvm.store %[[SUM]], {{.*}} : [[VECTOR]]
// CHECK-NEXT:  }
// V3-NOT:      llvm.load
// V4:          arith.addf {{.*}} : vector<16xf32>
// V4:          llvm.intr.masked.store {{.*}} : vector<16xf32>, vector<16xi1>
// CHECK-NOT:   scf.if
func.func @add(%x: !rows, %y: !rows) -> !rows {
  %r = xfc.add %x, %y : !rows
  return %r : !rows
}

// CHECK-LABEL: func.func @multiply_40(
// CHECK:       arith.mulf {{.*}} : vector<{{8|16}}xf32>
func.func @multiply(%x: !rows, %y: !rows) -> !rows {
  %r = xfc.multiply %x, %y : !rows
  return %r : !rows
}

// An activation chooses by a mask. NaN is not above 0, so it becomes 0.
// CHECK-LABEL: func.func @relu_40(
// CHECK-NOT:   scf.if
// CHECK:       %[[X:.*]] = llvm.load {{.*}} -> [[VECTOR:vector<[0-9]+xf32>]]
// CHECK:       %[[ABOVE:.*]] = arith.cmpf olt, %[[ZERO:.*]], %[[X]] : [[VECTOR]]
// CHECK-NEXT:  arith.select %[[ABOVE]], %[[X]], %[[ZERO]]
func.func @relu(%x: !rows) -> !rows {
  %r = xfc.activation relu %x : !rows
  return %r : !rows
}

// The error function and the exponential in it are polynomials, with one division per vector and no call of a library.
// CHECK-LABEL: func.func @gelu_40(
// CHECK:       arith.divf {{.*}} : vector<{{8|16}}xf32>
// V3-NOT:      arith.divf
// CHECK-COUNT-14: vector.fma
// V4:          arith.divf
// CHECK:       return
func.func @gelu(%x: !rows) -> !rows {
  %r = xfc.activation gelu %x : !rows
  return %r : !rows
}

// The exponential is a polynomial times a power of two, which is shifted into the exponent: nine fused multiply-adds,
// no table, no call.
// CHECK-LABEL: func.func @silu_40(
// CHECK:       scf.for {{.*}} step %c{{8|16}}_i64
// CHECK-COUNT-9: vector.fma
// CHECK-NOT:   vector.fma
// CHECK:       arith.shli
// CHECK:       arith.divf
// CHECK:       llvm.store
func.func @silu(%x: !rows) -> !rows {
  %r = xfc.activation silu %x : !rows
  return %r : !rows
}

// Small arguments of tanh go another way, which is a selection as well.
// CHECK-LABEL: func.func @tanh_40(
// CHECK-NOT:   scf.if
// CHECK:       arith.divf
// CHECK:       arith.select
// CHECK:       llvm.store
// CHECK-NOT:   scf.if
func.func @tanh(%x: !rows) -> !rows {
  %r = xfc.activation tanh %x : !rows
  return %r : !rows
}

// CHECK-LABEL: func.func @gelu_tanh_40(
// CHECK-NOT:   scf.if
// CHECK:       arith.divf
func.func @gelu_tanh(%x: !rows) -> !rows {
  %r = xfc.activation gelu_tanh %x : !rows
  return %r : !rows
}

// CHECK-LABEL: func.func @squared_relu_40(
// CHECK:       %[[POSITIVE:.*]] = arith.select
// CHECK-NEXT:  arith.mulf %[[POSITIVE]], %[[POSITIVE]]
func.func @squared(%x: !rows) -> !rows {
  %r = xfc.activation squared_relu %x : !rows
  return %r : !rows
}

// CHECK-LABEL: func.func @relu_grad_40(
// CHECK:       %[[DY:.*]] = llvm.load {{.*}} -> vector
// CHECK:       %[[X:.*]] = llvm.load {{.*}} -> vector
// CHECK:       %[[ABOVE:.*]] = arith.cmpf olt, %[[ZERO:.*]], %[[X]]
// CHECK-NEXT:  arith.select %[[ABOVE]], %[[DY]], %[[ZERO]]
func.func @relu_grad(%dy: !rows, %x: !rows) -> !rows {
  %r = xfc.activation_grad relu %dy, %x : !rows
  return %r : !rows
}

// CHECK-LABEL: func.func @gelu_grad_40(
// CHECK-NOT:   scf.if
// CHECK:       arith.divf
// CHECK:       llvm.store
func.func @gelu_grad(%dy: !rows, %x: !rows) -> !rows {
  %r = xfc.activation_grad gelu %dy, %x : !rows
  return %r : !rows
}

// CHECK-LABEL: func.func @scale_40(
// CHECK:       %[[HALF:.*]] = arith.constant dense<5.000000e-01>
// CHECK:       arith.mulf %{{.*}}, %[[HALF]] : vector<{{8|16}}xf32>
func.func @scale(%x: !rows) -> !rows {
  %r = xfc.scale %x {factor = 0.5} : !rows
  return %r : !rows
}

// The pairs of a head are one block, so that they need no loop over rows. The store at the end has a mask: the next
// head, which may belong to another thread, follows at once.
// PLAN:        plan.kernel @add_3 attributes {partition = #plan.partition<sequences per 1 times 3>}
// CHECK-LABEL: func.func @add_3(
// CHECK:       arith.remui %arg1, %c3_i64
// CHECK-COUNT-1: scf.for
// CHECK:       arith.addf
// CHECK-NEXT:  llvm.store
// CHECK:       scf.if
// CHECK-NOT:   {{scf.for|llvm.store}}
// CHECK:       llvm.intr.masked.store
// CHECK-NOT:   {{scf.for|llvm.store}}
// CHECK:       return
func.func @add_pairs(%x: !pairs, %y: !pairs) -> !pairs {
  %r = xfc.add %x, %y : !pairs
  return %r : !pairs
}

// Tensors are cut into parts of 16384 elements, whatever their shape.
// PLAN:        plan.kernel @add_20x1000 attributes {partition = #plan.partition<elements per 16384 times 1>}
// CHECK-LABEL: func.func @add_20x1000(
// CHECK:       arith.muli %arg1, %c16384_i64
// CHECK:       arith.addf {{.*}} : vector<{{8|16}}xf32>
// CHECK-NEXT:  llvm.store
// CHECK:       llvm.intr.masked.store
func.func @add_tensors(%x: tensor<20x1000xf32>, %y: tensor<20x1000xf32>) -> tensor<20x1000xf32> {
  %r = xfc.add %x, %y : tensor<20x1000xf32>
  return %r : tensor<20x1000xf32>
}

// A dropout that keeps everything draws no random numbers: it multiplies by the factor, which is 1 outside training.
// CHECK-LABEL: func.func @kept_40(
// CHECK-NOT:   {{arith.xori|scf.if}}
// CHECK:       %[[TRAINING:.*]] = arith.cmpi ne
// CHECK-NEXT:  %[[FACTOR:.*]] = arith.select %[[TRAINING]]
// CHECK:       %[[FACTORS:.*]] = vector.broadcast %[[FACTOR]]
// CHECK:       arith.mulf {{.*}}, %[[FACTORS]]
// CHECK-NOT:   arith.xori
// CHECK:       return
func.func @kept(%x: !rows) -> !rows {
  %r = xfc.dropout %x {rate = 0.25, id = 7 : i64, kept} : !rows
  return %r : !rows
}

// Eight Philox counters give the numbers of 64 features: a counter has four words of two numbers. There are seven rounds,
// so the last key is the first one plus six times the constant; a round has two products of 32 x 32 bits, which AVX-512
// makes for all eight counters at once, and AVX2 for the even ones and the odd ones. All counters share the other three
// words, so that half of the products of the first two rounds are of scalars.
// CHECK-LABEL: func.func @dropout_64(
// CHECK-NOT:   arith.constant 1401181199
// CHECK:       arith.constant -1253254570
// CHECK-NOT:   arith.constant 1401181199
// CHECK:       %[[TRAINING:.*]] = arith.cmpi ne
// CHECK:       scf.if %[[TRAINING]] {
// CHECK:       scf.for {{.*}} step %c1_i64
// V3-COUNT-24: arith.muli {{.*}} : vector<4xi64>
// V4-COUNT-11: arith.muli {{.*}} : vector<8xi64>
// CHECK-NOT:   {{arith.muli .* : vector}}
// A number below a quarter of 2^16 drops its element. Each word of the counters has sixteen features: eight of lower
// halves, which are shifted, and eight of upper ones.
// CHECK:       arith.shli {{.*}} : vector<8xi32>
// CHECK-COUNT-4: arith.cmpi uge, {{.*}} : vector<{{8|16}}xi32>
// CHECK-NOT:   scf.for
// Outside training, the row is copied.
// CHECK:       } else {
// CHECK-NOT:   {{arith.xori|arith.mulf}}
// CHECK:       %[[X:.*]] = llvm.load {{.*}} -> vector<{{8|16}}xf32>
// CHECK:       llvm.store %[[X]]
// CHECK-NOT:   {{arith.xori|arith.mulf}}
// CHECK:       return
func.func @dropout(%x: !xfc.rows<source, 64xf32>) -> !xfc.rows<source, 64xf32> {
  %r = xfc.dropout %x {rate = 0.25, id = 7 : i64} : !xfc.rows<source, 64xf32>
  return %r : !xfc.rows<source, 64xf32>
}

// PLAN:        plan.kernel @zeros_9 attributes {partition = #plan.partition<rows per 64 times 1>}
// CHECK-LABEL: func.func @zeros_9(
// CHECK-NOT:   llvm.load {{.*}} -> vector
// V3:          llvm.store %[[ZERO:.*]], {{.*}} : vector<8xf32>
// V3:          llvm.intr.masked.store %[[ZERO]], {{.*}} : vector<8xf32>
// V4-NOT:      llvm.store
// V4:          llvm.intr.masked.store {{.*}} : vector<16xf32>
func.func @zeros() -> !xfc.rows<source, 9xf32> {
  %r = xfc.zeros : () -> !xfc.rows<source, 9xf32>
  return %r : !xfc.rows<source, 9xf32>
}

// The row number of the cache is the slot of the hypothesis.
// PLAN:        plan.kernel @cache_write_40 attributes {decoding, partition = #plan.partition<rows per 64 times 1>}
// CHECK-LABEL: func.func @cache_write_40(
// CHECK:       scf.for
// CHECK:       %[[SLOT:.*]] = llvm.load {{.*}} -> i32
// CHECK-NEXT:  %[[ROW:.*]] = arith.extsi %[[SLOT]]
// CHECK-NEXT:  arith.muli %[[ROW]], %{{.*}}
// CHECK:       %[[X:.*]] = llvm.load {{.*}} -> vector<{{8|16}}xf32>
// CHECK-NEXT:  llvm.getelementptr
// CHECK-NEXT:  llvm.store %[[X]]
func.func @cache(%c: !xfc.rows<cache, 40xf32>, %x: !xfc.rows<target, 40xf32>) -> !xfc.rows<cache, 40xf32> {
  %r = xfc.cache_write %c, %x : (!xfc.rows<cache, 40xf32>, !xfc.rows<target, 40xf32>) -> !xfc.rows<cache, 40xf32>
  return %r : !xfc.rows<cache, 40xf32>
}

// The offset of two positions is 80 elements of the table, added once for a row.
// CHECK-LABEL: func.func @add_positions_40(
// CHECK:       scf.for
// CHECK:       %[[POSITION:.*]] = llvm.load {{.*}} -> i32
// CHECK-NEXT:  %[[ROW:.*]] = arith.extsi %[[POSITION]]
// CHECK-NEXT:  arith.muli %[[ROW]], %c40_i64
// CHECK:       llvm.getelementptr inbounds %{{.*}}[80]
// CHECK:       scf.for
// CHECK:       arith.addf {{.*}} : vector<{{8|16}}xf32>
func.func @positions(%x: !rows, %t: tensor<100x40xf32>) -> !rows {
  %r = xfc.add_positions %x, %t {offset = 2 : i64} : (!rows, tensor<100x40xf32>) -> !rows
  return %r : !rows
}

// A rotation in halves takes sines and cosines from two halves of the table's row, and each element of a pair once.
// AVX-512 has more lanes than a head has pairs: it loads whole vectors, and masks what it stores, so that the second
// half survives the first in place.
// CHECK-LABEL: func.func @rotate_64(
// CHECK:       scf.for {{.*}} = %c0_i64 to %c2_i64 step %c1_i64
// V3-NOT:      vector.shuffle
// CHECK-COUNT-4: llvm.load {{.*}} -> [[VECTOR:vector<[0-9]+xf32>]]
// V3:          vector.fma
// V3-NEXT:     llvm.store {{.*}} : vector<8xf32>
// V3:          vector.fma
// V3-NEXT:     llvm.store {{.*}} : vector<8xf32>
// V4:          vector.fma
// V4-NEXT:     llvm.intr.masked.store {{.*}} : vector<16xf32>
// V4:          vector.fma
// V4-NEXT:     llvm.intr.masked.store {{.*}} : vector<16xf32>
// The features that are not rotated are copied.
// CHECK:       %[[REST:.*]] = llvm.load
// CHECK-NEXT:  llvm.store %[[REST]]

// A rotation of neighbors swaps them in a register, and loads a vector of pairs and one of sines and cosines.
// CHECK-LABEL: func.func @rotate_64_2(
// CHECK:       scf.for {{.*}} = %c0_i64 to %c2_i64 step %c1_i64
// V3:          scf.for {{.*}} = %c0_i64 to %c16_i64 step %c8_i64
// CHECK:       llvm.load {{.*}} -> vector
// CHECK:       llvm.load {{.*}} -> vector
// CHECK-NOT:   llvm.load
// CHECK:       vector.shuffle %[[TURN:.*]], %[[TURN]] [0, 0, 2, 2,
// CHECK:       vector.shuffle %[[PAIRS:.*]], %[[PAIRS]] [1, 0, 3, 2,
// CHECK:       vector.shuffle %[[TURN]], %[[TURN]] [1, 1, 3, 3,
// CHECK-NEXT:  vector.fma
// CHECK-NEXT:  llvm.store
func.func @rotate(%x: !xfc.rows<source, 64xf32>) -> (!xfc.rows<source, 64xf32>, !xfc.rows<source, 64xf32>) {
  %t = xfc.sinusoid : () -> tensor<50x16xf32>
  %y = xfc.rotate %x, %t {heads = 2 : i64, halves} : (!xfc.rows<source, 64xf32>, tensor<50x16xf32>) -> !xfc.rows<source, 64xf32>
  %z = xfc.rotate %y, %t {heads = 2 : i64, inverse} : (!xfc.rows<source, 64xf32>, tensor<50x16xf32>) -> !xfc.rows<source, 64xf32>
  return %y, %z : !xfc.rows<source, 64xf32>, !xfc.rows<source, 64xf32>
}
