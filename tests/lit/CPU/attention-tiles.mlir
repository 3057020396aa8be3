// Attention in bf16 multiplies by tiles of AMX. Other sets gain too little by bf16 here, and have no kernel for it.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4+amx --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --implicit-check-not=atomic < %t
// RUN: not %xfc-opt %s --xfc-kernels=target=x86-64-v4+bf16 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: compile: there is no CPU kernel for xfc.attention

!rows = !xfc.rows<source, 64xf32>
!lse = !xfc.rows<source, 2xf32>

// Besides what other sets need, scratch has the rounded operands: the left one, keys and values.
// PLAN:        plan.kernel @attention_64_bf16 attributes {partition = #plan.partition<sequences per 1 times 2>, scratch = 195200 : i64}
// CHECK-LABEL: func.func @attention_64_bf16(
// The tiles have 64 bytes in each of 16 rows. A single query needs no tiles; it rounds what it reads, in registers.
// CHECK:       dense<[1, 0, 0, 0, 4194368, 4194368, 4194368, 4194368, 0,
// CHECK-NOT:   {{ldtilecfg|func.call}}
// CHECK:       scf.if
// CHECK:       :16 = scf.for {{.*}} step %c16_i64
// CHECK:       %[[ROUNDED:.*]] = arith.truncf {{.*}} to vector<16xbf16>
// CHECK-NEXT:  arith.extf %[[ROUNDED]]
// CHECK-NOT:   {{ldtilecfg|func.call}}
// Several queries configure the tiles once. Keys and values are rounded when they have been copied, for all queries,
// and the left operands in the products.
// CHECK:       } else {
// CHECK:       llvm.x86.ldtilecfg
// CHECK:       scf.for {{.*}} step %c48_i64
// CHECK:       scf.for {{.*}} step %c256_i64
// CHECK:       scf.if
// CHECK:       func.call @round_right544(
// CHECK-NEXT:  func.call @round_right4128(
// CHECK-NEXT:  }
// CHECK:       func.call @rounding_product_n144({{.*}}, %false, %{{.*}})
// CHECK:       func.call @rounding_product_n144({{.*}}, %true, %{{.*}})
// CHECK-NOT:   {{ldtilecfg|func.call}}
// CHECK:       llvm.x86.tilerelease
// CHECK-NEXT:  return

// Pairs of rows become the two halves of words. A last row without another is paired with zeros, and whole units of
// zeros fill the last tile.
// CHECK-LABEL: func.func @round_right544(
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK-COUNT-2: vector.shuffle {{.*}} [0, 16, 1, 17, {{.*}} : vector<32xbf16>
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK-COUNT-2: cvtne2ps2bf16.512"(%[[ZERO:[a-z0-9_]+]],
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK-NOT:   llvm.load
// CHECK-COUNT-2: llvm.store %[[ZERO]]

// A left row is rounded, sixteen pairs of neighbors at a time, and multiplied by panels of 32 columns.
// CHECK-LABEL: func.func @rounding_product_n144(
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK:       cvtne2ps2bf16
// CHECK-NOT:   vector.shuffle
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK-COUNT-2: llvm.intr.masked.load
// CHECK:       cvtne2ps2bf16
// CHECK:       scf.for {{.*}} step %c32_i64
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       func.call @product_tiles_32x32(
// CHECK:       scf.if
// CHECK:       func.call @product_tiles_16x32(

// Four tiles of sums, two left and two right ones: a step loads four tiles and multiplies four times.
// CHECK-LABEL: func.func @product_tiles_32x32(
// CHECK:       scf.if %arg7
// CHECK-COUNT-4: llvm.x86.tileloadd64
// CHECK:       } else {
// CHECK-COUNT-4: llvm.x86.tilezero
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK:       llvm.x86.tileloadd64"(%c4_i8
// CHECK:       llvm.x86.tileloadd64"(%c6_i8
// CHECK-NEXT:  llvm.x86.tdpbf16ps"(%c0_i8, %c4_i8, %c6_i8)
// CHECK:       llvm.x86.tileloadd64"(%c7_i8
// CHECK-NEXT:  llvm.x86.tdpbf16ps"(%c1_i8, %c4_i8, %c7_i8)
// CHECK:       llvm.x86.tileloadd64"(%c5_i8
// CHECK-NEXT:  llvm.x86.tdpbf16ps"(%c2_i8, %c5_i8, %c6_i8)
// CHECK-NEXT:  llvm.x86.tdpbf16ps"(%c3_i8, %c5_i8, %c7_i8)
// CHECK-NEXT:  }
// CHECK-COUNT-4: llvm.x86.tilestored64
// CHECK-NOT:   {{tilestored64|tileloadd64}}

// The last 16 rows, if there are not 32, take one row of tiles.
// CHECK-LABEL: func.func @product_tiles_16x32(
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK-COUNT-2: llvm.x86.tdpbf16ps
// CHECK-NOT:   llvm.x86.tdpbf16ps
// CHECK-COUNT-2: llvm.x86.tilestored64
func.func @attention(%q: !rows, %k: !rows, %v: !rows) -> (!rows, !lse) {
  %o, %lse = xfc.attention %q, %k, %v in bf16 {heads = 2 : i64, scale = 0.125, padding} : (!rows, !rows, !rows) -> (!rows, !lse)
  return %o, %lse : !rows, !lse
}

// All five products of the gradient are by tiles. Transposed left operands, the probabilities and the gradients of the
// scores, are transposed as they are rounded.
// PLAN:        plan.kernel @attention_grad_64_bf16 attributes {partition = #plan.partition<sequences per 1 times 2>, scratch = 235392 : i64}
// CHECK-LABEL: func.func @attention_grad_64_bf16(
// CHECK-COUNT-1: llvm.x86.ldtilecfg
// CHECK-NOT:   {{ldtilecfg}}
// CHECK:       scf.for {{.*}} step %c128_i64
// CHECK:       scf.for {{.*}} step %c48_i64
// CHECK:       func.call @rounding_product_n80({{.*}}, %false, %{{.*}})
// CHECK:       func.call @rounding_product_n80({{.*}}, %false, %{{.*}})
// CHECK:       func.call @rounding_product_t80({{.*}}, %true, %{{.*}})
// CHECK:       func.call @rounding_product_t80({{.*}}, %true, %{{.*}})
// CHECK:       func.call @rounding_product_n80({{.*}}, %false, %{{.*}})
// CHECK-NOT:   {{ldtilecfg|rounding_product}}
// CHECK:       llvm.x86.tilerelease
// CHECK-NEXT:  return
// CHECK-LABEL: func.func @rounding_product_t80(
// CHECK:       call @transpose_pairs(
// CHECK:       func.call @product_tiles_32x32(
// Blocks of 32 x 16 elements are transposed in registers: half of each, 8 columns, takes 8 roundings, and 24 shuffles
// of words besides those that join the rows.
// CHECK-LABEL: func.func @transpose_pairs(
// CHECK:       scf.for {{.*}} step %c32_i64
// CHECK:       scf.for {{.*}} step %c16_i64
// CHECK-COUNT-32: llvm.load {{.*}} -> vector<8xf32>
// CHECK-COUNT-24: vector.shuffle {{.*}} : vector<32xbf16>, vector<32xbf16>
// CHECK-NOT:   vector.shuffle
// CHECK-COUNT-8: llvm.store {{.*}} : vector<32xbf16>
// CHECK-COUNT-24: vector.shuffle {{.*}} : vector<32xbf16>, vector<32xbf16>
// CHECK-NOT:   {{vector.shuffle|scf.if}}
// CHECK-COUNT-8: llvm.store {{.*}} : vector<32xbf16>
// CHECK-NOT:   llvm.store
// The rows that are left are read under a mask.
// CHECK:       scf.if
// CHECK:       llvm.intr.masked.load
func.func @grad(%d: !rows, %q: !rows, %k: !rows, %v: !rows, %o: !rows, %lse: !lse) -> (!rows, !rows, !rows) {
  %dq, %dk, %dv = xfc.attention_grad %d, %q, %k, %v, %o, %lse in bf16 {heads = 2 : i64, scale = 0.125, padding} : (!rows, !rows, !rows, !rows, !rows, !lse) -> (!rows, !rows, !rows)
  return %dq, %dk, %dv : !rows, !rows, !rows
}
