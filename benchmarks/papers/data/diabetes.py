"""Diabetes 130 (Strack et al. 2014): whether a patient is readmitted within 30 days of discharge.

A row is a stay in one of 130 US hospitals; a patient may have several, and the protected unit is the
patient: patients, not stays, are split. The preparation follows Strack et al. where they describe it:
    diagnoses become groups of ICD-9 codes (their table 2); the weight, which is mostly missing, is dropped,
    and so are stays that ended in death or a hospice, after which there is no readmission. Constant columns
    are dropped, too.

A patient votes once, for similar patients, and in 44 columns no two are similar. So the parties agree on few
columns beforehand. They are taken from publications: those of the readmission scores LACE (length of stay,
acuity of the admission, comorbidity, visits to the emergency department; van Walraven et al., CMAJ 182:551,
2010) and HOSPITAL (procedures, type and number of admissions, length of stay; Donze et al., JAMA Internal
Medicine 173:632, 2013) that this data has, and where the patient was discharged to, which Strack et al.
adjust for. About seven sets of columns were compared on the private file first, so the choice depends on
these patients, and no epsilon covers it. The non-private reference model uses every column.

Three more questions about the same stays are in :func:`asked`: readmission by dense votes, which groups of
diagnoses a stay has (diag_1 to diag_3), and how many days it lasted; each from other columns than the answer.
For them a tenth of the patients is neither private nor test: settings were chosen on their labels and on
those of the public part, with votes of the private part in trials. Labels of the test part took no part.

A patient votes with one stay. For readmission each site takes the first that was followed by one, and of a
patient without such a stay the last: a choice that looks at that patient only. The model without privacy
learns from every stay.

Source: J. Clore, K. Cios, J. DeShazo, B. Strack, UCI Machine Learning Repository, 2014; B. Strack
et al., BioMed Research International, 2014, 781670.
"""

from __future__ import annotations

import csv
import gzip
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.papers.data import data_folder
from benchmarks.papers.split import Split
from pate.data.values import Dataset, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pate.data.values import Column

CLASSES: Final = ("later or never", "within 30 days")
NUMBERS: Final = (
    "time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications",
    "number_outpatient", "number_emergency", "number_inpatient", "number_diagnoses",
)  # fmt: skip
DIAGNOSES: Final = ("diag_1", "diag_2", "diag_3")
LEFT_OUT: Final = ("encounter_id", "patient_nbr", "weight", "examide", "citoglipton", "readmitted")
#: Discharge dispositions, as in IDs_mapping.csv: expired, or to a hospice.
NO_RETURN: Final = frozenset({"11", "13", "14", "19", "20", "21"})
#: Columns of the LACE and HOSPITAL scores, as far as available, and the discharge.
SCORED: Final = (
    "time_in_hospital", "admission_type_id", "number_diagnoses", "number_emergency",
    "num_procedures", "number_inpatient", "discharge_disposition_id",
)  # fmt: skip
#: Shares of the patients that are public and test; the rest is private.
PUBLIC, TEST = 0.1, 0.15
#: Share that is left out of the private part of :func:`asked`, where settings were chosen.
SPENT = 0.1
#: The columns of :func:`asked`, by question.
ASKED: Final[dict[str, tuple[str, ...]]] = {
    "readmitted": (
        "number_inpatient", "discharge_disposition_id", "insulin", "number_diagnoses",
        "number_emergency", "diag_1", "age", "time_in_hospital", "admission_type_id",
        "num_medications", "number_outpatient", "payer_code", "admission_source_id",
        "num_procedures",
    ),
    "groups": (
        "medical_specialty", "age", "num_procedures", "number_diagnoses", "discharge_disposition_id",
        "insulin", "num_medications", "admission_source_id", "num_lab_procedures", "time_in_hospital",
        "admission_type_id", "race", "gender", "payer_code", "A1Cresult", "max_glu_serum",
    ),
    "days": (
        "num_medications", "num_lab_procedures", "discharge_disposition_id", "num_procedures",
        "diag_1", "medical_specialty", "admission_type_id", "admission_source_id", "age",
        "number_diagnoses", "payer_code", "max_glu_serum",
    ),
}  # fmt: skip
#: ICD-9 codes of each group, first and last, whole numbers; 250 itself is diabetes.
GROUPS: Final = (
    ("circulatory", ((390, 459), (785, 785))),
    ("respiratory", ((460, 519), (786, 786))),
    ("digestive", ((520, 579), (787, 787))),
    ("diabetes", ((250, 250),)),
    ("injury", ((800, 999),)),
    ("musculoskeletal", ((710, 739),)),
    ("genitourinary", ((580, 629), (788, 788))),
    ("neoplasms", ((140, 239),)),
)


def load(*, every_column: bool = False) -> Split:
    """Return three quarters of the patients as private, the others as public and test.

    Needs PATE_TEST_DATA.

    Args:
        every_column: for the non-private model; same rows, in the same order.

    Raises:
        SystemExit: if the data are not there.
    """
    whole = read(every_column=every_column)
    place = _places(whole)
    public, test = place < PUBLIC, (place >= PUBLIC) & (place < PUBLIC + TEST)
    return Split(
        private=whole.take(np.flatnonzero(~public & ~test)),
        public=whole.take(np.flatnonzero(public)),
        test=whole.take(np.flatnonzero(test)),
        note=(
            "label: readmitted within 30 days; unit: patient (patient_nbr), none in two parts; of "
            f"the patients {PUBLIC:.0%} public, {TEST:.0%} test, the rest private; columns: "
            + ("all" if every_column else "those of the LACE and HOSPITAL scores, discharge")
            + "; all for the model without privacy" * (not every_column)
        ),
    )


def asked(question: str, *, every_column: bool = False) -> Split:
    """Return the same parts for a question of :data:`ASKED`, less the patients who were spent.

    Args:
        question: its name.
        every_column: for the non-private model; with all stays of a patient.

    Raises:
        SystemExit: if the data are not there.
    """
    whole = read(every_column=True)
    table = whole.inputs
    assert isinstance(table, Table)  # read makes one
    cells = dict(zip(table.names, table.columns, strict=True))
    left_out: tuple[str, ...] = ()
    if question == "groups":
        left_out = DIAGNOSES
        names = (*(name for name, _ in GROUPS), "other")
        each = np.stack([cells[name] for name in DIAGNOSES])
        flags = np.stack([(each == name).any(axis=0) for name in names], axis=1)
        whole = replace(whole, labels=np.zeros_like(whole.labels), classes=names, answers=flags)
    elif question == "days":
        left_out = ("time_in_hospital",)
        days = np.asarray(cells["time_in_hospital"], dtype=np.float64)
        whole = replace(whole, labels=np.zeros_like(whole.labels), classes=(), answers=days)
    columns = ASKED[question]
    if every_column:
        columns = tuple(name for name in table.names if name not in left_out)
    whole = replace(whole, inputs=table.only(columns))
    place = _places(whole)
    private = np.flatnonzero(place >= PUBLIC + TEST + SPENT)
    if question == "readmitted" and not every_column:
        private = private[spoken_for(whole.take(private))]
    told = {
        "readmitted": "label: readmitted within 30 days",
        "groups": "labels: nine groups of diagnoses, of up to three a stay",
        "days": "number: days in hospital",
    }
    return Split(
        private=whole.take(private),
        public=whole.take(np.flatnonzero(place < PUBLIC)),
        test=whole.take(np.flatnonzero((place >= PUBLIC) & (place < PUBLIC + TEST))),
        note=(
            f"{told[question]}; unit: patient (patient_nbr), none in two parts; of the patients "
            f"{PUBLIC:.0%} public, {TEST:.0%} test, {SPENT:.0%} spent on choosing settings, the rest "
            f"private; columns: {len(ASKED[question])} for the parties, all others than the answer "
            "for the model without privacy"
        ),
        validation=whole.take(
            np.flatnonzero((place >= PUBLIC + TEST) & (place < PUBLIC + TEST + SPENT))
        ),
    )


def spoken_for(stays: Dataset) -> NDArray[np.int64]:
    """Return the stay that each patient votes with, ascending; stays are in the order of time.

    >>> table = Table(("a",), (np.zeros(6),))
    >>> patients = np.array(["x", "y", "x", "x", "y", "x"])
    >>> spoken_for(Dataset(table, np.array([0, 0, 1, 1, 0, 0]), CLASSES, patients)).tolist()
    [2, 4]
    """
    assert stays.groups is not None  # read sets them
    time = np.arange(len(stays))
    order = np.lexsort((np.where(stays.labels == 1, -time, time), stays.labels, stays.groups))
    last = np.append(stays.groups[order][1:] != stays.groups[order][:-1], True)
    return np.sort(order[last])


def _places(whole: Dataset) -> NDArray[np.float64]:
    """Return (n,) the place of each stay's patient in a fixed order of patients, from 0 to 1."""
    assert whole.groups is not None  # read sets them
    patients, patient = np.unique(whole.groups, return_inverse=True)
    order = np.random.default_rng(130).permutation(len(patients))
    places: NDArray[np.float64] = order[patient] / len(patients)
    return places


def every_column() -> Split:
    """Return the split for the non-private model."""
    return load(every_column=True)


def read(*, every_column: bool) -> Dataset:
    """Return the stays, with the patient of each as its group."""
    path = data_folder() / "diabetes130" / "diabetic_data.csv.gz"
    with gzip.open(path, "rt", encoding="ascii", newline="") as file:
        lines = list(csv.reader(file))
    rows = [
        row for row in lines[1:] if row[lines[0].index("discharge_disposition_id")] not in NO_RETURN
    ]
    cells = dict(zip(lines[0], zip(*rows, strict=True), strict=True))
    kept = [name for name in lines[0] if name not in LEFT_OUT] if every_column else SCORED
    names = tuple(kept)
    return Dataset(
        Table(names, tuple(_column(name, cells[name]) for name in names)),
        np.array([int(text == "<30") for text in cells["readmitted"]], dtype=np.int64),
        CLASSES,
        np.array(cells["patient_nbr"], dtype=np.str_),
    )


def _column(name: str, cells: Sequence[str]) -> Column:
    if name in NUMBERS:
        return np.array([float(cell) for cell in cells])
    if name == "age":
        return _ages(cells)
    if name in DIAGNOSES:
        groups = {code: diagnosis_group(code) for code in set(cells)}
        return np.array([groups[code] for code in cells], dtype=np.str_)
    return np.array(["" if cell == "?" else cell for cell in cells], dtype=np.str_)


def _ages(cells: Sequence[str]) -> NDArray[np.float64]:
    """Return the midpoint of each decade, written as in ``[70-80)``."""
    return np.array([float(cell[1:].partition("-")[0]) + 5.0 for cell in cells])


def diagnosis_group(code: str) -> str:
    """Return the group of an ICD-9 code, "" for a missing one.

    >>> [diagnosis_group(code) for code in ("250.83", "428", "V57", "?")]
    ['diabetes', 'circulatory', 'other', '']
    """
    if code == "?":
        return ""
    if code[0] in "EV":
        return "other"
    whole = math.floor(float(code))
    for name, ranges in GROUPS:
        if any(first <= whole <= last for first, last in ranges):
            return name
    return "other"
