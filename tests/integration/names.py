"""A name server whose names the test changes."""

from __future__ import annotations

import socket
import threading

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

TTL = 1  # seconds


class Names(threading.Thread):
    """A context. ``names``: those that exist, and their addresses; :attr:`address` is where to ask."""

    def __init__(self, names: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self.names = names
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Names:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.sendto(b"", self._socket.getsockname())  # the last thing it reads
        self.join()
        self._socket.close()

    def run(self) -> None:
        while True:
            asked, client = self._socket.recvfrom(4096)
            if not asked:
                return
            self._socket.sendto(self._answer(dns.message.from_wire(asked)).to_wire(), client)

    def _answer(self, query: dns.message.Message) -> dns.message.Message:
        reply = dns.message.make_response(query)
        reply.flags |= dns.flags.AA
        question = query.question[0]
        address = self.names.get(str(question.name).rstrip("."))
        if address is None:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        elif question.rdtype == dns.rdatatype.A:
            reply.answer.append(dns.rrset.from_text(question.name, TTL, "IN", "A", address))
        return reply
