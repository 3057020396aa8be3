// Groups the pairs of a corpus into batches by token count, in an order that depends only on the seed, the epoch and
// the data.
#include "corpora/Batches.h"
#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <random>
#include <system_error>

namespace xfc {
namespace {

// std::shuffle may differ between standard libraries; this does not.
template <typename T> void shuffle(std::vector<T> &values, std::mt19937_64 &random) {
  for (size_t i = values.size(); i > 1; --i)
    std::swap(values[i - 1], values[random() % i]);
}

int lengthClass(const Corpus &corpus, int64_t pair) {
  return std::bit_width(static_cast<uint64_t>(std::max(corpus.sourceLength(pair), corpus.targetLength(pair))));
}

std::mt19937_64 generator(uint64_t seed, int64_t epoch, std::initializer_list<uint32_t> of) {
  std::vector<uint32_t> seeds = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                                 static_cast<uint32_t>(epoch)};
  seeds.insert(seeds.end(), of);
  std::seed_seq sequence(seeds.begin(), seeds.end());
  return std::mt19937_64(sequence);
}

// Pairs that go to one pool of an epoch: from a block, or from a corpus that is smaller than one, in the order of this
// pass through it.
struct Piece {
  int64_t first, size; // the block
  int64_t pass;        // how many complete passes came before
  int64_t from, to;    // the positions taken in the order; from `size` on, in the order of the next pass
};

// A generator whose seed includes the first pair of a block or a corpus.
std::mt19937_64 generatorOf(uint64_t seed, int64_t pass, uint32_t what, int64_t first) {
  return generator(seed, pass, {what, static_cast<uint32_t>(first), static_cast<uint32_t>(first >> 32)});
}
enum : uint32_t { orderOfBlocks = 0xffffffff, orderOfCorpus = 0xfffffffe, orderInBlock = 0xfffffffd };

void addBlocks(std::vector<Piece> &pieces, int64_t first, int64_t size, int64_t pass) {
  for (int64_t at = 0; at < size; at += blockPairs)
    pieces.push_back({first + at, std::min(blockPairs, size - at), pass, 0, std::min(blockPairs, size - at)});
}

// Adds the pairs that epoch number `epoch` takes from a corpus that contributes `quota` pairs to each epoch.
void addTurn(std::vector<Piece> &pieces, int64_t first, int64_t size, int64_t quota, uint64_t seed, int64_t epoch) {
  const int64_t begin = epoch * quota, end = begin + quota; // in the sequence of all pairs that it gives to all epochs
  if (size <= blockPairs) {
    for (int64_t at = begin; at < end; at += blockPairs)
      pieces.push_back({first, size, at / size, at % size, at % size + std::min(blockPairs, end - at)});
    return;
  }
  for (int64_t pass = begin / size; pass * size < end; ++pass) {
    std::vector<Piece> blocks;
    addBlocks(blocks, first, size, pass);
    std::mt19937_64 random = generatorOf(seed, pass, orderOfCorpus, first);
    shuffle(blocks, random);
    int64_t at = pass * size;
    for (Piece &block : blocks) {
      block.from = std::max(begin - at, int64_t(0));
      block.to = std::min(end - at, block.size);
      if (block.from < block.to)
        pieces.push_back(block);
      at += block.size;
    }
  }
}

std::vector<Piece> piecesOf(const Corpus &corpus, const Mixture &mixture, uint64_t seed, int64_t epoch, int64_t pool) {
  std::vector<Piece> pieces; // of the epoch
  if (mixture.empty())
    addBlocks(pieces, 0, static_cast<int64_t>(corpus.size()), epoch);
  for (int64_t i = 0, first = 0; i < std::ssize(mixture.sizes); first += mixture.sizes[i++])
    addTurn(pieces, first, mixture.sizes[i], mixture.quotas[i], seed, epoch);
  const int64_t pools = poolsOf(corpus, mixture), count = std::ssize(pieces);
  if (pools > 1) {
    std::mt19937_64 random = generator(seed, epoch, {orderOfBlocks});
    shuffle(pieces, random);
  }
  return {pieces.begin() + count * pool / pools, pieces.begin() + count * (pool + 1) / pools};
}

// Appends the numbers of the piece's pairs.
void append(std::vector<int64_t> &order, const Piece &piece, uint64_t seed) {
  std::vector<int64_t> block(static_cast<size_t>(piece.size));
  for (int64_t at = piece.from; at < piece.to;) {
    const int64_t pass = piece.pass + at / piece.size, from = at % piece.size,
                  count = std::min(piece.size - from, piece.to - at);
    std::iota(block.begin(), block.end(), piece.first);
    if (count < piece.size) {
      std::mt19937_64 random = generatorOf(seed, pass, orderInBlock, piece.first);
      shuffle(block, random);
    }
    order.insert(order.end(), block.begin() + from, block.begin() + from + count);
    at += count;
  }
}

// The pairs of a pool, shuffled, which are read and checked piece by piece.
class PoolOrder {
public:
  PoolOrder(const Corpus &corpus, const Mixture &mixture, uint64_t seed, int64_t epoch, int64_t pool)
      : random(pool == 0 ? generator(seed, epoch, {}) : generator(seed, epoch, {static_cast<uint32_t>(pool)})),
        corpus(corpus), seed(seed), pieces(piecesOf(corpus, mixture, seed, epoch, pool)) {}
  // Does a step of the work. Returns false if all is done.
  bool step() {
    if (done == pieces.size())
      return false;
    const Piece &piece = pieces[done];
    corpus.check(piece.first, piece.first + piece.size);
    append(pairs, piece, seed);
    if (++done == pieces.size())
      shuffle(pairs, random);
    return true;
  }

  std::vector<int64_t> pairs;
  std::mt19937_64 random; // which then shuffles the batches

private:
  const Corpus &corpus;
  const uint64_t seed;
  const std::vector<Piece> pieces;
  size_t done = 0; // pieces
};

// Sorts pairs by the class of their lengths, stably.
std::vector<int64_t> byLengthClass(const Corpus &corpus, const std::vector<int64_t> &pairs) {
  std::vector<uint8_t> classes(pairs.size());
  std::array<size_t, 66> begin{};
  for (size_t i = 0; i < pairs.size(); ++i) {
    classes[i] = static_cast<uint8_t>(lengthClass(corpus, pairs[i]));
    ++begin[classes[i] + 1];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<int64_t> sorted(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i)
    sorted[begin[classes[i]]++] = pairs[i];
  return sorted;
}

} // namespace

int64_t poolsOf(const Corpus &corpus, const Mixture &mixture) {
  const int64_t pairs = mixture.empty() ? static_cast<int64_t>(corpus.size()) : mixture.pairsOfEpoch(),
                most = poolBlocks * blockPairs;
  return std::max<int64_t>((pairs + most - 1) / most, 1);
}

static std::vector<std::vector<int64_t>> batchesOf(const Corpus &corpus, const std::vector<int64_t> &shuffled,
                                                   int64_t batchTokens, std::mt19937_64 &random) {
  const std::vector<int64_t> order = byLengthClass(corpus, shuffled);
  std::vector<std::vector<int64_t>> batches;
  int64_t sources = 0, targets = 0;
  for (int64_t pair : order) {
    sources += corpus.sourceLength(pair);
    targets += corpus.targetLength(pair);
    if (batches.empty() || sources > batchTokens || targets > batchTokens) {
      batches.emplace_back();
      sources = corpus.sourceLength(pair);
      targets = corpus.targetLength(pair);
    }
    batches.back().push_back(pair);
  }
  shuffle(batches, random);
  return batches;
}

std::vector<std::vector<int64_t>> poolBatches(const Corpus &corpus, int64_t batchTokens, uint64_t seed, int64_t epoch,
                                              int64_t pool, const Mixture &mixture) {
  corpus.release();
  PoolOrder order(corpus, mixture, seed, epoch, pool);
  while (order.step()) {
  }
  return batchesOf(corpus, order.pairs, batchTokens, order.random);
}

std::vector<std::vector<int64_t>> epochBatches(const Corpus &corpus, int64_t batchTokens, uint64_t seed, int64_t epoch,
                                               const Mixture &mixture) {
  std::vector<std::vector<int64_t>> all;
  for (int64_t pool = 0; pool < poolsOf(corpus, mixture); ++pool)
    for (std::vector<int64_t> &batch : poolBatches(corpus, batchTokens, seed, epoch, pool, mixture))
      all.push_back(std::move(batch));
  return all;
}

Counts largestBatch(const Corpus &corpus, int64_t batchTokens, const Mixture &mixture) {
  const CorpusTotals bounds = corpus.bounds();
  const auto &longest = bounds.longest, &shortest = bounds.shortest;
  // If each pair occurs at most once in a batch, the totals of the corpus bound it, and otherwise those of an epoch:
  // however large batchTokens is, the products below are those of numbers that occur.
  const bool once = mixture.empty();
  Counts counts;
  int64_t sequences = once ? static_cast<int64_t>(corpus.size()) : mixture.pairsOfEpoch();
  for (int set : {XFC_SOURCE, XFC_TARGET}) {
    const int64_t total = once ? bounds.tokens[set] : mixture.pairsOfEpoch() * longest[set];
    counts.rows[set] = std::min(std::max(batchTokens, longest[set]), total);
    sequences = std::min(sequences, std::max<int64_t>(counts.rows[set] / shortest[set], 1));
  }
  counts.sequences[XFC_SOURCE] = counts.sequences[XFC_TARGET] = sequences;
  counts.longest = std::max(longest[XFC_SOURCE], longest[XFC_TARGET]);
  // A sentence pair has as many (query, key) pairs as the product of its lengths.
  auto pairs = [&](int queries, int keys) {
    return std::min(counts.rows[queries] * longest[keys], longest[queries] * counts.rows[keys]);
  };
  const std::pair<int, int64_t> relations[] = {{XFC_SOURCE_SOURCE, pairs(XFC_SOURCE, XFC_SOURCE)},
                                               {XFC_TARGET_TARGET, pairs(XFC_TARGET, XFC_TARGET)},
                                               {XFC_TARGET_SOURCE, pairs(XFC_TARGET, XFC_SOURCE)}};
  for (auto [relation, most] : relations)
    for (int variant = 0; variant < 4; ++variant)
      counts.pairs[XFC_KEYS(relation, variant / 2, variant % 2)] = most;
  return counts;
}

PairsOfCorpus pairsOf(const Corpus &corpus, std::vector<int64_t> pairs) {
  return {std::shared_ptr<const Corpus>(std::shared_ptr<void>(), &corpus), std::move(pairs)};
}

// A pool that is planned step by step, so that one thread can go on where another one has stopped.
class Batches::Plan {
public:
  Plan(const Batches &of, Position at)
      : epoch(at.epoch), pool(at.pool), corpus(of.corpus), batchTokens(of.batchTokens),
        order(corpus, of.mixture, of.seed, epoch, pool) {}
  // Does a step of the work, with one thread or several. Returns false if all is done.
  bool step(const Parallel &parallel) {
    if (done)
      return false;
    if (order.step() || (corpus.isSampled() && corpus.draw(*drawn, order.pairs, epoch, parallel)))
      return true;
    std::shared_ptr<const Corpus> of = pairsOf(corpus, {}).corpus;
    if (corpus.isSampled()) {
      of = std::move(drawn);
      std::iota(order.pairs.begin(), order.pairs.end(), 0);
      corpus.release(); // everything is in what was drawn
    }
    for (std::vector<int64_t> &pairs : batchesOf(*of, order.pairs, batchTokens, order.random))
      batches.push_back({of, std::move(pairs)});
    order.pairs = {};
    done = true;
    return false;
  }
  bool isOf(Position position) const { return epoch == position.epoch && pool == position.pool; }

  std::vector<PairsOfCorpus> batches;

private:
  const int64_t epoch, pool;
  const Corpus &corpus;
  const int64_t batchTokens;
  PoolOrder order;
  std::shared_ptr<Corpus> drawn = std::make_shared<Corpus>();
  bool done = false;
};

Batches::Batches(const Corpus &corpus, int64_t batchTokens, uint64_t seed, Mixture mixture)
    : corpus(corpus), mixture(std::move(mixture)), batchTokens(batchTokens), seed(seed),
      pools(poolsOf(corpus, this->mixture)) {}

Batches::~Batches() { stopPlanning(); }

Batches::Position Batches::nextPool() const {
  return at.pool + 1 < pools ? Position{at.epoch, 0, at.pool + 1} : Position{at.epoch + 1, 0, 0};
}

void Batches::planAhead() {
  planned();
  if (ahead || failed || 2 * left() > batchesOfPool())
    return;
  ahead = std::make_unique<Plan>(*this, nextPool());
  try {
    planner = std::jthread([this](const std::stop_token &stop) {
      try {
        while (!stop.stop_requested() && ahead->step(oneByOne)) {
        }
      } catch (...) { // planned() meets it again, where it is reported
        failed = true;
      }
    });
  } catch (const std::system_error &) {
    planner = {}; // no more threads may be started: planned() does all of the work
  }
}

// Ends the thread of planAhead().
void Batches::stopPlanning() const {
  planner = {}; // asks it to stop, and waits for it
  if (failed)   // perhaps in the middle of a step
    ahead.reset();
  failed = false;
}

const std::vector<PairsOfCorpus> &Batches::planned() const {
  if (current && current->isOf(at))
    return current->batches;
  stopPlanning();
  if (ahead && !ahead->isOf(at))
    ahead.reset();
  corpus.release(); // what was read ahead is still in the system's cache
  current.reset();  // frees a sampled pool that no one else uses
  std::unique_ptr<Plan> plan = ahead ? std::move(ahead) : std::make_unique<Plan>(*this, at);
  while (plan->step(corpus.onThreads())) {
  }
  current = std::move(plan);
  return current->batches;
}

bool Batches::seek(Position position) {
  if (position.pool >= pools)
    return false;
  at = position;
  return at.batch <= batchesOfPool();
}

const PairsOfCorpus &Batches::next() {
  if (left() == 0)
    seek(nextPool());
  return planned()[static_cast<size_t>(at.batch++)];
}

double Batches::fractionOfEpoch(Position position) const {
  return (static_cast<double>(position.pool) +
          static_cast<double>(position.batch) / static_cast<double>(batchesOfPool())) /
         static_cast<double>(pools);
}

int64_t Batches::batchesOfEpoch() const {
  int64_t count = 0;
  for (int64_t pool = 0; pool < pools; ++pool)
    count += pool == at.pool && !corpus.isSampled()
                 ? batchesOfPool()
                 : std::ssize(poolBatches(corpus, batchTokens, seed, at.epoch, pool, mixture));
  corpus.release();
  return count;
}

} // namespace xfc
