#!/usr/bin/env python3
"""What callers cost a controller whose 500 switches do not answer: memory, and how long others wait.

`scripts/measure-bounds.py target/release/crux [--seconds 60]` starts `crux controller` with 492
leaves and 8 spines, and prints a line for each attack: 600 clients that ask for previews, three
that send 400 kB of nested YAML, and 2,000 half-open beside 2,000 slow connections. Meanwhile one
reader asks for the jobs. `cargo bench -p controller --bench loopback -- bounds` has the repairs.
"""

import argparse
import json
import pathlib
import resource
import socket
import statistics
import subprocess
import tempfile
import threading
import time

FABRIC = """name = "wide"
[clos]
leaves = 492
spines = 8
hosts_per_leaf = 1
gpus_per_host = 8
host_links = 1
host_gbps = 200.0
uplink_gbps = 100.0
"""
CONFIG = '[northbound]\nlisten = "127.0.0.1:{port}"\nanyone = true\n'
NESTED = json.dumps({"policy": {"file": "p.yaml", "text": "[" * 400_000}})
VALID = json.dumps({"policy": {"file": "p.toml", "text": "fairness = 0.2"}})


def connect(port, number):
    """A connection from one of ten loopback addresses, as one address has few."""
    source = (f"127.0.0.{10 + number % 10}", 0)
    return socket.create_connection(("127.0.0.1", port), timeout=60, source_address=source)


def ask(port, number, path, body=None):
    """The status of a response, and the milliseconds until it was complete."""
    begun = time.monotonic()
    method = "GET" if body is None else "POST"
    text = body or ""
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
    with connect(port, number) as stream:
        stream.sendall((head + text).encode())
        answer = b""
        while chunk := stream.recv(65_536):
            answer += chunk
    return int(answer.split()[1]), 1e3 * (time.monotonic() - begun)


def repeat(stop, action, pause):
    """Acts until the attack ends; who is refused or closed waits and tries again."""
    while not stop.is_set():
        try:
            action()
        except (OSError, IndexError, ValueError):
            pass
        stop.wait(pause)


def hold(port, number, stop):
    """Holds a connection that sends nothing, or a byte of its headers a second."""
    with connect(port, number) as stream:
        if number % 2 == 0:
            stream.settimeout(5)
            stream.recv(1)
            return
        stream.sendall(b"GET /v1/jobs HTTP/1.1\r\nx-slow: ")
        while not stop.wait(1):
            stream.sendall(b"x")


def resident_mib(process):
    lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


def measure(name, process, port, seconds, actions, pause):
    """Runs an attack and prints what it costs others."""
    stop = threading.Event()
    for action in actions:
        threading.Thread(target=repeat, args=(stop, lambda a=action: a(stop), pause)).start()
    waits, memory, ends = [], 0, time.monotonic() + seconds
    while time.monotonic() < ends:
        status, waited = ask(port, 99, "/v1/jobs")
        assert status == 200, f"the reader is refused: {status}"
        waits.append(waited)
        memory = max(memory, resident_mib(process))
        time.sleep(0.05)
    stop.set()
    waits.sort()
    rank = max(0, -(-99 * len(waits) // 100) - 1)
    print(
        f"{name:<44} GET /v1/jobs n {len(waits):>4}  ms: p50 {statistics.median(waits):.1f}  "
        f"p99 {waits[rank]:.1f}  max {waits[-1]:.1f}; resident memory at most {memory} MiB",
        flush=True,
    )
    time.sleep(2)


def attack(process, port, seconds):
    refusals = []

    def preview(_):
        status, _ = ask(port, 1, "/v1/policy/preview", VALID)
        if status != 200:
            time.sleep(1)

    def nested(_):
        status, waited = ask(port, 2, "/v1/policy/preview", NESTED)
        if status == 422:
            refusals.append(waited)

    measure("nobody else calls", process, port, seconds / 4, [], 0)
    measure("3 clients send nested YAML", process, port, seconds / 4, [nested] * 3, 0.05)
    if refusals:
        middle = statistics.median(refusals)
        print(f"  refused n {len(refusals)} after p50 {middle:.1f} ms, max {max(refusals):.1f} ms")
    # Previews that wait go on for a while, so others come before them.
    holders = [lambda stop, n=number: hold(port, n, stop) for number in range(4_000)]
    measure("2,000 half-open, 2,000 slow connections", process, port, seconds, holders, 1)
    measure("600 clients ask for previews", process, port, seconds, [preview] * 600, 0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("crux")
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    threading.stack_size(256 * 1024)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "fabric.toml").write_text(FABRIC)
        expand = [arguments.crux, "fabric", "expand", folder / "fabric.toml", "--format", "json"]
        fabric = json.loads(subprocess.run(expand, check=True, capture_output=True).stdout)
        for number, switch in enumerate(fabric["switches"]):
            # Nobody listens there.
            switch["p4runtime"] = f"127.0.0.1:{20_001 + number}"
        (folder / "fabric.json").write_text(json.dumps(fabric))
        (folder / "crux.toml").write_text(CONFIG.format(port=port))
        command = [arguments.crux, "--log", "error", "controller", "--config", folder / "crux.toml"]
        command += ["--fabric", folder / "fabric.json"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                while True:
                    try:
                        ask(port, 0, "/health")
                        break
                    except OSError:
                        time.sleep(0.5)
                attack(process, port, arguments.seconds)
            finally:
                process.terminate()


if __name__ == "__main__":
    main()
