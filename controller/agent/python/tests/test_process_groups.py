"""Volumes by process group, against a network that carries the rings of every rank."""

import unittest

from crux_telemetry.process_groups import GroupCounter, GroupTraffic, job_traffic
from crux_telemetry.rank_traffic import group_collectives, rank_traffic
from tests.ring_network import Distributed, ProcessGroup, RingNetwork, Tensor

LAYERS = [Tensor(12_345_679), Tensor(4_000_001), Tensor(4_000_001), Tensor(7)]


def train(hosts, per_host, step):
    """One iteration of all ranks: bytes between hosts, and what rank 0 has counted."""
    network, counter = RingNetwork(hosts, per_host), GroupCounter()
    for rank in range(network.world):
        distributed = Distributed(network, rank)
        if rank == 0:
            counter.install(distributed)
        step(distributed, rank, network.world)
    return network.sent, counter.take()


def fsdp(distributed, rank, world):
    """Full sharding: parameters are gathered forward and backward, gradients scattered."""
    for layer in LAYERS + LAYERS[::-1]:
        distributed.all_gather_into_tensor(layer, Tensor(-(-layer.count // world)))
    for layer in LAYERS[::-1]:
        distributed.reduce_scatter_tensor(Tensor(-(-layer.count // world)), layer)


def hybrid_fsdp(distributed, rank, world):
    """Sharded within a host of eight, replicated between hosts."""
    shards = ProcessGroup(range(rank // 8 * 8, rank // 8 * 8 + 8))
    replicas = ProcessGroup(range(rank % 8, world, 8))
    for layer in LAYERS:
        share = Tensor(-(-layer.count // 8))
        distributed.all_gather_into_tensor(output_tensor=layer, input_tensor=share, group=shards)
        distributed.reduce_scatter_tensor(share, layer, group=shards)
        distributed.all_reduce(share, group=replicas)


def megatron(tensor, pipeline):
    """Tensor groups of neighbours, then data groups, then the stages of a pipeline."""

    def step(distributed, rank, world):
        stage_ranks = world // pipeline
        stage, data = rank // stage_ranks, rank % tensor
        tensor_group = ProcessGroup(range(rank // tensor * tensor, rank // tensor * tensor + tensor))
        first = stage * stage_ranks
        data_group = ProcessGroup(range(first + data, first + stage_ranks, tensor))
        stages = ProcessGroup(range(rank % stage_ranks, world, stage_ranks))
        activations = Tensor(2048 * 4096)
        for _ in range(8):
            for _ in range(4 * 2):
                distributed.all_reduce(activations, group=tensor_group)
            if stage < pipeline - 1:
                distributed.isend(activations, rank + stage_ranks, group=stages)
            if stage > 0:
                distributed.isend(activations, rank - stage_ranks, group=stages)
        distributed.all_reduce(Tensor(350_000_003), group=data_group)

    return step


def experts(distributed, rank, world):
    """Tokens to experts on all ranks and back."""
    for _ in range(2):
        distributed.all_to_all_single(Tensor(1_000_000), Tensor(1_000_000))


CASES = {
    "FSDP on 2 hosts": (2, 8, fsdp, "ring_all_reduce"),
    "FSDP on 16 hosts": (16, 8, fsdp, "ring_all_reduce"),
    "hybrid FSDP": (4, 8, hybrid_fsdp, "ring_all_reduce"),
    "Megatron, tensor 8, pipeline 1": (4, 8, megatron(8, 1), "ring_all_reduce"),
    "Megatron, tensor 8, pipeline 4": (8, 8, megatron(8, 4), "ring_all_reduce"),
    "Megatron, tensor 4, pipeline 2": (4, 8, megatron(4, 2), "ring_all_reduce"),
    "Megatron, tensor 16, pipeline 2": (4, 8, megatron(16, 2), "ring_all_reduce"),
    "experts": (4, 8, experts, "all_to_all"),
}


class Volumes(unittest.TestCase):
    def test_volumes_are_within_five_percent(self):
        for name, (hosts, per_host, step, kind) in CASES.items():
            with self.subTest(name):
                sent, groups = train(hosts, per_host, step)
                total, collective = job_traffic(groups, hosts * per_host, per_host)
                print(f"{name}: {total / sent - 1:+.2%} of {sent / 1e9:.2f} GB")
                self.assertLess(abs(total / sent - 1), 0.05)
                self.assertEqual(collective["kind"], kind)
                # What the planner derives from the collective is what was sent.
                world = hosts * per_host
                by_host = {
                    "ring_all_reduce": 2.0 * (world - 1) / world,
                    "all_to_all": (world - per_host) / world * per_host,
                }
                planned = by_host[kind] * hosts * collective["bytes"]
                self.assertLess(abs(planned / sent - 1), 0.05)
                by_rank = rank_traffic(groups, world, per_host)
                together = sum(pair["bytes"] for pair in by_rank)
                self.assertLess(abs(together / sent - 1), 0.05)

    def test_every_rank_of_a_host_has_a_channel_of_a_ring(self):
        group = GroupTraffic(range(4))
        group.add("all_reduce", 1000)
        pairs = rank_traffic([group], 4, 2)
        # Each edge of a ring of four ranks carries 1500 bytes, here over two channels.
        expected = [(0, 2), (1, 3), (2, 0), (3, 1)]
        self.assertEqual(pairs, [{"src": a, "dst": b, "bytes": 750.0} for a, b in expected])

    def test_operations_that_begin_at_other_times_have_flows_of_their_own(self):
        # Of the same ranks, as in a job whose experts are all over it.
        counter = GroupCounter()
        counter.record(tuple(range(4)), "all_to_all", 400)
        counter.record(tuple(range(4)), "all_reduce", 1000)
        (group,) = counter.take()

        def of_first_pair(begins):
            group.overlap_from = dict(zip(group.operations, begins))
            pairs = rank_traffic([group], 4, 2)
            return [(pair["bytes"], pair.get("overlap_from"))
                    for pair in pairs if (pair["src"], pair["dst"]) == (0, 2)]

        self.assertEqual(of_first_pair((0.1, 0.6)), [(200.0, 0.1), (750.0, 0.6)])
        # Within what calls may be early or late, and where nobody knows.
        self.assertEqual(of_first_pair((0.55, 0.6)), [(950.0, None)])
        self.assertEqual(of_first_pair((None, 0.6)), [(950.0, None)])

    def test_groups_alike_are_all_over_the_job(self):
        # Data-parallel groups of two, one for each of the two ranks of a host.
        group = GroupTraffic((0, 2))
        group.add("all_gather", 100)
        pairs = rank_traffic([group], 8, 2)
        self.assertEqual({(pair["src"], pair["dst"]) for pair in pairs},
                         {(0, 2), (2, 0), (1, 3), (3, 1), (4, 6), (6, 4), (5, 7), (7, 5)})
        self.assertEqual({pair["bytes"] for pair in pairs}, {50.0})
        # The first and the last of four stages share an embedding; those between do not.
        ends = GroupTraffic((0, 6))
        ends.add("all_gather", 100)
        pairs = {(pair["src"], pair["dst"]) for pair in rank_traffic([ends], 8, 2)}
        self.assertEqual(pairs, {(0, 6), (6, 0), (1, 7), (7, 1)})

    def test_iterations_have_the_bytes_that_were_announced(self):
        # A pipeline of eight stages that is known by its first two, and what its ends share.
        stages, ends = GroupTraffic((0, 8)), GroupTraffic((0, 56))
        stages.add("send", 100)
        ends.add("all_reduce", 100)
        for groups, sent in (([stages], 2 * 56 * 100.0), ([stages, ends], 12_800.0)):
            self.assertEqual(job_traffic(groups, 64, 8)[0], sent)
            by_rank = rank_traffic(groups, 64, 8)
            self.assertEqual(sum(pair["bytes"] for pair in by_rank), sent)

    def test_a_job_of_many_ranks_is_known_by_the_operations_of_its_groups(self):
        world, sizes = 512, {"all_to_all": 400, "all_reduce": 1000}
        everyone, pair, odd = GroupTraffic(range(world)), GroupTraffic((0, 128)), GroupTraffic((0, 1, 9))
        for operation, size in sizes.items():
            everyone.add(operation, size)
        pair.add("send", 7)
        odd.add("all_reduce", 5)
        self.assertEqual(rank_traffic([everyone], world, 8), [])
        self.assertEqual(group_collectives([everyone, pair], world, 8), [
            {"kind": "all_to_all", "bytes": 400.0},
            {"kind": "ring_all_reduce", "bytes": 1000.0},
            {"kind": "pipeline", "bytes": 7.0, "groups": {"size": 4, "stride": 128}},
        ])
        self.assertEqual(group_collectives([everyone, odd], world, 8), [])

    def test_what_is_for_a_rank_elsewhere_leaves_by_the_rank_of_its_place(self):
        group = GroupTraffic(range(4))
        group.add("all_to_all", 400)
        pairs = {(pair["src"], pair["dst"]): pair["bytes"] for pair in rank_traffic([group], 4, 2)}
        self.assertEqual(pairs, {(0, 2): 200.0, (1, 3): 200.0, (2, 0): 200.0, (3, 1): 200.0})

    def test_a_job_on_one_host_sends_nothing(self):
        sent, groups = train(1, 8, fsdp)
        self.assertEqual((sent, job_traffic(groups, 8, 8)[0]), (0, 0.0))


class Counting(unittest.TestCase):
    def test_groups_are_kept_apart_and_functions_are_put_back(self):
        network, counter = RingNetwork(2, 8), GroupCounter()
        distributed = Distributed(network, 0)
        original = distributed.all_reduce
        counter.install(distributed)
        tensor_group = ProcessGroup(range(4))
        distributed.all_reduce(Tensor(10), group=tensor_group)
        distributed.all_reduce(Tensor(100))
        distributed.isend(Tensor(5), 8)
        with counter.suspended():
            distributed.all_reduce(Tensor(100))
        groups = {group.ranks: group.operations for group in counter.take()}
        everyone = tuple(range(16))
        self.assertEqual(groups[(0, 1, 2, 3)], {"all_reduce": (1, 20)})
        self.assertEqual(groups[everyone], {"all_reduce": (1, 200)})
        self.assertEqual(groups[(0, 8)], {"send": (1, 10)})
        self.assertEqual(counter.take(), [])
        counter.remove()
        self.assertIs(distributed.all_reduce, original)

    def test_what_cannot_be_counted_runs_all_the_same(self):
        network, counter = RingNetwork(2, 8), GroupCounter()
        distributed = Distributed(network, 0)
        called = []
        distributed.broadcast = lambda tensor, src: called.append(tensor)
        counter.install(distributed)
        distributed.broadcast("no tensor", 0)
        self.assertEqual((called, counter.take()), (["no tensor"], []))


if __name__ == "__main__":
    unittest.main()
