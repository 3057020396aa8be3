// RUN: %xfc-opt %s --xfc-lay-out-parameters | FileCheck %s

// A cache line holds 8 f64 numbers.
// CHECK: plan.parameters 16 x f64 {
// CHECK-NEXT: plan.parameter @a at 0
// CHECK-NEXT: plan.parameter @b at 8
xfc.parameter @a : tensor<3xf64> init zero
xfc.parameter @b : tensor<8xf64> init zero

func.func @forward(%a: tensor<3xf64> {xfc.name = "a", xfc.role = "parameter"}) -> tensor<3xf64> {
  return %a : tensor<3xf64>
}
