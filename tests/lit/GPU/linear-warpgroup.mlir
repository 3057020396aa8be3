// bf16 products of bf16 rows on sm_90a: warpgroups multiply, asynchronous copies signal mbarriers when they complete, and two thread blocks share
// a weight. What a function returns is f32 (xfc-assign-types), so a norm follows where a result shall be bf16.
//
// RUN: %xfc-ptx %s --arch sm_90a > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: FileCheck %s --check-prefix=ALL < %t.ptx
// RUN: FileCheck %s --check-prefix=LAST < %t.ptx
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_90a %}
// No loop flushes stores or invalidates the L1 cache, as barriers of cluster scope would (Warpgroup.cpp says why they do not need that scope).
// RUN: %if nvdisasm %{ %python3 %S/Inputs/loops.py %t.ptx sm_90a HGMMA --without MEMBAR.ALL.GPU CCTL.IVALL ERRBAR CGAERRBAR %}

// ALL-NOT: .local
// ALL-NOT: mma.sync.aligned.m16

// CHECK-LABEL: .visible .entry linear_2048x512_bf16(
// CHECK:       .reqntid 384
// CHECK-NEXT:  .maxnreg 168
// CHECK:       .reqnctapercluster 2, 1, 1
// As many clusters as run at once share the tiles.
// CHECK:       %nctaid.x
// Each of four stages has two barriers, whose initialization the whole cluster sees before any of them is used.
// CHECK-COUNT-8: mbarrier.init.shared::cta.b64
// CHECK-NOT:   mbarrier.init
// CHECK:       fence.mbarrier_init.release.cluster
// CHECK:       barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned
// Consumers: both operands come from shared memory, where a fence makes the rows visible; after four products, the stage is released to both
// blocks. Results are stored by 16 bytes.
// CHECK:       setmaxnreg.inc.sync.aligned.u32 232
// CHECK:       mbarrier.try_wait.parity.acquire.cta.shared::cta.b64
// CHECK:       fence.proxy.async.shared::cta
// CHECK:       wgmma.fence.sync.aligned
// CHECK-NEXT:  add.s32 lower, [[A:%r[0-9]+]], 0;
// CHECK-NEXT:  mov.b32 upper, 1073741888;
// CHECK-NEXT:  mov.b64 a, {lower, upper};
// CHECK-NEXT:  add.s32 lower, [[B:%r[0-9]+]], 0;
// CHECK-NEXT:  mov.b32 upper, 1073741888;
// CHECK-NEXT:  mov.b64 b, {lower, upper};
// CHECK-NEXT:  wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{.*}}, a, b, adds, 1, 1, 0, 0;
// CHECK-NEXT:  add.s32 lower, [[A]], 2;
// CHECK-NEXT:  mov.b32 upper, 1073741888;
// CHECK-NEXT:  mov.b64
// CHECK-NEXT:  add.s32 lower, [[B]], 2;
// CHECK-NEXT:  mov.b32 upper, 1073741888;
// CHECK-NEXT:  mov.b64
// CHECK-NEXT:  wgmma.mma_async
// CHECK-COUNT-2: wgmma.mma_async
// CHECK-NEXT:  wgmma.commit_group.sync.aligned
// CHECK-NEXT:  wgmma.wait_group.sync.aligned 0
// CHECK:       mapa.shared::cluster.u64 {{.*}} mbarrier.arrive.release.cta.shared::cluster.b64
// CHECK:       cvt.rn.bf16x2.f32
// CHECK:       shfl.sync.bfly.b32
// CHECK:       st.global.v4.b32
// CHECK-NOT:   st.global.v2
// Producers: a thread block multicasts its half of four blocks of the weight to both, and copies rows by 16 bytes.
// CHECK:       setmaxnreg.dec.sync.aligned.u32 40
// CHECK-COUNT-8: cp.async.cg.shared.global {{.*}}, 16,
// CHECK-NOT:   cp.async.c
// CHECK:       cp.async.mbarrier.arrive.noinc.shared::cta.b64
// CHECK:       mbarrier.arrive.expect_tx.shared::cta.b64
// CHECK-COUNT-4: cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
// CHECK-NOT:   cp.async.bulk
// Neither thread block exits before both are done.
// LAST-LABEL:  .visible .entry linear_2048x512_bf16(
// LAST-COUNT-2: barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned
// LAST-NOT:    barrier.cluster
// LAST-LABEL:  .visible .entry pack_blocks_bf16_2048x512(
func.func @linear(%x: !xfc.rows<source, 512xf32>, %p512: tensor<512xf32>, %p2048: tensor<2048xf32>, %w: tensor<2048x512xf32>, %b: tensor<2048xf32>) -> !xfc.rows<source, 2048xf32> {
  %xn, %xs = xfc.norm %x, %p512 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 512xf32>, tensor<512xf32>) -> (!xfc.rows<source, 512xf32>, !xfc.rows<source, 2xf32>)
  %0 = xfc.linear %xn, %w bias %b in bf16 : (!xfc.rows<source, 512xf32>, tensor<2048x512xf32>, tensor<2048xf32>) -> !xfc.rows<source, 2048xf32>
  %1, %s = xfc.norm %0, %p2048 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 2048xf32>, tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 2xf32>)
  return %1 : !xfc.rows<source, 2048xf32>
}

// The same blocks of the weight, read transposed: 16 of K are 16 lines. What is returned is f32.
// CHECK-LABEL: .visible .entry linear_input_grad_2048x512_bf16
// CHECK:       wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{.*}}, a, b, adds, 1, 1, 0, 1;
// CHECK-NEXT:  add.s32 lower, {{.*}}, 2;
// CHECK-NEXT:  mov.b32 upper, 1073741888;
// CHECK-NEXT:  mov.b64 a, {lower, upper};
// CHECK-NEXT:  add.s32 lower, {{.*}}, 128;
// CHECK-NEXT:  mov.b32 upper, 1073741888;
// CHECK-NEXT:  mov.b64 b, {lower, upper};
// CHECK:       st.global.v2.b32
func.func @input_grad(%dy: !xfc.rows<source, 2048xf32>, %p2048: tensor<2048xf32>, %w: tensor<2048x512xf32>) -> !xfc.rows<source, 512xf32> {
  %dyn, %dys = xfc.norm %dy, %p2048 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 2048xf32>, tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 2xf32>)
  %0 = xfc.linear_input_grad %dyn, %w in bf16 : (!xfc.rows<source, 2048xf32>, tensor<2048x512xf32>) -> !xfc.rows<source, 512xf32>
  return %0 : !xfc.rows<source, 512xf32>
}

// The gradient of a weight reads both operands transposed, by copies alone. Sums of dy are products with ones.
// CHECK-LABEL: .visible .entry linear_weight_grad_2048x512_bias_bf16(
// CHECK:       .reqntid 384
// CHECK-NOT:   .reqnctapercluster
// CHECK-COUNT-8: mbarrier.init.shared::cta.b64
// CHECK:       wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{.*}}, a, b, adds, 1, 1, 1, 1;
// CHECK:       wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{.*}}, adds, 1, 1, 1, 0;
// CHECK-NEXT:  add.s32 lower, {{.*}}, 128;
// CHECK-NEXT:  mov.b32 upper, 1073741888;
// CHECK-NEXT:  mov.b64 a, {lower, upper};
// CHECK-NEXT:  add.s32 lower, {{.*}}, 128;
// CHECK-NEXT:  mov.b32 upper, 1073741888;
// CHECK-NEXT:  mov.b64 b, {lower, upper};
// CHECK-NOT:   cp.async.bulk
// CHECK-COUNT-24: cp.async.cg.shared.global {{.*}}, 16,
// CHECK-NOT:   cp.async.c
func.func @weight_grad(%dy: !xfc.rows<source, 2048xf32>, %p2048: tensor<2048xf32>, %x: !xfc.rows<source, 512xf32>, %p512: tensor<512xf32>) -> (tensor<2048x512xf32>, tensor<2048xf32>) {
  %dyn, %dys = xfc.norm %dy, %p2048 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 2048xf32>, tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 2xf32>)
  %xn, %xs = xfc.norm %x, %p512 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 512xf32>, tensor<512xf32>) -> (!xfc.rows<source, 512xf32>, !xfc.rows<source, 2xf32>)
  %0, %1 = xfc.linear_weight_grad %dyn, %xn in bf16 : (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 512xf32>) -> (tensor<2048x512xf32>, tensor<2048xf32>)
  return %0, %1 : tensor<2048x512xf32>, tensor<2048xf32>
}

// Where wide tiles would leave most of a GPU idle, they are narrow.
// CHECK-LABEL: .visible .entry linear_weight_grad_512x512_bf16(
// CHECK:       wgmma.mma_async.sync.aligned.m64n128k16
func.func @small_weight_grad(%dy: !xfc.rows<source, 512xf32>, %x: !xfc.rows<source, 512xf32>, %p512: tensor<512xf32>) -> tensor<512x512xf32> {
  %dyn, %dys = xfc.norm %dy, %p512 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 512xf32>, tensor<512xf32>) -> (!xfc.rows<source, 512xf32>, !xfc.rows<source, 2xf32>)
  %xn, %xs = xfc.norm %x, %p512 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 512xf32>, tensor<512xf32>) -> (!xfc.rows<source, 512xf32>, !xfc.rows<source, 2xf32>)
  %0 = xfc.linear_weight_grad %dyn, %xn in bf16 : (!xfc.rows<source, 512xf32>, !xfc.rows<source, 512xf32>) -> tensor<512x512xf32>
  return %0 : tensor<512x512xf32>
}

// A loss walks through its vocabulary, 256 columns at a time, and keeps the logits in bf16 until they become their gradient.
// CHECK-LABEL: .visible .entry linear_cross_entropy_with_grad_32000x512_bf16(
// CHECK:       .reqnctapercluster 2, 1, 1
// CHECK:       wgmma.mma_async.sync.aligned.m64n256k16
// CHECK:       st.global.v4.b32
// CHECK:       ex2.approx.ftz.f32
// CHECK:       shfl.sync.bfly.b32
func.func @loss(%x: !xfc.rows<target, 512xf32>, %p512: tensor<512xf32>, %w: tensor<32000x512xf32>, %labels: !xfc.rows<target, i32>, %e: tensor<f32>, %d: !xfc.rows<target, f32>) -> (!xfc.rows<target, f32>, !xfc.rows<target, 512xf32>) {
  %xn, %xs = xfc.norm %x, %p512 {eps = 1.0e-5 : f64} : (!xfc.rows<target, 512xf32>, tensor<512xf32>) -> (!xfc.rows<target, 512xf32>, !xfc.rows<target, 2xf32>)
  %loss, %nll, %dlogits = xfc.linear_cross_entropy_with_grad %xn, %w, %labels, %e, %d in bf16 : (!xfc.rows<target, 512xf32>, tensor<32000x512xf32>, !xfc.rows<target, i32>, tensor<f32>, !xfc.rows<target, f32>) -> (!xfc.rows<target, f32>, !xfc.rows<target, f32>, !xfc.rows<target, 32000xf32>)
  %dx = xfc.linear_input_grad %dlogits, %w in bf16 : (!xfc.rows<target, 32000xf32>, tensor<32000x512xf32>) -> !xfc.rows<target, 512xf32>
  return %loss, %dx : !xfc.rows<target, f32>, !xfc.rows<target, 512xf32>
}

// Epilogues work on 64 columns at a time and do not spill.
func.func @relu_dropout(%x: !xfc.rows<source, 512xf32>, %p512: tensor<512xf32>, %p2048: tensor<2048xf32>, %w: tensor<2048x512xf32>, %b: tensor<2048xf32>) -> !xfc.rows<source, 2048xf32> {
  %xn, %xs = xfc.norm %x, %p512 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 512xf32>, tensor<512xf32>) -> (!xfc.rows<source, 512xf32>, !xfc.rows<source, 2xf32>)
  %0 = xfc.linear %xn, %w bias %b in bf16 {
  ^bb0(%y: !xfc.rows<source, 2048xf32>):
    %p = xfc.activation relu %y : <source, 2048xf32>
    %d = xfc.dropout %p {rate = 0.1, id = 9 : i64} : !xfc.rows<source, 2048xf32>
    xfc.yield %d : !xfc.rows<source, 2048xf32>
  } : (!xfc.rows<source, 512xf32>, tensor<2048x512xf32>, tensor<2048xf32>) -> !xfc.rows<source, 2048xf32>
  %1, %s = xfc.norm %0, %p2048 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 2048xf32>, tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 2xf32>)
  return %1 : !xfc.rows<source, 2048xf32>
}
func.func @dropout_residual(%x: !xfc.rows<source, 2048xf32>, %p2048: tensor<2048xf32>, %p512: tensor<512xf32>, %w: tensor<512x2048xf32>, %b: tensor<512xf32>, %r: !xfc.rows<source, 512xf32>) -> !xfc.rows<source, 512xf32> {
  %xn, %xs = xfc.norm %x, %p2048 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 2048xf32>, tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 2xf32>)
  %rn, %rs = xfc.norm %r, %p512 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 512xf32>, tensor<512xf32>) -> (!xfc.rows<source, 512xf32>, !xfc.rows<source, 2xf32>)
  %0 = xfc.linear %xn, %w bias %b with %rn in bf16 {
  ^bb0(%y: !xfc.rows<source, 512xf32>, %e: !xfc.rows<source, 512xf32>):
    %d = xfc.dropout %y {rate = 0.1, id = 9 : i64} : !xfc.rows<source, 512xf32>
    %s = xfc.add %d, %e : !xfc.rows<source, 512xf32>
    xfc.yield %s : !xfc.rows<source, 512xf32>
  } : (!xfc.rows<source, 2048xf32>, tensor<512x2048xf32>, tensor<512xf32>, !xfc.rows<source, 512xf32>) -> !xfc.rows<source, 512xf32>
  return %0 : !xfc.rows<source, 512xf32>
}
func.func @gelu(%x: !xfc.rows<source, 512xf32>, %p512: tensor<512xf32>, %w: tensor<2048x512xf32>, %b: tensor<2048xf32>, %p2048: tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 2048xf32>) {
  %xn, %xs = xfc.norm %x, %p512 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 512xf32>, tensor<512xf32>) -> (!xfc.rows<source, 512xf32>, !xfc.rows<source, 2xf32>)
  %0, %1 = xfc.linear %xn, %w bias %b in bf16 {
  ^bb0(%y: !xfc.rows<source, 2048xf32>):
    %p = xfc.activation gelu %y : <source, 2048xf32>
    xfc.yield %y, %p : !xfc.rows<source, 2048xf32>, !xfc.rows<source, 2048xf32>
  } : (!xfc.rows<source, 512xf32>, tensor<2048x512xf32>, tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 2048xf32>)
  %2, %s = xfc.norm %0, %p2048 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 2048xf32>, tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 2xf32>)
  return %1, %2 : !xfc.rows<source, 2048xf32>, !xfc.rows<source, 2048xf32>
}
func.func @relu_grad(%dy: !xfc.rows<source, 512xf32>, %p512: tensor<512xf32>, %w: tensor<512x2048xf32>, %x: !xfc.rows<source, 2048xf32>, %p2048: tensor<2048xf32>) -> !xfc.rows<source, 2048xf32> {
  %dyn, %dys = xfc.norm %dy, %p512 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 512xf32>, tensor<512xf32>) -> (!xfc.rows<source, 512xf32>, !xfc.rows<source, 2xf32>)
  %xn, %xs = xfc.norm %x, %p2048 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 2048xf32>, tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 2xf32>)
  %0 = xfc.linear_input_grad %dyn, %w with %xn in bf16 {
  ^bb0(%y: !xfc.rows<source, 2048xf32>, %e: !xfc.rows<source, 2048xf32>):
    %d = xfc.dropout %y {rate = 0.1, id = 3 : i64} : !xfc.rows<source, 2048xf32>
    %g = xfc.activation_grad relu %d, %e : <source, 2048xf32>
    xfc.yield %g : !xfc.rows<source, 2048xf32>
  } : (!xfc.rows<source, 512xf32>, tensor<512x2048xf32>, !xfc.rows<source, 2048xf32>) -> !xfc.rows<source, 2048xf32>
  %1, %s = xfc.norm %0, %p2048 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 2048xf32>, tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 2xf32>)
  return %1 : !xfc.rows<source, 2048xf32>
}

// Rows of 40 features are less than a stage, and 136 columns less than a tile.
func.func @narrow(%x: !xfc.rows<source, 40xf32>, %p40: tensor<40xf32>, %p136: tensor<136xf32>, %w: tensor<136x40xf32>) -> !xfc.rows<source, 136xf32> {
  %xn, %xs = xfc.norm %x, %p40 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 40xf32>, tensor<40xf32>) -> (!xfc.rows<source, 40xf32>, !xfc.rows<source, 2xf32>)
  %0 = xfc.linear %xn, %w in bf16 : (!xfc.rows<source, 40xf32>, tensor<136x40xf32>) -> !xfc.rows<source, 136xf32>
  %1, %s = xfc.norm %0, %p136 {eps = 1.0e-5 : f64} : (!xfc.rows<source, 136xf32>, tensor<136xf32>) -> (!xfc.rows<source, 136xf32>, !xfc.rows<source, 2xf32>)
  return %1 : !xfc.rows<source, 136xf32>
}
