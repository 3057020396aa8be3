// RUN: %xfc-opt %s --xfc-set-cache-type=type=bf16 | FileCheck %s --check-prefixes=CHECK,BF16
// RUN: %xfc-opt %s --xfc-set-cache-type=type=int8 | FileCheck %s --check-prefixes=CHECK,INT8

!s = !xfc.rows<source, 16xf32>
!t = !xfc.rows<target, 16xf32>
!c = !xfc.rows<cache, 16xf32>
!lse = !xfc.rows<target, 2xf32>

// The keys and values that the encoder returns become narrower, and its other results stay as they are.
// CHECK-LABEL: func.func @encode.bf16(
// BF16-SAME: -> (!xfc.rows<source, 16xbf16> {xfc.name = "cross.k"}, !xfc.rows<source, 16xbf16> {xfc.name = "cross.v"}, !xfc.rows<source, 16xf32> {xfc.name = "other"})
// BF16:      %[[K:.*]] = xfc.quantize %arg0 {groups = 2 : i64} : (!xfc.rows<source, 16xf32>) -> !xfc.rows<source, 16xbf16>
// BF16:      return %[[K]], %{{.*}}, %arg0
// INT8-SAME: !xfc.rows<source, 2xf32> {xfc.name = "cross.k.scale"}, !xfc.rows<source, 2xf32> {xfc.name = "cross.v.scale"})
// INT8:      %[[K:.*]], %[[KS:.*]] = xfc.quantize %arg0 {groups = 2 : i64} : (!xfc.rows<source, 16xf32>) -> (!xfc.rows<source, 16xi8>, !xfc.rows<source, 2xf32>)
// INT8:      %[[V:.*]], %[[VS:.*]] = xfc.quantize
// INT8:      return %[[K]], %[[V]], %arg0, %[[KS]], %[[VS]]
func.func @encode.bf16(%k: !s {xfc.name = "source", xfc.role = "input"})
    -> (!s {xfc.name = "cross.k"}, !s {xfc.name = "cross.v"}, !s {xfc.name = "other"}) {
  return %k, %k, %k : !s, !s, !s
}

// Rows of a step are rounded where they are written, or turned into integers before. An input that is no key or value stays. A program
// that has a compute type in its name changes as the others do.
// CHECK-LABEL: func.func @decode_step.bf16(
// BF16-SAME: %arg1: !xfc.rows<source, 16xbf16> {xfc.name = "cross.k", {{.*}} %arg3: !xfc.rows<cache, 16xbf16> {xfc.name = "self.k", xfc.role = "state"}, %arg4: !xfc.rows<target, 16xf32>
// BF16:      %[[NOW:.*]] = xfc.cache_write %arg3, %arg0 : (!xfc.rows<cache, 16xbf16>, !xfc.rows<target, 16xf32>) -> !xfc.rows<cache, 16xbf16>
// BF16:      xfc.attention %arg0, %[[NOW]], %[[NOW]] {
// BF16:      xfc.attention %arg0, %arg1, %arg2 {
// BF16:      return %{{.*}}, %[[NOW]] :
// INT8-SAME: %arg3: !xfc.rows<cache, 16xi8> {xfc.name = "self.k", xfc.role = "state"}
// INT8-SAME: %arg5: !xfc.rows<source, 2xf32> {xfc.name = "cross.k.scale", xfc.role = "input"}, %arg6: !xfc.rows<source, 2xf32> {xfc.name = "cross.v.scale", xfc.role = "input"}, %arg7: !xfc.rows<cache, 2xf32> {xfc.name = "self.k.scale", xfc.role = "state"})
// INT8-SAME: !xfc.rows<cache, 16xi8> {xfc.alias = 3 : i64, xfc.name = "self.k"}, !xfc.rows<cache, 2xf32> {xfc.alias = 7 : i64, xfc.name = "self.k.scale"})
// INT8:      %[[I:.*]], %[[S:.*]] = xfc.quantize %arg0 {groups = 2 : i64} : (!xfc.rows<target, 16xf32>) -> (!xfc.rows<target, 16xi8>, !xfc.rows<target, 2xf32>)
// INT8:      %[[SCALES:.*]] = xfc.cache_write %arg7, %[[S]]
// INT8:      %[[NOW:.*]] = xfc.cache_write %arg3, %[[I]] : (!xfc.rows<cache, 16xi8>, !xfc.rows<target, 16xi8>) -> !xfc.rows<cache, 16xi8>
// INT8:      xfc.attention %arg0, %[[NOW]], %[[NOW]] scaled by %[[SCALES]], %[[SCALES]] {
// INT8:      xfc.attention %arg0, %arg1, %arg2 scaled by %arg5, %arg6 {
// INT8:      return %{{.*}}, %[[NOW]], %[[SCALES]] :
func.func @decode_step.bf16(%q: !t {xfc.name = "target", xfc.role = "input"},
                            %k: !s {xfc.name = "cross.k", xfc.role = "input"}, %v: !s {xfc.name = "cross.v", xfc.role = "input"},
                            %old: !c {xfc.name = "self.k", xfc.role = "state"}, %x: !t {xfc.name = "x", xfc.role = "input"})
    -> (!t, !c {xfc.name = "self.k", xfc.alias = 3}) {
  %now = xfc.cache_write %old, %q : (!c, !t) -> !c
  %a, %l = xfc.attention %q, %now, %now {heads = 2 : i64, scale = 1.0} : (!t, !c, !c) -> (!t, !lse)
  %b, %m = xfc.attention %q, %k, %v {heads = 2 : i64, scale = 1.0} : (!t, !s, !s) -> (!t, !lse)
  %s = xfc.add %a, %b : !t
  %r = xfc.add %s, %x : !t
  return %r, %now : !t, !c
}

// Features that are not a multiple of 8 stay as they are, as do the states of a recurrence and what other programs read.
// CHECK-LABEL: func.func @decode_candidates(
// CHECK-SAME: !xfc.rows<source, 4xf32> {xfc.name = "small.k"
// CHECK-SAME: !xfc.rows<cache, 16xf32> {xfc.name = "rnn.state"
func.func @decode_candidates(%q: !xfc.rows<target, 4xf32> {xfc.name = "target", xfc.role = "input"},
                             %k: !xfc.rows<source, 4xf32> {xfc.name = "small.k", xfc.role = "input"},
                             %g: !t {xfc.name = "g", xfc.role = "input"}, %old: !c {xfc.name = "rnn.state", xfc.role = "state"})
    -> (!xfc.rows<target, 4xf32>, !c {xfc.name = "rnn.state", xfc.alias = 3}) {
  %a, %l = xfc.attention %q, %k, %k {heads = 2 : i64, scale = 1.0} : (!xfc.rows<target, 4xf32>, !xfc.rows<source, 4xf32>, !xfc.rows<source, 4xf32>) -> (!xfc.rows<target, 4xf32>, !lse)
  %state = xfc.recurrence %g, %g, %old : (!t, !t, !c) -> !t
  %now = xfc.cache_write %old, %state : (!c, !t) -> !c
  return %a, %now : !xfc.rows<target, 4xf32>, !c
}

// CHECK-LABEL: func.func @forward(
// CHECK-SAME: %arg1: !xfc.rows<source, 16xf32>
func.func @forward(%q: !t {xfc.name = "target", xfc.role = "input"}, %k: !s {xfc.name = "cross.k", xfc.role = "input"}) -> !t {
  %a, %l = xfc.attention %q, %k, %k {heads = 2 : i64, scale = 1.0} : (!t, !s, !s) -> (!t, !lse)
  return %a : !t
}
