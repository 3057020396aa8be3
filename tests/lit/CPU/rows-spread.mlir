// Where products are by tiles, rows of bf16 that would begin at multiples of 1 KB begin a cache line further apart. Other rows
// are dense, and so are all rows of other instruction sets.
//
// RUN: %xfc-opt %s --xfc-schedule=target=x86-64-v4+amx | FileCheck %s
// RUN: %xfc-opt %s --xfc-schedule=target=x86-64-v4+bf16 | FileCheck %s --check-prefix=DENSE

!x = !xfc.rows<source, 64xf32>
!y = !xfc.rows<source, 512xf32>

// CHECK:       plan.buffer 0 : <1088 source>
// CHECK:       plan.buffer 1 : <256 source>
// CHECK:       plan.launch @linear_512x64_bf16{{.*}} at [argument {{[0-9]+}} by 64, {{.*}}, arena 0 by 544]
// CHECK:       plan.launch @relu_512{{.*}} at [arena 0 by 544, arena 0 by 544]
// CHECK:       plan.launch @linear_64x512_bf16{{.*}} at [arena 0 by 544, {{.*}}, arena 1 by 64]
// DENSE:       plan.buffer 0 : <2048 source>
// DENSE:       plan.launch @linear_512x64_bf16{{.*}}, arena 0 by 512]
xfc.parameter @w : tensor<512x64xf32> init zero
xfc.parameter @v : tensor<64x512xf32> init zero
func.func @f(%x: !x {xfc.name = "x", xfc.role = "input"}, %w: tensor<512x64xf32> {xfc.name = "w", xfc.role = "parameter"},
             %v: tensor<64x512xf32> {xfc.name = "v", xfc.role = "parameter"}) -> !x {
  %a = xfc.linear %x, %w in bf16 : (!x, tensor<512x64xf32>) -> !y
  %b = xfc.activation relu %a : !y
  %c = xfc.linear %b, %v in bf16 : (!y, tensor<64x512xf32>) -> !x
  return %c : !x
}
