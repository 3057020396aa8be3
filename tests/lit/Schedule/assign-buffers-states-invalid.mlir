// RUN: %xfc-opt %s --split-input-file --verify-diagnostics --xfc-assign-buffers

!w = tensor<4xf32>

// The layout was made for a module whose optimizer keeps one moment.
xfc.parameter @p : !w init zero
plan.parameters 16 x f32 states ["moment1"] {
  plan.parameter @p at 0
}
// expected-error@+1 {{'plan.program' op has the moment2 'p', but plan.parameters has no such state}}
plan.program @update(%p: !w {xfc.name = "p", xfc.role = "parameter"}, %m: !w {xfc.name = "p", xfc.role = "moment1"},
                     %v: !w {xfc.name = "p", xfc.role = "moment2"}) {
  plan.return
}

// -----

!w = tensor<4x3xf32>

// A state's layout lacks the parameter.
xfc.parameter @p : !w init zero
plan.parameters 16 x f32 states ["row_mean"] {
  plan.parameter @p at 0
  plan.state "row_mean" 16 {
  }
}
// expected-error@+1 {{'plan.program' op plan.state "row_mean" has no parameter 'p'}}
plan.program @update(%p: !w {xfc.name = "p", xfc.role = "parameter"}, %r: tensor<4xf32> {xfc.name = "p", xfc.role = "row_mean"}) {
  plan.return
}

// -----

// The layout was made for another module.
xfc.parameter @p : tensor<4xf64> init zero
plan.parameters 16 x f32 {
  plan.parameter @p at 0
}
// expected-error@+1 {{'plan.program' op has the parameter 'p' as 'tensor<4xf64>', but plan.parameters has numbers of 'f32'}}
plan.program @forward(%p: tensor<4xf64> {xfc.name = "p", xfc.role = "parameter"}) {
  plan.return
}

// -----

plan.parameters 0 x f32 {
}
// expected-error@+1 {{expected numbers of f32 or f64, or indices of i32, found '!xfc.rows<source, 8xbf16>'}}
plan.program @forward(%x: !xfc.rows<source, 8xbf16> {xfc.name = "x", xfc.role = "input"}) {
  plan.return
}
