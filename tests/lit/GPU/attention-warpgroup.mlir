// Attention over bf16 rows on sm_90a: a block of four warps, a warpgroup, multiplies its 64 rows by wgmma, from tiles to which rows are copied as they
// are. What a function returns is f32 (xfc-assign-types), so a norm follows where a result shall be bf16. LLVM may put the blocks of a loop in any order.
//
// RUN: %xfc-ptx %s --arch sm_90a > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: FileCheck %s --check-prefix=SCORES < %t.ptx
// RUN: FileCheck %s --check-prefix=OUTPUTS < %t.ptx
// RUN: FileCheck %s --check-prefix=COPIES < %t.ptx
// RUN: FileCheck %s --check-prefix=PASSED < %t.ptx
// RUN: FileCheck %s --check-prefix=BOTH < %t.ptx
// RUN: FileCheck %s --check-prefix=ALL < %t.ptx
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_90a %}
// RUN: %if nvdisasm %{ %python3 %S/Inputs/loops.py %t.ptx sm_90a HGMMA --without HMMA LDSM LDL STL %}
// The same PTX does not run on other GPUs, whose warps multiply.
// RUN: %xfc-ptx %s --arch sm_90 | FileCheck %s --check-prefix=WARPS

// ALL-NOT: .local
// ALL-NOT: mma.sync.aligned.m16
// ALL-NOT: ldmatrix
// WARPS-NOT: wgmma
// WARPS: mma.sync.aligned.m16n8k16
// WARPS-NOT: wgmma

!rows = !xfc.rows<source, 512xf32>
!lse = !xfc.rows<source, 8xf32>

// Four products of 64 x 64 scores over 16 features each, and four for the outputs over 16 keys each.
// CHECK-LABEL: .visible .entry attention_512_bf16(
// CHECK:       .reqntid 128
// CHECK-NEXT:  .maxnreg 168
// CHECK-COUNT-8: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
// CHECK-NOT:   wgmma.mma_async
// CHECK-LABEL: .visible .entry norm_512
// Scores are new sums. Both operands have k along their lines.
// SCORES-LABEL: .visible .entry attention_512_bf16(
// SCORES:      wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, a, b, starts, 1, 1, 0, 0;
// SCORES-NEXT: add.s32 lower, [[Q:%r[0-9]+]], 2;
// SCORES-NEXT: mov.b32 upper, 1073741888;
// SCORES-NEXT: mov.b64 a, {lower, upper};
// SCORES-NEXT: add.s32 lower, [[K:%r[0-9]+]], 2;
// SCORES-NEXT: mov.b32 upper, 1073741888;
// SCORES-NEXT: mov.b64 b, {lower, upper};
// SCORES-NEXT: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, a, b, adds, 1, 1, 0, 0;
// SCORES-NEXT: add.s32 lower, [[Q]], 4;
// SCORES-NEXT: mov.b32 upper, 1073741888;
// SCORES-NEXT: mov.b64
// SCORES-NEXT: add.s32 lower, [[K]], 4;
// SCORES-NEXT: mov.b32 upper, 1073741888;
// SCORES-NEXT: mov.b64
// SCORES-NEXT: wgmma.mma_async
// SCORES-NEXT: add.s32 lower, [[Q]], 6;
// SCORES-NEXT: mov.b32 upper, 1073741888;
// SCORES-NEXT: mov.b64
// SCORES-NEXT: add.s32 lower, [[K]], 6;
// SCORES-NEXT: mov.b32 upper, 1073741888;
// SCORES-NEXT: mov.b64
// SCORES-NEXT: wgmma.mma_async
// SCORES-NEXT: wgmma.commit_group.sync.aligned
// SCORES-NEXT: wgmma.wait_group.sync.aligned 0
// The probabilities stay in registers, four for 16 keys, which are 16 lines of the values.
// OUTPUTS-LABEL: .visible .entry attention_512_bf16(
// OUTPUTS:      wgmma.fence.sync.aligned
// OUTPUTS-NEXT: add.s32 lower, [[V:%r[0-9]+]], 0;
// OUTPUTS-NEXT: mov.b32 upper, 1073741888;
// OUTPUTS-NEXT: mov.b64 b, {lower, upper};
// OUTPUTS-NEXT: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, {%r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}}, b, adds, 1, 1, 1;
// OUTPUTS-NEXT: add.s32 lower, [[V]], 128;
// OUTPUTS-NEXT: mov.b32 upper, 1073741888;
// OUTPUTS-NEXT: mov.b64 b, {lower, upper};
// OUTPUTS-NEXT: wgmma.mma_async
// OUTPUTS-NEXT: add.s32 lower, [[V]], 256;
// The first block is copied before the loop; in the loop, a proxy fence and a barrier follow the wait for a block, before the next one is copied.
// COPIES-LABEL: .visible .entry attention_512_bf16(
// COPIES-COUNT-12: cp.async.cg.shared.global
// COPIES-NOT:   cp.async.cg
// COPIES:       cp.async.wait_group 0
// COPIES-NEXT:  // begin inline asm
// COPIES-NEXT:  fence.proxy.async.shared::cta;
// COPIES-NEXT:  // end inline asm
// COPIES-NEXT:  bar.sync 0
// COPIES-COUNT-8: cp.async.cg.shared.global
// COPIES-NOT:   cp.async.cg
// COPIES-LABEL: .visible .entry norm_512
func.func @forward(%x: !rows, %w: tensor<512xf32>) -> (!rows, !lse) {
  %q, %sq = xfc.norm %x, %w {eps = 1.0e-5 : f64} : (!rows, tensor<512xf32>) -> (!rows, !xfc.rows<source, 2xf32>)
  %o, %lse = xfc.attention %q, %q, %q in bf16 {heads = 8 : i64, scale = 0.125, padding, rate = 0.1, id = 3 : i64} : (!rows, !rows, !rows) -> (!rows, !lse)
  %n, %sn = xfc.norm %o, %w {eps = 1.0e-5 : f64} : (!rows, tensor<512xf32>) -> (!rows, !xfc.rows<source, 2xf32>)
  return %n, %lse : !rows, !lse
}

// The gradient has three ways, with 20 products for a short sequence, 12 for a block of queries and 16 for one of keys.
// CHECK-LABEL: .visible .entry attention_grad_512_bf16(
// CHECK-COUNT-48: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
// CHECK-NOT:   wgmma.mma_async
// CHECK-LABEL: .visible .entry
// In a short sequence, ds and the probabilities are stored in shared memory. After a fence and a barrier, they are the transposed left operands of the
// products for dk and dv, which are computed together: each instruction sums over 16 queries, which are 16 lines of either operand.
// PASSED-LABEL: .visible .entry attention_grad_512_bf16(
// PASSED:      wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, a, b, starts, 1, 1, 1, 1;
// PASSED-NEXT: add.s32 lower, {{.*}}, 0;
// PASSED-NEXT: mov.b32 upper, 1073741888;
// PASSED-NEXT: mov.b64 a, {lower, upper};
// PASSED-NEXT: add.s32 lower, {{.*}}, 0;
// PASSED-NEXT: mov.b32 upper, 1073741888;
// PASSED-NEXT: mov.b64 b, {lower, upper};
// PASSED-NEXT: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, a, b, starts, 1, 1, 1, 1;
// PASSED-NEXT: add.s32 lower, {{.*}}, 128;
// Scores and do v^T are computed together, and so are the sums of dv and dk that a block of keys adds to.
// BOTH-LABEL:  .visible .entry attention_grad_512_bf16(
// BOTH-DAG:    wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, a, b, starts, 1, 1, 0, 0;{{[[:space:]]}}add.s32 lower, {{.*}}, 0;
// BOTH-DAG:    wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, {%r{{.*}}}, b, adds, 1, 1, 1;{{[[:space:]]}}add.s32 lower, {{.*}}, 0;
func.func @grad(%x: !rows, %w: tensor<512xf32>, %lse: !lse) -> (!rows, !rows, !rows) {
  %q, %sq = xfc.norm %x, %w {eps = 1.0e-5 : f64} : (!rows, tensor<512xf32>) -> (!rows, !xfc.rows<source, 2xf32>)
  %dq, %dk, %dv = xfc.attention_grad %q, %q, %q, %q, %q, %lse in bf16 {heads = 8 : i64, scale = 0.125, padding, causal, rate = 0.1, id = 3 : i64} : (!rows, !rows, !rows, !rows, !rows, !lse) -> (!rows, !rows, !rows)
  return %dq, %dk, %dv : !rows, !rows, !rows
}

// Heads of 40 features take the depth and the columns of 48: three blocks of lines of 16 elements with a swizzle of 32 bytes. 16 of k are a block, which
// is 128 units of 16 bytes from the next, or 16 lines, which are 32.
// CHECK-LABEL: .visible .entry attention_320_bf16(
// CHECK-DAG:   add.s32 lower, {{.*}}, 256;{{[[:space:]]}}mov.b32 upper, -1073741808;
// CHECK-DAG:   add.s32 lower, {{.*}}, 32;{{[[:space:]]}}mov.b32 upper, -1073741808;
// CHECK-DAG:   wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, a, b, adds, 1, 1, 0, 0;
// CHECK-DAG:   wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 {{.*}}, b, adds, 1, 1, 1;
func.func @narrow(%x: !xfc.rows<source, 320xf32>, %w: tensor<320xf32>) -> (!xfc.rows<source, 320xf32>, !lse) {
  %q, %sq = xfc.norm %x, %w {eps = 1.0e-5 : f64} : (!xfc.rows<source, 320xf32>, tensor<320xf32>) -> (!xfc.rows<source, 320xf32>, !xfc.rows<source, 2xf32>)
  %o, %lse = xfc.attention %q, %q, %q in bf16 {heads = 8 : i64, scale = 0.15, padding} : (!xfc.rows<source, 320xf32>, !xfc.rows<source, 320xf32>, !xfc.rows<source, 320xf32>) -> (!xfc.rows<source, 320xf32>, !lse)
  return %o, %lse : !xfc.rows<source, 320xf32>, !lse
}
// Those of 128 take two blocks of lines, 512 units apart.
// CHECK-LABEL: .visible .entry attention_1024_bf16(
// CHECK-DAG:   add.s32 lower, {{.*}}, 512;
// CHECK-DAG:   add.s32 lower, {{.*}}, 518;
// CHECK-DAG:   wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {{.*}}, b, adds, 1, 1, 1;
func.func @wide(%x: !xfc.rows<source, 1024xf32>, %w: tensor<1024xf32>) -> (!xfc.rows<source, 1024xf32>, !lse) {
  %q, %sq = xfc.norm %x, %w {eps = 1.0e-5 : f64} : (!xfc.rows<source, 1024xf32>, tensor<1024xf32>) -> (!xfc.rows<source, 1024xf32>, !xfc.rows<source, 2xf32>)
  %o, %lse = xfc.attention %q, %q, %q in bf16 {heads = 8 : i64, scale = 0.0884, causal} : (!xfc.rows<source, 1024xf32>, !xfc.rows<source, 1024xf32>, !xfc.rows<source, 1024xf32>) -> (!xfc.rows<source, 1024xf32>, !lse)
  return %o, %lse : !xfc.rows<source, 1024xf32>, !lse
}
// ptxas must not spill in the kernels that are closest to their limits of registers: with a bias and the limit for four blocks on a multiprocessor,
// with heads of 128, dropout and the limit for three, and in the gradient of the widest heads.
!wide = !xfc.rows<source, 1024xf32>
func.func @biased(%x: !rows, %w: tensor<512xf32>, %b: tensor<128x16xf32>) -> (!rows, !lse) {
  %q, %sq = xfc.norm %x, %w {eps = 1.0e-5 : f64} : (!rows, tensor<512xf32>) -> (!rows, !xfc.rows<source, 2xf32>)
  %o, %lse = xfc.attention %q, %q, %q, %b in bf16 {heads = 8 : i64, scale = 0.125, padding} : (!rows, !rows, !rows, tensor<128x16xf32>) -> (!rows, !lse)
  return %o, %lse : !rows, !lse
}
func.func @dropped(%x: !wide, %w: tensor<1024xf32>) -> (!wide, !lse) {
  %q, %sq = xfc.norm %x, %w {eps = 1.0e-5 : f64} : (!wide, tensor<1024xf32>) -> (!wide, !xfc.rows<source, 2xf32>)
  %o, %lse = xfc.attention %q, %q, %q in bf16 {heads = 8 : i64, scale = 0.0884, padding, rate = 0.1, id = 3 : i64} : (!wide, !wide, !wide) -> (!wide, !lse)
  return %o, %lse : !wide, !lse
}
func.func @gradient(%x: !wide, %w: tensor<1024xf32>, %lse: !lse) -> (!wide, !wide, !wide) {
  %q, %sq = xfc.norm %x, %w {eps = 1.0e-5 : f64} : (!wide, tensor<1024xf32>) -> (!wide, !xfc.rows<source, 2xf32>)
  %dq, %dk, %dv = xfc.attention_grad %q, %q, %q, %q, %q, %lse in bf16 {heads = 8 : i64, scale = 0.0884, padding, rate = 0.1, id = 3 : i64} : (!wide, !wide, !wide, !wide, !wide, !lse) -> (!wide, !wide, !wide)
  return %dq, %dk, %dv : !wide, !wide, !wide
}
