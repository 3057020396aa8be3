// Declares what the handles of the C interface hold, and how its calls turn exceptions into a status.
#pragma once

#include "capi/xfc.h"
#include "decode/ModelOptions.h"
#include "plan/Generation.h"
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace xfc {

// Shared by the handle of a model and those of its searches and trainings.
struct OpenModel {
  std::mutex mutex;       // held by every call
  TranslationModel model; // its engine is null if opening has failed
  Generation generation;  // what searches do unless their options say otherwise
  Format format = Format::Text;
  bool training = false; // a training owns the optimizer's states
  int64_t steps = 0;     // taken by trainings so far
  // One for all handles that share their weights (xfc_share), each of which has a reference to it.
  std::shared_ptr<const int> shared = std::make_shared<int>();
  std::string message;
  std::string warnings; // about the lines read last
  const Module &module() const { return model.engine->module(); }
};

// Becomes the status XFC_MISUSE.
struct Misuse : Error {
  using Error::Error;
};
void require(bool holds, const char *message); // throws Misuse
// Throws Error if the model is an ensemble, which this function does not take.
void requireSingle(const OpenModel &model, const std::string &function);

// Runs the body under the lock of its model, with the floating-point state and locale of an executable, and then
// restores those of the calling thread. An exception becomes the status, and the model's message.
xfc_status guarded(OpenModel &model, const std::function<void()> &body);
// Guards a call that comes after xfc_open(): fails if the model is not open.
xfc_status guardedOpen(OpenModel &model, const std::function<void()> &body);

// The options of a null-terminated array.
std::vector<std::string> wordsOf(const char *const *options);
// The lines of an array. Throws Error for invalid UTF-8 and newlines, naming the line "WHAT 3", and Misuse for null
// pointers.
std::vector<std::string> linesOf(const char *const *lines, size_t count, const char *what);
// "line 3" for index 2.
std::string placeOf(const char *what, size_t index);

} // namespace xfc

struct xfc_model {
  std::shared_ptr<xfc::OpenModel> open;
};
