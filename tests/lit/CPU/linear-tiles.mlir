// Products in bf16 by tiles of AMX. While tiles multiply, the vector units convert the next rows, fetch what is needed
// next, and complete the sums of the tiles before.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4+amx --canonicalize --cse | FileCheck %s --implicit-check-not=arith.divf

!x = !xfc.rows<source, 40xf32>
!z = !xfc.rows<source, 64xf32>

// A chunk has as many rows as fit half of the second cache, at most 256. Scratch has them all as pairs, and 48 rows of
// sums, since the inner dimension is one block.
// CHECK:       plan.kernel @linear_64x40_bf16 attributes {packing = [unit, @pack_transposed_bf16_64x40], partition = #plan.partition<rows per 256 times 1>, scratch = 61440 : i64}
// CHECK:       plan.pack_kernel @pack_transposed_bf16_64x40 of tensor<64x40xf32> in bf16 {bytes = 8192 : i64, chunks = 2 : i64, transposed}
// CHECK-LABEL: func.func @linear_64x40_bf16(
// Tiles are configured once, for as many rows as a chunk has, and released at the end.
// CHECK:       scf.if
// CHECK:       arith.minsi {{.*}}, %c16_i64
// CHECK-NOT:   func.call
// CHECK:       llvm.x86.ldtilecfg
// CHECK-NOT:   ldtilecfg
// Only the first 32 rows are converted before the products, and the last ones if there are not 32 of them; the others
// are converted by the product of the tile before them, under a mask where 40 elements end.
// CHECK:       arith.minsi {{.*}}, %c32_i64
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK-COUNT-2: arith.truncf {{.*}} to vector<16xbf16>
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK-COUNT-2: arith.truncf {{.*}} to vector<16xbf16>
// CHECK-NOT:   arith.truncf
// Rows pass the first cache, unless they are one pair of tiles, and every product fetches its rows of the result: two
// lines of two rows in each step. Their sums take turns.
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       scf.for %[[I:.*]] = %c0_i64 to %{{.*}} step %c1_i64
// CHECK-NOT:   prefetch
// CHECK:       %[[TURN:.*]] = arith.remui %[[I]], %c2_i64
// CHECK:       %[[COLUMN:.*]] = arith.muli %[[TURN]], %c32_i64
// CHECK:       %[[SUMS:.*]] = llvm.getelementptr {{.*}}[%[[COLUMN]]]
// CHECK:       func.call @product_tiles_32x32_fetching_fetching_rows_2x4_touching_2x2_passing_converting_some_48({{.*}}, %c32_i64, %[[SUMS]], %c64_i64, %false,
// CHECK:       func.call @product_tiles_32x32_fetching_fetching_rows_2x4_touching_2x2_passing({{.*}}, %false,
// CHECK:       func.call @product_tiles_32x32_fetching_fetching_rows_2x4_touching_2x2({{.*}}, %false,
// CHECK:       func.call @product_tiles_32x32_fetching_touching_2x2_passing({{.*}}, %false,
// CHECK:       func.call @product_tiles_32x32_fetching_touching_2x2({{.*}}, %false,
// CHECK-NOT:   converting
// The last tile of rows prefetches the next panels only if there are no pairs of tiles that do.
// CHECK:       %[[HASPAIRS:.*]] = arith.cmpi sgt, {{.*}}, %c0_i64
// CHECK:       %[[LINES:.*]] = arith.select %[[HASPAIRS]], %c0_i64, %c16_i64
// CHECK:       func.call @product_tiles_16x64_fetching({{.*}}, %false, %{{.*}}, %[[LINES]])
// After a product, the sums of the one before are completed: each row's 32 are stored.
// CHECK:       %[[BEFORE:.*]] = arith.subi %[[I]], %c1_i64
// CHECK:       arith.remui %[[BEFORE]], %c2_i64
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK-COUNT-2: llvm.store {{.*}} : vector<16xf32>
// CHECK-NOT:   vector<16xf32>, !llvm.ptr
// CHECK-NOT:   ldtilecfg
// CHECK:       llvm.x86.tilerelease
// CHECK-NEXT:  return

// What the vector units do is spread over the four products of a step, each of which is followed by eight of 32 rows
// and three of twelve prefetches, and fetches as many lines of the next panel as its argument says.
// CHECK-LABEL: func.func @product_tiles_32x32_fetching_fetching_rows_2x4_touching_2x2_passing_converting_some_48(
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK-NOT:   {{tilezero|scf.if|llvm.x86.avx512bf16}}
// CHECK:       llvm.x86.tileloaddt164"(%c4_i8
// CHECK:       llvm.x86.tileloadd64"(%c6_i8
// CHECK-NEXT:  llvm.x86.tdpbf16ps"(%c0_i8, %c4_i8, %c6_i8)
// CHECK:       %[[FETCHED:.*]] = scf.for {{.*}} = %c0_i64 to %arg9 step %c1_i64 iter_args(%[[LINE:.*]] = %{{.*}})
// CHECK-NEXT:  llvm.intr.prefetch"(%[[LINE]]){{.*}} rw = 0 : i32
// CHECK-NEXT:  llvm.getelementptr inbounds %[[LINE]][16]
// CHECK-COUNT-3: llvm.intr.prefetch{{.*}} rw = 0 : i32
// CHECK-NOT:   prefetch
// CHECK-COUNT-2: llvm.intr.masked.load
// CHECK:       cvtne2ps2bf16
// CHECK-COUNT-7: cvtne2ps2bf16
// CHECK-NOT:   {{cvtne2ps2bf16|scf.if}}
// CHECK:       llvm.x86.tileloadd64"(%c7_i8
// CHECK-NEXT:  llvm.x86.tdpbf16ps"(%c1_i8, %c4_i8, %c7_i8)
// CHECK:       scf.for {{.*}} = %c0_i64 to %arg9 step %c1_i64 iter_args(%{{.*}} = %[[FETCHED]])
// CHECK-COUNT-4: llvm.intr.prefetch
// CHECK-COUNT-8: cvtne2ps2bf16
// CHECK-NOT:   cvtne2ps2bf16
// CHECK:       llvm.x86.tileloaddt164"(%c5_i8
// CHECK-NEXT:  llvm.x86.tdpbf16ps"(%c2_i8, %c5_i8, %c6_i8)
// CHECK-COUNT-4: llvm.intr.prefetch
// CHECK-COUNT-8: cvtne2ps2bf16
// CHECK-NOT:   cvtne2ps2bf16
// CHECK:       llvm.x86.tdpbf16ps"(%c3_i8, %c5_i8, %c7_i8)
// CHECK-COUNT-4: llvm.intr.prefetch
// CHECK-COUNT-8: cvtne2ps2bf16
// CHECK-NOT:   {{cvtne2ps2bf16|tdpbf16ps}}
// CHECK:       }
// CHECK-COUNT-4: llvm.x86.tilestored64

// A single row of tiles multiplies both panels, and its two right tiles take turns. Two products of each panel prefetch
// the panel that takes its place.
// CHECK-LABEL: func.func @product_tiles_16x64_fetching(
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK:       %[[FIRST:.*]] = llvm.getelementptr inbounds %arg8[
// CHECK:       %[[SECOND:.*]] = llvm.getelementptr inbounds %[[FIRST]][%arg3]
// CHECK-COUNT-1: llvm.x86.tileloadd64"(%c4_i8
// CHECK:       llvm.x86.tdpbf16ps"(%c0_i8, %c4_i8, %c6_i8)
// CHECK:       %[[THEN:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[FIRST]])
// CHECK:       llvm.x86.tdpbf16ps"(%c1_i8, %c4_i8, %c7_i8)
// CHECK:       scf.for {{.*}} iter_args(%{{.*}} = %[[THEN]])
// CHECK:       llvm.x86.tdpbf16ps"(%c2_i8, %c4_i8, %c6_i8)
// CHECK:       %[[THEN:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[SECOND]])
// CHECK:       llvm.x86.tdpbf16ps"(%c3_i8, %c4_i8, %c7_i8)
// CHECK:       scf.for {{.*}} iter_args(%{{.*}} = %[[THEN]])
// CHECK-COUNT-1: prefetch
// CHECK-NOT:   {{prefetch|tdpbf16ps}}
// CHECK:       }

// Units of zeros fill the last tile of a panel.
// CHECK-LABEL: func.func @pack_rows_tiles_transposed(
// CHECK:       cvtne2ps2bf16
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK-NOT:   cvtne2ps2bf16
// CHECK:       llvm.store %cst{{[0-9_]*}}, {{.*}} : vector<16xf32>
// CHECK:       return
func.func @linear(%x: !x, %w: tensor<64x40xf32>) -> !z {
  %0 = xfc.linear %x, %w in bf16 : (!x, tensor<64x40xf32>) -> !z
  return %0 : !z
}

// Rows of 64 elements fill their units, so that they are converted without a mask.
// CHECK-LABEL: func.func @linear_input_grad_64x40_bf16(
// CHECK:       llvm.x86.ldtilecfg
// CHECK:       func.call @product_tiles_32x32_fetching_fetching_rows_2x4_touching_2x2_passing_converting_48(
// CHECK:       llvm.x86.tilerelease
// CHECK-LABEL: func.func @product_tiles_32x32_fetching_fetching_rows_2x4_touching_2x2_passing_converting_48(
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK-NOT:   masked.load
// CHECK-COUNT-32: cvtne2ps2bf16
// CHECK-NOT:   {{cvtne2ps2bf16|masked.load}}
// CHECK:       }
// CHECK-LABEL: func.func @pack_rows_tiles(
// CHECK:       cvtne2ps2bf16
func.func @input_grad(%dy: !z, %w: tensor<64x40xf32>) -> !x {
  %0 = xfc.linear_input_grad %dy, %w in bf16 : (!z, tensor<64x40xf32>) -> !x
  return %0 : !x
}
