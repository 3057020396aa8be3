// Plans: packing buffers, sizes, serialization, and damaged bytes.
#include "core/Error.h"
#include "core_model.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <random>

using namespace xfc;

namespace {

Program randomProgram(std::mt19937 &random) {
  Program program;
  const int steps = 1 + random() % 40;
  for (int i = 0, n = 1 + random() % 60; i < n; ++i) {
    Buffer buffer;
    buffer.size.constant = random() % 300;
    buffer.size.rows[random() % XFC_ROW_SETS] = random() % 50;
    buffer.size.pairs[random() % XFC_KEY_STRUCTURES] = random() % 5;
    buffer.first = random() % steps;
    buffer.last = buffer.first + random() % (steps - buffer.first);
    program.buffers.push_back(buffer);
  }
  return program;
}

} // namespace

TEST(Plan, LivingBuffersNeverOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const Program program = randomProgram(random);
    Counts counts;
    for (int64_t &rows : counts.rows)
      rows = random() % 100;
    for (int64_t &pairs : counts.pairs)
      pairs = random() % 100;
    const Layout layout = plan(program, counts), again = plan(program, counts);
    EXPECT_EQ(layout.offsets, again.offsets);
    ASSERT_EQ(layout.offsets.size(), program.buffers.size());
    int64_t end = 0, sum = 0;
    std::vector<int64_t> alive(64, 0);
    for (size_t i = 0; i < program.buffers.size(); ++i) {
      const Buffer &a = program.buffers[i];
      const int64_t size = evaluate(a.size, counts), rounded = (size + 63) / 64 * 64;
      EXPECT_EQ(layout.offsets[i] % 64, 0);
      end = std::max(end, layout.offsets[i] + rounded);
      sum += rounded;
      for (int32_t step = a.first; step <= a.last; ++step)
        alive[step] += rounded;
      for (size_t j = 0; j < i; ++j) {
        const Buffer &b = program.buffers[j];
        if (a.last < b.first || b.last < a.first)
          continue;
        const int64_t other = evaluate(b.size, counts);
        EXPECT_TRUE(size == 0 || other == 0 || layout.offsets[i] + size <= layout.offsets[j] || layout.offsets[j] + other <= layout.offsets[i]);
      }
    }
    EXPECT_EQ(layout.bytes, end);
    EXPECT_LE(layout.bytes, sum);
    EXPECT_GE(layout.bytes, *std::max_element(alive.begin(), alive.end()));
  }
}

TEST(Plan, DeadBuffersGiveTheirPlaceAway) {
  Program chain; // each is read by the next step only
  for (int32_t step = 0; step < 50; ++step) {
    Buffer buffer;
    buffer.size.rows[XFC_SOURCE] = 640;
    buffer.first = step;
    buffer.last = step + 1;
    chain.buffers.push_back(buffer);
  }
  Counts counts;
  counts.rows[XFC_SOURCE] = 7;
  EXPECT_EQ(plan(chain, counts).bytes, 2 * 640 * 7);
}

TEST(Plan, SizesAreSumsOverCounts) {
  Size size;
  size.constant = 5;
  size.rows[XFC_TARGET] = 3;
  size.pairs[XFC_KEYS(XFC_TARGET_SOURCE, 1, 0)] = 11;
  size.sequences[XFC_SOURCE] = 100;
  Counts counts;
  counts.rows[XFC_TARGET] = 10;
  counts.pairs[XFC_KEYS(XFC_TARGET_SOURCE, 1, 0)] = 2;
  counts.sequences[XFC_SOURCE] = 4;
  EXPECT_EQ(evaluate(size, counts), 5 + 30 + 22 + 400);
}

TEST(Plan, BytesAndBack) {
  Module module = bagModel();
  module.packed = {{0, {Place::Kind::Parameters, 0, 64}, 4096, 3}};
  module.tables = {{80, 6, 10000, 2, 1, true}};
  const std::vector<uint8_t> bytes = serialize(module);
  const Module back = deserialize(bytes.data(), bytes.size());
  EXPECT_EQ(serialize(back), bytes);
  EXPECT_EQ(print(back), print(module));
  EXPECT_EQ(back.model, "bag");
  EXPECT_EQ(back.eos, module.eos);
  ASSERT_EQ(back.parameters.size(), 3u);
  EXPECT_EQ(back.parameters[0].aliases, module.parameters[0].aliases);
  EXPECT_EQ(back.parameters[2].shape, (std::vector<int64_t>{bagVocabulary, bagWidth}));
  EXPECT_EQ(back.packed[0].source.offset, 64);
  EXPECT_EQ(back.packed[0].chunks, 3);
  EXPECT_EQ(back.tables[0].cosineOffset, 1);
  EXPECT_TRUE(back.tables[0].halves);
  const Program *score = back.find("score");
  ASSERT_TRUE(score);
  EXPECT_EQ(score->arguments[3].role, Argument::Role::Scalar);
  EXPECT_EQ(score->buffers[0].size.rows[XFC_SOURCE], module.find("score")->buffers[0].size.rows[XFC_SOURCE]);
  EXPECT_EQ(back.find("no such program"), nullptr);
}

TEST(Plan, DamagedBytesAreErrors) {
  const std::vector<uint8_t> bytes = serialize(bagModel());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(deserialize(bytes.data(), size), Error) << size;
  // A flipped bit is found or harmless (a letter of a name), and never anything else.
  std::mt19937 random(3);
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<uint8_t> damaged = bytes;
    damaged[random() % damaged.size()] ^= 1 << random() % 8;
    try {
      deserialize(damaged.data(), damaged.size());
    } catch (const Error &) {
      ++found;
    }
  }
  EXPECT_GT(found, 300);
}

TEST(Plan, IndicesOutOfRangeAreErrors) {
  auto refused = [](auto change) {
    Module module = bagModel();
    change(module);
    const std::vector<uint8_t> bytes = serialize(module);
    EXPECT_THROW(deserialize(bytes.data(), bytes.size()), Error);
  };
  refused([](Module &m) { m.programs[0].steps[0].kernel = 99; });
  refused([](Module &m) { m.programs[0].steps[0].buffers[0] = {Place::Kind::Argument, 99, 0}; });
  refused([](Module &m) { m.programs[0].steps[0].buffers[0] = {Place::Kind::Table, 0, 0}; });
  refused([](Module &m) { m.programs[0].outputs[0].place = {Place::Kind::Arena, -1, 0}; });
  refused([](Module &m) { m.programs[0].steps[0].set = 3; });
  refused([](Module &m) { m.programs[0].steps[0].strides.clear(); });
  refused([](Module &m) { m.kernels[0].partition.per = 0; });
}
