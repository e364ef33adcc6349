"""The native wire (docs/wire.md), as far as the promises need it: hello, set, get, ping, watch."""
import socket
import struct

PREFACE = b"DLCH" + struct.pack("<I", 2)
HEADER = struct.Struct("<IHHQQ")
HELLO, WELCOME, PING, SET, GET, WATCH = 1, 2, 4, 16, 18, 33


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<I", len(raw)) + raw


def frame(kind, request, payload=b""):
    return HEADER.pack(len(payload), kind, 0, request, 0) + payload


def hello():
    return PREFACE + frame(HELLO, 1, struct.pack("<Q", 0) + text("") + b"\0")


class Client:
    """Blocking; one request at a time."""

    def __init__(self, port, timeout=20):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request = 1
        self.socket.sendall(hello())
        if self.read(8) != PREFACE:
            raise ConnectionError("the server's preface is another one")
        self.answer()

    def read(self, size):
        parts = b""
        while len(parts) < size:
            part = self.socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the server closed the connection")
            parts += part
        return parts

    def answer(self):
        length, kind, _, request, _ = HEADER.unpack(self.read(HEADER.size))
        return kind, request, self.read(length)

    def ask(self, kind, payload=b""):
        self.request += 1
        self.socket.sendall(frame(kind, self.request, payload))
        while True:
            got = self.answer()
            if got[1] == self.request:
                return got

    def ping(self):
        self.ask(PING)

    def set(self, key, value):
        self.ask(SET, text(key) + text(value))

    def watch(self, key):
        """Never reads what comes of it."""
        self.request += 1
        self.socket.sendall(frame(WATCH, self.request, text(key)))
