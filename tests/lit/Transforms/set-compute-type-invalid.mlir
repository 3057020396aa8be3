// RUN: %xfc-opt %s --split-input-file --verify-diagnostics --xfc-set-compute-type=type=int8

func.func @gradient(%dy: !xfc.rows<source, 8xf32>, %w: tensor<8x8xf32>) -> !xfc.rows<source, 8xf32> {
  // expected-error @+1 {{is not defined in int8, which has no gradient}}
  %dx = xfc.linear_input_grad %dy, %w : (!xfc.rows<source, 8xf32>, tensor<8x8xf32>) -> !xfc.rows<source, 8xf32>
  return %dx : !xfc.rows<source, 8xf32>
}

// -----

func.func @wide(%x: !xfc.rows<source, 8xf64>, %w: tensor<8x8xf64>) -> !xfc.rows<source, 8xf64> {
  // expected-error @+1 {{in int8 takes f32 operands, found 'f64'}}
  %y = xfc.linear %x, %w : (!xfc.rows<source, 8xf64>, tensor<8x8xf64>) -> !xfc.rows<source, 8xf64>
  return %y : !xfc.rows<source, 8xf64>
}
