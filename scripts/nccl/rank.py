"""One rank of a job for check-nccl.py and check-nccl-fabric.py.

Reads commands from standard input and answers each on standard output, all lines of JSON. A command
is a round: iterations of a fixed computation and one kind of communication, in a communicator of
its own. The answer has when the operations of each iteration had been queued, which is when a
profiler hears of them, and what each TCP connection of the process carried, by the kernel's own
count (TCP_INFO).
"""

import json
import os
import socket
import struct
import sys
import time

import torch
import torch.distributed as dist

# Of struct tcp_info: payload that the other end has acknowledged.
BYTES_ACKED = 120
WAIT_SECONDS = 0.3


class Rank:
    """The process group of a rank, and what it needs of the environment."""

    def __init__(self):
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.backend = os.environ["GANG_BACKEND"]
        self.device = torch.device("cuda:0" if self.backend == "nccl" else "cpu")
        store = dist.FileStore(os.environ["GANG_STORE"], self.ranks)
        dist.init_process_group(
            self.backend, store=store, rank=self.rank, world_size=self.ranks
        )
        self.kept = {}
        self.reporter = None
        self.queued = 0.0

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def run_round(self, command):
        for name, value in command.get("environment", {}).items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        before = connections()
        kept = self.kept.get(command.get("keep"))
        group, step = kept or self.open_group(command)
        if kept is None:
            # Opens the communicator.
            dist.all_reduce(torch.zeros(1, device=self.device), group=group)
            self.synchronize()
        if command.get("keep"):
            self.kept[command["keep"]] = group, step
        queued = []
        for _ in range(command["iterations"]):
            step()
            self.synchronize()
            queued.append(self.queued)
            if len(queued) > 1:
                self.report(command, queued[-1] - queued[-2])
        time.sleep(WAIT_SECONDS)
        carried = connections()
        if not command.get("keep"):
            dist.destroy_process_group(group)
        new = [[*ends, sent - before.get(ends, 0)] for ends, sent in carried.items()]
        return {"queued": queued, "connections": new}

    def open_group(self, command):
        group = dist.new_group(list(range(self.ranks)))
        build = {"ddp": self.data_parallel_step}.get(command["kind"], self.operations_step)
        return group, build(group, command)

    def operations_step(self, group, command):
        """Some matrix products, then operations of these sizes (bytes of the largest buffer)."""
        size = command["matmul"]
        matrix = torch.randn(size, size, device=self.device)
        operations = [
            self.operation(group, kind, size)
            for kind, size, count in command["operations"]
            for _ in range(count)
        ]

        def step():
            for _ in range(command.get("products", 1)):
                matrix @ matrix
            for operation in operations:
                operation()
            self.queued = time.perf_counter()

        matrix @ matrix
        return step

    def operation(self, group, kind, size):
        whole = torch.zeros(size // 4, device=self.device)
        part = torch.zeros(size // 4 // self.ranks, device=self.device)
        gather = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
        scatter = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
        other = torch.empty_like(whole)
        return {
            "all_reduce": lambda: dist.all_reduce(whole, group=group),
            "all_gather": lambda: gather(whole, part, group=group),
            "reduce_scatter": lambda: scatter(part, whole, group=group),
            "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
        }[kind]

    def data_parallel_step(self, group, command):
        """An iteration of training a small transformer with DistributedDataParallel."""
        torch.manual_seed(1)
        width, words, length = 384, 4096, 64
        layer = torch.nn.TransformerEncoderLayer(width, 6, 4 * width, 0.0, batch_first=True)
        model = torch.nn.Sequential(
            torch.nn.Embedding(words, width),
            torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
            torch.nn.Linear(width, words),
        ).to(self.device)
        parallel = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
        optimizer = torch.optim.Adam(parallel.parameters(), 1e-4)
        tokens = torch.randint(words, (4, length + 1), device=self.device)
        self.parameters = sum(one.numel() for one in model.parameters())

        def step():
            optimizer.zero_grad()
            logits = parallel(tokens[:, :-1]).flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
            loss.backward()
            self.queued = time.perf_counter()
            optimizer.step()

        # The first pass of a process loads libraries.
        with parallel.no_sync():
            step()
        return step

    def report(self, command, seconds):
        """NCCL has the plugin; beside gloo, rank 0 reports by the Python package."""
        if self.backend != "gloo" or self.rank or not command.get("report"):
            return
        job, hosts = os.environ["CRUX_JOB"], os.environ["CRUX_HOSTS"].split(",")
        flop = float(os.environ["CRUX_FLOP_PER_ITERATION"])
        if self.reporter is None:
            from crux_telemetry import Reporter

            self.reporter = Reporter()
            collective = {"kind": "ring_all_reduce", "bytes": command["operations"][0][1]}
            self.reporter.job(job, {host: 1 for host in hosts}, collective=collective)
        self.reporter.iteration(job, seconds, flop, 0.1 * seconds, 0.9 * seconds)

    def describe(self):
        """What this rank runs on."""
        facts = {"torch": torch.__version__, "device": str(self.device), "pid": os.getpid()}
        if self.device.type == "cuda":
            facts["gpu"] = torch.cuda.get_device_name(0)
            facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        return facts


def connections():
    """Payload that each TCP connection of this process has carried, by both ends."""
    carried = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                ends = one.getsockname()[:2] + one.getpeername()[:2]
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                carried[ends] = struct.unpack_from("=Q", info, BYTES_ACKED)[0]
        except OSError:
            # Closed meanwhile, or a socket that only listens.
            pass
    return carried


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    rank = Rank()
    print(json.dumps(rank.describe()), file=answers)
    for line in sys.stdin:
        try:
            answer = rank.run_round(json.loads(line))
            answer["parameters"] = getattr(rank, "parameters", None)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)
    os._exit(0)


if __name__ == "__main__":
    main()
