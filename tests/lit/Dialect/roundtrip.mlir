// Every op is read, printed and read again.
// RUN: %xfc-opt %s | %xfc-opt | FileCheck %s

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!one = !xfc.rows<source, f32>
!two = !xfc.rows<source, 2xf32>
!list = !xfc.rows<source, 2xi32>
!pairs = !xfc.pairs<source, source, padding, 2xf32>
!t = !xfc.rows<target, 6xf32>

// CHECK-LABEL: func.func @types(
// CHECK-SAME: !xfc.rows<source, i32>, %{{.*}}: !xfc.rows<target, 2x3xf64>, %{{.*}}: !xfc.rows<cache, f32>
// CHECK-SAME: !xfc.pairs<target, source, padding, 8xf32>
// CHECK-SAME: !xfc.pairs<target, target, padding causal, 8xf32>
// CHECK-SAME: !xfc.pairs<target, cache, causal, 1xf64>
// CHECK-SAME: !xfc.pairs<source, source, 3xf32>
func.func @types(%0: !xfc.rows<source, i32>, %1: !xfc.rows<target, 2x3xf64>, %2: !xfc.rows<cache, f32>,
                 %3: !xfc.pairs<target, source, padding, 8xf32>, %4: !xfc.pairs<target, target, padding causal, 8xf32>,
                 %5: !xfc.pairs<target, cache, causal, 1xf64>, %6: !xfc.pairs<source, source, 3xf32>) {
  return
}

// CHECK-LABEL: func.func @input(
func.func @input(%ids: !ids, %table: tensor<11x6xf32>) -> (tensor<11x6xf32>, tensor<5x6xf32>) {
  // CHECK: xfc.embedding %{{.*}}, %{{.*}} {scale = 2.000000e+00 : f64} : (!xfc.rows<source, i32>, tensor<11x6xf32>) -> !xfc.rows<source, 6xf32>
  %x = xfc.embedding %ids, %table {scale = 2.0} : (!ids, tensor<11x6xf32>) -> !x
  // CHECK: xfc.sinusoid {halves} : () -> tensor<5x6xf32>
  %t = xfc.sinusoid {halves} : () -> tensor<5x6xf32>
  // CHECK: xfc.add_positions %{{.*}}, %{{.*}} : (!xfc.rows<source, 6xf32>, tensor<5x6xf32>) -> !xfc.rows<source, 6xf32>
  %p = xfc.add_positions %x, %t : (!x, tensor<5x6xf32>) -> !x
  // CHECK: xfc.embedding_grad
  %g = xfc.embedding_grad %p, %ids {scale = 2.0} : (!x, !ids) -> tensor<11x6xf32>
  // CHECK: xfc.positions_grad
  %h = xfc.positions_grad %p : (!x) -> tensor<5x6xf32>
  return %g, %h : tensor<11x6xf32>, tensor<5x6xf32>
}

// CHECK-LABEL: func.func @linear(
func.func @linear(%x: !x, %w: tensor<4x6xf32>, %b: tensor<4xf32>, %r: !y) -> (!y, !y, !y, !x, tensor<4x6xf32>, tensor<4xf32>) {
  // CHECK: xfc.linear %{{.*}}, %{{.*}} : (!xfc.rows<source, 6xf32>, tensor<4x6xf32>) -> !xfc.rows<source, 4xf32>
  %0 = xfc.linear %x, %w : (!x, tensor<4x6xf32>) -> !y
  // CHECK: xfc.linear %{{.*}}, %{{.*}} bias %{{.*}} with %{{.*}} {
  // CHECK-NEXT: ^bb0(%[[ROW:.*]]: !xfc.rows<source, 4xf32>, %[[R:.*]]: !xfc.rows<source, 4xf32>):
  // CHECK-NEXT: %[[A:.*]] = xfc.activation silu %[[ROW]] : <source, 4xf32>
  // CHECK: xfc.yield %{{.*}}, %[[A]] : !xfc.rows<source, 4xf32>, !xfc.rows<source, 4xf32>
  // CHECK-NEXT: } : (!xfc.rows<source, 6xf32>, tensor<4x6xf32>, tensor<4xf32>, !xfc.rows<source, 4xf32>) -> (!xfc.rows<source, 4xf32>, !xfc.rows<source, 4xf32>)
  %1:2 = xfc.linear %x, %w bias %b with %r {
  ^bb0(%row: !y, %residual: !y):
    %a = xfc.activation silu %row : !y
    %d = xfc.dropout %a {rate = 0.1, id = 3 : i64} : !y
    %s = xfc.add %d, %residual : !y
    xfc.yield %s, %a : !y, !y
  } : (!x, tensor<4x6xf32>, tensor<4xf32>, !y) -> (!y, !y)
  // CHECK: xfc.linear_input_grad %{{.*}}, %{{.*}} : (!xfc.rows<source, 4xf32>, tensor<4x6xf32>) -> !xfc.rows<source, 6xf32>
  %2 = xfc.linear_input_grad %0, %w : (!y, tensor<4x6xf32>) -> !x
  // CHECK: xfc.linear_weight_grad
  %3 = xfc.linear_weight_grad %0, %x : (!y, !x) -> tensor<4x6xf32>
  // CHECK: xfc.linear_weight_grad %{{.*}} : {{.*}} -> (tensor<4x6xf32>, tensor<4xf32>)
  %4:2 = xfc.linear_weight_grad %0, %x : (!y, !x) -> (tensor<4x6xf32>, tensor<4xf32>)
  return %0, %1#0, %1#1, %2, %3, %4#1 : !y, !y, !y, !x, tensor<4x6xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @compute_types(
func.func @compute_types(%x: !x, %w: tensor<4x6xf32>, %b: tensor<4xf32>, %r: !y, %labels: !ids, %e: tensor<f32>) -> (!y, !y, !x, tensor<4x6xf32>, !one) {
  // CHECK: xfc.linear %{{.*}}, %{{.*}} in bf16 : (
  %0 = xfc.linear %x, %w in bf16 : (!x, tensor<4x6xf32>) -> !y
  // CHECK: xfc.linear %{{.*}}, %{{.*}} bias %{{.*}} with %{{.*}} in int8 {
  %1 = xfc.linear %x, %w bias %b with %r in int8 {
  ^bb0(%row: !y, %residual: !y):
    %s = xfc.add %row, %residual : !y
    xfc.yield %s : !y
  } : (!x, tensor<4x6xf32>, tensor<4xf32>, !y) -> !y
  // CHECK: xfc.linear_input_grad %{{.*}}, %{{.*}} in bf16 : (
  %2 = xfc.linear_input_grad %0, %w in bf16 : (!y, tensor<4x6xf32>) -> !x
  // CHECK: xfc.linear_weight_grad %{{.*}}, %{{.*}} in bf16 : (
  %3 = xfc.linear_weight_grad %0, %x in bf16 : (!y, !x) -> tensor<4x6xf32>
  // CHECK: xfc.linear_cross_entropy %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} in bf16 : (
  %loss, %nll, %logits, %lse = xfc.linear_cross_entropy %x, %w, %labels, %e in bf16 : (!x, tensor<4x6xf32>, !ids, tensor<f32>) -> (!one, !one, !y, !one)
  // CHECK: xfc.attention %{{.*}}, %{{.*}}, %{{.*}} in bf16 {heads = 2 : i64, scale = 1.000000e+00 : f64} : (
  %o, %sums = xfc.attention %x, %x, %x in bf16 {heads = 2 : i64, scale = 1.0} : (!x, !x, !x) -> (!x, !two)
  // CHECK: xfc.attention_grad %{{.*}} in bf16 {heads = 2 : i64, scale = 1.000000e+00 : f64} : (
  %dq, %dk, %dv = xfc.attention_grad %o, %x, %x, %x, %o, %sums in bf16 {heads = 2 : i64, scale = 1.0} : (!x, !x, !x, !x, !x, !two) -> (!x, !x, !x)
  return %0, %1, %2, %3, %loss : !y, !y, !x, tensor<4x6xf32>, !one
}

// CHECK-LABEL: func.func @views(
func.func @views(%x: !x, %w: tensor<4x6xf32>, %v: tensor<2x6xf32>) -> (!x, tensor<3x6xf32>) {
  // CHECK: %[[P:.*]]:2 = xfc.split %{{.*}} : (!xfc.rows<source, 6xf32>) -> (!xfc.rows<source, 4xf32>, !xfc.rows<source, 2xf32>)
  %p:2 = xfc.split %x : (!x) -> (!y, !two)
  // CHECK: xfc.join %[[P]]#0, %[[P]]#1 : (!xfc.rows<source, 4xf32>, !xfc.rows<source, 2xf32>) -> !xfc.rows<source, 6xf32>
  %j = xfc.join %p#0, %p#1 : (!y, !two) -> !x
  // CHECK: xfc.concat %{{.*}}, %{{.*}} : (tensor<4x6xf32>, tensor<2x6xf32>) -> tensor<6x6xf32>
  %c = xfc.concat %w, %v : (tensor<4x6xf32>, tensor<2x6xf32>) -> tensor<6x6xf32>
  // CHECK: xfc.slice %{{.*}} {offset = 2 : i64} : (tensor<6x6xf32>) -> tensor<3x6xf32>
  %s = xfc.slice %c {offset = 2 : i64} : (tensor<6x6xf32>) -> tensor<3x6xf32>
  return %j, %s : !x, tensor<3x6xf32>
}

// CHECK-LABEL: func.func @elementwise(
func.func @elementwise(%x: !x) -> !x {
  // CHECK: xfc.zeros : () -> !xfc.rows<source, 6xf32>
  %z = xfc.zeros : () -> !x
  // CHECK: xfc.add %{{.*}}, %{{.*}} : !xfc.rows<source, 6xf32>
  %a = xfc.add %z, %x : !x
  // CHECK: xfc.multiply %{{.*}}, %{{.*}} : <source, 6xf32>
  %m = xfc.multiply %a, %x : !x
  // CHECK: xfc.activation relu
  %r = xfc.activation relu %m : !x
  // CHECK: xfc.activation gelu
  %g = xfc.activation gelu %r : !x
  // CHECK: xfc.activation tanh
  %t = xfc.activation tanh %g : !x
  // CHECK: xfc.activation_grad tanh %{{.*}}, %{{.*}} : <source, 6xf32>
  %d = xfc.activation_grad tanh %x, %t : !x
  // CHECK: xfc.dropout %{{.*}} {id = 1 : i64, rate = 1.000000e-01 : f64} : !xfc.rows<source, 6xf32>
  %e = xfc.dropout %d {rate = 0.1, id = 1 : i64} : !x
  return %e : !x
}

// CHECK-LABEL: func.func @kept(
func.func @kept(%x: !x) -> !x {
  // CHECK: xfc.dropout %{{.*}} {id = 1 : i64, kept, rate = 1.000000e-01 : f64} : !xfc.rows<source, 6xf32>
  %y = xfc.dropout %x {rate = 0.1, id = 1 : i64, kept} : !x
  return %y : !x
}

// CHECK-LABEL: func.func @norms(
func.func @norms(%x: !x, %w: tensor<6xf32>, %b: tensor<6xf32>) -> (!x, tensor<6xf32>, tensor<6xf32>) {
  // CHECK: xfc.norm %{{.*}}, %{{.*}}, %{{.*}} {eps = 1.000000e-05 : f64, eps_in_std, unbiased} :
  %y, %stats = xfc.norm %x, %w, %b {eps = 1.0e-5, unbiased, eps_in_std} : (!x, tensor<6xf32>, tensor<6xf32>) -> (!x, !two)
  // CHECK: xfc.norm %{{.*}}, %{{.*}} {eps = 1.000000e-05 : f64, kind = 1 : i32} :
  %z, %zstats = xfc.norm %y, %w {eps = 1.0e-5, kind = 1 : i32} : (!x, tensor<6xf32>) -> (!x, !two)
  // CHECK: xfc.add_norm
  %s, %sum, %sstats = xfc.add_norm %z, %x, %w, %b {eps = 1.0e-5} : (!x, !x, tensor<6xf32>, tensor<6xf32>) -> (!x, !x, !two)
  // CHECK: xfc.norm_grad
  %d = xfc.norm_grad %s, %sum, %w, %sstats, %x {eps = 1.0e-5} : (!x, !x, tensor<6xf32>, !two, !x) -> !x
  // CHECK: xfc.norm_weight_grad {{.*}} -> (tensor<6xf32>, tensor<6xf32>)
  %dw, %db = xfc.norm_weight_grad %d, %sum, %sstats : (!x, !x, !two) -> (tensor<6xf32>, tensor<6xf32>)
  // CHECK: xfc.norm_grad_with_parts {{.*}} {eps = 1.000000e-05 : f64} : {{.*}} -> (!xfc.rows<source, 6xf32>, tensor<8x6xf32>, tensor<8x6xf32>)
  %e, %dws, %dbs = xfc.norm_grad_with_parts %s, %sum, %w, %sstats, %x {eps = 1.0e-5} : (!x, !x, tensor<6xf32>, !two, !x) -> (!x, tensor<8x6xf32>, tensor<8x6xf32>)
  // CHECK: xfc.sum_parts {{.*}} : (tensor<8x6xf32>, tensor<8x6xf32>) -> (tensor<6xf32>, tensor<6xf32>)
  %ew, %eb = xfc.sum_parts %dws, %dbs : (tensor<8x6xf32>, tensor<8x6xf32>) -> (tensor<6xf32>, tensor<6xf32>)
  return %d, %dw, %db : !x, tensor<6xf32>, tensor<6xf32>
}

// CHECK-LABEL: func.func @attention(
func.func @attention(%q: !x, %k: !x, %v: !y) -> (!y, !y, !pairs, !x, !x, !y) {
  // CHECK: xfc.scores %{{.*}}, %{{.*}} : (!xfc.rows<source, 6xf32>, !xfc.rows<source, 6xf32>) -> !xfc.pairs<source, source, padding, 2xf32>
  %s = xfc.scores %q, %k : (!x, !x) -> !pairs
  // CHECK: xfc.scale %{{.*}} {factor = 5.000000e-01 : f64} : !xfc.pairs<source, source, padding, 2xf32>
  %t = xfc.scale %s {factor = 0.5} : !pairs
  // CHECK: xfc.mask %{{.*}} : <
  %m = xfc.mask %t : !pairs
  // CHECK: xfc.softmax
  %p = xfc.softmax %m : !pairs
  // CHECK: xfc.dropout %{{.*}} {id = 4 : i64, rate = 1.000000e-01 : f64} : !xfc.pairs
  %e = xfc.dropout %p {rate = 0.1, id = 4 : i64} : !pairs
  // CHECK: xfc.combine %{{.*}}, %{{.*}} : (!xfc.pairs<source, source, padding, 2xf32>, !xfc.rows<source, 4xf32>) -> !xfc.rows<source, 4xf32>
  %o = xfc.combine %e, %v : (!pairs, !y) -> !y
  // CHECK: xfc.softmax_grad
  %g = xfc.softmax_grad %e, %p : !pairs
  // CHECK: xfc.mask %{{.*}} {zero} : <
  %z = xfc.mask %g {zero} : !pairs
  // CHECK: xfc.combine_transposed
  %c = xfc.combine_transposed %z, %o : (!pairs, !y) -> !y
  // CHECK: xfc.attention %{{.*}}, %{{.*}}, %{{.*}} {heads = 2 : i64, id = 4 : i64, padding, rate = 1.000000e-01 : f64, scale = 5.000000e-01 : f64} :
  %a, %lse, %w = xfc.attention %q, %k, %v {heads = 2 : i64, scale = 0.5, padding, rate = 0.1, id = 4 : i64} : (!x, !x, !y) -> (!y, !two, !pairs)
  // CHECK: xfc.attention_grad
  %dq, %dk, %dv = xfc.attention_grad %c, %q, %k, %v, %a, %lse {heads = 2 : i64, scale = 0.5, padding, rate = 0.1, id = 4 : i64} :
    (!y, !x, !x, !y, !y, !two) -> (!x, !x, !y)
  return %a, %c, %w, %dq, %dk, %dv : !y, !y, !pairs, !x, !x, !y
}

// CHECK-LABEL: func.func @linear_to_cache(
func.func @linear_to_cache(%x: !xfc.rows<target, 6xf32>, %w: tensor<48x6xf32>, %b: tensor<48xf32>, %k: !xfc.rows<cache, 16xf32>, %v: !xfc.rows<cache, 16xbf16>) -> !xfc.rows<target, 16xf32> {
  // CHECK: xfc.linear_to_cache %{{.*}}, %{{.*}} bias %{{.*}} into %{{.*}}, %{{.*}} in bf16 :
  %q, %now:2 = xfc.linear_to_cache %x, %w bias %b into %k, %v in bf16 : (!xfc.rows<target, 6xf32>, tensor<48x6xf32>, tensor<48xf32>, !xfc.rows<cache, 16xf32>, !xfc.rows<cache, 16xbf16>) -> (!xfc.rows<target, 16xf32>, !xfc.rows<cache, 16xf32>, !xfc.rows<cache, 16xbf16>)
  return %q : !xfc.rows<target, 16xf32>
}

// CHECK-LABEL: func.func @cache(
func.func @cache(%cache: !xfc.rows<cache, 6xf32>, %rows: !xfc.rows<target, 6xf32>) -> !xfc.rows<cache, 6xf32> {
  // CHECK: xfc.cache_write %{{.*}}, %{{.*}} : (!xfc.rows<cache, 6xf32>, !xfc.rows<target, 6xf32>) -> !xfc.rows<cache, 6xf32>
  %0 = xfc.cache_write %cache, %rows : (!xfc.rows<cache, 6xf32>, !xfc.rows<target, 6xf32>) -> !xfc.rows<cache, 6xf32>
  return %0 : !xfc.rows<cache, 6xf32>
}

// CHECK-LABEL: func.func @narrow_cache(
func.func @narrow_cache(%cache: !xfc.rows<cache, 6xi8>, %scales: !xfc.rows<cache, 2xf32>, %bias: tensor<9x4xf32>, %rows: !xfc.rows<target, 6xf32>)
    -> (!xfc.rows<target, 6xbf16>, !xfc.rows<target, 6xf32>) {
  // CHECK: xfc.quantize %{{.*}} : (!xfc.rows<target, 6xf32>) -> !xfc.rows<target, 6xbf16>
  %r = xfc.quantize %rows : (!xfc.rows<target, 6xf32>) -> !xfc.rows<target, 6xbf16>
  // CHECK: xfc.quantize %{{.*}} {groups = 2 : i64} : (!xfc.rows<target, 6xf32>) -> (!xfc.rows<target, 6xi8>, !xfc.rows<target, 2xf32>)
  %i, %s = xfc.quantize %rows {groups = 2 : i64} : (!xfc.rows<target, 6xf32>) -> (!xfc.rows<target, 6xi8>, !xfc.rows<target, 2xf32>)
  // CHECK: xfc.attention %arg3, %arg0, %arg0, %arg2 scaled by %arg1, %arg1 in bf16 {heads = 2 : i64, scale = 1.000000e+00 : f64} : (
  %o, %lse = xfc.attention %rows, %cache, %cache, %bias scaled by %scales, %scales in bf16 {heads = 2 : i64, scale = 1.0} :
    (!xfc.rows<target, 6xf32>, !xfc.rows<cache, 6xi8>, !xfc.rows<cache, 6xi8>, tensor<9x4xf32>, !xfc.rows<cache, 2xf32>, !xfc.rows<cache, 2xf32>) -> (!xfc.rows<target, 6xf32>, !xfc.rows<target, 2xf32>)
  return %r, %o : !xfc.rows<target, 6xbf16>, !xfc.rows<target, 6xf32>
}

// CHECK-LABEL: func.func @recurrence(
func.func @recurrence(%gate: !t, %x: !t, %states: !xfc.rows<cache, 6xf32>) -> (!t, !t, !t) {
  // CHECK: xfc.recurrence %{{.*}}, %{{.*}} : (!xfc.rows<target, 6xf32>, !xfc.rows<target, 6xf32>) -> !xfc.rows<target, 6xf32>
  %c = xfc.recurrence %gate, %x : (!t, !t) -> !t
  // CHECK: xfc.recurrence_grad
  %dgate, %dx = xfc.recurrence_grad %c, %gate, %x, %c : (!t, !t, !t, !t) -> (!t, !t)
  // CHECK: xfc.recurrence %{{.*}}, %{{.*}}, %{{.*}} : (!xfc.rows<target, 6xf32>, !xfc.rows<target, 6xf32>, !xfc.rows<cache, 6xf32>) -> !xfc.rows<target, 6xf32>
  %s = xfc.recurrence %gate, %x, %states : (!t, !t, !xfc.rows<cache, 6xf32>) -> !t
  return %dgate, %dx, %s : !t, !t, !t
}

// CHECK-LABEL: func.func @losses(
func.func @losses(%z: !x, %labels: !ids, %e: tensor<f32>, %x: !y, %w: tensor<6x4xf32>, %b: tensor<6xf32>) -> (!x, !x) {
  // CHECK: xfc.log_softmax
  %p = xfc.log_softmax %z : !x
  // CHECK: xfc.nll
  %loss, %nll = xfc.nll %p, %labels, %e : (!x, !ids, tensor<f32>) -> (!one, !one)
  // CHECK: xfc.nll_grad
  %dp = xfc.nll_grad %loss, %labels, %e : (!one, !ids, tensor<f32>) -> !x
  // CHECK: xfc.log_softmax_grad
  %dz = xfc.log_softmax_grad %dp, %p : !x
  // CHECK: xfc.cross_entropy
  %closs, %cnll, %clse = xfc.cross_entropy %z, %labels, %e : (!x, !ids, tensor<f32>) -> (!one, !one, !one)
  // CHECK: xfc.linear_cross_entropy
  %lloss, %lnll, %logits, %lse = xfc.linear_cross_entropy %x, %w, %b, %labels, %e : (!y, tensor<6x4xf32>, tensor<6xf32>, !ids, tensor<f32>) -> (!one, !one, !x, !one)
  // CHECK: xfc.cross_entropy_grad
  %d = xfc.cross_entropy_grad %logits, %lloss, %labels, %lse, %e : (!x, !one, !ids, !one, tensor<f32>) -> !x
  return %d, %dz : !x, !x
}

// CHECK-LABEL: func.func @losses_of_lists(
func.func @losses_of_lists(%labels: !list, %shares: !xfc.rows<source, 3xf32>, %x: !y, %w: tensor<6x4xf32>, %dloss: !one) -> !x {
  // CHECK: xfc.linear_cross_entropy_with_grad %{{.*}} : (!xfc.rows<source, 4xf32>, tensor<6x4xf32>, !xfc.rows<source, 2xi32>, !xfc.rows<source, 3xf32>, !xfc.rows<source, f32>) ->
  %loss, %nll, %d = xfc.linear_cross_entropy_with_grad %x, %w, %labels, %shares, %dloss
    : (!y, tensor<6x4xf32>, !list, !xfc.rows<source, 3xf32>, !one) -> (!one, !one, !x)
  return %d : !x
}

// CHECK-LABEL: func.func @alignment(
func.func @alignment(%loss: !one, %p: !xfc.pairs<source, source, padding, 2xf32>, %links: !list, %shares: !two) -> !xfc.pairs<source, source, padding, 2xf32> {
  // CHECK: xfc.alignment_loss %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : (!xfc.rows<source, f32>, !xfc.pairs<source, source, padding, 2xf32>, !xfc.rows<source, 2xi32>, !xfc.rows<source, 2xf32>) -> (!xfc.rows<source, f32>, !xfc.rows<source, f32>, !xfc.rows<source, 2xf32>)
  %sum, %alignment, %means = xfc.alignment_loss %loss, %p, %links, %shares : (!one, !xfc.pairs<source, source, padding, 2xf32>, !list, !two) -> (!one, !one, !two)
  // CHECK: xfc.alignment_loss_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {head = 1 : i64} :
  %dp = xfc.alignment_loss_grad %sum, %means, %links, %shares {head = 1 : i64} : (!one, !two, !list, !two) -> !xfc.pairs<source, source, padding, 2xf32>
  return %dp : !xfc.pairs<source, source, padding, 2xf32>
}

// CHECK-LABEL: func.func @candidates(
func.func @candidates(%p: !x, %wanted: !ids, %x: !y, %w: tensor<100x4xf32>, %b: tensor<100xf32>) -> (!list, !two, !list, !two) {
  // CHECK: xfc.candidates %{{.*}}, %{{.*}} {excluded = array<i64: 0, 3>} : (!xfc.rows<source, 6xf32>, !xfc.rows<source, i32>) -> (!xfc.rows<source, 2xi32>, !xfc.rows<source, 2xf32>, !xfc.rows<source, f32>)
  %tokens, %best, %given = xfc.candidates %p, %wanted {excluded = array<i64: 0, 3>} : (!x, !ids) -> (!list, !two, !one)
  // CHECK: xfc.candidates %{{.*}}, %{{.*}} {excluded = array<i64: 0>, renormalize} :
  %others:3 = xfc.candidates %p, %wanted {excluded = array<i64: 0>, renormalize} : (!x, !ids) -> (!list, !two, !one)
  // CHECK: xfc.linear_candidates %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {excluded = array<i64: 0, 3>, slab = 64 : i64} :
  %st, %sl, %lse, %logit = xfc.linear_candidates %x, %w, %b, %wanted {excluded = array<i64: 0, 3>, slab = 64 : i64} :
    (!y, tensor<100x4xf32>, tensor<100xf32>, !ids) -> (!xfc.rows<source, 4xi32>, !y, !two, !one)
  // CHECK: xfc.merge_candidates
  %mt, %mb, %mg = xfc.merge_candidates %st, %sl, %lse, %logit : (!xfc.rows<source, 4xi32>, !y, !two, !one) -> (!list, !two, !one)
  return %tokens, %best, %mt, %mb : !list, !two, !list, !two
}

// CHECK-LABEL: func.func @optimizer(
func.func @optimizer(%h: tensor<10xf32>, %limit: tensor<f32>, %p: tensor<3xf32>, %g: tensor<3xf32>, %m: tensor<3xf32>, %v: tensor<3xf32>) -> tensor<3xf32> {
  // CHECK: xfc.square_sum %{{.*}} : (tensor<3xf32>) -> tensor<1xf64>
  %s = xfc.square_sum %g : (tensor<3xf32>) -> tensor<1xf64>
  // CHECK: xfc.clip_factor
  %factor, %norm = xfc.clip_factor %limit, %s : (tensor<f32>, tensor<1xf64>) -> (tensor<f32>, tensor<f32>)
  // CHECK: xfc.optimize "adam" %{{.*}}, %{{.*}} parameters(%{{.*}}) gradients(%{{.*}}) states(%{{.*}}, %{{.*}}) :
  %0, %1, %2 = xfc.optimize "adam" %h, %factor parameters(%p) gradients(%g) states(%m, %v) :
    (tensor<10xf32>, tensor<f32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)
  return %0 : tensor<3xf32>
}

// CHECK-LABEL: func.func @factored_optimizer(
func.func @factored_optimizer(%h: tensor<9xf32>, %factor: tensor<f32>, %p: tensor<4x3xf32>, %g: tensor<4x3xf32>, %r: tensor<4xf32>, %c: tensor<3xf32>) -> tensor<4x3xf32> {
  // CHECK: xfc.row_moments "adafactor_ema" %{{.*}}, %{{.*}} parameters(%{{.*}}) gradients(%{{.*}}) rows(%{{.*}}) :
  %r1, %q, %s = xfc.row_moments "adafactor_ema" %h, %factor parameters(%p) gradients(%g) rows(%r) :
    (tensor<9xf32>, tensor<f32>, tensor<4x3xf32>, tensor<4x3xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<1xf64>, tensor<1x3xf64>)
  // CHECK: xfc.column_moments "adafactor_ema" %{{.*}} rows(%{{.*}}) sums(%{{.*}}) columns(%{{.*}}) :
  %c1, %f = xfc.column_moments "adafactor_ema" %h rows(%r1) sums(%s) columns(%c) :
    (tensor<9xf32>, tensor<4xf32>, tensor<1x3xf64>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  // CHECK: xfc.update_squares "adafactor_ema" %{{.*}}, %{{.*}} gradients(%{{.*}}) rows(%{{.*}}) factors(%{{.*}}) :
  %u = xfc.update_squares "adafactor_ema" %h, %factor gradients(%g) rows(%r1) factors(%f) :
    (tensor<9xf32>, tensor<f32>, tensor<4x3xf32>, tensor<4xf32>, tensor<3xf32>) -> tensor<1xf64>
  // CHECK: xfc.factored_update "adafactor_ema" %{{.*}}, %{{.*}} parameters(%{{.*}}) gradients(%{{.*}}) rows(%{{.*}}) factors(%{{.*}}) squares(%{{.*}}), (%{{.*}}) averages(%{{.*}}) :
  %0, %1 = xfc.factored_update "adafactor_ema" %h, %factor parameters(%p) gradients(%g) rows(%r1) factors(%f) squares(%q), (%u) averages(%p) :
    (tensor<9xf32>, tensor<f32>, tensor<4x3xf32>, tensor<4x3xf32>, tensor<4xf32>, tensor<3xf32>, tensor<1xf64>, tensor<1xf64>, tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>)
  return %0 : tensor<4x3xf32>
}
