"""The C interface of xfc's libraries (xfc.h), which `xfc compile MODEL --emit lib -o NAME` makes, through ctypes.

The interpreter's lock is free while a library computes, so calls on different models run at the same time.
"""
import ctypes
import math
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

API_VERSION = 1
NAMES = {1: "failed", 2: "misuse", 3: "out of memory"}
Line = Union[str, bytes, None]
# What a translation must contain: phrases, or in place of one several, of which one is enough.
Constraints = Sequence[Union[str, Sequence[str]]]


class Error(Exception):
    """What xfc_message() says, or what another part of xfc could not do (status 1)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message or NAMES[status])
        self.status = status


class _Hypothesis(NamedTuple):
    text: str
    score: float
    ids: List[int]


class Hypothesis(_Hypothesis):
    """A translation: (text, score, ids), and what was asked for beside them."""
    token_log_probabilities: List[float]  # of each id, and of eos if it follows; --token-scores
    attention: List[List[float]]  # of each id, and of eos if it follows, to each token of the source; --alignments=soft
    rescore_log_probability: Optional[float]  # by the model that rescores; --rescore of the model


class CHypothesis(ctypes.Structure):
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
    "xfc_share": [c_void_p, POINTER(c_void_p)],
    "xfc_describe": [c_void_p, POINTER(Info)],
    "xfc_encode": [c_void_p, c_int, c_char_p, POINTER(c_int32), c_size_t, POINTER(c_size_t)],
    "xfc_decode": [c_void_p, c_int, POINTER(c_int32), c_size_t, c_char_p, c_size_t, POINTER(c_size_t)],
    "xfc_translate": [c_void_p, TEXTS, TEXTS, c_size_t, TEXTS, POINTER(c_void_p)],
    "xfc_translate_constrained": [c_void_p, TEXTS, TEXTS, TEXTS, c_size_t, TEXTS, POINTER(c_void_p)],
    "xfc_search_start": [c_void_p, TEXTS, TEXTS, c_size_t, TEXTS, POINTER(c_void_p)],
    "xfc_search_start_constrained": [c_void_p, TEXTS, TEXTS, TEXTS, c_size_t, TEXTS, POINTER(c_void_p)],
    "xfc_search_advance": [c_void_p, c_size_t, POINTER(c_int)],
    "xfc_search_line": [c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_int)],
    "xfc_search_hypothesis": [c_void_p, c_size_t, c_size_t, POINTER(CHypothesis)],
    "xfc_search_token_scores": [c_void_p, c_size_t, c_size_t, POINTER(POINTER(c_double)), POINTER(c_size_t)],
    "xfc_search_attention": [c_void_p, c_size_t, c_size_t, POINTER(POINTER(c_double)), POINTER(c_size_t), POINTER(c_size_t)],
    "xfc_search_rescored": [c_void_p, c_size_t, c_size_t, POINTER(c_double)],
    "xfc_score": [c_void_p, TEXTS, TEXTS, c_size_t, POINTER(c_double)],
    "xfc_forward": [c_void_p, c_size_t, POINTER(c_int32), c_size_t, POINTER(c_int32), c_size_t, POINTER(c_float)],
    "xfc_training_start": [c_void_p, TEXTS, POINTER(c_void_p)],
    "xfc_training_step": [c_void_p, TEXTS, TEXTS, c_size_t, c_double, POINTER(Loss)],
    "xfc_save": [c_void_p, c_char_p],
}


def texts(lines: Sequence[Line]) -> Any:
    """An array of lines that ends with a null pointer."""
    return (c_char_p * (len(lines) + 1))(*(line.encode() if isinstance(line, str) else line for line in lines), None)


def constraints_line(constraints: Constraints) -> str:
    """A line of `translate --constraints`."""
    if isinstance(constraints, str):
        raise TypeError("expected a list of phrases for each line, found a str")
    choices = [[one] if isinstance(one, str) else list(one) for one in constraints]
    for phrase in (phrase for choice in choices for phrase in choice):
        if "\t" in phrase or "||" in phrase.split(" "):
            raise ValueError(f"constraints: a phrase cannot contain a tab, or || between blanks: {phrase!r}")
    if not all(choices):
        raise ValueError("constraints: a list of phrases of which one is enough is empty")
    if choices == [[""]]:
        raise ValueError("constraints: a phrase is empty")
    return "\t".join(" || ".join(choice) for choice in choices)


def load(path: str) -> ctypes.CDLL:
    """The functions of a library. Each library has its own: any number may be loaded."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:  # the dynamic linker says which version of the C library is missing, for example
        raise Error(1, f"{path}: cannot load the library: {error}") from None
    for name, arguments in SIGNATURES.items():
        getattr(library, name).argtypes = arguments
    for name in ("xfc_close", "xfc_search_close", "xfc_training_close"):
        getattr(library, name).argtypes, getattr(library, name).restype = [c_void_p], None
    for name in ("xfc_message", "xfc_warnings"):
        getattr(library, name).argtypes, getattr(library, name).restype = [c_void_p], c_char_p
    library.xfc_version.restype = c_char_p
    if library.xfc_api_version() != API_VERSION:
        raise Error(1, f"{path} has version {library.xfc_api_version()} of the interface, and this module is for {API_VERSION}: compile the model "
                       "with the xfc that this module came with")
    return library


class Handle:
    """Something of the library that is closed once."""
    closes = ""

    def __init__(self, library: ctypes.CDLL, model: "Optional[Model]" = None) -> None:
        self.library, self.handle, self.model = library, c_void_p(), model

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise Error(status, self.library.xfc_message((self.model or self).handle).decode(errors="replace"))

    def close(self) -> None:
        if self.handle:
            getattr(self.library, self.closes)(self.handle)
        self.handle = c_void_p()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Search(Handle):
    closes = "xfc_search_close"

    def advance(self, steps: int = 1) -> bool:
        """Whether there are lines that have not ended."""
        running = c_int()
        self.call("xfc_search_advance", self.handle, steps, byref(running))
        return bool(running.value)

    def hypotheses(self, line: int) -> Tuple[bool, List[Hypothesis]]:
        """Whether the line has ended, and its hypotheses, the best first."""
        count, ended, one, found = c_size_t(), c_int(), CHypothesis(), []
        numbers, rows, columns, rescored = POINTER(c_double)(), c_size_t(), c_size_t(), c_double()
        self.call("xfc_search_line", self.handle, line, byref(count), byref(ended))
        for rank in range(count.value):
            self.call("xfc_search_hypothesis", self.handle, line, rank, byref(one))
            found.append(Hypothesis(one.text[:one.size].decode(errors="replace"), one.score, one.ids[:one.count]))
            self.call("xfc_search_token_scores", self.handle, line, rank, byref(numbers), byref(columns))
            found[-1].token_log_probabilities = numbers[:columns.value]
            self.call("xfc_search_attention", self.handle, line, rank, byref(numbers), byref(rows), byref(columns))
            found[-1].attention = [numbers[row * columns.value:(row + 1) * columns.value] for row in range(rows.value)]
            self.call("xfc_search_rescored", self.handle, line, rank, byref(rescored))
            found[-1].rescore_log_probability = None if math.isnan(rescored.value) else rescored.value
        return bool(ended.value), found


class Training(Handle):
    closes = "xfc_training_close"

    def step(self, sources: Sequence[Line], targets: Sequence[Line], rate: float) -> Loss:
        loss = Loss()
        self.call("xfc_training_step", self.handle, texts(sources), texts(targets), len(sources), rate, byref(loss))
        return loss


class Model(Handle):
    """An open model. Options are words of a command line: Model(library, "run", "--threads", "2")."""
    closes = "xfc_close"

    def __init__(self, library: ctypes.CDLL, path: Optional[str] = None, *options: str) -> None:
        super().__init__(library)
        try:
            self.call("xfc_open", path.encode() if path else None, texts(options), byref(self.handle))
        except Error:
            self.close()
            raise

    def share(self) -> "Model":
        """Another handle with the same weights, on which calls run at the same time. Not on a GPU, nor while the model is trained."""
        other = Model.__new__(Model)
        Handle.__init__(other, self.library)
        self.call("xfc_share", self.handle, byref(other.handle))
        return other

    def warnings(self) -> List[str]:
        warnings: bytes = self.library.xfc_warnings(self.handle)
        return warnings.decode().splitlines()

    def info(self) -> Info:
        info = Info()
        self.call("xfc_describe", self.handle, byref(info))
        return info

    def encode(self, line: str, side: int = 0) -> List[int]:
        count = c_size_t()
        self.call("xfc_encode", self.handle, side, texts([line])[0], None, 0, byref(count))
        ids = (c_int32 * count.value)()
        self.call("xfc_encode", self.handle, side, texts([line])[0], ids, count.value, byref(count))
        return list(ids)

    def decode(self, ids: Sequence[int], side: int = 1) -> str:
        size, array = c_size_t(), (c_int32 * len(ids))(*ids)
        self.call("xfc_decode", self.handle, side, array, len(ids), None, 0, byref(size))
        text = ctypes.create_string_buffer(size.value + 1)
        self.call("xfc_decode", self.handle, side, array, len(ids), text, size.value + 1, byref(size))
        return text.raw[:size.value].decode(errors="replace")

    def search(self, lines: Sequence[Line], *options: str, prefixes: Optional[Sequence[Line]] = None,
               constraints: Optional[Sequence[Optional[Constraints]]] = None, start: str = "xfc_search_start") -> Search:
        """A search that its advance() takes on."""
        search = Search(self.library, self)
        forced = texts(prefixes) if prefixes else None
        rest = (len(lines), texts(options), byref(search.handle))
        if constraints:
            wanted = texts([constraints_line(one or []) for one in constraints])
            self.call(f"{start}_constrained", self.handle, texts(lines), forced, wanted, *rest)
        else:
            self.call(start, self.handle, texts(lines), forced, *rest)
        return search

    def translate(self, lines: Sequence[Line], *options: str, prefixes: Optional[Sequence[Line]] = None,
                  constraints: Optional[Sequence[Optional[Constraints]]] = None) -> List[List[Hypothesis]]:
        """The hypotheses of each line, the best first."""
        with self.search(lines, *options, prefixes=prefixes, constraints=constraints, start="xfc_translate") as search:
            return [search.hypotheses(line)[1] for line in range(len(lines))]

    def score(self, sources: Sequence[Line], targets: Sequence[Line]) -> List[float]:
        scores = (c_double * len(sources))()
        self.call("xfc_score", self.handle, texts(sources), texts(targets), len(sources), scores)
        return list(scores)

    def forward(self, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]) -> "ctypes.Array[c_float]":
        """Logits as a flat array [batch, target columns, vocabulary] of rectangular lists of ids."""
        flat = [(c_int32 * sum(map(len, rows)))(*(i for row in rows for i in row)) for rows in (source, target)]
        logits: "ctypes.Array[c_float]" = (c_float * (len(flat[1]) * self.info().target_vocabulary))()
        self.call("xfc_forward", self.handle, len(source), flat[0], len(source[0]), flat[1], len(target[0]), logits)
        return logits

    def train(self, *options: str) -> Training:
        training = Training(self.library, self)
        self.call("xfc_training_start", self.handle, texts(options), byref(training.handle))
        return training

    def save(self, file: str) -> None:
        self.call("xfc_save", self.handle, file.encode())
