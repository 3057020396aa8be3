// RUN: %xfc-opt %s --xfc-fuse-add-norm --print-op-stats 2>%t.statistics | FileCheck %s
// RUN: FileCheck %s --check-prefix=STATISTICS --input-file=%t.statistics

// STATISTICS: xfc.add , 1{{$}}
// STATISTICS: xfc.add_norm , 3{{$}}
// STATISTICS: xfc.norm , 1{{$}}

!rows = !xfc.rows<source, 8xf32>
!stats = !xfc.rows<source, 2xf32>

// Post-norm: nothing else reads the sum.
// CHECK-LABEL: func.func @post_norm
// CHECK-SAME: (%[[BODY:.*]]: !xfc{{.*}}, %[[X:.*]]: !xfc{{.*}}, %[[W:.*]]: tensor<8xf32>, %[[B:.*]]: tensor<8xf32>)
// CHECK-NEXT: %[[Y:.*]], %{{.*}}, %[[STATS:.*]] = xfc.add_norm %[[BODY]], %[[X]], %[[W]], %[[B]] {eps = 1.000000e-05 : f64}
// CHECK-NEXT: return %[[Y]], %[[STATS]]
func.func @post_norm(%body: !rows, %x: !rows, %w: tensor<8xf32>, %b: tensor<8xf32>) -> (!rows, !stats) {
  %s = xfc.add %body, %x : !rows
  %y, %stats = xfc.norm %s, %w, %b {eps = 1.0e-5} : (!rows, tensor<8xf32>, tensor<8xf32>) -> (!rows, !stats)
  return %y, %stats : !rows, !stats
}

// Pre-norm: the sum is also the residual stream, and is read before its norm too.
// CHECK-LABEL: func.func @pre_norm
// CHECK-NEXT: %[[Y:.*]], %[[SUM:.*]], %{{.*}} = xfc.add_norm %{{.*}} {eps = 1.000000e-03 : f64, kind = 1 : i32}
// CHECK-NEXT: %[[A:.*]] = xfc.activation relu %[[SUM]]
// CHECK-NEXT: %[[T:.*]] = xfc.add %[[Y]], %[[SUM]]
// CHECK-NEXT: return %[[A]], %[[T]]
func.func @pre_norm(%body: !rows, %x: !rows, %w: tensor<8xf32>) -> (!rows, !rows) {
  %s = xfc.add %body, %x : !rows
  %a = xfc.activation relu %s : !rows
  %y, %stats = xfc.norm %s, %w {eps = 1.0e-3, kind = 1 : i32} : (!rows, tensor<8xf32>) -> (!rows, !stats)
  %t = xfc.add %y, %s : !rows
  return %a, %t : !rows, !rows
}

// Two norms of one sum: one is fused with the add, the other reads the fused op's sum.
// CHECK-LABEL: func.func @two_norms
// CHECK-NEXT: %{{.*}}, %[[SUM:.*]], %{{.*}} = xfc.add_norm
// CHECK-SAME: eps_in_std, unbiased
// CHECK-NEXT: xfc.norm %[[SUM]]
func.func @two_norms(%body: !rows, %x: !rows, %w: tensor<8xf32>) -> (!rows, !rows) {
  %s = xfc.add %body, %x : !rows
  %y, %stats = xfc.norm %s, %w {eps = 1.0e-3, unbiased, eps_in_std} : (!rows, tensor<8xf32>) -> (!rows, !stats)
  %z, %stats2 = xfc.norm %s, %w {eps = 1.0e-3, unbiased, eps_in_std} : (!rows, tensor<8xf32>) -> (!rows, !stats)
  return %y, %z : !rows, !rows
}
