// safetensors: an 8-byte little-endian header size, a JSON header, and the tensors' bytes.
#include "Safetensors.h"
#include "Files.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

namespace xfc {

static const std::map<std::string, int64_t> typeBytes = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                                                         {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};

Tensors readSafetensors(const std::string &file, std::map<std::string, std::string> *metadata) {
  return parseSafetensors(readFile(file), file, metadata);
}

// The header's JSON. A parser keeps one of two equal keys and says nothing; here they are an error.
static nlohmann::json parseHeader(std::string_view text, const std::function<void(const std::string &)> &bad) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> keys; // of the objects that are open
  auto watch = [&](int, Json::parse_event_t event, Json &value) {
    if (event == Json::parse_event_t::object_start)
      keys.emplace_back();
    else if (event == Json::parse_event_t::object_end)
      keys.pop_back();
    else if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      bad("its header has '" + value.get<std::string>() + "' twice");
    return true;
  };
  Json header = Json::parse(text, watch, false);
  if (!header.is_object())
    bad("its header is not a JSON object");
  return header;
}

Tensors parseSafetensors(std::string_view contents, const std::string &file, std::map<std::string, std::string> *metadata) {
  auto bad = [&](const std::string &what) { throw Error(file + ": not a whole safetensors file: " + what); };
  if (contents.size() < 8)
    bad("it has " + std::to_string(contents.size()) + " bytes");
  uint64_t headerSize;
  std::memcpy(&headerSize, contents.data(), 8);
  if (headerSize > contents.size() - 8)
    bad("its header should have " + std::to_string(headerSize) + " bytes, but only " + std::to_string(contents.size() - 8) + " follow");
  const nlohmann::json header = parseHeader(contents.substr(8, headerSize), bad);
  std::string_view data = contents.substr(8 + headerSize);
  Tensors tensors;
  struct Range {
    uint64_t begin, end;
    std::string name;
  };
  std::vector<Range> ranges;
  for (auto &[name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object())
        bad("its __metadata__ is not a JSON object");
      for (auto &[key, value] : entry.items()) {
        if (!value.is_string())
          bad("'" + key + "' of its __metadata__ is not a string");
        if (metadata)
          (*metadata)[key] = value.get<std::string>();
      }
      continue;
    }
    auto numbers = [&, &name = name, &entry = entry](const char *key) {
      auto list = entry.is_object() ? entry.find(key) : entry.end();
      if (list == entry.end() || !list->is_array())
        bad("'" + name + "' has no list '" + key + "'");
      std::vector<int64_t> result;
      for (const nlohmann::json &number : *list) {
        if (!number.is_number_unsigned() || number.get<uint64_t>() > std::numeric_limits<int64_t>::max())
          bad("'" + name + "' has " + number.dump() + " in '" + key + "', which takes whole numbers from 0");
        result.push_back(number.get<int64_t>());
      }
      return result;
    };
    StoredTensor tensor{{}, numbers("shape"), {}};
    const std::vector<int64_t> offsets = numbers("data_offsets");
    if (auto type = entry.find("dtype"); type != entry.end() && type->is_string())
      tensor.type = type->get<std::string>();
    else
      bad("'" + name + "' has no string 'dtype'");
    auto known = typeBytes.find(tensor.type);
    if (known == typeBytes.end())
      bad("'" + name + "' has the unknown type '" + tensor.type + "'");
    uint64_t bytes = std::count(tensor.shape.begin(), tensor.shape.end(), 0) ? 0 : known->second;
    for (int64_t extent : tensor.shape) {
      if (bytes > 0 && bytes > data.size() / extent)
        bad("'" + name + "' has a shape that does not fit the file");
      bytes *= extent;
    }
    if (offsets.size() != 2 || offsets[0] > offsets[1] || static_cast<uint64_t>(offsets[1]) > data.size() ||
        static_cast<uint64_t>(offsets[1] - offsets[0]) != bytes)
      bad("the bytes of '" + name + "' lie outside it or do not match its shape");
    tensor.bytes.assign(data.begin() + offsets[0], data.begin() + offsets[1]);
    ranges.push_back({static_cast<uint64_t>(offsets[0]), static_cast<uint64_t>(offsets[1]), name});
    tensors.emplace(name, std::move(tensor));
  }
  // Every byte belongs to one tensor.
  std::sort(ranges.begin(), ranges.end(), [](const Range &a, const Range &b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  uint64_t end = 0;
  for (const Range &range : ranges) {
    if (range.begin < end)
      bad("the bytes of '" + range.name + "' begin inside another tensor's");
    if (range.begin > end)
      bad(std::to_string(range.begin - end) + " bytes before '" + range.name + "' belong to no tensor");
    end = range.end;
  }
  if (end < data.size())
    bad(std::to_string(data.size() - end) + " bytes follow the last tensor");
  return tensors;
}

void writeSafetensors(const std::string &file, const Tensors &tensors, const std::map<std::string, std::string> &metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty())
    header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (auto &[name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  uint64_t size = text.size();
  std::string contents;
  contents.reserve(8 + size + offset);
  contents.append(reinterpret_cast<const char *>(&size), 8);
  contents += text;
  for (auto &[name, tensor] : tensors)
    contents.append(reinterpret_cast<const char *>(tensor.bytes.data()), tensor.bytes.size());
  writeFile(file, contents);
}

//===--------------------------------------------------------------------------------------------------------===//
// Weights
//===--------------------------------------------------------------------------------------------------------===//

static int64_t elementsOf(const std::vector<int64_t> &shape) {
  int64_t elements = 1;
  for (int64_t extent : shape)
    elements *= extent;
  return elements;
}

static std::string textOf(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

static double halfToDouble(uint16_t half) {
  int exponent = half >> 10 & 31, fraction = half & 1023;
  double value = exponent == 0    ? std::ldexp(fraction, -24)
                 : exponent == 31 ? (fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity())
                                  : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -value : value;
}

// Calls use(i, number) for each of the tensor's numbers. Only floating-point types hold weights.
template <typename Use> static void eachNumber(const StoredTensor &tensor, const std::string &file, const std::string &name, Use use) {
  const size_t count = elementsOf(tensor.shape);
  auto convert = [&]<typename T>(T, auto function) {
    for (size_t i = 0; i < count; ++i) {
      T raw;
      std::memcpy(&raw, tensor.bytes.data() + i * sizeof(T), sizeof(T));
      use(i, function(raw));
    }
  };
  if (tensor.type == "F32")
    convert(float(), [](float x) { return static_cast<double>(x); });
  else if (tensor.type == "F64")
    convert(double(), [](double x) { return x; });
  else if (tensor.type == "F16")
    convert(uint16_t(), halfToDouble);
  else if (tensor.type == "BF16")
    convert(uint16_t(), [](uint16_t x) {
      uint32_t wide = static_cast<uint32_t>(x) << 16;
      float value;
      std::memcpy(&value, &wide, 4);
      return static_cast<double>(value);
    });
  else
    throw Error(file + ": '" + name + "' has type " + tensor.type + "; weights are F32, F64, F16 or BF16");
}

void loadWeights(Engine &engine, const std::string &file) { loadWeights(engine, readSafetensors(file), file); }

void loadWeights(Engine &engine, const Tensors &tensors, const std::string &file) {
  const Module &module = engine.module();
  // Everything is checked before anything is written.
  std::vector<std::pair<std::string, const StoredTensor *>> stored; // of each parameter
  std::set<std::string> used;
  for (const Parameter &parameter : module.parameters) {
    std::vector<std::string> names = {parameter.name};
    names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
    const StoredTensor *first = nullptr;
    for (const std::string &name : names) {
      auto found = tensors.find(name);
      if (found == tensors.end())
        continue;
      const StoredTensor &tensor = found->second;
      used.insert(name);
      if (tensor.shape != parameter.shape)
        throw Error(file + ": '" + name + "' has shape " + textOf(tensor.shape) + ", the model '" + module.model + "' expects " +
                    textOf(parameter.shape));
      bool finite = true;
      eachNumber(tensor, file, name, [&](size_t, double value) { finite &= std::isfinite(value); });
      if (!finite)
        throw Error(file + ": '" + name + "' holds NaN or infinity; the weights are damaged or training diverged");
      if (!first) {
        first = &tensor;
        stored.emplace_back(name, first);
        continue;
      }
      std::vector<double> values(elementsOf(tensor.shape));
      eachNumber(*first, file, name, [&](size_t i, double value) { values[i] = value; });
      bool equal = true;
      eachNumber(tensor, file, name, [&](size_t i, double value) { equal &= values[i] == value; });
      if (!equal)
        throw Error(file + ": '" + stored.back().first + "' and '" + name + "' differ, but the model '" + module.model + "' ties them");
    }
    if (!first)
      throw Error(file + ": '" + parameter.name + "' " + textOf(parameter.shape) + " is missing; these are not weights of the model '" +
                  module.model + "'");
  }
  for (auto &[name, tensor] : tensors)
    if (!used.count(name))
      throw Error(file + ": '" + name + "' is no parameter of the model '" + module.model + "'");
  for (size_t i = 0; i < stored.size(); ++i) {
    const auto &[name, tensor] = stored[i];
    auto write = [&, tensor = tensor]<typename T>(T *parameters) {
      T *to = parameters + module.parameters[i].offset;
      eachNumber(*tensor, file, name, [to](size_t j, double value) { to[j] = static_cast<T>(value); });
    };
    if (module.type == DType::F64)
      write(static_cast<double *>(engine.parameters()));
    else
      write(static_cast<float *>(engine.parameters()));
  }
  engine.parametersChanged();
}

Tensors weights(Engine &engine) {
  const Module &module = engine.module();
  Tensors tensors;
  for (const Parameter &parameter : module.parameters) {
    const int64_t size = bytesOf(module.type);
    const uint8_t *begin = static_cast<const uint8_t *>(engine.parameters()) + parameter.offset * size;
    tensors[parameter.name] = {module.type == DType::F64 ? "F64" : "F32", parameter.shape,
                               std::vector<uint8_t>(begin, begin + elementsOf(parameter.shape) * size)};
  }
  return tensors;
}

//===--------------------------------------------------------------------------------------------------------===//
// Initialization
//===--------------------------------------------------------------------------------------------------------===//

// Numbers in [0, 1) from Philox keyed by the seed and the parameter's name, so that a parameter's values do not
// depend on which others the model has.
namespace {
class Uniform {
public:
  Uniform(uint64_t seed, const std::string &name) {
    uint64_t hash = 0xcbf29ce484222325ull; // FNV-1a
    for (char c : name)
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    key[0] = static_cast<uint32_t>(seed ^ hash);
    key[1] = static_cast<uint32_t>((seed ^ hash) >> 32);
  }
  double next() {
    if (used == 4) {
      uint32_t counter[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0};
      xfc_philox(counter, key, words);
      ++block;
      used = 0;
    }
    return (words[used++] + 0.5) / 4294967296.0;
  }

private:
  uint32_t key[2], words[4];
  int used = 4;
  uint64_t block = 0;
};
} // namespace

void initializeParameters(Engine &engine, uint64_t seed) {
  const Module &module = engine.module();
  for (const Parameter &parameter : module.parameters) {
    Uniform uniform(seed, parameter.name);
    auto bounded = [&](double bound) { return (2 * uniform.next() - 1) * bound; };
    // Box and Muller; one of the pair is enough here.
    auto normal = [&] {
      double radius = std::sqrt(-2 * std::log(uniform.next()));
      return radius * std::cos(2 * M_PI * uniform.next());
    };
    const double in = std::max<int64_t>(1, parameter.fanIn), out = std::max<int64_t>(1, parameter.fanOut);
    for (int64_t i = 0; i < elementsOf(parameter.shape); ++i) {
      double value = 0;
      if (parameter.init == "xavier_uniform")
        value = bounded(std::sqrt(6 / (in + out)));
      else if (parameter.init == "fan_in_uniform")
        value = bounded(1 / std::sqrt(in));
      else if (parameter.init == "normal")
        value = normal();
      else if (parameter.init == "scaled_normal")
        value = normal() / std::sqrt(static_cast<double>(parameter.shape.back()));
      else if (parameter.init == "one")
        value = 1;
      if (module.type == DType::F64)
        static_cast<double *>(engine.parameters())[parameter.offset + i] = value;
      else
        static_cast<float *>(engine.parameters())[parameter.offset + i] = static_cast<float>(value);
    }
  }
  engine.parametersChanged();
}

} // namespace xfc
