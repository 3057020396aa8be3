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
    // x, or minus infinity if the token is excluded.
    auto allowed = [&](Number x) {
      for (int64_t excluded : op.getExcluded())
        x = select(b.loop('j') == excluded, -INFINITY, x);
      return x;
    };
    std::optional<Number> total;
    if (op.getRenormalize()) {
      Number most = b.reduce("j->", row, -INFINITY, [&](auto v) { return max(v[1], allowed(v[0])); });
      total = most + log(b.reduce("j->", row, 0, [&](auto v) { return v[1] + exp(allowed(v[0]) - most); }));
    }
    std::optional<Number> last, lastToken;
    for (int64_t c = 0; c < op.getTokens().getType().getFeatures(); ++c) {
      // x, or minus infinity if the token is no longer a candidate.
      auto left = [&](const Number &x) {
        Number token = b.loop('j');
        if (!last)
          return allowed(select(x > -INFINITY, x, -INFINITY));
        const Number later = select(token > *lastToken, x, -INFINITY), tied = select(x == *last, later, -INFINITY);
        return allowed(select(x < *last, x, tied));
      };
      Number largest = b.reduce("j->", row, -INFINITY, [&](auto v) { return max(v[1], left(v[0])); });
      Number none(b, Number(vocabulary).as(b, b.b.getIndexType()));
      Number token = b.reduce("j->", row, none, [&](auto v) {
        const Number first = min(v[1], b.loop('j'));
        return select(left(v[0]) == largest, first, v[1]);
      });
      Number logProb = total ? largest - *total : largest, some = logProb > -INFINITY; // false for NaN
      b.store(select(some, token, -1), tokens, {i, c});
      b.store(select(some, logProb, -INFINITY), best, {i, c});
      last = largest;
      lastToken = token;
    }
    Number given = b.load(logProbs, {i, b.load(wanted, {i})});
    b.store(total ? given - *total : given, wantedLogProb, {i});
  });
}

void attachCandidatesLowerings(MLIRContext &context) { attachLowerings<CandidatesOp>(context); }

} // namespace xfc
