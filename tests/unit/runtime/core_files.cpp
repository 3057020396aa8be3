// Files: whole or not at all, and what is refused.
#include "core/Files.h"
#include "core/Safetensors.h"
#include "core_model.h"
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace xfc;
namespace fs = std::filesystem;

namespace {

class CoreFiles : public testing::Test {
protected:
  CoreFiles() {
    std::string pattern = testing::TempDir() + "xfc-core-XXXXXX";
    folder = mkdtemp(pattern.data());
  }
  ~CoreFiles() override { fs::remove_all(folder); }
  std::string in(const std::string &name) const { return folder + "/" + name; }
  // The message of the Error that `run` throws.
  template <typename Run> static std::string errorOf(Run run) {
    try {
      run();
    } catch (const Error &error) {
      return error.what();
    }
    return "no error";
  }
  std::string folder;
};

StoredTensor floats(std::vector<int64_t> shape, std::vector<float> values) {
  StoredTensor tensor{"F32", std::move(shape), std::vector<uint8_t>(values.size() * 4)};
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

std::string withHeader(const std::string &header, const std::string &data) {
  uint64_t size = header.size();
  return std::string(reinterpret_cast<const char *>(&size), 8) + header + data;
}

} // namespace

TEST_F(CoreFiles, WrittenWholeAndReplaced) {
  writeFile(in("a"), "one");
  writeFile(in("a"), std::string("t\0wo", 4));
  EXPECT_EQ(readFile(in("a")), std::string("t\0wo", 4));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
  makeFolder(in("x/y/z"));
  makeFolder(in("x/y/z"));
  EXPECT_TRUE(exists(in("x/y/z")));
  EXPECT_NE(errorOf([&] { makeFolder(in("a/b")); }).find("/a: cannot make the folder"), std::string::npos);
  EXPECT_NE(errorOf([&] { readFile(in("none")); }).find("No such file"), std::string::npos);
  EXPECT_NE(errorOf([&] { readFile(folder); }).find("directory"), std::string::npos);
}

TEST_F(CoreFiles, AFailedWriteLeavesWhatWasThere) {
  writeFile(in("kept"), "before");
  EXPECT_NE(errorOf([&] { writeFile(in("none/kept"), "x"); }).find("none/kept"), std::string::npos);
  EXPECT_NE(errorOf([&] { writeFile("/proc/xfc", "x"); }).find("/proc/xfc"), std::string::npos);

  // A full disk, as a limit on the size of files.
  auto *ignored = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{}, small{};
  getrlimit(RLIMIT_FSIZE, &limit);
  small = {4096, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message = errorOf([&] { writeFile(in("kept"), std::string(100000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, ignored);
  EXPECT_NE(message.find("kept: cannot write"), std::string::npos) << message;
  EXPECT_EQ(readFile(in("kept")), "before");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(CoreFiles, LinesAndUtf8) {
  writeFile(in("lines"), "one\r\nzwei\n\nd\xC3\xA9j\xC3\xA0 \xF0\x9F\x98\x80");
  EXPECT_EQ(readLines(in("lines")), (std::vector<std::string>{"one", "zwei", "", "d\xC3\xA9j\xC3\xA0 \xF0\x9F\x98\x80"}));
  for (const char *bad : {"\xC3", "\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\x80", "\xE0\x9F\xBF"}) {
    writeFile(in("bad"), std::string("fine\nab") + bad + "\n");
    std::string message = errorOf([&] { readLines(in("bad")); });
    EXPECT_NE(message.find("bad:2: byte 3"), std::string::npos) << message;
  }
}

TEST_F(CoreFiles, SafetensorsAndBack) {
  Tensors tensors = {{"b", floats({2, 3}, {1, 2, 3, 4, 5, -6})}, {"a", floats({}, {7})}, {"none", floats({0, 4}, {})}};
  tensors["ids"] = {"I32", {2}, {1, 0, 0, 0, 2, 0, 0, 0}};
  writeSafetensors(in("t"), tensors, {{"step", "12"}});
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
  EXPECT_EQ(header % 8, 0u);

  const std::string whole = readFile(in("t"));
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(parseSafetensors(std::string_view(whole).substr(0, size), "t"), Error) << size;
}

TEST_F(CoreFiles, BrokenSafetensors) {
  auto refused = [](const char *why, const std::string &header, const std::string &data = std::string(8, '\0')) {
    std::string message = errorOf([&] { parseSafetensors(withHeader(header, data), "t"); });
    EXPECT_EQ(message.rfind("t: not a whole safetensors file: ", 0), 0u) << header << ": " << message;
    EXPECT_NE(message.find(why), std::string::npos) << header << ": " << message;
  };
  auto tensor = [](const std::string &shape, const std::string &offsets, const std::string &type = "\"F32\"") {
    return "{\"dtype\":" + type + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  auto one = [&](auto... parts) { return "{\"a\":" + tensor(parts...) + "}"; };
  auto two = [&](const std::string &a, const std::string &b) { return "{\"a\":" + a + ",\"b\":" + b + "}"; };
  const std::string whole = tensor("[2]", "[0,8]"), first = tensor("[1]", "[0,4]"), second = tensor("[1]", "[4,8]"), none = tensor("[2,0]", "[4,4]");
  EXPECT_EQ(parseSafetensors(withHeader(one("[2]", "[0,8]"), std::string(8, '\0')), "t").size(), 1u);
  EXPECT_EQ(parseSafetensors(withHeader(two(second, first), std::string(8, '\0')), "t").size(), 2u);
  EXPECT_EQ(parseSafetensors(withHeader("{\"z\":" + none + ",\"a\":" + first + ",\"b\":" + second + "}", std::string(8, '\0')), "t").size(), 3u);
  EXPECT_EQ(parseSafetensors(withHeader(one("[4611686018427387904,4611686018427387904,0]", "[0,0]"), ""), "t").size(), 1u);

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
  refused("not a JSON object", "{\"a\":");
  refused("not a JSON object", one("[2]", "[0,8]") + "{}");
  refused("not a JSON object", std::string(100000, '['));
  refused("'b' begin inside another", two(whole, second));
  refused("begin inside another", two(whole, whole));
  refused("4 bytes before 'b' belong to no tensor", two(first, tensor("[1]", "[8,12]")), std::string(12, '\0'));
  refused("4 bytes before 'a' belong to no tensor", one("[1]", "[4,8]"));
  refused("4 bytes follow the last tensor", one("[1]", "[0,4]"));
  refused("8 bytes follow the last tensor", "{}");
  refused("'a' twice", "{\"a\":" + whole + ",\"a\":" + whole + "}");
  refused("'shape' twice", R"({"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})");
  refused("__metadata__ is not", "{\"__metadata__\":3,\"a\":" + whole + "}");
  refused("'step' of its __metadata__ is not a string", "{\"__metadata__\":{\"step\":3},\"a\":" + whole + "}");

  const std::string huge(16, '\xFF');
  EXPECT_NE(errorOf([&] { parseSafetensors(huge, "t"); }).find("should have 18446744073709551615 bytes, but only 8 follow"), std::string::npos);
  EXPECT_NE(errorOf([&] { parseSafetensors("1234567", "t"); }).find("it has 7 bytes"), std::string::npos);
}

namespace {
class Weights : public CoreFiles {
protected:
  Weights() : plan(serialize(bagModel())), image{XFC_ABI_VERSION, 6, "any", "", bagKernels, plan.data(), plan.size()}, engine(image, 1) {
    initializeParameters(engine, 3);
    tensors = weights(engine);
  }
  float parameter(int64_t i) { return static_cast<float *>(engine.parameters())[i]; }
  std::vector<uint8_t> plan;
  xfc_image image;
  Engine engine;
  Tensors tensors;
};
} // namespace

TEST_F(Weights, ThereAndBack) {
  std::vector<float> before(static_cast<float *>(engine.parameters()), static_cast<float *>(engine.parameters()) + engine.module().parameterElements);
  writeSafetensors(in("w"), tensors);
  initializeParameters(engine, 4);
  EXPECT_NE(parameter(5), before[5]);
  loadWeights(engine, in("w"));
  for (size_t i = 0; i < before.size(); ++i)
    ASSERT_EQ(parameter(i), before[i]);
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
    loadWeights(engine, other, "w");
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
  loadWeights(engine, tied, "w");
  tied.erase("encoder.embed.weight");
  loadWeights(engine, tied, "w");
  tied["encoder.embed.weight"] = tied["decoder.embed.weight"];
  EXPECT_NE(errorOf([&] { loadWeights(engine, tied, "w"); }).find("ties"), std::string::npos);
}

TEST_F(Weights, WhatIsWrongIsNamedAndNothingChanges) {
  const float before = parameter(7);
  auto refused = [&](const char *what, auto change) {
    Tensors other = tensors;
    other["encoder.embed.weight"] = floats({12, 4}, std::vector<float>(48, 9));
    change(other);
    std::string message = errorOf([&] { loadWeights(engine, other, "file.safetensors"); });
    EXPECT_NE(message.find("file.safetensors: '" + std::string(what)), std::string::npos) << message;
    EXPECT_EQ(parameter(7), before);
  };
  refused("output.weight", [](Tensors &t) { t.erase("output.weight"); });
  refused("output.weight", [](Tensors &t) { t["output.weight"].shape = {4, 12}; });
  refused("foreign", [](Tensors &t) { t["foreign"] = floats({1}, {1}); });
  refused("output.weight", [](Tensors &t) { t["output.weight"].type = "I32"; });
  for (float value : {std::nanf(""), INFINITY})
    refused("output.weight", [&](Tensors &t) { std::memcpy(t["output.weight"].bytes.data() + 20, &value, 4); });
}

TEST_F(Weights, InitializationFollowsTheModel) {
  auto column = [&](int part) {
    initializeParameters(engine, 1);
    return std::vector<float>(static_cast<float *>(engine.parameters()) + 48 * part, static_cast<float *>(engine.parameters()) + 48 * part + 48);
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
  // The order of the parameters does not matter, their names do.
  Module swapped = bagModel();
  std::swap(swapped.parameters[0].name, swapped.parameters[1].name);
  std::swap(swapped.parameters[0].init, swapped.parameters[1].init);
  std::vector<uint8_t> bytes = serialize(swapped);
  xfc_image other{XFC_ABI_VERSION, 6, "any", "", bagKernels, bytes.data(), bytes.size()};
  Engine second(other, 1);
  initializeParameters(second, 1);
  EXPECT_EQ(static_cast<float *>(second.parameters())[48], column(0)[0]);
  EXPECT_NE(column(0)[0], column(1)[0]);
}
