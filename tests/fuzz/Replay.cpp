// Drives a fuzz target without libFuzzer: on every file in the given folders, then on --runs inputs that its mutator
// makes from them. What libFuzzer would report ends the process here, too; the input is saved as finding-TARGET. After
// --seeds comes a folder whose files the target must accept, since mutations of what is refused at once test little;
// those named refused-... must be refused.
#include "Fuzz.h"
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

namespace {

xfc::fuzz::Random bytes(1);
std::string current, findingFile;

constexpr unsigned secondsForAnInput = 20; // for a busy machine; libFuzzer's limit is 2 on a quiet one
constexpr rlim_t bytesForAnInput = rlim_t(2) << 30;

// Calls only async-signal-safe functions.
extern "C" void keepFinding(int signal) {
  const int file = open(findingFile.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
  if (file >= 0 && write(file, current.data(), current.size()) >= 0)
    close(file);
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void runOne(const std::string &input) {
  current = input;
  alarm(secondsForAnInput);
  // A copy of the exact size, so that tools can detect reads beyond its end.
  const std::vector<uint8_t> copy(input.begin(), input.end());
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
  alarm(0);
}

} // namespace

// Changes, inserts or removes some bytes.
extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most) {
  for (size_t changes = 1 + bytes.below(4); changes > 0; --changes) {
    const size_t at = bytes.below(size);
    switch (size == 0 ? 0 : bytes.below(4)) {
    case 0:
      if (size < most) {
        std::copy_backward(data + at, data + size, data + size + 1);
        data[at] = static_cast<uint8_t>(bytes.next());
        ++size;
      }
      break;
    case 1:
      std::copy(data + at + 1, data + size, data + at);
      --size;
      break;
    case 2:
      data[at] ^= static_cast<uint8_t>(1 << bytes.below(8));
      break;
    default:
      data[at] = static_cast<uint8_t>(bytes.next());
    }
  }
  return size;
}

int main(int argc, char **argv) {
  long runs = 0;
  unsigned seed = 1;
  std::vector<std::string> corpus;
  const std::string self = argv[0];
  findingFile = "finding-" + self.substr(self.rfind('/') + 1);
  rlimit memory{bytesForAnInput, bytesForAnInput};
  setrlimit(RLIMIT_AS, &memory);
  for (int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGALRM})
    std::signal(signal, keepFinding);
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--runs" && i + 1 < argc) {
      runs = std::atol(argv[++i]);
      continue;
    }
    if (word == "--seed" && i + 1 < argc) {
      seed = static_cast<unsigned>(std::atol(argv[++i]));
      continue;
    }
    const bool seeds = word == "--seeds" && i + 1 < argc;
    if (seeds)
      word = argv[++i];
    std::vector<std::filesystem::path> files = {word};
    if (std::filesystem::is_directory(word)) {
      files.assign(std::filesystem::directory_iterator(word), {});
      std::sort(files.begin(), files.end());
    }
    for (const std::filesystem::path &file : files) {
      std::ifstream stream(file, std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
      xfc::fuzz::accepted = false;
      runOne(corpus.back());
      if (seeds && xfc::fuzz::accepted == file.filename().string().starts_with("refused-")) {
        std::fprintf(stderr, "%s: the target has come to %s this seed\n", file.c_str(),
                     xfc::fuzz::accepted ? "accept" : "refuse");
        return 1;
      }
    }
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no inputs; expected files or folders of them\n", self.c_str());
    return 1;
  }
  constexpr size_t most = 1 << 16, generation = 64;
  xfc::fuzz::Random random(seed);
  bytes = xfc::fuzz::Random(seed + 1);
  std::vector<std::string> changed(generation);
  for (long run = 0; run < runs; ++run) {
    // Some results are mutated again.
    std::string &slot = changed[random.below(generation)];
    std::string input = slot.empty() || random.oneIn(4) ? corpus[random.below(corpus.size())] : slot;
    size_t size = input.size();
    input.resize(std::max(most, size));
    uint8_t *data = reinterpret_cast<uint8_t *>(input.data());
    size = LLVMFuzzerCustomMutator
               ? LLVMFuzzerCustomMutator(data, size, input.size(), static_cast<unsigned>(random.next()))
               : LLVMFuzzerMutate(data, size, input.size());
    input.resize(size);
    runOne(input);
    slot = std::move(input);
  }
  std::printf("%zu inputs, %ld mutations of them\n", corpus.size(), runs);
  return 0;
}
