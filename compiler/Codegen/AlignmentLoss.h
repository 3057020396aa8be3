// The formulas of guided alignment (xfc.alignment_loss), shared by the kernels of every target.
#pragma once

#include "CodeBuilder.h"
#include "Dialect/XFC.h"

namespace xfc {

// The links of the rows of xfc.alignment_loss or of its gradient, and the heads whose probabilities they concern.
class AlignmentLinks {
public:
  // `heads` is the number of heads of the pairs.
  template <typename Op>
  AlignmentLinks(CodeBuilder &k, Op op, int64_t heads)
      : width(op.getLinks().getType().getFeatures()), k(k), heads(heads), head(op.getHead()),
        links(k, op.getLinksMutable()), shares(k, op.getSharesMutable()) {}
  const int64_t width; // the number of links of a row, some of which may be none

  // Runs then(the index of the key), or otherwise() if link i of the row is none.
  Values choose(mlir::Value row, mlir::Value i, const std::function<Values(mlir::Value)> &then,
                const std::function<Values()> &otherwise) const {
    mlir::Value key = k.loadI32(k.offset(links.data, k.mul(row, links.stride), k.i32), i);
    return k.choose(k.less(key, k.index(0)), otherwise, [&] { return then(key); });
  }

  // The mean over the heads, in ascending order, of probability(head), where `head` is an i64; or that of the only
  // head.
  mlir::Value mean(const std::function<mlir::Value(mlir::Value)> &probability) const {
    if (head)
      return probability(k.index(static_cast<int64_t>(*head)));
    mlir::Value sum = k.loop(k.index(0), k.index(heads), 1, mlir::ValueRange{k.scalar(0)},
                             [&](mlir::Value h, Values s) -> Values { return {k.addf(s[0], probability(h))}; })[0];
    return k.mulf(sum, k.scalar(1.0 / static_cast<double>(heads)));
  }

  // -share log(mean + epsilon) of link i.
  template <typename Builder>
  mlir::Value loss(Builder &builder, mlir::Value row, mlir::Value i, mlir::Value mean) const {
    mlir::Value log = builder.log(k.addf(mean, k.scalar(AlignmentLossOp::epsilon)));
    return k.mulf(k.subf(k.scalar(0), share(row, i)), log);
  }

  // Whether this head (i64) has a gradient, and the gradient of each of these heads' probability at link i.
  mlir::Value concerns(mlir::Value ofHead) const {
    return head ? k.equal(ofHead, k.index(static_cast<int64_t>(*head))) : k.boolean(true);
  }
  mlir::Value gradient(mlir::Value row, mlir::Value i, mlir::Value dloss, mlir::Value mean) const {
    mlir::Value shifted = k.addf(mean, k.scalar(AlignmentLossOp::epsilon));
    return k.divf(k.mulf(dloss, share(row, i)), k.mulf(k.scalar(head ? -1 : -static_cast<double>(heads)), shifted));
  }

private:
  mlir::Value share(mlir::Value row, mlir::Value i) const { return k.load(k.offset(shares.row(k, row), i)); }

  CodeBuilder &k;
  const int64_t heads;
  const std::optional<uint64_t> head;
  const Address links, shares;
};

} // namespace xfc
