"""What the ranks of a job send to each other, from the process groups of rank 0.

Every group of rank 0 stands for those alike all over the job: with tensor groups of 8, there are
world/8 of them. Rings pass the ranks of a host one after the other and have a channel for each of
these, which leaves a host by the rank by which it enters it; and what is for a rank elsewhere leaves by
the rank of the same place in the host, from any sender (PXN), as those of NCCL do.
"""

from .process_groups import copies_of, sent_bytes

# Pairs of ranks that an announcement names, a line to the agent of at most 256 KiB; a job of more is
# known by the operations of its groups.
MAX_PAIRS = 2_048

# Parts of the computation between which operations begin at different times.
APART = 0.1


def rank_traffic(groups, world, ranks_per_host):
    """Pairs of ranks on different hosts with what they send in the time of `groups`, as a jobs
    document has them; empty if there are too many."""
    sent = {}
    begin_apart = begin_at_different_times(groups, ranks_per_host)
    for group in groups:
        if group.host_count(ranks_per_host) < 2:
            continue
        for operation, (_, size) in group.operations.items():
            pairs_of = PATTERNS.get(operation, ring_pairs)
            for ranks in copies_of(operation, group.ranks, world):
                for pair, size_sent in pairs_of(operation, size, ranks, ranks_per_host):
                    key = (pair, group.overlap_from[operation] if begin_apart else None)
                    sent[key] = sent.get(key, 0.0) + size_sent
                    if len(sent) > MAX_PAIRS:
                        return []
    crossing = [(*key, size) for key, size in sent.items() if size > 0.0]
    crossing.sort(key=lambda item: (item[0], item[1] or 0.0))
    return [one_pair(*item) for item in crossing]


def group_collectives(groups, world, ranks_per_host):
    """The operations of groups that cross hosts, as `collectives` of a jobs document; empty if the
    ranks of one are not equally far from each other, or such groups do not add up to the job."""
    begin_apart = begin_at_different_times(groups, ranks_per_host)
    stated = []
    for group in groups:
        if group.host_count(ranks_per_host) < 2:
            continue
        for operation, (_, size) in group.operations.items():
            count, stride = len(group.ranks), group.ranks[1] - group.ranks[0]
            if operation == "send" and count == 2:
                count = world // stride
            first = group.ranks[0]
            regular = range(first, first + len(group.ranks) * stride, stride) if stride > 0 else ()
            if group.ranks != tuple(regular) or world % (count * stride) != 0:
                return []
            known = {"kind": KINDS.get(operation, "all_gather"), "bytes": float(size)}
            if count < world:
                known["groups"] = {"size": count, "stride": stride}
            if begin_apart:
                known["overlap_from"] = group.overlap_from[operation]
            stated.append(known)
    return stated


def one_pair(pair, begin, size):
    known = {} if begin is None else {"overlap_from": begin}
    return {"src": pair[0], "dst": pair[1], "bytes": size, **known}


def begin_at_different_times(groups, ranks_per_host):
    """Whether operations that cross hosts begin in parts of the computation that differ by more than
    calls from Python may be early or late."""
    crossing = [group for group in groups if group.host_count(ranks_per_host) > 1]
    begins = [group.overlap_from.get(name) for group in crossing for name in group.operations]
    return bool(begins) and None not in begins and max(begins) - min(begins) > APART


def pipeline_pairs(_, size, ranks, ranks_per_host):
    """Activations to the next stage, and their gradients back."""
    for first, then in zip(ranks, ranks[1:]):
        if first // ranks_per_host != then // ranks_per_host:
            yield (first, then), float(size)
            yield (then, first), float(size)


def all_pairs(_, size, ranks, ranks_per_host):
    """Each rank sends an equal part of what it holds to every other."""
    members = frozenset(ranks)
    for src in ranks:
        for dst in ranks:
            host = src // ranks_per_host
            if host != dst // ranks_per_host:
                beside = host * ranks_per_host + dst % ranks_per_host
                yield (beside if beside in members else src, dst), size / len(ranks)


def ring_pairs(operation, size, ranks, ranks_per_host):
    """From host to host around the ring, an equal part by each channel."""
    hosts = {}
    for rank in ranks:
        hosts.setdefault(rank // ranks_per_host, []).append(rank)
    hosts = list(hosts.values())
    channels = max(len(host) for host in hosts)
    part = sent_bytes(operation, size, len(ranks)) / channels
    for host, following in zip(hosts, hosts[1:] + hosts[:1]):
        for channel in range(channels):
            yield (host[channel % len(host)], following[channel % len(following)]), part


# How the pairs of a group follow from an operation; all others are rings.
PATTERNS = {"send": pipeline_pairs, "all_to_all": all_pairs}

# The kinds that documents have for them; all others send around a ring once.
KINDS = {
    "all_reduce": "ring_all_reduce",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "send": "pipeline",
}
