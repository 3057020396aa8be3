// Used by the emitters of all targets: attaching a target's kernel interface to an op, and the width of rows.
#pragma once

#include "Dialect/XFC.h"

namespace xfc {

// An external model of Interface whose method emitKernel calls `emitter`: Info emitThing(Builder &, ThingOp), where
// Info is the return type of the method or converts to it.
template <typename Interface, auto emitter> struct KernelModel;
template <typename Interface, typename Builder, typename Op, typename Info, Info (*emitter)(Builder &, Op)>
struct KernelModel<Interface, emitter> : Interface::template ExternalModel<KernelModel<Interface, emitter>, Op> {
  Info emitKernel(mlir::Operation *op, Builder &k) const { return emitter(k, mlir::cast<Op>(op)); }
  static void attach(mlir::MLIRContext &context) { Op::template attachInterface<KernelModel>(context); }
};

// The number of features in each row.
inline int64_t widthOf(mlir::Value rows) { return mlir::cast<RowsType>(rows.getType()).getFeatures(); }

} // namespace xfc
