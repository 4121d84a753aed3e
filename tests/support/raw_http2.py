"""A gRPC call on a bare socket: a peer that does as it likes. It offers the largest windows there
are, so that nothing holds the server's answers back but the socket itself."""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
END_STREAM, END_HEADERS = 1, 4
MAX_WINDOW = 2**31 - 1
FIRST_WINDOW = 65535  # what may be sent before the server's own updates are read


def connect(address):
    """`address` as servers print theirs."""
    if address.startswith("unix:"):
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(address.removeprefix("unix:"))
    else:
        host, port = address.rsplit(":", 1)
        connected = socket.create_connection((host, int(port)))
    connected.settimeout(20)
    return connected


def frame(kind, flags, stream, payload):
    return (struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) +
            struct.pack(">I", stream) + payload)


def header(name, value):
    """HPACK: a literal without indexing, its name spelled out."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call(connected, path, *messages, end=False):
    """Begins stream 1 with a call of `path` and sends the messages; reads nothing. `end`: nothing
    more will be sent."""
    data = b"".join(b"\0" + struct.pack(">I", len(message)) + message for message in messages)
    assert all(len(message) < 16384 for message in messages)
    begin(connected, path, data)
    if end:
        connected.sendall(frame(DATA, END_STREAM, 1, b""))


def begin(connected, path, data, window=MAX_WINDOW):
    """Begins stream 1 with a call of `path` and sends bytes of it; reads nothing. `window`: what the
    server may send of it."""
    settings = struct.pack(">HI", 4, window)  # INITIAL_WINDOW_SIZE
    headers = b"".join(header(*pair) for pair in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()),
        (b":authority", b"localhost"), (b"content-type", b"application/grpc"),
        (b"te", b"trailers")))
    assert len(data) <= FIRST_WINDOW
    connected.sendall(
        PREFACE + frame(SETTINGS, 0, 0, settings) +
        frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", MAX_WINDOW - FIRST_WINDOW)) +
        frame(HEADERS, END_HEADERS, 1, headers) +
        b"".join(frame(DATA, 0, 1, data[at:at + 16000]) for at in range(0, len(data), 16000)))
