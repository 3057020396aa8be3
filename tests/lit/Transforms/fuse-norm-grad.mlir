// RUN: %xfc-opt %s --xfc-fuse-norm-grad | FileCheck %s
// RUN: %xfc-opt %s --xfc-fuse-norm-grad=parts=512 | FileCheck %s --check-prefix=MORE

!rows = !xfc.rows<source, 8xf32>
!stats = !xfc.rows<source, 2xf32>
!tensor = tensor<8xf32>

// A layer norm, with the gradient that flows past it.
// CHECK-LABEL: func.func @layer
// CHECK-SAME: (%[[DY:[^:]*]]: {{.*}}, %[[X:[^:]*]]: {{.*}}, %[[W:[^:]*]]: {{.*}}, %[[STATS:[^:]*]]: {{.*}}, %[[PAST:[^:]*]]:
// CHECK-NEXT: %[[DX:.*]], %[[DWS:.*]], %[[DBS:.*]] = xfc.norm_grad_with_parts %[[DY]], %[[X]], %[[W]], %[[STATS]], %[[PAST]] {eps = 1.000000e-05 : f64, unbiased}
// CHECK-SAME: tensor<32x8xf32>, tensor<32x8xf32>
// MORE: xfc.norm_grad_with_parts {{.*}} tensor<512x8xf32>, tensor<512x8xf32>
// CHECK-NEXT: %[[M:.*]] = xfc.multiply %[[DX]], %[[DY]]
// CHECK-NEXT: %[[SUMS:.*]]:2 = xfc.sum_parts %[[DWS]], %[[DBS]]
// CHECK-NEXT: return %[[M]], %[[SUMS]]#0, %[[SUMS]]#1
func.func @layer(%dy: !rows, %x: !rows, %w: !tensor, %stats: !stats, %past: !rows) -> (!rows, !tensor, !tensor) {
  %dx = xfc.norm_grad %dy, %x, %w, %stats, %past {eps = 1.0e-5, unbiased} : (!rows, !rows, !tensor, !stats, !rows) -> !rows
  %m = xfc.multiply %dx, %dy : !rows
  %dw, %db = xfc.norm_weight_grad %dy, %x, %stats : (!rows, !rows, !stats) -> (!tensor, !tensor)
  return %m, %dw, %db : !rows, !tensor, !tensor
}

// An rms norm has no bias.
// CHECK-LABEL: func.func @rms
// CHECK-NEXT: %[[DX:.*]], %[[DWS:.*]] = xfc.norm_grad_with_parts %{{.*}} {eps = 1.000000e-03 : f64, kind = 1 : i32}
// CHECK-NEXT: %[[DW:.*]] = xfc.sum_parts %[[DWS]]
// CHECK-NEXT: return %[[DX]], %[[DW]]
func.func @rms(%dy: !rows, %x: !rows, %w: !tensor, %stats: !stats) -> (!rows, !tensor) {
  %dx = xfc.norm_grad %dy, %x, %w, %stats {eps = 1.0e-3, kind = 1 : i32} : (!rows, !rows, !tensor, !stats) -> !rows
  %dw = xfc.norm_weight_grad %dy, %x, %stats : (!rows, !rows, !stats) -> !tensor
  return %dx, %dw : !rows, !tensor
}
