// RUN: %xfc-opt %s --split-input-file --verify-diagnostics --xfc-lay-out-parameters --xfc-outline-kernels --xfc-generate-kernels --xfc-assign-buffers

!cache = !xfc.rows<cache, 8xf32>
!rows = !xfc.rows<target, 8xf32>

// The write is in place, but a later op still reads the old cache.
func.func @read_later(%cache: !cache {xfc.name = "cache.0.k", xfc.role = "state"}, %k: !rows {xfc.name = "k", xfc.role = "input"})
    -> (!cache {xfc.alias = 0 : i64}, !cache {xfc.name = "old"}) {
  // expected-error@+1 {{'plan.launch' op result 0 overwrites 'cache.0.k', which is still live}}
  %new = xfc.cache_write %cache, %k : (!cache, !rows) -> !cache
  // expected-note@+1 {{by plan.launch}}
  %old = xfc.add %cache, %cache : !cache
  return %new, %old : !cache, !cache
}

// -----

!cache = !xfc.rows<cache, 8xf32>
!rows = !xfc.rows<target, 8xf32>

// Both new caches would have to be written to the same argument.
func.func @twice(%cache: !cache {xfc.name = "cache.0.k", xfc.role = "state"}, %k: !rows {xfc.name = "k", xfc.role = "input"})
    -> (!cache {xfc.alias = 0 : i64}, !cache {xfc.name = "other"}) {
  // expected-error@+1 {{'plan.launch' op result 0 overwrites 'cache.0.k', which is still live}}
  %new = xfc.cache_write %cache, %k : (!cache, !rows) -> !cache
  // expected-note@+1 {{by plan.launch}}
  %other = xfc.cache_write %cache, %k : (!cache, !rows) -> !cache
  return %new, %other : !cache, !cache
}

// -----

!w = tensor<4xf32>

xfc.parameter @p : !w init zero
// The sum is written in place of the gradient, which is still read afterwards.
func.func @gradient(%g: !w {xfc.name = "p", xfc.role = "gradient"}, %s: !w {xfc.name = "sum.p", xfc.role = "state"})
    -> (!w {xfc.alias = 0 : i64}, !w {xfc.name = "later"}) {
  // expected-error@+1 {{'plan.launch' op result 0 overwrites 'p', which is still live}}
  %sum = xfc.add %g, %s : !w
  // expected-note@+1 {{by plan.launch}}
  %later = xfc.add %s, %g : !w
  return %sum, %later : !w, !w
}

// -----

!rows = !xfc.rows<target, 8xf32>

// A product reads a whole row for each of its results, so it cannot be computed in place.
func.func @operand(%x: !rows {xfc.name = "x", xfc.role = "state"}, %w: tensor<8x8xf32> {xfc.name = "w", xfc.role = "scalar"}) -> (!rows {xfc.alias = 0 : i64}) {
  // expected-error@+2 {{'plan.launch' op result 0 overwrites 'x', which is still live}}
  // expected-note@+1 {{by plan.launch}}
  %y = xfc.linear %x, %w : (!rows, tensor<8x8xf32>) -> !rows
  return %y : !rows
}

// -----

!rows = !xfc.rows<target, 8xf32>

func.func @two_places(%x: !rows {xfc.name = "x", xfc.role = "state"}, %y: !rows {xfc.name = "y", xfc.role = "state"})
    -> (!rows {xfc.alias = 0 : i64}, !rows {xfc.alias = 1 : i64}) {
  // expected-error@+1 {{this value would have to be written to two places}}
  %s = xfc.add %x, %y : !rows
  return %s, %s : !rows, !rows
}

// -----

!half = !xfc.rows<target, 4xf32>

// An argument already has a place, so it cannot become part of the whole without a copy.
func.func @join(%a: !half {xfc.name = "a", xfc.role = "input"}, %b: !half {xfc.name = "b", xfc.role = "input"}) -> !xfc.rows<target, 8xf32> {
  // expected-error@+1 {{'xfc.join' op part 1 is not stored inside the whole}}
  %j = xfc.join %a, %b : (!half, !half) -> !xfc.rows<target, 8xf32>
  return %j : !xfc.rows<target, 8xf32>
}

// -----

// expected-error@+1 {{'plan.program' op the model has no parameter 'w'}}
func.func @unknown(%w: tensor<4xf32> {xfc.name = "w", xfc.role = "parameter"}) -> tensor<4xf32> {
  return %w : tensor<4xf32>
}

// -----

!rows = !xfc.rows<target, 8xf32>
!w = tensor<8x8xf32>

xfc.parameter @w : !w init zero
xfc.parameter @v : !w init zero
// The first half of the second product is the gradient of w, so that its second half lies where the gradient of v is.
func.func @half(%dy: !rows {xfc.name = "dy", xfc.role = "input"}, %wide: !xfc.rows<target, 16xf32> {xfc.name = "wide", xfc.role = "input"})
    -> (!w {xfc.name = "grad.v"}, !w {xfc.name = "grad.w"}) {
  %v = xfc.linear_weight_grad %dy, %dy : (!rows, !rows) -> !w
  // expected-error@+1 {{'plan.launch' op result 0 overwrites a value, which is still live}}
  %both = xfc.linear_weight_grad %wide, %dy : (!xfc.rows<target, 16xf32>, !rows) -> tensor<16x8xf32>
  %w = xfc.slice %both {offset = 0} : (tensor<16x8xf32>) -> !w
  // expected-note@+1 {{by plan.return}}
  return %v, %w : !w, !w
}

// -----

!rows = !xfc.rows<target, 8xf32>
!w = tensor<8x8xf32>

xfc.parameter @w : !w init zero
xfc.parameter @v : !w init zero
// The same, but nothing returns the gradient of v, which only an op reads too late.
func.func @later(%dy: !rows {xfc.name = "dy", xfc.role = "input"}, %wide: !xfc.rows<target, 16xf32> {xfc.name = "wide", xfc.role = "input"},
                 %v: !w {xfc.name = "v", xfc.role = "gradient"}) -> (!w {xfc.name = "grad.w"}, !w {xfc.name = "twice"}) {
  // expected-error@+1 {{'plan.launch' op result 0 overwrites 'v', which is still live}}
  %both = xfc.linear_weight_grad %wide, %dy : (!xfc.rows<target, 16xf32>, !rows) -> tensor<16x8xf32>
  %w = xfc.slice %both {offset = 0} : (tensor<16x8xf32>) -> !w
  // expected-note@+1 {{by plan.launch}}
  %twice = xfc.add %v, %v : !w
  return %w, %twice : !w, !w
}
