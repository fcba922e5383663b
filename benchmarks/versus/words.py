"""What the page says of each method: titles, who sees what, and for whom the guarantee holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_RECORDS_SEEN: Final = "one curator sees all records"


@dataclass(frozen=True)
class Words:
    """What a reader must know of a method.

    Attributes:
        title: in tables.
        short: in pictures.
        sees: who sees what of a party's records.
        promise: whom the guarantee holds against, and what it protects; ``{unit}`` is record or patient.
        whole: whether it protects all records of a party, and not one unit.
    """

    title: str
    short: str
    sees: str
    promise: str
    whole: bool = False


WORDS: Final = {
    "ours": Words(
        "**This project**: records vote",
        "this project, records",
        "the server sees the noisy sum of all parties",
        "the public, and the server if no party colludes with it; a {unit}",
    ),
    "teachers": Words(
        "**This project**: teachers vote",
        "this project, teachers",
        "the server sees the exact sum of all parties",
        "the public; a {unit}",
    ),
    "dp-sgd": Words(
        "DP-SGD on pooled records (Opacus)", "DP-SGD, pooled", _RECORDS_SEEN, "the public; a {unit}"
    ),
    "dp-sgd-taught": Words(
        "The same, whose labels of the public set teach this project's student",
        "DP-SGD and our student",
        _RECORDS_SEEN,
        "the public; a {unit}",
    ),
    "dp-gradients": Words(
        "DP softmax regression on pooled records, noisy gradients",
        "DP regression, pooled",
        _RECORDS_SEEN,
        "the public; a {unit}",
    ),
    "dp-least-squares": Words(
        "DP least squares on pooled records",
        "DP least squares, pooled",
        _RECORDS_SEEN,
        "the public; a {unit}",
    ),
    "dp-objective": Words(
        "DP logistic regression on pooled records, perturbed objective",
        "DP objective, pooled",
        _RECORDS_SEEN,
        "the public; a {unit}",
    ),
    "fedavg-opacus": Words(
        "Federated averaging, DP-SGD at each party (Flower, Opacus)",
        "FedAvg, Opacus at parties",
        "the server sees each party's noisy models",
        "the public, the server and other parties, whoever colludes; a {unit}",
    ),
    "fedavg-server-noise": Words(
        "Federated averaging, the server's noise (Flower)",
        "FedAvg, server's noise",
        "the server sees each party's models",
        "the public; all records of a party",
        whole=True,
    ),
    "fedavg-client-noise": Words(
        "Federated averaging, the parties' noise (Flower)",
        "FedAvg, parties' noise",
        "the server sees each party's noisy models",
        "the public, the server and other parties, whoever colludes; all records of a party",
        whole=True,
    ),
    "fedavg": Words(
        "Federated averaging without privacy (Flower)",
        "FedAvg, no privacy",
        "the server sees each party's models",
        "nobody",
    ),
    "alone": Words(
        "Each party alone without privacy, mean of the parties",
        "each party alone",
        "nobody sees anything of the others",
        "nobody",
    ),
    "pooled": Words(
        "Pooled records without privacy", "pooled, no privacy", _RECORDS_SEEN, "nobody"
    ),
}
