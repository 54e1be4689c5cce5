"""Upgrades the controllers of a lab under traffic, from one version to another, led through etcd: the
old one leads, a new one stands by, the old one ends, the new one leads, and a second new one takes
the old one's place. From then on no packet may be lost, and no switch may be written to, except once
where the new version is known to lower plans to other rows (--other-rows). Needs root, iproute2 and
etcd.

    sudo python3 scripts/check-upgrade.py OLD-CRUX target/release/crux
"""

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parent.parent
FABRIC = TREE / "topology/fabrics/lab.toml"
JOBS = TREE / "controller/cli/examples/jobs.toml"
JOB_NAMES = ["bert", "gpt", "gpt-large"]
NAME, FIRST, SECOND = "check_upgrade", "127.0.0.1:19300", "127.0.0.1:19301"
FOLDER = pathlib.Path("/run/crux-lab") / NAME
ETCD, ETCD_PEER = "127.0.0.1:19379", "127.0.0.1:19380"
# Hosts that send to addresses on other leaves, a packet every 5 ms.
PAIRS = [("h1", "10.0.4.3"), ("h5", "10.0.1.2"), ("h9", "10.0.2.1"), ("h12", "10.0.3.2")]
PERIOD, COUNT = 0.005, 5000
PATIENCE = 60


def wait_until(holds, describe):
    """Waits until this is so; how long."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < PATIENCE, describe()
        time.sleep(0.05)
    return time.monotonic() - began


class Versions:
    """The lab of the new version, and controllers of either."""

    def __init__(self, new, folder):
        self.new, self.folder = new, pathlib.Path(folder)
        self.started = []

    def run(self, *words):
        done = subprocess.run([self.new, *words], capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def up(self):
        words = ["--name", NAME, "--listen", FIRST, "--first-port", "19560"]
        self.run("lab", "up", *words, "--fabric", str(FABRIC), "--jobs", str(JOBS))
        mark = f"controller --carriers --config {FOLDER}"
        subprocess.run(["pkill", "-f", mark], check=True)
        found = ["pgrep", "-f", mark]
        has_ended = lambda: subprocess.run(found, stdout=subprocess.DEVNULL).returncode != 0
        wait_until(has_ended, lambda: "the lab's own controller does not end")

    def start_etcd(self):
        client, peer = f"http://{ETCD}", f"http://{ETCD_PEER}"
        command = ["etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", client]
        command += ["--advertise-client-urls", client, "--listen-peer-urls", peer]
        command += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        log = open(self.folder / "etcd.log", "w")
        self.started.append(subprocess.Popen(command, stdout=log, stderr=log))

    def start_controller(self, crux, number, listen):
        """A controller that is led through etcd."""
        config = self.folder / f"controller-{number}.toml"
        config.write_text(
            f'[northbound]\nlisten = "{listen}"\n[election]\ncontroller = {number}\n'
            f'[etcd]\nendpoints = ["{ETCD}"]\n'
        )
        log = open(self.folder / f"controller-{number}.log", "w")
        words = ["--log", "info", "controller", "--carriers", "--config", str(config)]
        words += ["--fabric", str(FOLDER / "fabric.json")]
        self.started.append(subprocess.Popen([crux, *words], stdout=log, stderr=log))
        return self.started[-1]

    def ask(self, listen, *words):
        done = subprocess.run(
            [self.new, *words, "--controller", listen, "--format", "json"],
            capture_output=True, text=True,
        )
        return json.loads(done.stdout) if done.stdout else {"error": done.stderr}

    def leads(self, listen, number):
        """Whether this controller leads all switches, which hold its tables."""
        cluster, switches = self.ask(listen, "cluster", "show"), self.ask(listen, "switches")
        leads = cluster.get("leads") and cluster["controller"] == number
        return leads and all(line["verified_entries"] is not None for line in switches)

    def await_leader(self, listen, number):
        state = lambda: f"{listen} does not lead: {self.ask(listen, 'cluster', 'show')}"
        return wait_until(lambda: self.leads(listen, number), state)

    def await_standby(self, listen, leader):
        """Waits until a controller knows the leader, and the jobs of its plan."""
        seen = lambda: self.ask(listen, "cluster", "show")
        wait_until(lambda: seen().get("leader") == leader, lambda: f"{listen}: {seen()}")
        self.await_jobs(listen)

    def job_names(self, listen):
        jobs = self.ask(listen, "jobs")
        return sorted(job["id"] for job in jobs) if "error" not in jobs else []

    def await_jobs(self, listen):
        names = lambda: self.job_names(listen)
        wait_until(lambda: names() == JOB_NAMES, lambda: f"{listen}: {names()}")

    def check_written(self, listen, allowed=0):
        """The controller has written so many entries at most, and all jobs are there; how many."""
        written = {line["name"]: line["entries_written"] for line in self.ask(listen, "switches")}
        assert sum(written.values()) <= allowed, f"{listen} has written {written}"
        assert self.job_names(listen) == JOB_NAMES, f"{listen}: {self.job_names(listen)}"
        return sum(written.values())

    def end(self):
        # etcd last: members leave it.
        for program in reversed(self.started):
            program.terminate()
            program.wait()
        subprocess.run([self.new, "lab", "down", "--name", NAME], stdout=subprocess.DEVNULL)


def start_pings(crux):
    def ping(host, address):
        words = [crux, "lab", "shell", host, "--name", NAME, "--", "ping", "-q"]
        words += ["-i", str(PERIOD), "-c", str(COUNT), "-W", "2", address]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    return [ping(*pair) for pair in PAIRS]


def count_pings(pings):
    """Packets sent and answered."""
    sent = answered = 0
    for ping in pings:
        report, _ = ping.communicate(timeout=3 * PATIENCE)
        counts = re.search(r"(\d+) packets transmitted, (\d+) received", report)
        sent += int(counts[1])
        answered += int(counts[2])
    return sent, answered


def main():
    parser = argparse.ArgumentParser(description="Upgrade the controllers of a lab under traffic.")
    parser.add_argument("old", metavar="OLD-CRUX", help="the program that leads at first")
    parser.add_argument("new", metavar="NEW-CRUX", help="the program that takes over")
    parser.add_argument("--other-rows", action="store_true",
                        help="the new program lowers plans to other rows and may write them once")
    args = parser.parse_args()
    old, new = os.path.abspath(args.old), os.path.abspath(args.new)
    with tempfile.TemporaryDirectory() as folder:
        lab = Versions(new, folder)
        try:
            lab.up()
            lab.start_etcd()
            leader = lab.start_controller(old, 1, FIRST)
            lab.await_jobs(FIRST)
            lab.await_leader(FIRST, 1)
            pings = start_pings(new)
            lab.start_controller(new, 2, SECOND)
            lab.await_standby(SECOND, 1)
            leader.terminate()
            print(f"the new version leads after {lab.await_leader(SECOND, 2):.1f} s")
            written = lab.check_written(SECOND, math.inf if args.other_rows else 0)
            # Reporters of jobs know the old one's address.
            lab.start_controller(new, 3, FIRST)
            lab.await_standby(FIRST, 2)
            lab.run("cluster", "step-down", "--controller", SECOND, "--reason", "upgrade")
            print(f"in the old one's place after {lab.await_leader(FIRST, 3):.1f} s")
            sent, answered = count_pings(pings)
            lab.check_written(FIRST)
            lab.check_written(SECOND, written)
            print(f"{sent} packets sent, {answered} answered; {written} entries written")
            assert sent == answered, "packets were lost"
        finally:
            lab.end()
    print("ok")


if __name__ == "__main__":
    main()
