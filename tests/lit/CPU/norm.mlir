// Norms take their sums in vectors of 64 bytes on every instruction set, so that results do not depend on it, and add
// up the lanes once per row. There are four independent chains of sums, or two for each of several sums.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V3 --implicit-check-not=call < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN-V4 < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V4 --implicit-check-not=call < %t

!rows = !xfc.rows<source, 200xf32>
!stats = !xfc.rows<source, 2xf32>
!w = tensor<200xf32>

// Two passes: the mean, then the sum of the squares of what differs from it. Of 200 features, three iterations sum 192.
// The lanes of the last vector beyond the row count as 0 in both passes.
// PLAN:        plan.kernel @norm_200 attributes {partition = #plan.partition<rows per 40 times 1>}
// CHECK-LABEL: func.func @norm_200(
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       %[[SUMS:.*]]:4 = scf.for {{.*}} = %c0_i64 to %c192_i64 step %c64_i64
// CHECK-COUNT-4: arith.addf {{.*}} : vector<16xf32>
// CHECK-NOT:   {{vector.shuffle|arith.addf|scf.if}}
// CHECK:       scf.yield
// CHECK:       %[[LAST:.*]] = llvm.load {{.*}} -> vector<16xf32>
// CHECK-NEXT:  %[[USED:.*]] = arith.select %[[LANES:.*]], %[[LAST]], %[[ZERO:.*]] :
// CHECK-NEXT:  arith.addf %[[SUMS]]#0, %[[USED]]
// CHECK-COUNT-1: vector.extract
// CHECK:       scf.for {{.*}} = %c0_i64 to %c192_i64 step %c64_i64
// CHECK:       %[[MEANS:.*]] = vector.broadcast %[[MEAN:.*]] : f32
// CHECK-NEXT:  %[[C:.*]] = arith.subf %{{.*}}, %[[MEANS]] : vector<16xf32>
// CHECK-NEXT:  arith.mulf %[[C]], %[[C]]
// CHECK:       scf.yield
// CHECK:       %[[REST_MEANS:.*]] = vector.broadcast %[[MEAN]]
// CHECK-NEXT:  %[[REST:.*]] = arith.subf %{{.*}}, %[[REST_MEANS]]
// CHECK-NEXT:  %[[SQUARES:.*]] = arith.mulf %[[REST]], %[[REST]]
// CHECK-NEXT:  arith.select %[[LANES]], %[[SQUARES]], %[[ZERO]]
// CHECK-COUNT-1: vector.extract
// The row's only square root and division.
// CHECK-COUNT-1: math.sqrt {{.*}} : f32
// CHECK-COUNT-1: arith.divf {{.*}} : f32
// CHECK-NOT:   {{math.sqrt|arith.divf|vector.extract}}
// The third pass writes the row.
// CHECK:       scf.for {{.*}} = %c0_i64 to %c192_i64 step %c16_i64
// CHECK-COUNT-3: llvm.load {{.*}} -> vector<16xf32>
// CHECK:       llvm.store {{.*}} : vector<16xf32>
// CHECK-NEXT:  }
// CHECK:       llvm.intr.masked.store
// The mean and the factor of the row follow each other.
// CHECK-COUNT-2: llvm.store {{.*}} : f32
// CHECK-NOT:   {{math.sqrt|arith.divf|scf.for|llvm.store}}
// CHECK:       return
func.func @norm(%x: !rows, %w: !w) -> (!rows, !stats) {
  %y, %s = xfc.norm %x, %w, %w {eps = 1.0e-5} : (!rows, !w, !w) -> (!rows, !stats)
  return %y, %s : !rows, !stats
}

// A root-mean-square norm has no mean to subtract, and takes one pass less. Nothing reads its statistics, so they are
// not stored.
// PLAN:        plan.kernel @norm_2048 attributes {partition = #plan.partition<rows per 4 times 1>}
// CHECK-LABEL: func.func @norm_2048(
// CHECK-NOT:   arith.subf
// CHECK:       scf.for {{.*}} = %c0_i64 to %c2048_i64 step %c64_i64
// CHECK-NOT:   arith.subf
// CHECK:       scf.for {{.*}} = %c0_i64 to %c2048_i64 step %c16_i64
// CHECK-NOT:   {{arith.subf|scf.for|masked.store|: f32, !llvm.ptr}}
// CHECK:       return
func.func @rms(%x: !xfc.rows<source, 2048xf32>, %w: tensor<2048xf32>) -> !xfc.rows<source, 2048xf32> {
  %y, %s = xfc.norm %x, %w {eps = 1.0e-5, kind = 1 : i32} : (!xfc.rows<source, 2048xf32>, tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !stats)
  return %y : !xfc.rows<source, 2048xf32>
}

// The sum is stored as it is computed, and read again from the cache for the statistics and the result.
// PLAN:        plan.kernel @add_norm_200 attributes {partition = #plan.partition<rows per 40 times 1>} {
// CHECK-LABEL: func.func @add_norm_200(
// CHECK:       scf.for {{.*}} = %c0_i64 to %c192_i64 step %c16_i64
// CHECK-COUNT-2: llvm.load {{.*}} -> vector<16xf32>
// CHECK:       %[[SUM:.*]] = arith.addf
// CHECK:       llvm.store %[[SUM]]
// CHECK:       scf.for {{.*}} = %c0_i64 to %c192_i64 step %c64_i64
// CHECK:       scf.for {{.*}} = %c0_i64 to %c192_i64 step %c64_i64
// CHECK:       math.sqrt
// CHECK:       scf.for {{.*}} = %c0_i64 to %c192_i64 step %c16_i64
// CHECK-COUNT-3: llvm.load {{.*}} -> vector<16xf32>
// CHECK:       llvm.store
func.func @add_norm(%x: !rows, %r: !rows, %w: !w) -> (!rows, !rows) {
  %y, %sum, %s = xfc.add_norm %x, %r, %w, %w {eps = 1.0e-5} : (!rows, !rows, !w, !w) -> (!rows, !rows, !stats)
  return %y, %sum : !rows, !rows
}

// If nothing reads the sum, it takes a row of scratch, and room for the lanes that its last vector may have beyond it.
// PLAN:        plan.kernel @add_norm_128 attributes {partition = #plan.partition<rows per 64 times 1>, scratch = 768 : i64}
// CHECK-LABEL: func.func @add_norm_128(
// CHECK:       scf.for {{.*}} = %c0_i64 to %c128_i64 step %c16_i64
// CHECK:       %[[SUM:.*]] = arith.addf
// CHECK-NEXT:  %[[AT:.*]] = llvm.getelementptr inbounds %arg3[
// CHECK-NEXT:  llvm.store %[[SUM]], %[[AT]]
// CHECK:       scf.for {{.*}} = %c0_i64 to %c128_i64 step %c64_i64
// CHECK-NEXT:  llvm.getelementptr inbounds %arg3[
func.func @add_norm_without_sum(%x: !xfc.rows<source, 128xf32>, %w: tensor<128xf32>) -> !xfc.rows<source, 128xf32> {
  %y, %sum, %s = xfc.add_norm %x, %x, %w, %w {eps = 1.0e-5} : (!xfc.rows<source, 128xf32>, !xfc.rows<source, 128xf32>, tensor<128xf32>, tensor<128xf32>) -> (!xfc.rows<source, 128xf32>, !xfc.rows<source, 128xf32>, !stats)
  return %y : !xfc.rows<source, 128xf32>
}

// One pass takes both sums, in two chains each, and a second one writes dx plus what is to be added. There is neither a
// square root nor a division, since the statistics have the factor.
// PLAN:        plan.kernel @norm_grad_200 attributes {partition = #plan.partition<rows per 40 times 1>}
// CHECK-LABEL: func.func @norm_grad_200(
// CHECK-NOT:   {{math.sqrt|arith.divf}}
// CHECK:       :4 = scf.for {{.*}} = %c0_i64 to %c192_i64 step %c32_i64
// CHECK-COUNT-6: llvm.load {{.*}} -> vector<16xf32>
// CHECK-NOT:   {{llvm.load|vector.shuffle|scf.if}}
// CHECK:       scf.yield
// CHECK-COUNT-2: vector.extract
// CHECK-NOT:   {{vector.extract|math.sqrt|arith.divf}}
// CHECK:       scf.for {{.*}} = %c0_i64 to %c192_i64 step %c16_i64
// CHECK-COUNT-4: llvm.load {{.*}} -> vector<16xf32>
// CHECK-NOT:   llvm.load
// CHECK:       llvm.store
// CHECK-NOT:   {{vector.extract|math.sqrt|arith.divf}}
// CHECK:       return
func.func @norm_grad(%dy: !rows, %x: !rows, %w: !w, %s: !stats) -> !rows {
  %dx = xfc.norm_grad %dy, %x, %w, %s, %x {eps = 1.0e-5} : (!rows, !rows, !w, !stats, !rows) -> !rows
  return %dx : !rows
}

// With epsilon beside the standard deviation, its slope needs the latter again: a third sum, one square root and one
// division. A row without variance has the slope 0 by a selection, and divides by 1.
// CHECK-LABEL: func.func @norm_grad_64(
// CHECK:       :6 = scf.for {{.*}} = %c0_i64 to %c64_i64 step %c32_i64
// CHECK-COUNT-3: vector.extract
// CHECK:       %[[STD:.*]] = math.sqrt
// CHECK-NEXT:  %[[VARIES:.*]] = arith.cmpf olt, %[[ZERO:.*]], %[[STD]]
// CHECK-NEXT:  %[[BY:.*]] = arith.select %[[VARIES]], %[[STD]]
// CHECK:       %[[SLOPE:.*]] = arith.divf %{{.*}}, %[[BY]]
// CHECK-NEXT:  arith.select %[[VARIES]], %[[SLOPE]], %[[ZERO]]
// CHECK-NOT:   {{math.sqrt|arith.divf}}
// CHECK:       return
func.func @norm_grad_eps_in_std(%dy: !xfc.rows<source, 64xf32>, %w: tensor<64xf32>, %s: !stats) -> !xfc.rows<source, 64xf32> {
  %dx = xfc.norm_grad %dy, %dy, %w, %s {eps = 1.0e-5, eps_in_std, unbiased} : (!xfc.rows<source, 64xf32>, !xfc.rows<source, 64xf32>, tensor<64xf32>, !stats) -> !xfc.rows<source, 64xf32>
  return %dx : !xfc.rows<source, 64xf32>
}

// A chunk owns four vectors of columns, whose sums stay in registers for all rows: nothing is stored within the loop,
// and there are no sums over lanes. The last chunk has the rest of the columns, 8 of 200 either way.
// PLAN:        plan.kernel @norm_weight_grad_200 attributes {partition = #plan.partition<one per 1 times 7>}
// PLAN-V4:     plan.kernel @norm_weight_grad_200 attributes {partition = #plan.partition<one per 1 times 4>}
// CHECK-LABEL: func.func @norm_weight_grad_200(
// V3:          %[[WHOLE:.*]] = arith.cmpi slt, %arg1, %c6_i64
// V4:          %[[WHOLE:.*]] = arith.cmpi slt, %arg1, %c3_i64
// CHECK:       scf.if %[[WHOLE]]
// CHECK:       :8 = scf.for {{.*}} step %c1_i64
// CHECK-NOT:   {{llvm.store|masked.store|vector.shuffle}}
// CHECK-COUNT-4: vector.fma {{.*}} : vector<{{8|16}}xf32>
// CHECK-NOT:   {{llvm.store|masked.store|vector.shuffle|vector.fma|scf.if}}
// CHECK:       scf.yield
// CHECK-COUNT-8: llvm.store {{.*}} : vector<{{8|16}}xf32>
// CHECK:       } else {
// CHECK:       :2 = scf.for {{.*}} step %c1_i64
// CHECK:       scf.yield
// V3-COUNT-2:  llvm.store {{.*}} : vector<8xf32>
// V4-COUNT-2:  llvm.intr.masked.store {{.*}} : vector<16xf32>
func.func @norm_weight_grad(%dy: !rows, %x: !rows, %s: !stats) -> (!w, !w) {
  %dw, %db = xfc.norm_weight_grad %dy, %x, %s : (!rows, !rows, !stats) -> (!w, !w)
  return %dw, %db : !w, !w
}

// One kernel gives dx and partial sums of the parameters' gradients. Chunk p of 32 has rows p N / 32 .. (p + 1) N / 32 -
// 1, clears its sums, and updates them in the pass that takes the sums of the row.
// PLAN:        plan.kernel @norm_grad_with_parts_200 attributes {partition = #plan.partition<one per 1 times 32>}
// CHECK-LABEL: func.func @norm_grad_with_parts_200(
// CHECK:       arith.muli %arg1, %c200_i64
// CHECK:       scf.for {{.*}} = %c0_i64 to %c192_i64 step %c16_i64
// CHECK-NOT:   llvm.load
// CHECK-COUNT-2: llvm.store %[[ZERO:.*]], {{.*}} : vector<16xf32>
// CHECK-COUNT-2: llvm.intr.masked.store
// CHECK:       %[[END:.*]] = arith.divui {{.*}}, %c32_i64
// CHECK:       %[[BEGIN:.*]] = arith.divui {{.*}}, %c32_i64
// CHECK:       scf.for {{.*}} = %[[BEGIN]] to %[[END]] step %c1_i64
// CHECK:       :4 = scf.for {{.*}} = %c0_i64 to %c192_i64 step %c32_i64
// CHECK:       %[[DW:.*]] = vector.fma
// CHECK-NEXT:  %[[DB:.*]] = arith.addf
// CHECK:       llvm.store %[[DW]]
// CHECK-NEXT:  llvm.store %[[DB]]
// CHECK:       scf.yield
// CHECK-COUNT-2: vector.extract
// CHECK:       scf.for {{.*}} = %c0_i64 to %c192_i64 step %c16_i64
// CHECK-NOT:   vector.fma
// CHECK:       llvm.store {{.*}} : vector<16xf32>
// CHECK-NEXT:  }

// A chunk adds up four vectors of columns of both sums, in the order of the parts. The last chunk has what is left.
// PLAN:        plan.kernel @sum_parts_200 attributes {partition = #plan.partition<one per 1 times 7>}
// PLAN-V4:     plan.kernel @sum_parts_200 attributes {partition = #plan.partition<one per 1 times 4>}
// CHECK-LABEL: func.func @sum_parts_200(
// V3:          arith.muli %arg1, %c32_i64
// V4:          arith.muli %arg1, %c64_i64
// CHECK:       %[[SUMS:.*]]:8 = scf.for {{.*}} = %c0_i64 to %c32_i64 step %c1_i64
// CHECK-COUNT-8: arith.addf {{.*}} : vector<{{8|16}}xf32>
// CHECK-NOT:   arith.addf
// CHECK:       llvm.store %[[SUMS]]#7
// CHECK:       } else {
// CHECK:       %[[LAST:.*]]:2 = scf.for {{.*}} = %c0_i64 to %c32_i64 step %c1_i64
// V3:          llvm.store %[[LAST]]#1
// V4:          llvm.intr.masked.store %[[LAST]]#1
// CHECK:       return
func.func @with_parts(%dy: !rows, %x: !rows, %w: !w, %s: !stats) -> (!rows, !w, !w) {
  %dx, %dws, %dbs = xfc.norm_grad_with_parts %dy, %x, %w, %s {eps = 1.0e-5} : (!rows, !rows, !w, !stats) -> (!rows, tensor<32x200xf32>, tensor<32x200xf32>)
  %dw, %db = xfc.sum_parts %dws, %dbs : (tensor<32x200xf32>, tensor<32x200xf32>) -> (!w, !w)
  return %dx, %dw, %db : !rows, !w, !w
}
