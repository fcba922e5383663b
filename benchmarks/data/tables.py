"""Tables: Adult, Heart Disease, and four questions about Diabetes 130.

**Adult** (UCI Census Income, Becker and Kohavi 1996). The parties' records are ``adult.data``; the public
set is the beginning of ``adult.test``, the rest of which is the test set. Two columns are left out:
``fnlwgt`` is a sampling weight, unrelated to the person, and ``education`` repeats ``education-num`` in
words.

**Heart Disease** (Janosi et al. 1988): four hospitals, one party each. It has no public set: a fifth of
every site's patients, without diagnosis, replaces it. With about 550 private patients the figures are only
indicative. Investigators: A. Janosi (Hungarian Institute of Cardiology, Budapest), W. Steinbrunn
(University Hospital, Zurich), M. Pfisterer (University Hospital, Basel), R. Detrano (V.A. Medical Center,
Long Beach, and Cleveland Clinic).

**Diabetes 130** (Strack et al. 2014): a row is a stay in one of 130 US hospitals. The protected unit is the
patient: patients, not stays, are split. The preparation follows Strack et al. where they describe it:
diagnoses become groups of ICD-9 codes (their table 2); the weight, which is mostly missing, and constant
columns are dropped, and so are stays that ended in death or a hospice, after which there is no readmission.

A patient votes once, for similar patients, and in 44 columns no two are similar. So the parties agree on
few columns beforehand. Those of :data:`SCORED` are from publications: the readmission scores LACE (van
Walraven et al., CMAJ 182:551, 2010) and HOSPITAL (Donze et al., JAMA Internal Medicine 173:632, 2013), as
far as this data has them, and where the patient was discharged to, which Strack et al. adjust for. About
seven sets of columns were compared on the private file first, so the choice depends on these patients, and
no epsilon covers it. For the questions of :data:`ASKED` a tenth of the patients is neither private nor
test: settings were chosen on their labels and on those of the public part, with votes of the private part
in trials. Labels of the test part took no part.

Where each patient votes with one stay, it is the first that was followed by a readmission, and of a patient
without such a stay the last: a choice that looks at that patient only.

Source: J. Clore, K. Cios, J. DeShazo, B. Strack, UCI Machine Learning Repository, 2014; B. Strack et al.,
BioMed Research International, 2014, 781670.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.data import Split, columns_of, data_folder, joined
from pate.data.values import Dataset, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pate.data.values import Column

_ADULT: Final = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country",
)  # fmt: skip
_ADULT_NUMBERS: Final = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_ADULT_LEFT_OUT: Final = ("fnlwgt", "education")
INCOMES: Final = ("<=50K", ">50K")
#: Rows of adult.test that are the public set; the others are the test set.
_ADULT_PUBLIC: Final = 12_000
SITES: Final = ("cleveland", "hungarian", "switzerland", "va")
_HEART: Final = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
    "slope", "ca", "thal",
)  # fmt: skip
#: Categorical columns with numeric codes.
_HEART_KINDS: Final = ("cp", "restecg", "slope", "thal")
_HEALTH: Final = ("healthy", "disease")
RETURNS: Final = ("later or never", "within 30 days")
_STAY_NUMBERS: Final = (
    "time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications",
    "number_outpatient", "number_emergency", "number_inpatient", "number_diagnoses",
)  # fmt: skip
DIAGNOSES: Final = ("diag_1", "diag_2", "diag_3")
_STAY_LEFT_OUT: Final = (
    "encounter_id", "patient_nbr", "weight", "examide", "citoglipton", "readmitted",
)  # fmt: skip
#: Discharge dispositions, as in IDs_mapping.csv: expired, or to a hospice.
NO_RETURN: Final = frozenset({"11", "13", "14", "19", "20", "21"})
#: Columns of the LACE and HOSPITAL scores, as far as available, and the discharge.
SCORED: Final = (
    "time_in_hospital", "admission_type_id", "number_diagnoses", "number_emergency",
    "num_procedures", "number_inpatient", "discharge_disposition_id",
)  # fmt: skip
#: Shares of the patients that are public, test, and left out of the private part of :data:`ASKED`.
_PUBLIC, _TEST, _SPENT = 0.1, 0.15, 0.1
#: The columns of a question.
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
_QUESTIONS: Final = {
    "readmitted": "label: readmitted within 30 days",
    "groups": "labels: nine groups of diagnoses, of up to three a stay",
    "days": "number: days in hospital",
}
#: ICD-9 codes of each group, first and last, whole numbers; 250 itself is diabetes.
_GROUPS: Final = (
    ("circulatory", ((390, 459), (785, 785))),
    ("respiratory", ((460, 519), (786, 786))),
    ("digestive", ((520, 579), (787, 787))),
    ("diabetes", ((250, 250),)),
    ("injury", ((800, 999),)),
    ("musculoskeletal", ((710, 739),)),
    ("genitourinary", ((580, 629), (788, 788))),
    ("neoplasms", ((140, 239),)),
)


def adult() -> Split:
    """Return 32,561 private, 12,000 public and 4,281 test rows."""
    rest = adult_rows("test")
    return Split(
        private=adult_rows("data"),
        public=rest.take(np.arange(_ADULT_PUBLIC)),
        test=rest.take(np.arange(_ADULT_PUBLIC, len(rest))),
        note=(
            "label: income above 50,000; unit: record; private: adult.data; public: the first "
            f"{_ADULT_PUBLIC:,} rows of adult.test; test: its other rows"
        ),
    )


def adult_rows(part: str) -> Dataset:
    """Return the rows of ``data`` or ``test``."""
    path = data_folder() / "adult" / f"adult.{part}.gz"
    cells = columns_of(path, (*_ADULT, "income"))
    names = tuple(name for name in _ADULT if name not in _ADULT_LEFT_OUT)
    labels = np.array([INCOMES.index(text.rstrip(".")) for text in cells["income"]], dtype=np.int64)
    columns = tuple(_column(cells[name], number=name in _ADULT_NUMBERS) for name in names)
    return Dataset(Table(names, columns), labels, INCOMES)


def heart() -> Split:
    """Return the patients of four sites: 60 % private, 20 % public, 20 % test, of every site."""
    parts = [_parts(at, heart_site(name)) for at, name in enumerate(SITES)]
    private, public, test = (joined(*each) for each in zip(*parts, strict=True))
    note = (
        "label: any disease (num > 0); unit: record, one per patient; four sites are the "
        "parties; of every site 60 % private, 20 % public, 20 % test"
    )
    return Split(private, public, test, note, sizes=tuple(len(part[0]) for part in parts))


def heart_site(name: str) -> Dataset:
    """Return the patients of a site."""
    path = data_folder() / "heart_disease" / f"processed.{name}.data"
    cells = columns_of(path, (*_HEART, "num"))
    labels = np.array([int(float(cell) > 0) for cell in cells["num"]], dtype=np.int64)
    columns = tuple(_heart_column(each, cells[each]) for each in _HEART)
    return Dataset(Table(_HEART, columns), labels, _HEALTH)


def _parts(number: int, whole: Dataset) -> tuple[Dataset, Dataset, Dataset]:
    """Return a site's private, public and test records."""
    order = np.random.default_rng(number).permutation(len(whole))
    public, test = round(len(whole) * 0.2), round(len(whole) * 0.4)
    private, shared, held = (
        whole.take(np.sort(rows)) for rows in (order[test:], order[:public], order[public:test])
    )
    return private, shared, held


def _heart_column(name: str, cells: tuple[str, ...]) -> Column:
    # A cholesterol of 0 means that it was not measured.
    numbers = np.array(
        [
            np.nan if cell == "?" or (name == "chol" and float(cell) == 0) else float(cell)
            for cell in cells
        ]
    )
    if name not in _HEART_KINDS:
        return numbers
    # Sites write the same code as 3, 3.0 or 3.00.
    return np.array(["" if np.isnan(v) else f"{v:.0f}" for v in numbers.tolist()], dtype=np.str_)


def diabetes() -> Split:
    """Return three quarters of the patients as private, the others as public and test."""
    stays = read_stays()
    note = (
        "label: readmitted within 30 days; unit: patient (patient_nbr), none in two parts; of "
        f"the patients {_PUBLIC:.0%} public, {_TEST:.0%} test, the rest private; columns: "
    )
    words = "those of the LACE and HOSPITAL scores, discharge; all for the model without privacy"
    return replace(
        _patients(stays, SCORED, note + words), whole=_patients(stays, _names(stays), note + "all")
    )


def asked(question: str) -> Split:
    """Return the same parts for a question of :data:`ASKED`, less the patients who were spent."""
    stays = read_stays()
    assert isinstance(stays.inputs, Table)
    cells = dict(zip(stays.inputs.names, stays.inputs.columns, strict=True))
    none = np.zeros_like(stays.labels)
    left_out: tuple[str, ...] = ()
    if question == "groups":
        left_out = DIAGNOSES
        names = (*(name for name, _ in _GROUPS), "other")
        each = np.stack([cells[name] for name in DIAGNOSES])
        flags = np.stack([(each == name).any(axis=0) for name in names], axis=1)
        stays = replace(stays, labels=none, classes=names, answers=flags)
    elif question == "days":
        left_out = ("time_in_hospital",)
        days = np.asarray(cells["time_in_hospital"], dtype=np.float64)
        stays = replace(stays, labels=none, classes=(), answers=days)
    note = (
        f"{_QUESTIONS[question]}; unit: patient (patient_nbr), none in two parts; of the patients "
        f"{_PUBLIC:.0%} public, {_TEST:.0%} test, {_SPENT:.0%} spent on choosing settings, the rest "
        f"private; columns: {len(ASKED[question])} for the parties, all others than the answer "
        "for the model without privacy"
    )
    made = _patients(stays, ASKED[question], note, spent=_SPENT)
    if question == "readmitted":
        made = replace(made, private=made.private.take(spoken_for(made.private)))
    every = tuple(name for name in _names(stays) if name not in left_out)
    return replace(made, whole=_patients(stays, every, note, spent=_SPENT))


def _patients(stays: Dataset, columns: tuple[str, ...], note: str, spent: float = 0.0) -> Split:
    """Return the parts of stays by patient, with some columns."""
    assert stays.groups is not None
    assert isinstance(stays.inputs, Table)
    some = replace(stays, inputs=stays.inputs.only(columns))
    # The place of each stay's patient in a fixed order of patients, from 0 to 1.
    patients, patient = np.unique(stays.groups, return_inverse=True)
    place = np.random.default_rng(130).permutation(len(patients))[patient] / len(patients)

    def between(low: float, high: float) -> Dataset:
        return some.take(np.flatnonzero((place >= low) & (place < high)))

    rest = _PUBLIC + _TEST + spent
    return Split(
        private=between(rest, 2.0),
        public=between(0.0, _PUBLIC),
        test=between(_PUBLIC, _PUBLIC + _TEST),
        note=note,
        validation=between(_PUBLIC + _TEST, rest) if spent else None,
    )


def spoken_for(stays: Dataset) -> NDArray[np.int64]:
    """Return the stay that each patient votes with, ascending; stays are in the order of time.

    >>> table = Table(("a",), (np.zeros(6),))
    >>> patients = np.array(["x", "y", "x", "x", "y", "x"])
    >>> spoken_for(Dataset(table, np.array([0, 0, 1, 1, 0, 0]), RETURNS, patients)).tolist()
    [2, 4]
    """
    assert stays.groups is not None
    time = np.arange(len(stays))
    order = np.lexsort((np.where(stays.labels == 1, -time, time), stays.labels, stays.groups))
    last = np.append(stays.groups[order][1:] != stays.groups[order][:-1], True)
    return np.sort(order[last])


def read_stays(*, numbered: bool = False) -> Dataset:
    """Return the stays with every column, and the patient of each as its group.

    ``numbered`` adds a column of the stays' own numbers, in the order of which they were.
    """
    every = columns_of(data_folder() / "diabetes130" / "diabetic_data.csv.gz")
    kept = [code not in NO_RETURN for code in every["discharge_disposition_id"]]
    cells = {name: tuple(compress(column, kept)) for name, column in every.items()}
    names = tuple(name for name in cells if name not in _STAY_LEFT_OUT)
    columns = tuple(_stay_column(name, cells[name]) for name in names)
    if numbered:
        names += ("encounter_id",)
        columns += (_column(cells["encounter_id"], number=True),)
    return Dataset(
        Table(names, columns),
        np.array([int(text == "<30") for text in cells["readmitted"]], dtype=np.int64),
        RETURNS,
        np.array(cells["patient_nbr"], dtype=np.str_),
    )


def _names(stays: Dataset) -> tuple[str, ...]:
    assert isinstance(stays.inputs, Table)
    return stays.inputs.names


def _stay_column(name: str, cells: Sequence[str]) -> Column:
    if name == "age":  # the midpoint of a decade, written as [70-80)
        return np.array([float(cell[1:].partition("-")[0]) + 5.0 for cell in cells])
    if name in DIAGNOSES:
        groups = {code: diagnosis_group(code) for code in set(cells)}
        return np.array([groups[code] for code in cells], dtype=np.str_)
    return _column(cells, number=name in _STAY_NUMBERS)


def _column(cells: Sequence[str], *, number: bool) -> Column:
    if number:
        return np.array([float(cell) for cell in cells])
    return np.array(["" if cell == "?" else cell for cell in cells], dtype=np.str_)


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
    for name, ranges in _GROUPS:
        if any(first <= whole <= last for first, last in ranges):
            return name
    return "other"
