// What the handles of the C interface hold, and how its calls turn exceptions into a status.
#pragma once

#include "capi/xfc.h"
#include "decode/ModelOptions.h"
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace xfc {

// Shared by the handle of a model and those of its searches and trainings.
struct OpenModel {
  std::mutex mutex;       // held by every call
  TranslationModel model; // without an engine where opening has failed
  Format format = Format::Text;
  bool training = false; // the optimizer's states belong to a training
  int64_t steps = 0;     // that trainings have taken
  std::string message;
  std::string warnings; // of the last lines that were read
  const Module &module() const { return model.engine->module(); }
};

// Thrown for what XFC_MISUSE stands for.
struct Misuse : Error {
  using Error::Error;
};
void require(bool holds, const char *message); // throws Misuse

// Runs the body alone on its model, with the arithmetic and the locale that executables have, and gives the calling
// thread its own back. What it throws becomes the status, and the model's message.
xfc_status guarded(OpenModel &model, const std::function<void()> &body);
// The same for calls after xfc_open(), which a model that is not open refuses.
xfc_status guardedOpen(OpenModel &model, const std::function<void()> &body);

// Options as words.
std::vector<std::string> wordsOf(const char *const *options);
// The lines of an array. Throws Error for invalid UTF-8 and line ends, named as "WHAT 3"; Misuse for null pointers.
std::vector<std::string> linesOf(const char *const *lines, size_t count, const char *what);
// "line 3", of the one with index 2.
std::string placeOf(const char *what, size_t index);

} // namespace xfc

struct xfc_model {
  std::shared_ptr<xfc::OpenModel> open;
};
