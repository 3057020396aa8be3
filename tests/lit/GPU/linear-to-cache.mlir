// A product whose columns are a decoding step's queries, keys and values: the queries are rows, and the keys and values
// go to the cache's row of their hypothesis from the registers in which they are summed, so that no kernel copies them.
//
// RUN: %xfc-opt %s --xfc-fuse-cache-write > %t.mlir
// RUN: %xfc-opt %t.mlir --xfc-kernels=target=sm_80 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN --implicit-check-not=plan.launch --implicit-check-not=cache_write < %t
// RUN: FileCheck %s < %t
// RUN: %xfc-ptx %t.mlir > %t.ptx
// RUN: FileCheck %s --check-prefix=PTX < %t.ptx
// RUN: %if ptxas %{ %python3 %S/Inputs/ptxas.py %t.ptx sm_80 sm_90 sm_90a sm_100 %}

!x = !xfc.rows<target, 40xf32>
!queries = !xfc.rows<target, 64xf32>
!values = !xfc.rows<target, 32xf32>
!kept_keys = !xfc.rows<cache, 64xf32>
!kept_values = !xfc.rows<cache, 32xbf16>

// One launch takes the caches, too, and all variants for few rows write to them.
// PLAN:     plan.kernel @linear_to_cache_160x40_bf16 attributes {{.*}}small = @linear_to_cache_160x40_bf16_small,
// PLAN:     plan.kernel @linear_to_cache_160x40_bf16_small attributes
// PLAN:     plan.kernel @linear_to_cache_160x40_bf16_small2 attributes
// PLAN:     plan.kernel @linear_to_cache_160x40_bf16_small3 attributes
// PLAN:     %[[STEP:.*]]:3 = plan.launch @linear_to_cache_160x40_bf16(%arg0, %arg1, %arg2, %arg3, %arg4) over target
// PLAN:     plan.return %[[STEP]]#0, %[[STEP]]#1, %[[STEP]]#2

// Every variant finds the slots in the batch.
// CHECK-LABEL: llvm.func @linear_to_cache_160x40_bf16(
// CHECK:       [936] : (!llvm.ptr<1>)
// CHECK-LABEL: llvm.func @linear_to_cache_160x40_bf16_small(
// CHECK:       [936] : (!llvm.ptr<1>)
// CHECK-LABEL: llvm.func @linear_to_cache_160x40_bf16_small2(
// CHECK:       [936] : (!llvm.ptr<1>)
// CHECK-LABEL: llvm.func @linear_to_cache_160x40_bf16_small3(
// CHECK:       %[[FIELD:.*]] = llvm.getelementptr inbounds %{{.*}}[936] : (!llvm.ptr<1>)
// CHECK-NEXT:  %[[SLOTS:.*]] = llvm.load %[[FIELD]] invariant
// A thread has two rows, whose slots it loads where the rows exist, both before it stores anything.
// CHECK-NOT:   st.global
// CHECK:       %[[OWN:.*]] = llvm.getelementptr inbounds %[[SLOTS]][%[[ROW:.*]]] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
// CHECK-NEXT:  %[[NUMBER:.*]] = llvm.inline_asm {{.*}}"mov.b32 $0, 0; @$1 ld.global.b32 $0, [$2];", {{.*}} %[[EXISTS:.*]], %[[OWN]] :
// CHECK-NEXT:  %[[SLOT:.*]] = arith.extui %[[NUMBER]] : i32 to i64
// CHECK-NEXT:  %[[OTHER:.*]] = llvm.getelementptr inbounds %[[SLOTS]][%[[OTHER_ROW:.*]]] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
// CHECK-NEXT:  %[[OTHER_NUMBER:.*]] = llvm.inline_asm {{.*}}"mov.b32 $0, 0; @$1 ld.global.b32 $0, [$2];", {{.*}} %[[OTHER_EXISTS:.*]], %[[OTHER]] :
// CHECK-NEXT:  %[[OTHER_SLOT:.*]] = arith.extui %[[OTHER_NUMBER]] : i32 to i64
// CHECK-NOT:   st.global
// The bias is added. Columns 0 to 63 go to the row's place in the result, and columns 64 to 127 to the slot's in the
// keys, which is the same store to an address that is chosen.
// CHECK:       %[[Y:.*]] = arith.addf
// CHECK:       llvm.getelementptr inbounds {{.*}}[40] : (!llvm.ptr<1>)
// CHECK:       %[[QUERY_AT:.*]] = arith.muli %[[ROW]], %{{.*}} : i64
// CHECK:       %[[QUERY:.*]] = llvm.getelementptr inbounds %{{.*}}[%[[QUERY_AT]]] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
// CHECK:       llvm.getelementptr inbounds {{.*}}[48] : (!llvm.ptr<1>)
// CHECK:       %[[KEY_AT:.*]] = arith.muli %[[SLOT]], %{{.*}} : i64
// CHECK:       %[[KEY:.*]] = llvm.getelementptr inbounds %{{.*}}[%[[KEY_AT]]] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
// CHECK-NEXT:  %[[KEY_LINE:.*]] = llvm.getelementptr inbounds %[[KEY]][-64]
// CHECK-NEXT:  arith.cmpi sgt, %[[COLUMN:.*]], %c-1_i32
// CHECK-NEXT:  arith.cmpi slt, %[[COLUMN]], %c64_i32
// CHECK:       %[[IS_KEY:.*]] = arith.cmpi sgt, %[[COLUMN]], %c63_i32
// CHECK-NEXT:  arith.cmpi slt, %[[COLUMN]], %c128_i32
// CHECK-NEXT:  %[[LINE:.*]] = arith.select %[[IS_KEY]], %[[KEY_LINE]], %[[QUERY]]
// CHECK:       arith.andi %[[EXISTS]],
// CHECK-NEXT:  %[[TO:.*]] = llvm.getelementptr inbounds %[[LINE]][%[[AT:.*]]]
// CHECK:       st.global.v2.b32 {{.*}}, %[[TO]], %[[Y]],
// Columns from 128 on are rounded to the type of the values, and go to the slot's place in these.
// CHECK:       llvm.getelementptr inbounds {{.*}}[56] : (!llvm.ptr<1>)
// CHECK:       %[[VALUE_AT:.*]] = arith.muli %[[SLOT]], %{{.*}} : i64
// CHECK:       %[[VALUE:.*]] = llvm.getelementptr inbounds %{{.*}}[%[[VALUE_AT]]] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, bf16
// CHECK-NEXT:  %[[VALUE_LINE:.*]] = llvm.getelementptr inbounds %[[VALUE]][-128]
// CHECK-NEXT:  %[[IS_VALUE:.*]] = arith.cmpi sgt, %[[COLUMN]], %c127_i32
// CHECK:       arith.andi %[[EXISTS]],
// CHECK-NEXT:  %[[PAIR:.*]] = llvm.inline_asm {{.*}}"cvt.rn.bf16x2.f32 $0, $1, $2;", {{.*}} %{{.*}}, %[[Y]] :
// CHECK-NEXT:  %[[TO:.*]] = llvm.getelementptr inbounds %[[VALUE_LINE]][%[[AT]]]
// CHECK:       st.global.b32 {{.*}}, %[[TO]], %[[PAIR]] :
// So does the other row.
// CHECK:       arith.muli %[[OTHER_ROW]],
// CHECK:       arith.muli %[[OTHER_SLOT]],
// CHECK:       arith.muli %[[OTHER_SLOT]],
// CHECK:       llvm.return

// PTX-NOT: .local
// PTX:     .visible .entry linear_to_cache_160x40_bf16_small3(
// PTX-NOT: .local
func.func @step(%x: !x {xfc.name = "x", xfc.role = "input"}, %w: tensor<160x40xf32> {xfc.name = "w", xfc.role = "parameter"}, %b: tensor<160xf32> {xfc.name = "b", xfc.role = "parameter"}, %k: !kept_keys {xfc.name = "self.k", xfc.role = "state"}, %v: !kept_values {xfc.name = "self.v", xfc.role = "state"}) -> (!queries, !kept_keys, !kept_values) {
  %y = xfc.linear %x, %w bias %b in bf16 : (!x, tensor<160x40xf32>, tensor<160xf32>) -> !xfc.rows<target, 160xf32>
  %q, %keys, %values = xfc.split %y : (!xfc.rows<target, 160xf32>) -> (!queries, !queries, !values)
  %now_keys = xfc.cache_write %k, %keys : (!kept_keys, !queries) -> !kept_keys
  %now_values = xfc.cache_write %v, %values : (!kept_values, !values) -> !kept_values
  return %q, %now_keys, %now_values : !queries, !kept_keys, !kept_values
}
