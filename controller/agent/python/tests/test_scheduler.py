"""The loop and the examples of crux_scheduler, without Crux."""

import io
import json
import unittest

from crux_scheduler import Decision, run
from crux_scheduler.examples import ethereal, least_loaded


def link(src, dst, gbps=100.0):
    return {"from": src, "to": dst, "gbps": gbps, "up": True}


# Two hosts on each of two leaves, two spines; up, across, down.
LINKS = [link("h1", "l1"), link("h2", "l1"), link("l1", "s1"), link("l1", "s2"),
         link("s1", "l2"), link("s2", "l2"), link("l2", "h3"), link("l2", "h4")]


def job(name, up, down, flop):
    flow = {"src": name, "dst": name, "bytes": 1e9, "paths": [[up, 2, 4, down], [up, 3, 5, down]]}
    return {"id": name, "gpus": {"h1": 8}, "flop_per_iteration": flop, "compute_seconds": 1.0,
            "overlap_from": 1.0, "flows": [flow]}


def request(call, fabric=True):
    return {"call": call, "fabric": {"name": "f", "links": LINKS} if fabric else None,
            "levels": [0, 1, 2], "jobs": [job("a", 0, 6, 1e15), job("b", 1, 7, 2e15)]}


def replies(schedule, *requests):
    out = io.StringIO()
    run(schedule, io.StringIO("".join(json.dumps(given) + "\n" for given in requests)), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


class SchedulerTest(unittest.TestCase):
    def test_a_line_answers_each_line_and_the_fabric_is_remembered(self):
        def first_paths(known):
            self.assertEqual(known.links[2].dst, "s1")
            self.assertAlmostEqual(known.links[2].seconds(12.5e9), 1.0)
            return {one.id: Decision([0], 2, 0.5) for one in known.jobs}
        found = replies(first_paths, request(4), request(5, fabric=False))
        expected = [{"id": name, "level": 2, "paths": [0], "start_shift_seconds": 0.5}
                    for name in "ab"]
        self.assertEqual(found, [{"call": call, "jobs": expected} for call in (4, 5)])

    def test_the_examples_take_both_spines(self):
        for example in (least_loaded, ethereal):
            [reply] = replies(example.schedule, request(1))
            paths = {one["id"]: one["paths"] for one in reply["jobs"]}
            self.assertEqual(sorted(paths["a"] + paths["b"]), [0, 1], example.__name__)

    def test_the_most_intense_job_has_the_highest_level(self):
        [reply] = replies(least_loaded.schedule, request(1))
        self.assertEqual({one["id"]: one["level"] for one in reply["jobs"]}, {"b": 2, "a": 1})

    def test_a_flow_without_a_path_has_none(self):
        given = request(1)
        given["jobs"][0]["flows"][0]["paths"] = []
        for example in (least_loaded, ethereal):
            [reply] = replies(example.schedule, given)
            paths = {one["id"]: one["paths"] for one in reply["jobs"]}
            self.assertEqual((paths["a"], len(paths["b"])), ([None], 1), example.__name__)


if __name__ == "__main__":
    unittest.main()
