"""Runs the demo on the SAI P4 programs that are published, compiled for the embedded switch.

Needs a checkout of sonic-net/sonic-pins and p4c-bm2-ss. Every entry that the controller writes must
be read back, and every planned flow must leave each switch by the port of the plan, at the level of
its job.

    python3 scripts/check-sai.py target/release/crux SONIC-PINS

With --keep FOLDER the compiled programs stay there, also as BMv2 takes them, which translates no
strings. With one of them and simple_switch_grpc on PATH, a test gives BMv2 the rows of a plan and
compares the packets that it forwards:

    CRUX_SAI_BMV2=FOLDER/middleblock cargo test -p controller --test sessions sai_bmv2
    CRUX_SAI_BMV2=FOLDER/tor cargo test -p controller --test sessions sai_bmv2
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

PROGRAMS = ("middleblock", "tor")
FOLDER = "sai_p4/instantiations/google"


def compile_program(arguments, name, target, platform=None):
    """The P4Info and the JSON of a published program, perhaps for a platform that it knows."""
    suffix = f"-{platform.lower()}" if platform else ""
    p4info, code = target / f"{name}{suffix}.p4info.txtpb", target / f"{name}{suffix}.json"
    flags = ["-I", arguments.include] if arguments.include else []
    flags += [f"-DPLATFORM_{platform}"] if platform else []
    command = [arguments.p4c, *flags, "--std", "p4-16", "--p4runtime-files", p4info, "-o", code]
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
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the compiled programs")
    arguments = parser.parse_args()
    crux = arguments.crux.resolve()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.keep or pathlib.Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for name in PROGRAMS:
            files = compile_program(arguments, name, folder)
            if arguments.keep:
                compile_program(arguments, name, folder, "BMV2")
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
