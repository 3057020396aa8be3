// How a module describes its model, apart from the programs. Included by XFCOps.td, which defines the dialect.
#ifndef XFC_MODEL_TD
#define XFC_MODEL_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/SymbolInterfaces.td"

def XFC_ModelAttr : AttrDef<XFC_Dialect, "Model"> {
  let mnemonic = "model";
  let summary = "the model that the programs of a module belong to";
  let description = [{
    The attribute `xfc.model` of a module. It holds what an executable knows about its model apart from programs and
    parameters: the ids of special tokens, the sizes of the vocabularies, and the description that is hashed and embedded.

    The source consists of rows of token ids (`source_vocab`) or of floats (`source_dim` features), and so does the target if
    there is a decoder. A maximum length of 0 means no limit. `source_eos` says whether source sentences end in the token `eos`.

    ```mlir
    module attributes {xfc.model = #xfc.model<name = "tiny", source_vocab = 4000, target_vocab = 4000, max_source_length = 512,
      max_target_length = 512, decoder = true, pad = 0, unk = 1, bos = 2, eos = 3, start = 2, description = "{...}">}
    ```
  }];
  let parameters = (ins
    StringRefParameter<"the model's name">:$name,
    DefaultValuedParameter<"int64_t", "0", "size of the source vocabulary; 0 if the source is rows of floats">:$source_vocab,
    DefaultValuedParameter<"int64_t", "0", "the same for the target">:$target_vocab,
    DefaultValuedParameter<"int64_t", "0", "features per row of the source; 0 if the source is token ids">:$source_dim,
    DefaultValuedParameter<"int64_t", "0", "the same for the target">:$target_dim,
    DefaultValuedParameter<"int64_t", "0", "maximum length of a source sentence, in tokens; 0: no limit">:$max_source_length,
    DefaultValuedParameter<"int64_t", "0", "the same for the target">:$max_target_length,
    DefaultValuedParameter<"bool", "false", "whether there is a decoder">:$decoder,
    "int32_t":$pad, "int32_t":$unk, "int32_t":$bos, "int32_t":$eos, "int32_t":$start,
    DefaultValuedParameter<"bool", "true", "whether source sentences end in eos">:$source_eos,
    StringRefParameter<"the description with every value resolved, as JSON">:$description);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

// The names are the values of "init" in model.json, and the runtime uses them, too.
def XFC_Initializer : I32EnumAttr<"Initializer", "how a parameter is initialised", [
    I32EnumAttrCase<"zero", 0>, I32EnumAttrCase<"one", 1>, I32EnumAttrCase<"xavier_uniform", 2>, I32EnumAttrCase<"fan_in_uniform", 3>,
    I32EnumAttrCase<"normal", 4>, I32EnumAttrCase<"scaled_normal", 5>]> { let cppNamespace = "::xfc"; }

def XFC_ParameterOp : Op<XFC_Dialect, "parameter", [Symbol, HasParent<"::mlir::ModuleOp">]> {
  let summary = "declares a parameter of the model";
  let description = [{
    A checkpoint holds the parameters in the order of their declarations. A function reads a parameter through an argument with
    its name and the role "parameter". `fan_in` and `fan_out` are the numbers by which initialization scales, 0 if it uses
    neither; `aliases` are the names that are tied to the parameter.

    ```mlir
    xfc.parameter @decoder.embed.weight : tensor<4000x128xf32> init normal fan_in 128 fan_out 4000 aliases ["output.weight"]
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<XFC_Tensor>:$type, XFC_Initializer:$init,
                       ConfinedAttr<DefaultValuedAttr<I64Attr, "0">, [IntNonNegative]>:$fan_in,
                       ConfinedAttr<DefaultValuedAttr<I64Attr, "0">, [IntNonNegative]>:$fan_out,
                       DefaultValuedAttr<StrArrayAttr, "{}">:$aliases);
  let assemblyFormat = "$sym_name `:` $type `init` $init (`fan_in` $fan_in^)? (`fan_out` $fan_out^)? (`aliases` $aliases^)? attr-dict";
  let hasVerifier = 1;
}

#endif
