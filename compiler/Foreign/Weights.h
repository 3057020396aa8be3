// The tensors of a model: from a folder's model.safetensors, from the shards that model.safetensors.index.json lists,
// or made from a file of another kind.
#pragma once

#include "support/MappedFile.h"
#include "tensors/Safetensors.h"
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace xfc {

class Weights {
public:
  // Maps the files; no page of a tensor is read yet. What torch.compile and torch's parallel wrappers put before all
  // names is left out. Throws an Error if there are none (a pickle is never read; the
  // message says how to convert it), if one is truncated, or if a shard or a tensor of the index is missing.
  explicit Weights(const std::string &folder);
  // Starts empty. The tensors to be added are views of memory that `owner` keeps alive. `file` is for messages.
  Weights(std::string file, std::shared_ptr<const void> owner) : source(std::move(file)), owner(std::move(owner)) {}
  void add(TensorView tensor);
  // Adds a tensor whose bytes are kept here.
  void addMade(TensorView tensor, std::string bytes);

  // Null if there is none with this name. Files of a model without its head leave out the prefix "model." of names.
  const TensorView *find(const std::string &name) const;
  bool has(const std::string &name) const { return find(name) != nullptr; }
  // Whether two tensors hold the same numbers of one type.
  static bool same(const TensorView &a, const TensorView &b) {
    return a.type == b.type && a.shape == b.shape && a.bytes == b.bytes;
  }
  // The file that holds the tensor.
  const std::string &fileOf(const TensorView &tensor) const { return entries.at(tensor.name).file; }
  std::vector<const TensorView *> all() const;
  // For a message that says that a tensor is missing: `before`, and what all names begin with; "" if they differ.
  std::string namesOf(const std::string &before) const;
  // The name of the file, or of the index.
  const std::string &name() const { return source; }

private:
  struct Entry {
    TensorView tensor;
    std::string file;
  };
  void addFile(const std::string &file);
  void addTensor(TensorView tensor, const std::string &file);
  std::string commonPrefix() const;
  void leaveOutWrappers();

  std::string source;
  std::shared_ptr<const void> owner;
  std::list<std::string> made;
  std::vector<MappedFile> files;
  std::map<std::string, Entry> entries;
};

} // namespace xfc
