// The part of YAML that Marian writes: a map from scalars to scalars and to lists of scalars.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace xfc {

class Yaml {
public:
  struct Entry {
    std::string key;
    std::vector<std::string> items; // of a list, or the one scalar
    bool list = false;
    int64_t line = 0;
  };

  // Throws Error, "NAME:LINE: what", for whatever else YAML has (maps in maps, anchors, tags, blocks of text), for what
  // is no YAML, and for keys that come twice.
  Yaml(std::string_view text, std::string name);

  const std::string &name() const { return file; }
  const std::vector<Entry> &entries() const { return list; } // in their order
  bool has(const std::string &key) const { return byKey.contains(key); }
  // "NAME:LINE: KEY: what", or without a line where there is no such key.
  [[noreturn]] void fail(const std::string &key, const std::string &what) const;

  // Values that have a default. Throw Error for one of another kind, or outside the bounds.
  std::string string(const std::string &key, const std::string &otherwise) const;
  bool boolean(const std::string &key, bool otherwise) const;
  int64_t integer(const std::string &key, int64_t low, int64_t high, int64_t otherwise) const;
  double number(const std::string &key, double low, double high, double otherwise) const;
  std::vector<std::string> strings(const std::string &key) const; // empty where there is none
  std::vector<int64_t> integers(const std::string &key, int64_t low, int64_t high) const;

private:
  const Entry *find(const std::string &key) const;
  int64_t asInteger(const std::string &key, const std::string &text, int64_t low, int64_t high) const;

  std::string file;
  std::vector<Entry> list;
  std::unordered_map<std::string, size_t> byKey;
};

} // namespace xfc
