// Products in bf16 without tiles: AVX2 and AVX-512 widen elements in registers and multiply in f32; AVX512-BF16
// multiplies pairs.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=WIDENED-PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,WIDENED,V3 --implicit-check-not=arith.divf < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,WIDENED,V4,V4W
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4+bf16 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PAIRS-PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,PAIRS,V4 --implicit-check-not=arith.divf < %t

!x = !xfc.rows<source, 40xf32>
!z = !xfc.rows<source, 64xf32>

// Rows are rounded as they are copied to scratch: to f32 for products of widened elements, and to pairs of bf16 for
// AVX512-BF16. Either way a word of a panel has a pair of neighbors.
// WIDENED-PLAN: plan.kernel @linear_64x40_bf16 attributes {packing = [unit, @pack_transposed_bf16_64x40], partition = #plan.partition<rows per 72 times 1>, scratch = 34560 : i64}
// WIDENED-PLAN: plan.pack_kernel @pack_transposed_bf16_64x40 of tensor<64x40xf32> in bf16 {bytes = 5120 : i64, chunks = 4 : i64, transposed}
// PAIRS-PLAN:  plan.kernel @linear_64x40_bf16 attributes {packing = [unit, @pack_transposed_bf16_64x40], partition = #plan.partition<rows per 84 times 1>, scratch = 37632 : i64}
// PAIRS-PLAN:  plan.pack_kernel @pack_transposed_bf16_64x40 of tensor<64x40xf32> in bf16 {bytes = 5120 : i64, chunks = 1 : i64, transposed}
// CHECK-LABEL: func.func @linear_64x40_bf16(
// CHECK:       scf.for {{.*}} step %c1_i64
// V3:          scf.for {{.*}} = %c0_i64 to %c40_i64 step %c8_i64
// V4:          scf.for {{.*}} = %c0_i64 to %c32_i64 step %c16_i64
// Without instructions for it, the nearest bf16 comes from additions of integers, and a NaN stays one by a selection.
// WIDENED:     %[[X:.*]] = llvm.load {{.*}} -> vector
// WIDENED:     arith.cmpf ord, %[[X]], %[[X]]
// WIDENED:     arith.select
// WIDENED:     llvm.store {{.*}} : vector<{{8|16}}xf32>
// PAIRS:       %[[X:.*]] = llvm.load {{.*}} -> vector<16xf32>
// PAIRS:       %[[Y:.*]] = arith.truncf %[[X]] : vector<16xf32> to vector<16xbf16>
// PAIRS:       llvm.store %[[Y]]
// CHECK-NOT:   {{scf.if|call}}
// CHECK:       }
// V3:          func.call @product_widened_6x16_rows_2_fetching_2_fetching_rows_2(
// V3:          func.call @product_widened_1x32_rows_2(
// V4W:         func.call @product_widened_6x64_rows_2_fetching_4_fetching_rows_2(
// V4W:         func.call @product_widened_1x64_rows_2(
// PAIRS:       func.call @product_pairs_6x64_rows_fetching_4_fetching_rows_2(
// PAIRS:       func.call @product_pairs_1x64_rows(

// Widened: a step of two units shifts the low and the high halves of the panel's words up, from loads that are two
// bytes apart, so that neither a mask nor the words take a register. There are no conversions of rows in the loop.
// V3-LABEL:    func.func @product_widened_6x16_rows_2(
// V4W-LABEL:   func.func @product_widened_6x64_rows_2(
// V3:          :12 = scf.for {{.*}} step %c2_i64
// V4W:         :24 = scf.for {{.*}} step %c2_i64
// WIDENED-NOT: {{llvm.store|scf.if|arith.cmpf|arith.andi}}
// WIDENED:     llvm.load {{.*}} {alignment = 2 : i64} : !llvm.ptr -> vector<{{8|16}}xi32>
// WIDENED-NEXT: arith.shli
// V3-COUNT-48: vector.fma {{.*}} : vector<8xf32>
// V4W-COUNT-96: vector.fma {{.*}} : vector<16xf32>
// WIDENED-NOT: {{llvm.store|scf.if|vector.fma|arith.cmpf|arith.andi}}
// WIDENED:     scf.yield

// Pairs: one instruction multiplies two pairs of each lane. A step of four units loads four vectors and six words for
// each.
// PAIRS-LABEL: func.func @product_pairs_6x64_rows(
// PAIRS:       :24 = scf.for {{.*}} step %c4_i64
// PAIRS-COUNT-4: llvm.load {{.*}} -> vector<16xf32>
// PAIRS:       llvm.load {{.*}} -> f32
// PAIRS-COUNT-96: "llvm.x86.avx512bf16.dpbf16ps.512"
// PAIRS-NOT:   {{llvm.store|scf.if|dpbf16ps|vector.fma|cvtne}}
// PAIRS:       scf.yield

// Packing transposes squares and rounds what is in neighboring registers to pairs. A last column without a neighbor
// gets a zero.
// CHECK-LABEL: func.func @pack_rows_pairs_transposed(
// V3-COUNT-24: vector.shuffle
// V3-COUNT-4:  llvm.store {{.*}} : vector<8xf32>
// V4-COUNT-64: vector.shuffle
// PAIRS:       cvtne2ps2bf16
// V4-COUNT-8:  llvm.store {{.*}} : vector<16xf32>
func.func @linear(%x: !x, %w: tensor<64x40xf32>) -> !z {
  %0 = xfc.linear %x, %w in bf16 : (!x, tensor<64x40xf32>) -> !z
  return %0 : !z
}

// CHECK-LABEL: func.func @linear_input_grad_64x40_bf16(
// V3:          func.call @product_widened_1x16_rows_2(
// V4W:         func.call @product_widened_1x64_rows_2(
// PAIRS:       func.call @product_pairs_1x64_rows(
// A pair is made of two rows of the weight. A last row without another is paired with zeros.
// CHECK-LABEL: func.func @pack_rows_pairs(
// CHECK:       scf.for
// CHECK:       scf.for
// CHECK:       %[[FIRST:.*]] = llvm.load {{.*}} -> vector
// CHECK:       %[[SECOND:.*]] = llvm.load {{.*}} -> vector
// CHECK:       %[[GIVEN:.*]] = arith.cmpi slt, {{.*}}, %arg1
// CHECK-NEXT:  %[[OTHER:.*]] = arith.select %[[GIVEN]], %[[SECOND]]
// WIDENED:     arith.cmpf ord, %[[OTHER]], %[[OTHER]]
// WIDENED:     arith.ori
// PAIRS:       cvtne2ps2bf16.512"(%[[OTHER]], %[[FIRST]])
// PAIRS-NEXT:  vector.shuffle {{.*}} [0, 16, 1, 17,
// CHECK:       llvm.store
func.func @input_grad(%dy: !z, %w: tensor<64x40xf32>) -> !x {
  %0 = xfc.linear_input_grad %dy, %w in bf16 : (!z, tensor<64x40xf32>) -> !x
  return %0 : !x
}
