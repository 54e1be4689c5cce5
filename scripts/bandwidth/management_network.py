"""The control plane of a fabric as separate processes, each with a cable of its own to count on.

Every switch and every host is a network namespace. A pair of interfaces connects it with the
namespace of the controller for each service: P4Runtime and gNMI of a switch, the agent of a host,
etcd. So the counters of the interfaces here have the bytes of each service,
frame by frame as Ethernet carries them (1,500 bytes at most, nothing is merged), and nothing else:
the cables of the fabric are other pairs, between the namespaces of switches.
"""

import hashlib
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

INSIDE = "CRUX_MEASURED_NETWORK"
PREFIXES = {"p": "P4Runtime", "g": "gNMI", "t": "telemetry", "e": "etcd"}
CONTROLLER, PORT = "172.31.0.1", 9300
TIMEOUT_SECONDS = 400
FEATURES = ("counters", "learning", "discovery", "tls", "etcd", "without-gnmi")
ALL = FEATURES[:5]


def run_inside(arguments):
    """Runs this script in namespaces of its own, with which all that it starts ends; its output."""
    missing = [name for name in ("unshare", "ip", "mount") if shutil.which(name) is None]
    if missing:
        sys.exit(f"missing: {', '.join(missing)}; install iproute2 and util-linux")
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        command += ["--user", "--map-root-user"]
    if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        sys.exit("cannot make network namespaces; run as root, or allow user namespaces")
    command += [sys.executable, sys.argv[0], *arguments]
    done = subprocess.run(command, env={**os.environ, INSIDE: "1"}, stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return done.stdout


def is_inside():
    """Whether this is that run; makes its namespaces usable."""
    if INSIDE not in os.environ:
        return False
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return True


def pair(block, number):
    """Both addresses of a cable: this end, and that of the switch, host or server."""
    third, fourth = divmod(2 * number, 256)
    return f"172.{block}.{third}.{fourth}", f"172.{block}.{third}.{fourth + 1}"


def ethernet_address(block, number, end):
    return f"02:{block:02x}:{number >> 8:02x}:{number & 255:02x}:00:{end:02x}"


def pair_line(near, far, namespace, block, number):
    """A cable from here to a namespace."""
    addresses = [ethernet_address(block, number, end) for end in (0, 1)]
    return (f"link add {near} address {addresses[0]} type veth "
            f"peer name {far} address {addresses[1]} netns {namespace}")


def end_lines(interface, block, number, end):
    """One end of such a cable. Frames are as a network card sends them: the kernel may merge no
    segments. Neighbours are permanent, because it keeps 1,024 others of all namespaces together.
    """
    near, far = pair(block, number)[end], pair(block, number)[1 - end]
    return [
        f"link set {interface} addrgenmode none gso_max_segs 1 up",
        f"address add {near}/31 dev {interface}",
        f"neigh add {far} lladdr {ethernet_address(block, number, 1 - end)} "
        f"nud permanent dev {interface}",
    ]


def run_ip(lines, namespace=None):
    command = ["ip", *(["-n", namespace] if namespace else []), "-batch", "-"]
    subprocess.run(command, input="\n".join(lines), text=True, check=True)


class ControlPlane:
    """Namespaces, switches, agents and controllers of one fabric."""

    def __init__(self, folder, crux, document, features):
        self.folder, self.crux, self.features = folder, crux, features
        expand = [crux, "fabric", "expand", document, "--format", "json"]
        self.fabric = json.loads(subprocess.run(expand, check=True, capture_output=True).stdout)
        self.switches = {switch["name"]: n for n, switch in enumerate(self.fabric["switches"])}
        self.hosts = {host["name"]: n for n, host in enumerate(self.fabric["hosts"])}
        self.processes, self.nics, self.ports = [], {}, {name: [] for name in self.switches}
        for name, number in self.switches.items():
            switch = self.fabric["switches"][number]
            switch["device_id"] = number + 1
            switch["p4runtime"] = f"{pair(16, number)[1]}:9559"
            switch["gnmi"] = f"{pair(17, number)[1]}:9339"
        (folder / "fabric.json").write_text(json.dumps(self.fabric))
        self.token = None
        if "tls" in features:
            self.make_certificates()

    def make_certificates(self):
        names = ["--name", CONTROLLER]
        command = [self.crux, "init", "--folder", self.folder / "tls", *names]
        command += ["--fabric", self.folder / "fabric.json"]
        subprocess.run(command, check=True, capture_output=True)
        # `crux init` knows a switch by its P4Runtime address alone, and gNMI has another one here.
        listed = self.folder / "tls/certificates.json"
        certificates = json.loads(listed.read_text())
        for certificate in certificates:
            number = self.switches.get(certificate["file"].removeprefix("switch-"))
            if number is not None:
                certificate["names"].append(pair(17, number)[1])
        listed.write_text(json.dumps(certificates))
        command = [self.crux, "cert", "renew", "--folder", self.folder / "tls"]
        subprocess.run(command, check=True, capture_output=True)
        self.token = (self.folder / "tls/operator.token").read_text().strip()

    def build(self):
        """Makes namespaces and cables."""
        lines = [f"address add {CONTROLLER}/32 dev lo"]
        for number in self.switches.values():
            lines += [f"netns add s{number}"]
            lines += [pair_line(f"p{number}", "p4rt", f"s{number}", 16, number)]
            lines += [pair_line(f"g{number}", "gnmi", f"s{number}", 17, number)]
        for number in self.hosts.values():
            lines += [f"netns add h{number}"]
            lines += [pair_line(f"t{number}", "agent", f"h{number}", 18, number)]
        lines += [self.cable_line(link) for link in self.fabric["links"]]
        for prefix, block, count in (
            ("p", 16, len(self.switches)), ("g", 17, len(self.switches)),
            ("t", 18, len(self.hosts)),
        ):
            for number in range(count):
                lines += end_lines(f"{prefix}{number}", block, number, 0)
        for nic in self.nics.values():
            lines += [f"link set {nic} addrgenmode none up"]
        run_ip(lines)
        for name, number in self.switches.items():
            own = end_lines("p4rt", 16, number, 1) + end_lines("gnmi", 17, number, 1)
            own += [f"route add 172.20.0.0/16 via {pair(16, number)[0]}",
                    f"route add 172.22.0.0/16 via {pair(17, number)[0]}"]
            own += [f"link set port{port} addrgenmode none up" for port in self.ports[name]]
            run_ip(own, f"s{number}")
        for number in self.hosts.values():
            own = end_lines("agent", 18, number, 1)
            run_ip([*own, f"route add default via {pair(18, number)[0]}"], f"h{number}")
        pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def cable_line(self, link):
        """A cable of the fabric. The host's end is here, where its packets are made."""
        ends = []
        for end in (link["a"], link["b"]):
            name, port = end.rsplit(":", 1)
            if name in self.switches:
                self.ports[name].append(int(port))
                ends.append(f"port{port} netns s{self.switches[name]}")
            else:
                self.nics[name, int(port)] = f"n{self.hosts[name]}x{port}"
                ends.append(self.nics[name, int(port)])
        return f"link add {ends[0]} type veth peer name {ends[1]}"

    def spawn(self, namespace, command):
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        log = (self.folder / "log").open("a")
        command = [*inside, *map(str, command)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        self.processes.append(process)

    def start_switches(self):
        for name, number in self.switches.items():
            flags = ["--no-p4", "--device-id", str(number + 1)]
            for port in self.ports[name]:
                flags += ["-i", f"{port}@port{port}"]
            flags += ["--gnmi", f"{pair(17, number)[1]}:9339", "--priority-queues", "8"]
            flags += ["--grpc-server-addr", f"{pair(16, number)[1]}:9559"]
            if "tls" in self.features:
                own, tls = self.folder / "tls" / f"switch-{name}", self.folder / "tls"
                flags += ["--grpc-server-ssl", "--grpc-server-cert", f"{own}.pem"]
                flags += ["--grpc-server-key", f"{own}.key.pem"]
                flags += ["--grpc-server-cacert", tls / "ca.pem", "--grpc-server-with-client-auth"]
                flags += ["--allow-role", "=controller.crux"]
            self.spawn(f"s{number}", [self.crux, "switch", *flags])

    def start_agents(self):
        """An agent on every host, whether it has a job or not."""
        for name, number in self.hosts.items():
            command = [self.crux, "agent", "--controller", f"{CONTROLLER}:{PORT}", "--host", name]
            command += ["--socket", self.socket_of(name)]
            if "tls" in self.features:
                command += ["--ca", self.folder / "tls/ca.pem"]
                command += ["--token-file", self.folder / "tls/report.token"]
            self.spawn(f"h{number}", command)
        for name in self.hosts:
            self.wait_for(self.socket_of(name).exists, f"the agent of {name}")

    def socket_of(self, host):
        return self.folder / f"{host}.sock"

    def start_controllers(self):
        if "etcd" in self.features:
            self.start_etcd()
        self.start_controller()

    def connect_namespace(self, name, cables):
        lines = [f"netns add {name}"]
        for prefix, block, far in cables:
            lines += [pair_line(f"{prefix}0", far, name, block, 0)]
            lines += end_lines(f"{prefix}0", block, 0, 0)
        run_ip(lines)
        for _, block, far in cables:
            run_ip(end_lines(far, block, 0, 1), name)

    def start_etcd(self):
        self.connect_namespace("etcd", (("e", 21, "own"),))
        url, peers = (f"http://{pair(21, 0)[1]}:{port}" for port in (2379, 2380))
        command = ["etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", url]
        command += ["--advertise-client-urls", url, "--listen-peer-urls", peers]
        self.spawn("etcd", command)

    def start_controller(self):
        config = self.folder / "controller.toml"
        config.write_text(self.configuration())
        command = [self.crux, "--log", "error", "controller", "--config", config]
        self.spawn(None, [*command, "--fabric", self.folder / "fabric.json"])

    def configuration(self):
        """Only what differs from the defaults."""
        folder = self.folder / "tls"
        lines = [f"[{name}]\nenabled = true" for name in ("counters", "learning", "discovery")
                  if name in self.features]
        if "without-gnmi" in self.features:
            lines += ["[gnmi]\nenabled = false"]
        if "etcd" not in self.features:
            lines += [f"[store]\npath = '{self.folder}/controller.redb'"]
        lines += [f'[northbound]\nlisten = "0.0.0.0:{PORT}"']
        if "tls" not in self.features:
            lines += ["anyone = true"]
        else:
            lines += [f"[northbound.tls]\ncertificate = '{folder}/controller.pem'",
                      f"key = '{folder}/controller.key.pem'"]
            for name, role in (("operator", "write"), ("report", "report")):
                token = (folder / f"{name}.token").read_text().strip()
                digest = hashlib.sha256(token.encode()).hexdigest()
                lines += [f'[[northbound.tokens]]\nname = "{name}"\nrole = "{role}"',
                          f'sha256 = "{digest}"']
            lines += [f"[tls]\nca = '{folder}/ca.pem'\ncert = '{folder}/controller.pem'",
                      f"key = '{folder}/controller.key.pem'"]
        if "etcd" in self.features:
            lines += [f'[etcd]\nendpoints = ["{pair(21, 0)[1]}:2379"]']
        return "\n".join(lines) + "\n"

    def ask(self, path):
        """The JSON of an answer of the first controller; over the loopback interface."""
        scheme, context = "http", None
        if "tls" in self.features:
            scheme, authority = "https", self.folder / "tls/ca.pem"
            context = ssl.create_default_context(cafile=authority)
        request = urllib.request.Request(f"{scheme}://127.0.0.1:{PORT}{path}")
        if self.token:
            request.add_header("authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return json.loads(answer.read())

    def verified(self, jobs=()):
        """Waits until these jobs are planned and every switch is verified; rows of switches."""
        rows = []

        def is_verified():
            rows[:] = self.ask("/v1/switches")
            planned = {row["id"] for row in self.ask("/v1/jobs")}
            held = {row["verified_generation"] for row in rows}
            return set(jobs) == planned and len(held) == 1 and None not in held

        self.wait_for(is_verified, "all switches verified")
        return rows

    def wait_for(self, is_done, what):
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                if is_done():
                    return
            except (OSError, urllib.error.URLError):
                pass
            ended = any(process.poll() is not None for process in self.processes)
            if ended or time.monotonic() > deadline:
                log = (self.folder / "log").read_text()[-2000:]
                why = "a program ended" if ended else f"not within {TIMEOUT_SECONDS} s"
                sys.exit(f"{why}: {what}\n{log}")
            time.sleep(0.1)

    def switch_links(self):
        """The cables between switches, in the form of the fabric document."""
        return [link for link in self.fabric["links"]
                if all(end.rsplit(":", 1)[0] in self.switches for end in (link["a"], link["b"]))]

    def set_cable(self, link, state):
        """Takes one end of a cable down or up; both switches report it over gNMI."""
        name, port = link["a"].rsplit(":", 1)
        run_ip([f"link set port{port} {state}"], f"s{self.switches[name]}")

    def read_counters(self):
        """By service and interface: bytes and frames from there, and towards it."""
        counted = {}
        for line in pathlib.Path("/proc/net/dev").read_text().splitlines()[2:]:
            name, values = line.split(":")
            name, values = name.strip(), list(map(int, values.split()))
            service = PREFIXES.get(name[0])
            if service and name[1:].isdigit():
                counted[service, int(name[1:])] = (values[0], values[1], values[8], values[9])
        return counted
