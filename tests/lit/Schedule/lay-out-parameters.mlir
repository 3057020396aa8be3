// RUN: %xfc-opt %s --xfc-lay-out-parameters | FileCheck %s
// RUN: %xfc-opt %s --xfc-lay-out-parameters | %xfc-opt | FileCheck %s

// @forward reads "q" and "k" as one, so "k" follows "q" without a gap; every group begins on a cache line of 16 floats.
// The optimizer's states are the ones that @update has as arguments.
// Of a matrix, row_mean and column_mean hold only a vector; of a vector, row_mean holds all elements and column_mean none.
// CHECK: xfc.parameter @k
// CHECK-NEXT: plan.parameters 64 x f32 states ["moment2", "moment1", "row_mean", "column_mean"] {
// CHECK-NEXT: plan.parameter @q at 0
// CHECK-NEXT: plan.parameter @k at 15
// CHECK-NEXT: plan.parameter @b at 32
// CHECK-NEXT: plan.parameter @w at 48
// CHECK-NEXT: plan.state "row_mean" 64 {
// CHECK-NEXT: plan.part @q [3] at 0
// CHECK-NEXT: plan.part @k [1] at 16
// CHECK-NEXT: plan.part @b [7] at 32
// CHECK-NEXT: plan.part @w [4] at 48
// CHECK-NEXT: }
// CHECK-NEXT: plan.state "column_mean" 48 {
// CHECK-NEXT: plan.part @q [5] at 0
// CHECK-NEXT: plan.part @k [5] at 16
// CHECK-NEXT: plan.part @w [4] at 32
// CHECK-NEXT: }
// CHECK-NEXT: }
xfc.parameter @q : tensor<3x5xf32> init xavier_uniform
xfc.parameter @b : tensor<7xf32> init zero
xfc.parameter @w : tensor<4x4xf32> init xavier_uniform
xfc.parameter @k : tensor<1x5xf32> init xavier_uniform

func.func @forward(%q: tensor<3x5xf32> {xfc.name = "q", xfc.role = "parameter"}, %k: tensor<1x5xf32> {xfc.name = "k", xfc.role = "parameter"}) -> tensor<4x5xf32> {
  %qk = xfc.concat %q, %k : (tensor<3x5xf32>, tensor<1x5xf32>) -> tensor<4x5xf32>
  return %qk : tensor<4x5xf32>
}

func.func @update(%b: tensor<7xf32> {xfc.name = "b", xfc.role = "parameter"}, %vb: tensor<7xf32> {xfc.name = "b", xfc.role = "moment2"},
                  %mb: tensor<7xf32> {xfc.name = "b", xfc.role = "moment1"}, %mw: tensor<4x4xf32> {xfc.name = "w", xfc.role = "moment1"},
                  %rw: tensor<4xf32> {xfc.name = "w", xfc.role = "row_mean"}, %cw: tensor<4xf32> {xfc.name = "w", xfc.role = "column_mean"}) {
  return
}
