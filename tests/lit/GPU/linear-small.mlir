// A linear op of a decoding step also has a small-M variant: smaller tiles, deeper blocks of K, and the same order of summation.
//
// RUN: %xfc-ptx %s > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: FileCheck %s --check-prefix=ALL < %t.ptx
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_80 sm_90 sm_90a sm_100 %}
//
// On sm_90a, both variants use mma.sync, too: the rows of a decoding step are f32, and wgmma is for rows of bf16.
//
// RUN: %xfc-ptx %s --arch sm_90a > %t.90.ptx
// RUN: FileCheck %s --check-prefix=STEP < %t.90.ptx
// RUN: FileCheck %s < %t.90.ptx
// RUN: FileCheck %s --check-prefix=ALL < %t.90.ptx
// STEP-NOT: wgmma

// ALL-NOT: .local
// A product wider than 32 large tiles, or outside a decoding step, has no small-M variant.
// ALL-NOT: linear_8200x64{{.*}}_small
// ALL-NOT: linear_192x64{{.*}}_small

!cache = !xfc.rows<cache, 512xf32>

// A warp's tile is 16 x 32 x 64.
// CHECK-LABEL: .visible .entry linear_512x512_bf16_small(
// CHECK:       .reqntid 128
// CHECK-COUNT-4: cp.async.cg.shared.global
// CHECK:       cp.async.commit_group
// CHECK-COUNT-12: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-NOT:   ldmatrix
func.func @step(%x: !xfc.rows<target, 512xf32>, %w: tensor<512x512xf32>, %b: tensor<512xf32>, %cache: !cache) -> !xfc.rows<target, 512xf32> {
  %0 = xfc.linear %x, %w bias %b in bf16 : (!xfc.rows<target, 512xf32>, tensor<512x512xf32>, tensor<512xf32>) -> !xfc.rows<target, 512xf32>
  return %0 : !xfc.rows<target, 512xf32>
}

// CHECK-LABEL: .visible .entry linear_2048x512{{(_[0-9]+)?}}_small(
// CHECK:       .reqntid 128
// CHECK:       fma.rn.ftz.f32
func.func @step_f32(%x: !xfc.rows<target, 512xf32>, %w: tensor<2048x512xf32>, %cache: !cache) -> !xfc.rows<target, 2048xf32> {
  %0 = xfc.linear %x, %w : (!xfc.rows<target, 512xf32>, tensor<2048x512xf32>) -> !xfc.rows<target, 2048xf32>
  return %0 : !xfc.rows<target, 2048xf32>
}
func.func @wide(%x: !xfc.rows<target, 64xf32>, %w: tensor<8200x64xf32>, %cache: !cache) -> !xfc.rows<target, 8200xf32> {
  %0 = xfc.linear %x, %w in bf16 : (!xfc.rows<target, 64xf32>, tensor<8200x64xf32>) -> !xfc.rows<target, 8200xf32>
  return %0 : !xfc.rows<target, 8200xf32>
}
func.func @no_step(%x: !xfc.rows<target, 64xf32>, %w: tensor<192x64xf32>) -> !xfc.rows<target, 192xf32> {
  %0 = xfc.linear %x, %w in bf16 : (!xfc.rows<target, 64xf32>, tensor<192x64xf32>) -> !xfc.rows<target, 192xf32>
  return %0 : !xfc.rows<target, 192xf32>
}
