// What a module says about its model besides the programs: included by XFCOps.td, which defines the dialect.
#ifndef XFC_MODEL_TD
#define XFC_MODEL_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/SymbolInterfaces.td"

def XFC_ModelAttr : AttrDef<XFC_Dialect, "Model"> {
  let mnemonic = "model";
  let summary = "what the programs of a module are programs of";
  let description = [{
    The attribute `xfc.model` of a module. It holds what an executable knows of its model besides programs and parameters:
    the ids of special tokens, the sizes of the vocabularies, and the description that is hashed and embedded.

    The source is rows of token ids (`source_vocab`) or of floats (`source_dim` features), and so is the target where there is
    a decoder. A maximum length of 0 is none. `source_eos` says whether source sentences end in the token `eos`.

    ```mlir
    module attributes {xfc.model = #xfc.model<name = "tiny", source_vocab = 4000, target_vocab = 4000, max_source_length = 512,
      max_target_length = 512, decoder = true, pad = 0, unk = 1, bos = 2, eos = 3, start = 2, description = "{...}">}
    ```
  }];
  let parameters = (ins
    StringRefParameter<"the model's name">:$name,
    DefaultValuedParameter<"int64_t", "0", "tokens of the source's vocabulary; 0: the source is rows of floats">:$source_vocab,
    DefaultValuedParameter<"int64_t", "0", "the same of the target">:$target_vocab,
    DefaultValuedParameter<"int64_t", "0", "features of a row of the source; 0: the source is token ids">:$source_dim,
    DefaultValuedParameter<"int64_t", "0", "the same of the target">:$target_dim,
    DefaultValuedParameter<"int64_t", "0", "the longest source sentence, in tokens; 0: any">:$max_source_length,
    DefaultValuedParameter<"int64_t", "0", "the same of the target">:$max_target_length,
    DefaultValuedParameter<"bool", "false", "whether there is a decoder">:$decoder,
    "int32_t":$pad, "int32_t":$unk, "int32_t":$bos, "int32_t":$eos, "int32_t":$start,
    DefaultValuedParameter<"bool", "true", "whether source sentences end in eos">:$source_eos,
    StringRefParameter<"the description with every value resolved, as JSON">:$description);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

// The names are those of "init" in model.json; the runtime knows them, too.
def XFC_Initializer : I32EnumAttr<"Initializer", "how a parameter is initialised", [
    I32EnumAttrCase<"zero", 0>, I32EnumAttrCase<"one", 1>, I32EnumAttrCase<"xavier_uniform", 2>, I32EnumAttrCase<"fan_in_uniform", 3>,
    I32EnumAttrCase<"normal", 4>, I32EnumAttrCase<"scaled_normal", 5>]> { let cppNamespace = "::xfc"; }

def XFC_ParameterOp : Op<XFC_Dialect, "parameter", [Symbol, HasParent<"::mlir::ModuleOp">]> {
  let summary = "declares a parameter of the model";
  let description = [{
    A checkpoint holds the parameters in the order of their declarations. Functions read a parameter by an argument with its name
    and the role "parameter". `fan_in` and `fan_out` are what initialisation divides by, 0 where it divides by
    neither; `aliases` are the names that are tied to it.

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
