// The arguments that subcommands reading a model share: the file, --set, vocabularies, targets, --compute-type,
// --no-fuse and --recompute.
#pragma once

#include "Import/Import.h"
#include "Import/Json.h"
#include "Pipeline/Pipeline.h"
#include "support/Options.h"
#include <map>
#include <set>
#include <string>
#include <vector>

namespace xfc {

struct ModelArguments {
  std::string given, vocabulary, sourceVocabulary, targetVocabulary;
  std::vector<std::string> settings; // KEY=VALUE

  void addTo(Command command);
  // Reads and validates the model: either a description (a file, a folder's, one that ships, or standard input), where
  // --vocab overrides source_vocab, target_vocab and the token ids before --set is applied, or a module printed by
  // `--emit imported` or, as a plan, by `--emit scheduled` (.mlir). Throws Error, for a module after diagnostics.
  mlir::OwningOpRef<mlir::ModuleOp> load(const ImportOptions &options, mlir::MLIRContext &context) const;
};

// --target, and for each platform the option that names its targets (Pipeline/Targets.h).
struct TargetArguments {
  std::string platform = "cpu";
  std::map<Platform, std::string> names = {{Platform::CPU, "native"}, {Platform::CUDA, "sm_80"}};

  // Throws a command-line error for an unknown platform, or if none or no target is named.
  std::vector<PlatformTargets> chosen() const;
};

// --compute-type, once for each type that decoding can choose (Transforms/ComputeTypes.h).
class ComputeTypeArguments {
public:
  void addTo(Command command);
  const std::vector<std::string> &types() const { return given; } // empty without the option

private:
  std::vector<std::string> given;
};

// --no-fuse alone turns every fusion off, --no-fuse=NAME,NAME only the named ones.
class FusionArguments {
public:
  void addTo(Command command);
  std::set<std::string> disabled() const;

private:
  CommandOption option{nullptr};
  std::string names;
};

// --recompute alone selects the first of recomputeLevels(), --recompute=LEVEL the named one.
class RecomputeArgument {
public:
  void addTo(Command command);
  const std::string &level() const; // empty without the flag

private:
  std::string name;
};

// The options that say what a model is compiled for, and how: those above, --dtype, --residual, --moment-type and
// --cache-type.
struct CompilationArguments {
  TargetArguments targets;
  std::string dtype = "f32", residual, momentType = "f32", cacheType;
  ComputeTypeArguments computeTypes;
  FusionArguments noFuse;
  RecomputeArgument recompute;

  // Sets what they say. Throws a command-line error for an unknown value.
  void applyTo(PipelineOptions &pipeline) const;
};

// "a,b" as a list without empty parts.
std::vector<std::string> splitList(const std::string &text);
// Throws a command-line error that lists `known` if `value` is not among them.
void check(const std::string &flag, const std::string &value, const std::vector<std::string> &known);

} // namespace xfc
