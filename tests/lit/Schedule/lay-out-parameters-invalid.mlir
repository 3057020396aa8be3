// RUN: %xfc-opt %s --split-input-file --verify-diagnostics --xfc-lay-out-parameters

!t = tensor<4x4xf32>

xfc.parameter @a : !t init zero
xfc.parameter @b : !t init zero
xfc.parameter @c : !t init zero
func.func @two_orders(%a: !t {xfc.name = "a", xfc.role = "parameter"}, %b: !t {xfc.name = "b", xfc.role = "parameter"}, %c: !t {xfc.name = "c", xfc.role = "parameter"}) {
  %ab = xfc.concat %a, %b : (!t, !t) -> tensor<8x4xf32>
  // expected-error@+1 {{'a' is the first member of two different groups of parameters}}
  %ac = xfc.concat %a, %c : (!t, !t) -> tensor<8x4xf32>
  return
}

// -----

!t = tensor<4x4xf32>

xfc.parameter @a : !t init zero
xfc.parameter @b : !t init zero
xfc.parameter @c : !t init zero
func.func @two_groups(%a: !t {xfc.name = "a", xfc.role = "parameter"}, %b: !t {xfc.name = "b", xfc.role = "parameter"}, %c: !t {xfc.name = "c", xfc.role = "parameter"}) {
  %ab = xfc.concat %a, %b : (!t, !t) -> tensor<8x4xf32>
  // expected-error@+1 {{'b' belongs to two groups of parameters}}
  %cb = xfc.concat %c, %b : (!t, !t) -> tensor<8x4xf32>
  return
}

// -----

!t = tensor<4x4xf32>

xfc.parameter @a : !t init zero
func.func @no_parameter(%a: !t {xfc.name = "a", xfc.role = "parameter"}, %x: !t {xfc.name = "x", xfc.role = "scalar"}) {
  // expected-error@+1 {{only parameters can be concatenated}}
  %ax = xfc.concat %a, %x : (!t, !t) -> tensor<8x4xf32>
  return
}

// -----

!t = tensor<4x4xf32>

// expected-error@+1 {{concatenated parameters could not be laid out: only 0 of 2 were placed}}
module {
  xfc.parameter @a : !t init zero
  xfc.parameter @b : !t init zero
  func.func @circle(%a: !t {xfc.name = "a", xfc.role = "parameter"}, %b: !t {xfc.name = "b", xfc.role = "parameter"}) {
    %ab = xfc.concat %a, %b : (!t, !t) -> tensor<8x4xf32>
    %ba = xfc.concat %b, %a : (!t, !t) -> tensor<8x4xf32>
    return
  }
}
