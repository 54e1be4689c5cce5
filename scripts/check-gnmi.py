"""Subscribes to `crux switch` with a published gNMI client, and counts what it misses.

A switch gets one end of a veth pair, so that its port can be taken down and up, which needs
CAP_NET_ADMIN. For SECONDS (10 unless told otherwise) the client receives samples of counters every
half second and the state of the port whenever it changes, which is once a second. Each change must
arrive, in order, and no two samples may be more than two seconds apart.

    python3 -m venv VENV && VENV/bin/pip install -r scripts/clients/pygnmi.txt
    VENV/bin/python scripts/check-gnmi.py target/release/crux [SECONDS]
"""

import contextlib
import os
import re
import statistics
import subprocess
import sys
import time

from pygnmi.client import gNMIclient

STATE = "/interfaces/interface/state/oper-status"
COUNTERS = "/interfaces/interface/state/counters"
GAP_MAX = 2.0


@contextlib.contextmanager
def veth_pair():
    names = [f"gc{os.getpid()}{end}" for end in "ab"]
    ip("link", "add", names[0], "type", "veth", "peer", "name", names[1])
    try:
        for name in names:
            ip("link", "set", name, "up")
        yield names
    finally:
        ip("link", "del", names[0])


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


@contextlib.contextmanager
def crux_switch(crux, interface):
    """A switch with one port; gives host and port of its gNMI server."""
    command = [crux, "switch", "--no-p4", "--device-id", "1", "-i", f"1@{interface}"]
    command += ["--dialect", "pins", "--port-name", "1=Ethernet0"]
    command += ["--grpc-server-addr", "127.0.0.1:0", "--gnmi", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        line = process.stdout.readline()
        host, port = re.search(r"(127\.0\.0\.1):(\d+)", line).groups()
        yield host, int(port)
    finally:
        process.terminate()
        if process.wait(10) != 0:
            raise SystemExit("the switch did not end well")


def values(answer):
    """Path and value of each update of an answer."""
    update = answer.get("update", {})
    prefix = update.get("prefix") or ""
    return [(f"{prefix}/{leaf['path']}", leaf["val"]) for leaf in update.get("update", [])]


def check_reads(client):
    capabilities = client.capabilities()
    assert capabilities["gnmi_version"] == "0.8.0", capabilities
    answer = client.get(path=["/interfaces/interface/state/id"], encoding="json_ietf")
    leaf = answer["notification"][0]["update"][0]
    assert leaf["path"] == "interfaces/interface[name=Ethernet0]/state/id", leaf
    assert str(leaf["val"]) == "1", leaf
    once = {"subscription": [{"path": STATE}], "mode": "once", "encoding": "json_ietf"}
    answers = list(client.subscribe2(subscribe=once))
    assert values(answers[0])[0][1] == "UP", answers


def check_stream(client, far_end, seconds):
    """What the client receives while the far end goes down and up."""
    subscription = [
        {"path": STATE, "mode": "on_change"},
        {"path": COUNTERS, "mode": "sample", "sample_interval": 500_000_000},
    ]
    stream = {"subscription": subscription, "mode": "stream", "encoding": "json_ietf"}
    subscriber = client.subscribe2(subscribe=stream)
    first = subscriber.get_update(5)
    assert any(path.endswith("oper-status") for path, _ in values(first)), first
    ends = time.monotonic() + seconds
    sampled, gaps, delays = time.monotonic(), [], []
    next_change, expected, changed = time.monotonic() + 1, None, None
    state = "UP"
    while time.monotonic() < ends or expected:
        now = time.monotonic()
        if expected is None and now >= next_change:
            expected = "DOWN" if state == "UP" else "UP"
            changed, next_change = now, now + 1
            ip("link", "set", far_end, expected.lower())
        if changed and expected and now - changed > GAP_MAX:
            raise SystemExit(f"{expected} did not arrive within {GAP_MAX} s")
        try:
            answer = subscriber.get_update(0.05)
        except TimeoutError:
            continue
        found = values(answer)
        for path, value in found:
            if path.endswith("oper-status"):
                if value != expected:
                    raise SystemExit(f"{value} arrived, {expected} was due")
                delays.append(time.monotonic() - changed)
                state, expected = value, None
        if any("counters" in path for path, _ in found):
            gaps.append(time.monotonic() - sampled)
            sampled = time.monotonic()
    subscriber.close()
    if not gaps or max(gaps) > GAP_MAX:
        raise SystemExit(f"a gap of {max(gaps, default=seconds):.2f} s between samples")
    print(
        f"pygnmi: {seconds} s, {len(delays)} changes of a port, all received, the median after "
        f"{1000 * statistics.median(delays):.1f} ms; {len(gaps)} samples, at most "
        f"{max(gaps):.2f} s apart"
    )


def main():
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    seconds = float(sys.argv[2]) if len(sys.argv) == 3 else 10.0
    with veth_pair() as (near, far), crux_switch(sys.argv[1], near) as address:
        with gNMIclient(target=address, insecure=True) as client:
            check_reads(client)
            check_stream(client, far, seconds)


if __name__ == "__main__":
    main()
