// RUN: %xfc-opt %s --split-input-file --verify-diagnostics --xfc-pack-weights

!rows = !xfc.rows<source, 4xf32>
!w = tensor<4x4xf32>

plan.parameters 16 x f32 {
}
plan.kernel @linear attributes {packing = [unit, @pack]} {
^bb0(%x: !rows, %w: !w):
  %y = xfc.linear %x, %w : (!rows, !w) -> !rows
  plan.return %y : !rows
}
plan.pack_kernel @pack of tensor<4x4xf32> {transposed, bytes = 256, chunks = 1}
plan.program @weight_of_the_batch(%x: !rows, %w: !w) -> !rows {
  plan.buffer 0 : <16 source> from 0 to 1
  // expected-error@+1 {{'plan.launch' op operand 1 is to be packed, but is not a parameter}}
  %a = plan.launch @linear(%x, %w) over source at [argument 0 by 4, argument 1, arena 0 by 4] {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows, !w) -> !rows
  plan.return %a at [arena 0 by 4] : !rows
}

// -----

!rows = !xfc.rows<source, 4xf32>
!w = tensor<4x4xf32>

plan.kernel @linear attributes {packing = [unit, @pack]} {
^bb0(%x: !rows, %w: !w):
  %y = xfc.linear %x, %w : (!rows, !w) -> !rows
  plan.return %y : !rows
}
plan.pack_kernel @pack of tensor<4x4xf32> {transposed, bytes = 256, chunks = 1}
plan.program @no_places(%x: !rows, %w: !w) -> !rows {
  // expected-error@+1 {{'plan.launch' op has no places; run xfc-assign-buffers first}}
  %a = plan.launch @linear(%x, %w) over source {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows, !w) -> !rows
  plan.return %a : !rows
}
