// safetensors: an 8-byte little-endian header size, a JSON header, and the tensors' bytes.
#include "engine/Safetensors.h"
#include "engine/Identity.h"
#include "support/Checksum.h"
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace xfc {

static const std::map<std::string, int64_t> typeBytes = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                                                         {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};

TensorViews viewsOf(const Tensors &tensors) {
  TensorViews views;
  for (auto &[name, tensor] : tensors)
    views.push_back(
        {name, tensor.type, tensor.shape, {reinterpret_cast<const char *>(tensor.bytes.data()), tensor.bytes.size()}});
  return views;
}

// Metadata under which a file keeps the checksum of its header without this entry, and before a tensor's name that of
// its bytes.
static constexpr const char *headerChecksum = "checksum";
static constexpr const char *tensorChecksum = "crc32c.";

Tensors readSafetensors(const std::string &file, Metadata *metadata) {
  const MappedFile contents(file);
  Metadata found;
  TensorViews views = parseSafetensors(contents.contents(), file, &found);
  verifyChecksums(nullptr, views, found, file);
  if (metadata)
    *metadata = std::move(found);
  Tensors tensors;
  for (TensorView &view : views)
    tensors[view.name] = {std::move(view.type), std::move(view.shape), {view.bytes.begin(), view.bytes.end()}};
  return tensors;
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

TensorViews parseSafetensors(std::string_view contents, const std::string &file, Metadata *metadata) {
  auto bad = [&](const std::string &what) { throw Error(file + ": not a whole safetensors file: " + what); };
  if (contents.size() < 8)
    bad("it has " + std::to_string(contents.size()) + " bytes");
  uint64_t headerSize;
  std::memcpy(&headerSize, contents.data(), 8);
  if (headerSize > contents.size() - 8)
    bad("its header should have " + std::to_string(headerSize) + " bytes, but only " +
        std::to_string(contents.size() - 8) + " follow");
  nlohmann::json header = parseHeader(contents.substr(8, headerSize), bad);
  std::string_view data = contents.substr(8 + headerSize);
  TensorViews tensors;
  for (auto &[name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object())
        bad("its __metadata__ is not a JSON object");
      bool summed = false;
      for (auto &[key, value] : entry.items()) {
        summed |= key.starts_with(tensorChecksum);
        if (!value.is_string())
          bad("'" + key + "' of its __metadata__ is not a string");
        else if (metadata)
          (*metadata)[key] = value.get<std::string>();
      }
      if (summed && !entry.contains(headerChecksum))
        throw Error(file +
                    ": damaged: its header has checksums of tensors and none of its own; take a copy that is whole");
      if (auto given = entry.find(headerChecksum); given != entry.end()) {
        const std::string sum = *given;
        entry.erase(given);
        if (sum != checksumOf(header.dump()))
          throw Error(file +
                      ": damaged: its header is not what its checksum says (a program that changes the file must "
                      "leave out the metadata `checksum`); take a copy that is whole");
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
    TensorView tensor{name, {}, numbers("shape"), {}};
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
    tensor.bytes = data.substr(offsets[0], bytes);
    tensors.push_back(std::move(tensor));
  }
  // Every byte belongs to one tensor.
  auto begin = [&](const TensorView &tensor) { return static_cast<uint64_t>(tensor.bytes.data() - data.data()); };
  std::sort(tensors.begin(), tensors.end(), [&](const TensorView &a, const TensorView &b) {
    return std::pair(begin(a), a.bytes.size()) < std::pair(begin(b), b.bytes.size());
  });
  uint64_t end = 0;
  for (const TensorView &tensor : tensors) {
    if (begin(tensor) < end)
      bad("the bytes of '" + tensor.name + "' begin inside another tensor's");
    if (begin(tensor) > end)
      bad(std::to_string(begin(tensor) - end) + " bytes before '" + tensor.name + "' belong to no tensor");
    end += tensor.bytes.size();
  }
  if (end < data.size())
    bad(std::to_string(data.size() - end) + " bytes follow the last tensor");
  return tensors;
}

//===--------------------------------------------------------------------------------------------------------===//
// Weights
//===--------------------------------------------------------------------------------------------------------===//

static std::string textOf(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// How the bits of a type are read: those of NaN and infinity are ones in all of the exponent.
namespace {
struct F32 {
  using Bits = uint32_t;
  static constexpr Bits exponent = 0x7F800000;
  static double number(Bits bits) { return std::bit_cast<float>(bits); }
};
struct F64 {
  using Bits = uint64_t;
  static constexpr Bits exponent = 0x7FF0000000000000;
  static double number(Bits bits) { return std::bit_cast<double>(bits); }
};
struct BF16 {
  using Bits = uint16_t;
  static constexpr Bits exponent = 0x7F80;
  static double number(Bits bits) { return F32::number(static_cast<uint32_t>(bits) << 16); }
};
struct F16 {
  using Bits = uint16_t;
  static constexpr Bits exponent = 0x7C00;
  static double number(Bits bits) { // of finite ones
    const int power = bits >> 10 & 31, fraction = bits & 1023;
    const double value = power == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, power - 25);
    return bits & 0x8000 ? -value : value;
  }
};
} // namespace

// Calls use(the tensor's type), one of those above. Only these hold weights: false for others.
template <typename Use> static bool withType(const TensorView &tensor, Use use) {
  if (tensor.type == "F32")
    use(F32());
  else if (tensor.type == "F64")
    use(F64());
  else if (tensor.type == "F16")
    use(F16());
  else if (tensor.type == "BF16")
    use(BF16());
  else
    return false;
  return true;
}

// Whether all of the tensor's numbers from `begin` to before `end` are.
static bool areFinite(const TensorView &tensor, int64_t begin, int64_t end) {
  bool finite = true;
  withType(tensor, [&]<typename Type>(Type) {
    typename Type::Bits bad = 0; // as wide as the numbers, so that the loop becomes vector code
    for (int64_t i = begin; i < end; ++i) {
      typename Type::Bits bits;
      std::memcpy(&bits, tensor.bytes.data() + i * sizeof bits, sizeof bits);
      bad |= (bits & Type::exponent) == Type::exponent;
    }
    finite = bad == 0;
  });
  return finite;
}

// Calls use(i, number) for those numbers, which are finite.
template <typename Use> static void eachNumber(const TensorView &tensor, int64_t begin, int64_t end, Use use) {
  withType(tensor, [&]<typename Type>(Type) {
    for (int64_t i = begin; i < end; ++i) {
      typename Type::Bits bits;
      std::memcpy(&bits, tensor.bytes.data() + i * sizeof bits, sizeof bits);
      use(i, Type::number(bits));
    }
  });
}

// Calls body(0) ... body(parts - 1), on all threads of the pool where there is one.
template <typename Body> static void onThreads(ThreadPool *pool, int64_t parts, Body body) {
  if (pool)
    pool->run([](void *context, int64_t part, int) { (*static_cast<Body *>(context))(part); }, &body, parts);
  else
    for (int64_t part = 0; part < parts; ++part)
      body(part);
}

// Calls body(which tensor, begin, end) for parts of their elements.
template <typename Body>
static void inParts(ThreadPool *pool, const std::vector<const TensorView *> &tensors, Body body) {
  struct Part {
    size_t tensor;
    int64_t begin, end;
  };
  constexpr int64_t most = 1 << 18;
  std::vector<Part> parts;
  for (size_t i = 0; i < tensors.size(); ++i)
    for (int64_t begin = 0, count = elementsOf(tensors[i]->shape); begin < count; begin += most)
      parts.push_back({i, begin, std::min(begin + most, count)});
  onThreads(pool, static_cast<int64_t>(parts.size()),
            [&](int64_t part) { body(parts[part].tensor, parts[part].begin, parts[part].end); });
}

// What one walk over a tensor's bytes tells.
namespace {
struct Examined {
  std::atomic<bool> finite = true;
  std::vector<uint32_t> sums; // of its blocks
};
} // namespace

static std::vector<Examined> examine(ThreadPool *pool, const std::vector<const TensorView *> &tensors, bool finite,
                                     bool sums) {
  std::vector<Examined> examined(tensors.size());
  if (sums)
    for (size_t i = 0; i < tensors.size(); ++i)
      examined[i].sums.resize((tensors[i]->bytes.size() + checksumBlock - 1) / checksumBlock);
  inParts(pool, tensors, [&](size_t which, int64_t begin, int64_t end) {
    const TensorView &tensor = *tensors[which];
    const size_t bytes = static_cast<size_t>(typeBytes.at(tensor.type)), from = begin * bytes;
    static_assert((1 << 18) % checksumBlock == 0); // a part of elements of one byte or more begins with a block
    if (sums)
      blockSums(tensor.bytes.substr(from, (end - begin) * bytes), examined[which].sums.data() + from / checksumBlock);
    if (finite && !areFinite(tensor, begin, end))
      examined[which].finite = false;
  });
  return examined;
}

static std::vector<const TensorView *> pointersTo(const TensorViews &tensors) {
  std::vector<const TensorView *> pointers;
  for (const TensorView &tensor : tensors)
    pointers.push_back(&tensor);
  return pointers;
}

static void verify(const TensorView &tensor, const Examined &examined, const Metadata &metadata,
                   const std::string &file) {
  if (auto given = metadata.find(tensorChecksum + tensor.name);
      given != metadata.end() && given->second != checksumOf(examined.sums))
    throw Error(file + ": damaged: the bytes of '" + tensor.name + "' have the checksum " + checksumOf(examined.sums) +
                ", when they were written it was " + given->second + "; take a copy that is whole");
}

void verifyChecksums(ThreadPool *pool, const TensorViews &tensors, const Metadata &metadata, const std::string &file) {
  if (!metadata.contains(headerChecksum)) // of before there were any
    return;
  const std::vector<Examined> examined = examine(pool, pointersTo(tensors), false, true);
  for (size_t i = 0; i < tensors.size(); ++i)
    verify(tensors[i], examined[i], metadata, file);
}

const TensorView *notFinite(ThreadPool *pool, const TensorViews &tensors) {
  const std::vector<Examined> examined = examine(pool, pointersTo(tensors), true, false);
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!examined[i].finite)
      return &tensors[i];
  return nullptr;
}

void writeSafetensors(const std::string &file, const TensorViews &tensors, const Metadata &metadata, ThreadPool *pool,
                      const std::string &previous) {
  FileWriter writer(file);
  const std::vector<Examined> examined = examine(pool, pointersTo(tensors), false, true);
  nlohmann::ordered_json header = {{"__metadata__", metadata}};
  uint64_t offset = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView &tensor = tensors[i];
    header["__metadata__"][tensorChecksum + tensor.name] = checksumOf(examined[i].sums);
    header[tensor.name] = {
        {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  header["__metadata__"][headerChecksum] = checksumOf(nlohmann::json(header).dump());
  std::string text = header.dump();
  text.append((64 - (8 + text.size()) % 64) % 64, ' ');
  const uint64_t size = text.size();
  writer.write({reinterpret_cast<const char *>(&size), 8});
  writer.write(text);
  for (const TensorView &tensor : tensors)
    writer.write(tensor.bytes);
  writer.commit(previous);
}

static void requireWhole(const TensorView &tensor, const Examined &examined, const Metadata &metadata,
                         const std::string &file) {
  if (metadata.contains(headerChecksum))
    verify(tensor, examined, metadata, file);
  if (!examined.finite)
    throw Error(file + ": '" + tensor.name + "' holds NaN or infinity; the weights are damaged or training diverged");
}

// The tensor of each parameter, after everything that can be wrong with them was looked at.
static std::vector<const TensorView *> parametersAmong(Engine &engine, const TensorViews &tensors,
                                                       const std::string &file, const Metadata &metadata = {}) {
  const Module &module = engine.module();
  std::map<std::string_view, const TensorView *> byName;
  for (const TensorView &tensor : tensors)
    byName[tensor.name] = &tensor;
  std::vector<const TensorView *> stored, used;                        // of each parameter; under any name
  std::vector<std::pair<const TensorView *, const TensorView *>> tied; // two names of one parameter
  for (const Parameter &parameter : module.parameters) {
    std::vector<std::string> names = {parameter.name};
    names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
    const TensorView *first = nullptr;
    for (const std::string &name : names) {
      auto found = byName.find(name);
      if (found == byName.end())
        continue;
      const TensorView &tensor = *found->second;
      byName.erase(found);
      if (tensor.shape != parameter.shape)
        throw Error(file + ": '" + name + "' has shape " + textOf(tensor.shape) + ", the model '" + module.model +
                    "' expects " + textOf(parameter.shape));
      if (!withType(tensor, [](auto) {}))
        throw Error(file + ": '" + name + "' has type " + tensor.type + "; weights are F32, F64, F16 or BF16");
      used.push_back(&tensor);
      if (first)
        tied.push_back({first, &tensor});
      else
        stored.push_back(first = &tensor);
    }
    if (!first)
      throw Error(file + ": '" + parameter.name + "' " + textOf(parameter.shape) +
                  " is missing; these are not weights of the model '" + module.model + "'");
  }
  if (!byName.empty())
    throw Error(file + ": '" + std::string(byName.begin()->first) + "' is no parameter of the model '" + module.model +
                "'");

  const std::vector<Examined> examined = examine(&engine.pool(), used, true, metadata.contains(headerChecksum));
  for (size_t i = 0; i < used.size(); ++i)
    requireWhole(*used[i], examined[i], metadata, file);
  for (auto [first, second] : tied) {
    std::vector<double> values(elementsOf(first->shape));
    eachNumber(*first, 0, values.size(), [&](int64_t i, double number) { values[i] = number; });
    bool equal = true;
    eachNumber(*second, 0, values.size(), [&](int64_t i, double number) { equal &= values[i] == number; });
    if (!equal)
      throw Error(file + ": '" + first->name + "' and '" + second->name + "' differ, but the model '" + module.model +
                  "' ties them");
  }
  return stored;
}

static const char *typeName(const Module &module) { return module.type == DType::F64 ? "F64" : "F32"; }

// Where the block of parameters begins if the tensors lie as in one, inside `contents`; else null.
static const char *blockOf(const Module &module, const std::vector<const TensorView *> &stored,
                           std::string_view contents) {
  constexpr int64_t line = 64;
  const int64_t element = bytesOf(module.type);
  const char *begin = nullptr;
  for (size_t i = 0; i < stored.size(); ++i) {
    const int64_t offset = module.parameters[i].offset * element, place = stored[i]->bytes.data() - contents.data();
    const char *block = contents.data() + (place - offset);
    if (stored[i]->type != typeName(module) || place < offset || (begin && block != begin))
      return nullptr;
    begin = block;
  }
  // The last line of the block may be longer than the file.
  const bool aligned = reinterpret_cast<uintptr_t>(begin) % line == 0;
  return begin && aligned && begin + module.parameterElements * element < contents.data() + contents.size() + line
             ? begin
             : nullptr;
}

static void copyParameters(Engine &engine, const std::vector<const TensorView *> &stored) {
  const Module &module = engine.module();
  auto copy = [&]<typename T>(T *parameters) {
    inParts(&engine.pool(), stored, [&](size_t which, int64_t begin, int64_t end) {
      T *to = parameters + module.parameters[which].offset;
      eachNumber(*stored[which], begin, end, [&](int64_t i, double number) { to[i] = static_cast<T>(number); });
    });
  };
  if (module.type == DType::F64)
    copy(static_cast<double *>(engine.parameters()));
  else
    copy(static_cast<float *>(engine.parameters()));
  engine.parametersChanged();
}

Metadata loadWeights(Engine &engine, const std::string &file, bool anyModel) {
  return loadWeights(engine, MappedFile(file), file, anyModel);
}

Metadata loadWeights(Engine &engine, MappedFile contents, const std::string &file, bool anyModel) {
  Metadata metadata;
  const TensorViews tensors = parseSafetensors(contents.contents(), file, &metadata);
  const std::vector<const TensorView *> stored = parametersAmong(engine, tensors, file, metadata);
  if (!anyModel)
    checkModel(metadata, engine.module(), file);
  if (const char *block = blockOf(engine.module(), stored, contents.contents()))
    engine.takeParameters(std::move(contents), block);
  else
    copyParameters(engine, stored);
  return metadata;
}

FittingWeights loadFitting(Engine &engine, const std::string &file) {
  const Module &module = engine.module();
  const MappedFile contents(file);
  FittingWeights report;
  const TensorViews tensors = parseSafetensors(contents.contents(), file, &report.metadata);
  std::map<std::string_view, const TensorView *> byName;
  for (const TensorView &tensor : tensors)
    byName[tensor.name] = &tensor;
  std::vector<const TensorView *> taken;
  std::vector<const Parameter *> into; // of each of them
  for (const Parameter &parameter : module.parameters) {
    std::vector<std::string> names = {parameter.name};
    names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
    bool found = false;
    for (const std::string &name : names) {
      const auto there = byName.find(name);
      if (there == byName.end() || found)
        continue;
      const TensorView &tensor = *there->second;
      byName.erase(there);
      found = true;
      if (tensor.shape == parameter.shape && withType(tensor, [](auto) {})) {
        taken.push_back(&tensor);
        into.push_back(&parameter);
        report.loaded.push_back(parameter.name);
      } else {
        report.unfit.push_back(name + " " + textOf(tensor.shape) +
                               (tensor.shape == parameter.shape ? " of " + tensor.type : "") + " (here " +
                               textOf(parameter.shape) + ")");
      }
    }
    if (!found)
      report.left.push_back(parameter.name);
  }
  for (const auto &[name, tensor] : byName)
    report.unused.emplace_back(name);
  if (taken.empty())
    throw Error(
        file + ": nothing of it fits the model '" + module.model + "', whose parameters are as '" +
        module.parameters.front().name + "' " + textOf(module.parameters.front().shape) +
        (tensors.empty() ? "" : "; the file has '" + tensors.front().name + "' " + textOf(tensors.front().shape)));
  const bool summed = report.metadata.contains(headerChecksum);
  const std::vector<Examined> examined = examine(&engine.pool(), taken, true, summed);
  for (size_t i = 0; i < taken.size(); ++i)
    requireWhole(*taken[i], examined[i], report.metadata, file);
  auto copy = [&]<typename T>(T *parameters) {
    inParts(&engine.pool(), taken, [&](size_t which, int64_t begin, int64_t end) {
      T *to = parameters + into[which]->offset;
      eachNumber(*taken[which], begin, end, [&](int64_t i, double number) { to[i] = static_cast<T>(number); });
    });
  };
  if (module.type == DType::F64)
    copy(static_cast<double *>(engine.parameters()));
  else
    copy(static_cast<float *>(engine.parameters()));
  engine.parametersChanged();
  return report;
}

std::vector<Metadata> loadMean(Engine &engine, const std::vector<std::string> &files, bool anyModel) {
  const Module &module = engine.module();
  std::vector<MappedFile> mapped;
  std::vector<TensorViews> tensors(files.size()); // of each file
  std::vector<std::vector<const TensorView *>> stored;
  std::vector<Metadata> metadata(files.size());
  for (size_t k = 0; k < files.size(); ++k) {
    mapped.push_back(MappedFile::readOnly(files[k]));
    tensors[k] = parseSafetensors(mapped.back().contents(), files[k], &metadata[k]);
    stored.push_back(parametersAmong(engine, tensors[k], files[k], metadata[k]));
    if (!anyModel)
      checkModel(metadata[k], module, files[k]);
    mapped.back().release();
  }
  auto fill = [&]<typename T>(T *parameters) {
    constexpr size_t most = 16 << 20; // bytes of each file that are looked at before they are given back
    for (size_t first = 0; first < module.parameters.size();) {
      size_t last = first;
      for (size_t bytes = 0; last < module.parameters.size() && bytes < most; ++last)
        bytes += stored.front()[last]->bytes.size();
      const std::vector<const TensorView *> part(stored.front().begin() + static_cast<int64_t>(first),
                                                 stored.front().begin() + static_cast<int64_t>(last));
      inParts(&engine.pool(), part, [&](size_t i, int64_t begin, int64_t end) {
        const size_t which = first + i;
        std::vector<double> sum(static_cast<size_t>(end - begin));
        for (const std::vector<const TensorView *> &one : stored)
          eachNumber(*one[which], begin, end, [&](int64_t at, double number) { sum[at - begin] += number; });
        for (int64_t at = begin; at < end; ++at)
          parameters[module.parameters[which].offset + at] =
              static_cast<T>(sum[at - begin] / static_cast<double>(files.size()));
      });
      for (const MappedFile &file : mapped)
        file.release();
      first = last;
    }
  };
  if (module.type == DType::F64)
    fill(static_cast<double *>(engine.parameters()));
  else
    fill(static_cast<float *>(engine.parameters()));
  engine.parametersChanged();
  return metadata;
}

void loadWeights(Engine &engine, const TensorViews &tensors, const std::string &file) {
  copyParameters(engine, parametersAmong(engine, tensors, file));
}

TensorViews weights(Engine &engine) {
  const Module &module = engine.module();
  const int64_t size = bytesOf(module.type);
  TensorViews tensors;
  for (const Parameter &parameter : module.parameters)
    tensors.push_back({parameter.name,
                       typeName(module),
                       parameter.shape,
                       {static_cast<const char *>(engine.parameters()) + parameter.offset * size,
                        static_cast<size_t>(elementsOf(parameter.shape) * size)}});
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
