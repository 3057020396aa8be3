// The table of step kinds and their options. It is the single source of the reader of model.json, its error messages,
// the labels of drawings, models/schema.json and the reference in models/README.md.
#pragma once

#include "Steps.h"
#include <functional>
#include <limits>
#include <optional>

namespace xfc {

constexpr int64_t maxExtent = std::numeric_limits<int32_t>::max();
constexpr int64_t maxPositions = int64_t(1) << 20;
constexpr double maxNumber = std::numeric_limits<float>::max();

// Refers to a member of the options of one kind of step, and finds it in any StepOptions of that kind.
template <typename T> class Member {
public:
  Member() = default;
  template <typename Kind>
  Member(T Kind::*place) : find([place](StepOptions &options) -> T & { return std::get<Kind>(options).*place; }) {}

  explicit operator bool() const { return bool(find); }
  T &operator()(StepOptions &options) const { return find(options); }
  // The cast is safe because the result is a const reference.
  const T &operator()(const StepOptions &options) const { return find(const_cast<StepOptions &>(options)); }

private:
  std::function<T &(StepOptions &)> find;
};

struct Option {
  // The name of the step.
  struct Name {
    std::string otherwise; // the default
  };
  // A whole number in [low, high]; its product with `times`, an earlier option of the kind, must not exceed `high`
  // either.
  struct Integer {
    Member<int64_t> place;
    int64_t low, high;
    Member<int64_t> times;
  };
  // One of several words.
  struct Choice {
    std::string noun; // for errors: unknown NOUN "..."
    std::vector<std::string> words;
    std::function<void(StepOptions &, size_t)> set;
    std::function<size_t(const StepOptions &)> get;
  };
  // A number in [low, high], or [low, high) if `open`; or one of `words`.
  struct Number {
    Member<double> place;
    double low, high;
    bool open = false;
    std::optional<Choice> words = {};
    std::string what = "a number"; // how errors describe the number if there are words, too
  };
  struct Flag {
    Member<bool> place;
  };
  using NamedFlags = std::vector<std::pair<std::string, Member<bool>>>;
  // One boolean for all flags, or an object with booleans for some of them.
  struct Flags {
    NamedFlags flags;
  };
  // The list of the flags that are true.
  struct Set {
    NamedFlags flags;
  };
  // A list of at least `least` steps.
  struct Steps {
    Member<std::vector<StepDescription>> place;
    int64_t least = 0;
  };
  // Whether the option is required. `Depends`: this or its default depends on other options, as `meaning` explains.
  enum class Presence { Required, Optional, Depends };

  std::string name;
  std::variant<Name, Integer, Number, Choice, Flag, Flags, Set, Steps> type;
  std::string meaning; // one line
  Presence presence = Presence::Optional;
};

struct StepKind {
  enum class Place { Anywhere, Stacks, StartOfInput }; // Stacks: not the head

  std::string op;
  std::string variant = {}; // its "kind" if several rows share an op
  std::string meaning;      // one line
  StepOptions defaults;
  std::vector<Option> options = {};
  Place place = Place::Anywhere;
  std::function<std::string(const StepOptions &)> label = {}; // in drawings; the title if empty
  std::string conditions = {};                                // further conditions for models/schema.json, as JSON

  // "sinusoidal positions".
  std::string title() const { return variant.empty() ? op : variant + " " + op; }
  // The label of `step`, which is of this kind.
  std::string labelOf(const StepDescription &step) const;
};

const std::vector<StepKind> &stepKinds();

// The steps nested in `step`, which its option of type Steps holds. Empty if it has none.
const std::vector<StepDescription> &stepsInside(const StepDescription &step);

} // namespace xfc
