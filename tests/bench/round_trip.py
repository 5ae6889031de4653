"""What a message there and back costs on this machine, with nothing done on the other side.

    python -m tests.bench.round_trip

Over ipc, between a ROUTER and a process built as the workers are: a thread that owns the socket, an inbox with a
condition variable, and a thread that waits at it. What the group adds to a step is compared with this.
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from common.inbox import Inbox

ROUNDS = 400
PAYLOAD = b"\0" * 2048
END = b""


def echo(endpoint: str) -> None:
    """Send back what comes, until an empty message does."""
    dealer = zmq.Context.instance().socket(zmq.DEALER)
    dealer.connect(endpoint)
    inbox: Inbox[bytes] = Inbox(4)
    answers: deque[bytes] = deque()
    woken, waker = socket.socketpair()

    def serve() -> None:
        poller = zmq.Poller()
        poller.register(dealer, zmq.POLLIN)
        poller.register(woken, zmq.POLLIN)
        dealer.send(b"here")
        while True:
            for readable, _ in poller.poll():
                if readable is dealer:
                    inbox.put(message := dealer.recv())
                    if message == END:
                        return
                else:
                    woken.recv(64)
                    while answers:
                        dealer.send(answers.popleft())

    thread = threading.Thread(target=serve)
    thread.start()
    while (message := inbox.get()) != END:
        answers.append(message)
        waker.send(b"\0")
    thread.join()


@contextmanager
def partner() -> Iterator[tuple[zmq.Socket[bytes], bytes]]:
    """A ROUTER, and the name of the process that answers on it."""
    with tempfile.TemporaryDirectory(prefix="shoal-trip-") as directory:
        endpoint = f"ipc://{directory}/trip.sock"
        router = zmq.Context.instance().socket(zmq.ROUTER)
        router.bind(endpoint)
        process = multiprocessing.get_context("spawn").Process(target=echo, args=(endpoint,))
        process.start()
        name, _ = router.recv_multipart()
        try:
            yield router, name
        finally:
            router.send_multipart([name, END])
            process.join(10)
            router.close(linger=0)


def bare_round_trip() -> float:
    """Seconds, the median of many."""
    with partner() as (router, name):
        times = []
        poller = zmq.Poller()
        poller.register(router, zmq.POLLIN)
        for _ in range(ROUNDS):
            began = time.perf_counter()
            router.send_multipart([name, PAYLOAD])
            poller.poll()
            router.recv_multipart()
            times.append(time.perf_counter() - began)
    return statistics.median(times)


if __name__ == "__main__":
    print(f"{1000 * bare_round_trip():.3f} ms")
