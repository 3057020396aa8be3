// RUN: %xfc-opt %s --xfc-recompute | FileCheck %s
// RUN: %xfc-opt %s --xfc-recompute=level=most | FileCheck %s --check-prefix=MOST

!rows = !xfc.rows<source, 64xf32>
!wide = !xfc.rows<source, 256xf32>
!stats = !xfc.rows<source, 2xf32>
!each = !xfc.rows<source, f32>
!logits = !xfc.rows<source, 1000xf32>

// A pre-norm block. The normalized rows are recomputed from the sum, which the norm's gradient reads anyway; `cheap` keeps the
// results of matrix products. `most` recomputes the whole block, each op once.
// CHECK-LABEL: func.func @feed_forward(
// CHECK: %[[Y:.*]], %[[SUM:.*]], %{{.*}} = xfc.add_norm
// CHECK: %[[HIDDEN:.*]] = xfc.linear %[[Y]],
// CHECK: xfc.log_softmax_grad
// CHECK: xfc.linear_weight_grad %{{.*}}, %[[HIDDEN]]
// CHECK: %[[AGAIN:.*]], %[[STATS:.*]] = xfc.norm %[[SUM]], %{{.*}}, %{{.*}} {eps = 1.000000e-05 : f64}
// CHECK-NEXT: xfc.linear_weight_grad %{{.*}}, %[[AGAIN]]
// CHECK-NEXT: xfc.norm_grad %{{.*}}, %[[SUM]], %{{.*}}, %[[STATS]]
// MOST-LABEL: func.func @feed_forward(
// MOST-SAME: %[[X:[^:]*]]:
// MOST: xfc.log_softmax_grad
// MOST: %[[BODY:.*]] = xfc.linear %[[X]],
// MOST-NEXT: %[[Y:.*]], %[[SUM:.*]], %[[STATS:.*]] = xfc.add_norm %[[BODY]], %[[X]],
// MOST-NEXT: %[[HIDDEN:.*]] = xfc.linear %[[Y]], %{{.*}} {
// MOST: xfc.activation relu
// MOST-NEXT: xfc.dropout %{{.*}} {id = 7 : i64, rate = 1.000000e-01 : f64}
// MOST: xfc.linear_weight_grad %{{.*}}, %[[HIDDEN]]
// MOST-NOT: norm %
// MOST: xfc.linear_weight_grad %{{.*}}, %[[Y]]
// MOST-NEXT: xfc.norm_grad %{{.*}}, %[[SUM]], %{{.*}}, %[[STATS]]
func.func @feed_forward(%x: !rows, %w0: tensor<64x64xf32>, %g: tensor<64xf32>, %b: tensor<64xf32>, %w1: tensor<256x64xf32>,
                        %w2: tensor<1000x256xf32>, %loss_scale: !logits {xfc.name = "loss_scale", xfc.role = "input"})
    -> (!rows, tensor<1000x256xf32>, tensor<256x64xf32>) {
  %body = xfc.linear %x, %w0 : (!rows, tensor<64x64xf32>) -> !rows
  %y, %sum, %stats = xfc.add_norm %body, %x, %g, %b {eps = 1.0e-5} : (!rows, !rows, tensor<64xf32>, tensor<64xf32>) -> (!rows, !rows, !stats)
  %h = xfc.linear %y, %w1 {
  ^bb0(%row: !wide):
    %r = xfc.activation relu %row : !wide
    %d = xfc.dropout %r {rate = 0.1, id = 7} : !wide
    xfc.yield %d : !wide
  } : (!rows, tensor<256x64xf32>) -> !wide
  %z = xfc.linear %h, %w2 : (!wide, tensor<1000x256xf32>) -> !logits
  %p = xfc.log_softmax %z : !logits
  %dz = xfc.log_softmax_grad %loss_scale, %p : !logits
  %dw2 = xfc.linear_weight_grad %dz, %h : (!logits, !wide) -> tensor<1000x256xf32>
  %dh = xfc.linear_input_grad %dz, %w2 : (!logits, tensor<1000x256xf32>) -> !wide
  %dy = xfc.linear_input_grad %dh, %w1 : (!wide, tensor<256x64xf32>) -> !rows
  %dw1 = xfc.linear_weight_grad %dh, %y : (!wide, !rows) -> tensor<256x64xf32>
  %dx = xfc.norm_grad %dy, %sum, %g, %stats {eps = 1.0e-5} : (!rows, !rows, tensor<64xf32>, !stats) -> !rows
  return %dx, %dw2, %dw1 : !rows, tensor<1000x256xf32>, tensor<256x64xf32>
}

// A gated pair: the activation and the product are recomputed from the gate's and the value's rows, which the gradient reads.
// CHECK-LABEL: func.func @gated(
// CHECK: %[[GATE:.*]]:2 = xfc.linear
// CHECK: %[[PRODUCT:.*]]:2 = xfc.linear
// CHECK: xfc.log_softmax_grad
// CHECK: %[[A:.*]] = xfc.activation silu %[[GATE]]#0
// CHECK: xfc.linear_input_grad %{{.*}} with %[[PRODUCT]]#0, %[[GATE]]#0, %[[A]]
// CHECK: %[[Y:.*]] = xfc.multiply %[[A]], %[[PRODUCT]]#0
// CHECK-NEXT: xfc.linear_weight_grad %{{.*}}, %[[Y]]
func.func @gated(%x: !rows, %wg: tensor<256x64xf32>, %wv: tensor<256x64xf32>, %w: tensor<1000x256xf32>,
                 %loss_scale: !logits {xfc.name = "loss_scale", xfc.role = "input"})
    -> (!wide, !wide, tensor<1000x256xf32>) {
  %g, %a = xfc.linear %x, %wg {
  ^bb0(%row: !wide):
    %s = xfc.activation silu %row : !wide
    xfc.yield %row, %s : !wide, !wide
  } : (!rows, tensor<256x64xf32>) -> (!wide, !wide)
  %v, %y = xfc.linear %x, %wv with %a {
  ^bb0(%row: !wide, %gate: !wide):
    %m = xfc.multiply %gate, %row : !wide
    xfc.yield %row, %m : !wide, !wide
  } : (!rows, tensor<256x64xf32>, !wide) -> (!wide, !wide)
  %z = xfc.linear %y, %w : (!wide, tensor<1000x256xf32>) -> !logits
  %p = xfc.log_softmax %z : !logits
  %dz = xfc.log_softmax_grad %loss_scale, %p : !logits
  %dg, %dv = xfc.linear_input_grad %dz, %w with %v, %g, %a {
  ^bb0(%row: !wide, %ev: !wide, %eg: !wide, %ea: !wide):
    %da = xfc.multiply %row, %ev : !wide
    %ds = xfc.activation_grad silu %da, %eg : !wide
    %dm = xfc.multiply %row, %ea : !wide
    xfc.yield %ds, %dm : !wide, !wide
  } : (!logits, tensor<1000x256xf32>, !wide, !wide, !wide) -> (!wide, !wide)
  %dw = xfc.linear_weight_grad %dz, %y : (!logits, !wide) -> tensor<1000x256xf32>
  return %dg, %dv, %dw : !wide, !wide, tensor<1000x256xf32>
}

// The rows of the first layer can be recomputed from the table, the ids, and the dropout's id, which gives its random numbers.
// CHECK-LABEL: func.func @embedded(
// CHECK: xfc.log_softmax_grad
// CHECK-NEXT: %[[E:.*]] = xfc.embedding
// CHECK-NEXT: %[[D:.*]] = xfc.dropout %[[E]] {id = 3 : i64, rate = 1.000000e-01 : f64}
// CHECK-NEXT: xfc.linear_weight_grad %{{.*}}, %[[D]]
func.func @embedded(%ids: !xfc.rows<source, i32>, %table: tensor<50x64xf32>, %w: tensor<1000x64xf32>,
                    %loss_scale: !logits {xfc.name = "loss_scale", xfc.role = "input"}) -> tensor<1000x64xf32> {
  %e = xfc.embedding %ids, %table : (!xfc.rows<source, i32>, tensor<50x64xf32>) -> !rows
  %d = xfc.dropout %e {rate = 0.1, id = 3} : !rows
  %z = xfc.linear %d, %w : (!rows, tensor<1000x64xf32>) -> !logits
  %p = xfc.log_softmax %z : !logits
  %dz = xfc.log_softmax_grad %loss_scale, %p : !logits
  %dw = xfc.linear_weight_grad %dz, %d : (!logits, !rows) -> tensor<1000x64xf32>
  return %dw : tensor<1000x64xf32>
}

// The parts of a merged projection are split from one recomputed product, and one recomputed attention gives both its results.
// MOST-LABEL: func.func @attention(
// MOST: xfc.log_softmax_grad
// MOST: %[[QKV:.*]] = xfc.linear %{{.*}}, %{{.*}} : (!xfc.rows<source, 64xf32>, tensor<192x64xf32>)
// MOST: %[[PARTS:.*]]:3 = xfc.split %[[QKV]]
// MOST: %[[O:.*]], %[[LSE:.*]] = xfc.attention %[[PARTS]]#0, %[[PARTS]]#1, %[[PARTS]]#2 {heads = 2 : i64, id = 4 : i64, padding, rate = 1.000000e-01 : f64, scale = 1.250000e-01 : f64}
// MOST-NOT: xfc.attention %
// MOST: xfc.attention_grad %{{[^,]*}}, %[[PARTS]]#0, %[[PARTS]]#1, %[[PARTS]]#2, %[[O]], %[[LSE]]
func.func @attention(%x: !rows, %wqkv: tensor<192x64xf32>, %w: tensor<1000x64xf32>,
                     %loss_scale: !logits {xfc.name = "loss_scale", xfc.role = "input"}) -> (tensor<1000x64xf32>, !xfc.rows<source, 192xf32>) {
  %qkv = xfc.linear %x, %wqkv : (!rows, tensor<192x64xf32>) -> !xfc.rows<source, 192xf32>
  %q, %k, %v = xfc.split %qkv : (!xfc.rows<source, 192xf32>) -> (!rows, !rows, !rows)
  %o, %lse = xfc.attention %q, %k, %v {heads = 2, scale = 0.125, padding, rate = 0.1, id = 4} : (!rows, !rows, !rows) -> (!rows, !stats)
  %z = xfc.linear %o, %w : (!rows, tensor<1000x64xf32>) -> !logits
  %p = xfc.log_softmax %z : !logits
  %dz = xfc.log_softmax_grad %loss_scale, %p : !logits
  %do = xfc.linear_input_grad %dz, %w : (!logits, tensor<1000x64xf32>) -> !rows
  %dw = xfc.linear_weight_grad %dz, %o : (!logits, !rows) -> tensor<1000x64xf32>
  %dq, %dk, %dv = xfc.attention_grad %do, %q, %k, %v, %o, %lse {heads = 2, scale = 0.125, padding, rate = 0.1, id = 4} : (!rows, !rows, !rows, !rows, !rows, !stats) -> (!rows, !rows, !rows)
  %dqkv = xfc.join %dq, %dk, %dv : (!rows, !rows, !rows) -> !xfc.rows<source, 192xf32>
  return %dw, %dqkv : tensor<1000x64xf32>, !xfc.rows<source, 192xf32>
}

// The peak is where the gradient of the weight is computed, which takes 1 GB, and reads the dropout's result in any case: keeping that
// costs nothing.
// MOST-LABEL: func.func @gradient(
// MOST: xfc.log_softmax_grad
// MOST-NOT: xfc.dropout
// MOST: return
func.func @gradient(%x: !xfc.rows<source, 16384xf32>, %w: tensor<16384x16384xf32>,
                    %loss_scale: !xfc.rows<source, 16384xf32> {xfc.name = "loss_scale", xfc.role = "input"}) -> tensor<16384x16384xf32> {
  %d = xfc.dropout %x {rate = 0.1, id = 5} : !xfc.rows<source, 16384xf32>
  %z = xfc.linear %d, %w : (!xfc.rows<source, 16384xf32>, tensor<16384x16384xf32>) -> !xfc.rows<source, 16384xf32>
  %p = xfc.log_softmax %z : !xfc.rows<source, 16384xf32>
  %dz = xfc.log_softmax_grad %loss_scale, %p : !xfc.rows<source, 16384xf32>
  %dw = xfc.linear_weight_grad %dz, %d : (!xfc.rows<source, 16384xf32>, !xfc.rows<source, 16384xf32>) -> tensor<16384x16384xf32>
  return %dw : tensor<16384x16384xf32>
}
