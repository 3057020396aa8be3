// RUN: %xfc-opt %s --xfc-pack-weights | FileCheck %s
// RUN: %xfc-opt %s --xfc-pack-weights | %xfc-opt | FileCheck %s

!rows = !xfc.rows<source, 4xf32>
!w = tensor<4x4xf32>
!hyper = tensor<10xf32>

xfc.parameter @v : !w init zero
xfc.parameter @w : !w init zero
plan.parameters 32 x f32 states ["moment1", "moment2"] {
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
plan.kernel @adam attributes {partition = #plan.partition<elements per 16384 times 1>} {
^bb0(%h: !hyper, %f: tensor<f32>, %p: !w, %q: !w, %g: !w, %i: !w, %m: !w, %n: !w, %v: !w, %u: !w):
  %r:6 = "xfc.optimize"(%h, %f, %p, %q, %g, %i, %m, %n, %v, %u) {rule = "adam", packs, operandSegmentSizes = array<i32: 1, 1, 2, 2, 4>}
      : (!hyper, tensor<f32>, !w, !w, !w, !w, !w, !w, !w, !w) -> (!w, !w, !w, !w, !w, !w)
  plan.return %r#0, %r#1, %r#2, %r#3, %r#4, %r#5 : !w, !w, !w, !w, !w, !w
}

// Each packed form of a weight is made once, however many launches read it.
// CHECK: plan.packed_weight 0 = @pack_transposed_4x4(parameters + 64)
// CHECK-NEXT: plan.packed_weight 1 = @pack_4x4(parameters + 64)
// CHECK-NOT: plan.packed_weight
// CHECK-LABEL: plan.program @loss_and_gradients
// CHECK: plan.launch @linear({{.*}}) over source at [argument 0 by 4, packed 0, arena 0 by 4]
// CHECK: plan.launch @input_grad({{.*}}) over source at [arena 0 by 4, packed 1, arena 1 by 4]
// CHECK: plan.launch @linear({{.*}}) over source at [arena 1 by 4, packed 0, arena 0 by 4]
plan.program @loss_and_gradients(%x: !rows, %w: !w) -> !rows {
  plan.buffer 0 : <16 source> from 0 to 2
  plan.buffer 1 : <16 source> from 1 to 2
  %a = plan.launch @linear(%x, %w) over source at [argument 0 by 4, parameters + 64, arena 0 by 4] {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows, !w) -> !rows
  %b = plan.launch @input_grad(%a, %w) over source at [arena 0 by 4, parameters + 64, arena 1 by 4] {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows, !w) -> !rows
  %c = plan.launch @linear(%b, %w) over source at [arena 1 by 4, parameters + 64, arena 0 by 4] {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows, !w) -> !rows
  plan.return %c at [arena 0 by 4] : !rows
}

// The optimizer also writes both packed forms of the weight at element 16, and its traffic includes their bytes; "v" is not packed.
// CHECK-LABEL: plan.program @update
// CHECK: state 1, state 1 + 64, packed 1, packed 0] {elements = 32 : i64, flops = #plan.size<0>, repacked = [#plan.repacked<first = 16, rows = 4, columns = 4>], traffic = #plan.size<1384>}
plan.program @update(%h: !hyper, %f: tensor<f32>, %p: !w, %q: !w, %g: !w, %i: !w, %m: !w, %n: !w, %v: !w, %u: !w) -> (!w, !w, !w, !w, !w, !w) {
  %r:6 = plan.launch @adam(%h, %f, %p, %q, %g, %i, %m, %n, %v, %u) over source
      at [argument 0, argument 1, parameters, parameters + 64, gradients, gradients + 64, state 0, state 0 + 64, state 1, state 1 + 64,
          parameters, parameters + 64, state 0, state 0 + 64, state 1, state 1 + 64]
      {elements = 32 : i64, flops = #plan.size<0>, traffic = #plan.size<1000>}
      : (!hyper, tensor<f32>, !w, !w, !w, !w, !w, !w, !w, !w) -> (!w, !w, !w, !w, !w, !w)
  plan.return %r#0, %r#1, %r#2, %r#3, %r#4, %r#5 at [parameters, parameters + 64, state 0, state 0 + 64, state 1, state 1 + 64] : !w, !w, !w, !w, !w, !w
}
