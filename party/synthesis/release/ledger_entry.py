"""A release's entry in the ledger and in its file, both fixed before the data are read."""

from __future__ import annotations

import secrets
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from party.ledger.synthesis import Synthesis
from party.synthesis.release.parquet import Source, code_version, neighbours_of
from party.synthesis.release.plan import resampled_of

if TYPE_CHECKING:
    from party.synthesis.release.plan import Plan, ReleaseRequest
    from party.synthesis.table.domain import Domain

_EPSILON: Final = "published_epsilon"
_DELTA: Final = "published_delta"
_LONGEST: Final = 200


def entry_of(plan: Plan, domain: Domain, unit: str, data: str) -> Synthesis:
    """Return the ledger's entry of a release; its id is new.

    Args:
        plan: of the release, with its cost.
        domain: the public schema.
        unit: record, or patient.
        data: keyed digest of the data, hex.
    """
    asked = plan.asked
    settings = {}
    if asked.release == "seeded" or is_deniable(asked, domain):
        settings = {"k": str(asked.k), "gamma": str(asked.gamma)}
    settings |= dict(zip((_EPSILON, _DELTA), map(repr, plan.figure), strict=True))
    if asked.release == "seedless":
        settings["deniability"] = "trivial: every record is as plausible a seed"
    else:
        settings |= {
            "eps0": str(asked.epsilon0),
            "attempts": str(asked.tries),
            "omega": " ".join(map(str, resampled_of(asked, domain)))[:_LONGEST],
        }
    if plan.total is not None and plan.seeded is not None:
        attempt = plan.total.attempt
        settings |= {
            "t": str(attempt.t),
            "eps1": f"{float(attempt.epsilon):.6g}",
            "delta1": f"{float(attempt.delta):.3g}",
            "rho_seeds": f"{float(plan.total.rho):.6g}",
            "coin": f"{float(plan.seeded.coin):.6g}",
        }
    return Synthesis(
        id=secrets.token_hex(16),
        unit=unit,
        method=asked.method,
        release=asked.release,
        rows=asked.rows,
        schema=domain.digest.hex(),
        data=data,
        epsilon=plan.epsilon,
        rho=plan.rho,
        delta=plan.delta,
        settings=settings,
    )


def is_deniable(asked: ReleaseRequest, domain: Domain) -> bool:
    """Return whether k and gamma may be stated for seedless rows.

    Without seeds every record is equally plausible, so any gamma is met by all records. Their
    number is private, but at least ``min_rows``.
    """
    return 1 <= asked.k <= domain.min_rows and asked.gamma > 1


def entry_of_model(asked: ReleaseRequest, first: Synthesis, model: str) -> Synthesis:
    """Return the ledger's entry of more rows of a model, which cost nothing.

    Args:
        asked: only its number of rows is used.
        first: the release that paid.
        model: digest of its file, hex.
    """
    return Synthesis(
        id=secrets.token_hex(16),
        unit=first.unit,
        method=first.method,
        release="seedless",
        rows=asked.rows,
        schema=first.schema,
        data=first.data,
        epsilon=Fraction(0),
        parent=first.id,
        model=model,
        settings={name: first.settings[name] for name in (_EPSILON, _DELTA)},
    )


def source_of(entry: Synthesis, rows: int) -> Source:
    """Return the metadata of a release in a file of ``rows`` rows.

    Rows of a paid model are as private as that model, so they state its cost.
    """
    return Source(
        method=entry.method,
        release=entry.release,
        epsilon=float(entry.settings[_EPSILON]),
        delta=float(entry.settings[_DELTA]),
        unit=entry.unit,
        neighbours=neighbours_of(entry.unit),
        version=code_version(),
        rows=rows,
    )
