// A product whose columns are a decoding step's queries, keys and values: the queries are rows, and the keys and values
// go to the cache's row of their hypothesis from where they are summed, so that no kernel copies them.
//
// RUN: %xfc-opt %s --xfc-fuse-cache-write --xfc-kernels=target=x86-64-v3 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN --implicit-check-not=plan.launch --implicit-check-not=cache_write < %t
// RUN: FileCheck %s --check-prefixes=CHECK,BITS,V3 < %t
// RUN: %xfc-opt %s --xfc-fuse-cache-write --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN --implicit-check-not=plan.launch --implicit-check-not=cache_write < %t
// RUN: FileCheck %s --check-prefixes=CHECK,BITS,V4 < %t
// RUN: %xfc-opt %s --xfc-fuse-cache-write --xfc-kernels=target=x86-64-v4+amx --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefix=PLAN --implicit-check-not=plan.launch --implicit-check-not=cache_write < %t
// RUN: FileCheck %s --check-prefixes=CHECK,TILES < %t

!x = !xfc.rows<target, 40xf32>
!queries = !xfc.rows<target, 64xf32>
!values = !xfc.rows<target, 32xf32>
!kept_keys = !xfc.rows<cache, 64xf32>
!kept_values = !xfc.rows<cache, 32xbf16>

// PLAN:        plan.kernel @linear_to_cache_160x40_bf16 attributes {decoding, packing = [unit, @pack_transposed_bf16_160x40, unit, unit, unit],
// PLAN-NOT:    plan.kernel
// PLAN:        %[[STEP:.*]]:3 = plan.launch @linear_to_cache_160x40_bf16(%arg0, %arg1, %arg2, %arg3, %arg4) over target {flops = #plan.size<12800 target>,
// PLAN:        plan.return %[[STEP]]#0, %[[STEP]]#1, %[[STEP]]#2

// CHECK-LABEL: func.func @linear_to_cache_160x40_bf16(
// V3:          func.call @product_widened_6x16_rows
// V4:          func.call @product_widened_6x64_rows
// TILES:       func.call @product_tiles_32x32
// TILES:       scf.for %{{.*}} = %c0_i64 to %{{.*}} step %c1_i64
// The slot of a row is read once. The row's place in the result follows from its number, and those in the caches, each
// of which has a stride of its own, from the slot.
// CHECK:       %[[SHAPE:.*]] = llvm.load %arg0 : !llvm.ptr -> !llvm.ptr
// CHECK-NEXT:  %[[FIELD:.*]] = llvm.getelementptr inbounds %[[SHAPE]][936]
// CHECK-NEXT:  %[[SLOTS:.*]] = llvm.load %[[FIELD]] : !llvm.ptr -> !llvm.ptr
// CHECK-NEXT:  %[[OWN:.*]] = llvm.getelementptr inbounds %[[SLOTS]][%[[ROW:.*]]] : (!llvm.ptr, i64) -> !llvm.ptr, i32
// CHECK-NEXT:  %[[NUMBER:.*]] = llvm.load %[[OWN]] : !llvm.ptr -> i32
// CHECK-NEXT:  %[[SLOT:.*]] = arith.extsi %[[NUMBER]] : i32 to i64
// CHECK:       %[[QUERY_AT:.*]] = arith.muli %[[ROW]], %{{.*}} : i64
// CHECK:       llvm.getelementptr inbounds %[[BUFFERS:.*]][40]
// CHECK:       %[[QUERY:.*]] = llvm.getelementptr inbounds %{{.*}}[%[[QUERY_AT]]] : (!llvm.ptr, i64) -> !llvm.ptr, f32
// CHECK:       %[[KEY_AT:.*]] = arith.muli %[[SLOT]], %{{.*}} : i64
// CHECK:       llvm.getelementptr inbounds %[[BUFFERS]][48]
// CHECK:       %[[KEY:.*]] = llvm.getelementptr inbounds %{{.*}}[%[[KEY_AT]]] : (!llvm.ptr, i64) -> !llvm.ptr, f32
// CHECK:       %[[VALUE_AT:.*]] = arith.muli %[[SLOT]], %{{.*}} : i64
// CHECK:       llvm.getelementptr inbounds %[[BUFFERS]][56]
// CHECK:       %[[VALUE:.*]] = llvm.getelementptr inbounds %{{.*}}[%[[VALUE_AT]]] : (!llvm.ptr, i64) -> !llvm.ptr, bf16
// CHECK-NOT:   [936]
// A vector goes where its first column belongs: columns 0 to 63 are the query, 64 to 127 the key, and 128 to 159 the
// value, which is rounded to the type of its cache.
// V3:          %[[Y:.*]] = arith.addf {{.*}} : vector<8xf32>
// V4:          %[[Y:.*]] = arith.addf {{.*}} : vector<16xf32>
// TILES:       %[[Y:.*]] = arith.addf {{.*}} : vector<16xf32>
// CHECK-NEXT:  %[[BELOW:.*]] = arith.cmpi slt, %[[COLUMN:.*]], %c64_i64
// CHECK-NEXT:  %[[ABOVE:.*]] = arith.cmpi sgt, %[[COLUMN]], %c-1_i64
// CHECK-NEXT:  %[[HERE:.*]] = arith.andi %[[ABOVE]], %[[BELOW]]
// CHECK-NEXT:  scf.if %[[HERE]] {
// CHECK-NEXT:  %[[TO:.*]] = llvm.getelementptr inbounds %[[QUERY]][%[[COLUMN]]]
// CHECK-NEXT:  llvm.store %[[Y]], %[[TO]]
// CHECK-NEXT:  {{^ *}$}}
// CHECK-NEXT:  %[[COLUMN_OF_KEY:.*]] = arith.subi %[[COLUMN]], %c64_i64
// CHECK-NEXT:  %[[BELOW:.*]] = arith.cmpi slt, %[[COLUMN_OF_KEY]], %c64_i64
// CHECK-NEXT:  %[[ABOVE:.*]] = arith.cmpi sgt, %[[COLUMN_OF_KEY]], %c-1_i64
// CHECK-NEXT:  %[[HERE:.*]] = arith.andi %[[ABOVE]], %[[BELOW]]
// CHECK-NEXT:  scf.if %[[HERE]] {
// CHECK-NEXT:  %[[TO:.*]] = llvm.getelementptr inbounds %[[KEY]][%[[COLUMN_OF_KEY]]]
// CHECK-NEXT:  llvm.store %[[Y]], %[[TO]]
// CHECK-NEXT:  {{^ *}$}}
// CHECK-NEXT:  %[[COLUMN_OF_VALUE:.*]] = arith.subi %[[COLUMN]], %c128_i64
// CHECK-NEXT:  %[[BELOW:.*]] = arith.cmpi slt, %[[COLUMN_OF_VALUE]], %c32_i64
// CHECK-NEXT:  %[[ABOVE:.*]] = arith.cmpi sgt, %[[COLUMN_OF_VALUE]], %c-1_i64
// CHECK-NEXT:  %[[HERE:.*]] = arith.andi %[[ABOVE]], %[[BELOW]]
// CHECK-NEXT:  scf.if %[[HERE]] {
// CHECK-NEXT:  %[[TO:.*]] = llvm.getelementptr inbounds %[[VALUE]][%[[COLUMN_OF_VALUE]]]
// BITS-NEXT:   arith.bitcast %[[Y]]
// BITS:        %[[ROUNDED:.*]] = arith.trunci
// TILES-NEXT:  %[[ROUNDED:.*]] = arith.truncf %[[Y]]
// CHECK-NEXT:  llvm.store %[[ROUNDED]], %[[TO]] {alignment = 2 : i64}
// CHECK-NEXT:  {{^ *}$}}
// Every other vector of 64 columns, or of the 32 that a pair of tiles has, chooses among the same places. Parts end
// where a vector does, so that no store needs a mask.
// V3-COUNT-7:  arith.addf {{.*}} : vector<8xf32>
// V4-COUNT-3:  arith.addf {{.*}} : vector<16xf32>
// TILES-COUNT-1: arith.addf {{.*}} : vector<16xf32>
// CHECK-NEXT:  %[[LAST:.*]] = arith.addi %[[COLUMN]], %c{{16|48|56}}_i64
// CHECK-NEXT:  arith.cmpi slt, %[[LAST]], %c64_i64
// CHECK:       llvm.getelementptr inbounds %[[QUERY]][%[[LAST]]]
// CHECK:       llvm.getelementptr inbounds %[[KEY]][
// CHECK:       llvm.getelementptr inbounds %[[VALUE]][
// CHECK-NOT:   masked.store
// The last group has only 32 columns, so it has code of its own, which reads the slot as that of whole groups does.
// CHECK:       [936]
// CHECK-NOT:   {{masked.store|\[936\]}}
// TILES:       llvm.x86.tilerelease
// CHECK:       return
func.func @step(%x: !x {xfc.name = "x", xfc.role = "input"}, %w: tensor<160x40xf32> {xfc.name = "w", xfc.role = "parameter"}, %b: tensor<160xf32> {xfc.name = "b", xfc.role = "parameter"}, %k: !kept_keys {xfc.name = "self.k", xfc.role = "state"}, %v: !kept_values {xfc.name = "self.v", xfc.role = "state"}) -> (!queries, !kept_keys, !kept_values) {
  %y = xfc.linear %x, %w bias %b in bf16 : (!x, tensor<160x40xf32>, tensor<160xf32>) -> !xfc.rows<target, 160xf32>
  %q, %keys, %values = xfc.split %y : (!xfc.rows<target, 160xf32>) -> (!queries, !queries, !values)
  %now_keys = xfc.cache_write %k, %keys : (!kept_keys, !queries) -> !kept_keys
  %now_values = xfc.cache_write %v, %values : (!kept_values, !values) -> !kept_values
  return %q, %now_keys, %now_values : !queries, !kept_keys, !kept_values
}
