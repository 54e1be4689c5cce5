"""As much of PyTorch as the hook touches, where PyTorch is not installed."""

import contextlib
import sys
import types


class Handle:
    def __init__(self, hooks, hook):
        self.hooks, self.hook = hooks, hook
        hooks.append(hook)

    def remove(self):
        self.hooks.remove(self.hook)


class Future:
    def __init__(self, value):
        self._value = value

    def value(self):
        return self._value

    def then(self, what):
        return Future(what(self))


class Buffer:
    def numel(self):
        return 1000

    def element_size(self):
        return 4


class Bucket:
    def buffer(self):
        return Buffer()


class Model:
    """A DistributedDataParallel of two buckets."""

    def __init__(self):
        self.before, self.after, self.comm_hook = [], [], None

    def register_forward_pre_hook(self, hook):
        return Handle(self.before, hook)

    def register_forward_hook(self, hook):
        return Handle(self.after, hook)

    def register_comm_hook(self, state, hook):
        self.comm_hook = lambda bucket: hook(state, bucket)

    def train(self):
        for hook in list(self.before):
            hook(self, ())
        for hook in list(self.after):
            hook(self, (), None)
        for bucket in (Bucket(), Bucket()):
            self.comm_hook(bucket)


class Optimizer:
    def __init__(self):
        self.steps = []

    def register_step_post_hook(self, hook):
        return Handle(self.steps, hook)

    def step(self):
        for hook in list(self.steps):
            hook(self, (), {})


class Counter:
    def __init__(self, display):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def get_total_flops(self):
        return 1e9


@contextlib.contextmanager
def installed(ranks):
    """The modules that the hook imports."""
    names = ["torch", "torch.distributed", "torch.distributed.algorithms"]
    names += ["torch.distributed.algorithms.ddp_comm_hooks", "torch.utils"]
    names += ["torch.utils.flop_counter"]
    modules = {name: types.ModuleType(name) for name in names}
    for name, module in modules.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, module)
    distributed = modules["torch.distributed"]
    distributed.is_available = distributed.is_initialized = lambda: True
    distributed.get_rank, distributed.get_world_size = (lambda: 0), (lambda: ranks)
    hooks = types.SimpleNamespace(allreduce_hook=lambda _, bucket: Future([bucket.buffer()]))
    modules["torch.distributed.algorithms.ddp_comm_hooks"].default_hooks = hooks
    modules["torch.utils.flop_counter"].FlopCounterMode = Counter
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
