"""Checks every option of the search, and every pair of them, against an enumeration: check_options.py TRANSLATOR WORK_FOLDER WEIGHTS
[OTHER_WEIGHTS WEIGHT OTHER_WEIGHT OTHER_TRANSLATOR OTHER_LIBRARY]. With other weights, of an ensemble of two models, the other of which has an
executable and a library of its own.

The vocabulary has five tokens or more; options whose values have others are left out. Translations have up to XFC_SEARCH_LENGTH tokens, or four.
The probability of each token after each beginning of up to so many tokens is asked for once, with forced beginnings; what the options make of them is computed here, by the rules in BeamSearch.h, Constraints.h and Candidates.h. Plain Python.
"""
import copy
import functools
import itertools
import json
import math
import os
import subprocess
import sys

import id_lines

translator, work, *given = sys.argv[1:]
models = given[:2]
shares = list(map(float, given[2:4]))
executables = [translator, *given[4:5]]  # of each model
libraries = given[5:]
PAD, START, EOS = 0, 2, 3
VOCABULARY = json.loads(subprocess.run([translator, "info", "--json"], capture_output=True, check=True).stdout)["target_vocab"]
TOKENS = (1, *range(4, VOCABULARY))
LONGEST = int(os.environ.get("XFC_SEARCH_LENGTH", 4))
SOURCES = [[4, 5, 6, EOS], [6, EOS], [5, 5, 4, 6, 1, EOS]]
SOURCES = [[min(token, VOCABULARY - 1) for token in source] for source in SOURCES]
NEAR = 1e-4
failures = []


def run(executable, *arguments):
    return subprocess.run([executable, *map(str, arguments)], capture_output=True, text=True)


def translate(sources, *arguments):
    """The hypotheses of each source, and what an error says."""
    together = ["--ensemble-weights", *shares, "--ensemble-library", *libraries] if len(models) > 1 else []
    return translate_with(translator, [*(word for file in models for word in ("--model", file)), *together], sources, *arguments)


def translate_with(executable, model, sources, *arguments):
    done = run(executable, "translate", *model, "--format", "ids", "--input", id_lines.write(work, "asked", sources), "--json", "--quiet", *arguments)
    return [json.loads(line)["hypotheses"] for line in done.stdout.splitlines()], done.stderr if done.returncode else ""


def logarithms(executable, file, sources):
    """For each source and beginning, {token: log-probability}, by one model alone."""
    tables = [{(): {}} for _ in sources]
    sums = [{(): 0.0} for _ in sources]
    for length in range(LONGEST + 1):
        beginnings = list(itertools.product(TOKENS, repeat=length))
        asked = [(i, beginning) for i in range(len(sources)) for beginning in beginnings]
        found, error = translate_with(executable, ["--weights", file], [sources[i] for i, _ in asked], "--prefix", id_lines.write(work, "beginnings", [beginning for _, beginning in asked]), "--beam", 8,
                                 "--n-best", 8, "--max-length", length + 1, "--at-max-length", "cut", "--length-penalty", 0)
        assert not error, error
        for (i, beginning), hypotheses in zip(asked, found, strict=True):
            assert len(hypotheses) == len(TOKENS) + 1, hypotheses
            row = tables[i][beginning] = {}
            for hypothesis in hypotheses:
                ids = tuple(hypothesis["ids"])
                row[ids[length] if len(ids) > length else EOS] = hypothesis["log_probability"] - sums[i][beginning]
                if len(ids) > length:
                    sums[i][ids] = hypothesis["log_probability"]
    return tables


def averaged(tables):
    """The logarithms of the weighted means of the models' probabilities."""
    return [{ids: {token: math.log(sum(share * math.exp(table[ids][token]) for share, table in zip(shares, of_source)) / sum(shares)) for token in row}
             for ids, row in of_source[0].items()} for of_source in zip(*tables, strict=True)]


def attentions(sources):
    """For each source and full-length beginning, a row for each of its tokens: what it attends to."""
    beginnings = list(itertools.product(TOKENS, repeat=LONGEST))
    asked = [(i, beginning) for i in range(len(sources)) for beginning in beginnings]
    found, error = translate([sources[i] for i, _ in asked], "--prefix", id_lines.write(work, "beginnings", [beginning for _, beginning in asked]), "--beam", 1,
                             "--max-length", LONGEST, "--alignments=soft")
    assert not error, error
    tables = [{} for _ in sources]
    for (i, beginning), hypotheses in zip(asked, found, strict=True):
        tables[i][beginning] = hypotheses[0]["attention"][:LONGEST]
    return tables


USUAL = {"beam": 3, "n_best": 1, "length_penalty": 0.6, "length_penalty_form": "offset", "early_stopping": "true", "patience": 1.0, "beam_groups": 1,
         "diversity": 0.5, "coverage_penalty": 0.0, "max_length": LONGEST,
         "max_length_ratio": 0.0, "min_length": 0, "min_length_ratio": 0.0, "at_max_length": "eos", "forced_first": (), "suppress": (), "bad_sequences": (),
         "required_phrases": (), "no_repeat_ngram": 0, "repetition_penalty": 1.0, "renormalize": "false", "prefix": (), "constraints": (), "alternatives": "false",
         "min_alternative_probability": 0.0, "shortlist": ()}
# Targets of sources, and how probable they are.
LEXICON = ((4, ((5, 0.6), (1, 0.3))), (5, ((6, 0.5), (4, 0.4))), (6, ((4, 0.9), (1, 0.05), (6, 0.05))))
LEXICON = tuple((source, tuple(target for target in targets if target[0] < VOCABULARY)) for source, targets in LEXICON if source < VOCABULARY)
VALUES = {"beam": [1, 2, 6], "n_best": [2, 3], "length_penalty": [0, 2.5, -1], "length_penalty_form": ["power"], "early_stopping": ["false", "never"],
          "patience": [0.4, 2.0], "beam_groups": [3], "diversity": [1.5], "coverage_penalty": [0.7, 5.0], "max_length": [2], "max_length_ratio": [0.4, 1.0], "min_length": [2], "min_length_ratio": [0.4],
          "at_max_length": ["forced_eos", "cut"], "forced_first": [(5,), (6, 4)], "suppress": [(1,)], "bad_sequences": [((1, 6), (START, 1), (6,))],
          "required_phrases": [(((4, 5), (6,)),), (((5,),), ((5,), (1, 1)))],  # constraints of every source
          "no_repeat_ngram": [1, 2], "repetition_penalty": [1.5, 0.7], "renormalize": ["true"], "alternatives": ["true"],
          # A lexicon, how many tokens come first, and how many are the best.
          "shortlist": [(LEXICON, 0, 1), (LEXICON, 2, 2), (LEXICON, 0, 2)],
          # For each source. Constraints are choices of phrases.
          "prefix": [((4,), (), (5, 1))],
          "constraints": [((((6,),),), (((4, 4, 5),),), ()), ((((1, 6), (4,)), ((5,),)), (((5, 1),),), (((6,),), ((6,),))),
                          ((((5, 4),), ((4, 5),)), (((4,),), ((4, 1),)), (((1,), (6, 6)), ((1,), (4,))))]}


def known(value):
    """Whether the vocabulary has all tokens of a value."""
    return all(map(known, value)) if isinstance(value, tuple) else value < VOCABULARY


for name in ("forced_first", "suppress", "bad_sequences", "required_phrases", "prefix", "constraints"):
    VALUES[name] = [value for value in VALUES[name] if known(value)]


class NothingLeft(Exception):
    pass


class Refused(Exception):
    pass


def forbids_in_itself(settings, phrase, last):
    """Whether the settings forbid the token at `last` to follow those before it in the phrase."""
    suppress, bad_sequences, ngram = settings
    read = phrase[:last + 1]
    grams = [read[i:i + ngram] for i in range(len(read) - ngram + 1)] if ngram else []
    return read[-1] in suppress or any(read[-len(bad):] == bad for bad in bad_sequences) or (grams and grams[-1] in grams[:-1])


def placed(constraints, ids, free, settings, taken=frozenset()):
    """Whether there is a phrase of each constraint in ids, without common tokens; from `free` on without what the settings forbid."""
    if not constraints:
        return True
    for phrase in constraints[0]:
        for at in range(len(ids) - len(phrase) + 1):
            places = range(at, at + len(phrase))
            if (ids[at:at + len(phrase)] == phrase and not taken.intersection(places)
                    and not any(place >= free and forbids_in_itself(settings, phrase, place - at) for place in places)
                    and placed(constraints[1:], ids, free, settings, taken.union(places))):
                return True
    return False


@functools.lru_cache(None)
def needed(constraints, ids, settings):
    """The fewest tokens that have to follow so that the constraints are met; none are enough if it is more than LONGEST - len(ids)."""
    for count in range(LONGEST + 1 - len(ids)):
        if any(placed(constraints, ids + more, len(ids), settings) for more in itertools.product(TOKENS, repeat=count)):
            return count
    return math.inf


class Reference:
    """The search for one source."""

    def __init__(self, settings, number, table, attended=None):
        self.__dict__.update(settings)
        self.table = table
        self.attended = attended
        source = SOURCES[number]
        self.prefix = self.prefix[number] if self.prefix else ()
        self.constraints = (self.constraints[number] if self.constraints else ()) + self.required_phrases
        given = self.forced_first + self.prefix
        if self.shortlist:
            lexicon, first, best = self.shortlist
            lexicon = dict(lexicon)
            self.listed = {EOS, *range(first), *given, *(token for choice in self.constraints for phrase in choice for token in phrase)}
            self.listed |= {target for token in source for target, _ in lexicon.get(token, ())[:best]}
        times = lambda ratio: math.ceil(ratio * len(source))  # noqa: E731
        self.longest = self.max_length
        self.shortest = max(self.min_length, times(self.min_length_ratio))
        if self.max_length_ratio:
            beginning = len(given) + (self.needed(given) if self.needed(given) < math.inf else 0)
            self.longest = min(self.longest, max(times(self.max_length_ratio), self.shortest, beginning))
        self.shortest = min(self.shortest, self.longest)
        self.certain = self.renormalize == "true"
        self.cut = self.at_max_length == "cut"
        if self.needed(given[:self.longest]) > self.longest - len(given[:self.longest]):
            raise Refused

    def needed(self, ids):
        return needed(self.constraints, ids, (self.suppress, self.bad_sequences, self.no_repeat_ngram))

    def penalty(self, count):
        return (max(count, 1) if self.length_penalty_form == "power" else (5 + count) / 6) ** self.length_penalty

    def after(self, ids):
        """{token: log-probability} of what may follow."""
        row = {token: number * (self.repetition_penalty if token in ids else 1) for token, number in self.table[ids].items()}
        if len(ids) >= self.longest:
            return {EOS: 0 if self.certain or self.at_max_length == "forced_eos" else row[EOS]}
        if len(ids) < len(self.forced_first):
            return {self.forced_first[len(ids)]: 0}
        if len(ids) < len(self.forced_first) + len(self.prefix):
            token = self.prefix[len(ids) - len(self.forced_first)]
            return {token: 0 if self.certain else row[token]}
        never = set(self.suppress)
        history = (START, *ids)
        never |= {bad[-1] for bad in self.bad_sequences if len(bad) <= len(history) + 1 and history[len(history) - len(bad) + 1:] == bad[:-1]}
        if size := self.no_repeat_ngram:
            grams = [ids[i:i + size] for i in range(len(ids) - size + 1)]
            never |= {gram[-1] for gram in grams if gram[:-1] == ids[len(ids) - size + 1:]}
        if self.shortlist:
            never |= set(TOKENS) - self.listed
        if len(ids) < self.shortest or self.needed(ids) > 0:
            never.add(EOS)
        never |= {token for token in TOKENS if self.needed((*ids, token)) > self.longest - len(ids) - 1}
        row = {token: number for token, number in row.items() if token not in never}
        if self.certain and row:
            total = math.log(sum(map(math.exp, row.values())))
            row = {token: number - total for token, number in row.items()}
        return row

    def search(self):
        if self.alternatives == "true" and len(self.forced_first + self.prefix) < self.longest:
            return self.search_alternatives()
        return self.search_from((), 0.0)

    def search_alternatives(self):
        """The best of each beam that begins with one of the most probable tokens after what is forced."""
        beginning, total = self.forced_first + self.prefix, 0.0
        for i, token in enumerate(beginning):
            total += self.after(beginning[:i])[token]
        row = {token: number for token, number in self.after(beginning).items() if token != EOS}
        scale = math.log(sum(map(math.exp, row.values()))) if self.certain and row else 0
        following = sorted((scale - number, token) for token, number in row.items())
        one = copy.copy(self)
        one.n_best, results = 1, []
        for rank, (number, token) in enumerate(following[:self.n_best]):
            if rank > 0 and math.exp(-number) < self.min_alternative_probability:
                break
            try:
                results += one.search_from((*beginning, token), total - number)
            except NothingLeft:
                pass
        if not results:
            raise NothingLeft
        return results

    def search_from(self, beginning, total):
        width = self.beam // self.beam_groups
        groups = [[(beginning, total, 0.0)] for _ in range(self.beam_groups)]  # ids, log-probability and what was lost for diversity, the best first
        finished = [[] for _ in groups]
        if self.cut and beginning and len(beginning) >= self.longest:
            finished[0].append((total / self.penalty(len(beginning)), total, list(beginning)))
            groups = [[]]
        for length in range(len(beginning), self.longest + 1):
            if not any(groups):
                break
            chosen = []  # tokens, by the groups so far
            before = any(finished)
            anything = False
            for number, live in enumerate(groups):
                ranked = sorted(self.continuations(live, chosen))
                anything |= bool(ranked)
                groups[number] = []
                for rank, (value, token, parent, total, lost) in enumerate(self.taking_turns(live, ranked, width)):
                    if len(groups[number]) == width:
                        break
                    ids = live[parent][0]
                    if token != EOS:
                        groups[number].append(((*ids, token), total, lost))
                    elif rank < width:
                        finished[number].append((-value / self.penalty(length + 1), total, list(ids)))
                groups[number].sort(key=lambda one: one[2] - one[1])
                chosen += [ids[-1] for ids, _, _ in groups[number]]
            if not anything and not before:
                raise NothingLeft
            for number, live in enumerate(groups):
                if self.cut and length + 1 >= self.longest:
                    finished[number] += [((total - lost) / self.penalty(length + 1), total, list(ids)) for ids, total, lost in live]
                if (self.cut and length + 1 >= self.longest) or (live and self.decided(live, finished[number], length + 1, width)):
                    groups[number] = []
            if not any(groups):
                break
        finished = [[(score + self.coverage_penalty * self.coverage(tuple(ids)), total, ids) for score, total, ids in of_group] for of_group in finished]
        results = [one for of_group in finished for one in sorted(of_group, key=lambda result: -result[0])[:width if len(groups) > 1 else None]]
        return sorted(results, key=lambda result: -result[0])[:self.n_best]

    def coverage(self, ids):
        """How the source's tokens are attended to while ids are written; nothing else is if these are none."""
        if not self.coverage_penalty:
            return 0
        rows = self.attended[ids + (TOKENS[0],) * (LONGEST - len(ids))][:max(len(ids), 1)]
        return sum(math.log(min(sum(column), 1)) for column in zip(*rows, strict=True) if sum(column) > 0)

    def continuations(self, live, chosen):
        for parent, (ids, before, lost) in enumerate(live):
            following = self.after(ids)
            forced = len(ids) < len(self.forced_first) + len(self.prefix) or len(ids) >= self.longest
            for token, number in following.items():
                loses = lost + (0 if forced else self.diversity * chosen.count(token))
                yield loses - before - number, token, parent, before + number, loses

    def taking_turns(self, live, ranked, width):
        """The most probable continuations, for half of the beam, and the others in the order of their rank among those that need as many tokens,
        and then of this number."""
        banks, rounds = {}, []
        for continuation in ranked:
            _, token, parent, _, _ = continuation
            need = self.needed(live[parent][0] + ((token,) if token != EOS else ()))
            banks[need] = banks.get(need, 0) + 1
            rounds.append((banks[need], need, continuation))
        half = width // 2
        return ranked[:half] + [continuation for _, _, continuation in sorted(rounds[half:], key=lambda one: one[:2])]

    def decided(self, live, finished, length, width):
        scores = sorted((score for score, _, _ in finished), reverse=True)
        enough = 1 if self.beam == 1 else max(int(width * self.patience + 0.5), math.ceil(self.n_best / self.beam_groups))
        most = self.longest + (not self.cut)
        if len(scores) >= enough:
            if self.beam == 1 or self.early_stopping == "true":
                return True
            count = most if self.early_stopping == "never" and self.length_penalty > 0 else length
            if (live[0][1] - live[0][2]) / self.penalty(count) <= scores[min(width, len(scores)) - 1]:
                return True
        if len(scores) < self.n_best or self.beam_groups > 1 or self.coverage_penalty:
            return False
        return all(max(number / self.penalty(length + 1), number / self.penalty(most)) <= scores[self.n_best - 1] for _, number, _ in live)


def phrases_of(choice):
    return " || ".join(" ".join(map(str, phrase)) for phrase in choice)


def constraints_file(of_sources):
    path = os.path.join(work, "constraints")
    with open(path, "w") as file:
        for constraints in of_sources:
            file.write("\t".join(map(phrases_of, constraints)) + "\n")
    return path


def flags(settings):
    words = []
    for name, value in settings.items():
        flag = "--" + name.replace("_", "-")
        if name == "bad_sequences":
            words += [flag, *(" ".join(map(str, bad)) for bad in value)] if value else []
        elif name == "required_phrases":
            words += [flag, *(phrases_of(choice) for choice in value)] if value else []
        elif name == "prefix":
            words += [flag, id_lines.write(work, name, value)] if value else []
        elif name == "constraints":
            words += [flag, constraints_file(value)] if value else []
        elif name == "shortlist":
            if value:
                lexicon, first, best = value
                with open(os.path.join(work, "lexicon"), "w") as file:
                    file.writelines(f"{target} {source} {share}\n" for source, targets in lexicon for target, share in reversed(targets))
                words += ["--shortlist", os.path.join(work, "lexicon"), "--shortlist-first", first, "--shortlist-best", best]
        elif name == "min_alternative_probability":
            words += [flag, value] if value else []
        elif name == "alternatives":
            words += [flag] if value == "true" else []
        else:
            words += [flag, " ".join(map(str, value)) if isinstance(value, tuple) else value]
    return words


def compare(settings, tables):
    found, error = translate(SOURCES, *flags(settings))
    changed = {name: value for name, value in settings.items() if value != USUAL[name]}
    if settings["alternatives"] == "true" and settings["beam_groups"] > 1:
        if "--alternatives" not in error or "--beam-groups" not in error:
            failures.append(f"{changed}: alternatives in groups: {error!r}")
        return
    if settings["n_best"] > settings["beam"] and settings["alternatives"] == "false":
        if "--n-best" not in error or "--beam" not in error:
            failures.append(f"{changed}: more translations than hypotheses: {error!r}")
        return
    if settings["beam"] % settings["beam_groups"]:
        if f"--beam-groups: {settings['beam_groups']} does not divide beam" not in error:
            failures.append(f"{changed}: groups of unequal size: {error!r}")
        return
    try:
        searches = [Reference(settings, number, table, attended[number]) for number, table in enumerate(tables)]
        expected = [search.search() for search in searches]
    except Refused:
        if ("constraint" not in error and "--required-phrases" not in error) or ("there is room for" not in error and "forbids each of its phrases" not in error):
            failures.append(f"{changed}: the constraints cannot be met, but: {error!r}")
        return
    except NothingLeft:
        if "no token is left" not in error:
            failures.append(f"{changed}: no token is left, but: {error!r}")
        return
    if error:
        failures.append(f"{changed}: {error}")
        return
    for source, hypotheses, results in zip(SOURCES, found, expected, strict=True):
        got = [(h["ids"], h["score"], h["log_probability"]) for h in hypotheses]
        wanted = [(ids, score, number) for score, number, ids in results]
        same = len(got) == len(wanted) and all(a[0] == b[0] and abs(a[1] - b[1]) < NEAR and abs(a[2] - b[2]) < NEAR for a, b in zip(got, wanted))
        if not same:
            failures.append(f"{changed}: {source}: {got}, expected {wanted}")


def compare_all(settings, tables):
    """A beam from which nothing falls finds all translations that meet the constraints, in the order of their scores."""
    found, error = translate(SOURCES, *flags(settings | dict.fromkeys(("beam", "n_best"), 2 * len(TOKENS) ** LONGEST)))
    assert not error, error
    for number, (hypotheses, table) in enumerate(zip(found, tables, strict=True)):
        search, expected = Reference(settings, number, table), []
        for length in range(LONGEST + 1):
            for ids in itertools.product(TOKENS, repeat=length):
                if placed(search.constraints, ids, length, ((), (), 0)):
                    expected.append((sum(table[ids[:i]][token] for i, token in enumerate((*ids, EOS))) / search.penalty(length + 1), ids))
        expected.sort(reverse=True)
        got = [(hypothesis["score"], tuple(hypothesis["ids"])) for hypothesis in hypotheses]
        if sorted(ids for _, ids in got) != sorted(ids for _, ids in expected) or any(abs(a - b) > NEAR for (a, _), (b, _) in zip(got, expected)):
            failures.append(f"{settings['constraints'][number]}: {len(got)} translations, expected {len(expected)}; {got[:3]}, expected {expected[:3]}")


SAMPLED = {"temperature": [0.6, 2.0], "top_k": [2], "top_p": [0.6], "min_p": [0.4], "typical_p": [0.5], "epsilon_cutoff": [0.2], "suppress": [(4,)]}


QUANTILES = {2: 18.4, 3: 21.1, 4: 23.5, 5: 25.7}  # of chi-square with so many degrees of freedom, at 0.9999


def drawn_from(settings, row):
    """{token: probability}, from the log-probabilities of the tokens."""
    row = {token: number / settings.get("temperature", 1) for token, number in row.items() if token not in settings.get("suppress", ())}

    def shares():
        total = sum(map(math.exp, row.values()))
        return {token: math.exp(number) / total for token, number in row.items()}

    def keep(tokens):
        for token in set(row) - set(tokens):
            del row[token]

    best = lambda: sorted(row, key=lambda token: (-row[token], token))  # noqa: E731
    if "top_k" in settings:
        keep(best()[:settings["top_k"]])
    if "top_p" in settings:
        keep(first_until(best(), shares(), settings["top_p"]))
    if "min_p" in settings:
        now = shares()
        keep([token for token in row if now[token] >= settings["min_p"] * max(now.values())])
    if "typical_p" in settings:
        now = shares()
        entropy = -sum(share * math.log(share) for share in now.values())
        keep(first_until(sorted(row, key=lambda token: abs(-math.log(now[token]) - entropy)), now, settings["typical_p"]))
    if "epsilon_cutoff" in settings:
        now = shares()
        keep([token for token in row if now[token] >= min(settings["epsilon_cutoff"], max(now.values()))])
    return shares()


def first_until(tokens, shares, most):
    kept, total = [], 0
    for token in tokens:
        if total >= most:
            break
        kept.append(token)
        total += shares[token]
    return kept


def compare_draws(settings, tables):
    draws = 4000
    found, error = translate(SOURCES, "--sample", "--n-best", draws, "--max-length", 1, "--at-max-length", "cut", *flags(settings))
    if error:
        failures.append(f"{settings}: {error}")
        return
    for source, hypotheses, table in zip(SOURCES, found, tables, strict=True):
        expected = drawn_from(settings, table[()])
        counts = dict.fromkeys((*TOKENS, EOS), 0)
        for hypothesis in hypotheses:
            counts[hypothesis["ids"][0] if hypothesis["ids"] else EOS] += 1
        others = [token for token, count in counts.items() if count and token not in expected]
        square = sum((counts[token] - draws * share) ** 2 / (draws * share) for token, share in expected.items())
        if others or square > QUANTILES[len(TOKENS)]:
            failures.append(f"{settings}: {source}: drew {counts}, expected {expected}")


tables = [logarithms(executable, file, SOURCES) for executable, file in zip(executables, models, strict=True)]
tables = averaged(tables) if len(models) > 1 else tables[0]
attended = attentions(SOURCES)
single = [{name: value} for name, values in VALUES.items() for value in values]
pairs = [a | b for a, b in itertools.combinations(single, 2) if a.keys() != b.keys()]
# The places of a beam show in all that it finds.
whole = [{"constraints": value, "beam": beam, "n_best": beam} for value in VALUES["constraints"] for beam in (2, 3, 4, 5, 7)]
# So do those of groups of several hypotheses.
grouped = [{"beam": beam, "beam_groups": groups, "n_best": best} for beam, groups, best in ((4, 2, 4), (4, 2, 1), (6, 2, 2), (6, 3, 6), (4, 4, 4))]
whole += [one | changed for one in grouped for changed in [{}, {"diversity": 0.1}, {"diversity": 3}, *single] if not {"beam", "beam_groups", "n_best"} & changed.keys()]
# With several alternatives, each other option has an effect.
whole += [{"alternatives": "true", "n_best": best, "min_alternative_probability": least} | changed for best, least in ((3, 0), (6, 0.2)) for changed in [{}, *single]
          if not {"alternatives", "n_best"} & changed.keys()]
for changed in [{}, *single, *pairs, *whole]:
    compare(USUAL | changed, tables)
for value in VALUES["constraints"]:
    compare_all(USUAL | {"constraints": value}, tables)
sampled = [{name: value} for name, values in SAMPLED.items() for value in values]
sampled += [a | b for a, b in itertools.combinations(sampled, 2) if a.keys() != b.keys()]
for changed in [{}, *sampled]:
    compare_draws(changed, tables)
if failures:
    sys.exit(f"{len(failures)} failures:\n  " + "\n  ".join(failures[:20]))
print(f"{1 + len(single) + len(pairs) + len(whole)} searches and {1 + len(sampled)} samplings agree with the enumeration")
