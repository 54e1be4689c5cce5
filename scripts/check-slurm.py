#!/usr/bin/env python3
"""Crux beside a real Slurm: its topology, and jobs that its prologs and epilogs record.

Starts slurmctld and a slurmd for each of 12 hosts on this machine, with the topology that
`crux fabric export slurm` prints, a `crux switch` for each switch of the fabric, a controller, and
an agent that announces what the prologs record. Then, by what the controller answers:

* `scontrol show topology` is the fabric;
* every job is known with its NICs in less than a second after its prolog began, and gone in less
  than a second after its epilog began;
* an agent, a slurmctld and a controller that are killed with signal 9 lose no job;
* with `--source rest`, prologs and epilogs record nothing: all of that holds for what
  `crux jobs slurm sync --rest` reads from slurmrestd, which is killed with slurmctld;
* a job of several hosts runs where `crux place` says, by the example job_submit.lua.

It prints as well when all switches held the tables with a job's NICs.

    scripts/check-slurm.py target/release/crux [--jobs 200] [--source rest]

Needs slurmctld, slurmd and scontrol (Debian: slurmctld, slurmd, slurm-client), for `--source rest`
slurmrestd, and root.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

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

# One client asks for the plan fifty times a second.
CONTROLLER = """[northbound]
listen = "127.0.0.1:{port}"
anyone = true
requests_per_second = 1000
[store]
path = "{folder}/crux.redb"
"""
ASK_SECONDS = 0.02

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


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Controller:
    """A controller with switches of its own, and what it says of jobs.

    A thread asks for the plan all the time. By job of Slurm: `known`, when it was first in the plan
    with all its NICs, and these; `held`, when all switches were verified to hold that; `gone`, when
    it was no longer in the plan; `returned`, those that were in the plan again after that.
    """

    def __init__(self, folder, crux):
        self.folder, self.crux, self.port = folder, crux, free_port()
        expand = [crux, "fabric", "expand", FABRIC, "--format", "json"]
        fabric = json.loads(subprocess.run(expand, check=True, capture_output=True).stdout)
        self.processes = []
        for number, switch in enumerate(fabric["switches"], 1):
            address = f"127.0.0.1:{free_port()}"
            switch |= {"p4runtime": address, "device_id": number}
            command = [crux, "switch", "--no-p4", "--device-id", str(number)]
            command += ["--", "--grpc-server-addr", address]
            self.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        (folder / "fabric.json").write_text(json.dumps(fabric))
        (folder / "crux.toml").write_text(CONTROLLER.format(port=self.port, folder=folder))
        self.process, self.is_stopped = None, False
        self.forget()
        self.start()
        threading.Thread(target=self.follow, daemon=True).start()

    def start(self):
        command = [self.crux, "--log", "warn", "controller", "--config", self.folder / "crux.toml"]
        command += ["--fabric", self.folder / "fabric.json"]
        with open(self.folder / "controller.log", "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def follow(self):
        while not self.is_stopped:
            try:
                plan, now = self.ask("/v1/plan"), time.time()
                self.follow_plan(plan, now)
                if self.known.keys() - self.held.keys() - self.gone.keys():
                    self.follow_tables()
            except OSError:
                pass
            time.sleep(ASK_SECONDS)

    def follow_tables(self):
        """A job in the plan is in the tables of that generation or an earlier one."""
        generation = self.ask("/v1/link-loads")["generation"]
        for job in self.known:
            self.needed.setdefault(job, generation)
        switches, now = self.ask("/v1/switches"), time.time()
        held = min(switch["verified_generation"] or 0 for switch in switches)
        for job in self.known.keys() - self.held.keys():
            if held >= self.needed[job]:
                self.held[job] = now

    def follow_plan(self, plan, now):
        nics = {job["id"]: set() for job in plan["jobs"]}
        for flow in plan["flows"]:
            nics[flow["job"]] |= {(flow[end], flow[f"{end}_nic"]) for end in ("src", "dst")}
        for job, ends in nics.items():
            # Slurm starts a job anew after a crash, perhaps on other hosts.
            if self.known.get(job, (0, None))[1] != ends or job in self.gone:
                self.known[job] = (now, ends)
                self.needed.pop(job, None), self.held.pop(job, None)
            if self.gone.pop(job, None):
                self.returned.add(job)
        for job in self.known.keys() - nics.keys() - self.gone.keys():
            self.gone[job] = now

    def ask(self, path):
        url = f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.loads(answer.read())

    def forget(self):
        self.known, self.held, self.gone, self.needed, self.returned = {}, {}, {}, {}, set()

    def stop(self):
        self.is_stopped = True
        for process in (self.process, *self.processes):
            process.kill()
            process.wait()


class Cluster:
    """Slurm's daemons, the controller and the agent in a folder."""

    def __init__(self, folder, crux, source):
        self.folder, self.crux, self.source, self.processes = folder, crux, source, []
        path = f"{folder}/bin:{os.environ['PATH']}"
        self.environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf", "PATH": path,
                            "CRUX_PLACE_CONF": f"{folder}/place.conf"}
        hosts = [f"h{n}" for n in range(1, HOSTS + 1)]
        for name in ("state", "times", "spool", "bin", "rest", *hosts):
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
        self.crux_controller, self.agent = Controller(folder, crux), None

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
        versions = [path.stem.removeprefix("openapi_").replace("_", ".") for path in plugins]
        plugins = [f"openapi/{version}" for version in versions]
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
        address = f"127.0.0.1:{self.crux_controller.port}"
        command = (self.crux, "agent", "--controller", address, "--host", "head")
        self.agent = self.spawn(*command, "--spool", f"{self.folder}/spool", log="agent.log")

    def ask(self, *command):
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return done.stdout

    def wait(self, is_ready, what, seconds=60):
        deadline = time.monotonic() + seconds
        while not is_ready():
            if time.monotonic() > deadline:
                log = (self.folder / "slurmctld.log").read_text()[-1500:]
                jobs = self.ask("squeue")[-1500:]
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
        self.crux_controller.stop()
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
    """Submits jobs of two or three hosts and kills all sides in between. One runs all the while."""
    sbatch = ("sbatch", "--parsable", "--output=/dev/null")
    submit = lambda hosts, seconds: cluster.ask(
        *sbatch, f"--nodes={hosts}", "--wrap", f"sleep {seconds}"
    ).strip()
    known, lasting = cluster.crux_controller, submit(2, 3600)
    cluster.wait(lambda: f"slurm-{lasting}" in known.known, "no job is known")
    for number in range(count - 1):
        submit(2 + number % 2, 2)
    killed = []
    for part, kill in enumerate((kill_reader, kill_controller, kill_slurm), 1):
        ended = lambda: len(list((cluster.folder / "times").glob("*.epilog")))
        cluster.wait(lambda: ended() >= part * count // 4, "too few jobs have ended", 60 + count)
        began = time.time()
        kill(cluster)
        # What ended just before had no time to be reported.
        killed.append((began - LIMIT_SECONDS, time.time() + 3.0))
    def left():
        rows = cluster.ask("squeue", "--noheader", "--format", "%i %r").splitlines()
        jobs = [row.split(maxsplit=1) for row in rows]
        # Slurm holds a job whose launch failed as slurmctld was killed.
        for job in (job for job, reason in jobs if "held" in reason):
            cluster.ask("scontrol", "release", job)
        return [job for job, _ in jobs]

    # A job that was starting when slurmctld was killed is queued again after cred_expire seconds.
    cluster.wait(lambda: left() == [lasting], "not every job has ended", 300 + count)
    is_alone = lambda: len(known.known) - len(known.gone) == 1
    cluster.wait(is_alone, "jobs are left at the controller", 15)
    was_away = f"slurm-{lasting}" in known.returned | known.gone.keys()
    assert not was_away, f"slurm-{lasting} was not in the plan for a while"
    print("kill -9 of every side: the job that ran all the while was always in the plan")
    cluster.ask("scancel", lasting)
    cluster.wait(lambda: not left(), "the last job has not ended")
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


def kill_controller(cluster):
    cluster.crux_controller.kill()
    time.sleep(0.3)
    cluster.crux_controller.start()


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
    # Those that are counted below run where Slurm says, and this one is none of them.
    (cluster.folder / "place.conf").unlink()
    time.sleep(LIMIT_SECONDS)
    cluster.crux_controller.forget()
    for path in (cluster.folder / "times").iterdir():
        path.unlink()
    print(f"placement: job_submit.lua gave a job of two hosts {hosts}, as crux place says")


def check_jobs(cluster, count, killed):
    """Latencies of jobs that began or ended while nothing was killed; NICs of all."""
    times, controller, unseen = cluster.folder / "times", cluster.crux_controller, []
    seconds = {"known with its NICs": [], "in the tables of all switches": [], "gone": []}
    known, held, gone = seconds.values()
    quiet = lambda at: not any(first <= at <= last for first, last in killed)
    for path in times.glob("*.prolog"):
        number = path.stem
        job, hosts = f"slurm-{number}", (times / f"{number}.hosts").read_text().strip()
        began, (down, up) = float(path.read_text()), killed[-1]
        if cluster.source == "rest" and job not in controller.known and down <= began <= up:
            unseen.append(job)
            continue
        assert job in controller.known, f"{job} was never known"
        first, nics = controller.known[job]
        actual = set(cluster.ask("scontrol", "show", "hostnames", hosts).split())
        assert nics == {(host, 0) for host in actual}, f"{job} runs on {actual}, known were {nics}"
        # An epilog that was killed with slurmctld has no time.
        ended = times / f"{number}.epilog"
        ended = float((ended.exists() and ended.read_text()) or down)
        if quiet(began):
            known.append(first - began)
            held += [controller.held[job] - began] if job in controller.held else []
        if quiet(ended):
            gone.append(controller.gone[job] - ended)
    left = list((cluster.folder / "spool").glob("*.json"))
    assert not left, f"records of ended jobs are left: {left}"
    assert len(controller.known) + len(unseen) == count, f"{len(controller.known)} jobs were known"
    if unseen:
        print(f"began and ended around the kill of slurmctld and slurmrestd, unseen: {unseen}")
    for what, measured in seconds.items():
        measured.sort()
        median, most = measured[len(measured) // 2], measured[-1]
        print(f"{what}: {len(measured)} jobs, median {median:.3f} s, at most {most:.3f} s")
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
