"""Tests the style checks: each finds the fault it looks for in a tree made for it, and nothing in a clean tree."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).parent
BODY = "".join(f"  total += weights[{i}] * values[{i} + offset];\n" for i in range(12))


class Gates(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        for folder in ("compiler", "runtime", "tests/style"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "tests/style/duplicates.txt").write_text("")
        (self.root / ".clang-format").write_text("BasedOnStyle: LLVM\nColumnLimit: 120\n")

    def run_gate(self, script, *words):
        return subprocess.run([sys.executable, HERE / script, self.root, *words], capture_output=True, text=True)

    def write(self, name, body):
        (self.root / name).write_text(f"void f() {{\n{body}}}\n")

    def test_duplicates(self):
        self.write("compiler/a.cpp", BODY)
        self.write("runtime/b.cpp", "  int unrelated = 0;\n")
        self.assertEqual(self.run_gate("duplicates.py").returncode, 0)
        self.write("runtime/b.cpp", BODY)
        found = self.run_gate("duplicates.py")
        self.assertEqual(found.returncode, 1)
        self.assertIn("13 equal lines at compiler/a.cpp:1 and runtime/b.cpp:1", found.stdout)

    def test_accepted_duplicates(self):
        self.write("compiler/a.cpp", BODY)
        self.write("runtime/b.cpp", BODY)
        entries = self.root / "tests/style/duplicates.txt"
        entries.write_text("compiler/a.cpp runtime/b.cpp 13 both need it\n")
        self.assertEqual(self.run_gate("duplicates.py").returncode, 0)
        entries.write_text("compiler/a.cpp runtime/b.cpp 14 more than there is\n")
        self.assertIn("share 13 lines, not 14", self.run_gate("duplicates.py").stdout)
        entries.write_text("compiler/a.cpp runtime/b.cpp 12 fewer than there are\n")
        self.assertEqual(self.run_gate("duplicates.py").returncode, 1)

    def test_duplicates_within_a_file(self):
        self.write("compiler/a.cpp", BODY + "  between();\n" + BODY)
        self.assertIn("12 equal lines at compiler/a.cpp:2 and compiler/a.cpp:15", self.run_gate("duplicates.py").stdout)

    def test_sizes(self):
        def has(lines, fields):
            self.write("compiler/a.cpp", "  next();\n" * lines)
            declared = "".join(f"  std::function<void(int, int)> f{i} = [](int, int) {{}}, g{i};\n  void call{i}(int a, int b);\n" for i in range(fields))
            (self.root / "runtime/a.h").write_text(f"class A {{\npublic:\n{declared}}};\n")
        has(118, 12)
        self.assertEqual(self.run_gate("sizes.py").returncode, 0)
        has(119, 12)
        self.assertEqual(self.run_gate("sizes.py").stdout, "compiler/a.cpp:1: f has 121 lines, and may have 120: split it\n")
        has(118, 13)
        self.assertEqual(self.run_gate("sizes.py").stdout, "runtime/a.h:1: A has 26 fields, and may have 25: split it\n")
        entries = self.root / "tests/style/sizes.txt"
        entries.write_text("runtime/a.h A 26 is a table\n")
        self.assertEqual(self.run_gate("sizes.py").returncode, 0)
        entries.write_text("runtime/a.h A 27 was larger\n")
        self.assertIn("has 26 fields, not 27", self.run_gate("sizes.py").stdout)
        has(118, 12)
        self.assertIn("is not too large any more", self.run_gate("sizes.py").stdout)

    def test_readers(self):
        self.write("runtime/a.cpp", "  auto json = parseJson(readFile(file), file); // not nlohmann::json::parse(text)\n  Option::parse(word);\n")
        self.assertEqual(self.run_gate("readers.py").returncode, 0)
        for line, found in (("nlohmann::json::parse(text);", "parseJson"), ("Json::parse(text);", "parseJson"), ("file >> json;", "parseJson"),
                            ("using Any = nlohmann::ordered_json;\n  Any::parse(text);", "parseJson"), ("nlohmann::json value;\n  value.sax_parse(text, &sax);", "parseJson"),
                            ("nlohmann::json value;\n  file >> value;", "parseJson"),
                            ("nlohmann::json::from_cbor(text);", "parseJson"), ("nlohmann::json::accept(text);", "parseJson"), ("std::ifstream in(file);", "readFile"),
                            ("FILE *in = fopen(name, mode);", "readFile"), ("llvm::MemoryBuffer::getFile(name);", "readFile"),
                            ("int in = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);", "readFile"), ("int in = open(name, O_RDONLY);", "readFile"),
                            ("mlir::parseSourceFile<ModuleOp>(name, &context);", "readFile"), ("parseAsmSourceFile(source, &block, config);", "parseModule"),
                            ("mlir::parseSourceString<ModuleOp>(text, &context);", "parseModule"),
                            ("mlir::SourceMgrDiagnosticHandler handler(sources, &context);", "Diagnostics")):
            self.write("compiler/b.cpp", f"  {line}\n")
            gate = self.run_gate("readers.py")
            self.assertEqual(gate.returncode, 1, line)
            self.assertRegex(gate.stdout, rf"compiler/b.cpp:[23]: .*{found}", line)

    def test_writers_and_signals(self):
        self.write("runtime/a.cpp", "  FileWriter writer(name);\n  rename(\":0\", \"\");\n  endBy(signal);\n"
                                    "  const int signal(stopped.signal);\n")
        self.assertEqual(self.run_gate("readers.py").returncode, 0)
        for line, found in (("std::ofstream out(file);", "FileWriter"), ("llvm::raw_fd_ostream out(file, error);", "FileWriter"),
                            ("mlir::openOutputFile(file);", "FileWriter"), ("std::filesystem::rename(from, to);", "FileWriter"),
                            ("fs::copy_file(from, to);", "FileWriter"), ("::rename(from, to);", "FileWriter"), ("::mkstemp(name);", "FileWriter"),
                            ("int out = ::open(name, O_CLOEXEC | O_WRONLY, 0666);", "FileWriter"), ("int out = open(name, O_RDWR);", "FileWriter"),
                            ("creat(name, 0666);", "FileWriter"), ("rename(from.c_str(), to.c_str());", "FileWriter"), ("::truncate(name, 0);", "FileWriter"),
                            ("::link(from, to);", "FileWriter"), ("::symlink(from, to);", "FileWriter"), ("pthread_sigmask(SIG_BLOCK, &all, nullptr);", "Signals"),
                            ("std::signal(SIGTERM, handler);", "Signals"), ("signal(SIGTERM, handler);", "Signals"),
                            ("::sigaction(stopped.signal, &action, nullptr);", "Signals"), ("sigaction(number, &action, &before);", "Signals")):
            self.write("compiler/b.cpp", f"  {line}\n")
            gate = self.run_gate("readers.py")
            self.assertEqual(gate.returncode, 1, line)
            self.assertRegex(gate.stdout, rf"compiler/b.cpp:2: .*{found}", line)

    def test_weights(self):
        self.write("runtime/a.cpp", "  loadWeights(engine, file);\n")
        self.assertEqual(self.run_gate("readers.py").returncode, 0)
        self.write("runtime/a.cpp", "  parseSafetensors(contents, file);\n")
        self.assertIn("runtime/a.cpp:2: 'parseSafetensors(': use loadWeights()", self.run_gate("readers.py").stdout)

    def test_quotes(self):
        line = """  throw Error(file + ": '" + name + "' is missing");\n"""
        self.write("compiler/other.cpp", line)
        self.assertEqual(self.run_gate("readers.py").returncode, 0)
        for folder, text in (("compiler/Foreign", line), ("runtime/tensors", line.replace("'", '\\"'))):
            (self.root / folder).mkdir()
            self.write(f"{folder}/b.cpp", text)
            self.assertRegex(self.run_gate("readers.py").stdout, f"{folder}/b.cpp:[12]: .*inQuotes")

    def test_readers_that_are_listed(self):
        (self.root / "runtime/support").mkdir()
        self.write("runtime/support/Json.cpp", "  return nlohmann::json::parse(text);\n")
        self.assertEqual(self.run_gate("readers.py").returncode, 0)
        self.write("runtime/support/Json.cpp", "  return 0;\n")
        self.assertIn("runtime/support/Json.cpp: is listed", self.run_gate("readers.py").stdout)

    def test_format(self):
        tool = shutil.which("clang-format-22")
        if not tool:
            self.skipTest("clang-format-22 was not found")
        (self.root / "compiler/a.cpp").write_text("int a = 1;\n")
        self.assertEqual(self.run_gate("format.py", tool).returncode, 0)
        (self.root / "compiler/b.cpp").write_text("int   b=1 ;\n")
        found = self.run_gate("format.py", tool)
        self.assertEqual(found.returncode, 1)
        self.assertIn("clang-format-22 -i compiler/b.cpp", found.stderr)

    def prepare_tidy(self, **files):
        """Writes compiler/part/NAME.cpp for each file, and a build folder that compiles them."""
        shutil.copy(HERE / "../../.clang-tidy", self.root)
        (self.root / "compiler/part").mkdir()
        for name, text in files.items():
            (self.root / f"compiler/part/{name}.cpp").write_text(text)
        entries = [{"directory": "/", "file": str(self.root.resolve() / f"compiler/part/{name}.cpp"), "command": "c++ -std=c++20 -Wall -c"}
                   for name in files]
        (self.root / "build").mkdir()
        (self.root / "build/compile_commands.json").write_text(json.dumps(entries))

    def run_tidy(self, turn="0/1"):
        tool = shutil.which("clang-tidy-22")
        if not tool:
            self.skipTest("clang-tidy-22 was not found")
        return self.run_gate("tidy.py", self.root / "build", tool, "compiler/part", turn)

    def test_tidy(self):
        self.prepare_tidy(a="int a() { return 1; }\n", b="int b() { return 2; }\n")
        self.assertEqual(self.run_tidy().stdout, "2 files, read in 1 runs\n")
        self.assertEqual(self.run_tidy().stdout, "2 files, clean since the last run\n")
        (self.root / "compiler/part/b.cpp").write_text("int b(bool c) {\n  if (c)\n    return 1;\n  else\n    return 1;\n}\n")
        found = self.run_tidy()
        self.assertEqual(found.returncode, 1)
        self.assertIn("compiler/part/b.cpp:2:3: error: if with identical then and else branches [bugprone-branch-clone", found.stderr)
        (self.root / "compiler/part/b.cpp").write_text("int b() { return undeclared; }\n")
        self.assertIn("undeclared", self.run_tidy().stderr)

    def test_tidy_names_of_a_file(self):
        local = "namespace {{\nint local() {{ return 1; }}\n}} // namespace\nint {}() {{ return local(); }}\n"
        self.prepare_tidy(a=local.format("a"), b=local.format("b"))
        self.assertEqual(self.run_tidy().stdout, "2 files, read in 2 runs\n")

    def test_tidy_macro_of_a_file(self):
        self.prepare_tidy(a="#define SIZE 3\nint a() { return SIZE; }\n", b="int SIZE = 4;\n")
        self.assertEqual(self.run_tidy().returncode, 0)

    @unittest.mock.patch.dict(os.environ, XFC_TIDY="")
    def test_tidy_turns(self):
        self.prepare_tidy(a="int a() { return undeclared; }\n")
        git = ["git", "-c", "user.name=tester", "-c", "user.email=tester@example.org", "-C", self.root]
        subprocess.run([*git, "init", "--quiet"], check=True)
        subprocess.run([*git, "add", "compiler"], check=True)
        self.assertIn("undeclared", self.run_tidy("1/10").stderr)  # no history
        for number in range(5):
            subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", str(number)], check=True)
        skipped = self.run_tidy("1/10")
        self.assertIn("not its turn", skipped.stdout)
        self.assertEqual(skipped.returncode, 77)
        self.assertIn("undeclared", self.run_tidy("5/10").stderr)
        with unittest.mock.patch.dict(os.environ, XFC_TIDY="all"):
            self.assertIn("undeclared", self.run_tidy("1/10").stderr)
        (self.root / "compiler/part/a.cpp").write_text("int a() { return unknown; }\n")
        self.assertIn("unknown", self.run_tidy("1/10").stderr)

    def test_tidy_compiles_edited_files_alone(self):
        self.prepare_tidy(a="#include <string>\nstd::string a() { return {}; }\n", b="#include <string>\nstd::string b() { return {}; }\n")
        git = ["git", "-c", "user.name=tester", "-c", "user.email=tester@example.org", "-C", self.root]
        subprocess.run([*git, "init", "--quiet"], check=True)
        subprocess.run([*git, "add", "compiler"], check=True)
        for number in range(5):
            subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", str(number)], check=True)
        (self.root / "compiler/part/a.cpp").write_text("#include <string>\nstd::string a() { return {}; } // edited\n")
        self.assertEqual(self.run_tidy().stdout, "2 files, read in 1 runs, 1 also alone\n")
        (self.root / "compiler/part/b.cpp").write_text("std::string b() { return {}; }\n")  # a.cpp comes first, and includes the header
        self.assertIn("b.cpp:1:1: error: use of undeclared identifier 'std'", self.run_tidy().stderr)


if __name__ == "__main__":
    unittest.main()
