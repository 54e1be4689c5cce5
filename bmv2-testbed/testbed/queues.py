"""How hosts send and what the queues of switches do: windows and strict priority alone, or DCQCN over
lossless levels (docs/queues.md)."""

import math

LEVELS = 8
# NCCL_IB_TIMEOUT of jobs that are not slowed down: 4.3 s.
IB_TIMEOUT = 20


class Queues:
    """The transport of a run."""

    def __init__(self, transport, levels, slower):
        self.transport, self.levels = transport, levels or LEVELS
        self.slower = slower

    def problems(self, kind):
        """What cannot be done."""
        if not 1 <= self.levels <= LEVELS:
            return [f"a switch has 1 to {LEVELS} levels, not {self.levels}"]
        if self.transport == "window":
            return []
        if kind == "bmv2":
            return ["bmv2 neither marks packets nor pauses a sender; use --switch crux"]
        return []

    def policy(self):
        """What a policy must say of the levels."""
        return {"levels": self.levels} if self.levels < LEVELS else {}

    def host_flags(self):
        """Flags of hosts, on the machine and on the embedded fabric."""
        # A timer that is not slowed down with the jobs would run out while a flow waits its turn.
        timeout = min(31, IB_TIMEOUT + math.ceil(math.log2(max(self.slower, 1))))
        return ["--transport", self.transport, "--ib-timeout", str(timeout)]

    def switch_flags(self, kind):
        """Flags of `crux switch`, beside those of Mininet's switches."""
        if self.transport == "window" or kind == "bmv2":
            return []
        lossless = ",".join(str(level) for level in range(self.levels))
        return ["--ecn-ramp", "published", "--lossless", lossless]
