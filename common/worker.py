"""The I/O thread of a worker: it owns the sockets, so that the compute thread can own the device.

The compute thread is the main thread of the process. It takes messages of the scheduler from an inbox and posts its
answers. TERM and INT reach the I/O thread even while the device computes: it asks the scheduler for leave, and the
process ends when the scheduler agrees, or after a bound. A compute thread that hangs takes the process with it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

import zmq

from common import device_faults, notify, transport
from common.inbox import Inbox
from common.messages import (
    AnyBody,
    Array,
    Disowned,
    Leaving,
    Message,
    MessageError,
    Ping,
    Pong,
    Shutdown,
    Welcome,
    pack,
    unpack,
)
from common.process import Process, begin_to_serve, wake_on_signals
from common.transport import CONNECTED, Context, PeerGoneError

INBOX_BOUND = 4096
TICK_MS = 1000
HANG_FACTOR = 20  # times the longest work so far
HANG_EXIT_CODE = 91
STALL_SECONDS = 2 * TICK_MS / 1000

log = logging.getLogger(__name__)


class Reset:
    """Tells the compute thread that the scheduler is another one, or gone: it forgets every slot."""


class Stop:
    """Tells the compute thread to end."""


Work: TypeAlias = Message | Reset | Stop


class WorkerLink:
    """The connection of a worker to its scheduler, served by a thread."""

    def __init__(self, process: Process, context: Context, hello: AnyBody) -> None:
        self.process = process
        self.inbox: Inbox[Work] = Inbox(INBOX_BOUND)
        self._hello = hello
        self._scheduler = ""  # incarnation, once welcomed
        self._connected = False
        endpoint = transport.scheduler_endpoint(process.config)
        self._socket, self._monitor = context.dealer(endpoint, process.incarnation, transport.SCHEDULER)
        self._handlers: dict[zmq.Socket[bytes], Callable[[], None]] = {}
        self._posted: deque[Callable[[], None]] = deque()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._leave_by: float | None = None
        self._watchdog = notify.Watchdog()
        self._hang_timeout = process.config.scheduler.hang_timeout
        self._watched, self._no_hang_before = time.monotonic(), 0.0
        self._reconnect_at = 0.0
        self._failed = False
        self.also_busy: Callable[[], float] = lambda: 0.0  # seconds that another thread has waited for the device
        self._computed = threading.Event()  # the compute thread has ended
        self._thread = threading.Thread(target=self._run, name="io")

    def on_readable(self, readable: zmq.Socket[bytes], handler: Callable[[], None]) -> None:
        """Serve another socket in the I/O thread. Call it before the thread starts."""
        self._handlers[readable] = handler

    def __enter__(self) -> WorkerLink:
        """Start the I/O thread. Call from the main thread, which becomes the compute thread."""
        wake_on_signals(self._wake_writer.fileno())
        self._thread.start()
        begin_to_serve()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """Wait for the I/O thread, after :class:`Stop`. An error of either thread ends the process."""
        if error is not None:
            device_faults.leave(self.process, error)
        self._computed.set()
        self._thread.join()
        if self._failed:
            sys.exit(1)

    def queues(self) -> dict[str, float]:
        """Messages that wait in each direction, by link."""
        return {"from_scheduler": len(self.inbox), "to_scheduler": len(self._posted)}

    def answer(self, plan: Message, body: AnyBody, arrays: Sequence[Array] = ()) -> None:
        """Send an answer to the scheduler that sent ``plan``, from the compute thread."""
        self.post(lambda: self.answer_now(plan, body, arrays))

    def post(self, action: Callable[[], None]) -> None:
        """Run an action in the I/O thread, in the order of posting."""
        self._posted.append(action)
        with contextlib.suppress(BlockingIOError):  # full: the reader is going to wake anyway
            self._wake_writer.send(b"\0")

    def answer_now(self, plan: Message, body: AnyBody, arrays: Sequence[Array] = ()) -> None:
        """As :meth:`answer`, from the I/O thread."""
        self._send(body, arrays, plan.source)

    def _send(self, body: AnyBody, arrays: Sequence[Array] = (), scheduler: str | None = None) -> None:
        """Send to the present scheduler or a named one. Without a connection, the message is dropped."""
        target = self._scheduler if scheduler is None else scheduler
        try:
            transport.send(self._socket, pack(body, arrays, source=self.process.incarnation, target=target))
        except PeerGoneError:
            log.debug("not sent: no scheduler", extra={"body": type(body).__name__})

    def _run(self) -> None:
        poller = zmq.Poller()
        for readable in (self._socket, self._monitor.socket, self._wake_reader, *self._handlers):
            poller.register(readable, zmq.POLLIN)
        try:
            while not self._stopped():
                for readable, _ in poller.poll(TICK_MS):
                    self._serve(readable)
                self._watch_compute()
                self._reconnect()
                if self._busy_seconds() <= self._watchdog.limit / 2:  # the compute thread is alive too
                    self._watchdog.ping()
        except Exception:
            log.exception("the I/O thread failed")
            self._failed = True
        notify.tell(notify.STOPPING)
        self.inbox.replace(Stop())
        while not self._computed.wait(TICK_MS / 1000):
            self._watch_compute()

    def _watch_compute(self) -> None:
        """End the process if the compute thread hangs; the log then has the stack of each thread."""
        now = time.monotonic()
        if now - self._watched > STALL_SECONDS:  # the whole process stood still, not the compute thread alone
            self.inbox.forget_busy()
            self._no_hang_before = now + self._hang_timeout
        self._watched = now
        busy = self._busy_seconds()
        if now < self._no_hang_before or busy <= max(self._hang_timeout, HANG_FACTOR * self.inbox.longest_busy):
            return
        log.critical("the compute thread hangs", extra={"seconds": round(busy, 1)})
        faulthandler.dump_traceback(all_threads=True)
        os._exit(HANG_EXIT_CODE)

    def _reconnect(self) -> None:
        """Try again after a mismatch of encryption, once per tick."""
        if self._monitor.given_up and time.monotonic() >= self._reconnect_at:
            self._reconnect_at = time.monotonic() + TICK_MS / 1000
            self._monitor.reconnect()

    def _busy_seconds(self) -> float:
        return max(self.inbox.busy_seconds(), self.also_busy())

    def _serve(self, readable: object) -> None:
        if readable is self._monitor.socket:
            for event in self._monitor.events():
                self._on_connection(event == CONNECTED)
        elif readable is self._socket:
            while (frames := transport.receive(self._socket)) is not None:
                self._on_frames(frames)
        elif isinstance(readable, int):
            self._on_wake()
        else:
            self._handlers[readable]()  # type: ignore[index]

    def _on_connection(self, connected: bool) -> None:
        self._connected = connected
        if self._scheduler:
            log.warning("lost the scheduler")
            self._scheduler = ""
            self.inbox.replace(Reset())
        if connected:
            self._send(self._hello)

    def _on_frames(self, frames: list[zmq.Frame]) -> None:
        try:
            message = unpack(frames)
        except MessageError:
            log.exception("dropped a message")
            return
        if message.target != self.process.incarnation:
            return
        if isinstance(message.body, Disowned):
            if self._scheduler:  # else it is registering already: another hello would end that registration
                self._on_connection(True)
        elif isinstance(message.body, Welcome):
            self._scheduler = message.source
            self.inbox.replace(Reset())
            log.info("registered with the scheduler")
        elif message.source != self._scheduler:
            return
        elif isinstance(message.body, Ping):
            self._send(Pong())
        elif isinstance(message.body, Shutdown):
            self._leave_by = 0.0
        else:
            self.inbox.put(message)

    def _on_wake(self) -> None:
        signals = self._wake_reader.recv(4096).strip(b"\0")
        while self._posted:
            self._posted.popleft()()
        if signals and self._leave_by is None:
            log.info("asked to stop")
            self._leave_by = time.monotonic() + self.process.config.scheduler.drain_timeout
            self._send(Leaving())
        elif signals:
            self._leave_by = 0.0  # a second signal: at once

    def _stopped(self) -> bool:
        if self._leave_by is None:
            if self.process.orphaned():
                self._leave_by = 0.0
            return self._leave_by is not None
        return time.monotonic() >= self._leave_by or not self._connected
