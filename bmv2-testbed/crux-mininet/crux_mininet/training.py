"""Training jobs on the hosts of a Mininet network: `crux job`, and the same on the embedded fabric."""

import json
import pathlib
import subprocess
import time

from . import documents

# The longest that the lead may take to listen.
PATIENCE = 60


class JobPrograms:
    """`crux job lead` here and `crux job host` in every host that takes part."""

    def __init__(self, crux, folder, files, options, sending=()):
        """`files` are the fabric and the jobs, `options` those of all commands of `crux job`,
        `sending` those that say how hosts send."""
        self.crux, self.folder, self.sending = crux, folder, list(sending)
        fabric, self.jobs = files
        self.documents = ["--fabric", str(fabric), "--jobs", str(self.jobs), *options]
        self.lead, self.hosts, self.log = None, [], None

    def start(self, hosts, iterations, controller=None):
        """Lets the jobs train; they report themselves to the controller at that address, if any."""
        sock = self.folder / "lead.sock"
        command = [self.crux, "job", "lead", *self.documents, "--listen", str(sock)]
        command += ["--iterations", str(iterations), "--format", "json"]
        command += ["--controller", controller] if controller else []
        self.log = open(self.folder / "jobs.log", "ab")
        self.lead = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        wait_for(sock, self.lead)
        for name in self.members():
            command = [self.crux, "job", "host", *self.documents]
            command += ["--host", name, "--lead", str(sock), *self.sending]
            self.hosts.append(hosts[name].popen(command, stdout=self.log, stderr=self.log))

    def members(self):
        """Hosts with GPUs of a job."""
        jobs = json.loads(pathlib.Path(self.jobs).read_text())["jobs"]
        flows = [flow for job in jobs for flow in job.get("flows", [])]
        named = {flow[end] for flow in flows for end in ("src", "dst")}
        # A collective is between the hosts that have its GPUs; one alone sends nothing.
        rings = (job["gpus"] for job in jobs if "flows" not in job and len(job["gpus"]) > 1)
        return sorted(named.union(*rings))

    def result(self):
        """What the lead measured, once it has ended."""
        output = self.lead.stdout.read()
        if self.lead.wait() != 0:
            raise RuntimeError(f"the jobs did not train; see {self.log.name}")
        return json.loads(output)

    def stop(self):
        """Ends what still runs."""
        for process in filter(None, [self.lead, *self.hosts]):
            if process.poll() is None:
                process.terminate()
            process.wait()
        if self.lead is not None:
            self.lead.stdout.close()
            self.log.close()

    def rehearse(self, iterations, *options):
        """The same run on the embedded fabric."""
        command = [self.crux, "job", "rehearse", *self.documents]
        command += ["--iterations", str(iterations), *self.sending, *options, "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return json.loads(done.stdout)


class TrainingRun:
    """A jobs document on a running network whose controller is a `CruxController`.

    Sizes are divided by the `rate_scale` of the topology, times multiplied by `slower`."""

    def __init__(self, net, jobs, iterations=5, slower=4.0):
        self.net, self.iterations, self.slower = net, iterations, slower
        self.controller = next(c for c in net.controllers if hasattr(c, "attach_switches"))
        rate_scale = getattr(net.topo, "rate_scale", 1)
        document = json.loads(pathlib.Path(jobs).read_text())
        documents.scale_jobs(document, rate_scale, slower)
        target = self.controller.folder / "jobs.json"
        target.write_text(json.dumps(document))
        files = (self.controller.fabric, target)
        self.programs = JobPrograms(self.controller.crux, self.controller.folder, files, [])

    def train(self):
        """Iteration seconds by job, as measured here."""
        hosts = {host.name: host for host in self.net.hosts}
        try:
            self.programs.start(hosts, self.iterations, self.controller.address)
            return self.seconds(self.programs.result())
        finally:
            self.programs.stop()

    def rehearse(self):
        """Iteration seconds by job on the embedded fabric."""
        return self.seconds(self.programs.rehearse(self.iterations))

    def seconds(self, result):
        """In the jobs' own time."""
        return {
            job["id"]: job["mean_iteration_seconds"] / self.slower
            for job in result["jobs"]
            if job["mean_iteration_seconds"] is not None
        }


def wait_for(path, process):
    """Waits until a file is there."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{path} did not appear")
        time.sleep(0.02)
