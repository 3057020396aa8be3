"""xfc from Python: translates with models that xfc trained or imported.

    import xfc
    m = xfc.Translator("run")                   # the --out folder of `translator train`, or a folder of `xfc import`
    m.translate(["How are you?"])               # a list of translations
    m.translate(lines, "--beam", "4")           # with options of `translator translate`

Nothing but Python's standard library is needed. `xfc.library` has all functions of the C interface.
"""
import concurrent.futures
import queue
from types import TracebackType
from typing import Any, Callable, Iterator, List, Optional, Sequence, Type, TypeVar

from .library import Constraints, Error, Hypothesis, Model, load
from .toolchain import compiler, library_of

__all__ = ["Error", "Hypothesis", "Model", "Translator", "compiler", "load"]
T = TypeVar("T")


class Translator:
    """A model that is open for translating, by as many `workers`.

    The workers translate parts of a list at the same time, each with the `--threads` of `options`, and calls from several
    threads of Python run on different workers. The weights are in memory once; on a GPU, each worker has a copy. The result
    is the same to the byte for any number of workers and threads.

    `library` is a library that `xfc compile --emit lib` made of this model. Without one, xfc compiles the model for this
    machine once, which takes some seconds, and keeps the library in ~/.cache/xfc (or $XDG_CACHE_HOME/xfc).
    """

    def __init__(self, model: str, *, library: Optional[str] = None, workers: int = 1, options: Sequence[str] = ()) -> None:
        if workers < 1:
            raise ValueError(f"workers: expected a number from 1, found {workers}")
        functions = load(library or library_of(model))
        self._models: List[Model] = []
        try:
            self._models.append(Model(functions, model, *options))
            for _ in range(1, workers):
                try:
                    other = self._models[0].share()
                except Error:  # on a GPU; if there is another reason, opening the model finds it, too
                    other = Model(functions, model, *options)
                self._models.append(other)
        except Error:
            self.close()
            raise
        self._free: "queue.SimpleQueue[Model]" = queue.SimpleQueue()
        for one in self._models:
            self._free.put(one)
        self._pool = concurrent.futures.ThreadPoolExecutor(workers) if workers > 1 else None

    def translate(self, lines: Sequence[str], *options: str, prefixes: Optional[Sequence[Optional[str]]] = None,
                  constraints: Optional[Sequence[Optional[Constraints]]] = None) -> List[str]:
        """The best translation of each line. Options are words of the command line of `translator translate`.

        `prefixes` are what the translations begin with, and `constraints` what they contain: for each line a list of phrases,
        where a list of phrases in place of one means that any of these is enough.
        """
        return [found[0].text if found else "" for found in self.search(lines, *options, prefixes=prefixes, constraints=constraints)]

    def search(self, lines: Sequence[str], *options: str, prefixes: Optional[Sequence[Optional[str]]] = None,
               constraints: Optional[Sequence[Optional[Constraints]]] = None) -> List[List[Hypothesis]]:
        """The hypotheses of each line, the best first: `--n-best` says how many."""
        if isinstance(lines, str):
            raise TypeError("expected a list of lines, found a str")
        if prefixes is not None and len(prefixes) != len(lines):
            raise ValueError(f"{len(prefixes)} prefixes for {len(lines)} lines; expected one for each (None for none)")
        if constraints is not None and len(constraints) != len(lines):
            raise ValueError(f"{len(constraints)} lists of constraints for {len(lines)} lines; expected one for each (None for none)")

        def work(model: Model, part: slice) -> List[List[Hypothesis]]:
            return model.translate(lines[part], *options, prefixes=prefixes[part] if prefixes else None,
                                   constraints=constraints[part] if constraints else None)

        return self._in_parts(len(lines), work)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> List[float]:
        """The log-probability of each target line given its source line."""
        if len(sources) != len(targets):
            raise ValueError(f"{len(targets)} target lines for {len(sources)} source lines")
        return self._in_parts(len(sources), lambda model, part: model.score(sources[part], targets[part]))

    def stream(self, line: str, *options: str) -> Iterator[str]:
        """The translation as far as it is known, after each token."""
        model = self._free.get()
        try:
            with model.search([line], *options) as search:
                shown, running = None, True
                while running:
                    running = search.advance()
                    found = search.hypotheses(0)[1]
                    if found and found[0].text != shown:
                        shown = found[0].text
                        yield shown
        finally:
            self._free.put(model)

    def close(self) -> None:
        for model in self._models:
            model.close()
        self._models = []

    def __enter__(self) -> "Translator":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def _in_parts(self, count: int, work: Callable[[Model, slice], List[T]]) -> List[T]:
        """What `work` gives for 0 to count, which the workers do in parts."""
        if not self._models:
            raise ValueError("the translator is closed")

        def run(part: slice) -> List[T]:
            model = self._free.get()
            try:
                return work(model, part)
            finally:
                self._free.put(model)

        share = max(1, -(-count // len(self._models)))
        parts = [slice(begin, begin + share) for begin in range(0, count, share)]
        if self._pool is None or len(parts) < 2:
            return [one for part in parts for one in run(part)]
        return [one for found in self._pool.map(run, parts) for one in found]
