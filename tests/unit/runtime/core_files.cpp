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
#include <sys/stat.h>
#include <thread>
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
  const auto *bytes = reinterpret_cast<const uint8_t *>(values.data());
  std::copy(bytes, bytes + tensor.bytes.size(), tensor.bytes.begin());
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

// What is written to may be no file of its own.
TEST_F(CoreFiles, LinksPermissionsDevicesAndPipes) {
  writeFile(in("real"), "one");
  fs::permissions(in("real"), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("real", in("link"));
  checkWritable(in("link"));
  writeFile(in("link"), "two");
  EXPECT_TRUE(fs::is_symlink(in("link")));
  EXPECT_EQ(readFile(in("real")), "two");
  EXPECT_EQ(fs::status(in("real")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  writeFile(in("program"), "three", true);
  EXPECT_NE(fs::status(in("program")).permissions() & fs::perms::owner_exec, fs::perms::none);

  checkWritable("/dev/null");
  writeFile("/dev/null", "four");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_NE(errorOf([&] { writeFile("/dev/full", "five"); }).find("/dev/full: cannot write: No space"),
            std::string::npos);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));

  ASSERT_EQ(mkfifo(in("pipe").c_str(), 0600), 0);
  checkWritable(in("pipe"));
  std::thread writer([&] { writeFile(in("pipe"), std::string(100000, 'x')); });
  const std::string through = readFile(in("pipe"));
  writer.join();
  EXPECT_EQ(through, std::string(100000, 'x'));
  EXPECT_TRUE(fs::is_fifo(in("pipe")));
}

TEST_F(CoreFiles, WhatCannotBeWrittenIsKnownBefore) {
  writeFile(in("kept"), "before");
  checkWritable(in("kept"));
  checkWritable(in("new"));
  EXPECT_EQ(readFile(in("kept")), "before");
  EXPECT_FALSE(exists(in("new")));
  EXPECT_EQ(errorOf([&] { checkWritable(in("none/new")); }),
            in("none/new") + ": cannot write: No such file or directory");
  EXPECT_EQ(errorOf([&] { checkWritable(folder); }), folder + ": cannot write: Is a directory");
  EXPECT_EQ(errorOf([&] { writeFile(folder, "x"); }), folder + ": cannot write: Is a directory");
}

TEST_F(CoreFiles, LinesAndUtf8) {
  writeFile(in("lines"), "one\r\nzwei\n\nd\xC3\xA9j\xC3\xA0 \xF0\x9F\x98\x80");
  EXPECT_EQ(readLines(in("lines")),
            (std::vector<std::string>{"one", "zwei", "", "d\xC3\xA9j\xC3\xA0 \xF0\x9F\x98\x80"}));
  for (const char *bad :
       {"\xC3", "\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\x80", "\xE0\x9F\xBF"}) {
    writeFile(in("bad"), std::string("fine\nab") + bad + "\n");
    std::string message = errorOf([&] { readLines(in("bad")); });
    EXPECT_NE(message.find("bad:2: byte 3"), std::string::npos) << message;
  }
}

TEST_F(CoreFiles, Mapped) {
  const std::string text(10000, 'x');
  writeFile(in("a"), "12345678" + text);
  MappedFile whole(in("a")), part(in("a"), 5000, 3), none(in("a"), 4096, 0);
  EXPECT_EQ(whole.contents(), "12345678" + text);
  EXPECT_EQ(part.contents(), "xxx");
  EXPECT_EQ(none.contents(), "");
  MappedFile moved(std::move(whole));
  EXPECT_EQ(moved.contents().substr(0, 9), "12345678x");
  // Another file of the same name does not matter.
  writeFile(in("a"), "other");
  EXPECT_EQ(moved.contents(), "12345678" + text);
  EXPECT_EQ(MappedFile(in("a")).contents(), "other");
  for (size_t size : {0, 1, 4095, 4096, 4097}) { // 128 bytes can be read behind the end
    writeFile(in("b"), std::string(size, 'y'));
    MappedFile file(in("b"));
    EXPECT_EQ(file.contents(), std::string(size, 'y'));
    for (size_t i = 0; i < 128; ++i)
      EXPECT_EQ(file.contents().data()[size + i], 0) << size << " " << i;
  }
  // A pipe has no pages, and is read.
  ASSERT_EQ(mkfifo(in("pipe").c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(in("pipe")) << text; });
  EXPECT_EQ(MappedFile(in("pipe")).contents(), text);
  writer.join();
  EXPECT_EQ(errorOf([&] { MappedFile file(in("nothing")); }),
            in("nothing") + ": cannot open: No such file or directory");
  EXPECT_EQ(errorOf([&] { MappedFile file(folder); }), folder + ": cannot read: Is a directory");
}

TEST_F(CoreFiles, AFileThatIsCutOffInUseIsAnError) {
  writeFile(in("a"), std::string(100000, 'x'));
  auto use = [&] {
    MappedFile file(in("a"));
    fs::resize_file(in("a"), 50000);
    volatile char last = file.contents().back();
    (void)last;
  };
  EXPECT_EXIT(use(), testing::ExitedWithCode(1), "error: a file was cut off while it was in use");
}

TEST_F(CoreFiles, SafetensorsAndBack) {
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
  EXPECT_NE(
      errorOf([&] { parseSafetensors(huge, "t"); }).find("should have 18446744073709551615 bytes, but only 8 follow"),
      std::string::npos);
  EXPECT_NE(errorOf([&] { parseSafetensors("1234567", "t"); }).find("it has 7 bytes"), std::string::npos);
}

namespace {
class Weights : public CoreFiles {
protected:
  Weights()
      : plan(serialize(bagModel())), image{XFC_ABI_VERSION, 6, "any", "", bagKernels, plan.data(), plan.size()},
        engine(image, 1) {
    initializeParameters(engine, 3);
    tensors = written();
  }
  // The engine's parameters, by way of a file.
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

// Whether the parameters lie in a mapping of the file.
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

// A file that `weights` gave is used where it lies; whatever else holds the same numbers is copied.
TEST_F(Weights, LieInTheirFile) {
  auto values = [&](Engine &of) {
    const auto *begin = static_cast<const float *>(of.parameters());
    return std::vector<float>(begin, begin + 144);
  };
  const std::vector<float> want = values(engine);
  auto loaded = [&](const char *name, bool mapped) {
    Engine other(image, 2);
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
  // Eight blanks more in the header.
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

  // What is written to the parameters stays here, and what happens to the file's name does not matter.
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

// The block's last line may be longer than the file, and the file may end with a page.
TEST_F(Weights, TheLastLineMayBeCut) {
  auto sizeWith = [&](int64_t columns) {
    Module odd = bagModel();
    odd.parameterElements = 96 + (columns + 15) / 16 * 16;
    odd.parameters[2].shape = {columns};
    const std::vector<uint8_t> bytes = serialize(odd);
    const xfc_image other{XFC_ABI_VERSION, 6, "any", "", bagKernels, bytes.data(), bytes.size()};
    Engine first(other, 1), second(other, 1);
    initializeParameters(first, 5);
    writeSafetensors(in("odd"), weights(first));
    loadWeights(second, in("odd"));
    EXPECT_TRUE(isMapped(second, in("odd")));
    const auto *a = static_cast<const float *>(first.parameters()),
               *b = static_cast<const float *>(second.parameters());
    EXPECT_EQ(std::vector<float>(a, a + 96 + columns), std::vector<float>(b, b + 96 + columns));
    // Kernels may read a vector past the block.
    volatile float sum = 0;
    for (int64_t i = 0; i < odd.parameterElements + 16; ++i)
      sum = sum + b[i];
    return static_cast<int64_t>(fs::file_size(in("odd")));
  };
  const int64_t size = sizeWith(1000);
  for (int64_t last : {0, 4, 60, 128, 3968, 3972, 4032, 4092}) // bytes in the last page
    EXPECT_EQ(sizeWith(1000 + (last - size % 4096 + 4096) % 4096 / 4) % 4096, last);
}

// Parameters with a gap before another line of the cache have no file that lies as they do.
TEST_F(Weights, GapsAreFilledByCopying) {
  Module gaps = bagModel();
  gaps.parameters[0].shape = {5};
  const std::vector<uint8_t> bytes = serialize(gaps);
  const xfc_image other{XFC_ABI_VERSION, 6, "any", "", bagKernels, bytes.data(), bytes.size()};
  Engine first(other, 1), second(other, 2);
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
  // The same of the other types: 1 in each is fine, an exponent of ones is not.
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
  // In a file of our own too, and with threads.
  static_cast<float *>(engine.parameters())[143] = NAN;
  writeSafetensors(in("nan"), weights(engine));
  Engine second(image, 2);
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
