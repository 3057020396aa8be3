// RUN: %xfc-opt %s --xfc-fuse-norm-grad | FileCheck %s
// CHECK-NOT: xfc.norm_grad_with_parts

!rows = !xfc.rows<source, 8xf32>
!stats = !xfc.rows<source, 2xf32>
!tensor = tensor<8xf32>

// The gradient of the rows is not needed.
// CHECK-LABEL: func.func @weights_only
// CHECK: xfc.norm_weight_grad
func.func @weights_only(%dy: !rows, %x: !rows, %stats: !stats) -> !tensor {
  %dw = xfc.norm_weight_grad %dy, %x, %stats : (!rows, !rows, !stats) -> !tensor
  return %dw : !tensor
}

// The two ops have different incoming gradients.
// CHECK-LABEL: func.func @other_gradient
// CHECK: xfc.norm_grad
// CHECK: xfc.norm_weight_grad
func.func @other_gradient(%dy: !rows, %other: !rows, %x: !rows, %w: !tensor, %stats: !stats) -> (!rows, !tensor) {
  %dx = xfc.norm_grad %dy, %x, %w, %stats {eps = 1.0e-5} : (!rows, !rows, !tensor, !stats) -> !rows
  %dw = xfc.norm_weight_grad %other, %x, %stats : (!rows, !rows, !stats) -> !tensor
  return %dx, %dw : !rows, !tensor
}

// The weight gradient comes first, and norm_grad reads it.
// CHECK-LABEL: func.func @weights_first
// CHECK: xfc.norm_weight_grad
// CHECK: xfc.norm_grad
func.func @weights_first(%dy: !rows, %x: !rows, %stats: !stats) -> !rows {
  %dw = xfc.norm_weight_grad %dy, %x, %stats : (!rows, !rows, !stats) -> !tensor
  %dx = xfc.norm_grad %dy, %x, %dw, %stats {eps = 1.0e-5} : (!rows, !rows, !tensor, !stats) -> !rows
  return %dx : !rows
}
