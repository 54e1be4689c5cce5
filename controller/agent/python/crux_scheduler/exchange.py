"""Requests of Crux as objects, and the loop that answers them."""

import json
import sys


class Link:
    """A directed link: names of its ends, Gb/s, and whether it works."""

    __slots__ = ("src", "dst", "gbps", "up")

    def __init__(self, given):
        self.src, self.dst = given["from"], given["to"]
        self.gbps, self.up = given["gbps"], given["up"]

    def seconds(self, volume):
        """Seconds that so many bytes take the link."""
        return volume * 8e-9 / self.gbps


class Flow:
    """Bytes of one iteration from a NIC to a NIC; `paths` are lists of numbers of links."""

    __slots__ = ("src", "dst", "bytes", "overlap_from", "paths")

    def __init__(self, given):
        self.src, self.dst = given["src"], given["dst"]
        self.bytes, self.paths = given["bytes"], given["paths"]
        self.overlap_from = given.get("overlap_from")


class Job:
    """A job with its flows; `gpus` is by host."""

    __slots__ = ("id", "gpus", "flop_per_iteration", "compute_seconds", "overlap_from", "flows")

    def __init__(self, given):
        for name in self.__slots__[:-1]:
            setattr(self, name, given[name])
        self.flows = [Flow(flow) for flow in given["flows"]]


class Request:
    """All that a scheduler knows: links by number, levels in ascending order, and jobs. `previous`
    is the request before: a fabric that has not changed is not sent again."""

    def __init__(self, given, previous=None):
        fabric = given["fabric"]
        self.fabric = fabric["name"] if fabric else previous.fabric
        self.links = [Link(link) for link in fabric["links"]] if fabric else previous.links
        self.levels = given["levels"]
        self.jobs = [Job(job) for job in given["jobs"]]


class Decision:
    """What becomes of a job: the place of each flow's path in its `paths` (None for a flow without
    one), a level (the highest is served first), and how long its first iteration waits."""

    __slots__ = ("paths", "level", "start_shift_seconds")

    def __init__(self, paths, level, start_shift_seconds=0.0):
        self.paths, self.level = paths, level
        self.start_shift_seconds = start_shift_seconds


def run(schedule, requests=None, replies=None):
    """Replies to every line of `requests` with what `schedule(request)` returns: a Decision for
    each job, by id. Ends when there are no more lines."""
    replies = replies or sys.stdout
    request = None
    for line in requests or sys.stdin:
        given = json.loads(line)
        request = Request(given, request)
        decisions = schedule(request).items()
        jobs = [{"id": job, "level": decision.level, "paths": decision.paths,
                 "start_shift_seconds": decision.start_shift_seconds}
                for job, decision in decisions]
        replies.write(json.dumps({"call": given["call"], "jobs": jobs}) + "\n")
        replies.flush()
