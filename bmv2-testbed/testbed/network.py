"""The fabric in Mininet: hosts in namespaces, switches of either kind, links of the right rate.

The decision: who shapes a link is who sends. A port of `crux switch` has its own scheduler; behind
simple_switch_grpc, whose queues know no rate in bytes, the kernel's HTB does the same with one class
for each level. Hosts pace themselves, as NICs do.
"""

import ipaddress
import os
import pathlib
import signal
import subprocess
import sys
import time

from mininet.link import Link
from mininet.net import Mininet
from mininet.node import Host, Switch

from . import documents

LEVELS = 8
MTU = 9000
# A packet of a level has DSCP 8 times the level, so the upper three bits of the traffic class.
LEVEL_MASK = 0xE0
# Any address will do: the leaf answers for all of them.
GATEWAYS = {4: "169.254.0.1", 6: "fe80::1"}
# Bytes that may wait at each level of each port: the windows of all flows that may meet there.
QUEUE_BYTES = 8 << 20
HERE = pathlib.Path(__file__).parent
# Seconds that an interface may take to come up.
PATIENCE = 10


def quiet(interface, namespace=None):
    """Shell lines that keep an interface from talking by itself, and give it jumbo frames."""
    return (
        f"sysctl -qw net.ipv6.conf.{interface}.disable_ipv6=1 || true; "
        f"ip link set {interface} mtu {MTU} up"
    )


def await_carrier(interface):
    """Waits until the kernel says that an interface works, which it may do a second after the fact:
    a controller that is started before takes the cable for a failed one."""
    state = pathlib.Path(f"/sys/class/net/{interface}/operstate")
    deadline = time.monotonic() + PATIENCE
    while state.read_text().strip() != "up":
        if time.monotonic() > deadline:
            raise RuntimeError(f"{interface} has no carrier")
        time.sleep(0.02)


def attach(interface, address, table):
    """Shell lines that give an interface its only address and a routing table of its own."""
    gateway = GATEWAYS[address.version]
    if address.version == 4:
        return [
            f"ip addr add {address}/32 dev {interface}",
            f"ip route add default via {gateway} dev {interface} onlink table {table}",
            f"ip rule add from {address} lookup {table}",
        ]
    settings = ["accept_ra=0", "accept_dad=0", "addr_gen_mode=1", "disable_ipv6=0"]
    return [
        *(f"sysctl -qw net.ipv6.conf.{interface}.{setting}" for setting in settings),
        f"ip -6 addr add {address}/128 dev {interface} nodad",
        f"ip -6 route add default via {gateway} dev {interface} onlink table {table}",
        f"ip -6 rule add from {address} lookup {table}",
    ]


class P4Switch(Switch):
    """A P4Runtime switch that is a program with the flags of simple_switch_grpc."""

    def __init__(self, name, document, program, rates, log_folder, **options):
        super().__init__(name, **options)
        self.document, self.program, self.rates = document, program, rates
        self.log = open(log_folder / f"{name}.log", "wb")
        self.process = None

    def start(self, controllers):
        """Starts the program on all interfaces there are."""
        del controllers
        for interface in self.attached().values():
            self.cmd(quiet(interface))
        self.prepare()
        command = self.command()
        self.process = subprocess.Popen(
            command, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True
        )

    def stop(self, deleteIntfs=True):
        """Ends the program, and waits for it."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        super().stop(deleteIntfs)

    def attached(self):
        """Names of interfaces by port."""
        ports = {port: str(interface) for port, interface in self.intfs.items()}
        return {port: name for port, name in ports.items() if name != "lo"}

    def cpu_seconds(self):
        """Processor time that the program has used."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def prepare(self):
        """What is to be done before the program starts."""

    def command(self):
        """The command line, the same for both kinds."""
        command = [*self.program, "--no-p4", "--device-id", str(self.document["device_id"])]
        for port, name in sorted(self.attached().items()):
            command += ["-i", f"{port}@{name}"]
        command += self.own_flags()
        address = self.document["p4runtime"]
        command += ["--", "--grpc-server-addr", address, "--cpu-port", "255"]
        return command + ["--priority-queues", str(LEVELS)]

    def own_flags(self):
        """Flags that only one kind has."""
        return []


class CruxSwitch(P4Switch):
    """`crux switch`: its ports shape themselves."""

    def own_flags(self):
        flags = ["--queue-bytes", str(QUEUE_BYTES)]
        for port, rate in sorted(self.rates.items()):
            flags += ["--port-rate", f"{port}={rate}"]
        return flags


class Bmv2Switch(P4Switch):
    """simple_switch_grpc: the kernel shapes its ports."""

    def prepare(self):
        for port, name in self.attached().items():
            subprocess.run(
                ["tc", "-batch", "-"], input=htb(name, self.rates[port]).encode(), check=True
            )

    def own_flags(self):
        return ["--thrift-port", str(10_000 + self.document["device_id"] % 10_000)]


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


class Fabric:
    """A running fabric."""

    def __init__(self, document, kind, program, log_folder):
        self.document = document
        self.net = Mininet(controller=None, link=Link, autoSetMacs=False, build=False)
        rates = self.rates_of_ports()
        self.switches = {
            switch["name"]: self.net.addSwitch(
                switch["name"],
                cls=kind,
                document=switch,
                program=program,
                rates=rates[switch["name"]],
                log_folder=log_folder,
            )
            for switch in document["switches"]
        }
        self.hosts = {
            host["name"]: self.net.addHost(host["name"], cls=Host, ip=None)
            for host in document["hosts"]
        }
        for link in document["links"]:
            (a, a_port), (b, b_port) = documents.ends(link)
            self.net.addLink(*self.net.get(a, b), port1=a_port, port2=b_port)

    def rates_of_ports(self):
        """Bits per second that each port of each switch sends."""
        rates = {switch["name"]: {} for switch in self.document["switches"]}
        for link in self.document["links"]:
            for name, port in documents.ends(link):
                if name in rates:
                    rates[name][port] = round(link["gbps"] * 1e9)
        return rates

    def start(self):
        """Builds the network and starts every switch."""
        self.net.build()
        for host in self.document["hosts"]:
            self.prepare_host(host)
        for switch in self.switches.values():
            switch.start([])
        for switch in self.switches.values():
            for interface in switch.attached().values():
                await_carrier(interface)

    def prepare_host(self, document):
        """Addresses, one routing table for each NIC, no offloads."""
        host = self.hosts[document["name"]]
        lines = ["sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0"]
        names = []
        for nic, address in enumerate(document["ips"]):
            name, table = str(host.intfs[nic]), 100 + nic
            names.append(name)
            lines += [
                quiet(name),
                f"sysctl -qw net.ipv4.conf.{name}.rp_filter=0",
                f"ip link set {name} address {documents.mac_of(document, nic)}",
                f"ip addr flush dev {name}",
                *attach(name, ipaddress.ip_address(address), table),
            ]
        lines.append(f"{sys.executable} {HERE / 'offloads.py'} {' '.join(names)}")
        host.cmd("\n".join(lines))

    def set_link(self, names, state):
        """Takes the first cable between two nodes, "leaf1 spine1", down or up at both ends."""
        link = self.net.linksBetween(*self.net.get(*names.split()))[0]
        for interface in (link.intf1, link.intf2):
            subprocess.run(["ip", "link", "set", str(interface), state], check=True)

    def stop(self):
        """Ends everything that was started here."""
        self.net.stop()
