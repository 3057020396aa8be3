// bf16 products on sm_90a: warpgroups multiply, asynchronous copies signal mbarriers when they complete, and two thread blocks share the weight.
//
// RUN: %xfc-ptx %s --arch sm_90a > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: FileCheck %s --check-prefix=ALL < %t.ptx
// RUN: FileCheck %s --check-prefix=LAST < %t.ptx
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_90a %}
// No loop flushes stores or invalidates the L1 cache, as barriers of cluster scope would (Warpgroup.cpp says why they do not need that scope).
// RUN: %if nvdisasm %{ %python3 %S/Inputs/loops.py %t.ptx sm_90a HGMMA --without MEMBAR CCTL ERRBAR CGAERRBAR FENCE %}

// ALL-NOT: .local
// ALL-NOT: mma.sync

// CHECK-LABEL: .visible .entry linear_2048x512_bf16(
// CHECK:       .reqntid 384
// CHECK-NEXT:  .maxnreg 168
// CHECK:       .reqnctapercluster 2, 1, 1
// Each of three stages has two barriers, whose initialization the whole cluster sees before any of them is used.
// CHECK-COUNT-6: mbarrier.init.shared::cta.b64
// CHECK-NOT:   mbarrier.init
// CHECK:       fence.mbarrier_init.release.cluster
// CHECK:       barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned
// Consumers: rows of 64 of K come from shared memory and are rounded before the first of four products; after all four, the stage is released to both blocks.
// CHECK:       setmaxnreg.inc.sync.aligned.u32 224
// CHECK:       mbarrier.try_wait.parity.acquire.cta.shared::cta.b64
// CHECK-COUNT-16: ld.shared.v2.b32
// CHECK:       wgmma.fence.sync.aligned
// CHECK-NEXT:  wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{.*}}, b, adds, 1, 1, 0;
// CHECK-NEXT:  add.s64 b, b, 2;
// CHECK-NEXT:  wgmma.mma_async
// CHECK-NEXT:  add.s64
// CHECK-NEXT:  wgmma.mma_async
// CHECK-NEXT:  add.s64
// CHECK-NEXT:  wgmma.mma_async
// CHECK-NEXT:  wgmma.commit_group.sync.aligned
// CHECK-NEXT:  wgmma.wait_group.sync.aligned 0
// CHECK:       mapa.shared::cluster.u64 {{.*}} mbarrier.arrive.release.cta.shared::cluster.b64
// CHECK:       st.global.v2.b32
// Producers: a thread block multicasts its half of four blocks of the weight to both, and copies rows by 16 bytes, or by 4.
// CHECK:       setmaxnreg.dec.sync.aligned.u32 56
// CHECK-DAG:   mbarrier.arrive.expect_tx.shared::cta.b64
// CHECK-DAG:   cp.async.mbarrier.arrive.noinc.shared::cta.b64
// CHECK-COUNT-4: cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
// CHECK-NOT:   cp.async.bulk
// CHECK-COUNT-16: cp.async.cg.shared.global {{.*}}, 16,
// Neither thread block exits before both are done.
// LAST-LABEL:  .visible .entry linear_2048x512_bf16(
// LAST-COUNT-2: barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned
// LAST-NOT:    barrier.cluster
// LAST-LABEL:  .visible .entry pack_blocks_bf16_2048x512(
func.func @linear(%x: !xfc.rows<source, 512xf32>, %w: tensor<2048x512xf32>, %b: tensor<2048xf32>) -> !xfc.rows<source, 2048xf32> {
  %0 = xfc.linear %x, %w bias %b in bf16 : (!xfc.rows<source, 512xf32>, tensor<2048x512xf32>, tensor<2048xf32>) -> !xfc.rows<source, 2048xf32>
  return %0 : !xfc.rows<source, 2048xf32>
}

// The same blocks of the weight, read transposed: 16 of K are 16 lines.
// CHECK-LABEL: .visible .entry linear_input_grad_2048x512_bf16
// CHECK:       wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{.*}}, b, adds, 1, 1, 1;
// CHECK-NEXT:  add.s64 b, b, 128;
func.func @input_grad(%dy: !xfc.rows<source, 2048xf32>, %w: tensor<2048x512xf32>) -> !xfc.rows<source, 512xf32> {
  %0 = xfc.linear_input_grad %dy, %w in bf16 : (!xfc.rows<source, 2048xf32>, tensor<2048x512xf32>) -> !xfc.rows<source, 512xf32>
  return %0 : !xfc.rows<source, 512xf32>
}

// Epilogues work on 64 columns at a time and do not spill.
func.func @relu_dropout(%x: !xfc.rows<source, 512xf32>, %w: tensor<2048x512xf32>, %b: tensor<2048xf32>) -> !xfc.rows<source, 2048xf32> {
  %0 = xfc.linear %x, %w bias %b in bf16 {
  ^bb0(%y: !xfc.rows<source, 2048xf32>):
    %p = xfc.activation relu %y : <source, 2048xf32>
    %d = xfc.dropout %p {rate = 0.1, id = 9 : i64} : !xfc.rows<source, 2048xf32>
    xfc.yield %d : !xfc.rows<source, 2048xf32>
  } : (!xfc.rows<source, 512xf32>, tensor<2048x512xf32>, tensor<2048xf32>) -> !xfc.rows<source, 2048xf32>
  return %0 : !xfc.rows<source, 2048xf32>
}
func.func @dropout_residual(%x: !xfc.rows<source, 2048xf32>, %w: tensor<512x2048xf32>, %b: tensor<512xf32>, %r: !xfc.rows<source, 512xf32>) -> !xfc.rows<source, 512xf32> {
  %0 = xfc.linear %x, %w bias %b with %r in bf16 {
  ^bb0(%y: !xfc.rows<source, 512xf32>, %e: !xfc.rows<source, 512xf32>):
    %d = xfc.dropout %y {rate = 0.1, id = 9 : i64} : !xfc.rows<source, 512xf32>
    %s = xfc.add %d, %e : !xfc.rows<source, 512xf32>
    xfc.yield %s : !xfc.rows<source, 512xf32>
  } : (!xfc.rows<source, 2048xf32>, tensor<512x2048xf32>, tensor<512xf32>, !xfc.rows<source, 512xf32>) -> !xfc.rows<source, 512xf32>
  return %0 : !xfc.rows<source, 512xf32>
}
func.func @gelu(%x: !xfc.rows<source, 512xf32>, %w: tensor<2048x512xf32>, %b: tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 2048xf32>) {
  %0, %1 = xfc.linear %x, %w bias %b in bf16 {
  ^bb0(%y: !xfc.rows<source, 2048xf32>):
    %p = xfc.activation gelu %y : <source, 2048xf32>
    xfc.yield %y, %p : !xfc.rows<source, 2048xf32>, !xfc.rows<source, 2048xf32>
  } : (!xfc.rows<source, 512xf32>, tensor<2048x512xf32>, tensor<2048xf32>) -> (!xfc.rows<source, 2048xf32>, !xfc.rows<source, 2048xf32>)
  return %0, %1 : !xfc.rows<source, 2048xf32>, !xfc.rows<source, 2048xf32>
}
func.func @relu_grad(%dy: !xfc.rows<source, 512xf32>, %w: tensor<512x2048xf32>, %x: !xfc.rows<source, 2048xf32>) -> !xfc.rows<source, 2048xf32> {
  %0 = xfc.linear_input_grad %dy, %w with %x in bf16 {
  ^bb0(%y: !xfc.rows<source, 2048xf32>, %e: !xfc.rows<source, 2048xf32>):
    %d = xfc.dropout %y {rate = 0.1, id = 3 : i64} : !xfc.rows<source, 2048xf32>
    %g = xfc.activation_grad relu %d, %e : <source, 2048xf32>
    xfc.yield %g : !xfc.rows<source, 2048xf32>
  } : (!xfc.rows<source, 512xf32>, tensor<512x2048xf32>, !xfc.rows<source, 2048xf32>) -> !xfc.rows<source, 2048xf32>
  return %0 : !xfc.rows<source, 2048xf32>
}

// Odd widths rule out vector accesses.
func.func @odd(%x: !xfc.rows<source, 33xf32>, %w: tensor<131x33xf32>) -> !xfc.rows<source, 131xf32> {
  %0 = xfc.linear %x, %w in bf16 : (!xfc.rows<source, 33xf32>, tensor<131x33xf32>) -> !xfc.rows<source, 131xf32>
  return %0 : !xfc.rows<source, 131xf32>
}
