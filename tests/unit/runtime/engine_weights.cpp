// Tests safetensors files and the weights in them: round trips, and what is refused.
#include "allocations.h"
#include "device/cpu/CpuDevice.h"
#include "engine/Identity.h"
#include "folder.h"
#include "model.h"
#include "plan/Serialization.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/LineReader.h"
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>

using namespace xfc;
namespace fs = std::filesystem;

namespace {

using Safetensors = FolderTest;

StoredTensor floats(std::vector<int64_t> shape, std::vector<float> values) {
  StoredTensor tensor{"F32", std::move(shape), std::vector<uint8_t>(values.size() * 4)};
  const auto *bytes = reinterpret_cast<const uint8_t *>(values.data());
  std::copy(bytes, bytes + tensor.bytes.size(), tensor.bytes.begin());
  return tensor;
}

std::string withHeader(const std::string &header, const std::string &data) {
  uint64_t size = header.size();
  return std::string(reinterpret_cast<const char *>(&size), 8) + header + data;
}

} // namespace

TEST_F(Safetensors, ThereAndBack) {
  Tensors tensors = {{"b", floats({2, 3}, {1, 2, 3, 4, 5, -6})}, {"a", floats({}, {7})}, {"none", floats({0, 4}, {})}};
  tensors["ids"] = {"I32", {2}, {1, 0, 0, 0, 2, 0, 0, 0}};
  writeSafetensors(in("t"), viewsOf(tensors), {{"step", "12"}});
  std::map<std::string, std::string> metadata;
  Tensors back = readSafetensors(in("t"), &metadata);
  ASSERT_EQ(back.size(), 4u);
  for (auto &[name, tensor] : tensors) {
    EXPECT_EQ(back[name].type, tensor.type);
    EXPECT_EQ(back[name].shape, tensor.shape);
    EXPECT_EQ(back[name].bytes, tensor.bytes);
  }
  EXPECT_EQ(metadata["step"], "12");
  uint64_t header;
  std::memcpy(&header, readFile(in("t")).data(), 8);
  EXPECT_EQ((8 + header) % 64, 0u);

  const std::string whole = readFile(in("t"));
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(parseSafetensors(std::string_view(whole).substr(0, size), "t"), Error) << size;
}

TEST_F(Safetensors, Broken) {
  auto refused = [](const char *why, const std::string &header, const std::string &data = std::string(8, '\0')) {
    std::string message = errorOf([&] { parseSafetensors(withHeader(header, data), "t"); });
    EXPECT_EQ(message.rfind("t: not a valid safetensors file: ", 0), 0u) << header << ": " << message;
    EXPECT_NE(message.find(why), std::string::npos) << header << ": " << message;
  };
  auto tensor = [](const std::string &shape, const std::string &offsets, const std::string &type = "\"F32\"") {
    return "{\"dtype\":" + type + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  auto one = [&](auto... parts) { return "{\"a\":" + tensor(parts...) + "}"; };
  auto two = [&](const std::string &a, const std::string &b) { return "{\"a\":" + a + ",\"b\":" + b + "}"; };
  const std::string whole = tensor("[2]", "[0,8]"), first = tensor("[1]", "[0,4]"), second = tensor("[1]", "[4,8]"),
                    none = tensor("[2,0]", "[4,4]");
  EXPECT_EQ(parseSafetensors(withHeader(one("[2]", "[0,8]"), std::string(8, '\0')), "t").size(), 1u);
  EXPECT_EQ(parseSafetensors(withHeader(two(second, first), std::string(8, '\0')), "t").size(), 2u);
  EXPECT_EQ(parseSafetensors(
                withHeader("{\"z\":" + none + ",\"a\":" + first + ",\"b\":" + second + "}", std::string(8, '\0')), "t")
                .size(),
            3u);
  EXPECT_EQ(parseSafetensors(withHeader(one("[4611686018427387904,4611686018427387904,0]", "[0,0]"), ""), "t").size(),
            1u);

  refused("does not fit the file", one("[2]", "[0,8]"), "1234567");
  refused("do not match its shape", one("[2]", "[0,4]"));
  refused("do not match its shape", one("[1]", "[0,8]"));
  refused("lie outside", one("[2]", "[8,0]"));
  refused("lie outside", one("[2]", "[4,12]"));
  refused("lie outside", one("[2]", "[0]"));
  refused("lie outside", one("[2]", "[0,8,8]"));
  refused("-8 in 'data_offsets'", one("[2]", "[-8,0]"));
  refused("8.0 in 'data_offsets'", one("[2]", "[0,8.0]"));
  refused("18446744073709551615 in 'data_offsets'", one("[2]", "[0,18446744073709551615]"));
  refused("-2 in 'shape'", one("[-2]", "[0,8]"));
  refused("2.5 in 'shape'", one("[2.5]", "[0,8]"));
  refused("true in 'shape'", one("[true,2]", "[0,8]"));
  refused("9223372036854775808 in 'shape'", one("[9223372036854775808]", "[0,8]"));
  refused("in 'shape'", one("[1e300]", "[0,8]"));
  refused("does not fit the file", one("[4611686018427387904,4]", "[0,0]"));
  refused("does not fit the file", one("[4294967296,4294967296]", "[0,0]"));
  refused("does not fit the file", one("[9223372036854775807]", "[0,8]"));
  refused("no list 'shape'", one("\"2\"", "[0,8]"));
  refused("no list 'data_offsets'", R"({"a":{"dtype":"F32","shape":[2]}})");
  refused("no list 'shape'", R"({"a":7})");
  refused("no string 'dtype'", R"({"a":{"shape":[2],"data_offsets":[0,8]}})");
  refused("no string 'dtype'", one("[2]", "[0,8]", "32"));
  refused("unknown type 'F8'", one("[8]", "[0,8]", "\"F8\""));
  refused("unknown type 'f32'", one("[2]", "[0,8]", "\"f32\""));
  refused("not a JSON object", "[1,2]");
  refused("its header:1:6: not JSON", "{\"a\":");
  refused("not JSON: unexpected '{'", one("[2]", "[0,8]") + "{}");
  refused("nested deeper than 64 levels", std::string(100000, '['));
  const auto deep = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  refused("'a' has [[[[[[[[[", one(deep(61), "[0,8]"));
  refused("a.shape[0]", one(deep(100000), "[0,8]"));
  refused(("'" + std::string(200, 'x') + "...' has no list 'shape'").c_str(),
          "{\"" + std::string(30000, 'x') + "\":7}");
  refused("'b' begin inside another", two(whole, second));
  refused("begin inside another", two(whole, whole));
  refused("4 bytes before 'b' belong to no tensor", two(first, tensor("[1]", "[8,12]")), std::string(12, '\0'));
  refused("4 bytes before 'a' belong to no tensor", one("[1]", "[4,8]"));
  refused("4 bytes follow the last tensor", one("[1]", "[0,4]"));
  refused("8 bytes follow the last tensor", "{}");
  refused("its header: a: given twice", "{\"a\":" + whole + ",\"a\":" + whole + "}");
  refused("its header: a.shape: given twice", R"({"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})");
  refused("__metadata__ is not", "{\"__metadata__\":3,\"a\":" + whole + "}");
  refused("'step' of its __metadata__ is not a string", "{\"__metadata__\":{\"step\":3},\"a\":" + whole + "}");

  const std::string huge(16, '\xFF');
  EXPECT_NE(
      errorOf([&] { parseSafetensors(huge, "t"); }).find("should have 18446744073709551615 bytes, but only 8 follow"),
      std::string::npos);
  EXPECT_NE(errorOf([&] { parseSafetensors("1234567", "t"); }).find("it has 7 bytes"), std::string::npos);
}

namespace {
class Weights : public FolderTest {
protected:
  Weights()
      : plan(serialize(bagModel())), image{XFC_ABI_VERSION, 6, "any", "", bagKernels, plan.data(), plan.size()},
        engine(cpuDevice(image), 1) {
    initializeParameters(engine, 3);
    tensors = written();
  }
  // The engine's parameters, written to a file and read back.
  Tensors written() {
    writeSafetensors(in("written"), weights(engine));
    return readSafetensors(in("written"));
  }
  float parameter(int64_t i) { return static_cast<float *>(engine.parameters())[i]; }
  std::vector<uint8_t> plan;
  xfc_image image;
  Engine engine;
  Tensors tensors;
};
} // namespace

TEST_F(Weights, ThereAndBack) {
  std::vector<float> before(static_cast<float *>(engine.parameters()),
                            static_cast<float *>(engine.parameters()) + engine.module().parameterElements);
  writeSafetensors(in("w"), weights(engine));
  initializeParameters(engine, 4);
  EXPECT_NE(parameter(5), before[5]);
  loadWeights(engine, in("w"));
  for (size_t i = 0; i < before.size(); ++i)
    ASSERT_EQ(parameter(i), before[i]);
}

// Whether the parameters lie in a mapping of this file.
static bool isMapped(Engine &engine, const std::string &file) {
  const auto place = reinterpret_cast<uintptr_t>(engine.parameters());
  for (const std::string &line : readLines("/proc/self/maps"))
    if (line.ends_with(file)) {
      char *rest;
      const uintptr_t begin = std::strtoull(line.c_str(), &rest, 16), end = std::strtoull(rest + 1, nullptr, 16);
      if (begin <= place && place < end)
        return true;
    }
  return false;
}

// A file written from weights() is memory-mapped in place; any other layout of the same numbers is copied.
TEST_F(Weights, LieInTheirFile) {
  auto values = [&](Engine &of) {
    const auto *begin = static_cast<const float *>(of.parameters());
    return std::vector<float>(begin, begin + 144);
  };
  const std::vector<float> want = values(engine);
  auto loaded = [&](const char *name, bool mapped) {
    Engine other(cpuDevice(image), 2);
    loadWeights(other, in(name));
    EXPECT_EQ(isMapped(other, in(name)), mapped) << name;
    EXPECT_EQ(values(other), want) << name;
    EXPECT_EQ(other.stateBytes(), 144 * 4) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(other.parameters()) % 64, 0u) << name;
  };
  writeSafetensors(in("own"), weights(engine), {{"step", "7"}});
  loaded("own", true);
  TensorViews views = weights(engine);
  std::swap(views[0], views[2]);
  writeSafetensors(in("other order"), views);
  loaded("other order", false);
  // Eight more blanks in the header.
  std::string contents = readFile(in("own"));
  uint64_t header;
  std::memcpy(&header, contents.data(), 8);
  contents.insert(8 + header, "        ");
  header += 8;
  std::memcpy(contents.data(), &header, 8);
  writeFile(in("not aligned"), contents);
  loaded("not aligned", false);
  std::vector<double> wide(want.begin(), want.begin() + 48);
  views = weights(engine);
  views[0].type = "F64";
  views[0].bytes = {reinterpret_cast<const char *>(wide.data()), 48 * 8};
  writeSafetensors(in("f64"), views);
  loaded("f64", false);

  // Writes to the parameters stay private, and the file may be replaced.
  loadWeights(engine, in("own"));
  static_cast<float *>(engine.parameters())[5] = 77;
  writeSafetensors(in("own"), TensorViews());
  EXPECT_EQ(parameter(5), 77);
  EXPECT_EQ(parameter(6), want[6]);
  fs::remove(in("own"));
  EXPECT_EQ(parameter(143), want[143]);
  initializeParameters(engine, 3);
  EXPECT_EQ(values(engine), want);
}

// The block's last cache line may exceed the file, and the file may end at a page boundary.
TEST_F(Weights, TheLastLineMayBeCut) {
  auto sizeWith = [&](int64_t columns) {
    Module odd = bagModel();
    odd.parameterElements = 96 + (columns + 15) / 16 * 16;
    odd.parameters[2].shape = {columns};
    const std::vector<uint8_t> bytes = serialize(odd);
    const xfc_image other{XFC_ABI_VERSION, 6, "any", "", bagKernels, bytes.data(), bytes.size()};
    Engine first(cpuDevice(other), 1), second(cpuDevice(other), 1);
    initializeParameters(first, 5);
    writeSafetensors(in("odd"), weights(first));
    loadWeights(second, in("odd"));
    EXPECT_TRUE(isMapped(second, in("odd")));
    const auto *a = static_cast<const float *>(first.parameters()),
               *b = static_cast<const float *>(second.parameters());
    EXPECT_EQ(std::vector<float>(a, a + 96 + columns), std::vector<float>(b, b + 96 + columns));
    // Kernels may read a vector beyond the block.
    volatile float sum = 0;
    for (int64_t i = 0; i < odd.parameterElements + 16; ++i)
      sum = sum + b[i];
    return static_cast<int64_t>(fs::file_size(in("odd")));
  };
  const int64_t size = sizeWith(1000);
  for (int64_t last : {0, 4, 60, 128, 3968, 3972, 4032, 4092}) // bytes in the last page
    EXPECT_EQ(sizeWith(1000 + (last - size % 4096 + 4096) % 4096 / 4) % 4096, last);
}

// No file has the layout of parameters with a gap before the next cache line.
TEST_F(Weights, GapsAreFilledByCopying) {
  Module gaps = bagModel();
  gaps.parameters[0].shape = {5};
  const std::vector<uint8_t> bytes = serialize(gaps);
  const xfc_image other{XFC_ABI_VERSION, 6, "any", "", bagKernels, bytes.data(), bytes.size()};
  Engine first(cpuDevice(other), 1), second(cpuDevice(other), 2);
  initializeParameters(first, 5);
  writeSafetensors(in("gaps"), weights(first));
  loadWeights(second, in("gaps"));
  EXPECT_FALSE(isMapped(second, in("gaps")));
  EXPECT_EQ(std::memcmp(first.parameters(), second.parameters(), 144 * 4), 0);
}

TEST_F(Weights, OtherTypesAndTiedNames) {
  auto convert = [&](const char *type, auto bits) {
    Tensors other = tensors;
    StoredTensor &tensor = other["decoder.embed.weight"];
    std::vector<float> values(48);
    for (int i = 0; i < 48; ++i)
      values[i] = static_cast<float>(i - 20) / 4; // exact in every type
    tensor.type = type;
    tensor.bytes.clear();
    for (float value : values) {
      auto raw = bits(value);
      const auto *begin = reinterpret_cast<const uint8_t *>(&raw);
      tensor.bytes.insert(tensor.bytes.end(), begin, begin + sizeof raw);
    }
    loadWeights(engine, viewsOf(other), "w");
    for (int i = 0; i < 48; ++i)
      EXPECT_EQ(parameter(48 + i), values[i]) << type;
  };
  convert("F64", [](float x) { return static_cast<double>(x); });
  convert("F32", [](float x) { return x; });
  convert("BF16", [](float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return static_cast<uint16_t>(bits >> 16);
  });
  convert("F16", [](float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    uint32_t exponent = bits >> 23 & 255;
    return static_cast<uint16_t>((bits >> 16 & 0x8000) | (exponent ? (exponent - 112) << 10 | (bits >> 13 & 1023) : 0));
  });

  Tensors tied = tensors;
  tied["source.weight"] = tied["encoder.embed.weight"];
  loadWeights(engine, viewsOf(tied), "w");
  tied.erase("encoder.embed.weight");
  loadWeights(engine, viewsOf(tied), "w");
  tied["encoder.embed.weight"] = tied["decoder.embed.weight"];
  EXPECT_NE(errorOf([&] { loadWeights(engine, viewsOf(tied), "w"); }).find("ties"), std::string::npos);
}

TEST_F(Weights, WhatIsWrongIsNamedAndNothingChanges) {
  const float before = parameter(7);
  auto refused = [&](const char *what, auto change) {
    Tensors other = tensors;
    other["encoder.embed.weight"] = floats({12, 4}, std::vector<float>(48, 9));
    change(other);
    std::string message = errorOf([&] { loadWeights(engine, viewsOf(other), "file.safetensors"); });
    EXPECT_NE(message.find("file.safetensors: '" + std::string(what)), std::string::npos) << message;
    EXPECT_EQ(parameter(7), before);
  };
  refused("output.weight", [](Tensors &t) { t.erase("output.weight"); });
  refused("output.weight", [](Tensors &t) { t["output.weight"].shape = {4, 12}; });
  refused("foreign", [](Tensors &t) { t["foreign"] = floats({1}, {1}); });
  refused("output.weight", [](Tensors &t) { t["output.weight"].type = "I32"; });
  for (float value : {std::nanf(""), INFINITY, -INFINITY})
    for (int place : {0, 20, 188})
      refused("output.weight", [&](Tensors &t) { std::memcpy(t["output.weight"].bytes.data() + place, &value, 4); });
  // Likewise for the other types: 1 in each is fine, an exponent of all ones is not.
  auto others = [](const char *type, auto one, auto bad) {
    return [=](Tensors &t) {
      const std::vector<decltype(one)> values(47, one);
      t["output.weight"].type = type;
      t["output.weight"].bytes.resize(48 * sizeof one);
      std::memcpy(t["output.weight"].bytes.data(), values.data(), 47 * sizeof one);
      std::memcpy(t["output.weight"].bytes.data() + 47 * sizeof one, &bad, sizeof bad);
    };
  };
  refused("output.weight", others("F64", 1.0, INFINITY * 1.0));
  refused("output.weight", others("F64", 1.0, std::nan("")));
  for (uint16_t bad : {0x7C00, 0xFC00, 0x7E01})
    refused("output.weight", others("F16", uint16_t(0x3C00), bad));
  for (uint16_t bad : {0x7F80, 0xFF80, 0x7F81})
    refused("output.weight", others("BF16", uint16_t(0x3F80), bad));
  // Also in a file with xfc's own layout, and with threads.
  static_cast<float *>(engine.parameters())[143] = NAN;
  writeSafetensors(in("nan"), weights(engine));
  Engine second(cpuDevice(image), 2);
  static_cast<float *>(second.parameters())[7] = 5;
  EXPECT_EQ(errorOf([&] { loadWeights(second, in("nan")); }),
            in("nan") + ": 'output.weight' holds NaN or infinity; the weights are damaged or training diverged");
  EXPECT_EQ(static_cast<float *>(second.parameters())[7], 5);
}

TEST_F(Weights, InitializationFollowsTheModel) {
  auto column = [&](int part) {
    initializeParameters(engine, 1);
    return std::vector<float>(static_cast<float *>(engine.parameters()) + 48 * part,
                              static_cast<float *>(engine.parameters()) + 48 * part + 48);
  };
  double scaled = 0, plain = 0, largest = 0;
  for (float x : column(0))
    scaled += x * x / 48;
  for (float x : column(1))
    plain += x * x / 48;
  for (float x : column(2))
    largest = std::max<double>(largest, std::abs(x));
  const double bound = std::sqrt(6.0 / 16);
  EXPECT_NEAR(scaled, 0.25, 0.15);
  EXPECT_NEAR(plain, 1, 0.6);
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.8 * bound);
  // The order of the parameters does not matter, but their names do.
  Module swapped = bagModel();
  std::swap(swapped.parameters[0].name, swapped.parameters[1].name);
  std::swap(swapped.parameters[0].init, swapped.parameters[1].init);
  std::vector<uint8_t> bytes = serialize(swapped);
  xfc_image other{XFC_ABI_VERSION, 6, "any", "", bagKernels, bytes.data(), bytes.size()};
  Engine second(cpuDevice(other), 1);
  initializeParameters(second, 1);
  EXPECT_EQ(static_cast<float *>(second.parameters())[48], column(0)[0]);
  EXPECT_NE(column(0)[0], column(1)[0]);
}

// Files written by train identify their model and carry checksums; every changed bit is detected.
TEST_F(Safetensors, ChangedBitsAreRefused) {
  Tensors tensors = {{"b", floats({2, 3}, {1, 2, 3, 4, 5, -6})}, {"a", floats({40000}, std::vector<float>(40000, 2))}};
  writeSafetensors(in("t"), viewsOf(tensors), {{"step", "12"}});
  const std::string whole = readFile(in("t"));
  uint64_t header;
  std::memcpy(&header, whole.data(), 8);
  for (size_t at : {size_t(20), whole.find("crc32c") + 3, 8 + header, 8 + header + 70000, whole.size() - 1})
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 1 << bit);
      writeFile(in("changed"), changed);
      EXPECT_NE(errorOf([&] { readSafetensors(in("changed")); }), "no error") << at << ", " << bit;
    }
  // A header with another step.
  std::string changed = whole;
  changed.replace(changed.find("\"12\""), 4, "\"13\"");
  writeFile(in("changed"), changed);
  EXPECT_NE(errorOf([&] { readSafetensors(in("changed")); }).find("damaged: its header"), std::string::npos);
}

// A number that is not finite is found wherever it lies in a tensor, which has several blocks of checksums and ends
// with numbers that fill no vector.
TEST_F(Safetensors, NotFiniteNumbersAreFoundEverywhere) {
  struct Type {
    const char *name;
    int64_t bytes;
    uint64_t infinity, nan, largest; // their bits
  };
  for (const Type &type : {Type{"F32", 4, 0x7F800000, 0xFFC00001, 0x7F7FFFFF},
                           {"F64", 8, 0x7FF0000000000000, 0xFFF0000000000001, 0x7FEFFFFFFFFFFFFF},
                           {"F16", 2, 0x7C00, 0xFC01, 0x7BFF},
                           {"BF16", 2, 0x7F80, 0xFF81, 0x7F7F}}) {
    const int64_t count = 5 * 65536 / type.bytes + 35;
    Tensors tensors = {{"t", {type.name, {count}, std::vector<uint8_t>(count * type.bytes)}}};
    uint8_t *const bytes = tensors.at("t").bytes.data();
    auto set = [&](int64_t at, uint64_t bits) { std::memcpy(bytes + at * type.bytes, &bits, type.bytes); };
    for (int64_t i = 0; i < count; ++i)
      set(i, type.largest);
    const TensorViews views = viewsOf(tensors);
    ThreadPool pool(2);
    EXPECT_EQ(notFinite(&pool, views), nullptr) << type.name;
    writeSafetensors(in("t"), views);
    Metadata metadata;
    readSafetensors(in("t"), &metadata);
    EXPECT_EQ(errorOf([&] { verifyWeights(&pool, {&views[0]}, metadata, "t"); }), "no error") << type.name;
    const Metadata unsummed;
    for (int64_t at : {int64_t(0), int64_t(1), int64_t(7), int64_t(500), int64_t(1023), count / 5, count / 2,
                       3 * count / 4, count - 36, count - 35, count - 2, count - 1})
      for (uint64_t bits : {type.infinity, type.nan}) {
        set(at, bits);
        EXPECT_EQ(notFinite(&pool, views), &views[0]) << type.name << " " << at;
        EXPECT_NE(errorOf([&] { verifyWeights(&pool, {&views[0]}, unsummed, "t"); }).find("holds NaN or infinity"),
                  std::string::npos)
            << type.name << " " << at;
        writeSafetensors(in("t"), views);
        readSafetensors(in("t"), &metadata);
        EXPECT_NE(errorOf([&] { verifyWeights(&pool, {&views[0]}, metadata, "t"); }).find("holds NaN or infinity"),
                  std::string::npos)
            << type.name << " " << at;
        set(at, type.largest);
      }
  }
}

TEST_F(Safetensors, WrittenInTheMemoryOfTheTensors) {
  Tensors tensors = {{"a", floats({1 << 20}, std::vector<float>(1 << 20, 1))}};
  const int64_t before = allocatedBytes;
  writeSafetensors(in("t"), viewsOf(tensors));
  EXPECT_LT(allocatedBytes - before, 100000);
}

TEST_F(Safetensors, WeightsOfAnotherModelAreRefused) {
  Module relu, gelu;
  relu.model = "one", relu.hash = "aaaa";
  relu.description =
      R"({"format":"xfc-model/1","name":"one","params":{"dropout":0.1},"head":[{"op":"relu"},{"op":"dropout","rate":0.1}]})";
  gelu.model = "two", gelu.hash = "bbbb";
  gelu.description =
      R"({"format":"xfc-model/1","name":"two","params":{"dropout":0.2},"head":[{"op":"gelu"},{"op":"dropout","rate":0.2}]})";
  const std::string message = errorOf([&] { checkModel(identityOf(relu), gelu, "w"); });
  EXPECT_NE(
      message.find("w: these are weights of the model 'one' (hash aaaa), but this executable is of 'two' (hash bbbb): "
                   "head[0].op is \"relu\" there and \"gelu\" here"),
      std::string::npos)
      << message;
  EXPECT_NE(errorOf([&] { checkModel(identityOf(relu), gelu, "w", "libtwo.so"); })
                .find("but libtwo.so is of 'two' (hash bbbb): head[0].op is \"relu\" there and \"gelu\" here; use the "
                      "library of their model, or --force-model"),
            std::string::npos);
  // With another name, dropout or search settings, the weights still mean the same.
  gelu.description =
      R"({"format":"xfc-model/1","name":"two","params":{"dropout":0.2},"generation":{"beam":4},"head":[{"op":"relu"},{"op":"dropout","rate":0.2}]})";
  EXPECT_EQ(errorOf([&] { checkModel(identityOf(relu), gelu, "w"); }), "no error");
  gelu.description = R"({"format":"xfc-model/1","name":"two","params":{"dropout":0.2},"head":[{"op":"relu"}]})";
  EXPECT_NE(errorOf([&] { checkModel(identityOf(relu), gelu, "w"); }), "no error");
  EXPECT_EQ(errorOf([&] { checkModel({{"format", "xfc"}, {"model", "one"}}, gelu, "w"); }), "no error");
}
