// Each launch of a decoding step with a persistent kernel lists the launches that it waits for: those whose memory it shares, unless
// another one has waited for them.
//
// RUN: %xfc-opt %s --xfc-schedule=target=sm_80 -o %t.mlir
// RUN: FileCheck %s --input-file=%t.mlir

!rows = !xfc.rows<target, 64xf32>
!both = !xfc.rows<target, 128xf32>
!cache = !xfc.rows<cache, 64xf32>
!w = tensor<64x64xf32>

xfc.parameter @q : !w init zero
xfc.parameter @k : tensor<128x64xf32> init zero
xfc.parameter @v : !w init zero

// 0 and 1 read the same rows. The two parts of what 1 writes are changed (2, 3) and kept (4, 5) without waiting for each other, each
// after what it reads alone. 6 reads both caches, and q. 7 waits for 6, which came after all others.
// CHECK-LABEL: plan.program @step({{.*}} attributes {persistent = @decoding_steps{{[,}]}}
// CHECK:      plan.launch @linear_64x64{{[a-z_0-9]*}}({{.*}}) over target at
// CHECK-NOT:  after
// CHECK:      plan.launch @linear_128x64{{[a-z_0-9]*}}({{.*}}) over target at
// CHECK-NOT:  after
// CHECK:      plan.launch @relu_64({{.*}}after = array<i32: 1>
// CHECK:      plan.launch @tanh_64({{.*}}after = array<i32: 1>
// CHECK:      plan.launch @cache_write_64({{.*}}after = array<i32: 2>
// CHECK:      plan.launch @cache_write_64({{.*}}after = array<i32: 3>
// CHECK:      plan.launch @attention_64{{[a-z_0-9]*}}({{.*}}after = array<i32: 0, 4, 5>
// CHECK:      plan.launch @linear_64x64{{[a-z_0-9]*}}({{.*}}after = array<i32: 6>
func.func @step(%x: !rows {xfc.name = "x", xfc.role = "input"}, %q: !w {xfc.name = "q", xfc.role = "parameter"},
                %k: tensor<128x64xf32> {xfc.name = "k", xfc.role = "parameter"}, %v: !w {xfc.name = "v", xfc.role = "parameter"},
                %kc: !cache {xfc.name = "k", xfc.role = "state"}, %vc: !cache {xfc.name = "v", xfc.role = "state"})
    -> (!rows {xfc.name = "y"}, !cache {xfc.name = "k", xfc.alias = 4 : i64}, !cache {xfc.name = "v", xfc.alias = 5 : i64}) {
  %a = xfc.linear %x, %q : (!rows, !w) -> !rows
  %b = xfc.linear %x, %k : (!rows, tensor<128x64xf32>) -> !both
  %p:2 = xfc.split %b : (!both) -> (!rows, !rows)
  %c = xfc.activation relu %p#0 : !rows
  %d = xfc.activation tanh %p#1 : !rows
  %kn = xfc.cache_write %kc, %c : (!cache, !rows) -> !cache
  %vn = xfc.cache_write %vc, %d : (!cache, !rows) -> !cache
  %e, %s = xfc.attention %a, %kn, %vn {heads = 2 : i64, scale = 0.125} : (!rows, !cache, !cache) -> (!rows, !xfc.rows<target, 2xf32>)
  %y = xfc.linear %e, %v : (!rows, !w) -> !rows
  return %y, %kn, %vn : !rows, !cache, !cache
}

// 2 reads nothing that 0 or 1 makes. But it may write where 1 reads, since what 0 made is not live any more.
// CHECK-LABEL: plan.program @reuse(
// CHECK:      plan.launch @relu_64({{.*}} at [argument 0 by 64, arena [[A:[0-9]+]] by 64]
// CHECK-NOT:  after
// CHECK:      plan.launch @linear_64x64{{[a-z_0-9]*}}({{.*}} at [arena [[A]] by 64, {{.*}}after = array<i32: 0>
// CHECK:      plan.launch @tanh_64({{.*}}after = array<i32: 1>
// CHECK:      plan.launch @linear_64x64{{[a-z_0-9]*}}({{.*}}after = array<i32: 2>
func.func @reuse(%x: !rows {xfc.name = "x", xfc.role = "input"}, %q: !w {xfc.name = "q", xfc.role = "parameter"},
                 %kc: !cache {xfc.name = "k", xfc.role = "state"}) -> (!rows {xfc.name = "y"}, !rows {xfc.name = "z"}) {
  %a = xfc.activation relu %x : !rows
  %y = xfc.linear %a, %q : (!rows, !w) -> !rows
  %c = xfc.activation tanh %x : !rows
  %z = xfc.linear %c, %q : (!rows, !w) -> !rows
  return %y, %z : !rows, !rows
}
