// The tensors of a model.
#include "Weights.h"
#include "Config.h"
#include "Pickles.h"
#include "support/Error.h"
#include "support/MappedFile.h"
#include "support/Quoted.h"
#include <algorithm>
#include <filesystem>
#include <set>

namespace xfc {

// Explains what to do if there are no safetensors: weights in other formats are not read.
static std::string instead(const std::string &folder) {
  const auto has = [&](const char *file) { return exists(folder + "/" + file); };
  std::string pickle;
  for (const char *usual : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (pickle.empty() && has(usual))
      pickle = usual;
  if (pickle.empty())
    pickle = std::filesystem::path(findPickle(folder)).filename().string();
  if (!pickle.empty())
    return "there is only " + pickle +
           ", a pickle, which runs whatever code it contains when it is read; if you trust it, convert it: "
           "python3 -c \"from transformers import AutoModelForSeq2SeqLM as M; M.from_pretrained('" +
           folder + "').save_pretrained('CONVERTED')\"";
  for (const char *other : {"tf_model.h5", "flax_model.msgpack"})
    if (has(other))
      return "there is only " + std::string(other) +
             "; convert it with transformers' from_pretrained and save_pretrained, which writes safetensors";
  return "expected the weights of the model in it, or in shards listed in model.safetensors.index.json";
}

Weights::Weights(const std::string &folder) {
  const std::string whole = folder + "/model.safetensors", index = folder + "/model.safetensors.index.json";
  if (exists(whole)) {
    source = whole;
    addFile(whole);
    leaveOutWrappers();
    return;
  }
  if (!exists(index))
    throw Error(whole + ": does not exist; " + instead(folder));
  source = index;
  const Config list(index);
  const JsonValue map = list.at("weight_map", "an object that maps the names of tensors to their files");
  std::set<std::string> shards;
  for (const std::string &tensor : map.keys()) {
    const JsonValue entry = *map.find(tensor);
    const std::string shard = entry.string();
    if (shard.empty() || shard.find('/') != std::string::npos || !shard.ends_with(".safetensors"))
      entry.fail(entry.shown() + ": expected the name of a .safetensors file of this folder");
    if (shards.insert(shard).second)
      addFile(folder + "/" + shard);
    auto found = entries.find(tensor);
    if (found == entries.end() || found->second.file != folder + "/" + shard)
      entry.fail(inQuotes(tensor) + " is not in " + folder + "/" + shard);
  }
  leaveOutWrappers();
}

// "model." if all names begin with that, and not even the first part of them differs.
std::string Weights::commonPrefix() const {
  if (entries.empty())
    return "";
  const std::string &first = entries.begin()->first;
  const std::string prefix = first.substr(0, first.find('.') + 1); // "" without a '.'
  const auto begins = [&](const auto &entry) { return entry.first.starts_with(prefix); };
  return std::all_of(entries.begin(), entries.end(), begins) ? prefix : "";
}

void Weights::leaveOutWrappers() {
  static const std::set<std::string> wrappers = {"_orig_mod.", "module."};
  for (std::string prefix; wrappers.contains(prefix = commonPrefix());) {
    std::map<std::string, Entry> named;
    for (auto &[name, entry] : entries) {
      entry.tensor.name = name.substr(prefix.size());
      named.emplace(entry.tensor.name, std::move(entry));
    }
    entries = std::move(named);
  }
}

std::string Weights::namesOf(const std::string &before) const {
  const std::string prefix = commonPrefix();
  return prefix.empty() || prefix == "model."
             ? ""
             : before + "all names of the file begin with " + inQuotes(prefix) + ", which the model's do not";
}

void Weights::addFile(const std::string &file) {
  files.push_back(MappedFile::readOnly(file));
  for (TensorView &tensor : parseSafetensors(files.back().contents(), file))
    addTensor(std::move(tensor), file);
}

void Weights::addMade(TensorView tensor, std::string bytes) {
  tensor.bytes = made.emplace_back(std::move(bytes));
  add(std::move(tensor));
}

void Weights::addTensor(TensorView tensor, const std::string &file) {
  const std::string name = tensor.name;
  auto [other, isNew] = entries.emplace(name, Entry{std::move(tensor), file});
  if (!isNew)
    throw Error(file + ": " + inQuotes(name) + " is also in " + other->second.file + "; expected each tensor once");
}

void Weights::add(TensorView tensor) { addTensor(std::move(tensor), source); }

const TensorView *Weights::find(const std::string &name) const {
  auto found = entries.find(name);
  if (found == entries.end() && name.starts_with("model."))
    found = entries.find(name.substr(6));
  return found == entries.end() ? nullptr : &found->second.tensor;
}

std::vector<const TensorView *> Weights::all() const {
  std::vector<const TensorView *> tensors;
  tensors.reserve(entries.size());
  for (const auto &[name, entry] : entries)
    tensors.push_back(&entry.tensor);
  return tensors;
}

} // namespace xfc
