// RUN: %xfc-opt %s --xfc-fuse-cache-write | FileCheck %s

!x = !xfc.rows<target, 8xf32>
!t = !xfc.rows<target, 16xf32>
!c = !xfc.rows<cache, 16xf32>
!narrow = !xfc.rows<cache, 16xbf16>

// Keys and values go to the cache, in the order of the columns; the queries stay rows.
// CHECK-LABEL: func.func @keys_and_values(
// CHECK-SAME: %[[X:[^:]*]]: {{[^%]*}}%[[W:[^:]*]]: {{[^%]*}}%[[B:[^:]*]]: {{[^%]*}}%[[K:[^:]*]]: {{[^%]*}}%[[V:[^:]*]]:
// CHECK-NEXT: %[[Q:.*]], %[[NOW:.*]]:2 = xfc.linear_to_cache %[[X]], %[[W]] bias %[[B]] into %[[K]], %[[V]] in bf16 :
// CHECK-NEXT: return %[[Q]], %[[NOW]]#0, %[[NOW]]#1
func.func @keys_and_values(%x: !x, %w: tensor<48x8xf32>, %b: tensor<48xf32>, %keys: !c, %values: !narrow) -> (!t, !c, !narrow) {
  %y = xfc.linear %x, %w bias %b in bf16 : (!x, tensor<48x8xf32>, tensor<48xf32>) -> !xfc.rows<target, 48xf32>
  %q, %k, %v = xfc.split %y : (!xfc.rows<target, 48xf32>) -> (!t, !t, !t)
  %values_now = xfc.cache_write %values, %v : (!narrow, !t) -> !narrow
  %keys_now = xfc.cache_write %keys, %k : (!c, !t) -> !c
  return %q, %keys_now, %values_now : !t, !c, !narrow
}

// Keys that something else reads first stay, and values go to the cache.
// CHECK-LABEL: func.func @values(
// CHECK-NEXT: %[[ROWS:.*]], %[[VALUES:.*]] = xfc.linear_to_cache %{{.*}}, %{{.*}} into %{{.*}} :
// CHECK-NEXT: %[[PARTS:.*]]:2 = xfc.split %[[ROWS]]
// CHECK-NEXT: %[[SCALED:.*]] = xfc.scale %[[PARTS]]#1
// CHECK-NEXT: %[[KEYS:.*]] = xfc.cache_write %{{.*}}, %[[SCALED]]
// CHECK-NEXT: return %[[PARTS]]#0, %[[KEYS]], %[[VALUES]]
func.func @values(%x: !x, %w: tensor<48x8xf32>, %keys: !c, %values: !c) -> (!t, !c, !c) {
  %y = xfc.linear %x, %w : (!x, tensor<48x8xf32>) -> !xfc.rows<target, 48xf32>
  %q, %k, %v = xfc.split %y : (!xfc.rows<target, 48xf32>) -> (!t, !t, !t)
  %scaled = xfc.scale %k {factor = 2.0 : f64} : !t
  %keys_now = xfc.cache_write %keys, %scaled : (!c, !t) -> !c
  %values_now = xfc.cache_write %values, %v : (!c, !t) -> !c
  return %q, %keys_now, %values_now : !t, !c, !c
}
