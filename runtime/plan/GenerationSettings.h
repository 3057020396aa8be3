// The settings of `generation` in one table. Whatever reads, checks, shows or documents settings goes through it:
// model.json in the compiler and in a folder beside weights, options of command lines and requests, `info`, schema.json
// and the manual. A further setting is a member of Generation, a row here, and the code that heeds it.
#pragma once

#include "plan/Generation.h"
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <variant>

namespace xfc {

struct GenerationSetting {
  struct Whole {
    int64_t Generation::*member;
    int64_t least, most;
  };
  struct Number {
    double Generation::*member;
    double least, most;
    bool above = false; // whether `least` itself is not allowed
  };
  // One of a few words. JSON has booleans in place of "true" and "false".
  struct Choice {
    std::span<const char *const> words;
    size_t (*get)(const Generation &);
    void (*set)(Generation &, size_t);
  };
  struct Tokens {
    std::vector<int32_t> Generation::*member;
  };
  struct Sequences {
    std::vector<std::vector<int32_t>> Generation::*member;
  };
  struct Constraints {
    std::vector<Constraint> Generation::*member;
  };
  // The names of this setting in other programs. A name is null if the program has no setting with the same effect.
  struct Names {
    const char *huggingFace = nullptr, *ctranslate2 = nullptr, *marian = nullptr;
  };

  enum class Subject : uint8_t { Search, Lengths, Tokens, Sampling }; // Sampling: no effect unless tokens are drawn

  const char *name; // in model.json and in requests; the option is --name, with hyphens
  std::variant<Whole, Number, Choice, Tokens, Sequences, Constraints> value;
  const char *meaning;  // after the option's name, as a phrase
  Names elsewhere = {}; // NOLINT(readability-redundant-member-init): GCC warns about initializers that omit it
  Subject subject = Subject::Search;
};

std::span<const GenerationSetting> generationSettings();
// The setting of this name in model.json; null: there is none.
const GenerationSetting *findSetting(std::string_view name);
// "--length-penalty"
std::string optionOf(const GenerationSetting &setting);

// Takes a value of model.json. Returns what is wrong if the value is of another kind or outside of its range; how
// settings fit together is findProblem()'s to check.
std::optional<GenerationProblem> readSetting(const GenerationSetting &setting, const nlohmann::json &value,
                                             Generation &generation);
// Takes an object of model.json, as far as it goes: the settings that it lacks keep their usual values. Throws an Error
// that names the setting that is unknown or wrong; how settings fit together is findProblem()'s to check.
Generation generationIn(const nlohmann::json &settings);
// The value as model.json has it.
nlohmann::json valueOf(const GenerationSetting &setting, const Generation &generation);
void copySetting(const GenerationSetting &setting, Generation &to, const Generation &from);
// Whether the setting has the value that it has in every model that does not set it.
bool isUsual(const GenerationSetting &setting, const Generation &generation);
// Describes the values that the setting may have, for messages and the manual: "a whole number from 1 to 65536", or
// "false or true" as JSON writes them.
std::string expectedOf(const GenerationSetting &setting);
// If the setting is a number outside of its range, returns the problem; for all other settings, nothing.
std::optional<GenerationProblem> rangeProblem(const GenerationSetting &setting, const Generation &generation);

} // namespace xfc
