// Ops that do not form an attention, or whose intermediate values are needed elsewhere, are not fused.
// RUN: %xfc-opt %s --xfc-fuse-attention | FileCheck %s
// CHECK-NOT: xfc.attention

!rows = !xfc.rows<source, 8xf32>
!pairs = !xfc.pairs<source, source, padding, 2xf32>
!causal = !xfc.pairs<source, source, causal, 2xf32>

// The scores are a result.
// CHECK-LABEL: func.func @scores_used
// CHECK: xfc.combine
func.func @scores_used(%q: !rows) -> (!rows, !pairs) {
  %s = xfc.scores %q, %q : (!rows, !rows) -> !pairs
  %m = xfc.mask %s : !pairs
  %p = xfc.softmax %m : !pairs
  %o = xfc.combine %p, %q : (!pairs, !rows) -> !rows
  return %o, %s : !rows, !pairs
}

// The scaled scores are a result.
// CHECK-LABEL: func.func @scale_used
// CHECK: xfc.combine
func.func @scale_used(%q: !rows) -> (!rows, !pairs) {
  %s = xfc.scores %q, %q : (!rows, !rows) -> !pairs
  %t = xfc.scale %s {factor = 0.5} : !pairs
  %p = xfc.softmax %t : !pairs
  %o = xfc.combine %p, %q : (!pairs, !rows) -> !rows
  return %o, %t : !rows, !pairs
}

// The masked scores are a result.
// CHECK-LABEL: func.func @mask_used
// CHECK: xfc.combine
func.func @mask_used(%q: !rows) -> (!rows, !pairs) {
  %s = xfc.scores %q, %q : (!rows, !rows) -> !pairs
  %m = xfc.mask %s : !pairs
  %p = xfc.softmax %m : !pairs
  %o = xfc.combine %p, %q : (!pairs, !rows) -> !rows
  return %o, %m : !rows, !pairs
}

// Two values are combined by the same probabilities.
// CHECK-LABEL: func.func @probabilities_used
// CHECK: xfc.combine
// CHECK: xfc.combine
func.func @probabilities_used(%q: !rows, %v: !rows) -> (!rows, !rows) {
  %s = xfc.scores %q, %q : (!rows, !rows) -> !pairs
  %m = xfc.mask %s : !pairs
  %p = xfc.softmax %m : !pairs
  %o = xfc.combine %p, %q : (!pairs, !rows) -> !rows
  %u = xfc.combine %p, %v : (!pairs, !rows) -> !rows
  return %o, %u : !rows, !rows
}

// The probabilities after dropout are a result, but attention's third result holds those before dropout.
// CHECK-LABEL: func.func @dropped_used
// CHECK: xfc.combine
func.func @dropped_used(%q: !rows) -> (!rows, !pairs) {
  %s = xfc.scores %q, %q : (!rows, !rows) -> !pairs
  %m = xfc.mask %s : !pairs
  %p = xfc.softmax %m : !pairs
  %d = xfc.dropout %p {rate = 0.1, id = 1} : !pairs
  %o = xfc.combine %d, %q : (!pairs, !rows) -> !rows
  return %o, %d : !rows, !pairs
}

// A mask that writes zeros belongs to a gradient.
// CHECK-LABEL: func.func @zero_mask
// CHECK: xfc.combine
func.func @zero_mask(%q: !rows) -> !rows {
  %s = xfc.scores %q, %q : (!rows, !rows) -> !pairs
  %m = xfc.mask %s {zero} : !pairs
  %p = xfc.softmax %m : !pairs
  %o = xfc.combine %p, %q : (!pairs, !rows) -> !rows
  return %o : !rows
}

// The type is causal, but there is no mask.
// CHECK-LABEL: func.func @causal_without_mask
// CHECK: xfc.combine
func.func @causal_without_mask(%q: !rows) -> !rows {
  %s = xfc.scores %q, %q : (!rows, !rows) -> !causal
  %p = xfc.softmax %s : !causal
  %o = xfc.combine %p, %q : (!causal, !rows) -> !rows
  return %o : !rows
}

// The scores are an argument, or there is no softmax.
// CHECK-LABEL: func.func @no_scores
// CHECK: xfc.combine
// CHECK: xfc.combine
func.func @no_scores(%s: !pairs, %v: !rows) -> (!rows, !rows) {
  %p = xfc.softmax %s : !pairs
  %o = xfc.combine %p, %v : (!pairs, !rows) -> !rows
  %u = xfc.combine %s, %v : (!pairs, !rows) -> !rows
  return %o, %u : !rows, !rows
}
