// RUN: %xfc-opt %s --xfc-fuse-epilogue --print-op-stats 2>%t.statistics | FileCheck %s
// RUN: FileCheck %s --check-prefix=STATISTICS --input-file=%t.statistics

// STATISTICS: xfc.linear , 8{{$}}
// STATISTICS: xfc.linear_input_grad , 4{{$}}
// STATISTICS: xfc.yield , 11{{$}}

!rows = !xfc.rows<source, 8xf32>
!weight = tensor<8x8xf32>

// CHECK-LABEL: func.func @activation_dropout
// CHECK-NEXT: %[[Y:.*]] = xfc.linear %{{.*}}, %{{.*}} bias %{{.*}} {
// CHECK-NEXT: ^bb0(%[[ROW:.*]]: !xfc.rows<source, 8xf32>):
// CHECK-NEXT: %[[R:.*]] = xfc.activation gelu %[[ROW]]
// CHECK-NEXT: %[[D:.*]] = xfc.dropout %[[R]] {id = 2 : i64, rate = 1.000000e-01 : f64}
// CHECK-NEXT: xfc.yield %[[D]]
// CHECK-NEXT: }
// CHECK-NEXT: return %[[Y]]
func.func @activation_dropout(%x: !rows, %w: !weight, %b: tensor<8xf32>) -> !rows {
  %a = xfc.linear %x, %w bias %b : (!rows, !weight, tensor<8xf32>) -> !rows
  %r = xfc.activation gelu %a : !rows
  %d = xfc.dropout %r {rate = 0.1, id = 2} : !rows
  return %d : !rows
}

// A scale of rows is elementwise too.
// CHECK-LABEL: func.func @scale
// CHECK:      %[[S:.*]] = xfc.scale %{{.*}} {factor = 5.000000e-01 : f64}
// CHECK-NEXT: xfc.yield %[[S]]
func.func @scale(%x: !rows, %w: !weight) -> !rows {
  %a = xfc.linear %x, %w : (!rows, !weight) -> !rows
  %s = xfc.scale %a {factor = 0.5} : !rows
  return %s : !rows
}

// The residual is computed before the linear.
// CHECK-LABEL: func.func @residual
// CHECK-SAME: (%[[X:[^:]*]]:
// CHECK-NEXT: %[[Y:.*]] = xfc.linear %[[X]], %{{.*}} with %[[X]] {
// CHECK-NEXT: ^bb0(%[[ROW:[^:]*]]: !xfc.rows<source, 8xf32>, %[[RESIDUAL:[^:]*]]: !xfc.rows<source, 8xf32>):
// CHECK-NEXT: %[[D:.*]] = xfc.dropout %[[ROW]]
// CHECK-NEXT: %[[S:.*]] = xfc.add %[[D]], %[[RESIDUAL]]
// CHECK-NEXT: xfc.yield %[[S]]
func.func @residual(%x: !rows, %w: !weight) -> !rows {
  %a = xfc.linear %x, %w : (!rows, !weight) -> !rows
  %d = xfc.dropout %a {rate = 0.1, id = 2} : !rows
  %s = xfc.add %d, %x : !rows
  return %s : !rows
}

// The gate's linear absorbs the activation and also returns its own result for the gradient; the value's linear absorbs the product.
// CHECK-LABEL: func.func @gated
// CHECK-NEXT: %[[GATE:.*]]:2 = xfc.linear
// CHECK: %[[A:.*]] = xfc.activation silu %[[ROW:.*]] :
// CHECK-NEXT: xfc.yield %[[ROW]], %[[A]]
// CHECK: %[[Y:.*]] = xfc.linear %{{.*}}, %{{.*}} with %[[GATE]]#1 {
// CHECK-NEXT: ^bb0(%[[VALUE:[^:]*]]: {{[^%]*}}%[[G:[^:]*]]:
// CHECK-NEXT: xfc.multiply %[[G]], %[[VALUE]]
// CHECK: return %[[Y]], %[[GATE]]#0
func.func @gated(%x: !rows, %wg: !weight, %wv: !weight) -> (!rows, !rows) {
  %g = xfc.linear %x, %wg : (!rows, !weight) -> !rows
  %a = xfc.activation silu %g : !rows
  %v = xfc.linear %x, %wv : (!rows, !weight) -> !rows
  %y = xfc.multiply %a, %v : !rows
  return %y, %g : !rows, !rows
}

// The same in the backward pass: both branches of the gradient of a gated pair.
// CHECK-LABEL: func.func @gated_gradient
// CHECK-NEXT: %[[D:.*]]:2 = xfc.linear_input_grad %{{.*}}, %{{.*}} with
// CHECK: xfc.multiply
// CHECK-NEXT: xfc.activation_grad silu
// CHECK-NEXT: xfc.multiply
// CHECK-NEXT: xfc.yield
// CHECK-NEXT: }
// CHECK-NEXT: return %[[D]]#0, %[[D]]#1
func.func @gated_gradient(%dy: !rows, %w: !weight, %g: !rows, %a: !rows, %v: !rows) -> (!rows, !rows) {
  %d = xfc.linear_input_grad %dy, %w : (!rows, !weight) -> !rows
  %da = xfc.multiply %d, %v : !rows
  %dg = xfc.activation_grad silu %da, %g : !rows
  %dv = xfc.multiply %d, %a : !rows
  return %dg, %dv : !rows, !rows
}

// A feed-forward block and its gradient: only the activation after dropout is kept, and it tells the gradient what was dropped.
// CHECK-LABEL: func.func @feed_forward
// CHECK-NEXT: %[[H:.*]] = xfc.linear
// CHECK: xfc.yield %{{[^,]*}} :
// CHECK: xfc.linear_input_grad %{{.*}} with %[[H]] {
// CHECK-NEXT: ^bb0(%[[ROW:[^:]*]]: !xfc.rows<source, 8xf32>, %[[HIDDEN:[^:]*]]: !xfc.rows<source, 8xf32>):
// CHECK-NEXT: %[[SCALED:.*]] = xfc.dropout %[[ROW]] {id = 2 : i64, kept, rate = 1.000000e-01 : f64}
// CHECK-NEXT: xfc.activation_grad relu %[[SCALED]], %[[HIDDEN]]
func.func @feed_forward(%x: !rows, %w: !weight, %dy: !rows) -> (!rows, !rows) {
  %a = xfc.linear %x, %w : (!rows, !weight) -> !rows
  %r = xfc.activation relu %a : !rows
  %h = xfc.dropout %r {rate = 0.1, id = 2} : !rows
  %dh = xfc.linear_input_grad %dy, %w : (!rows, !weight) -> !rows
  %dr = xfc.dropout %dh {rate = 0.1, id = 2} : !rows
  %da = xfc.activation_grad relu %dr, %a : !rows
  return %h, %da : !rows, !rows
}

// A gradient is added to one that was computed before.
// CHECK-LABEL: func.func @accumulate
// CHECK-NEXT: %[[FIRST:.*]] = xfc.linear_input_grad %{{[^:]*}} :
// CHECK-NEXT: xfc.linear_input_grad %{{.*}} with %[[FIRST]] {
func.func @accumulate(%dk: !rows, %dv: !rows, %wk: !weight, %wv: !weight) -> !rows {
  %first = xfc.linear_input_grad %dk, %wk : (!rows, !weight) -> !rows
  %second = xfc.linear_input_grad %dv, %wv : (!rows, !weight) -> !rows
  %sum = xfc.add %first, %second : !rows
  return %sum : !rows
}

// An epilogue has at most one dropout.
// CHECK-LABEL: func.func @two_dropouts
// CHECK: xfc.dropout %{{.*}} {id = 1
// CHECK: }
// CHECK: xfc.dropout %{{.*}} {id = 2
func.func @two_dropouts(%x: !rows, %w: !weight) -> !rows {
  %a = xfc.linear %x, %w : (!rows, !weight) -> !rows
  %d = xfc.dropout %a {rate = 0.1, id = 1} : !rows
  %e = xfc.dropout %d {rate = 0.1, id = 2} : !rows
  return %e : !rows
}

// Three values would be needed outside, so the last op stays out.
// CHECK-LABEL: func.func @two_results
// CHECK-NEXT: %[[Y:.*]]:2 = xfc.linear
// CHECK: xfc.yield
// CHECK-NEXT: }
// CHECK-NEXT: %[[T:.*]] = xfc.activation tanh %[[Y]]#1
// CHECK-NEXT: return %[[Y]]#0, %[[Y]]#1, %[[T]]
func.func @two_results(%x: !rows, %w: !weight) -> (!rows, !rows, !rows) {
  %a = xfc.linear %x, %w : (!rows, !weight) -> !rows
  %g = xfc.activation gelu %a : !rows
  %t = xfc.activation tanh %g : !rows
  return %a, %g, %t : !rows, !rows, !rows
}
