"""What leads to Crux: an agent's Unix socket (lines of JSON), or a controller (gRPC)."""

import json
import queue
import socket
import threading

from . import wire

METHOD = "/crux.telemetry.v1.Telemetry/Report"
PATIENCE = 2.0


def opener(to):
    """What opens a channel to an agent or a controller; an address that is neither is an error."""
    if "/" in to:
        return lambda: Agent(to)
    if ":" in to:
        return lambda: Controller(to)
    raise ValueError(f"{to!r} is neither the path of an agent's socket nor HOST:PORT")


class Agent:
    """A line a message."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE)
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise

    def say(self, said):
        self.socket.sendall(json.dumps(said).encode() + b"\n")

    def close(self):
        self.socket.close()


class Controller:
    """A stream of reports. Iterations are windows of one iteration."""

    def __init__(self, address):
        import grpc

        self.channel = grpc.insecure_channel(address)
        grpc.channel_ready_future(self.channel).result(PATIENCE)
        self.reports = queue.Queue()
        call = self.channel.stream_stream(
            METHOD, request_serializer=lambda report: report, response_deserializer=wire.remark
        )
        self.remarks = []
        self.call = call(iter(self.reports.get, None))
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    def listen(self):
        """Keeps the latest remarks; ends with the stream."""
        try:
            for remark in self.call:
                self.remarks = self.remarks[-63:] + [remark]
        except Exception:
            pass

    def say(self, said):
        if not self.call.is_active():
            raise ConnectionError("the stream has ended")
        self.reports.put(wire.report(said))

    def close(self):
        self.reports.put(None)
        self.listener.join(PATIENCE)
        self.channel.close()
