// The flags that select a command's model, and the engine and vocabularies that they lead to.
#pragma once

#include "decode/Ensemble.h"
#include "decode/Search.h"
#include "decode/Shortlist.h"
#include "engine/Engine.h"
#include "support/Options.h"
#include "vocabularies/Vocabulary.h"
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// Receives warnings: problems that did not stop the command.
using Warn = std::function<void(const std::string &)>;
void printWarning(const std::string &warning); // on standard error

inline constexpr const char *thisExecutable = "self"; // in place of a library: the code of this executable

struct ModelOptions {
  std::string model;   // a folder that train or `xfc import` made
  std::string weights; // or a file of weights
  std::string packed;  // or an executable that `pack` wrote; if none is given, this one
  // Further models, as --model takes them, the libraries with their programs (thisExecutable: its own; empty: all of
  // them have those), and the weights of all (empty: equal ones): they decode together.
  std::vector<std::string> others, ensembleLibraries;
  std::vector<double> ensembleWeights;
  // A smaller model that drafts (decode/Drafter.h), as --model takes one, the library with its programs (empty: this
  // executable's own), and how many tokens it drafts at a time.
  std::string draft, draftLibrary;
  int64_t draftTokens = 4;
  ShortlistOptions shortlist;
  std::string rescorer;                     // a model that rescores what is found, as --model takes it; empty: none
  std::string vocabulary, targetVocabulary; // empty: those of the folder, or the source's for both
  Format format = Format::Text;
  int threads = 0; // of all workers together; 0: one for each processor
  int workers = 1; // decode/Workers.h
  DeviceChoice device;
  bool quiet = false;                               // no progress
  bool forceModel = false, forceVocabulary = false; // accept weights of another model, or another vocabulary
  Warn warn = printWarning;

  // Takes a path as --model does: a folder, an executable that `pack` wrote, or a file of weights.
  void takePath(const std::string &path);
  // --model
  CommandOption addPathTo(Command command, const std::string &description);
  // --model, --weights, and what addEngineTo() adds
  void addTo(Command command);
  // The same, but --model may be given several times; and --ensemble-weights, --ensemble-library
  void addEnsembleTo(Command command);
  // --ensemble-library, of which each `which` has one
  CommandOption addLibrariesTo(Command command, const std::string &which);
  // Throws Error unless there are libraries for so many further models, or none at all.
  void checkLibraries(size_t others) const;
  // --draft, --draft-library, --draft-tokens
  void addDraftTo(Command command);
  // --rescore
  void addRescorerTo(Command command);
  // --shortlist, --shortlist-first, --shortlist-best
  void addShortlistTo(Command command);
  // --threads, --device, --cuda-image, --cuda-step, --quiet, --force-model
  void addEngineTo(Command command);
  // --vocab, --target-vocab, --force-vocab, and --format if the command reads lines
  void addVocabularyTo(Command command, bool withFormat = true);

private:
  void addWeightsTo(Command command, CommandOption folder);
};

// --device, --cuda-image, --cuda-step
void addDevice(Command command, DeviceChoice &choice);
// The threads that --threads gives: for 0, one for each processor.
int threadsGiven(int threads);
// The threads of each worker, if there are so many in all (0: one for each processor). Throws Error if there are fewer
// than workers.
std::vector<int> threadsOfWorkers(int threads, int workers);
// An engine with this many threads (0: one for each processor).
std::unique_ptr<Engine> makeEngine(int threads, const DeviceChoice &choice);

// The files of the model that --model, or --weights and --vocab, name; all empty for a packed executable.
struct ModelFiles {
  std::string weights, vocabulary, targetVocabulary; // if targetVocabulary is empty, `vocabulary` is for both sides
};
ModelFiles modelFiles(const ModelOptions &options);

// The engines of a worker beside the first, which share their weights with those of the first.
struct WorkerEngines {
  std::vector<std::unique_ptr<Engine>> members; // of the ensemble
  std::unique_ptr<Engine> draft;                // or null
};

struct TranslationModel {
  std::unique_ptr<Engine> engine;
  std::shared_ptr<const Vocabulary> source, target;
  Warn warn = printWarning;
  // Is called before each pass over translations that are found: for their attention, or to rescore them. What it
  // throws ends what asks for the pass, so that nobody waits for translations that are wanted no more.
  std::function<void()> beforePass = [] {};
  // Of an ensemble: the other engines, and the weights of all.
  std::vector<std::unique_ptr<Engine>> others = {};
  std::vector<double> weights = {};
  std::unique_ptr<Engine> draft = {}; // or null
  int64_t draftTokens = 0;
  std::shared_ptr<const Shortlist> shortlist = {};   // or null
  std::unique_ptr<Engine> rescorer = nullptr;        // or null
  bool sourceFromEnd = false, targetFromEnd = false; // whether it reads lines in the opposite order
  std::vector<WorkerEngines> workers = {};
  // All models, as searches and scores take them. The result refers to the engines.
  Ensemble models() const;
  // Adds workers, so that there are this many, with this many threads in all (0: one for each processor).
  void addWorkers(int threads, int count);
  // The same models with engines of their own, as many and with as many threads, that share the weights: what the two
  // do may run at the same time. Warnings are printed. Throws Error if the device's memory is not the host's.
  TranslationModel sharing() const;
};

// Throw Error if no model is given, files are missing or do not fit, or there is no such device. loadEngine() loads one
// model.
std::unique_ptr<Engine> loadEngine(const ModelOptions &options);
TranslationModel loadModel(const ModelOptions &options);
// Loads the vocabularies alone, which needs no weights.
LoadedVocabularies loadVocabularies(const ModelOptions &options, const Module &module);

// A line as the encoder reads it: in the frame of its vocabulary (ids are taken verbatim), cut to the model's
// max_length with a warning that names `where`. The rest of a long line is not tokenized. Empty for an empty line.
std::vector<int32_t> encodeSource(const TranslationModel &model, const std::string &line, Format format,
                                  const std::string &where);
// Whether encodeSource() cuts nothing off this line of text, and it has at most `most` tokens of its own (0: any
// number).
bool fits(const TranslationModel &model, std::string_view line, int64_t most);
// The parts of a line that fit: usually the line itself. See partsThatFit().
std::vector<std::string_view> fittingParts(const TranslationModel &model, std::string_view line, int64_t most);
// A target line without start and eos, but with the prefix that its vocabulary puts before lines, cut likewise.
std::vector<int32_t> encodeTarget(const TranslationModel &model, const std::string &line, Format format,
                                  const std::string &where);
// The forced beginning of a translation: a target line as a search with these options expects it. Throws Error if it
// contains pad, start or eos.
std::vector<int32_t> encodePrefix(const TranslationModel &model, const std::string &line, const SearchOptions &options,
                                  Format format, const std::string &where);
// The constraints of a translation, from the text of their phrases. Each phrase has the tokens of a target line by
// itself, without what a vocabulary puts before lines. Throws Error if a phrase is empty, has pad, start or eos, or as
// text or pieces what the vocabulary does not know.
std::vector<Constraint> encodeConstraints(const TranslationModel &model, const std::vector<ConstraintText> &texts,
                                          Format format, const std::string &where);
// The options of a search that words such as --beam 4 give, for those who are no command line; others are the defaults.
// Throws an Error that names the wrong one.
SearchOptions searchOptionsOf(const std::vector<std::string> &words, const SearchOptions &defaults,
                              const TranslationModel &model);
// The line that a search with these options has written. Text leaves out the tokens that it was forced to begin with.
// If there is a replacement for each token, those of unknown tokens are written in their place.
std::string decodeTarget(const TranslationModel &model, const std::vector<int32_t> &ids, const SearchOptions &options,
                         Format format, std::span<const std::string> replacements = {});

} // namespace xfc
