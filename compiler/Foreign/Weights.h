// The tensors of a model: of a folder's model.safetensors, or of the shards that model.safetensors.index.json lists, or
// made of what a file of another kind holds.
#pragma once

#include "tensors/Safetensors.h"
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace xfc {

class Weights {
public:
  // Maps the files; no page of a tensor is read yet. Throws Error: none there (a pickle is never read; how to convert
  // it is said), truncated, a shard or a tensor of the index missing.
  explicit Weights(const std::string &folder);
  // None yet: of tensors that are added, views of what `owner` keeps in memory. `file` is for messages.
  Weights(std::string file, std::shared_ptr<const void> owner) : source(std::move(file)), owner(std::move(owner)) {}
  void add(TensorView tensor);
  // The same of bytes that are kept here.
  void addMade(TensorView tensor, std::string bytes);

  // Null if there is none of this name. Files of the model without its head leave out the "model." of names.
  const TensorView *find(const std::string &name) const;
  bool has(const std::string &name) const { return find(name) != nullptr; }
  // Whether two tensors hold the same numbers of one type.
  static bool same(const TensorView &a, const TensorView &b) {
    return a.type == b.type && a.shape == b.shape && a.bytes == b.bytes;
  }
  // The file it is in.
  const std::string &fileOf(const TensorView &tensor) const { return entries.at(tensor.name).file; }
  std::vector<const TensorView *> all() const;
  // The file, or the index.
  const std::string &name() const { return source; }

private:
  struct Entry {
    TensorView tensor;
    std::string file;
  };
  void addFile(const std::string &file);
  void addTensor(TensorView tensor, const std::string &file);

  std::string source;
  std::shared_ptr<const void> owner;
  std::list<std::string> made;
  std::vector<MappedFile> files;
  std::map<std::string, Entry> entries;
};

} // namespace xfc
