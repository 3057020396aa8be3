// Sets of rows, and what products multiply in: the enums of the xfc dialect that the plan dialect speaks of, too.
#ifndef XFC_ENUMS_TD
#define XFC_ENUMS_TD

include "mlir/IR/EnumAttr.td"

def XFC_RowSet : I32EnumAttr<"RowSet", "a set of rows", [
    I32EnumAttrCase<"source", 0>, I32EnumAttrCase<"target", 1>, I32EnumAttrCase<"cache", 2>]> {
  let cppNamespace = "::xfc";
  let genSpecializedAttr = 0;
}

// The type that a product rounds its operands to before it multiplies. Sums, bias, epilogue and results are f32.
// bf16: every element to the nearest bf16, ties to even; with AVX512-BF16, denormal numbers become zeros. Products of
// two are exact in f32.
// int8: every row v of x and of W (a row of W belongs to one output feature) becomes s q, where m is the largest
// magnitude in v (at least 2^-100), s = m / 127, and q are the integers in -127 .. 127 nearest to v f32(127 / m), ties
// to even: y = s_x s_w (sum of q_x q_w) + b, where the sum is exact. Each row of x has its own s, so its result never
// depends on other rows. int8 is for decoding only: it has no gradient.
// int4: x becomes s q as in int8. Each group of 32 successive elements of a row of W (the last one may have fewer) becomes
// t q: t is the bf16 nearest to -m / 8, where m is the element of the group with the largest magnitude (the positive one
// of two; 2^-100 if all are smaller), and q are the integers in -8 .. 7 nearest to w f32(1 / t), ties to even:
// y = s_x (sum over groups, in order, of t (sum of q_x q_w)) + b, where the inner sums are exact, and the outer one is a
// chain of multiply-adds. int4 is for decoding only, too.
def XFC_ComputeType : I32EnumAttr<"ComputeType", "what the operands of a product are rounded to", [
    I32EnumAttrCase<"bf16", 0>, I32EnumAttrCase<"int8", 1>, I32EnumAttrCase<"int4", 2>]> { let cppNamespace = "::xfc"; }

#endif
