"""finsy's example programs with their own tests, unchanged, against `crux switch` in Mininet.

    git clone https://github.com/byllyfish/finsy
    python3 -m venv FINSY && FINSY/bin/pip install -r scripts/clients/finsy.txt -r scripts/clients/finsy-examples.txt
    FINSY/bin/python scripts/check-examples.py target/release/crux finsy

Needs root, Mininet and ping (Debian: mininet, iputils-ping). Left out are hello, whose tests fail
where Python takes half a second to start, simple, which wants iperf and telnet, gnmi, which changes
ports of the machine, and those of what is in a container image: int, tls_demo, mtls and copy_file.
Names of examples behind the checkout run these alone, also hello on an idle machine.
"""

import os
import pathlib
import subprocess
import sys

SCRIPTS = pathlib.Path(__file__).resolve().parent
# Which tests of an example share a network. ngsdn learns hosts from what they ask, and a host that
# knows its gateway does not ask for half a minute: its two ways of routing get a network each.
EXAMPLES = {
    "l2switch": ("",),
    "tunnel": ("",),
    "flowcache": ("",),
    "basic": ("",),
    "ngsdn": ("not actionprofile", "actionprofile"),
}
LIMIT_SECONDS = 120


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    crux, checkout, *wanted = sys.argv[1:]
    # finsy asks which of its addresses leads outside, and a namespace has none.
    outside = ["ip", "route", "replace", "10.254.254.254", "dev", "lo"]
    subprocess.run(outside, check=True)
    modules = (SCRIPTS / "clients", SCRIPTS.parent / "bmv2-testbed/crux-mininet")
    environment = os.environ | {
        "CRUX": str(pathlib.Path(crux).resolve()),
        "PYTHONPATH": os.pathsep.join(map(str, modules)),
    }
    for name in wanted or EXAMPLES:
        command = [sys.executable, "-m", "pytest", "-p", "finsy_plugin", "-q", "-o", "log_cli=false"]
        for tests in EXAMPLES.get(name, ("",)):
            done = subprocess.run(
                [*command, f"tests/test_{name}.py", "-k", tests],
                cwd=pathlib.Path(checkout) / "examples",
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, timeout=LIMIT_SECONDS,
            )
            if done.returncode:
                raise SystemExit(f"{done.stdout}\nfinsy's example {name} fails")
            result = done.stdout.strip().splitlines()[-1].strip("= ")
            print(f"finsy's example {name}: {result}", flush=True)


if __name__ == "__main__":
    main()
