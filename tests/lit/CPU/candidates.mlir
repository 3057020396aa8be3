// The most probable tokens of a row are found in two passes, without sorting and without branches that depend on single
// numbers.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V3 --implicit-check-not=call --implicit-check-not=arith.divf --implicit-check-not=scf.if < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V4 --implicit-check-not=call --implicit-check-not=arith.divf --implicit-check-not=scf.if < %t

// The row is copied to scratch, padded to 256 numbers with minus infinity, which also takes the place of the excluded
// tokens.
// PLAN:        plan.kernel @candidates_4 attributes {partition = #plan.partition<rows per 40 times 1>, scratch = 1024 : i64}
// CHECK-LABEL: func.func @candidates_4(
// CHECK:       %[[NONE:.*]] = arith.constant 0xFF800000 : f32
// V3:          scf.for {{.*}} = %c0_i64 to %c200_i64 step %c8_i64
// V4:          scf.for {{.*}} = %c0_i64 to %c192_i64 step %c16_i64
// CHECK:       llvm.store %[[NONE]], %arg3
// CHECK:       llvm.store %[[NONE]]
// The first pass keeps the two largest numbers of each lane, in two chains, by comparisons that ignore NaN.
// CHECK:       :4 = scf.for {{.*}} = %c0_i64 to %c256_i64 step %c64_i64
// V3-COUNT-8:  llvm.load {{.*}} -> vector<8xf32>
// V4-COUNT-4:  llvm.load {{.*}} -> vector<16xf32>
// CHECK-NOT:   {{llvm.load|llvm.store|vector.shuffle}}
// CHECK:       scf.yield
// The bound that at least four numbers reach comes from the lanes, once per row.
// CHECK:       %[[BOUND:.*]] = vector.extract
// CHECK-NOT:   vector.extract
// CHECK:       %[[BOUNDS:.*]] = vector.broadcast %{{.*}} : f32 to vector<{{8|16}}xf32>
// The second pass compares 64 numbers at a time, and visits only those that reach the bound: as many as bits are set.
// The list stays in registers, as a vector of tokens and one of numbers.
// CHECK:       :2 = scf.for {{.*}} = %c0_i64 to %c256_i64 step %c64_i64 {{.*}} -> (vector<4xi32>, vector<4xf32>)
// V3-COUNT-8:  arith.cmpf oge, {{.*}} : vector<8xf32>
// V4-COUNT-4:  arith.cmpf oge, {{.*}} : vector<16xf32>
// CHECK-NOT:   arith.cmpf oge
// CHECK:       %[[COUNT:.*]] = math.ctpop
// CHECK:       scf.for {{.*}} = %c0_i64 to %[[COUNT]] step %c1_i64
// CHECK:       math.cttz
// A number goes behind those that are equal to it, and the last one is dropped.
// CHECK:       arith.cmpf olt, {{.*}} : vector<4xf32>
// CHECK-NEXT:  vector.shuffle {{.*}} [0, 4, 5, 6] : vector<4xf32>
// CHECK-NEXT:  vector.shuffle {{.*}} [0, 4, 5, 6] : vector<4xi32>
// CHECK-NOT:   llvm.store
// CHECK:       scf.yield
// CHECK-NOT:   {{math.log|arith.subf}}
// CHECK:       llvm.store {{.*}} : vector<4xi32>
// CHECK:       llvm.store {{.*}} : vector<4xf32>
// CHECK:       llvm.store {{.*}} : f32
func.func @candidates(%l: !xfc.rows<target, 200xf32>, %wanted: !xfc.rows<target, i32>) -> (!xfc.rows<target, 4xi32>, !xfc.rows<target, 4xf32>, !xfc.rows<target, f32>) {
  %t, %b, %w = xfc.candidates %l, %wanted {excluded = array<i64: 0, 2>} : (!xfc.rows<target, 200xf32>, !xfc.rows<target, i32>) -> (!xfc.rows<target, 4xi32>, !xfc.rows<target, 4xf32>, !xfc.rows<target, f32>)
  return %t, %b, %w : !xfc.rows<target, 4xi32>, !xfc.rows<target, 4xf32>, !xfc.rows<target, f32>
}

// Without the excluded tokens' share, the log-sum-exp of the copy is subtracted from the list and from the wanted
// number.
// CHECK-LABEL: func.func @candidates_4_2(
// CHECK:       %[[SUM:.*]] = math.log {{.*}} : f32
// CHECK-NEXT:  %[[LSE:.*]] = arith.addf %{{.*}}, %[[SUM]]
// CHECK:       arith.subf {{.*}} : vector<4xf32>
// CHECK:       arith.subf %{{.*}}, %[[LSE]] : f32
func.func @renormalized(%l: !xfc.rows<target, 192xf32>, %wanted: !xfc.rows<target, i32>) -> (!xfc.rows<target, 4xf32>, !xfc.rows<target, f32>) {
  %t, %b, %w = xfc.candidates %l, %wanted {excluded = array<i64: 0>, renormalize} : (!xfc.rows<target, 192xf32>, !xfc.rows<target, i32>) -> (!xfc.rows<target, 4xi32>, !xfc.rows<target, 4xf32>, !xfc.rows<target, f32>)
  return %b, %w : !xfc.rows<target, 4xf32>, !xfc.rows<target, f32>
}

// The lists of three slabs are merged in their order. A list whose numbers are not above the last one found so far
// costs one comparison.
// PLAN:        plan.kernel @merge_candidates_4 attributes {partition = #plan.partition<rows per 64 times 1>}
// CHECK-LABEL: func.func @merge_candidates_4(
// CHECK-COUNT-1: math.log {{.*}} : f32
// CHECK:       :2 = scf.for {{.*}} = %c0_i64 to %c12_i64 step %c4_i64 {{.*}} -> (vector<4xi32>, vector<4xf32>)
// CHECK:       %[[LAST:.*]] = vector.extract %{{.*}}[3]
// CHECK-NEXT:  %[[LASTS:.*]] = vector.broadcast %[[LAST]]
// CHECK:       arith.cmpf olt, %[[LASTS]], {{.*}} : vector<4xf32>
// CHECK:       %[[COUNT:.*]] = math.ctpop
// CHECK:       scf.for {{.*}} = %c0_i64 to %[[COUNT]] step %c1_i64
// CHECK-NOT:   llvm.store
// CHECK:       scf.yield {{.*}} : i64, vector<4xi32>, vector<4xf32>
// CHECK:       scf.yield {{.*}} : vector<4xi32>, vector<4xf32>
// What is left without a number, or is not one, is token -1 at minus infinity.
// CHECK:       %[[SOME:.*]] = arith.cmpf olt, %[[NONE:.*]], %[[PROBS:.*]] : vector<4xf32>
// CHECK-NEXT:  arith.select %[[SOME]], {{.*}} : vector<4xi1>, vector<4xi32>
// CHECK-NEXT:  arith.select %[[SOME]], %[[PROBS]], %[[NONE]]
func.func @merge(%t: !xfc.rows<target, 12xi32>, %n: !xfc.rows<target, 12xf32>, %lse: !xfc.rows<target, 3xf32>, %wanted: !xfc.rows<target, f32>) -> (!xfc.rows<target, 4xi32>, !xfc.rows<target, 4xf32>, !xfc.rows<target, f32>) {
  %a, %b, %w = xfc.merge_candidates %t, %n, %lse, %wanted : (!xfc.rows<target, 12xi32>, !xfc.rows<target, 12xf32>, !xfc.rows<target, 3xf32>, !xfc.rows<target, f32>) -> (!xfc.rows<target, 4xi32>, !xfc.rows<target, 4xf32>, !xfc.rows<target, f32>)
  return %a, %b, %w : !xfc.rows<target, 4xi32>, !xfc.rows<target, 4xf32>, !xfc.rows<target, f32>
}
