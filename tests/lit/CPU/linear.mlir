// Products of f32 multiply rows in place by panels of a packed weight, in groups of 64 columns whose results go through
// a tile in scratch.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V3 --implicit-check-not=arith.divf < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN-V4 < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V4 --implicit-check-not=arith.divf < %t

!x = !xfc.rows<source, 40xf32>
!y = !xfc.rows<source, 192xf32>
!z = !xfc.rows<source, 64xf32>

// Three groups of columns make two slabs, so that a few rows keep two threads busy. Scratch has one tile of 64 columns
// of results for the rows of a chunk, since the inner dimension is one block.
// PLAN:        plan.kernel @linear_192x40 attributes {packing = [unit, @pack_transposed_192x40, unit], partition = #plan.partition<rows per 72 times 2>, scratch = 18432 : i64}
// PLAN-V4:     plan.kernel @linear_192x40 attributes {packing = [unit, @pack_transposed_192x40, unit], partition = #plan.partition<rows per 84 times 2>, scratch = 21504 : i64}
// Each chunk of packing makes one panel.
// PLAN:        plan.pack_kernel @pack_transposed_192x40 of tensor<192x40xf32> {bytes = 30720 : i64, chunks = 12 : i64, transposed}
// PLAN-V4:     plan.pack_kernel @pack_transposed_192x40 of tensor<192x40xf32> {bytes = 30720 : i64, chunks = 3 : i64, transposed}
// CHECK-LABEL: func.func @linear_192x40(
// CHECK:       %[[SLAB:.*]] = arith.remui %arg1, %c2_i64
// CHECK:       %[[BLOCK:.*]] = arith.divui %arg1, %c2_i64
// V3:          arith.muli %[[BLOCK]], %c72_i64
// V4:          arith.muli %[[BLOCK]], %c84_i64
// Rows are read in place, and no tile adds to what is in scratch. The first whole tiles of rows fetch the next panel
// and the next rows, and every tile is preceded by prefetches of the results.
// CHECK:       scf.for
// CHECK:       scf.if
// CHECK:       llvm.intr.prefetch{{.*}} rw = 1 : i32
// V3:          func.call @product_6x16_rows_fetching_2_fetching_rows_2({{.*}}, %c40_i64, {{.*}}, %c64_i64, %false,
// V3:          func.call @product_6x16_rows_fetching_2({{.*}}, %false,
// V3:          func.call @product_6x16_rows_fetching_8({{.*}}, %false,
// V3:          func.call @product_6x16_rows({{.*}}, %false)
// V4:          func.call @product_6x64_rows_fetching_4_fetching_rows_2({{.*}}, %c40_i64, {{.*}}, %c64_i64, %false,
// V4:          func.call @product_6x64_rows_fetching_4({{.*}}, %false,
// V4:          func.call @product_6x64_rows_fetching_16({{.*}}, %false,
// V4:          func.call @product_6x64_rows({{.*}}, %false)
// The rows that are left, up to five, have tiles of their own, which are wider where the sums leave registers.
// V3-COUNT-1:  func.call @product_1x64_rows(
// V3-COUNT-2:  func.call @product_2x32_rows(
// V3-COUNT-4:  func.call @product_3x16_rows(
// V3-COUNT-4:  func.call @product_4x16_rows(
// V3-COUNT-4:  func.call @product_5x16_rows(
// V4-COUNT-1:  func.call @product_1x64_rows(
// V4-COUNT-1:  func.call @product_2x64_rows(
// V4-COUNT-1:  func.call @product_3x64_rows(
// V4-COUNT-1:  func.call @product_4x64_rows(
// V4-COUNT-1:  func.call @product_5x64_rows(
// CHECK-NOT:   call
// Rows of results take their bias on the way from scratch.
// CHECK:       scf.for
// V3-COUNT-8:  arith.addf {{.*}} : vector<8xf32>
// V4-COUNT-4:  arith.addf {{.*}} : vector<16xf32>
// CHECK-NOT:   {{arith.addf|masked.store|call}}
// CHECK:       return

// Sums stay in registers: 6 x 2 vectors of 16 registers, or 6 x 4 of 32. A step of four units loads the panel's vectors
// and six elements for each, and stores nothing. It fetches a part of the next panel, and a pair of cache lines of the
// next rows.
// V3-LABEL:    func.func @product_6x16_rows_fetching_2_fetching_rows_2(
// V4-LABEL:    func.func @product_6x64_rows_fetching_4_fetching_rows_2(
// CHECK:       scf.if %arg7
// V3:          :12 = scf.for {{.*}} step %c4_i64
// V4:          :24 = scf.for {{.*}} step %c4_i64
// CHECK-NOT:   {{llvm.store|scf.if|call|vector.fma}}
// CHECK-COUNT-3: llvm.intr.prefetch{{.*}} rw = 0 : i32
// V3-COUNT-2:  llvm.load {{.*}} -> vector<8xf32>
// V3:          llvm.load {{.*}} -> f32
// V3-COUNT-48: vector.fma {{.*}} : vector<8xf32>
// V4-COUNT-4:  llvm.load {{.*}} -> vector<16xf32>
// V4:          llvm.load {{.*}} -> f32
// V4-COUNT-96: vector.fma {{.*}} : vector<16xf32>
// CHECK-NOT:   {{llvm.store|scf.if|call|vector.fma|prefetch}}
// CHECK:       scf.yield
// What is left of the inner dimension fetches nothing.
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK-NOT:   {{prefetch|llvm.store}}
// V3-COUNT-12: vector.fma
// V4-COUNT-24: vector.fma
// CHECK-NOT:   {{vector.fma|prefetch}}
// CHECK:       scf.yield
// V3-COUNT-12: llvm.store
// V4-COUNT-24: llvm.store
// CHECK:       return

// The plain form has no prefetches.
// V3-LABEL:    func.func @product_6x16_rows(
// V4-LABEL:    func.func @product_6x64_rows(
// CHECK-NOT:   prefetch
// CHECK-LABEL: func.func @product_1x64_rows(
// V3:          :8 = scf.for {{.*}} step %c4_i64
// V4:          :4 = scf.for {{.*}} step %c4_i64

// A transposed weight has its panel's columns in rows: squares of as many rows as a vector has lanes are transposed in
// registers. Where the weight ends, its last row is read again, and zeros take its place.
// CHECK-LABEL: func.func @pack_rows_transposed(
// CHECK:       %[[WHOLE:.*]] = arith.cmpi slt, {{.*}}, %arg1
// CHECK-NEXT:  scf.if %[[WHOLE]]
// CHECK-NOT:   arith.select
// V3:          scf.for {{.*}} step %c8_i64
// V3-COUNT-8:  llvm.load {{.*}} -> vector<8xf32>
// V3-COUNT-24: vector.shuffle
// V3-COUNT-8:  llvm.store {{.*}} : vector<8xf32>
// V4:          scf.for {{.*}} step %c16_i64
// V4-COUNT-16: llvm.load {{.*}} -> vector<16xf32>
// V4-COUNT-64: vector.shuffle
// V4-COUNT-16: llvm.store {{.*}} : vector<16xf32>
// CHECK:       } else {
// CHECK:       arith.select
func.func @linear(%x: !x, %w: tensor<192x40xf32>, %b: tensor<192xf32>) -> !y {
  %0 = xfc.linear %x, %w bias %b : (!x, tensor<192x40xf32>, tensor<192xf32>) -> !y
  return %0 : !y
}

// An inner dimension of 600 is two blocks, of 512 and 88, and the second one adds to the sums of the first one. The
// last 36 of 100 columns have narrower panels, and a masked store ends a row.
// PLAN:        plan.kernel @linear_100x600 attributes {packing = [unit, @pack_transposed_100x600], partition = #plan.partition<rows per 72 times 2>, scratch = 18432 : i64}
// PLAN-V4:     plan.kernel @linear_100x600 attributes {packing = [unit, @pack_transposed_100x600], partition = #plan.partition<rows per 84 times 2>, scratch = 21504 : i64}
// CHECK-LABEL: func.func @linear_100x600(
// V3:          func.call @product_6x16_rows_fetching_2_fetching_rows_16({{.*}}, %c512_i64, {{.*}}, %false,
// V4:          func.call @product_6x64_rows_fetching_4_fetching_rows_16({{.*}}, %c512_i64, {{.*}}, %false,
// CHECK-NOT:   %true
// Results are complete after the last block alone, which is why only it fetches them for writing.
// CHECK-NOT:   rw = 1
// V3:          func.call @product_5x16_rows({{.*}}, %c512_i64, {{.*}}, %false)
// V4:          func.call @product_5x64_rows({{.*}}, %c512_i64, {{.*}}, %false)
// CHECK:       rw = 1
// CHECK:       func.call @product_6x{{[0-9]+}}_rows_fetching_{{[0-9a-z_]+}}({{.*}}, %c88_i64, {{.*}}, %true,
// CHECK:       llvm.intr.masked.store
// CHECK-NOT:   func.call @product{{.*}} %false
// CHECK:       return
func.func @deep(%x: !xfc.rows<source, 600xf32>, %w: tensor<100x600xf32>) -> !xfc.rows<source, 100xf32> {
  %0 = xfc.linear %x, %w : (!xfc.rows<source, 600xf32>, tensor<100x600xf32>) -> !xfc.rows<source, 100xf32>
  return %0 : !xfc.rows<source, 100xf32>
}

// The epilogue works on rows of 64 columns while they are in the cache. Four words of sixteen counters drop them,
// outside training with the threshold 0 and the factor 1, so that no branch depends on it. Both results are stored.
// PLAN:        plan.kernel @linear_64x40_relu_dropout_add attributes {packing = [unit, @pack_transposed_64x40, unit, unit], partition = #plan.partition<rows per 72 times 1>
// CHECK-LABEL: func.func @linear_64x40_relu_dropout_add(
// CHECK-NOT:   arith.constant 1401181199
// CHECK:       arith.constant -1253254570
// CHECK-NOT:   arith.constant 1401181199
// CHECK:       %[[TRAINING:.*]] = arith.cmpi ne, {{.*}} : i32
// CHECK-NEXT:  arith.select %[[TRAINING]], %c1073741824_i32, %c0_i32
// CHECK:       func.call @product_5x
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK-NOT:   {{scf.if|scf.for}}
// V3-COUNT-24: arith.muli {{.*}} : vector<4xi64>
// V4-COUNT-11: arith.muli {{.*}} : vector<8xi64>
// CHECK-NOT:   {{arith.muli .* : vector|scf.if|scf.for}}
// CHECK:       %[[X:.*]] = llvm.load {{.*}} -> vector<{{8|16}}xf32>
// CHECK:       %[[Y:.*]] = arith.addf %[[X]],
// CHECK:       %[[R:.*]] = llvm.load {{.*}} -> vector
// CHECK-NEXT:  %[[ABOVE:.*]] = arith.cmpf olt, %[[ZERO:.*]], %[[Y]]
// CHECK-NEXT:  %[[P:.*]] = arith.select %[[ABOVE]], %[[Y]], %[[ZERO]]
// CHECK-NEXT:  %[[D:.*]] = arith.mulf %[[P]],
// CHECK-NEXT:  %[[S:.*]] = arith.addf %[[D]], %[[R]]
// CHECK:       llvm.store %[[Y]]
// CHECK:       llvm.store %[[S]]
// CHECK-NOT:   {{masked.store|scf.if}}
// CHECK:       return
func.func @epilogue(%x: !x, %w: tensor<64x40xf32>, %b: tensor<64xf32>, %r: !z) -> (!z, !z) {
  %0, %1 = xfc.linear %x, %w bias %b with %r {
  ^bb0(%y: !z, %e: !z):
    %p = xfc.activation relu %y : !z
    %d = xfc.dropout %p {rate = 0.25, id = 9 : i64} : !z
    %s = xfc.add %d, %e : !z
    xfc.yield %y, %s : !z, !z
  } : (!x, tensor<64x40xf32>, tensor<64xf32>, !z) -> (!z, !z)
  return %0, %1 : !z, !z
}

// The gradient of the rows multiplies by the weight as it is, in panels of its columns. AVX2 needs three for 40
// columns, AVX-512 one. Rows of the weight are copied vector by vector, and chunks of packing have as many rows as a
// panel has columns.
// PLAN:        plan.kernel @linear_input_grad_64x40 attributes {packing = [unit, @pack_64x40], partition = #plan.partition<rows per 72 times 1>
// PLAN:        plan.pack_kernel @pack_64x40 of tensor<64x40xf32> {bytes = 12288 : i64, chunks = 4 : i64}
// PLAN-V4:     plan.pack_kernel @pack_64x40 of tensor<64x40xf32> {bytes = 16384 : i64, chunks = 1 : i64}
// CHECK-LABEL: func.func @linear_input_grad_64x40(
// V3-COUNT-1:  func.call @product_1x32_rows(
// V3-COUNT-1:  func.call @product_1x16_rows(
// V3-COUNT-1:  func.call @product_2x32_rows(
// V3-COUNT-1:  func.call @product_2x16_rows(
// V4-COUNT-1:  func.call @product_1x64_rows(
// V4-COUNT-1:  func.call @product_2x64_rows(
// CHECK-LABEL: func.func @pack_rows(
// CHECK:       scf.for {{.*}} = %arg4 to
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK-NOT:   {{vector.shuffle|masked}}
// V3-COUNT-2:  llvm.store {{.*}} : vector<8xf32>
// V4-COUNT-4:  llvm.store {{.*}} : vector<16xf32>
// CHECK:       scf.if
// CHECK-NOT:   vector.shuffle
// CHECK:       llvm.intr.masked.load
func.func @input_grad(%dy: !z, %w: tensor<64x40xf32>) -> !x {
  %0 = xfc.linear_input_grad %dy, %w : (!z, tensor<64x40xf32>) -> !x
  return %0 : !x
}
