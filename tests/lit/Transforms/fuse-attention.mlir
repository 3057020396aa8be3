// RUN: %xfc-opt %s --xfc-fuse-attention --print-op-stats 2>%t.statistics | FileCheck %s
// RUN: FileCheck %s --check-prefix=STATISTICS --input-file=%t.statistics

// STATISTICS: xfc.attention , 7{{$}}

// Self-attention in training: scale, mask and dropout.
// CHECK-LABEL: func.func @training
// CHECK-SAME: (%[[Q:.*]]: !xfc.rows<source, 20xf32>, %[[K:.*]]: !xfc.rows<source, 20xf32>, %[[V:.*]]: !xfc.rows<source, 28xf32>)
// CHECK-NEXT: %[[O:.*]], %{{.*}} = xfc.attention %[[Q]], %[[K]], %[[V]] {
// CHECK-DAG: heads = 4 : i64
// CHECK-DAG: scale = 5.000000e-01 : f64
// CHECK-DAG: padding
// CHECK-DAG: rate = 1.000000e-01 : f64
// CHECK-DAG: id = 3 : i64
// CHECK-NOT: causal
// CHECK-SAME: -> (!xfc.rows<source, 28xf32>, !xfc.rows<source, 4xf32>)
// CHECK-NEXT: return %[[O]]
func.func @training(%q: !xfc.rows<source, 20xf32>, %k: !xfc.rows<source, 20xf32>, %v: !xfc.rows<source, 28xf32>) -> !xfc.rows<source, 28xf32> {
  %s = xfc.scores %q, %k : (!xfc.rows<source, 20xf32>, !xfc.rows<source, 20xf32>) -> !xfc.pairs<source, source, padding, 4xf32>
  %t = xfc.scale %s {factor = 0.5} : !xfc.pairs<source, source, padding, 4xf32>
  %m = xfc.mask %t : !xfc.pairs<source, source, padding, 4xf32>
  %p = xfc.softmax %m : !xfc.pairs<source, source, padding, 4xf32>
  %d = xfc.dropout %p {rate = 0.1, id = 3} : !xfc.pairs<source, source, padding, 4xf32>
  %o = xfc.combine %d, %v : (!xfc.pairs<source, source, padding, 4xf32>, !xfc.rows<source, 28xf32>) -> !xfc.rows<source, 28xf32>
  return %o : !xfc.rows<source, 28xf32>
}

// If the function returns the probabilities, they become attention's third result, before dropout.
// CHECK-LABEL: func.func @weights
// CHECK-NEXT: %[[O:.*]], %{{.*}}, %[[P:.*]] = xfc.attention
// CHECK-SAME: -> (!xfc.rows<target, 8xf32>, !xfc.rows<target, 2xf32>, !xfc.pairs<target, source, padding, 2xf32>)
// CHECK-NEXT: return %[[O]], %[[P]]
func.func @weights(%q: !xfc.rows<target, 8xf32>, %k: !xfc.rows<source, 8xf32>) -> (!xfc.rows<target, 8xf32>, !xfc.pairs<target, source, padding, 2xf32>) {
  %s = xfc.scores %q, %k : (!xfc.rows<target, 8xf32>, !xfc.rows<source, 8xf32>) -> !xfc.pairs<target, source, padding, 2xf32>
  %t = xfc.scale %s {factor = 0.5} : !xfc.pairs<target, source, padding, 2xf32>
  %m = xfc.mask %t : !xfc.pairs<target, source, padding, 2xf32>
  %p = xfc.softmax %m : !xfc.pairs<target, source, padding, 2xf32>
  %d = xfc.dropout %p {rate = 0.1, id = 3} : !xfc.pairs<target, source, padding, 2xf32>
  %o = xfc.combine %d, %k : (!xfc.pairs<target, source, padding, 2xf32>, !xfc.rows<source, 8xf32>) -> !xfc.rows<target, 8xf32>
  return %o, %p : !xfc.rows<target, 8xf32>, !xfc.pairs<target, source, padding, 2xf32>
}

// Without a scale op, the scale is 1.
// CHECK-LABEL: func.func @no_scale
// CHECK-NEXT: xfc.attention
// CHECK-SAME: causal
// CHECK-SAME: scale = 1.000000e+00 : f64
// CHECK-NOT: xfc.softmax
func.func @no_scale(%q: !xfc.rows<target, 8xf32>) -> !xfc.rows<target, 8xf32> {
  %s = xfc.scores %q, %q : (!xfc.rows<target, 8xf32>, !xfc.rows<target, 8xf32>) -> !xfc.pairs<target, target, causal, 2xf32>
  %m = xfc.mask %s : !xfc.pairs<target, target, causal, 2xf32>
  %p = xfc.softmax %m : !xfc.pairs<target, target, causal, 2xf32>
  %o = xfc.combine %p, %q : (!xfc.pairs<target, target, causal, 2xf32>, !xfc.rows<target, 8xf32>) -> !xfc.rows<target, 8xf32>
  return %o : !xfc.rows<target, 8xf32>
}

// The mask op may be missing unless the type is causal: the list of keys leaves out pad tokens anyway.
// CHECK-LABEL: func.func @no_mask
// CHECK-NEXT: xfc.attention
// CHECK-SAME: padding
func.func @no_mask(%q: !xfc.rows<source, 8xf32>) -> !xfc.rows<source, 8xf32> {
  %s = xfc.scores %q, %q : (!xfc.rows<source, 8xf32>, !xfc.rows<source, 8xf32>) -> !xfc.pairs<source, source, padding, 2xf32>
  %p = xfc.softmax %s : !xfc.pairs<source, source, padding, 2xf32>
  %o = xfc.combine %p, %q : (!xfc.pairs<source, source, padding, 2xf32>, !xfc.rows<source, 8xf32>) -> !xfc.rows<source, 8xf32>
  return %o : !xfc.rows<source, 8xf32>
}

// While decoding, keys and values are rows of the cache.
// CHECK-LABEL: func.func @cache
// CHECK-NEXT: xfc.attention %{{.*}} : (!xfc.rows<target, 8xf32>, !xfc.rows<cache, 8xf32>, !xfc.rows<cache, 8xf32>)
func.func @cache(%q: !xfc.rows<target, 8xf32>, %k: !xfc.rows<cache, 8xf32>) -> !xfc.rows<target, 8xf32> {
  %s = xfc.scores %q, %k : (!xfc.rows<target, 8xf32>, !xfc.rows<cache, 8xf32>) -> !xfc.pairs<target, cache, padding causal, 2xf32>
  %t = xfc.scale %s {factor = 0.5} : !xfc.pairs<target, cache, padding causal, 2xf32>
  %m = xfc.mask %t : !xfc.pairs<target, cache, padding causal, 2xf32>
  %p = xfc.softmax %m : !xfc.pairs<target, cache, padding causal, 2xf32>
  %o = xfc.combine %p, %k : (!xfc.pairs<target, cache, padding causal, 2xf32>, !xfc.rows<cache, 8xf32>) -> !xfc.rows<target, 8xf32>
  return %o : !xfc.rows<target, 8xf32>
}

// A distance bias becomes an operand.
// CHECK-LABEL: func.func @biased
// CHECK-SAME: (%[[Q:.*]]: !xfc.rows<source, 8xf32>, %[[B:.*]]: tensor<9x4xf32>)
// CHECK-NEXT: xfc.attention %[[Q]], %[[Q]], %[[Q]], %[[B]] {
// CHECK-NEXT: return
func.func @biased(%q: !xfc.rows<source, 8xf32>, %bias: tensor<9x4xf32>) -> !xfc.rows<source, 8xf32> {
  %s = xfc.scores %q, %q : (!xfc.rows<source, 8xf32>, !xfc.rows<source, 8xf32>) -> !xfc.pairs<source, source, padding, 2xf32>
  %b = xfc.add_distance_bias %s, %bias : (!xfc.pairs<source, source, padding, 2xf32>, tensor<9x4xf32>) -> !xfc.pairs<source, source, padding, 2xf32>
  %m = xfc.mask %b : !xfc.pairs<source, source, padding, 2xf32>
  %p = xfc.softmax %m : !xfc.pairs<source, source, padding, 2xf32>
  %o = xfc.combine %p, %q : (!xfc.pairs<source, source, padding, 2xf32>, !xfc.rows<source, 8xf32>) -> !xfc.rows<source, 8xf32>
  return %o : !xfc.rows<source, 8xf32>
}

// Attention itself has a reach, and heads that share keys.
// CHECK-LABEL: func.func @reach
// CHECK-NEXT: xfc.attention %{{.*}} {causal, heads = 4 : i64, {{.*}}reach = 7 : i64
// CHECK-SAME: (!xfc.rows<source, 8xf32>, !xfc.rows<source, 4xf32>, !xfc.rows<source, 4xf32>)
// CHECK-NEXT: return
func.func @reach(%q: !xfc.rows<source, 8xf32>, %k: !xfc.rows<source, 4xf32>) -> !xfc.rows<source, 8xf32> {
  %s = xfc.scores %q, %k : (!xfc.rows<source, 8xf32>, !xfc.rows<source, 4xf32>) -> !xfc.pairs<source, source, causal, 4xf32>
  %m = xfc.mask %s {reach = 7 : i64} : !xfc.pairs<source, source, causal, 4xf32>
  %p = xfc.softmax %m : !xfc.pairs<source, source, causal, 4xf32>
  %o = xfc.combine %p, %k : (!xfc.pairs<source, source, causal, 4xf32>, !xfc.rows<source, 4xf32>) -> !xfc.rows<source, 8xf32>
  return %o : !xfc.rows<source, 8xf32>
}
