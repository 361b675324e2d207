"""An edge between two processes: slots in shared memory, and a socket whose messages say which slot contains what.

The sender writes to a free slot, and the receiver returns the slot once it has read it. A sender without a free slot waits (back-pressure).
The socket keeps messages in order, wakes whichever side waits, and tells each side when the other process is gone. Memory and sockets have no
names, so nothing is left behind if either process is killed.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
import struct
import time
from typing import Any, List, NamedTuple, Optional

from . import codec
from .errors import DeadlineExceeded, Error

_MESSAGE = struct.Struct("<QqIQB")  # sequence number, deadline, slot, length of the value, whether it is an error
_SLOT = struct.Struct("<I")

MIN_SLOT = 64 << 10  # bytes; large enough for any error


class Gone(Error):
    """The process at the other end of the edge has closed it, or has ended."""


class Message(NamedTuple):
    """A message that an edge carries."""

    sequence: int
    deadline: int  # on the clock of time.monotonic_ns, which all processes of a machine share; 0: none
    failed: bool
    value: Any  # of a request: values by name; of a failed one: a list that describes the error


class Ends(NamedTuple):
    """The file descriptors of an edge: the memory, and the sockets of sender and receiver."""

    memory: int
    sender: int
    receiver: int


def make(slots: int, slot_bytes: int) -> Ends:
    """Creates an edge. The caller must close the descriptors."""
    if slots < 1 or slot_bytes < MIN_SLOT or slot_bytes % mmap.PAGESIZE:
        raise ValueError(f"{slots} slots of {slot_bytes} bytes: want 1 or more, each a multiple of {mmap.PAGESIZE} from {MIN_SLOT} on")
    memory = os.memfd_create("gshare-edge")
    try:
        os.ftruncate(memory, slots * slot_bytes)
        sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError:
        os.close(memory)
        raise
    return Ends(memory, sender.detach(), receiver.detach())


class _End:
    """One end of an edge. It owns both descriptors and closes them."""

    def __init__(self, memory: int, link: int, slots: int, slot_bytes: int) -> None:
        self._link = socket.socket(fileno=link)
        try:
            self._memory = mmap.mmap(memory, slots * slot_bytes)
        finally:
            os.close(memory)
        self._slots, self._slot_bytes = slots, slot_bytes

    def fileno(self) -> int:
        """Returns the descriptor of the socket, for select."""
        return self._link.fileno()

    def close(self) -> None:
        """Closes this end. The other end notices once it has read the messages that are still in transit."""
        self._link.close()
        try:
            self._memory.close()
        except BufferError:
            pass  # another thread is still copying; the memory is unmapped with the last reference to it

    def _slot(self, slot: int) -> memoryview:
        if not 0 <= slot < self._slots:
            raise Error(f"the other end of an edge names slot {slot} of {self._slots}")
        with memoryview(self._memory) as memory:
            return memory[slot * self._slot_bytes : (slot + 1) * self._slot_bytes]

    def _receive(self, length: int, flags: int = 0) -> bytes:
        try:
            packet = self._link.recv(length + 1, flags)
        except ConnectionError:
            packet = b""
        if not packet:
            raise Gone("the other end of the edge is gone")
        if len(packet) != length:
            raise Error(f"the other end of an edge sent {len(packet)} bytes in place of {length}")
        return packet

    def _send(self, packet: bytes) -> None:
        try:
            self._link.send(packet)
        except ConnectionError:
            raise Gone("the other end of the edge is gone") from None


class Sender(_End):
    """The end that writes: reserve a slot, write to it, then post or cancel it. Not safe for concurrent use."""

    def __init__(self, memory: int, link: int, slots: int, slot_bytes: int) -> None:
        super().__init__(memory, link, slots, slot_bytes)
        self._free: List[int] = list(range(slots))

    def reserve(self, deadline: int = 0) -> int:
        """Returns a free slot. Waits for one until the deadline (0: forever), then raises DeadlineExceeded. Raises Gone if the receiver is gone."""
        while True:
            self._take_back()
            if self._free:
                return self._free.pop()
            if not _readable(self._link, deadline):
                raise DeadlineExceeded("the pipeline was full until the deadline")

    def write(self, slot: int, value: Any) -> int:
        """Writes a value to a reserved slot, and returns its length in bytes. Raises NotTransferable."""
        with self._slot(slot) as target:
            return codec.encode_into(target, value)

    def post(self, slot: int, length: int, sequence: int, deadline: int, failed: bool = False) -> None:
        """Hands a written slot to the receiver."""
        self._send(_MESSAGE.pack(sequence, deadline, slot, length, failed))

    def cancel(self, slot: int) -> None:
        """Frees a reserved slot that was not posted."""
        self._free.append(slot)

    def _take_back(self) -> None:
        while _readable(self._link, time.monotonic_ns()):
            (slot,) = _SLOT.unpack(self._receive(_SLOT.size))
            if not 0 <= slot < self._slots or slot in self._free:
                raise Error(f"the receiver of an edge returned slot {slot}, which is free")
            self._free.append(slot)


class Receiver(_End):
    """The end that reads."""

    def receive(self) -> Message:
        """Waits for a message, reads it, and gives its slot back to the sender. Raises Gone after the last message."""
        sequence, deadline, slot, length, failed = _MESSAGE.unpack(self._receive(_MESSAGE.size))
        with self._slot(slot) as memory:
            if length > len(memory):
                raise Error(f"the sender of an edge wrote {length} bytes to a slot of {len(memory)}")
            with memory[:length] as content:
                value = codec.decode(content)
        try:
            self._send(_SLOT.pack(slot))
        except Gone:
            pass  # a later call raises it, after the messages that are still in transit
        return Message(sequence, deadline, bool(failed), value)


def _readable(link: socket.socket, deadline: int) -> bool:
    """Waits until there is something to read, or until the deadline (0: forever). Returns whether there is."""
    poll = select.poll()
    poll.register(link, select.POLLIN)
    left: Optional[float] = None
    if deadline:
        left = max(0, deadline - time.monotonic_ns()) / 1e6
    return bool(poll.poll(left))
