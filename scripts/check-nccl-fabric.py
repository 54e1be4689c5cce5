#!/usr/bin/env python3
"""Two jobs of NCCL in an emulated fabric, under ECMP and under Crux.

`crux lab` makes the fabric: hosts as network namespaces, switches, a controller. Two jobs of
PyTorch, each a ring over two hosts of either leaf, run in the namespaces of their hosts; all ranks
share one GPU. What a host sends goes through a tunnel to UDP port 4791 whose source port follows
from the TCP connection (VXLAN), so that the switches see a connection of NCCL as they see one of
RoCEv2. Both jobs compete for the two spines. Rounds, each with new communicators, so new ports:

* each job alone;
* both, while nobody reports them: ECMP;
* both, while agents report to the controller what the NCCL plugins say: Crux.

It checks that the jobs become known with their hosts, that the controller learns the connections
that are on the wire and gives them to their jobs, and that links carry what the plan says; and it
prints the time of an iteration in each round.

    sudo scripts/check-nccl-fabric.py crux libnccl_profiler_crux.so [--gbps 0.2] [--folder out]

Needs root, iproute2 and a GPU. With --gloo, ranks use gloo on the CPU, and the Python package
reports instead of the plugin.
"""

import argparse
import contextlib
import json
import os
import pathlib
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

TREE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE / "scripts/nccl"))
import gang  # noqa: E402

LAB, LISTEN, FIRST_PORT = "nccl", "127.0.0.1:19400", "19660"
LAB_FOLDER = pathlib.Path("/run/crux-lab") / LAB
LINK_GBPS = 100.0
FABRIC = f"""name = "two-leaves"
[clos]
leaves = 2
spines = 2
hosts_per_leaf = 4
gpus_per_host = 1
host_gbps = {LINK_GBPS}
uplink_gbps = {LINK_GBPS}
"""
CONTROLLER = f"""[northbound]
listen = "{LISTEN}"
anyone = true
[learning]
enabled = true
refresh_ms = 1000
expire_ms = 6000
"""
# Hosts 1 to 4 are at one leaf, 5 to 8 at the other.
JOBS = {"wide": ["h1", "h2", "h5", "h6"], "narrow": ["h3", "h4", "h7", "h8"]}
FLOP = {"wide": 4e12, "narrow": 1e12}
UPLINKS = [f"leaf{leaf}-eth{port}" for leaf in (1, 2) for port in (5, 6)]
ROCE_PORT = 4791
TUNNEL_MTU = 8900
PATIENCE_SECONDS = 60
# Largest difference of an uplink from the plan, of the most loaded one.
LOAD_LIMIT = 0.1


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


class Lab:
    """The fabric with its controller and, once they are started, its agents."""

    def __init__(self, crux, gbps, folder):
        self.crux, self.folder, self.programs = crux, folder, []
        fabric = folder / "fabric.toml"
        fabric.write_text(FABRIC)
        run(crux, "lab", "up", "--name", LAB, "--listen", LISTEN, "--first-port", FIRST_PORT,
            "--fabric", fabric, "--rate-scale", LINK_GBPS / gbps, "--slower", "1")
        self.fabric = json.loads((LAB_FOLDER / "fabric.json").read_text())
        self.addresses = {host["name"]: host["ips"][0] for host in self.fabric["hosts"]}
        self.hosts = list(self.addresses)
        self.restart_controller()

    def restart_controller(self):
        """The lab's own controller learns no connections."""
        for process in lab_processes():
            if b"controller" in pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0"):
                os.kill(process, 15)
                await_true(lambda: not pathlib.Path(f"/proc/{process}").exists(), "controller ends")
        (LAB_FOLDER / "controller.toml").write_text(CONTROLLER)
        documents = [f"--{name}={LAB_FOLDER / name}.json" for name in ("fabric", "policy")]
        self.start("controller", "controller", "--carriers", *documents,
                   f"--config={LAB_FOLDER / 'controller.toml'}")
        await_true(lambda: "verified" in (self.folder / "controller.out").read_text(), "verified")

    def start(self, name, *words):
        program = subprocess.Popen(
            [self.crux, *words], stdout=(self.folder / f"{name}.out").open("w"),
            stderr=(self.folder / f"{name}.err").open("w"),
            env=os.environ | {"CRUX_LAB": str(LAB_FOLDER)},
        )
        self.programs.append(program)

    def make_tunnels(self):
        """An interface `roce0` in each host, which sends to UDP port 4791 of the others."""
        macs = {host: f"02:00:00:01:00:{number:02x}" for number, host in enumerate(self.hosts)}
        inner = {host: f"10.9.0.{number + 1}" for number, host in enumerate(self.hosts)}
        for host in self.hosts:
            namespace = f"{LAB}-{host}"
            lines = [
                f"link add roce0 mtu {TUNNEL_MTU} address {macs[host]} type vxlan id 1 "
                f"local {self.addresses[host]} dstport {ROCE_PORT} srcport 49152 65535 nolearning",
                f"addr add {inner[host]}/24 dev roce0", "link set roce0 up",
            ]
            entries = []
            for other in self.hosts:
                if other != host:
                    lines.append(
                        f"neigh add {inner[other]} lladdr {macs[other]} dev roce0 nud permanent"
                    )
                    entries.append(f"fdb add {macs[other]} dev roce0 dst {self.addresses[other]}")
            for program, batch in (("ip", lines), ("bridge", entries)):
                done = subprocess.run([program, "-n", namespace, "-batch", "-"], text=True,
                                      input="\n".join(batch) + "\n")
                if done.returncode != 0:
                    return None
        return "roce0"

    def socket_of(self, host):
        return self.folder / f"agent-{host}.sock"

    def start_agents(self):
        for host in self.hosts:
            self.start(f"agent-{host}", "agent", "--controller", LISTEN, "--host", host,
                       "--socket", str(self.socket_of(host)), "--no-queue-pairs",
                       "--window-ms", "500")

    def ask(self, path):
        with urllib.request.urlopen(f"http://{LISTEN}/v1/{path}", timeout=10) as answer:
            return json.loads(answer.read())

    def close(self):
        for program in self.programs:
            program.terminate()
        for program in self.programs:
            program.wait()
        run(self.crux, "lab", "down", "--name", LAB)


def lab_processes():
    mark = f"CRUX_LAB={LAB_FOLDER}".encode()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def await_true(condition, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"not in {PATIENCE_SECONDS} s: {what}")
        time.sleep(0.1)


class Wire:
    """The UDP flows to port 4791 that leave a host, as its interface sees them: bytes by source
    port and receiver."""

    def __init__(self, host):
        self.flows, self.is_open = {}, True
        self.thread = threading.Thread(target=self.watch, args=(host,), daemon=True)
        self.thread.start()

    def watch(self, host):
        # A namespace is that of a thread.
        with open(f"/run/netns/{LAB}-{host}") as namespace:
            enter_namespace(namespace.fileno())
        packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        packets.bind(("eth0", 3))
        packets.settimeout(0.2)
        while self.is_open:
            with contextlib.suppress(TimeoutError):
                packet, place = packets.recvfrom(128, socket.MSG_TRUNC)
                if place[2] == socket.PACKET_OUTGOING and packet[12:14] == b"\x08\x00":
                    self.count(packet)
        packets.close()

    def count(self, packet):
        length, = struct.unpack_from("!H", packet, 16)
        sport, dport = struct.unpack_from("!HH", packet, 34)
        if packet[23] == socket.IPPROTO_UDP and dport == ROCE_PORT:
            key = socket.inet_ntoa(packet[30:34]), sport
            self.flows[key] = self.flows.get(key, 0) + length

    def close(self):
        self.is_open = False
        self.thread.join()


def enter_namespace(descriptor):
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def sent_by(interface):
    return int(pathlib.Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


class Jobs:
    """Both jobs, each a gang of ranks in the namespaces of its hosts."""

    def __init__(self, lab, interface, arguments):
        self.lab, self.arguments = lab, arguments
        backend = "gloo" if arguments.gloo else "nccl"
        self.gangs = {}
        for job, hosts in JOBS.items():
            # A rank of gloo sends to the one before it, a rank of NCCL to the one after it.
            places = hosts[::-1] if arguments.gloo else hosts
            listed = "h" + ",h".join(host[1:] for host in hosts)
            environment = {
                "NCCL_SOCKET_IFNAME": f"={interface}", "GLOO_SOCKET_IFNAME": interface,
                "NCCL_PROFILER_PLUGIN": str(arguments.plugin), "CRUX_JOB": job,
                "CRUX_HOSTS": listed, "CRUX_FLOP_PER_ITERATION": str(FLOP[job]),
                "CRUX_NCCL_REPORT_MS": "500",
                "PYTHONPATH": str(TREE / "controller/agent/python"),
            }
            self.gangs[job] = gang.Gang(
                job, len(hosts), lab.folder, backend, environment,
                lambda rank, places=places: (
                    ["ip", "netns", "exec", f"{LAB}-{places[rank]}"],
                    {"CRUX_AGENT_SOCKET": str(lab.socket_of(places[rank]))},
                ),
            )
        self.started = {job: one.receive()[0] for job, one in self.gangs.items()}

    def run_round(self, name, jobs, iterations, watched=()):
        """Iterations of these jobs at once, and what the uplinks carry meanwhile."""
        command = {"kind": "operations", "matmul": self.arguments.matmul, "report": True,
                   "operations": [("all_reduce", self.arguments.bytes, 1)],
                   "environment": {"NCCL_ALGO": "Ring"}, "iterations": iterations}
        wires = {host: Wire(host) for host in watched}
        before = {link: sent_by(link) for link in UPLINKS}
        for job in jobs:
            self.gangs[job].send(command)
        answers = {job: self.gangs[job].receive() for job in jobs}
        sent = {link: sent_by(link) - size for link, size in before.items()}
        for wire in wires.values():
            wire.close()
        # The first iteration of a round opens connections.
        spans = {job: times[0]["queued"] for job, times in answers.items()}
        means = {job: (span[-1] - span[0]) / (len(span) - 1) for job, span in spans.items()}
        row = {"round": name, "seconds": means, "uplinks": sent,
               "wire": {host: wire.flows for host, wire in wires.items()}}
        shown = ", ".join(f"{job} {seconds:.4f} s" for job, seconds in means.items())
        loads = ", ".join(f"{link} {size / 1e6:.1f}" for link, size in sent.items())
        print(f"{name:8} {shown}; MB: {loads}", flush=True)
        return row

    def close(self):
        for one in self.gangs.values():
            one.close()


def expected_loads(plan, bytes_, iterations):
    """Payload that the plan puts on each uplink: its flows are of rings over four hosts."""
    loads = dict.fromkeys(UPLINKS, 0.0)
    for flow in plan["flows"]:
        for link in flow["links"]:
            switch, port = link.split(">")[0].rsplit(":", 1)
            if f"{switch}-eth{port}" in loads:
                loads[f"{switch}-eth{port}"] += 1.5 * bytes_ * iterations
    return loads


def check_loads(row, plan, arguments):
    """Links beside the plan. Headers are 1.5 %, and connections are opened beside that."""
    expected = expected_loads(plan, arguments.bytes, arguments.iterations)
    differences = [abs(row["uplinks"][link] - size) / max(expected.values())
                   for link, size in expected.items()]
    return max(differences)


def check_connections(lab, row, learned):
    """Connections on the wire between leaves, and how many of them the controller has by source
    port with a pin of the job of both hosts."""
    known = {(one["src"], one["dst"], one["udp_src_port"]): one for one in learned}
    names = {address: host for host, address in lab.addresses.items()}
    found, right = 0, 0
    for host, flows in row["wire"].items():
        for (to, port), size in flows.items():
            is_crossing = (lab.hosts.index(host) < 4) != (lab.hosts.index(names[to]) < 4)
            if is_crossing and size > 100_000:
                one = known.get((lab.addresses[host], to, port), {})
                job = next(job for job, hosts in JOBS.items() if host in hosts)
                found += 1
                right += one.get("job") == job and one.get("pinned", False)
                print(f"connection {host} to {names[to]} port {port}: {size / 1e6:.1f} MB, "
                      f"job {one.get('job')}, pinned {one.get('pinned')}", flush=True)
    return found, right


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("crux", type=os.path.abspath)
    parser.add_argument("plugin", type=os.path.abspath, nargs="?", default="")
    parser.add_argument("--gloo", action="store_true")
    parser.add_argument("--gbps", type=float, default=0.2, help="of every link")
    parser.add_argument("--bytes", type=int, default=8 << 20, help="of an all-reduce")
    parser.add_argument("--matmul", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--folder", type=pathlib.Path, default=None)
    arguments = parser.parse_args()
    if not arguments.gloo and not gang.has_nccl():
        print("left out: there is no GPU, or no PyTorch with NCCL")
        return
    folder = arguments.folder or pathlib.Path(tempfile.mkdtemp(prefix="check-nccl-"))
    folder.mkdir(parents=True, exist_ok=True)
    arguments.folder = folder.resolve()
    lab = Lab(arguments.crux, arguments.gbps, arguments.folder)
    jobs = None
    try:
        tunnel = lab.make_tunnels()
        if tunnel is None:
            print("no VXLAN here: TCP as it is, which has the paths of the plan and no level")
        jobs = Jobs(lab, tunnel or "eth0", arguments)
        print(json.dumps(jobs.started), flush=True)
        failed = run_rounds(lab, jobs, arguments, has_ports=tunnel is not None)
    finally:
        if jobs is not None:
            jobs.close()
        lab.close()
    if failed:
        raise SystemExit("\n".join(["failed:", *failed]))


def run_rounds(lab, jobs, arguments, has_ports):
    both, iterations = list(JOBS), arguments.iterations
    failed, rows = [], []

    def run_some(name, watched=()):
        for _ in range(arguments.rounds):
            rows.append(jobs.run_round(name, both, iterations, watched))

    rows += [jobs.run_round("alone", [job], iterations) for job in both]
    run_some("ecmp")
    lab.start_agents()
    rows.append(jobs.run_round("profile", both, 3 * iterations))
    run_some("crux")
    rows.append(jobs.run_round("watched", both, iterations, lab.hosts))
    plan, learned = lab.ask("plan"), lab.ask("learned-flows")
    keep(arguments.folder, plan=plan, learned=learned, jobs=lab.ask("jobs"))
    planned = sorted(job["id"] for job in plan["jobs"])
    print(f"planned: {[[job['id'], job['level'], job['rank']] for job in plan['jobs']]}")
    failed += [] if planned == sorted(both) else [f"jobs of the plan: {planned}"]
    for row in rows:
        if row["round"] in ("crux", "watched"):
            row["plan_differs"] = check_loads(row, plan, arguments)
            print(f"{row['round']}: uplinks differ from the plan by {row['plan_differs']:.2%}")
            if row["plan_differs"] > LOAD_LIMIT:
                failed.append(f"{row['round']}: uplinks are not those of the plan")
    if has_ports:
        found, right = check_connections(lab, rows[-1], learned)
        print(f"{right} of {found} connections between leaves are known by port and pinned")
        failed += [] if found and found == right else [f"{found - right} connections without pin"]
    keep(arguments.folder, findings=lab.ask("findings"), rounds=[
        row | {"wire": {host: [[*ends, size] for ends, size in flows.items()]
                        for host, flows in row["wire"].items()}} for row in rows])
    summarize(rows)
    return failed


def keep(folder, **documents):
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document))


def summarize(rows):
    for name in ("alone", "ecmp", "crux"):
        for job in JOBS:
            means = [row["seconds"][job] for row in rows
                     if row["round"] == name and job in row["seconds"]]
            each = ", ".join(f"{seconds:.4f}" for seconds in means)
            print(f"{name:8} {job:7} {statistics.mean(means):.4f} s an iteration ({each})")


if __name__ == "__main__":
    main()
