// RUN: %xfc-opt %s --split-input-file --verify-diagnostics --xfc-outline-kernels

!rows = !xfc.rows<source, 8xf32>

func.func @call(%x: !rows) -> !rows {
  // expected-error@+1 {{'func.call' op is neither a kernel nor a view}}
  %y = func.call @other(%x) : (!rows) -> !rows
  return %y : !rows
}
func.func @other(%x: !rows) -> !rows {
  return %x : !rows
}

// -----

// expected-error@+1 {{'func.func' op must have a body with exactly one block}}
func.func private @external(!xfc.rows<source, 8xf32>)

// -----

!rows = !xfc.rows<source, 8xbf16>

// expected-error@+1 {{expected numbers of f32 or f64, or indices of i32, found '!xfc.rows<source, 8xbf16>'}}
func.func @bf16(%x: !rows) -> !rows {
  %y = xfc.add %x, %x : !rows
  return %y : !rows
}
