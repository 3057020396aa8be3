// RUN: %xfc-opt %s --xfc-fuse-candidates | FileCheck %s
// RUN: %xfc-opt %s --pass-pipeline='builtin.module(func.func(xfc-fuse-candidates{unit=128 enough=3}))' | FileCheck %s --check-prefix=PARTS

!rows = !xfc.rows<target, 8xf32>
!ids = !xfc.rows<target, i32>
!row = !xfc.rows<target, f32>
!tokens = !xfc.rows<target, 3xi32>
!best = !xfc.rows<target, 3xf32>

// A slab has 512 columns, so 1000 columns are two slabs. At most three slabs of a multiple of 128 columns are of 384.
// PARTS-LABEL: func.func @projection
// PARTS-NEXT: xfc.linear_candidates {{.*}} slab = 384 : i64}
// CHECK-LABEL: func.func @projection
// CHECK-SAME: (%[[X:[^:]*]]: {{[^%]*}}%[[W:[^:]*]]: {{[^%]*}}%[[B:[^:]*]]: {{[^%]*}}%[[WANTED:[^:]*]]:
// CHECK-NEXT: %[[T:.*]], %[[L:.*]], %[[LSE:.*]], %[[Z:.*]] = xfc.linear_candidates %[[X]], %[[W]], %[[B]], %[[WANTED]] {excluded = array<i64: 0, 2, 3>, slab = 512 : i64}
// CHECK-SAME: -> (!xfc.rows<target, 6xi32>, !xfc.rows<target, 6xf32>, !xfc.rows<target, 2xf32>, !xfc.rows<target, f32>)
// CHECK-NEXT: %[[TOKENS:.*]], %[[BEST:.*]], %[[GIVEN:.*]] = xfc.merge_candidates %[[T]], %[[L]], %[[LSE]], %[[Z]]
// CHECK-NEXT: return %[[TOKENS]], %[[BEST]], %[[GIVEN]]
func.func @projection(%x: !rows, %w: tensor<1000x8xf32>, %b: tensor<1000xf32>, %wanted: !ids) -> (!tokens, !best, !row) {
  %z = xfc.linear %x, %w bias %b : (!rows, tensor<1000x8xf32>, tensor<1000xf32>) -> !xfc.rows<target, 1000xf32>
  %p = xfc.log_softmax %z : !xfc.rows<target, 1000xf32>
  %tokens, %best, %given = xfc.candidates %p, %wanted {excluded = array<i64: 0, 2, 3>} : (!xfc.rows<target, 1000xf32>, !ids) -> (!tokens, !best, !row)
  return %tokens, %best, %given : !tokens, !best, !row
}

// A small vocabulary is split into two slabs too, or is one unit; there is no bias.
// PARTS-LABEL: func.func @small
// PARTS-NEXT: xfc.linear_candidates {{.*}} slab = 128 : i64}
// CHECK-LABEL: func.func @small
// CHECK-NEXT: xfc.linear_candidates %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} {excluded = array<i64: 0>, slab = 64 : i64} : {{.*}} -> (!xfc.rows<target, 6xi32>, !xfc.rows<target, 6xf32>, !xfc.rows<target, 2xf32>
func.func @small(%x: !rows, %w: tensor<100x8xf32>, %wanted: !ids) -> !tokens {
  %z = xfc.linear %x, %w : (!rows, tensor<100x8xf32>) -> !xfc.rows<target, 100xf32>
  %p = xfc.log_softmax %z : !xfc.rows<target, 100xf32>
  %tokens, %best, %given = xfc.candidates %p, %wanted {excluded = array<i64: 0>} : (!xfc.rows<target, 100xf32>, !ids) -> (!tokens, !best, !row)
  return %tokens : !tokens
}

// Slabs are renormalized if the candidates are.
// CHECK-LABEL: func.func @renormalized
// CHECK-NEXT: xfc.linear_candidates %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} {excluded = array<i64: 0>, renormalize, slab = 64 : i64}
func.func @renormalized(%x: !rows, %w: tensor<100x8xf32>, %wanted: !ids) -> !tokens {
  %z = xfc.linear %x, %w : (!rows, tensor<100x8xf32>) -> !xfc.rows<target, 100xf32>
  %p = xfc.log_softmax %z : !xfc.rows<target, 100xf32>
  %tokens, %best, %given = xfc.candidates %p, %wanted {excluded = array<i64: 0>, renormalize} : (!xfc.rows<target, 100xf32>, !ids) -> (!tokens, !best, !row)
  return %tokens : !tokens
}

// The compute type of the projection is kept.
// CHECK-LABEL: func.func @rounded
// CHECK-NEXT: xfc.linear_candidates %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} in bf16 {excluded
func.func @rounded(%x: !rows, %w: tensor<100x8xf32>, %wanted: !ids) -> !tokens {
  %z = xfc.linear %x, %w in bf16 : (!rows, tensor<100x8xf32>) -> !xfc.rows<target, 100xf32>
  %p = xfc.log_softmax %z : !xfc.rows<target, 100xf32>
  %tokens, %best, %given = xfc.candidates %p, %wanted {excluded = array<i64: 0>} : (!xfc.rows<target, 100xf32>, !ids) -> (!tokens, !best, !row)
  return %tokens : !tokens
}

// No slab is wider than 512 columns.
// CHECK-LABEL: func.func @wide
// CHECK-NEXT: xfc.linear_candidates {{.*}} slab = 512 : i64}
// PARTS-LABEL: func.func @wide
// PARTS-NEXT: xfc.linear_candidates {{.*}} slab = 512 : i64}
func.func @wide(%x: !rows, %w: tensor<2000x8xf32>, %wanted: !ids) -> !tokens {
  %z = xfc.linear %x, %w : (!rows, tensor<2000x8xf32>) -> !xfc.rows<target, 2000xf32>
  %p = xfc.log_softmax %z : !xfc.rows<target, 2000xf32>
  %tokens, %best, %given = xfc.candidates %p, %wanted {excluded = array<i64: 0>} : (!xfc.rows<target, 2000xf32>, !ids) -> (!tokens, !best, !row)
  return %tokens : !tokens
}
