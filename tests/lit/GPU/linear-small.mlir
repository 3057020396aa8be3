// A linear op of a decoding step also has small-M variants: smaller tiles, deeper blocks of K, and the same order of summation. Those of 32
// columns, for 32 and for 16 rows, are for as many rows as give each tile one of 132 multiprocessors.
//
// RUN: %xfc-ptx %s > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: FileCheck %s --check-prefix=ALL < %t.ptx
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_80 sm_90 sm_90a sm_100 %}
//
// RUN: %xfc-opt %s --xfc-kernels=target=sm_80 | FileCheck %s --check-prefix=PLAN
// PLAN:     plan.kernel @linear_512x512_bf16 attributes {{.*}}small = @linear_512x512_bf16_small, small_rows = 2048 : i64
// PLAN:     plan.kernel @linear_512x512_bf16_small attributes {partition = #plan.partition<rows per 32 times 8>, {{.*}}small_rows = 256 : i64
// PLAN:     plan.kernel @linear_512x512_bf16_small2 attributes {partition = #plan.partition<rows per 32 times 16>, {{.*}}small_rows = 128 : i64
// PLAN:     plan.kernel @linear_512x512_bf16_small3 attributes {partition = #plan.partition<rows per 16 times 16>, scratch
// PLAN:     plan.kernel @linear_2048x512 attributes {{.*}}small_rows = 256 : i64
// PLAN:     plan.kernel @linear_2048x512_small attributes {partition = #plan.partition<rows per 32 times 32>, {{.*}}small_rows = 64 : i64
// PLAN:     plan.kernel @linear_2048x512_small2 attributes {partition = #plan.partition<rows per 32 times 64>, {{.*}}small_rows = 32 : i64
// PLAN:     plan.kernel @linear_2048x512_small3 attributes {partition = #plan.partition<rows per 32 times 128>, scratch
//
// On sm_90a, all variants use mma.sync, too: the rows of a decoding step are f32, and wgmma is for rows of bf16.
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
// CHECK-LABEL: .visible .entry linear_512x512_bf16_small2(
// CHECK:       .reqntid 128
// CHECK-COUNT-8: cp.async.cg.shared.global
// CHECK:       cp.async.commit_group
// CHECK-COUNT-32: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-NOT:   ldmatrix
// Eight columns of a warp have two matrices for 16 of k, so that one load reads those for 32.
// CHECK-LABEL: .visible .entry linear_512x512_bf16_small3(
// CHECK:       .reqntid 128
// CHECK-COUNT-16: cp.async.cg.shared.global
// CHECK:       cp.async.commit_group
// CHECK-COUNT-48: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-NOT:   ldmatrix
func.func @step(%x: !xfc.rows<target, 512xf32>, %w: tensor<512x512xf32>, %b: tensor<512xf32>, %cache: !cache) -> !xfc.rows<target, 512xf32> {
  %0 = xfc.linear %x, %w bias %b in bf16 : (!xfc.rows<target, 512xf32>, tensor<512x512xf32>, tensor<512xf32>) -> !xfc.rows<target, 512xf32>
  return %0 : !xfc.rows<target, 512xf32>
}

// CHECK-LABEL: .visible .entry linear_2048x512{{(_[0-9]+)?}}_small(
// CHECK:       .reqntid 128
// CHECK:       mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
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
