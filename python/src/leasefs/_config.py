"""How a namespace is reached, and as whom."""

from __future__ import annotations

import getpass
import ipaddress
import os
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from leasefs.errors import InvalidArgumentError, PermissionDeniedError

StrPath = str | os.PathLike[str]

DEFAULT_NAMENODE = "127.0.0.1:8020"
MAX_TIMEOUT = 120.0  # a namenode remembers the results of calls for longer
_MAX_TTL = float(2**40)


@dataclass(frozen=True, slots=True)
class Config:
    """What :func:`leasefs.connect` was told, checked."""

    namenodes: tuple[str, ...]
    user: str  # empty: whoever the proof names
    real_user: str
    client: str
    host: str
    pid: int
    ttl: float
    timeout: float
    umask: int
    write_ahead: int
    read_ahead: int
    proof: Callable[[], str] | None = field(repr=False)
    channel: grpc.ChannelCredentials | None = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False)

    @property
    def attempt(self) -> float:
        """How many seconds one attempt at a call may take."""
        return min(max(self.timeout / 4, 1.0), 15.0)


def configure(
    namenodes: str | Sequence[str] | None,
    *,
    user: str | None,
    real_user: str | None,
    client: str | None,
    ttl: float,
    timeout: float,
    umask: int,
    tls: bool,
    tls_ca: StrPath | None,
    tls_cert: StrPath | None,
    tls_key: StrPath | None,
    token: str | Callable[[], str] | None,
    token_file: StrPath | None,
    write_ahead: int,
    read_ahead: int,
) -> Config:
    """Checks the arguments of connect and fills in what is missing."""
    if namenodes is None:
        namenodes = os.environ.get("LEASEFS_NAMENODE") or DEFAULT_NAMENODE
    parts = namenodes.split(",") if isinstance(namenodes, str) else list(namenodes)
    addresses = tuple(dict.fromkeys(p.strip() for p in parts))
    for a in addresses:
        host, colon, port = a.rpartition(":")
        if not host or not colon or not port.isdecimal() or int(port) > 65535:
            raise _wrong(f"namenode address {a!r}: give HOST:PORT")
    if not addresses:
        raise _wrong("no namenode is given: give HOST:PORT")
    if not 0 < timeout <= MAX_TIMEOUT:
        raise _wrong(f"a timeout of {timeout} s: give more than 0 and at most {MAX_TIMEOUT:.0f}")
    if not 0 <= ttl < _MAX_TTL:
        raise _wrong(f"a ttl of {ttl} s: give a positive one, or 0 for the namenode's")
    if not 0 <= umask <= 0o777:
        raise _wrong(f"a umask of {umask:o}: give 0 to 777, in octal")
    if write_ahead < 1 or read_ahead < 0:
        raise _wrong("write_ahead has to be 1 or more, and read_ahead 0 or more")
    if token is not None and token_file is not None:
        raise _wrong("token and token_file exclude each other: give one")
    if (tls_cert is None) != (tls_key is None):
        raise _wrong("tls_cert and tls_key go together: give both, or neither")
    named, proof = _proof(token, token_file)
    user = user or named or None
    tls = tls or tls_ca is not None or tls_cert is not None
    if proof is not None and not tls:
        for a in addresses:
            if not loopback(a):
                raise _wrong(f"without TLS the network would see the token on its way to {a}: connect with tls=True")
    if user is None and proof is None and tls_cert is None:
        user = _login()
    pid, host = os.getpid(), socket.gethostname()
    config = Config(
        namenodes=addresses,
        user=user or "",
        real_user=real_user or "",
        client=client or f"{host}-{pid}-{secrets.token_hex(4)}",
        host=host,
        pid=pid,
        ttl=ttl,
        timeout=timeout,
        umask=umask,
        write_ahead=write_ahead,
        read_ahead=read_ahead,
        proof=proof,
        channel=_channel(tls_ca, tls_cert, tls_key) if tls else None,
        tls=_context(tls_ca, tls_cert, tls_key),
    )
    for name in (config.user, config.real_user, config.client):
        if not is_utf8(name):
            raise _wrong(f"the name {name!r} is not valid UTF-8: choose another one")
    return config


def is_utf8(text: str) -> bool:
    """Whether text can be sent: it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError) as e:
        raise _wrong(f"the login name is unknown ({e}): give user") from e


def login() -> str:
    """The login name, for a namenode that takes its callers' word."""
    return _login()


def loopback(address: str) -> bool:
    """Whether an address is surely this machine's own."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token_in(path: Path) -> tuple[str, str]:
    """The user, who may be missing, and the token of a file."""
    try:
        if path.stat().st_mode & 0o077:
            raise PermissionDeniedError(
                "others may read it: make a new token, and set the mode of its file to 600 before it is in there",
                op="read token",
                path=str(path),
            )
        words = path.read_text(encoding="ascii").split()
    except UnicodeDecodeError:
        words = []
    except OSError as e:
        if isinstance(e, PermissionDeniedError):
            raise
        raise _wrong(f"the token in {path} cannot be read: {e}") from e
    if len(words) not in (1, 2):
        raise _wrong(f"{path} has to have a user and a token, or a token alone")
    return (words[0] if len(words) == 2 else ""), words[-1]


def _proof(token: str | Callable[[], str] | None, token_file: StrPath | None) -> tuple[str, Callable[[], str] | None]:
    if token_file is not None:
        path = Path(token_file)
        return _token_in(path)[0], lambda: _token_in(path)[1]  # each time: it may be replaced
    if isinstance(token, str):
        fixed = token
        return "", lambda: fixed
    return "", token


def _read(path: StrPath | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise _wrong(f"{os.fspath(path)} cannot be read: {e}") from e


def _channel(ca: StrPath | None, cert: StrPath | None, key: StrPath | None) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(_read(ca), _read(key), _read(cert))


def _context(ca: StrPath | None, cert: StrPath | None, key: StrPath | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as e:
        raise _wrong(f"the TLS files cannot be used: {e}") from e
    return context


def _wrong(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, op="connect")
