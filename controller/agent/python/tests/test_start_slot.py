"""Slots: a job that takes turns waits once for its turn, and then for little."""

import math
import random
import unittest

from crux_telemetry import wire
from crux_telemetry.start_slot import SlotKeeper
from tests import stand_in
from tests.test_torch import RecordingReporter

SLOT = {"period_seconds": 1.02, "first_send_seconds": 0.3, "most_wait_seconds": 0.04}


class Clock:
    """A clock that sleepers move."""

    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Waiting(unittest.TestCase):
    def setUp(self):
        self.clock = Clock(1020.3)
        self.keeper = SlotKeeper(self.clock, self.clock.sleep)

    def wait(self, after, slot=SLOT):
        self.clock.now += after
        kept = self.keeper.wait(slot)
        return kept and tuple(round(part, 6) for part in kept)

    def test_a_slot_is_found_once_and_then_kept_by_short_waits(self):
        self.assertIsNone(self.wait(0.0, None))
        self.assertEqual(self.wait(0.4), (0.62, 0.0), "a new slot is waited for")
        self.assertEqual(self.wait(1.0), (0.02, 0.0), "early by 2 %")
        self.assertEqual(self.wait(1.03), (0.0, 0.01), "late: its turn has passed")
        self.assertEqual(self.wait(0.9), (0.04, -0.07), "no longer than it may")
        self.assertIsNone(self.wait(1.0, {**SLOT, "period_seconds": 0.0}))
        self.assertEqual(self.wait(0.1), (0.0, 0.01), "a new slot, and it is there")

    def test_a_slot_that_makes_no_sense_stops_no_job(self):
        for period in (math.nan, math.inf, 1e9, None):
            self.assertIsNone(self.wait(0.4, {**SLOT, "period_seconds": period}), period)
        self.assertIsNone(self.wait(0.4, {"period_seconds": 1.0}))

    def test_two_jobs_that_fill_a_link_take_turns_beside_jitter(self):
        """Each needs the link for half of a second after half of one; either computes 2 % longer or
        shorter at random."""
        clocks = [Clock(1000.0), Clock(1000.2)]
        slots = [{**SLOT, "first_send_seconds": at, "period_seconds": 1.04} for at in (0.0, 0.52)]
        keepers = [SlotKeeper(clock, clock.sleep) for clock in clocks]
        chance, free_at, begun = random.Random(7), 0.0, [clock.now for clock in clocks]
        rounds = [0, 0]
        while min(clock.now for clock in clocks) < 1600.0:
            job = clocks.index(min(clocks, key=lambda clock: clock.now))
            clocks[job].sleep(0.5 * chance.uniform(0.98, 1.02))
            keepers[job].wait(slots[job])
            clocks[job].now = free_at = max(clocks[job].now, free_at) + 0.51
            rounds[job] += 1
        for job in (0, 1):
            share = 1.01 / ((clocks[job].now - begun[job]) / rounds[job])
            self.assertGreater(share, 0.96)


class Reported(unittest.TestCase):
    def test_the_hook_waits_on_rank_0_and_says_how_late_it_was(self):
        with stand_in.installed(ranks=4):
            from crux_telemetry import torch as hook

            reporter, model, optimizer = RecordingReporter(), stand_in.Model(), stand_in.Optimizer()
            reporter.slot = lambda job: SLOT
            watch = hook.watch(model, optimizer, "gpt", {"h1": 4}, reporter=reporter, can_wait=True)
            clock = Clock(1020.3)
            watch.keeper = SlotKeeper(clock, clock.sleep)
            for _ in range(3):
                model.train()
                optimizer.step()
                clock.sleep(1.0)
            watch.close()
        job, *iterations, _ = reporter.messages
        self.assertTrue(job["job"]["can_wait"])
        offsets = [message["iteration"]["slot_offset_seconds"] for message in iterations]
        self.assertEqual([round(offset, 6) for offset in offsets], [0.0, 0.0])

    def test_slots_on_the_wire(self):
        numbers = wire.double(1, 1.02) + wire.double(2, 0.3) + wire.double(3, 0.04)
        feedback = wire.decode_feedback(wire.chunk(1, "gpt") + wire.chunk(5, numbers))
        self.assertEqual(feedback["slot"], SLOT)
        announced = wire.announcement({"id": "gpt", "gpus": {}, "can_wait": True})
        self.assertTrue(announced.endswith(wire.integer(15, 1)))
        iteration = {"job": "gpt", "seconds": 1.0, "slot_offset_seconds": -0.01}
        self.assertTrue(wire.window(iteration).endswith(wire.double(9, -0.01)))


if __name__ == "__main__":
    unittest.main()
