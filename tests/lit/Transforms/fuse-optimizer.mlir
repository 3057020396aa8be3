// RUN: %xfc-opt %s --xfc-fuse-optimizer --print-op-stats 2>%t.statistics | FileCheck %s
// RUN: FileCheck %s --check-prefix=STATISTICS --input-file=%t.statistics

// STATISTICS: xfc.optimize , 1{{$}}
// STATISTICS: xfc.square_sum , 1{{$}}

!big = tensor<128x128xf32>
!small = tensor<3xf32>

// @forward reads "a" and "c" as one, so "c" lies right after "a". "b" starts on a new cache line: the block has
// 16384 + 16384 + 3 elements with no gap, 3 parts.
func.func @forward(%a: !big {xfc.name = "a", xfc.role = "parameter"}, %c: !big {xfc.name = "c", xfc.role = "parameter"}) -> tensor<256x128xf32> {
  %ac = xfc.concat %a, %c : (!big, !big) -> tensor<256x128xf32>
  return %ac : tensor<256x128xf32>
}

// CHECK-LABEL: func.func @update
// CHECK-SAME: %[[PA:[^ ]*]]: tensor<128x128xf32> {xfc.name = "a", xfc.role = "parameter"}, %[[PB:[^ ]*]]: {{[^%]*}}, %[[PC:[^ ]*]]:
// CHECK-SAME: %[[GA:[^ ]*]]: tensor<128x128xf32> {xfc.name = "a", xfc.role = "gradient"}, %[[GB:[^ ]*]]: {{[^%]*}}, %[[GC:[^ ]*]]:
// CHECK-NEXT: %[[SUM:.*]] = xfc.square_sum %[[GA]], %[[GC]], %[[GB]] : {{.*}} -> tensor<3xf64>
// CHECK-NEXT: %[[FACTOR:.*]], %[[NORM:.*]] = xfc.clip_factor %{{.*}}, %[[SUM]]
// CHECK-NEXT: %[[NEW:.*]]:9 = xfc.optimize "adam" %{{.*}}, %[[FACTOR]] parameters(%[[PA]], %[[PC]], %[[PB]]) gradients(%[[GA]], %[[GC]], %[[GB]])
// CHECK-NEXT: return %[[NEW]]#0, %[[NEW]]#2, %[[NEW]]#1, %[[NEW]]#3, %[[NEW]]#5, %[[NEW]]#4, %[[NEW]]#6, %[[NEW]]#8, %[[NEW]]#7, %[[NORM]]
func.func @update(%pa: !big {xfc.name = "a", xfc.role = "parameter"}, %pb: !small {xfc.name = "b", xfc.role = "parameter"}, %pc: !big {xfc.name = "c", xfc.role = "parameter"},
                  %ga: !big {xfc.name = "a", xfc.role = "gradient"}, %gb: !small {xfc.name = "b", xfc.role = "gradient"}, %gc: !big {xfc.name = "c", xfc.role = "gradient"},
                  %ma: !big {xfc.name = "a", xfc.role = "moment1"}, %mb: !small {xfc.name = "b", xfc.role = "moment1"}, %mc: !big {xfc.name = "c", xfc.role = "moment1"},
                  %va: !big {xfc.name = "a", xfc.role = "moment2"}, %vb: !small {xfc.name = "b", xfc.role = "moment2"}, %vc: !big {xfc.name = "c", xfc.role = "moment2"},
                  %hyper: tensor<10xf32> {xfc.name = "hyper", xfc.role = "scalar"}, %max: tensor<f32> {xfc.name = "max_norm", xfc.role = "scalar"})
    -> (!big, !small, !big, !big, !small, !big, !big, !small, !big, tensor<f32>) {
  %sa = xfc.square_sum %ga : (!big) -> tensor<1xf64>
  %sb = xfc.square_sum %gb : (!small) -> tensor<1xf64>
  %sc = xfc.square_sum %gc : (!big) -> tensor<1xf64>
  %factor, %norm = xfc.clip_factor %max, %sa, %sb, %sc : (tensor<f32>, tensor<1xf64>, tensor<1xf64>, tensor<1xf64>) -> (tensor<f32>, tensor<f32>)
  %na, %nma, %nva = xfc.optimize "adam" %hyper, %factor parameters(%pa) gradients(%ga) states(%ma, %va) : (tensor<10xf32>, tensor<f32>, !big, !big, !big, !big) -> (!big, !big, !big)
  %nb, %nmb, %nvb = xfc.optimize "adam" %hyper, %factor parameters(%pb) gradients(%gb) states(%mb, %vb) : (tensor<10xf32>, tensor<f32>, !small, !small, !small, !small) -> (!small, !small, !small)
  %nc, %nmc, %nvc = xfc.optimize "adam" %hyper, %factor parameters(%pc) gradients(%gc) states(%mc, %vc) : (tensor<10xf32>, tensor<f32>, !big, !big, !big, !big) -> (!big, !big, !big)
  return %na, %nb, %nc, %nma, %nmb, %nmc, %nva, %nvb, %nvc, %norm : !big, !small, !big, !big, !small, !big, !big, !small, !big, tensor<f32>
}

// An optimizer that takes its parameters one by one: the ops of each kind become one, whether they concern matrices or vectors.
// CHECK-LABEL: func.func @update.adafactor
// CHECK-SAME: %[[PA:[a-z0-9]+]]: tensor<4x6xf32> {xfc.name = "a", xfc.role = "parameter"}, %[[PB:[a-z0-9]+]]: tensor<3xf32>
// CHECK-NEXT: %[[ROWS:.*]]:5 = xfc.row_moments "adafactor" %[[HYPER:.*]], %[[FACTOR:.*]] parameters(%[[PA]], %[[PB]]) gradients(%{{.*}}, %{{.*}}) rows(%{{.*}}, %{{.*}}) : {{.*}} -> (tensor<4xf32>, tensor<3xf32>, tensor<1xf64>, tensor<1xf64>, tensor<1x6xf64>)
// CHECK-NEXT: %[[COLUMNS:.*]]:2 = xfc.column_moments "adafactor" %[[HYPER]] rows(%[[ROWS]]#0) sums(%[[ROWS]]#4)
// CHECK-NEXT: %[[SQUARES:.*]]:2 = xfc.update_squares "adafactor" %[[HYPER]], %[[FACTOR]] gradients(%{{.*}}, %{{.*}}) rows(%[[ROWS]]#0, %[[ROWS]]#1) factors(%[[COLUMNS]]#1)
// CHECK-NEXT: %[[NEW:.*]]:2 = xfc.factored_update "adafactor" %[[HYPER]], %[[FACTOR]] parameters(%[[PA]], %[[PB]]) {{.*}} factors(%[[COLUMNS]]#1) squares(%[[ROWS]]#2, %[[ROWS]]#3), (%[[SQUARES]]#0, %[[SQUARES]]#1) averages()
// CHECK-NEXT: return %[[NEW]]#0, %[[NEW]]#1, %[[ROWS]]#0, %[[ROWS]]#1, %[[COLUMNS]]#0
!matrix = tensor<4x6xf32>
func.func @update.adafactor(%pa: !matrix {xfc.name = "a", xfc.role = "parameter"}, %pb: !small {xfc.name = "b", xfc.role = "parameter"},
                            %ga: !matrix {xfc.name = "a", xfc.role = "gradient"}, %gb: !small {xfc.name = "b", xfc.role = "gradient"},
                            %ra: tensor<4xf32> {xfc.name = "a", xfc.role = "row_mean"}, %rb: !small {xfc.name = "b", xfc.role = "row_mean"},
                            %ca: tensor<6xf32> {xfc.name = "a", xfc.role = "column_mean"},
                            %hyper: tensor<8xf32> {xfc.name = "hyper", xfc.role = "scalar"}, %factor: tensor<f32> {xfc.name = "max_norm", xfc.role = "scalar"})
    -> (!matrix, !small, tensor<4xf32>, !small, tensor<6xf32>) {
  %ra1, %qa, %sums = xfc.row_moments "adafactor" %hyper, %factor parameters(%pa) gradients(%ga) rows(%ra) : (tensor<8xf32>, tensor<f32>, !matrix, !matrix, tensor<4xf32>) -> (tensor<4xf32>, tensor<1xf64>, tensor<1x6xf64>)
  %rb1, %qb = xfc.row_moments "adafactor" %hyper, %factor parameters(%pb) gradients(%gb) rows(%rb) : (tensor<8xf32>, tensor<f32>, !small, !small, !small) -> (!small, tensor<1xf64>)
  %ca1, %fa = xfc.column_moments "adafactor" %hyper rows(%ra1) sums(%sums) columns(%ca) : (tensor<8xf32>, tensor<4xf32>, tensor<1x6xf64>, tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>)
  %ua = xfc.update_squares "adafactor" %hyper, %factor gradients(%ga) rows(%ra1) factors(%fa) : (tensor<8xf32>, tensor<f32>, !matrix, tensor<4xf32>, tensor<6xf32>) -> tensor<1xf64>
  %ub = xfc.update_squares "adafactor" %hyper, %factor gradients(%gb) rows(%rb1) factors() : (tensor<8xf32>, tensor<f32>, !small, !small) -> tensor<1xf64>
  %na = xfc.factored_update "adafactor" %hyper, %factor parameters(%pa) gradients(%ga) rows(%ra1) factors(%fa) squares(%qa), (%ua) averages() : (tensor<8xf32>, tensor<f32>, !matrix, !matrix, tensor<4xf32>, tensor<6xf32>, tensor<1xf64>, tensor<1xf64>) -> !matrix
  %nb = xfc.factored_update "adafactor" %hyper, %factor parameters(%pb) gradients(%gb) rows(%rb1) factors() squares(%qb), (%ub) averages() : (tensor<8xf32>, tensor<f32>, !small, !small, !small, tensor<1xf64>, tensor<1xf64>) -> !small
  return %na, %nb, %ra1, %rb1, %ca1 : !matrix, !small, tensor<4xf32>, !small, tensor<6xf32>
}
