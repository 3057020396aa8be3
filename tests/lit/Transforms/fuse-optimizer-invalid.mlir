// RUN: %xfc-opt %s --split-input-file --xfc-fuse-optimizer | FileCheck %s

!t = tensor<4xf32>

// The steps have different factors, and one square_sum reads a tensor that is not a gradient of the block.
// CHECK-LABEL: func.func @differ
// CHECK-COUNT-2: xfc.square_sum
// CHECK-COUNT-2: xfc.optimize "adam"
func.func @differ(%p: !t {xfc.name = "p", xfc.role = "parameter"}, %q: !t {xfc.name = "q", xfc.role = "parameter"}, %g: !t {xfc.name = "p", xfc.role = "gradient"},
                  %other: !t, %hyper: tensor<10xf32>, %max: tensor<f32>) -> (!t, !t) {
  %s = xfc.square_sum %g : (!t) -> tensor<1xf64>
  %t = xfc.square_sum %other : (!t) -> tensor<1xf64>
  %factor, %norm = xfc.clip_factor %max, %s, %t : (tensor<f32>, tensor<1xf64>, tensor<1xf64>) -> (tensor<f32>, tensor<f32>)
  %a, %b, %c = xfc.optimize "adam" %hyper, %factor parameters(%p) gradients(%g) states(%g, %g) : (tensor<10xf32>, tensor<f32>, !t, !t, !t, !t) -> (!t, !t, !t)
  %d, %e, %f = xfc.optimize "adam" %hyper, %max parameters(%q) gradients(%g) states(%g, %g) : (tensor<10xf32>, tensor<f32>, !t, !t, !t, !t) -> (!t, !t, !t)
  return %a, %d : !t, !t
}

// -----

!t = tensor<4xf32>

// The second step reads the first one's results.
// CHECK-LABEL: func.func @twice
// CHECK-COUNT-2: xfc.optimize "adam"
func.func @twice(%p: !t {xfc.name = "p", xfc.role = "parameter"}, %g: !t {xfc.name = "p", xfc.role = "gradient"}, %m: !t, %v: !t,
                 %hyper: tensor<10xf32>, %factor: tensor<f32>) -> !t {
  %a, %b, %c = xfc.optimize "adam" %hyper, %factor parameters(%p) gradients(%g) states(%m, %v) : (tensor<10xf32>, tensor<f32>, !t, !t, !t, !t) -> (!t, !t, !t)
  %d, %e, %f = xfc.optimize "adam" %hyper, %factor parameters(%a) gradients(%g) states(%b, %c) : (tensor<10xf32>, tensor<f32>, !t, !t, !t, !t) -> (!t, !t, !t)
  return %d : !t
}

// -----

!t = tensor<4xf32>

// There is only one of each.
// CHECK-LABEL: func.func @one
// CHECK-COUNT-1: xfc.square_sum
// CHECK-COUNT-1: xfc.optimize "adam"
func.func @one(%p: !t {xfc.name = "p", xfc.role = "parameter"}, %g: !t {xfc.name = "p", xfc.role = "gradient"}, %hyper: tensor<10xf32>, %max: tensor<f32>) -> !t {
  %s = xfc.square_sum %g : (!t) -> tensor<1xf64>
  %factor, %norm = xfc.clip_factor %max, %s : (tensor<f32>, tensor<1xf64>) -> (tensor<f32>, tensor<f32>)
  %a, %b, %c = xfc.optimize "adam" %hyper, %factor parameters(%p) gradients(%g) states(%g, %g) : (tensor<10xf32>, tensor<f32>, !t, !t, !t, !t) -> (!t, !t, !t)
  return %a : !t
}

// -----

!t = tensor<4xf32>

// "between" has no gradient, but one pass over the block would update it too.
func.func @forward(%between: !t {xfc.name = "between", xfc.role = "parameter"}) -> !t {
  return %between : !t
}
// CHECK-LABEL: func.func @gap
// CHECK-COUNT-2: xfc.square_sum
// CHECK-COUNT-2: xfc.optimize "adam"
func.func @gap(%p: !t {xfc.name = "p", xfc.role = "parameter"}, %q: !t {xfc.name = "q", xfc.role = "parameter"},
               %g: !t {xfc.name = "p", xfc.role = "gradient"}, %h: !t {xfc.name = "q", xfc.role = "gradient"}, %hyper: tensor<10xf32>, %max: tensor<f32>) -> (!t, !t) {
  %s = xfc.square_sum %g : (!t) -> tensor<1xf64>
  %t = xfc.square_sum %h : (!t) -> tensor<1xf64>
  %factor, %norm = xfc.clip_factor %max, %s, %t : (tensor<f32>, tensor<1xf64>, tensor<1xf64>) -> (tensor<f32>, tensor<f32>)
  %a, %b, %c = xfc.optimize "adam" %hyper, %factor parameters(%p) gradients(%g) states(%g, %g) : (tensor<10xf32>, tensor<f32>, !t, !t, !t, !t) -> (!t, !t, !t)
  %d, %e, %f = xfc.optimize "adam" %hyper, %factor parameters(%q) gradients(%h) states(%h, %h) : (tensor<10xf32>, tensor<f32>, !t, !t, !t, !t) -> (!t, !t, !t)
  return %a, %d : !t, !t
}
