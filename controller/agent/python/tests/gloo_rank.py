"""One rank of `test_gloo_volumes`: trains over gloo, and rank 0 prints what it counted beside what
the interface between the hosts carried.

    gloo_rank.py RANK RANKS PER_HOST INTERFACE RENDEZVOUS
"""

import json
import pathlib
import sys

import torch
import torch.distributed as distributed

from crux_telemetry import torch as hook
from crux_telemetry.process_groups import job_traffic

# Elements of four bytes: 16 MB, so that what gloo says besides is little.
COUNT = 4_000_000

# Each case is run so often, and the run that carried least counts: on a loaded machine TCP sends
# some segments again, which is not of what gloo sends.
ROUNDS = 5


def data_parallel(rank, ranks, per_host):
    """DistributedDataParallel: one gradient of all ranks."""
    distributed.all_reduce(torch.ones(COUNT))


def fully_sharded(rank, ranks, per_host):
    """The parameters of two layers are gathered forward and backward. The gloo of PyTorch 1 has no
    reduce-scatter, so gradients are reduced as DistributedDataParallel does."""
    for _ in range(4):
        parts = [torch.empty(COUNT // ranks) for _ in range(ranks)]
        distributed.all_gather(parts, torch.ones(COUNT // ranks))
    distributed.all_reduce(torch.ones(2 * COUNT))


def tensor_and_data(rank, ranks, per_host):
    """Megatron: tensor groups are the ranks of a host, data groups one rank of each."""
    for group, members in GROUPS["tensor"]:
        if rank in members:
            distributed.all_reduce(torch.ones(COUNT), group=group)
    for group, members in GROUPS["data"]:
        if rank in members:
            distributed.all_reduce(torch.ones(COUNT), group=group)


def tensor_and_pipeline(rank, ranks, per_host):
    """Megatron: each host is a stage, whose ranks are a tensor group; activations go to the next
    stage, and as much comes back."""
    for group, members in GROUPS["tensor"]:
        if rank in members:
            distributed.all_reduce(torch.ones(COUNT), group=group)
    following, preceding = rank + per_host, rank - per_host
    if following < ranks:
        distributed.send(torch.ones(COUNT), following)
        distributed.recv(torch.ones(COUNT), following)
    if preceding >= 0:
        distributed.recv(torch.ones(COUNT), preceding)
        distributed.send(torch.ones(COUNT), preceding)


CASES = (data_parallel, fully_sharded, tensor_and_data, tensor_and_pipeline)
GROUPS = {}


def carried(interface):
    """Bytes of an interface in both directions."""
    folder = pathlib.Path("/sys/class/net") / interface / "statistics"
    return sum(int((folder / f"{way}_bytes").read_text()) for way in ("rx", "tx"))


def measure(step, rank, ranks, per_host, interface):
    """What one run of a case counted and what the interface carried meanwhile."""
    distributed.barrier()
    hook.COUNTER.take()
    before = carried(interface)
    distributed.barrier()
    step(rank, ranks, per_host)
    distributed.barrier()
    sent = carried(interface) - before
    total, _ = job_traffic(hook.COUNTER.take(), ranks, per_host)
    return {"case": step.__name__, "counted": total, "carried": sent}


def main():
    rank, ranks, per_host = (int(argument) for argument in sys.argv[1:4])
    interface, rendezvous = sys.argv[4:]
    distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=ranks)
    hosts = range(0, ranks, per_host)
    members = {
        "tensor": [list(range(first, first + per_host)) for first in hosts],
        "data": [list(range(place, ranks, per_host)) for place in range(per_host)],
    }
    for name, groups in members.items():
        GROUPS[name] = [(distributed.new_group(group), group) for group in groups]
    for step in CASES:
        # Connections are made by the first use of a group.
        step(rank, ranks, per_host)
        rows = [measure(step, rank, ranks, per_host, interface) for _ in range(ROUNDS)]
        if rank == 0:
            least = min(rows, key=lambda row: row["carried"])
            print(json.dumps(least), flush=True)
        distributed.barrier()


if __name__ == "__main__":
    main()
