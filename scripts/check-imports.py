"""Public topologies: each is imported in full, or refused with the field and the reason; and what is
exported has the schema of containerlab.

    scripts/check-imports.py target/release/crux FOLDER

Tries every topology of containerlab and of p4-utils or the P4 tutorials below the folder. What is
imported has every node and cable in the fabric or among its omissions; a refusal is a
template, or no fabric by what the error says. A checkout of containerlab among them has its schema.
Needs PyYAML and jsonschema-rs.
"""

import json
import pathlib
import re
import subprocess
import sys

import jsonschema_rs
import yaml

FABRICS = pathlib.Path(__file__).resolve().parent.parent / "topology/fabrics"
# Reasons that are true of a file, and are no fault of the importer.
REASONS = (
    "is a switch with a cable of the fabric",
    "no host has a cable to a switch",
    "cables do not say whether it is a switch or a host",
    "already has the cable of",
    "this is a template",
)


def labs(folder):
    """Topologies of containerlab: (kind, file, nodes, cables)."""
    for file in sorted(folder.rglob("*.y*ml")):
        text = file.read_text(errors="replace")
        if re.search(r"^topology:", text, re.M) and re.search(r"^ +nodes:", text, re.M):
            try:
                topology = yaml.safe_load(text)["topology"]
                counts = len(topology["nodes"] or ()), len(topology.get("links") or ())
            except (yaml.YAMLError, TypeError, KeyError):
                counts = None, None
            yield "containerlab", file, *counts


def apps(folder):
    """Topologies of p4-utils and of the tutorials."""
    for file in sorted(folder.rglob("*.json")):
        if "topology" not in file.name and "p4app" not in file.name:
            continue
        text = file.read_text(errors="replace")
        if '"links"' not in text:
            continue
        try:
            document = json.loads(text)
            topology = document.get("topology", document)
            kinds = [topology.get(kind) or () for kind in ("hosts", "switches", "routers")]
            counts = sum(map(len, kinds)), len(topology["links"])
        except (ValueError, AttributeError, KeyError):
            counts = None, None
        yield "p4utils", file, *counts


def count_left_out(errors, noun):
    counts = re.findall(rf"^left out: (\d+) {noun}s? ", errors, re.M)
    return sum(map(int, counts))


def check_exports(crux, folder):
    """Topologies of containerlab that we write, by its own schema."""
    for schema in folder.rglob("clab.schema.json"):
        # The patterns of the schema have classes of Unicode, which Python's `re` does not read.
        validator = jsonschema_rs.validator_for(json.loads(schema.read_text()))
        fabrics = sorted(FABRICS.glob("*.toml"))
        for fabric in fabrics:
            command = [crux, "fabric", "export", "containerlab", fabric]
            text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            for error in validator.iter_errors(yaml.safe_load(text)):
                raise SystemExit(f"{fabric.name} as a lab: {error.message}")
        print(f"exports: {len(fabrics)} topologies have the schema of containerlab")


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    crux, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    imported, refused, wrong = 0, 0, []
    for kind, file, nodes, cables in [*labs(folder), *apps(folder)]:
        done = subprocess.run(
            [crux, "fabric", "import", kind, file], capture_output=True, text=True, timeout=60
        )
        if done.returncode == 0:
            imported += 1
            fabric, errors = json.loads(done.stdout), done.stderr
            found = len(fabric["switches"]) + len(fabric["hosts"]) + count_left_out(errors, "node")
            found = found, len(fabric["links"]) + count_left_out(errors, "cable")
            if found != (nodes, cables):
                wrong.append(f"{file}: {nodes} nodes and {cables} cables, found {found}")
        elif any(reason in done.stderr for reason in REASONS):
            refused += 1
        else:
            wrong.append(f"{file}: {done.stderr.strip()}")
    check_exports(crux, folder)
    print(f"imports: {imported} files in full, {refused} that are no fabric")
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
