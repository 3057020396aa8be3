// Runs given targets through the decoder, with their sources, in batches.
#include "decode/TeacherForcing.h"
#include <algorithm>
#include <numeric>

namespace xfc {

void inBatches(const std::vector<std::vector<int32_t>> &sources, const std::vector<std::vector<int32_t>> &inputs,
               int64_t batchTokens, int32_t pad, const UseOfBatch &use) {
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return inputs[a].size() > inputs[b].size(); });
  Batch batch;
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    std::vector<Sequence> sourceSequences, targetSequences;
    int64_t sourceTokens = 0, targetTokens = 0;
    for (; end < order.size(); ++end) {
      const std::vector<int32_t> &source = sources[order[end]], &input = inputs[order[end]];
      sourceTokens += static_cast<int64_t>(source.size());
      targetTokens += static_cast<int64_t>(input.size());
      if (end > begin && std::max(sourceTokens, targetTokens) > batchTokens)
        break;
      sourceSequences.push_back({source, static_cast<int64_t>(source.size()), 0});
      targetSequences.push_back({input, static_cast<int64_t>(input.size()), 0});
    }
    batch.assign(sourceSequences, targetSequences, pad, false);
    use(std::span(order).subspan(begin, end - begin), batch);
  }
}

} // namespace xfc
