// Products use tensor cores, in f32 those of TF32 where they are faster than fused multiply-adds. bf16 weights are copied to shared memory asynchronously, rows go through registers.
// There is one barrier per block of K, and the accumulators stay in registers.
//
// RUN: %xfc-ptx %s > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: FileCheck %s --check-prefix=ALL < %t.ptx
// RUN: %xfc-ptx %s --arch sm_86 | FileCheck %s --check-prefix=FMA
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_80 sm_90 sm_90a sm_100 %}

// ALL-NOT: .local

// A warp computes 64 x 64 sums over 16 of K twice per K block of 32: 64 products of fragments, and 16 loads of four matrices each.
// CHECK-LABEL: .visible .entry linear_2048x512_bf16(
// CHECK:       .reqntid 256
// The first block of K is fetched, then the next one while the current one is multiplied; a block is read after a wait and a barrier.
// Copies of weights begin before rows are loaded. (The loop's first lines stand after its last ones.)
// CHECK-COUNT-4: cp.async.cg.shared.global
// CHECK-NEXT:  cp.async.commit_group
// CHECK:       ld.global
// CHECK-COUNT-8: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-COUNT-32: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// CHECK-COUNT-8: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-COUNT-32: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// CHECK-NOT:   mma.sync
// CHECK:       cvt.rn.bf16x2.f32
// CHECK:       st.shared.v2.b32
// CHECK:       cp.async.wait_group 0
// CHECK-NEXT:  bar.sync
// CHECK-COUNT-4: cp.async.cg.shared.global
// CHECK-NEXT:  cp.async.commit_group
// CHECK:       ld.global
// CHECK-NOT:   mma.sync
// CHECK:       st.global.v2.b32
func.func @linear(%x: !xfc.rows<source, 512xf32>, %w: tensor<2048x512xf32>, %b: tensor<2048xf32>) -> !xfc.rows<source, 2048xf32> {
  %0 = xfc.linear %x, %w bias %b in bf16 : (!xfc.rows<source, 512xf32>, tensor<2048x512xf32>, tensor<2048xf32>) -> !xfc.rows<source, 2048xf32>
  return %0 : !xfc.rows<source, 2048xf32>
}

// The same weight is transposed as its fragments are loaded.
// CHECK-LABEL: .visible .entry linear_input_grad_2048x512_bf16
// CHECK:       ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK:       ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// CHECK:       mma.sync
func.func @input_grad(%dy: !xfc.rows<source, 2048xf32>, %w: tensor<2048x512xf32>) -> !xfc.rows<source, 512xf32> {
  %0 = xfc.linear_input_grad %dy, %w in bf16 : (!xfc.rows<source, 2048xf32>, tensor<2048x512xf32>) -> !xfc.rows<source, 512xf32>
  return %0 : !xfc.rows<source, 512xf32>
}

// Both operands are rows, loaded transposed; the reduction runs over a chunk's rows. A second kernel sums the chunks.
// CHECK-LABEL: .visible .entry linear_weight_grad_2048x512_bias_bf16
// CHECK-NOT:   cp.async.cg
// CHECK-NOT:   ldmatrix.sync.aligned.m8n8.x4.shared
// CHECK:       ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// CHECK-COUNT-32: mma.sync
// CHECK-NOT:   mma.sync
// CHECK-LABEL: .visible .entry linear_weight_grad_2048x512_bias_bf16{{(_[0-9]+)?}}_reduction(
// CHECK:       .reqntid 256
// CHECK-NOT:   bar.sync
// CHECK:       ld.global.v4
// CHECK:       {{add(\.rn)?\.ftz\.f32}}
// CHECK:       st.global.v4
func.func @weight_grad(%dy: !xfc.rows<source, 2048xf32>, %x: !xfc.rows<source, 512xf32>) -> (tensor<2048x512xf32>, tensor<2048xf32>) {
  %0, %1 = xfc.linear_weight_grad %dy, %x in bf16 : (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 512xf32>) -> (tensor<2048x512xf32>, tensor<2048xf32>)
  return %0, %1 : tensor<2048x512xf32>, tensor<2048xf32>
}

// A number is split in two: high (rounded: half of what is dropped is added, and 13 bits are cleared) and low. Four by four products of fragments, in each
// of two steps of eight, are (low high + high low) + high high, and their sum is added to the one of all steps.
// CHECK-LABEL: .visible .entry linear_2048x512(
// CHECK-NOT:   ldmatrix
// CHECK:       add.s32 [[ROUNDED:%r[0-9]+]], {{%r[0-9]+}}, 4096;
// CHECK-NEXT:  and.b32 {{%r[0-9]+}}, [[ROUNDED]], -8192;
// CHECK:       sub{{(.rn)?}}.ftz.f32
// CHECK-COUNT-96: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
// CHECK-NOT:   mma.sync
// CHECK-LABEL: .visible .entry linear_input_grad_2048x512(
// FMA-LABEL:   .visible .entry linear_2048x512(
// FMA-NOT:     mma.sync
// FMA:         fma.rn.ftz.f32
func.func @linear_f32(%x: !xfc.rows<source, 512xf32>, %w: tensor<2048x512xf32>) -> !xfc.rows<source, 2048xf32> {
  %0 = xfc.linear %x, %w : (!xfc.rows<source, 512xf32>, tensor<2048x512xf32>) -> !xfc.rows<source, 2048xf32>
  return %0 : !xfc.rows<source, 2048xf32>
}
func.func @input_grad_f32(%dy: !xfc.rows<source, 2048xf32>, %w: tensor<2048x512xf32>) -> !xfc.rows<source, 512xf32> {
  %0 = xfc.linear_input_grad %dy, %w : (!xfc.rows<source, 2048xf32>, tensor<2048x512xf32>) -> !xfc.rows<source, 512xf32>
  return %0 : !xfc.rows<source, 512xf32>
}
func.func @weight_grad_f32(%dy: !xfc.rows<source, 2048xf32>, %x: !xfc.rows<source, 512xf32>) -> (tensor<2048x512xf32>, tensor<2048xf32>) {
  %0, %1 = xfc.linear_weight_grad %dy, %x : (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 512xf32>) -> (tensor<2048x512xf32>, tensor<2048xf32>)
  return %0, %1 : tensor<2048x512xf32>, tensor<2048xf32>
}

// A narrow product with odd widths, whose weight gradient has few tiles.
func.func @narrow(%x: !xfc.rows<source, 33xf32>, %w: tensor<63x33xf32>, %dy: !xfc.rows<source, 63xf32>) -> (!xfc.rows<source, 63xf32>, tensor<63x33xf32>) {
  %0 = xfc.linear %x, %w in bf16 : (!xfc.rows<source, 33xf32>, tensor<63x33xf32>) -> !xfc.rows<source, 63xf32>
  %1 = xfc.linear_weight_grad %dy, %x in bf16 : (!xfc.rows<source, 63xf32>, !xfc.rows<source, 33xf32>) -> tensor<63x33xf32>
  return %0, %1 : !xfc.rows<source, 63xf32>, tensor<63x33xf32>
}
