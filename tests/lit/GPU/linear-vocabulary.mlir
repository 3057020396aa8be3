// Products with a vocabulary, fused with losses, gradients of losses, or candidates.
//
// RUN: %xfc-ptx %s > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_80 sm_90 sm_90a sm_100 %}

// Nothing reads the logits, so they are not stored.
// CHECK-LABEL: .visible .entry linear_cross_entropy
// CHECK-NOT:   .local
// CHECK-COUNT-32: mma.sync
// CHECK-NOT:   st.global.v2
// CHECK:       ex2.approx.ftz.f32
// CHECK:       shfl.sync.bfly.b32
func.func @loss(%x: !xfc.rows<target, 512xf32>, %w: tensor<32000x512xf32>, %labels: !xfc.rows<target, i32>, %e: tensor<f32>) -> !xfc.rows<target, f32> {
  %loss, %nll, %logits, %lse = xfc.linear_cross_entropy %x, %w, %labels, %e in bf16 : (!xfc.rows<target, 512xf32>, tensor<32000x512xf32>, !xfc.rows<target, i32>, tensor<f32>) -> (!xfc.rows<target, f32>, !xfc.rows<target, f32>, !xfc.rows<target, 32000xf32>, !xfc.rows<target, f32>)
  return %loss : !xfc.rows<target, f32>
}

// CHECK-LABEL: .visible .entry linear_cross_entropy_with_grad
// CHECK-NOT:   .local
// CHECK:       st.global.v2.b32
// CHECK-COUNT-32: mma.sync
// CHECK:       bar.sync
// CHECK:       ld.global.v4.b32
// CHECK:       st.global.v4.b32
func.func @grad(%x: !xfc.rows<target, 512xf32>, %w: tensor<32000x512xf32>, %b: tensor<32000xf32>, %labels: !xfc.rows<target, i32>, %e: tensor<f32>, %d: !xfc.rows<target, f32>) -> (!xfc.rows<target, f32>, !xfc.rows<target, 32000xf32>) {
  %loss, %nll, %dlogits = xfc.linear_cross_entropy_with_grad %x, %w, %b, %labels, %e, %d in bf16 : (!xfc.rows<target, 512xf32>, tensor<32000x512xf32>, tensor<32000xf32>, !xfc.rows<target, i32>, tensor<f32>, !xfc.rows<target, f32>) -> (!xfc.rows<target, f32>, !xfc.rows<target, f32>, !xfc.rows<target, 32000xf32>)
  return %loss, %dlogits : !xfc.rows<target, f32>, !xfc.rows<target, 32000xf32>
}

// CHECK-LABEL: .visible .entry linear_candidates
// CHECK-NOT:   .local
// CHECK-COUNT-16: mma.sync
// CHECK:       st.shared.v2.b32
func.func @candidates(%x: !xfc.rows<target, 512xf32>, %w: tensor<32000x512xf32>, %wanted: !xfc.rows<target, i32>) -> (!xfc.rows<target, 504xi32>, !xfc.rows<target, 504xf32>, !xfc.rows<target, 63xf32>, !xfc.rows<target, f32>) {
  %0, %1, %2, %3 = xfc.linear_candidates %x, %w, %wanted in bf16 {excluded = array<i64: 0, 1>, slab = 512 : i64} : (!xfc.rows<target, 512xf32>, tensor<32000x512xf32>, !xfc.rows<target, i32>) -> (!xfc.rows<target, 504xi32>, !xfc.rows<target, 504xf32>, !xfc.rows<target, 63xf32>, !xfc.rows<target, f32>)
  return %0, %1, %2, %3 : !xfc.rows<target, 504xi32>, !xfc.rows<target, 504xf32>, !xfc.rows<target, 63xf32>, !xfc.rows<target, f32>
}

// A slab of one tile has room for blocks of K four times as deep: a warp has eight products in each of eight steps.
// CHECK-LABEL: .visible .entry linear_candidates_16000x512_bf16
// CHECK-NOT:   .local
// CHECK-COUNT-64: mma.sync
// CHECK-NOT:   mma.sync
// CHECK:       redux.sync.max.u32
func.func @slab_of_a_tile(%x: !xfc.rows<target, 512xf32>, %w: tensor<16000x512xf32>, %wanted: !xfc.rows<target, i32>) -> (!xfc.rows<target, 1000xi32>, !xfc.rows<target, 1000xf32>, !xfc.rows<target, 125xf32>, !xfc.rows<target, f32>) {
  %0, %1, %2, %3 = xfc.linear_candidates %x, %w, %wanted in bf16 {excluded = array<i64: 0, 1>, slab = 128 : i64} : (!xfc.rows<target, 512xf32>, tensor<16000x512xf32>, !xfc.rows<target, i32>) -> (!xfc.rows<target, 1000xi32>, !xfc.rows<target, 1000xf32>, !xfc.rows<target, 125xf32>, !xfc.rows<target, f32>)
  return %0, %1, %2, %3 : !xfc.rows<target, 1000xi32>, !xfc.rows<target, 1000xf32>, !xfc.rows<target, 125xf32>, !xfc.rows<target, f32>
}

// The loss with its gradient and the candidates in f32, of a slab of one tile, too.
func.func @f32(%x: !xfc.rows<target, 512xf32>, %w: tensor<1000x512xf32>, %labels: !xfc.rows<target, i32>, %e: tensor<f32>, %d: !xfc.rows<target, f32>) -> (!xfc.rows<target, f32>, !xfc.rows<target, 1000xf32>, !xfc.rows<target, 16xi32>) {
  %loss, %nll, %dlogits = xfc.linear_cross_entropy_with_grad %x, %w, %labels, %e, %d : (!xfc.rows<target, 512xf32>, tensor<1000x512xf32>, !xfc.rows<target, i32>, tensor<f32>, !xfc.rows<target, f32>) -> (!xfc.rows<target, f32>, !xfc.rows<target, f32>, !xfc.rows<target, 1000xf32>)
  %0, %1, %2, %3 = xfc.linear_candidates %x, %w, %labels {excluded = array<i64>, slab = 512 : i64} : (!xfc.rows<target, 512xf32>, tensor<1000x512xf32>, !xfc.rows<target, i32>) -> (!xfc.rows<target, 16xi32>, !xfc.rows<target, 16xf32>, !xfc.rows<target, 2xf32>, !xfc.rows<target, f32>)
  return %loss, %dlogits, %0 : !xfc.rows<target, f32>, !xfc.rows<target, 1000xf32>, !xfc.rows<target, 16xi32>
}
func.func @f32_slab_of_a_tile(%x: !xfc.rows<target, 512xf32>, %w: tensor<1000x512xf32>, %wanted: !xfc.rows<target, i32>) -> (!xfc.rows<target, 64xi32>, !xfc.rows<target, 64xf32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, f32>) {
  %0, %1, %2, %3 = xfc.linear_candidates %x, %w, %wanted {excluded = array<i64: 0>, slab = 128 : i64} : (!xfc.rows<target, 512xf32>, tensor<1000x512xf32>, !xfc.rows<target, i32>) -> (!xfc.rows<target, 64xi32>, !xfc.rows<target, 64xf32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, f32>)
  return %0, %1, %2, %3 : !xfc.rows<target, 64xi32>, !xfc.rows<target, 64xf32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, f32>
}
