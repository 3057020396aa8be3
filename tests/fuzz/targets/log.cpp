// Fuzzes train.jsonl as a resumed run reads it. The first byte selects the step at which it resumes.
#include "train/Log.h"
#include "../JsonMutator.h"
#include <unistd.h>

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const std::string file = "/dev/shm/xfc-fuzz-log-" + std::to_string(getpid());
  if (size == 0)
    return 0;
  const std::string text(fuzz::textOf(data + 1, size - 1));
  fuzz::expectOnlyErrors([&] {
    {
      FILE *stream = std::fopen(file.c_str(), "w"); // no fsync
      std::fwrite(text.data(), 1, text.size(), stream);
      std::fclose(stream);
    }
    readLog(file);
    int64_t records;
    {
      TrainingLog log(file, data[0] % 64, data[0] % 2 ? -1 : data[0] % 8);
      records = log.records();
      log.write({{"step", 64}});
    }
    TrainingLog again(file, 64, -1);
    fuzz::expect(again.records() <= records + 1 && (again.records() == records + 1 || text.find("step") != text.npos),
                 "what a run wrote can be read when it is resumed");
  });
  std::remove(file.c_str());
  return 0;
}

// Mutates a line of the log as JSON.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  fuzz::Random random(seed);
  std::string text(fuzz::textOf(data, size));
  if (size < 2 || random.oneIn(6))
    return LLVMFuzzerMutate(data, size, most);
  const size_t at = 1 + random.below(size - 1),
               begin = text.rfind('\n', at - 1) == text.npos ? 1 : text.rfind('\n', at - 1) + 1,
               end = std::min(text.find('\n', begin), text.size());
  if (end <= begin)
    return LLVMFuzzerMutate(data, size, most);
  text.replace(begin, end - begin, fuzz::JsonMutator(seed).change(text.substr(begin, end - begin), most));
  return fuzz::replaced(data, size, most, text);
}
