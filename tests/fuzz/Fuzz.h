// The basis of every fuzz target: which failures an input may cause, and how inputs are mutated.
#pragma once

#include "support/Error.h"
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>

// libFuzzer's own mutator: changes bytes in place, and returns the new size.
extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

namespace xfc::fuzz {

// Set by a target that has used an input to the end of some of its work, which a seed has to reach (Replay.cpp).
inline bool accepted = false;

// Runs the work. An Error with a message is a valid outcome; every other exception leaves the target, which libFuzzer
// reports as a finding.
template <typename Work> void expectOnlyErrors(Work work) {
  try {
    work();
    accepted = true;
  } catch (const Error &error) {
    if (std::string_view(error.what()).empty()) {
      std::cerr << "an Error without a message\n";
      std::abort();
    }
  }
}

// Ends the process, which libFuzzer reports, if a property does not hold that must hold for every input.
inline void expect(bool holds, const char *what) {
  if (!holds) {
    std::cerr << "does not hold: " << what << "\n";
    std::abort();
  }
}

// A target's input as text.
inline std::string_view textOf(const uint8_t *data, size_t size) {
  return {reinterpret_cast<const char *>(data), size};
}

// The random numbers of a mutator: a small generator that depends only on libFuzzer's seed.
class Random {
public:
  explicit Random(unsigned seed) : state(seed * 2654435761u + 0x9E3779B97F4A7C15u) {}
  uint64_t next() { // xorshift64*
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545F4914F6CDD1Du;
  }
  size_t below(size_t count) { return count == 0 ? 0 : (next() >> 32) % count; }
  bool oneIn(size_t count) { return below(count) == 0; }

private:
  uint64_t state;
};

// Lets libFuzzer mutate a text that is part of an input.
inline std::string changedBytes(std::string text, size_t most) {
  const size_t size = text.size();
  text.resize(std::max(most, size));
  text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t *>(text.data()), size, std::max(most, size)));
  return text;
}

// The result of a custom mutator: replaces the input by the text, if there is room for it.
inline size_t replaced(uint8_t *data, size_t size, size_t most, std::string_view text) {
  if (text.size() > most)
    return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

} // namespace xfc::fuzz
