// @loss becomes @loss_and_gradients; the gradients follow the order of the parameters.
// RUN: %xfc-opt %s --xfc-differentiate | FileCheck %s

!ids = !xfc.rows<target, i32>
!x = !xfc.rows<target, 4xf32>
!h = !xfc.rows<target, 6xf32>
!z = !xfc.rows<target, 11xf32>
!loss = !xfc.rows<target, f32>

// The table is tied, so its gradient is a sum. The ids and the smoothing have no gradient; %unused does not reach the loss and is removed.
// CHECK-LABEL: func.func @loss_and_gradients(
// CHECK-SAME: %[[TABLE:[a-z0-9]+]]: tensor<11x4xf32> {xfc.name = "emb.weight", xfc.role = "parameter"}
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<6x4xf32> {xfc.name = "ffn.weight", xfc.role = "parameter"}
// CHECK-SAME: %[[B:[a-z0-9]+]]: tensor<6xf32> {xfc.name = "ffn.bias", xfc.role = "parameter"}
// CHECK-SAME: %[[V:[a-z0-9]+]]: tensor<4x6xf32> {xfc.name = "out.weight", xfc.role = "parameter"}
// CHECK-NOT: unused
// CHECK-SAME: %[[DLOSS:[a-z0-9]+]]: !xfc.rows<target, f32> {xfc.name = "loss_scale", xfc.role = "input"}
// CHECK-SAME: -> (!xfc.rows<target, f32> {xfc.name = "loss"}, !xfc.rows<target, f32> {xfc.name = "nll"}
// CHECK-SAME: tensor<11x4xf32> {xfc.name = "grad.emb.weight"}, tensor<6x4xf32> {xfc.name = "grad.ffn.weight"}
// CHECK-SAME: tensor<6xf32> {xfc.name = "grad.ffn.bias"}, tensor<4x6xf32> {xfc.name = "grad.out.weight"})
func.func @loss(%table: tensor<11x4xf32> {xfc.name = "emb.weight", xfc.role = "parameter"},
                %w: tensor<6x4xf32> {xfc.name = "ffn.weight", xfc.role = "parameter"}, %b: tensor<6xf32> {xfc.name = "ffn.bias", xfc.role = "parameter"},
                %v: tensor<4x6xf32> {xfc.name = "out.weight", xfc.role = "parameter"},
                %unused: tensor<4x4xf32> {xfc.name = "unused.weight", xfc.role = "parameter"},
                %target: !ids {xfc.name = "target", xfc.role = "input"}, %labels: !ids {xfc.name = "labels", xfc.role = "input"},
                %e: tensor<f32> {xfc.name = "smoothing", xfc.role = "scalar"}) -> (!loss {xfc.name = "loss"}, !loss {xfc.name = "nll"}) {
  // CHECK: %[[X:.*]] = xfc.embedding
  %x = xfc.embedding %target, %table : (!ids, tensor<11x4xf32>) -> !x
  %dead = xfc.linear %x, %unused : (!x, tensor<4x4xf32>) -> !x
  %h = xfc.linear %x, %w bias %b : (!x, tensor<6x4xf32>, tensor<6xf32>) -> !h
  // CHECK: %[[R:.*]] = xfc.activation relu
  %r = xfc.activation relu %h : !h
  // CHECK: %[[D:.*]] = xfc.dropout %[[R]]
  %d = xfc.dropout %r {rate = 0.1, id = 7 : i64} : !h
  %o = xfc.linear %d, %v : (!h, tensor<4x6xf32>) -> !x
  // CHECK: %[[S:.*]] = xfc.add
  %s = xfc.add %o, %x : !x
  // CHECK: %[[LOSS:.*]], %[[NLL:.*]], %[[Z:.*]], %[[LSE:.*]] = xfc.linear_cross_entropy
  %loss, %nll, %z, %lse = xfc.linear_cross_entropy %s, %table, %labels, %e : (!x, tensor<11x4xf32>, !ids, tensor<f32>) -> (!loss, !loss, !z, !loss)
  // CHECK: %[[DZ:.*]] = xfc.cross_entropy_grad %[[Z]], %[[DLOSS]]
  // CHECK: %[[DS:.*]] = xfc.linear_input_grad %[[DZ]], %[[TABLE]]
  // CHECK: %[[DT1:.*]] = xfc.linear_weight_grad %[[DZ]], %[[S]]
  // CHECK: %[[DD:.*]] = xfc.linear_input_grad %[[DS]], %[[V]]
  // CHECK: %[[DV:.*]] = xfc.linear_weight_grad %[[DS]], %[[D]]
  // The gradient of dropout is the same dropout, and relu's gradient reads relu's result.
  // CHECK: %[[DR:.*]] = xfc.dropout %[[DD]] {id = 7 : i64, rate = 1.000000e-01 : f64}
  // CHECK: %[[DH:.*]] = xfc.activation_grad relu %[[DR]], %[[R]]
  // CHECK: xfc.linear_input_grad %[[DH]], %[[W]]
  // CHECK: %[[DX:.*]] = xfc.add
  // CHECK: %[[DW:.*]], %[[DB:.*]] = xfc.linear_weight_grad %[[DH]], %[[X]]
  // CHECK: %[[DT2:.*]] = xfc.embedding_grad %[[DX]]
  // CHECK: %[[DT:.*]] = xfc.add %[[DT1]], %[[DT2]] : tensor<11x4xf32>
  // CHECK: return %[[LOSS]], %[[NLL]], %[[DT]], %[[DW]], %[[DB]], %[[DV]]
  return %loss, %nll : !loss, !loss
}
