// Gradients of weights: a chunk owns a tile of dW, and takes the rows in their order, in blocks, so that there are no
// atomic operations and results do not depend on the number of threads.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,F32,V3 --implicit-check-not=atomic --implicit-check-not=arith.divf < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN-V4 < %t
// RUN: FileCheck %s --check-prefixes=CHECK,F32,V4 --implicit-check-not=atomic --implicit-check-not=arith.divf < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4+bf16 --canonicalize --cse | FileCheck %s --check-prefix=PAIRS
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4+amx --canonicalize --cse | FileCheck %s --check-prefix=TILES

!x = !xfc.rows<source, 64xf32>
!dy = !xfc.rows<source, 40xf32>

// One chunk has a whole gradient this small, and accumulates it in place, over blocks of 128 rows. The first tile's
// product packs the panel of x; scratch has a panel, the columns of dy, and the sums of the bias.
// PLAN:        plan.kernel @linear_weight_grad_40x64_bias attributes {partition = #plan.partition<one per 1 times 1>, scratch = 30400 : i64}
// PLAN-V4:     plan.kernel @linear_weight_grad_40x64_bias attributes {partition = #plan.partition<one per 1 times 1>, scratch = 55168 : i64}
// CHECK-LABEL: func.func @linear_weight_grad_40x64_bias(
// CHECK:       scf.for {{.*}} step %c128_i64
// V3:          :4 = scf.for {{.*}} step %c1_i64
// V4:          :4 = scf.for {{.*}} step %c1_i64
// CHECK-COUNT-4: arith.addf
// CHECK-NOT:   vector.shuffle
// V3:          scf.for {{.*}} = %c0_i64 to %c4_i64 step %c1_i64
// V3:          func.call @product_6x16_columns_6_packing({{.*}}, %c64_i64, %[[ADDS:[0-9]+]],
// V3:          func.call @product_6x16_columns_6_fetching_rows_1({{.*}}, %[[ADDS]],
// V3:          func.call @product_6x16_columns_6_fetching_rows_2({{.*}}, %[[ADDS]],
// V3:          func.call @product_6x16_columns_6({{.*}}, %[[ADDS]])
// V3:          func.call @product_5x16_columns_6({{.*}}, %[[ADDS]])
// V4:          func.call @product_6x64_columns_6_packing({{.*}}, %c64_i64, %[[ADDS:[0-9]+]],
// V4:          func.call @product_6x64_columns_6_fetching_rows_2({{.*}}, %[[ADDS]],
// V4:          func.call @product_6x64_columns_6({{.*}}, %[[ADDS]])
// V4:          func.call @product_5x64_columns_6({{.*}}, %[[ADDS]])
// CHECK-NOT:   call
// CHECK:       llvm.intr.masked.store
// CHECK-NOT:   masked.store
// CHECK:       return

// The product that packs loads x where it is, stores it, and multiplies by what it loaded. Six columns of dy are
// adjacent.
// V3-LABEL:    func.func @product_6x16_columns_6_packing(
// V4-LABEL:    func.func @product_6x64_columns_6_packing(
// CHECK:       scf.for {{.*}} step %c4_i64
// CHECK:       %[[X:.*]] = llvm.load {{.*}} -> vector<{{8|16}}xf32>
// CHECK-NEXT:  llvm.store %[[X]]
// CHECK:       vector.fma %{{.*}}, %[[X]],
// V3-COUNT-47: vector.fma
// V4-COUNT-95: vector.fma
// CHECK-NOT:   {{vector.fma|prefetch|scf.if|call}}
// CHECK:       scf.yield
func.func @f32(%dy: !dy, %x: !x) -> (tensor<40x64xf32>, tensor<40xf32>) {
  %0, %1 = xfc.linear_weight_grad %dy, %x : (!dy, !x) -> (tensor<40x64xf32>, tensor<40xf32>)
  return %0, %1 : tensor<40x64xf32>, tensor<40xf32>
}

// Widths that fill no panels are packed under masks, and accumulated in scratch, from where they are copied under
// masks.
// PLAN:        plan.kernel @linear_weight_grad_33x21 attributes {partition = #plan.partition<one per 1 times 1>, scratch = 40096 : i64}
// PLAN-V4:     plan.kernel @linear_weight_grad_33x21 attributes {partition = #plan.partition<one per 1 times 1>, scratch = 61248 : i64}
// CHECK-LABEL: func.func @linear_weight_grad_33x21(
// CHECK:       scf.for {{.*}} step %c128_i64
// CHECK:       llvm.intr.masked.load
// CHECK-NOT:   packing
// CHECK:       func.call @product_6x{{[0-9]+}}_columns_6_fetching_rows
// CHECK:       func.call @product_5x
// CHECK:       scf.for {{.*}} = %c0_i64 to %c21_i64
// CHECK-NOT:   llvm.store
// CHECK:       llvm.intr.masked.store
// CHECK:       return
func.func @ragged(%dy: !xfc.rows<source, 33xf32>, %x: !xfc.rows<source, 21xf32>) -> tensor<33x21xf32> {
  %0 = xfc.linear_weight_grad %dy, %x : (!xfc.rows<source, 33xf32>, !xfc.rows<source, 21xf32>) -> tensor<33x21xf32>
  return %0 : tensor<33x21xf32>
}

// In bf16, sets without instructions for it round both operands to f32 as they copy them, so that the products are
// those of f32. The bias is summed without rounding.
// CHECK-LABEL: func.func @linear_weight_grad_64x64_bias_bf16(
// F32:         scf.for {{.*}} step %c128_i64
// F32:         arith.cmpf ord
// F32:         :4 = scf.for
// F32-NOT:     arith.cmpf ord
// F32:         scf.yield
// F32:         arith.cmpf ord
// V3:          func.call @product_6x16_columns_6_fetching_rows_2(
// V4:          func.call @product_6x64_columns_6_fetching_rows_2(
// With AVX512-BF16, a unit is a pair of rows, and a last row without another is paired with zeros.
// PAIRS:       scf.for {{.*}} step %c128_i64
// PAIRS:       scf.for
// PAIRS:       cvtne2ps2bf16.512"(%{{[0-9]+}}, %{{[0-9]+}})
// PAIRS:       scf.if
// PAIRS:       cvtne2ps2bf16.512"(%cst{{[0-9_]*}}, %{{[0-9]+}})
// PAIRS:       :4 = scf.for {{.*}} -> (vector<16xf32>,
// PAIRS:       func.call @product_pairs_6x64_columns_6_fetching_rows_2(
// PAIRS:       func.call @product_pairs_5x64_columns_6(
// PAIRS-LABEL: func.func @product_pairs_6x64_columns_6(
// PAIRS-COUNT-96: "llvm.x86.avx512bf16.dpbf16ps.512"
// With AMX, blocks have 256 rows. dy is transposed as it is rounded, and summed for the bias on the way. Each product
// packs a part of the next panel of x, eight units in each step, if the block has all its rows.
// TILES:       llvm.x86.ldtilecfg
// TILES:       scf.for {{.*}} step %c256_i64
// TILES:       func.call @transpose_pairs_and_sum(
// TILES:       scf.for {{.*}} = %c0_i64 to %c2_i64 step %c1_i64
// TILES:       func.call @product_tiles_32x32_fetching_rows_2x4_fetching_rows_2x4_passing_packing_8({{.*}}, %c80_i64, %[[ADDS:[0-9]+]],
// TILES:       func.call @product_tiles_32x32_fetching_rows_2x4_fetching_rows_2x4{{(_passing)?}}({{.*}}, %[[ADDS]],
// TILES:       func.call @product_tiles_16x32({{.*}}, %[[ADDS]])
// TILES:       llvm.x86.tilerelease
// The sums of the bias continue in the order of the rows: 32 additions of 16 columns, before the rounding.
// TILES-LABEL: func.func @transpose_pairs_and_sum(
// TILES:       scf.for {{.*}} step %c32_i64
// TILES:       scf.for {{.*}} step %c16_i64
// TILES-COUNT-32: arith.addf {{.*}} : vector<16xf32>
// TILES:       llvm.store {{.*}} : vector<16xf32>
// TILES:       cvtne2ps2bf16
// TILES-LABEL: func.func @product_tiles_32x32_fetching_rows_2x4_fetching_rows_2x4_passing_packing_8(
// TILES:       scf.for {{.*}} step %c16_i64
// TILES:       llvm.x86.tdpbf16ps
// TILES-COUNT-4: llvm.intr.prefetch
// TILES-COUNT-4: cvtne2ps2bf16
// TILES-NOT:   cvtne2ps2bf16
// TILES:       llvm.x86.tdpbf16ps
// TILES-COUNT-4: cvtne2ps2bf16
// TILES-NOT:   cvtne2ps2bf16
// TILES:       llvm.x86.tdpbf16ps
// TILES-COUNT-4: cvtne2ps2bf16
// TILES-NOT:   cvtne2ps2bf16
// TILES:       llvm.x86.tdpbf16ps
// TILES-COUNT-4: cvtne2ps2bf16
// TILES-NOT:   {{cvtne2ps2bf16|tdpbf16ps|scf.if}}
// TILES:       }
func.func @bf16(%dy: !xfc.rows<source, 64xf32>, %x: !x) -> (tensor<64x64xf32>, tensor<64xf32>) {
  %0, %1 = xfc.linear_weight_grad %dy, %x in bf16 : (!xfc.rows<source, 64xf32>, !x) -> (tensor<64x64xf32>, tensor<64xf32>)
  return %0, %1 : tensor<64x64xf32>, tensor<64xf32>
}
