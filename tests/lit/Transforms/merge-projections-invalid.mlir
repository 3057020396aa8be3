// A group must be the same in every function, since parameters are laid out once.
// RUN: %xfc-opt %s --split-input-file --xfc-merge-projections | FileCheck %s
// CHECK-NOT: xfc.split

!rows = !xfc.rows<source, 8xf32>
!lse = !xfc.rows<source, 2xf32>
!weight = tensor<8x8xf32>

// Another function uses only a part of the group.
// CHECK-LABEL: func.func @whole
func.func @whole(%k: !weight {xfc.name = "k", xfc.role = "parameter"}, %v: !weight {xfc.name = "v", xfc.role = "parameter"}, %q: !rows, %x: !rows) -> !rows {
  %keys = xfc.linear %x, %k : (!rows, !weight) -> !rows
  %values = xfc.linear %x, %v : (!rows, !weight) -> !rows
  %o, %l = xfc.attention %q, %keys, %values {heads = 2, scale = 0.5} : (!rows, !rows, !rows) -> (!rows, !lse)
  return %o : !rows
}
func.func @part(%k: !weight {xfc.name = "k", xfc.role = "parameter"}, %x: !rows) -> !rows {
  %keys = xfc.linear %x, %k : (!rows, !weight) -> !rows
  return %keys : !rows
}

// -----

!rows = !xfc.rows<source, 8xf32>
!lse = !xfc.rows<source, 2xf32>
!weight = tensor<8x8xf32>

// The projections read different rows.
// CHECK-LABEL: func.func @different_rows
func.func @different_rows(%k: !weight {xfc.name = "k", xfc.role = "parameter"}, %v: !weight {xfc.name = "v", xfc.role = "parameter"}, %x: !rows, %y: !rows) -> !rows {
  %keys = xfc.linear %x, %k : (!rows, !weight) -> !rows
  %values = xfc.linear %y, %v : (!rows, !weight) -> !rows
  %o, %l = xfc.attention %x, %keys, %values {heads = 2, scale = 0.5} : (!rows, !rows, !rows) -> (!rows, !lse)
  return %o : !rows
}

// -----

!rows = !xfc.rows<source, 8xf32>
!lse = !xfc.rows<source, 2xf32>
!weight = tensor<8x8xf32>

// Only one projection has a bias.
// CHECK-LABEL: func.func @one_bias
func.func @one_bias(%k: !weight {xfc.name = "k", xfc.role = "parameter"}, %v: !weight {xfc.name = "v", xfc.role = "parameter"},
                    %b: tensor<8xf32> {xfc.name = "b", xfc.role = "parameter"}, %x: !rows) -> !rows {
  %keys = xfc.linear %x, %k : (!rows, !weight) -> !rows
  %values = xfc.linear %x, %v bias %b : (!rows, !weight, tensor<8xf32>) -> !rows
  %o, %l = xfc.attention %x, %keys, %values {heads = 2, scale = 0.5} : (!rows, !rows, !rows) -> (!rows, !lse)
  return %o : !rows
}

// -----

!rows = !xfc.rows<source, 8xf32>
!lse = !xfc.rows<source, 2xf32>
!weight = tensor<8x8xf32>

// The projections share a bias, which cannot be laid out at two places.
// CHECK-LABEL: func.func @shared_bias
func.func @shared_bias(%k: !weight {xfc.name = "k", xfc.role = "parameter"}, %v: !weight {xfc.name = "v", xfc.role = "parameter"},
                       %b: tensor<8xf32> {xfc.name = "b", xfc.role = "parameter"}, %x: !rows) -> !rows {
  %keys = xfc.linear %x, %k bias %b : (!rows, !weight, tensor<8xf32>) -> !rows
  %values = xfc.linear %x, %v bias %b : (!rows, !weight, tensor<8xf32>) -> !rows
  %o, %l = xfc.attention %x, %keys, %values {heads = 2, scale = 0.5} : (!rows, !rows, !rows) -> (!rows, !lse)
  return %o : !rows
}

// -----

!rows = !xfc.rows<source, 8xf32>
!lse = !xfc.rows<source, 2xf32>
!weight = tensor<8x8xf32>

// A weight is tied to another linear's.
// CHECK-LABEL: func.func @tied
func.func @tied(%k: !weight {xfc.name = "k", xfc.role = "parameter"}, %v: !weight {xfc.name = "v", xfc.role = "parameter"}, %x: !rows) -> !rows {
  %keys = xfc.linear %x, %k : (!rows, !weight) -> !rows
  %values = xfc.linear %x, %v : (!rows, !weight) -> !rows
  %o, %l = xfc.attention %x, %keys, %values {heads = 2, scale = 0.5} : (!rows, !rows, !rows) -> (!rows, !lse)
  %tied = xfc.linear %o, %v : (!rows, !weight) -> !rows
  return %tied : !rows
}

// -----

!rows = !xfc.rows<source, 8xf32>
!lse = !xfc.rows<source, 2xf32>
!weight = tensor<8x8xf32>

// A weight is part of another concat.
// CHECK-LABEL: func.func @concatenated
func.func @concatenated(%k: !weight {xfc.name = "k", xfc.role = "parameter"}, %v: !weight {xfc.name = "v", xfc.role = "parameter"}, %x: !rows) -> !rows {
  %keys = xfc.linear %x, %k : (!rows, !weight) -> !rows
  %values = xfc.linear %x, %v : (!rows, !weight) -> !rows
  %o, %l = xfc.attention %x, %keys, %values {heads = 2, scale = 0.5} : (!rows, !rows, !rows) -> (!rows, !lse)
  return %o : !rows
}
func.func @other(%v: !weight {xfc.name = "v", xfc.role = "parameter"}, %w: !weight {xfc.name = "w", xfc.role = "parameter"}, %x: !rows) -> !xfc.rows<source, 16xf32> {
  %both = xfc.concat %v, %w : (!weight, !weight) -> tensor<16x8xf32>
  %y = xfc.linear %x, %both : (!rows, tensor<16x8xf32>) -> !xfc.rows<source, 16xf32>
  return %y : !xfc.rows<source, 16xf32>
}

// -----

!rows = !xfc.rows<source, 8xf32>
!weight = tensor<8x8xf32>

// A gated pair: its elementwise ops go into the two linears' epilogues instead.
// CHECK-LABEL: func.func @gated
func.func @gated(%g: !weight {xfc.name = "gate", xfc.role = "parameter"}, %v: !weight {xfc.name = "value", xfc.role = "parameter"}, %x: !rows) -> !rows {
  %gate = xfc.linear %x, %g : (!rows, !weight) -> !rows
  %a = xfc.activation silu %gate : !rows
  %value = xfc.linear %x, %v : (!rows, !weight) -> !rows
  %y = xfc.multiply %a, %value : !rows
  return %y : !rows
}

// -----

!rows = !xfc.rows<source, 8xf32>
!lse = !xfc.rows<source, 2xf32>
!weight = tensor<8x8xf32>

// The weights are not parameters.
// CHECK-LABEL: func.func @no_parameters
func.func @no_parameters(%k: !weight, %v: !weight, %x: !rows) -> !rows {
  %keys = xfc.linear %x, %k : (!rows, !weight) -> !rows
  %values = xfc.linear %x, %v : (!rows, !weight) -> !rows
  %o, %l = xfc.attention %x, %keys, %values {heads = 2, scale = 0.5} : (!rows, !rows, !rows) -> (!rows, !lse)
  return %o : !rows
}
