"""Whether the process at the other end of a connection on this machine speaks for itself, or may speak for others.

A reverse proxy listens for connections, and speaks for its own callers. Linux tells in /proc which sockets a process
has open, to its own user and to root.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST_ALL: Final = 0x301
_DONE_CODE: Final = 3
_LISTENING: Final = 10
_INODE_AT: Final = 16 + 4 + 48 + 16
"""Where the number of a socket stands in the kernel's answer: after the header, four bytes, the address and four numbers."""

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


def speaks_for_itself(inode: int) -> bool:
    """Whether the processes of this user that hold the socket of this number listen for no TCP connections.

    False when no process can be found, as when it runs in another container that shares this one's network.
    """
    held = [sockets for sockets in _sockets_of_own_processes() if inode in sockets]
    if not held:
        return False
    listening = _listening()
    return not any(sockets & listening for sockets in held)


def _sockets_of_own_processes() -> Iterator[set[int]]:
    """The numbers of the sockets of each process of this user. One that may not be looked into is left out."""
    user = os.geteuid()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == user:
                yield _sockets_of(pid)


def _sockets_of(pid: str) -> set[int]:
    found = set()
    folder = f"/proc/{pid}/fd"
    for fd in os.listdir(folder):
        with suppress(OSError):
            kind, _, number = os.readlink(f"{folder}/{fd}").partition(":[")
            if kind == "socket":
                found.add(int(number[:-1]))
    return found


def _listening() -> set[int]:
    """The numbers of all sockets that listen for TCP connections."""
    try:
        return {inode for family in (socket.AF_INET, socket.AF_INET6) for inode in _asked(family)}
    except (OSError, struct.error, AttributeError):
        return set(_listed())


def _asked(family: int) -> Iterator[int]:
    question = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 1 << _LISTENING) + bytes(48)
    head = struct.pack("=IHHII", 16 + len(question), _BY_FAMILY, _REQUEST_ALL, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(0.2)
        kernel.send(head + question)
        while True:
            answer, at = kernel.recv(1 << 16), 0
            while at < len(answer):
                length, kind = struct.unpack_from("=IH", answer, at)
                if kind == _DONE_CODE:
                    return
                if kind != _BY_FAMILY:
                    raise OSError("the kernel does not tell which sockets listen")
                yield struct.unpack_from("=I", answer, at + _INODE_AT)[0]
                at += (length + 3) & ~3


def _listed() -> Iterator[int]:
    for table in _TABLES:
        with suppress(FileNotFoundError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                words = line.split()
                if int(words[3], 16) == _LISTENING:
                    yield int(words[9])
