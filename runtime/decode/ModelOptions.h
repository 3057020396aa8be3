// The flags by which a command finds its model, and the engine and vocabularies they lead to.
#pragma once

#include "decode/Search.h"
#include "engine/Engine.h"
#include "text/Vocabulary.h"
#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

namespace xfc {

// Takes what is to be said of something that is done all the same.
using Warn = std::function<void(const std::string &)>;
void printWarning(const std::string &warning); // on standard error

struct ModelOptions {
  std::string model;                        // a folder that train made
  std::string weights;                      // or files
  std::string packed;                       // or a packed executable; with none of them, this one
  std::string vocabulary, targetVocabulary; // empty: the folder's; both the same
  Format format = Format::Text;
  int threads = 0; // 0: one for each processor
  DeviceChoice device;
  bool quiet = false;                               // no progress
  bool forceModel = false, forceVocabulary = false; // take weights of another model, or another vocabulary than theirs
  Warn warn = printWarning;

  // --model, --weights, --threads, --device, --cuda-image, --quiet
  void addTo(CLI::App &command);
  // --vocab, --target-vocab, and --format where there are lines to read
  void addVocabularyTo(CLI::App &command, bool withFormat = true);
};

// --device, --cuda-image
void addDevice(CLI::App &command, DeviceChoice &choice);
// On so many threads (0: one for each processor).
std::unique_ptr<Engine> makeEngine(int threads, const DeviceChoice &choice);

// --compute-type
void addComputeType(CLI::App &command, std::string &type);

// Files of the model that --model, or --weights and --vocab, name; all empty for a packed executable.
struct ModelFiles {
  std::string weights, vocabulary, targetVocabulary; // no targetVocabulary: `vocabulary` is both
};
ModelFiles modelFiles(const ModelOptions &options);

struct TranslationModel {
  std::unique_ptr<Engine> engine;
  std::shared_ptr<const Vocabulary> source, target;
  Warn warn = printWarning;
};

// Throws Error: no model given, files missing or unfit, a device that is not there.
std::unique_ptr<Engine> loadEngine(const ModelOptions &options);
TranslationModel loadModel(const ModelOptions &options);
// Its vocabularies alone, which need no weights.
LoadedVocabularies loadVocabularies(const ModelOptions &options, const Module &module);

// A line as the encoder reads it: in its vocabulary's frame (ids are taken verbatim), cut to the model's
// max_length with a warning that names `where`; the rest of a long line is not looked at. Empty for an empty line.
std::vector<int32_t> encodeSource(const TranslationModel &model, const std::string &line, Format format,
                                  const std::string &where);
// A target line without start and eos, but with what its vocabulary puts before lines, cut likewise.
std::vector<int32_t> encodeTarget(const TranslationModel &model, const std::string &line, Format format,
                                  const std::string &where);
// The forced beginning of a translation: a target line as it is searched for with these options. Throws Error where it
// holds pad, start or eos.
std::vector<int32_t> encodePrefix(const TranslationModel &model, const std::string &line, const SearchOptions &options,
                                  Format format, const std::string &where);
// What a search with these options has written, as a line. Text is without the tokens that it was forced to begin with.
std::string decodeTarget(const TranslationModel &model, const std::vector<int32_t> &ids, const SearchOptions &options,
                         Format format);

} // namespace xfc
