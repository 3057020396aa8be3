// A pass that fails reports a location, and with --dump-ir-dir leaves a file that reproduces the failure.
// RUN: rm -rf %t
// RUN: not %xfc compile %s --dump-ir-dir %t --emit scheduled 2>&1 | FileCheck %s
// CHECK: reproducer.mlir:[[@LINE+11]]:3: error: 'func.func' op must return the loss of each row as its first result
// CHECK: error: compile: a pass of the stage 'differentiated' failed; see the message above; `xfc-opt --run-reproducer {{.*}}reproducer.mlir` repeats it
// RUN: not %xfc-opt --run-reproducer %t/cpu-differentiated/reproducer.mlir 2>&1 | FileCheck %s --check-prefix=AGAIN
// AGAIN: error: 'func.func' op must return the loss of each row as its first result
// RUN: not %xfc compile %s --emit scheduled 2>&1 | FileCheck %s --check-prefix=HINT
// HINT: error: compile: a pass of the stage 'differentiated' failed; see the message above; add --dump-ir-dir for a reproducer

module attributes {xfc.model = #xfc.model<name = "empty", source_vocab = 7, target_vocab = 7, decoder = true, pad = 0, unk = 1, bos = 2,
    eos = 3, start = 2, description = "{}">} {

  // Without a result there is nothing to differentiate.
  func.func @loss() {
    return
  }
}
