from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SOURCE_UNSPECIFIED: _ClassVar[Source]
    SOURCE_TEACHERS: _ClassVar[Source]
    SOURCE_REINFORCED: _ClassVar[Source]
    SOURCE_RECORDS: _ClassVar[Source]
SOURCE_UNSPECIFIED: Source
SOURCE_TEACHERS: Source
SOURCE_REINFORCED: Source
SOURCE_RECORDS: Source

class GetCampaignRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CampaignInfo(_message.Message):
    __slots__ = ("campaign", "name", "phase", "expected")
    CAMPAIGN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    campaign: bytes
    name: str
    phase: str
    expected: str
    def __init__(self, campaign: _Optional[bytes] = ..., name: _Optional[str] = ..., phase: _Optional[str] = ..., expected: _Optional[str] = ...) -> None: ...

class StreamLabelsRequest(_message.Message):
    __slots__ = ("after", "follow")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    after: int
    follow: bool
    def __init__(self, after: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class LabelEvent(_message.Message):
    __slots__ = ("cursor", "label", "round_end", "campaign_end")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    ROUND_END_FIELD_NUMBER: _ClassVar[int]
    CAMPAIGN_END_FIELD_NUMBER: _ClassVar[int]
    cursor: int
    label: Label
    round_end: RoundEnd
    campaign_end: CampaignEnd
    def __init__(self, cursor: _Optional[int] = ..., label: _Optional[_Union[Label, _Mapping]] = ..., round_end: _Optional[_Union[RoundEnd, _Mapping]] = ..., campaign_end: _Optional[_Union[CampaignEnd, _Mapping]] = ...) -> None: ...

class Label(_message.Message):
    __slots__ = ("query", "label", "round", "source")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    query: int
    label: int
    round: int
    source: Source
    def __init__(self, query: _Optional[int] = ..., label: _Optional[int] = ..., round: _Optional[int] = ..., source: _Optional[_Union[Source, str]] = ...) -> None: ...

class RoundEnd(_message.Message):
    __slots__ = ("round", "wants_predictions")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    WANTS_PREDICTIONS_FIELD_NUMBER: _ClassVar[int]
    round: int
    wants_predictions: bool
    def __init__(self, round: _Optional[int] = ..., wants_predictions: _Optional[bool] = ...) -> None: ...

class CampaignEnd(_message.Message):
    __slots__ = ("labels_released",)
    LABELS_RELEASED_FIELD_NUMBER: _ClassVar[int]
    labels_released: int
    def __init__(self, labels_released: _Optional[int] = ...) -> None: ...

class Predictions(_message.Message):
    __slots__ = ("campaign", "round", "rows", "classes", "probabilities", "accuracy")
    CAMPAIGN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    campaign: bytes
    round: int
    rows: int
    classes: int
    probabilities: bytes
    accuracy: float
    def __init__(self, campaign: _Optional[bytes] = ..., round: _Optional[int] = ..., rows: _Optional[int] = ..., classes: _Optional[int] = ..., probabilities: _Optional[bytes] = ..., accuracy: _Optional[float] = ...) -> None: ...

class PredictionsReceipt(_message.Message):
    __slots__ = ("already_had",)
    ALREADY_HAD_FIELD_NUMBER: _ClassVar[int]
    already_had: bool
    def __init__(self, already_had: _Optional[bool] = ...) -> None: ...

class GetNoisyVotesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NoisyVotes(_message.Message):
    __slots__ = ("queries", "classes", "counts", "sigma", "code", "shown", "earlier", "model")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SHOWN_FIELD_NUMBER: _ClassVar[int]
    EARLIER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedScalarFieldContainer[int]
    classes: int
    counts: bytes
    sigma: float
    code: str
    shown: bytes
    earlier: _containers.RepeatedCompositeFieldContainer[RoundCounts]
    model: bytes
    def __init__(self, queries: _Optional[_Iterable[int]] = ..., classes: _Optional[int] = ..., counts: _Optional[bytes] = ..., sigma: _Optional[float] = ..., code: _Optional[str] = ..., shown: _Optional[bytes] = ..., earlier: _Optional[_Iterable[_Union[RoundCounts, _Mapping]]] = ..., model: _Optional[bytes] = ...) -> None: ...

class RoundCounts(_message.Message):
    __slots__ = ("counts", "sigma", "shown")
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    SHOWN_FIELD_NUMBER: _ClassVar[int]
    counts: bytes
    sigma: float
    shown: bytes
    def __init__(self, counts: _Optional[bytes] = ..., sigma: _Optional[float] = ..., shown: _Optional[bytes] = ...) -> None: ...

class GetPrivacyStatementRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PrivacyStatement(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...
