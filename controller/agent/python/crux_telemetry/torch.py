"""The PyTorch hook: one line in a training script.

An iteration lasts from one optimizer.step() to the next. The gradients of a
DistributedDataParallel model are timed, and their bytes counted, in a communication hook that
uses the same all-reduce as without the hook. What other frameworks send through
torch.distributed (FSDP, tensor and pipeline groups) is counted by process group. The first
iteration measures bytes and FLOP, and the job is announced after it, so that the announcement
contains only known values; a job of several operations after the second, with when each begins.
"""

import atexit
import os
import time

from .process_groups import GroupCounter, buffer_bytes, group_ranks, job_traffic
from .rank_traffic import group_collectives, rank_traffic
from .reporter import Reporter
from .start_slot import SlotKeeper

# Counts from import on, because frameworks keep references to the functions that they import.
COUNTER = GroupCounter()
# What may say which traffic a job has.
TRAFFIC_FIELDS = {"flows", "collective", "collectives", "rank_traffic"}


def count_process_groups():
    """Starts to count the operations of process groups; safe to call again."""
    try:
        import torch.distributed as distributed
    except ImportError:
        return
    if not COUNTER.replaced and distributed.is_available():
        COUNTER.install(distributed)


def watch(model, optimizer, job, gpus, to=None, flop_per_iteration=None, reporter=None, **known):
    """Reports every iteration of `model` from now on; returns the Watch, whose close() ends that.

    job, gpus: the job's name, and its GPUs by host of the fabric document. to: path of an agent's
    socket, or HOST:PORT of a controller. flop_per_iteration: of the whole job; counted if not
    given. known: whatever else a jobs document may say, such as tenant or model. With can_wait=True
    the job waits before the first reduction of an iteration where the controller asks it to, so that
    it takes turns with jobs of nearly the same period: once at most an iteration, then a few percent.
    """
    count_process_groups()
    rank, ranks = rank_and_size()
    COUNTER.take()
    watch = Watch(model, optimizer, ranks, flop_per_iteration)
    if rank == 0:
        per_host = ranks_per_host(ranks, gpus)
        reporter = reporter or Reporter(to)
        watch.on_iteration = IterationReporter(reporter, job, gpus, known, (ranks, per_host))
        if known.get("can_wait"):
            watch.next_slot = lambda: reporter.slot(job)
        atexit.register(watch.close)
    return watch


def rank_and_size():
    """Rank of this process in the job, and the number of ranks."""
    try:
        import torch.distributed as distributed
    except ImportError:
        return 0, 1
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def ranks_per_host(ranks, gpus):
    """Consecutive ranks of each host, as torchrun says, else as the GPUs are spread."""
    stated = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(stated) if stated.isdigit() and int(stated) else max(1, -(-ranks // len(gpus)))


class IterationReporter:
    """Announces the job after its first iteration, or after the second where several operations cross
    hosts, since what is set up in the first hides when they begin; reports each later one."""

    def __init__(self, reporter, job, gpus, known, spread):
        self.reporter, self.job, self.gpus, self.known = reporter, job, gpus, known
        # Ranks of the job, and ranks of a host.
        self.spread = spread
        self.announced, self.is_first = False, True

    def __call__(self, iteration, groups):
        total, collective = job_traffic(groups, *self.spread)
        is_first, self.is_first = self.is_first, False
        if is_first and self.has_begins() and self.count_crossing(groups) > 1:
            return
        if not self.announced:
            self.announced = True
            known = dict(self.known)
            if not TRAFFIC_FIELDS.intersection(known):
                if not self.has_begins():
                    for group in groups:
                        group.overlap_from = {}
                by_rank = rank_traffic(groups, *self.spread)
                by_group = [] if by_rank else group_collectives(groups, *self.spread)
                if by_rank:
                    known["rank_traffic"] = by_rank
                elif by_group:
                    known["collectives"] = by_group
                elif collective:
                    known["collective"] = collective
            self.reporter.job(self.job, self.gpus, **known)
            return
        if total > 0.0:
            iteration = {**iteration, "bytes": total}
        self.reporter.iteration(self.job, **iteration)

    def has_begins(self):
        """Whether the announcement says when operations begin. The slot of a job that waits is that of
        the reduction of its gradients, before which it waits."""
        return not TRAFFIC_FIELDS.union({"can_wait"}).intersection(self.known)

    def count_crossing(self, groups):
        """Operations of groups that cross hosts."""
        crossing = [group for group in groups if group.host_count(self.spread[1]) > 1]
        return sum(len(group.operations) for group in crossing)

    def close(self):
        self.reporter.close()


class Watch:
    """Times the iterations of a model."""

    def __init__(self, model, optimizer, ranks, flop_per_iteration):
        self.ranks, self.on_iteration = ranks, None
        self.flop = flop_per_iteration
        self.began = self.sending = self.ready = None
        self.communication_seconds = 0.0
        # Reductions that have started and not finished.
        self.pending_reductions = 0
        # What says when to begin to send; only rank 0 waits, as the others wait for it.
        self.next_slot, self.keeper = None, SlotKeeper()
        self.has_sent, self.waited, self.slot_offset = False, 0.0, None
        self.hooks = [model.register_forward_pre_hook(self.before_forward)]
        self.hooks.append(model.register_forward_hook(self.after_forward))
        self.counter = None
        after_step = getattr(optimizer, "register_step_post_hook", None)
        if after_step is not None:
            self.hooks.append(after_step(lambda *_: self.after_step()))
        else:
            wrap_step(optimizer, self.after_step)
        if hasattr(model, "register_comm_hook"):
            model.register_comm_hook(None, self.reduce)

    def before_forward(self, *_):
        if self.began is None:
            self.began = time.monotonic()
        if self.flop is None and self.counter is None:
            self.counter = flop_counter()
            if self.counter is not None:
                self.counter.__enter__()

    def after_forward(self, *_):
        if self.flop is None:
            if self.counter is not None:
                self.counter.__exit__(None, None, None)
            # The backward pass takes twice the forward pass.
            forward = self.counter.get_total_flops() if self.counter is not None else 0
            self.flop, self.counter = 3.0 * forward * self.ranks, None

    def reduce(self, _, bucket):
        """Times the default all-reduce of DistributedDataParallel."""
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        if not self.has_sent:
            self.has_sent = True
            self.wait_for_slot()
        # The last gradients are ready when the backward pass ends.
        self.ready = time.monotonic()
        if self.pending_reductions == 0:
            self.sending = self.ready
        self.pending_reductions += 1
        import torch.distributed as distributed

        buffer = bucket.buffer() if hasattr(bucket, "buffer") else bucket.get_tensor()
        COUNTER.record(group_ranks(distributed), "all_reduce", buffer_bytes(buffer))
        with COUNTER.suspended():
            future = default_hooks.allreduce_hook(None, bucket)
        return future.then(self.reduced)

    def wait_for_slot(self):
        kept = self.keeper.wait(self.next_slot()) if self.next_slot is not None else None
        if kept is not None:
            self.waited, self.slot_offset = kept

    def reduced(self, future):
        self.pending_reductions -= 1
        if self.pending_reductions == 0 and self.sending is not None:
            self.communication_seconds += time.monotonic() - self.sending
        value = future.value()
        return value[0] if isinstance(value, (list, tuple)) else value

    def after_step(self):
        now = time.monotonic()
        if self.began is None:
            return
        seconds = now - self.began
        communicated = min(self.communication_seconds, seconds)
        iteration = {
            "seconds": seconds,
            "flop": self.flop or 0.0,
            "compute_seconds": min((self.ready or now) - self.began, seconds) - self.waited,
            "communication_seconds": communicated,
        }
        if self.slot_offset is not None:
            iteration["slot_offset_seconds"] = self.slot_offset
        if self.on_iteration is not None:
            groups = COUNTER.take()
            computed = iteration["compute_seconds"] or seconds
            for group in groups:
                for operation, at in group.began.items():
                    part = min(max((at - self.began) / computed, 0.0), 1.0)
                    group.overlap_from[operation] = round(part, 2)
            self.on_iteration(iteration, groups)
        self.began, self.ready, self.communication_seconds = now, None, 0.0
        self.has_sent, self.waited, self.slot_offset = False, 0.0, None

    def close(self):
        """Reports the end of the job and removes the hooks from the model."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        if self.on_iteration is not None:
            self.on_iteration.close()
            self.on_iteration = None


def flop_counter():
    """The FLOP counter of PyTorch; None before 2.1."""
    try:
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:
        return None
    return FlopCounterMode(display=False)


def wrap_step(optimizer, after):
    """Calls `after` after each step of an optimizer without hooks (before PyTorch 2.0)."""
    step = optimizer.step

    def watched(*arguments, **named):
        result = step(*arguments, **named)
        after()
        return result

    optimizer.step = watched


count_process_groups()
