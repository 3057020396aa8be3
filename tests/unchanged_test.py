#!/usr/bin/env python3
"""Tests unchanged.py: what runs again, what does not, and what is never taken for a success."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = str(pathlib.Path(__file__).with_name("unchanged.py"))


class Unchanged(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "data").mkdir()
        (self.folder / "data" / "a").write_text("1")
        self.program = self.folder / "program"
        self.make_program("exit 0")
        self.runs = self.folder / "runs"

    def make_program(self, ending):
        self.program.write_text(f'#!/bin/sh\necho run >>"{self.folder}/runs"\n{ending}\n')
        self.program.chmod(0o755)

    def run_test(self, *arguments, **variables):
        """The exit status, and whether the program ran."""
        before = self.runs.read_text() if self.runs.exists() else ""
        command = [sys.executable, SCRIPT, "--test", self.folder / "passed", self.folder / "data", "--", self.program, *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("XFC_")} | variables
        status = subprocess.run(command, capture_output=True, env=environment).returncode
        return status, self.runs.exists() and self.runs.read_text() != before

    def test_runs_once_and_again_after_a_change(self):
        self.assertEqual(self.run_test(), (0, True))
        self.assertEqual(self.run_test(), (0, False))
        self.assertEqual(self.run_test("other"), (0, True))  # another test of the same program
        self.assertEqual(self.run_test(), (0, False))
        (self.folder / "data" / "a").write_text("2")
        self.assertEqual(self.run_test(), (0, True))
        (self.folder / "data" / "b").write_text("1")
        self.assertEqual(self.run_test(), (0, True))
        (self.folder / "data" / "b").unlink()
        self.assertEqual(self.run_test(), (0, True))
        self.make_program("true")
        self.assertEqual(self.run_test(), (0, True))
        self.assertEqual(self.run_test(), (0, False))

    def test_variables_and_the_wish_to_run(self):
        self.assertEqual(self.run_test(XFC_TEST_CPU="x86-64-v3"), (0, True))
        self.assertEqual(self.run_test(XFC_TEST_CPU="x86-64-v3"), (0, False))
        self.assertEqual(self.run_test(XFC_TEST_CPU="x86-64-v3", XFC_TURNS="all"), (0, False))
        self.assertEqual(self.run_test(), (0, True))
        self.assertEqual(self.run_test(XFC_UNCHANGED="run"), (0, True))

    def test_failures_are_not_kept(self):
        self.make_program("exit 3")
        self.assertEqual(self.run_test(), (3, True))
        self.assertEqual(self.run_test(), (3, True))
        self.make_program("kill -9 $$")
        self.assertEqual(self.run_test(), (137, True))
        # A failure also ends what was known of the same inputs.
        self.make_program(f'[ ! -e "{self.folder}/fail" ]')
        self.assertEqual(self.run_test(), (0, True))
        (self.folder / "fail").touch()
        self.assertEqual(self.run_test(XFC_UNCHANGED="run"), (1, True))
        self.assertEqual(self.run_test(), (1, True))

    def test_skips_with_77_where_a_record_is_named(self):
        command = [sys.executable, SCRIPT, self.folder / "record", self.folder / "data", "--", self.program]
        self.assertEqual([subprocess.run(command, capture_output=True).returncode for _ in range(2)], [0, 77])

    def test_lists_tests_always(self):
        self.assertEqual(self.run_test("--gtest_list_tests"), (0, True))
        self.assertEqual(self.run_test("--gtest_list_tests"), (0, True))


if __name__ == "__main__":
    unittest.main()
