// RUN: %xfc-opt %s --xfc-fuse-candidates | FileCheck %s
// CHECK-NOT: linear_candidates
// CHECK-NOT: merge_candidates

!rows = !xfc.rows<target, 8xf32>
!logits = !xfc.rows<target, 10xf32>
!ids = !xfc.rows<target, i32>
!row = !xfc.rows<target, f32>
!tokens = !xfc.rows<target, 2xi32>
!best = !xfc.rows<target, 2xf32>

// All log-probabilities are needed.
// CHECK-LABEL: func.func @log_probabilities_used
// CHECK: xfc.candidates
func.func @log_probabilities_used(%x: !rows, %w: tensor<10x8xf32>, %wanted: !ids) -> (!tokens, !logits) {
  %z = xfc.linear %x, %w : (!rows, tensor<10x8xf32>) -> !logits
  %p = xfc.log_softmax %z : !logits
  %tokens, %best, %given = xfc.candidates %p, %wanted {excluded = array<i64: 0>} : (!logits, !ids) -> (!tokens, !best, !row)
  return %tokens, %p : !tokens, !logits
}

// The logits are needed.
// CHECK-LABEL: func.func @logits_used
// CHECK: xfc.candidates
func.func @logits_used(%x: !rows, %w: tensor<10x8xf32>, %wanted: !ids) -> (!tokens, !logits) {
  %z = xfc.linear %x, %w : (!rows, tensor<10x8xf32>) -> !logits
  %p = xfc.log_softmax %z : !logits
  %tokens, %best, %given = xfc.candidates %p, %wanted {excluded = array<i64: 0>} : (!logits, !ids) -> (!tokens, !best, !row)
  return %tokens, %z : !tokens, !logits
}

// The log-probabilities are not a log_softmax, or not that of a projection.
// CHECK-LABEL: func.func @no_log_softmax
// CHECK: xfc.candidates
func.func @no_log_softmax(%p: !logits, %wanted: !ids) -> !tokens {
  %tokens, %best, %given = xfc.candidates %p, %wanted {excluded = array<i64: 0>} : (!logits, !ids) -> (!tokens, !best, !row)
  return %tokens : !tokens
}
// CHECK-LABEL: func.func @no_projection
// CHECK: xfc.candidates
func.func @no_projection(%z: !logits, %wanted: !ids) -> !tokens {
  %p = xfc.log_softmax %z : !logits
  %tokens, %best, %given = xfc.candidates %p, %wanted {excluded = array<i64: 0>} : (!logits, !ids) -> (!tokens, !best, !row)
  return %tokens : !tokens
}

// The projection has an epilogue.
// CHECK-LABEL: func.func @epilogue
// CHECK: xfc.candidates
func.func @epilogue(%x: !rows, %w: tensor<10x8xf32>, %wanted: !ids) -> !tokens {
  %z = xfc.linear %x, %w {
  ^bb0(%y: !logits):
    %t = xfc.activation tanh %y : <target, 10xf32>
    xfc.yield %t : !logits
  } : (!rows, tensor<10x8xf32>) -> !logits
  %p = xfc.log_softmax %z : !logits
  %tokens, %best, %given = xfc.candidates %p, %wanted {excluded = array<i64: 0>} : (!logits, !ids) -> (!tokens, !best, !row)
  return %tokens : !tokens
}
