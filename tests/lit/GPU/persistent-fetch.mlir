// While an instruction of a persistent kernel runs, blocks that have no chunk of it prefetch keys and values for the
// attention that follows, into the L2 cache. They are those that the attention's lists of keys name, up to 16 MB in all,
// less than half of the cache, of which each list may use an equal share. Nothing is prefetched for an attention with a
// reach, which may read few of them.
//
// RUN: %xfc-opt %s --xfc-schedule=target=sm_80 --canonicalize --cse > %t.mlir
// RUN: FileCheck %s --input-file=%t.mlir

!rows = !xfc.rows<target, 64xf32>
!wide = !xfc.rows<target, 2048xf32>
!lse = !xfc.rows<target, 2xf32>

// CHECK:       plan.kernel @decoding_steps attributes {bodies = [@attention_64_one_query, @attention_64_one_query_2, @attention_2048_one_query],
// CHECK:       llvm.func @decoding_steps(
// The blocks that have a chunk leave off here.
// CHECK:       red.release
// CHECK:       } else {
// CHECK-NEXT:  %[[NEXT:.*]] = arith.addi %arg1, %c1_i64
// CHECK:       %[[BODY:.*]] = llvm.load %{{.*}} invariant : !llvm.ptr<1> -> i32
// Keys of 256 bytes and values of 128: 43690 fit, whatever the number of lists.
// CHECK:       arith.cmpi eq, %[[BODY]], %c0_i32
// CHECK:       %[[LISTS:.*]] = arith.maxsi %[[SEQUENCES:.*]], %c1_i64
// CHECK-NEXT:  %[[ROOM:.*]] = arith.divui %c43690_i64, %[[LISTS]]
// The last block begins with the first list, and blocks without a chunk take turns.
// CHECK:       scf.for %[[SEQUENCE:.*]] = %{{.*}} to %[[SEQUENCES]] step %{{.*}}
// CHECK:       %[[COUNTED:.*]] = llvm.load {{.*}} -> i32
// CHECK:       %[[COUNTED:.*]] = llvm.load {{.*}} -> i32
// CHECK-NEXT:  %[[COUNT:.*]] = arith.extsi %[[COUNTED]]
// CHECK-NEXT:  %[[FETCHED:.*]] = arith.minsi %[[COUNT]], %[[ROOM]]
// Four warps take a key each, and a lane a line of it.
// CHECK-NEXT:  scf.for %{{.*}} = %{{.*}} to %[[FETCHED]] step %c4_i64
// CHECK:       arith.cmpi slt, %[[BYTE:.*]], %c256_i64
// CHECK:       "@$0 prefetch.global.L2 [$1];"
// CHECK:       arith.cmpi slt, %[[BYTE]], %c128_i64
// CHECK:       "@$0 prefetch.global.L2 [$1];"
// CHECK-NOT:   prefetch
// CHECK-NOT:   arith.cmpi eq, %[[BODY]], %c1_i32
// Rows of 8 KB: 1024 keys and values fill the 16 MB, and a warp fetches each row in two steps.
// CHECK:       arith.cmpi eq, %[[BODY]], %c2_i32
// CHECK:       %[[LISTS:.*]] = arith.maxsi %{{.*}}, %c1_i64
// CHECK-NEXT:  %[[ROOM:.*]] = arith.divui %c1024_i64, %[[LISTS]]
// CHECK:       %[[FETCHED:.*]] = arith.minsi %{{.*}}, %[[ROOM]]
// CHECK-NEXT:  scf.for %{{.*}} = %{{.*}} to %[[FETCHED]] step %c4_i64
// CHECK-COUNT-4: "@$0 prefetch.global.L2 [$1];"
// CHECK-NOT:   prefetch
// CHECK:       llvm.return
func.func @step(%q: !rows {xfc.name = "q", xfc.role = "input"}, %k: !xfc.rows<cache, 64xf32> {xfc.name = "k", xfc.role = "state"},
                %v: !xfc.rows<cache, 64xbf16> {xfc.name = "v", xfc.role = "state"}) -> (!rows {xfc.name = "y"}) {
  %y, %s = xfc.attention %q, %k, %v {heads = 2 : i64, scale = 0.125} : (!rows, !xfc.rows<cache, 64xf32>, !xfc.rows<cache, 64xbf16>) -> (!rows, !lse)
  return %y : !rows
}
func.func @within_reach(%q: !rows {xfc.name = "q", xfc.role = "input"}, %k: !xfc.rows<cache, 64xf32> {xfc.name = "k", xfc.role = "state"},
                        %v: !xfc.rows<cache, 64xf32> {xfc.name = "v", xfc.role = "state"}) -> (!rows {xfc.name = "y"}) {
  %y, %s = xfc.attention %q, %k, %v {heads = 2 : i64, scale = 0.125, reach = 64 : i64} : (!rows, !xfc.rows<cache, 64xf32>, !xfc.rows<cache, 64xf32>) -> (!rows, !lse)
  return %y : !rows
}
func.func @wide(%q: !wide {xfc.name = "q", xfc.role = "input"}, %k: !xfc.rows<cache, 2048xf32> {xfc.name = "k", xfc.role = "state"},
                %v: !xfc.rows<cache, 2048xf32> {xfc.name = "v", xfc.role = "state"}) -> (!wide {xfc.name = "y"}) {
  %y, %s = xfc.attention %q, %k, %v {heads = 16 : i64, scale = 0.125} : (!wide, !xfc.rows<cache, 2048xf32>, !xfc.rows<cache, 2048xf32>) -> (!wide, !xfc.rows<target, 16xf32>)
  return %y : !wide
}
