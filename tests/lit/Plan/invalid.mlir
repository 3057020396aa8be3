// RUN: %xfc-opt %s --split-input-file --verify-diagnostics

plan.parameters 16 x f32 {
  // expected-error@+1 {{'plan.parameter' op the model has no parameter @w}}
  plan.parameter @w at 0
}

// -----

xfc.parameter @w : tensor<4x4xf32> init zero
plan.parameters 16 x f32 {
  // expected-error@+1 {{'plan.parameter' op @w has 16 elements from 8 on, the block has 16}}
  plan.parameter @w at 8
}

// -----

plan.parameters 16 x f32 states ["row_mean"] {
  plan.state "row_mean" 16 {
    // expected-error@+1 {{'plan.part' op the model has no parameter @w}}
    plan.part @w [4] at 0
  }
}

// -----

xfc.parameter @w : tensor<4x4xf32> init zero
plan.parameters 16 x f32 states ["row_mean"] {
  plan.state "row_mean" 16 {
    // expected-error@+1 {{'plan.part' op @w has 4 elements from 14 on, the state has 16}}
    plan.part @w [4] at 14
  }
}

// -----

xfc.parameter @w : tensor<4x4xf32> init zero
plan.parameters 16 x f32 states ["row_mean"] {
  plan.state "row_mean" 16 {
    // expected-error@+1 {{'plan.part' op a tensor of these extents does not fit the state, which has 16 elements}}
    plan.part @w [4, 5] at 0
  }
}

// -----

// expected-error@+1 {{'plan.kernel' op must hold one op and plan.return}}
plan.kernel @two {
^bb0(%x: !xfc.rows<source, 8xf32>):
  %a = xfc.add %x, %x : !xfc.rows<source, 8xf32>
  %b = xfc.add %a, %x : !xfc.rows<source, 8xf32>
  plan.return %b : !xfc.rows<source, 8xf32>
}

// -----

// expected-error@+1 {{'plan.pack_kernel' op packs in at least one chunk, to at least one byte}}
plan.pack_kernel @pack_4x4 of tensor<4x4xf32> {bytes = 128, chunks = 0}

// -----

// expected-error@+1 {{'plan.packed_weight' op there is no plan.pack_kernel @pack}}
plan.packed_weight 0 = @pack(parameters + 0)

// -----

plan.program @kernel(%x: !xfc.rows<source, 8xf32>) -> !xfc.rows<source, 8xf32> {
  // expected-error@+1 {{'plan.launch' op there is no plan.kernel @add with a body}}
  %a = plan.launch @add(%x, %x) over source {flops = #plan.size<0>, traffic = #plan.size<0>} : (!xfc.rows<source, 8xf32>, !xfc.rows<source, 8xf32>) -> !xfc.rows<source, 8xf32>
  plan.return %a : !xfc.rows<source, 8xf32>
}

// -----

!rows = !xfc.rows<source, 8xf32>

plan.kernel @add {
^bb0(%x: !rows, %y: !rows):
  %a = xfc.add %x, %y : !rows
  plan.return %a : !rows
}
plan.program @operands(%x: !rows) -> !rows {
  // expected-error@+1 {{'plan.launch' op has 1 operands and 1 results, the kernel has 2 and 1}}
  %a = plan.launch @add(%x) over source {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows) -> !rows
  plan.return %a : !rows
}

// -----

!rows = !xfc.rows<source, 8xf32>

plan.kernel @add {
^bb0(%x: !rows, %y: !rows):
  %a = xfc.add %x, %y : !rows
  plan.return %a : !rows
}
plan.program @places(%x: !rows) -> !rows {
  // expected-error@+1 {{'plan.launch' op has 2 places; expected at least 3}}
  %a = plan.launch @add(%x, %x) over source at [argument 0 by 8, argument 0 by 8] {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows, !rows) -> !rows
  plan.return %a : !rows
}

// -----

!rows = !xfc.rows<source, 8xf32>

plan.kernel @unread {
^bb0(%x: !rows, %w: tensor<8xf32>):
  %a, %s = xfc.norm %x, %w {eps = 1.0e-5} : (!rows, tensor<8xf32>) -> (!rows, !xfc.rows<source, 2xf32>)
  plan.return %a : !rows
}
plan.program @reads(%x: !rows, %w: tensor<8xf32>) -> !xfc.rows<source, 2xf32> {
  // expected-error@+1 {{'plan.launch' op reads result 1, which the kernel does not write}}
  %a, %s = plan.launch @unread(%x, %w) over source {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows, tensor<8xf32>) -> (!rows, !xfc.rows<source, 2xf32>)
  plan.return %s : !xfc.rows<source, 2xf32>
}

// -----

!rows = !xfc.rows<source, 8xf32>

plan.program @buffers(%x: !rows) -> !rows {
  // expected-error@+1 {{'plan.buffer' op must have index 0 and precede all launches}}
  plan.buffer 1 : <32 source> from 0 to 1
  plan.return %x : !rows
}

// -----

!rows = !xfc.rows<source, 8xf32>

plan.program @life(%x: !rows) -> !rows {
  // expected-error@+1 {{'plan.buffer' op has an invalid live range, from launch 2 to 1}}
  plan.buffer 0 : <32 source> from 2 to 1
  plan.return %x : !rows
}

// -----

!rows = !xfc.rows<source, 8xf32>

plan.program @arena(%x: !rows) -> !rows {
  plan.buffer 0 : <32 source> from 0 to 1
  // expected-error@+1 {{'plan.return' op lies in buffer 1, but there are only 1}}
  plan.return %x at [arena 1 by 8] : !rows
}

// -----

// expected-error@+1 {{there are 16 key structures, found 16}}
#a = #plan.size<8 pairs 16>

// -----

// expected-error@+1 {{rows of the source have no keys among rows of the target}}
#a = #plan.domain<source keys target causal>

// -----

// expected-error@+1 {{rows of the target have no keys among rows of the source}}
#a = #plan.domain<target keys source>

// -----

// expected-error@+1 {{expected a set of rows: source, target or cache, found words}}
#a = #plan.domain<target keys words>

// -----

// expected-error@+1 {{a size cannot have negative terms, found -8}}
#a = #plan.size<-8 source>

// -----

// expected-error@+1 {{expected one of arena, parameters, gradients, state, packed, table, argument, none, found heap}}
#a = #plan.place<heap 3>

// -----

// expected-error@+1 {{'per' and 'times' must be at least 1, found per 0 times 1}}
#a = #plan.partition<rows per 0 times 1>

// -----

// expected-error@+1 {{expected one of one, rows, key_rows, sequences, elements, found columns}}
#a = #plan.partition<columns per 1 times 1>

// -----

// expected-error@+1 {{'plan.parameters' op attribute 'type' failed to satisfy constraint: type attribute of 32-bit float or 64-bit float}}
plan.parameters 16 x bf16 {
}

// -----

// expected-error@+1 {{'plan.kernel' op has no code: there is no function "a" in the module @code}}
plan.kernel @a
module @code attributes {plan.target = "x86-64-v3"} {
  func.func @b() { return }
}

// -----

// expected-error@+1 {{expected "plan.target" to name the target of the module @code, found ""}}
module @code attributes {plan.target = ""} {
}

// -----

// expected-error@+1 {{expected "plan.target" to name the target of the module @code, found "sm_80"}}
module @kernels attributes {plan.target = "sm_80"} {
}

// -----

// expected-error@+1 {{the plan dialect has no attribute "plan.machine"}}
module @code attributes {plan.machine = "sm_80"} {
}

// -----

// expected-error@+1 {{'plan.kernel' op there is no plan.kernel @other without bodies of its own}}
plan.kernel @persistent attributes {bodies = [@other]}

// -----

plan.kernel @persistent attributes {bodies = []}
// expected-error@+1 {{'plan.kernel' op there is no plan.kernel @persistent without bodies of its own}}
plan.kernel @another attributes {bodies = [@persistent]}

// -----

!rows = !xfc.rows<target, 8xf32>
plan.kernel @relu {
^bb0(%x: !rows):
  %y = xfc.activation relu %x : !rows
  plan.return %y : !rows
}
plan.program @after(%x: !rows {xfc.name = "x", xfc.role = "input"}) {
  %a = plan.launch @relu(%x) over target {flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows) -> !rows
  // expected-error@+1 {{'plan.launch' op is launch 1; expected `after` to list earlier ones, ascending}}
  %b = plan.launch @relu(%a) over target {after = array<i32: 0, 1>, flops = #plan.size<0>, traffic = #plan.size<0>} : (!rows) -> !rows
  plan.return
}

// -----

plan.kernel @relu
// expected-error@+1 {{'plan.program' op there is no plan.kernel @relu with bodies}}
plan.program @step() attributes {persistent = @relu} {
  plan.return
}
