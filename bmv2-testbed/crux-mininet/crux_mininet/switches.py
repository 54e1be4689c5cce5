"""P4Runtime switches that are programs with the flags of simple_switch_grpc.

The decision: who shapes a link is who sends. A port of `crux switch` has its own scheduler; behind
simple_switch_grpc, whose queues know no rate in bytes, the kernel's HTB does the same with one class
for each level. A link has the rate of its parameter `bw`, Mbit/s as Mininet's.

simple_switch_grpc stops forwarding at all ports when one of its own interfaces is taken down, and is
not mended by taking it up. Each of its ports is therefore an interface of its own, and a bridge joins
that to the interface of the link, which may go down as often as it likes.
"""

import functools
import itertools
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

from mininet.node import Switch

from . import documents
from .hosts import MTU, quiet

LEVELS = 8
# A packet of a level has DSCP 8 times the level, so the upper three bits of the traffic class.
LEVEL_MASK = 0xE0
# Bytes that may wait at each level of each port: the windows of all flows that may meet there.
QUEUE_BYTES = 8 << 20
# The first port of P4Runtime that is tried; below those that the system lends to clients.
FIRST_PORT = 9560
# Seconds that an interface may take to come up.
PATIENCE = 10


def await_carrier(interface):
    """Waits until the kernel says that an interface works, which it may do a second after the fact:
    a controller that is started before takes the cable for a failed one."""
    state = pathlib.Path(f"/sys/class/net/{interface}/operstate")
    deadline = time.monotonic() + PATIENCE
    while state.read_text().strip() != "up":
        if time.monotonic() > deadline:
            raise RuntimeError(f"{interface} has no carrier")
        time.sleep(0.02)


def free_address(ports=itertools.count(FIRST_PORT)):
    """An address of this machine that nobody listens on, another one at each call."""
    for port in ports:
        with socket.socket() as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind(("127.0.0.1", port))
                return f"127.0.0.1:{port}"
            except OSError:
                continue
    raise RuntimeError("no port is free")


class P4Switch(Switch):
    """A P4Runtime switch in the namespace of the machine."""

    numbers = itertools.count(1)

    def __init__(
        self, name, device_id=None, p4runtime=None, tier=None, program=None, log_folder=None,
        levels=LEVELS, **options,
    ):
        self.device_id = device_id or next(self.numbers)
        # Names without a number have no datapath id by themselves.
        options.setdefault("dpid", f"{self.device_id:x}")
        super().__init__(name, **options)
        self.p4runtime = p4runtime or free_address()
        self.tier, self.program = tier, program or self.default_program()
        self.log_folder, self.levels = log_folder, levels
        self.process, self.log, self.controllers = None, None, []

    def start(self, controllers):
        """Starts the program on all interfaces there are."""
        self.controllers = controllers
        for interface in self.attached().values():
            self.cmd(quiet(interface))
        self.prepare()
        folder = self.log_folder or tempfile.gettempdir()
        self.log = open(pathlib.Path(folder) / f"{self.name}.log", "wb")
        self.process = subprocess.Popen(
            self.command(), stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True
        )

    @classmethod
    def batchStartup(cls, switches):
        """Mininet calls this when all switches have been started: only now is the network whole."""
        for switch in switches:
            for interface in switch.attached().values():
                await_carrier(interface)
        for controller in switches[0].controllers:
            if hasattr(controller, "attach_switches"):
                controller.attach_switches(switches)
        return switches

    def tidy(self):
        """What is to be done after the program has ended."""

    def stop(self, deleteIntfs=True):
        """Ends the program, and waits for it."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.log.close()
            self.tidy()
        super().stop(deleteIntfs)

    def attached(self):
        """Names of interfaces by port."""
        ports = {port: str(interface) for port, interface in self.intfs.items()}
        return {port: name for port, name in ports.items() if name != "lo"}

    def served(self):
        """Names of the interfaces that the program reads, by port."""
        return self.attached()

    def rates(self):
        """Bits per second of each port whose link has a rate."""
        rates = {port: self.intfs[port].params.get("bw") for port in self.attached()}
        return {port: round(mbps * 1e6) for port, mbps in rates.items() if mbps}

    def cpu_seconds(self):
        """Processor time that the program has used."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def default_program(self):
        """The words that begin its command line."""
        raise NotImplementedError

    def prepare(self):
        """What is to be done before the program starts."""

    def command(self):
        """The command line, the same for both kinds."""
        command = [*self.program, "--no-p4", "--device-id", str(self.device_id)]
        for port, name in sorted(self.served().items()):
            command += ["-i", f"{port}@{name}"]
        command += self.own_flags()
        command += ["--", "--grpc-server-addr", self.p4runtime, "--cpu-port", "255"]
        return command + ["--priority-queues", str(self.levels)]

    def own_flags(self):
        """Flags that only one kind has."""
        return []


class CruxSwitch(P4Switch):
    """`crux switch`: its ports shape themselves."""

    def default_program(self):
        return [documents.crux_program(), "switch"]

    def own_flags(self):
        flags = ["--queue-bytes", str(QUEUE_BYTES)]
        for port, rate in sorted(self.rates().items()):
            flags += ["--port-rate", f"{port}={rate}"]
        return flags


class Bmv2Switch(P4Switch):
    """simple_switch_grpc: the kernel shapes its ports."""

    def default_program(self):
        return ["simple_switch_grpc"]

    def prepare(self):
        attached, served = self.attached(), self.served()
        # Mininet removes the links before it stops the switches.
        self.joined = list(served.values())
        for port, own in served.items():
            subprocess.run(["ip", "-batch", "-"], input=joined(own, attached[port]), check=True)
            for interface in (own, f"{own}o", f"{own}b"):
                self.cmd(quiet(interface))
        for port, rate in self.rates().items():
            lines = htb(served[port], rate).encode()
            subprocess.run(["tc", "-batch", "-"], input=lines, check=True)

    def tidy(self):
        for own in self.joined:
            for interface in (f"{own}b", own):
                subprocess.run(["ip", "link", "del", interface], capture_output=True, check=False)

    def served(self):
        return {port: f"bm{self.device_id}p{port}" for port in self.attached()}

    def own_flags(self):
        # Several would listen on one port; a build without Thrift has no such flag.
        if "--thrift-port" not in known_flags(self.program[0]):
            return []
        return ["--thrift-port", str(10_000 + self.device_id % 10_000)]


@functools.cache
def known_flags(program):
    """What a program says of its flags."""
    done = subprocess.run([program, "--help"], capture_output=True, text=True)
    return done.stdout + done.stderr


def joined(own, attached):
    """A bridge between an interface of the program and that of a link: lines for `ip -batch`. It
    learns nothing and holds nothing back, as a cable."""
    bridge = f"{own}b"
    lines = [
        f"link add {own} type veth peer name {own}o",
        f"link add {bridge} type bridge forward_delay 0 ageing_time 0 mcast_snooping 0 "
        "group_fwd_mask 65528",
        *(f"link set {name} mtu {MTU}" for name in (own, f"{own}o")),
        *(f"link set {name} master {bridge}" for name in (f"{own}o", attached)),
        *(f"link set {name} up" for name in (own, f"{own}o", bridge)),
    ]
    return ("\n".join(lines) + "\n").encode()


def htb(interface, rate):
    """Strict priority under one rate: lines for `tc -batch`."""
    lines = [
        f"qdisc add dev {interface} root handle 1: htb default 10",
        f"class add dev {interface} parent 1: classid 1:1 htb rate {rate}bit burst {MTU} cburst {MTU}",
    ]
    for level in range(LEVELS):
        leaf = f"1:{10 + level}"
        lines += [
            f"class add dev {interface} parent 1:1 classid {leaf} htb rate 16kbit ceil {rate}bit "
            f"prio {LEVELS - 1 - level} burst {MTU} cburst {MTU} quantum {MTU}",
            f"qdisc add dev {interface} parent {leaf} pfifo limit 500",
            f"filter add dev {interface} parent 1: protocol ip prio 1 u32 "
            f"match ip tos {level * 32:#x} {LEVEL_MASK:#x} flowid {leaf}",
            f"filter add dev {interface} parent 1: protocol ipv6 prio 2 u32 "
            f"match ip6 priority {level * 32:#x} {LEVEL_MASK:#x} flowid {leaf}",
        ]
    return "\n".join(lines) + "\n"
