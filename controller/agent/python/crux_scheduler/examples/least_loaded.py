"""Jobs of the highest GPU intensity first, each flow on its least loaded path.

GPU intensity is FLOP per second of communication (Crux, SIGCOMM 2024, section 3.1), here with the
first path of every flow. Loads are seconds per second: what a flow sends in an iteration, over the
time that the job alone takes for it.
"""

from crux_scheduler import Decision, run


def busy_seconds(request, job):
    """Seconds that the job takes its busiest link, on the first path of every flow."""
    seconds = [0.0] * len(request.links)
    for flow in job.flows:
        for link in flow.paths[0] if flow.paths else []:
            seconds[link] += request.links[link].seconds(flow.bytes)
    return max(seconds)


def schedule(request):
    busy = {job.id: busy_seconds(request, job) for job in request.jobs}
    order = sorted(request.jobs, key=lambda job: job.flop_per_iteration / (busy[job.id] + 1e-12))
    loads = [0.0] * len(request.links)
    decisions = {}
    for rank, job in enumerate(reversed(order)):
        paths = []
        for flow in job.flows:
            worst = [max(loads[link] for link in path) for path in flow.paths]
            paths.append(worst.index(min(worst)) if worst else None)
            for link in flow.paths[paths[-1]] if worst else []:
                share = request.links[link].seconds(flow.bytes)
                loads[link] += share / (job.compute_seconds + busy[job.id])
        level = request.levels[max(0, len(request.levels) - 1 - rank)]
        decisions[job.id] = Decision(paths, level)
    return decisions


if __name__ == "__main__":
    run(schedule)
