// RUN: %xfc-opt %s --xfc-lay-out-parameters --xfc-outline-kernels --xfc-generate-kernels --xfc-assign-buffers -o %t.mlir
// RUN: FileCheck %s --input-file=%t.mlir
// RUN: %xfc-opt %t.mlir | FileCheck %s

!rows = !xfc.rows<source, 8xf32>
!half = !xfc.rows<source, 4xf32>
!w = tensor<8x8xf32>
!table = tensor<20x8xf32>

xfc.parameter @w : !w init zero
xfc.parameter @v : !w init zero

// CHECK: plan.table 0 = 20 x 8
// CHECK-NOT: plan.table

// %p and %y each get a buffer; the parameter is read in place. The sum takes over %p's buffer, since nothing reads %p later.
// The parts of the split are views of the sum, and the parts of the join are written directly into the join's buffer.
// CHECK-LABEL: plan.program @forward(
// CHECK-NEXT: plan.buffer 0 : <32 source> from 0 to 5
// CHECK-NEXT: plan.buffer 1 : <32 source> from 1 to 2
// CHECK-NEXT: plan.buffer 2 : <32 source> from 3 to 6
// CHECK-NOT: plan.buffer
// CHECK: plan.launch @add_positions_8(%{{.*}}, %{{.*}}) over source at [argument 0 by 8, table 0, arena 0 by 8]
// CHECK: plan.launch @linear_8x8(%{{.*}}, %{{.*}}) over source at [arena 0 by 8, parameters + 256, arena 1 by 8]
// CHECK: plan.launch @add_8(%{{.*}}, %{{.*}}) over source at [arena 0 by 8, arena 1 by 8, arena 0 by 8]
// CHECK: plan.launch @relu_4(%{{.*}}) over source at [arena 0 + 16 by 8, arena 2 by 8]
// CHECK: plan.launch @tanh_4(%{{.*}}) over source at [arena 0 by 8, arena 2 + 16 by 8]
// CHECK: plan.launch @add_8(%{{.*}}, %{{.*}}) over source at [arena 2 by 8, arena 0 by 8, arena 2 by 8]
// CHECK: plan.return %{{.*}} at [arena 2 by 8]
func.func @forward(%x: !rows {xfc.name = "x", xfc.role = "input"}, %v: !w {xfc.name = "v", xfc.role = "parameter"}) -> (!rows {xfc.name = "y"}) {
  %t = xfc.sinusoid : () -> !table
  %p = xfc.add_positions %x, %t : (!rows, !table) -> !rows
  %y = xfc.linear %p, %v : (!rows, !w) -> !rows
  %s = xfc.add %p, %y : !rows
  %h:2 = xfc.split %s : (!rows) -> (!half, !half)
  %a = xfc.activation relu %h#1 : !half
  %b = xfc.activation tanh %h#0 : !half
  %j = xfc.join %a, %b : (!half, !half) -> !rows
  %r = xfc.add %j, %s : !rows
  return %r : !rows
}

// Gradients go where the optimizer reads them; the gradient of two weights read as one starts at the first. A cache is updated in place.
// CHECK-LABEL: plan.program @gradients(
// CHECK-NEXT: plan.launch @linear_weight_grad_16x8(%{{.*}}, %{{.*}}) over source at [argument 1 by 16, argument 0 by 8, gradients]
// CHECK: plan.return %{{.*}} at [gradients, gradients + 256]
func.func @gradients(%x: !rows {xfc.name = "x", xfc.role = "input"}, %dy: !xfc.rows<source, 16xf32> {xfc.name = "dy", xfc.role = "input"})
    -> (!w {xfc.name = "grad.w"}, !w {xfc.name = "grad.v"}) {
  %dw = xfc.linear_weight_grad %dy, %x : (!xfc.rows<source, 16xf32>, !rows) -> tensor<16x8xf32>
  %0 = xfc.slice %dw {offset = 0} : (tensor<16x8xf32>) -> !w
  %1 = xfc.slice %dw {offset = 8} : (tensor<16x8xf32>) -> !w
  return %0, %1 : !w, !w
}

// CHECK-LABEL: plan.program @step(
// CHECK-NEXT: plan.launch @cache_write_8(%{{.*}}, %{{.*}}) over target at [argument 0 by 8, argument 1 by 8, argument 0 by 8]
func.func @step(%cache: !xfc.rows<cache, 8xf32> {xfc.name = "cache", xfc.role = "state"}, %k: !xfc.rows<target, 8xf32> {xfc.name = "k", xfc.role = "input"})
    -> (!xfc.rows<cache, 8xf32> {xfc.name = "cache", xfc.alias = 0 : i64}) {
  %new = xfc.cache_write %cache, %k : (!xfc.rows<cache, 8xf32>, !xfc.rows<target, 8xf32>) -> !xfc.rows<cache, 8xf32>
  return %new : !xfc.rows<cache, 8xf32>
}

// One launch reads all gradients of a block for their sum of squares, and one updates all its parameters and moments.
// CHECK-LABEL: plan.program @update(
// CHECK: plan.launch @square_sum(%{{.*}}, %{{.*}}) over source at [gradients, gradients + 256, arena 0] {elements = 128 : i64,
// CHECK: plan.launch @adam({{.*}}) over source at [argument 0, arena {{[0-9]}}, parameters, parameters + 256, gradients, gradients + 256, state 0, state 0 + 256, state 1, state 1 + 256, parameters, parameters + 256, state 0, state 0 + 256, state 1, state 1 + 256] {elements = 128 : i64,
func.func @update(%pw: !w {xfc.name = "w", xfc.role = "parameter"}, %pv: !w {xfc.name = "v", xfc.role = "parameter"},
                  %gw: !w {xfc.name = "w", xfc.role = "gradient"}, %gv: !w {xfc.name = "v", xfc.role = "gradient"},
                  %mw: !w {xfc.name = "w", xfc.role = "moment1"}, %mv: !w {xfc.name = "v", xfc.role = "moment1"},
                  %vw: !w {xfc.name = "w", xfc.role = "moment2"}, %vv: !w {xfc.name = "v", xfc.role = "moment2"},
                  %hyper: tensor<10xf32> {xfc.name = "hyper", xfc.role = "scalar"}, %max: tensor<f32> {xfc.name = "max_norm", xfc.role = "scalar"})
    -> (!w {xfc.alias = 0 : i64}, !w {xfc.alias = 1 : i64}, !w {xfc.alias = 4 : i64}, !w {xfc.alias = 5 : i64}, !w {xfc.alias = 6 : i64}, !w {xfc.alias = 7 : i64}) {
  %s = xfc.square_sum %gw, %gv : (!w, !w) -> tensor<1xf64>
  %factor, %norm = xfc.clip_factor %max, %s : (tensor<f32>, tensor<1xf64>) -> (tensor<f32>, tensor<f32>)
  %p:2, %m:2, %v:2 = xfc.optimize "adam" %hyper, %factor parameters(%pw, %pv) gradients(%gw, %gv) states(%mw, %mv, %vw, %vv)
      : (tensor<10xf32>, tensor<f32>, !w, !w, !w, !w, !w, !w, !w, !w) -> (!w, !w, !w, !w, !w, !w)
  return %p#0, %p#1, %m#0, %m#1, %v#0, %v#1 : !w, !w, !w, !w, !w, !w
}

// States that hold less than the parameters have layouts of their own. The launch passes a table of its tensors.
// CHECK-LABEL: plan.program @update.adafactor(
// CHECK: plan.launch @row_moments_adafactor({{.*}}) over source at [argument 0, argument 1, parameters, parameters + 256, gradients, gradients + 256, state 2, state 2 + 64, state 2, state 2 + 64, arena {{[0-9]}}, arena {{[0-9]}}, arena {{[0-9]}}, arena {{[0-9]}}] {elements = 2 : i64,
// CHECK-SAME: tensors = [#plan.tensor<first = 0, rows = 8, columns = 8, per = 2048, parts = 1, matrix = 0, group = 0>, #plan.tensor<first = 1, rows = 8, columns = 8, per = 2048, parts = 1, matrix = 1, group = 0>]
func.func @update.adafactor(%pw: !w {xfc.name = "w", xfc.role = "parameter"}, %pv: !w {xfc.name = "v", xfc.role = "parameter"},
                            %gw: !w {xfc.name = "w", xfc.role = "gradient"}, %gv: !w {xfc.name = "v", xfc.role = "gradient"},
                            %rw: tensor<8xf32> {xfc.name = "w", xfc.role = "row_mean"}, %rv: tensor<8xf32> {xfc.name = "v", xfc.role = "row_mean"},
                            %hyper: tensor<8xf32> {xfc.name = "hyper", xfc.role = "scalar"}, %factor: tensor<f32> {xfc.name = "max_norm", xfc.role = "scalar"})
    -> (tensor<8xf32> {xfc.alias = 4 : i64}, tensor<8xf32> {xfc.alias = 5 : i64}, tensor<1xf64>, tensor<1xf64>, tensor<1x8xf64>, tensor<1x8xf64>) {
  %r:6 = xfc.row_moments "adafactor" %hyper, %factor parameters(%pw, %pv) gradients(%gw, %gv) rows(%rw, %rv)
      : (tensor<8xf32>, tensor<f32>, !w, !w, !w, !w, tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<1xf64>, tensor<1xf64>, tensor<1x8xf64>, tensor<1x8xf64>)
  return %r#0, %r#1, %r#2, %r#3, %r#4, %r#5 : tensor<8xf32>, tensor<8xf32>, tensor<1xf64>, tensor<1xf64>, tensor<1x8xf64>, tensor<1x8xf64>
}
