// RUN: %xfc-opt %s --xfc-recompute | FileCheck %s
// RUN: %xfc-opt %s --xfc-recompute=level=most | FileCheck %s
// RUN: not %xfc-opt %s --xfc-recompute=level=all 2>&1 | FileCheck %s --check-prefix=LEVEL

// LEVEL: Cannot find option named 'all'

!rows = !xfc.rows<source, 64xf32>
!logits = !xfc.rows<source, 1000xf32>

// Without a gradient of the loss there is no backward pass.
// CHECK-LABEL: func.func @forward(
// CHECK-COUNT-1: xfc.activation
// CHECK-NOT: xfc.activation
func.func @forward(%x: !rows) -> (!rows, !rows) {
  %a = xfc.activation gelu %x : !rows
  %b = xfc.add %a, %x : !rows
  %c = xfc.multiply %b, %a : !rows
  return %b, %c : !rows, !rows
}

// A result of the function is kept anyway.
// CHECK-LABEL: func.func @result(
// CHECK-COUNT-1: xfc.activation gelu
// CHECK-NOT: xfc.activation gelu
func.func @result(%x: !rows, %w: tensor<1000x64xf32>, %loss_scale: !logits {xfc.name = "loss_scale", xfc.role = "input"}) -> (!rows, tensor<1000x64xf32>) {
  %a = xfc.activation gelu %x : !rows
  %z = xfc.linear %a, %w : (!rows, tensor<1000x64xf32>) -> !logits
  %p = xfc.log_softmax %z : !logits
  %dz = xfc.log_softmax_grad %loss_scale, %p : !logits
  %dw = xfc.linear_weight_grad %dz, %a : (!logits, !rows) -> tensor<1000x64xf32>
  return %a, %dw : !rows, tensor<1000x64xf32>
}

// The log-probabilities are live at the peak itself, so recomputing them would not lower it.
// CHECK-LABEL: func.func @peak(
// CHECK-COUNT-1: xfc.log_softmax %
// CHECK-NOT: xfc.log_softmax %
func.func @peak(%x: !rows, %w: tensor<1000x64xf32>, %loss_scale: !logits {xfc.name = "loss_scale", xfc.role = "input"}) -> tensor<1000x64xf32> {
  %z = xfc.linear %x, %w : (!rows, tensor<1000x64xf32>) -> !logits
  %p = xfc.log_softmax %z : !logits
  %dz = xfc.log_softmax_grad %loss_scale, %p : !logits
  %dw = xfc.linear_weight_grad %dz, %x : (!logits, !rows) -> tensor<1000x64xf32>
  return %dw : tensor<1000x64xf32>
}

// Attention is not recomputed for its log-sum-exp alone: its rows are a result of the function and kept anyway.
// CHECK-LABEL: func.func @log_sum_exp(
// CHECK-COUNT-1: xfc.attention %
// CHECK-NOT: xfc.attention %
// CHECK: xfc.attention_grad
func.func @log_sum_exp(%q: !rows, %w: tensor<1000x64xf32>, %loss_scale: !logits {xfc.name = "loss_scale", xfc.role = "input"})
    -> (!rows, !rows, tensor<1000x64xf32>) {
  %o, %lse = xfc.attention %q, %q, %q {heads = 8, scale = 0.125, padding} : (!rows, !rows, !rows) -> (!rows, !xfc.rows<source, 8xf32>)
  %z = xfc.linear %o, %w : (!rows, tensor<1000x64xf32>) -> !logits
  %p = xfc.log_softmax %z : !logits
  %dz = xfc.log_softmax_grad %loss_scale, %p : !logits
  %do = xfc.linear_input_grad %dz, %w : (!logits, tensor<1000x64xf32>) -> !rows
  %dw = xfc.linear_weight_grad %dz, %o : (!logits, !rows) -> tensor<1000x64xf32>
  %dq, %dk, %dv = xfc.attention_grad %do, %q, %q, %q, %o, %lse {heads = 8, scale = 0.125, padding} : (!rows, !rows, !rows, !rows, !rows, !xfc.rows<source, 8xf32>) -> (!rows, !rows, !rows)
  return %o, %dq, %dw : !rows, !rows, tensor<1000x64xf32>
}
