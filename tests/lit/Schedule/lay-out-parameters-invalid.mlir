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

// -----

// Nothing else says which numbers the rows hold.
// expected-error@+1 {{expected numbers of f32 or f64, or indices of i32, found '!xfc.rows<source, 8xbf16>'}}
func.func @rows(%x: !xfc.rows<source, 8xbf16> {xfc.name = "x", xfc.role = "input"}) {
  return
}

// -----

// expected-error@+1 {{expected numbers of f32 or f64, or indices of i32, found 'tensor<64xf16>'}}
xfc.parameter @p : tensor<64xf16> init zero

// -----

// A flag would take up no bytes.
func.func @flags(%p: tensor<4xf32>) {
  // expected-error@+1 {{expected numbers of f32 or f64, or indices of i32, found 'tensor<4xi1>'}}
  %f = builtin.unrealized_conversion_cast %p : tensor<4xf32> to tensor<4xi1>
  return
}

// -----

func.func @two_types(%x: !xfc.rows<source, 8xf64>) {
  // expected-error@+1 {{computes with '!xfc.rows<source, 8xf32>' in a module of 'f64'}}
  %y = builtin.unrealized_conversion_cast %x : !xfc.rows<source, 8xf64> to !xfc.rows<source, 8xf32>
  return
}

// -----

// expected-error@+1 {{values of programs must be rows, pairs or static tensors, found 'tensor<?xf32>'}}
func.func @extent(%x: tensor<?xf32>) {
  return
}

// -----

// expected-error@+1 {{expected between 1 and 1099511627776 elements, found '!xfc.rows<source, 3037000500x3037000500xf32>'}}
func.func @wide(%x: !xfc.rows<source, 3037000500x3037000500xf32>) {
  return
}
