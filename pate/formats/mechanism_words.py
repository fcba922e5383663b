"""Descriptions of mechanisms in words: their output and their noise."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from string import Formatter
from typing import Final

from pate.codes import Code, code_of
from pate.errors import UsageError

_MOVES: Final = "; votes on a query that one unit can change: {votes_per_unit}"
_GEOMETRIC: Final = (
    "geometric noise in shares from each party on each count, of which {honest} sum to scale "
    "{scale}"
)
_SHARES: Final = (
    "noise of sigma {share} from each party on each count, of which {honest} shares are counted"
)
_CAST: Final = "votes that one unit casts in all: at most {{votes_per_unit}}"
_COUNTS: Final = "neighbour votes: all counts leave once ({}); " + _CAST
_RELEASED: Final = (
    "neighbour votes: all counts leave once ({}); a query whose largest noisy count leads by "
    "{{threshold}} or more gets a label; " + _CAST
)
_REACHES: Final = "teachers that one unit changes: {{votes_per_unit}}"
_TAUGHT: Final = "teachers' votes: all counts leave once ({}); " + _REACHES
_LABELLED: Final = (
    "teachers' votes: all counts leave once ({}); a query whose largest noisy count leads by "
    "{{threshold}} or more gets a label; " + _REACHES
)
#: Before the names of mechanisms of rounds.
_IN_ROUNDS: Final = "rounds of "
_ROUND: Final = (
    "records vote in rounds: all sums of a round leave once ({}); arrays that one unit casts in a round: at "
    "most {{votes_per_unit}}"
)
_OR_PREDICTION: Final = (
    ", else the student's own prediction if it is more than {confidence} sure, else no label"
)
#: By the mechanism's name, and where its noise has several laws one text for each. Each has all
#: parameters of its mechanism, and no other.
_WORDS: Final[Mapping[str, str | tuple[str, ...]]] = {
    "lnmax": "LNMax: the class with the most votes (Laplace noise of scale {scale} on each count)"
    + _MOVES,
    "gnmax": "GNMax: the class with the most votes (noise of sigma {sigma} on each count)" + _MOVES,
    "confident-gnmax": (
        "Confident-GNMax: if the largest count is {threshold} or more (noise of sigma {sigma1}), the "
        "class with the most votes (noise of sigma {sigma2} on each count), else no label" + _MOVES
    ),
    "interactive-gnmax": (
        "Interactive-GNMax: if some count is {threshold} or more above what the student expects "
        "(noise of sigma {sigma1}), the class with the most votes (noise of sigma {sigma2} on each "
        "count)" + _OR_PREDICTION + _MOVES
    ),
    "distributed-gnmax": f"GNMax: the class with the most votes ({_SHARES})" + _MOVES,
    "distributed-confident-gnmax": (
        "Confident-GNMax: the class with the most votes if its noisy count is {threshold} or more, "
        f"else no label ({_SHARES})" + _MOVES
    ),
    "distributed-interactive-gnmax": (
        "Interactive-GNMax: if some noisy count is {threshold} or more above what the student "
        f"expects, the class with the most votes{_OR_PREDICTION} ({_SHARES})" + _MOVES
    ),
    "neighbour": tuple(
        words.format(noise)
        for words in (_RELEASED, _COUNTS)
        for noise in ("noise of sigma {sigma} on each", "geometric noise of scale {scale} on each")
    ),
    "distributed-neighbour": tuple(
        words.format(noise) for words in (_RELEASED, _COUNTS) for noise in (_SHARES, _GEOMETRIC)
    ),
    f"{_IN_ROUNDS}neighbour": _ROUND.format("noise of sigma {sigma} on each"),
    f"{_IN_ROUNDS}distributed-neighbour": _ROUND.format(_SHARES),
    "teacher-labels": tuple(
        words.format("noise of sigma {sigma} on each") for words in (_TAUGHT, _LABELLED)
    ),
    "distributed-teacher-labels": tuple(words.format(_SHARES) for words in (_TAUGHT, _LABELLED)),
    "gate": (
        "a gate: all labels leave together if a private test of these votes passes (order {order}, "
        "target {target}, test {test}, failure {failure})"
    ),
}
_FRACTION: Final = re.compile(r"[0-9]{1,20}(/[1-9][0-9]{0,19})?", re.ASCII)


def mechanism_in_words(mechanism: object) -> str:
    """Return a mechanism as words with all its parameters, or several of them in turn.

    One that is not known here is given as its name and parameters.

    >>> mechanism_in_words({"mechanism": "gnmax", "sigma": "15/2", "votes_per_unit": 1}).split(";")[0]
    'GNMax: the class with the most votes (noise of sigma 7.5 on each count)'
    >>> mechanism_in_words([{"mechanism": "other", "width": "3"}])
    'other (width 3)'

    ``mechanism``: as a statement's ``mechanism``, or one step of it. Untrusted input.
    """
    if isinstance(mechanism, list | tuple):
        return "; then ".join(mechanism_in_words(each) for each in mechanism)
    if not isinstance(mechanism, Mapping):
        return str(mechanism)
    name = str(mechanism.get("mechanism", "see privacy.json"))
    parameters = {key: value for key, value in mechanism.items() if key != "mechanism"}
    code = _code(parameters.get("code"))
    where = ""
    if code is not None:
        del parameters["code"]
        where = f", {code.in_words}"
        if parameters.get("adjacency") == "remove":
            del parameters["adjacency"]
            where += "; a unit is added or removed with its teachers"
        if code.units_in_words:
            where += f"; counts and noise are {code.units_in_words}"
        if not code.answer.labelled and parameters.get("threshold") == 0:
            del parameters["threshold"]  # no query gets a label
    known = _WORDS.get(
        _IN_ROUNDS + name if code is not None and code.answer.in_rounds else name, ()
    )
    for words in (known,) if isinstance(known, str) else known:
        if set(parameters) != {field for _, field, _, _ in Formatter().parse(words) if field}:
            continue
        figures = {key: _figure(value) for key, value in parameters.items()}
        if "confidence" in figures:
            figures["confidence"] = _share(parameters["confidence"])
        return words.format_map(figures) + where
    rest = [f"{key} {value}" for key, value in mechanism.items() if key != "mechanism"]
    return f"{name} ({', '.join(rest)})" if rest else name


def _code(code: object) -> Code | None:
    """Return a code that is known, and is not the default one, which has no words."""
    try:
        known = code_of(str(code))
    except UsageError:
        return None
    return known if known.in_words else None


def _exact(value: object) -> Fraction | None:
    text = str(value)
    return Fraction(text) if _FRACTION.fullmatch(text) else None


def _figure(value: object) -> str:
    """Return a number in decimal if that is exact, else unchanged."""
    exact = _exact(value)
    if exact is None or Fraction(text := f"{float(exact):.6f}") != exact:
        return str(value)
    return text.rstrip("0").rstrip(".")


def _share(value: object) -> str:
    exact = _exact(value)
    return str(value) if exact is None else f"{_figure(100 * exact)} %"
