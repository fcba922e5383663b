"""The rows whose inputs a public encoder embeds; settings are plain data, as of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from benchmarks.papers.row import Options, Row, Wanted

#: Of records that vote at representatives, at delta 0; four of five parties' noise suffices.
RECORDS: Final = Options(
    aggregator="neighbour",
    epsilon=1.0,
    delta=0.0,
    noise_law="geometric",
    min_parties=4,
    colluders=0,
)


def counts(common: Options, *numbers: int) -> tuple[Options, ...]:
    """Return the options with each number of representatives, or of directions of a dense code."""
    dense = (common.code or "").startswith("dense")
    return tuple(
        replace(common, representatives=number, code=f"dense-{number}" if dense else common.code)
        for number in numbers
    )


_DENSE_TEXTS: Final = Options(
    aggregator="neighbour",
    epsilon=1.0,
    delta=1e-5,
    code="dense",
    min_parties=4,
    colluders=0,
)
_ENCODED: Final = (
    "code on labels of the public part, with trial votes of the private part, which no epsilon covers; "
    "nothing on the test part"
)
_AGAIN: Final = (
    "; it ran before with 128 directions and a student without averaged rows, and that test figure, below "
    "the goal, set this work off; then with 48 directions twice, three dealings each: {}"
)
_CIFAR: Final = ("cifar10/labels.json", *(f"cifar10/batch_{at}.png" for at in (*range(25), 50)))

#: In the order of the table.
ENCODED: Final = (
    Row(
        name="ag-news",
        title="AG News, MiniLM, neighbour votes, delta 0",
        data="encoded.ag_news",
        files=("text/ag_news/test.csv",),
        options=replace(RECORDS, epsilon=0.3),
        tries=counts(replace(RECORDS, epsilon=0.3), 25, 50, 100, 200),
        encoder="minilm",
        picked=_ENCODED + "; the head's graph likewise",
        wanted=(Wanted(least=0.86, epsilon={"cap": 0.3}, delta=0.0),),
    ),
    Row(
        name="ag-news-0.1",
        title="AG News, MiniLM, neighbour votes, delta 0, a third of epsilon",
        data="encoded.ag_news",
        files=("text/ag_news/test.csv",),
        options=replace(RECORDS, epsilon=0.1),
        tries=counts(replace(RECORDS, epsilon=0.1), 12, 25, 50, 100),
        encoder="minilm",
        picked=_ENCODED + "; the head's graph likewise",
        wanted=(Wanted(least=0.83, epsilon={"cap": 0.1}, delta=0.0),),
    ),
    Row(
        name="banking77",
        title="Banking77, 77 classes, MiniLM, neighbour votes, delta 0",
        data="encoded.banking77",
        files=("text/banking77/train.csv", "text/banking77/test.csv"),
        options=RECORDS,
        tries=counts(RECORDS, 150, 300, 600),
        encoder="minilm",
        picked="code and the head's graph on labels of the public "
        "part, with trial votes of the private part, which no epsilon covers; the row ran three times, the "
        "head being changed between by trials on the public part: test labels chose nothing, but the first "
        "test figure (76.6 %) set that work off",
        wanted=(Wanted(least=0.80, epsilon={"cap": 1.0}, delta=0.0),),
    ),
    Row(
        name="sst2",
        title="SST-2, MiniLM, dense votes",
        data="encoded.sst2",
        files=tuple(f"text/sst2/{part}.tsv" for part in ("train", "dev", "test")),
        options=_DENSE_TEXTS,
        tries=counts(_DENSE_TEXTS, 24, 48, 96),
        encoder="minilm",
        picked=_ENCODED
        + _AGAIN.format("78.1 and 79.2 %")
        + "; with classes in contrast, chosen on the public part, three dealings had 78.7 %, six 79.5 %, "
        "five 79.4 %; since then trials choose the directions",
        wanted=(Wanted(least=0.795, epsilon={"cap": 1.0}),),
    ),
    Row(
        name="sst2-0.3",
        title="SST-2, MiniLM, dense votes, a third of epsilon",
        data="encoded.sst2",
        files=tuple(f"text/sst2/{part}.tsv" for part in ("train", "dev", "test")),
        options=replace(_DENSE_TEXTS, epsilon=0.3),
        tries=counts(replace(_DENSE_TEXTS, epsilon=0.3), 24, 48, 96),
        encoder="minilm",
        picked=_ENCODED
        + _AGAIN.format("75.8 and 76.2 %")
        + "; with classes in contrast, chosen on the public part, three dealings had 75.6 %, six 75.9 %, "
        "five 76.7 %; since then trials choose the directions",
        wanted=(Wanted(least=0.77, epsilon={"cap": 0.3}),),
    ),
    Row(
        name="cifar10",
        title="CIFAR-10, EfficientNet-Lite0, neighbour votes, delta 0",
        data="encoded.cifar10",
        files=_CIFAR,
        options=replace(RECORDS, epsilon=0.5),
        tries=counts(replace(RECORDS, epsilon=0.5), 100, 200, 400),
        encoder="lite0",
        picked=_ENCODED,
        wanted=(Wanted(within=0.015, epsilon={"cap": 0.5}, delta=0.0),),
    ),
    Row(
        name="cifar10-confident",
        title="CIFAR-10, EfficientNet-Lite0, Confident-GNMax, 250 teachers",
        data="encoded.cifar10",
        files=_CIFAR,
        options=Options(
            aggregator="confident-gnmax",
            epsilon=8.0,
            delta=1e-5,
            max_queries=1_500,
            threshold="150",
            sigma1="200",
            sigma2="50",
            teachers=50,
        ),
        encoder="lite0",
        picked="noise as in Prom-PATE (Li et al., ICCV 2023); its threshold of 600, taken to be of 1,000 "
        "teachers, at a quarter",
    ),
    Row(
        name="brain-mri",
        title="Brain MRI, EfficientNet-Lite0, four parties, neighbour votes, delta 0",
        data="encoded.brain_mri",
        files=("brain_mri/Testing/no_tumor/image(1).jpg",),
        options=RECORDS,
        tries=counts(RECORDS, 40, 80, 160),
        parties=4,
        encoder="lite0",
        picked=_ENCODED
        + "; chosen before training slices that the test part has, too, were left out; with them it ran at "
        "45.4 % beside 70.3 % without privacy",
        wanted=(Wanted(within=0.03, epsilon={"cap": 1.0}, delta=0.0),),
    ),
)
