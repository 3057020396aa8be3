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
        links(k.rowsOf(op.getLinksMutable())), shares(k.rowsOf(op.getSharesMutable())) {}
  const int64_t width; // the number of links of a row, some of which may be none

  // The mean over the heads of their probability at link i of the row, and the loss of the link,
  // -share log(mean + epsilon); zeros if there is none. `first` is where the row's probabilities of the first head
  // begin, and those of each further head follow after `perHead` numbers.
  template <typename Builder>
  Values meanAndLoss(Builder &builder, mlir::Value row, mlir::Value i, const View &first, mlir::Value perHead) const {
    return choose(
        row, i,
        [&](mlir::Value key) -> Values {
          mlir::Value mean = meanAt(first + key, perHead);
          mlir::Value log = builder.log(k.addf(mean, AlignmentLossOp::epsilon));
          return {mean, k.mulf(k.subf(0, share(row, i)), log)};
        },
        [&]() -> Values { return {k.scalar(0), k.scalar(0)}; });
  }

  // Whether this head (i64) has a gradient.
  mlir::Value concerns(mlir::Value ofHead) const {
    return head ? k.equal(ofHead, static_cast<int64_t>(*head)) : k.boolean(true);
  }
  // Stores the gradient of the probability at link i of the row, which is that of each head concerned, if there is such
  // a link. `first` is where the row's gradients of the head begin; `means` are those of meanAndLoss().
  void storeGradient(mlir::Value row, mlir::Value i, mlir::Value dloss, const View &means, const View &first) const {
    choose(
        row, i,
        [&](mlir::Value key) -> Values {
          mlir::Value mean = k.load(means(row, i));
          mlir::Value shifted = k.addf(mean, AlignmentLossOp::epsilon);
          mlir::Value ofHeads = k.mulf(head ? -1 : -static_cast<double>(heads), shifted);
          View gradient = first + key;
          k.store(k.divf(k.mulf(dloss, share(row, i)), ofHeads), gradient);
          return {};
        },
        []() -> Values { return {}; });
  }

private:
  // Runs then(the index of the key), or otherwise() if link i of the row is none.
  Values choose(mlir::Value row, mlir::Value i, const std::function<Values(mlir::Value)> &then,
                const std::function<Values()> &otherwise) const {
    mlir::Value key = k.loadIndex(links(row, i));
    return k.choose(k.less(key, 0), otherwise, [&] { return then(key); });
  }

  // The mean of the heads' probabilities in ascending order, or the probability of the only head that is concerned.
  mlir::Value meanAt(const View &ofFirstHead, mlir::Value perHead) const {
    auto ofHead = [&](mlir::Value h) { return k.load(ofFirstHead + k.mul(h, perHead)); };
    if (head)
      return ofHead(k.index(static_cast<int64_t>(*head)));
    mlir::Value sum = k.loop(0, heads, 1, mlir::ValueRange{k.scalar(0)},
                             [&](mlir::Value h, Values s) -> Values { return {k.addf(s[0], ofHead(h))}; })[0];
    return k.mulf(sum, 1.0 / static_cast<double>(heads));
  }

  mlir::Value share(mlir::Value row, mlir::Value i) const { return k.load(shares(row, i)); }

  CodeBuilder &k;
  const int64_t heads;
  const std::optional<uint64_t> head;
  const View links, shares;
};

} // namespace xfc
