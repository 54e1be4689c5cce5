#!/usr/bin/env python3
"""What a killed controller costs: entries written, flows moved, changes lost, time to verified.

`scripts/measure-restarts.py target/release/crux [--kills 200] [--load 2]` runs five `crux switch`
and a `crux controller` with a store, kills the controller with signal 9 and starts it again, with
as many busy processes beside it. Half of the kills come when all is verified and the plan stored:
the next run must write nothing and move nothing. The others come within 0.4 s of a change of the
policy that was sent: an acknowledged revision must be in force afterwards. Between kills jobs come
and go, so that the paths are not those that a plan from nothing would choose.
"""

import argparse
import json
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

FABRIC = pathlib.Path(__file__).parent.parent / "topology/fabrics/lab.toml"
CONFIG = """[northbound]
listen = "127.0.0.1:{port}"
anyone = true
[store]
path = "{folder}/crux.redb"
"""
JOBS = 8
TIMEOUT_SECONDS = 60
# A search takes less, beside busy processes too.
REST_SECONDS = 2.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Fabric:
    """Switches, documents and the controller of the moment."""

    def __init__(self, folder, crux):
        self.folder, self.crux, self.port = folder, crux, free_port()
        expand = [crux, "fabric", "expand", FABRIC, "--format", "json"]
        fabric = json.loads(subprocess.run(expand, check=True, capture_output=True).stdout)
        self.hosts = [host["name"] for host in fabric["hosts"]]
        self.switches = []
        for number, switch in enumerate(fabric["switches"]):
            address = f"127.0.0.1:{free_port()}"
            switch["p4runtime"] = address
            switch["device_id"] = number + 1
            command = [crux, "switch", "--no-p4", "--device-id", str(number + 1)]
            command += ["--", "--grpc-server-addr", address]
            self.switches.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        (folder / "fabric.json").write_text(json.dumps(fabric))
        (folder / "crux.toml").write_text(CONFIG.format(port=self.port, folder=folder))
        self.write_jobs([])
        self.process = None

    def write_jobs(self, jobs):
        part = self.folder / "jobs.part"
        part.write_text(json.dumps({"jobs": jobs}))
        part.rename(self.folder / "jobs.json")

    def start(self):
        command = [self.crux, "--log", "error", "controller"]
        command += ["--config", self.folder / "crux.toml", "--fabric", self.folder / "fabric.json"]
        command += ["--jobs", self.folder / "jobs.json", "--watch"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ask(self, path, document=None):
        """The JSON of an answer."""
        body = None if document is None else json.dumps(document).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            return json.loads(answer.read())

    def verified(self, jobs):
        """Waits until all switches hold one generation of a plan for these jobs; their rows."""
        ends = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < ends:
            try:
                planned = {job["id"] for job in self.ask("/v1/jobs")}
                switches = self.ask("/v1/switches")
                held = {switch["verified_generation"] for switch in switches}
                if planned == jobs and len(held) == 1 and None not in held:
                    return switches
            except (OSError, urllib.error.URLError):
                pass
            time.sleep(0.02)
        sys.exit(f"not verified within {TIMEOUT_SECONDS} s")

    def paths(self):
        """Path and level of every flow."""
        plan = self.ask("/v1/plan")
        levels = {job["id"]: job["level"] for job in plan["jobs"]}
        return {
            (flow["job"], flow["src"], flow["dst"]): (flow["links"], levels[flow["job"]])
            for flow in plan["flows"]
        }

    def stop(self):
        for process in [self.process, *self.switches]:
            if process is not None:
                process.kill()
                process.wait()


def job(number, hosts, draw):
    """A job on two hosts, of a size that differs from that of others."""
    src, dst = draw.sample(hosts, 2)
    size = 1e9 * draw.uniform(0.5, 4.0)
    flows = [{"src": src, "dst": dst, "bytes": size}, {"src": dst, "dst": src, "bytes": size}]
    return {
        "id": f"job{number}",
        "gpus": {src: 4, dst: 4},
        "flop_per_iteration": 1e15 * draw.uniform(0.1, 2.0),
        "compute_seconds": 0.1,
        "flows": flows,
    }


def await_rest(fabric):
    """Waits until no better plan has come for so long that none is being searched any more."""
    before = None
    while before != (now := fabric.paths()):
        before = now
        time.sleep(REST_SECONDS)
    return now


def kill_at_rest(fabric, jobs, failures):
    """Kills when all is verified and stored; the seconds until the next run has verified all."""
    before = await_rest(fabric)
    fabric.kill()
    begun = time.monotonic()
    fabric.start()
    fabric.verified(jobs)
    took = time.monotonic() - begun
    # A better plan would come now.
    time.sleep(0.3)
    written = sum(switch["entries_written"] for switch in fabric.verified(jobs))
    moved = sum(before[flow] != now for flow, now in fabric.paths().items())
    if written or moved or before.keys() != fabric.paths().keys():
        failures.append(f"at rest: {written} entries written, {moved} flows moved")
    return took


def kill_in_change(fabric, jobs, draw, failures):
    """Kills within 0.4 s of a change of the policy; the seconds until all is verified again."""
    acknowledged = []

    def change():
        edit = {"action": "set", "name": "fairness", "value": f"{draw.random():.3f}"}
        document = {"change": {"edits": [edit]}, "author": "restarts"}
        try:
            acknowledged.append(fabric.ask("/v1/policy/apply", document)["revision"])
        except (OSError, ValueError):
            pass

    changing = threading.Thread(target=change)
    changing.start()
    time.sleep(draw.uniform(0.0, 0.4))
    fabric.kill()
    changing.join()
    begun = time.monotonic()
    fabric.start()
    fabric.verified(jobs)
    took = time.monotonic() - begun
    in_force = fabric.ask("/v1/policy")["number"]
    if acknowledged and in_force < acknowledged[0]:
        failures.append(f"revision {acknowledged[0]} was acknowledged, {in_force} is in force")
    return took, bool(acknowledged)


def measure(fabric, kills, draw):
    """Kills in turn at rest and in a change; returns what was wrong."""
    failures, at_rest, in_change, acknowledged, jobs = [], [], [], 0, {}
    fabric.start()
    for number in range(kills):
        # One job ends and others come, so paths depend on what was planned before.
        if len(jobs) >= JOBS or (jobs and draw.random() < 0.3):
            jobs.pop(draw.choice(sorted(jobs)))
        else:
            new = job(number, fabric.hosts, draw)
            jobs[new["id"]] = new
        fabric.write_jobs(list(jobs.values()))
        fabric.verified(set(jobs))
        if number % 2 == 0:
            at_rest.append(kill_at_rest(fabric, set(jobs), failures))
        else:
            took, was_acknowledged = kill_in_change(fabric, set(jobs), draw, failures)
            in_change.append(took)
            acknowledged += was_acknowledged
        print(f"\r{number + 1} of {kills} kills, {len(failures)} failures", end="", file=sys.stderr)
    print(file=sys.stderr)
    for name, times in (("at rest", at_rest), ("in a change", in_change)):
        if times:
            middle, most = 1e3 * statistics.median(times), 1e3 * max(times)
            print(f"{len(times)} kills {name}: verified after {middle:.0f} ms, at most {most:.0f} ms")
    print(f"{acknowledged} of {len(in_change)} changes were acknowledged before the kill")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("crux")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--load", type=int, default=2, help="busy processes beside it")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.load)]
    with tempfile.TemporaryDirectory() as folder:
        fabric = Fabric(pathlib.Path(folder), arguments.crux)
        try:
            failures = measure(fabric, arguments.kills, random.Random(arguments.seed))
        finally:
            fabric.stop()
            for process in busy:
                process.kill()
    for failure in failures:
        print(failure)
    print(f"{len(failures)} failures")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
