"""The gates can fail: each finds what it is for in a tree made for it, and nothing in one without."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

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


if __name__ == "__main__":
    unittest.main()
