// RUN: %xfc-opt %s --xfc-fuse-cross-entropy --print-op-stats 2>%t.statistics | FileCheck %s
// RUN: FileCheck %s --check-prefix=STATISTICS --input-file=%t.statistics

// STATISTICS: xfc.cross_entropy , 1{{$}}
// STATISTICS: xfc.linear , 1{{$}}
// STATISTICS: xfc.linear_cross_entropy , 2{{$}}

!rows = !xfc.rows<target, 8xf32>
!logits = !xfc.rows<target, 10xf32>
!ids = !xfc.rows<target, i32>
!row = !xfc.rows<target, f32>

// CHECK-LABEL: func.func @projection
// CHECK-SAME: (%[[X:[^:]*]]: {{[^%]*}}%[[W:[^:]*]]: {{[^%]*}}%[[B:[^:]*]]: {{[^%]*}}%[[LABELS:[^:]*]]: {{[^%]*}}%[[E:[^:]*]]: tensor<f32>)
// CHECK-NEXT: %[[LOSS:.*]], %[[NLL:.*]], %{{.*}}, %{{.*}} = xfc.linear_cross_entropy %[[X]], %[[W]], %[[B]], %[[LABELS]], %[[E]]
// CHECK-SAME: -> (!xfc.rows<target, f32>, !xfc.rows<target, f32>, !xfc.rows<target, 10xf32>, !xfc.rows<target, f32>)
// CHECK-NEXT: return %[[LOSS]], %[[NLL]]
func.func @projection(%x: !rows, %w: tensor<10x8xf32>, %b: tensor<10xf32>, %labels: !ids, %e: tensor<f32>) -> (!row, !row) {
  %z = xfc.linear %x, %w bias %b : (!rows, tensor<10x8xf32>, tensor<10xf32>) -> !logits
  %p = xfc.log_softmax %z : !logits
  %loss, %nll = xfc.nll %p, %labels, %e : (!logits, !ids, tensor<f32>) -> (!row, !row)
  return %loss, %nll : !row, !row
}

// CHECK-LABEL: func.func @no_bias
// CHECK-NEXT: xfc.linear_cross_entropy %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} : (!xfc.rows<target, 8xf32>, tensor<10x8xf32>, !xfc.rows<target, i32>, tensor<f32>)
func.func @no_bias(%x: !rows, %w: tensor<10x8xf32>, %labels: !ids, %e: tensor<f32>) -> !row {
  %z = xfc.linear %x, %w : (!rows, tensor<10x8xf32>) -> !logits
  %p = xfc.log_softmax %z : !logits
  %loss, %nll = xfc.nll %p, %labels, %e : (!logits, !ids, tensor<f32>) -> (!row, !row)
  return %loss : !row
}

// The logits are needed elsewhere too.
// CHECK-LABEL: func.func @logits_used
// CHECK-NEXT: %[[Z:.*]] = xfc.linear
// CHECK-NEXT: %[[LOSS:.*]], %[[NLL:.*]], %{{.*}} = xfc.cross_entropy %[[Z]]
// CHECK-NEXT: return %[[LOSS]], %[[NLL]], %[[Z]]
func.func @logits_used(%x: !rows, %w: tensor<10x8xf32>, %labels: !ids, %e: tensor<f32>) -> (!row, !row, !logits) {
  %z = xfc.linear %x, %w : (!rows, tensor<10x8xf32>) -> !logits
  %p = xfc.log_softmax %z : !logits
  %loss, %nll = xfc.nll %p, %labels, %e : (!logits, !ids, tensor<f32>) -> (!row, !row)
  return %loss, %nll, %z : !row, !row, !logits
}
