"""Drives `crux switch` with published P4Runtime clients, every entity that they support.

Two programs: our own fabric.p4, and state.p4 of the switch's tests, which has one of everything else
with state. Each client has an environment of its own, since they need different protobufs:

    python3 -m venv SHELL && SHELL/bin/pip install -r scripts/clients/p4runtime-shell.txt
    SHELL/bin/python scripts/check-clients.py target/release/crux
    python3 -m venv FINSY && FINSY/bin/pip install -r scripts/clients/finsy.txt
    FINSY/bin/python scripts/check-clients.py target/release/crux

It takes whichever client is installed, prints what it did, and fails at the first surprise.
"""

import contextlib
import importlib.util
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FABRIC = ROOT / "p4/fabric"
STATE = ROOT / "bmv2-testbed/switch/tests/programs/state"
CLIENTS = {"p4runtime_sh": "with_shell", "finsy": "with_finsy"}

sys.path.insert(0, str(ROOT / "scripts"))


@contextlib.contextmanager
def crux_switch(crux):
    """A switch on a port of its own choice; gives host:port."""
    command = [crux, "switch", "--no-p4", "--device-id", "1"]
    command += ["--grpc-server-addr", "127.0.0.1:0", "--priority-queues", "8"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        yield re.search(r"127\.0\.0\.1:\d+", line).group()
    finally:
        process.terminate()
        if process.wait(10) != 0:
            raise SystemExit("the switch did not end well")


def main():
    installed = [name for name in CLIENTS if importlib.util.find_spec(name)]
    if len(sys.argv) != 2 or not installed:
        raise SystemExit(__doc__)
    for name in installed:
        client = importlib.import_module(f"clients.{CLIENTS[name]}")
        for program, check in ((FABRIC, client.check_fabric), (STATE, client.check_state)):
            p4info, device = f"{program}.p4info.txtpb", f"{program}.json"
            with crux_switch(sys.argv[1]) as address:
                check(address, pathlib.Path(p4info), pathlib.Path(device))
            print(f"{name}: {program.name}.p4 ok")


if __name__ == "__main__":
    main()
