// Unfused attention: one kernel per step, over pairs values.
//
// RUN: %xfc-ptx %s > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_80 sm_90 sm_90a sm_100 %}

!rows = !xfc.rows<source, 512xf32>
!pairs = !xfc.pairs<source, source, padding, 8xf32>

// CHECK-LABEL: .visible .entry scores
// CHECK:       fma.rn.ftz.f32
// CHECK-LABEL: .visible .entry softmax
// CHECK:       shfl.sync.bfly.b32
// CHECK:       ex2.approx.ftz.f32
// CHECK-LABEL: .visible .entry combine
// CHECK-LABEL: .visible .entry softmax_grad
// CHECK:       shfl.sync.bfly.b32
// CHECK-LABEL: .visible .entry combine_transposed
// CHECK-LABEL: .visible .entry alignment_loss(
// CHECK:       lg2.approx
// CHECK-LABEL: .visible .entry alignment_loss_grad
// CHECK:       bar.warp.sync
func.func @steps(%q: !rows) -> (!rows, !rows) {
  %s = xfc.scores %q, %q : (!rows, !rows) -> !pairs
  %p = xfc.softmax %s : !pairs
  %o = xfc.combine %p, %q : (!pairs, !rows) -> !rows
  %d = xfc.softmax_grad %s, %p : !pairs
  %g = xfc.combine_transposed %d, %q : (!pairs, !rows) -> !rows
  return %o, %g : !rows, !rows
}

!loss = !xfc.rows<source, f32>
!links = !xfc.rows<source, 4xi32>
!shares = !xfc.rows<source, 4xf32>
func.func @alignment(%loss: !loss, %p: !pairs, %links: !links, %shares: !shares) -> (!loss, !pairs) {
  %sum, %alignment, %means = xfc.alignment_loss %loss, %p, %links, %shares : (!loss, !pairs, !links, !shares) -> (!loss, !loss, !shares)
  %dp = xfc.alignment_loss_grad %loss, %means, %links, %shares : (!loss, !shares, !links, !shares) -> !pairs
  return %sum, %dp : !loss, !pairs
}
