#!/usr/bin/env python3
"""Validates documents of this tree, and what commands print, by the schemas that `crux schema` prints.

    scripts/check-schemas.py CRUX

The schemas come from the types that read and write the documents. This check is by another
implementation of JSON Schema, which is what editors use. Needs the PyPI package jsonschema.
"""

import json
import pathlib
import subprocess
import sys
import tomllib

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = {
    "fabric": [
        *sorted(ROOT.glob("topology/fabrics/*.toml")),
        ROOT / "bmv2-testbed/scenarios/lab-fabric.toml",
        ROOT / "scripts/packaging/examples/local.toml",
        ROOT / "scripts/fuzz/corpora/fabrics/clos",
    ],
    "jobs": [
        *sorted(ROOT.glob("bmv2-testbed/scenarios/*-jobs.json")),
        ROOT / "controller/cli/examples/jobs.toml",
        ROOT / "controller/cli/examples/2000-gpus.toml",
        ROOT / "scripts/fuzz/corpora/jobs/toml",
    ],
    "policy": [ROOT / "scripts/fuzz/corpora/policies/policy"],
    "configuration": [ROOT / "scripts/fuzz/corpora/configurations/toml"],
}
INPUT = ["--fabric", "topology/fabrics/lab.toml", "--jobs", "controller/cli/examples/jobs.toml"]
PRINTED = {
    "plan": ["plan", *INPUT],
    "outcome": ["simulate", *INPUT, "--scheduler", "crux"],
    "comparison": ["compare", *INPUT],
}


def printed(crux, *arguments):
    run = subprocess.run([crux, *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return json.loads(run.stdout)


def read_document(path):
    # Seeds of the fuzzer begin with a byte for the format, 0 for TOML.
    text = path.read_text(encoding="utf-8").removeprefix("\0")
    return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    crux = str(pathlib.Path(sys.argv[1]).resolve())
    documents = [(kind, path.relative_to(ROOT), read_document(path))
                 for kind, paths in DOCUMENTS.items() for path in paths]
    documents += [(kind, f"crux {arguments[0]}", printed(crux, *arguments, "--format", "json"))
                  for kind, arguments in PRINTED.items()]
    schemas = {kind: printed(crux, "schema", kind) for kind in {**DOCUMENTS, **PRINTED}}
    wrong = 0
    for kind, name, document in documents:
        validator = jsonschema.validators.validator_for(schemas[kind])(schemas[kind])
        for error in validator.iter_errors(document):
            print(f"{name}: {error.json_path}: {error.message[:200]}")
            wrong += 1
    # A schema that accepts anything would pass all of the above.
    for kind, schema in schemas.items():
        if jsonschema.validators.validator_for(schema)(schema).is_valid({"no such field": 1}):
            print(f"{kind}: the schema accepts a field that there is not")
            wrong += 1
    print(f"{len(documents)} documents, {len(schemas)} schemas, {wrong} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
