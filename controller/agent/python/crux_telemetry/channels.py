"""Channels to Crux: the Unix socket of an agent (lines of JSON) or a controller (gRPC)."""

import json
import os
import pathlib
import queue
import secrets
import socket
import stat
import threading

from . import wire

# With it, a new stream of this process takes the jobs of one that broke.
LEASE = secrets.token_hex(16)
METHOD = "/crux.telemetry.v1.Telemetry/StreamReports"
TIMEOUT = 2.0


def channel_opener(to):
    """A function that opens a channel to an agent or a controller, depending on the address."""
    if "/" in to:
        return lambda: AgentChannel(to)
    if ":" in to:
        return lambda: ControllerChannel(to)
    raise ValueError(f"{to!r} is neither the path of an agent's socket nor HOST:PORT")


def read_token(address):
    """The token in the file that CRUX_TOKEN_FILE names; without it, that of this machine for a
    controller on it."""
    if named := os.environ.get("CRUX_TOKEN_FILE"):
        return private_text(pathlib.Path(named))
    host = address.rpartition(":")[0].strip("[]")
    if host not in ("localhost", "::1") and not host.startswith("127."):
        return None
    state = os.environ.get("XDG_STATE_HOME") or pathlib.Path.home() / ".local" / "state"
    for path in (pathlib.Path(state) / "crux" / "token", pathlib.Path("/var/lib/crux/token")):
        try:
            return private_text(path)
        except OSError:
            continue
    return None


def private_text(path):
    """The text of a secret file, which not everybody may read."""
    if path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        raise PermissionError(f"{path}: everybody on this machine may use it; chmod 600 {path}")
    return path.read_text().strip()


class AgentChannel:
    """Sends each message as a line of JSON."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(TIMEOUT)
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise

    def send(self, message):
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def close(self):
        self.socket.close()


class ControllerChannel:
    """Sends a stream of reports. An iteration is a window of one iteration."""

    def __init__(self, address):
        import grpc

        self.channel = grpc.insecure_channel(address)
        grpc.channel_ready_future(self.channel).result(TIMEOUT)
        self.reports = queue.Queue()
        call = self.channel.stream_stream(
            METHOD, request_serializer=lambda report: report, response_deserializer=wire.decode_feedback
        )
        self.feedback = []
        metadata = [("crux-lease", LEASE)]
        if token := read_token(address):
            metadata.append(("authorization", f"Bearer {token}"))
        self.call = call(iter(self.reports.get, None), metadata=metadata)
        self.receiver = threading.Thread(target=self.receive_feedback, daemon=True)
        self.receiver.start()

    def receive_feedback(self):
        """Keeps the latest 64 replies until the stream ends."""
        try:
            for feedback in self.call:
                self.feedback = self.feedback[-63:] + [feedback]
        except Exception:
            pass

    def send(self, message):
        if not self.call.is_active():
            raise ConnectionError("the stream has ended")
        self.reports.put(wire.encode_report(message))

    def close(self):
        self.reports.put(None)
        self.receiver.join(TIMEOUT)
        self.channel.close()
