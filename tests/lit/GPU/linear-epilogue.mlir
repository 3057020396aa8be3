// Epilogues work on the accumulators in registers and do not spill.
//
// RUN: %xfc-ptx %s > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_80 sm_90 sm_90a sm_100 %}

// For dropout, a thread has 16 of the 64 columns of a warp, in 8 rows, and two Philox counters for each row, all of whose numbers it uses: at most
// 7 rounds of two wide products, of which one is by this number. (Of the first round's, those of the position are shared.)
// CHECK-LABEL: .visible .entry linear_2048x512
// CHECK-NOT:   .local
// CHECK:       mma.sync
// CHECK-COUNT-104: -766435501
// CHECK-NOT:   -766435501
// CHECK:       st.global.v2.b32
func.func @relu_dropout(%x: !xfc.rows<source, 512xf32>, %w: tensor<2048x512xf32>, %b: tensor<2048xf32>) -> !xfc.rows<source, 2048xf32> {
  %0 = xfc.linear %x, %w bias %b in bf16 {
  ^bb0(%y: !xfc.rows<source, 2048xf32>):
    %p = xfc.activation relu %y : <source, 2048xf32>
    %d = xfc.dropout %p {rate = 0.1, id = 9 : i64} : !xfc.rows<source, 2048xf32>
    xfc.yield %d : !xfc.rows<source, 2048xf32>
  } : (!xfc.rows<source, 512xf32>, tensor<2048x512xf32>, tensor<2048xf32>) -> !xfc.rows<source, 2048xf32>
  return %0 : !xfc.rows<source, 2048xf32>
}

// CHECK-LABEL: .visible .entry linear_512x2048
// CHECK-NOT:   .local
// CHECK:       mma.sync
// CHECK:       ld.global.v2.b32
// CHECK:       st.global.v2.b32
func.func @dropout_residual(%x: !xfc.rows<source, 2048xf32>, %w: tensor<512x2048xf32>, %b: tensor<512xf32>, %r: !xfc.rows<source, 512xf32>) -> !xfc.rows<source, 512xf32> {
  %0 = xfc.linear %x, %w bias %b with %r in bf16 {
  ^bb0(%y: !xfc.rows<source, 512xf32>, %e: !xfc.rows<source, 512xf32>):
    %d = xfc.dropout %y {rate = 0.1, id = 9 : i64} : !xfc.rows<source, 512xf32>
    %s = xfc.add %d, %e : !xfc.rows<source, 512xf32>
    xfc.yield %s : !xfc.rows<source, 512xf32>
  } : (!xfc.rows<source, 2048xf32>, tensor<512x2048xf32>, tensor<512xf32>, !xfc.rows<source, 512xf32>) -> !xfc.rows<source, 512xf32>
  return %0 : !xfc.rows<source, 512xf32>
}

// Two results, and gelu, which uses the GPU's approximate exponential.
// CHECK-LABEL: .visible .entry linear_2048x512
// CHECK-NOT:   .local
// CHECK:       ex2.approx.ftz.f32
func.func @gelu(%x: !xfc.rows<source, 512xf32>, %w: tensor<2048x512xf32>, %b: tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 2048xf32>) {
  %0, %1 = xfc.linear %x, %w bias %b in bf16 {
  ^bb0(%y: !xfc.rows<source, 2048xf32>):
    %p = xfc.activation gelu %y : <source, 2048xf32>
    xfc.yield %y, %p : !xfc.rows<source, 2048xf32>, !xfc.rows<source, 2048xf32>
  } : (!xfc.rows<source, 512xf32>, tensor<2048x512xf32>, tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 2048xf32>)
  return %0, %1 : !xfc.rows<source, 2048xf32>, !xfc.rows<source, 2048xf32>
}

// A thread loads the operands of all 16 columns that it has of a row before it stores the first result: no load may pass a store.
// CHECK-LABEL: .visible .entry linear_input_grad_512x2048
// CHECK-NOT:   .local
// CHECK:       mma.sync
// CHECK-NOT:   st.global
// CHECK:       ld.global.v2.b32
// CHECK-NOT:   st.global
// CHECK:       ld.global.v2.b32
// CHECK-NOT:   st.global
// CHECK:       ld.global.v2.b32
// CHECK-NOT:   st.global
// CHECK:       ld.global.v2.b32
// CHECK-NOT:   st.global
// CHECK:       ld.global.v2.b32
// CHECK-NOT:   st.global
// CHECK:       ld.global.v2.b32
// CHECK-NOT:   st.global
// CHECK:       ld.global.v2.b32
// CHECK-NOT:   st.global
// CHECK:       ld.global.v2.b32
// CHECK:       st.global.v2.b32
func.func @relu_grad(%dy: !xfc.rows<source, 512xf32>, %w: tensor<512x2048xf32>, %x: !xfc.rows<source, 2048xf32>) -> !xfc.rows<source, 2048xf32> {
  %0 = xfc.linear_input_grad %dy, %w with %x in bf16 {
  ^bb0(%y: !xfc.rows<source, 2048xf32>, %e: !xfc.rows<source, 2048xf32>):
    %d = xfc.dropout %y {rate = 0.1, id = 3 : i64} : !xfc.rows<source, 2048xf32>
    %g = xfc.activation_grad relu %d, %e : <source, 2048xf32>
    xfc.yield %g : !xfc.rows<source, 2048xf32>
  } : (!xfc.rows<source, 512xf32>, tensor<512x2048xf32>, !xfc.rows<source, 2048xf32>) -> !xfc.rows<source, 2048xf32>
  return %0 : !xfc.rows<source, 2048xf32>
}
