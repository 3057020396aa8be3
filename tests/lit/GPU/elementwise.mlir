// Elementwise kernels read and write rows 16 bytes at a time if all operands allow it, otherwise element by element; thread blocks
// without rows exit.
//
// RUN: %xfc-ptx %s > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_80 sm_90 sm_90a sm_100 %}

// CHECK-LABEL: .visible .entry add_512(
// CHECK-NEXT:  .param .u64 add_512_param_0
// CHECK:       .reqntid 256
// CHECK:       mov.u32 {{.*}} %ctaid.x
// CHECK:       ld.global.nc.b64
// CHECK-DAG:   ld.global.v4.b32
// CHECK-DAG:   add.rn.ftz.f32
// CHECK-DAG:   st.global.v4.b32
func.func @add(%x: !xfc.rows<source, 512xf32>, %y: !xfc.rows<source, 512xf32>) -> !xfc.rows<source, 512xf32> {
  %r = xfc.add %x, %y : !xfc.rows<source, 512xf32>
  return %r : !xfc.rows<source, 512xf32>
}

// The width is not a multiple of 4.
// CHECK-LABEL: .visible .entry multiply_21
// CHECK-NOT:   .v4
// CHECK:       mul.rn.ftz.f32
func.func @multiply(%x: !xfc.rows<target, 21xf32>, %y: !xfc.rows<target, 21xf32>) -> !xfc.rows<target, 21xf32> {
  %r = xfc.multiply %x, %y : !xfc.rows<target, 21xf32>
  return %r : !xfc.rows<target, 21xf32>
}

// CHECK-LABEL: .visible .entry gelu_64
// CHECK:       ex2.approx.ftz.f32
func.func @gelu(%x: !xfc.rows<source, 64xf32>) -> !xfc.rows<source, 64xf32> {
  %r = xfc.activation gelu %x : !xfc.rows<source, 64xf32>
  return %r : !xfc.rows<source, 64xf32>
}

func.func @gradients(%dy: !xfc.rows<source, 64xf32>, %x: !xfc.rows<source, 64xf32>) -> (!xfc.rows<source, 64xf32>, !xfc.rows<source, 64xf32>, !xfc.rows<source, 64xf32>, !xfc.rows<source, 64xf32>) {
  %0 = xfc.activation_grad gelu %dy, %x : !xfc.rows<source, 64xf32>
  %1 = xfc.activation_grad relu %dy, %x : !xfc.rows<source, 64xf32>
  %2 = xfc.activation_grad silu %dy, %x : !xfc.rows<source, 64xf32>
  %3 = xfc.activation_grad tanh %dy, %x : !xfc.rows<source, 64xf32>
  return %0, %1, %2, %3 : !xfc.rows<source, 64xf32>, !xfc.rows<source, 64xf32>, !xfc.rows<source, 64xf32>, !xfc.rows<source, 64xf32>
}

// Seven rounds of Philox with 32-bit products; each counter yields four words, of two numbers each.
// CHECK-LABEL: .visible .entry dropout_512
// CHECK:       ld.global.nc.b32
// CHECK-DAG:   mul.{{hi.u32|wide.u32}} {{.*}}, -766435501
// CHECK-DAG:   setp.{{ge|gt|lt|le|hi|hs|lo|ls}}.u32
func.func @dropout(%x: !xfc.rows<source, 512xf32>) -> !xfc.rows<source, 512xf32> {
  %r = xfc.dropout %x {rate = 0.1, id = 7 : i64} : !xfc.rows<source, 512xf32>
  return %r : !xfc.rows<source, 512xf32>
}
func.func @dropout_pairs(%x: !xfc.pairs<target, source, padding, 3xf32>) -> (!xfc.pairs<target, source, padding, 3xf32>, !xfc.pairs<target, source, padding, 3xf32>, !xfc.pairs<target, source, padding, 3xf32>) {
  %0 = xfc.dropout %x {rate = 0.1, id = 7 : i64} : !xfc.pairs<target, source, padding, 3xf32>
  %1 = xfc.mask %0 : !xfc.pairs<target, source, padding, 3xf32>
  %2 = xfc.scale %1 {factor = 0.5} : !xfc.pairs<target, source, padding, 3xf32>
  return %0, %1, %2 : !xfc.pairs<target, source, padding, 3xf32>, !xfc.pairs<target, source, padding, 3xf32>, !xfc.pairs<target, source, padding, 3xf32>
}

// CHECK-LABEL: .visible .entry cache_write
// CHECK:       st.global.v4.b32
func.func @cache(%c: !xfc.rows<cache, 512xf32>, %x: !xfc.rows<target, 512xf32>) -> !xfc.rows<cache, 512xf32> {
  %r = xfc.cache_write %c, %x : (!xfc.rows<cache, 512xf32>, !xfc.rows<target, 512xf32>) -> !xfc.rows<cache, 512xf32>
  return %r : !xfc.rows<cache, 512xf32>
}
func.func @positions(%x: !xfc.rows<source, 512xf32>, %t: tensor<100x512xf32>) -> (!xfc.rows<source, 512xf32>, !xfc.rows<source, 9xf32>) {
  %0 = xfc.add_positions %x, %t : (!xfc.rows<source, 512xf32>, tensor<100x512xf32>) -> !xfc.rows<source, 512xf32>
  %1 = xfc.zeros : () -> !xfc.rows<source, 9xf32>
  return %0, %1 : !xfc.rows<source, 512xf32>, !xfc.rows<source, 9xf32>
}
