"""Jobs as the control plane sees them: processes that report to agents, and packets of flows.

Each job is a ring over whole hosts, one connection for each NIC. The process of a job announces it
on the socket of its first host's agent and reports every iteration, as a training script with the
package crux-telemetry does. The packets are few: they exist so that counters are not zero and
leaves see each connection.
"""

import heapq
import json
import random
import socket
import struct
import threading
import time

# Seconds of an iteration, and of its computation, of the demo's jobs; FLOP of a GPU; bytes.
MODELS = {
    "gpt": (1.53, 1.1, 3.3e14, 42.84e9),
    "bert": (0.1524, 0.13, 3e13, 2.131e9),
    "resnet": (0.1078, 0.1, 1.2e13, 0.33e9),
}
# Hosts of a job, drawn with equal chances: more than a tenth of the jobs of Crux' Fig. 4 have 16.
SIZES = (2, 2, 2, 4, 4, 8, 16)
ROCE_PORT = 4791
GATEWAY = bytes.fromhex("0200000000fe")
PACKET_SECONDS = 1.0
PAYLOAD = 1_000


class EmulatedJob:
    """One job, its hosts in the order of its ring, and its connections."""

    def __init__(self, name, hosts, nics, draw):
        self.name, self.hosts = name, hosts
        self.model = draw.choice(sorted(MODELS))
        following = [*hosts[1:], hosts[0]]
        self.connections = [
            (src, dst, nic, draw.randrange(49_152, 65_536))
            for src, dst in zip(hosts, following) for nic in range(nics)
        ]
        # Half of the jobs state the source ports of their connections, as with queue pairs that
        # are known beforehand; the others only what they do together.
        self.states_ports = draw.random() < 0.5
        self.stream = None

    def announcement(self, gpus):
        _, compute, flop, size = MODELS[self.model]
        job = {
            "id": self.name, "model": self.model, "gpus": {host: gpus for host in self.hosts},
            "flop_per_iteration": flop * gpus * len(self.hosts), "compute_seconds": compute,
            "overlap_from": 0.5,
        }
        nics = len(self.connections) // len(self.hosts)
        if not self.states_ports:
            return {**job, "collective": {
                "kind": "ring_all_reduce", "bytes": size, "channels": nics,
            }}
        ranks = gpus * len(self.hosts)
        share = 2 * size * (ranks - 1) / ranks / nics
        return {**job, "flows": [
            {"src": src, "dst": dst, "src_nic": nic, "dst_nic": nic, "bytes": share,
             "udp_src_port": port}
            for src, dst, nic, port in self.connections
        ]}

    def iteration(self, gpus):
        seconds, compute, flop, _ = MODELS[self.model]
        return {"iteration": {
            "job": self.name, "seconds": seconds, "flop": flop * gpus * len(self.hosts),
            "compute_seconds": compute, "communication_seconds": seconds - 0.5 * compute,
        }}


class EmulatedJobs:
    """All jobs of the moment, and the thread that reports iterations and sends packets."""

    def __init__(self, plane, share, seed):
        self.plane, self.draw = plane, random.Random(seed)
        hosts = {host["name"]: host for host in plane.fabric["hosts"]}
        self.documents, self.free = hosts, sorted(hosts)
        self.draw.shuffle(self.free)
        self.gpus = min(host["gpus"] for host in hosts.values())
        self.nics = min(len(host["ips"]) for host in hosts.values())
        self.limit = int(share * len(hosts))
        self.running, self.number = {}, 0
        self.lock, self.stopped = threading.Lock(), threading.Event()
        self.wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        # Iterations that end, packets that are due: (when, tie, job, connection or None).
        self.due = []
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def fill(self):
        """Starts jobs on the given share of the hosts."""
        while (room := self.limit - sum(len(job.hosts) for job in self.running.values())) >= 2:
            self.start_one(room)

    def start_one(self, room):
        size = min(self.draw.choice(SIZES), room, max(2, self.limit // 3))
        hosts, self.free = self.free[:size], self.free[size:]
        self.number += 1
        job = EmulatedJob(f"job{self.number}", hosts, self.nics, self.draw)
        job.stream = socket.socket(socket.AF_UNIX)
        job.stream.connect(str(self.plane.socket_of(hosts[0])))
        self.send(job, {"job": job.announcement(self.gpus)})
        job.stream.setblocking(False)
        now = time.monotonic()
        with self.lock:
            self.running[job.name] = job
            for turn, key in enumerate([None, *job.connections]):
                begin = now + self.draw.random() * PACKET_SECONDS
                heapq.heappush(self.due, (begin, self.number, turn, job.name, key))
        return job

    def end_one(self):
        """Ends the job that has run the longest; its hosts are free again."""
        with self.lock:
            job = self.running.pop(next(iter(self.running)))
            job.stream.close()
        self.free += job.hosts

    def send(self, job, message):
        job.stream.sendall(json.dumps(message).encode() + b"\n")

    def work(self):
        while not self.stopped.is_set():
            with self.lock:
                now = time.monotonic()
                while self.due and self.due[0][0] <= now:
                    when, tie, turn, name, connection = heapq.heappop(self.due)
                    if (job := self.running.get(name)) is not None:
                        after = self.perform(job, connection)
                        heapq.heappush(self.due, (when + after, tie, turn, name, connection))
            time.sleep(0.005)

    def perform(self, job, connection):
        """An iteration or a packet; the seconds until the next one."""
        if connection is not None:
            self.wire.sendto(*self.packet(job, connection))
            return PACKET_SECONDS
        try:
            self.send(job, job.iteration(self.gpus))
            while job.stream.recv(65_536):
                pass
        except BlockingIOError:
            pass
        return MODELS[job.model][0]

    def packet(self, job, connection):
        """A RoCEv2 packet as the host sends it, and its interface."""
        src, dst, nic, port = connection
        sender, receiver = self.documents[src], self.documents[dst]
        transport = struct.pack("!BBHII", 0x0A, 0x40, 0xFFFF, port, 0) + bytes(PAYLOAD + 4)
        segment = struct.pack("!HHHH", port, ROCE_PORT, 8 + len(transport), 0) + transport
        header = struct.pack(
            "!BBHHHBBH4s4s", 0x45, 0, 20 + len(segment), 0, 0x4000, 64, socket.IPPROTO_UDP, 0,
            socket.inet_aton(sender["ips"][nic]), socket.inet_aton(receiver["ips"][nic]),
        )
        words = sum(struct.unpack("!10H", header))
        words = (words & 0xFFFF) + (words >> 16)
        header = header[:10] + struct.pack("!H", ~(words + (words >> 16)) & 0xFFFF) + header[12:]
        source = bytes.fromhex(sender["macs"][nic].replace(":", ""))
        frame = GATEWAY + source + b"\x08\x00" + header + segment
        return frame, (self.plane.nics[src, nic], 0)

    def stop(self):
        self.stopped.set()
        self.thread.join()
        self.wire.close()
