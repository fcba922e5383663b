from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Campaign(_message.Message):
    __slots__ = ("id", "classes", "public_set", "queries", "schema", "mechanism", "unit", "aggregation", "epsilon", "delta")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_SET_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    AGGREGATION_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    classes: _containers.RepeatedScalarFieldContainer[str]
    public_set: bytes
    queries: int
    schema: str
    mechanism: str
    unit: str
    aggregation: str
    epsilon: float
    delta: float
    def __init__(self, id: _Optional[bytes] = ..., classes: _Optional[_Iterable[str]] = ..., public_set: _Optional[bytes] = ..., queries: _Optional[int] = ..., schema: _Optional[str] = ..., mechanism: _Optional[str] = ..., unit: _Optional[str] = ..., aggregation: _Optional[str] = ..., epsilon: _Optional[float] = ..., delta: _Optional[float] = ...) -> None: ...

class PartyRequest(_message.Message):
    __slots__ = ("version", "nonce", "campaign", "describe", "public_piece", "ask", "finish")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CAMPAIGN_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_PIECE_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    version: int
    nonce: bytes
    campaign: Campaign
    describe: Describe
    public_piece: PublicPiece
    ask: Ask
    finish: Finish
    def __init__(self, version: _Optional[int] = ..., nonce: _Optional[bytes] = ..., campaign: _Optional[_Union[Campaign, _Mapping]] = ..., describe: _Optional[_Union[Describe, _Mapping]] = ..., public_piece: _Optional[_Union[PublicPiece, _Mapping]] = ..., ask: _Optional[_Union[Ask, _Mapping]] = ..., finish: _Optional[_Union[Finish, _Mapping]] = ...) -> None: ...

class Describe(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PublicPiece(_message.Message):
    __slots__ = ("index", "pieces", "content")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    index: int
    pieces: int
    content: bytes
    def __init__(self, index: _Optional[int] = ..., pieces: _Optional[int] = ..., content: _Optional[bytes] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("first", "count", "batch")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    batch: bytes
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ..., batch: _Optional[bytes] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("queries_asked", "labels_released", "epsilon_cap", "delta")
    QUERIES_ASKED_FIELD_NUMBER: _ClassVar[int]
    LABELS_RELEASED_FIELD_NUMBER: _ClassVar[int]
    EPSILON_CAP_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    queries_asked: int
    labels_released: int
    epsilon_cap: float
    delta: float
    def __init__(self, queries_asked: _Optional[int] = ..., labels_released: _Optional[int] = ..., epsilon_cap: _Optional[float] = ..., delta: _Optional[float] = ...) -> None: ...

class SignedReply(_message.Message):
    __slots__ = ("body", "identity", "signature")
    BODY_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    identity: bytes
    signature: bytes
    def __init__(self, body: _Optional[bytes] = ..., identity: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("version", "nonce", "campaign", "party", "description", "receipt", "votes", "refusal", "farewell")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CAMPAIGN_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    VOTES_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    FAREWELL_FIELD_NUMBER: _ClassVar[int]
    version: int
    nonce: bytes
    campaign: bytes
    party: str
    description: Description
    receipt: PieceReceipt
    votes: VoteMatrix
    refusal: Refusal
    farewell: Farewell
    def __init__(self, version: _Optional[int] = ..., nonce: _Optional[bytes] = ..., campaign: _Optional[bytes] = ..., party: _Optional[str] = ..., description: _Optional[_Union[Description, _Mapping]] = ..., receipt: _Optional[_Union[PieceReceipt, _Mapping]] = ..., votes: _Optional[_Union[VoteMatrix, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., farewell: _Optional[_Union[Farewell, _Mapping]] = ...) -> None: ...

class Description(_message.Message):
    __slots__ = ("teachers", "classes", "public_set", "unit")
    TEACHERS_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_SET_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    teachers: int
    classes: _containers.RepeatedScalarFieldContainer[str]
    public_set: bytes
    unit: str
    def __init__(self, teachers: _Optional[int] = ..., classes: _Optional[_Iterable[str]] = ..., public_set: _Optional[bytes] = ..., unit: _Optional[str] = ...) -> None: ...

class PieceReceipt(_message.Message):
    __slots__ = ("index", "public_set")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_SET_FIELD_NUMBER: _ClassVar[int]
    index: int
    public_set: bytes
    def __init__(self, index: _Optional[int] = ..., public_set: _Optional[bytes] = ...) -> None: ...

class VoteMatrix(_message.Message):
    __slots__ = ("batch", "rows", "classes", "teachers", "width", "counts")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    TEACHERS_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    batch: bytes
    rows: int
    classes: int
    teachers: int
    width: int
    counts: bytes
    def __init__(self, batch: _Optional[bytes] = ..., rows: _Optional[int] = ..., classes: _Optional[int] = ..., teachers: _Optional[int] = ..., width: _Optional[int] = ..., counts: _Optional[bytes] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("kind",)
    KIND_FIELD_NUMBER: _ClassVar[int]
    kind: str
    def __init__(self, kind: _Optional[str] = ...) -> None: ...

class Farewell(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PublicSet(_message.Message):
    __slots__ = ("images", "table")
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    images: ImageSet
    table: TableSet
    def __init__(self, images: _Optional[_Union[ImageSet, _Mapping]] = ..., table: _Optional[_Union[TableSet, _Mapping]] = ...) -> None: ...

class ImageSet(_message.Message):
    __slots__ = ("count", "height", "width", "channels", "pixels")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    PIXELS_FIELD_NUMBER: _ClassVar[int]
    count: int
    height: int
    width: int
    channels: int
    pixels: bytes
    def __init__(self, count: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., channels: _Optional[int] = ..., pixels: _Optional[bytes] = ...) -> None: ...

class TableSet(_message.Message):
    __slots__ = ("columns",)
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedCompositeFieldContainer[TableColumn]
    def __init__(self, columns: _Optional[_Iterable[_Union[TableColumn, _Mapping]]] = ...) -> None: ...

class TableColumn(_message.Message):
    __slots__ = ("name", "numbers", "categories")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    CATEGORIES_FIELD_NUMBER: _ClassVar[int]
    name: str
    numbers: Numbers
    categories: Categories
    def __init__(self, name: _Optional[str] = ..., numbers: _Optional[_Union[Numbers, _Mapping]] = ..., categories: _Optional[_Union[Categories, _Mapping]] = ...) -> None: ...

class Numbers(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class Categories(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...
