// Parses and writes CTranslate2's model.bin.
#include "Ctranslate2Model.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "support/Quoted.h"
#include <algorithm>
#include <cstring>
#include <limits>

namespace xfc {
namespace {

constexpr uint32_t lastVersion = 6;

class Reader {
public:
  Reader(std::string_view contents, const std::string &file) : rest(contents), size(contents.size()), file(file) {}

  [[noreturn]] void fail(const std::string &what) const {
    throw Error(file + ": damaged CTranslate2 model: at byte " + std::to_string(size - rest.size()) + ", " + what);
  }
  std::string_view bytes(uint64_t count, const std::string &of) {
    if (count > rest.size())
      fail(of + " should have " + std::to_string(count) + " bytes, but only " + std::to_string(rest.size()) +
           " follow");
    const std::string_view taken = rest.substr(0, count);
    rest.remove_prefix(count);
    return taken;
  }
  template <typename Number> Number number(const std::string &of) {
    Number value;
    std::memcpy(&value, bytes(sizeof value, of).data(), sizeof value);
    return value;
  }
  std::string name(const std::string &of) {
    const std::string_view text = bytes(number<uint16_t>("the length of " + of), of);
    if (text.size() < 2 || text.find('\0') != text.size() - 1)
      fail(of + " is not zero-terminated text");
    return std::string(text.substr(0, text.size() - 1));
  }
  bool atEnd() const { return rest.empty(); }
  size_t left() const { return rest.size(); }

private:
  std::string_view rest;
  size_t size;
  const std::string &file;
};

struct Type {
  const char *name;
  uint64_t bytes;
};
constexpr Type types[] = {{"F32", 4}, {"I8", 1}, {"I16", 2}, {"I32", 4}, {"F16", 2}, {"BF16", 2}};

Type typeOf(uint8_t code, bool isSize, const Reader &reader, const std::string &variable) {
  if (isSize)
    for (const int known : {0, 1, 2})
      if (types[known].bytes == code)
        return types[known];
  if (isSize || code >= std::size(types))
    reader.fail(inQuotes(variable) + " has an unknown type, " + std::to_string(code));
  return types[code];
}

// Today's name of a variable of revision 1, which has the name that OpenNMT-tf gave it.
std::string nameOfToday(std::string name) {
  const auto rename = [&](std::string_view from, std::string_view to) {
    if (const size_t at = name.find(from); at != std::string::npos)
      name.replace(at, from.size(), to);
  };
  rename("transformer/", "");
  rename(":0", "");
  rename("w_embs", "embeddings/weight");
  rename("kernel", "weight");
  rename("LayerNorm", "layer_norm");
  rename("dense", "projection");
  rename("conv1d_", "linear_");
  rename("conv1d", "linear_0");
  if (name.starts_with("encoder")) {
    rename("multi_head", "self_attention");
  } else {
    rename("masked_multi_head", "self_attention");
    rename("multi_head", "attention");
  }
  return name;
}

} // namespace

Ctranslate2Model Ctranslate2Model::parse(std::string_view contents, const std::string &file) {
  Reader reader(contents, file);
  Ctranslate2Model model;
  model.version = reader.number<uint32_t>("the version");
  if (model.version < 1 || model.version > lastVersion)
    throw Error(file + ": is not a supported CTranslate2 model: its version is " + std::to_string(model.version) +
                "; expected 1 to " + std::to_string(lastVersion));
  if (model.version >= 2) {
    model.specification = reader.name("the name of the specification");
    model.revision = reader.number<uint32_t>("the revision of the specification");
  }
  const uint32_t count = reader.number<uint32_t>("the number of variables");
  for (uint32_t i = 0; i < count; ++i) {
    std::string name = reader.name("the name of variable " + std::to_string(i));
    if (model.revision == 1)
      name = nameOfToday(std::move(name));
    const std::string what = inQuotes(name);
    TensorView variable{name, {}, {}, {}};
    uint64_t elements = 1;
    for (int rank = reader.number<uint8_t>("the rank of " + what); rank > 0; --rank) {
      const uint32_t extent = reader.number<uint32_t>("an extent of " + what);
      variable.shape.push_back(extent);
      if (extent != 0 && elements > contents.size() / extent)
        reader.fail(what + " " + textOf(variable.shape) + " has more elements than the file has bytes");
      elements *= extent;
    }
    const bool sized = model.version < 4;
    const Type type = typeOf(reader.number<uint8_t>("the type of " + what), sized, reader, name);
    const uint64_t stored = reader.number<uint32_t>("the size of " + what) * (sized ? type.bytes : 1);
    variable.type = type.name;
    if (stored != elements * type.bytes)
      reader.fail(what + " " + textOf(variable.shape) + " of " + type.name + " has " + std::to_string(stored) +
                  " bytes; expected " + std::to_string(elements * type.bytes));
    variable.bytes = reader.bytes(stored, what);
    if (!model.variables.emplace(name, std::move(variable)).second)
      reader.fail(what + " appears twice");
  }
  if (model.version >= 3) {
    const uint32_t aliases = reader.number<uint32_t>("the number of aliases");
    for (uint32_t i = 0; i < aliases; ++i) {
      const std::string alias = reader.name("the name of alias " + std::to_string(i));
      const std::string of = reader.name("what " + inQuotes(alias) + " stands for");
      for (const char *part : {"", "_scale"})
        if (auto found = model.variables.find(of + part); found != model.variables.end()) {
          TensorView same = found->second;
          same.name = alias + part;
          if (!model.variables.emplace(alias + part, std::move(same)).second && !*part)
            reader.fail("the alias " + inQuotes(alias) + " appears twice");
        } else if (!*part) {
          reader.fail(inQuotes(alias) + " stands for " + inQuotes(of) + ", which does not exist");
        }
    }
  }
  if (!reader.atEnd())
    reader.fail(std::to_string(reader.left()) + " bytes follow its end");
  return model;
}

static void append(std::string &bytes, std::integral auto number) {
  bytes.append(reinterpret_cast<const char *>(&number), sizeof number);
}

static void append(std::string &bytes, const std::string &name) {
  append(bytes, static_cast<uint16_t>(name.size() + 1));
  bytes += name + '\0';
}

void writeCtranslate2(const std::string &file, const std::string &specification, uint32_t revision,
                      const std::vector<Ctranslate2Variable> &variables,
                      const std::vector<std::pair<std::string, std::string>> &aliases) {
  FileWriter writer(file);
  std::string part;
  append(part, lastVersion);
  append(part, specification);
  append(part, revision);
  append(part, static_cast<uint32_t>(variables.size()));
  for (const Ctranslate2Variable &variable : variables) {
    const std::string bytes = variable.bytes();
    if (bytes.size() > std::numeric_limits<uint32_t>::max())
      throw Error(file + ": " + inQuotes(variable.name) + " " + textOf(variable.shape) + " of " + variable.type +
                  " has " + std::to_string(bytes.size()) +
                  " bytes, but a variable of CTranslate2 has at most 2^32 - 1; choose a smaller --quantization");
    append(part, variable.name);
    append(part, static_cast<uint8_t>(variable.shape.size()));
    for (const int64_t extent : variable.shape)
      append(part, static_cast<uint32_t>(extent));
    const Type *type = std::find_if(std::begin(types), std::end(types),
                                    [&](const Type &known) { return variable.type == known.name; });
    append(part, static_cast<uint8_t>(type - std::begin(types)));
    append(part, static_cast<uint32_t>(bytes.size()));
    writer.write(part);
    writer.write(bytes);
    part.clear();
  }
  append(part, static_cast<uint32_t>(aliases.size()));
  for (const auto &[alias, of] : aliases) {
    append(part, alias);
    append(part, of);
  }
  writer.write(part);
  writer.commit();
}

} // namespace xfc
