"""Channels to Crux: the Unix socket of an agent (lines of JSON) or a controller (gRPC)."""

import json
import logging
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
LOGGER = logging.getLogger("crux_telemetry")


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
# Replies that a channel keeps, the latest ones.
KEPT_REPLIES = 64
# Bytes of one reply of an agent; a longer one ends reading.
MAX_REPLY = 65536


def show_reply(reply):
    """Logs a reply: errors and warnings as warnings, which Python prints by default."""
    level = logging.INFO if reply.get("severity") == "info" else logging.WARNING
    LOGGER.log(level, "crux: job %s: %s", reply.get("job") or "?", reply.get("text", ""))


class Replies:
    """The latest replies of a channel, and the latest slot of each job."""

    def __init__(self):
        self.feedback, self.slots = [], {}

    def keep(self, reply):
        show_reply(reply)
        if reply.get("slot") is not None:
            self.slots[reply["job"]] = reply["slot"]
        self.feedback = self.feedback[1 - KEPT_REPLIES :] + [reply]


class AgentChannel:
    """Sends each message as a line of JSON, and shows the replies."""

    def __init__(self, path):
        self.replies = Replies()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(TIMEOUT)
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise
        self.receiver = threading.Thread(target=self.receive_feedback, daemon=True)
        self.receiver.start()

    def receive_feedback(self):
        """Reads lines until the agent hangs up."""
        pending = b""
        while len(pending) <= MAX_REPLY:
            try:
                received = self.socket.recv(4096)
            except TimeoutError:
                continue
            except OSError:
                return
            if not received:
                return
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                self.keep(line)

    def keep(self, line):
        try:
            self.replies.keep(json.loads(line))
        except (ValueError, AttributeError, KeyError):
            return

    def send(self, message):
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def close(self):
        """Waits for the replies to what was sent last."""
        succeeds(self.socket.shutdown, socket.SHUT_WR)
        self.receiver.join(TIMEOUT)
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
        self.replies = Replies()
        metadata = [("crux-lease", LEASE)]
        if token := read_token(address):
            metadata.append(("authorization", f"Bearer {token}"))
        self.call = call(iter(self.reports.get, None), metadata=metadata)
        self.receiver = threading.Thread(target=self.receive_feedback, daemon=True)
        self.receiver.start()

    def receive_feedback(self):
        """Shows replies and keeps the latest until the stream ends."""
        try:
            for feedback in self.call:
                self.replies.keep(feedback)
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


def succeeds(function, *arguments):
    """Calls a function and returns whether it raised no exception."""
    try:
        function(*arguments)
    except Exception:
        return False
    return True
