// RUN: %xfc-opt %s --xfc-set-cache-type=type=bf16 -o %t 2>&1 | FileCheck %s --check-prefix=SAID
// RUN: FileCheck %s < %t
// RUN: %xfc-opt %s --xfc-set-cache-type="type=bf16 where-rounded" -o %t 2>&1 | FileCheck %s --check-prefix=SILENT --allow-empty
// RUN: FileCheck %s < %t
// Keys and values with 4 features stay as they are, in the programs of two types. It is said once, and only to those who asked for another
// type.

!s = !xfc.rows<source, 4xf32>
!t = !xfc.rows<target, 4xf32>
!lse = !xfc.rows<target, 2xf32>

// SAID: set-cache-type-stays.mlir:[[@LINE+4]]:1: warning: cache type bf16: no keys and values have a multiple of 8 features; all of them stay f32
// SAID-NOT: warning
// SILENT-NOT: {{.}}
// CHECK-NOT: bf16>
func.func @encode(%k: !s {xfc.name = "source", xfc.role = "input"}) -> (!s {xfc.name = "cross.k"}) {
  return %k : !s
}
func.func @decode_step(%q: !t {xfc.name = "target", xfc.role = "input"}, %k: !s {xfc.name = "cross.k", xfc.role = "input"},
                       %w: tensor<4x4xf32> {xfc.name = "w", xfc.role = "parameter"}) -> !t {
  %a, %l = xfc.attention %q, %k, %k {heads = 2 : i64, scale = 1.0} : (!t, !s, !s) -> (!t, !lse)
  %y = xfc.linear %a, %w in int8 : (!t, tensor<4x4xf32>) -> !t
  return %y : !t
}
func.func @encode.bf16(%k: !s {xfc.name = "source", xfc.role = "input"}) -> (!s {xfc.name = "cross.k"}) {
  return %k : !s
}
func.func @decode_step.bf16(%q: !t {xfc.name = "target", xfc.role = "input"}, %k: !s {xfc.name = "cross.k", xfc.role = "input"},
                            %w: tensor<4x4xf32> {xfc.name = "w", xfc.role = "parameter"}) -> !t {
  %a, %l = xfc.attention %q, %k, %k {heads = 2 : i64, scale = 1.0} : (!t, !s, !s) -> (!t, !lse)
  %y = xfc.linear %a, %w in bf16 : (!t, tensor<4x4xf32>) -> !t
  return %y : !t
}
