#!/usr/bin/env python3
"""A library that `xfc compile MODEL --emit lib -o NAME` made, from Python, with nothing but ctypes.

usage: xfc.py libNAME.so MODEL [--beam 4 ...] < lines > translations
"""
import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p

API_VERSION = 1
NAMES = {1: "failed", 2: "misuse", 3: "out of memory"}


class Error(Exception):
    """What xfc_message() says."""

    def __init__(self, status, message):
        super().__init__(message or NAMES[status])
        self.status = status


class Hypothesis(ctypes.Structure):
    _fields_ = [("text", POINTER(ctypes.c_char)), ("size", c_size_t), ("ids", POINTER(c_int32)), ("count", c_size_t), ("score", c_double),
                ("log_probability", c_double)]


class Loss(ctypes.Structure):
    _fields_ = [("step", c_int64), ("labels", c_int64), ("loss", c_double), ("nll", c_double), ("norm", c_double)]


class Info(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("hash", c_char_p), ("parameters", c_int64), ("source_vocabulary", c_int64),
                ("target_vocabulary", c_int64), ("longest_source", c_int64), ("longest_target", c_int64), ("pad", c_int32),
                ("start", c_int32), ("eos", c_int32)]


TEXTS = POINTER(c_char_p)
SIGNATURES = {
    "xfc_open": [c_char_p, TEXTS, POINTER(c_void_p)],
    "xfc_describe": [c_void_p, POINTER(Info)],
    "xfc_encode": [c_void_p, c_int, c_char_p, POINTER(c_int32), c_size_t, POINTER(c_size_t)],
    "xfc_decode": [c_void_p, c_int, POINTER(c_int32), c_size_t, c_char_p, c_size_t, POINTER(c_size_t)],
    "xfc_translate": [c_void_p, TEXTS, TEXTS, c_size_t, TEXTS, POINTER(c_void_p)],
    "xfc_search_start": [c_void_p, TEXTS, TEXTS, c_size_t, TEXTS, POINTER(c_void_p)],
    "xfc_search_advance": [c_void_p, c_size_t, POINTER(c_int)],
    "xfc_search_line": [c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_int)],
    "xfc_search_hypothesis": [c_void_p, c_size_t, c_size_t, POINTER(Hypothesis)],
    "xfc_score": [c_void_p, TEXTS, TEXTS, c_size_t, POINTER(c_double)],
    "xfc_forward": [c_void_p, c_size_t, POINTER(c_int32), c_size_t, POINTER(c_int32), c_size_t, POINTER(c_float)],
    "xfc_training_start": [c_void_p, TEXTS, POINTER(c_void_p)],
    "xfc_training_step": [c_void_p, TEXTS, TEXTS, c_size_t, c_double, POINTER(Loss)],
    "xfc_save": [c_void_p, c_char_p],
}


def texts(lines):
    """An array of lines that ends with a null pointer."""
    return (c_char_p * (len(lines) + 1))(*(line if line is None or isinstance(line, bytes) else line.encode() for line in lines), None)


def load(path):
    """The functions of a library. Each library has its own: any number may be loaded."""
    library = ctypes.CDLL(path)
    for name, arguments in SIGNATURES.items():
        getattr(library, name).argtypes = arguments
    for name in ("xfc_close", "xfc_search_close", "xfc_training_close"):
        getattr(library, name).argtypes, getattr(library, name).restype = [c_void_p], None
    for name in ("xfc_message", "xfc_warnings"):
        getattr(library, name).argtypes, getattr(library, name).restype = [c_void_p], c_char_p
    library.xfc_version.restype = c_char_p
    if library.xfc_api_version() != API_VERSION:
        raise RuntimeError(f"{path} has version {library.xfc_api_version()} of the interface, this file is for {API_VERSION}")
    return library


class Handle:
    """Something of the library that is closed once."""

    def __init__(self, library, model=None):
        self.library, self.handle, self.model = library, c_void_p(), model

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            raise Error(status, self.library.xfc_message((self.model or self).handle).decode(errors="replace"))

    def close(self):
        if self.handle:
            getattr(self.library, self.closes)(self.handle)
        self.handle = c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Search(Handle):
    closes = "xfc_search_close"

    def advance(self, steps=1):
        """Whether there are lines that have not ended."""
        running = c_int()
        self.call("xfc_search_advance", self.handle, steps, byref(running))
        return bool(running.value)

    def hypotheses(self, line):
        """Whether the line has ended, and (text, score, ids) of each of its hypotheses, the best first."""
        count, ended, one, all = c_size_t(), c_int(), Hypothesis(), []
        self.call("xfc_search_line", self.handle, line, byref(count), byref(ended))
        for rank in range(count.value):
            self.call("xfc_search_hypothesis", self.handle, line, rank, byref(one))
            all.append((one.text[:one.size].decode(errors="replace"), one.score, one.ids[:one.count]))
        return bool(ended.value), all


class Training(Handle):
    closes = "xfc_training_close"

    def step(self, sources, targets, rate):
        loss = Loss()
        self.call("xfc_training_step", self.handle, texts(sources), texts(targets), len(sources), rate, byref(loss))
        return loss


class Model(Handle):
    closes = "xfc_close"

    def __init__(self, library, path=None, *options):
        super().__init__(library)
        try:
            self.call("xfc_open", path.encode() if path else None, texts(options), byref(self.handle))
        except Error:
            self.close()
            raise

    def warnings(self):
        return self.library.xfc_warnings(self.handle).decode().splitlines()

    def info(self):
        info = Info()
        self.call("xfc_describe", self.handle, byref(info))
        return info

    def encode(self, line, side=0):
        count = c_size_t()
        self.call("xfc_encode", self.handle, side, texts([line])[0], None, 0, byref(count))
        ids = (c_int32 * count.value)()
        self.call("xfc_encode", self.handle, side, texts([line])[0], ids, count.value, byref(count))
        return list(ids)

    def decode(self, ids, side=1):
        size, array = c_size_t(), (c_int32 * len(ids))(*ids)
        self.call("xfc_decode", self.handle, side, array, len(ids), None, 0, byref(size))
        text = ctypes.create_string_buffer(size.value + 1)
        self.call("xfc_decode", self.handle, side, array, len(ids), text, size.value + 1, byref(size))
        return text.raw[:size.value].decode(errors="replace")

    def search(self, lines, *options, prefixes=None, start="xfc_search_start"):
        """A search that its advance() takes on."""
        search = Search(self.library, self)
        forced = texts(prefixes) if prefixes else None
        self.call(start, self.handle, texts(lines), forced, len(lines), texts(options), byref(search.handle))
        return search

    def translate(self, lines, *options, prefixes=None):
        """(text, score, ids) of each hypothesis of each line."""
        with self.search(lines, *options, prefixes=prefixes, start="xfc_translate") as search:
            return [search.hypotheses(line)[1] for line in range(len(lines))]

    def score(self, sources, targets):
        scores = (c_double * len(sources))()
        self.call("xfc_score", self.handle, texts(sources), texts(targets), len(sources), scores)
        return list(scores)

    def forward(self, source, target):
        """Logits as a flat array [batch, target columns, vocabulary] of rectangular lists of ids."""
        flat = [(c_int32 * sum(map(len, rows)))(*(i for row in rows for i in row)) for rows in (source, target)]
        logits = (c_float * (len(flat[1]) * self.info().target_vocabulary))()
        self.call("xfc_forward", self.handle, len(source), flat[0], len(source[0]), flat[1], len(target[0]), logits)
        return logits

    def train(self, *options):
        training = Training(self.library, self)
        self.call("xfc_training_start", self.handle, texts(options), byref(training.handle))
        return training

    def save(self, file):
        self.call("xfc_save", self.handle, file.encode())


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        with Model(load(sys.argv[1]), sys.argv[2]) as model:
            lines = [line.rstrip("\n") for line in sys.stdin]
            for hypotheses in model.translate(lines, *sys.argv[3:]):
                for text, _, _ in hypotheses:
                    print(text)
    except Error as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
