"""Hosts that reach a Crux fabric: addresses, a routing table for each NIC, no offloads.

A leaf answers every ARP request and neighbour solicitation of its hosts, so any gateway will do.
"""

import functools
import ipaddress
import pathlib
import sys

from mininet.link import Intf
from mininet.node import Host

from . import documents

MTU = 9000
# The routing table of the first NIC.
FIRST_TABLE = 100
# Any address will do: the leaf answers for all of them.
GATEWAYS = {4: "169.254.0.1", 6: "fe80::1"}
HERE = pathlib.Path(__file__).parent


def quiet(interface):
    """Shell lines that keep an interface from talking by itself, and give it jumbo frames."""
    return (
        f"sysctl -qw net.ipv6.conf.{interface}.disable_ipv6=1 || true; "
        f"ip link set {interface} mtu {MTU} up"
    )


def attach(interface, address, table):
    """Shell lines that give an interface its only address, and have it use a routing table."""
    if address.version == 4:
        return [
            f"ip addr add {address}/32 dev {interface}",
            f"ip rule add from {address} lookup {table}",
        ]
    settings = ["accept_ra=0", "accept_dad=0", "addr_gen_mode=1", "disable_ipv6=0"]
    return [
        *(f"sysctl -qw net.ipv6.conf.{interface}.{setting}" for setting in settings),
        f"ip -6 addr add {address}/128 dev {interface} nodad",
        f"ip -6 rule add from {address} lookup {table}",
    ]


def routes(interface, address, nic):
    """Shell lines: packets with this address leave by this interface, and by the first those without
    one. The kernel forgets them when the interface goes down."""
    family = "-6 " if address.version == 6 else ""
    gateway = GATEWAYS[address.version]
    route = f"ip {family}route replace default via {gateway} dev {interface} onlink"
    return [f"{route} table {FIRST_TABLE + nic}", *([route] if nic == 0 else [])]


class CruxHost(Host):
    """A host with one address for each NIC: `ips`, or else `ip` for the only one."""

    def __init__(self, name, ips=None, macs=None, gpus=8, **options):
        super().__init__(name, **options)
        self.stated, self.macs, self.gpus = ips, macs or [], gpus

    def config(self, **options):
        """Prepares the NICs, which are the ports from 0 on."""
        del options
        self.ips = [str(address) for address in self.addresses()]
        lines = ["sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0"]
        names = []
        for nic, address in enumerate(map(ipaddress.ip_address, self.ips)):
            interface = self.intfs[nic]
            names.append(str(interface))
            interface.ip, interface.prefixLen = str(address), address.max_prefixlen
            interface.mac = self.mac_of(nic)
            lines += [
                quiet(interface),
                f"sysctl -qw net.ipv4.conf.{interface}.rp_filter=0",
                f"ip link set {interface} address {interface.mac}",
                f"ip addr flush dev {interface}",
                *attach(interface, address, FIRST_TABLE + nic),
                *routes(interface, address, nic),
            ]
            interface.ifconfig = functools.partial(self.set_status, nic)
        lines.append(f"{sys.executable} {HERE / 'offloads.py'} {' '.join(names)}")
        lines.append("ip link set lo up")
        _, errors, status = self.pexec("sh", "-e", "-c", "\n".join(lines))
        if status != 0:
            raise RuntimeError(f"{self.name}: {errors.strip()}")

    def set_status(self, nic, *words):
        """What Mininet's `configLinkStatus` calls: after `up` the host has its routes again."""
        done = Intf.ifconfig(self.intfs[nic], *words)
        if words == ("up",):
            address = ipaddress.ip_address(self.ips[nic])
            self.cmd("; ".join(routes(self.intfs[nic], address, nic)))
        return done

    def addresses(self):
        """The address of each NIC."""
        stated = self.stated or [self.params.get("ip")]
        if len(stated) != len(self.intfs) or None in stated:
            raise ValueError(
                f"host {self.name} has {len(self.intfs)} NICs and the addresses {stated}: "
                f"give it ips=[...] with one address for each NIC"
            )
        return [ipaddress.ip_interface(address).ip for address in stated]

    def mac_of(self, nic):
        """The Ethernet address of a NIC."""
        return self.macs[nic] if nic < len(self.macs) else documents.mac_of(self.ips[nic])
