// RUN: %xfc-opt %s --xfc-fuse-packing | FileCheck %s --implicit-check-not=packs
// RUN: sed "s/xfc.linear \(%x, %qk\|%z, %o bias %b\)/& in bf16/; s/xfc.linear_input_grad %y, %qk/& in bf16/" %s | %xfc-opt --xfc-fuse-packing | FileCheck %s --check-prefix=BF16


!w = tensor<4x4xf32>
!b = tensor<4xf32>
!x = !xfc.rows<target, 4xf32>

// A weight made of two parameters, a weight that is one parameter, and a bias.
func.func @loss_and_gradients(%x: !x, %q: !w {xfc.name = "q", xfc.role = "parameter"}, %k: !w {xfc.name = "k", xfc.role = "parameter"},
                              %o: !w {xfc.name = "o", xfc.role = "parameter"}, %b: !b {xfc.name = "b", xfc.role = "parameter"}) -> !x {
  %qk = xfc.concat %q, %k : (!w, !w) -> tensor<8x4xf32>
  %y = xfc.linear %x, %qk : (!x, tensor<8x4xf32>) -> !xfc.rows<target, 8xf32>
  %z = xfc.linear_input_grad %y, %qk : (!xfc.rows<target, 8xf32>, tensor<8x4xf32>) -> !x
  %r = xfc.linear %z, %o bias %b : (!x, !w, !b) -> !x
  return %r : !x
}

// Weights that are not rounded are packed where they are read.
// CHECK-LABEL: func.func @update

// Products that round their operands read weights that are packed in that type. The steps of the whole weight, of the bias, and of the two
// parts of a weight.
// BF16-LABEL: func.func @update
// BF16: xfc.optimize "adam" {{.*}} in bf16 {packs} : (tensor<10xf32>, tensor<f32>, tensor<4x4xf32>
// BF16: xfc.optimize "adam" {{.*}}states({{[^)]*}}) : (tensor<10xf32>, tensor<f32>, tensor<4xf32>
// BF16: xfc.optimize "adam" {{.*}} in bf16 {packs}
func.func @update(%q: !w {xfc.name = "q", xfc.role = "parameter"}, %k: !w {xfc.name = "k", xfc.role = "parameter"}, %o: !w {xfc.name = "o", xfc.role = "parameter"},
                  %b: !b {xfc.name = "b", xfc.role = "parameter"}, %g: !w, %h: !b, %hyper: tensor<10xf32>, %factor: tensor<f32>) -> (!w, !b, !w, !w) {
  %a, %a1, %a2 = xfc.optimize "adam" %hyper, %factor parameters(%o) gradients(%g) states(%g, %g) : (tensor<10xf32>, tensor<f32>, !w, !w, !w, !w) -> (!w, !w, !w)
  %c, %c1, %c2 = xfc.optimize "adam" %hyper, %factor parameters(%b) gradients(%h) states(%h, %h) : (tensor<10xf32>, tensor<f32>, !b, !b, !b, !b) -> (!b, !b, !b)
  %d:2, %d1:2, %d2:2 = xfc.optimize "adam" %hyper, %factor parameters(%q, %k) gradients(%g, %g) states(%g, %g, %g, %g) : (tensor<10xf32>, tensor<f32>, !w, !w, !w, !w, !w, !w, !w, !w) -> (!w, !w, !w, !w, !w, !w)
  return %a, %c, %d#0, %d#1 : !w, !b, !w, !w
}
