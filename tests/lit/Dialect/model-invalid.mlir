// Invalid attributes: those of a module about its model, and those of functions about their arguments and results.
// RUN: %xfc-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{struct is missing required parameter: pad}}
module attributes {xfc.model = #xfc.model<name = "m", source_vocab = 7, unk = 1, bos = 2, eos = 3, start = 2, description = "{}">} {}

// -----

// expected-error@+1 {{a model needs a name}}
module attributes {xfc.model = #xfc.model<name = "", source_vocab = 7, pad = 0, unk = 1, bos = 2, eos = 3, start = 2, description = "{}">} {}

// -----

// expected-error@+1 {{a model needs its description, as `xfc compile --emit imported` writes it}}
module attributes {xfc.model = #xfc.model<name = "m", source_vocab = 7, pad = 0, unk = 1, bos = 2, eos = 3, start = 2, description = "">} {}

// -----

// expected-error@+1 {{max_source_length must not be negative, found -1}}
module attributes {xfc.model = #xfc.model<name = "m", source_vocab = 7, max_source_length = -1, pad = 0, unk = 1, bos = 2, eos = 3, start = 2, description = "{}">} {}

// -----

// expected-error@+1 {{the source must be either token ids (source_vocab) or rows of floats (source_dim), found source_vocab = 7 and source_dim = 4}}
module attributes {xfc.model = #xfc.model<name = "m", source_vocab = 7, source_dim = 4, pad = 0, unk = 1, bos = 2, eos = 3, start = 2, description = "{}">} {}

// -----

// expected-error@+1 {{the source must be either token ids (source_vocab) or rows of floats (source_dim), found source_vocab = 0 and source_dim = 0}}
module attributes {xfc.model = #xfc.model<name = "m", pad = 0, unk = 1, bos = 2, eos = 3, start = 2, description = "{}">} {}

// -----

// expected-error@+1 {{the target must be either token ids (target_vocab) or rows of floats (target_dim) if there is a decoder, and neither if there is none, found target_vocab = 5 and target_dim = 0}}
module attributes {xfc.model = #xfc.model<name = "m", source_vocab = 7, target_vocab = 5, pad = 0, unk = 1, bos = 2, eos = 3, start = 2, description = "{}">} {}

// -----

// expected-error@+1 {{the target must be either token ids (target_vocab) or rows of floats (target_dim) if there is a decoder, and neither if there is none, found target_vocab = 0 and target_dim = 0}}
module attributes {xfc.model = #xfc.model<name = "m", source_vocab = 7, decoder = true, pad = 0, unk = 1, bos = 2, eos = 3, start = 2, description = "{}">} {}

// -----

// expected-error@+1 {{start = 5 is not in the vocabulary of 5 tokens}}
module attributes {xfc.model = #xfc.model<name = "m", source_vocab = 7, target_vocab = 5, decoder = true, pad = 0, unk = 1, bos = 2, eos = 3, start = 5, description = "{}">} {}

// -----

// expected-error@+1 {{bos = -1 is not in the vocabulary of 7 tokens}}
module attributes {xfc.model = #xfc.model<name = "m", source_vocab = 7, pad = 0, unk = 1, bos = -1, eos = 3, start = 2, description = "{}">} {}

// -----

// expected-error@+1 {{eos = 0 is also pad, which is never learned}}
module attributes {xfc.model = #xfc.model<name = "m", source_vocab = 7, pad = 0, unk = 1, bos = 2, eos = 0, start = 2, description = "{}">} {}

// -----

// expected-error@+1 {{expected "xfc.model" to be a #xfc.model of a module, found "tiny"}}
module attributes {xfc.model = "tiny"} {}

// -----

// expected-error@+1 {{the xfc dialect has no attribute "xfc.modell"}}
module attributes {xfc.modell = "tiny"} {}

// -----

#model = #xfc.model<name = "m", source_vocab = 7, pad = 0, unk = 1, bos = 2, eos = 3, start = 2, description = "{}">
module {
  // expected-error@+1 {{expected "xfc.model" to be a #xfc.model of a module, found #xfc.model<}}
  func.func private @forward() attributes {xfc.model = #model}
}

// -----

func.func @forward() {
  // expected-error@+1 {{expects parent op 'builtin.module'}}
  "xfc.parameter"() {sym_name = "w", type = tensor<2xf32>, init = 0 : i32} : () -> ()
  return
}

// -----

// expected-error@+1 {{attribute 'type' failed to satisfy constraint: type attribute of static tensor of floats}}
xfc.parameter @w : tensor<?xf32> init zero

// -----

// expected-error@+1 {{containing one of the following enum values for attribute 'init' [zero, one, xavier_uniform, fan_in_uniform, normal, scaled_normal]}}
xfc.parameter @w : tensor<2xf32> init random

// -----

// expected-error@+1 {{attribute 'fan_in' failed to satisfy constraint}}
xfc.parameter @w : tensor<2xf32> init zero fan_in -1

// -----

// expected-error@+1 {{has an empty or repeated alias, or its own name as an alias: "w"}}
xfc.parameter @w : tensor<2xf32> init zero aliases ["v", "w"]

// -----

module attributes {xfc.model = #xfc.model<name = "m", source_vocab = 7, pad = 0, unk = 1, bos = 2, eos = 3, start = 2, description = "{}">} {
  xfc.parameter @w : tensor<2xf32> init zero
  // expected-error@+1 {{shares the name "w" with another parameter}}
  xfc.parameter @v : tensor<2xf32> init zero aliases ["w"]
}

// -----

module attributes {xfc.model = #xfc.model<name = "m", source_vocab = 7, pad = 0, unk = 1, bos = 2, eos = 3, start = 2, description = "{}">} {
  // expected-error@+1 {{the model has no parameter "w" (argument 0)}}
  func.func @forward(%w: tensor<2xf32> {xfc.name = "w", xfc.role = "parameter"}) {
    return
  }
}

// -----

module attributes {xfc.model = #xfc.model<name = "m", source_vocab = 7, pad = 0, unk = 1, bos = 2, eos = 3, start = 2, description = "{}">} {
  xfc.parameter @w : tensor<2xf32> init zero
  // expected-error@+1 {{argument 0, "w", is 'tensor<3xf32>', but the model's parameter is 'tensor<2xf32>'}}
  func.func @update(%w: tensor<3xf32> {xfc.name = "w", xfc.role = "gradient"}) {
    return
  }
}

// -----

// expected-error@+1 {{argument 0: the xfc dialect has no attribute "xfc.rule" of arguments}}
func.func private @forward(tensor<2xf32> {xfc.rule = "parameter"})

// -----

// expected-error-re@+1 {{argument 0: expected a role (parameter, gradient, {{.*}}, input, scalar, state), found "weight"}}
func.func private @forward(tensor<2xf32> {xfc.role = "weight"})

// -----

// expected-error@+1 {{expected "xfc.name" to be a name, found 3 : i64}}
func.func private @forward(tensor<2xf32> {xfc.name = 3})

// -----

// expected-error@+1 {{result 0: the xfc dialect has no attribute "xfc.role" of results}}
func.func private @forward() -> (tensor<2xf32> {xfc.role = "input"})

// -----

// expected-error@+1 {{result 0: expected the index of the argument it replaces, found 1 : i64}}
func.func private @forward(tensor<2xf32>) -> (tensor<2xf32> {xfc.alias = 1})

// -----

// expected-error@+1 {{result 0 is 'tensor<2xf32>', but the argument it replaces is 'tensor<3xf32>'}}
func.func private @forward(tensor<3xf32>) -> (tensor<2xf32> {xfc.alias = 0})
