// RUN: %xfc-opt %s --xfc-fuse-add-norm | FileCheck %s
// CHECK-NOT: xfc.add_norm

!rows = !xfc.rows<source, 8xf32>
!stats = !xfc.rows<source, 2xf32>

// The normalized value is not a sum.
// CHECK-LABEL: func.func @no_sum
// CHECK: xfc.norm
func.func @no_sum(%x: !rows, %w: tensor<8xf32>) -> !rows {
  %m = xfc.multiply %x, %x : !rows
  %y, %stats = xfc.norm %m, %w {eps = 1.0e-5} : (!rows, tensor<8xf32>) -> (!rows, !stats)
  return %y : !rows
}

// The weights are computed after the sum, which has other uses that cannot be moved behind them.
// CHECK-LABEL: func.func @late_weights
// CHECK: xfc.add
// CHECK: xfc.norm
func.func @late_weights(%x: !rows, %w: tensor<4xf32>) -> (!rows, !rows) {
  %s = xfc.add %x, %x : !rows
  %late = xfc.concat %w, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  %y, %stats = xfc.norm %s, %late {eps = 1.0e-5} : (!rows, tensor<8xf32>) -> (!rows, !stats)
  return %y, %s : !rows, !rows
}
