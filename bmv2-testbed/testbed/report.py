"""The phases side by side, for people; the JSON beside it holds the same and more."""


def table(rows):
    """Columns as wide as they must be."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    line = lambda row: "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
    return "\n".join(line(row) for row in rows)


def text(result):
    """What a person reads."""
    slower = result["slower"]
    phases = result["phases"]
    rows = [["job", "GPUs"]]
    for phase in phases:
        rows[0] += [f"{phase['name']} s"] + (["embedded s"] if phase.get("embedded") else [])
    if len(phases) > 1:
        rows[0].append(f"{phases[-1]['name']} vs {phases[0]['name']}")
    for index, job in enumerate(phases[0]["jobs"]):
        row = [job["id"], str(job["gpus"])]
        for phase in phases:
            row.append(seconds(phase["jobs"][index], slower))
            if phase.get("embedded"):
                row.append(seconds(phase["embedded"]["jobs"][index], slower))
        if len(phases) > 1:
            first, last = (mean(phase["jobs"][index]) for phase in (phases[0], phases[-1]))
            row.append(f"{(last / first - 1) * 100:+.1f} %")
        rows.append(row)
    lines = [result["title"], heading(result), "", table(rows), ""]
    for phase in phases:
        lines += phase_lines(phase, slower)
    if not result["valid"]:
        lines.append("INVALID: processors were saturated; give --slower a larger number")
    return "\n".join(lines)


def heading(result):
    return (
        f"switches: {result['switch']}; rates and sizes divided by {result['rate_scale']:g}, times "
        f"shown as without slowing down by {result['slower']:g}; seed {result['seed']}"
    )


def mean(job):
    return job["mean_iteration_seconds"] or float("nan")


def seconds(job, slower):
    return f"{mean(job) / slower:.4f}"


def phase_lines(phase, slower):
    """GPU utilisation, losses, processors, and iteration times around events."""
    processors = phase["processors"]
    lines = [
        f"{phase['name']}: GPU utilisation {phase['gpu_utilization'] * 100:.1f} %"
        + (
            f" (embedded {phase['embedded']['gpu_utilization'] * 100:.1f} %)"
            if phase.get("embedded")
            else ""
        )
        + f"; {phase['retransmitted']} packets sent again, {phase['unreadable']} not understood; "
        f"{processors['mean_idle_cores']:.1f} cores idle, none for "
        f"{processors['saturated_share'] * 100:.0f} % of the time; switches used "
        f"{phase['switch_cpu_seconds']:.1f} s of processor"
    ]
    for event in phase["events"]:
        lines.append(f"  {event['name']} after {event['at_seconds'] / slower:.1f} s:")
        for job in phase["jobs"]:
            before, after = around(job["iteration_seconds"], event["at_seconds"])
            lines.append(
                f"    {job['id']}: {describe(before, slower)} before, {describe(after, slower)} after"
            )
    return lines


def around(iterations, at):
    """Iterations that ended before an instant, and those that began after it."""
    before, after, begun = [], [], 0.0
    for iteration in iterations:
        if begun + iteration <= at:
            before.append(iteration)
        elif begun >= at:
            after.append(iteration)
        begun += iteration
    return before, after


def describe(iterations, slower):
    if not iterations:
        return "none whole"
    average = sum(iterations) / len(iterations) / slower
    return f"{average:.4f} s (longest {max(iterations) / slower:.4f})"
