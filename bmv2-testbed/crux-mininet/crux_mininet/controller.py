"""`crux controller` as a program, and as the controller of a Mininet network.

The network is described to it by a fabric document, which is made of what Mininet has built.
"""

import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import urllib.request

from mininet.node import Node

from . import documents

# The longest that tables may take to be verified, and that programs may take to end.
PATIENCE = 60
# Rate of a link that has no parameter `bw`, Gbit/s; nothing shapes it.
UNSHAPED_GBPS = 10.0


class ControllerProgram:
    """`crux controller`, its documents and what it prints."""

    def __init__(self, crux, folder, fabric, settings=""):
        self.jobs, self.policy = folder / "controller-jobs.json", folder / "policy.json"
        self.write_documents({"jobs": []}, {})
        self.log = open(folder / "controller.log", "wb")
        config = folder / "controller.toml"
        config.write_text('[northbound]\nlisten = "127.0.0.1:0"\n' + settings)
        command = [crux, "--log", "info", "controller", "--fabric", str(fabric)]
        command += ["--config", str(config)]
        command += ["--jobs", str(self.jobs), "--policy", str(self.policy), "--carriers"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True
        )
        self.printed = queue.Queue()
        threading.Thread(target=self.collect_lines, daemon=True).start()
        # Where it serves people, programs, and jobs that report themselves.
        self.address = self.next_line("serving on").rpartition(" ")[2]

    def collect_lines(self):
        """Collects what it prints; None at the end."""
        for line in self.process.stdout:
            self.printed.put(line.strip())
        self.printed.put(None)

    def write_documents(self, jobs, policy):
        """Writes its documents."""
        self.jobs.write_text(json.dumps(jobs))
        self.policy.write_text(json.dumps(policy))

    def reload(self, jobs, policy):
        """Has it read new documents, and waits until all switches hold the result."""
        self.write_documents(jobs, policy)
        self.process.send_signal(signal.SIGHUP)
        return self.verified()

    def verified(self):
        """Waits until it prints that every switch holds the tables."""
        return self.next_line("verified")

    def next_line(self, text):
        """Waits for its next line, which must have this in it."""
        try:
            line = self.printed.get(timeout=PATIENCE)
        except queue.Empty:
            line = None
        if line is None or text not in line:
            raise RuntimeError(f"the controller has not printed `{text}`; see {self.log.name}")
        return line

    def stop(self):
        """Ends it; the switches keep what they have."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()


class CruxController(Node):
    """The controller of a Mininet network whose switches are `CruxSwitch` or `Bmv2Switch`.

    `net.start()` returns when the switches hold their tables. It is no `Controller` of Mininet,
    which are OpenFlow's and need telnet."""

    def __init__(self, name, crux=None, settings="", folder=None, **options):
        super().__init__(name, inNamespace=False, **options)
        self.crux, self.settings = crux or documents.crux_program(), settings
        self.kept = folder
        self.program, self.folder = None, None

    def start(self):
        """Makes the folder of documents and logs; the program waits for the switches."""
        self.folder = pathlib.Path(self.kept or tempfile.mkdtemp(prefix="crux-mininet-"))
        self.folder.mkdir(parents=True, exist_ok=True)

    def attach_switches(self, switches):
        """Starts the program with a document of the network."""
        self.fabric = self.folder / "fabric.json"
        self.fabric.write_text(json.dumps(fabric_of(switches), indent=1))
        self.program = ControllerProgram(self.crux, self.folder, self.fabric, self.settings)
        self.address = self.program.address
        self.program.verified()

    def ask(self, path):
        """What it answers to a GET, such as `ask("/v1/jobs")`."""
        request = urllib.request.Request(f"http://{self.address}{path}")
        request.add_header("Authorization", f"Bearer {local_token()}")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def stop(self, deleteIntfs=False):
        """Ends the program, and removes the folder unless one was given."""
        if self.program is not None:
            self.program.stop()
            self.program = None
        if self.folder is not None and self.kept is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        super().stop(deleteIntfs)


def local_token():
    """The token of this machine, which the controller makes for the user who starts it."""
    state = os.environ.get("XDG_STATE_HOME") or pathlib.Path.home() / ".local" / "state"
    return (pathlib.Path(state) / "crux" / "token").read_text().strip()


def fabric_of(switches):
    """The fabric document of a Mininet network."""
    links = {interface.link for switch in switches for interface in switch.intfs.values()}
    links = sorted((link for link in links if link), key=lambda link: str(link.intf1))
    nodes = {end.node for link in links for end in (link.intf1, link.intf2)}
    hosts = sorted(nodes - set(switches), key=lambda host: host.name)
    neighbours = {switch.name: neighbours_of(switch) for switch in switches}
    tiers = documents.tiers({host.name for host in hosts}, neighbours)
    return {
        "name": "mininet",
        "switches": [
            {
                "name": switch.name,
                "tier": switch.tier or tiers[switch.name],
                "device_id": switch.device_id,
                "p4runtime": switch.p4runtime,
            }
            for switch in switches
        ],
        "hosts": [host_document(host) for host in hosts],
        "links": [link_document(link) for link in links],
    }


def neighbours_of(switch):
    """Names of the nodes beside a switch."""
    ends = [
        end
        for interface in switch.intfs.values()
        if interface.link
        for end in (interface.link.intf1, interface.link.intf2)
    ]
    return {end.node.name for end in ends} - {switch.name}


def host_document(host):
    ports = sorted(port for port, interface in host.intfs.items() if interface.link)
    nics = [host.intfs[port] for port in ports]
    return {
        "name": host.name,
        "gpus": getattr(host, "gpus", 8),
        "ips": [interface.ip for interface in nics],
        "macs": [interface.MAC() for interface in nics],
    }


def link_document(link):
    ends = [f"{end.node.name}:{end.node.ports[end]}" for end in (link.intf1, link.intf2)]
    mbps = link.intf1.params.get("bw")
    gbps = mbps / 1000 if mbps else UNSHAPED_GBPS
    return {"a": ends[0], "b": ends[1], "gbps": gbps}
