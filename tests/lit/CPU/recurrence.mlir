// A recurrence is scanned along the rows of each sequence, by some columns of it in each chunk.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V3 --implicit-check-not=call < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN-V4 < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V4 --implicit-check-not=call < %t

!rows = !xfc.rows<target, 200xf32>

// With AVX2, a chunk has up to 128 of 200 columns, and scans 32 at a time; the second chunk has the 8 columns that are
// left, too. With AVX-512, one chunk has all columns, and scans 64 at a time.
// PLAN:        plan.kernel @recurrence_200 attributes {partition = #plan.partition<sequences per 1 times 2>}
// PLAN-V4:     plan.kernel @recurrence_200 attributes {partition = #plan.partition<sequences per 1 times 1>}
// CHECK-LABEL: func.func @recurrence_200(
// V3:          scf.for {{.*}} step %c32_i64
// V4:          scf.for {{.*}} step %c64_i64
// The states of four vectors stay in registers along the sequence: a row's step loads its gate and x, and stores its
// result.
// CHECK:       :4 = scf.for {{.*}} step %c1_i64 iter_args(%[[STATE:.*]] = %[[ZERO:.*]], %{{.*}} = %[[ZERO]], %{{.*}} = %[[ZERO]], %{{.*}} = %[[ZERO]])
// CHECK:       llvm.load {{.*}} -> [[VECTOR:vector<[0-9]+xf32>]]
// CHECK:       %[[X:.*]] = llvm.load {{.*}} -> [[VECTOR]]
// CHECK-NOT:   llvm.load
// CHECK:       %[[CHANGE:.*]] = arith.subf %[[STATE]], %[[X]]
// CHECK:       %[[F:.*]] = arith.divf
// CHECK-NEXT:  %[[NEW:.*]] = vector.fma %[[F]], %[[CHANGE]], %[[X]]
// CHECK-NOT:   arith.divf
// CHECK:       llvm.store %[[NEW]]
// CHECK:       scf.yield %[[NEW]],
// V3:          scf.if
// V3-NEXT:     = scf.for {{.*}} iter_args(%{{[^,]*}}) -> (vector<8xf32>)
// V4:          scf.for {{.*}} iter_args(%{{[^,]*}}) -> (vector<16xf32>)
// V4:          llvm.intr.masked.store
func.func @recurrence(%g: !rows, %x: !rows) -> !rows {
  %c = xfc.recurrence %g, %x : (!rows, !rows) -> !rows
  return %c : !rows
}

// The gradient runs from the last row on. A first row reads itself in place of a previous one, and does not use it.
// PLAN:        plan.kernel @recurrence_grad_200 attributes {partition = #plan.partition<sequences per 1 times 2>}
// CHECK-LABEL: func.func @recurrence_grad_200(
// CHECK:       :4 = scf.for %[[I:.*]] = %[[FIRST:.*]] to %[[END:.*]] step %c1_i64
// CHECK-NEXT:  %[[LEFT:.*]] = arith.subi %[[END]], %[[I]]
// CHECK-NEXT:  %[[FROM_FIRST:.*]] = arith.addi %[[FIRST]], %[[LEFT]]
// CHECK-NEXT:  %[[ROW:.*]] = arith.subi %[[FROM_FIRST]], %c1_i64
// CHECK-NEXT:  %[[HAS:.*]] = arith.cmpi slt, %[[FIRST]], %[[ROW]]
// CHECK-NOT:   scf.if
// CHECK-COUNT-3: llvm.load {{.*}} -> vector<{{8|16}}xf32>
// CHECK:       arith.select %[[HAS]], %{{.*}}, %[[ROW]] : i64
// CHECK:       %[[BEFORE:.*]] = llvm.load {{.*}} -> vector<{{8|16}}xf32>
// CHECK-NEXT:  arith.select %[[HAS]], %[[BEFORE]]
// CHECK-NOT:   {{llvm.load|scf.if}}
// CHECK:       arith.divf
// CHECK-COUNT-2: llvm.store
// CHECK:       scf.yield
func.func @recurrence_grad(%dy: !rows, %g: !rows, %x: !rows, %c: !rows) -> (!rows, !rows) {
  %dg, %dx = xfc.recurrence_grad %dy, %g, %x, %c : (!rows, !rows, !rows, !rows) -> (!rows, !rows)
  return %dg, %dx : !rows, !rows
}

// A row of a decoding step reads the state of the row before it from the cache, or the first one if there is none,
// which counts as 0.
// PLAN:        plan.kernel @recurrence_40_step attributes {decoding, partition = #plan.partition<rows per 64 times 1>}
// CHECK-LABEL: func.func @recurrence_40_step(
// CHECK:       %[[HAS:.*]] = arith.cmpi sgt, %[[SLOT:.*]], %c-1_i64
// CHECK-NEXT:  arith.maxsi %[[SLOT]], %c0_i64
// CHECK-NOT:   scf.if
// V3:          scf.for {{.*}} = %c0_i64 to %c40_i64 step %c8_i64
// V4:          scf.for {{.*}} = %c0_i64 to %c32_i64 step %c16_i64
// CHECK-COUNT-2: llvm.load {{.*}} -> vector<{{8|16}}xf32>
// CHECK:       %[[STATE:.*]] = llvm.load {{.*}} -> vector<{{8|16}}xf32>
// CHECK-NEXT:  arith.select %[[HAS]], %[[STATE]]
// CHECK:       arith.divf
// CHECK:       llvm.store
func.func @step(%g: !xfc.rows<target, 40xf32>, %x: !xfc.rows<target, 40xf32>, %s: !xfc.rows<cache, 40xf32>) -> !xfc.rows<target, 40xf32> {
  %c = xfc.recurrence %g, %x, %s : (!xfc.rows<target, 40xf32>, !xfc.rows<target, 40xf32>, !xfc.rows<cache, 40xf32>) -> !xfc.rows<target, 40xf32>
  return %c : !xfc.rows<target, 40xf32>
}
