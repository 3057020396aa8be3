// A function that cannot be differentiated is rejected, with an error at the offending op.
// RUN: %xfc-opt %s --xfc-differentiate --split-input-file --verify-diagnostics

!x = !xfc.rows<target, 4xf32>
// expected-error @+1 {{must return the loss of each row as its first result}}
func.func @loss(%w: tensor<4x4xf32> {xfc.role = "parameter"}, %x: !x) -> tensor<4x4xf32> {
  return %w : tensor<4x4xf32>
}

// -----

!x = !xfc.rows<target, 4xf32>
func.func @loss(%w: tensor<4x4xf32> {xfc.role = "parameter"}, %x: !x) -> !x {
  // expected-error @+1 {{has an epilogue; differentiation must come before epilogues are fused}}
  %0 = xfc.linear %x, %w {
  ^bb0(%row: !x):
    %1 = xfc.activation relu %row : !x
    xfc.yield %1 : !x
  } : (!x, tensor<4x4xf32>) -> !x
  return %0 : !x
}

// -----

!x = !xfc.rows<target, 4xf32>
func.func @loss(%w: tensor<4x4xf32> {xfc.role = "parameter"}, %x: !x) -> !x {
  // expected-error @+1 {{cannot be differentiated}}
  %0 = xfc.linear_input_grad %x, %w : (!x, tensor<4x4xf32>) -> !x
  return %0 : !x
}

// -----

!x = !xfc.rows<target, 4xf32>
!one = !xfc.rows<target, f32>
func.func @loss(%p: !x {xfc.role = "parameter"}, %labels: !xfc.rows<target, i32>, %e: tensor<f32>) -> !one {
  // expected-error @+1 {{only the loss can be differentiated, not nll}}
  %loss, %nll = xfc.nll %p, %labels, %e : (!x, !xfc.rows<target, i32>, tensor<f32>) -> (!one, !one)
  return %nll : !one
}

// -----

!x = !xfc.rows<target, 4xf32>
func.func @loss(%x: !x {xfc.role = "parameter"}, %states: !xfc.rows<cache, 4xf32>) -> !x {
  // expected-error @+1 {{with states belongs to a decoding step, which has no gradient}}
  %0 = xfc.recurrence %x, %x, %states : (!x, !x, !xfc.rows<cache, 4xf32>) -> !x
  return %0 : !x
}
