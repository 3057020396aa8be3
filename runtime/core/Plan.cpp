// Plans: sizes, serialization, text, and the planner.
#include "Plan.h"
#include "Error.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <type_traits>
#include <utility>

namespace xfc {

using Json = nlohmann::json;

//===--------------------------------------------------------------------------------------------------------===//
// Sizes
//===--------------------------------------------------------------------------------------------------------===//

Counts countsOf(const xfc_shape &shape) {
  Counts counts;
  for (int set = 0; set < XFC_ROW_SETS; ++set) {
    const xfc_rows &rows = shape.sets[set];
    counts.rows[set] = rows.rows;
    counts.sequences[set] = rows.sequences;
    for (int64_t i = 0; rows.positions && i < rows.rows; ++i)
      counts.longest = std::max<int64_t>(counts.longest, rows.positions[i] + 1);
  }
  for (int i = 0; i < XFC_KEY_STRUCTURES; ++i)
    counts.pairs[i] = shape.keys[i].pairs;
  return counts;
}

int64_t featuresOf(const Argument &argument) {
  return std::accumulate(argument.shape.begin(), argument.shape.end(), int64_t(1), std::multiplies<>());
}

Counts larger(const Counts &a, const Counts &b) {
  Counts counts = a;
  for (int set = 0; set < XFC_ROW_SETS; ++set) {
    counts.rows[set] = std::max(a.rows[set], b.rows[set]);
    counts.sequences[set] = std::max(a.sequences[set], b.sequences[set]);
  }
  for (int keys = 0; keys < XFC_KEY_STRUCTURES; ++keys)
    counts.pairs[keys] = std::max(a.pairs[keys], b.pairs[keys]);
  counts.longest = std::max(a.longest, b.longest);
  return counts;
}

int64_t evaluate(const Size &size, const Counts &counts) {
  int64_t total = size.constant;
  for (int i = 0; i < XFC_ROW_SETS; ++i)
    total += size.rows[i] * counts.rows[i] + size.sequences[i] * counts.sequences[i];
  for (int i = 0; i < XFC_KEY_STRUCTURES; ++i)
    total += size.pairs[i] * counts.pairs[i];
  return total;
}

const Program *Module::find(const std::string &program) const {
  for (const Program &candidate : programs)
    if (candidate.name == program)
      return &candidate;
  return nullptr;
}

std::vector<std::string> Module::computeTypes(const std::string &program) const {
  std::vector<std::string> types;
  for (const Program &candidate : programs)
    if (candidate.name == program)
      types.insert(types.begin(), compute);
    else if (candidate.name.starts_with(program + "."))
      types.push_back(candidate.name.substr(program.size() + 1));
  return types;
}

std::string Module::variant(const std::string &program, const std::string &type) const {
  if (type.empty() || type == compute)
    return program;
  const std::vector<std::string> types = computeTypes(program);
  if (std::find(types.begin(), types.end(), type) != types.end())
    return program + "." + type;
  std::string known;
  for (const std::string &other : types)
    known += (known.empty() ? "" : " or ") + other;
  throw Error("--compute-type " + type + ": this executable decodes in " + known +
              " only; name that, or compile the model with --dtype f32 for a choice");
}

//===--------------------------------------------------------------------------------------------------------===//
// Serialization: CBOR arrays, one field after the other in the order of the structs
//===--------------------------------------------------------------------------------------------------------===//

namespace {

[[noreturn]] void damaged() { throw Error("the plan inside this executable is damaged; compile the model again"); }

// One description of the fields serves both directions: `Writer` appends, `Reader` takes.
struct Writer {
  Json json = Json::array();
  template <typename T> void value(T &field) {
    if constexpr (std::is_enum_v<T>)
      json.push_back(static_cast<int>(field));
    else
      json.push_back(field);
  }
  template <typename T, typename Fields> void list(std::vector<T> &items, Fields fields) {
    Json array = Json::array();
    for (T &item : items) {
      Writer writer;
      fields(writer, item);
      array.push_back(std::move(writer.json));
    }
    json.push_back(std::move(array));
  }
};

struct Reader {
  const Json &json;
  size_t next = 0;
  const Json &take() {
    if (!json.is_array() || next >= json.size())
      damaged();
    return json[next++];
  }
  void finish() const {
    if (next != json.size())
      damaged();
  }
  template <typename T> void value(T &field) { read(take(), field); }
  template <typename T, typename Fields> void list(std::vector<T> &items, Fields fields) {
    const Json &array = take();
    if (!array.is_array())
      damaged();
    items.resize(array.size());
    for (size_t i = 0; i < items.size(); ++i) {
      Reader reader{array[i]};
      fields(reader, items[i]);
      reader.finish();
    }
  }

private:
  // Nothing is converted: a number that its field cannot hold is damage.
  template <typename T> static void read(const Json &json, T &field) {
    if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> number;
      read(json, number);
      field = static_cast<T>(number);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean())
        damaged();
      field = json.get<bool>();
    } else if constexpr (std::is_integral_v<T>) {
      const bool large = json.is_number_unsigned() && !std::in_range<int64_t>(json.get<uint64_t>());
      if (!json.is_number_integer() || large || !std::in_range<T>(json.get<int64_t>()))
        damaged();
      field = static_cast<T>(json.get<int64_t>());
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!json.is_number())
        damaged();
      field = json.get<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string())
        damaged();
      field = json.get<std::string>();
    } else {
      if (!json.is_array())
        damaged();
      field.resize(json.size());
      for (size_t i = 0; i < json.size(); ++i)
        read(json[i], field[i]);
    }
  }
};

// Sizes have few terms: stored as (index, coefficient) pairs, constant first.
template <typename Archive> void sizeFields(Archive &archive, Size &size) {
  std::vector<int64_t> flat;
  int64_t *all[] = {&size.constant, size.rows, size.pairs, size.sequences};
  const int lengths[] = {1, XFC_ROW_SETS, XFC_KEY_STRUCTURES, XFC_ROW_SETS};
  auto at = [&](int64_t index) -> int64_t * {
    for (int part = 0; part < 4; index -= lengths[part++])
      if (index < lengths[part])
        return all[part] + index;
    return nullptr;
  };
  const int total = 1 + XFC_ROW_SETS + XFC_KEY_STRUCTURES + XFC_ROW_SETS;
  if constexpr (std::is_same_v<Archive, Writer>) {
    for (int i = 0; i < total; ++i)
      if (*at(i))
        flat.insert(flat.end(), {i, *at(i)});
    archive.value(flat);
  } else {
    archive.value(flat);
    size = {};
    for (size_t i = 0; i < flat.size(); i += 2) {
      if (flat[i] < 0 || flat[i] >= total || i + 1 == flat.size())
        damaged();
      *at(flat[i]) = flat[i + 1];
    }
  }
}

template <typename Archive> void placeFields(Archive &archive, Place &place) {
  archive.value(place.kind);
  archive.value(place.index);
  archive.value(place.offset);
}

template <typename Archive> void programFields(Archive &archive, Program &program) {
  archive.value(program.name);
  archive.list(program.arguments, [](auto &a, Argument &argument) {
    a.value(argument.name);
    a.value(argument.role);
    a.value(argument.type);
    a.value(argument.set);
    a.value(argument.shape);
  });
  archive.list(program.outputs, [](auto &a, Output &output) {
    a.value(output.name);
    placeFields(a, output.place);
    a.value(output.type);
    a.value(output.set);
    a.value(output.keys);
    a.value(output.shape);
    a.value(output.stride);
  });
  archive.list(program.buffers, [](auto &a, Buffer &buffer) {
    sizeFields(a, buffer.size);
    a.value(buffer.first);
    a.value(buffer.last);
  });
  archive.list(program.steps, [](auto &a, Step &step) {
    a.value(step.kernel);
    a.value(step.set);
    a.value(step.keySet);
    a.value(step.keys);
    a.list(step.buffers, [](auto &b, Place &place) { placeFields(b, place); });
    a.value(step.strides);
    a.value(step.immediates);
    a.value(step.elements);
    sizeFields(a, step.flops);
    sizeFields(a, step.traffic);
    a.value(step.location);
  });
}

template <typename Archive> void moduleFields(Archive &archive, Module &module) {
  archive.value(module.model);
  archive.value(module.hash);
  archive.value(module.description);
  archive.value(module.type);
  archive.value(module.compute);
  for (int64_t *field : {&module.parameterElements, &module.sourceVocab, &module.targetVocab, &module.sourceDim, &module.targetDim,
                         &module.maxLength, &module.maxTargetLength})
    archive.value(*field);
  archive.value(module.hasDecoder);
  for (int32_t *field : {&module.pad, &module.unk, &module.bos, &module.eos, &module.start})
    archive.value(*field);
  archive.value(module.sourceEos);
  archive.list(module.parameters, [](auto &a, Parameter &parameter) {
    a.value(parameter.name);
    a.value(parameter.aliases);
    a.value(parameter.shape);
    a.value(parameter.offset);
    a.value(parameter.init);
    a.value(parameter.fanIn);
    a.value(parameter.fanOut);
  });
  archive.list(module.packed, [](auto &a, Packed &packed) {
    a.value(packed.kernel);
    placeFields(a, packed.source);
    a.value(packed.bytes);
    a.value(packed.chunks);
  });
  archive.list(module.tables, [](auto &a, Table &table) {
    a.value(table.rows);
    a.value(table.dim);
    a.value(table.base);
    a.value(table.exponentMultiplier);
    a.value(table.cosineOffset);
    a.value(table.halves);
  });
  archive.list(module.kernels, [](auto &a, Kernel &kernel) {
    a.value(kernel.name);
    a.value(kernel.partition.unit);
    a.value(kernel.partition.per);
    a.value(kernel.partition.times);
    a.value(kernel.scratch);
  });
  archive.list(module.programs, [](auto &a, Program &program) { programFields(a, program); });
}

// Every index must point at something, and every size and offset lie within what it measures. Sizes have a bound
// that no machine reaches, so that sums and products of a few of them are numbers.
class Checker {
public:
  explicit Checker(const Module &module) : module(module) {}

  void run() const {
    type(module.type);
    number(module.parameterElements);
    for (int64_t value : {module.sourceVocab, module.targetVocab, module.sourceDim, module.targetDim, module.maxLength, module.maxTargetLength})
      within(value, 0, std::numeric_limits<int32_t>::max());
    for (int64_t id : {module.pad, module.unk, module.bos, module.eos, module.start})
      within(id, -1, std::numeric_limits<int32_t>::max());
    for (const Parameter &parameter : module.parameters) {
      within(parameter.offset, 0, module.parameterElements);
      within(elements(parameter.shape), 0, module.parameterElements - parameter.offset);
      number(parameter.fanIn);
      number(parameter.fanOut);
    }
    for (const Kernel &kernel : module.kernels) {
      within(kernel.partition.unit, Partition::Unit::Elements);
      within(kernel.partition.per, 1, largest);
      within(kernel.partition.times, 1, largest);
      number(kernel.scratch);
    }
    for (const Packed &packed : module.packed) {
      index(packed.kernel, module.kernels);
      place(packed.source, Program());
      number(packed.bytes);
      number(packed.chunks);
    }
    for (const Table &table : module.tables) {
      within(table.rows, 0, std::numeric_limits<int32_t>::max());
      within(table.dim, 0, std::numeric_limits<int32_t>::max());
      require(std::isfinite(table.base) && table.base > 0 && std::isfinite(table.exponentMultiplier) && std::isfinite(table.cosineOffset));
    }
    for (const Program &each : module.programs)
      program(each);
  }

private:
  static constexpr int64_t largest = int64_t(1) << 50;

  static void require(bool holds) {
    if (!holds)
      damaged();
  }
  static void within(int64_t value, int64_t low, int64_t high) { require(low <= value && value <= high); }
  template <typename Enum> static std::enable_if_t<std::is_enum_v<Enum>> within(Enum value, Enum last) { require(value <= last); }
  static void number(int64_t value) { within(value, 0, largest); }
  static void type(DType type) { within(type, DType::I32); }
  template <typename T> static void index(int64_t i, const std::vector<T> &list) { require(0 <= i && static_cast<size_t>(i) < list.size()); }
  static void size(const Size &size) {
    number(size.constant);
    for (int i = 0; i < XFC_ROW_SETS; ++i) {
      number(size.rows[i]);
      number(size.sequences[i]);
    }
    for (int64_t pairs : size.pairs)
      number(pairs);
  }
  static int64_t elements(const std::vector<int64_t> &shape) {
    int64_t product = 1;
    for (int64_t extent : shape) {
      within(extent, 0, largest / std::max<int64_t>(product, 1));
      product *= extent;
    }
    return product;
  }

  // An offset begins something that is there: a tensor of a block, or columns of a row.
  void place(const Place &place, const Program &program) const {
    using Kind = Place::Kind;
    within(place.kind, Kind::None);
    int64_t bytes = 0;
    switch (place.kind) {
    case Kind::Arena: {
      index(place.index, program.buffers);
      Counts one; // of everything: the bytes of a row where the buffer has rows
      for (int64_t *counts : {one.rows, one.sequences})
        std::fill_n(counts, XFC_ROW_SETS, 1);
      std::fill_n(one.pairs, XFC_KEY_STRUCTURES, 1);
      bytes = evaluate(program.buffers[place.index].size, one);
      break;
    }
    case Kind::Parameters:
    case Kind::Gradients:
    case Kind::Moments1:
    case Kind::Moments2:
      require(place.index == 0);
      bytes = module.parameterElements * bytesOf(module.type);
      break;
    case Kind::Packed:
      index(place.index, module.packed);
      break;
    case Kind::Table:
      index(place.index, module.tables);
      break;
    case Kind::Argument: {
      index(place.index, program.arguments);
      const Argument &argument = program.arguments[place.index];
      bytes = elements(argument.shape) * bytesOf(argument.type);
      break;
    }
    case Kind::None:
      require(place.index == 0);
      break;
    }
    within(place.offset, 0, std::max<int64_t>(bytes - 1, 0));
  }

  void program(const Program &program) const {
    const int64_t steps = static_cast<int64_t>(program.steps.size());
    for (const Argument &argument : program.arguments) {
      within(argument.role, Argument::Role::State);
      type(argument.type);
      within(argument.set, -1, XFC_ROW_SETS - 1);
      elements(argument.shape);
    }
    for (const Buffer &buffer : program.buffers) {
      size(buffer.size);
      within(buffer.last, 0, steps);
      within(buffer.first, 0, buffer.last);
    }
    for (const Output &output : program.outputs) {
      place(output.place, program);
      type(output.type);
      within(output.set, -1, XFC_ROW_SETS - 1);
      within(output.keys, -1, XFC_KEY_STRUCTURES - 1);
      elements(output.shape);
      number(output.stride);
    }
    for (const Step &step : program.steps) {
      index(step.kernel, module.kernels);
      within(step.set, 0, XFC_ROW_SETS - 1);
      within(step.keySet, 0, XFC_ROW_SETS - 1);
      within(step.keys, -1, XFC_KEY_STRUCTURES - 1);
      require(step.buffers.size() == step.strides.size());
      for (const Place &each : step.buffers)
        place(each, program);
      for (int64_t stride : step.strides)
        number(stride);
      number(step.elements);
      size(step.flops);
      size(step.traffic);
    }
  }

  const Module &module;
};

} // namespace

std::vector<uint8_t> serialize(const Module &module) {
  Writer writer;
  int version = XFC_ABI_VERSION;
  writer.value(version);
  Module copy = module;
  moduleFields(writer, copy);
  return Json::to_cbor(writer.json);
}

Module deserialize(const uint8_t *bytes, uint64_t size) {
  Json json;
  try {
    json = Json::from_cbor(bytes, bytes + size);
  } catch (const Json::exception &) {
    damaged();
  }
  Reader reader{json};
  int version = 0;
  reader.value(version);
  if (version != XFC_ABI_VERSION)
    throw Error("this executable was compiled for version " + std::to_string(version) + " of the runtime, which is version " +
                std::to_string(XFC_ABI_VERSION) + "; compile the model again");
  Module module;
  moduleFields(reader, module);
  reader.finish();
  Checker(module).run();
  return module;
}

//===--------------------------------------------------------------------------------------------------------===//
// Text
//===--------------------------------------------------------------------------------------------------------===//

namespace {

const char *const setNames[] = {"source", "target", "cache"};

std::string text(const Size &size) {
  std::string result;
  auto term = [&](int64_t coefficient, const std::string &what) {
    if (coefficient)
      result += (result.empty() ? "" : " + ") + std::to_string(coefficient) + what;
  };
  term(size.constant, "");
  for (int i = 0; i < XFC_ROW_SETS; ++i) {
    term(size.rows[i], std::string(" ") + setNames[i]);
    term(size.sequences[i], std::string(" ") + setNames[i] + " sequences");
  }
  for (int i = 0; i < XFC_KEY_STRUCTURES; ++i)
    term(size.pairs[i], " pairs" + std::to_string(i));
  return result.empty() ? "0" : result;
}

std::string text(const Module &module, const Program &program, const Place &place) {
  std::string offset = place.offset ? "+" + std::to_string(place.offset) : "";
  switch (place.kind) {
  case Place::Kind::Arena:
    return "%" + std::to_string(place.index) + offset;
  case Place::Kind::Parameters:
  case Place::Kind::Gradients:
  case Place::Kind::Moments1:
  case Place::Kind::Moments2: {
    std::string name = "+" + std::to_string(place.offset);
    for (const Parameter &parameter : module.parameters)
      if (parameter.offset * bytesOf(module.type) == place.offset)
        name = parameter.name;
    const char *prefix[] = {"", "", "grad ", "m ", "v "};
    return std::string(prefix[static_cast<int>(place.kind)]) + name;
  }
  case Place::Kind::Packed:
    return "packed" + std::to_string(place.index);
  case Place::Kind::Table:
    return "table" + std::to_string(place.index);
  case Place::Kind::Argument:
    return program.arguments[place.index].name + offset;
  case Place::Kind::None:
    return "-";
  }
  return "";
}

} // namespace

std::string print(const Module &module) {
  std::ostringstream out;
  out << "model " << module.model << ": " << module.parameters.size() << " parameters, " << module.parameterElements
      << " elements\n";
  for (size_t i = 0; i < module.kernels.size(); ++i) {
    const Kernel &kernel = module.kernels[i];
    const char *units[] = {"one", "rows", "key rows", "sequences", "elements"};
    out << "kernel " << kernel.name << ": " << units[static_cast<int>(kernel.partition.unit)] << " / " << kernel.partition.per << " x "
        << kernel.partition.times << ", scratch " << kernel.scratch << "\n";
  }
  for (size_t i = 0; i < module.packed.size(); ++i)
    out << "packed" << i << " = " << module.kernels[module.packed[i].kernel].name << "("
        << text(module, Program(), module.packed[i].source) << "), " << module.packed[i].bytes << " bytes\n";
  for (const Program &program : module.programs) {
    out << "\nprogram " << program.name << ": " << program.steps.size() << " launches, " << program.buffers.size() << " buffers\n";
    for (size_t i = 0; i < program.buffers.size(); ++i)
      out << "  %" << i << ": " << text(program.buffers[i].size) << " bytes, steps " << program.buffers[i].first << " to "
          << program.buffers[i].last << "\n";
    for (size_t i = 0; i < program.steps.size(); ++i) {
      const Step &step = program.steps[i];
      out << "  " << i << " " << module.kernels[step.kernel].name << "(";
      for (size_t b = 0; b < step.buffers.size(); ++b)
        out << (b ? ", " : "") << text(module, program, step.buffers[b]);
      out << ") over " << setNames[step.set];
      if (!step.location.empty())
        out << " at " << step.location;
      out << "\n";
    }
    for (const Output &output : program.outputs)
      out << "  result " << output.name << " = " << text(module, program, output.place) << "\n";
  }
  return out.str();
}

//===--------------------------------------------------------------------------------------------------------===//
// The planner
//===--------------------------------------------------------------------------------------------------------===//

// Largest first, each at the lowest offset where it overlaps nothing that lives at the same time.
Layout plan(const Program &program, const Counts &counts) {
  const size_t n = program.buffers.size();
  std::vector<int64_t> sizes(n);
  for (size_t i = 0; i < n; ++i)
    sizes[i] = (evaluate(program.buffers[i].size, counts) + 63) / 64 * 64;
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  Layout layout;
  layout.offsets.assign(n, 0);
  std::vector<size_t> placed; // by offset
  for (size_t i : order) {
    if (sizes[i] == 0)
      continue;
    int64_t offset = 0;
    for (size_t other : placed) {
      const Buffer &a = program.buffers[i], &b = program.buffers[other];
      if (a.last < b.first || b.last < a.first)
        continue;
      if (layout.offsets[other] >= offset + sizes[i])
        break; // fits before this one, and the rest start later still
      offset = std::max(offset, layout.offsets[other] + sizes[other]);
    }
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + sizes[i]);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) { return layout.offsets[a] < layout.offsets[b]; }),
                  i);
  }
  return layout;
}

} // namespace xfc
