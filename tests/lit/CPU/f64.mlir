// Kernels of f64 have half as many lanes. They call the C library for erf and tanh, which f32 approximates.
//
// RUN: %xfc-opt %s --xfc-kernels="target=x86-64-v3 dtype=f64" --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,V3
// RUN: %xfc-opt %s --xfc-kernels="target=x86-64-v4 dtype=f64" --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,V4

!rows = !xfc.rows<source, 20xf64>

// CHECK-LABEL: func.func @gelu_20(
// V3:          scf.for {{.*}} = %c0_i64 to %c20_i64 step %c4_i64
// V3-COUNT-4:  func.call @erf(
// V4:          scf.for {{.*}} = %c0_i64 to %c16_i64 step %c8_i64
// V4-COUNT-8:  func.call @erf(
// CHECK:       func.func private @erf(f64) -> f64
func.func @gelu(%x: !rows) -> !rows {
  %r = xfc.activation gelu %x : !rows
  return %r : !rows
}

// CHECK-LABEL: func.func @tanh_20(
// V3-COUNT-4:  math.tanh {{.*}} : f64
// V4-COUNT-8:  math.tanh {{.*}} : f64
func.func @tanh(%x: !rows) -> !rows {
  %r = xfc.activation tanh %x : !rows
  return %r : !rows
}

// The exponential is a longer polynomial, 13 terms of a series, and calls no library.
// CHECK-LABEL: func.func @silu_20(
// CHECK-NOT:   {{call|math\.}}
// CHECK:       scf.for {{.*}} step %c{{4|8}}_i64
// V3-COUNT-16: vector.fma {{.*}} : vector<4xf64>
// V4-COUNT-16: vector.fma {{.*}} : vector<8xf64>
// CHECK-NOT:   {{vector.fma|call|math\.}}
// CHECK:       arith.shli
func.func @silu(%x: !rows) -> !rows {
  %r = xfc.activation silu %x : !rows
  return %r : !rows
}

// Sums have eight lanes, 64 bytes, as many as AVX-512 has.
// CHECK-LABEL: func.func @norm_20(
// CHECK:       arith.addf {{.*}} : vector<8xf64>
// CHECK:       math.sqrt {{.*}} : f64
func.func @norm(%x: !rows, %w: tensor<20xf64>) -> !rows {
  %y, %s = xfc.norm %x, %w, %w {eps = 1.0e-5} : (!rows, tensor<20xf64>, tensor<20xf64>) -> (!rows, !xfc.rows<source, 2xf64>)
  return %y : !rows
}

// CHECK-LABEL: func.func @linear_64x20(
// V3:          func.call @product_6x8_rows_fetching_1_fetching_rows_2(
// V3:          func.call @product_1x32_rows(
// V4:          func.call @product_6x32_rows_fetching_2_fetching_rows_2(
// V4:          func.call @product_1x64_rows(
// V3-LABEL:    func.func @product_6x8_rows(
// V4-LABEL:    func.func @product_6x32_rows(
// V3-COUNT-48: vector.fma {{.*}} : vector<4xf64>
// V4-COUNT-96: vector.fma {{.*}} : vector<8xf64>
// CHECK-NOT:   vector.fma
// CHECK:       scf.yield
func.func @linear(%x: !rows, %w: tensor<64x20xf64>) -> !xfc.rows<source, 64xf64> {
  %0 = xfc.linear %x, %w : (!rows, tensor<64x20xf64>) -> !xfc.rows<source, 64xf64>
  return %0 : !xfc.rows<source, 64xf64>
}
