"""Topologies of Mininet: any fabric document, and a Clos by its numbers."""

from mininet.topo import Topo

from . import documents


class FabricTopo(Topo):
    """The network of a fabric document, a file or an explicit document.

    Rates are divided by `rate_scale`, since namespaces carry no 400 Gbit/s."""

    def build(self, document, rate_scale=1, crux=None):
        crux = crux or documents.crux_program()
        if not isinstance(document, dict):
            document = documents.expanded(crux, document)
        self.document, self.rate_scale = document, rate_scale
        for switch in document["switches"]:
            own = {key: switch[key] for key in ("device_id", "tier")}
            self.addSwitch(switch["name"], **own)
        for host in document["hosts"]:
            own = {"ips": host["ips"], "macs": host.get("macs", []), "gpus": host["gpus"]}
            self.addHost(host["name"], ip=None, **own)
        for link in document["links"]:
            (a, a_port), (b, b_port) = documents.ends(link)
            mbps = link["gbps"] * 1000 / rate_scale
            self.addLink(a, b, port1=a_port, port2=b_port, bw=mbps)


class ClosTopo(FabricTopo):
    """A Clos with the fields of `[clos]` of a fabric document (docs/documents.md)."""

    def build(self, rate_scale=20_000, crux=None, name="clos", **clos):
        fields = {
            "leaves": 2,
            "spines": 2,
            "hosts_per_leaf": 2,
            "gpus_per_host": 8,
            "host_gbps": 200.0,
            "uplink_gbps": 200.0,
        }
        document = documents.expanded_clos(crux or documents.crux_program(), name, fields | clos)
        super().build(document, rate_scale, crux)
