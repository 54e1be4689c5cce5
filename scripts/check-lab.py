"""Checks `crux lab` in network namespaces: hosts reach each other, a cut cable is avoided, and
nothing is left, whatever was killed. Needs root and iproute2.

    sudo python3 scripts/check-lab.py target/release/crux
"""

import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

TREE = pathlib.Path(__file__).resolve().parent.parent
FABRIC = TREE / "topology/fabrics/lab.toml"
JOBS = TREE / "controller/cli/examples/jobs.toml"
NAME, LISTEN = "check_lab", "127.0.0.1:19300"
FOLDER = pathlib.Path("/run/crux-lab") / NAME
BYTES = 100_000
# Seconds that a controller may take to see a cable, and hosts to exchange the bytes.
PATIENCE = 30

SERVER = f"""
import hashlib, socket
server = socket.create_server(("0.0.0.0", 9000))
print("listening", flush=True)
connection, _ = server.accept()
data = b""
while len(data) < {BYTES}:
    data += connection.recv(65536)
print(hashlib.sha256(data).hexdigest())
"""
CLIENT = f"""
import socket, sys
socket.create_connection((sys.argv[1], 9000), timeout={PATIENCE}).sendall(b"crux" * {BYTES // 4})
"""


class Lab:
    """The lab under test."""

    def __init__(self, crux):
        self.crux = crux

    def run(self, *words):
        """Runs `crux`, which must succeed; what it printed."""
        done = subprocess.run([self.crux, *words], capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def up(self):
        return self.run(
            "lab", "up", "--name", NAME, "--listen", LISTEN, "--first-port", "19560",
            "--fabric", str(FABRIC), "--jobs", str(JOBS),
        )

    def in_host(self, host, *program):
        return [self.crux, "lab", "shell", host, "--name", NAME, "--", *program]

    def send(self, source, destination, address):
        """Sends bytes over TCP, whose checksums and segments offloads would spoil."""
        server = subprocess.Popen(
            self.in_host(destination, sys.executable, "-c", SERVER),
            stdout=subprocess.PIPE, text=True,
        )
        assert server.stdout.readline().strip() == "listening"
        client = self.in_host(source, sys.executable, "-c", CLIENT, address)
        subprocess.run(client, check=True, timeout=PATIENCE)
        received, _ = server.communicate(timeout=PATIENCE)
        assert received.strip() == hashlib.sha256(b"crux" * (BYTES // 4)).hexdigest()

    def findings(self):
        words = ["doctor", "--controller", LISTEN, "--all", "--format", "json"]
        return subprocess.run([self.crux, *words], capture_output=True, text=True).stdout

    def await_finding(self, text, is_there):
        deadline = time.monotonic() + PATIENCE
        while (text in self.findings()) != is_there:
            assert time.monotonic() < deadline, f"{text}: {self.findings()}"
            time.sleep(0.2)


def processes():
    """Ids of the programs of the lab."""
    mark = f"CRUX_LAB={FOLDER}".encode()
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def check_nothing_is_left():
    namespaces = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    assert NAME not in namespaces, namespaces
    interfaces = os.listdir("/sys/class/net")
    assert not [name for name in interfaces if name.startswith(("leaf", "spine"))], interfaces
    assert not processes() and not FOLDER.exists()


def main():
    lab = Lab(os.path.abspath(sys.argv[1]))
    try:
        began = time.monotonic()
        print(lab.up(), f"up after {time.monotonic() - began:.1f} s", sep="")
        lab.send("h1", "h2", "10.0.1.2")
        lab.send("h1", "h12", "10.0.4.3")
        lab.run("lab", "cut", "leaf1-spine1", "--name", NAME)
        lab.await_finding("leaf1:4>spine1:1", True)
        assert lab.run("lab", "graph", "--name", NAME).count("dashed") == 1
        lab.send("h1", "h12", "10.0.4.3")
        lab.run("lab", "restore", "leaf1-spine1", "--name", NAME)
        lab.await_finding("leaf1:4>spine1:1", False)
        jobs = json.loads(lab.run("jobs", "--controller", LISTEN, "--format", "json"))
        assert sorted(job["id"] for job in jobs) == ["bert", "gpt", "gpt-large"], jobs
        # The controller, switches, hosts, the lead: half of all, as a machine that runs out of
        # memory would.
        killed = processes()[::2]
        for process in killed:
            os.kill(process, signal.SIGKILL)
        print(f"killed {len(killed)} programs; {lab.run('lab', 'down', '--name', NAME)}", end="")
        check_nothing_is_left()
        # A start that fails leaves nothing either.
        with socket.create_server(("127.0.0.1", 19562)):
            failed = subprocess.run(
                [lab.crux, "lab", "up", "--name", NAME, "--listen", LISTEN, "--first-port",
                 "19560", "--fabric", str(FABRIC)],
                capture_output=True, text=True,
            )
        assert failed.returncode == 2 and "19562" in failed.stderr, failed
        check_nothing_is_left()
    finally:
        subprocess.run([lab.crux, "lab", "down", "--name", NAME], stdout=subprocess.DEVNULL)
    print("ok")


if __name__ == "__main__":
    main()
