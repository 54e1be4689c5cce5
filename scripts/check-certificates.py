"""A controller and its switches a year after `crux init`: certificates that end are findings, and those
that are renewed are used without a lost session. The clock of the processes is moved by libfaketime
(Debian: faketime).

    python3 scripts/check-certificates.py target/release/crux
"""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parent.parent
FABRIC = TREE / "scripts/packaging/examples/local.toml"
SWITCHES = {"leaf1": 1, "leaf2": 2, "spine1": 11}
PATIENCE = 90


def find_library():
    """The library that moves clocks."""
    for folder in pathlib.Path("/usr/lib").glob("*/faketime"):
        return folder / "libfaketimeMT.so.1"
    raise SystemExit("no libfaketime: install the package faketime")


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


class MovedClock:
    """Processes whose clock is so many days ahead."""

    def __init__(self, crux, folder):
        self.crux, self.folder = pathlib.Path(crux).resolve(), pathlib.Path(folder)
        self.clock = self.folder / "clock"
        self.environment = os.environ | {
            "LD_PRELOAD": str(find_library()),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.started = []

    def move(self, days):
        self.clock.write_text(f"+{days}d\n")

    def start(self, program, *words):
        log = open(self.folder / f"{len(self.started)}.log", "w")
        words = [str(self.crux.with_name(program)), *map(str, words)]
        self.started.append(subprocess.Popen(words, env=self.environment, stdout=log, stderr=log))

    def ask(self, *words):
        """What `crux` prints; doctor fails where it finds something."""
        done = subprocess.run(
            [self.crux, *map(str, words)], env=self.environment, capture_output=True, text=True
        )
        return done.stdout + done.stderr

    def end(self):
        for process in self.started:
            process.terminate()
        for process in self.started:
            process.wait()


def wait_for(text, ask):
    began = time.monotonic()
    while not re.search(text, said := ask()):
        assert time.monotonic() - began < PATIENCE, f"{text} is not in:\n{said}"
        time.sleep(0.5)
    return said


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        world = MovedClock(sys.argv[1], folder)
        try:
            check(world, pathlib.Path(folder))
        finally:
            world.end()


def check(world, folder):
    listen, *ports = free_ports(1 + len(SWITCHES))
    fabric, identity = folder / "fabric.toml", folder / "id"
    text = FABRIC.read_text()
    for had, port in zip(("9559", "9560", "9561"), ports):
        text = text.replace(had, str(port))
    fabric.write_text(text)
    world.move(0)
    world.ask("init", "--folder", identity, "--fabric", fabric, "--listen", f"127.0.0.1:{listen}")
    for (name, device), port in zip(SWITCHES.items(), ports):
        world.start(
            "crux-switch", "--no-p4", "--device-id", device, "--priority-queues", 8,
            "--grpc-server-addr", f"127.0.0.1:{port}", "--grpc-server-ssl",
            "--grpc-server-cert", identity / f"switch-{name}.pem",
            "--grpc-server-key", identity / f"switch-{name}.key.pem",
            "--grpc-server-cacert", identity / "ca.pem", "--grpc-server-with-client-auth",
            "--allow-role", "=controller.crux",
        )
    # Certificates end from day 336 on, each on a day of its own. A controller counts days from its
    # start, whatever becomes of the clock of the machine.
    world.move(333)
    world.start("crux", "controller", "--config", identity / "controller.toml", "--fabric", fabric)
    client = ["--controller", f"127.0.0.1:{listen}", "--ca", identity / "ca.pem",
              "--token-file", identity / "operator.token"]
    said = wait_for("crux cert renew", lambda: world.ask("doctor", *client))
    print(f"day 333: {said.splitlines()[0]}")
    world.ask("cert", "renew", "--folder", identity)
    wait_for("no problems found", lambda: world.ask("doctor", *client))
    print("renewed: no problems found")

    world.move(366)
    time.sleep(15)
    after = world.ask("switches", *client)
    assert len(re.findall(r"up +primary", after)) == len(SWITCHES), after
    ended = [event for event in world.ask("events", *client).splitlines() if "is down" in event]
    assert not ended, "\n".join(ended)
    print("day 366: no session was lost")


if __name__ == "__main__":
    main()
