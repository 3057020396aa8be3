// RUN: not %xfc-opt %s --xfc-set-compute-type="type=int8,weigth=int4" 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not %xfc-opt %s --xfc-set-compute-type="type=int8,weight.a=int4" 2>&1 | FileCheck %s --check-prefix=MERGED
// RUN: not %xfc-opt %s --xfc-set-compute-type="type=int7" 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not %xfc-opt %s --xfc-set-compute-type="type=int8,int4" 2>&1 | FileCheck %s --check-prefix=RULE
// RUN: not %xfc-opt %s --xfc-set-compute-type="type=int8,[=int4" 2>&1 | FileCheck %s --check-prefix=PATTERN

// NONE: error: compute type int8,weigth=int4: no weight of a product is called 'weigth'; did you mean 'weight'? there are, for example, weight.a and weight
// MERGED: error: compute type int8,weight.a=int4: weight.a and weight.b are multiplied together and need the same type; give both the same, or compile with --no-fuse=merge-projections
// TYPE: error: compute type int7: expected f32, bf16, int8 or int4, found 'int7'
// RULE: error: compute type int8,int4: expected PATTERN=TYPE after the first ',', found 'int4'
// PATTERN: error: compute type int8,[=int4: '[' is not a pattern:
func.func @f(%x: !xfc.rows<source, 8xf32>, %a: tensor<8x8xf32> {xfc.name = "weight.a", xfc.role = "parameter"},
             %b: tensor<8x8xf32> {xfc.name = "weight.b", xfc.role = "parameter"},
             %c: tensor<16x16xf32> {xfc.name = "weight", xfc.role = "parameter"}) -> !xfc.rows<source, 16xf32> {
  %w = xfc.concat %a, %b : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %y = xfc.linear %x, %w : (!xfc.rows<source, 8xf32>, tensor<16x8xf32>) -> !xfc.rows<source, 16xf32>
  %z = xfc.linear %y, %c : (!xfc.rows<source, 16xf32>, tensor<16x16xf32>) -> !xfc.rows<source, 16xf32>
  return %z : !xfc.rows<source, 16xf32>
}
