"""The controller and the jobs, started beside the network as an operator would."""

import json
import queue
import signal
import subprocess
import threading
import time

from . import checks

# The longest that tables may take to be verified, and that programs may take to end.
PATIENCE = 60


class Controller:
    """`crux controller`, its documents and what it says."""

    def __init__(self, crux, folder, fabric, settings=""):
        self.jobs, self.policy = folder / "controller-jobs.json", folder / "policy.json"
        self.tell({"jobs": []}, {})
        self.log = open(folder / "controller.log", "wb")
        config = folder / "controller.toml"
        config.write_text('[northbound]\nlisten = "127.0.0.1:0"\n' + settings)
        command = [crux, "--log", "info", "controller", "--fabric", str(fabric)]
        command += ["--config", str(config)]
        command += ["--jobs", str(self.jobs), "--policy", str(self.policy), "--carriers"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True
        )
        self.said = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()
        # Where it serves people, programs, and jobs that tell of themselves.
        self.address = self.hear("serving on").rpartition(" ")[2]

    def listen(self):
        """Collects what it prints; None at the end."""
        for line in self.process.stdout:
            self.said.put(line.strip())
        self.said.put(None)

    def tell(self, jobs, policy):
        """Writes its documents."""
        self.jobs.write_text(json.dumps(jobs))
        self.policy.write_text(json.dumps(policy))

    def reload(self, jobs, policy):
        """Has it take in new documents, and waits until all switches hold the result."""
        self.tell(jobs, policy)
        self.process.send_signal(signal.SIGHUP)
        return self.verified()

    def verified(self):
        """Waits for its word that every switch holds the tables."""
        return self.hear("verified")

    def hear(self, what):
        """Waits for its next word, which must have this in it."""
        try:
            line = self.said.get(timeout=PATIENCE)
        except queue.Empty:
            line = None
        if line is None or what not in line:
            raise RuntimeError(f"{what}: not heard of the controller; see {self.log.name}")
        return line

    def stop(self):
        """Ends it; the switches keep what they have."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Training:
    """`crux job lead` here and `crux job host` in every host that takes part."""

    def __init__(self, crux, folder, files, scenario):
        self.scenario, self.folder = scenario, folder
        fabric, jobs = files
        self.documents = ["--fabric", str(fabric), "--jobs", str(jobs)]
        self.documents += ["--seed", str(scenario.seed)]
        self.crux = crux

    def run(self, network, events, happen, tell=None):
        """Trains, and tells the controller that listens at `tell` of that; gives the lead's result, what the processors did, and when events happened."""
        socket = self.folder / "lead.sock"
        lead = [self.crux, "job", "lead", *self.documents, "--listen", str(socket)]
        lead += ["--iterations", str(self.scenario.iterations), "--format", "json"]
        lead += ["--controller", tell] if tell else []
        with open(self.folder / "jobs.log", "ab") as log:
            lead = subprocess.Popen(lead, stdout=subprocess.PIPE, stderr=log, text=True)
            wait_for(socket, lead)
            hosts = [self.start_host(network.hosts[name], socket, log) for name in self.members()]
            try:
                return self.watch(lead, events, happen)
            finally:
                for process in [lead, *hosts]:
                    if process.poll() is None:
                        process.terminate()
                    process.wait()

    def members(self):
        """Hosts with a flow."""
        flows = [flow for job in self.scenario.jobs["jobs"] for flow in job["flows"]]
        return sorted({flow[end] for flow in flows for end in ("src", "dst")})

    def start_host(self, host, socket, log):
        command = [self.crux, "job", "host", *self.documents]
        command += ["--host", host.name, "--lead", str(socket)]
        return host.popen(command, stdout=log, stderr=log)

    def watch(self, lead, events, happen):
        """Lets events happen at their time until the lead has its result."""
        watch, happened, pending = checks.Watch(), [], list(events)
        began = looked = time.time()
        while lead.poll() is None:
            time.sleep(0.05)
            now = time.time()
            if pending and now - began >= pending[0].after_seconds * self.scenario.slower:
                event = pending.pop(0)
                happen(event)
                happened.append((event.name, now))
            if now - looked >= 1:
                watch.look()
                looked = now
        output = lead.stdout.read()
        if lead.returncode != 0:
            raise RuntimeError(f"the jobs did not train; see {self.folder / 'jobs.log'}")
        if pending:
            raise RuntimeError(f"the jobs ended before: {[event.name for event in pending]}")
        result = json.loads(output)
        since = result["began_unix_seconds"]
        happened = [{"name": name, "at_seconds": max(at - since, 0.0)} for name, at in happened]
        return result, watch.verdict(), happened


def wait_for(path, process):
    """Waits until a file is there."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{path} did not appear")
        time.sleep(0.02)


def rehearse(crux, files, scenario, phase, happened):
    """The same phase on the embedded fabric, with its events when they happened here."""
    fabric, jobs = files
    events = fabric.with_name("events.json")
    events.write_text(json.dumps({"event": embedded(phase.event, happened)}))
    command = [crux, "job", "rehearse", "--fabric", str(fabric), "--jobs", str(jobs)]
    command += ["--seed", str(scenario.seed), "--iterations", str(scenario.iterations)]
    command += ["--events", str(events)]
    is_planned = phase.jobs_known or phase.reported
    command += ["--format", "json"] + ([] if is_planned else ["--ecmp"])
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def embedded(events, happened):
    """Events of a scenario as `crux job rehearse` reads them."""
    cable = lambda ends: "-".join(ends.split())
    spelled = {"policy": lambda policy: policy, "link_down": cable, "link_up": cable}
    return [
        {"name": event.name, "after_seconds": at["at_seconds"]}
        | {
            what: spell(getattr(event, what))
            for what, spell in spelled.items()
            if getattr(event, what) is not None
        }
        for event, at in zip(events, happened)
    ]
