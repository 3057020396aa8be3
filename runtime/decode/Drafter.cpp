// Drafts tokens with a smaller model.
#include "decode/Drafter.h"
#include <algorithm>
#include <array>
#include <cmath>

namespace xfc {

Drafter::Drafter(std::unique_ptr<SearchedModel> given, std::vector<std::string> computeTypes, const Counts &capacity)
    : model(std::move(given)), vocabulary(model->vocabulary()), computeTypes(std::move(computeTypes)),
      slots(capacity.rows[XFC_CACHE]) {}

size_t Drafter::groupOf(const SearchOptions &options) {
  SearchOptions greedy;
  greedy.generation.beam = 1;
  if (std::ranges::find(computeTypes, options.computeType) != computeTypes.end())
    greedy.computeType = options.computeType;
  return model->groupOf(greedy, /*constrained=*/false);
}

void Drafter::join(size_t group, std::span<const JoiningSentence> sentences) {
  for (const JoiningSentence &sentence : sentences)
    if (sentence.place >= readers.size())
      readers.resize(sentence.place + 1);
  model->join(group, sentences);
}

void Drafter::leave(size_t place) {
  slots.release(readers[place].history);
  readers[place] = {};
  model->leave(place);
}

void Drafter::draft(size_t group, std::span<DraftRequest> requests) {
  std::vector<size_t> active; // by the number of the request: those for which more is to be drafted
  for (size_t i = 0; i < requests.size(); ++i) {
    DraftRequest &request = requests[i];
    request.tokens.clear();
    if (request.most == 0)
      continue;
    active.push_back(i);
    // What was drafted and has not been chosen is forgotten, and the last token is read again if it is known already.
    Reader &reader = readers[request.place];
    size_t same = 0;
    while (same < std::min(reader.read.size(), request.ids.size()) &&
           reader.read[same] == (same == 0 ? vocabulary.start : request.ids[same - 1]))
      ++same;
    for (; reader.read.size() > same; reader.read.pop_back(), reader.history.pop_back())
      slots.release(reader.history.back());
  }
  while (!active.empty()) {
    step(group, requests, active);
    std::erase_if(active, [&](size_t i) {
      const DraftRequest &request = requests[i];
      const bool ended = !request.tokens.empty() && request.tokens.back() == vocabulary.eos;
      if (ended)
        requests[i].tokens.pop_back();
      return ended || request.tokens.size() == request.most;
    });
  }
}

void Drafter::step(size_t group, std::span<DraftRequest> requests, std::span<const size_t> active) {
  ids.clear(), wanted.clear(), placeOf.clear(), positions.clear(), taken.clear(), history.clear();
  std::vector<int64_t> last; // the last row of each, or -1 if there are tokens that are not read yet
  for (const size_t i : active) {
    const DraftRequest &request = requests[i];
    auto &[read, rows] = readers[request.place];
    const size_t known = 1 + request.ids.size() + request.tokens.size(); // tokens, start included
    // A model that does not read the rows of all tokens reads the state after the token before, of an earlier step.
    const size_t end = model->readsHistory() ? known : read.size() + 1, begin = read.size();
    for (size_t at = begin; at < end; ++at) {
      const int32_t token = at == 0                    ? vocabulary.start
                            : at <= request.ids.size() ? request.ids[at - 1]
                                                       : request.tokens[at - 1 - request.ids.size()];
      read.push_back(token);
      rows.push_back(slots.take());
      ids.push_back(token);
      wanted.push_back(vocabulary.eos);
      placeOf.push_back(static_cast<int32_t>(request.place));
      positions.push_back(static_cast<int32_t>(at));
      taken.push_back(rows.back());
    }
    for (size_t at = begin; at < end; ++at)
      history.push_back(
          std::span(rows).first(at + 1).last(model->readsHistory() ? at + 1 : std::min<size_t>(at + 1, 2)));
    last.push_back(end == known ? static_cast<int64_t>(ids.size()) - 1 : -1);
  }
  const StepResult result = model->step(group, {ids, wanted, placeOf, positions, taken, history});
  for (size_t a = 0; a < active.size(); ++a)
    if (last[a] >= 0) {
      DraftRequest &request = requests[active[a]];
      const auto length = static_cast<int64_t>(request.ids.size() + request.tokens.size());
      const int32_t forced = request.search->forcedToken(length);
      request.tokens.push_back(forced >= 0 ? forced : bestOf(result, last[a]));
    }
}

int32_t Drafter::bestOf(const StepResult &result, int64_t row) const {
  if (result.tokens) {
    const int32_t token = result.tokens[row * result.tokenStride];
    return token >= 0 && result.best.row(row)[0] > result.wanted.row(row)[0] ? token : vocabulary.eos;
  }
  const LogProbabilityRow numbers = result.all.row(row);
  int32_t best = vocabulary.eos;
  for (int32_t token = 0; token < vocabulary.size; ++token)
    if (token != vocabulary.pad && token != vocabulary.start && numbers[token] > numbers[best])
      best = token;
  return best;
}

} // namespace xfc
