#!/usr/bin/env python3
"""Crux beside a real Slurm: its topology, and jobs that its prologs and epilogs record.

Starts slurmctld and a slurmd for each of 12 hosts on this machine, with the topology that
`crux fabric export slurm` prints, and an agent that announces what the prologs record. Then:

* `scontrol show topology` is the fabric;
* every job is announced with its hosts in less than a second after its prolog began, and ends in
  less than a second after its epilog began;
* an agent and a slurmctld that are killed with signal 9 lose no job;
* with `--source rest`, prologs and epilogs record nothing: all of that holds for what
  `crux jobs slurm sync --rest` reads from slurmrestd, which is killed with slurmctld;
* a job of several hosts runs where `crux place` says, by the example job_submit.lua.

    scripts/check-slurm.py target/release/crux [--jobs 200] [--source rest]

Needs slurmctld, slurmd and scontrol (Debian: slurmctld, slurmd, slurm-client), for `--source rest`
slurmrestd, and root. The controller is not part of it: what the agent would send to one is read
instead.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

FABRIC = pathlib.Path(__file__).parent.parent / "topology/fabrics/lab.toml"
PROGRAMS = ("slurmctld", "slurmd", "scontrol", "sbatch", "sinfo", "squeue")
LIBRARY = pathlib.Path("/usr/lib/x86_64-linux-gnu/slurm-wlm")
HOSTS = 12
LIMIT_SECONDS = 1.0

CONFIGURATION = """ClusterName=crux
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=16817
AuthType=auth/none
AuthInfo=cred_expire=10
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
TopologyPlugin=topology/tree
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=15
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
PrologSlurmctld={folder}/prolog
EpilogSlurmctld={folder}/epilog
NodeName=h[1-{hosts}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[17001-{last}] CPUs=1
PartitionName=all Nodes=ALL Default=YES State=UP
{plugins}"""

# A job that Slurm does not know keeps h1 and h2, which Slurm would give away first.
JOBS = """{"jobs": [{"id": "gpt", "gpus": {"h1": 8, "h2": 8}, "profile": "gpt-24l/A100",
"flows": [{"src": "h1", "dst": "h2", "bytes": 2.4e6}]}]}"""
PLACE = "--fabric {fabric} --jobs {folder}/jobs.json --model gpt-24l/A100 --placement same-leaf"

# When a script began, then what the example scripts of the repository do.
SCRIPT = """#!/bin/sh
date +%s.%N > {folder}/times/$SLURM_JOB_ID.{name}
[ {name} = epilog ] || echo "$SLURM_JOB_NODELIST" > {folder}/times/$SLURM_JOB_ID.hosts
{record}
"""
RECORD = "PATH={binaries}:$PATH CRUX_SPOOL={folder}/spool {script}"


class Cluster:
    """Slurm's daemons and the agent in a folder."""

    def __init__(self, folder, crux, source):
        self.folder, self.crux, self.source, self.processes = folder, crux, source, []
        path = f"{folder}/bin:{os.environ['PATH']}"
        self.environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf", "PATH": path,
                            "CRUX_PLACE_CONF": f"{folder}/place.conf"}
        for name in ("state", "times", "spool", "bin", "rest", *(f"h{n}" for n in range(1, HOSTS + 1))):
            (folder / name).mkdir()
        (folder / "bin/crux").symlink_to(crux)
        scripts = FABRIC.parent.parent.parent / "controller/agent/slurm"
        for name in ("prolog", "epilog"):
            script = shutil.copy(scripts / f"{name}.sh", folder / "bin")
            record = RECORD.format(script=script, folder=folder, binaries=folder / "bin")
            record = record if source == "prolog" else ""
            text = SCRIPT.format(record=record, folder=folder, name=name)
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.has_lua = (LIBRARY / "job_submit_lua.so").exists()
        if self.has_lua:
            shutil.copy(scripts / "job_submit.lua", folder)
            place = PLACE.format(fabric=FABRIC.resolve(), folder=folder)
            (folder / "place.conf").write_text(place + "\n")
            (folder / "jobs.json").write_text(JOBS)
        plugins = "JobSubmitPlugins=lua\n" if self.has_lua else ""
        known = {"hosts": HOSTS, "last": 17000 + HOSTS, "plugins": plugins}
        text = CONFIGURATION.format(folder=folder, **known)
        (folder / "slurm.conf").write_text(text)
        exported = [crux, "fabric", "export", "slurm", FABRIC]
        self.topology = subprocess.run(exported, check=True, capture_output=True, text=True).stdout
        (folder / "topology.conf").write_text(self.topology)
        # By job: when it was announced and with which hosts, and when it ended.
        self.announced, self.ended, self.agent = {}, {}, None

    def spawn(self, *command, log=None, **options):
        output = open(self.folder / log, "a") if log else subprocess.PIPE
        errors = output if log else subprocess.DEVNULL
        process = subprocess.Popen(command, env=self.environment, stdout=output, stderr=errors,
                                   **options)
        self.processes.append(process)
        return process

    def start_controller(self):
        """Starts slurmctld until it stays: after a kill its port is taken for a moment."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            self.controller = self.spawn("slurmctld", "-D", log="slurmctld.log")
            try:
                self.controller.wait(2.0)
            except subprocess.TimeoutExpired:
                return
        log = (self.folder / "slurmctld.log").read_text()[-2000:]
        raise SystemExit(f"slurmctld does not start:\n{log}")

    def start_rest(self):
        """Starts slurmrestd as the user that it wants to be, and what reads from it."""
        (self.folder / "rest").chmod(0o777)
        socket = self.folder / "rest/socket"
        socket.unlink(missing_ok=True)
        plugins = sorted(LIBRARY.glob("openapi_v*.so"))
        plugins = [f"openapi/{path.stem.removeprefix('openapi_').replace('_', '.')}" for path in plugins]
        self.rest = self.spawn("slurmrestd", "-a", "rest_auth/local", "-s", ",".join(plugins),
                               "-u", "slurm", f"unix:{socket}", log="slurmrestd.log")

    def start_sync(self):
        command = (self.crux, "jobs", "slurm", "sync", "--rest", f"unix:{self.folder}/rest/socket",
                   "--every", "0.25", "--gpus-per-host", "8", "--spool", f"{self.folder}/spool")
        self.reader = self.spawn(*command, log="sync.log")

    def start_hosts(self):
        for number in range(1, HOSTS + 1):
            self.spawn("slurmd", "-D", "-N", f"h{number}", log=f"h{number}.log")

    def start_agent(self):
        command = (self.crux, "agent", "--dry-run", "--host", "head", "--spool")
        self.agent = self.spawn(*command, f"{self.folder}/spool", text=True)
        threading.Thread(target=self.read_reports, args=(self.agent,), daemon=True).start()

    def read_reports(self, agent):
        for line in agent.stdout:
            report, now = json.loads(line), time.time()
            if "announcement" in report:
                job = report["announcement"]
                known = (now, sorted(job["gpus"]))
                # A job that Slurm starts anew after a crash may have other hosts; a restarted
                # agent repeats what it finds.
                if self.announced.get(job["job"], (0, None))[1] != known[1]:
                    self.announced[job["job"]] = known
            elif "end" in report and agent.poll() is None:
                self.ended[report["end"]["job"]] = now

    def ask(self, *command):
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return done.stdout

    def wait(self, is_ready, what, seconds=60):
        deadline = time.monotonic() + seconds
        while not is_ready():
            if time.monotonic() > deadline:
                log = (self.folder / "slurmctld.log").read_text()[-1500:]
                jobs = self.ask("squeue")
                raise SystemExit(f"after {seconds} s: {what}\n{jobs}\nslurmctld:\n{log}")
            time.sleep(0.1)

    def wait_idle(self):
        states = lambda: self.ask("sinfo", "--noheader", "--Node", "--format", "%T").split()
        self.wait(lambda: states() == ["idle"] * HOSTS, f"hosts are not idle: {states()}")

    def sync(self):
        """Removes records whose epilog was killed with slurmctld."""
        command = (self.crux, "jobs", "slurm", "sync", "--spool", f"{self.folder}/spool")
        run = lambda: subprocess.run(command, env=self.environment, capture_output=True)
        self.wait(lambda: run().returncode == 0, "squeue does not answer")

    def stop(self):
        for process in self.processes:
            process.kill()


def switches(text, expand):
    """Switches by name, each with the sorted names below it."""
    found = {}
    for line in text.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "SwitchName" in fields and not line.startswith("#"):
            below = fields.get("Switches") or fields["Nodes"]
            found[fields["SwitchName"]] = sorted(expand(below))
    return found


def check_topology(cluster):
    def expand(names):
        return cluster.ask("scontrol", "show", "hostnames", names).split()

    shown = switches(cluster.ask("scontrol", "show", "topology"), expand)
    exported = switches(cluster.topology, expand)
    assert shown == exported, f"scontrol shows {shown}, exported was {exported}"
    print(f"topology: scontrol shows the {len(shown)} switches that were exported")


def run_jobs(cluster, count):
    """Submits jobs of one to three hosts and kills both sides in between."""
    for number in range(count):
        hosts = 1 + number % 3
        cluster.ask("sbatch", f"--nodes={hosts}", "--output=/dev/null", "--wrap", "sleep 2")
    killed = []
    for part in (1, 2):
        ended = lambda: len(list((cluster.folder / "times").glob("*.epilog")))
        cluster.wait(lambda: ended() >= part * count // 3, "too few jobs have ended", 60 + count)
        began = time.time()
        if part == 1:
            kill_reader(cluster)
        else:
            kill_slurm(cluster)
        # What ended just before had no time to be reported.
        killed.append((began - LIMIT_SECONDS, time.time() + 3.0))
    is_empty = lambda: not cluster.ask("squeue", "--noheader").strip()
    # A job that was starting when slurmctld was killed is queued again after cred_expire seconds.
    cluster.wait(is_empty, "not every job has ended", 300 + count)
    time.sleep(1.5)
    cluster.sync()
    return killed


def kill_reader(cluster):
    cluster.agent.send_signal(signal.SIGKILL)
    if cluster.source == "rest":
        cluster.reader.send_signal(signal.SIGKILL)
    time.sleep(0.3)
    cluster.start_agent()
    if cluster.source == "rest":
        cluster.start_sync()


def kill_slurm(cluster):
    if cluster.source == "rest":
        cluster.rest.send_signal(signal.SIGKILL)
        cluster.rest.wait()
    cluster.controller.send_signal(signal.SIGKILL)
    cluster.controller.wait()
    cluster.start_controller()
    if cluster.source == "rest":
        cluster.start_rest()
    cluster.sync()


def check_placement(cluster):
    """The hosts of a job are those that `crux place` names before it is submitted."""
    if not cluster.has_lua:
        print("placement: left out, Slurm has no job_submit/lua")
        return
    place = (cluster.folder / "place.conf").read_text().split()
    ask = lambda *command: cluster.ask(*command).strip()
    advice = ask(cluster.crux, "place", *place, "--gpus", "16", "--nodelist")
    job = ask("sbatch", "--parsable", "--nodes=2", "--output=/dev/null", "--wrap", "sleep 1")
    shown = lambda: dict(word.split("=", 1) for word in ask("scontrol", "show", "job", job).split()
                         if "=" in word)
    cluster.wait(lambda: shown()["JobState"] == "RUNNING", "the job does not run")
    hosts = shown()["NodeList"]
    assert advice not in ("", "h[1-2]"), f"crux place says {advice}"
    assert hosts == advice, f"crux place says {advice}, the job runs on {hosts}"
    cluster.wait(lambda: not ask("squeue", "--noheader"), "the job has not ended")
    cluster.wait_idle()
    # It is none of the jobs that are counted below.
    time.sleep(LIMIT_SECONDS)
    cluster.announced.clear()
    cluster.ended.clear()
    for path in (cluster.folder / "times").iterdir():
        path.unlink()
    print(f"placement: job_submit.lua gave a job of two hosts {hosts}, as crux place says")


def check_jobs(cluster, count, killed):
    """Latencies of jobs that began or ended while nothing was killed; hosts of all."""
    times, starts, ends, unseen = cluster.folder / "times", [], [], []
    for path in times.glob("*.prolog"):
        number = path.stem
        job, hosts = f"slurm-{number}", (times / f"{number}.hosts").read_text().strip()
        began, (down, up) = float(path.read_text()), killed[-1]
        if cluster.source == "rest" and job not in cluster.announced and down <= began <= up:
            unseen.append(job)
            continue
        assert job in cluster.announced, f"{job} was never announced"
        announced, known = cluster.announced[job]
        actual = sorted(cluster.ask("scontrol", "show", "hostnames", hosts).split())
        assert known == actual, f"{job} runs on {actual}, announced were {known}"
        # An epilog that was killed with slurmctld has no time.
        ended = times / f"{number}.epilog"
        ended = float((ended.exists() and ended.read_text()) or killed[-1][0])
        quiet = lambda at: not any(first <= at <= last for first, last in killed)
        if quiet(began):
            starts.append(announced - began)
        if quiet(ended):
            assert job in cluster.ended, f"the end of {job} was never reported"
            ends.append(cluster.ended[job] - ended)
    left = list((cluster.folder / "spool").glob("*.json"))
    assert not left, f"records of ended jobs are left: {left}"
    known = len(cluster.announced) + len(unseen)
    assert known == count, f"{len(cluster.announced)} jobs were announced"
    if unseen:
        print(f"began and ended around the kill of slurmctld and slurmrestd, unseen: {unseen}")
    for what, seconds in (("announced", starts), ("ended", ends)):
        seconds.sort()
        median, most = seconds[len(seconds) // 2], seconds[-1]
        print(f"{what}: {len(seconds)} jobs, median {median:.3f} s, at most {most:.3f} s")
        assert most < LIMIT_SECONDS, f"{what} after {most:.3f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("crux", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--source", choices=("prolog", "rest"), default="prolog")
    arguments = parser.parse_args()
    programs = (*PROGRAMS, *(["slurmrestd"] if arguments.source == "rest" else []))
    missing = [name for name in programs if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        print(f"left out: {', '.join(missing) or 'not root'}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder).chmod(0o755)
        cluster = Cluster(pathlib.Path(folder), arguments.crux.resolve(), arguments.source)
        try:
            cluster.start_controller()
            cluster.start_hosts()
            cluster.start_agent()
            if arguments.source == "rest":
                cluster.start_rest()
                cluster.start_sync()
            cluster.wait_idle()
            check_topology(cluster)
            check_placement(cluster)
            killed = run_jobs(cluster, arguments.jobs)
            check_jobs(cluster, arguments.jobs, killed)
        finally:
            cluster.stop()
    print("ok")


if __name__ == "__main__":
    sys.exit(main())
