// Products in bf16: tensor cores, weights copied without waiting, rows through registers, everything of a k-block by one barrier; in f32: no
// tensor core, but the same way through shared memory.
//
// RUN: %xfc-ptx %s > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: FileCheck %s --check-prefix=ALL < %t.ptx
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_80 sm_90 sm_90a sm_100 %}

// Sums are in registers, whatever is done with them.
// ALL-NOT: .local

// 64 products of fragments for a block of 32 of K, of which a warp loads 16 groups of matrices.
// CHECK-LABEL: .visible .entry linear_2048x512_bf16(
// CHECK:       .reqntid 128
// CHECK:       cp.async.cg.shared.global
// CHECK:       cp.async.commit_group
// CHECK:       cp.async.wait_group 0
// CHECK-NEXT:  bar.sync
// CHECK:       cp.async.cg.shared.global
// CHECK-COUNT-8: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-NOT:   ldmatrix
// CHECK-COUNT-32: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// CHECK-COUNT-8: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-COUNT-32: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// CHECK-NOT:   mma.sync
// CHECK:       cvt.rn.bf16x2.f32
// CHECK-NEXT:  cvt.rn.bf16x2.f32
// CHECK-NEXT:  st.shared.v2.b32
// CHECK:       st.global.v2.b32
func.func @linear(%x: !xfc.rows<source, 512xf32>, %w: tensor<2048x512xf32>, %b: tensor<2048xf32>) -> !xfc.rows<source, 2048xf32> {
  %0 = xfc.linear %x, %w bias %b in bf16 : (!xfc.rows<source, 512xf32>, tensor<2048x512xf32>, tensor<2048xf32>) -> !xfc.rows<source, 2048xf32>
  return %0 : !xfc.rows<source, 2048xf32>
}
