"""What a reporter says, to an agent and to a controller, and that it never stands in the way."""

import json
import pathlib
import socket
import struct
import tempfile
import threading
import time
import unittest

from crux_telemetry import Reporter, wire

JOB = {"id": "gpt", "gpus": {"h1": 8}, "collective": {"kind": "ring_all_reduce", "bytes": 6.5e9}}
ITERATION = {"job": "gpt", "seconds": 1.5, "flop": 1e15, "bytes": 4e9}


class FakeAgent:
    """Keeps the lines of one process after the other."""

    def __init__(self, path):
        self.lines, self.received = [], threading.Semaphore(0)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(str(path))
        self.socket.listen()
        self.connection = None
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                self.connection, _ = self.socket.accept()
            except OSError:
                return
            with self.connection, self.connection.makefile() as lines:
                for line in lines:
                    self.lines.append(json.loads(line))
                    self.received.release()

    def wait(self, count):
        for _ in range(count):
            if not self.received.acquire(timeout=10):
                raise AssertionError(f"only {self.lines}")
        return self.lines

    def hang_up(self):
        self.connection.shutdown(socket.SHUT_RDWR)


class ToAnAgent(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "agent.sock"

    def test_a_job_from_beginning_to_end(self):
        agent = FakeAgent(self.path)
        self.addCleanup(agent.socket.close)
        with Reporter(str(self.path)) as reporter:
            reporter.job("gpt", {"h1": 8}, collective=JOB["collective"])
            reporter.iteration("gpt", 1.5, flop=1e15, bytes=4e9)
        job, iteration, end = agent.wait(3)
        self.assertEqual(job, {"job": JOB})
        self.assertEqual(iteration["iteration"]["seconds"], 1.5)
        self.assertEqual(end, {"end": "gpt"})

    def test_nobody_listens_and_then_somebody_does(self):
        reporter = Reporter(str(self.path), retry=0)
        reporter.job("gpt", {"h1": 8})
        for _ in range(10_000):
            reporter.iteration("gpt", 1.0)
        agent = FakeAgent(self.path)
        self.addCleanup(agent.socket.close)
        reporter.iteration("gpt", 2.0)
        while not agent.lines:
            reporter.iteration("gpt", 2.0)
        self.assertEqual(agent.wait(1)[0], {"job": {"id": "gpt", "gpus": {"h1": 8}}})
        # Hung up on, it comes back and announces the job anew.
        agent.hang_up()
        while sum("job" in line for line in agent.lines) < 2:
            reporter.iteration("gpt", 3.0)
        reporter.close()

    def test_replies_are_kept_and_shown(self):
        agent = FakeAgent(self.path)
        self.addCleanup(agent.socket.close)
        reporter = Reporter(str(self.path))
        with self.assertLogs("crux_telemetry", "INFO") as logged:
            reporter.job("gpt", {"h1": 8})
            agent.wait(1)
            agent.connection.sendall(
                b'{"job": "gpt", "severity": "info", "text": "level 6"}\nnonsense\n'
                b'{"job": "gpt", "severity": "error", "text": "too many GPUs"}\n'
            )
            deadline = time.monotonic() + 10
            while len(reporter.feedback()) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            reporter.close()
        self.assertEqual([reply["text"] for reply in reporter.feedback()], ["level 6", "too many GPUs"])
        self.assertEqual([record.levelname for record in logged.records], ["INFO", "WARNING"])
        self.assertIn("job gpt: too many GPUs", logged.output[1])

    def test_an_address_that_is_none(self):
        self.assertRaisesRegex(ValueError, "HOST:PORT", Reporter, "nowhere")


def fields(message):
    """Numbers and contents of a message."""
    found, at = [], 0
    while at < len(message):
        key, at = wire.read_varint(message, at)
        if key & 7 == 0:
            content, at = wire.read_varint(message, at)
        elif key & 7 == 1:
            content, at = struct.unpack("<d", message[at : at + 8])[0], at + 8
        else:
            length, at = wire.read_varint(message, at)
            content, at = message[at : at + length], at + length
        found.append((key >> 3, content))
    return found


class OnTheWire(unittest.TestCase):
    def test_messages_have_the_fields_of_the_protobufs(self):
        ((number, announcement),) = fields(wire.encode_report({"job": {**JOB, "tenant": "a"}}))
        self.assertEqual(number, 1)
        known = dict(fields(announcement))
        self.assertEqual(known[1], b"gpt")
        self.assertEqual(known[2], b"a")
        self.assertEqual(fields(known[4]), [(1, b"h1"), (2, 8)])
        self.assertEqual(fields(known[6]), [(1, b"ring_all_reduce"), (2, 6.5e9)])

        groups = {"size": 4, "stride": 8}
        stages = {"kind": "pipeline", "bytes": 1.0, "groups": groups, "overlap_from": 0.25}
        job = {"id": "gpt", "gpus": {"h1": 8}, "collectives": [JOB["collective"], stages]}
        ((_, announcement),) = fields(wire.encode_report({"job": job}))
        sent = [dict(fields(content)) for number, content in fields(announcement) if number == 16]
        self.assertEqual([one[1] for one in sent], [b"ring_all_reduce", b"pipeline"])
        self.assertEqual(fields(sent[1][4]), [(1, 4), (2, 8)])
        self.assertEqual(sent[1][5], 0.25)

        ((number, window),) = fields(wire.encode_report({"iteration": ITERATION}))
        self.assertEqual(number, 2)
        known = dict(fields(window))
        self.assertEqual((known[1], known[2], known[4], known[8]), (b"gpt", 1.5, 1e15, 4e9))
        self.assertEqual(known[3], struct.pack("<d", 0.0))

        ((number, end),) = fields(wire.encode_report({"end": "gpt"}))
        self.assertEqual((number, fields(end)), (3, [(1, b"gpt")]))

    def test_numbers_of_any_size(self):
        for number in (0, 1, 127, 128, 300, 50_000, 2**40):
            encoded = wire.varint(number)
            self.assertEqual(wire.read_varint(encoded, 0), (number, len(encoded)))

    def test_feedback(self):
        encoded = wire.chunk(1, "gpt") + wire.chunk(2, "info") + wire.chunk(3, "profile complete")
        feedback = {"job": "gpt", "severity": "info", "text": "profile complete"}
        self.assertEqual(wire.decode_feedback(encoded), feedback)


class ToAController(unittest.TestCase):
    def test_a_stream_of_reports(self):
        try:
            import grpc
        except ImportError:
            self.skipTest("no grpcio here")
        from concurrent import futures

        received, all_received = [], threading.Event()

        def report(reports, _):
            for report in reports:
                received.append(report)
                yield wire.chunk(1, "gpt") + wire.chunk(2, "info") + wire.chunk(3, "received")
            all_received.set()

        handler = grpc.stream_stream_rpc_method_handler(report)
        service = grpc.method_handlers_generic_handler(
            "crux.telemetry.v1.Telemetry", {"StreamReports": handler}
        )
        server = grpc.server(futures.ThreadPoolExecutor(2))
        server.add_generic_rpc_handlers((service,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with Reporter(f"127.0.0.1:{port}") as reporter:
            reporter.job("gpt", {"h1": 8}, collective=JOB["collective"])
            reporter.iteration(**ITERATION)
        self.assertTrue(all_received.wait(10))
        server.stop(None)
        self.assertEqual(received[0], wire.encode_report({"job": JOB}))
        self.assertEqual([fields(report)[0][0] for report in received], [1, 2, 3])


if __name__ == "__main__":
    unittest.main()
