"""What workers write: carried line by line to the console and to log files, by one thread."""

import contextlib
import os
import re
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO

TAIL = 64 << 10  # bytes of each stream that are kept for the report
IDLE = 0.2  # seconds after which an unfinished line, such as a prompt, is shown
_TRACEBACK = re.compile(rb"^Traceback \(most recent call last\):", re.MULTILINE)


class Console:
    """A file descriptor that several streams write lines to. Its lines are whole: one write, one line or more."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._unfinished_by: Stream | None = None

    def write(self, stream: "Stream", text: bytes, prefix: bytes) -> None:
        """Write lines, each behind ``prefix``. Raises BrokenPipeError when the reader has gone."""
        goes_on = self._unfinished_by is stream
        lines = text.splitlines(keepends=True)
        whole = b"".join(b"" if goes_on and i == 0 else prefix + line for i, line in enumerate(lines))
        if goes_on:
            whole = lines[0] + whole
        elif self._unfinished_by is not None:
            whole = b"\n" + whole
        while whole:
            whole = whole[os.write(self.fd, whole) :]
        self._unfinished_by = None if text.endswith((b"\n", b"\r")) else stream


@dataclass
class Filtered:
    """A file for the lines that contain one of ``needles``."""

    path: str
    needles: list[bytes]
    file: BinaryIO | None = None

    def write(self, prefix: bytes, lines: bytes) -> None:
        if self.file is None:
            self.file = open(self.path, "ab", buffering=0)  # noqa: SIM115
        for line in lines.splitlines(keepends=True):
            if any(needle in line for needle in self.needles):
                self.file.write(prefix + line)


@dataclass(eq=False)
class Stream:
    """One stream of one worker, and where it goes."""

    console: Console | None = None
    prefix: bytes = b""
    file: BinaryIO | None = None
    filtered: Filtered | None = None
    fd: int = -1  # what we read
    tail: bytes = b""
    read: int = 0  # bytes so far
    tracebacks: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=64))  # where, when
    _line: bytes = b""  # not shown yet
    _since: float = 0.0

    def take(self, data: bytes) -> None:
        now = time.monotonic()
        if self.file:
            self.file.write(data)
        begin = len(self.tail)
        self.tail += data
        for match in _TRACEBACK.finditer(self.tail, max(0, begin - 64)):
            where = self.read - begin + match.start()
            if not self.tracebacks or self.tracebacks[-1][0] < where:
                self.tracebacks.append((where, now))
        self.read += len(data)
        if len(self.tail) > 2 * TAIL:
            self.tail = self.tail[-TAIL:]
        self._line += data
        end = max(self._line.rfind(b"\n"), self._line.rfind(b"\r")) + 1
        if end == 0 and len(self._line) > TAIL:
            end = len(self._line)
        lines, self._line, self._since = self._line[:end], self._line[end:], now
        self._show(lines)

    def show_unfinished(self, now: float) -> None:
        if self._line and now - self._since >= IDLE:
            line, self._line = self._line, b""
            self._show(line)

    def finish(self) -> None:
        line, self._line = self._line, b""
        self._show(line)
        for file in (self.file, self.filtered.file if self.filtered else None):
            if file:
                file.close()
        self.file = None
        if self.filtered:
            self.filtered.file = None

    def _show(self, lines: bytes) -> None:
        if not lines:
            return
        if self.filtered:
            self.filtered.write(self.prefix, lines)
        if self.console:
            self.console.write(self, lines, self.prefix)


class Output:
    """The thread that reads all streams. Also tells when processes end, to the millisecond."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._open: set[Stream] = set()
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        threading.Thread(target=self._serve, name="output", daemon=True).start()

    def add(self, stream: Stream) -> int:
        """The descriptor that the worker is to write to; the caller closes it once the worker has it."""
        stream.fd, write_end = os.pipe()
        with self._lock:
            self._open.add(stream)
            self._selector.register(stream.fd, selectors.EVENT_READ, stream)
        os.write(self._wake_write, b".")
        return write_end

    def notice_end(self, pid: int, ended: Callable[[float], None]) -> None:
        """Call ``ended`` with the time when the process, a child, has ended."""
        try:
            fd = os.pidfd_open(pid)
        except (OSError, AttributeError):  # an old kernel: the agent's poll will tell, later
            return
        with self._lock:
            self._selector.register(fd, selectors.EVENT_READ, ended)
        os.write(self._wake_write, b".")

    def drain(self, seconds: float) -> None:
        """Wait until all streams have ended; after ``seconds`` leave those that processes still hold open."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, seconds)
            for stream in list(self._open):
                self._close(stream)

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select(IDLE):
                if key.data is None:
                    os.read(self._wake_read, 4096)
                elif isinstance(key.data, Stream):
                    self._read(key.data)
                else:
                    self._selector.unregister(key.fd)
                    os.close(key.fd)
                    key.data(time.monotonic())
            now = time.monotonic()
            with self._lock:
                for stream in list(self._open):
                    self._guarded(stream, partial(stream.show_unfinished, now))

    def _read(self, stream: Stream) -> None:
        with self._changed:
            if stream not in self._open:
                return
            data = os.read(stream.fd, 64 << 10)
            if data:
                self._guarded(stream, partial(stream.take, data))
            else:
                self._close(stream)

    def _close(self, stream: Stream) -> None:
        self._open.discard(stream)
        self._selector.unregister(stream.fd)
        os.close(stream.fd)
        with contextlib.suppress(OSError):
            stream.finish()
        self._changed.notify_all()

    def _guarded(self, stream: Stream, action: Callable[[], None]) -> None:
        """A reader that has gone, or a full disk, closes the stream: the worker's next write fails, as it should."""
        try:
            action()
        except OSError:
            self._close(stream)
