// What every fuzz target is made of: how an input may fail, and how inputs are changed.
#pragma once

#include "support/Error.h"
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>

// libFuzzer's own: changes bytes where they lie, and returns how many there are then.
extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

namespace xfc::fuzz {

// Runs the work. An Error with a message for a user, which is not empty, is an answer; every other exception leaves the
// target, which libFuzzer reports as a finding.
template <typename Work> void expectOnlyErrors(Work work) {
  try {
    work();
  } catch (const Error &error) {
    if (std::string_view(error.what()).empty()) {
      std::cerr << "an Error without a message\n";
      std::abort();
    }
  }
}

// Ends the process, which libFuzzer reports, where something does not hold that should for every input.
inline void expect(bool holds, const char *what) {
  if (!holds) {
    std::cerr << "does not hold: " << what << "\n";
    std::abort();
  }
}

// A target is handed its input as text.
inline std::string_view textOf(const uint8_t *data, size_t size) {
  return {reinterpret_cast<const char *>(data), size};
}

// The source of a mutator's choices: a small generator that needs nothing but libFuzzer's seed.
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

// Lets libFuzzer change a text that is a part of an input.
inline std::string changedBytes(std::string text, size_t most) {
  const size_t size = text.size();
  text.resize(std::max(most, size));
  text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t *>(text.data()), size, std::max(most, size)));
  return text;
}

// What a custom mutator gives back: the text, if there is room for it, in place of the input.
inline size_t replaced(uint8_t *data, size_t size, size_t most, std::string_view text) {
  if (text.size() > most)
    return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

} // namespace xfc::fuzz
