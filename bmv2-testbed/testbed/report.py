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
    beside = [d for phase in phases if "embedded" in phase for d in differences(phase)]
    if beside:
        largest = max(beside, key=abs)
        lines.append(f"largest difference from the embedded fabric: {largest * 100:+.1f} %")
    if not result["valid"]:
        lines.append("INVALID: processors were saturated; give --slower a larger number")
    return "\n".join(lines)


def heading(result):
    return (
        f"switches: {result['switch']}; rates and sizes divided by {result['rate_scale']:g}, times "
        f"shown as without slowing down by {result['slower']:g}; seed {result['seed']}; hosts send "
        f"by {sending(result)}"
    )


def sending(result):
    return {"window": "windows", "dcqcn": f"DCQCN, {result['levels']} levels"}[result["transport"]]


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
    if phase.get("marked"):
        lines.append(
            f"  {phase['marked']} packets marked, {phase['notifications']} congestion "
            f"notifications, {phase['timeouts']} timeouts"
        )
    if "scheduled" in phase:
        lines.append(scheduled_line(phase["scheduled"]))
    beside = phase.get("embedded", {}).get("jobs", [None] * len(phase["jobs"]))
    for event, (begin, end) in zip(phase["events"], spans(phase["events"])):
        at = event["at_seconds"]
        lines.append(f"  {event['name']} after {at / slower:.1f} s:")
        for job, embedded in zip(phase["jobs"], beside):
            before, after = (
                describe(job, embedded, span, slower) for span in ((begin, at), (at, end))
            )
            lines.append(f"    {job['id']}: {before} before, {after} after")
    return lines


def scheduled_line(judged):
    return (
        f"  {judged['connections']} connections between leaves: "
        f"{judged['share_as_planned'] * 100:.3f} % of {judged['bytes'] / 1e6:.1f} MB on the planned "
        f"path and level, {judged['packets_elsewhere_after_1_s']} packets elsewhere after 1 s, "
        f"{judged['packets_at_level_0']} at level 0; {judged['flows_learned']} flows learned, "
        f"{judged['wrong_owners']} with a wrong owner"
    )


def spans(events):
    """For each event, since when nothing else had happened, and until when nothing else did."""
    at = [event["at_seconds"] for event in events]
    return list(zip([0.0] + at[:-1], at[1:] + [float("inf")]))


def within(job, span):
    """Durations of the iterations that began and ended in a span of time, but the first ever."""
    begun = job["begun_seconds"][1:]
    whole = [pair for pair in zip(begun, begun[1:]) if span[0] <= pair[0] and pair[1] <= span[1]]
    return [end - start for start, end in whole]


def describe(job, embedded, span, slower):
    """The mean of some iterations, here and on the embedded fabric."""
    iterations = within(job, span)
    if not iterations:
        return "none whole"
    beside = within(embedded, span) if embedded else []
    said = f"{average(iterations) / slower:.4f} s (longest {max(iterations) / slower:.4f}"
    return said + (f", embedded {average(beside) / slower:.4f})" if beside else ")")


def average(values):
    return sum(values) / len(values)


def differences(phase):
    """Iteration times against those of the embedded fabric, relative: for each job over the whole
    of a phase or, where something happens, over what comes before, between and after."""
    events = phase["events"]
    edges = [0.0] + [event["at_seconds"] for event in events] + [float("inf")]
    for job, embedded in zip(phase["jobs"], phase["embedded"]["jobs"]):
        if not events:
            yield mean(job) / mean(embedded) - 1
            continue
        for span in zip(edges, edges[1:]):
            here, there = within(job, span), within(embedded, span)
            if here and there:
                yield average(here) / average(there) - 1
