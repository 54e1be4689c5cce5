"""Jobs that a scheduler announces by their hosts alone, and where their packets went.

`crux jobs slurm start` records each job as Slurm's prolog does, and `crux agent` announces it. What
switches sent is read from their recordings, so that the controller is not its own witness.
"""

import json
import os
import pathlib
import random
import struct
import subprocess
import time

from . import documents

# The profile that the comment of a job names, by its model.
PROFILES = {"gpt": "gpt-24l/A100", "bert": "bert-large/A100"}
# Seconds that the controller may take to plan announced jobs.
PATIENCE = 30
ROCE_PORT = 4791
# Where headers begin in a recorded frame with IPv4 without options.
ETHERNET, IPV4, UDP = 14, 20, 8
# Opcode of acknowledgements, which the program sends at the highest level whatever their job.
ACKNOWLEDGE = 0x11


def split_flows(jobs, connections, seed):
    """Makes several connections of each flow, with ports that only their hosts know."""
    draw = random.Random(seed)
    for job in jobs["jobs"]:
        flows = [flow for flow in job["flows"] for _ in range(connections)]
        ports = draw.sample(range(0xC000, 0x10000), len(flows))
        job["flows"] = [
            flow | {"bytes": round(flow["bytes"] / connections), "udp_src_port": port}
            for flow, port in zip(flows, ports)
        ]


class Scheduler:
    """The records of running jobs, and the agent that announces them."""

    def __init__(self, crux, folder, jobs, address):
        self.crux, self.address, self.jobs = crux, address, jobs
        spool = folder / "spool"
        for number, job in enumerate(jobs, 1):
            command = [crux, "jobs", "slurm", "start", "--spool", str(spool)]
            environment = os.environ | {
                "SLURM_JOB_ID": str(number),
                "SLURM_JOB_NODELIST": ",".join(sorted(job["gpus"])),
                "SLURM_JOB_COMMENT": f"crux.profile={PROFILES[job['model']]}",
            }
            command += ["--gpus-per-host", str(max(job["gpus"].values()))]
            subprocess.run(command, env=environment, check=True)
        command = [crux, "agent", "--controller", address, "--spool", str(spool)]
        self.log = open(folder / "agent.log", "wb")
        self.agent = subprocess.Popen(
            command, stdout=self.log, stderr=self.log, start_new_session=True
        )

    def ask(self, *command):
        """What the controller answers, or none."""
        command = [self.crux, *command, "--controller", self.address, "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def explanations(self):
        """What the controller says of each job, once it has planned all."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = [self.ask("explain", f"slurm-{n}") for n, _ in enumerate(self.jobs, 1)]
            if all(found):
                return found
            time.sleep(0.2)
        raise RuntimeError(f"the jobs are not planned; see {self.log.name}")

    def stop(self):
        self.agent.terminate()
        self.agent.wait()


def packets(file):
    """Time, five-tuple, level and bytes of the RoCEv2 packets of a recording, without
    acknowledgements."""
    data = file.read_bytes()
    nanoseconds = struct.unpack_from("<I", data)[0] == 0xA1B23C4D
    at = 24
    while at + 16 <= len(data):
        seconds, fraction, kept, length = struct.unpack_from("<IIII", data, at)
        frame, at = data[at + 16 : at + 16 + kept], at + 16 + kept
        udp = ETHERNET + IPV4
        if len(frame) <= udp + UDP or frame[12:14] != b"\x08\x00" or frame[ETHERNET + 9] != 17:
            continue
        sport, dport = struct.unpack_from(">HH", frame, udp)
        if dport == ROCE_PORT and frame[udp + UDP] != ACKNOWLEDGE:
            ends = [
                ".".join(str(octet) for octet in frame[begin : begin + 4])
                for begin in (ETHERNET + 12, ETHERNET + 16)
            ]
            when = seconds + fraction / (1e9 if nanoseconds else 1e6)
            yield when, (*ends, sport), frame[ETHERNET + 1] >> 5, length


def planned_ports(explanations, fabric):
    """For each pair of addresses, its job's number and level, and the ports of leaves that it may
    leave by."""
    addresses = {host["name"]: host["ips"][0] for host in fabric["hosts"]}
    planned = {}
    for number, explanation in enumerate(explanations, 1):
        for flow in explanation["flows"]:
            for path in (c["path"] for c in flow["candidates"] if c["chosen"]):
                # Sender, leaf, spine, leaf, receiver; hosts of one leaf have no choice.
                if len(path) > 3:
                    pair = addresses[path[0]], addresses[path[-1]]
                    entry = planned.setdefault(pair, (number, explanation["level"], set()))
                    entry[2].update(ports_between(fabric, path[1], path[2]))
    return planned


def ports_between(fabric, switch, neighbour):
    """The interfaces by which a switch sends to a neighbour."""
    for link in fabric["links"]:
        (one, port), (other, other_port) = documents.ends(link)
        if (one, other) == (switch, neighbour):
            yield f"{switch}-eth{port}"
        elif (other, one) == (switch, neighbour):
            yield f"{switch}-eth{other_port}"


def judge(folder, planned, flows):
    """How much of what crossed leaves had its path and level, and whose flows were learned."""
    began = {}
    sums = {"bytes": 0, "as_planned": 0, "late": 0, "level_0": 0}
    for file in sorted(pathlib.Path(folder).glob("leaf*_out.pcap")):
        name = file.name.removesuffix("_out.pcap")
        for when, (src, dst, sport), level, length in packets(file):
            entry = planned.get((src, dst))
            # At the leaf of the sender: the receiver's has it at the port of the host.
            if entry is None or name.split("-")[0] not in {n.split("-")[0] for n in entry[2]}:
                continue
            key = (src, dst, sport)
            began[key] = min(when, began.get(key, when))
            sums["bytes"] += length
            is_planned = name in entry[2] and level == entry[1]
            sums["as_planned"] += length if is_planned else 0
            sums["level_0"] += level == 0
            if not is_planned:
                sums["late"] += when - began[key] > 1
    owners = [(planned.get((flow["src"], flow["dst"])), flow["job"]) for flow in flows]
    wrong = [job for entry, job in owners if job and (not entry or job != f"slurm-{entry[0]}")]
    judged = {
        "connections": len(began),
        "bytes": sums["bytes"],
        "share_as_planned": sums["as_planned"] / max(sums["bytes"], 1),
        "packets_elsewhere_after_1_s": sums["late"],
        "packets_at_level_0": sums["level_0"],
        "flows_learned": sum(1 for _, job in owners if job),
        "wrong_owners": len(wrong),
        "levels": sorted({level for _, level, _ in planned.values()}),
    }
    return judged | {
        "holds": judged["share_as_planned"] >= 0.99
        and judged["flows_learned"] >= judged["connections"] > 0
        and not judged["packets_elsewhere_after_1_s"]
        and not judged["packets_at_level_0"]
        and not wrong
    }
