// Each optimizer's update has one square_sum and one step for each parameter that has a gradient.
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
// CHECK-SAME: %[[HYPER:[a-z0-9]+]]: tensor<10xf32> {xfc.name = "hyper", xfc.role = "scalar"}, %[[LIMIT:[a-z0-9]+]]: tensor<f32> {xfc.name = "max_norm", xfc.role = "scalar"}
// CHECK-SAME: tensor<200x100xf32> {xfc.alias = 0 : i64, xfc.name = "w"}, tensor<100xf32> {xfc.alias = 1 : i64, xfc.name = "b"}
// CHECK-SAME: tensor<200x100xf32> {xfc.alias = 4 : i64, xfc.name = "w"}, tensor<100xf32> {xfc.alias = 5 : i64, xfc.name = "b"}
// CHECK-SAME: tensor<200x100xf32> {xfc.alias = 6 : i64, xfc.name = "w"}, tensor<100xf32> {xfc.alias = 7 : i64, xfc.name = "b"}
// CHECK-SAME: tensor<f32> {xfc.name = "norm"}
// CHECK: %[[SW:.*]] = xfc.square_sum %[[GW]] : (tensor<200x100xf32>) -> tensor<2xf64>
// CHECK: %[[SB:.*]] = xfc.square_sum %[[GB]] : (tensor<100xf32>) -> tensor<1xf64>
// CHECK: %[[FACTOR:.*]], %[[NORM:.*]] = xfc.clip_factor %[[LIMIT]], %[[SW]], %[[SB]]
// CHECK: %[[PW:.*]]:3 = xfc.optimize "adam" %[[HYPER]], %[[FACTOR]] parameters(%[[W]]) gradients(%[[GW]]) states(%[[MW]], %[[VW]])
// CHECK: %[[PB:.*]]:3 = xfc.optimize "adam" %[[HYPER]], %[[FACTOR]] parameters(%[[B]]) gradients(%[[GB]]) states(%[[MB]], %[[VB]])
// CHECK: return %[[PW]]#0, %[[PB]]#0, %[[PW]]#1, %[[PB]]#1, %[[PW]]#2, %[[PB]]#2, %[[NORM]]

// Another optimizer keeps other states.
// CHECK-LABEL: func.func @update.sgd(
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<200x100xf32> {xfc.name = "w", xfc.role = "parameter"}, %[[B:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "b", xfc.role = "parameter"}
// CHECK-SAME: %[[GW:[a-z0-9]+]]: tensor<200x100xf32> {xfc.name = "w", xfc.role = "gradient"}, %[[GB:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "b", xfc.role = "gradient"}
// CHECK-SAME: %[[MW:[a-z0-9]+]]: tensor<200x100xf32> {xfc.name = "w", xfc.role = "momentum"}, %[[MB:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "b", xfc.role = "momentum"}
// CHECK-SAME: %[[HYPER:[a-z0-9]+]]: tensor<5xf32> {xfc.name = "hyper", xfc.role = "scalar"}, %[[LIMIT:[a-z0-9]+]]: tensor<f32> {xfc.name = "max_norm", xfc.role = "scalar"}
// CHECK-SAME: tensor<200x100xf32> {xfc.alias = 4 : i64, xfc.name = "w"}, tensor<100xf32> {xfc.alias = 5 : i64, xfc.name = "b"}, tensor<f32> {xfc.name = "norm"}
// CHECK: %[[PW:.*]]:2 = xfc.optimize "sgd" %[[HYPER]], %{{.*}} parameters(%[[W]]) gradients(%[[GW]]) states(%[[MW]])
// CHECK: %[[PB:.*]]:2 = xfc.optimize "sgd" %[[HYPER]], %{{.*}} parameters(%[[B]]) gradients(%[[GB]]) states(%[[MB]])
// CHECK: return %[[PW]]#0, %[[PB]]#0, %[[PW]]#1, %[[PB]]#1, %

// One that keeps means of rows and columns has small states: none of columns for a vector. All ops of a kind come before
// those of the next.
// CHECK-LABEL: func.func @update.adafactor(
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<200x100xf32> {xfc.name = "w", xfc.role = "parameter"}, %[[B:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "b", xfc.role = "parameter"}
// CHECK-SAME: %[[GW:[a-z0-9]+]]: tensor<200x100xf32> {xfc.name = "w", xfc.role = "gradient"}, %[[GB:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "b", xfc.role = "gradient"}
// CHECK-SAME: %[[RW:[a-z0-9]+]]: tensor<200xf32> {xfc.name = "w", xfc.role = "row_mean"}, %[[RB:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "b", xfc.role = "row_mean"}
// CHECK-SAME: %[[CW:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "w", xfc.role = "column_mean"}, %[[HYPER:[a-z0-9]+]]: tensor<8xf32>
// CHECK-SAME: tensor<200xf32> {xfc.alias = 4 : i64, xfc.name = "w"}, tensor<100xf32> {xfc.alias = 5 : i64, xfc.name = "b"}, tensor<100xf32> {xfc.alias = 6 : i64, xfc.name = "w"}, tensor<f32> {xfc.name = "norm"}
// CHECK: %[[FACTOR:.*]], %{{.*}} = xfc.clip_factor
// CHECK: %[[ROWS:.*]]:3 = xfc.row_moments "adafactor" %[[HYPER]], %[[FACTOR]] parameters(%[[W]]) gradients(%[[GW]]) rows(%[[RW]]) : {{.*}} -> (tensor<200xf32>, tensor<2xf64>, tensor<2x100xf64>)
// CHECK: %[[ELEMENTS:.*]]:2 = xfc.row_moments "adafactor" %[[HYPER]], %[[FACTOR]] parameters(%[[B]]) gradients(%[[GB]]) rows(%[[RB]]) : {{.*}} -> (tensor<100xf32>, tensor<1xf64>)
// CHECK: %[[COLUMNS:.*]]:2 = xfc.column_moments "adafactor" %[[HYPER]] rows(%[[ROWS]]#0) sums(%[[ROWS]]#2) columns(%[[CW]])
// CHECK: %[[SW:.*]] = xfc.update_squares "adafactor" %[[HYPER]], %[[FACTOR]] gradients(%[[GW]]) rows(%[[ROWS]]#0) factors(%[[COLUMNS]]#1)
// CHECK: %[[SB:.*]] = xfc.update_squares "adafactor" %[[HYPER]], %[[FACTOR]] gradients(%[[GB]]) rows(%[[ELEMENTS]]#0) factors()
// CHECK: %[[PW:.*]] = xfc.factored_update "adafactor" %[[HYPER]], %[[FACTOR]] parameters(%[[W]]) gradients(%[[GW]]) rows(%[[ROWS]]#0) factors(%[[COLUMNS]]#1) squares(%[[ROWS]]#1), (%[[SW]]) averages()
// CHECK: %[[PB:.*]] = xfc.factored_update "adafactor" %[[HYPER]], %[[FACTOR]] parameters(%[[B]]) gradients(%[[GB]]) rows(%[[ELEMENTS]]#0) factors() squares(%[[ELEMENTS]]#1), (%[[SB]]) averages()
// CHECK: return %[[PW]], %[[PB]], %[[ROWS]]#0, %[[ELEMENTS]]#0, %[[COLUMNS]]#0, %

// Each optimizer also has a program that keeps a moving average of the parameters.
// CHECK-LABEL: func.func @update.adam_ema(
// CHECK-SAME: tensor<11xf32> {xfc.name = "hyper", xfc.role = "scalar"}
// CHECK: %[[PW:.*]]:4 = xfc.optimize "adam_ema"
// CHECK: %[[PB:.*]]:4 = xfc.optimize "adam_ema"
// CHECK: return %[[PW]]#0, %[[PB]]#0, %[[PW]]#1, %[[PB]]#1, %[[PW]]#2, %[[PB]]#2, %[[PW]]#3, %[[PB]]#3, %
// CHECK-LABEL: func.func @update.sgd_ema(
// CHECK-SAME: tensor<100xf32> {xfc.name = "b", xfc.role = "momentum"}, %[[AW:[a-z0-9]+]]: tensor<200x100xf32> {xfc.name = "w", xfc.role = "average"}, %[[AB:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "b", xfc.role = "average"}
// CHECK: xfc.optimize "sgd_ema" %{{.*}} states(%{{.*}}, %[[AW]])

// CHECK-LABEL: func.func @accumulate(
// CHECK-SAME: %[[GW:[a-z0-9]+]]: tensor<200x100xf32> {xfc.name = "w", xfc.role = "gradient"}, %[[GB:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "b", xfc.role = "gradient"}
// CHECK-SAME: %[[SW:[a-z0-9]+]]: tensor<200x100xf32> {xfc.name = "sum.w", xfc.role = "state"}, %[[SB:[a-z0-9]+]]: tensor<100xf32> {xfc.name = "sum.b", xfc.role = "state"}
// CHECK-SAME: tensor<200x100xf32> {xfc.alias = 0 : i64, xfc.name = "w"}, tensor<100xf32> {xfc.alias = 1 : i64, xfc.name = "b"}
// CHECK: %[[W:.*]] = xfc.add %[[GW]], %[[SW]] : tensor<200x100xf32>
// CHECK: %[[B:.*]] = xfc.add %[[GB]], %[[SB]] : tensor<100xf32>
// CHECK: return %[[W]], %[[B]]
