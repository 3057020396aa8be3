// Parses the part of YAML that Marian writes: a map from scalars to scalars and to lists of scalars. As Config.h does,
// it remembers which keys were asked for, so that the others can be told.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace xfc {

// The values with which a key has no effect.
using NeutralValues = std::map<std::string, std::set<std::string>>;

class Yaml {
public:
  struct Entry {
    std::string key;
    std::vector<std::string> items; // those of a list, or the one scalar
    bool list = false;
    int64_t line = 0;
  };

  // Throws Error, "NAME:LINE: what", for the rest of YAML (nested maps, anchors, tags, block scalars), for text that is
  // not YAML, and for duplicate keys.
  Yaml(std::string_view text, std::string name);

  const std::string &name() const { return file; }
  const std::vector<Entry> &entries() const { return list; } // in the order of the file
  bool has(const std::string &key) const { return find(key) != nullptr; }
  // "NAME:LINE: KEY: what", or without a line if there is no such key.
  [[noreturn]] void fail(const std::string &key, const std::string &what) const;

  // Values with a default. They throw an Error if the value is of another kind or out of bounds.
  std::string string(const std::string &key, const std::string &otherwise) const;
  bool boolean(const std::string &key, bool otherwise) const;
  int64_t integer(const std::string &key, int64_t low, int64_t high, int64_t otherwise) const;
  double number(const std::string &key, double low, double high, double otherwise) const;
  std::vector<std::string> strings(const std::string &key) const; // empty if the key is missing
  std::vector<int64_t> integers(const std::string &key, int64_t low, int64_t high) const;

  // The keys that were asked for so far, whether or not the file has them.
  const std::set<std::string> &asked() const { return used; }
  // Adds a note for each key of the file that was not asked for, unless it has no value, is one of `harmless`, or has
  // one of its values in `neutral`, which have no effect there.
  void tellUnknown(const std::set<std::string> &harmless, const NeutralValues &neutral,
                   std::vector<std::string> &notes) const;

private:
  // Notes that the key was asked for.
  const Entry *find(const std::string &key) const;
  int64_t asInteger(const std::string &key, const std::string &text, int64_t low, int64_t high) const;

  std::string file;
  std::vector<Entry> list;
  std::unordered_map<std::string, size_t> byKey;
  mutable std::set<std::string> used;
};

} // namespace xfc
