"""How hosts send and what the queues of switches do: windows and strict priority alone, or DCQCN over
lossless levels (docs/queues.md)."""

import math

LEVELS = 8
# NCCL_IB_TIMEOUT of jobs that are not slowed down: 4.3 s.
IB_TIMEOUT = 20
# As `emulator::SwitchQueues` has them: bytes of a packet, and bytes for each Gb/s of a link.
PACKET = 4154
KMIN_PER_GBPS, KMAX_PER_GBPS, PMAX = 125, 5000, 0.01


class Queues:
    """The transport of a run."""

    def __init__(self, transport, levels, slower, fabric):
        self.transport, self.levels = transport, levels or LEVELS
        self.slower = slower
        self.ramps = sorted({ramp(link["gbps"]) for link in fabric["links"]})

    def problems(self, kind):
        """What cannot be done."""
        if not 1 <= self.levels <= LEVELS:
            return [f"a switch has 1 to {LEVELS} levels, not {self.levels}"]
        if self.transport == "window":
            return []
        if kind == "bmv2":
            return ["bmv2 neither marks packets nor pauses a sender; use --switch crux"]
        if len(self.ramps) > 1:
            return ["ports of a switch mark alike, and these links want " + ", ".join(self.ramps)]
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
        return ["--ecn-ramp", self.ramps[0], "--lossless", lossless]


def ramp(gbps):
    """KMIN:KMAX:PMAX of a link, as the embedded fabric has it."""
    kmin = max(KMIN_PER_GBPS * gbps, 2 * PACKET)
    kmax = max(KMAX_PER_GBPS * gbps, 20 * PACKET)
    return f"{int(kmin)}:{int(kmax)}:{PMAX}"
