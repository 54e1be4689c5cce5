"""Upgrades the controllers of a lab under traffic, from one version to another: the old one leads, a
new one follows, the old one ends, the new one leads, and a second new one takes the old one's place.
From then on no packet may be lost, and no switch may be written to, except once where the new
version is known to lower plans to other rows (--other-rows). Needs root and iproute2.

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
# The token of this machine, which controllers without tokens of their own have.
STATE = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
TOKEN = pathlib.Path(STATE) / "crux/token"
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

    def start_controller(self, crux, number, listen, other=None):
        """A controller with a store of its own."""
        follow = f'[follow]\nmembers = ["{other}"]\ntoken = "{TOKEN}"\n' if other else ""
        config = self.folder / f"controller-{number}.toml"
        config.write_text(
            f'[northbound]\nlisten = "{listen}"\n[election]\ncontroller = {number}\n{follow}'
            f'[store]\npath = "{self.folder}/{number}.db"\n'
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

    def await_follower(self, listen, leader):
        followed = lambda: (self.ask(listen, "cluster", "show").get("follows") or {}).get("address")
        wait_until(lambda: followed() == leader, lambda: f"{listen} follows {followed()}")

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
        for program in self.started:
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
            leader = lab.start_controller(old, 1, FIRST)
            lab.await_jobs(FIRST)
            lab.await_leader(FIRST, 1)
            pings = start_pings(new)
            lab.start_controller(new, 2, SECOND, FIRST)
            lab.await_follower(SECOND, FIRST)
            leader.terminate()
            print(f"the new version leads after {lab.await_leader(SECOND, 2):.1f} s")
            written = lab.check_written(SECOND, math.inf if args.other_rows else 0)
            # Whoever reports jobs knows the old one's address.
            lab.start_controller(new, 3, FIRST, SECOND)
            lab.await_follower(FIRST, SECOND)
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
