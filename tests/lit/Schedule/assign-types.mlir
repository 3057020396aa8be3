// Which rows are stored in bf16: those that a kernel makes in a function that multiplies in bf16, but for statistics, losses, arguments,
// results, rows of odd widths, and all rows of a decoding step. A target that takes no such rows keeps f32.
//
// RUN: %xfc-opt %s --xfc-kernels=target=sm_90a | FileCheck %s --check-prefixes=CHECK,GPU
// RUN: %xfc-opt %s --xfc-kernels=target=sm_80 | FileCheck %s --check-prefixes=CHECK,GPU
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4+amx | FileCheck %s --check-prefixes=CHECK,AMX
// RUN: %xfc-opt %s --xfc-types="target=sm_90a wide-residual" | FileCheck %s --check-prefix=RESIDUAL
// RUN: %xfc-opt %s --xfc-types="target=x86-64-v4+amx wide-residual" | FileCheck %s --check-prefix=RESIDUAL
// RUN: %xfc-opt %s --xfc-types=target=sm_90a | FileCheck %s --check-prefix=NARROW
// RUN: %xfc-opt %s --xfc-types=target=x86-64-v4+bf16 | FileCheck %s --check-prefix=WIDE
// RUN: %xfc-opt %s --xfc-types=target=x86-64-v3 | FileCheck %s --check-prefix=WIDE
// RUN: %xfc-opt %s --xfc-assign-types | FileCheck %s --check-prefix=WIDE
// WIDE-NOT: rows<{{.*}}bf16>

!rows = !xfc.rows<source, 64xf32>
!wide = !xfc.rows<source, 192xf32>
!odd = !xfc.rows<source, 66xf32>
!stats = !xfc.rows<source, 2xf32>
!heads = !xfc.rows<source, 8xf32>
!half = !xfc.rows<source, 32xf32>

// The row of an epilogue is computed in f32. What is returned is f32, and so are the parts and the whole of a view if one of them is.
// CHECK-LABEL: plan.program @block
// CHECK:         -> (!xfc.rows<source, 64xbf16>, !xfc.rows<source, 2xf32>)
// CHECK:         @linear_192x64_bf16{{.*}} : (!xfc.rows<source, 64xbf16>, tensor<192x64xf32>) -> !xfc.rows<source, 192xbf16>
// CHECK:         @attention_64_bf16{{.*}} : (!xfc.rows<source, 64xbf16>, !xfc.rows<source, 64xbf16>, !xfc.rows<source, 64xbf16>) -> (!xfc.rows<source, 64xbf16>, !xfc.rows<source, 8xf32>)
// CHECK:         @linear_64x64_bf16{{.*}} : (!xfc.rows<source, 64xbf16>, tensor<64x64xf32>) -> !xfc.rows<source, 64xf32>
func.func @block(%x: !rows {xfc.name = "x", xfc.role = "input"}, %n: tensor<64xf32> {xfc.name = "n", xfc.role = "parameter"},
                 %w: tensor<192x64xf32> {xfc.name = "w", xfc.role = "parameter"}, %o: tensor<64x64xf32> {xfc.name = "o", xfc.role = "parameter"}) -> !rows {
  %y, %s = xfc.norm %x, %n {eps = 1.0e-5 : f64} : (!rows, tensor<64xf32>) -> (!rows, !stats)
  %qkv = xfc.linear %y, %w in bf16 : (!rows, tensor<192x64xf32>) -> !wide
  %q, %k, %v = xfc.split %qkv : (!wide) -> (!rows, !rows, !rows)
  %a, %lse = xfc.attention %q, %k, %v in bf16 {heads = 8 : i64, scale = 0.35 : f64} : (!rows, !rows, !rows) -> (!rows, !heads)
  %z = xfc.linear %a, %o in bf16 : (!rows, tensor<64x64xf32>) -> !rows
  return %z : !rows
}

// CHECK-LABEL: plan.program @odd
// CHECK-NOT:     66xbf16
func.func @odd(%x: !odd {xfc.name = "x", xfc.role = "input"}, %n: tensor<66xf32> {xfc.name = "n66", xfc.role = "parameter"},
               %w: tensor<66x66xf32> {xfc.name = "w66", xfc.role = "parameter"}) -> !odd {
  %y, %s = xfc.norm %x, %n {eps = 1.0e-5 : f64} : (!odd, tensor<66xf32>) -> (!odd, !stats)
  %z = xfc.linear %y, %w in bf16 : (!odd, tensor<66x66xf32>) -> !odd
  return %z : !odd
}

// CHECK-LABEL: plan.program @f32
// CHECK-NOT:     rows<source, 64xbf16
func.func @f32(%x: !rows {xfc.name = "x", xfc.role = "input"}, %n: tensor<64xf32> {xfc.name = "n", xfc.role = "parameter"},
               %o: tensor<64x64xf32> {xfc.name = "o", xfc.role = "parameter"}) -> !rows {
  %y, %s = xfc.norm %x, %n {eps = 1.0e-5 : f64} : (!rows, tensor<64xf32>) -> (!rows, !stats)
  %z = xfc.linear %y, %o : (!rows, tensor<64x64xf32>) -> !rows
  return %z : !rows
}

!target = !xfc.rows<target, 64xf32>

// CHECK-LABEL: plan.program @step
// CHECK-NOT:     rows<target, 64xbf16
func.func @step(%x: !target {xfc.name = "x", xfc.role = "input"}, %n: tensor<64xf32> {xfc.name = "n", xfc.role = "parameter"},
                %o: tensor<64x64xf32> {xfc.name = "o", xfc.role = "parameter"}, %c: !xfc.rows<cache, 64xf32> {xfc.name = "c", xfc.role = "state"}) -> !target {
  %y, %s = xfc.norm %x, %n {eps = 1.0e-5 : f64} : (!target, tensor<64xf32>) -> (!target, !xfc.rows<target, 2xf32>)
  %z = xfc.linear %y, %o in bf16 : (!target, tensor<64x64xf32>) -> !target
  return %z : !target
}

// Gradients of keys that several heads share are sums, which a CPU adds up where they are stored.
// CHECK-LABEL: plan.program @shared
// CHECK:         @attention_grad_{{.*}} : (!xfc.rows<source, 64xbf16>, !xfc.rows<source, 64xbf16>, !xfc.rows<source, 32xbf16>
// GPU-SAME:      -> (!xfc.rows<source, 64xbf16>, !xfc.rows<source, 32xbf16>, !xfc.rows<source, 32xbf16>)
// AMX-SAME:      -> (!xfc.rows<source, 64xbf16>, !xfc.rows<source, 32xf32>, !xfc.rows<source, 32xf32>)
func.func @shared(%x: !rows {xfc.name = "x", xfc.role = "input"}, %w: tensor<64x64xf32> {xfc.name = "w64", xfc.role = "parameter"},
                  %v: tensor<32x64xf32> {xfc.name = "w32", xfc.role = "parameter"}) -> (tensor<64x64xf32>, tensor<32x64xf32>, tensor<32x64xf32>) {
  %q = xfc.linear %x, %w in bf16 : (!rows, tensor<64x64xf32>) -> !rows
  %k = xfc.linear %x, %v in bf16 : (!rows, tensor<32x64xf32>) -> !half
  %a, %lse = xfc.attention %q, %k, %k in bf16 {heads = 2 : i64, scale = 0.35 : f64} : (!rows, !half, !half) -> (!rows, !xfc.rows<source, 2xf32>)
  %dq, %dk, %dv = xfc.attention_grad %a, %q, %k, %k, %a, %lse in bf16 {heads = 2 : i64, scale = 0.35 : f64} : (!rows, !rows, !half, !half, !rows, !xfc.rows<source, 2xf32>) -> (!rows, !half, !half)
  %wq = xfc.linear_weight_grad %dq, %x in bf16 : (!rows, !rows) -> tensor<64x64xf32>
  %wk = xfc.linear_weight_grad %dk, %x in bf16 : (!half, !rows) -> tensor<32x64xf32>
  %wv = xfc.linear_weight_grad %dv, %x in bf16 : (!half, !rows) -> tensor<32x64xf32>
  return %wq, %wk, %wv : tensor<64x64xf32>, tensor<32x64xf32>, tensor<32x64xf32>
}

// The residual stream begins with a sum of rows, and goes on with the sums of add_norm; its gradient is what norm_grad adds to. What is not
// part of it, norms' results and the rows of products, is narrow all the same.
// RESIDUAL-LABEL: func.func @residual
// RESIDUAL: xfc.linear {{.*}} -> !xfc.rows<source, 64xbf16>
// RESIDUAL: xfc.add {{.*}} : !xfc.rows<source, 64xf32>
// RESIDUAL: xfc.linear {{.*}} -> !xfc.rows<source, 64xbf16>
// RESIDUAL: xfc.add_norm {{.*}} : (!xfc.rows<source, 64xbf16>, !xfc.rows<source, 64xf32>, tensor<64xf32>) -> (!xfc.rows<source, 64xbf16>, !xfc.rows<source, 64xf32>, !xfc.rows<source, 2xf32>)
// RESIDUAL: xfc.linear_input_grad {{.*}} -> !xfc.rows<source, 64xbf16>
// RESIDUAL: xfc.norm_grad {{.*}} : (!xfc.rows<source, 64xbf16>, !xfc.rows<source, 64xf32>, tensor<64xf32>, !xfc.rows<source, 2xf32>) -> !xfc.rows<source, 64xf32>
// RESIDUAL: xfc.norm_grad {{.*}} : (!xfc.rows<source, 64xbf16>, !xfc.rows<source, 64xf32>, tensor<64xf32>, !xfc.rows<source, 2xf32>, !xfc.rows<source, 64xf32>) -> !xfc.rows<source, 64xf32>
// NARROW-LABEL: func.func @residual
// NARROW: xfc.add {{.*}} : !xfc.rows<source, 64xbf16>
// NARROW: xfc.add_norm {{.*}} -> (!xfc.rows<source, 64xbf16>, !xfc.rows<source, 64xbf16>, !xfc.rows<source, 2xf32>)
// NARROW: xfc.norm_grad {{.*}} -> !xfc.rows<source, 64xbf16>
// NARROW: xfc.norm_grad {{.*}} -> !xfc.rows<source, 64xbf16>
func.func @residual(%x: !rows {xfc.name = "x", xfc.role = "input"}, %n: tensor<64xf32> {xfc.name = "n", xfc.role = "parameter"},
                    %o: tensor<64x64xf32> {xfc.name = "o", xfc.role = "parameter"}) -> !rows {
  %y = xfc.linear %x, %o in bf16 : (!rows, tensor<64x64xf32>) -> !rows
  %u = xfc.linear %x, %o in bf16 : (!rows, tensor<64x64xf32>) -> !rows
  %e = xfc.dropout %u {id = 1 : i64, rate = 0.1 : f64} : !rows
  %r = xfc.dropout %u {id = 2 : i64, rate = 0.1 : f64} : !rows
  %a = xfc.add %e, %r : !rows
  %z = xfc.linear %y, %o in bf16 : (!rows, tensor<64x64xf32>) -> !rows
  %b, %sum, %s = xfc.add_norm %z, %a, %n {eps = 1.0e-5 : f64} : (!rows, !rows, tensor<64xf32>) -> (!rows, !rows, !stats)
  %d = xfc.linear_input_grad %b, %o in bf16 : (!rows, tensor<64x64xf32>) -> !rows
  %g = xfc.norm_grad %d, %sum, %n, %s {eps = 1.0e-5 : f64} : (!rows, !rows, tensor<64xf32>, !stats) -> !rows
  %h = xfc.norm_grad %d, %sum, %n, %s, %g {eps = 1.0e-5 : f64} : (!rows, !rows, tensor<64xf32>, !stats, !rows) -> !rows
  %l = xfc.dropout %h {id = 2 : i64, rate = 0.1 : f64} : !rows
  %w = xfc.linear %l, %o in bf16 : (!rows, tensor<64x64xf32>) -> !rows
  return %w : !rows
}
