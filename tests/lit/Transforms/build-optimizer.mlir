// One square_sum and one adam for each parameter that has a gradient.
// RUN: %xfc-opt %s --xfc-build-optimizer | FileCheck %s

func.func @loss_and_gradients(%w: tensor<200x100xf32> {xfc.name = "w", xfc.role = "parameter"}, %frozen: tensor<3xf32> {xfc.name = "frozen", xfc.role = "parameter"},
                              %b: tensor<100xf32> {xfc.name = "b", xfc.role = "parameter"})
    -> (tensor<200x100xf32> {xfc.name = "grad.w"}, tensor<100xf32> {xfc.name = "grad.b"}) {
  return %w, %b : tensor<200x100xf32>, tensor<100xf32>
}

// CHECK-LABEL: func.func @update(
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<200x100xf32> {xfc.name = "w", xfc.role = "parameter"}, %[[B:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "b", xfc.role = "parameter"}
// CHECK-SAME: %[[GW:[a-z0-9]+]]: tensor<200x100xf32> {xfc.name = "w", xfc.role = "gradient"}, %[[GB:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "b", xfc.role = "gradient"}
// CHECK-SAME: %[[MW:[a-z0-9]+]]: tensor<200x100xf32> {xfc.name = "w", xfc.role = "moment1"}, %[[MB:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "b", xfc.role = "moment1"}
// CHECK-SAME: %[[VW:[a-z0-9]+]]: tensor<200x100xf32> {xfc.name = "w", xfc.role = "moment2"}, %[[VB:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "b", xfc.role = "moment2"}
// CHECK-SAME: %[[HYPER:[a-z0-9]+]]: tensor<8xf32> {xfc.name = "hyper", xfc.role = "scalar"}, %[[LIMIT:[a-z0-9]+]]: tensor<f32> {xfc.name = "max_norm", xfc.role = "scalar"}
// CHECK-SAME: tensor<200x100xf32> {xfc.alias = 0 : i64, xfc.name = "w"}, tensor<100xf32> {xfc.alias = 1 : i64, xfc.name = "b"}
// CHECK-SAME: tensor<200x100xf32> {xfc.alias = 4 : i64, xfc.name = "w"}, tensor<100xf32> {xfc.alias = 5 : i64, xfc.name = "b"}
// CHECK-SAME: tensor<200x100xf32> {xfc.alias = 6 : i64, xfc.name = "w"}, tensor<100xf32> {xfc.alias = 7 : i64, xfc.name = "b"}
// CHECK-SAME: tensor<f32> {xfc.name = "norm"}
// CHECK: %[[SW:.*]] = xfc.square_sum %[[GW]] : (tensor<200x100xf32>) -> tensor<2xf64>
// CHECK: %[[SB:.*]] = xfc.square_sum %[[GB]] : (tensor<100xf32>) -> tensor<1xf64>
// CHECK: %[[FACTOR:.*]], %[[NORM:.*]] = xfc.clip_factor %[[LIMIT]], %[[SW]], %[[SB]]
// CHECK: %[[PW:.*]], %[[NMW:.*]], %[[NVW:.*]] = xfc.adam %[[HYPER]], %[[FACTOR]] parameters(%[[W]]) gradients(%[[GW]]) moments(%[[MW]]) (%[[VW]])
// CHECK: %[[PB:.*]], %[[NMB:.*]], %[[NVB:.*]] = xfc.adam %[[HYPER]], %[[FACTOR]] parameters(%[[B]]) gradients(%[[GB]]) moments(%[[MB]]) (%[[VB]])
// CHECK: return %[[PW]], %[[PB]], %[[NMW]], %[[NMB]], %[[NVW]], %[[NVB]], %[[NORM]]

// CHECK-LABEL: func.func @accumulate(
// CHECK-SAME: %[[GW:[a-z0-9]+]]: tensor<200x100xf32> {xfc.name = "w", xfc.role = "gradient"}, %[[GB:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "b", xfc.role = "gradient"}
// CHECK-SAME: %[[SW:[a-z0-9]+]]: tensor<200x100xf32> {xfc.name = "sum.w", xfc.role = "state"}, %[[SB:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "sum.b", xfc.role = "state"}
// CHECK-SAME: tensor<200x100xf32> {xfc.alias = 0 : i64, xfc.name = "w"}, tensor<100xf32> {xfc.alias = 1 : i64, xfc.name = "b"}
// CHECK: %[[W:.*]] = xfc.add %[[GW]], %[[SW]] : tensor<200x100xf32>
// CHECK: %[[B:.*]] = xfc.add %[[GB]], %[[SB]] : tensor<100xf32>
// CHECK: return %[[W]], %[[B]]
