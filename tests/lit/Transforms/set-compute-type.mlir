// RUN: %xfc-opt %s --xfc-set-compute-type=type=bf16 | FileCheck %s --check-prefix=ALL
// RUN: %xfc-opt %s --xfc-set-compute-type="type=int8 variants=encode,decode_step" | FileCheck %s --check-prefix=VARIANT
// RUN: %xfc-opt %s --xfc-set-compute-type="type=bf16 variants=encode" --xfc-set-compute-type="type=int8 variants=encode" | FileCheck %s --check-prefix=TWO
// RUN: %xfc-opt %s --xfc-set-compute-type="type=bf16 attention=4" | FileCheck %s --check-prefix=ATTENTION
// RUN: %xfc-opt %s --xfc-set-compute-type="type=bf16 attention=5" | FileCheck %s --check-prefix=ALL
// RUN: %xfc-opt %s --xfc-set-compute-type="type=int8 variants=attention attention=1" | FileCheck %s --check-prefix=INTEGERS
// RUN: %xfc-opt %s --xfc-set-compute-type="type=int8,w=int4 variants=encode" | FileCheck %s --check-prefix=MIXED
// RUN: %xfc-opt %s --xfc-set-compute-type="type=w=f32,w?=bf16 variants=encode,concatenated" | FileCheck %s --check-prefix=RULES

// RUN: %xfc-opt %s --xfc-set-compute-type="type=int8,tied.?=bf16 variants=concatenated" | FileCheck %s --check-prefix=TIED

!rows = !xfc.rows<source, 8xf32>
!weight = tensor<8x8xf32>

// In place: the type of every matrix product of every function is set, and nothing else changes.
// ALL-LABEL: func.func @encode(
// ALL: xfc.linear %{{.*}}, %{{.*}} in bf16 {
// ALL: xfc.activation relu %{{[a-z0-9]+}} :
// ALL-LABEL: func.func @gradients(
// ALL: xfc.linear_input_grad %{{.*}}, %{{.*}} in bf16 :
// ALL: xfc.linear_weight_grad %{{.*}}, %{{.*}} in bf16 :
// ALL-LABEL: func.func @attention(
// ALL: xfc.attention %{{.*}}, %{{.*}}, %{{[a-z0-9]+}} {heads
// ALL: xfc.attention_grad {{.*}}, %{{[a-z0-9#]+}} {heads
// ALL-NOT: func.func

// With attention=4, the type of attention's products is set, too, because heads have 4 features.
// ATTENTION-LABEL: func.func @attention(
// ATTENTION: xfc.attention %{{.*}}, %{{.*}}, %{{.*}} in bf16 {heads
// ATTENTION: xfc.attention_grad {{.*}} in bf16 {heads

// Attention is not defined in int8.
// INTEGERS-LABEL: func.func @attention.int8(
// INTEGERS: xfc.attention %{{.*}}, %{{.*}}, %{{[a-z0-9]+}} {heads
// INTEGERS: xfc.attention_grad {{.*}}, %{{[a-z0-9#]+}} {heads

// Each variant is a copy with the same arguments, results and attributes.
// VARIANT-LABEL: func.func @encode(
// VARIANT: xfc.linear %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {
// VARIANT-LABEL: func.func @gradients(
// VARIANT: xfc.linear_input_grad %{{[a-z0-9]+}}, %{{[a-z0-9]+}} :
// VARIANT-LABEL: func.func @encode.int8(
// VARIANT-SAME: %{{.*}}: !xfc.rows<source, 8xf32> {xfc.name = "x", xfc.role = "input"},
// VARIANT-SAME: %{{.*}}: tensor<8x8xf32> {xfc.name = "w", xfc.role = "parameter"}) -> (!xfc.rows<source, 8xf32> {xfc.name = "y"})
// VARIANT: xfc.linear %{{.*}}, %{{.*}} in int8 {
// VARIANT-NOT: func.func

// TWO: func.func @encode(
// TWO: func.func @encode.bf16(
// TWO: xfc.linear %{{.*}}, %{{.*}} in bf16 {
// TWO: func.func @encode.int8(
// TWO: xfc.linear %{{.*}}, %{{.*}} in int8 {

func.func @encode(%x: !rows {xfc.name = "x", xfc.role = "input"}, %w: !weight {xfc.name = "w", xfc.role = "parameter"}) -> (!rows {xfc.name = "y"}) {
  %y = xfc.linear %x, %w {
  ^bb0(%row: !rows):
    %r = xfc.activation relu %row : !rows
    xfc.yield %r : !rows
  } : (!rows, !weight) -> !rows
  return %y : !rows
}

func.func @gradients(%dy: !rows, %x: !rows, %w: !weight) -> (!rows, !weight, tensor<8xf32>) {
  %dx = xfc.linear_input_grad %dy, %w : (!rows, !weight) -> !rows
  %dw, %db = xfc.linear_weight_grad %dy, %x : (!rows, !rows) -> (!weight, tensor<8xf32>)
  return %dx, %dw, %db : !rows, !weight, tensor<8xf32>
}

// The type depends on the weight's name, also where it is made of several. Without a type for all, others stay as they are.
// MIXED-LABEL: func.func @"encode.int8,w=int4"(
// MIXED: xfc.linear %{{.*}}, %{{.*}} in int4 {
// RULES-LABEL: func.func @"encode.w=f32,w?=bf16"(
// RULES: xfc.linear %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {
// RULES-LABEL: func.func @"concatenated.w=f32,w?=bf16"(
// RULES: xfc.linear %{{.*}}, %{{.*}} in bf16 :
// A weight also has the names that are tied to it.
// TIED-LABEL: func.func @"concatenated.int8,tied.?=bf16"(
// TIED: xfc.linear %{{.*}}, %{{.*}} in bf16 :
xfc.parameter @w1 : !weight init xavier_uniform fan_in 8 fan_out 8 aliases ["tied.1"]
xfc.parameter @w2 : !weight init xavier_uniform fan_in 8 fan_out 8 aliases ["other", "tied.2"]
func.func @concatenated(%x: !rows, %w1: !weight {xfc.name = "w1", xfc.role = "parameter"}, %w2: !weight {xfc.name = "w2", xfc.role = "parameter"}) -> !xfc.rows<source, 16xf32> {
  %w = xfc.concat %w1, %w2 : (!weight, !weight) -> tensor<16x8xf32>
  %y = xfc.linear %x, %w : (!rows, tensor<16x8xf32>) -> !xfc.rows<source, 16xf32>
  return %y : !xfc.rows<source, 16xf32>
}

func.func @attention(%x: !rows) -> !rows {
  %o, %lse = xfc.attention %x, %x, %x {heads = 2 : i64, scale = 1.0} : (!rows, !rows, !rows) -> (!rows, !xfc.rows<source, 2xf32>)
  %dq, %dk, %dv = xfc.attention_grad %o, %x, %x, %x, %o, %lse {heads = 2 : i64, scale = 1.0} : (!rows, !rows, !rows, !rows, !rows, !xfc.rows<source, 2xf32>) -> (!rows, !rows, !rows)
  return %dq : !rows
}
