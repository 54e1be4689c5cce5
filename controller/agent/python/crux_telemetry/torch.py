"""The PyTorch hook: one line in a training script.

An iteration lasts from one optimizer.step() to the next. The gradients of a
DistributedDataParallel model are timed, and their bytes counted, in a communication hook that
hands them to the very all-reduce that it would use without. The decision: the first iteration is
for finding out (bytes, FLOP) and the job is announced after it, so nothing is said that is not
known.
"""

import atexit
import time

from .reporter import Reporter


def watch(model, optimizer, job, gpus, to=None, flop_per_iteration=None, reporter=None, **known):
    """Reports every iteration of `model` from now on; returns the Watch, whose close() ends that.

    job, gpus: the job's name, and its GPUs by host of the fabric document. to: path of an agent's
    socket, or HOST:PORT of a controller. flop_per_iteration: of the whole job; counted if not
    given. known: whatever else a jobs document may say, such as tenant or model.
    """
    rank, ranks = place()
    watch = Watch(model, optimizer, ranks, flop_per_iteration)
    if rank == 0:
        watch.tell = Teller(reporter or Reporter(to), job, gpus, known)
        atexit.register(watch.close)
    return watch


def place():
    """This process among those of the job."""
    try:
        import torch.distributed as distributed
    except ImportError:
        return 0, 1
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


class Teller:
    """Announces the job with what its first iteration showed, and then tells of each."""

    def __init__(self, reporter, job, gpus, known):
        self.reporter, self.job, self.gpus, self.known = reporter, job, gpus, known
        self.announced = False

    def __call__(self, iteration, gradient_bytes):
        if not self.announced:
            self.announced = True
            known = dict(self.known)
            if "flows" not in known and "collective" not in known and gradient_bytes:
                known["collective"] = {"kind": "ring_all_reduce", "bytes": float(gradient_bytes)}
            self.reporter.job(self.job, self.gpus, **known)
            return
        self.reporter.iteration(self.job, **iteration)

    def close(self):
        self.reporter.close()


class Watch:
    """Times the iterations of a model."""

    def __init__(self, model, optimizer, ranks, flop_per_iteration):
        self.ranks, self.tell = ranks, None
        self.flop = flop_per_iteration
        self.began = self.sending = self.ready = None
        self.communicated = 0.0
        # Reductions that have begun and not ended, and bytes of all of this iteration.
        self.under_way = self.gradient_bytes = 0
        self.hooks = [model.register_forward_pre_hook(self.before_forward)]
        self.hooks.append(model.register_forward_hook(self.after_forward))
        self.counter = None
        after_step = getattr(optimizer, "register_step_post_hook", None)
        if after_step is not None:
            self.hooks.append(after_step(lambda *_: self.after_step()))
        else:
            wrap(optimizer, self.after_step)
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
        """The all-reduce that DistributedDataParallel does by itself, timed."""
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        # The last gradients are ready when the backward pass ends.
        self.ready = time.monotonic()
        if self.under_way == 0:
            self.sending = self.ready
        self.under_way += 1
        buffer = bucket.buffer() if hasattr(bucket, "buffer") else bucket.get_tensor()
        self.gradient_bytes += buffer.numel() * buffer.element_size()
        future = default_hooks.allreduce_hook(None, bucket)
        return future.then(self.reduced)

    def reduced(self, future):
        self.under_way -= 1
        if self.under_way == 0 and self.sending is not None:
            self.communicated += time.monotonic() - self.sending
        value = future.value()
        return value[0] if isinstance(value, (list, tuple)) else value

    def after_step(self):
        now = time.monotonic()
        if self.began is None:
            return
        seconds = now - self.began
        communicated = min(self.communicated, seconds)
        iteration = {
            "seconds": seconds,
            "flop": self.flop or 0.0,
            "compute_seconds": min((self.ready or now) - self.began, seconds),
            "communication_seconds": communicated,
        }
        if self.tell is not None:
            self.tell(iteration, self.gradient_bytes)
        self.began, self.ready = now, None
        self.communicated, self.gradient_bytes = 0.0, 0

    def close(self):
        """Ends the job; the model goes on without being watched."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        if self.tell is not None:
            self.tell.close()
            self.tell = None


def flop_counter():
    """PyTorch's own counter; none before 2.1."""
    try:
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:
        return None
    return FlopCounterMode(display=False)


def wrap(optimizer, after):
    """For optimizers that have no hooks, which came with PyTorch 2.0."""
    step = optimizer.step

    def watched(*arguments, **named):
        result = step(*arguments, **named)
        after()
        return result

    optimizer.step = watched
