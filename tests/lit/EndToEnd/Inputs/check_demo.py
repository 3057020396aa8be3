"""check_demo.py XFC FOLDER: interrupts the demo while it trains, uses what is there, and lets it go on to its end. Plain Python."""
import os
import signal
import subprocess
import sys
import time

xfc, folder = sys.argv[1:]
os.chdir(folder)
os.makedirs("out/run/notes")  # somebody's, which is not the demo's to remove
# Interrupted as by Ctrl-C, which the whole group of processes gets, after its first steps.
demo = subprocess.Popen([xfc, "demo", "--minutes", "30", "--out", "out"], stdout=open("said", "w"), stderr=open("messages", "w"), start_new_session=True)
deadline = time.time() + 300
while not (os.path.exists("out/run/train.jsonl") and '"loss"' in open("out/run/train.jsonl").read()):
    assert demo.poll() is None and time.time() < deadline, open("messages").read()
    time.sleep(0.2)
os.killpg(demo.pid, signal.SIGINT)
assert demo.wait(120) == -signal.SIGINT, demo.returncode
said, messages = open("said").read(), open("messages").read()
for part in ("[1/8] Make English sentences", "[2/8] Train a joint vocabulary: about 0:0", "[3/8] Compile the model tiny", "[4/8] Train, until it can translate a little: about 1:00"):
    assert part in said, (part, said)
assert "[5/8]" not in said, said
assert os.path.isdir("out/run/notes"), os.listdir("out/run")
assert "Stopped. This goes on from here:\n\n  xfc demo --out out\n" in messages, messages
advice = messages[messages.index("can translate:\n\n  ") + 18:].splitlines()[0]
assert len(subprocess.run(["sh", "-c", advice], capture_output=True, text=True, check=True).stdout.splitlines()) == 1, advice

# It goes on with what is there.
again = subprocess.run([xfc, "demo", "--minutes", "0.01", "--out", "out"], capture_output=True, text=True)
assert again.returncode == 0, again.stderr
for part in ("out/spm.model is there already", "out/translator is there already", "[7/7] Write the report", "copy the source:", "exact match: ", "  reference  "):
    assert part in again.stdout, (part, again.stdout)
assert os.path.getsize("out/report.html") > 1000
train, test = (open(f"out/{part}.en").read().splitlines() for part in ("train", "test"))
assert (len(set(train)), len(set(test)), set(train) & set(test)) == (20000, 300, set())
missing = subprocess.run([xfc, "demo", "--data", "out/run"], capture_output=True, text=True)
assert missing.returncode == 1 and "out/run/train.en: is missing; --data takes a folder with" in missing.stderr, missing.stderr
print("the demo can be interrupted, and goes on")
