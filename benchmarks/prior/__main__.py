"""Train the network of ``--model prior``, write its weights, and compare it with other kinds.

    python -m benchmarks.prior train --out FOLDER
    python -m benchmarks.prior export FOLDER/step-NNNNNN.pt
    PATE_TEST_DATA=DATA python -m benchmarks.prior evaluate heart wdbc

Training runs in one thread and needs no data. It may be interrupted and go on with ``--resume``: the
tables of a step depend on the seed and the step only. ``export`` writes the weights into the package and
prints their digest, which belongs into party/teachers/prior/teacher.py. On another processor or
version of PyTorch the rounding differs, and so does the digest.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.prior import SEED


def main() -> None:
    """Run the command line."""
    asked = _parser().parse_args()
    if asked.what == "evaluate":
        from benchmarks.prior.evaluate import report

        report(asked.sets, asked.sizes, asked.models, asked.splits)
        return
    from benchmarks.prior import train

    if asked.what == "train":
        train.train(asked.out, seed=asked.seed, resume=asked.resume)
    else:
        print(train.export(asked.checkpoint))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prior", description=__doc__)
    verbs = parser.add_subparsers(dest="what", required=True)
    learn = verbs.add_parser("train", help="train the network on made-up tables")
    learn.add_argument("--out", type=Path, required=True, help="folder of checkpoints and log")
    learn.add_argument("--seed", type=int, default=SEED)
    learn.add_argument("--resume", type=Path, help="a checkpoint")
    write = verbs.add_parser("export", help="write a checkpoint's weights into the package")
    write.add_argument("checkpoint", type=Path)
    compare = verbs.add_parser("evaluate", help="compare kinds of teachers on tiny shards")
    compare.add_argument("sets", nargs="+", help="heart, wdbc, adult, wine")
    compare.add_argument("--sizes", type=int, nargs="+", default=[12, 25])
    compare.add_argument("--models", nargs="+", default=["forest", "logistic", "prior"])
    compare.add_argument("--splits", type=int, default=5)
    return parser


if __name__ == "__main__":
    main()
