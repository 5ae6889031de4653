"""The shell around the core: receives messages, passes them to the core as events, and sends what the core plans.

One thread. It sleeps in poll until a message, a signal, the next ping or a deadline.
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import time
from collections.abc import Callable
from typing import Any

import zmq

from common import notify, timeline, transport
from common.checkpoint import load_codec_config
from common.config import worker_names
from common.messages import (
    AnyBody,
    Array,
    ArWorkerHello,
    Attached,
    Cancel,
    Credit,
    DecodeDone,
    Disowned,
    EncodeAudio,
    Encoded,
    Extend,
    GatewayHello,
    Leaving,
    Message,
    MessageError,
    Ping,
    Pong,
    Resume,
    Shutdown,
    StepDone,
    Submit,
    Vocode,
    VocoderWorkerHello,
    Welcome,
    pack,
    unpack,
)
from common.process import Process, begin_to_serve, wake_on_signals
from common.transport import Context, PeerGoneError
from scheduler.core import Scheduler
from scheduler.lifecycle.registry import INTERNAL_ERROR
from scheduler.lifecycle.results import ProtocolError
from scheduler.observe.journal import Journal
from scheduler.observe.metrics import SchedulerMetrics
from scheduler.observer import Observers
from scheduler.peers import Peers
from scheduler.workers.capacity import log_capacity

PING_INTERVAL = 0.25  # seconds; also how soon a lost peer is noticed
STALL_SECONDS = 2.0  # by which a ping that is due may be late
MESSAGES_PER_ROUND = 256

log = logging.getLogger(__name__)


class Shell:
    """The scheduler process: :meth:`run` serves until drained."""

    def __init__(self, process: Process, context: Context) -> None:
        self._process = process
        self._settings = process.config.scheduler
        metrics = SchedulerMetrics(process.registry)
        frame_seconds = 1.0 / load_codec_config(process.config.model_dir).frame_rate
        journal = Journal(process.config.debug.requests, process.config.debug.events)
        process.pages[timeline.PAGE] = journal.page
        self._core = Scheduler(self._settings, frame_seconds, Observers(journal, metrics))
        self._peers = Peers([name for name, _ in worker_names(process.config)])
        self._received = 0  # messages in the newest round
        metrics.watch(self._core, lambda: self._peers.ages(time.monotonic()), lambda: self._received)
        self._socket, _ = context.router(transport.scheduler_endpoint(process.config))
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._next_ping = time.monotonic()
        self._no_hang_before = 0.0
        self._lost_some = False
        self._stop_by: float | None = None
        self._watchdog = notify.Watchdog()
        self._handlers: dict[type, Callable[[str, Any, list[Array]], None]] = {
            Pong: lambda source, body, arrays: None,
            Submit: lambda source, body, arrays: self._core.submit(source, body, arrays[0], time.monotonic()),
            Extend: lambda source, body, arrays: self._core.extend(body.request, body, arrays[0]),
            Vocode: lambda source, body, arrays: self._core.vocode(source, body, arrays[0], time.monotonic()),
            Resume: lambda source, body, arrays: self._core.resume(source, body, arrays, time.monotonic()),
            Cancel: lambda source, body, arrays: self._core.cancel(body.request, body.reason),
            Credit: self._on_credit,
            Attached: lambda source, body, arrays: self._core.attached(source, body.vocoder),
            EncodeAudio: lambda source, body, arrays: self._core.encode(
                source, body.request, arrays[0], time.monotonic()
            ),
            StepDone: self._on_step_done,
            DecodeDone: lambda source, body, arrays: self._core.decode_done(source, body, time.monotonic()),
            Encoded: self._core.encode_done,
            Leaving: self._on_leaving,
        }

    def run(self) -> None:
        """Serve until a signal, then until everything is done or ``scheduler.drain_timeout`` has passed."""
        self._watch_signals()
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._wake_reader, zmq.POLLIN)
        log.info("scheduler listens")
        begin_to_serve()
        while not self._done():
            self._watchdog.ping()
            poller.poll(self._timeout_ms())
            self._read_signals()
            self._receive()
            self._watch_peers(time.monotonic())
            self._carry_out()

    # Signals and time ------------------------------------------------------------------------------------------------

    def _watch_signals(self) -> None:
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        wake_on_signals(self._wake_writer.fileno())

    def _read_signals(self) -> None:
        try:
            self._wake_reader.recv(64)
        except BlockingIOError:
            if not self._process.orphaned():
                return
        if self._stop_by is not None:
            self._stop_by = 0.0  # a second signal: at once
            return
        log.info("draining")
        notify.tell(notify.STOPPING)
        self._stop_by = time.monotonic() + self._settings.drain_timeout
        self._core.drain()
        self._tell_gateways()

    def _done(self) -> bool:
        if self._stop_by is None:
            return False
        drained = self._core.idle() and not any(peer.role != "gateway" for peer in self._peers)
        return drained or time.monotonic() >= self._stop_by

    def _timeout_ms(self) -> int:
        wake_at = self._core.wake_at()
        until = self._next_ping if wake_at is None else min(self._next_ping, wake_at)
        return max(0, math.ceil((until - time.monotonic()) * 1000))

    # Messages --------------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Handle the messages that have come, but stop at a step's result: the next step is sent before the rest."""
        self._received = 0
        while self._received < MESSAGES_PER_ROUND and (frames := transport.receive(self._socket)) is not None:
            self._received += 1
            if self._on_frames(frames):
                break

    def _on_frames(self, frames: list[zmq.Frame]) -> bool:
        """Handle a message; returns whether it was a step's result."""
        try:
            message = unpack(frames[1:])
        except MessageError:
            log.exception("dropped a message")
            return False
        if bytes(frames[0].buffer) != message.source.encode():
            log.warning("dropped a message with another sender's name")
        elif isinstance(message.body, GatewayHello | ArWorkerHello | VocoderWorkerHello):
            if transport.key_owner(frames) in (None, message.body.name):
                self._register(message.source, message.body)
            else:
                log.warning("refused a peer with the key of another one", extra={"peer": message.body.name})
        elif message.target != self._process.incarnation:
            log.debug("dropped a message for an earlier scheduler")
        elif message.source in self._peers:
            self._on_message(message)
            return isinstance(message.body, StepDone)
        else:
            self._disown(message.source)
        return False

    def _disown(self, source: str) -> None:
        """Tell a peer that was given up to register again, if it is alive."""
        with contextlib.suppress(PeerGoneError):
            transport.send(self._socket, pack(Disowned(), source=self._process.incarnation, target=source), source)

    def _on_message(self, message: Message) -> None:
        self._peers.heard(message.source, time.monotonic())
        try:
            self._handlers[type(message.body)](message.source, message.body, message.arrays)
        except Exception as error:
            fault = "peer broke the protocol" if isinstance(error, ProtocolError) else "message failed"
            log.exception(fault, extra={"body": type(message.body).__name__})
            if self._peers.role(message.source) != "gateway":
                self._lose(message.source)  # its state is no longer known: both sides start over
            elif isinstance(message.body, Submit | Vocode | Extend | Cancel):
                self._core.fail(message.source, message.body.request)
            elif isinstance(message.body, EncodeAudio):
                self._send(message.source, Encoded(message.body.request, INTERNAL_ERROR))

    def _register(self, source: str, hello: GatewayHello | ArWorkerHello | VocoderWorkerHello) -> None:
        if source in self._peers:
            self._lose(source, disown=False)
        former = self._peers.register(source, hello, time.monotonic())
        if former is not None:
            self._lose(former.incarnation, disown=False)
        if isinstance(hello, ArWorkerHello):
            self._core.ar_joined(source, hello)
        elif isinstance(hello, VocoderWorkerHello):
            self._core.vocoder_joined(source, hello)
        log.info("registered", extra={"peer": hello.name, "incarnation": source})
        log_capacity(self._core.ar_workers.values(), self._core.vocoders.values(), self._settings)
        self._send(source, Welcome())
        self._tell_gateways()

    def _on_credit(self, source: str, body: Credit, arrays: list[Array]) -> None:
        for request, frame in body.read:
            self._core.credit(request, frame)

    def _on_step_done(self, source: str, body: StepDone, arrays: list[Array]) -> None:
        codes, ended = arrays
        self._core.step_done(source, body, codes, ended, time.monotonic())

    def _on_leaving(self, source: str, body: Leaving, arrays: list[Array]) -> None:
        self._core.leaving(source)
        self._peers.leaving(source)
        self._tell_gateways()

    # Peers -----------------------------------------------------------------------------------------------------------

    def _watch_peers(self, now: float) -> None:
        if now < self._next_ping:
            return
        late = now - self._next_ping
        self._next_ping = now + PING_INTERVAL
        if late > STALL_SECONDS:  # this process stood still: what the peers sent meanwhile is yet to be read
            log.warning("the scheduler stood still", extra={"seconds": round(late, 1)})
            self._peers.hear_all(now)
            self._no_hang_before = now + self._settings.hang_timeout
        for incarnation in self._core.hanging(now) if now >= self._no_hang_before else []:
            log.error("a worker hangs", extra={"incarnation": incarnation})
            self._lose(incarnation)
        for peer in self._peers.silent(now, self._settings.worker_timeout):
            log.warning("peer is silent", extra={"peer": peer.name})
            self._lose(peer.incarnation)
        for peer in self._peers:
            self._send(peer.incarnation, Ping())

    def _lose(self, incarnation: str, disown: bool = True) -> None:
        """Give a peer up. ``disown``: tell it, in case it lives, unless another registration replaces its own."""
        if incarnation not in self._peers:
            return
        log.warning("lost a peer", extra={"incarnation": incarnation})
        self._lost_some = True
        self._peers.remove(incarnation, "lost")
        if disown:
            self._disown(incarnation)
        self._core.peer_lost(incarnation, time.monotonic())
        self._tell_gateways()

    def _tell_gateways(self) -> None:
        state = self._peers.group_state(self._core.draining)
        for peer in self._peers:
            if peer.role == "gateway":
                self._send(peer.incarnation, state)

    # Sending ---------------------------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        self._lost_some = True
        while self._lost_some:  # a peer found lost while sending changes the core's plan
            self._lost_some = False
            for peer, body, arrays in self._core.plan(time.monotonic()):
                self._send(peer, body, arrays)
                if isinstance(body, Disowned):
                    self._lose(peer, disown=False)
                elif isinstance(body, Shutdown):
                    self._peers.remove(peer, "left")
                    self._tell_gateways()

    def _send(self, peer: str, body: AnyBody, arrays: list[Array] | None = None) -> None:
        if peer not in self._peers:
            return
        try:
            frames = pack(body, arrays or [], source=self._process.incarnation, target=peer)
            transport.send(self._socket, frames, peer)
        except PeerGoneError:
            self._lose(peer)
