// Tables: each entry of a gradient has one chunk that adds to it, in the order of the rows, so that there are no atomic
// operations and results do not depend on the number of threads.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V3 --implicit-check-not=atomic --implicit-check-not=cmpxchg < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V4 --implicit-check-not=atomic --implicit-check-not=cmpxchg < %t

!rows = !xfc.rows<source, 40xf32>
!ids = !xfc.rows<source, i32>

// PLAN:        plan.kernel @embedding_40 attributes {partition = #plan.partition<rows per 64 times 1>}
// CHECK-LABEL: func.func @embedding_40(
// CHECK:       %[[ID:.*]] = llvm.load {{.*}} -> i32
// CHECK-NEXT:  %[[ENTRY:.*]] = arith.extsi %[[ID]]
// CHECK-NEXT:  arith.muli %[[ENTRY]], %c40_i64
// V3:          scf.for {{.*}} = %c0_i64 to %c40_i64 step %c8_i64
// V4:          scf.for {{.*}} = %c0_i64 to %c32_i64 step %c16_i64
// CHECK:       %[[X:.*]] = llvm.load {{.*}} -> vector<{{8|16}}xf32>
// CHECK-NEXT:  llvm.getelementptr
// CHECK-NEXT:  %[[SCALED:.*]] = arith.mulf %[[X]]
// CHECK-NEXT:  llvm.store %[[SCALED]]
func.func @embedding(%ids: !ids, %t: tensor<1000x40xf32>) -> !rows {
  %x = xfc.embedding %ids, %t {scale = 6.5} : (!ids, tensor<1000x40xf32>) -> !rows
  return %x : !rows
}

// A chunk owns 15 of 1000 entries, so that no two threads add to the same one. It finds its rows, which are ordered by
// their ids, by two binary searches of 32 steps, for the first entry and for the one after the last.
// PLAN:        plan.kernel @embedding_grad_1000x40 attributes {partition = #plan.partition<one per 1 times 67>}
// CHECK-LABEL: func.func @embedding_grad_1000x40(
// CHECK:       %[[FIRST:.*]] = arith.muli %arg1, %c15_i64
// CHECK:       %[[AFTER:.*]] = arith.addi %[[FIRST]], %c15_i64
// CHECK:       %[[END:.*]] = arith.minsi %[[AFTER]], %c1000_i64
// CHECK:       %[[FROM:.*]]:2 = scf.for {{.*}} = %c0_i64 to %c32_i64 step %c1_i64
// CHECK:       arith.cmpi slt, {{.*}}, %[[FIRST]]
// CHECK:       %[[TO:.*]]:2 = scf.for {{.*}} = %c0_i64 to %c32_i64 step %c1_i64
// CHECK:       arith.cmpi slt, {{.*}}, %[[END]]
// Entries up to the row's one are cleared right before it is added, and those after the last row's one at the end.
// CHECK:       %[[CLEARED:.*]] = scf.for {{.*}} = %[[FROM]]#0 to %[[TO]]#0 step %c1_i64 iter_args(%[[NEXT:.*]] = %[[FIRST]])
// CHECK:       scf.for {{.*}} = %[[NEXT]] to
// CHECK-NOT:   llvm.load
// CHECK:       llvm.store %[[ZERO:.*]], {{.*}} : [[VECTOR:vector<[0-9]+xf32>]]
// CHECK:       vector.fma {{.*}} : [[VECTOR]]
// CHECK-NEXT:  llvm.store
// CHECK:       scf.for {{.*}} = %[[CLEARED]] to %[[END]] step %c1_i64
// CHECK-NOT:   llvm.load
// CHECK:       llvm.store %[[ZERO]]
// CHECK:       return
func.func @embedding_grad(%dy: !rows, %ids: !ids) -> tensor<1000x40xf32> {
  %g = xfc.embedding_grad %dy, %ids {scale = 6.5} : (!rows, !ids) -> tensor<1000x40xf32>
  return %g : tensor<1000x40xf32>
}

// A chunk owns an entry: clears it, and then adds the row at its position of each sequence that is long enough, in their
// order. The first two entries belong to no position.
// PLAN:        plan.kernel @positions_grad_100x40 attributes {partition = #plan.partition<one per 1 times 100>}
// CHECK-LABEL: func.func @positions_grad_100x40(
// CHECK:       %[[POSITION:.*]] = arith.subi %arg1, %c2_i64
// CHECK-NOT:   llvm.load {{.*}} -> vector
// CHECK:       llvm.store %[[ZERO:.*]], {{.*}} : vector<{{8|16}}xf32>
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       %[[ROW:.*]] = arith.addi {{.*}}, %[[POSITION]]
// CHECK:       arith.cmpi slt, %[[ROW]], %{{.*}}
// CHECK:       arith.cmpi sgt, %[[POSITION]], %c-1_i64
// CHECK:       scf.if
// V3:          scf.for {{.*}} = %c0_i64 to %c40_i64 step %c8_i64
// V4:          scf.for {{.*}} = %c0_i64 to %c32_i64 step %c16_i64
// CHECK:       arith.addf {{.*}} : vector<{{8|16}}xf32>
// CHECK-NEXT:  llvm.store
// V3-NOT:      masked.store
// V4:          llvm.intr.masked.store
// CHECK:       return
func.func @positions_grad(%dy: !rows) -> tensor<100x40xf32> {
  %g = xfc.positions_grad %dy {offset = 2 : i64} : (!rows) -> tensor<100x40xf32>
  return %g : tensor<100x40xf32>
}
