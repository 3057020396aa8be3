// Reads the file formats of other programs' models: complete files are read, and no truncated one is taken for
// complete.
#include "Foreign/Ctranslate2Model.h"
#include "Foreign/Npz.h"
#include "Foreign/Yaml.h"
#include "Foreign/Zip.h"
#include "bytes.h"
#include "runtime/folder.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include <cstring>
#include <functional>
#include <gtest/gtest.h>

using namespace xfc;
using Shape = std::vector<int64_t>;

namespace {

std::string errorOf(const std::function<void()> &run) {
  try {
    run();
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

// Every proper prefix is refused with an Error, without any other failure.
void expectTruncatedRefused(const std::string &whole, const std::function<void(const std::string &)> &read) {
  read(whole);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string part = whole.substr(0, size); // a copy, so that a sanitizer detects reads past its end
    EXPECT_NE(errorOf([&] { read(part); }), "no error") << size << " of " << whole.size() << " bytes";
  }
}

TEST(Npy, HeadersSayTypeAndShape) {
  const TensorView matrix =
      parseNpy(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n", std::string(24, 'x')), "m", "f");
  EXPECT_EQ(matrix.type, "F32");
  EXPECT_EQ(matrix.shape, (Shape{2, 3}));
  EXPECT_EQ(matrix.bytes.size(), 24u);
  EXPECT_EQ(parseNpy(npy("{'descr': '|i1', 'fortran_order': True, 'shape': (5,), }", "12345"), "v", "f").bytes,
            "12345");
  EXPECT_EQ(parseNpy(npy("{'shape': (), 'fortran_order': False, 'descr': '<f8'}", std::string(8, 'x')), "s", "f").shape,
            Shape());
  expectTruncatedRefused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", "12345678"),
                         [](const std::string &part) { parseNpy(part, "m", "f"); });
}

TEST(Npy, WhatIsNoMatrixOfNumbersIsRefused) {
  const auto error = [](const std::string &header, const std::string &data = "") {
    return errorOf([&] { parseNpy(npy(header, data), "m", "f: 'm'"); });
  };
  EXPECT_EQ(error("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }").substr(0, 50),
            "f: 'm': is an array of Python objects, a pickle, w");
  EXPECT_EQ(error("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "1234"),
            "f: 'm': has the type '>f4'; expected little-endian numbers, '<f4' for weights");
  EXPECT_EQ(error("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1), }", "1234"),
            "f: 'm': is stored by columns (fortran_order); expected storage by rows");
  EXPECT_EQ(error("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234"),
            "f: 'm': is an array of records; expected numbers");
  EXPECT_EQ(error("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000000000, 1000000000), }", "1234"),
            "f: 'm': its header says [1000000000, 1000000000, 1000000000] of '<f4', but 4 bytes follow");
  for (const char *header : {"", "{", "{'shape': (1,)}", "{'descr': '<f4'}", "{'descr': '<f4', 'shape': (-1,)}",
                             "{'descr': '<f4', 'shape': (1}", "{'descr': '<f4', 'shape': (1,)} x", "{'more': 1}",
                             "{'descr': '<f4', 'shape': (99999999999999999999,)}"})
    EXPECT_NE(error(header, "1234").find("its header is not a valid array header"), std::string::npos) << header;
}

std::map<std::string, std::string> unzipped(const std::string &contents) {
  const Zip archive(contents, "f.npz");
  std::map<std::string, std::string> files;
  for (const auto &[name, member] : archive.members()) {
    std::string room;
    files[name] = archive.read(name, room);
  }
  return files;
}

TEST(Zip, MembersAreStoredOrDeflated) {
  const std::map<std::string, std::string> wanted = {
      {"a", "stored"}, {"b", "deflated"}, {"c", ""}, {"d", "wide"}, {"e", ""}};
  const std::string whole =
      zip({{"a", "stored"}, {"b", "deflated", true}, {"c", ""}, {"d", "wide", true, true}, {"e", "", true}},
          "a comment, PK\x05\x06 in it");
  EXPECT_EQ(unzipped(whole), wanted);
  expectTruncatedRefused(whole, [](const std::string &part) { unzipped(part); });
  // A changed byte may be one that is not needed, but it never changes what is read.
  for (size_t at = 0; at < whole.size(); ++at)
    for (const int bit : {1, 128}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ bit);
      std::map<std::string, std::string> found;
      errorOf([&] { found = unzipped(changed); });
      for (const auto &[name, contents] : found) {
        if (wanted.contains(name)) {
          EXPECT_EQ(contents, wanted.at(name)) << at;
        }
      }
    }
}

TEST(Zip, WhatIsNoWholeArchiveIsRefused) {
  const auto error = [](const std::string &contents) { return errorOf([&] { unzipped(contents); }); };
  const std::string end = "; use an intact copy";
  EXPECT_EQ(error(zip({{"a", "1"}, {"a", "2"}})), "f.npz: damaged zip archive: 'a' appears twice" + end);
  EXPECT_EQ(error(zip({{"a", "1", true, false, 1000000000}})),
            "f.npz: damaged zip archive: 'a' cannot have the 1000000000 bytes that its directory says" + end);
  EXPECT_EQ(error(zip({{"a", "12345678", true, false, 9}})),
            "f.npz: damaged zip archive: 'a' does not decompress to the size that its directory says" + end);
  std::string changed = zip({{"a", "12345678"}});
  changed[changed.find("1234")] = '0';
  EXPECT_EQ(error(changed), "f.npz: damaged zip archive: the bytes of 'a' do not match their checksum" + end);
  std::string secret = zip({{"a", "1"}});
  secret[secret.find("PK\x01\x02") + 8] = 1;
  EXPECT_EQ(error(secret), "f.npz: 'a' is encrypted; expected an archive without encryption");
  std::string method = zip({{"a", "1"}});
  method[method.find("PK\x01\x02") + 10] = 12;
  EXPECT_EQ(error(method), "f.npz: 'a' is compressed with method 12; expected a file that is stored or deflated");
  EXPECT_EQ(error(std::string(100, 'x')),
            "f.npz: damaged zip archive: it has 100 bytes and no directory at its end" + end);
}

// Sets the place that the directory gives for a member.
std::string movedTo(std::string contents, size_t member, uint32_t place) {
  size_t entry = contents.find("PK\x01\x02");
  for (; member > 0; --member)
    entry = contents.find("PK\x01\x02", entry + 1);
  return contents.replace(entry + 42, 4, u32(place));
}

TEST(Zip, MembersThatShareBytesAreRefused) {
  const auto error = [](const std::string &contents) { return errorOf([&] { unzipped(contents); }); };
  const std::string before = "f.npz: damaged zip archive: ", end = "; use an intact copy";
  // Two names for the same bytes, as an archive has that decompresses to far more than its size.
  const std::string same = zip({{"a", "12345678"}, {"b", "12345678"}});
  EXPECT_EQ(error(movedTo(same, 1, 0)), before + "'a' and 'b' overlap" + end);
  // The contents of one are the whole other one.
  const std::string other = zip({{"i", "inner"}});
  const std::string inner = other.substr(0, other.find("PK\x01\x02"));
  const std::string nested = zip({{"o", "x" + inner + "x"}, {"i", "inner"}});
  ASSERT_EQ(unzipped(nested).at("i"), "inner");
  EXPECT_EQ(error(movedTo(nested, 1, static_cast<uint32_t>(nested.find(inner)))), before + "'o' and 'i' overlap" + end);
  // A member that begins in the directory, or reaches into it.
  const size_t directory = same.find("PK\x01\x02");
  EXPECT_EQ(error(movedTo(same, 1, static_cast<uint32_t>(directory))),
            before + "'b' is not where its directory says" + end);
  std::string longer = same;
  for (const size_t field : {20, 24}) // its size in the archive, and that of the file
    longer.replace(longer.find("PK\x01\x02", directory + 1) + field, 4, u32(9));
  EXPECT_EQ(error(longer), before + "'b' lies outside it" + end);
}

class NpzFile : public FolderTest {};

TEST_F(NpzFile, ArraysAreFoundByName) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
  writeFile(in("a.npz"), zip({{"x.npy", npy(header, "12345678")}, {"special:y.npy", npy(header, "abcdefgh"), true}}));
  Npz arrays(in("a.npz"));
  ASSERT_EQ(arrays.arrays().size(), 2u);
  EXPECT_EQ(arrays.find("x")->shape, Shape{2});
  EXPECT_EQ(arrays.find("z"), nullptr);
  EXPECT_EQ(arrays.read("x").bytes, "12345678");
  EXPECT_EQ(arrays.read("special:y").bytes, "abcdefgh");
  arrays.release("special:y");
  EXPECT_EQ(arrays.read("special:y").bytes, "abcdefgh");
  writeFile(in("a.npz"), zip({{"x", "1"}}));
  EXPECT_EQ(errorOf([&] { Npz bad(in("a.npz")); }),
            in("a.npz") + ": 'x' is not an array; expected .npy files, as numpy.savez writes them");
}

TEST_F(NpzFile, NothingIsDecompressedBeforeItIsRead) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
  std::string contents = zip({{"x.npy", npy(header, "12345678"), true}});
  contents[contents.find("PK\x01\x02") + 16] ^= 1; // the checksum of the whole array
  Npz arrays(contents, "f.npz");
  EXPECT_EQ(arrays.find("x")->shape, Shape{2});
  EXPECT_EQ(errorOf([&] { arrays.read("x"); }),
            "f.npz: damaged zip archive: the bytes of 'x.npy' do not match their checksum; use an intact copy");
}

TEST_F(NpzFile, LongHeadersAreRefused) {
  const std::string header =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }" + std::string(70000, ' ') + "\n";
  std::string array =
      "\x93NUMPY" + std::string("\2\0", 2) + u32(static_cast<uint32_t>(header.size())) + header + "1234";
  EXPECT_EQ(errorOf([&] { Npz bad(zip({{"x.npy", array}}), "f.npz"); }),
            "f.npz: 'x': has a header of " + std::to_string(header.size()) + " bytes; expected at most 65535");
}

// A file in this version of the format with one variable [2, 3] of one byte per element, one scalar, and an alias.
std::string ctranslate2(uint32_t version) {
  std::string contents = u32(version);
  if (version >= 2)
    contents += named("TransformerSpec") + u32(5);
  contents += u32(2) + named("a/weight") + '\2' + u32(2) + u32(3) + '\1' + u32(6) + "123456";
  contents += named("a/weight_scale") + std::string(1, '\0') +
              (version >= 4 ? std::string(1, '\0') + u32(4) : '\4' + u32(1)) + little(2.5f);
  if (version >= 3)
    contents += u32(1) + named("b/weight") + named("a/weight");
  return contents;
}

TEST(Ctranslate2Model, VariablesOfEveryVersion) {
  for (const uint32_t version : {1, 2, 3, 4, 5, 6}) {
    const std::string whole = ctranslate2(version);
    const Ctranslate2Model model = Ctranslate2Model::parse(whole, "f");
    EXPECT_EQ(model.version, version);
    EXPECT_EQ(model.specification, version >= 2 ? "TransformerSpec" : "TransformerBase");
    EXPECT_EQ(model.revision, version >= 2 ? 5u : 1u);
    const TensorView &weight = model.variables.at("a/weight"), &scale = model.variables.at("a/weight_scale");
    EXPECT_EQ(weight.type, "I8");
    EXPECT_EQ(weight.shape, (Shape{2, 3}));
    EXPECT_EQ(weight.bytes, "123456");
    EXPECT_EQ(scale.type, "F32");
    EXPECT_EQ(scale.shape, Shape());
    ASSERT_EQ(model.variables.size(), version >= 3 ? 4u : 2u);
    if (version >= 3) {
      EXPECT_EQ(model.variables.at("b/weight").bytes.data(), weight.bytes.data());
      EXPECT_EQ(model.variables.at("b/weight_scale").bytes.data(), scale.bytes.data());
    }
    expectTruncatedRefused(whole, [](const std::string &part) { Ctranslate2Model::parse(part, "f"); });
  }
}

class Ctranslate2File : public FolderTest {};

TEST_F(Ctranslate2File, IsWrittenInTheLatestVersion) {
  writeCtranslate2(in("model.bin"), "TransformerSpec", 5,
                   {{"a/weight", "I8", {2, 3}, [] { return std::string("123456"); }},
                    {"a/weight_scale", "F32", {}, [] { return little(2.5f); }}},
                   {{"b/weight", "a/weight"}});
  EXPECT_EQ(readFile(in("model.bin")), ctranslate2(6));
}

TEST(Ctranslate2Model, WhatIsNoWholeModelIsRefused) {
  const auto error = [](const std::string &contents) {
    return errorOf([&] { Ctranslate2Model::parse(contents, "f"); });
  };
  EXPECT_EQ(error(u32(7)), "f: is not a supported CTranslate2 model: its version is 7; expected 1 to 6");
  EXPECT_EQ(error(ctranslate2(6) + "x"), "f: damaged CTranslate2 model: at byte " +
                                             std::to_string(ctranslate2(6).size()) + ", 1 bytes follow its end");
  const std::string start = u32(6) + named("S") + u32(1) + u32(1);
  EXPECT_NE(
      error(start + named("a") + '\2' + u32(1000000000) + u32(1000000000) + std::string(1, '\0') + u32(4) + "1234")
          .find("'a' [1000000000] has more elements than the file has bytes"),
      std::string::npos);
  EXPECT_NE(error(start + named("a") + '\1' + u32(1) + '\6' + u32(4) + "1234").find("'a' has an unknown type, 6"),
            std::string::npos);
  EXPECT_NE(error(start + named("a") + '\1' + u32(1) + std::string(1, '\0') + u32(8) + "12345678")
                .find("has 8 bytes; expected 4"),
            std::string::npos);
  EXPECT_NE(error(start + u16(2) + "ab").find("is not zero-terminated text"), std::string::npos);
  const std::string one = named("a") + '\0' + std::string(1, '\1') + u32(1) + "1";
  EXPECT_NE(error(u32(6) + named("S") + u32(1) + u32(2) + one + one).find("'a' appears twice"), std::string::npos);
  EXPECT_NE(error(start + one + u32(1) + named("b") + named("c")).find("'b' stands for 'c', which does not exist"),
            std::string::npos);
  EXPECT_NE(error(u32(6) + named("S") + u32(1) + u32(0xFFFFFFFF)).find("the length of the name of variable 0"),
            std::string::npos);
}

TEST(Yaml, FlatMapsOfScalarsAndLists) {
  const Yaml yaml("---\n# what it is\ntype: transformer\ndim-vocabs:\n  - 3\n  - 4 # tokens\nempty:\n  []\nlist: [a, "
                  "'b', \"c,d\"]\r\n"
                  "same:\n- x\nquoted: \"\"\nflag: false\nrate: 0.25\n\"a\\\"\\x41\\u00e9\\n\": 'it''s'\n? long\n: "
                  "7\na:b: 8\nnothing:\n",
                  "f");
  EXPECT_EQ(yaml.string("type", ""), "transformer");
  EXPECT_EQ(yaml.integers("dim-vocabs", 0, 9), (Shape{3, 4}));
  EXPECT_TRUE(yaml.has("empty"));
  EXPECT_EQ(yaml.strings("empty"), std::vector<std::string>());
  EXPECT_EQ(yaml.strings("list"), (std::vector<std::string>{"a", "b", "c,d"}));
  EXPECT_EQ(yaml.strings("same"), std::vector<std::string>{"x"});
  EXPECT_EQ(yaml.string("quoted", "other"), "");
  EXPECT_FALSE(yaml.boolean("flag", true));
  EXPECT_EQ(yaml.number("rate", 0, 1, 0), 0.25);
  EXPECT_EQ(yaml.string("a\"A\xC3\xA9\n", ""), "it's");
  EXPECT_EQ(yaml.integer("long", 0, 9, 0), 7);
  EXPECT_EQ(yaml.integer("a:b", 0, 9, 0), 8);
  EXPECT_EQ(yaml.string("nothing", "other"), "");
  EXPECT_EQ(yaml.integer("none", 0, 9, 5), 5);
  EXPECT_EQ(yaml.entries().size(), 12u);
  EXPECT_EQ(errorOf([&] { yaml.integer("type", 0, 9, 0); }),
            "f:3: type: expected a whole number from 0 to 9, found 'transformer'");
  EXPECT_EQ(errorOf([&] { yaml.integers("dim-vocabs", 0, 3); }),
            "f:4: dim-vocabs: expected a whole number from 0 to 3, found '4'");
  EXPECT_EQ(errorOf([&] { yaml.boolean("rate", true); }), "f:14: rate: expected true or false, found '0.25'");
  EXPECT_EQ(errorOf([&] { yaml.string("same", ""); }), "f:10: same: expected one value, found a list of 1");
}

TEST(Yaml, WhatMarianDoesNotWriteIsRefused) {
  const auto error = [](const std::string &text) { return errorOf([&] { Yaml(text, "f"); }); };
  EXPECT_EQ(error("a: 1\nb: 2\na: 3\n"), "f:3: 'a' is already on line 1; expected each key once");
  EXPECT_EQ(error("a:\n  b: 1\n"), "f:2: a map inside another; expected a flat map of keys and values");
  EXPECT_EQ(error("a: 1\n  b: 1\n"), "f:2: is indented; expected a flat map of keys and values");
  EXPECT_EQ(error("a: &x 1\n"), "f:1: '&x 1' is YAML that Marian does not write; expected a plain value");
  EXPECT_EQ(error("a: |\n  text\n"), "f:1: '|' is YAML that Marian does not write; expected a plain value");
  EXPECT_EQ(error("&x version: v1.9\n"), "f:1: '&x version' is YAML that Marian does not write; expected a plain key");
  EXPECT_EQ(Yaml("&quot;: 4\n", "f").entries().front().key, "&quot;"); // a token
  EXPECT_EQ(error("just text\n"), "f:1: expected 'key: value'");
  EXPECT_EQ(error("a: [1, 2\n"), "f:1: a list without its ']'; expected it on the same line");
  EXPECT_EQ(error("a: \"x\n"), "f:1: a \" without a closing \"");
  EXPECT_EQ(error("a: \"\\q\"\n"), "f:1: \\q is not a YAML escape");
  EXPECT_EQ(error("a: \"\\u12\"\n"), "f:1: expected 4 hexadecimal digits after \\u");
  EXPECT_EQ(error("a: 'x' y\n"), "f:1: 'y' after the end of a value");
  EXPECT_EQ(error("- a\n"), "f:1: a list item without a key before it");
  EXPECT_EQ(error("? a\n"), "f:1: a '? ' without the ': ' of its value");
  const std::string noKey = "a '? ' without its key; expected '? key', and ': value' on the next line";
  for (const char *line : {"? ", "?   ", "? \r", "? # key", "? ? key"})
    EXPECT_EQ(error("a: 1\n" + std::string(line) + "\n: 2\n"), "f:2: " + noKey) << line;
  EXPECT_EQ(error("? a\n? b\n"), "f:2: expected ': ' and the value of the key after '? '");
  for (const char *line : {": 1", ":", ": "})
    EXPECT_EQ(error(std::string(line) + "\n"), "f:1: a ':' without a key before it; expected 'key: value'") << line;
  EXPECT_EQ(error("\ta: 1\n"), "f:1: a tab before a key; expected spaces");
}

// A name is shown on one line, and not whole, whatever a file calls its parts.
TEST(ForeignNames, AreShownEscapedAndShort) {
  const std::string name = "\x1b[31m" + std::string(10000, 'n'), variable = named(name) + '\0' + '\1' + u32(1) + "1";
  const std::pair<const char *, std::function<void()>> reads[] = {
      {"twice", [&] { unzipped(zip({{name, "a"}, {name, "b"}})); }},
      {"is not an array", [&] { Npz array(zip({{name, "a"}}), "f.npz"); }},
      {"cut off", [&] { Npz array(zip({{name + ".npy", "a"}}), "f.npz"); }},
      {"already", [&] { Yaml twice(name + ": 1\n" + name + ": 2\n", "f"); }},
      {"whole number", [&] { Yaml(name + ": " + name + "\n", "f").integer(name, 0, 9, 0); }},
      {"twice", [&] { Ctranslate2Model::parse(u32(6) + named("S") + u32(1) + u32(2) + variable + variable, "f"); }},
      {"unknown type",
       [&] { Ctranslate2Model::parse(u32(6) + named("S") + u32(1) + u32(1) + named(name) + '\0' + '\7', "f"); }},
  };
  for (const auto &[what, read] : reads) {
    const std::string message = errorOf(read);
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_NE(message.find("\\x1b[31mnnn"), std::string::npos) << message;
    EXPECT_LT(message.size(), 600u) << message;
    EXPECT_EQ(message.find('\x1b'), std::string::npos) << message;
  }
}

} // namespace
