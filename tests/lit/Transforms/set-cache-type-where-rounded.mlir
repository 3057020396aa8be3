// RUN: %xfc-opt %s --xfc-set-cache-type="type=bf16 where-rounded" | FileCheck %s
// Only programs of a type in which a product of a step rounds its operands keep narrower keys and values, and their encoder gives them.
// No product of this encoder rounds, but one of its steps does.

!s = !xfc.rows<source, 16xf32>
!t = !xfc.rows<target, 16xf32>
!c = !xfc.rows<cache, 16xf32>
!lse = !xfc.rows<target, 2xf32>

// CHECK-LABEL: func.func @encode(
// CHECK-SAME:  -> (!xfc.rows<source, 16xf32> {xfc.name = "cross.k"})
// CHECK-NOT:   xfc.quantize
func.func @encode(%k: !s {xfc.name = "source", xfc.role = "input"}) -> (!s {xfc.name = "cross.k"}) {
  return %k : !s
}

// CHECK-LABEL: func.func @decode_step(
// CHECK-SAME:  !xfc.rows<source, 16xf32> {xfc.name = "cross.k"
// CHECK-SAME:  !xfc.rows<cache, 16xf32> {xfc.name = "self.k"
func.func @decode_step(%q: !t {xfc.name = "target", xfc.role = "input"}, %k: !s {xfc.name = "cross.k", xfc.role = "input"},
                       %old: !c {xfc.name = "self.k", xfc.role = "state"}, %w: tensor<16x16xf32> {xfc.name = "w", xfc.role = "parameter"})
    -> (!t, !c {xfc.name = "self.k", xfc.alias = 2}) {
  %now = xfc.cache_write %old, %q : (!c, !t) -> !c
  %a, %l = xfc.attention %q, %now, %now {heads = 2 : i64, scale = 1.0} : (!t, !c, !c) -> (!t, !lse)
  %b, %m = xfc.attention %q, %k, %k {heads = 2 : i64, scale = 1.0} : (!t, !s, !s) -> (!t, !lse)
  %s = xfc.add %a, %b : !t
  %y = xfc.linear %s, %w : (!t, tensor<16x16xf32>) -> !t
  return %y, %now : !t, !c
}

// CHECK-LABEL: func.func @"encode.decoder.*=int8"(
// CHECK-SAME:  -> (!xfc.rows<source, 16xbf16> {xfc.name = "cross.k"})
// CHECK:       xfc.quantize %arg0 {groups = 2 : i64} : (!xfc.rows<source, 16xf32>) -> !xfc.rows<source, 16xbf16>
func.func @"encode.decoder.*=int8"(%k: !s {xfc.name = "source", xfc.role = "input"}) -> (!s {xfc.name = "cross.k"}) {
  return %k : !s
}

// CHECK-LABEL: func.func @"decode_step.decoder.*=int8"(
// CHECK-SAME:  !xfc.rows<source, 16xbf16> {xfc.name = "cross.k"
// CHECK-SAME:  !xfc.rows<cache, 16xbf16> {xfc.name = "self.k"
// CHECK:       xfc.cache_write %arg2, %arg0 : (!xfc.rows<cache, 16xbf16>, !xfc.rows<target, 16xf32>) -> !xfc.rows<cache, 16xbf16>
func.func @"decode_step.decoder.*=int8"(%q: !t {xfc.name = "target", xfc.role = "input"}, %k: !s {xfc.name = "cross.k", xfc.role = "input"},
                       %old: !c {xfc.name = "self.k", xfc.role = "state"}, %w: tensor<16x16xf32> {xfc.name = "w", xfc.role = "parameter"})
    -> (!t, !c {xfc.name = "self.k", xfc.alias = 2}) {
  %now = xfc.cache_write %old, %q : (!c, !t) -> !c
  %a, %l = xfc.attention %q, %now, %now {heads = 2 : i64, scale = 1.0} : (!t, !c, !c) -> (!t, !lse)
  %b, %m = xfc.attention %q, %k, %k {heads = 2 : i64, scale = 1.0} : (!t, !s, !s) -> (!t, !lse)
  %s = xfc.add %a, %b : !t
  %y = xfc.linear %s, %w in int8 : (!t, tensor<16x16xf32>) -> !t
  return %y, %now : !t, !c
}

// An op that reads no narrower keys, as attention that is not fused does, leaves all keys and values of the type as they are.
// CHECK-LABEL: func.func @encode.bf16(
// CHECK-SAME:  -> (!xfc.rows<source, 16xf32> {xfc.name = "cross.k"})
func.func @encode.bf16(%k: !s {xfc.name = "source", xfc.role = "input"}) -> (!s {xfc.name = "cross.k"}) {
  return %k : !s
}
// CHECK-LABEL: func.func @decode_step.bf16(
// CHECK-SAME:  !xfc.rows<source, 16xf32> {xfc.name = "cross.k"
// CHECK-SAME:  !xfc.rows<cache, 16xf32> {xfc.name = "self.k"
func.func @decode_step.bf16(%q: !t {xfc.name = "target", xfc.role = "input"}, %k: !s {xfc.name = "cross.k", xfc.role = "input"},
                            %old: !c {xfc.name = "self.k", xfc.role = "state"}, %w: tensor<16x16xf32> {xfc.name = "w", xfc.role = "parameter"})
    -> (!t, !xfc.pairs<target, cache, 2xf32>, !c {xfc.name = "self.k", xfc.alias = 2}) {
  %now = xfc.cache_write %old, %q : (!c, !t) -> !c
  %p = xfc.scores %q, %now : (!t, !c) -> !xfc.pairs<target, cache, 2xf32>
  %b, %m = xfc.attention %q, %k, %k {heads = 2 : i64, scale = 1.0} : (!t, !s, !s) -> (!t, !lse)
  %y = xfc.linear %b, %w in bf16 : (!t, tensor<16x16xf32>) -> !t
  return %y, %p, %now : !t, !xfc.pairs<target, cache, 2xf32>, !c
}
