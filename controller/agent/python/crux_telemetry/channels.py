"""Channels to Crux: the Unix socket of an agent (lines of JSON) or a controller (gRPC)."""

import json
import queue
import socket
import threading

from . import wire

METHOD = "/crux.telemetry.v1.Telemetry/StreamReports"
TIMEOUT = 2.0


def channel_opener(to):
    """A function that opens a channel to an agent or a controller, depending on the address."""
    if "/" in to:
        return lambda: AgentChannel(to)
    if ":" in to:
        return lambda: ControllerChannel(to)
    raise ValueError(f"{to!r} is neither the path of an agent's socket nor HOST:PORT")


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
        self.call = call(iter(self.reports.get, None))
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
