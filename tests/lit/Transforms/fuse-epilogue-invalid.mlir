// RUN: %xfc-opt %s --xfc-fuse-epilogue | FileCheck %s
// CHECK-NOT: xfc.yield

!rows = !xfc.rows<source, 8xf32>
!weight = tensor<8x8xf32>

// The other addend is computed after the linear, which would have to wait for it.
// CHECK-LABEL: func.func @late_extra
// CHECK: xfc.add
func.func @late_extra(%x: !rows, %w: !weight, %n: tensor<8xf32>) -> !rows {
  %a = xfc.linear %x, %w : (!rows, !weight) -> !rows
  %late, %stats = xfc.norm %x, %n {eps = 1.0e-5} : (!rows, tensor<8xf32>) -> (!rows, !xfc.rows<source, 2xf32>)
  %s = xfc.add %a, %late : !rows
  return %s : !rows
}

// A norm is not an elementwise op.
// CHECK-LABEL: func.func @norm
// CHECK: xfc.norm
func.func @norm(%x: !rows, %w: !weight, %n: tensor<8xf32>) -> !rows {
  %a = xfc.linear %x, %w : (!rows, !weight) -> !rows
  %y, %stats = xfc.norm %a, %n {eps = 1.0e-5} : (!rows, tensor<8xf32>) -> (!rows, !xfc.rows<source, 2xf32>)
  return %y : !rows
}

// gelu's gradient needs gelu's operand; the result after dropout cannot replace it.
// CHECK-LABEL: func.func @gelu
// CHECK-SAME: (%[[A:[^:]*]]:
// CHECK: xfc.activation_grad gelu %{{.*}}, %[[A]]
func.func @gelu(%a: !rows, %dh: !rows) -> (!rows, !rows) {
  %r = xfc.activation gelu %a : !rows
  %h = xfc.dropout %r {rate = 0.1, id = 2} : !rows
  %dr = xfc.dropout %dh {rate = 0.1, id = 2} : !rows
  %da = xfc.activation_grad gelu %dr, %a : !rows
  return %h, %da : !rows, !rows
}

// relu's gradient has another dropout than relu's result, or none.
// CHECK-LABEL: func.func @other_dropout
// CHECK-SAME: (%[[A:[^:]*]]:
// CHECK: xfc.activation_grad relu %{{.*}}, %[[A]]
// CHECK: xfc.activation_grad relu %{{.*}}, %[[A]]
func.func @other_dropout(%a: !rows, %dh: !rows) -> (!rows, !rows, !rows) {
  %r = xfc.activation relu %a : !rows
  %h = xfc.dropout %r {rate = 0.1, id = 2} : !rows
  %dr = xfc.dropout %dh {rate = 0.1, id = 3} : !rows
  %da = xfc.activation_grad relu %dr, %a : !rows
  %db = xfc.activation_grad relu %dh, %a : !rows
  return %h, %da, %db : !rows, !rows, !rows
}
