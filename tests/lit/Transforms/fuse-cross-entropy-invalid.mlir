// RUN: %xfc-opt %s --xfc-fuse-cross-entropy | FileCheck %s
// CHECK-NOT: cross_entropy

!rows = !xfc.rows<target, 8xf32>
!logits = !xfc.rows<target, 10xf32>
!ids = !xfc.rows<target, i32>
!row = !xfc.rows<target, f32>

// The log-probabilities are needed.
// CHECK-LABEL: func.func @log_probabilities_used
// CHECK: xfc.log_softmax
// CHECK: xfc.nll
func.func @log_probabilities_used(%z: !logits, %labels: !ids, %e: tensor<f32>) -> (!row, !logits) {
  %p = xfc.log_softmax %z : !logits
  %loss, %nll = xfc.nll %p, %labels, %e : (!logits, !ids, tensor<f32>) -> (!row, !row)
  return %loss, %p : !row, !logits
}

// The log-probabilities are an argument.
// CHECK-LABEL: func.func @no_log_softmax
// CHECK: xfc.nll
func.func @no_log_softmax(%p: !logits, %labels: !ids, %e: tensor<f32>) -> !row {
  %loss, %nll = xfc.nll %p, %labels, %e : (!logits, !ids, tensor<f32>) -> (!row, !row)
  return %loss : !row
}

// Decoding needs the log-probabilities and has no loss.
// CHECK-LABEL: func.func @no_loss
// CHECK: xfc.linear
// CHECK: xfc.log_softmax
func.func @no_loss(%x: !rows, %w: tensor<10x8xf32>) -> !logits {
  %z = xfc.linear %x, %w : (!rows, tensor<10x8xf32>) -> !logits
  %p = xfc.log_softmax %z : !logits
  return %p : !logits
}
