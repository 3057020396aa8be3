// RUN: %xfc-opt %s --xfc-merge-projections --print-op-stats 2>%t.statistics | FileCheck %s
// RUN: FileCheck %s --check-prefix=STATISTICS --input-file=%t.statistics

// STATISTICS: xfc.linear , 9{{$}}
// STATISTICS: xfc.split , 7{{$}}

!source = !xfc.rows<source, 8xf32>
!target = !xfc.rows<target, 8xf32>
!cache = !xfc.rows<cache, 8xf32>
!weight = tensor<8x8xf32>
!pairs = !xfc.pairs<target, target, causal, 2xf32>

// Self-attention merges q, k and v, biases too; cross-attention merges only k and v, which read other rows than its q.
// CHECK-LABEL: func.func @forward
// CHECK-SAME: %[[WQ:[^ ]*]]: tensor<8x8xf32> {xfc.name = "self.q.weight"
// CHECK-SAME: %[[BQ:[^ ]*]]: tensor<8xf32> {xfc.name = "self.q.bias"
// CHECK-SAME: %[[WK:[^ ]*]]: tensor<8x8xf32> {xfc.name = "self.k.weight"
// CHECK-SAME: %[[BK:[^ ]*]]: tensor<8xf32> {xfc.name = "self.k.bias"
// CHECK-SAME: %[[WV:[^ ]*]]: tensor<8x8xf32> {xfc.name = "self.v.weight"
// CHECK-SAME: %[[BV:[^ ]*]]: tensor<8xf32> {xfc.name = "self.v.bias"
// CHECK-SAME: %[[X:[^ ]*]]: !xfc.rows<target, 8xf32>, %[[MEMORY:[^ ]*]]: !xfc.rows<source, 8xf32>
// CHECK-NEXT: %[[W:.*]] = xfc.concat %[[WQ]], %[[WK]], %[[WV]] : {{.*}} -> tensor<24x8xf32>
// CHECK-NEXT: %[[B:.*]] = xfc.concat %[[BQ]], %[[BK]], %[[BV]] : {{.*}} -> tensor<24xf32>
// CHECK-NEXT: %[[QKV:.*]] = xfc.linear %[[X]], %[[W]] bias %[[B]] : {{.*}} -> !xfc.rows<target, 24xf32>
// CHECK-NEXT: %[[PARTS:.*]]:3 = xfc.split %[[QKV]]
// CHECK-NEXT: %[[O:.*]], %{{.*}} = xfc.attention %[[PARTS]]#0, %[[PARTS]]#1, %[[PARTS]]#2
// CHECK-NEXT: %[[Q:.*]] = xfc.linear %[[O]], %{{.*}} : {{.*}} -> !xfc.rows<target, 8xf32>
// CHECK-NEXT: xfc.concat {{.*}} -> tensor<16x8xf32>
// CHECK-NEXT: %[[KV:.*]] = xfc.linear %[[MEMORY]], {{.*}} -> !xfc.rows<source, 16xf32>
// CHECK-NEXT: %[[PARTS:.*]]:2 = xfc.split %[[KV]]
// CHECK-NEXT: xfc.attention %[[Q]], %[[PARTS]]#0, %[[PARTS]]#1
func.func @forward(%wq: !weight {xfc.name = "self.q.weight", xfc.role = "parameter"}, %bq: tensor<8xf32> {xfc.name = "self.q.bias", xfc.role = "parameter"},
                   %wk: !weight {xfc.name = "self.k.weight", xfc.role = "parameter"}, %bk: tensor<8xf32> {xfc.name = "self.k.bias", xfc.role = "parameter"},
                   %wv: !weight {xfc.name = "self.v.weight", xfc.role = "parameter"}, %bv: tensor<8xf32> {xfc.name = "self.v.bias", xfc.role = "parameter"},
                   %x: !target, %memory: !source,
                   %cq: !weight {xfc.name = "cross.q.weight", xfc.role = "parameter"}, %ck: !weight {xfc.name = "cross.k.weight", xfc.role = "parameter"},
                   %cv: !weight {xfc.name = "cross.v.weight", xfc.role = "parameter"}) -> !target {
  %q = xfc.linear %x, %wq bias %bq : (!target, !weight, tensor<8xf32>) -> !target
  %k = xfc.linear %x, %wk bias %bk : (!target, !weight, tensor<8xf32>) -> !target
  %v = xfc.linear %x, %wv bias %bv : (!target, !weight, tensor<8xf32>) -> !target
  %o, %lse = xfc.attention %q, %k, %v {heads = 2, scale = 0.5, causal} : (!target, !target, !target) -> (!target, !xfc.rows<target, 2xf32>)
  %q2 = xfc.linear %o, %cq : (!target, !weight) -> !target
  %k2 = xfc.linear %memory, %ck : (!source, !weight) -> !source
  %v2 = xfc.linear %memory, %cv : (!source, !weight) -> !source
  %o2, %lse2 = xfc.attention %q2, %k2, %v2 {heads = 2, scale = 0.5, padding} : (!target, !source, !source) -> (!target, !xfc.rows<target, 2xf32>)
  return %o2 : !target
}

// A program without attention merges the same groups.
// CHECK-LABEL: func.func @encode
// CHECK: %[[KV:.*]] = xfc.linear {{.*}} -> !xfc.rows<source, 16xf32>
// CHECK-NEXT: %[[PARTS:.*]]:2 = xfc.split %[[KV]]
// CHECK-NEXT: return %[[PARTS]]#0, %[[PARTS]]#1
func.func @encode(%ck: !weight {xfc.name = "cross.k.weight", xfc.role = "parameter"}, %cv: !weight {xfc.name = "cross.v.weight", xfc.role = "parameter"},
                  %memory: !source) -> (!source, !source) {
  %k = xfc.linear %memory, %ck : (!source, !weight) -> !source
  %v = xfc.linear %memory, %cv : (!source, !weight) -> !source
  return %k, %v : !source, !source
}

// So does one whose keys and values go through the cache and whose attention is not fused. A query whose keys are given stays alone.
// CHECK-LABEL: func.func @decode_step
// CHECK: %[[QKV:.*]] = xfc.linear {{.*}} -> !xfc.rows<target, 24xf32>
// CHECK-NEXT: %[[PARTS:.*]]:3 = xfc.split %[[QKV]]
// CHECK-NEXT: xfc.cache_write %{{.*}}, %[[PARTS]]#1
// CHECK-NEXT: xfc.cache_write %{{.*}}, %[[PARTS]]#2
// CHECK-NEXT: xfc.scores %[[PARTS]]#0
// CHECK: xfc.combine
// CHECK-NEXT: xfc.linear {{.*}} -> !xfc.rows<target, 8xf32>
func.func @decode_step(%wq: !weight {xfc.name = "self.q.weight", xfc.role = "parameter"}, %bq: tensor<8xf32> {xfc.name = "self.q.bias", xfc.role = "parameter"},
                       %wk: !weight {xfc.name = "self.k.weight", xfc.role = "parameter"}, %bk: tensor<8xf32> {xfc.name = "self.k.bias", xfc.role = "parameter"},
                       %wv: !weight {xfc.name = "self.v.weight", xfc.role = "parameter"}, %bv: tensor<8xf32> {xfc.name = "self.v.bias", xfc.role = "parameter"},
                       %cq: !weight {xfc.name = "cross.q.weight", xfc.role = "parameter"},
                       %x: !target, %keys: !cache, %values: !cache) -> (!target, !cache, !cache) {
  %q = xfc.linear %x, %wq bias %bq : (!target, !weight, tensor<8xf32>) -> !target
  %k = xfc.linear %x, %wk bias %bk : (!target, !weight, tensor<8xf32>) -> !target
  %v = xfc.linear %x, %wv bias %bv : (!target, !weight, tensor<8xf32>) -> !target
  %newKeys = xfc.cache_write %keys, %k : (!cache, !target) -> !cache
  %newValues = xfc.cache_write %values, %v : (!cache, !target) -> !cache
  %s = xfc.scores %q, %newKeys : (!target, !cache) -> !xfc.pairs<target, cache, causal, 2xf32>
  %t = xfc.scale %s {factor = 0.5} : !xfc.pairs<target, cache, causal, 2xf32>
  %m = xfc.mask %t : !xfc.pairs<target, cache, causal, 2xf32>
  %p = xfc.softmax %m : !xfc.pairs<target, cache, causal, 2xf32>
  %o = xfc.combine %p, %newValues : (!xfc.pairs<target, cache, causal, 2xf32>, !cache) -> !target
  %q2 = xfc.linear %o, %cq : (!target, !weight) -> !target
  return %q2, %newKeys, %newValues : !target, !cache, !cache
}

// In training, the probabilities go through dropout.
// CHECK-LABEL: func.func @unfused
// CHECK: xfc.split
// CHECK-NEXT: xfc.scores
func.func @unfused(%wq: !weight {xfc.name = "self.q.weight", xfc.role = "parameter"}, %bq: tensor<8xf32> {xfc.name = "self.q.bias", xfc.role = "parameter"},
                   %wk: !weight {xfc.name = "self.k.weight", xfc.role = "parameter"}, %bk: tensor<8xf32> {xfc.name = "self.k.bias", xfc.role = "parameter"},
                   %wv: !weight {xfc.name = "self.v.weight", xfc.role = "parameter"}, %bv: tensor<8xf32> {xfc.name = "self.v.bias", xfc.role = "parameter"},
                   %x: !target) -> !target {
  %q = xfc.linear %x, %wq bias %bq : (!target, !weight, tensor<8xf32>) -> !target
  %k = xfc.linear %x, %wk bias %bk : (!target, !weight, tensor<8xf32>) -> !target
  %v = xfc.linear %x, %wv bias %bv : (!target, !weight, tensor<8xf32>) -> !target
  %s = xfc.scores %q, %k : (!target, !target) -> !pairs
  %m = xfc.mask %s : !pairs
  %p = xfc.softmax %m : !pairs
  %d = xfc.dropout %p {rate = 0.1, id = 1} : !pairs
  %o = xfc.combine %d, %v : (!pairs, !target) -> !target
  return %o : !target
}

// Queries and keys are rotated after the merged projection, and the rotated keys go into the cache. Keys have fewer heads.
// CHECK-LABEL: func.func @rotated
// CHECK: %[[QKV:.*]] = xfc.linear {{.*}} -> !xfc.rows<target, 16xf32>
// CHECK-NEXT: %[[PARTS:.*]]:3 = xfc.split %[[QKV]]
// CHECK-NEXT: %[[Q:.*]] = xfc.rotate %[[PARTS]]#0
// CHECK-NEXT: %[[K:.*]] = xfc.rotate %[[PARTS]]#1
// CHECK-NEXT: %[[KEYS:.*]] = xfc.cache_write %{{.*}}, %[[K]]
// CHECK-NEXT: %[[VALUES:.*]] = xfc.cache_write %{{.*}}, %[[PARTS]]#2
// CHECK-NEXT: xfc.attention %[[Q]], %[[KEYS]], %[[VALUES]]
!half = !xfc.rows<target, 4xf32>
!halfCache = !xfc.rows<cache, 4xf32>
func.func @rotated(%wq: !weight {xfc.name = "rotated.q.weight", xfc.role = "parameter"},
                   %wk: tensor<4x8xf32> {xfc.name = "rotated.k.weight", xfc.role = "parameter"},
                   %wv: tensor<4x8xf32> {xfc.name = "rotated.v.weight", xfc.role = "parameter"},
                   %table: tensor<9x4xf32>, %x: !target, %keys: !halfCache, %values: !halfCache) -> (!target, !halfCache, !halfCache) {
  %q = xfc.linear %x, %wq : (!target, !weight) -> !target
  %rq = xfc.rotate %q, %table {heads = 2 : i64, halves} : (!target, tensor<9x4xf32>) -> !target
  %k = xfc.linear %x, %wk : (!target, tensor<4x8xf32>) -> !half
  %rk = xfc.rotate %k, %table {heads = 1 : i64, halves} : (!half, tensor<9x4xf32>) -> !half
  %newKeys = xfc.cache_write %keys, %rk : (!halfCache, !half) -> !halfCache
  %v = xfc.linear %x, %wv : (!target, tensor<4x8xf32>) -> !half
  %newValues = xfc.cache_write %values, %v : (!halfCache, !half) -> !halfCache
  %o, %lse = xfc.attention %rq, %newKeys, %newValues {heads = 2, scale = 0.5, causal} : (!target, !halfCache, !halfCache) -> (!target, !xfc.rows<target, 2xf32>)
  return %o, %newKeys, %newValues : !target, !halfCache, !halfCache
}

// Gate and value of a recurrence are merged, too.
// CHECK-LABEL: func.func @recurrence
// CHECK: %[[BOTH:.*]] = xfc.linear {{.*}} -> !xfc.rows<target, 16xf32>
// CHECK-NEXT: %[[PARTS:.*]]:2 = xfc.split %[[BOTH]]
// CHECK-NEXT: xfc.recurrence %[[PARTS]]#0, %[[PARTS]]#1
func.func @recurrence(%wg: !weight {xfc.name = "rnn.gate.weight", xfc.role = "parameter"}, %bg: tensor<8xf32> {xfc.name = "rnn.gate.bias", xfc.role = "parameter"},
                      %wv: !weight {xfc.name = "rnn.value.weight", xfc.role = "parameter"}, %bv: tensor<8xf32> {xfc.name = "rnn.value.bias", xfc.role = "parameter"},
                      %x: !target) -> !target {
  %g = xfc.linear %x, %wg bias %bg : (!target, !weight, tensor<8xf32>) -> !target
  %v = xfc.linear %x, %wv bias %bv : (!target, !weight, tensor<8xf32>) -> !target
  %c = xfc.recurrence %g, %v : (!target, !target) -> !target
  return %c : !target
}
