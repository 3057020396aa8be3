// RUN: %xfc-opt %s --xfc-outline-kernels | FileCheck %s
// RUN: %xfc-opt %s --xfc-outline-kernels | %xfc-opt | FileCheck %s

!source = !xfc.rows<source, 8xf32>
!target = !xfc.rows<target, 8xf32>
!stats = !xfc.rows<target, 2xf32>

// Both dropouts share a kernel, although their ids and sets of rows differ; the norm whose statistics are read has a kernel of its own.
// CHECK: plan.kernel @dropout_8 {
// CHECK-NEXT: ^bb0(%[[X:.*]]: !xfc.rows<source, 8xf32>):
// CHECK-NEXT: %[[Y:.*]] = xfc.dropout %[[X]] {id = 3 : i64, rate = 1.000000e-01 : f64} : !xfc.rows<source, 8xf32>
// CHECK-NEXT: plan.return %[[Y]] : !xfc.rows<source, 8xf32>
// CHECK: plan.kernel @add_8 {
// CHECK: plan.kernel @norm_8 {
// CHECK: %[[N:[^,]*]], %{{.*}} = xfc.norm
// CHECK-NEXT: plan.return %[[N]] : !xfc.rows<target, 8xf32>
// CHECK: plan.kernel @norm_8_2 {
// CHECK: %[[N:[^,]*]], %[[S:.*]] = xfc.norm
// CHECK-NEXT: plan.return %[[N]], %[[S]] :

// CHECK: plan.program @forward(%[[A:.*]]: !xfc.rows<source, 8xf32> {xfc.name = "a", xfc.role = "input"}, %[[B:.*]]: !xfc.rows<target, 8xf32>
// CHECK-NEXT: %[[D:.*]] = plan.launch @dropout_8(%[[A]]) over source {dropout = 3 : i64, flops = #plan.size<8 source>, traffic = #plan.size<64 source>} : (!xfc.rows<source, 8xf32>) -> !xfc.rows<source, 8xf32>
// CHECK-NEXT: %[[E:.*]] = plan.launch @dropout_8(%[[B]]) over target {dropout = 4 : i64, flops = #plan.size<8 target>, traffic = #plan.size<64 target>}
// CHECK-NEXT: %[[H:.*]]:2 = xfc.split %[[D]]
// CHECK-NEXT: %[[J:.*]] = xfc.join %[[H]]#1, %[[H]]#0
// CHECK-NEXT: plan.launch @add_8(%[[J]], %[[D]]) over source
// CHECK-NEXT: plan.return
func.func @forward(%a: !source {xfc.name = "a", xfc.role = "input"}, %b: !target) -> (!source, !target) {
  %d = xfc.dropout %a {rate = 0.1, id = 3} : !source
  %e = xfc.dropout %b {rate = 0.1, id = 4} : !target
  %h:2 = xfc.split %d : (!source) -> (!xfc.rows<source, 4xf32>, !xfc.rows<source, 4xf32>)
  %j = xfc.join %h#1, %h#0 : (!xfc.rows<source, 4xf32>, !xfc.rows<source, 4xf32>) -> !source
  %s = xfc.add %j, %d : !source
  return %s, %e : !source, !target
}

// CHECK-LABEL: plan.program @norms
// CHECK: plan.launch @norm_8(
// CHECK: plan.launch @norm_8_2(
// CHECK: plan.launch @norm_8(
// CHECK: plan.launch @norm_8(
func.func @norms(%x: !target, %w: tensor<8xf32>, %b: tensor<8xf32>) -> (!target, !stats) {
  %1, %unread = xfc.norm %x, %w, %b {eps = 1.0e-5} : (!target, tensor<8xf32>, tensor<8xf32>) -> (!target, !stats)
  %2, %read = xfc.norm %1, %w, %b {eps = 1.0e-5} : (!target, tensor<8xf32>, tensor<8xf32>) -> (!target, !stats)
  %3, %unread3 = xfc.norm %2, %w, %b {eps = 1.0e-5} : (!target, tensor<8xf32>, tensor<8xf32>) -> (!target, !stats)
  %4, %unread4 = xfc.norm %3, %w, %b {eps = 1.0e-5} : (!target, tensor<8xf32>, tensor<8xf32>) -> (!target, !stats)
  return %4, %read : !target, !stats
}
