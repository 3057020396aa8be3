// RUN: %xfc-opt %s --xfc-fuse-cache-write | FileCheck %s
// CHECK-NOT: linear_to_cache

!x = !xfc.rows<target, 8xf32>
!t = !xfc.rows<target, 16xf32>
!y = !xfc.rows<target, 32xf32>
!c = !xfc.rows<cache, 16xf32>

// The rows that are split do not come from a linear.
func.func @rows(%y: !y, %cache: !c) -> (!t, !c) {
  %q, %k = xfc.split %y : (!y) -> (!t, !t)
  %now = xfc.cache_write %cache, %k : (!c, !t) -> !c
  return %q, %now : !t, !c
}

// The linear has an epilogue.
func.func @epilogue(%x: !x, %w: tensor<32x8xf32>, %cache: !c) -> (!t, !c) {
  %y = xfc.linear %x, %w {
  ^bb0(%row: !y):
    %r = xfc.activation relu %row : !y
    xfc.yield %r : !y
  } : (!x, tensor<32x8xf32>) -> !y
  %q, %k = xfc.split %y : (!y) -> (!t, !t)
  %now = xfc.cache_write %cache, %k : (!c, !t) -> !c
  return %q, %now : !t, !c
}

// The linear has another use.
func.func @whole(%x: !x, %w: tensor<32x8xf32>, %cache: !c) -> (!t, !c, !y) {
  %y = xfc.linear %x, %w : (!x, tensor<32x8xf32>) -> !y
  %q, %k = xfc.split %y : (!y) -> (!t, !t)
  %now = xfc.cache_write %cache, %k : (!c, !t) -> !c
  return %q, %now, %y : !t, !c, !y
}

// The last part has another use.
func.func @part(%x: !x, %w: tensor<32x8xf32>, %cache: !c) -> (!t, !c, !t) {
  %y = xfc.linear %x, %w : (!x, tensor<32x8xf32>) -> !y
  %q, %k = xfc.split %y : (!y) -> (!t, !t)
  %now = xfc.cache_write %cache, %k : (!c, !t) -> !c
  return %q, %now, %k : !t, !c, !t
}

// The last part is quantized before it is written.
func.func @integers(%x: !x, %w: tensor<32x8xf32>, %cache: !xfc.rows<cache, 16xi8>) -> (!t, !xfc.rows<cache, 16xi8>, !xfc.rows<target, 2xf32>) {
  %y = xfc.linear %x, %w : (!x, tensor<32x8xf32>) -> !y
  %q, %k = xfc.split %y : (!y) -> (!t, !t)
  %i, %s = xfc.quantize %k {groups = 2 : i64} : (!t) -> (!xfc.rows<target, 16xi8>, !xfc.rows<target, 2xf32>)
  %now = xfc.cache_write %cache, %i : (!xfc.rows<cache, 16xi8>, !xfc.rows<target, 16xi8>) -> !xfc.rows<cache, 16xi8>
  return %q, %now, %s : !t, !xfc.rows<cache, 16xi8>, !xfc.rows<target, 2xf32>
}

// The cache is read before it is written.
func.func @read(%x: !x, %w: tensor<32x8xf32>, %cache: !c) -> (!t, !c) {
  %y = xfc.linear %x, %w : (!x, tensor<32x8xf32>) -> !y
  %q, %k = xfc.split %y : (!y) -> (!t, !t)
  %o, %lse = xfc.attention %q, %cache, %cache {heads = 1 : i64, scale = 1.0, causal} : (!t, !c, !c) -> (!t, !xfc.rows<target, 1xf32>)
  %now = xfc.cache_write %cache, %k : (!c, !t) -> !c
  return %o, %now : !t, !c
}

// The cache is what another write has made of it, which may depend on this linear.
func.func @again(%x: !x, %w: tensor<32x8xf32>, %cache: !c, %first: !t) -> (!t, !c) {
  %y = xfc.linear %x, %w : (!x, tensor<32x8xf32>) -> !y
  %q, %k = xfc.split %y : (!y) -> (!t, !t)
  %before = xfc.cache_write %cache, %first : (!c, !t) -> !c
  %now = xfc.cache_write %before, %k : (!c, !t) -> !c
  return %q, %now : !t, !c
}

// Rows of the cache are not a multiple of 16 features.
func.func @features(%x: !x, %w: tensor<24x8xf32>, %cache: !xfc.rows<cache, 8xf32>) -> (!t, !xfc.rows<cache, 8xf32>) {
  %y = xfc.linear %x, %w : (!x, tensor<24x8xf32>) -> !xfc.rows<target, 24xf32>
  %q, %k = xfc.split %y : (!xfc.rows<target, 24xf32>) -> (!t, !xfc.rows<target, 8xf32>)
  %now = xfc.cache_write %cache, %k : (!xfc.rows<cache, 8xf32>, !xfc.rows<target, 8xf32>) -> !xfc.rows<cache, 8xf32>
  return %q, %now : !t, !xfc.rows<cache, 8xf32>
}

// Nor are the other columns.
func.func @columns(%x: !x, %w: tensor<24x8xf32>, %cache: !c) -> (!xfc.rows<target, 8xf32>, !c) {
  %y = xfc.linear %x, %w : (!x, tensor<24x8xf32>) -> !xfc.rows<target, 24xf32>
  %q, %k = xfc.split %y : (!xfc.rows<target, 24xf32>) -> (!xfc.rows<target, 8xf32>, !t)
  %now = xfc.cache_write %cache, %k : (!c, !t) -> !c
  return %q, %now : !xfc.rows<target, 8xf32>, !c
}
