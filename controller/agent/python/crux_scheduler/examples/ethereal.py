"""Ethereal (Addanki et al., arXiv 2407.00550) without its splits: flows dealt out evenly.

A leaf deals its flows to another leaf out to the equal-cost paths in turn, as many to each. What is
left over goes where the leaf has sent the fewest bytes. The paper splits these last flows among all
paths; here a flow has one path, so a ring with several connections for each NIC is nearest to it.
It knows no jobs: there is one level.
"""

from collections import defaultdict

from crux_scheduler import Decision, run


def schedule(request):
    groups = defaultdict(list)
    chosen = {job.id: [None] * len(job.flows) for job in request.jobs}
    for job in request.jobs:
        for place, flow in enumerate(job.flows):
            if flow.paths:
                leaves = (request.links[flow.paths[0][0]].dst, request.links[flow.paths[0][-1]].src)
                groups[leaves].append((job.id, place, flow))
    sent = [0.0] * len(request.links)
    for flows in groups.values():
        flows.sort(key=lambda known: -known[2].bytes)
        for number, (job, place, flow) in enumerate(flows):
            ways = range(len(flow.paths))
            even = len(flows) - len(flows) % len(flow.paths)
            load = [max((sent[link] for link in path[1:-1]), default=0.0) for path in flow.paths]
            best = number % len(ways) if number < even else min(ways, key=load.__getitem__)
            for link in flow.paths[best]:
                sent[link] += flow.bytes
            chosen[job][place] = best
    return {job: Decision(paths, request.levels[0]) for job, paths in chosen.items()}


if __name__ == "__main__":
    run(schedule)
