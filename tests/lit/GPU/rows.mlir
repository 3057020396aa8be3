// Kernels that reduce over a row: a warp reduces a short row with shuffles alone; a longer row takes a thread block.
//
// RUN: %xfc-ptx %s > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_80 sm_90 sm_90a sm_100 %}

// CHECK-LABEL: .visible .entry norm_512
// CHECK:       .reqntid 256
// CHECK-NOT:   bar.sync
// CHECK:       ld.global.v4.b32
// CHECK:       shfl.sync.bfly.b32
// CHECK-NOT:   bar.sync
// CHECK:       sqrt.rn.ftz.f32
func.func @norm(%x: !xfc.rows<source, 512xf32>, %w: tensor<512xf32>) -> (!xfc.rows<source, 512xf32>, !xfc.rows<source, 2xf32>) {
  %y, %s = xfc.norm %x, %w, %w {eps = 1.0e-5} : (!xfc.rows<source, 512xf32>, tensor<512xf32>, tensor<512xf32>) -> (!xfc.rows<source, 512xf32>, !xfc.rows<source, 2xf32>)
  return %y, %s : !xfc.rows<source, 512xf32>, !xfc.rows<source, 2xf32>
}

// CHECK-LABEL: .visible .entry add_norm_4096
// CHECK:       bar.sync
func.func @long(%x: !xfc.rows<source, 4096xf32>, %w: tensor<4096xf32>) -> (!xfc.rows<source, 4096xf32>, !xfc.rows<source, 4096xf32>, !xfc.rows<source, 2xf32>) {
  %y, %z, %s = xfc.add_norm %x, %x, %w {eps = 1.0e-5, kind = 1 : i32} : (!xfc.rows<source, 4096xf32>, !xfc.rows<source, 4096xf32>, tensor<4096xf32>) -> (!xfc.rows<source, 4096xf32>, !xfc.rows<source, 4096xf32>, !xfc.rows<source, 2xf32>)
  return %y, %z, %s : !xfc.rows<source, 4096xf32>, !xfc.rows<source, 4096xf32>, !xfc.rows<source, 2xf32>
}

// CHECK-LABEL: .visible .entry norm_grad_1024
func.func @grad(%dy: !xfc.rows<source, 1024xf32>, %x: !xfc.rows<source, 1024xf32>, %w: tensor<1024xf32>, %s: !xfc.rows<source, 2xf32>) -> (!xfc.rows<source, 1024xf32>, !xfc.rows<source, 1024xf32>) {
  %0 = xfc.norm_grad %dy, %x, %w, %s, %x {eps = 1.0e-5} : (!xfc.rows<source, 1024xf32>, !xfc.rows<source, 1024xf32>, tensor<1024xf32>, !xfc.rows<source, 2xf32>, !xfc.rows<source, 1024xf32>) -> !xfc.rows<source, 1024xf32>
  %1 = xfc.norm_grad %0, %x, %w, %s {eps = 1.0e-5, eps_in_std, unbiased} : (!xfc.rows<source, 1024xf32>, !xfc.rows<source, 1024xf32>, tensor<1024xf32>, !xfc.rows<source, 2xf32>) -> !xfc.rows<source, 1024xf32>
  return %0, %1 : !xfc.rows<source, 1024xf32>, !xfc.rows<source, 1024xf32>
}

// Sums over rows are taken per thread, then across lanes, then across warps, in a fixed order and without atomics.
// CHECK-LABEL: .visible .entry norm_weight_grad_512
// CHECK:       .reqntid 1024
// CHECK-NOT:   {{[[:space:]](atom|red)\.}}
// CHECK:       shfl.sync.bfly.b32
// CHECK:       bar.sync
func.func @weights(%dy: !xfc.rows<source, 512xf32>, %x: !xfc.rows<source, 512xf32>, %s: !xfc.rows<source, 2xf32>) -> (tensor<512xf32>, tensor<512xf32>) {
  %w, %b = xfc.norm_weight_grad %dy, %x, %s : (!xfc.rows<source, 512xf32>, !xfc.rows<source, 512xf32>, !xfc.rows<source, 2xf32>) -> (tensor<512xf32>, tensor<512xf32>)
  return %w, %b : tensor<512xf32>, tensor<512xf32>
}

// One pass gives both gradients: each warp sums its rows in registers, and the warps' sums are added up in shared memory.
// CHECK-LABEL: .visible .entry norm_grad_with_parts_512
// CHECK:       .reqntid 256
// CHECK-NOT:   {{[[:space:]](atom|red)\.}}
// CHECK:       shfl.sync.bfly.b32
// CHECK-NOT:   st.shared
// CHECK:       st.global.v4.b32
// CHECK:       st.shared.v4.b32
// CHECK:       bar.sync
// CHECK-LABEL: .visible .entry sum_parts_512
// CHECK:       bar.sync
func.func @parts(%dy: !xfc.rows<source, 512xf32>, %x: !xfc.rows<source, 512xf32>, %w: tensor<512xf32>, %s: !xfc.rows<source, 2xf32>) -> (!xfc.rows<source, 512xf32>, tensor<512xf32>, tensor<512xf32>) {
  %0, %dws, %dbs = xfc.norm_grad_with_parts %dy, %x, %w, %s, %x {eps = 1.0e-5} : (!xfc.rows<source, 512xf32>, !xfc.rows<source, 512xf32>, tensor<512xf32>, !xfc.rows<source, 2xf32>, !xfc.rows<source, 512xf32>) -> (!xfc.rows<source, 512xf32>, tensor<512x512xf32>, tensor<512x512xf32>)
  %dw, %db = xfc.sum_parts %dws, %dbs : (tensor<512x512xf32>, tensor<512x512xf32>) -> (tensor<512xf32>, tensor<512xf32>)
  return %0, %dw, %db : !xfc.rows<source, 512xf32>, tensor<512xf32>, tensor<512xf32>
}
func.func @long_parts(%dy: !xfc.rows<source, 4096xf32>, %x: !xfc.rows<source, 4096xf32>, %w: tensor<4096xf32>, %s: !xfc.rows<source, 2xf32>) -> (!xfc.rows<source, 4096xf32>, tensor<4096xf32>) {
  %0, %dws = xfc.norm_grad_with_parts %dy, %x, %w, %s {eps = 1.0e-5, kind = 1 : i32} : (!xfc.rows<source, 4096xf32>, !xfc.rows<source, 4096xf32>, tensor<4096xf32>, !xfc.rows<source, 2xf32>) -> (!xfc.rows<source, 4096xf32>, tensor<512x4096xf32>)
  %dw = xfc.sum_parts %dws : (tensor<512x4096xf32>) -> tensor<4096xf32>
  return %0, %dw : !xfc.rows<source, 4096xf32>, tensor<4096xf32>
}

// One pass over the logits gives the sum of the exponentials and the sum of the logits.
// CHECK-LABEL: .visible .entry cross_entropy
// CHECK:       .reqntid 1024
// CHECK:       lg2.approx.ftz.f32
func.func @loss(%l: !xfc.rows<target, 32000xf32>, %labels: !xfc.rows<target, i32>, %e: tensor<f32>, %d: !xfc.rows<target, f32>) -> (!xfc.rows<target, f32>, !xfc.rows<target, f32>, !xfc.rows<target, f32>, !xfc.rows<target, 32000xf32>) {
  %loss, %nll, %lse = xfc.cross_entropy %l, %labels, %e : (!xfc.rows<target, 32000xf32>, !xfc.rows<target, i32>, tensor<f32>) -> (!xfc.rows<target, f32>, !xfc.rows<target, f32>, !xfc.rows<target, f32>)
  %g = xfc.cross_entropy_grad %l, %d, %labels, %lse, %e : (!xfc.rows<target, 32000xf32>, !xfc.rows<target, f32>, !xfc.rows<target, i32>, !xfc.rows<target, f32>, tensor<f32>) -> !xfc.rows<target, 32000xf32>
  return %loss, %nll, %lse, %g : !xfc.rows<target, f32>, !xfc.rows<target, f32>, !xfc.rows<target, f32>, !xfc.rows<target, 32000xf32>
}
func.func @plain_loss(%l: !xfc.rows<target, 8000xf32>, %labels: !xfc.rows<target, i32>, %e: tensor<f32>, %d: !xfc.rows<target, f32>) -> (!xfc.rows<target, 8000xf32>, !xfc.rows<target, f32>, !xfc.rows<target, f32>, !xfc.rows<target, 8000xf32>) {
  %p = xfc.log_softmax %l : !xfc.rows<target, 8000xf32>
  %loss, %nll = xfc.nll %p, %labels, %e : (!xfc.rows<target, 8000xf32>, !xfc.rows<target, i32>, tensor<f32>) -> (!xfc.rows<target, f32>, !xfc.rows<target, f32>)
  %dp = xfc.nll_grad %d, %labels, %e : (!xfc.rows<target, f32>, !xfc.rows<target, i32>, tensor<f32>) -> !xfc.rows<target, 8000xf32>
  %g = xfc.log_softmax_grad %dp, %p : !xfc.rows<target, 8000xf32>
  return %p, %loss, %nll, %g : !xfc.rows<target, 8000xf32>, !xfc.rows<target, f32>, !xfc.rows<target, f32>, !xfc.rows<target, 8000xf32>
}

// CHECK-LABEL: .visible .entry candidates_8
// CHECK-NOT:   .local
func.func @candidates(%l: !xfc.rows<target, 32000xf32>, %wanted: !xfc.rows<target, i32>) -> (!xfc.rows<target, 8xi32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, f32>) {
  %t, %b, %w = xfc.candidates %l, %wanted {excluded = array<i64: 0, 2>} : (!xfc.rows<target, 32000xf32>, !xfc.rows<target, i32>) -> (!xfc.rows<target, 8xi32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, f32>)
  return %t, %b, %w : !xfc.rows<target, 8xi32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, f32>
}
// CHECK-LABEL: .visible .entry merge_candidates_8
func.func @merge(%t: !xfc.rows<target, 128xi32>, %n: !xfc.rows<target, 128xf32>, %lse: !xfc.rows<target, 16xf32>, %wanted: !xfc.rows<target, f32>) -> (!xfc.rows<target, 8xi32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, f32>) {
  %a, %b, %w = xfc.merge_candidates %t, %n, %lse, %wanted : (!xfc.rows<target, 128xi32>, !xfc.rows<target, 128xf32>, !xfc.rows<target, 16xf32>, !xfc.rows<target, f32>) -> (!xfc.rows<target, 8xi32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, f32>)
  return %a, %b, %w : !xfc.rows<target, 8xi32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, f32>
}

// A lane reads the first numbers of four of 125 lists before it compares any, then numbers of the best eight lists.
// CHECK-LABEL: .visible .entry merge_candidates_8_2(
// CHECK-NOT:   .local
// CHECK:       .reqntid 256
// CHECK-COUNT-8: ld.global.b32
// CHECK:       redux.sync.max.u32
func.func @merge_many(%t: !xfc.rows<target, 1000xi32>, %n: !xfc.rows<target, 1000xf32>, %lse: !xfc.rows<target, 125xf32>, %wanted: !xfc.rows<target, f32>) -> (!xfc.rows<target, 8xi32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, f32>) {
  %a, %b, %w = xfc.merge_candidates %t, %n, %lse, %wanted : (!xfc.rows<target, 1000xi32>, !xfc.rows<target, 1000xf32>, !xfc.rows<target, 125xf32>, !xfc.rows<target, f32>) -> (!xfc.rows<target, 8xi32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, f32>)
  return %a, %b, %w : !xfc.rows<target, 8xi32>, !xfc.rows<target, 8xf32>, !xfc.rows<target, f32>
}

// A thread scans one column: it reads several rows, then computes them one after the other. A decoding step takes rows 16 bytes at a time.
// CHECK-LABEL: .visible .entry recurrence_512(
// CHECK:       .reqntid 128
// CHECK-COUNT-8: ld.global.b32
// CHECK:       ex2.approx.ftz.f32
// CHECK:       st.global.b32
func.func @recurrence(%g: !xfc.rows<target, 512xf32>, %x: !xfc.rows<target, 512xf32>) -> (!xfc.rows<target, 512xf32>, !xfc.rows<target, 512xf32>) {
  %c = xfc.recurrence %g, %x : (!xfc.rows<target, 512xf32>, !xfc.rows<target, 512xf32>) -> !xfc.rows<target, 512xf32>
  %dg, %dx = xfc.recurrence_grad %c, %g, %x, %c : (!xfc.rows<target, 512xf32>, !xfc.rows<target, 512xf32>, !xfc.rows<target, 512xf32>, !xfc.rows<target, 512xf32>) -> (!xfc.rows<target, 512xf32>, !xfc.rows<target, 512xf32>)
  return %dg, %dx : !xfc.rows<target, 512xf32>, !xfc.rows<target, 512xf32>
}
// CHECK-LABEL: .visible .entry recurrence_grad_512(
// CHECK-COUNT-16: ld.global.b32
// CHECK-LABEL: .visible .entry recurrence_256_step(
// CHECK:       ld.global.v4.b32
func.func @recurrence_step(%g: !xfc.rows<target, 256xf32>, %x: !xfc.rows<target, 256xf32>, %s: !xfc.rows<cache, 256xf32>) -> !xfc.rows<target, 256xf32> {
  %c = xfc.recurrence %g, %x, %s : (!xfc.rows<target, 256xf32>, !xfc.rows<target, 256xf32>, !xfc.rows<cache, 256xf32>) -> !xfc.rows<target, 256xf32>
  return %c : !xfc.rows<target, 256xf32>
}
