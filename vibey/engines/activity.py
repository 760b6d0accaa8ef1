"""Activity: whether a process tree does anything that its output does not show.

A tree is active between two samples if it used the processor, wrote, read much, or if its TCP connections carried
bytes. A client that only waits is not quite still, so the amounts count from thresholds on, which are above what the
coding clients that were tried show while their provider keeps them waiting: up to 3 % of a processor, 2 kB/s of reads
(most of them wake-ups and polls of small files), and writes of eight bytes, by which threads wake each other. Of what
is written, only what exceeds eight bytes a call is counted.

All is read from `/proc`, but for the bytes of connections: `recv` leaves no trace there, so the kernel's socket
diagnostics are asked. What the kernel does not show counts as no activity. Nothing here touches a file system of the
work's, which could keep the caller waiting.
"""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vibey.engines import proctable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PROCESSOR_SHARE = 0.05
READ_BYTES_PER_SECOND = 64 * 1024
_WAKE_BYTES = 8
Key = tuple[int, int]
"""A process and when it started, or a connection's family and inode."""
_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_SOCKET = "socket:["

# Of <linux/netlink.h>, <linux/sock_diag.h> and <linux/inet_diag.h>.
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
_WITH_INFO = 1 << 1
_INFO = 2
_HEADER = struct.Struct("=IHHII")
_ASK = struct.Struct("=BBBBI48x")
_INODE = struct.Struct("=I")
_INODE_AT, _ATTRIBUTES_AT = 68, 72
_ATTRIBUTE = struct.Struct("=HH")
_CARRIED = struct.Struct("=QQ")
_CARRIED_AT = 120
# Connections that are open or about to be, or half closed; not those that listen or have ended.
_OPEN_STATES = 0b1_0011_0110
_PATIENCE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a tree, by process: seconds of processor time, bytes read and written; and bytes by connection."""

    processor: Mapping[Key, float] = field(default_factory=dict)
    read: Mapping[Key, int] = field(default_factory=dict)
    written: Mapping[Key, int] = field(default_factory=dict)
    carried: Mapping[Key, int] = field(default_factory=dict)

    def is_active_since(self, earlier: Sample, seconds: float) -> bool:
        """Whether the tree did something in the `seconds` between the earlier sample and this one."""
        return (
            _grown(self.processor, earlier.processor) >= max(PROCESSOR_SHARE * seconds, _TICK_SECONDS)
            or _grown(self.written, earlier.written) > 0
            or _grown(self.read, earlier.read) >= READ_BYTES_PER_SECOND * seconds
            or _grown(self.carried, earlier.carried) >= _WAKE_BYTES
        )


def sample(roots: Iterable[int]) -> Sample:
    """The trees below these processes, without the roots themselves."""
    processor: dict[Key, float] = {}
    read: dict[Key, int] = {}
    written: dict[Key, int] = {}
    inodes: set[int] = set()
    for process in proctable.descendants(proctable.table(), roots):
        key = process.pid, process.started
        processor[key] = process.ticks * _TICK_SECONDS
        read[key], written[key] = _moved(process.pid)
        inodes |= set(_sockets(process.pid))
    return Sample(processor, read, written, _carried(inodes) if inodes else {})


def _grown(now: Mapping[Key, float], before: Mapping[Key, float]) -> float:
    """By how much counters have grown; what is new counts in full, what is gone not at all."""
    return sum(max(0, count - before.get(key, 0)) for key, count in now.items())


def _moved(pid: int) -> tuple[int, int]:
    """Bytes a process and the children it waited for have read, and written beyond what wakes threads."""
    try:
        with open(f"{proctable.PROC}/{pid}/io", "rb", buffering=0) as file:  # noqa: PTH123  (read for every process)
            counts = {name: int(count) for name, count in (line.split(b": ") for line in file.read().splitlines())}
        return counts[b"rchar"], max(0, counts[b"wchar"] - _WAKE_BYTES * counts[b"syscw"])
    except (OSError, ValueError, KeyError):
        return 0, 0


def _sockets(pid: int) -> Iterator[int]:
    """The inodes of a process's sockets."""
    folder = f"{proctable.PROC}/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")  # noqa: PTH115
        except OSError:
            continue
        if target.startswith(_SOCKET):
            yield int(target[len(_SOCKET) : -1])


def _carried(inodes: set[int]) -> dict[Key, int]:
    """Bytes that these sockets have received and had acknowledged, as far as they are TCP connections."""
    found: dict[Key, int] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(_PATIENCE_SECONDS)
            for family in (socket.AF_INET, socket.AF_INET6):
                question = _ASK.pack(family, socket.IPPROTO_TCP, _WITH_INFO, 0, _OPEN_STATES)
                header = _HEADER.pack(_HEADER.size + len(question), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, family, 0)
                kernel.send(header + question)
                found.update(((family, inode), count) for inode, count in _answers(kernel) if inode in inodes)
    except (OSError, struct.error):
        return found  # a kernel or a sandbox without these diagnostics
    return found


def _answers(kernel: socket.socket) -> Iterator[tuple[int, int]]:
    while True:
        block = kernel.recv(256 * 1024)
        at = 0
        while at < len(block):
            length, kind, *_ = _HEADER.unpack_from(block, at)
            if kind in {_ERROR, _DONE}:
                return
            message = block[at + _HEADER.size : at + length]
            count = _carried_by(message)
            if count is not None:
                yield _INODE.unpack_from(message, _INODE_AT)[0], count
            at += _aligned(length)


def _carried_by(message: bytes) -> int | None:
    at = _ATTRIBUTES_AT
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind == _INFO and length >= _ATTRIBUTE.size + _CARRIED_AT + _CARRIED.size:
            sent, received = _CARRIED.unpack_from(message, at + _ATTRIBUTE.size + _CARRIED_AT)
            return int(sent + received)
        at += max(_ATTRIBUTE.size, _aligned(length))
    return None


def _aligned(length: int) -> int:
    return (length + 3) & ~3
