"""The fabric of a scenario in Mininet, with the classes of the package crux-mininet."""

import subprocess

from crux_mininet import CruxHost
from crux_mininet.switches import await_carrier
from mininet.link import Link
from mininet.net import Mininet

from . import documents


class Fabric:
    """A running fabric."""

    def __init__(self, document, kind, program, log_folder, levels):
        self.document = document
        self.net = Mininet(controller=None, link=Link, autoSetMacs=False, build=False)
        self.switches = {
            switch["name"]: self.net.addSwitch(
                switch["name"],
                cls=kind,
                device_id=switch["device_id"],
                p4runtime=switch["p4runtime"],
                program=program,
                log_folder=log_folder,
                levels=levels,
            )
            for switch in document["switches"]
        }
        self.hosts = {
            host["name"]: self.net.addHost(
                host["name"], cls=CruxHost, ip=None, ips=host["ips"], macs=host.get("macs")
            )
            for host in document["hosts"]
        }
        for link in document["links"]:
            (a, a_port), (b, b_port) = documents.ends(link)
            rate = {"bw": link["gbps"] * 1000}
            self.net.addLink(*self.net.get(a, b), port1=a_port, port2=b_port, **rate)

    def start(self):
        """Builds the network and starts every switch."""
        self.net.build()
        for switch in self.switches.values():
            switch.start([])
        for switch in self.switches.values():
            for interface in switch.attached().values():
                await_carrier(interface)

    def set_link(self, names, state):
        """Takes the first cable between two nodes, "leaf1 spine1", down or up at both ends."""
        link = self.net.linksBetween(*self.net.get(*names.split()))[0]
        for interface in (link.intf1, link.intf2):
            subprocess.run(["ip", "link", "set", str(interface), state], check=True)

    def stop(self):
        """Ends everything that was started here."""
        self.net.stop()
