"""check_reports.py XFC MODELS FOLDER: `report` draws a run of every shipped model that has a decoder, and of one whose decoder does not look at
the encoder, which has no attention to draw. Plain Python."""
import json
import os
import pathlib
import subprocess
import sys

xfc, models, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3])
sys.path.insert(0, os.path.dirname(__file__))
SIZES = {"d_model": 16, "d_ff": 24, "heads": 2, "encoder_heads": 2, "decoder_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "key_dim": 8, "value_dim": 8,
         "source_vocab": 40, "target_vocab": 40}
TEXT = "".join(f"{4 + i % 30} {4 + i * 7 % 30} {4 + i * 11 % 30}\n" for i in range(40))


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stderr


def report(name, model):
    """Trains a small form of a model, and gives what `report` says and the page that it writes."""
    sizes = [word for key, value in SIZES.items() if key in model["params"] for word in ("--set", f"{key}={value}")]
    pathlib.Path(name + ".json").write_text(json.dumps({key: value for key, value in model.items() if key != "$schema"}))
    run(xfc, "compile", name + ".json", "-o", name, *sizes)
    run("./" + name, "train", "--format", "ids", "--source", "text", "--target", "text", "--valid-source", "text", "--valid-target", "text", "--valid-every", 2,
        "--steps", 2, "--batch-tokens", 128, "--out", name + "-run", "--quiet")
    said = run("./" + name, "report", name + "-run")
    page = pathlib.Path(name + "-run/report.html").read_text()
    assert "report: wrote" in said and "Loss per target token" in page and "Memory of a step" in page, (name, said)
    return said, page


folder.mkdir(parents=True, exist_ok=True)
os.chdir(folder)
pathlib.Path("text").write_text(TEXT)
drawn = 0
for file in sorted(models.glob("*.json")):
    model = json.loads(file.read_text())
    if "decoder" not in model:  # a schema, or an encoder alone, which is not trained
        continue
    said, page = report(file.stem, model)
    assert "leaving out" not in said and "Where the decoder looks" in page, (file, said)
    drawn += 1
assert drawn >= 9, drawn

model = json.loads((models / "tiny.json").read_text())
model["decoder"]["layer"] = [step for step in model["decoder"]["layer"] if '"memory": "encoder"' not in json.dumps(step)]
said, page = report("language", model)
assert "leaving out the drawing of attention: model 'tiny' has no cross-attention" in said and "Where the decoder looks" not in page, said
print(f"{drawn} shipped models, and one without cross-attention")
