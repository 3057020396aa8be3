// RUN: %xfc-opt %s --split-input-file --xfc-fuse-packing | FileCheck %s

!w = tensor<4x4xf32>
!x = !xfc.rows<target, 4xf32>

// Each step updates only one part of the weight.
func.func @loss_and_gradients(%x: !x, %q: !w {xfc.name = "q", xfc.role = "parameter"}, %k: !w {xfc.name = "k", xfc.role = "parameter"}) -> !xfc.rows<target, 8xf32> {
  %qk = xfc.concat %q, %k : (!w, !w) -> tensor<8x4xf32>
  %y = xfc.linear %x, %qk in bf16 : (!x, tensor<8x4xf32>) -> !xfc.rows<target, 8xf32>
  return %y : !xfc.rows<target, 8xf32>
}

// CHECK-LABEL: func.func @update
// CHECK-NOT: packs
func.func @update(%q: !w {xfc.name = "q", xfc.role = "parameter"}, %k: !w {xfc.name = "k", xfc.role = "parameter"}, %g: !w, %hyper: tensor<10xf32>, %factor: tensor<f32>) -> (!w, !w) {
  %a, %a1, %a2 = xfc.optimize "adam" %hyper, %factor parameters(%q) gradients(%g) states(%g, %g) : (tensor<10xf32>, tensor<f32>, !w, !w, !w, !w) -> (!w, !w, !w)
  %c, %c1, %c2 = xfc.optimize "adam" %hyper, %factor parameters(%k) gradients(%g) states(%g, %g) : (tensor<10xf32>, tensor<f32>, !w, !w, !w, !w) -> (!w, !w, !w)
  return %a, %c : !w, !w
}

// -----

!w = tensor<4x4xf32>
!x = !xfc.rows<target, 4xf32>

// The training step does not read the weight; another program does.
func.func @forward(%x: !x, %w: !w {xfc.name = "w", xfc.role = "parameter"}) -> !x {
  %y = xfc.linear %x, %w in bf16 : (!x, !w) -> !x
  return %y : !x
}

// CHECK-LABEL: func.func @update
// CHECK-NOT: packs
func.func @update(%w: !w {xfc.name = "w", xfc.role = "parameter"}, %g: !w, %hyper: tensor<10xf32>, %factor: tensor<f32>) -> !w {
  %a, %a1, %a2 = xfc.optimize "adam" %hyper, %factor parameters(%w) gradients(%g) states(%g, %g) : (tensor<10xf32>, tensor<f32>, !w, !w, !w, !w) -> (!w, !w, !w)
  return %a : !w
}

// -----

!w = tensor<4x4xf32>
!x = !xfc.rows<target, 4xf32>

// Only one of the weights is rounded to bf16.
func.func @loss_and_gradients(%x: !x, %w: !w {xfc.name = "w", xfc.role = "parameter"}, %u: !w {xfc.name = "u", xfc.role = "parameter"}) -> !x {
  %y = xfc.linear %x, %w : (!x, !w) -> !x
  %z = xfc.linear %y, %u in bf16 : (!x, !w) -> !x
  return %z : !x
}

// CHECK-LABEL: func.func @update
// CHECK-NOT: packs
func.func @update(%w: !w {xfc.name = "w", xfc.role = "parameter"}, %g: !w, %hyper: tensor<10xf32>, %factor: tensor<f32>) -> !w {
  %a, %a1, %a2 = xfc.optimize "adam" %hyper, %factor parameters(%w) gradients(%g) states(%g, %g) : (tensor<10xf32>, tensor<f32>, !w, !w, !w, !w) -> (!w, !w, !w)
  return %a : !w
}
