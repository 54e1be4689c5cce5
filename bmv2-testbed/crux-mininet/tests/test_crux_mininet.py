"""What needs no root: documents, tiers, command lines."""

import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from crux_mininet import Bmv2Switch, CruxSwitch, controller, documents, hosts, switches  # noqa: E402


class Part:
    """A node or an interface, as far as documents look at it."""

    def __init__(self, **fields):
        self.__dict__.update(fields)

    def __str__(self):
        return self.name


def interface(node, port, name, **params):
    """An end of a cable."""
    end = Part(node=node, params=params, ip=None, link=None, name=name)
    end.MAC = lambda: "02:00:00:00:00:01"
    node.intfs[port] = end
    node.ports[end] = port
    return end


def node(name, **more):
    return Part(name=name, intfs={}, ports={}, **more)


class Link:
    def __init__(self, one, other):
        self.intf1, self.intf2 = one, other
        one.link = other.link = self


class Documents(unittest.TestCase):
    def test_tiers_follow_from_hosts(self):
        beside = {
            "a": {"h1", "b"},
            "b": {"a", "c", "d"},
            "c": {"b"},
            "d": {"b", "h2"},
        }
        found = documents.tiers({"h1", "h2"}, beside)
        self.assertEqual(found, {"a": "leaf", "b": "spine", "c": "core", "d": "leaf"})

    def test_ethernet_addresses_follow_the_rule_of_documents(self):
        self.assertEqual(documents.mac_of("10.0.1.2"), "02:00:0a:00:01:02")
        self.assertEqual(documents.mac_of("fd00:0:0:1::2"), "06:00:01:00:00:02")

    def test_a_network_becomes_a_document(self):
        leaf = node("leaf1", tier=None, device_id=1, p4runtime="127.0.0.1:9560")
        spine = node("spine1", tier="core", device_id=2, p4runtime="127.0.0.1:9561")
        host = node("h1", gpus=4)
        near = interface(host, 0, "h1-eth0", bw=10)
        near.ip = "10.0.1.1"
        Link(near, interface(leaf, 1, "leaf1-eth1", bw=10))
        Link(interface(leaf, 2, "leaf1-eth2"), interface(spine, 1, "spine1-eth1"))
        document = controller.fabric_of([leaf, spine])
        self.assertEqual([s["tier"] for s in document["switches"]], ["leaf", "core"])
        self.assertEqual(document["hosts"][0]["ips"], ["10.0.1.1"])
        self.assertEqual(document["hosts"][0]["gpus"], 4)
        self.assertEqual(
            [(link["a"], link["b"], link["gbps"]) for link in document["links"]],
            [("h1:0", "leaf1:1", 0.01), ("leaf1:2", "spine1:1", controller.UNSHAPED_GBPS)],
        )

    def test_jobs_keep_their_share_of_links(self):
        jobs = {"jobs": [{"compute_seconds": 1.0, "flows": [{"bytes": 1e9}]}]}
        documents.scale_jobs(jobs, 1000, 4)
        self.assertEqual(jobs["jobs"][0], {"compute_seconds": 4.0, "flows": [{"bytes": 4_000_000}]})


class Programs(unittest.TestCase):
    def switch(self, kind):
        """A switch without a process behind it."""
        made = kind.__new__(kind)
        made.device_id, made.p4runtime, made.program = 7, "127.0.0.1:9560", ["program"]
        made.intfs, made.ports, made.levels = {}, {}, 4
        interface(made, 1, "leaf1-eth1", bw=10)
        made.attached = lambda: {1: "leaf1-eth1"}
        return made

    def test_both_kinds_have_one_command_line(self):
        kinds = {
            CruxSwitch: ("1@leaf1-eth1", "--port-rate 1=10000000"),
            Bmv2Switch: ("1@bm7p1", "--thrift-port 10007"),
        }
        with unittest.mock.patch.object(switches, "known_flags", lambda _: "--thrift-port arg"):
            for kind, (port, own) in kinds.items():
                line = " ".join(self.switch(kind).command())
                self.assertIn(f"program --no-p4 --device-id 7 -i {port}", line)
                self.assertIn(own, line)
                self.assertTrue(line.endswith("--cpu-port 255 --priority-queues 4"), line)
        with unittest.mock.patch.object(switches, "known_flags", lambda _: "no Thrift"):
            self.assertEqual(self.switch(Bmv2Switch).own_flags(), [])

    def test_addresses_are_those_of_no_one_else(self):
        one, other = switches.free_address(), switches.free_address()
        self.assertNotEqual(one, other)

    def test_hosts_want_an_address_for_each_nic(self):
        host = hosts.CruxHost.__new__(hosts.CruxHost)
        host.name, host.stated, host.intfs = "h1", ["10.0.1.1"], {0: "a", 1: "b"}
        with self.assertRaisesRegex(ValueError, "2 NICs"):
            host.addresses()

    def test_offloads_of_an_unknown_interface_are_no_error(self):
        program = pathlib.Path(hosts.HERE) / "offloads.py"
        subprocess.run([sys.executable, str(program), "no-such-if"], check=True)


if __name__ == "__main__":
    unittest.main()
