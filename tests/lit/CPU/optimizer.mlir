// Optimizers update parameters in place, in parts of 16384 elements whatever their tensors. Divisions and square roots
// are those of f32, not approximations.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V3 < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN < %t
// RUN: FileCheck %s --check-prefixes=CHECK,V4 < %t

!t = tensor<20003xf32>

// Squares are summed in f64, in four chains of eight lanes on every instruction set. Lanes after the end count as 0,
// and vectors after it are read at the end, where memory is mapped.
// PLAN:        plan.kernel @square_sum attributes {partition = #plan.partition<elements per 16384 times 1>}
// CHECK-LABEL: func.func @square_sum(
// CHECK:       arith.muli %arg1, %c16384_i64
// CHECK:       %[[END:.*]] = arith.minsi
// CHECK:       :4 = scf.for {{.*}} to %[[END]] step %c32_i64
// CHECK-COUNT-4: vector.fma {{.*}} : vector<8xf64>
// CHECK-NOT:   {{vector.fma|vector.shuffle|scf.if}}
// CHECK:       scf.yield
// CHECK-COUNT-1: vector.extract
// CHECK-NEXT:  llvm.getelementptr
// CHECK-NEXT:  llvm.store {{.*}} : f64

// The partial sums are added in their order by one chunk.
// PLAN:        plan.kernel @clip_factor attributes {partition = #plan.partition<one per 1 times 1>}
// CHECK-LABEL: func.func @clip_factor(
// CHECK:       scf.for {{.*}} = %c0_i64 to %c2_i64 step %c1_i64
// CHECK:       arith.addf {{.*}} : f64
// CHECK:       math.sqrt {{.*}} : f64
// CHECK:       arith.divf {{.*}} : f64
// CHECK:       arith.truncf {{.*}} : f64 to f32
func.func @clip(%g: !t, %max: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %s = xfc.square_sum %g : (!t) -> tensor<2xf64>
  %f, %n = xfc.clip_factor %max, %s : (tensor<f32>, tensor<2xf64>) -> (tensor<f32>, tensor<f32>)
  return %f, %n : tensor<f32>, tensor<f32>
}

// What depends on hyperparameters alone is computed once. An element costs a square root and a division: a vector loads
// the parameter, its gradient and two states, and stores all but the gradient. Only the end of a part has a mask.
// PLAN:        plan.kernel @adam_2 attributes {partition = #plan.partition<elements per 16384 times 1>}
// CHECK-LABEL: func.func @adam_2(
// CHECK-COUNT-2: arith.divf {{.*}} : f32
// CHECK-NOT:   arith.divf
// V3:          scf.for {{.*}} step %c8_i64
// V4:          scf.for {{.*}} step %c16_i64
// CHECK-COUNT-4: llvm.load {{.*}} -> [[VECTOR:vector<[0-9]+xf32>]]
// CHECK-NOT:   llvm.load
// CHECK:       math.sqrt {{.*}} : [[VECTOR]]
// CHECK-NOT:   math.sqrt
// CHECK:       arith.divf {{.*}} : [[VECTOR]]
// CHECK-NOT:   arith.divf
// CHECK-COUNT-3: llvm.store {{.*}} : [[VECTOR]]
// CHECK-NEXT:  }
// CHECK:       scf.if
// CHECK-COUNT-3: llvm.intr.masked.store
// CHECK-NOT:   {{llvm.store|masked.store}}
// CHECK:       return
func.func @adam(%h: tensor<10xf32>, %f: tensor<f32>, %p: !t, %g: !t, %m: !t, %v: !t) -> (!t, !t, !t) {
  %0, %1, %2 = xfc.optimize "adam" %h, %f parameters(%p) gradients(%g) states(%m, %v) : (tensor<10xf32>, tensor<f32>, !t, !t, !t, !t) -> (!t, !t, !t)
  return %0, %1, %2 : !t, !t, !t
}

// Adafactor takes eight lanes and sums in f64 on every instruction set. A frozen tensor's chunk does nothing. One pass
// over the rows of a part updates the sums of the columns, the sum of the row, and the parameter's.
// PLAN:        plan.kernel @row_moments_adafactor_ema attributes {partition = #plan.partition<elements per 1 times 1>}
// CHECK-LABEL: func.func @row_moments_adafactor_ema(
// CHECK:       scf.if
// CHECK:       scf.for {{.*}} step %c1_i64 {{.*}} -> (vector<8xf64>)
// CHECK:       :2 = scf.for {{.*}} step %c8_i64
// CHECK-COUNT-3: vector.fma {{.*}} : vector<8xf64>
// CHECK-NOT:   {{vector.fma|vector.shuffle}}
// CHECK:       scf.yield
// The end of a row has its own loop, with masks.
// CHECK:       :2 = scf.for {{.*}} step %c8_i64
// CHECK:       llvm.intr.masked.load
// CHECK:       scf.yield
// CHECK-COUNT-1: vector.extract
// CHECK-COUNT-1: arith.divf {{.*}} : f64
// CHECK:       scf.yield
// CHECK-COUNT-1: vector.extract
// CHECK-NEXT:  llvm.getelementptr
// CHECK-NEXT:  llvm.store {{.*}} : f64

// A chunk has up to 512 columns, and adds up the partial sums of each in their order.
// PLAN:        plan.kernel @column_moments_adafactor_ema
// CHECK-LABEL: func.func @column_moments_adafactor_ema(
// CHECK-COUNT-1: vector.extract
// CHECK-NOT:   vector.extract
// CHECK:       arith.muli {{.*}}, %c512_i64
// CHECK:       scf.for {{.*}} step %c8_i64
// CHECK:       scf.for {{.*}} step %c1_i64 {{.*}} -> (vector<8xf64>)
// CHECK:       arith.divf {{.*}} : vector<8xf64>
// CHECK:       arith.divf {{.*}} : vector<8xf64>
// CHECK-NEXT:  math.sqrt {{.*}} : vector<8xf64>
// CHECK-NOT:   vector.extract
// CHECK:       return

// The update is not stored, but computed again by the next op. A row has one square root and one division.
// PLAN:        plan.kernel @update_squares_adafactor_ema
// CHECK-LABEL: func.func @update_squares_adafactor_ema(
// CHECK:       math.sqrt {{.*}} : f32
// CHECK-NEXT:  arith.divf {{.*}} : f32
// CHECK-NOT:   {{math.sqrt|arith.divf|llvm.store|masked.store}}
// CHECK:       vector.fma {{.*}} : vector<8xf64>
// CHECK-NOT:   {{math.sqrt|arith.divf|llvm.store|masked.store}}
// CHECK:       vector.extract
// CHECK-NEXT:  llvm.getelementptr
// CHECK-NEXT:  llvm.store {{.*}} : f64

// A vector loads the gradient, the columns' factors, the parameter and its average, and stores the last two.
// PLAN:        plan.kernel @factored_update_adafactor_ema
// CHECK-LABEL: func.func @factored_update_adafactor_ema(
// CHECK:       math.sqrt {{.*}} : f32
// CHECK-NEXT:  arith.divf {{.*}} : f32
// CHECK:       scf.for {{.*}} step %c8_i64
// CHECK-COUNT-3: llvm.load {{.*}} -> vector<8xf32>
// CHECK:       llvm.store {{.*}} : vector<8xf32>
// CHECK:       llvm.load {{.*}} -> vector<8xf32>
// CHECK:       llvm.store {{.*}} : vector<8xf32>
// CHECK-NOT:   {{math.sqrt|arith.divf}}
// CHECK:       return
func.func @factored(%h: tensor<9xf32>, %factor: tensor<f32>, %p: tensor<40x24xf32>, %g: tensor<40x24xf32>, %r: tensor<40xf32>, %c: tensor<24xf32>) -> (tensor<40x24xf32>, tensor<40x24xf32>) {
  %r1, %q, %s = xfc.row_moments "adafactor_ema" %h, %factor parameters(%p) gradients(%g) rows(%r) : (tensor<9xf32>, tensor<f32>, tensor<40x24xf32>, tensor<40x24xf32>, tensor<40xf32>) -> (tensor<40xf32>, tensor<1xf64>, tensor<1x24xf64>)
  %c1, %f = xfc.column_moments "adafactor_ema" %h rows(%r1) sums(%s) columns(%c) : (tensor<9xf32>, tensor<40xf32>, tensor<1x24xf64>, tensor<24xf32>) -> (tensor<24xf32>, tensor<24xf32>)
  %u = xfc.update_squares "adafactor_ema" %h, %factor gradients(%g) rows(%r1) factors(%f) : (tensor<9xf32>, tensor<f32>, tensor<40x24xf32>, tensor<40xf32>, tensor<24xf32>) -> tensor<1xf64>
  %0, %1 = xfc.factored_update "adafactor_ema" %h, %factor parameters(%p) gradients(%g) rows(%r1) factors(%f) squares(%q), (%u) averages(%p) : (tensor<9xf32>, tensor<f32>, tensor<40x24xf32>, tensor<40x24xf32>, tensor<40xf32>, tensor<24xf32>, tensor<1xf64>, tensor<1xf64>, tensor<40x24xf32>) -> (tensor<40x24xf32>, tensor<40x24xf32>)
  return %0, %1 : tensor<40x24xf32>, tensor<40x24xf32>
}

// An update that packs computes the rows of a panel, in blocks of columns whose new values stay in the second cache (64
// KB), and packs them in the forms that there are buffers for. Parameters that are not packed are updated before and
// after.
// PLAN:        plan.kernel @adam_3 attributes {partition = #plan.partition<elements per 16384 times 1>}
// CHECK-LABEL: func.func @adam_3(
// CHECK:       %[[REST:.*]] = scf.for {{.*}} -> (i64)
// CHECK:       scf.if
// V3:          scf.for {{.*}} step %c1024_i64
// V4:          scf.for {{.*}} step %c256_i64
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       scf.for {{.*}} step %c{{8|16}}_i64
// CHECK-COUNT-4: llvm.load {{.*}} -> vector<{{8|16}}xf32>
// CHECK-COUNT-3: llvm.store {{.*}} : vector<{{8|16}}xf32>
// CHECK:       %[[WANTED:.*]] = llvm.icmp "ne"
// CHECK-NEXT:  scf.if %[[WANTED]]
// CHECK:       func.call @pack_rows(
// CHECK:       %[[TRANSPOSED:.*]] = llvm.icmp "ne"
// CHECK-NEXT:  scf.if %[[TRANSPOSED]]
// CHECK:       func.call @pack_rows_transposed(
// CHECK:       scf.for {{.*}} = %[[REST]] to {{.*}} step %c{{8|16}}_i64
func.func @packs(%h: tensor<10xf32>, %f: tensor<f32>, %p: tensor<64x40xf32>, %g: tensor<64x40xf32>, %m: tensor<64x40xf32>, %v: tensor<64x40xf32>) -> (tensor<64x40xf32>, tensor<64x40xf32>, tensor<64x40xf32>) {
  %0, %1, %2 = xfc.optimize "adam" %h, %f parameters(%p) gradients(%g) states(%m, %v) {packs} : (tensor<10xf32>, tensor<f32>, tensor<64x40xf32>, tensor<64x40xf32>, tensor<64x40xf32>, tensor<64x40xf32>) -> (tensor<64x40xf32>, tensor<64x40xf32>, tensor<64x40xf32>)
  return %0, %1, %2 : tensor<64x40xf32>, tensor<64x40xf32>, tensor<64x40xf32>
}
