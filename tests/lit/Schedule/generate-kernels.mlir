// RUN: %xfc-opt %s --xfc-outline-kernels --xfc-generate-kernels | FileCheck %s
// RUN: %xfc-opt %s --xfc-outline-kernels --xfc-generate-kernels | %xfc-opt | FileCheck %s

// Without a target a kernel is one chunk.
// CHECK: plan.kernel @add_8 attributes {partition = #plan.partition<one per 1 times 1>} {
// CHECK-NEXT: ^bb0
func.func @forward(%a: !xfc.rows<source, 8xf32>) -> !xfc.rows<source, 8xf32> {
  %s = xfc.add %a, %a : !xfc.rows<source, 8xf32>
  return %s : !xfc.rows<source, 8xf32>
}
