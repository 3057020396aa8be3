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
