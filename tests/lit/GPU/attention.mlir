// Fused attention stores no scores, computes exponentials as powers of two, and in bf16 runs both products on tensor cores.
//
// RUN: %xfc-ptx %s > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: FileCheck %s --check-prefix=NONE < %t.ptx
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_80 sm_90 sm_90a sm_100 %}

// NONE-NOT: .local
// NONE-NOT: {{[[:space:]]}}atom.
// NONE-NOT: {{[[:space:]]}}red.

!rows64 = !xfc.rows<source, 512xf32>
!rows128 = !xfc.rows<target, 1024xf32>
!lse = !xfc.rows<source, 8xf32>
!lse128 = !xfc.rows<target, 8xf32>
!sums = !xfc.rows<source, 16xf32>

// In f32, each element is a chain of fused multiply-adds. A chunk is 64 rows of one head.
// CHECK:       // attention_512: 128 threads, {{[0-9]+}} bytes of shared memory
// CHECK-LABEL: .visible .entry attention_512(
// CHECK:       .reqntid 128
// CHECK:       .maxnreg 168
// CHECK:       bar.sync
// CHECK:       fma.rn.ftz.f32
// CHECK-NOT:   mma.sync
// CHECK:       ex2.approx.ftz.f32
// CHECK:       lg2.approx.ftz.f32
func.func @f32(%q: !rows64, %k: !rows64, %v: !rows64) -> (!rows64, !lse) {
  %o, %lse = xfc.attention %q, %k, %v {heads = 8 : i64, scale = 0.125, padding} : (!rows64, !rows64, !rows64) -> (!rows64, !lse)
  return %o, %lse : !rows64, !lse
}

// Rows are rounded on their way to shared memory. One ldmatrix loads four 8x8 matrices, transposed for the values (below).
// CHECK-LABEL: .visible .entry attention_512_bf16{{(_[0-9]+)?}}(
// CHECK:       ld.global.v4.b32
// CHECK:       cvt.rn.bf16x2.f32
// CHECK:       st.shared.v2.b32
// CHECK:       ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK:       mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
func.func @bf16(%q: !rows64, %k: !rows64, %v: !rows64) -> (!rows64, !lse) {
  %o, %lse = xfc.attention %q, %k, %v in bf16 {heads = 8 : i64, scale = 0.125, padding, causal, rate = 0.1, id = 3 : i64} : (!rows64, !rows64, !rows64) -> (!rows64, !lse)
  return %o, %lse : !rows64, !lse
}

// CHECK-LABEL: .visible .entry attention_1024_bf16{{(_[0-9]+)?}}(
// CHECK:       .maxnreg 232
// LLVM may put the blocks of the loop in any order.
// CHECK-DAG:   ex2.approx.ftz.f32
// CHECK-DAG:   ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// CHECK-DAG:   mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
func.func @bf16_wide(%q: !rows128, %k: !rows128, %v: !rows128) -> (!rows128, !lse128) {
  %o, %lse = xfc.attention %q, %k, %v in bf16 {heads = 8 : i64, scale = 0.0884, causal} : (!rows128, !rows128, !rows128) -> (!rows128, !lse128)
  return %o, %lse : !rows128, !lse128
}

// Decoding: a chunk is one head of one hypothesis, and eight lanes compute a dot product by fused multiply-adds. A lane has eight elements of each of
// four keys and four values, and issues all of their vector loads before it uses the first.
// CHECK-LABEL: .visible .entry attention_512_bf16_one_query{{(_[0-9]+)?}}(
// CHECK:       .maxnreg 168
// CHECK-NOT:   mma.sync
// CHECK:       ld.global.v4.b32
// CHECK-NOT:   {{fma|cvt.rn.bf16x2}}
// CHECK-COUNT-15: ld.global.v4.b32
// CHECK:       cvt.rn.bf16x2.f32
// CHECK:       shfl.sync.bfly
// CHECK:       ex2.approx.ftz.f32
// CHECK-NOT:   mma.sync
func.func @decode(%q: !xfc.rows<target, 512xf32>, %k: !xfc.rows<cache, 512xf32>) -> !xfc.rows<target, 512xf32> {
  %o, %lse = xfc.attention %q, %k, %k in bf16 {heads = 8 : i64, scale = 0.125} : (!xfc.rows<target, 512xf32>, !xfc.rows<cache, 512xf32>, !xfc.rows<cache, 512xf32>) -> (!xfc.rows<target, 512xf32>, !lse128)
  return %o : !xfc.rows<target, 512xf32>
}

// Keys and values in int8: a lane loads a word of four integers at a time, and multiplies them by the scale of their row.
// CHECK-LABEL: .visible .entry attention_512_one_query{{(_[0-9]+)?}}(
// CHECK-NOT:   ld.global.v4.b32
// CHECK:       ld.global.b32
// CHECK:       cvt.rn.f32.s32
// CHECK:       mul.rn.ftz.f32
// CHECK:       ex2.approx.ftz.f32
func.func @decode_int8(%q: !xfc.rows<target, 512xf32> {xfc.name = "q", xfc.role = "input"}, %k: !xfc.rows<cache, 512xi8> {xfc.name = "self.k", xfc.role = "state"},
                       %s: !xfc.rows<cache, 8xf32> {xfc.name = "self.k.scale", xfc.role = "state"}) -> !xfc.rows<target, 512xf32> {
  %o, %lse = xfc.attention %q, %k, %k scaled by %s, %s {heads = 8 : i64, scale = 0.125} : (!xfc.rows<target, 512xf32>, !xfc.rows<cache, 512xi8>, !xfc.rows<cache, 512xi8>, !xfc.rows<cache, 8xf32>, !xfc.rows<cache, 8xf32>) -> (!xfc.rows<target, 512xf32>, !lse128)
  return %o : !xfc.rows<target, 512xf32>
}

// Cross-attention to the encoder's keys in a program that has a cache, with wide heads.
// CHECK-LABEL: .visible .entry attention_1024_one_query{{(_[0-9]+)?}}(
// CHECK:       .maxnreg 232
// CHECK-NOT:   {{mma.sync|cvt.rn.bf16x2}}
// CHECK:       fma.rn.ftz.f32
func.func @decode_cross(%q: !rows128, %k: !xfc.rows<source, 1024xf32>, %cache: !xfc.rows<cache, 512xf32>) -> !rows128 {
  %o, %lse = xfc.attention %q, %k, %k {heads = 8 : i64, scale = 0.0884, padding} : (!rows128, !xfc.rows<source, 1024xf32>, !xfc.rows<source, 1024xf32>) -> (!rows128, !lse128)
  return %o : !rows128
}

// CHECK-LABEL: .visible .entry attention_grad_512{{(_[0-9]+)?}}(
func.func @grad(%q: !rows64, %lse: !lse) -> (!rows64, !rows64, !rows64) {
  %dq, %dk, %dv = xfc.attention_grad %q, %q, %q, %q, %q, %lse {heads = 8 : i64, scale = 0.125, padding, rate = 0.1, id = 3 : i64} : (!rows64, !rows64, !rows64, !rows64, !rows64, !lse) -> (!rows64, !rows64, !rows64)
  return %dq, %dk, %dv : !rows64, !rows64, !rows64
}

// CHECK-LABEL: .visible .entry attention_grad_512_bf16{{(_[0-9]+)?}}(
// CHECK:       mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
func.func @grad_bf16(%q: !rows64, %lse: !lse) -> (!rows64, !rows64, !rows64) {
  %dq, %dk, %dv = xfc.attention_grad %q, %q, %q, %q, %q, %lse in bf16 {heads = 8 : i64, scale = 0.125, padding, causal, rate = 0.1, id = 3 : i64} : (!rows64, !rows64, !rows64, !rows64, !rows64, !lse) -> (!rows64, !rows64, !rows64)
  return %dq, %dk, %dv : !rows64, !rows64, !rows64
}

// CHECK-LABEL: .visible .entry attention_grad_1024{{(_[0-9]+)?}}(
func.func @grad_wide(%q: !rows128, %lse: !lse128) -> (!rows128, !rows128, !rows128) {
  %dq, %dk, %dv = xfc.attention_grad %q, %q, %q, %q, %q, %lse {heads = 8 : i64, scale = 0.0884, causal} : (!rows128, !rows128, !rows128, !rows128, !rows128, !lse128) -> (!rows128, !rows128, !rows128)
  return %dq, %dk, %dv : !rows128, !rows128, !rows128
}

// CHECK-LABEL: .visible .entry attention_grad_1024_bf16{{(_[0-9]+)?}}(
func.func @grad_wide_bf16(%q: !rows128, %lse: !lse128) -> (!rows128, !rows128, !rows128) {
  %dq, %dk, %dv = xfc.attention_grad %q, %q, %q, %q, %q, %lse in bf16 {heads = 8 : i64, scale = 0.0884, causal} : (!rows128, !rows128, !rows128, !rows128, !rows128, !lse128) -> (!rows128, !rows128, !rows128)
  return %dq, %dk, %dv : !rows128, !rows128, !rows128
}

// Rows of bf16, which what is neither an argument nor a result has, are copied as they are, and all copies of a block are under way before the first wait.
// CHECK-LABEL: .visible .entry attention_512_bf16{{(_[0-9]+)?}}(
// CHECK:       .maxnreg 168
// CHECK-NOT:   cvt.rn.bf16x2
// CHECK-COUNT-12: cp.async.cg.shared.global
// CHECK:       cp.async.wait_group 0
// CHECK:       bar.sync
func.func @bf16_rows(%x: !rows64, %w: tensor<512xf32>) -> (!rows64, !lse) {
  %q, %sq = xfc.norm %x, %w {eps = 1.0e-5 : f64} : (!rows64, tensor<512xf32>) -> (!rows64, !xfc.rows<source, 2xf32>)
  %o, %lse = xfc.attention %q, %q, %q in bf16 {heads = 8 : i64, scale = 0.125, padding} : (!rows64, !rows64, !rows64) -> (!rows64, !lse)
  %n, %sn = xfc.norm %o, %w {eps = 1.0e-5 : f64} : (!rows64, tensor<512xf32>) -> (!rows64, !xfc.rows<source, 2xf32>)
  return %n, %lse : !rows64, !lse
}

// A sequence that fits into one tile is computed by one block, which passes two operands of bf16 through shared memory and reads their
// columns as rows.
// CHECK-LABEL: .visible .entry attention_grad_512_bf16{{(_[0-9]+)?}}(
// CHECK-DAG:   cp.async.cg.shared.global
// CHECK-DAG:   st.shared.b32
// CHECK-DAG:   ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
func.func @grad_bf16_rows(%x: !rows64, %w: tensor<512xf32>, %lse: !lse) -> (!rows64, !rows64, !rows64) {
  %q, %sq = xfc.norm %x, %w {eps = 1.0e-5 : f64} : (!rows64, tensor<512xf32>) -> (!rows64, !xfc.rows<source, 2xf32>)
  %dq, %dk, %dv = xfc.attention_grad %q, %q, %q, %q, %q, %lse in bf16 {heads = 8 : i64, scale = 0.125, padding, causal, rate = 0.1, id = 3 : i64} : (!rows64, !rows64, !rows64, !rows64, !rows64, !lse) -> (!rows64, !rows64, !rows64)
  return %dq, %dk, %dv : !rows64, !rows64, !rows64
}

// With a distance bias, the entries for a block of pairs are in shared memory, and each sum of the bias gradient has one owner.
// CHECK-LABEL: .visible .entry attention_512{{[_a-z0-9]*}}(
// CHECK:       .reqntid 128
func.func @bias(%q: !rows64, %b: tensor<512x16xf32>) -> (!rows64, !lse) {
  %o, %lse = xfc.attention %q, %q, %q, %b {heads = 8 : i64, scale = 0.125, padding, rate = 0.1, id = 3 : i64} : (!rows64, !rows64, !rows64, tensor<512x16xf32>) -> (!rows64, !lse)
  return %o, %lse : !rows64, !lse
}

// CHECK-LABEL: .visible .entry attention_1024_bf16{{[_a-z0-9]*}}(
// CHECK:       mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
func.func @bias_bf16(%q: !rows128, %b: tensor<512x16xf32>) -> (!rows128, !lse128) {
  %o, %lse = xfc.attention %q, %q, %q, %b in bf16 {heads = 8 : i64, scale = 0.0884, causal} : (!rows128, !rows128, !rows128, tensor<512x16xf32>) -> (!rows128, !lse128)
  return %o, %lse : !rows128, !lse128
}

// CHECK-LABEL: .visible .entry attention_512_bf16_one_query{{[_a-z0-9]*}}(
func.func @decode_bias(%q: !xfc.rows<target, 512xf32>, %k: !xfc.rows<cache, 512xf32>, %b: tensor<512x16xf32>) -> !xfc.rows<target, 512xf32> {
  %o, %lse = xfc.attention %q, %k, %k, %b in bf16 {heads = 8 : i64, scale = 0.125} : (!xfc.rows<target, 512xf32>, !xfc.rows<cache, 512xf32>, !xfc.rows<cache, 512xf32>, tensor<512x16xf32>) -> (!xfc.rows<target, 512xf32>, !lse128)
  return %o : !xfc.rows<target, 512xf32>
}

// CHECK-LABEL: .visible .entry attention_grad_512{{[_a-z0-9]*}}(
func.func @grad_bias(%q: !rows64, %lse: !lse, %b: tensor<512x16xf32>) -> (!rows64, !rows64, !rows64, !sums) {
  %dq, %dk, %dv, %db = xfc.attention_grad %q, %q, %q, %q, %q, %lse, %b {heads = 8 : i64, scale = 0.125, padding, rate = 0.1, id = 3 : i64} : (!rows64, !rows64, !rows64, !rows64, !rows64, !lse, tensor<512x16xf32>) -> (!rows64, !rows64, !rows64, !sums)
  return %dq, %dk, %dv, %db : !rows64, !rows64, !rows64, !sums
}
