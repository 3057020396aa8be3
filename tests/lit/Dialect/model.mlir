// A module's model attribute and parameters print and parse back; default values are not printed.
// RUN: %xfc-opt %s | FileCheck %s
// RUN: %xfc-opt %s | %xfc-opt - | FileCheck %s
// RUN: %xfc-opt %s --mlir-print-op-generic | %xfc-opt - | FileCheck %s

// CHECK: module attributes {xfc.model = #xfc.model<name = "pair \22of\22 stacks", source_vocab = 7, target_dim = 3,
// CHECK-SAME: max_source_length = 9, max_target_length = 8, decoder = true, pad = 0, unk = 1, bos = 2, eos = 3, start = 4,
// CHECK-SAME: source_eos = false, description = "{\22name\22:1}">}
module attributes {xfc.model = #xfc.model<description = "{\22name\22:1}", name = "pair \22of\22 stacks", target_vocab = 0,
    source_vocab = 7, target_dim = 3, max_source_length = 9, max_target_length = 8, decoder = true, pad = 0, unk = 1, bos = 2,
    eos = 3, start = 4, source_eos = false>} {
  // CHECK-NEXT: xfc.parameter @encoder.embed.weight : tensor<7x2xf32> init normal fan_in 2 fan_out 7 aliases ["a", "b c"]
  xfc.parameter @encoder.embed.weight : tensor<7x2xf32> init normal fan_in 2 fan_out 7 aliases ["a", "b c"]
  // CHECK-NEXT: xfc.parameter @"norm weight" : tensor<2xf32> init one{{$}}
  xfc.parameter @"norm weight" : tensor<2xf32> init one fan_in 0
  // CHECK-NEXT: xfc.parameter @bias : tensor<2xf32> init zero fan_out 2{{$}}
  xfc.parameter @bias : tensor<2xf32> init zero fan_out 2
  func.func @forward(%w: tensor<2xf32> {xfc.name = "norm weight", xfc.role = "parameter"},
                     %t: tensor<7x2xf32> {xfc.name = "b c", xfc.role = "parameter"},
                     %x: !xfc.rows<source, i32> {xfc.name = "source", xfc.role = "input"})
      -> (!xfc.rows<source, i32> {xfc.name = "encoder_output", xfc.alias = 2 : i64}) {
    return %x : !xfc.rows<source, i32>
  }
}
