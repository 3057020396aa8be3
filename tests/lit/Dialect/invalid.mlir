// The verifiers of the ops and types reject invalid IR.
// RUN: %xfc-opt %s --split-input-file --verify-diagnostics

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
func.func @f(%ids: !ids, %w: tensor<11xf32>) {
  // expected-error @+1 {{table must have two dimensions, found 'tensor<11xf32>'}}
  %0 = xfc.embedding %ids, %w : (!ids, tensor<11xf32>) -> !x
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
func.func @f(%ids: !ids, %w: tensor<11x4xf32>) {
  // expected-error @+1 {{result has 6 features, the table 4}}
  %0 = xfc.embedding %ids, %w : (!ids, tensor<11x4xf32>) -> !x
  return
}

// -----

!tids = !xfc.rows<target, i32>
!x = !xfc.rows<source, 6xf32>
func.func @f(%tids: !tids, %w: tensor<11x6xf32>) {
  // expected-error @+1 {{ids and result are rows of different sets}}
  %0 = xfc.embedding %tids, %w : (!tids, tensor<11x6xf32>) -> !x
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
func.func @f(%ids: !ids, %w: tensor<11x6xf64>) {
  // expected-error @+1 {{operands and results must have the same element type, found 'f64' and '!xfc.rows<source, 6xf32>'}}
  %0 = xfc.embedding %ids, %w : (!ids, tensor<11x6xf64>) -> !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
func.func @f(%x: !x, %w: tensor<11x6xf64>) {
  // expected-error @+1 {{operand #0 must be rows of token ids}}
  %0 = xfc.embedding %x, %w : (!x, tensor<11x6xf64>) -> !x
  return
}

// -----

!tids = !xfc.rows<target, i32>
!x = !xfc.rows<source, 6xf32>
func.func @f(%tids: !tids, %x: !x) {
  // expected-error @+1 {{dy and ids are rows of different sets}}
  %0 = xfc.embedding_grad %x, %tids : (!x, !tids) -> tensor<11x6xf32>
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
func.func @f(%ids: !ids, %x: !x) {
  // expected-error @+1 {{result must be a table with rows of 6 features, found 'tensor<11x4xf32>'}}
  %0 = xfc.embedding_grad %x, %ids : (!x, !ids) -> tensor<11x4xf32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{result must be [positions, features], found 'tensor<11xf32>'}}
  %0 = xfc.sinusoid : () -> tensor<11xf32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{base must be positive, found 0.0}}
  %0 = xfc.sinusoid {base = 0.0} : () -> tensor<11x4xf32>
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
func.func @f(%x: !x, %w: tensor<11x4xf32>) {
  // expected-error @+1 {{table must be [positions, 6], found 'tensor<11x4xf32>'}}
  %0 = xfc.add_positions %x, %w : (!x, tensor<11x4xf32>) -> !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!t = !xfc.rows<target, 6xf32>
func.func @f(%x: !x, %w: tensor<11x6xf32>) {
  // expected-error @+1 {{x and result must have the same type}}
  %0 = xfc.add_positions %x, %w : (!x, tensor<11x6xf32>) -> !t
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{result must be a table with rows of 6 features, found 'tensor<6xf32>'}}
  %0 = xfc.positions_grad %x : (!x) -> tensor<6xf32>
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
func.func @f(%x: !x, %w: tensor<11x6xf32>) {
  // expected-error @+1 {{offset must be from 0 to 10, found 11}}
  %0 = xfc.add_positions %x, %w {offset = 11 : i64} : (!x, tensor<11x6xf32>) -> !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{offset must be from 0 to 4, found -1}}
  %0 = xfc.positions_grad %x {offset = -1 : i64} : (!x) -> tensor<5x6xf32>
  return
}

// -----

func.func @f(%t: tensor<6x2xf32>) {
  // expected-error @+1 {{bias must be [distances, 4] for 2 heads, found 'tensor<9x6xf32>'}}
  %0 = xfc.distance_bias %t {max_distance = 9 : i64} : (tensor<6x2xf32>) -> tensor<9x6xf32>
  return
}

// -----

func.func @f(%t: tensor<5x2xf32>) {
  // expected-error @+1 {{needs two or more buckets for each direction, found 'tensor<5x2xf32>'}}
  %0 = xfc.distance_bias %t {max_distance = 9 : i64, both_directions} : (tensor<5x2xf32>) -> tensor<9x4xf32>
  return
}

// -----

func.func @f(%b: tensor<9x4xf32>) {
  // expected-error @+1 {{max_distance must be above 3, found 3}}
  %0 = xfc.distance_bias_grad %b {max_distance = 3 : i64} : (tensor<9x4xf32>) -> tensor<6x2xf32>
  return
}

// -----

!p = !xfc.pairs<target, source, 2xf32>
func.func @f(%p: !p, %b: tensor<9x4xf32>) {
  // expected-error @+1 {{only has distances within one sequence; queries are rows of target, keys of source}}
  %0 = xfc.add_distance_bias %p, %b : (!p, tensor<9x4xf32>) -> !p
  return
}

// -----

!p = !xfc.pairs<target, cache, 2xf32>
func.func @f(%p: !p) {
  // expected-error @+1 {{needs queries and keys of the same set}}
  %0 = xfc.sum_distances %p : (!p) -> !xfc.rows<target, 4xf32>
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
func.func @f(%x: !x, %t: tensor<9x2xf32>) {
  // expected-error @+1 {{4 heads do not divide 6 features}}
  %0 = xfc.rotate %x, %t {heads = 4 : i64} : (!x, tensor<9x2xf32>) -> !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
func.func @f(%x: !x, %t: tensor<9x4xf32>) {
  // expected-error @+1 {{table must be [positions, an even number up to 3], found 'tensor<9x4xf32>'}}
  %0 = xfc.rotate %x, %t {heads = 2 : i64} : (!x, tensor<9x4xf32>) -> !x
  return
}

// -----

!p = !xfc.pairs<source, source, 2xf32>
func.func @f(%p: !p) {
  // expected-error @+1 {{reach must be at least 0, found -1}}
  %0 = xfc.mask %p {reach = -1 : i64} : !p
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!t = !xfc.rows<target, 6xf32>
func.func @f(%t: !t, %x: !x) {
  // expected-error @+1 {{only has distances within one sequence; queries are rows of target, keys of source}}
  %0, %1 = xfc.attention %t, %x, %x {heads = 2 : i64, scale = 1.0, reach = 3 : i64} : (!t, !x, !x) -> (!t, !xfc.rows<target, 2xf32>)
  return
}

// -----

!x = !xfc.rows<source, 8xf32>
!y = !xfc.rows<source, 6xf32>
func.func @f(%x: !x, %y: !y) {
  // expected-error @+1 {{k has 6 features; expected 2 for each of a number of heads that divides 4}}
  %0, %1 = xfc.attention %x, %y, %y {heads = 4 : i64, scale = 1.0} : (!x, !y, !y) -> (!x, !xfc.rows<source, 4xf32>)
  return
}

// -----

!x = !xfc.rows<source, 8xf32>
!y = !xfc.rows<source, 4xf32>
!z = !xfc.rows<source, 5xf32>
func.func @f(%x: !x, %y: !y, %z: !z) {
  // expected-error @+1 {{2 heads do not divide 5 features of v}}
  %0, %1 = xfc.attention %x, %y, %z {heads = 4 : i64, scale = 1.0} : (!x, !y, !z) -> (!x, !xfc.rows<source, 4xf32>)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %w: tensor<6xf32>) {
  // expected-error @+1 {{weight must have two dimensions, found 'tensor<6xf32>'}}
  %0 = xfc.linear %x, %w : (!x, tensor<6xf32>) -> !y
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %w: tensor<4x5xf32>) {
  // expected-error @+1 {{rows have 6 features, weight 'tensor<4x5xf32>' takes 5}}
  %0 = xfc.linear %x, %w : (!x, tensor<4x5xf32>) -> !y
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
func.func @f(%x: !x, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{result must be '!xfc.rows<source, 4xf32>', found '!xfc.rows<source, 6xf32>'}}
  %0 = xfc.linear %x, %w : (!x, tensor<4x6xf32>) -> !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %w: tensor<4x6xf32>, %b: tensor<6xf32>) {
  // expected-error @+1 {{bias must have 4 elements, found 'tensor<6xf32>'}}
  %0 = xfc.linear %x, %w bias %b : (!x, tensor<4x6xf32>, tensor<6xf32>) -> !y
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %w: tensor<4x6xf64>) {
  // expected-error @+1 {{operands and results must have the same element type}}
  %0 = xfc.linear %x, %w : (!x, tensor<4x6xf64>) -> !y
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %y: !y, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{without an epilogue, there must be no extras and one result}}
  %0 = xfc.linear %x, %w with %y : (!x, tensor<4x6xf32>, !y) -> !y
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{epilogue's arguments must be '!xfc.rows<source, 4xf32>', found '!xfc.rows<source, 6xf32>'}}
  %0 = xfc.linear %x, %w {
  ^bb0(%r: !x):
    xfc.yield %r : !x
  } : (!x, tensor<4x6xf32>) -> !y
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %y: !y, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{epilogue must be one block with an argument for the product and each of 1 extras}}
  %0 = xfc.linear %x, %w with %y {
  ^bb0(%r: !y):
    xfc.yield %r : !y
  } : (!x, tensor<4x6xf32>, !y) -> !y
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{epilogue cannot hold xfc.log_softmax}}
  %0 = xfc.linear %x, %w {
  ^bb0(%r: !y):
    %a = xfc.log_softmax %r : !y
    xfc.yield %a : !y
  } : (!x, tensor<4x6xf32>) -> !y
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{epilogue holds more than one dropout}}
  %0 = xfc.linear %x, %w {
  ^bb0(%r: !y):
    %a = xfc.dropout %r {rate = 0.1, id = 1 : i64} : !y
    %b = xfc.dropout %a {rate = 0.1, id = 2 : i64} : !y
    xfc.yield %b : !y
  } : (!x, tensor<4x6xf32>) -> !y
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{epilogue must yield 1 values}}
  %0 = xfc.linear %x, %w {
  ^bb0(%r: !y):
    xfc.yield %r, %r : !y, !y
  } : (!x, tensor<4x6xf32>) -> !y
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{rows have 6 features, weight 'tensor<4x6xf32>' takes 4}}
  %0 = xfc.linear_input_grad %x, %w : (!x, tensor<4x6xf32>) -> !y
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{is not defined in int8}}
  %0:2 = xfc.attention %x, %x, %x in int8 {heads = 2 : i64, scale = 1.0} : (!x, !x, !x) -> (!x, !xfc.rows<source, 2xf32>)
  return
}

// -----

!x = !xfc.rows<source, 6xf64>
!y = !xfc.rows<source, 4xf64>
func.func @f(%x: !x, %w: tensor<4x6xf64>) {
  // expected-error @+1 {{in bf16 takes f32 operands, found 'f64'}}
  %0 = xfc.linear %x, %w in bf16 : (!x, tensor<4x6xf64>) -> !y
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%y: !y, %w: tensor<4x6xf32>) {
  // expected-error @+1 {{is not defined in int8, which has no gradient}}
  %0 = xfc.linear_input_grad %y, %w in int8 : (!y, tensor<4x6xf32>) -> !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %y: !y) {
  // expected-error @+1 {{is not defined in int8, which has no gradient}}
  %0 = xfc.linear_weight_grad %y, %x in int8 : (!y, !x) -> tensor<4x6xf32>
  return
}

// -----

!y = !xfc.rows<source, 4xf32>
!t = !xfc.rows<target, 6xf32>
func.func @f(%y: !y, %t: !t) {
  // expected-error @+1 {{dy and x are rows of different sets}}
  %0 = xfc.linear_weight_grad %y, %t : (!y, !t) -> tensor<4x6xf32>
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %y: !y) {
  // expected-error @+1 {{the weight's gradient must be [4, 6], found 'tensor<6x4xf32>'}}
  %0 = xfc.linear_weight_grad %y, %x : (!y, !x) -> tensor<6x4xf32>
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %y: !y) {
  // expected-error @+1 {{the bias's gradient must have 4 elements, found 'tensor<6xf32>'}}
  %0:2 = xfc.linear_weight_grad %y, %x : (!y, !x) -> (tensor<4x6xf32>, tensor<6xf32>)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{parts have 8 features in total, but the whole has 6}}
  %0:2 = xfc.split %x : (!x) -> (!y, !y)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{parts and whole must be rows of the same set and element type}}
  %0:2 = xfc.split %x : (!x) -> (!y, !xfc.rows<target, 2xf32>)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{needs at least one part}}
  xfc.split %x : (!x) -> ()
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%y: !y) {
  // expected-error @+1 {{parts have 8 features in total, but the whole has 6}}
  %0 = xfc.join %y, %y : (!y, !y) -> !x
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{needs at least one part}}
  %0 = xfc.concat : () -> tensor<4x6xf32>
  return
}

// -----

func.func @f(%w: tensor<4x6xf32>, %v: tensor<2x5xf32>) {
  // expected-error @+1 {{parts and result may only differ in their first dimension, found 'tensor<2x5xf32>' and 'tensor<6x6xf32>'}}
  %0 = xfc.concat %w, %v : (tensor<4x6xf32>, tensor<2x5xf32>) -> tensor<6x6xf32>
  return
}

// -----

func.func @f(%w: tensor<4x6xf32>) {
  // expected-error @+1 {{parts have 8 rows in total, but the result has 6}}
  %0 = xfc.concat %w, %w : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  return
}

// -----

func.func @f(%w: tensor<4x6xf32>) {
  // expected-error @+1 {{operand and result may only differ in their first dimension}}
  %0 = xfc.slice %w {offset = 0 : i64} : (tensor<4x6xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @f(%w: tensor<4x6xf32>) {
  // expected-error @+1 {{takes rows 3 to 5 of 4}}
  %0 = xfc.slice %w {offset = 3 : i64} : (tensor<4x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %y: !y) {
  // expected-error @+1 {{requires the same type for all operands and results}}
  %0 = "xfc.add"(%x, %y) : (!x, !y) -> !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{rate must be at least 0 and less than 1, found 1.0}}
  %0 = xfc.dropout %x {rate = 1.0, id = 1 : i64} : !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{rate must be at least 0 and less than 1, found -1.0}}
  %0 = xfc.dropout %x {rate = -0.1, id = 1 : i64} : !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!t = !xfc.rows<target, 6xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %w: tensor<6xf32>) {
  // expected-error @+1 {{x and result must have the same type}}
  %0, %1 = xfc.norm %x, %w {eps = 0.1} : (!x, tensor<6xf32>) -> (!t, !two)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %w: tensor<4xf32>) {
  // expected-error @+1 {{parameters must have 6 elements, found 'tensor<4xf32>'}}
  %0, %1 = xfc.norm %x, %w {eps = 0.1} : (!x, tensor<4xf32>) -> (!x, !two)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %w: tensor<6xf32>) {
  // expected-error @+1 {{stats must be 2 numbers per row of x, found '!xfc.rows<source, 4xf32>'}}
  %0, %1 = xfc.norm %x, %w {eps = 0.1} : (!x, tensor<6xf32>) -> (!x, !y)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %w: tensor<6xf32>) {
  // expected-error @+1 {{eps must not be negative}}
  %0, %1 = xfc.norm %x, %w {eps = -0.1} : (!x, tensor<6xf32>) -> (!x, !two)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %w: tensor<6xf32>) {
  // expected-error @+1 {{an rms norm cannot have a bias, unbiased or eps_in_std}}
  %0, %1 = xfc.norm %x, %w {eps = 0.1, kind = 1 : i32, unbiased} : (!x, tensor<6xf32>) -> (!x, !two)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %w: tensor<6xf64>) {
  // expected-error @+1 {{operands and results must have the same element type}}
  %0, %1 = xfc.norm %x, %w {eps = 0.1} : (!x, tensor<6xf64>) -> (!x, !two)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %y: !y, %w: tensor<6xf32>) {
  // expected-error @+1 {{x, residual, result and sum must have the same type}}
  %0, %1, %2 = xfc.add_norm %x, %y, %w {eps = 0.1} : (!x, !y, tensor<6xf32>) -> (!x, !x, !two)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %y: !y, %two: !two, %w: tensor<6xf32>) {
  // expected-error @+1 {{dy, x, addend and result must have the same type}}
  %0 = xfc.norm_grad %y, %x, %w, %two {eps = 0.1} : (!y, !x, tensor<6xf32>, !two) -> !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %y: !y, %two: !two) {
  // expected-error @+1 {{dy and x must have the same type}}
  %0 = xfc.norm_weight_grad %y, %x, %two : (!y, !x, !two) -> tensor<6xf32>
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %w: tensor<6xf32>, %two: !two) {
  // expected-error @+1 {{parts must be rows of 6 numbers, found 'tensor<8x4xf32>'}}
  %0, %1 = xfc.norm_grad_with_parts %x, %x, %w, %two {eps = 0.1} : (!x, !x, tensor<6xf32>, !two) -> (!x, tensor<8x4xf32>)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %w: tensor<6xf32>, %two: !two) {
  // expected-error @+1 {{dweights and dbiases must have the same type}}
  %0, %1, %2 = xfc.norm_grad_with_parts %x, %x, %w, %two {eps = 0.1} : (!x, !x, tensor<6xf32>, !two) -> (!x, tensor<8x6xf32>, tensor<4x6xf32>)
  return
}

// -----

func.func @f(%p: tensor<8x6xf32>) {
  // expected-error @+1 {{the sum of 'tensor<8x6xf32>' cannot be 'tensor<8xf32>'}}
  %0 = xfc.sum_parts %p : (tensor<8x6xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @f(%p: tensor<8x6xf32>, %q: tensor<4x6xf32>) {
  // expected-error @+1 {{parts must have the same type}}
  %0, %1 = xfc.sum_parts %p, %q : (tensor<8x6xf32>, tensor<4x6xf32>) -> (tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @f(%p: tensor<8x6xf32>) {
  // expected-error @+1 {{must have as many sums as parts, and at least one}}
  %0, %1 = xfc.sum_parts %p : (tensor<8x6xf32>) -> (tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

!pairs = !xfc.pairs<source, source, padding, 2xf32>
func.func @f(%p: !pairs) {
  // expected-error @+1 {{kept is only allowed for rows}}
  %0 = xfc.dropout %p {rate = 0.1, id = 1 : i64, kept} : !pairs
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %two: !two) {
  // expected-error @+1 {{parameters must have 6 elements, found 'tensor<4xf32>'}}
  %0 = xfc.norm_weight_grad %x, %x, %two : (!x, !x, !two) -> tensor<4xf32>
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!ss = !xfc.pairs<source, source, padding, 2xf32>
func.func @f(%x: !x, %y: !y) {
  // expected-error @+1 {{k has 4 features; expected 3 for each of a number of heads that divides 2}}
  %0 = xfc.scores %x, %y : (!x, !y) -> !ss
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!ts = !xfc.pairs<target, source, padding, 2xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{queries are rows of source, but those of the pairs are rows of target}}
  %0 = xfc.scores %x, %x : (!x, !x) -> !ts
  return
}

// -----

!t = !xfc.rows<target, 6xf32>
!ts = !xfc.pairs<target, source, padding, 2xf32>
func.func @f(%t: !t) {
  // expected-error @+1 {{keys are rows of target, but those of the pairs are rows of source}}
  %0 = xfc.scores %t, %t : (!t, !t) -> !ts
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!s5 = !xfc.pairs<source, source, 5xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{5 heads do not divide 6 features}}
  %0 = xfc.scores %x, %x : (!x, !x) -> !s5
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!ss = !xfc.pairs<source, source, padding, 2xf32>
func.func @f(%y: !y, %ss: !ss) {
  // expected-error @+1 {{v has 4 features; expected 3 for each of a number of heads that divides 2}}
  %0 = xfc.combine %ss, %y : (!ss, !y) -> !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!s5 = !xfc.pairs<source, source, 5xf32>
func.func @f(%x: !x, %s5: !s5) {
  // expected-error @+1 {{5 heads do not divide 6 features}}
  %0 = xfc.combine %s5, %x : (!s5, !x) -> !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!ss = !xfc.pairs<source, source, padding, 2xf32>
func.func @f(%y: !y, %ss: !ss) {
  // expected-error @+1 {{the result has 6 features; expected 2 for each of a number of heads that divides 2}}
  %0 = xfc.combine_transposed %ss, %y : (!ss, !y) -> !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!ts = !xfc.pairs<target, source, padding, 2xf32>
func.func @f(%x: !x, %ts: !ts) {
  // expected-error @+1 {{queries are rows of source, but those of the pairs are rows of target}}
  %0 = xfc.combine_transposed %ts, %x : (!ts, !x) -> !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %y: !y) {
  // expected-error @+1 {{4 heads do not divide 6 features}}
  %0, %1 = xfc.attention %x, %x, %y {heads = 4 : i64, scale = 1.0} : (!x, !x, !y) -> (!y, !two)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %y: !y) {
  // expected-error @+1 {{k has 4 features; expected 3 for each of a number of heads that divides 2}}
  %0, %1 = xfc.attention %x, %y, %y {heads = 2 : i64, scale = 1.0} : (!x, !y, !y) -> (!y, !two)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!t = !xfc.rows<target, 6xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %t: !t) {
  // expected-error @+1 {{k and v are rows of different sets}}
  %0, %1 = xfc.attention %x, %x, %t {heads = 2 : i64, scale = 1.0} : (!x, !x, !t) -> (!x, !two)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %y: !y) {
  // expected-error @+1 {{output must be '!xfc.rows<source, 4xf32>', a value for each of 2 heads, found '!xfc.rows<source, 6xf32>'}}
  %0, %1 = xfc.attention %x, %x, %y {heads = 2 : i64, scale = 1.0} : (!x, !x, !y) -> (!x, !two)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %y: !y) {
  // expected-error @+1 {{lse must be 2 numbers per row of q, found '!xfc.rows<source, 4xf32>'}}
  %0, %1 = xfc.attention %x, %x, %y {heads = 2 : i64, scale = 1.0} : (!x, !x, !y) -> (!y, !y)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!two = !xfc.rows<source, 2xf32>
!ss = !xfc.pairs<source, source, padding, 2xf32>
func.func @f(%x: !x, %y: !y) {
  // expected-error @+1 {{weights have a different structure: '!xfc.pairs<source, source, padding, 2xf32>'}}
  %0, %1, %2 = xfc.attention %x, %x, %y {heads = 2 : i64, scale = 1.0} : (!x, !x, !y) -> (!y, !two, !ss)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %y: !y) {
  // expected-error @+1 {{rate must be at least 0 and less than 1, found 1.0}}
  %0, %1 = xfc.attention %x, %x, %y {heads = 2 : i64, scale = 1.0, rate = 1.0} : (!x, !x, !y) -> (!y, !two)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!t = !xfc.rows<target, 6xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %t: !t) {
  // expected-error @+1 {{rows of source do not attend to rows of target}}
  %0, %1 = xfc.attention %x, %t, %t {heads = 2 : i64, scale = 1.0} : (!x, !t, !t) -> (!x, !two)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %y: !y, %two: !two) {
  // expected-error @+1 {{dq, dk and dv must have the types of q, k and v}}
  %0, %1, %2 = xfc.attention_grad %y, %x, %x, %y, %y, %two {heads = 2 : i64, scale = 1.0} : (!y, !x, !x, !y, !y, !two) -> (!x, !x, !x)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %y: !y, %two: !two) {
  // expected-error @+1 {{doutput and output must have the same type}}
  %0, %1, %2 = xfc.attention_grad %x, %x, %x, %y, %y, %two {heads = 2 : i64, scale = 1.0} : (!x, !x, !x, !y, !y, !two) -> (!x, !x, !y)
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!t = !xfc.rows<target, 6xf32>
func.func @f(%x: !x, %t: !t) {
  // expected-error @+1 {{operand and result must be rows of the cache, found '!xfc.rows<source, 6xf32>' and '!xfc.rows<source, 6xf32>'}}
  %0 = xfc.cache_write %x, %t : (!x, !t) -> !x
  return
}

// -----

!y = !xfc.rows<source, 4xf32>
!c = !xfc.rows<cache, 6xf32>
func.func @f(%y: !y, %c: !c) {
  // expected-error @+1 {{rows have 4 features, the cache 6}}
  %0 = xfc.cache_write %c, %y : (!c, !y) -> !c
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!c = !xfc.rows<cache, 6xf32>
func.func @f(%x: !x, %c: !c) {
  // expected-error @+1 {{rows must be rows of the target, found '!xfc.rows<source, 6xf32>'}}
  %0 = xfc.cache_write %c, %x : (!c, !x) -> !c
  return
}

// -----

!t = !xfc.rows<target, 6xf32>
!c = !xfc.rows<cache, 6xi8>
func.func @f(%t: !t, %c: !c) {
  // expected-error @+1 {{rows of 'f32' cannot be kept in a cache of 'i8'; see xfc.quantize}}
  %0 = xfc.cache_write %c, %t : (!c, !t) -> !c
  return
}

// -----

!t = !xfc.rows<target, 16xf32>
!c = !xfc.rows<cache, 16xf32>
func.func @f(%x: !t, %w: tensor<32x8xf32>, %c: !c) {
  // expected-error @+1 {{weight must be [columns, 16], found 'tensor<32x8xf32>'}}
  %q, %k = xfc.linear_to_cache %x, %w into %c : (!t, tensor<32x8xf32>, !c) -> (!t, !c)
  return
}

// -----

!t = !xfc.rows<target, 16xf32>
!c = !xfc.rows<cache, 16xf32>
func.func @f(%x: !t, %w: tensor<32x16xf32>, %b: tensor<16xf32>, %c: !c) {
  // expected-error @+1 {{bias must have 32 elements, found 'tensor<16xf32>'}}
  %q, %k = xfc.linear_to_cache %x, %w bias %b into %c : (!t, tensor<32x16xf32>, tensor<16xf32>, !c) -> (!t, !c)
  return
}

// -----

!t = !xfc.rows<target, 16xf32>
!c = !xfc.rows<cache, 16xf32>
func.func @f(%x: !xfc.rows<source, 16xf32>, %w: tensor<32x16xf32>, %c: !c) {
  // expected-error @+1 {{rows must be rows of the target, found '!xfc.rows<source, 16xf32>' and}}
  %q, %k = xfc.linear_to_cache %x, %w into %c : (!xfc.rows<source, 16xf32>, tensor<32x16xf32>, !c) -> (!t, !c)
  return
}

// -----

!t = !xfc.rows<target, 16xf32>
!c = !xfc.rows<cache, 16xf32>
func.func @f(%x: !t, %w: tensor<32x16xf32>, %c: !c) {
  // expected-error @+1 {{needs caches, and a result of the same type for each of them}}
  %q = xfc.linear_to_cache %x, %w into %c : (!t, tensor<32x16xf32>, !c) -> !t
  return
}

// -----

!t = !xfc.rows<target, 16xf32>
!c = !xfc.rows<cache, 16xf32>
func.func @f(%x: !t, %w: tensor<32x16xf32>) {
  // expected-error @+1 {{operand and result must be rows of the cache, found '!xfc.rows<target, 16xf32>'}}
  %q, %k = xfc.linear_to_cache %x, %w into %x : (!t, tensor<32x16xf32>, !t) -> (!t, !t)
  return
}

// -----

!t = !xfc.rows<target, 16xf32>
!c = !xfc.rows<cache, 16xf32>
func.func @f(%x: !t, %w: tensor<48x16xf32>, %c: !c) {
  // expected-error @+1 {{writes each cache once, but one is given twice}}
  %q, %k, %v = xfc.linear_to_cache %x, %w into %c, %c : (!t, tensor<48x16xf32>, !c, !c) -> (!t, !c, !c)
  return
}

// -----

!t = !xfc.rows<target, 16xf32>
!c = !xfc.rows<cache, 16xf32>
func.func @f(%x: !t, %w: tensor<48x16xf32>, %c: !c) {
  // expected-error @+1 {{rows and caches have 32 features in total, the weight 48 columns}}
  %q, %k = xfc.linear_to_cache %x, %w into %c : (!t, tensor<48x16xf32>, !c) -> (!t, !c)
  return
}

// -----

!t = !xfc.rows<target, 16xf32>
!c = !xfc.rows<cache, 16xf32>
func.func @f(%x: !t, %w: tensor<24x16xf32>, %c: !c) {
  // expected-error @+1 {{features must be a multiple of 16, found '!xfc.rows<target, 8xf32>'}}
  %q, %k = xfc.linear_to_cache %x, %w into %c : (!t, tensor<24x16xf32>, !c) -> (!xfc.rows<target, 8xf32>, !c)
  return
}

// -----

!t = !xfc.rows<target, 6xf32>
func.func @f(%t: !t) {
  // expected-error @+1 {{the result must have the rows of x in a narrower type, found '!xfc.rows<target, 6xf32>' and '!xfc.rows<target, 6xf32>'}}
  %0 = xfc.quantize %t : (!t) -> !t
  return
}

// -----

!t = !xfc.rows<target, 6xf32>
func.func @f(%t: !t) {
  // expected-error @+1 {{4 groups do not divide 6 features}}
  %0, %1 = xfc.quantize %t {groups = 4 : i64} : (!t) -> (!xfc.rows<target, 6xi8>, !xfc.rows<target, 4xf32>)
  return
}

// -----

!t = !xfc.rows<target, 6xf32>
func.func @f(%t: !t) {
  // expected-error @+1 {{rows of 'bf16' have no scales}}
  %0, %1 = xfc.quantize %t : (!t) -> (!xfc.rows<target, 6xbf16>, !xfc.rows<target, 1xf32>)
  return
}

// -----

!t = !xfc.rows<target, 6xf32>
func.func @f(%t: !t) {
  // expected-error @+1 {{rows of 'i8' need scales, '!xfc.rows<target, 2xf32>'}}
  %0, %1 = xfc.quantize %t {groups = 2 : i64} : (!t) -> (!xfc.rows<target, 6xi8>, !xfc.rows<target, 3xf32>)
  return
}

// -----

!t = !xfc.rows<target, 8xf32>
!c = !xfc.rows<cache, 8xi8>
func.func @f(%t: !t, %c: !c) {
  // expected-error @+1 {{k holds integers and needs scales, '!xfc.rows<cache, 2xf32>'}}
  %0, %1 = xfc.attention %t, %c, %c {heads = 2 : i64, scale = 1.0} : (!t, !c, !c) -> (!t, !xfc.rows<target, 2xf32>)
  return
}

// -----

!t = !xfc.rows<target, 8xf32>
!c = !xfc.rows<cache, 8xi8>
!s = !xfc.rows<cache, 2xf32>
!o = !xfc.rows<cache, 1xf32>
func.func @f(%t: !t, %c: !c, %s: !s, %o: !o) {
  // expected-error @+1 {{the scales of v must be '!xfc.rows<cache, 2xf32>', found '!xfc.rows<cache, 1xf32>'}}
  %0, %1 = xfc.attention %t, %c, %c scaled by %s, %o {heads = 2 : i64, scale = 1.0} : (!t, !c, !c, !s, !o) -> (!t, !xfc.rows<target, 2xf32>)
  return
}

// -----

!t = !xfc.rows<target, 8xf32>
!c = !xfc.rows<cache, 8xf32>
!s = !xfc.rows<cache, 2xf32>
func.func @f(%t: !t, %c: !c, %s: !s) {
  // expected-error @+1 {{k is scaled, but holds no integers: '!xfc.rows<cache, 8xf32>'}}
  %0, %1 = xfc.attention %t, %c, %c scaled by %s, %s {heads = 2 : i64, scale = 1.0} : (!t, !c, !c, !s, !s) -> (!t, !xfc.rows<target, 2xf32>)
  return
}

// -----

!c = !xfc.rows<cache, 6xf32>
func.func @f(%c: !c) {
  // expected-error @+1 {{must scan rows of the source or the target, found '!xfc.rows<cache, 6xf32>'}}
  %0 = xfc.recurrence %c, %c : (!c, !c) -> !c
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
func.func @f(%x: !x, %y: !y) {
  // expected-error @+1 {{rows must have one type, found '!xfc.rows<source, 6xf32>' and '!xfc.rows<source, 4xf32>'}}
  %0 = xfc.recurrence %x, %y : (!x, !y) -> !x
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!c = !xfc.rows<cache, 6xf32>
func.func @f(%x: !x, %c: !c) {
  // expected-error @+1 {{with states, rows must be rows of the target, found '!xfc.rows<source, 6xf32>'}}
  %0 = xfc.recurrence %x, %x, %c : (!x, !x, !c) -> !x
  return
}

// -----

!t = !xfc.rows<target, 6xf32>
!c = !xfc.rows<cache, 4xf32>
func.func @f(%t: !t, %c: !c) {
  // expected-error @+1 {{states must be '!xfc.rows<cache, 6xf32>', found '!xfc.rows<cache, 4xf32>'}}
  %0 = xfc.recurrence %t, %t, %c : (!t, !t, !c) -> !t
  return
}

// -----

!x = !xfc.rows<source, 6xf32>
!t = !xfc.rows<target, 6xf32>
func.func @f(%x: !x, %t: !t) {
  // expected-error @+1 {{rows must have one type, found '!xfc.rows<source, 6xf32>' and '!xfc.rows<target, 6xf32>'}}
  %0, %1 = xfc.recurrence_grad %x, %x, %x, %t : (!x, !x, !x, !t) -> (!x, !x)
  return
}

// -----

!tids = !xfc.rows<target, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
func.func @f(%tids: !tids, %x: !x, %e: tensor<f32>) {
  // expected-error @+1 {{labels are rows of target, found rows of source}}
  %0, %1 = xfc.nll %x, %tids, %e : (!x, !tids, tensor<f32>) -> (!one, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%ids: !ids, %x: !x, %e: tensor<f32>) {
  // expected-error @+1 {{losses must be one number per row of the labels, found '!xfc.rows<source, 2xf32>'}}
  %0, %1 = xfc.nll %x, %ids, %e : (!x, !ids, tensor<f32>) -> (!two, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
func.func @f(%ids: !ids, %x: !x, %e: tensor<f64>) {
  // expected-error @+1 {{operands and results must have the same element type}}
  %0, %1 = xfc.nll %x, %ids, %e : (!x, !ids, tensor<f64>) -> (!one, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%ids: !ids, %x: !x, %two: !two) {
  // expected-error @+1 {{smoothing must be a scalar if rows have one label, and otherwise have one share more than a row has labels; found '!xfc.rows<source, i32>' and '!xfc.rows<source, 2xf32>'}}
  %0, %1 = xfc.nll %x, %ids, %two : (!x, !ids, !two) -> (!one, !one)
  return
}

// -----

!lists = !xfc.rows<source, 3xi32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
func.func @f(%lists: !lists, %x: !x, %e: tensor<f32>) {
  // expected-error @+1 {{smoothing must be a scalar if rows have one label}}
  %0, %1, %2 = xfc.cross_entropy %x, %lists, %e : (!x, !lists, tensor<f32>) -> (!one, !one, !one)
  return
}

// -----

!lists = !xfc.rows<source, 3xi32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!three = !xfc.rows<source, 3xf32>
func.func @f(%lists: !lists, %x: !x, %one: !one, %three: !three) {
  // expected-error @+1 {{have one share more than a row has labels; found '!xfc.rows<source, 3xi32>' and '!xfc.rows<source, 3xf32>'}}
  %0 = xfc.cross_entropy_grad %x, %one, %lists, %one, %three : (!x, !one, !lists, !one, !three) -> !x
  return
}

// -----

!lists = !xfc.rows<target, 1xi32>
!x = !xfc.rows<target, 6xf32>
!one = !xfc.rows<target, f32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%lists: !lists, %one: !one, %two: !two) {
  // expected-error @+1 {{have one share more than a row has labels; found '!xfc.rows<target, 1xi32>' and '!xfc.rows<source, 2xf32>'}}
  %0 = xfc.nll_grad %one, %lists, %two : (!one, !lists, !two) -> !x
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%ids: !ids, %two: !two, %e: tensor<f32>) {
  // expected-error @+1 {{losses must be one number per row of the labels}}
  %0 = xfc.nll_grad %two, %ids, %e : (!two, !ids, tensor<f32>) -> !x
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%ids: !ids, %x: !x, %e: tensor<f32>) {
  // expected-error @+1 {{losses must be one number per row of the labels}}
  %0, %1, %2 = xfc.cross_entropy %x, %ids, %e : (!x, !ids, tensor<f32>) -> (!one, !one, !two)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!one = !xfc.rows<source, f32>
func.func @f(%ids: !ids, %x: !x, %one: !one, %e: tensor<f32>) {
  // expected-error @+1 {{logits and result must have the same type}}
  %0 = xfc.cross_entropy_grad %x, %one, %ids, %one, %e : (!x, !one, !ids, !one, tensor<f32>) -> !y
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
func.func @f(%ids: !ids, %x: !x, %w: tensor<6x4xf32>, %e: tensor<f32>) {
  // expected-error @+1 {{weight must be [vocabulary, 6], found 'tensor<6x4xf32>'}}
  %0:4 = xfc.linear_cross_entropy %x, %w, %ids, %e : (!x, tensor<6x4xf32>, !ids, tensor<f32>) -> (!one, !one, !x, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!y = !xfc.rows<source, 4xf32>
!one = !xfc.rows<source, f32>
func.func @f(%ids: !ids, %y: !y, %w: tensor<6x4xf32>, %e: tensor<f32>) {
  // expected-error @+1 {{logits must have 6 features, found '!xfc.rows<source, 4xf32>'}}
  %0:4 = xfc.linear_cross_entropy %y, %w, %ids, %e : (!y, tensor<6x4xf32>, !ids, tensor<f32>) -> (!one, !one, !y, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!y = !xfc.rows<source, 4xf32>
!one = !xfc.rows<source, f32>
func.func @f(%ids: !ids, %y: !y, %w: tensor<6x4xf32>, %b: tensor<4xf32>, %e: tensor<f32>) {
  // expected-error @+1 {{bias must have 6 elements, found 'tensor<4xf32>'}}
  %0:4 = xfc.linear_cross_entropy %y, %w, %b, %ids, %e : (!y, tensor<6x4xf32>, tensor<4xf32>, !ids, tensor<f32>) -> (!one, !one, !x, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!list = !xfc.rows<source, 2xi32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %ids: !ids) {
  // expected-error @+1 {{excluded must be ascending tokens below 6, found 0}}
  %0:3 = xfc.candidates %x, %ids {excluded = array<i64: 3, 0>} : (!x, !ids) -> (!list, !two, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!list = !xfc.rows<source, 2xi32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %ids: !ids) {
  // expected-error @+1 {{excluded must be ascending tokens below 6, found 6}}
  %0:3 = xfc.candidates %x, %ids {excluded = array<i64: 0, 6>} : (!x, !ids) -> (!list, !two, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!list = !xfc.rows<source, 2xi32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %ids: !xfc.rows<target, i32>) {
  // expected-error @+1 {{wanted tokens must be of rows of source, found '!xfc.rows<target, i32>'}}
  %0:3 = xfc.candidates %x, %ids {excluded = array<i64: 0>} : (!x, !xfc.rows<target, i32>) -> (!list, !two, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!list = !xfc.rows<source, 2xi32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %ids: !ids) {
  // expected-error @+1 {{each token needs a number, found '!xfc.rows<source, 6xf32>' for '!xfc.rows<source, 2xi32>'}}
  %0:3 = xfc.candidates %x, %ids {excluded = array<i64: 0>} : (!x, !ids) -> (!list, !x, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!list = !xfc.rows<source, 2xi32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %ids: !ids) {
  // expected-error @+1 {{the wanted token needs one number per row, found '!xfc.rows<source, 2xf32>'}}
  %0:3 = xfc.candidates %x, %ids {excluded = array<i64: 0>} : (!x, !ids) -> (!list, !two, !two)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!list = !xfc.rows<source, 2xi32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %ids: !ids) {
  // expected-error @+1 {{tokens must be a list for each of the rows of source, found '!xfc.rows<target, 2xi32>'}}
  %0:3 = xfc.candidates %x, %ids {excluded = array<i64: 0>} : (!x, !ids) -> (!xfc.rows<target, 2xi32>, !two, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!list = !xfc.rows<source, 2xi32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %w: tensor<100x4xf32>, %ids: !ids) {
  // expected-error @+1 {{weight must be [vocabulary, 6], found 'tensor<100x4xf32>'}}
  %0:4 = xfc.linear_candidates %x, %w, %ids {excluded = array<i64: 0>, slab = 64 : i64} : (!x, tensor<100x4xf32>, !ids) -> (!list, !two, !two, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!list = !xfc.rows<source, 2xi32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %w: tensor<100x6xf32>, %ids: !ids) {
  // expected-error @+1 {{slab must be a multiple of 64, found 50}}
  %0:4 = xfc.linear_candidates %x, %w, %ids {excluded = array<i64: 0>, slab = 50 : i64} : (!x, tensor<100x6xf32>, !ids) -> (!list, !two, !two, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!list = !xfc.rows<source, 2xi32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %w: tensor<100x6xf32>, %ids: !ids) {
  // expected-error @+1 {{lse must have one feature per slab, 2, found '!xfc.rows<source, f32>'}}
  %0:4 = xfc.linear_candidates %x, %w, %ids {excluded = array<i64: 0>, slab = 64 : i64} : (!x, tensor<100x6xf32>, !ids) -> (!list, !two, !one, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!list = !xfc.rows<source, 2xi32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %w: tensor<200x6xf32>, %ids: !ids) {
  // expected-error @+1 {{tokens must have the same number of features for each of 4 slabs, found '!xfc.rows<source, 2xi32>'}}
  %0:4 = xfc.linear_candidates %x, %w, %ids {excluded = array<i64: 0>, slab = 64 : i64} : (!x, tensor<200x6xf32>, !ids) -> (!list, !two, !xfc.rows<source, 4xf32>, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!list = !xfc.rows<source, 2xi32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%x: !x, %w: tensor<100x6xf32>, %b: tensor<6xf32>, %ids: !ids) {
  // expected-error @+1 {{bias must have 100 elements, found 'tensor<6xf32>'}}
  %0:4 = xfc.linear_candidates %x, %w, %b, %ids {excluded = array<i64: 0>, slab = 64 : i64} : (!x, tensor<100x6xf32>, tensor<6xf32>, !ids) -> (!list, !two, !two, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!list = !xfc.rows<source, 2xi32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%t: !list, %l: !two, %lse: !two, %z: !one) {
  // expected-error @+1 {{slabs' tokens must be 2 slabs of 2, found '!xfc.rows<source, 2xi32>'}}
  %0:3 = xfc.merge_candidates %t, %l, %lse, %z : (!list, !two, !two, !one) -> (!list, !two, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!list = !xfc.rows<source, 2xi32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%t: !xfc.rows<source, 4xi32>, %l: !two, %lse: !two, %z: !one) {
  // expected-error @+1 {{each token of a slab needs a number, found '!xfc.rows<source, 2xf32>' for '!xfc.rows<source, 4xi32>'}}
  %0:3 = xfc.merge_candidates %t, %l, %lse, %z : (!xfc.rows<source, 4xi32>, !two, !two, !one) -> (!list, !two, !one)
  return
}

// -----

!ids = !xfc.rows<source, i32>
!x = !xfc.rows<source, 6xf32>
!one = !xfc.rows<source, f32>
!list = !xfc.rows<source, 2xi32>
!two = !xfc.rows<source, 2xf32>
func.func @f(%t: !xfc.rows<source, 4xi32>, %l: !xfc.rows<source, 4xf32>, %lse: !two, %z: !two) {
  // expected-error @+1 {{the wanted token needs one number per row, found '!xfc.rows<source, 2xf32>'}}
  %0:3 = xfc.merge_candidates %t, %l, %lse, %z : (!xfc.rows<source, 4xi32>, !xfc.rows<source, 4xf32>, !two, !two) -> (!list, !two, !one)
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{needs at least one tensor}}
  %0 = xfc.square_sum : () -> tensor<1xf64>
  return
}

// -----

func.func @f(%w: tensor<6xf32>) {
  // expected-error @+1 {{result must have one dimension and at least one element, found 'tensor<f64>'}}
  %0 = xfc.square_sum %w : (tensor<6xf32>) -> tensor<f64>
  return
}

// -----

func.func @f(%e: tensor<f32>, %w: tensor<6x4xf32>) {
  // expected-error @+1 {{sums must have one dimension, found 'tensor<6x4xf32>'}}
  %0, %1 = xfc.clip_factor %e, %w : (tensor<f32>, tensor<6x4xf32>) -> (tensor<f32>, tensor<f32>)
  return
}

// -----

func.func @f(%h: tensor<10xf32>, %e: tensor<f32>, %w: tensor<6xf32>, %v: tensor<4xf32>) {
  // expected-error @+1 {{every operand and result of parameter 0 must be 'tensor<6xf32>', found 'tensor<4xf32>'}}
  %0, %1, %2 = xfc.optimize "adam" %h, %e parameters(%w) gradients(%v) states(%w, %w) : (tensor<10xf32>, tensor<f32>, tensor<6xf32>, tensor<4xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @f(%w: tensor<6xf32>, %h: tensor<10xf32>, %e: tensor<f32>) {
  // expected-error @+1 {{'xfc.optimize' op rounds packed weights, but packs none}}
  %0, %1, %2 = xfc.optimize "adam" %h, %e parameters(%w) gradients(%w) states(%w, %w) in bf16 : (tensor<10xf32>, tensor<f32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @f(%h: tensor<10xf32>, %e: tensor<f32>, %w: tensor<6xf32>) {
  // expected-error-re @+1 {{there is no rule "adom"; expected one of adam, {{.*}}}}
  %0 = xfc.optimize "adom" %h, %e parameters(%w) gradients(%w) states() : (tensor<10xf32>, tensor<f32>, tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @f(%h: tensor<10xf32>, %e: tensor<f32>) {
  // expected-error @+1 {{needs at least one parameter}}
  xfc.optimize "adam" %h, %e parameters() gradients() states() : (tensor<10xf32>, tensor<f32>) -> ()
  return
}

// -----

func.func @f(%h: tensor<7xf32>, %e: tensor<f32>, %w: tensor<6xf32>) {
  // expected-error @+1 {{hyper must have 10 elements, found 'tensor<7xf32>'}}
  %0, %1, %2 = xfc.optimize "adam" %h, %e parameters(%w) gradients(%w) states(%w, %w) : (tensor<7xf32>, tensor<f32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @f(%h: tensor<10xf32>, %e: tensor<f32>, %w: tensor<6xf32>) {
  // expected-error @+1 {{with 1 parameters needs 1 gradients, 2 states and 3 results, found 1, 3 and 3}}
  %0, %1, %2 = xfc.optimize "adam" %h, %e parameters(%w) gradients(%w) states(%w, %w, %w) : (tensor<10xf32>, tensor<f32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @f(%h: tensor<8xf32>, %e: tensor<f32>, %w: tensor<6x4xf32>) {
  // expected-error-re @+1 {{does not take a step by the rule "adafactor"; expected one of adam, {{.*}}}}
  %0 = xfc.optimize "adafactor" %h, %e parameters(%w) gradients(%w) states() : (tensor<8xf32>, tensor<f32>, tensor<6x4xf32>, tensor<6x4xf32>) -> tensor<6x4xf32>
  return
}

// -----

func.func @f(%h: tensor<10xf32>, %e: tensor<f32>, %w: tensor<6xf32>) {
  // expected-error-re @+1 {{does not take a step by the rule "adam"; expected one of adafactor{{.*}}}}
  %0, %1 = xfc.row_moments "adam" %h, %e parameters(%w) gradients(%w) rows(%w) : (tensor<10xf32>, tensor<f32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<6xf32>, tensor<1xf64>)
  return
}

// -----

func.func @f(%h: tensor<10xf32>, %e: tensor<f32>, %w: tensor<6xf32>) {
  // expected-error @+1 {{hyper must have 8 elements, found 'tensor<10xf32>'}}
  %0, %1 = xfc.row_moments "adafactor" %h, %e parameters(%w) gradients(%w) rows(%w) : (tensor<10xf32>, tensor<f32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<6xf32>, tensor<1xf64>)
  return
}

// -----

func.func @f(%h: tensor<8xf32>, %e: tensor<f32>, %w: tensor<6x4xf32>, %r: tensor<6xf32>) {
  // expected-error @+1 {{needs 3 results, found 2}}
  %0, %1 = xfc.row_moments "adafactor" %h, %e parameters(%w) gradients(%w) rows(%r) : (tensor<8xf32>, tensor<f32>, tensor<6x4xf32>, tensor<6x4xf32>, tensor<6xf32>) -> (tensor<6xf32>, tensor<1xf64>)
  return
}

// -----

func.func @f(%h: tensor<8xf32>, %e: tensor<f32>, %w: tensor<6x4xf32>, %c: tensor<4xf32>) {
  // expected-error @+1 {{means of rows 0 must be 'tensor<6xf32>', found 'tensor<4xf32>'}}
  %0, %1, %2 = xfc.row_moments "adafactor" %h, %e parameters(%w) gradients(%w) rows(%c) : (tensor<8xf32>, tensor<f32>, tensor<6x4xf32>, tensor<6x4xf32>, tensor<4xf32>) -> (tensor<6xf32>, tensor<1xf64>, tensor<1x4xf64>)
  return
}

// -----

func.func @f(%h: tensor<8xf32>, %e: tensor<f32>) {
  // expected-error @+1 {{needs at least one parameter}}
  xfc.row_moments "adafactor" %h, %e parameters() gradients() rows() : (tensor<8xf32>, tensor<f32>) -> ()
  return
}

// -----

func.func @f(%h: tensor<8xf32>, %r: tensor<6xf32>, %c: tensor<4xf32>, %s: tensor<2x4xf64>) {
  // expected-error @+1 {{sums of columns 0 must be 'tensor<1x4xf64>', found 'tensor<2x4xf64>'}}
  %0, %1 = xfc.column_moments "adafactor" %h rows(%r) sums(%s) columns(%c) : (tensor<8xf32>, tensor<6xf32>, tensor<2x4xf64>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @f(%h: tensor<8xf32>) {
  // expected-error @+1 {{needs at least one matrix, and two results for each; found the means of 0 matrices' rows, 0 of columns, and 0 results}}
  xfc.column_moments "adafactor" %h rows() sums() columns() : (tensor<8xf32>) -> ()
  return
}

// -----

func.func @f(%h: tensor<8xf32>, %e: tensor<f32>, %w: tensor<6x4xf32>, %r: tensor<6xf32>) {
  // expected-error @+1 {{needs 1 factors of columns, found 0}}
  %0 = xfc.update_squares "adafactor" %h, %e gradients(%w) rows(%r) factors() : (tensor<8xf32>, tensor<f32>, tensor<6x4xf32>, tensor<6xf32>) -> tensor<1xf64>
  return
}

// -----

func.func @f(%h: tensor<9xf32>, %e: tensor<f32>, %w: tensor<6xf32>, %s: tensor<1xf64>) {
  // expected-error @+1 {{needs 2 results, found 1}}
  %0 = xfc.factored_update "adafactor_ema" %h, %e parameters(%w) gradients(%w) rows(%w) factors() squares(%s), (%s) averages() : (tensor<9xf32>, tensor<f32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<1xf64>, tensor<1xf64>) -> tensor<6xf32>
  return
}

// -----

// expected-error @+1 {{rows of source do not attend to rows of target}}
func.func @f(%x: !xfc.pairs<source, target, 2xf32>) {
  return
}

// -----

// expected-error @+1 {{rows of cache do not attend to rows of cache}}
func.func @f(%x: !xfc.pairs<cache, cache, 2xf32>) {
  return
}

// -----

// expected-error @+1 {{pairs need at least one head, found 0}}
func.func @f(%x: !xfc.pairs<target, source, 0xf32>) {
  return
}

// -----

// expected-error @+1 {{pairs must hold floats, found 'i32'}}
func.func @f(%x: !xfc.pairs<target, source, 2xi32>) {
  return
}

// -----

// expected-error @+1 {{expected one number of heads, found 2}}
func.func @f(%x: !xfc.pairs<target, source, 2x3xf32>) {
  return
}

// -----

// expected-error @+1 {{expected a set of rows: source, target or cache, found memory}}
func.func @f(%x: !xfc.rows<memory, 2xf32>) {
  return
}

// -----

!one = !xfc.rows<target, f32>
!p = !xfc.pairs<target, source, padding, 2xf32>
!links = !xfc.rows<target, 3xi32>
!shares = !xfc.rows<target, 3xf32>
func.func @f(%loss: !one, %p: !p, %links: !xfc.rows<source, 3xi32>, %shares: !shares) {
  // expected-error @+1 {{links are rows of source, but the queries are rows of target}}
  %0, %1, %2 = xfc.alignment_loss %loss, %p, %links, %shares : (!one, !p, !xfc.rows<source, 3xi32>, !shares) -> (!one, !one, !shares)
  return
}

// -----

!one = !xfc.rows<target, f32>
!p = !xfc.pairs<target, source, padding, 2xf32>
!links = !xfc.rows<target, 3xi32>
!shares = !xfc.rows<target, 3xf32>
func.func @f(%loss: !one, %p: !p, %links: !links, %shares: !xfc.rows<target, 4xf32>) {
  // expected-error @+1 {{shares and means must be one number per link, '!xfc.rows<target, 3xf32>', found '!xfc.rows<target, 4xf32>'}}
  %0, %1, %2 = xfc.alignment_loss %loss, %p, %links, %shares : (!one, !p, !links, !xfc.rows<target, 4xf32>) -> (!one, !one, !shares)
  return
}

// -----

!one = !xfc.rows<target, f32>
!p = !xfc.pairs<target, source, padding, 2xf32>
!links = !xfc.rows<target, 3xi32>
!shares = !xfc.rows<target, 3xf32>
func.func @f(%loss: !shares, %p: !p, %links: !links, %shares: !shares) {
  // expected-error @+1 {{losses must be one number per query, found '!xfc.rows<target, 3xf32>'}}
  %0, %1, %2 = xfc.alignment_loss %loss, %p, %links, %shares : (!shares, !p, !links, !shares) -> (!one, !one, !shares)
  return
}

// -----

!one = !xfc.rows<target, f32>
!p = !xfc.pairs<target, source, padding, 2xf32>
!links = !xfc.rows<target, 3xi32>
!shares = !xfc.rows<target, 3xf32>
func.func @f(%loss: !one, %means: !shares, %links: !links, %shares: !shares) {
  // expected-error @+1 {{head must be one of 2, found 2}}
  %0 = xfc.alignment_loss_grad %loss, %means, %links, %shares {head = 2 : i64} : (!one, !shares, !links, !shares) -> !p
  return
}

// -----

!one = !xfc.rows<target, f32>
!p = !xfc.pairs<target, source, padding, 2xf32>
!links = !xfc.rows<target, 3xi32>
!shares = !xfc.rows<target, 3xf32>
func.func @f(%loss: !one, %means: !one, %links: !links, %shares: !shares) {
  // expected-error @+1 {{shares and means must be one number per link, '!xfc.rows<target, 3xf32>', found '!xfc.rows<target, f32>'}}
  %0 = xfc.alignment_loss_grad %loss, %means, %links, %shares : (!one, !one, !links, !shares) -> !p
  return
}
