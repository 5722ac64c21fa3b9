from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RefHow(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REF_HOW_UNSPECIFIED: _ClassVar[RefHow]
    REF_HOW_FOLLOW_LAST: _ClassVar[RefHow]
    REF_HOW_NO_LINKS: _ClassVar[RefHow]

class FileType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_TYPE_UNSPECIFIED: _ClassVar[FileType]
    FILE_TYPE_FILE: _ClassVar[FileType]
    FILE_TYPE_DIRECTORY: _ClassVar[FileType]
    FILE_TYPE_SYMLINK: _ClassVar[FileType]

class LeaseKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEASE_KIND_UNSPECIFIED: _ClassVar[LeaseKind]
    LEASE_KIND_SESSION: _ClassVar[LeaseKind]
    LEASE_KIND_GRANTED: _ClassVar[LeaseKind]

class LeaseOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEASE_ORDER_ID: _ClassVar[LeaseOrder]
    LEASE_ORDER_IDLE: _ClassVar[LeaseOrder]
    LEASE_ORDER_REMAINING: _ClassVar[LeaseOrder]
    LEASE_ORDER_FILES: _ClassVar[LeaseOrder]

class EventType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT_TYPE_UNSPECIFIED: _ClassVar[EventType]
    EVENT_TYPE_CREATE: _ClassVar[EventType]
    EVENT_TYPE_CLOSE: _ClassVar[EventType]
    EVENT_TYPE_DELETE: _ClassVar[EventType]
    EVENT_TYPE_RENAME: _ClassVar[EventType]
    EVENT_TYPE_LENGTH: _ClassVar[EventType]
    EVENT_TYPE_ATTR: _ClassVar[EventType]
    EVENT_TYPE_LEASE: _ClassVar[EventType]

class SnapshotChangeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SNAPSHOT_CHANGE_TYPE_UNSPECIFIED: _ClassVar[SnapshotChangeType]
    SNAPSHOT_CHANGE_TYPE_CREATED: _ClassVar[SnapshotChangeType]
    SNAPSHOT_CHANGE_TYPE_DELETED: _ClassVar[SnapshotChangeType]
    SNAPSHOT_CHANGE_TYPE_MODIFIED: _ClassVar[SnapshotChangeType]
    SNAPSHOT_CHANGE_TYPE_RENAMED: _ClassVar[SnapshotChangeType]

class XattrAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    XATTR_ACTION_SET: _ClassVar[XattrAction]
    XATTR_ACTION_CREATE: _ClassVar[XattrAction]
    XATTR_ACTION_REPLACE: _ClassVar[XattrAction]
    XATTR_ACTION_REMOVE: _ClassVar[XattrAction]

class AclTag(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACL_TAG_UNSPECIFIED: _ClassVar[AclTag]
    ACL_TAG_OWNER: _ClassVar[AclTag]
    ACL_TAG_USER: _ClassVar[AclTag]
    ACL_TAG_OWNING_GROUP: _ClassVar[AclTag]
    ACL_TAG_GROUP: _ClassVar[AclTag]
    ACL_TAG_MASK: _ClassVar[AclTag]
    ACL_TAG_OTHER: _ClassVar[AclTag]

class AclAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACL_ACTION_REPLACE: _ClassVar[AclAction]
    ACL_ACTION_MODIFY: _ClassVar[AclAction]
    ACL_ACTION_REMOVE: _ClassVar[AclAction]
    ACL_ACTION_REMOVE_DEFAULT: _ClassVar[AclAction]
    ACL_ACTION_REMOVE_ALL: _ClassVar[AclAction]
    ACL_ACTION_EXACT: _ClassVar[AclAction]
    ACL_ACTION_WHOLE: _ClassVar[AclAction]
REF_HOW_UNSPECIFIED: RefHow
REF_HOW_FOLLOW_LAST: RefHow
REF_HOW_NO_LINKS: RefHow
FILE_TYPE_UNSPECIFIED: FileType
FILE_TYPE_FILE: FileType
FILE_TYPE_DIRECTORY: FileType
FILE_TYPE_SYMLINK: FileType
LEASE_KIND_UNSPECIFIED: LeaseKind
LEASE_KIND_SESSION: LeaseKind
LEASE_KIND_GRANTED: LeaseKind
LEASE_ORDER_ID: LeaseOrder
LEASE_ORDER_IDLE: LeaseOrder
LEASE_ORDER_REMAINING: LeaseOrder
LEASE_ORDER_FILES: LeaseOrder
EVENT_TYPE_UNSPECIFIED: EventType
EVENT_TYPE_CREATE: EventType
EVENT_TYPE_CLOSE: EventType
EVENT_TYPE_DELETE: EventType
EVENT_TYPE_RENAME: EventType
EVENT_TYPE_LENGTH: EventType
EVENT_TYPE_ATTR: EventType
EVENT_TYPE_LEASE: EventType
SNAPSHOT_CHANGE_TYPE_UNSPECIFIED: SnapshotChangeType
SNAPSHOT_CHANGE_TYPE_CREATED: SnapshotChangeType
SNAPSHOT_CHANGE_TYPE_DELETED: SnapshotChangeType
SNAPSHOT_CHANGE_TYPE_MODIFIED: SnapshotChangeType
SNAPSHOT_CHANGE_TYPE_RENAMED: SnapshotChangeType
XATTR_ACTION_SET: XattrAction
XATTR_ACTION_CREATE: XattrAction
XATTR_ACTION_REPLACE: XattrAction
XATTR_ACTION_REMOVE: XattrAction
ACL_TAG_UNSPECIFIED: AclTag
ACL_TAG_OWNER: AclTag
ACL_TAG_USER: AclTag
ACL_TAG_OWNING_GROUP: AclTag
ACL_TAG_GROUP: AclTag
ACL_TAG_MASK: AclTag
ACL_TAG_OTHER: AclTag
ACL_ACTION_REPLACE: AclAction
ACL_ACTION_MODIFY: AclAction
ACL_ACTION_REMOVE: AclAction
ACL_ACTION_REMOVE_DEFAULT: AclAction
ACL_ACTION_REMOVE_ALL: AclAction
ACL_ACTION_EXACT: AclAction
ACL_ACTION_WHOLE: AclAction

class CallId(_message.Message):
    __slots__ = ("session", "seq", "acked")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    seq: int
    acked: int
    def __init__(self, session: _Optional[bytes] = ..., seq: _Optional[int] = ..., acked: _Optional[int] = ...) -> None: ...

class Caller(_message.Message):
    __slots__ = ("user", "client", "session", "host", "pid", "ttl_ms", "real_user", "session_user", "groups", "nobody", "xattr")
    USER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    REAL_USER_FIELD_NUMBER: _ClassVar[int]
    SESSION_USER_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NOBODY_FIELD_NUMBER: _ClassVar[int]
    XATTR_FIELD_NUMBER: _ClassVar[int]
    user: str
    client: str
    session: bytes
    host: str
    pid: int
    ttl_ms: int
    real_user: str
    session_user: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    nobody: bool
    xattr: str
    def __init__(self, user: _Optional[str] = ..., client: _Optional[str] = ..., session: _Optional[bytes] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., real_user: _Optional[str] = ..., session_user: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., nobody: bool = ..., xattr: _Optional[str] = ...) -> None: ...

class Ref(_message.Message):
    __slots__ = ("base", "path", "how", "expect")
    BASE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    HOW_FIELD_NUMBER: _ClassVar[int]
    EXPECT_FIELD_NUMBER: _ClassVar[int]
    base: int
    path: str
    how: int
    expect: int
    def __init__(self, base: _Optional[int] = ..., path: _Optional[str] = ..., how: _Optional[int] = ..., expect: _Optional[int] = ...) -> None: ...

class WriterId(_message.Message):
    __slots__ = ("inode", "epoch", "token", "session")
    INODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    inode: int
    epoch: int
    token: bytes
    session: bytes
    def __init__(self, inode: _Optional[int] = ..., epoch: _Optional[int] = ..., token: _Optional[bytes] = ..., session: _Optional[bytes] = ...) -> None: ...

class Attr(_message.Message):
    __slots__ = ("inode", "type", "mode", "user", "group", "mtime_unix_ms", "length", "link_target", "open", "entries", "blocks", "tail_length", "lease", "xattrs", "acl", "xattr", "snapshots")
    INODE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MTIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    LINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TAIL_LENGTH_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    XATTRS_FIELD_NUMBER: _ClassVar[int]
    ACL_FIELD_NUMBER: _ClassVar[int]
    XATTR_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    inode: int
    type: FileType
    mode: int
    user: str
    group: str
    mtime_unix_ms: int
    length: int
    link_target: str
    open: OpenState
    entries: int
    blocks: int
    tail_length: int
    lease: int
    xattrs: int
    acl: int
    xattr: bytes
    snapshots: bool
    def __init__(self, inode: _Optional[int] = ..., type: _Optional[_Union[FileType, str]] = ..., mode: _Optional[int] = ..., user: _Optional[str] = ..., group: _Optional[str] = ..., mtime_unix_ms: _Optional[int] = ..., length: _Optional[int] = ..., link_target: _Optional[str] = ..., open: _Optional[_Union[OpenState, _Mapping]] = ..., entries: _Optional[int] = ..., blocks: _Optional[int] = ..., tail_length: _Optional[int] = ..., lease: _Optional[int] = ..., xattrs: _Optional[int] = ..., acl: _Optional[int] = ..., xattr: _Optional[bytes] = ..., snapshots: bool = ...) -> None: ...

class OpenState(_message.Message):
    __slots__ = ("holder", "epoch", "lease_idle_ms", "soft_expired", "takeable_in_ms")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    SOFT_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    TAKEABLE_IN_MS_FIELD_NUMBER: _ClassVar[int]
    holder: HolderInfo
    epoch: int
    lease_idle_ms: int
    soft_expired: bool
    takeable_in_ms: int
    def __init__(self, holder: _Optional[_Union[HolderInfo, _Mapping]] = ..., epoch: _Optional[int] = ..., lease_idle_ms: _Optional[int] = ..., soft_expired: bool = ..., takeable_in_ms: _Optional[int] = ...) -> None: ...

class HolderInfo(_message.Message):
    __slots__ = ("user", "client", "session", "host", "pid", "since_ms", "idle_ms")
    USER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    user: str
    client: str
    session: bytes
    host: str
    pid: int
    since_ms: int
    idle_ms: int
    def __init__(self, user: _Optional[str] = ..., client: _Optional[str] = ..., session: _Optional[bytes] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., since_ms: _Optional[int] = ..., idle_ms: _Optional[int] = ...) -> None: ...

class Block(_message.Message):
    __slots__ = ("term", "seq", "stored_length", "used_length", "crc32c", "url", "headers")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TERM_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    STORED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    USED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    term: int
    seq: int
    stored_length: int
    used_length: int
    crc32c: int
    url: str
    headers: _containers.ScalarMap[str, str]
    def __init__(self, term: _Optional[int] = ..., seq: _Optional[int] = ..., stored_length: _Optional[int] = ..., used_length: _Optional[int] = ..., crc32c: _Optional[int] = ..., url: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("kind", "op", "path", "message", "holder", "reason", "takeable_in_ms", "retry_after_ms", "length", "active")
    KIND_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TAKEABLE_IN_MS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    kind: int
    op: str
    path: str
    message: str
    holder: HolderInfo
    reason: str
    takeable_in_ms: int
    retry_after_ms: int
    length: int
    active: str
    def __init__(self, kind: _Optional[int] = ..., op: _Optional[str] = ..., path: _Optional[str] = ..., message: _Optional[str] = ..., holder: _Optional[_Union[HolderInfo, _Mapping]] = ..., reason: _Optional[str] = ..., takeable_in_ms: _Optional[int] = ..., retry_after_ms: _Optional[int] = ..., length: _Optional[int] = ..., active: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("caller", "cache", "stream", "release")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    cache: bool
    stream: int
    release: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., cache: bool = ..., stream: _Optional[int] = ..., release: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("namespace_id", "term", "soft_limit_ms", "hard_limit_ms", "block_size", "max_tail", "max_message", "renew_every_ms", "small_file", "cache_term_ms", "failover_ms", "cache_full")
    NAMESPACE_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    SOFT_LIMIT_MS_FIELD_NUMBER: _ClassVar[int]
    HARD_LIMIT_MS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_TAIL_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RENEW_EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    SMALL_FILE_FIELD_NUMBER: _ClassVar[int]
    CACHE_TERM_MS_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_MS_FIELD_NUMBER: _ClassVar[int]
    CACHE_FULL_FIELD_NUMBER: _ClassVar[int]
    namespace_id: str
    term: int
    soft_limit_ms: int
    hard_limit_ms: int
    block_size: int
    max_tail: int
    max_message: int
    renew_every_ms: int
    small_file: int
    cache_term_ms: int
    failover_ms: int
    cache_full: bool
    def __init__(self, namespace_id: _Optional[str] = ..., term: _Optional[int] = ..., soft_limit_ms: _Optional[int] = ..., hard_limit_ms: _Optional[int] = ..., block_size: _Optional[int] = ..., max_tail: _Optional[int] = ..., max_message: _Optional[int] = ..., renew_every_ms: _Optional[int] = ..., small_file: _Optional[int] = ..., cache_term_ms: _Optional[int] = ..., failover_ms: _Optional[int] = ..., cache_full: bool = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("hello", "renew", "cache_renew", "cache_ack")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    CACHE_RENEW_FIELD_NUMBER: _ClassVar[int]
    CACHE_ACK_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    renew: RenewLeaseRequest
    cache_renew: CacheRenew
    cache_ack: CacheAck
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., renew: _Optional[_Union[RenewLeaseRequest, _Mapping]] = ..., cache_renew: _Optional[_Union[CacheRenew, _Mapping]] = ..., cache_ack: _Optional[_Union[CacheAck, _Mapping]] = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("welcome", "renewed", "error", "cache_term", "cache_revocation")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    RENEWED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CACHE_TERM_FIELD_NUMBER: _ClassVar[int]
    CACHE_REVOCATION_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    renewed: RenewLeaseResponse
    error: ErrorDetail
    cache_term: CacheTerm
    cache_revocation: CacheRevocation
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., renewed: _Optional[_Union[RenewLeaseResponse, _Mapping]] = ..., error: _Optional[_Union[ErrorDetail, _Mapping]] = ..., cache_term: _Optional[_Union[CacheTerm, _Mapping]] = ..., cache_revocation: _Optional[_Union[CacheRevocation, _Mapping]] = ...) -> None: ...

class CacheRenew(_message.Message):
    __slots__ = ("seq",)
    SEQ_FIELD_NUMBER: _ClassVar[int]
    seq: int
    def __init__(self, seq: _Optional[int] = ...) -> None: ...

class CacheTerm(_message.Message):
    __slots__ = ("seq", "term_ms")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TERM_MS_FIELD_NUMBER: _ClassVar[int]
    seq: int
    term_ms: int
    def __init__(self, seq: _Optional[int] = ..., term_ms: _Optional[int] = ...) -> None: ...

class CacheRevocation(_message.Message):
    __slots__ = ("seq", "keys", "all")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    seq: int
    keys: _containers.RepeatedCompositeFieldContainer[CacheKey]
    all: bool
    def __init__(self, seq: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[CacheKey, _Mapping]]] = ..., all: bool = ...) -> None: ...

class CacheAck(_message.Message):
    __slots__ = ("seq", "drafts")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    DRAFTS_FIELD_NUMBER: _ClassVar[int]
    seq: int
    drafts: _containers.RepeatedCompositeFieldContainer[Draft]
    def __init__(self, seq: _Optional[int] = ..., drafts: _Optional[_Iterable[_Union[Draft, _Mapping]]] = ...) -> None: ...

class Draft(_message.Message):
    __slots__ = ("dir", "name", "inode")
    DIR_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    dir: int
    name: str
    inode: int
    def __init__(self, dir: _Optional[int] = ..., name: _Optional[str] = ..., inode: _Optional[int] = ...) -> None: ...

class CacheKey(_message.Message):
    __slots__ = ("kind", "inode", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: int
    inode: int
    name: str
    def __init__(self, kind: _Optional[int] = ..., inode: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class CacheGivenUp(_message.Message):
    __slots__ = ("stream", "keys", "held")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    stream: int
    keys: _containers.RepeatedCompositeFieldContainer[CacheKey]
    held: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, stream: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[CacheKey, _Mapping]]] = ..., held: _Optional[_Iterable[int]] = ...) -> None: ...

class RenewLeaseRequest(_message.Message):
    __slots__ = ("session", "version", "has_set", "open", "caller", "seq")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HAS_SET_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    version: int
    has_set: bool
    open: _containers.RepeatedCompositeFieldContainer[OpenRef]
    caller: Caller
    seq: int
    def __init__(self, session: _Optional[bytes] = ..., version: _Optional[int] = ..., has_set: bool = ..., open: _Optional[_Iterable[_Union[OpenRef, _Mapping]]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., seq: _Optional[int] = ...) -> None: ...

class OpenRef(_message.Message):
    __slots__ = ("inode", "epoch")
    INODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    inode: int
    epoch: int
    def __init__(self, inode: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class RenewLeaseResponse(_message.Message):
    __slots__ = ("lost", "unknown", "unknown_session", "want_set", "next_renewal_ms", "soft_limit_ms", "hard_limit_ms", "seq")
    LOST_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_SESSION_FIELD_NUMBER: _ClassVar[int]
    WANT_SET_FIELD_NUMBER: _ClassVar[int]
    NEXT_RENEWAL_MS_FIELD_NUMBER: _ClassVar[int]
    SOFT_LIMIT_MS_FIELD_NUMBER: _ClassVar[int]
    HARD_LIMIT_MS_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    lost: _containers.RepeatedCompositeFieldContainer[LostFile]
    unknown: _containers.RepeatedCompositeFieldContainer[OpenRef]
    unknown_session: bool
    want_set: bool
    next_renewal_ms: int
    soft_limit_ms: int
    hard_limit_ms: int
    seq: int
    def __init__(self, lost: _Optional[_Iterable[_Union[LostFile, _Mapping]]] = ..., unknown: _Optional[_Iterable[_Union[OpenRef, _Mapping]]] = ..., unknown_session: bool = ..., want_set: bool = ..., next_renewal_ms: _Optional[int] = ..., soft_limit_ms: _Optional[int] = ..., hard_limit_ms: _Optional[int] = ..., seq: _Optional[int] = ...) -> None: ...

class LostFile(_message.Message):
    __slots__ = ("inode", "epoch", "reason", "new_holder")
    INODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NEW_HOLDER_FIELD_NUMBER: _ClassVar[int]
    inode: int
    epoch: int
    reason: str
    new_holder: HolderInfo
    def __init__(self, inode: _Optional[int] = ..., epoch: _Optional[int] = ..., reason: _Optional[str] = ..., new_holder: _Optional[_Union[HolderInfo, _Mapping]] = ...) -> None: ...

class ListLeasesRequest(_message.Message):
    __slots__ = ("caller", "cursor", "limit", "holder", "expired", "lease", "path", "order", "kind", "text", "max_files")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MAX_FILES_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    cursor: str
    limit: int
    holder: str
    expired: bool
    lease: str
    path: str
    order: LeaseOrder
    kind: LeaseKind
    text: str
    max_files: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., cursor: _Optional[str] = ..., limit: _Optional[int] = ..., holder: _Optional[str] = ..., expired: bool = ..., lease: _Optional[str] = ..., path: _Optional[str] = ..., order: _Optional[_Union[LeaseOrder, str]] = ..., kind: _Optional[_Union[LeaseKind, str]] = ..., text: _Optional[str] = ..., max_files: _Optional[int] = ...) -> None: ...

class ListLeasesResponse(_message.Message):
    __slots__ = ("leases", "next_cursor")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    next_cursor: str
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("id", "holder", "soft_expired", "hard_expired", "connected", "files", "file_count", "attached", "ttl_ms", "remaining_ms", "granted", "attached_count", "waiting", "overdue_ms", "ending", "name", "waiters")
    ID_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    SOFT_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    HARD_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_COUNT_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_MS_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WAITERS_FIELD_NUMBER: _ClassVar[int]
    id: str
    holder: HolderInfo
    soft_expired: bool
    hard_expired: bool
    connected: bool
    files: _containers.RepeatedCompositeFieldContainer[LeaseFile]
    file_count: int
    attached: _containers.RepeatedScalarFieldContainer[str]
    ttl_ms: int
    remaining_ms: int
    granted: bool
    attached_count: int
    waiting: int
    overdue_ms: int
    ending: bool
    name: str
    waiters: _containers.RepeatedCompositeFieldContainer[LeaseWaiter]
    def __init__(self, id: _Optional[str] = ..., holder: _Optional[_Union[HolderInfo, _Mapping]] = ..., soft_expired: bool = ..., hard_expired: bool = ..., connected: bool = ..., files: _Optional[_Iterable[_Union[LeaseFile, _Mapping]]] = ..., file_count: _Optional[int] = ..., attached: _Optional[_Iterable[str]] = ..., ttl_ms: _Optional[int] = ..., remaining_ms: _Optional[int] = ..., granted: bool = ..., attached_count: _Optional[int] = ..., waiting: _Optional[int] = ..., overdue_ms: _Optional[int] = ..., ending: bool = ..., name: _Optional[str] = ..., waiters: _Optional[_Iterable[_Union[LeaseWaiter, _Mapping]]] = ...) -> None: ...

class LeaseWaiter(_message.Message):
    __slots__ = ("who", "inode")
    WHO_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    who: HolderInfo
    inode: int
    def __init__(self, who: _Optional[_Union[HolderInfo, _Mapping]] = ..., inode: _Optional[int] = ...) -> None: ...

class LeaseFile(_message.Message):
    __slots__ = ("path", "inode", "epoch")
    PATH_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    path: str
    inode: int
    epoch: int
    def __init__(self, path: _Optional[str] = ..., inode: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class LeaseHistoryRequest(_message.Message):
    __slots__ = ("caller", "cursor", "limit", "path", "holder", "lease", "since_unix_ms")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    cursor: str
    limit: int
    path: str
    holder: str
    lease: str
    since_unix_ms: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., cursor: _Optional[str] = ..., limit: _Optional[int] = ..., path: _Optional[str] = ..., holder: _Optional[str] = ..., lease: _Optional[str] = ..., since_unix_ms: _Optional[int] = ...) -> None: ...

class LeaseHistoryResponse(_message.Message):
    __slots__ = ("spans", "next_cursor", "kept_from_unix_ms", "problem")
    SPANS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    KEPT_FROM_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    spans: _containers.RepeatedCompositeFieldContainer[LeaseSpan]
    next_cursor: str
    kept_from_unix_ms: int
    problem: str
    def __init__(self, spans: _Optional[_Iterable[_Union[LeaseSpan, _Mapping]]] = ..., next_cursor: _Optional[str] = ..., kept_from_unix_ms: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class LeaseSpan(_message.Message):
    __slots__ = ("txid", "holder", "from_unix_ms", "to_unix_ms", "reason", "by", "lease", "name", "path", "inode", "epoch")
    TXID_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    FROM_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    TO_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    txid: int
    holder: HolderInfo
    from_unix_ms: int
    to_unix_ms: int
    reason: str
    by: HolderInfo
    lease: str
    name: str
    path: str
    inode: int
    epoch: int
    def __init__(self, txid: _Optional[int] = ..., holder: _Optional[_Union[HolderInfo, _Mapping]] = ..., from_unix_ms: _Optional[int] = ..., to_unix_ms: _Optional[int] = ..., reason: _Optional[str] = ..., by: _Optional[_Union[HolderInfo, _Mapping]] = ..., lease: _Optional[str] = ..., name: _Optional[str] = ..., path: _Optional[str] = ..., inode: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class RecoverRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "force", "epoch")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    force: bool
    epoch: int
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., force: bool = ..., epoch: _Optional[int] = ...) -> None: ...

class RecoverResponse(_message.Message):
    __slots__ = ("was_open", "length", "epoch")
    WAS_OPEN_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    was_open: bool
    length: int
    epoch: int
    def __init__(self, was_open: bool = ..., length: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class GrantLeaseRequest(_message.Message):
    __slots__ = ("call", "caller", "id", "ttl_ms", "name")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    id: int
    ttl_ms: int
    name: str
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., id: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class GrantLeaseResponse(_message.Message):
    __slots__ = ("id", "ttl_ms", "txid", "failover_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    TXID_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_MS_FIELD_NUMBER: _ClassVar[int]
    id: int
    ttl_ms: int
    txid: int
    failover_ms: int
    def __init__(self, id: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., txid: _Optional[int] = ..., failover_ms: _Optional[int] = ...) -> None: ...

class RevokeLeaseRequest(_message.Message):
    __slots__ = ("call", "caller", "id")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    id: int
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., id: _Optional[int] = ...) -> None: ...

class RevokeLeaseResponse(_message.Message):
    __slots__ = ("txid",)
    TXID_FIELD_NUMBER: _ClassVar[int]
    txid: int
    def __init__(self, txid: _Optional[int] = ...) -> None: ...

class KeepAliveRequest(_message.Message):
    __slots__ = ("caller", "ids", "tell")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    TELL_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    ids: _containers.RepeatedScalarFieldContainer[int]
    tell: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., ids: _Optional[_Iterable[int]] = ..., tell: bool = ...) -> None: ...

class KeepAliveResponse(_message.Message):
    __slots__ = ("leases", "ended")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[LeaseAlive]
    ended: bool
    def __init__(self, leases: _Optional[_Iterable[_Union[LeaseAlive, _Mapping]]] = ..., ended: bool = ...) -> None: ...

class LeaseAlive(_message.Message):
    __slots__ = ("id", "ttl_ms", "owner", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: int
    ttl_ms: int
    owner: str
    reason: str
    def __init__(self, id: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., owner: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class LeaseTimeToLiveRequest(_message.Message):
    __slots__ = ("caller", "id", "files", "name")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    id: int
    files: bool
    name: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., id: _Optional[int] = ..., files: bool = ..., name: _Optional[str] = ...) -> None: ...

class LeaseTimeToLiveResponse(_message.Message):
    __slots__ = ("id", "remaining_ms", "ttl_ms", "files", "file_count", "name")
    ID_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    id: int
    remaining_ms: int
    ttl_ms: int
    files: _containers.RepeatedScalarFieldContainer[str]
    file_count: int
    name: str
    def __init__(self, id: _Optional[int] = ..., remaining_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., files: _Optional[_Iterable[str]] = ..., file_count: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class AttachLeaseRequest(_message.Message):
    __slots__ = ("call", "caller", "id", "at")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    id: int
    at: Ref
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., id: _Optional[int] = ..., at: _Optional[_Union[Ref, _Mapping]] = ...) -> None: ...

class DetachLeaseRequest(_message.Message):
    __slots__ = ("call", "caller", "at")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("caller", "path", "recursive", "from_txid", "inode", "resume")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    FROM_TXID_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    path: str
    recursive: bool
    from_txid: int
    inode: int
    resume: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., path: _Optional[str] = ..., recursive: bool = ..., from_txid: _Optional[int] = ..., inode: _Optional[int] = ..., resume: bool = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("events", "txid", "target")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    TXID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    txid: int
    target: str
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., txid: _Optional[int] = ..., target: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("txid", "type", "path", "new_path", "inode", "time_unix_ms", "length", "directory", "holder", "reason", "by", "trashed")
    TXID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    NEW_PATH_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    TIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    TRASHED_FIELD_NUMBER: _ClassVar[int]
    txid: int
    type: EventType
    path: str
    new_path: str
    inode: int
    time_unix_ms: int
    length: int
    directory: bool
    holder: str
    reason: str
    by: HolderInfo
    trashed: bool
    def __init__(self, txid: _Optional[int] = ..., type: _Optional[_Union[EventType, str]] = ..., path: _Optional[str] = ..., new_path: _Optional[str] = ..., inode: _Optional[int] = ..., time_unix_ms: _Optional[int] = ..., length: _Optional[int] = ..., directory: bool = ..., holder: _Optional[str] = ..., reason: _Optional[str] = ..., by: _Optional[_Union[HolderInfo, _Mapping]] = ..., trashed: bool = ...) -> None: ...

class CreateRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "mode", "has_mode", "overwrite", "steal", "parents", "data", "close", "data_crc32c", "mtime_unix_ms", "lease", "given_up", "cache", "creations", "numbers", "owner", "umask", "less", "xattrs", "describe")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    HAS_MODE_FIELD_NUMBER: _ClassVar[int]
    OVERWRITE_FIELD_NUMBER: _ClassVar[int]
    STEAL_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    DATA_CRC32C_FIELD_NUMBER: _ClassVar[int]
    MTIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    CREATIONS_FIELD_NUMBER: _ClassVar[int]
    AS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    LESS_FIELD_NUMBER: _ClassVar[int]
    XATTRS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    mode: int
    has_mode: bool
    overwrite: bool
    steal: bool
    parents: bool
    data: bytes
    close: bool
    data_crc32c: int
    mtime_unix_ms: int
    lease: int
    given_up: CacheGivenUp
    cache: bool
    creations: bool
    numbers: bool
    owner: Owner
    umask: int
    less: int
    xattrs: _containers.RepeatedCompositeFieldContainer[TxXattr]
    describe: bool
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., mode: _Optional[int] = ..., has_mode: bool = ..., overwrite: bool = ..., steal: bool = ..., parents: bool = ..., data: _Optional[bytes] = ..., close: bool = ..., data_crc32c: _Optional[int] = ..., mtime_unix_ms: _Optional[int] = ..., lease: _Optional[int] = ..., given_up: _Optional[_Union[CacheGivenUp, _Mapping]] = ..., cache: bool = ..., creations: bool = ..., numbers: bool = ..., owner: _Optional[_Union[Owner, _Mapping]] = ..., umask: _Optional[int] = ..., less: _Optional[int] = ..., xattrs: _Optional[_Iterable[_Union[TxXattr, _Mapping]]] = ..., describe: bool = ..., **kwargs) -> None: ...

class Owner(_message.Message):
    __slots__ = ("user", "group")
    USER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    user: str
    group: str
    def __init__(self, user: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class OpenResponse(_message.Message):
    __slots__ = ("attr", "writer", "took_over", "length", "blocks_length", "keys", "parent", "parent_keys", "creations", "first_inode", "inodes")
    ATTR_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    TOOK_OVER_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_LENGTH_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PARENT_KEYS_FIELD_NUMBER: _ClassVar[int]
    CREATIONS_FIELD_NUMBER: _ClassVar[int]
    FIRST_INODE_FIELD_NUMBER: _ClassVar[int]
    INODES_FIELD_NUMBER: _ClassVar[int]
    attr: Attr
    writer: WriterId
    took_over: bool
    length: int
    blocks_length: int
    keys: _containers.RepeatedCompositeFieldContainer[CacheKey]
    parent: Attr
    parent_keys: _containers.RepeatedCompositeFieldContainer[CacheKey]
    creations: bool
    first_inode: int
    inodes: int
    def __init__(self, attr: _Optional[_Union[Attr, _Mapping]] = ..., writer: _Optional[_Union[WriterId, _Mapping]] = ..., took_over: bool = ..., length: _Optional[int] = ..., blocks_length: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[CacheKey, _Mapping]]] = ..., parent: _Optional[_Union[Attr, _Mapping]] = ..., parent_keys: _Optional[_Iterable[_Union[CacheKey, _Mapping]]] = ..., creations: bool = ..., first_inode: _Optional[int] = ..., inodes: _Optional[int] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "has_expected_length", "expected_length", "create", "parents", "mode", "has_mode", "wait_ms", "cut", "cut_length", "writer", "expected_mtime_unix_ms", "again", "umask", "lease", "resume")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    HAS_EXPECTED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    HAS_MODE_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    CUT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_MTIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    has_expected_length: bool
    expected_length: int
    create: bool
    parents: bool
    mode: int
    has_mode: bool
    wait_ms: int
    cut: bool
    cut_length: int
    writer: WriterId
    expected_mtime_unix_ms: int
    again: bool
    umask: int
    lease: int
    resume: bool
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., has_expected_length: bool = ..., expected_length: _Optional[int] = ..., create: bool = ..., parents: bool = ..., mode: _Optional[int] = ..., has_mode: bool = ..., wait_ms: _Optional[int] = ..., cut: bool = ..., cut_length: _Optional[int] = ..., writer: _Optional[_Union[WriterId, _Mapping]] = ..., expected_mtime_unix_ms: _Optional[int] = ..., again: bool = ..., umask: _Optional[int] = ..., lease: _Optional[int] = ..., resume: bool = ...) -> None: ...

class AppendTailRequest(_message.Message):
    __slots__ = ("writer", "offset", "data", "crc32c", "given_up")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    writer: WriterId
    offset: int
    data: bytes
    crc32c: int
    given_up: CacheGivenUp
    def __init__(self, writer: _Optional[_Union[WriterId, _Mapping]] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., crc32c: _Optional[int] = ..., given_up: _Optional[_Union[CacheGivenUp, _Mapping]] = ...) -> None: ...

class AppendTailResponse(_message.Message):
    __slots__ = ("length",)
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    length: int
    def __init__(self, length: _Optional[int] = ...) -> None: ...

class AllocateBlockRequest(_message.Message):
    __slots__ = ("writer", "blocks")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    writer: WriterId
    blocks: _containers.RepeatedCompositeFieldContainer[BlockIntent]
    def __init__(self, writer: _Optional[_Union[WriterId, _Mapping]] = ..., blocks: _Optional[_Iterable[_Union[BlockIntent, _Mapping]]] = ...) -> None: ...

class BlockIntent(_message.Message):
    __slots__ = ("stored_length", "crc32c")
    STORED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    stored_length: int
    crc32c: int
    def __init__(self, stored_length: _Optional[int] = ..., crc32c: _Optional[int] = ...) -> None: ...

class AllocateBlockResponse(_message.Message):
    __slots__ = ("targets",)
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[BlockTarget]
    def __init__(self, targets: _Optional[_Iterable[_Union[BlockTarget, _Mapping]]] = ...) -> None: ...

class BlockTarget(_message.Message):
    __slots__ = ("term", "seq", "url", "headers", "expires_unix_ms")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TERM_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    term: int
    seq: int
    url: str
    headers: _containers.ScalarMap[str, str]
    expires_unix_ms: int
    def __init__(self, term: _Optional[int] = ..., seq: _Optional[int] = ..., url: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., expires_unix_ms: _Optional[int] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("writer", "offset", "block", "tail_covered", "tail_crc32c")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    TAIL_COVERED_FIELD_NUMBER: _ClassVar[int]
    TAIL_CRC32C_FIELD_NUMBER: _ClassVar[int]
    writer: WriterId
    offset: int
    block: Block
    tail_covered: int
    tail_crc32c: int
    def __init__(self, writer: _Optional[_Union[WriterId, _Mapping]] = ..., offset: _Optional[int] = ..., block: _Optional[_Union[Block, _Mapping]] = ..., tail_covered: _Optional[int] = ..., tail_crc32c: _Optional[int] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("length", "blocks_length")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_LENGTH_FIELD_NUMBER: _ClassVar[int]
    length: int
    blocks_length: int
    def __init__(self, length: _Optional[int] = ..., blocks_length: _Optional[int] = ...) -> None: ...

class CloseRequest(_message.Message):
    __slots__ = ("call", "writer", "offset", "data", "crc32c", "length", "mtime_unix_ms", "given_up")
    CALL_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    MTIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    writer: WriterId
    offset: int
    data: bytes
    crc32c: int
    length: int
    mtime_unix_ms: int
    given_up: CacheGivenUp
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., writer: _Optional[_Union[WriterId, _Mapping]] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., crc32c: _Optional[int] = ..., length: _Optional[int] = ..., mtime_unix_ms: _Optional[int] = ..., given_up: _Optional[_Union[CacheGivenUp, _Mapping]] = ...) -> None: ...

class CloseResponse(_message.Message):
    __slots__ = ("length",)
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    length: int
    def __init__(self, length: _Optional[int] = ...) -> None: ...

class CloseAbandonedRequest(_message.Message):
    __slots__ = ("call", "caller", "at")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ...) -> None: ...

class CancelOpenRequest(_message.Message):
    __slots__ = ("call", "caller")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class GetFileRequest(_message.Message):
    __slots__ = ("caller", "at", "offset", "length", "no_urls", "max_blocks", "wait_beyond", "wait_ms", "cache", "writer", "or_below")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    NO_URLS_FIELD_NUMBER: _ClassVar[int]
    MAX_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    WAIT_BEYOND_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    OR_BELOW_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    at: Ref
    offset: int
    length: int
    no_urls: bool
    max_blocks: int
    wait_beyond: int
    wait_ms: int
    cache: bool
    writer: WriterId
    or_below: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ..., no_urls: bool = ..., max_blocks: _Optional[int] = ..., wait_beyond: _Optional[int] = ..., wait_ms: _Optional[int] = ..., cache: bool = ..., writer: _Optional[_Union[WriterId, _Mapping]] = ..., or_below: bool = ...) -> None: ...

class GetFileResponse(_message.Message):
    __slots__ = ("attr", "path", "blocks_offset", "blocks", "more_blocks", "tail_offset", "tail", "tail_crc32c", "urls_expire_ms", "keys", "cut")
    ATTR_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MORE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TAIL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    TAIL_CRC32C_FIELD_NUMBER: _ClassVar[int]
    URLS_EXPIRE_MS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    attr: Attr
    path: str
    blocks_offset: int
    blocks: _containers.RepeatedCompositeFieldContainer[Block]
    more_blocks: bool
    tail_offset: int
    tail: bytes
    tail_crc32c: int
    urls_expire_ms: int
    keys: _containers.RepeatedCompositeFieldContainer[CacheKey]
    cut: int
    def __init__(self, attr: _Optional[_Union[Attr, _Mapping]] = ..., path: _Optional[str] = ..., blocks_offset: _Optional[int] = ..., blocks: _Optional[_Iterable[_Union[Block, _Mapping]]] = ..., more_blocks: bool = ..., tail_offset: _Optional[int] = ..., tail: _Optional[bytes] = ..., tail_crc32c: _Optional[int] = ..., urls_expire_ms: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[CacheKey, _Mapping]]] = ..., cut: _Optional[int] = ...) -> None: ...

class StatRequest(_message.Message):
    __slots__ = ("caller", "at", "cache", "where", "access")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    at: Ref
    cache: bool
    where: bool
    access: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., cache: bool = ..., where: bool = ..., access: _Optional[int] = ...) -> None: ...

class StatResponse(_message.Message):
    __slots__ = ("attr", "keys", "missing", "path", "txid")
    ATTR_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TXID_FIELD_NUMBER: _ClassVar[int]
    attr: Attr
    keys: _containers.RepeatedCompositeFieldContainer[CacheKey]
    missing: ErrorDetail
    path: str
    txid: int
    def __init__(self, attr: _Optional[_Union[Attr, _Mapping]] = ..., keys: _Optional[_Iterable[_Union[CacheKey, _Mapping]]] = ..., missing: _Optional[_Union[ErrorDetail, _Mapping]] = ..., path: _Optional[str] = ..., txid: _Optional[int] = ...) -> None: ...

class XattrsRequest(_message.Message):
    __slots__ = ("caller", "at", "cache")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    at: Ref
    cache: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., cache: bool = ...) -> None: ...

class XattrsResponse(_message.Message):
    __slots__ = ("xattrs", "keys")
    XATTRS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    xattrs: _containers.RepeatedCompositeFieldContainer[Xattr]
    keys: _containers.RepeatedCompositeFieldContainer[CacheKey]
    def __init__(self, xattrs: _Optional[_Iterable[_Union[Xattr, _Mapping]]] = ..., keys: _Optional[_Iterable[_Union[CacheKey, _Mapping]]] = ...) -> None: ...

class Xattr(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("caller", "at", "after", "limit", "cache")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    at: Ref
    after: str
    limit: int
    cache: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ..., cache: bool = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("entries", "more", "directory", "keys", "txid")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    TXID_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    more: bool
    directory: Attr
    keys: _containers.RepeatedCompositeFieldContainer[CacheKey]
    txid: int
    def __init__(self, entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., more: bool = ..., directory: _Optional[_Union[Attr, _Mapping]] = ..., keys: _Optional[_Iterable[_Union[CacheKey, _Mapping]]] = ..., txid: _Optional[int] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("name", "attr", "keep")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ATTR_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    name: str
    attr: Attr
    keep: bool
    def __init__(self, name: _Optional[str] = ..., attr: _Optional[_Union[Attr, _Mapping]] = ..., keep: bool = ...) -> None: ...

class SummaryRequest(_message.Message):
    __slots__ = ("caller", "at")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    at: Ref
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ...) -> None: ...

class SummaryResponse(_message.Message):
    __slots__ = ("files", "directories", "symlinks", "length", "stored", "open_files", "snapshot_bytes", "trash_bytes")
    FILES_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    SYMLINKS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRASH_BYTES_FIELD_NUMBER: _ClassVar[int]
    files: int
    directories: int
    symlinks: int
    length: int
    stored: int
    open_files: int
    snapshot_bytes: int
    trash_bytes: int
    def __init__(self, files: _Optional[int] = ..., directories: _Optional[int] = ..., symlinks: _Optional[int] = ..., length: _Optional[int] = ..., stored: _Optional[int] = ..., open_files: _Optional[int] = ..., snapshot_bytes: _Optional[int] = ..., trash_bytes: _Optional[int] = ...) -> None: ...

class FindRequest(_message.Message):
    __slots__ = ("caller", "at", "open_only", "holder")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    OPEN_ONLY_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    at: Ref
    open_only: bool
    holder: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., open_only: bool = ..., holder: _Optional[str] = ...) -> None: ...

class FindResponse(_message.Message):
    __slots__ = ("entries", "txid")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    TXID_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[FoundEntry]
    txid: int
    def __init__(self, entries: _Optional[_Iterable[_Union[FoundEntry, _Mapping]]] = ..., txid: _Optional[int] = ...) -> None: ...

class FoundEntry(_message.Message):
    __slots__ = ("path", "attr")
    PATH_FIELD_NUMBER: _ClassVar[int]
    ATTR_FIELD_NUMBER: _ClassVar[int]
    path: str
    attr: Attr
    def __init__(self, path: _Optional[str] = ..., attr: _Optional[_Union[Attr, _Mapping]] = ...) -> None: ...

class MutateResponse(_message.Message):
    __slots__ = ("attr", "txid", "hidden", "trashed", "snapshot")
    ATTR_FIELD_NUMBER: _ClassVar[int]
    TXID_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    TRASHED_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    attr: Attr
    txid: int
    hidden: bool
    trashed: bool
    snapshot: str
    def __init__(self, attr: _Optional[_Union[Attr, _Mapping]] = ..., txid: _Optional[int] = ..., hidden: bool = ..., trashed: bool = ..., snapshot: _Optional[str] = ...) -> None: ...

class MkdirRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "mode", "has_mode", "parents", "owner", "lease", "less")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    HAS_MODE_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LESS_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    mode: int
    has_mode: bool
    parents: bool
    owner: Owner
    lease: int
    less: int
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., mode: _Optional[int] = ..., has_mode: bool = ..., parents: bool = ..., owner: _Optional[_Union[Owner, _Mapping]] = ..., lease: _Optional[int] = ..., less: _Optional[int] = ...) -> None: ...

class RenameRequest(_message.Message):
    __slots__ = ("call", "caller", "to", "overwrite", "detach", "hide", "unheld")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    OVERWRITE_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    HIDE_FIELD_NUMBER: _ClassVar[int]
    UNHELD_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    to: Ref
    overwrite: bool
    detach: bool
    hide: Hide
    unheld: bool
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., to: _Optional[_Union[Ref, _Mapping]] = ..., overwrite: bool = ..., detach: bool = ..., hide: _Optional[_Union[Hide, _Mapping]] = ..., unheld: bool = ..., **kwargs) -> None: ...

class Hide(_message.Message):
    __slots__ = ("inode", "name", "lease")
    INODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    inode: int
    name: str
    lease: int
    def __init__(self, inode: _Optional[int] = ..., name: _Optional[str] = ..., lease: _Optional[int] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "recursive", "only", "hide", "skip_trash", "kept_as")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    ONLY_FIELD_NUMBER: _ClassVar[int]
    HIDE_FIELD_NUMBER: _ClassVar[int]
    SKIP_TRASH_FIELD_NUMBER: _ClassVar[int]
    KEPT_AS_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    recursive: bool
    only: FileType
    hide: Hide
    skip_trash: bool
    kept_as: str
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., recursive: bool = ..., only: _Optional[_Union[FileType, str]] = ..., hide: _Optional[_Union[Hide, _Mapping]] = ..., skip_trash: bool = ..., kept_as: _Optional[str] = ...) -> None: ...

class ListTrashRequest(_message.Message):
    __slots__ = ("caller", "cursor", "limit", "all", "below")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    BELOW_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    cursor: str
    limit: int
    all: bool
    below: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., cursor: _Optional[str] = ..., limit: _Optional[int] = ..., all: bool = ..., below: _Optional[str] = ...) -> None: ...

class ListTrashResponse(_message.Message):
    __slots__ = ("entries", "next_cursor")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[TrashEntry]
    next_cursor: str
    def __init__(self, entries: _Optional[_Iterable[_Union[TrashEntry, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class TrashEntry(_message.Message):
    __slots__ = ("inode", "user", "path", "time_unix_ms", "left_ms", "attr", "kept_ms")
    INODE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    ATTR_FIELD_NUMBER: _ClassVar[int]
    KEPT_MS_FIELD_NUMBER: _ClassVar[int]
    inode: int
    user: str
    path: str
    time_unix_ms: int
    left_ms: int
    attr: Attr
    kept_ms: int
    def __init__(self, inode: _Optional[int] = ..., user: _Optional[str] = ..., path: _Optional[str] = ..., time_unix_ms: _Optional[int] = ..., left_ms: _Optional[int] = ..., attr: _Optional[_Union[Attr, _Mapping]] = ..., kept_ms: _Optional[int] = ...) -> None: ...

class RestoreTrashRequest(_message.Message):
    __slots__ = ("call", "caller", "inode", "to")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    inode: int
    to: Ref
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., inode: _Optional[int] = ..., to: _Optional[_Union[Ref, _Mapping]] = ...) -> None: ...

class EmptyTrashRequest(_message.Message):
    __slots__ = ("call", "caller", "inodes")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    INODES_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    inodes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., inodes: _Optional[_Iterable[int]] = ...) -> None: ...

class SetAttrRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "set_mode", "mode", "user", "group", "set_mtime", "mtime_unix_ms")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    SET_MODE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SET_MTIME_FIELD_NUMBER: _ClassVar[int]
    MTIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    set_mode: bool
    mode: int
    user: str
    group: str
    set_mtime: bool
    mtime_unix_ms: int
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., set_mode: bool = ..., mode: _Optional[int] = ..., user: _Optional[str] = ..., group: _Optional[str] = ..., set_mtime: bool = ..., mtime_unix_ms: _Optional[int] = ...) -> None: ...

class SetQuotaRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "names", "bytes")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    names: int
    bytes: int
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., names: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class GetQuotaRequest(_message.Message):
    __slots__ = ("caller", "at")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    at: Ref
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ...) -> None: ...

class GetQuotaResponse(_message.Message):
    __slots__ = ("quotas", "own")
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    own: bool
    def __init__(self, quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ..., own: bool = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("inode", "path", "names", "bytes", "used_names", "used_bytes", "snapshot_bytes")
    INODE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    USED_NAMES_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_BYTES_FIELD_NUMBER: _ClassVar[int]
    inode: int
    path: str
    names: int
    bytes: int
    used_names: int
    used_bytes: int
    snapshot_bytes: int
    def __init__(self, inode: _Optional[int] = ..., path: _Optional[str] = ..., names: _Optional[int] = ..., bytes: _Optional[int] = ..., used_names: _Optional[int] = ..., used_bytes: _Optional[int] = ..., snapshot_bytes: _Optional[int] = ...) -> None: ...

class ListQuotasRequest(_message.Message):
    __slots__ = ("caller", "after", "limit")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    after: int
    limit: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListQuotasResponse(_message.Message):
    __slots__ = ("quotas", "next")
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    next: int
    def __init__(self, quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ..., next: _Optional[int] = ...) -> None: ...

class AllowSnapshotsRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "allow")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    ALLOW_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    allow: bool
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., allow: bool = ...) -> None: ...

class MakeSnapshotRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "name")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    name: str
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., name: _Optional[str] = ...) -> None: ...

class RenameSnapshotRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "name", "new_name")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NEW_NAME_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    name: str
    new_name: str
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., name: _Optional[str] = ..., new_name: _Optional[str] = ...) -> None: ...

class DeleteSnapshotRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "name")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    name: str
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., name: _Optional[str] = ...) -> None: ...

class ListSnapshotsRequest(_message.Message):
    __slots__ = ("caller", "at", "after", "limit")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    at: Ref
    after: str
    limit: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListSnapshotsResponse(_message.Message):
    __slots__ = ("snapshots", "next")
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    snapshots: _containers.RepeatedCompositeFieldContainer[Snapshot]
    next: str
    def __init__(self, snapshots: _Optional[_Iterable[_Union[Snapshot, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("id", "name", "time_unix_ms", "attr", "held_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIME_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    ATTR_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    time_unix_ms: int
    attr: Attr
    held_bytes: int
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., time_unix_ms: _Optional[int] = ..., attr: _Optional[_Union[Attr, _Mapping]] = ..., held_bytes: _Optional[int] = ...) -> None: ...

class ListSnapshotDirsRequest(_message.Message):
    __slots__ = ("caller", "limit")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    limit: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., limit: _Optional[int] = ..., **kwargs) -> None: ...

class ListSnapshotDirsResponse(_message.Message):
    __slots__ = ("dirs", "next")
    DIRS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    dirs: _containers.RepeatedCompositeFieldContainer[SnapshotDir]
    next: int
    def __init__(self, dirs: _Optional[_Iterable[_Union[SnapshotDir, _Mapping]]] = ..., next: _Optional[int] = ...) -> None: ...

class SnapshotDir(_message.Message):
    __slots__ = ("path", "snapshots", "attr", "held_bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    ATTR_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    path: str
    snapshots: int
    attr: Attr
    held_bytes: int
    def __init__(self, path: _Optional[str] = ..., snapshots: _Optional[int] = ..., attr: _Optional[_Union[Attr, _Mapping]] = ..., held_bytes: _Optional[int] = ...) -> None: ...

class DiffSnapshotsRequest(_message.Message):
    __slots__ = ("caller", "at", "to", "cursor", "limit")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    at: Ref
    to: str
    cursor: str
    limit: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., to: _Optional[str] = ..., cursor: _Optional[str] = ..., limit: _Optional[int] = ..., **kwargs) -> None: ...

class DiffSnapshotsResponse(_message.Message):
    __slots__ = ("changes", "next_cursor", "left_out")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[SnapshotChange]
    next_cursor: str
    left_out: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, changes: _Optional[_Iterable[_Union[SnapshotChange, _Mapping]]] = ..., next_cursor: _Optional[str] = ..., left_out: _Optional[_Iterable[str]] = ...) -> None: ...

class SnapshotChange(_message.Message):
    __slots__ = ("type", "of", "path", "new_path", "changed", "content", "inode", "parent", "new_parent", "into", "gone")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OF_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    NEW_PATH_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    NEW_PARENT_FIELD_NUMBER: _ClassVar[int]
    INTO_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    type: SnapshotChangeType
    of: FileType
    path: str
    new_path: str
    changed: bool
    content: bool
    inode: int
    parent: int
    new_parent: int
    into: str
    gone: bool
    def __init__(self, type: _Optional[_Union[SnapshotChangeType, str]] = ..., of: _Optional[_Union[FileType, str]] = ..., path: _Optional[str] = ..., new_path: _Optional[str] = ..., changed: bool = ..., content: bool = ..., inode: _Optional[int] = ..., parent: _Optional[int] = ..., new_parent: _Optional[int] = ..., into: _Optional[str] = ..., gone: bool = ...) -> None: ...

class TransactRequest(_message.Message):
    __slots__ = ("call", "caller", "compares", "ops")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    COMPARES_FIELD_NUMBER: _ClassVar[int]
    OPS_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    compares: _containers.RepeatedCompositeFieldContainer[TxCompare]
    ops: _containers.RepeatedCompositeFieldContainer[TxOp]
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., compares: _Optional[_Iterable[_Union[TxCompare, _Mapping]]] = ..., ops: _Optional[_Iterable[_Union[TxOp, _Mapping]]] = ...) -> None: ...

class TxCompare(_message.Message):
    __slots__ = ("path", "exists", "inode", "epoch", "length", "xattr", "lease")
    PATH_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    XATTR_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    path: str
    exists: bool
    inode: int
    epoch: int
    length: int
    xattr: TxXattr
    lease: int
    def __init__(self, path: _Optional[str] = ..., exists: bool = ..., inode: _Optional[int] = ..., epoch: _Optional[int] = ..., length: _Optional[int] = ..., xattr: _Optional[_Union[TxXattr, _Mapping]] = ..., lease: _Optional[int] = ...) -> None: ...

class TxXattr(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class TxOp(_message.Message):
    __slots__ = ("path", "create", "write", "mkdir", "rename", "delete", "attach", "set_xattr", "remove_xattr", "detach", "xattrs")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    MKDIR_FIELD_NUMBER: _ClassVar[int]
    RENAME_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    SET_XATTR_FIELD_NUMBER: _ClassVar[int]
    REMOVE_XATTR_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    XATTRS_FIELD_NUMBER: _ClassVar[int]
    path: str
    create: TxFile
    write: TxFile
    mkdir: TxDir
    rename: TxRename
    delete: TxDelete
    attach: int
    set_xattr: TxXattr
    remove_xattr: str
    detach: TxDetach
    xattrs: _containers.RepeatedCompositeFieldContainer[TxXattr]
    def __init__(self, path: _Optional[str] = ..., create: _Optional[_Union[TxFile, _Mapping]] = ..., write: _Optional[_Union[TxFile, _Mapping]] = ..., mkdir: _Optional[_Union[TxDir, _Mapping]] = ..., rename: _Optional[_Union[TxRename, _Mapping]] = ..., delete: _Optional[_Union[TxDelete, _Mapping]] = ..., attach: _Optional[int] = ..., set_xattr: _Optional[_Union[TxXattr, _Mapping]] = ..., remove_xattr: _Optional[str] = ..., detach: _Optional[_Union[TxDetach, _Mapping]] = ..., xattrs: _Optional[_Iterable[_Union[TxXattr, _Mapping]]] = ...) -> None: ...

class TxFile(_message.Message):
    __slots__ = ("data", "data_crc32c", "mode", "has_mode", "parents", "lease", "umask")
    DATA_FIELD_NUMBER: _ClassVar[int]
    DATA_CRC32C_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    HAS_MODE_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    data_crc32c: int
    mode: int
    has_mode: bool
    parents: bool
    lease: int
    umask: int
    def __init__(self, data: _Optional[bytes] = ..., data_crc32c: _Optional[int] = ..., mode: _Optional[int] = ..., has_mode: bool = ..., parents: bool = ..., lease: _Optional[int] = ..., umask: _Optional[int] = ...) -> None: ...

class TxDir(_message.Message):
    __slots__ = ("mode", "has_mode", "parents")
    MODE_FIELD_NUMBER: _ClassVar[int]
    HAS_MODE_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    mode: int
    has_mode: bool
    parents: bool
    def __init__(self, mode: _Optional[int] = ..., has_mode: bool = ..., parents: bool = ...) -> None: ...

class TxRename(_message.Message):
    __slots__ = ("to", "overwrite")
    TO_FIELD_NUMBER: _ClassVar[int]
    OVERWRITE_FIELD_NUMBER: _ClassVar[int]
    to: str
    overwrite: bool
    def __init__(self, to: _Optional[str] = ..., overwrite: bool = ...) -> None: ...

class TxDelete(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TxDetach(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetXattrRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "name", "value", "action")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    name: str
    value: bytes
    action: XattrAction
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., name: _Optional[str] = ..., value: _Optional[bytes] = ..., action: _Optional[_Union[XattrAction, str]] = ...) -> None: ...

class SymlinkRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "target", "parents", "owner", "lease")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    target: str
    parents: bool
    owner: Owner
    lease: int
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., target: _Optional[str] = ..., parents: bool = ..., owner: _Optional[_Union[Owner, _Mapping]] = ..., lease: _Optional[int] = ...) -> None: ...

class TruncateRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "length")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    length: int
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., length: _Optional[int] = ...) -> None: ...

class ConcatRequest(_message.Message):
    __slots__ = ("call", "caller", "target", "sources")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    target: Ref
    sources: _containers.RepeatedCompositeFieldContainer[Ref]
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., target: _Optional[_Union[Ref, _Mapping]] = ..., sources: _Optional[_Iterable[_Union[Ref, _Mapping]]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("caller",)
    CALLER_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("address", "role", "term", "txid", "durable_txid", "inodes", "blocks", "leases", "open_files", "uptime_ms", "safe_mode", "safe_mode_why", "namespace_id", "tail_bytes", "garbage_blocks", "image_txid", "version", "oldest_overdue_ms", "disk_free", "disk_total", "stored_bytes", "sessions", "files", "directories", "heap_bytes", "journal_bytes", "zookeeper_bytes", "zookeeper_nodes", "garbage_bytes", "trash_files", "trash_bytes", "snapshots", "snapshot_blocks", "snapshot_bytes", "snapshot_memory_bytes", "feature_level", "newest_level", "granted_leases", "store_conflict", "short", "disk_error", "active_address", "clocks", "trusts", "audit", "scrub", "archive", "greedy", "rooms", "quotas")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    TXID_FIELD_NUMBER: _ClassVar[int]
    DURABLE_TXID_FIELD_NUMBER: _ClassVar[int]
    INODES_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    SAFE_MODE_FIELD_NUMBER: _ClassVar[int]
    SAFE_MODE_WHY_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_ID_FIELD_NUMBER: _ClassVar[int]
    TAIL_BYTES_FIELD_NUMBER: _ClassVar[int]
    GARBAGE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_TXID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_OVERDUE_MS_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_FIELD_NUMBER: _ClassVar[int]
    DISK_TOTAL_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    HEAP_BYTES_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    ZOOKEEPER_BYTES_FIELD_NUMBER: _ClassVar[int]
    ZOOKEEPER_NODES_FIELD_NUMBER: _ClassVar[int]
    GARBAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRASH_FILES_FIELD_NUMBER: _ClassVar[int]
    TRASH_BYTES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    NEWEST_LEVEL_FIELD_NUMBER: _ClassVar[int]
    GRANTED_LEASES_FIELD_NUMBER: _ClassVar[int]
    STORE_CONFLICT_FIELD_NUMBER: _ClassVar[int]
    SHORT_FIELD_NUMBER: _ClassVar[int]
    DISK_ERROR_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLOCKS_FIELD_NUMBER: _ClassVar[int]
    TRUSTS_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    SCRUB_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    GREEDY_FIELD_NUMBER: _ClassVar[int]
    ROOMS_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    address: str
    role: str
    term: int
    txid: int
    durable_txid: int
    inodes: int
    blocks: int
    leases: int
    open_files: int
    uptime_ms: int
    safe_mode: bool
    safe_mode_why: str
    namespace_id: str
    tail_bytes: int
    garbage_blocks: int
    image_txid: int
    version: str
    oldest_overdue_ms: int
    disk_free: int
    disk_total: int
    stored_bytes: int
    sessions: int
    files: int
    directories: int
    heap_bytes: int
    journal_bytes: int
    zookeeper_bytes: int
    zookeeper_nodes: int
    garbage_bytes: int
    trash_files: int
    trash_bytes: int
    snapshots: int
    snapshot_blocks: int
    snapshot_bytes: int
    snapshot_memory_bytes: int
    feature_level: int
    newest_level: int
    granted_leases: int
    store_conflict: str
    short: str
    disk_error: str
    active_address: str
    clocks: _containers.RepeatedCompositeFieldContainer[ClockSkew]
    trusts: str
    audit: AuditStatus
    scrub: ScrubStatus
    archive: ArchiveStatus
    greedy: _containers.RepeatedCompositeFieldContainer[Holding]
    rooms: _containers.RepeatedCompositeFieldContainer[Room]
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    def __init__(self, address: _Optional[str] = ..., role: _Optional[str] = ..., term: _Optional[int] = ..., txid: _Optional[int] = ..., durable_txid: _Optional[int] = ..., inodes: _Optional[int] = ..., blocks: _Optional[int] = ..., leases: _Optional[int] = ..., open_files: _Optional[int] = ..., uptime_ms: _Optional[int] = ..., safe_mode: bool = ..., safe_mode_why: _Optional[str] = ..., namespace_id: _Optional[str] = ..., tail_bytes: _Optional[int] = ..., garbage_blocks: _Optional[int] = ..., image_txid: _Optional[int] = ..., version: _Optional[str] = ..., oldest_overdue_ms: _Optional[int] = ..., disk_free: _Optional[int] = ..., disk_total: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., sessions: _Optional[int] = ..., files: _Optional[int] = ..., directories: _Optional[int] = ..., heap_bytes: _Optional[int] = ..., journal_bytes: _Optional[int] = ..., zookeeper_bytes: _Optional[int] = ..., zookeeper_nodes: _Optional[int] = ..., garbage_bytes: _Optional[int] = ..., trash_files: _Optional[int] = ..., trash_bytes: _Optional[int] = ..., snapshots: _Optional[int] = ..., snapshot_blocks: _Optional[int] = ..., snapshot_bytes: _Optional[int] = ..., snapshot_memory_bytes: _Optional[int] = ..., feature_level: _Optional[int] = ..., newest_level: _Optional[int] = ..., granted_leases: _Optional[int] = ..., store_conflict: _Optional[str] = ..., short: _Optional[str] = ..., disk_error: _Optional[str] = ..., active_address: _Optional[str] = ..., clocks: _Optional[_Iterable[_Union[ClockSkew, _Mapping]]] = ..., trusts: _Optional[str] = ..., audit: _Optional[_Union[AuditStatus, _Mapping]] = ..., scrub: _Optional[_Union[ScrubStatus, _Mapping]] = ..., archive: _Optional[_Union[ArchiveStatus, _Mapping]] = ..., greedy: _Optional[_Iterable[_Union[Holding, _Mapping]]] = ..., rooms: _Optional[_Iterable[_Union[Room, _Mapping]]] = ..., quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ...) -> None: ...

class Room(_message.Message):
    __slots__ = ("resource", "used", "limit", "full_ms", "refused")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    FULL_MS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    resource: str
    used: int
    limit: int
    full_ms: int
    refused: str
    def __init__(self, resource: _Optional[str] = ..., used: _Optional[int] = ..., limit: _Optional[int] = ..., full_ms: _Optional[int] = ..., refused: _Optional[str] = ...) -> None: ...

class ScrubStatus(_message.Message):
    __slots__ = ("began_unix_ms", "read_bytes", "whole_unix_ms", "damaged", "late_ms")
    BEGAN_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    WHOLE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    LATE_MS_FIELD_NUMBER: _ClassVar[int]
    began_unix_ms: int
    read_bytes: int
    whole_unix_ms: int
    damaged: int
    late_ms: int
    def __init__(self, began_unix_ms: _Optional[int] = ..., read_bytes: _Optional[int] = ..., whole_unix_ms: _Optional[int] = ..., damaged: _Optional[int] = ..., late_ms: _Optional[int] = ...) -> None: ...

class ArchiveStatus(_message.Message):
    __slots__ = ("txid", "records", "lag_ms", "holes", "problem")
    TXID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    HOLES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    txid: int
    records: int
    lag_ms: int
    holes: int
    problem: str
    def __init__(self, txid: _Optional[int] = ..., records: _Optional[int] = ..., lag_ms: _Optional[int] = ..., holes: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class AuditStatus(_message.Message):
    __slots__ = ("lines", "lost", "problem")
    LINES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    lines: int
    lost: int
    problem: str
    def __init__(self, lines: _Optional[int] = ..., lost: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class Holding(_message.Message):
    __slots__ = ("what", "who", "held", "most", "refused", "delayed")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    what: str
    who: str
    held: int
    most: int
    refused: int
    delayed: int
    def __init__(self, what: _Optional[str] = ..., who: _Optional[str] = ..., held: _Optional[int] = ..., most: _Optional[int] = ..., refused: _Optional[int] = ..., delayed: _Optional[int] = ...) -> None: ...

class ClockSkew(_message.Message):
    __slots__ = ("than", "ahead_ms", "bound_ms")
    THAN_FIELD_NUMBER: _ClassVar[int]
    AHEAD_MS_FIELD_NUMBER: _ClassVar[int]
    BOUND_MS_FIELD_NUMBER: _ClassVar[int]
    than: str
    ahead_ms: int
    bound_ms: int
    def __init__(self, than: _Optional[str] = ..., ahead_ms: _Optional[int] = ..., bound_ms: _Optional[int] = ...) -> None: ...

class CheckpointRequest(_message.Message):
    __slots__ = ("caller",)
    CALLER_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class CheckpointResponse(_message.Message):
    __slots__ = ("txid", "bytes", "duration_ms")
    TXID_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    txid: int
    bytes: int
    duration_ms: int
    def __init__(self, txid: _Optional[int] = ..., bytes: _Optional[int] = ..., duration_ms: _Optional[int] = ...) -> None: ...

class SafeModeRequest(_message.Message):
    __slots__ = ("caller", "action")
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACTION_UNSPECIFIED: _ClassVar[SafeModeRequest.Action]
        ACTION_GET: _ClassVar[SafeModeRequest.Action]
        ACTION_ENTER: _ClassVar[SafeModeRequest.Action]
        ACTION_LEAVE: _ClassVar[SafeModeRequest.Action]
    ACTION_UNSPECIFIED: SafeModeRequest.Action
    ACTION_GET: SafeModeRequest.Action
    ACTION_ENTER: SafeModeRequest.Action
    ACTION_LEAVE: SafeModeRequest.Action
    CALLER_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    action: SafeModeRequest.Action
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., action: _Optional[_Union[SafeModeRequest.Action, str]] = ...) -> None: ...

class SafeModeResponse(_message.Message):
    __slots__ = ("on", "why")
    ON_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    on: bool
    why: str
    def __init__(self, on: bool = ..., why: _Optional[str] = ...) -> None: ...

class FsckRequest(_message.Message):
    __slots__ = ("caller", "blocks", "path")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    blocks: bool
    path: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., blocks: bool = ..., path: _Optional[str] = ...) -> None: ...

class FsckResponse(_message.Message):
    __slots__ = ("path", "problem", "summary", "unchecked")
    PATH_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    UNCHECKED_FIELD_NUMBER: _ClassVar[int]
    path: str
    problem: str
    summary: FsckSummary
    unchecked: bool
    def __init__(self, path: _Optional[str] = ..., problem: _Optional[str] = ..., summary: _Optional[_Union[FsckSummary, _Mapping]] = ..., unchecked: bool = ...) -> None: ...

class FsckSummary(_message.Message):
    __slots__ = ("inodes", "blocks", "problems", "bytes_verified", "unchecked")
    INODES_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    BYTES_VERIFIED_FIELD_NUMBER: _ClassVar[int]
    UNCHECKED_FIELD_NUMBER: _ClassVar[int]
    inodes: int
    blocks: int
    problems: int
    bytes_verified: int
    unchecked: int
    def __init__(self, inodes: _Optional[int] = ..., blocks: _Optional[int] = ..., problems: _Optional[int] = ..., bytes_verified: _Optional[int] = ..., unchecked: _Optional[int] = ...) -> None: ...

class CollectRequest(_message.Message):
    __slots__ = ("caller",)
    CALLER_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class CollectResponse(_message.Message):
    __slots__ = ("garbage", "deleted", "waiting", "orphans")
    GARBAGE_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ORPHANS_FIELD_NUMBER: _ClassVar[int]
    garbage: int
    deleted: int
    waiting: int
    orphans: int
    def __init__(self, garbage: _Optional[int] = ..., deleted: _Optional[int] = ..., waiting: _Optional[int] = ..., orphans: _Optional[int] = ...) -> None: ...

class FailoverRequest(_message.Message):
    __slots__ = ("caller", "term")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    term: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., term: _Optional[int] = ...) -> None: ...

class FailoverResponse(_message.Message):
    __slots__ = ("next",)
    NEXT_FIELD_NUMBER: _ClassVar[int]
    next: str
    def __init__(self, next: _Optional[str] = ...) -> None: ...

class ResolveStoreRequest(_message.Message):
    __slots__ = ("caller",)
    CALLER_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class ResolveStoreResponse(_message.Message):
    __slots__ = ("resolved",)
    RESOLVED_FIELD_NUMBER: _ClassVar[int]
    resolved: bool
    def __init__(self, resolved: bool = ...) -> None: ...

class UpgradeRequest(_message.Message):
    __slots__ = ("caller", "raise_to")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    RAISE_TO_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    raise_to: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., raise_to: _Optional[int] = ...) -> None: ...

class UpgradeResponse(_message.Message):
    __slots__ = ("level", "release", "newest_level", "brings", "namenodes", "clients")
    class ClientsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    NEWEST_LEVEL_FIELD_NUMBER: _ClassVar[int]
    BRINGS_FIELD_NUMBER: _ClassVar[int]
    NAMENODES_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    level: int
    release: str
    newest_level: int
    brings: str
    namenodes: _containers.RepeatedCompositeFieldContainer[UpgradeNamenode]
    clients: _containers.ScalarMap[str, int]
    def __init__(self, level: _Optional[int] = ..., release: _Optional[str] = ..., newest_level: _Optional[int] = ..., brings: _Optional[str] = ..., namenodes: _Optional[_Iterable[_Union[UpgradeNamenode, _Mapping]]] = ..., clients: _Optional[_Mapping[str, int]] = ...) -> None: ...

class UpgradeNamenode(_message.Message):
    __slots__ = ("address", "release", "newest_level")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    NEWEST_LEVEL_FIELD_NUMBER: _ClassVar[int]
    address: str
    release: str
    newest_level: int
    def __init__(self, address: _Optional[str] = ..., release: _Optional[str] = ..., newest_level: _Optional[int] = ...) -> None: ...

class BackupRequest(_message.Message):
    __slots__ = ("caller", "tree_only")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    TREE_ONLY_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    tree_only: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., tree_only: bool = ...) -> None: ...

class BackupResponse(_message.Message):
    __slots__ = ("name", "data", "last", "crc32c", "txid", "url", "headers", "length", "total_blocks", "total_bytes", "total_files", "total_directories", "total_symlinks")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    TXID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FILES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SYMLINKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    data: bytes
    last: bool
    crc32c: int
    txid: int
    url: str
    headers: _containers.ScalarMap[str, str]
    length: int
    total_blocks: int
    total_bytes: int
    total_files: int
    total_directories: int
    total_symlinks: int
    def __init__(self, name: _Optional[str] = ..., data: _Optional[bytes] = ..., last: bool = ..., crc32c: _Optional[int] = ..., txid: _Optional[int] = ..., url: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., length: _Optional[int] = ..., total_blocks: _Optional[int] = ..., total_bytes: _Optional[int] = ..., total_files: _Optional[int] = ..., total_directories: _Optional[int] = ..., total_symlinks: _Optional[int] = ...) -> None: ...

class CarryRequest(_message.Message):
    __slots__ = ("calls", "cancel")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[CarriedCall]
    cancel: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, calls: _Optional[_Iterable[_Union[CarriedCall, _Mapping]]] = ..., cancel: _Optional[_Iterable[int]] = ...) -> None: ...

class CarriedCall(_message.Message):
    __slots__ = ("id", "method", "request", "timeout_ms", "traceparent")
    ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    id: int
    method: str
    request: bytes
    timeout_ms: int
    traceparent: str
    def __init__(self, id: _Optional[int] = ..., method: _Optional[str] = ..., request: _Optional[bytes] = ..., timeout_ms: _Optional[int] = ..., traceparent: _Optional[str] = ...) -> None: ...

class CarryResponse(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[CarriedAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[CarriedAnswer, _Mapping]]] = ...) -> None: ...

class CarriedAnswer(_message.Message):
    __slots__ = ("id", "response", "code", "message", "detail")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    id: int
    response: bytes
    code: int
    message: str
    detail: ErrorDetail
    def __init__(self, id: _Optional[int] = ..., response: _Optional[bytes] = ..., code: _Optional[int] = ..., message: _Optional[str] = ..., detail: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...

class WhoAmIRequest(_message.Message):
    __slots__ = ("caller",)
    CALLER_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class WhoAmIResponse(_message.Message):
    __slots__ = ("user", "groups", "superuser", "until_unix", "held")
    USER_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SUPERUSER_FIELD_NUMBER: _ClassVar[int]
    UNTIL_UNIX_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    user: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    superuser: bool
    until_unix: int
    held: _containers.RepeatedCompositeFieldContainer[Holding]
    def __init__(self, user: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., superuser: bool = ..., until_unix: _Optional[int] = ..., held: _Optional[_Iterable[_Union[Holding, _Mapping]]] = ...) -> None: ...

class AclEntry(_message.Message):
    __slots__ = ("default", "tag", "name", "perm")
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    default: bool
    tag: AclTag
    name: str
    perm: int
    def __init__(self, default: bool = ..., tag: _Optional[_Union[AclTag, str]] = ..., name: _Optional[str] = ..., perm: _Optional[int] = ...) -> None: ...

class AclRequest(_message.Message):
    __slots__ = ("caller", "at", "cache")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    at: Ref
    cache: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., cache: bool = ...) -> None: ...

class AclResponse(_message.Message):
    __slots__ = ("entries", "keys")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AclEntry]
    keys: _containers.RepeatedCompositeFieldContainer[CacheKey]
    def __init__(self, entries: _Optional[_Iterable[_Union[AclEntry, _Mapping]]] = ..., keys: _Optional[_Iterable[_Union[CacheKey, _Mapping]]] = ...) -> None: ...

class ChangeAclRequest(_message.Message):
    __slots__ = ("call", "caller", "at", "action", "entries")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    at: Ref
    action: AclAction
    entries: _containers.RepeatedCompositeFieldContainer[AclEntry]
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., at: _Optional[_Union[Ref, _Mapping]] = ..., action: _Optional[_Union[AclAction, str]] = ..., entries: _Optional[_Iterable[_Union[AclEntry, _Mapping]]] = ...) -> None: ...

class GetDelegationTokenRequest(_message.Message):
    __slots__ = ("call", "caller", "hash", "renewer", "ttl_ms")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    RENEWER_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    hash: bytes
    renewer: str
    ttl_ms: int
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., hash: _Optional[bytes] = ..., renewer: _Optional[str] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class ChangeDelegationTokenRequest(_message.Message):
    __slots__ = ("call", "caller", "id", "hash", "cancel")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    call: CallId
    caller: Caller
    id: int
    hash: bytes
    cancel: bool
    def __init__(self, call: _Optional[_Union[CallId, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., id: _Optional[int] = ..., hash: _Optional[bytes] = ..., cancel: bool = ...) -> None: ...

class DelegationTokenResponse(_message.Message):
    __slots__ = ("id", "issued_unix_ms", "expires_unix_ms", "ends_unix_ms", "txid")
    ID_FIELD_NUMBER: _ClassVar[int]
    ISSUED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    ENDS_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    TXID_FIELD_NUMBER: _ClassVar[int]
    id: int
    issued_unix_ms: int
    expires_unix_ms: int
    ends_unix_ms: int
    txid: int
    def __init__(self, id: _Optional[int] = ..., issued_unix_ms: _Optional[int] = ..., expires_unix_ms: _Optional[int] = ..., ends_unix_ms: _Optional[int] = ..., txid: _Optional[int] = ...) -> None: ...

class ListDelegationTokensRequest(_message.Message):
    __slots__ = ("caller", "after", "limit", "all")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    after: int
    limit: int
    all: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ..., all: bool = ...) -> None: ...

class ListDelegationTokensResponse(_message.Message):
    __slots__ = ("tokens", "more")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[DelegationToken]
    more: bool
    def __init__(self, tokens: _Optional[_Iterable[_Union[DelegationToken, _Mapping]]] = ..., more: bool = ...) -> None: ...

class DelegationToken(_message.Message):
    __slots__ = ("id", "user", "renewer", "issued_unix_ms", "expires_unix_ms", "ends_unix_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    RENEWER_FIELD_NUMBER: _ClassVar[int]
    ISSUED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    ENDS_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    id: int
    user: str
    renewer: str
    issued_unix_ms: int
    expires_unix_ms: int
    ends_unix_ms: int
    def __init__(self, id: _Optional[int] = ..., user: _Optional[str] = ..., renewer: _Optional[str] = ..., issued_unix_ms: _Optional[int] = ..., expires_unix_ms: _Optional[int] = ..., ends_unix_ms: _Optional[int] = ...) -> None: ...
