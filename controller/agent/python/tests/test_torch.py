"""The PyTorch hook: in two real processes with gloo where PyTorch is installed, and beside a
stand-in everywhere."""

import json
import multiprocessing
import os
import tempfile
import unittest

from tests import stand_in


class RecordingReporter:
    """A reporter that keeps its messages."""

    def __init__(self):
        self.messages = []

    def job(self, id, gpus, **known):
        self.messages.append({"job": {"id": id, "gpus": gpus, **known}})

    def iteration(self, job, **iteration):
        self.messages.append({"iteration": {"job": job, **iteration}})

    def close(self):
        self.messages.append("closed")


class BesideAStandIn(unittest.TestCase):
    def test_iterations_are_reported_after_the_first(self):
        with stand_in.installed(ranks=4):
            from crux_telemetry import torch as hook

            reporter, model, optimizer = RecordingReporter(), stand_in.Model(), stand_in.Optimizer()
            watch = hook.watch(model, optimizer, "gpt", {"h1": 4}, reporter=reporter, tenant="a")
            for _ in range(3):
                model.train()
                optimizer.step()
            watch.close()
            model.train()
            optimizer.step()
        job, *iterations, closed = reporter.messages
        self.assertEqual(closed, "closed")
        collective = {"kind": "ring_all_reduce", "bytes": 8000.0}
        self.assertEqual(job["job"]["collective"], collective)
        self.assertEqual(job["job"]["tenant"], "a")
        self.assertEqual(len(iterations), 2)
        for message in iterations:
            iteration = message["iteration"]
            self.assertEqual(iteration["flop"], 3e9 * 4)
            self.assertLessEqual(iteration["compute_seconds"], iteration["seconds"])
            self.assertLessEqual(iteration["communication_seconds"], iteration["seconds"])


class OfSeveralGroups(unittest.TestCase):
    def test_a_job_is_announced_by_its_second_iteration(self):
        from crux_telemetry.process_groups import GroupTraffic
        from crux_telemetry.torch import IterationReporter

        def groups(*begins):
            both = [GroupTraffic(range(4)), GroupTraffic((0, 2))][:len(begins)]
            for group, begin in zip(both, begins):
                group.add("all_to_all", 400)
                group.overlap_from = {"all_to_all": begin}
            return both

        recording = RecordingReporter()
        told = IterationReporter(recording, "moe", {"h1": 2, "h2": 2}, {}, (4, 2))
        told({"seconds": 9.0}, groups(0.9, 0.95))
        self.assertEqual(recording.messages, [])
        told({"seconds": 1.0}, groups(0.2, 0.8))
        told({"seconds": 1.0}, groups(0.2, 0.8))
        job, iteration = recording.messages
        begins = {pair["overlap_from"] for pair in job["job"]["rank_traffic"]}
        self.assertEqual((begins, "iteration" in iteration), ({0.2, 0.8}, True))
        alone = RecordingReporter()
        IterationReporter(alone, "ddp", {"h1": 2, "h2": 2}, {}, (4, 2))({}, groups(0.9))
        self.assertEqual(len(alone.messages), 1, "of one group, as ever")
        # It waits before its gradients, which the controller must not take for its first operation.
        waiting = RecordingReporter()
        known = {"can_wait": True}
        IterationReporter(waiting, "w", {"h1": 2, "h2": 2}, known, (4, 2))({}, groups(0.2, 0.8))
        sent = waiting.messages[0]["job"]["rank_traffic"]
        self.assertEqual({pair.get("overlap_from") for pair in sent}, {None})


def train(rank, rendezvous, output):
    """One of two processes that train together."""
    import torch
    import torch.distributed as distributed

    from crux_telemetry import torch as hook

    method = f"file://{rendezvous}"
    distributed.init_process_group("gloo", init_method=method, rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    reporter = RecordingReporter()
    # 2 * 256 * 256 * 32 FLOP of a forward pass, where nothing counts them.
    known = {} if hook.flop_counter() else {"flop_per_iteration": 3 * 2 * 2 * 256 * 256 * 32}
    watch = hook.watch(model, optimizer, "linear", {"h1": 1, "h2": 1}, reporter=reporter, **known)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(32, 256)).sum().backward()
        optimizer.step()
    weights = float(sum(parameter.sum() for parameter in model.parameters()))
    watch.close()
    # The process that leaves first would take away what the other still receives.
    distributed.barrier()
    with open(f"{output}.{rank}", "w") as file:
        json.dump({"messages": reporter.messages, "weights": weights}, file)
    distributed.destroy_process_group()


def call_groups(rank, rendezvous, output):
    """One of two processes that call operations of process groups."""
    import torch
    import torch.distributed as distributed

    from crux_telemetry import torch as hook

    method = f"file://{rendezvous}"
    distributed.init_process_group("gloo", init_method=method, rank=rank, world_size=2)
    hook.COUNTER.take()
    alone = [distributed.new_group([each]) for each in (0, 1)][rank]
    distributed.all_reduce(torch.ones(10), group=alone)
    distributed.all_reduce(torch.ones(100))
    distributed.all_gather([torch.zeros(50), torch.zeros(50)], torch.ones(50))
    # P2POp accepts only the functions of its own module, which are the counted ones.
    both = [distributed.P2POp(distributed.isend, torch.ones(7), 1 - rank)]
    both.append(distributed.P2POp(distributed.irecv, torch.zeros(7), 1 - rank))
    for work in distributed.batch_isend_irecv(both):
        work.wait()
    groups = {str(group.ranks): group.operations for group in hook.COUNTER.take()}
    # The process that leaves first would take away what the other still receives.
    distributed.barrier()
    with open(f"{output}.{rank}", "w") as file:
        json.dump(groups, file)
    distributed.destroy_process_group()


class WithGloo(unittest.TestCase):
    def test_operations_are_counted_by_group(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("no PyTorch here")
        results = self.run_both(call_groups)
        everyone = {"all_reduce": [1, 400], "all_gather": [1, 400], "send": [1, 28]}
        self.assertEqual(results[0], {"(0,)": {"all_reduce": [1, 40]}, "(0, 1)": everyone})
        self.assertEqual(results[1], {"(1,)": {"all_reduce": [1, 40]}, "(0, 1)": everyone})

    def run_both(self, target):
        """What each of two processes has written."""
        with tempfile.TemporaryDirectory() as folder:
            rendezvous, output = os.path.join(folder, "meet"), os.path.join(folder, "out")
            context = multiprocessing.get_context("spawn")
            both = [context.Process(target=target, args=(r, rendezvous, output)) for r in (0, 1)]
            for process in both:
                process.start()
            for process in both:
                # One that hangs would keep this process from ending.
                self.addCleanup(process.kill)
                process.join(60)
            self.assertEqual([process.exitcode for process in both], [0, 0])
            results = []
            for rank in (0, 1):
                with open(f"{output}.{rank}") as file:
                    results.append(json.load(file))
        return results

    def test_two_processes_train_and_one_tells(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("no PyTorch here")
        results = self.run_both(train)
        self.assertEqual(results[1]["messages"], [])
        # The hook reduces as it would be without: both hold the same weights.
        self.assertAlmostEqual(results[0]["weights"], results[1]["weights"], places=3)
        job, *iterations, closed = results[0]["messages"]
        sent = [(pair["src"], pair["dst"], pair["bytes"]) for pair in job["job"]["rank_traffic"]]
        gradients = 4.0 * (256 * 256 + 256)
        self.assertEqual(sent, [(0, 1, gradients), (1, 0, gradients)])
        self.assertEqual(len(iterations), 3)
        for message in iterations:
            iteration = message["iteration"]
            self.assertGreater(iteration["communication_seconds"], 0.0)
            self.assertAlmostEqual(iteration["flop"] / (3 * 2 * 2 * 256 * 256 * 32), 1.0, places=2)


if __name__ == "__main__":
    unittest.main()
