"""The data sets: those of the papers' rows, each with validation records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.papers.data import adult, diabetes_readmitted, heart, mnist
from benchmarks.papers.data.encoded import Embedder, ag_news, cifar10
from benchmarks.versus.problem import problem_of
from benchmarks.versus.record import TITLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.versus.problem import Problem


def _heart(_work: Path) -> Problem:
    sites = tuple(heart.sites().values())
    return problem_of("heart", TITLES["heart"], heart.load(), goal="auc", sites=sites)


def _adult(_work: Path) -> Problem:
    return problem_of("adult", TITLES["adult"], adult.load())


def _diabetes(_work: Path) -> Problem:
    split = diabetes_readmitted.load()
    return problem_of("diabetes", TITLES["diabetes"], split, goal="auc")


def _ag_news(work: Path) -> Problem:
    split = ag_news.load(Embedder.of("minilm", work))
    return problem_of("ag-news", TITLES["ag-news"], split)


def _cifar(work: Path) -> Problem:
    split = cifar10.load(Embedder.of("lite0", work))
    return problem_of("cifar10", TITLES["cifar10"], split)


def _mnist(_work: Path) -> Problem:
    return problem_of("mnist", TITLES["mnist"], mnist.load())


#: Each data set's loader, given a folder for embeddings, in the order of the page.
PROBLEMS: Final[dict[str, Callable[[Path], Problem]]] = {
    "heart": _heart,
    "adult": _adult,
    "diabetes": _diabetes,
    "ag-news": _ag_news,
    "cifar10": _cifar,
    "mnist": _mnist,
}
