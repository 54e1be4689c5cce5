"""Bytes of each process group, counted where Python calls torch.distributed.

FSDP, Megatron's tensor and pipeline groups, DeepSpeed and others call the functions of
torch.distributed; each call is counted with its group and the size of its tensors, and then runs
unchanged. Install the counter before the framework is imported: some keep references to the
functions. DistributedDataParallel reduces in C++; the hook of crux_telemetry.torch counts it.

What a rank sends follows from the operation, with n ranks and b bytes of the whole buffer:

    all_reduce                    2 (n-1)/n b     reduce-scatter, then all-gather
    all_gather, reduce_scatter    (n-1)/n b
    all_to_all                    (n-1)/n b       b is what one rank holds
    broadcast, reduce             (n-1)/n b       a ring of the ranks, on average
    send                          b               received bytes are counted by the sender
"""

import contextlib
import functools
import threading
import time

# Functions that are counted, and which argument is the tensor (or list of tensors) whose size
# counts: always that of the whole buffer.
FUNCTIONS = {
    "all_reduce": ("all_reduce", 0, "tensor"),
    "all_gather_into_tensor": ("all_gather", 0, "output_tensor"),
    "_all_gather_base": ("all_gather", 0, "output_tensor"),
    "all_gather": ("all_gather", 0, "tensor_list"),
    "reduce_scatter_tensor": ("reduce_scatter", 1, "input"),
    "_reduce_scatter_base": ("reduce_scatter", 1, "input"),
    "reduce_scatter": ("reduce_scatter", 1, "input_list"),
    "all_to_all_single": ("all_to_all", 1, "input"),
    "all_to_all": ("all_to_all", 1, "input_tensor_list"),
    "broadcast": ("broadcast", 0, "tensor"),
    "reduce": ("reduce", 0, "tensor"),
    "send": ("send", 0, "tensor"),
    "isend": ("send", 0, "tensor"),
}


def sent_bytes(operation, size, ranks):
    """Bytes that a rank sends for an operation on a buffer of `size` bytes, on average."""
    if operation == "send":
        return float(size)
    share = size * (ranks - 1) / ranks
    return 2.0 * share if operation == "all_reduce" else share


class GroupTraffic:
    """Operations of one process group."""

    def __init__(self, ranks):
        self.ranks = tuple(ranks)
        # By operation: calls, and bytes of the buffers.
        self.operations = {}
        # By operation: when the first was called, and after which part of the computation that was.
        self.began, self.overlap_from = {}, {}

    def add(self, operation, size):
        self.began.setdefault(operation, time.monotonic())
        calls, total = self.operations.get(operation, (0, 0))
        self.operations[operation] = (calls + 1, total + size)

    def sent(self):
        """Bytes that this rank has sent."""
        sizes = self.operations.items()
        return sum(sent_bytes(name, size, len(self.ranks)) for name, (_, size) in sizes)

    def host_count(self, ranks_per_host):
        """Hosts of the group, where every host has `ranks_per_host` consecutive ranks."""
        return len({rank // ranks_per_host for rank in self.ranks})


def host_bytes(operation, size, hosts, ranks):
    """Bytes that leave each host for an operation on a buffer of `size` bytes, on average.

    A ring of all ranks crosses from each host to the next once, and every edge of it carries what
    a rank sends. A pipeline begins with this rank: `size` goes to the next stage, and as much
    comes back, at every boundary between hosts.
    """
    if operation == "send":
        return 2.0 * size * (hosts - 1) / hosts
    if operation == "all_to_all":
        # Each of the ranks of a host sends its share to all ranks of other hosts.
        return size * (ranks / hosts) * (hosts - 1) / hosts
    return sent_bytes(operation, size, ranks)


class GroupCounter:
    """Counts the operations of all process groups of this process."""

    def __init__(self):
        self.groups = {}
        self.lock = threading.Lock()
        self.depth = threading.local()
        self.replaced = []

    def install(self, distributed):
        """Wraps the functions of torch.distributed, here and where it defines them: P2POp accepts
        only the very functions that its own module has."""
        defining = getattr(distributed, "distributed_c10d", None)
        for name, (operation, position, keyword) in FUNCTIONS.items():
            original = getattr(distributed, name, None)
            if original is None:
                continue
            counted = self.counted(distributed, original, operation, (position, keyword))
            for module in (distributed, defining):
                if module is not None and getattr(module, name, None) is original:
                    self.replaced.append((module, name, original))
                    setattr(module, name, counted)

    def remove(self):
        """Puts the original functions back."""
        for module, name, original in self.replaced:
            setattr(module, name, original)
        self.replaced = []

    def counted(self, distributed, original, operation, argument):
        position, keyword = argument

        @functools.wraps(original)
        def wrapper(*arguments, **named):
            # Functions call each other; only the outermost call is an operation.
            if getattr(self.depth, "value", 0) == 0:
                with contextlib.suppress(Exception):
                    tensor = named[keyword] if keyword in named else arguments[position]
                    ranks = call_ranks(distributed, operation, arguments, named)
                    self.record(ranks, operation, buffer_bytes(tensor))
            with self.suspended():
                return original(*arguments, **named)

        return wrapper

    @contextlib.contextmanager
    def suspended(self):
        """Operations of this thread are not counted inside."""
        self.depth.value = getattr(self.depth, "value", 0) + 1
        try:
            yield
        finally:
            self.depth.value -= 1

    def record(self, ranks, operation, size):
        """Adds an operation on a buffer of `size` bytes of the group of these ranks."""
        with self.lock:
            traffic = self.groups.get(ranks)
            if traffic is None:
                traffic = self.groups[ranks] = GroupTraffic(ranks)
            traffic.add(operation, size)

    def take(self):
        """The traffic of each group since the last call, of groups that were used."""
        with self.lock:
            groups, self.groups = self.groups, {}
        return list(groups.values())


def call_ranks(distributed, operation, arguments, named):
    """The global ranks that a call of torch.distributed is about."""
    kind = getattr(distributed, "ProcessGroup", ())
    given = [value for value in arguments if kind and isinstance(value, kind)]
    group = named.get("group") or (given[0] if given else None)
    if group is None and operation == "send":
        receiver = named.get("dst", arguments[1] if len(arguments) > 1 else None)
        return tuple(sorted((distributed.get_rank(), receiver)))
    return group_ranks(distributed, group)


def group_ranks(distributed, group=None):
    """The global ranks of a group, in order; None is the group of all ranks."""
    if group is None:
        return tuple(range(distributed.get_world_size()))
    find = getattr(distributed, "get_process_group_ranks", None)
    if find is not None:
        return tuple(find(group))
    # Before PyTorch 2.0: from global ranks to ranks in the group.
    return tuple(sorted(distributed.distributed_c10d._pg_group_ranks[group]))


def buffer_bytes(tensor):
    """Bytes of a tensor or a list of them."""
    if isinstance(tensor, (list, tuple)):
        return sum(buffer_bytes(part) for part in tensor)
    return tensor.numel() * tensor.element_size()


def job_traffic(groups, world, ranks_per_host):
    """What a job of `world` ranks sends between hosts in the time of `groups`, as rank 0 sees it:
    bytes of all its flows, and the collective that stands for them (None without any).

    Groups of one size and span are assumed to be alike all over the job: with tensor groups of 8
    there are world/8 of them, each of which sends what the group of this rank sends.
    """
    by_operation = {}
    for group in groups:
        hosts = group.host_count(ranks_per_host)
        if hosts < 2:
            continue
        for operation, (_, size) in group.operations.items():
            sent = host_bytes(operation, size, hosts, len(group.ranks))
            sent *= hosts * count_crossing(operation, group.ranks, world, ranks_per_host)
            by_operation[operation] = by_operation.get(operation, 0.0) + sent
    total = sum(by_operation.values())
    hosts = max(1, round(world / ranks_per_host))
    if hosts < 2:
        return 0.0, collective_of_one_host(groups)
    if total <= 0.0:
        return 0.0, None
    operation = max(by_operation, key=lambda name: (by_operation[name], name))
    return total, collective(operation, total / hosts, hosts, world, groups)


def copies_of(operation, ranks, world):
    """The groups that this one stands for."""
    if operation == "send" and len(ranks) == 2:
        return stage_pairs(ranks, world)
    return alike_groups(ranks, world)


def alike_groups(ranks, world):
    """The groups of the shape of this one that the job has room for: all ranks are in one, but for
    groups such as those of the first and the last stage of a pipeline."""
    covered, copies = set(), []
    first = min(ranks)
    for start in range(world - max(ranks) + first):
        copy = [rank - first + start for rank in ranks]
        if not covered.intersection(copy):
            covered.update(copy)
            copies.append(copy)
    return copies


def stage_pairs(ranks, world):
    """All pairs of ranks in neighbouring stages, where these two are one: stages may be many."""
    distance = max(ranks) - min(ranks)
    return [(first, first + distance) for first in range(world - distance)]


@functools.lru_cache(maxsize=256)
def count_crossing(operation, ranks, world, ranks_per_host):
    """How many of the groups that this one stands for are on several hosts."""
    copies = copies_of(operation, ranks, world)
    return sum(len({rank // ranks_per_host for rank in copy}) > 1 for copy in copies)


def collective_of_one_host(groups):
    """The operation with the largest buffers; it has no flows in the network."""
    sizes = [(size, name) for g in groups for name, (_, size) in g.operations.items()]
    if not sizes:
        return None
    size, name = max(sizes)
    kind = name if name in ("all_gather", "reduce_scatter", "all_to_all") else "ring_all_reduce"
    return {"kind": kind, "bytes": float(size)}


def collective(operation, sent_by_host, hosts, world, groups):
    """A collective of a jobs document of which each host sends `sent_by_host` on average."""
    kinds = {"all_to_all": "all_to_all", "all_gather": "all_gather", "send": "pipeline"}
    kind = kinds.get(operation, "ring_all_reduce")
    names = {name for group in groups for name in group.operations}
    if operation in ("all_gather", "reduce_scatter"):
        # FSDP does both: together they are what a ring all-reduce sends.
        both = {"all_gather", "reduce_scatter"} <= names
        kind = "ring_all_reduce" if both else operation
    if kind in ("ring_all_reduce", "all_gather", "reduce_scatter"):
        name = "all_reduce" if kind == "ring_all_reduce" else kind
        return {"kind": kind, "bytes": sent_by_host / sent_bytes(name, 1.0, world)}
    operation = "send" if kind == "pipeline" else kind
    return {"kind": kind, "bytes": sent_by_host / host_bytes(operation, 1.0, hosts, world)}
