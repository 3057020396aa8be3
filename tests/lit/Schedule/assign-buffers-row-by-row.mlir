// RUN: %xfc-opt %s --split-input-file --xfc-assign-buffers | FileCheck %s

!rows = !xfc.rows<target, 8xf32>

plan.parameters 0 x f32 {
}
plan.kernel @relu attributes {partition = #plan.partition<rows per 16 times 1>} {
^bb0(%x: !rows):
  %y = xfc.activation relu %x : !rows
  plan.return %y : !rows
}
plan.kernel @sum attributes {partition = #plan.partition<rows per 16 times 1>} {
^bb0(%x: !rows, %y: !rows):
  %z = xfc.multiply %x, %y : !rows
  plan.return %z : !rows
}

// All launches are over the target's rows, so a thread may take its own rows through all of them.
// CHECK-LABEL: plan.program @rows
// CHECK-SAME: attributes {row_by_row}
// CHECK-NEXT: plan.buffer 0 : <32 target> from 0 to 2
// CHECK-NEXT: plan.buffer 1 : <32 target> from 1 to 3
plan.program @rows(%x: !rows {xfc.name = "x", xfc.role = "input"}) -> !rows {
  %a = plan.launch @relu(%x) over target {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows) -> !rows
  %b = plan.launch @relu(%x) over target {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows) -> !rows
  %c = plan.launch @sum(%x, %a) over target {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows, !rows) -> !rows
  plan.return %b : !rows
}

// A program that reads other rows as keys cannot run row by row.
// CHECK-LABEL: plan.program @keys
// CHECK-NOT: row_by_row
// CHECK: plan.buffer 0 : <32 target> from 0 to 1
plan.program @keys(%x: !rows {xfc.name = "x", xfc.role = "input"}) -> !rows {
  %a = plan.launch @relu(%x) over target keys target unmasked {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows) -> !rows
  plan.return %a : !rows
}
