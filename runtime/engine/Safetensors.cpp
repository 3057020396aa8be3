// Loads an engine's parameters from files of weights, gives them as tensors, and initializes them.
#include "engine/Safetensors.h"
#include "engine/Identity.h"
#include "support/MappedFile.h"
#include "tensors/Numbers.h"
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

namespace xfc {

//===--------------------------------------------------------------------------------------------------------===//
// Weights
//===--------------------------------------------------------------------------------------------------------===//

// The tensor of each parameter, once all checks have passed.
static std::vector<const TensorView *> parametersAmong(Engine &engine, const TensorViews &tensors,
                                                       const std::string &file, const Metadata &metadata = {},
                                                       const MappedFile *mapped = nullptr) {
  const Module &module = engine.module();
  std::map<std::string_view, const TensorView *> byName;
  for (const TensorView &tensor : tensors)
    byName[tensor.name] = &tensor;
  std::vector<const TensorView *> stored, used;                        // one for each parameter; all, under any name
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
        throw Error(file + ": '" + name + "' has shape " + textOf(tensor.shape) + ", but the model '" + module.model +
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
    throw Error(file + ": '" + std::string(byName.begin()->first) + "' is not a parameter of the model '" +
                module.model + "'");

  verifyWeights(&engine.pool(), used, metadata, file, mapped);
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

// The start of the parameter block if the tensors lie in `contents` exactly as in the block; else null.
static const char *blockOf(const Module &module, const std::vector<const TensorView *> &stored,
                           std::string_view contents) {
  constexpr int64_t line = 64;
  const int64_t element = bytesOf(module.type);
  const char *begin = nullptr;
  for (size_t i = 0; i < stored.size(); ++i) {
    const int64_t offset = module.parameters[i].offset * element, place = stored[i]->bytes.data() - contents.data();
    const char *block = contents.data() + (place - offset);
    if (stored[i]->type != elementTypeOf(module.type).inTensors || place < offset || (begin && block != begin))
      return nullptr;
    begin = block;
  }
  // The last cache line of the block may extend past the end of the file.
  const bool aligned = reinterpret_cast<uintptr_t>(begin) % line == 0;
  return begin && aligned && begin + module.parameterElements * element < contents.data() + contents.size() + line
             ? begin
             : nullptr;
}

static void copyParameters(Engine &engine, const std::vector<const TensorView *> &stored,
                           const MappedFile *mapped = nullptr) {
  const Module &module = engine.module();
  auto copy = [&]<typename T>(T *parameters) {
    inParts(&engine.pool(), stored, [&](size_t which, int64_t begin, int64_t end) {
      const TensorView &tensor = *stored[which];
      T *to = parameters + module.parameters[which].offset;
      eachNumber(tensor, begin, end, [&](int64_t i, double number) { to[i] = static_cast<T>(number); });
      const int64_t bytes = static_cast<int64_t>(tensor.bytes.size()) / elementsOf(tensor.shape);
      if (mapped)
        mapped->releaseBehind(tensor.bytes.substr(begin * bytes, (end - begin) * bytes));
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
  if (!anyModel) // before the tensors, whose shapes differ, too
    checkModel(metadata, engine.module(), file, engine.library());
  const std::vector<const TensorView *> stored = parametersAmong(engine, tensors, file, metadata, &contents);
  if (const char *block = blockOf(engine.module(), stored, contents.contents()))
    engine.takeParameters(std::move(contents), block);
  else
    copyParameters(engine, stored, &contents);
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
  std::vector<const Parameter *> into; // the parameter of each
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
        file + ": no tensor in it fits the model '" + module.model + "', whose parameters are like '" +
        module.parameters.front().name + "' " + textOf(module.parameters.front().shape) +
        (tensors.empty() ? "" : "; the file has '" + tensors.front().name + "' " + textOf(tensors.front().shape)));
  verifyWeights(&engine.pool(), taken, report.metadata, file);
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
    constexpr size_t most = 16 << 20; // bytes of each file that are read before its pages are released
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
                       elementTypeOf(module.type).inTensors,
                       parameter.shape,
                       {static_cast<const char *>(engine.parameters()) + parameter.offset * size,
                        static_cast<size_t>(elementsOf(parameter.shape) * size)}});
  return tensors;
}

//===--------------------------------------------------------------------------------------------------------===//
// Initialization
//===--------------------------------------------------------------------------------------------------------===//

// Numbers in (0, 1) from Philox keyed by the seed and the parameter's name, so that a parameter's values do not depend
// on the model's other parameters.
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

// A function that draws the values of a parameter, one at each call, from the distribution that its `init` names.
static std::function<double()> drawing(const Parameter &parameter, Uniform &uniform) {
  const double in = static_cast<double>(std::max<int64_t>(1, parameter.fanIn)),
               out = static_cast<double>(std::max<int64_t>(1, parameter.fanOut));
  const auto within = [&uniform](double bound) {
    return [&uniform, bound] { return (2 * uniform.next() - 1) * bound; };
  };
  // Box-Muller; one number of the pair is enough here.
  const auto normal = [&uniform] {
    const double radius = std::sqrt(-2 * std::log(uniform.next()));
    return radius * std::cos(2 * M_PI * uniform.next());
  };
  if (parameter.init == "xavier_uniform")
    return within(std::sqrt(6 / (in + out)));
  if (parameter.init == "fan_in_uniform")
    return within(1 / std::sqrt(in));
  if (parameter.init == "normal")
    return normal;
  if (parameter.init == "scaled_normal")
    return [normal, root = std::sqrt(static_cast<double>(parameter.shape.back()))] { return normal() / root; };
  return [value = parameter.init == "one" ? 1.0 : 0.0] { return value; };
}

void initializeParameters(Engine &engine, uint64_t seed) {
  const Module &module = engine.module();
  void *const values = engine.parameters();
  for (const Parameter &parameter : module.parameters) {
    Uniform uniform(seed, parameter.name);
    const std::function<double()> draw = drawing(parameter, uniform);
    const int64_t elements = elementsOf(parameter.shape);
    if (module.type == DType::F64)
      std::generate_n(static_cast<double *>(values) + parameter.offset, elements, draw);
    else
      std::generate_n(static_cast<float *>(values) + parameter.offset, elements,
                      [&] { return static_cast<float>(draw()); });
  }
  engine.parametersChanged();
}

} // namespace xfc
