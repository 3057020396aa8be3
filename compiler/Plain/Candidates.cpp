// The plain kernels of the candidates of a decoding step.
#include "Lowerings.h"
#include <cmath>

using namespace mlir;

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// candidates
//===--------------------------------------------------------------------------------------------------------===//

// Each candidate is the largest of those that rank below the previous one; ties go to the lowest token.
static void lowerPlainOp(CandidatesOp op, PlainBuilder &b) {
  Value logProbs = b.operand(0), wanted = b.operand(1), tokens = b.result(0), best = b.result(1),
        wantedLogProb = b.result(2);
  const int64_t vocabulary = op.getLogProbs().getType().getFeatures();
  b.forEach(b.rowCount(), [&](const Number &i) {
    Value row = b.slice(logProbs, {i});
    std::optional<Number> last, lastToken;
    for (int64_t c = 0; c < op.getTokens().getType().getFeatures(); ++c) {
      // x, or minus infinity if the token is no longer a candidate.
      auto left = [&](const Number &x) {
        Number token = b.loop('j'),
               value =
                   last ? select(x < *last, x, select(x == *last, select(token > *lastToken, x, -INFINITY), -INFINITY))
                        : select(x > -INFINITY, x, -INFINITY);
        for (int64_t excluded : op.getExcluded())
          value = select(token == excluded, -INFINITY, value);
        return value;
      };
      Number largest = b.reduce("j->", row, -INFINITY, [&](auto v) { return max(v[1], left(v[0])); });
      Number none(b, Number(vocabulary).as(b, b.b.getIndexType()));
      Number token = b.reduce("j->", row, none,
                              [&](auto v) { return select(left(v[0]) == largest, min(v[1], b.loop('j')), v[1]); });
      b.store(select(largest > -INFINITY, token, -1), tokens, {i, c});
      b.store(largest, best, {i, c});
      last = largest;
      lastToken = token;
    }
    b.store(b.load(logProbs, {i, b.load(wanted, {i})}), wantedLogProb, {i});
  });
}

void attachCandidatesLowerings(MLIRContext &context) { attachLowerings<CandidatesOp>(context); }

} // namespace xfc
