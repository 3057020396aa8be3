// Keys and values that decoding keeps in bf16 and int8: they are widened where attention loads them, and integers are
// multiplied by the scale of their row and head, which is loaded once for each row.
//
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefixes=CHECK,BITS < %t
// RUN: %xfc-opt %s --xfc-kernels=target=x86-64-v4+bf16 --canonicalize --cse > %t
// RUN: FileCheck %s --check-prefixes=CHECK,BF16 < %t

!queries = !xfc.rows<target, 128xf32>
!integers = !xfc.rows<cache, 128xi8>
!scales = !xfc.rows<cache, 2xf32>
!lse = !xfc.rows<target, 2xf32>

// A hypothesis has one query: the dot products of sixteen keys at once.
// CHECK-LABEL: func.func @attention_128(
// CHECK:       %[[SINGLE:.*]] = arith.cmpi eq, {{.*}}, %c1_i64
// CHECK:       scf.if %[[SINGLE]]
// CHECK-COUNT-16: %{{.*}} = llvm.load {{.*}} {alignment = 4 : i64} : !llvm.ptr -> f32
// CHECK:       scf.for
// CHECK:       %[[KEYS:.*]] = llvm.load {{.*}} {alignment = 1 : i64} : !llvm.ptr -> vector<16xi8>
// CHECK-NEXT:  %[[WIDE:.*]] = arith.sitofp %[[KEYS]] : vector<16xi8> to vector<16xf32>
// CHECK:       %[[SCALE:.*]] = vector.broadcast {{.*}} : f32 to vector<16xf32>
// CHECK-NEXT:  %[[SCALED:.*]] = arith.mulf %[[WIDE]], %[[SCALE]]
// CHECK:       vector.fma {{.*}}, %[[SCALED]], {{.*}} : vector<16xf32>
func.func @attend(%q: !queries {xfc.name = "q", xfc.role = "input"}, %k: !integers {xfc.name = "self.k", xfc.role = "state"}, %s: !scales {xfc.name = "self.k.scale", xfc.role = "state"}) -> !queries {
  %o, %lse = xfc.attention %q, %k, %k scaled by %s, %s {heads = 2 : i64, scale = 0.125} : (!queries, !integers, !integers, !scales, !scales) -> (!queries, !lse)
  return %o : !queries
}

// In a decoding step, hypotheses of a sentence have one list of the encoder's keys, which the first one's chunk copies
// and widens for all. With the first one's scores and sums, what the next head has of each row is prefetched; after the
// last head, what the first one has of the next sentence's rows.
// CHECK-LABEL: func.func @attention_128_2(
// CHECK:       %[[SINGLE:.*]] = arith.cmpi eq, {{.*}}, %c1_i64
// CHECK:       scf.if %[[SINGLE]]
// CHECK:       arith.remui {{.*}}, %c8_i64
// CHECK:       scf.for {{.*}} step %c1_i64
// CHECK:       scf.for %[[HYPOTHESIS:.*]] = %{{.*}} to %{{.*}} step %c1_i64
// CHECK:       %[[FIRST:.*]] = arith.cmpi eq, %[[HYPOTHESIS]], %{{.*}}
// CHECK-NEXT:  %[[FITS:.*]] = arith.cmpi slt, {{.*}}, %c257_i64
// CHECK-NEXT:  %[[COPIES:.*]] = arith.andi %[[FIRST]], %[[FITS]]
// CHECK:       scf.if %[[COPIES]]
// CHECK-NOT:   prefetch
// CHECK-COUNT-8: llvm.load {{.*}} -> vector<16xi8>
// CHECK:       %[[ISLAST:.*]] = arith.cmpi eq, %{{.*}}, %c1_i64
// CHECK-NEXT:  arith.select %[[ISLAST]], %{{.*}}, %c64_i64
// CHECK:       scf.if %[[FIRST]]
// CHECK:       llvm.intr.prefetch
// CHECK:       vector.fma
// CHECK:       scf.if %[[FIRST]]
// CHECK:       llvm.intr.prefetch
// CHECK:       vector.fma
// CHECK-NOT:   vector<16xi8>
// CHECK:       } else {
func.func @cross(%q: !queries {xfc.name = "q", xfc.role = "input"}, %k: !xfc.rows<source, 128xi8> {xfc.name = "cross.k", xfc.role = "state"}, %s: !xfc.rows<source, 2xf32> {xfc.name = "cross.k.scale", xfc.role = "state"}, %c: !integers {xfc.name = "self.k", xfc.role = "state"}) -> !queries {
  %o, %lse = xfc.attention %q, %k, %k scaled by %s, %s {heads = 2 : i64, scale = 0.125} : (!queries, !xfc.rows<source, 128xi8>, !xfc.rows<source, 128xi8>, !xfc.rows<source, 2xf32>, !xfc.rows<source, 2xf32>) -> (!queries, !lse)
  return %o : !queries
}

// The largest magnitude of each of the two parts of a row, and then its integers: to the nearest, ties to even.
// CHECK-LABEL: func.func @quantize_128(
// CHECK:       scf.for {{.*}} = %c0_i64 to %c2_i64
// CHECK:       arith.select {{.*}} : vector<16xi1>, vector<16xf32>
// CHECK:       %[[INVERSE:.*]] = arith.divf
// CHECK:       scf.for {{.*}} = %c0_i64 to %c64_i64 step %c16_i64
// CHECK:       %[[X:.*]] = arith.mulf {{.*}} : vector<16xf32>
// CHECK:       %[[NEAREST:.*]] = math.roundeven %[[X]] : vector<16xf32>
// CHECK-NEXT:  %[[INTEGERS:.*]] = arith.fptosi %[[NEAREST]] : vector<16xf32> to vector<16xi8>
// CHECK-NEXT:  llvm.store %[[INTEGERS]], {{.*}} {alignment = 1 : i64} : vector<16xi8>, !llvm.ptr
func.func @quantize(%x: !queries {xfc.name = "q", xfc.role = "input"}) -> (!xfc.rows<target, 128xi8>, !lse) {
  %i, %s = xfc.quantize %x {groups = 2 : i64} : (!queries) -> (!xfc.rows<target, 128xi8>, !lse)
  return %i, %s : !xfc.rows<target, 128xi8>, !lse
}

// An instruction of AVX512-BF16 rounds a vector; without it, operations on its bits do, since LLVM would call a function
// for each number.
// CHECK-LABEL: func.func @cache_write_128(
// CHECK:       %[[ROWS:.*]] = llvm.load {{.*}} -> vector<16xf32>
// BF16:        %[[ROUNDED:.*]] = arith.truncf %[[ROWS]] : vector<16xf32> to vector<16xbf16>
// BF16-NEXT:   llvm.store %[[ROUNDED]], {{.*}} {alignment = 2 : i64} : vector<16xbf16>, !llvm.ptr
// BITS:        %{{.*}} = arith.bitcast %[[ROWS]] : vector<16xf32> to vector<16xi32>
// BITS-NOT:    bf16
// BITS:        %[[UPPER:.*]] = arith.trunci {{.*}} : vector<16xi32> to vector<16xi16>
// BITS-NEXT:   llvm.store %[[UPPER]], {{.*}} {alignment = 2 : i64} : vector<16xi16>, !llvm.ptr
func.func @write(%old: !xfc.rows<cache, 128xbf16> {xfc.name = "self.k", xfc.role = "state"}, %x: !queries {xfc.name = "q", xfc.role = "input"}) -> !xfc.rows<cache, 128xbf16> {
  %now = xfc.cache_write %old, %x : (!xfc.rows<cache, 128xbf16>, !queries) -> !xfc.rows<cache, 128xbf16>
  return %now : !xfc.rows<cache, 128xbf16>
}
