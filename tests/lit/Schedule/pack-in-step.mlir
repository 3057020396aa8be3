// RUN: %xfc-opt %s --xfc-pack-in-step | FileCheck %s
// RUN: %xfc-opt %s --xfc-pack-in-step | %xfc-opt | FileCheck %s
// RUN: %xfc-opt %s --xfc-pack-in-step --xfc-assign-buffers --xfc-pack-weights | FileCheck %s --check-prefix=PLACES

!rows = !xfc.rows<source, 4xf32>
!w = tensor<4x4xf32>

xfc.parameter @v : !w init zero
xfc.parameter @w : !w init zero
plan.parameters 32 x f32 {
  plan.parameter @v at 0
  plan.parameter @w at 16
}

plan.kernel @linear attributes {partition = #plan.partition<rows per 32 times 1>, packing = [unit, @pack_transposed_4x4]} {
^bb0(%x: !rows, %w: !w):
  %y = xfc.linear %x, %w : (!rows, !w) -> !rows
  plan.return %y : !rows
}
plan.pack_kernel @pack_transposed_4x4 of tensor<4x4xf32> {transposed, bytes = 256, chunks = 1}
plan.kernel @input_grad attributes {partition = #plan.partition<rows per 32 times 1>, packing = [unit, @pack_4x4]} {
^bb0(%x: !rows, %w: !w):
  %y = xfc.linear_input_grad %x, %w : (!rows, !w) -> !rows
  plan.return %y : !rows
}
plan.pack_kernel @pack_4x4 of tensor<4x4xf32> {bytes = 128, chunks = 1}
plan.kernel @linear_bf16 attributes {partition = #plan.partition<rows per 32 times 1>, packing = [unit, @pack_transposed_bf16_4x4]} {
^bb0(%x: !rows, %w: !w):
  %y = xfc.linear %x, %w in bf16 : (!rows, !w) -> !rows
  plan.return %y : !rows
}
plan.pack_kernel @pack_transposed_bf16_4x4 of tensor<4x4xf32> in bf16 {transposed, bytes = 128, chunks = 1}

// Each launch has a copy of its own, in the arena. What is rounded is kept.
// CHECK-LABEL: plan.program @loss_and_gradients(
// CHECK-NEXT: %[[P:.*]] = plan.launch @pack_transposed_4x4(%arg1) over source {flops = #plan.size<0>, traffic = #plan.size<320>} : (tensor<4x4xf32>) -> tensor<64xf32>
// CHECK-NEXT: %[[A:.*]] = plan.launch @linear(%arg0, %[[P]])
// CHECK-NEXT: %[[Q:.*]] = plan.launch @pack_4x4(%arg1) over source {flops = #plan.size<0>, traffic = #plan.size<192>} : (tensor<4x4xf32>) -> tensor<32xf32>
// CHECK-NEXT: %[[B:.*]] = plan.launch @input_grad(%[[A]], %[[Q]])
// CHECK-NEXT: plan.launch @linear_bf16(%[[B]], %arg2)
// PLACES: plan.packed_weight 0 = @pack_transposed_bf16_4x4(parameters + 0)
// PLACES: plan.packed_weight 1 = @pack_transposed_4x4(parameters + 64)
// PLACES-LABEL: plan.program @loss_and_gradients
// PLACES-NEXT: plan.buffer 0 : <256> from 0 to 1
// PLACES-NEXT: plan.buffer 1 : <16 source> from 1 to 3
// PLACES-NEXT: plan.buffer 2 : <128> from 2 to 3
// PLACES: plan.launch @pack_transposed_4x4(%arg1) over source at [parameters + 64, arena 0]
// PLACES: plan.launch @linear({{.*}}) over source at [argument 0 by 4, arena 0, arena 1 by 4]
// PLACES: plan.launch @pack_4x4(%arg1) over source at [parameters + 64, arena 2]
// PLACES: plan.launch @input_grad({{.*}}) over source at [arena 1 by 4, arena 2, arena 3 by 4]
// PLACES: plan.launch @linear_bf16({{.*}}) over source at [arena 3 by 4, packed 0, arena 4 by 4]
plan.program @loss_and_gradients(%x: !rows {xfc.name = "x", xfc.role = "input"}, %w: !w {xfc.name = "w", xfc.role = "parameter"}, %v: !w {xfc.name = "v", xfc.role = "parameter"}) -> !rows {
  %a = plan.launch @linear(%x, %w) over source {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows, !w) -> !rows
  %b = plan.launch @input_grad(%a, %w) over source {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows, !w) -> !rows
  %c = plan.launch @linear_bf16(%b, %v) over source {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows, !w) -> !rows
  plan.return %c : !rows
}

// Other programs read a copy that is kept.
// CHECK-LABEL: plan.program @score
// CHECK-NEXT: plan.launch @linear(%arg0, %arg1)
// PLACES-LABEL: plan.program @score
// PLACES: plan.launch @linear({{.*}}) over source at [argument 0 by 4, packed 1, arena 0 by 4]
plan.program @score(%x: !rows {xfc.name = "x", xfc.role = "input"}, %w: !w {xfc.name = "w", xfc.role = "parameter"}) -> !rows {
  %a = plan.launch @linear(%x, %w) over source {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows, !w) -> !rows
  plan.return %a : !rows
}
