// Implements what surrounds every call of the C interface: locking, floating-point state, locale, and exceptions as a
// status.
#include "capi/Handles.h"
#include "support/LineReader.h"
#include <immintrin.h>
#include <locale.h>
#include <new>

namespace xfc {
namespace {

// Makes numbers independent of the state of the calling thread: rounded to nearest, denormals flushed to zero as in an
// executable, and written with a decimal point.
class Environment {
public:
  Environment() : control(_mm_getcsr()) {
    constexpr unsigned exceptionsMasked = 0x1F80, flushToZero = 0x8000, denormalsAreZero = 0x0040;
    _mm_setcsr(exceptionsMasked | flushToZero | denormalsAreZero);
    plain = newlocale(LC_ALL_MASK, "C", nullptr); // built into the C library; allocates nothing
    if (plain)
      previous = uselocale(plain);
  }
  Environment(const Environment &) = delete;
  ~Environment() {
    if (plain) {
      uselocale(previous);
      freelocale(plain);
    }
    _mm_setcsr(control);
  }

private:
  unsigned control;
  locale_t plain = nullptr, previous = nullptr;
};

} // namespace

void require(bool holds, const char *message) {
  if (!holds)
    throw Misuse(message);
}

void requireSingle(const OpenModel &model, const std::string &function) {
  if (!model.model.others.empty())
    throw Error(function + ": the model is an ensemble of " + std::to_string(1 + model.model.others.size()) +
                "; open one of them alone");
}

xfc_status guarded(OpenModel &model, const std::function<void()> &body) {
  const std::lock_guard<std::mutex> lock(model.mutex);
  const Environment environment;
  try {
    try {
      body();
      return XFC_OK;
    } catch (const Misuse &error) {
      model.message = error.what();
      return XFC_MISUSE;
    } catch (const std::bad_alloc &) {
      model.message = "out of memory";
      return XFC_OUT_OF_MEMORY;
    } catch (const std::exception &error) {
      model.message = error.what();
      return XFC_FAILED;
    }
  } catch (...) { // there was no memory for the message
    return XFC_OUT_OF_MEMORY;
  }
}

xfc_status guardedOpen(OpenModel &model, const std::function<void()> &body) {
  if (!model.model.engine)
    return XFC_MISUSE;
  return guarded(model, body);
}

std::vector<std::string> wordsOf(const char *const *options) {
  std::vector<std::string> words;
  for (; options && *options; ++options)
    words.emplace_back(*options);
  return words;
}

std::string placeOf(const char *what, size_t index) { return what + (" " + std::to_string(index + 1)); }

std::vector<std::string> linesOf(const char *const *lines, size_t count, const char *what) {
  require(lines || count == 0, "the array of lines is a null pointer");
  require(count <= PTRDIFF_MAX / sizeof *lines, "no array has this number of lines");
  std::vector<std::string> result;
  result.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    require(lines[i], "a line is a null pointer");
    result.emplace_back(lines[i]);
    if (const size_t bad = invalidUtf8(result.back()); bad != std::string::npos)
      throw Error(placeOf(what, i) + ": byte " + std::to_string(bad + 1) + " is not valid UTF-8");
    if (result.back().find('\n') != std::string::npos)
      throw Error(placeOf(what, i) + ": contains a newline; pass one line per array element");
  }
  return result;
}

} // namespace xfc
