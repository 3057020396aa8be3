// Ops that change nothing fold away.
// RUN: %xfc-opt %s --canonicalize | FileCheck %s

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 3xf32>
!pairs = !xfc.pairs<source, source, 2xf32>

// CHECK-LABEL: func.func @dropout_of_rate_0(
// CHECK-SAME: %[[X:.*]]: !xfc.rows
func.func @dropout_of_rate_0(%x: !x) -> !x {
  // CHECK-NEXT: return %[[X]]
  %0 = xfc.dropout %x {rate = 0.0, id = 1 : i64} : !x
  return %0 : !x
}

// CHECK-LABEL: func.func @scale_by_1(
// CHECK-SAME: %[[X:.*]]: !xfc.pairs
func.func @scale_by_1(%x: !pairs) -> !pairs {
  // CHECK-NEXT: return %[[X]]
  %0 = xfc.scale %x {factor = 1.0} : !pairs
  return %0 : !pairs
}

// CHECK-LABEL: func.func @scale_of_rows_by_1(
// CHECK-SAME: %[[X:.*]]: !xfc.rows
func.func @scale_of_rows_by_1(%x: !x) -> !x {
  // CHECK-NEXT: return %[[X]]
  %0 = xfc.scale %x {factor = 1.0} : !x
  return %0 : !x
}

// CHECK-LABEL: func.func @single_parts(
// CHECK-SAME: %[[X:.*]]: !xfc.rows<source, 6xf32>, %[[W:.*]]: tensor<4x6xf32>
func.func @single_parts(%x: !x, %w: tensor<4x6xf32>) -> (!x, tensor<4x6xf32>) {
  // CHECK-NEXT: return %[[X]], %[[W]]
  %0 = xfc.split %x : (!x) -> !x
  %1 = xfc.join %0 : (!x) -> !x
  %2 = xfc.concat %w : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %3 = xfc.slice %2 {offset = 0 : i64} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return %1, %3 : !x, tensor<4x6xf32>
}

// CHECK-LABEL: func.func @split_of_join(
// CHECK-SAME: %[[A:.*]]: !xfc.rows<source, 3xf32>, %[[B:.*]]: !xfc.rows<source, 3xf32>
func.func @split_of_join(%a: !y, %b: !y) -> (!y, !y) {
  // CHECK-NEXT: return %[[A]], %[[B]]
  %0 = xfc.join %a, %b : (!y, !y) -> !x
  %1:2 = xfc.split %0 : (!x) -> (!y, !y)
  return %1#0, %1#1 : !y, !y
}

// CHECK-LABEL: func.func @join_of_split(
// CHECK-SAME: %[[X:.*]]: !xfc.rows<source, 6xf32>
func.func @join_of_split(%x: !x) -> (!x, !x) {
  // CHECK: %[[P:.*]]:2 = xfc.split
  %0:2 = xfc.split %x : (!x) -> (!y, !y)
  %1 = xfc.join %0#0, %0#1 : (!y, !y) -> !x
  // CHECK: %[[SWAPPED:.*]] = xfc.join %[[P]]#1, %[[P]]#0
  %2 = xfc.join %0#1, %0#0 : (!y, !y) -> !x
  // CHECK: return %[[X]], %[[SWAPPED]]
  return %1, %2 : !x, !x
}

// CHECK-LABEL: func.func @slice_of_concat(
// CHECK-SAME: %[[A:.*]]: tensor<4x6xf32>, %[[B:.*]]: tensor<2x6xf32>
func.func @slice_of_concat(%a: tensor<4x6xf32>, %b: tensor<2x6xf32>) -> (tensor<4x6xf32>, tensor<2x6xf32>, tensor<2x6xf32>) {
  // CHECK: %[[C:.*]] = xfc.concat
  %0 = xfc.concat %a, %b : (tensor<4x6xf32>, tensor<2x6xf32>) -> tensor<6x6xf32>
  %1 = xfc.slice %0 {offset = 0 : i64} : (tensor<6x6xf32>) -> tensor<4x6xf32>
  %2 = xfc.slice %0 {offset = 4 : i64} : (tensor<6x6xf32>) -> tensor<2x6xf32>
  // CHECK: %[[ACROSS:.*]] = xfc.slice %[[C]] {offset = 3 : i64}
  %3 = xfc.slice %0 {offset = 3 : i64} : (tensor<6x6xf32>) -> tensor<2x6xf32>
  // CHECK: return %[[A]], %[[B]], %[[ACROSS]]
  return %1, %2, %3 : tensor<4x6xf32>, tensor<2x6xf32>, tensor<2x6xf32>
}

// A nonzero dropout rate and a factor other than 1 are kept.
// CHECK-LABEL: func.func @kept(
func.func @kept(%x: !x, %p: !pairs) -> (!x, !pairs) {
  // CHECK-NEXT: xfc.dropout
  // CHECK-NEXT: xfc.scale
  %0 = xfc.dropout %x {rate = 0.1, id = 1 : i64} : !x
  %1 = xfc.scale %p {factor = 0.5} : !pairs
  return %0, %1 : !x, !pairs
}
