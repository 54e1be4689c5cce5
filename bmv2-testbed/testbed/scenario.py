"""A scenario: a fabric, its jobs, the phases they run through, and what happens meanwhile."""

import dataclasses
import json
import pathlib
import subprocess
import tomllib

from . import documents, scheduled
from .queues import Queues


@dataclasses.dataclass
class Event:
    """Something that happens while jobs train."""

    # Seconds of the jobs' own time after they began.
    after_seconds: float
    name: str
    # Policy document to put in force, if that is what happens.
    policy: dict | None = None
    # Cable by the names of its ends, to take down or up.
    link_down: str | None = None
    link_up: str | None = None


@dataclasses.dataclass
class Phase:
    """One run of all jobs."""

    name: str
    # Whether the controller has a document of them.
    jobs_known: bool
    # Whether the jobs report themselves to the controller.
    reported: bool
    # Whether a scheduler announces their hosts, and nothing else.
    scheduled: bool
    event: list


class Scenario:
    """A scenario with its documents, shrunk."""

    def __init__(self, file, crux, options):
        text = tomllib.loads(file.read_text())
        self.title, self.name = text["title"], file.stem
        self.iterations = options.iterations or text["iterations"]
        self.rate_scale = options.rate_scale or text["rate_scale"]
        self.slower = options.slower or text["slower"]
        self.seed = options.seed
        self.phases = [phase(entry) for entry in text["phase"]]
        self.fabric, self.jobs = read_documents(text, file.parent, crux, options)
        self.fabric["forwarding"] = text.get("forwarding", "pin")
        self.jobs["jobs"] = self.jobs["jobs"][: options.jobs]
        if "connections" in text:
            scheduled.split_flows(self.jobs, text["connections"], self.seed)
        documents.shrink(self.fabric, self.jobs, self.rate_scale, self.slower)
        documents.give_addresses(self.fabric, options.first_port)
        self.queues = Queues(options.transport, options.levels, self.slower)

    def problems(self, kind):
        """What a kind of switch cannot do of it."""
        problems = self.queues.problems(kind)
        if problems:
            return problems
        if kind == "bmv2" and self.is_scheduled():
            return ["only the recordings of crux switch are read"]
        return []

    def is_scheduled(self):
        """Whether a scheduler announces the jobs of a phase."""
        return any(phase.scheduled for phase in self.phases)

    def write(self, folder):
        """Writes what all programs read; returns the two files."""
        fabric, jobs = folder / "fabric.json", folder / "jobs.json"
        fabric.write_text(json.dumps(self.fabric))
        jobs.write_text(json.dumps(self.jobs))
        return fabric, jobs


def phase(entry):
    events = [Event(**event) for event in entry.get("event", [])]
    events = sorted(events, key=lambda e: e.after_seconds)
    reported, by_scheduler = entry.get("reported", False), entry.get("scheduled", False)
    return Phase(entry["name"], entry["jobs_known"], reported, by_scheduler, events)


def read_documents(text, folder, crux, options):
    """The explicit fabric document and the jobs document, at their real size."""
    if text.get("documents") == "demo":
        target = pathlib.Path(options.folder)
        command = [crux, "demo", "--documents", str(target), "--seed", str(options.seed)]
        command += ["--scenario", text.get("demo_scenario", "testbed")]
        command += ["--ipv6"] if options.ipv6 else []
        subprocess.run(command, check=True)
        fabric, jobs = target / "fabric.json", target / "jobs.json"
        return json.loads(fabric.read_text()), json.loads(jobs.read_text())
    jobs = json.loads((folder / text["jobs"]).read_text())
    fabric = folder / text["fabric"]
    if options.ipv6:
        fabric = documents.with_ipv6(fabric, pathlib.Path(options.folder))
    return documents.expanded(crux, fabric), jobs
