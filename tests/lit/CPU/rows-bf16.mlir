// Rows that are stored in bf16, for AMX. Vectors are widened when they are loaded and rounded when they are stored; products and packing
// take the rows as they are.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4+amx --canonicalize --cse | FileCheck %s
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4+bf16 --canonicalize --cse | FileCheck %s --check-prefix=WIDE
// WIDE-NOT: rows<{{.*}}bf16>

!x = !xfc.rows<source, 64xf32>
!y = !xfc.rows<source, 128xf32>
!stats = !xfc.rows<source, 2xf32>

// CHECK-LABEL: func.func @norm_64(
// CHECK-COUNT-1: arith.truncf {{.*}} : vector<16xf32> to vector<16xbf16>
// CHECK-NEXT:  llvm.store {{.*}} : vector<16xbf16>
// CHECK-NOT:   arith.truncf

// Rows are not converted. Tiles read them in place, by a stride in words of two elements, but the last rows of a block if there are not
// 32 of them: these are copied, since the memory after them may belong to others.
// CHECK-LABEL: func.func @linear_128x64_bf16(
// CHECK:       llvm.x86.ldtilecfg
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       %[[HALVES:.*]] = llvm.load {{.*}} -> vector<16xbf16>
// CHECK:       llvm.store %[[HALVES]], {{.*}} : vector<16xbf16>
// CHECK:       %[[WORDS:.*]] = arith.divui %{{.*}}, %c2_i64
// CHECK:       %[[ROWS:.*]] = arith.select {{.*}} : !llvm.ptr
// CHECK:       %[[STRIDE:.*]] = arith.select %{{.*}}, %[[WORDS]], %{{.*}} : i64
// CHECK:       func.call @product_tiles_32x32_fetching_fetching_rows_1x4_touching_1x4_passing(%[[ROWS]], %[[STRIDE]],
// CHECK-NOT:   converting
// CHECK:       arith.truncf {{.*}} : vector<16xf32> to vector<16xbf16>
// CHECK-NEXT:  llvm.store {{.*}} : vector<16xbf16>

// The norm is that of the sum before it is rounded, which is in scratch.
// CHECK-LABEL: func.func @add_norm_64(
// CHECK:       arith.extf {{.*}} : vector<16xbf16> to vector<16xf32>
// CHECK:       %[[SUM:.*]] = arith.addf {{.*}} : vector<16xf32>
// CHECK:       llvm.store %[[SUM]], {{.*}} : vector<16xf32>
// CHECK:       %[[ROUNDED:.*]] = arith.truncf %[[SUM]] : vector<16xf32> to vector<16xbf16>
// CHECK-NEXT:  llvm.store %[[ROUNDED]]
// CHECK-NOT:   arith.extf

// Pairs of rows are interleaved, and transposed, as they are; only the sums of columns widen them.
// CHECK-LABEL: func.func @transpose_pairs_bf16_and_sum(
// CHECK:       llvm.load {{.*}} -> vector<16xbf16>
// CHECK:       arith.addf
// CHECK-COUNT-32: llvm.load {{.*}} -> vector<8xi16>
// CHECK-NOT:   cvtne2ps2bf16
// CHECK-LABEL: func.func @product_tiles_32x32_{{.*}}_packing_{{[0-9]+}}_bf16(
// CHECK:       llvm.x86.tdpbf16ps
// CHECK:       llvm.load {{.*}} -> vector<16xi16>
// CHECK:       vector.interleave {{.*}} : vector<16xi16> -> vector<32xi16>
// CHECK-NOT:   {{cvtne2ps2bf16|arith.extf}}
// CHECK:       return
func.func @f(%x: !x {xfc.name = "x", xfc.role = "input"}, %w: tensor<128x64xf32> {xfc.name = "w", xfc.role = "parameter"},
             %n: tensor<64xf32> {xfc.name = "n", xfc.role = "parameter"}) -> (tensor<128x64xf32>, tensor<128xf32>, !x) {
  %a, %as = xfc.norm %x, %n {eps = 1.0e-5 : f64} : (!x, tensor<64xf32>) -> (!x, !stats)
  %y = xfc.linear %a, %w in bf16 : (!x, tensor<128x64xf32>) -> !y
  %dx = xfc.linear_input_grad %y, %w in bf16 : (!y, tensor<128x64xf32>) -> !x
  %r, %s, %rs = xfc.add_norm %a, %dx, %n {eps = 1.0e-5 : f64} : (!x, !x, tensor<64xf32>) -> (!x, !x, !stats)
  %dw, %db = xfc.linear_weight_grad %y, %s in bf16 : (!y, !x) -> (tensor<128x64xf32>, tensor<128xf32>)
  %p, %ps = xfc.norm %r, %n {eps = 1.0e-5 : f64} : (!x, tensor<64xf32>) -> (!x, !stats)
  return %dw, %db, %p : tensor<128x64xf32>, tensor<128xf32>, !x
}
