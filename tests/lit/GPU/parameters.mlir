// Tables and the optimizer: each element of a gradient has one owner, so there are no atomics.
//
// RUN: %xfc-ptx %s > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_80 sm_90 sm_90a sm_100 %}

// CHECK-NOT:   {{[[:space:]](atom|red)\.}}
// CHECK-LABEL: .visible .entry embedding_512
// CHECK:       st.global.v4.b32
// CHECK-LABEL: .visible .entry embedding_grad_32000x512
// CHECK:       shfl.sync.bfly.b32
// CHECK:       st.shared
// CHECK-NOT:   {{[[:space:]](atom|red)\.}}
func.func @embedding(%ids: !xfc.rows<source, i32>, %t: tensor<32000x512xf32>) -> (!xfc.rows<source, 512xf32>, tensor<32000x512xf32>) {
  %x = xfc.embedding %ids, %t {scale = 22.6} : (!xfc.rows<source, i32>, tensor<32000x512xf32>) -> !xfc.rows<source, 512xf32>
  %g = xfc.embedding_grad %x, %ids {scale = 22.6} : (!xfc.rows<source, 512xf32>, !xfc.rows<source, i32>) -> tensor<32000x512xf32>
  return %x, %g : !xfc.rows<source, 512xf32>, tensor<32000x512xf32>
}
// CHECK-LABEL: .visible .entry positions_grad_100x512
func.func @positions(%x: !xfc.rows<source, 512xf32>) -> tensor<100x512xf32> {
  %g = xfc.positions_grad %x : (!xfc.rows<source, 512xf32>) -> tensor<100x512xf32>
  return %g : tensor<100x512xf32>
}

// Sums of squares are accumulated in f64.
// CHECK-LABEL: .visible .entry square_sum
// CHECK:       fma.rn.f64
// CHECK-LABEL: .visible .entry clip_factor
// CHECK:       add.rn.f64
// CHECK:       sqrt.rn.f64
func.func @norm(%g: tensor<40003xf32>, %max: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %s = xfc.square_sum %g : (tensor<40003xf32>) -> tensor<3xf64>
  %f, %n = xfc.clip_factor %max, %s : (tensor<f32>, tensor<3xf64>) -> (tensor<f32>, tensor<f32>)
  return %f, %n : tensor<f32>, tensor<f32>
}

// Divisions and square roots that affect parameters are correctly rounded.
// CHECK-LABEL: .visible .entry adam
// CHECK:       sqrt.rn.ftz.f32
// CHECK:       div.rn.ftz.f32
// CHECK:       st.global.v4.b32
func.func @adam(%h: tensor<10xf32>, %f: tensor<f32>, %p: tensor<40003xf32>, %g: tensor<40003xf32>, %m: tensor<40003xf32>, %v: tensor<40003xf32>) -> (tensor<40003xf32>, tensor<40003xf32>, tensor<40003xf32>) {
  %0, %1, %2 = xfc.optimize "adam" %h, %f parameters(%p) gradients(%g) states(%m, %v) : (tensor<10xf32>, tensor<f32>, tensor<40003xf32>, tensor<40003xf32>, tensor<40003xf32>, tensor<40003xf32>) -> (tensor<40003xf32>, tensor<40003xf32>, tensor<40003xf32>)
  return %0, %1, %2 : tensor<40003xf32>, tensor<40003xf32>, tensor<40003xf32>
}
