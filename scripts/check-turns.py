"""Two PyTorch jobs that need 102 % of a link take turns on it: DistributedDataParallel over gloo between
two network namespaces, whose cable carries 200 Mbit/s, reported to a controller by an agent.

    sudo /usr/bin/python3 scripts/check-turns.py target/release/crux [SECONDS]

Needs root, iproute2 and PyTorch (Debian's python3-torch). Prints the mean iteration of each job alone,
beside the other, and with can_wait, over SECONDS (60) each after the time that a slot takes to be found;
fails if a job that takes turns computes less than 0.9 of alone. Computation is sleep, 2 % longer or
shorter at random. The fabric document has the rate at which a job alone moves its bytes, which is below
that of the cable: slots last as long as the document says.
"""

import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
PACKAGE = HERE.parent.parent / "controller/agent/python"
SPACES = {"crux-turns-a": "10.9.0.1", "crux-turns-b": "10.9.0.2"}
FABRIC = """name = "turns"
[clos]
leaves = 2
spines = 1
hosts_per_leaf = 2
gpus_per_host = 1
host_gbps = {gbps:.4f}
uplink_gbps = {gbps:.4f}
"""
JOBS = {"one": ("h1", "h3", 29_501), "two": ("h2", "h4", 29_502)}
COMPUTE, BYTES = 0.49, 0.51 * 0.2e9 / 8
# Seconds until a job is profiled, planned and in its slot.
WARM_UP = 45.0
LEAST = 0.9


def train(job, rank, can_wait, seconds, socket):
    """One rank: trains for some time, and rank 0 prints how long each iteration took."""
    sys.path.insert(0, str(PACKAGE))
    import torch
    import torch.distributed as distributed

    from crux_telemetry import torch as hook

    host, peer, port = JOBS[job]
    os.environ |= {"MASTER_ADDR": "10.9.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "veth"}
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(int(BYTES / 4), 1, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gpus, known = {host: 1, peer: 1}, {"can_wait": True} if can_wait else {}
    hook.watch(model, optimizer, job, gpus, to=socket, flop_per_iteration=1e12, **known)
    chance, ends, data = random.Random(rank), [time.time()], torch.ones(1, int(BYTES / 4))
    going = torch.ones(1)
    while going.item() > 0:
        time.sleep(COMPUTE * chance.uniform(0.98, 1.02))
        optimizer.zero_grad()
        model(data).sum().backward()
        optimizer.step()
        ends.append(time.time())
        # Both ranks end with the same iteration.
        going = torch.tensor([1.0 if ends[-1] < ends[0] + WARM_UP + seconds else 0.0])
        distributed.broadcast(going, 0)
    if rank == 0:
        late = [end for end in ends if end > ends[0] + WARM_UP]
        print(json.dumps([after - before for before, after in zip(late, late[1:])]))


def run(*command):
    subprocess.run(command, check=True)


def build_network():
    one, other = SPACES
    for name in SPACES:
        run("ip", "netns", "add", name)
    run("ip", "link", "add", "veth", "netns", one, "type", "veth", "peer", "name", "veth", "netns", other)
    for name, address in SPACES.items():
        inside = ["ip", "netns", "exec", name]
        run(*inside, "ip", "address", "add", f"{address}/24", "dev", "veth")
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "link", "set", "veth", "up")
        rate = ["tbf", "rate", "200mbit", "burst", "64kb", "latency", "100ms"]
        run(*inside, "tc", "qdisc", "add", "dev", "veth", "root", *rate)


def measure(jobs, can_wait, seconds, socket):
    """Trains these jobs beside each other; the iterations of each."""
    running = {}
    for job in jobs:
        for rank, name in enumerate(SPACES):
            command = ["ip", "netns", "exec", name, sys.executable, str(HERE), "--rank"]
            command += [job, str(rank), str(int(can_wait)), str(seconds), socket]
            running[job, rank] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    printed = {key: process.communicate()[0] for key, process in running.items()}
    return {job: json.loads(printed[job, 0].splitlines()[-1]) for job in jobs}


def main(crux, seconds):
    with tempfile.TemporaryDirectory(prefix="crux-turns-") as folder:
        folder = pathlib.Path(folder)
        (folder / "crux.toml").write_text('[northbound]\nlisten = "127.0.0.1:19310"\nanyone = true\n')
        socket = str(folder / "agent.sock")
        log = open(folder / "log", "wb")
        programs = [
            [crux, "controller", "--config", "crux.toml", "--fabric", "fabric.toml"],
            [crux, "agent", "--controller", "127.0.0.1:19310", "--socket", socket, "--host", "h1"],
        ]
        running = []
        try:
            build_network()
            alone = {job: measure([job], False, seconds / 4, socket)[job] for job in JOBS}
            longest = max(statistics.mean(iterations) for iterations in alone.values())
            rate = BYTES * 8 / (longest - COMPUTE) / 1e9
            (folder / "fabric.toml").write_text(FABRIC.format(gbps=rate))
            for program in programs:
                running.append(subprocess.Popen(program, cwd=folder, stdout=log, stderr=log))
                time.sleep(2)
            beside = measure(JOBS, False, seconds, socket)
            turns = measure(JOBS, True, seconds, socket)
        finally:
            for process in running:
                process.send_signal(signal.SIGTERM)
                process.wait()
            for name in SPACES:
                subprocess.run(["ip", "netns", "delete", name], check=False)
    worst = 1.0
    for job in JOBS:
        mean = {name: statistics.mean(of[job]) for name, of in
                (("alone", alone), ("beside", beside), ("turns", turns))}
        share = {name: mean["alone"] / mean[name] for name in ("beside", "turns")}
        worst = min(worst, share["turns"])
        print(f"{job}: alone {mean['alone']:.4f} s; beside the other {mean['beside']:.4f} s "
              f"({share['beside']:.1%}); taking turns {mean['turns']:.4f} s ({share['turns']:.1%})")
    return 0 if worst >= LEAST else 1


if sys.argv[1] == "--rank":
    train(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1", float(sys.argv[5]), sys.argv[6])
else:
    sys.exit(main(os.path.abspath(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 60.0))
