// RUN: %xfc-opt %s --xfc-fuse-loss-gradient --print-op-stats 2>%t.statistics | FileCheck %s
// RUN: FileCheck %s --check-prefix=STATISTICS --input-file=%t.statistics

// STATISTICS: xfc.cross_entropy_grad , 3{{$}}
// STATISTICS: xfc.linear_cross_entropy , 3{{$}}
// STATISTICS: xfc.linear_cross_entropy_with_grad , 2{{$}}

!rows = !xfc.rows<target, 8xf32>
!logits = !xfc.rows<target, 10xf32>
!ids = !xfc.rows<target, i32>
!row = !xfc.rows<target, f32>

// CHECK-LABEL: func.func @given
// CHECK-SAME: (%[[X:[^:]*]]: {{[^%]*}}%[[W:[^:]*]]: {{[^%]*}}%[[B:[^:]*]]: {{[^%]*}}%[[LABELS:[^:]*]]: {{[^%]*}}%[[E:[^:]*]]: {{[^%]*}}%[[D:[^:]*]]: !xfc.rows<target, f32>)
// CHECK-NEXT: %[[LOSS:.*]], %[[NLL:.*]], %[[DZ:.*]] = xfc.linear_cross_entropy_with_grad %[[X]], %[[W]], %[[B]], %[[LABELS]], %[[E]], %[[D]]
// CHECK-NEXT: return %[[LOSS]], %[[NLL]], %[[DZ]]
func.func @given(%x: !rows, %w: tensor<10x8xf32>, %b: tensor<10xf32>, %labels: !ids, %e: tensor<f32>, %d: !row) -> (!row, !row, !logits) {
  %loss, %nll, %z, %lse = xfc.linear_cross_entropy %x, %w, %b, %labels, %e : (!rows, tensor<10x8xf32>, tensor<10xf32>, !ids, tensor<f32>) -> (!row, !row, !logits, !row)
  %dz = xfc.cross_entropy_grad %z, %d, %labels, %lse, %e : (!logits, !row, !ids, !row, tensor<f32>) -> !logits
  return %loss, %nll, %dz : !row, !row, !logits
}

// Computed before the loss, from something else.
// CHECK-LABEL: func.func @computed
// CHECK: xfc.scale
// CHECK-NEXT: xfc.linear_cross_entropy_with_grad %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} :
// CHECK-NEXT: return
func.func @computed(%x: !rows, %w: tensor<10x8xf32>, %labels: !ids, %e: tensor<f32>, %d: !row) -> !logits {
  %half = xfc.scale %d {factor = 0.5} : !row
  %loss, %nll, %z, %lse = xfc.linear_cross_entropy %x, %w, %labels, %e : (!rows, tensor<10x8xf32>, !ids, tensor<f32>) -> (!row, !row, !logits, !row)
  %dz = xfc.cross_entropy_grad %z, %half, %labels, %lse, %e : (!logits, !row, !ids, !row, tensor<f32>) -> !logits
  return %dz : !logits
}

// The incoming gradient is computed from the loss itself.
// CHECK-LABEL: func.func @not_known
// CHECK: xfc.linear_cross_entropy %
// CHECK: xfc.cross_entropy_grad
func.func @not_known(%x: !rows, %w: tensor<10x8xf32>, %labels: !ids, %e: tensor<f32>) -> !logits {
  %loss, %nll, %z, %lse = xfc.linear_cross_entropy %x, %w, %labels, %e : (!rows, tensor<10x8xf32>, !ids, tensor<f32>) -> (!row, !row, !logits, !row)
  %dz = xfc.cross_entropy_grad %z, %loss, %labels, %lse, %e : (!logits, !row, !ids, !row, tensor<f32>) -> !logits
  return %dz : !logits
}

// CHECK-LABEL: func.func @logits_used
// CHECK: xfc.linear_cross_entropy %
// CHECK: xfc.cross_entropy_grad
func.func @logits_used(%x: !rows, %w: tensor<10x8xf32>, %labels: !ids, %e: tensor<f32>, %d: !row) -> (!logits, !logits) {
  %loss, %nll, %z, %lse = xfc.linear_cross_entropy %x, %w, %labels, %e : (!rows, tensor<10x8xf32>, !ids, tensor<f32>) -> (!row, !row, !logits, !row)
  %dz = xfc.cross_entropy_grad %z, %d, %labels, %lse, %e : (!logits, !row, !ids, !row, tensor<f32>) -> !logits
  return %dz, %z : !logits, !logits
}

// CHECK-LABEL: func.func @other_smoothing
// CHECK: xfc.linear_cross_entropy %
// CHECK: xfc.cross_entropy_grad
func.func @other_smoothing(%x: !rows, %w: tensor<10x8xf32>, %labels: !ids, %e: tensor<f32>, %f: tensor<f32>, %d: !row) -> !logits {
  %loss, %nll, %z, %lse = xfc.linear_cross_entropy %x, %w, %labels, %e : (!rows, tensor<10x8xf32>, !ids, tensor<f32>) -> (!row, !row, !logits, !row)
  %dz = xfc.cross_entropy_grad %z, %d, %labels, %lse, %f : (!logits, !row, !ids, !row, tensor<f32>) -> !logits
  return %dz : !logits
}
