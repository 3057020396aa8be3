// Products in int8, by what each instruction set has for them: multiplications of bytes that add up pairs, dot products
// of VNNI, or tiles.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=Q3-PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,QUADS,Q3 < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,QUADS,Q4
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3+vnni --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,UNSIGNED,DOTS,D3
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4+vnni --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=D4-PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,UNSIGNED,DOTS,D4 < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4+amx --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=TILES-PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,UNSIGNED,TILES < %t

!x = !xfc.rows<target, 40xf32>
!z = !xfc.rows<target, 64xf32>

// Quads take two words for each of a row's units, signs and magnitudes, and a word after a panel for each column's
// scale. Dots and tiles take one word of unsigned bytes for each unit, and two words after a panel, for the scale and
// for what 128 times the weights contribute.
// Q3-PLAN:     plan.kernel @linear_64x40_int8 attributes {packing = [unit, @pack_transposed_int8_64x40, unit], partition = #plan.partition<rows per 72 times 1>, scratch = 29952 : i64}
// Q3-PLAN:     plan.pack_kernel @pack_transposed_int8_64x40 of tensor<64x40xf32> in int8 {bytes = 2816 : i64, chunks = 4 : i64, transposed}
// D4-PLAN:     plan.kernel @linear_64x40_int8 attributes {packing = [unit, @pack_transposed_int8_64x40, unit], partition = #plan.partition<rows per 84 times 1>, scratch = 32256 : i64}
// D4-PLAN:     plan.pack_kernel @pack_transposed_int8_64x40 of tensor<64x40xf32> in int8 {bytes = 3072 : i64, chunks = 1 : i64, transposed}
// TILES-PLAN:  plan.kernel @linear_64x40_int8 attributes {packing = [unit, @pack_transposed_int8_64x40, unit], partition = #plan.partition<rows per 256 times 1>, scratch = 45056 : i64}
// TILES-PLAN:  plan.pack_kernel @pack_transposed_int8_64x40 of tensor<64x40xf32> in int8 {bytes = 4608 : i64, chunks = 2 : i64, transposed}
// CHECK-LABEL: func.func @linear_64x40_int8(
// Rows of the same block that the chunk before has left in scratch are not rounded again, unless it had no columns.
// CHECK:       %[[BLOCK:.*]] = arith.divui %arg1, %{{.*}} : i64
// CHECK:       %[[BEFORE:.*]] = arith.divui %arg2, %{{.*}} : i64
// CHECK:       %[[SAME:.*]] = arith.cmpi eq, %[[BEFORE]], %[[BLOCK]]
// CHECK:       %[[EMPTY:.*]] = arith.cmpi sgt
// CHECK-NEXT:  %[[HOLDS:.*]] = arith.select %[[EMPTY]], %false, %[[SAME]]
// TILES:       llvm.x86.ldtilecfg
// CHECK:       scf.if %[[HOLDS]] {
// CHECK-NEXT:  } else {
// A row's scale comes from its largest magnitude, compared as integers, and at least 2^-100: one division for the
// factor and one for the scale. Elements are rounded by an addition.
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       arith.andi
// CHECK-NEXT:  arith.maxsi
// CHECK:       vector.reduction <maxsi>
// CHECK-COUNT-2: arith.divf {{.*}} : f32
// CHECK-NOT:   arith.divf
// CHECK:       vector.fma
// CHECK:       arith.subi
// QUADS:       arith.shrsi
// QUADS:       arith.trunci {{.*}} : vector<{{8|16}}xi32> to vector<{{8|16}}xi8>
// QUADS:       vector.reduction <add>
// DOTS:        arith.trunci {{.*}} : vector<{{8|16}}xi32> to vector<{{8|16}}xi8>
// TILES:       arith.trunci {{.*}} : vector<16xi32> to vector<16xi8>
// UNSIGNED-NOT: vector.reduction <add>
// The inner dimension is not divided, whatever its length: rows of int8 are short, and have one scale.
// Q3:          func.call @product_quads_4x16_rows_2_fetching_2_fetching_rows_2({{.*}}, %c10_i64, {{.*}}, %false,
// Q3:          func.call @product_quads_1x64_rows_2(
// Q4:          func.call @product_quads_4x64_rows_2_fetching_4_fetching_rows_2({{.*}}, %c10_i64, {{.*}}, %false,
// Q4:          func.call @product_quads_1x64_rows_2(
// D3:          func.call @product_dots_6x16_rows_fetching_2_fetching_rows_2({{.*}}, %c10_i64, {{.*}}, %false,
// D3:          func.call @product_dots_1x64_rows(
// D4:          func.call @product_dots_6x64_rows_fetching_4_fetching_rows_2({{.*}}, %c10_i64, {{.*}}, %false,
// D4:          func.call @product_dots_1x64_rows(
// TILES:       func.call @product_dottiles_32x32_fetching_fetching_rows_2x4_touching_2x2_passing({{.*}}, %c16_i64, {{.*}}, %false,
// TILES:       func.call @product_dottiles_16x64_fetching({{.*}}, %c16_i64, {{.*}}, %false,
// A sum of integers is corrected, for quads by the row's negative magnitudes and otherwise by the column's
// contribution, becomes a float, and is multiplied by both scales. There is no division.
// CHECK-NOT:   arith.divf
// QUADS:       arith.addi {{.*}} : vector<{{8|16}}xi32>
// UNSIGNED:    arith.subi {{.*}} : vector<{{8|16}}xi32>
// CHECK-NEXT:  %[[Y:.*]] = arith.sitofp {{.*}} : vector<{{8|16}}xi32> to vector<{{8|16}}xf32>
// CHECK:       %[[SCALED:.*]] = arith.mulf %[[Y]],
// CHECK-NEXT:  %[[Z:.*]] = arith.mulf %[[SCALED]],
// CHECK:       arith.addf %[[Z]],
// CHECK-NOT:   arith.divf
// TILES:       llvm.x86.tilerelease
// CHECK:       return

// Quads: the bytes of a weight are flipped where the row is negative, once for each row and vector, beside two
// multiplications of which the first adds pairs in 16 bits and the second adds these in 32.
// Q3-LABEL:    func.func @product_quads_4x16_rows_2(
// Q4-LABEL:    func.func @product_quads_4x64_rows_2(
// Q3:          :8 = scf.for {{.*}} step %c2_i64
// Q4:          :16 = scf.for {{.*}} step %c2_i64
// QUADS:       %[[FLIPPED:.*]] = arith.xori {{.*}} : vector<{{32|64}}xi8>
// Q3:          %[[TWOS:.*]] = llvm.call_intrinsic "llvm.x86.avx2.pmadd.ub.sw"(%{{.*}}, %[[FLIPPED]])
// Q3-NEXT:     %[[ONES:.*]] = llvm.call_intrinsic "llvm.x86.avx2.pmadd.wd"(%[[TWOS]],
// Q3-NEXT:     arith.addi %{{.*}}, %[[ONES]] : vector<8xi32>
// Q3-COUNT-15: pmadd.ub.sw
// Q4:          %[[TWOS:.*]] = llvm.call_intrinsic "llvm.x86.avx512.pmaddubs.w.512"(%{{.*}}, %[[FLIPPED]])
// Q4-NEXT:     %[[ONES:.*]] = llvm.call_intrinsic "llvm.x86.avx512.pmaddw.d.512"(%[[TWOS]],
// Q4-NEXT:     arith.addi %{{.*}}, %[[ONES]] : vector<16xi32>
// Q4-COUNT-31: pmaddubs.w
// QUADS-NOT:   {{pmadd.ub.sw|pmaddubs|llvm.store|vector.fma|sitofp|scf.if}}
// QUADS:       scf.yield

// Dots: one instruction of VNNI multiplies four bytes of each lane and adds them up.
// D3-LABEL:    func.func @product_dots_6x16_rows(
// D4-LABEL:    func.func @product_dots_6x64_rows(
// D3:          :12 = scf.for {{.*}} step %c4_i64
// D4:          :24 = scf.for {{.*}} step %c4_i64
// D3-COUNT-48: "llvm.x86.avx512.vpdpbusd.256"
// D4-COUNT-96: "llvm.x86.avx512.vpdpbusd.512"
// DOTS-NOT:    {{vpdpbusd|llvm.store|vector.fma|sitofp|scf.if|xori}}
// DOTS:        scf.yield

// Tiles: the same products in whole tiles.
// TILES-LABEL: func.func @product_dottiles_32x32_fetching_touching_2x2_passing(
// TILES:       scf.for {{.*}} step %c16_i64
// TILES-COUNT-4: llvm.x86.tdpbusd
// TILES-NOT:   {{tdpbusd|tdpbf16ps}}
// TILES:       }
// TILES-COUNT-4: llvm.x86.tilestored64

// Each chunk packs one panel, column by column, with its scale after it. Columns after the last one are zeros.
// CHECK-LABEL: func.func @pack_transposed_int8_64x40(
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       vector.reduction <maxsi>
// CHECK-COUNT-2: arith.divf {{.*}} : f32
// CHECK-NOT:   arith.divf
// QUADS-NOT:   vector.reduction <add>
// CHECK:       llvm.store {{.*}} : i32
// UNSIGNED:    %[[SUM:.*]] = vector.reduction <add>
// UNSIGNED:    arith.muli %[[SUM]], %c128_i32
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK-NOT:   arith.divf
// CHECK:       llvm.store %c0_i32
func.func @linear(%x: !x, %w: tensor<64x40xf32>, %b: tensor<64xf32>) -> !z {
  %0 = xfc.linear %x, %w bias %b in int8 : (!x, tensor<64x40xf32>, tensor<64xf32>) -> !z
  return %0 : !z
}
