"""Uses the Python module of the wheel: what it gives is what the executable gives.

usage: check_module.py FOLDER, which holds what the first steps of run.py leave
"""
import os
import subprocess
import sys
import threading
import time
import warnings

import xfc

os.chdir(sys.argv[1])
lines = open("text.source").read().splitlines()[:41]
expected = subprocess.run(["./translator", "translate", "--model", "run", "--beam", "2"], input="\n".join(lines), capture_output=True, text=True, check=True).stdout
expected = expected.splitlines()

begin = time.time()
with xfc.Translator("run") as m:
    print(f"from the folder of a run to a translator: {time.time() - begin:.1f} s")
    assert m.translate(lines, "--beam", "2") == expected
    assert m.translate([]) == []
    n_best = m.search(lines[:2], "--beam", "3", "--n-best", "3")
    assert [len(one) for one in n_best] == [3, 3] and n_best[0][0].score >= n_best[0][1].score
    assert list(m.stream(lines[0], "--beam", "2"))[-1] == expected[0]
    scores = m.score(lines[:2], expected[:2])
    assert len(scores) == 2 and all(score < 0 for score in scores)
    try:
        m.translate(lines, "--bean", "2")
        raise AssertionError("a wrong option is an error")
    except xfc.Error as error:
        assert "did you mean '--beam'?" in str(error), error
cached = os.listdir(os.path.expanduser("~/.cache/xfc"))
assert len(cached) == 1, cached

# Several workers, and several threads, give the same.
with xfc.Translator("run", workers=3, options=["--threads", "1"]) as m:
    found = {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: m.translate(lines[i:], "--beam", "2")})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: expected[i:] for i in range(4)}
    # One word or the other of another line's translation, and nothing for lines whose counterpart is empty.
    wanted = [[[words[0], words[-1]]] if (words := line.split()) else None for line in expected[::-1]]
    open("wanted", "w").write("".join(f"{' || '.join(one[0])}\n" if one else "\n" for one in wanted))
    constrained = subprocess.run(["./translator", "translate", "--model", "run", "--beam", "2", "--constraints", "wanted"], input="\n".join(lines),
                                 capture_output=True, text=True, check=True).stdout.splitlines()
    assert m.translate(lines, "--beam", "2", constraints=wanted) == constrained != expected
    try:
        m.translate(lines, constraints=[["a"]])
        raise AssertionError("constraints for some lines only are an error")
    except ValueError as error:
        assert "1 lists of constraints for 41 lines" in str(error), error
assert os.listdir(os.path.expanduser("~/.cache/xfc")) == cached, "the library is used again"

for wrong, part in (("nothing", "nothing: holds neither model.json nor weights"), ("translator", "give library=")):
    try:
        xfc.Translator(wrong)
        raise AssertionError(f"{wrong} opens")
    except xfc.Error as error:
        assert part in str(error) and "\n" not in str(error), error

# A home that cannot be written to.
os.environ["HOME"] = "/proc/nowhere"
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    with xfc.Translator("run") as m:
        assert m.translate(lines[:3], "--beam", "2") == expected[:3]
assert len(said) == 1 and "set XDG_CACHE_HOME" in str(said[0].message) and "\n" not in str(said[0].message), said
print("the module translates as the executable does")
