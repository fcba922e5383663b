from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SignedRequest(_message.Message):
    __slots__ = ("body", "key", "signature")
    BODY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    key: bytes
    signature: bytes
    def __init__(self, body: _Optional[bytes] = ..., key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class PartyRequest(_message.Message):
    __slots__ = ("version", "nonce", "campaign", "digest", "describe", "public_piece", "ask", "finish", "ask_keys", "ask_shares", "ask_masked", "ask_consent", "ask_opening", "ask_proof", "ask_bundles", "ask_masked_ahead", "ask_consent_ahead", "ask_opening_ahead")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CAMPAIGN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_PIECE_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    ASK_KEYS_FIELD_NUMBER: _ClassVar[int]
    ASK_SHARES_FIELD_NUMBER: _ClassVar[int]
    ASK_MASKED_FIELD_NUMBER: _ClassVar[int]
    ASK_CONSENT_FIELD_NUMBER: _ClassVar[int]
    ASK_OPENING_FIELD_NUMBER: _ClassVar[int]
    ASK_PROOF_FIELD_NUMBER: _ClassVar[int]
    ASK_BUNDLES_FIELD_NUMBER: _ClassVar[int]
    ASK_MASKED_AHEAD_FIELD_NUMBER: _ClassVar[int]
    ASK_CONSENT_AHEAD_FIELD_NUMBER: _ClassVar[int]
    ASK_OPENING_AHEAD_FIELD_NUMBER: _ClassVar[int]
    version: int
    nonce: bytes
    campaign: bytes
    digest: bytes
    describe: Describe
    public_piece: PublicPiece
    ask: Ask
    finish: Finish
    ask_keys: AskKeys
    ask_shares: AskShares
    ask_masked: AskMasked
    ask_consent: AskConsent
    ask_opening: AskOpening
    ask_proof: AskProof
    ask_bundles: AskBundles
    ask_masked_ahead: AskMaskedAhead
    ask_consent_ahead: AskConsentAhead
    ask_opening_ahead: AskOpeningAhead
    def __init__(self, version: _Optional[int] = ..., nonce: _Optional[bytes] = ..., campaign: _Optional[bytes] = ..., digest: _Optional[bytes] = ..., describe: _Optional[_Union[Describe, _Mapping]] = ..., public_piece: _Optional[_Union[PublicPiece, _Mapping]] = ..., ask: _Optional[_Union[Ask, _Mapping]] = ..., finish: _Optional[_Union[Finish, _Mapping]] = ..., ask_keys: _Optional[_Union[AskKeys, _Mapping]] = ..., ask_shares: _Optional[_Union[AskShares, _Mapping]] = ..., ask_masked: _Optional[_Union[AskMasked, _Mapping]] = ..., ask_consent: _Optional[_Union[AskConsent, _Mapping]] = ..., ask_opening: _Optional[_Union[AskOpening, _Mapping]] = ..., ask_proof: _Optional[_Union[AskProof, _Mapping]] = ..., ask_bundles: _Optional[_Union[AskBundles, _Mapping]] = ..., ask_masked_ahead: _Optional[_Union[AskMaskedAhead, _Mapping]] = ..., ask_consent_ahead: _Optional[_Union[AskConsentAhead, _Mapping]] = ..., ask_opening_ahead: _Optional[_Union[AskOpeningAhead, _Mapping]] = ...) -> None: ...

class Describe(_message.Message):
    __slots__ = ("sends_encoder", "at_once", "agreed")
    SENDS_ENCODER_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    sends_encoder: bool
    at_once: bool
    agreed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sends_encoder: _Optional[bool] = ..., at_once: _Optional[bool] = ..., agreed: _Optional[_Iterable[str]] = ...) -> None: ...

class PublicPiece(_message.Message):
    __slots__ = ("index", "pieces", "content", "encoder")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    ENCODER_FIELD_NUMBER: _ClassVar[int]
    index: int
    pieces: int
    content: bytes
    encoder: bool
    def __init__(self, index: _Optional[int] = ..., pieces: _Optional[int] = ..., content: _Optional[bytes] = ..., encoder: _Optional[bool] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("rows", "digest", "round", "shown")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SHOWN_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedScalarFieldContainer[int]
    digest: bytes
    round: int
    shown: bytes
    def __init__(self, rows: _Optional[_Iterable[int]] = ..., digest: _Optional[bytes] = ..., round: _Optional[int] = ..., shown: _Optional[bytes] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: Batch
    def __init__(self, batch: _Optional[_Union[Batch, _Mapping]] = ...) -> None: ...

class AskKeys(_message.Message):
    __slots__ = ("attempt", "batch", "seed_hash")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SEED_HASH_FIELD_NUMBER: _ClassVar[int]
    attempt: bytes
    batch: Batch
    seed_hash: bytes
    def __init__(self, attempt: _Optional[bytes] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., seed_hash: _Optional[bytes] = ...) -> None: ...

class AskShares(_message.Message):
    __slots__ = ("attempt", "keys", "announced", "hashes")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCED_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    attempt: bytes
    keys: _containers.RepeatedCompositeFieldContainer[PeerKeys]
    announced: bytes
    hashes: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, attempt: _Optional[bytes] = ..., keys: _Optional[_Iterable[_Union[PeerKeys, _Mapping]]] = ..., announced: _Optional[bytes] = ..., hashes: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PeerKeys(_message.Message):
    __slots__ = ("party", "keys")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    party: str
    keys: MaskingKeys
    def __init__(self, party: _Optional[str] = ..., keys: _Optional[_Union[MaskingKeys, _Mapping]] = ...) -> None: ...

class AskMasked(_message.Message):
    __slots__ = ("attempt", "boxes")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    attempt: bytes
    boxes: _containers.RepeatedCompositeFieldContainer[Box]
    def __init__(self, attempt: _Optional[bytes] = ..., boxes: _Optional[_Iterable[_Union[Box, _Mapping]]] = ...) -> None: ...

class AskProof(_message.Message):
    __slots__ = ("attempt", "seed")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    attempt: bytes
    seed: bytes
    def __init__(self, attempt: _Optional[bytes] = ..., seed: _Optional[bytes] = ...) -> None: ...

class AskConsent(_message.Message):
    __slots__ = ("attempt", "survivors")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    attempt: bytes
    survivors: bytes
    def __init__(self, attempt: _Optional[bytes] = ..., survivors: _Optional[bytes] = ...) -> None: ...

class AskOpening(_message.Message):
    __slots__ = ("attempt", "signatures")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    attempt: bytes
    signatures: _containers.RepeatedCompositeFieldContainer[PeerSignature]
    def __init__(self, attempt: _Optional[bytes] = ..., signatures: _Optional[_Iterable[_Union[PeerSignature, _Mapping]]] = ...) -> None: ...

class PeerSignature(_message.Message):
    __slots__ = ("party", "signature")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    party: str
    signature: bytes
    def __init__(self, party: _Optional[str] = ..., signature: _Optional[bytes] = ...) -> None: ...

class SealingKey(_message.Message):
    __slots__ = ("key", "signature")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    signature: bytes
    def __init__(self, key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class SealingMember(_message.Message):
    __slots__ = ("party", "identity", "sealing")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SEALING_FIELD_NUMBER: _ClassVar[int]
    party: str
    identity: bytes
    sealing: SealingKey
    def __init__(self, party: _Optional[str] = ..., identity: _Optional[bytes] = ..., sealing: _Optional[_Union[SealingKey, _Mapping]] = ...) -> None: ...

class AskBundles(_message.Message):
    __slots__ = ("roster", "threshold", "colluders", "first", "count")
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    COLLUDERS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    roster: _containers.RepeatedCompositeFieldContainer[SealingMember]
    threshold: int
    colluders: int
    first: int
    count: int
    def __init__(self, roster: _Optional[_Iterable[_Union[SealingMember, _Mapping]]] = ..., threshold: _Optional[int] = ..., colluders: _Optional[int] = ..., first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class Bundle(_message.Message):
    __slots__ = ("number", "roster", "keys", "boxes")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    number: int
    roster: bytes
    keys: MaskingKeys
    boxes: _containers.RepeatedCompositeFieldContainer[Box]
    def __init__(self, number: _Optional[int] = ..., roster: _Optional[bytes] = ..., keys: _Optional[_Union[MaskingKeys, _Mapping]] = ..., boxes: _Optional[_Iterable[_Union[Box, _Mapping]]] = ...) -> None: ...

class Bundles(_message.Message):
    __slots__ = ("bundles",)
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    bundles: _containers.RepeatedCompositeFieldContainer[Bundle]
    def __init__(self, bundles: _Optional[_Iterable[_Union[Bundle, _Mapping]]] = ...) -> None: ...

class PeerBundle(_message.Message):
    __slots__ = ("party", "number", "keys", "box")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    BOX_FIELD_NUMBER: _ClassVar[int]
    party: str
    number: int
    keys: MaskingKeys
    box: bytes
    def __init__(self, party: _Optional[str] = ..., number: _Optional[int] = ..., keys: _Optional[_Union[MaskingKeys, _Mapping]] = ..., box: _Optional[bytes] = ...) -> None: ...

class AskMaskedAhead(_message.Message):
    __slots__ = ("attempt", "batch", "roster", "bundles")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    attempt: bytes
    batch: Batch
    roster: bytes
    bundles: _containers.RepeatedCompositeFieldContainer[PeerBundle]
    def __init__(self, attempt: _Optional[bytes] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., roster: _Optional[bytes] = ..., bundles: _Optional[_Iterable[_Union[PeerBundle, _Mapping]]] = ...) -> None: ...

class AskConsentAhead(_message.Message):
    __slots__ = ("attempt", "masked")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    attempt: bytes
    masked: _containers.RepeatedCompositeFieldContainer[PeerSignature]
    def __init__(self, attempt: _Optional[bytes] = ..., masked: _Optional[_Iterable[_Union[PeerSignature, _Mapping]]] = ...) -> None: ...

class AskOpeningAhead(_message.Message):
    __slots__ = ("attempt", "masked", "consents")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    CONSENTS_FIELD_NUMBER: _ClassVar[int]
    attempt: bytes
    masked: _containers.RepeatedCompositeFieldContainer[PeerSignature]
    consents: _containers.RepeatedCompositeFieldContainer[PeerSignature]
    def __init__(self, attempt: _Optional[bytes] = ..., masked: _Optional[_Iterable[_Union[PeerSignature, _Mapping]]] = ..., consents: _Optional[_Iterable[_Union[PeerSignature, _Mapping]]] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("queries_asked", "labels_released", "epsilon_cap", "delta", "cause")
    QUERIES_ASKED_FIELD_NUMBER: _ClassVar[int]
    LABELS_RELEASED_FIELD_NUMBER: _ClassVar[int]
    EPSILON_CAP_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    queries_asked: int
    labels_released: int
    epsilon_cap: float
    delta: float
    cause: str
    def __init__(self, queries_asked: _Optional[int] = ..., labels_released: _Optional[int] = ..., epsilon_cap: _Optional[float] = ..., delta: _Optional[float] = ..., cause: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("version", "nonce", "campaign", "party", "description", "receipt", "votes", "refusal", "farewell", "keys", "boxes", "masked", "consent", "opening", "proof", "wanted", "bundles", "masked_ahead", "preparing", "unknown")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CAMPAIGN_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    VOTES_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    FAREWELL_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    CONSENT_FIELD_NUMBER: _ClassVar[int]
    OPENING_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    MASKED_AHEAD_FIELD_NUMBER: _ClassVar[int]
    PREPARING_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    version: int
    nonce: bytes
    campaign: bytes
    party: str
    description: Description
    receipt: PieceReceipt
    votes: VoteMatrix
    refusal: Refusal
    farewell: Farewell
    keys: MaskingKeys
    boxes: Boxes
    masked: MaskedVotes
    consent: Consent
    opening: Opening
    proof: VoteProof
    wanted: EncoderWanted
    bundles: Bundles
    masked_ahead: MaskedAhead
    preparing: Preparing
    unknown: Unknown
    def __init__(self, version: _Optional[int] = ..., nonce: _Optional[bytes] = ..., campaign: _Optional[bytes] = ..., party: _Optional[str] = ..., description: _Optional[_Union[Description, _Mapping]] = ..., receipt: _Optional[_Union[PieceReceipt, _Mapping]] = ..., votes: _Optional[_Union[VoteMatrix, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., farewell: _Optional[_Union[Farewell, _Mapping]] = ..., keys: _Optional[_Union[MaskingKeys, _Mapping]] = ..., boxes: _Optional[_Union[Boxes, _Mapping]] = ..., masked: _Optional[_Union[MaskedVotes, _Mapping]] = ..., consent: _Optional[_Union[Consent, _Mapping]] = ..., opening: _Optional[_Union[Opening, _Mapping]] = ..., proof: _Optional[_Union[VoteProof, _Mapping]] = ..., wanted: _Optional[_Union[EncoderWanted, _Mapping]] = ..., bundles: _Optional[_Union[Bundles, _Mapping]] = ..., masked_ahead: _Optional[_Union[MaskedAhead, _Mapping]] = ..., preparing: _Optional[_Union[Preparing, _Mapping]] = ..., unknown: _Optional[_Union[Unknown, _Mapping]] = ...) -> None: ...

class Description(_message.Message):
    __slots__ = ("teachers", "classes", "public_set", "unit", "sealing")
    TEACHERS_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_SET_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SEALING_FIELD_NUMBER: _ClassVar[int]
    teachers: int
    classes: _containers.RepeatedScalarFieldContainer[str]
    public_set: bytes
    unit: str
    sealing: SealingKey
    def __init__(self, teachers: _Optional[int] = ..., classes: _Optional[_Iterable[str]] = ..., public_set: _Optional[bytes] = ..., unit: _Optional[str] = ..., sealing: _Optional[_Union[SealingKey, _Mapping]] = ...) -> None: ...

class EncoderWanted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Preparing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Unknown(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PieceReceipt(_message.Message):
    __slots__ = ("index", "public_set", "encoder")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_SET_FIELD_NUMBER: _ClassVar[int]
    ENCODER_FIELD_NUMBER: _ClassVar[int]
    index: int
    public_set: bytes
    encoder: bytes
    def __init__(self, index: _Optional[int] = ..., public_set: _Optional[bytes] = ..., encoder: _Optional[bytes] = ...) -> None: ...

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

class MaskingKeys(_message.Message):
    __slots__ = ("mask_key", "share_key", "seed_commitment", "signature")
    MASK_KEY_FIELD_NUMBER: _ClassVar[int]
    SHARE_KEY_FIELD_NUMBER: _ClassVar[int]
    SEED_COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    mask_key: bytes
    share_key: bytes
    seed_commitment: bytes
    signature: bytes
    def __init__(self, mask_key: _Optional[bytes] = ..., share_key: _Optional[bytes] = ..., seed_commitment: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Boxes(_message.Message):
    __slots__ = ("boxes",)
    BOXES_FIELD_NUMBER: _ClassVar[int]
    boxes: _containers.RepeatedCompositeFieldContainer[Box]
    def __init__(self, boxes: _Optional[_Iterable[_Union[Box, _Mapping]]] = ...) -> None: ...

class Box(_message.Message):
    __slots__ = ("party", "content")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    party: str
    content: bytes
    def __init__(self, party: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class MaskedVotes(_message.Message):
    __slots__ = ("packed",)
    PACKED_FIELD_NUMBER: _ClassVar[int]
    packed: bytes
    def __init__(self, packed: _Optional[bytes] = ...) -> None: ...

class MaskedAhead(_message.Message):
    __slots__ = ("packed", "signature")
    PACKED_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    packed: bytes
    signature: bytes
    def __init__(self, packed: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class VoteProof(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...

class Consent(_message.Message):
    __slots__ = ("signature",)
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    signature: bytes
    def __init__(self, signature: _Optional[bytes] = ...) -> None: ...

class Opening(_message.Message):
    __slots__ = ("seeds", "keys")
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    seeds: _containers.RepeatedCompositeFieldContainer[Share]
    keys: _containers.RepeatedCompositeFieldContainer[Share]
    def __init__(self, seeds: _Optional[_Iterable[_Union[Share, _Mapping]]] = ..., keys: _Optional[_Iterable[_Union[Share, _Mapping]]] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("party", "value")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    party: str
    value: bytes
    def __init__(self, party: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("kind",)
    KIND_FIELD_NUMBER: _ClassVar[int]
    kind: str
    def __init__(self, kind: _Optional[str] = ...) -> None: ...

class Farewell(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PublicSet(_message.Message):
    __slots__ = ("images", "table", "embeddings")
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    images: ImageSet
    table: TableSet
    embeddings: EmbeddingSet
    def __init__(self, images: _Optional[_Union[ImageSet, _Mapping]] = ..., table: _Optional[_Union[TableSet, _Mapping]] = ..., embeddings: _Optional[_Union[EmbeddingSet, _Mapping]] = ...) -> None: ...

class EmbeddingSet(_message.Message):
    __slots__ = ("count", "width", "source", "encoder", "values")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ENCODER_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    count: int
    width: int
    source: str
    encoder: str
    values: bytes
    def __init__(self, count: _Optional[int] = ..., width: _Optional[int] = ..., source: _Optional[str] = ..., encoder: _Optional[str] = ..., values: _Optional[bytes] = ...) -> None: ...

class ImageSet(_message.Message):
    __slots__ = ("count", "height", "width", "channels", "pixels", "window_low", "window_high")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    PIXELS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_LOW_FIELD_NUMBER: _ClassVar[int]
    WINDOW_HIGH_FIELD_NUMBER: _ClassVar[int]
    count: int
    height: int
    width: int
    channels: int
    pixels: bytes
    window_low: int
    window_high: int
    def __init__(self, count: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., channels: _Optional[int] = ..., pixels: _Optional[bytes] = ..., window_low: _Optional[int] = ..., window_high: _Optional[int] = ...) -> None: ...

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
