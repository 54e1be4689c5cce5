"""A torch.distributed that sends: every rank's calls move chunks along rings between hosts, and
what crosses from host to host is counted. Shapes and traffic only; there are no numbers in it."""


class Tensor:
    """As much of a tensor as has a size."""

    def __init__(self, count, width=2):
        self.count, self.width = count, width

    def numel(self):
        return self.count

    def element_size(self):
        return self.width


class ProcessGroup:
    def __init__(self, ranks):
        self.ranks = list(ranks)


class RingNetwork:
    """`hosts` hosts of `per_host` ranks each, and the bytes between hosts."""

    def __init__(self, hosts, per_host):
        self.world, self.per_host = hosts * per_host, per_host
        self.sent = 0

    def move(self, sender, receiver, size):
        if sender // self.per_host != receiver // self.per_host:
            self.sent += size

    def chunk(self, tensor, parts, index):
        """Bytes of part `index`: whole elements, the first parts one larger where they must."""
        count = tensor.count // parts + (index < tensor.count % parts)
        return count * tensor.width

    def pass_around(self, ranks, tensor, rounds):
        """`rounds` times, every rank sends a part to its neighbour in the ring."""
        for turn in range(rounds):
            for place, rank in enumerate(ranks):
                part = (place - turn) % len(ranks)
                neighbour = ranks[(place + 1) % len(ranks)]
                self.move(rank, neighbour, self.chunk(tensor, len(ranks), part))


class Distributed:
    """The module torch.distributed as rank `rank` has it. A collective is carried out by the
    smallest rank of its group for all, since all ranks of a test call it."""

    ProcessGroup = ProcessGroup

    def __init__(self, network, rank):
        self.network, self.rank = network, rank
        self.distributed_c10d = None
        # Functions of a module, which can be replaced, not methods.
        for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor",
                     "all_to_all_single", "isend"):
            setattr(self, name, getattr(self, "_" + name))

    def is_available(self):
        return True

    def get_rank(self):
        return self.rank

    def get_world_size(self, group=None):
        return self.network.world if group is None else len(group.ranks)

    def get_process_group_ranks(self, group):
        return group.ranks

    def leads(self, group):
        ranks = list(range(self.network.world)) if group is None else group.ranks
        return ranks, self.rank == min(ranks)

    def _all_reduce(self, tensor, op=None, group=None, async_op=False):
        ranks, leads = self.leads(group)
        if leads:
            self.network.pass_around(ranks, tensor, 2 * (len(ranks) - 1))

    def _all_gather_into_tensor(self, output_tensor, input_tensor, group=None, async_op=False):
        ranks, leads = self.leads(group)
        if leads:
            self.network.pass_around(ranks, output_tensor, len(ranks) - 1)

    def _reduce_scatter_tensor(self, output, input, op=None, group=None, async_op=False):
        ranks, leads = self.leads(group)
        if leads:
            self.network.pass_around(ranks, input, len(ranks) - 1)

    def _all_to_all_single(self, output, input, group=None, async_op=False):
        ranks, leads = self.leads(group)
        for sender in ranks if leads else ():
            for place, receiver in enumerate(ranks):
                self.network.move(sender, receiver, self.network.chunk(input, len(ranks), place))

    def _isend(self, tensor, dst, group=None, tag=0):
        self.network.move(self.rank, dst, tensor.count * tensor.width)
