"""Runs the demo on the SAI P4 programs that are published, compiled for the embedded switch.

Needs a checkout of sonic-net/sonic-pins and p4c-bm2-ss. Every entry that the controller writes must
be read back, and every planned flow must leave each switch by the port of the plan, at the level of
its job.

    python3 scripts/check-sai.py target/release/crux SONIC-PINS
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

PROGRAMS = ("middleblock", "tor")
FOLDER = "sai_p4/instantiations/google"


def compile_program(arguments, name, target):
    """The P4Info and the JSON of a published program."""
    p4info, code = target / f"{name}.p4info.txtpb", target / f"{name}.json"
    include = ["-I", arguments.include] if arguments.include else []
    command = [arguments.p4c, *include, "--std", "p4-16", "--p4runtime-files", p4info, "-o", code]
    source = arguments.checkout / FOLDER
    done = subprocess.run([*command, f"{name}.p4"], cwd=source, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name}.p4 does not compile:\n{done.stderr}")
    return p4info, code


def run_demo(crux, p4info, code):
    command = [crux, "demo", "--pipeline", "sai", "--sai-p4info", p4info, "--sai-json", code]
    command += ["--time-scale", "8000", "--iterations", "2", "--format", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return done.returncode, json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("crux", type=pathlib.Path)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--p4c", default="p4c-bm2-ss", help="the compiler; found on the path")
    parser.add_argument("--include", help="folder of core.p4, where the compiler does not know it")
    arguments = parser.parse_args()
    crux = arguments.crux.resolve()
    with tempfile.TemporaryDirectory() as folder:
        for name in PROGRAMS:
            files = compile_program(arguments, name, pathlib.Path(folder))
            status, report = run_demo(crux, *files)
            print(
                f"{name}: {report['entries']} entries held, {report['different_entries']} differ; "
                f"{report['pins']} flows pinned, {len(report['strays'])} astray; GPU utilisation "
                f"{100 * report['gpu_utilization']['crux']:.1f} %"
            )
            if status or not report["verified"]:
                sys.exit(f"{name}: the demo ended with status {status}")


if __name__ == "__main__":
    main()
