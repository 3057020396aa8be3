"""Edits a module that `xfc compile --emit imported` printed, and checks the compiler's answer to each edit: a diagnostic with file,
line and column and exit status 1, never a crash. Called as broken_modules.py XFC MODULE WORK_FOLDER."""
import random
import re
import subprocess
import sys

DEEP = 100000

# name, pattern, replacement (of the first match), message, options
EDITS = [
    ("model", r"xfc\.model = #xfc\.model<.*?>\}", "}", r"has no attribute 'xfc.model', which describes the model"),
    ("token", r"eos = 3", "eos = 4000", r"eos = 4000 is not in the vocabulary of 4000 tokens"),
    ("field", r"pad = 0, ", "", r"struct is missing required parameter: pad"),
    ("fields", r"pad = 0, ", "pad = 0, pda = 1, ", r"duplicate or unknown struct parameter name: pda"),
    ("attribute", r"attributes \{", "attributes {xfc.modle = 1, ", r'the xfc dialect has no attribute "xfc.modle"'),
    ("undeclared", r"  xfc\.parameter @encoder\.embed\.weight .*\n", "", r'the model has no parameter "encoder.embed.weight"'),
    ("twice", r"(  xfc\.parameter @encoder\.embed\.weight .*\n)", r"\1\1", r'shares the name "encoder.embed.weight" with another parameter'),
    ("init", r"init scaled_normal", "init random", r"one of the following enum values for attribute 'init'"),
    ("shape", r"(xfc\.parameter @encoder\.embed\.weight : tensor<4000)x128", r"\1x64", r"but the model's parameter is 'tensor<4000x64xf32>'"),
    ("role", r'xfc\.role = "parameter"', 'xfc.role = "weight"', r'expected a role \(parameter, .*\), found "weight"'),
    ("nameless", r'xfc\.name = "source", ', "", r"argument \d+ needs 'xfc.name' and 'xfc.role'"),
    ("roleless", r', xfc\.role = "input"', "", r"argument \d+ needs 'xfc.name' and 'xfc.role'"),
    ("same name", r'xfc\.name = "target"', 'xfc.name = "source"', r'has two arguments named "source"'),
    ("result", r'\{xfc\.name = "logits"\}', "", r"result 0 needs 'xfc.name'"),
    ("alias", r"xfc\.alias = \d+", "xfc.alias = 9999", r"expected the index of the argument it replaces, found 9999"),
    ("program", r"func\.func @score", "func.func @update", r"this program was made by a later phase"),
    ("declaration", r"\n\} loc\(#loc\)\n", "\n  func.func private @extra()\n}\n", r"expected a program of one block, found 0 blocks"),
    ("blocks", r"(    return .*\n)", r"\1  ^bb1:\n\1", r"expected a program of one block, found 2 blocks|operand #0 does not dominate"),
    ("call", r"(func\.func @forward\(.*\n)", "func.func @f() {\n    call @f() : () -> ()\n    return\n  }\n  \\1",
     r"a program can only contain ops of the xfc dialect, found 'func.call'"),
    ("foreign", r"(func\.func @forward\(.*\n)", "\\1    %foreign = builtin.unrealized_conversion_cast to tensor<f32>\n",
     r"a program can only contain ops of the xfc dialect, found 'builtin.unrealized_conversion_cast'"),
    ("dialect", r"= xfc\.softmax", "= torch.softmax", r"Dialect `torch' not found for custom op 'torch.softmax'"),
    ("op", r"= xfc\.softmax", "= xfc.softmin", r"custom op 'xfc.softmin' is unknown"),
    ("nested", r"  func\.func @forward\(", "  module {}\n  func.func @forward(", r"a model can only contain functions and parameters, found 'builtin.module'"),
    ("rows", r"!xfc\.rows<source,", "!xfc.rows<sauce,", r"expected a set of rows: source, target or cache, found sauce"),
    ("features", r"!xfc\.rows<source, 128xf32>", "!xfc.rows<source, 127xf32>", r"features|expects different type|type"),
    ("heads", r"padding, 4xf32>", "padding, 3xf32>", r"heads|type"),
    ("wide", r"(func\.func @forward\(.*\n)", "func.func @f(%x: !xfc.rows<source, 3037000500x3037000500xf32> {xfc.name = \"x\", xfc.role = \"input\"}) {\n"
     "    return\n  }\n  \\1", r"expected between 1 and \d+ elements"),
    ("integers", r"(func\.func @forward\(.*\n)", "func.func @f(%x: i32 {xfc.name = \"x\", xfc.role = \"scalar\"}) {\n    return\n  }\n  \\1",
     r"values of programs must be rows, pairs or static tensors, found 'i32'"),
    ("f64", r"(func\.func @forward\(.*\n)", "func.func @f(%x: tensor<f64> {xfc.name = \"x\", xfc.role = \"scalar\"}) {\n    return\n  }\n  \\1",
     r"computes with 'tensor<f64>' in a module of 'f32'"),
    ("bf16", r"(func\.func @forward\(.*\n)", "func.func @f(%x: tensor<bf16> {xfc.name = \"x\", xfc.role = \"scalar\"}) {\n    return\n  }\n  \\1",
     r"expected numbers of f32 or f64, or indices of i32, found 'tensor<bf16>'"),
    ("dtype", r"^", "", r"does not compute in f64; compile it without --dtype f64", "--dtype", "f64"),
    # What is nested deeply ends no parser, whether it is nested by brackets or by names, and no name may double again and again.
    ("deep attribute", r"attributes \{", "attributes {xfc.deep = " + DEEP * "[" + DEEP * "]" + ", ", r"nested deeper than 64 levels"),
    ("deep type", r"attributes \{", "attributes {xfc.deep = " + DEEP * "tuple<" + DEEP * ">" + ", ", r"nested deeper than 64 levels"),
    ("deep region", r"(func\.func @forward\(.*\n)", "\\1" + DEEP * '"xfc.x"() ({' + DEEP * "}) : () -> ()\n", r"nested deeper than 64 levels"),
    ("deep names", r"^", "#a0 = [0]\n" + "".join(f"#a{i} = [#a{i - 1}]\n" for i in range(1, DEEP)), r"nested deeper than 64 levels"),
    ("doubled names", r"^", "!a0 = i32\n" + "".join(f"!a{i} =\n  tuple<!a{i - 1}, !a{i - 1}>\n" for i in range(1, 60)), r"!a12 stands for more than 4096 names"),
    ("affine", r"attributes \{", "attributes {xfc.deep = affine_map<(d0) -> (" + DEEP * "-" + "d0)>, ", r"a program has no affine_map but those that only name dimensions"),
    ("brackets in strings", r"attributes \{", 'attributes {xfc.text = "' + DEEP * "[" + '\\\\" // (", ', r'the xfc dialect has no attribute "xfc.text"'),
    # A location is never opened.
    ("device", r"\n\} loc\(#loc\)\n", '\n  func.func private @extra() loc("/dev/zero":1:1)\n}\n', r"expected a program of one block, found 0 blocks"),
    ("long", r"= xfc\.softmax", "= xfc." + DEEP * "x", r"custom op 'xfc.x{90,110} \.\.\. x{90,110}' is unknown"),
    ("rate", r"rate = 1\.0+e-01 : f64|rate = 1\.000000e-01|rate = 0\.1\d*", "rate = 2.0", r"rate"),
]


def run(xfc, path, *options):
    done = subprocess.run([xfc, "compile", path, "--emit", "scheduled", "-o", path + ".plan", *options], capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), f"{path}: exit status {done.returncode}\n{done.stderr[-2000:]}"
    for word in ("Assertion", "Stack dump", "LLVM ERROR"):
        assert word not in done.stderr, f"{path}: {done.stderr[-2000:]}"
    assert len(done.stderr) < 9000, f"{path}: a message of {len(done.stderr)} bytes"
    return done


def main():
    xfc, module, work = sys.argv[1:4]
    text = open(module).read()
    whole = {
        "empty": ("", r"1:1: error: expected one module"),
        "json": ('{"name": "tiny"}', r"1:\d+: error: "),
        "binary": ("\x01\x02\x03" * 50, r"1:1: error: "),
        "half": (text[:len(text) // 2], r"\d+:\d+: error: "),
        "two": (text + "module {}\n", r"1:1: error: expected one module"),
        "no programs": (re.sub(r"  func\.func @(.*\n)*?  \}.*\n", "", text), r"\d+:\d+: error: contains no programs"),
    }
    for name, (edited, message) in whole.items():
        check(xfc, work, name, edited, message, ())
    for name, pattern, replacement, message, *options in EDITS:
        edited, count = re.subn(pattern, replacement, text, count=1)
        assert count == 1, f"{name}: nothing to edit"
        check(xfc, work, name, edited, r"\d+:\d+: error: .*(" + message + ")", options)
    # Lines that are deleted, repeated, swapped or edited: the module is refused or compiled, and nothing else happens.
    refused = 0
    lines = text.splitlines(keepends=True)
    body = [i for i, line in enumerate(lines) if not line.startswith("#loc")]
    for seed in range(int(sys.argv[4]) if len(sys.argv) > 4 else 40):
        chooser = random.Random(seed)
        edited = list(lines)
        i, j = chooser.choice(body), chooser.choice(body)
        kind = seed % 4
        if kind == 0:
            del edited[i]
        elif kind == 1:
            edited.insert(i, edited[j])
        elif kind == 2:
            edited[i], edited[j] = edited[j], edited[i]
        else:
            words = re.findall(r"[A-Za-z_.]+|\d+|\S", edited[i])
            if words:
                word = chooser.choice(words)
                edited[i] = edited[i].replace(word, chooser.choice(["", "0", "-1", "9223372036854775807", "f32", "%0"]), 1)
        path = f"{work}/line {seed}.mlir"
        open(path, "w").write("".join(edited))
        done = run(xfc, path)
        if done.returncode:
            refused += 1
            assert re.search(r"\.mlir:\d+:\d+: error: ", done.stderr), f"{path}: {done.stderr[-2000:]}"
    print(f"{len(whole) + len(EDITS)} edits refused with a place, {refused} of the random ones")


def check(xfc, work, name, edited, message, options):
    path = f"{work}/{name}.mlir"
    open(path, "w").write(edited)
    done = run(xfc, path, *options)
    assert done.returncode == 1, f"{name}: was compiled"
    assert re.search("(?m)^" + re.escape(path) + ":" + message, done.stderr), f"{name}: {done.stderr[-2000:]}"


main()
